package stinthttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// What requests and answers look like through this adapter is in the table that the
// root's middleware_test.go runs.

func TestNewPanics(t *testing.T) {
	defer func() {
		err, ok := recover().(error)
		if !ok || !strings.Contains(err.Error(), "stint.WithKey") {
			t.Errorf("recovered %v, want an error that says what to write", err)
		}
	}()
	New(stint.Rate(1, time.Second))
}

// A request that isn't limited is passed on unchanged.
func TestMiddlewareWithoutPermit(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	for name, opt := range map[string]stint.Option{
		"skipped":         stint.WithSkip(func(*http.Request) bool { return true }),
		"without permits": stint.WithoutPermit(),
	} {
		next := http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
			if got != r {
				t.Errorf("%s: the handler got another request", name)
			}
		})
		h := New(stint.Rate(1, time.Second), stint.WithKey(stint.Global()), opt)(next)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// Every handler behind one middleware shares its limits.
func TestMiddlewareIsShared(t *testing.T) {
	limit := New(stint.Rate(1, time.Hour), stint.WithKey(stint.Global()))
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	codes := []int{}
	for _, h := range []http.Handler{limit(ok), limit(ok)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		codes = append(codes, w.Code)
	}
	if codes[0] != 200 || codes[1] != 429 {
		t.Errorf("got %v, want 200 and 429", codes)
	}
}

// discard is a ResponseWriter that costs next to nothing.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func BenchmarkAllowed(b *testing.B) {
	for _, bench := range []struct {
		name string
		opts []stint.Option
	}{
		{"permit", nil},
		{"no permit", []stint.Option{stint.WithoutPermit()}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := New(append(bench.opts, stint.Rate(10_000_000, time.Second), stint.WithKey(stint.RemoteIP()))...)(
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			run(b, h, 200)
		})
	}
}

func BenchmarkDenied(b *testing.B) {
	h := New(stint.Rate(1, 1000*time.Hour), stint.WithKey(stint.RemoteIP()))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	run(b, h, 429)
}

func run(b *testing.B, h http.Handler, want int) {
	r := httptest.NewRequest("GET", "/", nil)
	check := httptest.NewRecorder()
	h.ServeHTTP(check, r)
	if check.Code != want {
		b.Fatalf("got status %d, want %d", check.Code, want)
	}
	w := &discard{make(http.Header)}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}
