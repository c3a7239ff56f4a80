// Package limitertest holds what tests of limiters share: a list of events, stores that fail,
// and what is left of a limit.
package limitertest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
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

// Spy is a store in memory that counts calls, remembers the last charge, and fails on
// demand.
type Spy struct {
	store.Store
	mu             sync.Mutex
	takes, settles int
	fail           error
	last           store.Charge
}

// NewSpy returns a Spy.
func NewSpy() *Spy { return &Spy{Store: memstore.New()} }

// FailWith makes further calls fail with err, or work if it is nil.
func (s *Spy) FailWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *Spy) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.mu.Lock()
	s.takes++
	s.last = charges[len(charges)-1]
	err := s.fail
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Take(ctx, charges, results)
}

func (s *Spy) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.mu.Lock()
	s.settles++
	err := s.fail
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Store.Settle(ctx, charges, results)
}

// Counts returns how many calls there were.
func (s *Spy) Counts() (takes, settles int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes, s.settles
}

// Last returns the last charge of the last Take, at no cost.
func (s *Spy) Last() store.Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Charge{Key: s.last.Key, Limit: s.last.Limit}
}

// Down is a store that answers nothing.
type Down struct{}

var (
	// errDialing is the error of Down.
	errDialing = errors.New("dial tcp 10.1.2.3: denied")
	// ErrDown is an error for FailWith.
	ErrDown = errors.New("store is down")
)

func (Down) Take(context.Context, []store.Charge, []store.Result) error { return errDialing }

func (Down) Settle(context.Context, []store.Charge, []store.Result) error { return errDialing }

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
