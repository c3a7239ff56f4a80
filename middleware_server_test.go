package stint_test

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
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The flows that are about the connection, on real servers.

// serve runs a site on a real server.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func flowNotWrapped(t *testing.T, a routing) {
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
	for _, s := range []site{one(l, tell(&with)), {routes: []siteRoute{{path: "/", do: tell(&without)}}}} {
		srv := serve(t, a.build(s))
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

func flowHijack(t *testing.T, a routing) {
	for _, limit := range []stint.Limit{stint.Concurrency(1), stint.AdaptiveConcurrency(1, 1)} {
		hijack(t, a, limit)
	}
}

func hijack(t *testing.T, a routing, limit stint.Limit) {
	l := compiled(t, limit, byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
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
		eventually(t, func() bool { return free(t, l) == 1 })
	}
}

// eventually waits for what a server does after its client has its answer.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

func flowEvents(t *testing.T, a routing) {
	seen := make(chan bool)
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
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

func flowEarlyHints(t *testing.T, a routing) {
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
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
