package adaptertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
	"github.com/stint-go/stint/internal/test/storefake"
)

const megabyte = 1_000_000

// send writes n bytes, size at a time.
func send(n, size int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for n := n; n > 0; n -= size {
			if _, err := w.Write(make([]byte, min(n, size))); err != nil {
				return
			}
		}
	}
}

// pipes is a network in memory: it listens, and dials itself.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }

func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inMemory serves h to the client that it returns. It ends with the bubble.
func inMemory(t *testing.T, h http.Handler) *http.Client {
	p := make(pipes)
	srv := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(p) })
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p <- there
		return here, nil
	}}
	t.Cleanup(func() {
		close(p)
		_ = srv.Close()
		serving.Wait()
		time.Sleep(time.Second) // connections linger for half of one
	})
	return &http.Client{Transport: tr}
}

const siteURL = "http://site.test/"

// The first bytes come at once and the others when they are due: what has been
// paid for isn't kept in a buffer while the next is waited for.
func flowBandwidth(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		seen := &limitertest.Events{}
		l := compiled(t, stint.Bandwidth(100_000, stint.WithBurst(10_000)), byAll, seen.Option())
		client := inMemory(t, a.Build(one(l, send(60_000, 60_000))))
		start := time.Now()
		resp, err := client.Get(siteURL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("RateLimit") != "" {
			t.Errorf("RateLimit %q", resp.Header.Get("RateLimit"))
		}
		var got int
		for buf := make([]byte, 1000); ; {
			n, err := io.ReadFull(resp.Body, buf)
			got += n
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			// A kilobyte every 10 ms, in pieces of 6.25; the first ten at once.
			due := time.Duration(max(0, got-10_000)) * 10 * time.Microsecond
			if at := time.Since(start); at < due || at > due+70*time.Millisecond {
				t.Fatalf("byte %d came at %v, want %v", got, at, due)
			}
		}
		synctest.Wait()
		e := seen.Last()
		if got != 60_000 || e.Kind != stint.EventPaced || e.Pacing.Bytes != 60_000 || e.Pacing.Waited != time.Since(start) ||
			e.Pacing.Err != nil {
			t.Errorf("%d bytes; %v %+v after %v", got, e.Kind, e.Pacing, time.Since(start))
		}
	})
}

func flowUpload(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Bandwidth(100_000, stint.WithBurst(10_000), stint.WithDirection(stint.Both)), byAll)
		client := inMemory(t, a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if n != 60_000 || err != nil {
				t.Errorf("read %d, %v", n, err)
			}
			_, _ = io.WriteString(w, "ok")
		})))
		start := time.Now()
		resp, err := client.Post(siteURL, "", bytes.NewReader(make([]byte, 60_000)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if took := time.Since(start); took < 500*time.Millisecond || took > 570*time.Millisecond {
			t.Errorf("took %v, want 500ms", took)
		}
	})
}

// A client that leaves in a pause ends it, and the next has what it had paid for.
func flowBandwidthLeft(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		seen := &limitertest.Events{}
		s := storefake.New()
		l := compiled(t, stint.Bandwidth(10_000, stint.WithBurst(10_000), stint.WithName("bandwidth")), byAll, seen.Option(),
			stint.WithStore(s))
		client := inMemory(t, a.Build(one(l, send(1_000_000, 1_000_000))))
		begun := time.Now()
		resp, err := client.Get(siteURL)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 9_000); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_ = resp.Body.Close()
		synctest.Wait()
		e := seen.Last()
		if e.Kind != stint.EventPaced || !errors.Is(e.Pacing.Err, context.Canceled) || time.Since(start) != 0 {
			t.Fatalf("%v %+v", e.Kind, e.Pacing)
		}
		back := int64(time.Since(begun) / (100 * time.Microsecond)) // by time
		if got, want := left(t, s, 10_000), 10_000+back-e.Pacing.Bytes; got != want {
			t.Errorf("%d free, want %d", got, want)
		}
	})
}

// A response that can't be paid for, under FailClosed, doesn't look complete.
func flowBandwidthCut(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		s := storefake.New()
		l := compiled(t, stint.Bandwidth(10_000, stint.WithBurst(10_000), stint.WithFailurePolicy(stint.FailClosed),
			stint.WithName("bandwidth")), byAll, stint.WithStore(s))
		client := inMemory(t, a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
			send(9_000, 9_000)(w, r)
			s.FailWith(storefake.ErrDown)
			send(9_000, 9_000)(w, r)
		})))
		resp, err := client.Get(siteURL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > 9_000 {
			t.Errorf("got %d bytes and a proper end", n)
		}
	})
}

// The same over real connections and HTTP/2, whose streams end in other ways.
func flowBandwidthHTTP2(t *testing.T, a Adapter) {
	s := storefake.New()
	l := compiled(t, stint.Bandwidth(500_000, stint.WithBurst(20_000), stint.WithFailurePolicy(stint.FailClosed),
		stint.WithName("bandwidth")), byAll, stint.WithStore(s))
	cut := false
	srv := httptest.NewUnstartedServer(a.Build(one(l, func(w http.ResponseWriter, r *http.Request) {
		send(70_000, 70_000)(w, r)
		if cut {
			s.FailWith(storefake.ErrDown)
			send(70_000, 70_000)(w, r)
		}
	})))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	ask := func() (n int64, err error) {
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Errorf("%s: over %s", a.Name, resp.Proto)
		}
		return io.Copy(io.Discard, resp.Body)
	}
	start := time.Now()
	if n, err := ask(); n != 70_000 || err != nil || time.Since(start) < 90*time.Millisecond {
		t.Errorf("%s: %d bytes, %v after %v", a.Name, n, err, time.Since(start))
	}
	cut = true
	if n, err := ask(); n >= 140_000 || err == nil {
		t.Errorf("%s: %d bytes and a proper end", a.Name, n)
	}
	srv.Close()
}

func flowBandwidthHijack(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Bandwidth(10_000), byAll)
		p := make(pipes)
		srv := &http.Server{Handler: a.Build(one(l, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_, _ = conn.Write(make([]byte, 100_000))
		}))}
		go func() { _ = srv.Serve(p) }()
		defer close(p)
		here, there := net.Pipe()
		p <- there
		start := time.Now()
		_, _ = io.WriteString(here, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		n, _ := io.Copy(io.Discard, bufio.NewReader(here))
		if took := time.Since(start); n < 100_000 || took != 0 {
			t.Errorf("%d bytes in %v", n, took)
		}
		synctest.Wait()
	})
}

// Two clients of one key share what one has alone, whatever the router.
func flowBandwidthShared(t *testing.T, a Adapter) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Bandwidth(megabyte), byKey)
		h := a.Build(one(l, send(5*megabyte, 32<<10)))
		took := func(keys ...string) time.Duration {
			var all sync.WaitGroup
			start := time.Now()
			for _, key := range keys {
				all.Go(func() {
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-Key", key)
					h.ServeHTTP(httptest.NewRecorder(), r)
				})
			}
			all.Wait()
			return time.Since(start)
		}
		single, shared, apart := took("a"), took("b", "b"), took("c", "d")
		if r := float64(shared) / float64(single); r < 1.9 || r > 2.1 || apart != single {
			t.Errorf("%s: %v alone, %v together, %v apart", a.Name, single, shared, apart)
		}
	})
}
