package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
)

// ending is a way for a server to end the context of a request that waits. It
// serves h, and end does it.
type ending struct {
	name  string
	serve func(t *testing.T, h http.Handler) (srv *httptest.Server, end func())
	own   bool // the ending answers itself
}

var endings = []ending{
	{"shutdown", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		base, shutdown := context.WithCancel(context.Background())
		srv := httptest.NewUnstartedServer(h)
		srv.Config.BaseContext = func(net.Listener) context.Context { return base }
		srv.Start()
		t.Cleanup(srv.Close)
		return srv, shutdown
	}, false},
	{"watchdog", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		bites := make(chan struct{})
		srv := limitertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-bites:
				case <-ctx.Done():
				}
				cancel()
			}()
			h.ServeHTTP(w, r.WithContext(ctx))
		}))
		return srv, func() { close(bites) }
	}, false},
	{"http.TimeoutHandler", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		return limitertest.Serve(t, http.TimeoutHandler(h, 50*time.Millisecond, "timed out")), func() {}
	}, true},
}

// A request whose wait the server ends learns so, whatever it waited for: only admitted
// requests are answered 200.
func flowServerEndsAWait(t *testing.T, a Adapter) {
	teapot := func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, context.Canceled) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	}
	queues := []struct {
		name   string
		opts   []stint.Option
		status int
	}{
		{"slot", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute)}, 503},
		{"turn", []stint.Option{stint.Rate(1, time.Hour), stint.WithMaxWait(2 * time.Hour)}, 503},
		{"limits deny otherwise", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute),
			stint.WithDenyHandler(stint.PlainText("denied"))}, 503},
		{"errors answered otherwise", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute),
			stint.WithErrorHandler(teapot)}, 418},
	}
	for _, e := range endings {
		for _, q := range queues {
			if e.own && q.name != "slot" {
				continue // a deadline denies a turn that is further away at once
			}
			t.Run(a.Name+"/"+e.name+"/"+q.name, func(t *testing.T) {
				endAWait(t, a, e, q.opts, q.status)
			})
		}
	}
}

func endAWait(t *testing.T, a Adapter, e ending, opts []stint.Option, status int) {
	waits, ended := make(chan struct{}), make(chan stint.EventKind, 1)
	l := compiled(t, append(opts, byAll, stint.WithObserver(func(ev stint.Event) {
		switch {
		case ev.Kind == stint.EventWaiting:
			close(waits)
		case ev.EndsWait:
			ended <- ev.Kind
		}
	}))...)
	// What waits finds everything taken.
	p, err := l.Take(t.Context(), limitertest.GlobalKey(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	srv, end := e.serve(t, a.Build(one(l, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })))
	go func() {
		<-waits
		end()
	}()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("got %d %q, want %d", resp.StatusCode, body, status)
	}
	if e.own {
		return
	}
	if kind := <-ended; kind != stint.EventCanceled {
		t.Errorf("the wait ended with %v, want Canceled", kind)
	}
	if status != 503 {
		return
	}
	if retry, cache := resp.Header.Get("Retry-After"), resp.Header.Get("Cache-Control"); retry != "1" ||
		cache != "no-store" {
		t.Errorf("Retry-After %q, Cache-Control %q, want 1 and no-store", retry, cache)
	}
	kind, want := "application/json", `{"message":"Service Unavailable"}`
	if a.Problems {
		kind, want = "application/problem+json", `{"type":"about:blank","title":"Service Unavailable","status":503}`
	}
	if got := resp.Header.Get("Content-Type"); got != kind || strings.TrimSpace(string(body)) != want ||
		!json.Valid(body) {
		t.Errorf("got %s %q, want %s %s", got, body, kind, want)
	}
}

// gone is the ResponseWriter of a client that has left.
type gone struct {
	http.ResponseWriter
	status int
}

func (g *gone) WriteHeader(status int) { g.status = status }

func (g *gone) Write([]byte) (int, error) { return 0, net.ErrClosed }

// The answer to a client that has left goes nowhere and does no harm.
func flowHasLeft(t *testing.T, a Adapter) {
	l := compiled(t, stint.Rate(1, time.Hour), stint.WithMaxWait(2*time.Hour), byAll)
	if _, err := l.Take(t.Context(), limitertest.GlobalKey(t), 1); err != nil {
		t.Fatal(err)
	}
	h := a.Build(one(l, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, leave)
	w := &gone{ResponseWriter: httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if w.status != 503 {
		t.Errorf("got %d, want 503", w.status)
	}
}

// endedContexts are the ways in which a context may have ended before the
// limiter sees it.
func endedContexts(t *testing.T) map[string]context.Context {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(cancel)
	return map[string]context.Context{"canceled": canceled, "past its deadline": late}
}

// Its handler doesn't run, through any adapter, even if only bytes are limited.
func flowContextHasEnded(t *testing.T, a Adapter) {
	for which, ctx := range endedContexts(t) {
		for kind, limit := range map[string]stint.Limit{
			"rate": stint.Rate(5, time.Hour), "slots": stint.Concurrency(5, stint.WithQueue(1)), "bytes": stint.Bandwidth(4096),
		} {
			seen := &limitertest.Events{}
			l := compiled(t, limit, byAll, seen.Option())
			h := a.Build(one(l,
				func(http.ResponseWriter, *http.Request) { t.Errorf("%s, %s, %s: the handler ran", a.Name, which, kind) }))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/").WithContext(ctx))
			if w.Code != http.StatusServiceUnavailable || seen.Kinds() != "Canceled" {
				t.Errorf("%s, %s, %s: %d, events %q", a.Name, which, kind, w.Code, seen.Kinds())
			}
		}
	}
}
