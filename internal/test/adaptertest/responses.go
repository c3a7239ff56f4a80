package adaptertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
)

// seen is the arguments of a WithSettle's call.
type seenEnd struct {
	status  int
	written int64
	path    string
}

func watched(t *testing.T) (*stint.Limiter, chan seenEnd) {
	ends := make(chan seenEnd, 10)
	return compiled(t, stint.Rate(100, time.Hour), byAll,
		stint.WithSettle(func(r *http.Request, status int, written int64) int64 {
			ends <- seenEnd{status, written, r.URL.Path}
			return 0
		})), ends
}

// leaves is the key of the function by which the client of a request leaves.
type leaves struct{}

// leaving is a handler whose client leaves before it answers, if it does.
func leaving(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(leaves{}).(context.CancelFunc)()
		if then != nil {
			then(w, r)
		}
	}
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func panicking(v any, first http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if first != nil {
			first(w, r)
		}
		panic(v)
	}
}

func flowSettles(t *testing.T, a Adapter) {
	tests := []struct {
		name    string
		method  string
		do      http.HandlerFunc
		status  int
		written int64
	}{
		{"bytes", "GET", answering(200, "served"), 200, 6},
		{"text", "GET", func(w http.ResponseWriter, _ *http.Request) {
			if s, ok := w.(io.StringWriter); ok {
				_, _ = s.WriteString("served")
			} else {
				_, _ = io.WriteString(w, "served")
			}
		}, 200, 6},
		{"a failure", "GET", answering(503, "later"), 503, 5},
		{"not modified", "GET", answering(304, ""), 304, 0},
		{"nothing", "GET", func(http.ResponseWriter, *http.Request) {}, 200, 0},
		{"nothing, for a client that has left", "GET", leaving(nil), 499, 0},
		{"an answer for a client that has left", "GET", leaving(answering(204, "")), 204, 0},
		{"no body", "HEAD", answering(200, "served"), 200, 0},
		{"a panic", "GET", panicking(http.ErrAbortHandler, nil), 500, 0},
		{"a panic in the middle", "GET", panicking(http.ErrAbortHandler, answering(200, "part")), 200, 4},
		{"another panic in the middle", "GET", panicking("boom", answering(200, "part")), 500, 4},
	}
	for _, tt := range tests {
		l, ends := watched(t)
		h := a.Build(one(l, tt.do))
		func() {
			defer func() { _ = recover() }()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ctx = context.WithValue(ctx, leaves{}, leave)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tt.method, "/", nil).WithContext(ctx))
		}()
		select {
		case got := <-ends:
			if want := (seenEnd{tt.status, tt.written, "/"}); got != want {
				t.Errorf("%s: settled by %+v, want %+v", tt.name, got, want)
			}
		default:
			t.Errorf("%s: not settled", tt.name)
		}
		if got := limitertest.Free(t, l); got != 100 {
			t.Errorf("%s: %d left, want 100", tt.name, got)
		}
	}
}

func flowSettlesStream(t *testing.T, a Adapter) {
	l, ends := watched(t)
	next := make(chan bool)
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_, _ = io.WriteString(w, "data: 1\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-next
		}
	})))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 2 {
		if !lines.Scan() || lines.Text() != "data: 1" {
			t.Fatalf("got %q", lines.Text())
		}
		lines.Scan()
		next <- true
	}
	if got := <-ends; got != (seenEnd{200, 18, "/"}) {
		t.Errorf("settled by %+v", got)
	}
}

// flowSettlesRPC: what a gRPC response says of its outcome counts, not its 200.
func flowSettlesRPC(t *testing.T, a Adapter) {
	for _, in := range []string{"header", "trailer", "undeclared trailer"} {
		l := compiled(t, stint.Rate(2, time.Hour, stint.WithSettle(stint.FailedOnly)), byAll)
		h := a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc+proto")
			if field := "Grpc-Status"; in == "header" {
				w.Header().Set(field, r.Header.Get("X-Status"))
			} else {
				if in == "trailer" {
					w.Header().Set("Trailer", field)
				} else {
					field = http.TrailerPrefix + field
				}
				_, _ = io.WriteString(w, "message")
				w.Header().Set(field, r.Header.Get("X-Status"))
			}
		}))
		for i, step := range []struct {
			status string
			want   int
		}{{"0", 200}, {"0", 200}, {"0", 200}, {"16", 200}, {"0", 200}, {"99", 200}, {"0", 429}} {
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("X-Status", step.status)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != step.want {
				t.Errorf("%s, call %d: %d, want %d", in, i, w.Code, step.want)
			}
		}
	}
}

func flowSettlesHijack(t *testing.T, a Adapter) {
	l, ends := watched(t)
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nraw")
		_ = conn.Close()
	})))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, _ := io.ReadAll(conn); !strings.HasSuffix(string(text), "raw") {
		t.Errorf("got %q", text)
	}
	if got := <-ends; got != (seenEnd{101, 0, "/"}) {
		t.Errorf("settled by %+v", got)
	}
}

// able says what a ResponseWriter can do. One may have WriteString that the router's hasn't.
func able(w http.ResponseWriter) string {
	_, flusher := w.(http.Flusher)
	_, hijacker := w.(http.Hijacker)
	_, readerFrom := w.(io.ReaderFrom)
	rc := http.NewResponseController(w)
	return fmt.Sprintf("flusher=%v hijacker=%v readerFrom=%v deadlines=%v,%v duplex=%v",
		flusher, hijacker, readerFrom,
		rc.SetReadDeadline(time.Time{}) == nil, rc.SetWriteDeadline(time.Time{}) == nil, rc.EnableFullDuplex() == nil)
}

