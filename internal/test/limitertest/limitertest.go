// Package limitertest holds what tests of limiters share: a list of events and what is left
// of a limit.
package limitertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// Events collects what an observer is told, but for EventEnded, which follows every
// request. The zero value is empty.
type Events struct {
	mu  sync.Mutex
	all []stint.Event
}

// Option makes the limiter tell e.
func (e *Events) Option() stint.Option {
	return stint.WithObserver(func(ev stint.Event) {
		if ev.Kind == stint.EventEnded {
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, ev)
	})
}

// All returns the events so far.
func (e *Events) All() []stint.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Kinds returns the names of the events so far, separated by spaces.
func (e *Events) Kinds() string {
	var names []string
	for _, ev := range e.All() {
		names = append(names, ev.Kind.String())
	}
	return strings.Join(names, " ")
}

// Last returns the last event, or the zero Event.
func (e *Events) Last() stint.Event {
	all := e.All()
	if len(all) == 0 {
		return stint.Event{}
	}
	return all[len(all)-1]
}

// Clear forgets the events so far.
func (e *Events) Clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = nil
}

// GlobalKey is the key of Global.
func GlobalKey(t *testing.T) string {
	t.Helper()
	key, err := stint.Global().Of(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Free is the least number of units left of any limit of a limiter with that key.
func Free(t *testing.T, l *stint.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), GlobalKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// Serve runs a handler on a real server.
func Serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// Eventually waits for what a server does after its client has its answer.
func Eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}
