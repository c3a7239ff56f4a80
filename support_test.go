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
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/limitertest"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store/redisstore"
)

// The tests here drive a Limiter directly; what the adapters make of it is in
// internal/test/adaptertest.

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

// What these tests share with those of the adapters.
type (
	events = limitertest.Events
	spy    = storefake.Store
	asks   = storefake.Call
)

var (
	newSpy     = storefake.New
	free       = limitertest.Free
	globalKey  = limitertest.GlobalKey
	serve      = limitertest.Serve
	eventually = limitertest.Eventually
	errDown    = storefake.ErrDown
)

// failing is a store whose every call fails.
func failing(err error) *spy {
	s := newSpy()
	s.FailWith(err)
	return s
}

// slow is a store in memory to which it is a way there and a way back.
func slow(take, settle time.Duration) *spy {
	s := newSpy()
	s.OnTake, s.OnSettle = late(take), late(settle)
	return s
}

// late passes a call on after half of the time, and its answer after the other.
func late(all time.Duration) func(*asks) error {
	return func(c *asks) error {
		time.Sleep(all / 2)
		defer time.Sleep(all / 2)
		return c.Pass()
	}
}

// unsettled is a store that settles nothing.
func unsettled() *spy {
	s := newSpy()
	s.OnSettle = func(*asks) error { return errDown }
	return s
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