// flowHidesNothing: handlers can do over HTTP/1.1 and HTTP/2 what they could
// without a limit.
func flowHidesNothing(t *testing.T, a Adapter) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("0123456789", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		var got [3]string
		l, ends := watched(t)
		paced := compiled(t, stint.Bandwidth(2_000_000, stint.WithBurst(10_000), stint.WithDirection(stint.Both)), byAll)
		for i := range got {
			s := Site{Routes: []Route{{Path: "/", Do: func(w http.ResponseWriter, r *http.Request) {
				got[i] = able(w)
				http.ServeFile(w, r, file)
			}}}}
			switch i {
			case 1:
				s.Limits = []*stint.Limiter{l}
			case 2:
				s.Limits = []*stint.Limiter{paced}
			}
			srv := httptest.NewUnstartedServer(a.Build(s))
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			t.Cleanup(srv.Close)
			r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
			r.Header.Set("Range", "bytes=5-50004")
			resp, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != 206 || len(body) != 50_000 || !strings.HasPrefix(string(body), "56789") ||
				resp.ProtoMajor == 2 != http2 {
				t.Errorf("got %s %d, %d bytes, %v", resp.Proto, resp.StatusCode, len(body), err)
			}
		}
		if got[0] != got[1] || got[0] != got[2] {
			t.Errorf("without a limit %s\nthat settles    %s\nthat paces      %s", got[0], got[1], got[2])
		}
		if end := <-ends; end != (seenEnd{206, 50_000, "/"}) {
			t.Errorf("settled by %+v", end)
		}
	}
}

func flowNotWrapped(t *testing.T, a Adapter) {
	var with, without string
	tell := func(s *string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, flusher := w.(http.Flusher)
			_, hijacker := w.(http.Hijacker)
			_, readerFrom := w.(io.ReaderFrom)
			*s = fmt.Sprintf("%T flusher=%v hijacker=%v readerFrom=%v", w, flusher, hijacker, readerFrom)
		}
	}
	l := compiled(t, stint.Rate(100, time.Minute), stint.Concurrency(5), byAll)
	for _, s := range []Site{one(l, tell(&with)), {Routes: []Route{{Path: "/", Do: tell(&without)}}}} {
		srv := limitertest.Serve(t, a.Build(s))
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if with != without {
		t.Errorf("behind a limiter handlers get a %s, else a %s", with, without)
	}
}

func flowHijack(t *testing.T, a Adapter) {
	for _, limit := range []stint.Limit{stint.Concurrency(1), stint.AdaptiveConcurrency(1, 1)} {
		hijack(t, a, limit)
	}
}

func hijack(t *testing.T, a Adapter, limit stint.Limit) {
	l := compiled(t, limit, byAll)
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\nraw")
	})))
	for range 3 { // the slot comes back each time
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(answer), "HTTP/1.1 101 ") || !strings.HasSuffix(string(answer), "raw") {
			t.Fatalf("got %q", answer)
		}
		limitertest.Eventually(t, func() bool { return limitertest.Free(t, l) == 1 })
	}
}

// flowTakenOver: a connection that a handler has taken over holds slots until it is closed, also
// those of an outer limiter.
func flowTakenOver(t *testing.T, a Adapter) {
	for _, limit := range []stint.Limit{stint.Concurrency(2), stint.AdaptiveConcurrency(2, 2)} {
		outer, inner := compiled(t, limit, byAll), compiled(t, stint.Rate(100, time.Minute), stint.Concurrency(100), byAll)
		site := one(outer, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			if _, ok := conn.(interface{ CloseWrite() error }); !ok {
				t.Error("the connection can't be closed in one direction")
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\n")
				_, _ = io.Copy(io.Discard, conn)
			}()
		})
		site.Limits = append(site.Limits, inner)
		srv := limitertest.Serve(t, a.Build(site))
		open := func(want string) net.Conn {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\n")
			answer := make([]byte, len("HTTP/1.1 101"))
			if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 "+want {
				t.Fatalf("got %q, %v, want %s", answer, err, want)
			}
			return conn
		}
		first, second := open("101"), open("101")
		_ = open("503").Close()
		_ = first.Close()
		limitertest.Eventually(t, func() bool { return limitertest.Free(t, outer) == 1 })
		third := open("101")
		_ = open("503").Close()
		_, _ = second.Close(), third.Close()
		limitertest.Eventually(t, func() bool { return limitertest.Free(t, outer) == 2 })
	}
}

func flowEvents(t *testing.T, a Adapter) {
	seen := make(chan bool)
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-seen // the client has the first event before the second is written
		_, _ = io.WriteString(w, "data: 2\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-seen
	})))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("RateLimit") == "" {
		t.Error("no RateLimit field")
	}
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"data: 1", "data: 2"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
		lines.Scan()
		seen <- true
	}
}

func flowEarlyHints(t *testing.T, a Adapter) {
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := limitertest.Serve(t, a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "served")
	})))
	hints := 0
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
	})
	r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if hints != 1 || resp.StatusCode != 200 || string(text) != "served" || len(resp.Header.Values("RateLimit")) != 1 {
		t.Errorf("%d hints, then %d %q with RateLimit %q", hints, resp.StatusCode, text, resp.Header.Values("RateLimit"))
	}
}
