package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network without sockets, so that the time of a test is its own:
// it listens, and dials.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p <- there
		return here, nil
	}}
}

func serve(t *testing.T, h http.Handler) *http.Transport {
	p := make(pipes)
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(p) }()
	t.Cleanup(func() {
		close(p)
		_ = srv.Close()
		time.Sleep(time.Second) // a server that has refused to read lingers
	})
	return p.transport()
}

// app is a gateway before a model that writes a token every millisecond.
func app(t *testing.T) *http.Client { return appWith(t, 1_000_000) }

func appWith(t *testing.T, perMonth int64) *http.Client {
	upstream := serve(t, model(time.Millisecond))
	return &http.Client{Transport: serve(t, gateway(&url.URL{Scheme: "http", Host: "model"}, upstream, perMonth))}
}

func ask(t *testing.T, client *http.Client, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequest("POST", "http://gateway/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", "k1")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// drain reads the answer to its end.
func drain(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	_ = resp.Body.Close()
	return string(text)
}

// left is a limit's remaining units in a field.
func left(t *testing.T, resp *http.Response, limit string) (n int) {
	t.Helper()
	field := resp.Header.Get("RateLimit")
	_, at, _ := strings.Cut(field, `"`+limit+`";r=`)
	if _, err := fmt.Sscanf(at, "%d", &n); err != nil {
		t.Fatalf("no %s in %s", limit, field)
	}
	return n
}

// unused asks something that the model denies, which costs a token until it
// has, and is given back: the field says what is left but for that.
func unused(t *testing.T, client *http.Client) int {
	t.Helper()
	synctest.Wait()
	resp := ask(t, client, `{"prompt":"","max_tokens":1}`)
	drain(t, resp)
	return left(t, resp, "tokens") + 2
}

func TestStreamsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		start := time.Now()
		resp := ask(t, client, `{"prompt":"tell me a story","max_tokens":20}`)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for i := range 20 {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), `data: {"text":`) {
				t.Fatalf("got %q", lines.Text())
			}
			if at := time.Since(start); at != time.Duration(i+1)*time.Millisecond {
				t.Fatalf("token %d came at %v", i+1, at)
			}
			lines.Scan()
		}
	})
}

func TestTokensAreSettled(t *testing.T) {
	tests := []struct {
		name, body   string
		status, cost int
	}{
		{"more than was reserved", `{"prompt":"tell me a story","max_tokens":1000}`, 200, 4 + 5*23},
		{"what was reserved", `{"prompt":"tell me a story","max_tokens":20}`, 200, 4 + 20},
		{"a longer prompt than guessed", `{"prompt":"a b c d e f g h","max_tokens":1}`, 200, 8 + 1},
		{"denied by the model", `{"prompt":"","max_tokens":1000}`, 422, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			client := app(t)
			start := time.Now()
			resp := ask(t, client, tt.body)
			drain(t, resp)
			if resp.StatusCode != tt.status {
				t.Errorf("%s: got %s", tt.name, resp.Status)
			}
			back := int(time.Since(start) * 10_000 / time.Minute) // by time, and less than was used
			if got, want := unused(t, client), 10_000-tt.cost+back; got != want {
				t.Errorf("%s: %d tokens left, want %d", tt.name, got, want)
			}
		})
	}
}

// A client that hangs up in the middle pays for what it was sent, and its
// stream is free for another.
func TestHangingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		for range 3 { // there are two streams
			before, start := unused(t, client), time.Now()
			resp := ask(t, client, `{"prompt":"tell me a story","max_tokens":4000}`)
			if resp.StatusCode != 200 {
				t.Fatalf("got %s", resp.Status)
			}
			lines := bufio.NewScanner(resp.Body)
			for range 10 {
				lines.Scan()
			}
			_ = resp.Body.Close()
			back := int(time.Since(start) * 10_000 / time.Minute)
			// 15 bytes of prompt, and 5 tokens. Of a token's parts one may have become whole.
			if got, want := unused(t, client), before-(4+5)+back; got != want && got != want+1 {
				t.Errorf("%d tokens left, want %d", got, want)
			}
		}
	})
}

func TestThirdStreamIsDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		first := ask(t, client, `{"prompt":"one"}`)
		second := ask(t, client, `{"prompt":"two"}`)
		third := ask(t, client, `{"prompt":"three"}`)
		if body := drain(t, third); third.StatusCode != 429 || !strings.Contains(body, `"streams"`) {
			t.Errorf("got %s %s", third.Status, body)
		}
		drain(t, first)
		drain(t, second)
		if resp := ask(t, client, `{"prompt":"three"}`); resp.StatusCode != 200 {
			t.Errorf("got %s when the others are through", resp.Status)
		} else {
			drain(t, resp)
		}
	})
}

// What is reserved counts at once, before anybody knows what will be used.
func TestReservationHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		first := ask(t, client, `{"prompt":"x","max_tokens":4096}`)
		second := ask(t, client, `{"prompt":"x","max_tokens":4096}`)
		if got := left(t, second, "tokens"); got != 10_000-2*(1+usualTokens) {
			t.Errorf("%d tokens left beside two streams, want %d", got, 10_000-2*(1+usualTokens))
		}
		drain(t, first)
		drain(t, second)
	})
}

// A stream is charged while it runs. When the month's tokens are used up, it ends with an event that says so.
func TestStreamIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := appWith(t, 100)
		resp := ask(t, client, `{"prompt":"tell me a story","max_tokens":1000}`)
		body := drain(t, resp)
		if got := 4 + strings.Count(body, `"text"`); resp.StatusCode != 200 || got != 100 {
			t.Errorf("%s, and %d tokens, want 100", resp.Status, got)
		}
		last := strings.Split(strings.TrimSpace(body), "\n\n")
		var said struct {
			Limit      string
			RetryAfter int64 `json:"retry_after"`
		}
		data, ok := strings.CutPrefix(last[len(last)-1], "event: error\ndata: ")
		err := json.Unmarshal([]byte(data), &said)
		if !ok || err != nil || said.Limit != "month" || said.RetryAfter < 30*24*3600 {
			t.Errorf("the last event is %q (%v)", last[len(last)-1], err)
		}
	})
}

// When the minute's tokens are used up, a stream waits until there are more. It isn't cut.
func TestStreamWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		first := ask(t, client, `{"prompt":"`+strings.Repeat("x", 39_460)+`","max_tokens":1000}`)
		start := time.Now()
		resp := ask(t, client, `{"prompt":"tell me a story","max_tokens":1000}`)
		if left := left(t, resp, "tokens"); resp.StatusCode != 200 || left != 2 || time.Since(start) > 50*time.Millisecond {
			t.Errorf("%s after %v, and %d tokens left", resp.Status, time.Since(start), left)
		}
		if body := drain(t, resp); strings.Count(body, `"text"`) != 5*23 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("the stream ends with %q", body[max(0, len(body)-100):])
		}
		if took := time.Since(start); took < 200*time.Millisecond {
			t.Errorf("it took %v, as long as a stream that has not waited", took)
		}
		drain(t, first)
	})
}

func TestWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := app(t)
		for body, want := range map[string]int{
			`{"prompt":"x","max_tokens":4097}`:                                 400,
			`{"prompt":"x","max_tokens":-1}`:                                   400,
			`nonsense`:                                                         400,
			`{"prompt":"` + strings.Repeat("x", mostBody) + `"}`:               413,
			`{"prompt":"` + strings.Repeat("x", 48_000) + `","max_tokens":10}`: 200, // more than a minute has, by the estimate
		} {
			resp := ask(t, client, body)
			drain(t, resp)
			if resp.StatusCode != want {
				t.Errorf("%.40s: got %s, want %d", body, resp.Status, want)
			}
		}
	})
}
