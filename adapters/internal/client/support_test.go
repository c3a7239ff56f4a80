package client

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// server is a RoundTripper that answers by itself and remembers what it was
// sent, when, counted from its first look at the clock.
type server struct {
	answer func(n int, r *http.Request) *http.Response // n counts from 0

	mu     sync.Mutex
	start  time.Time
	at     []time.Duration
	bodies []string
	opened []*body // bodies of the answers
}

func newServer(answer func(n int, r *http.Request) *http.Response) *server {
	return &server{answer: answer, start: time.Now()}
}

// script answers with one status and its fields after another, "429
// Retry-After: 2" for example, and with 200 when they are over.
func script(lines ...string) *server {
	return newServer(func(n int, _ *http.Request) *http.Response {
		if n < len(lines) {
			return answer(lines[n])
		}
		return answer("200")
	})
}

// answer makes a response of "STATUS Name: value|Name: value".
func answer(line string) *http.Response {
	status, fields, _ := strings.Cut(line, " ")
	code := map[string]int{"101": 101, "200": 200, "403": 403, "404": 404, "429": 429, "500": 500, "503": 503}[status]
	resp := &http.Response{StatusCode: code, Header: http.Header{}}
	if fields != "" {
		resp.Header = header(strings.Split(fields, "|")...)
	}
	return resp
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		sent, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.at)
	s.at = append(s.at, time.Since(s.start))
	s.bodies = append(s.bodies, string(sent))
	resp := s.answer(n, r)
	if resp == nil {
		return nil, errors.New("connection refused")
	}
	resp.Request = r
	if resp.Body == nil {
		b := &body{Reader: strings.NewReader("answer " + string(rune('0'+n)))}
		s.opened = append(s.opened, b)
		resp.Body = b
	}
	return resp, nil
}

// times returns when requests have come.
func (s *server) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// body is a response's or a request's body that knows how it was treated.
type body struct {
	io.Reader
	read   int
	closed int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.read += n
	return n, err
}

func (b *body) Close() error { b.closed++; return nil }

// within reports whether got is want plus jitter: never less, and at most a
// tenth (50 ms for short waits) more.
func within(got, want time.Duration) bool {
	return got >= want && got <= want+max(want/10, minStep)
}

func get(url string) *http.Request {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	return r
}

func mustRead(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return string(text)
}

func limiter(t *testing.T, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(append(opts, stint.WithKey(stint.GivenKey()))...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func transport(lim *stint.Limiter, base http.RoundTripper, set ...func(*Transport)) *Transport {
	t := New(lim, base)
	for _, f := range set {
		f(t)
	}
	return t
}

func retries(n int) func(*Transport)           { return func(t *Transport) { t.Retries = n } }
func maxWait(d time.Duration) func(*Transport) { return func(t *Transport) { t.MaxPause = d } }
func destination(k stint.Key) func(*Transport) { return func(t *Transport) { t.Destination = k } }
