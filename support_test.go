package stint_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// The tests here drive a Limiter directly; what the adapters make of it is in
// internal/adaptertest.

func TestMain(m *testing.M) {
	// Stores fail by the thousand here, and what is logged is another test's subject.
	to, flags := log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	log.SetOutput(to)
	log.SetFlags(flags)
	redistest.Main(m)
}

// oneGoroutine skips, under the race detector, a long test whose calls come one after
// the other.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("one goroutine: nothing can race")
	}
}

var (
	everybody = stint.WithKey(stint.Global())
	byKey     = stint.WithKey(stint.Header("X-Key"))
)

func limiter(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// through runs a request through a limiter as an adapter does, and returns the
// response; 200 and an empty body when next is nil and was reached.
func through(l *stint.Limiter, r *http.Request, next http.HandlerFunc) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	mount(l, next).ServeHTTP(w, r)
	return w
}

func mount(l *stint.Limiter, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := l.Admit(w, r, func(w http.ResponseWriter, r *http.Request) {
			if next != nil {
				next(w, r)
			}
		})
		if err != nil {
			l.Deny(w, r, err)
		}
	})
}

func get(path string) *http.Request { return httptest.NewRequest("GET", path, nil) }

// codes runs n requests for path and returns the status codes, as "200 200 429".
func codes(l *stint.Limiter, method, path string, n int) string {
	var all []string
	for range n {
		w := through(l, httptest.NewRequest(method, path, nil), nil)
		all = append(all, strings.Fields(w.Result().Status)[0])
	}
	return strings.Join(all, " ")
}

// spy is a store that counts calls, and fails on demand.
type spy struct {
	store.Store
	mu             sync.Mutex
	takes, settles int
	fail           error
}

func newSpy() *spy { return &spy{Store: memstore.New()} }

func (s *spy) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *spy) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.mu.Lock()
	s.takes++
	err := s.fail
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.Store.Take(ctx, charges, results)
}

func (s *spy) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
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

func (s *spy) counts() (takes, settles int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes, s.settles
}

var errDown = errors.New("store is down")

// events collects what an observer is told.
type events struct {
	mu  sync.Mutex
	all []stint.Event
}

func (e *events) option() stint.Option {
	return stint.WithObserver(func(ev stint.Event) {
		if ev.Kind == stint.EventEnded {
			return // it follows every request, and has tests of its own
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all = append(e.all, ev)
	})
}

func (e *events) kinds() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, ev := range e.all {
		names = append(names, ev.Kind.String())
	}
	return strings.Join(names, " ")
}

func (e *events) last() stint.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return stint.Event{}
	}
	return e.all[len(e.all)-1]
}

// denied is err as a denial.
func denied(t testing.TB, err error) *stint.DeniedError {
	t.Helper()
	var de *stint.DeniedError
	if !errors.As(err, &de) {
		t.Fatalf("error %v, want a *DeniedError", err)
	}
	return de
}

// theKey gives every request the key that remaining and take use.
var theKey = stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "k", nil }))

func remaining(t testing.TB, l *stint.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func take(t testing.TB, l *stint.Limiter, cost int64) *stint.Permit {
	t.Helper()
	p, err := l.Take(context.Background(), "k", cost)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// patient is for tests on Redis that aren't about its failures: on a busy machine
// the default of 100 ms is one, and lets everything pass.
var patient = redisstore.WithTimeout(time.Minute)

// contextFor is a context that ends after d.
func contextFor(t testing.TB, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// free is the least number of units left of any limit of the limiter.
func free(t *testing.T, l *stint.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), globalKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// down is a store that answers nothing.
type down struct{}

var errDialing = errors.New("dial tcp 10.1.2.3: denied")

func (down) Take(context.Context, []store.Charge, []store.Result) error { return errDialing }

func (down) Settle(context.Context, []store.Charge, []store.Result) error { return errDialing }

// eventually waits for what a server does after its client has its answer.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

func globalKey(t *testing.T) string {
	t.Helper()
	key, err := stint.Global().Of(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// serve runs a handler on a real server.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}
