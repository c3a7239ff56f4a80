package project

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// breaking is a store whose calls return its error, once it has one.
type breaking struct {
	*memstore.Store
	err atomic.Pointer[error]
}

func (s *breaking) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return s.Store.Take(ctx, charges, results)
}

func (s *breaking) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return s.Store.Settle(ctx, charges, results)
}

func (s *breaking) Reset(ctx context.Context, key string, limits ...*store.Limit) (bool, error) {
	if err := s.err.Load(); err != nil {
		return false, *err
	}
	return s.Store.Reset(ctx, key, limits...)
}

func (s *breaking) Ban(context.Context, string, time.Duration, ...*store.Limit) ([]store.Result, error) {
	return nil, *s.err.Load()
}

// failures are the stores of docs/redis-failures.md.
var failures = map[string]func(primary store.Store) store.Store{
	"`redisstore`":                   func(primary store.Store) store.Store { return primary },
	"`failover` without a secondary": func(primary store.Store) store.Store { return failover.New(primary, nil) },
	"`failover` with memory":         func(primary store.Store) store.Store { return failover.New(primary, memstore.New()) },
}

// failingLimiter is a limiter on a store of failures, and what it has logged and observed.
type failingLimiter struct {
	*stint.Limiter
	primary *breaking
	mu      sync.Mutex
	text    strings.Builder
	events  map[stint.EventKind]bool
}

func (l *failingLimiter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// said returns the levels and messages that were logged, in alphabetical order, and the events of stores.
func (l *failingLimiter) said() (messages, events []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range regexp.MustCompile(`level=([A-Z]+) msg="stint: ([^"]*)"`).FindAllStringSubmatch(l.text.String(), -1) {
		messages = append(messages, strings.ToUpper(m[1][:1])+strings.ToLower(m[1][1:])+": "+m[2])
	}
	for kind := range l.events {
		events = append(events, "`Event"+kind.String()+"`")
	}
	slices.Sort(messages)
	slices.Sort(events)
	return slices.Compact(messages), events
}

func newFailing(t *testing.T, setup string, policy stint.FailurePolicy) *failingLimiter {
	t.Helper()
	l := &failingLimiter{primary: &breaking{Store: memstore.New()}, events: map[stint.EventKind]bool{}}
	if failures[setup] == nil {
		t.Fatalf("no store %s", setup)
	}
	l.Limiter = stint.Must(stint.New(
		stint.Rate(8, time.Hour, stint.WithName("calls")),
		stint.Ban(3, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(failures[setup](l.primary)),
		stint.WithFailurePolicy(policy),
		loggerTo(l),
		stint.WithObserver(func(e stint.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if e.Kind == stint.EventStoreFailed || e.Kind == stint.EventStoreDegraded {
				l.events[e.Kind] = true
			}
		})))
	return l
}

// fail makes calls of the primary fail, and sends ten requests.
func (l *failingLimiter) fail(err error) (codes []int, fields bool) {
	l.primary.err.Store(&err)
	h := stinthttp.Middleware(l.Limiter)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 10 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		codes = append(codes, w.Code)
		fields = w.Header().Get("RateLimit") != ""
	}
	return codes, fields
}

// table returns the cells of a table of a document that begins with a head.
func table(t *testing.T, doc, head string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(read(t, doc), head)
	if !found {
		t.Fatalf("%s has no table %s", doc, head)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	for _, line := range strings.Split(text, "\n")[2:] {
		rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
	}
	return rows
}

// docs/redis-failures.md says what clients see, and what is logged and observed.
func TestWhatClientsSeeWhenRedisFails(t *testing.T) {
	for _, row := range table(t, "docs/redis-failures.md", "| store | failure policy |") {
		setup, policy, response, wantFields := row[0], row[1], row[2], row[3]
		t.Run(setup+" "+policy, func(t *testing.T) {
			for _, p := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
				if closed := p == stint.FailClosed; policy != "either" && closed != (policy == "FailClosed") {
					continue
				}
				l := newFailing(t, setup, p)
				codes, fields := l.fail(redisstore.ErrUnavailable)
				want := slices.Repeat([]int{200}, 10)
				switch {
				case strings.HasPrefix(response, "503"):
					want = slices.Repeat([]int{503}, 10)
				case strings.Contains(response, "429"):
					want = []int{200, 200, 200, 200, 200, 200, 200, 200, 429, 429}
				}
				if !slices.Equal(codes, want) {
					t.Errorf("%v, want %v", codes, want)
				}
				if fields != (wantFields != "none") {
					t.Errorf("RateLimit fields: %v, want %s", fields, wantFields)
				}
			}
		})
	}
	for _, row := range table(t, "docs/redis-failures.md", "| store | log | event |") {
		t.Run("log of "+row[0], func(t *testing.T) {
			want, events := strings.Split(row[1], "; "), strings.Split(row[2], ", ")
			slices.Sort(want)
			slices.Sort(events)
			l := newFailing(t, row[0], stint.FailOpen)
			l.fail(redisstore.ErrUnavailable)
			eventually(t, func() bool { // the breaker's own are sent by another goroutine
				messages, kinds := l.said()
				return slices.Equal(messages, want) && slices.Equal(kinds, events)
			})
		})
	}
}

// Its errors are those of package redisstore.
func TestErrorsWhenRedisFails(t *testing.T) {
	classes := map[string]error{"`ErrUnavailable`": redisstore.ErrUnavailable, "`ErrIndeterminate`": redisstore.ErrIndeterminate,
		"`ErrServer`": redisstore.ErrServer, "`ErrConfiguration`": redisstore.ErrConfiguration}
	for _, row := range table(t, "docs/redis-failures.md", "| what Redis or the network reports | error |") {
		name, _, _ := strings.Cut(row[1], ";")
		err, found := classes[name]
		if !found && row[3] != "nothing" {
			t.Errorf("no class %s", name)
		}
		if !found {
			continue
		}
		t.Run(row[0], func(t *testing.T) {
			if charged := !errors.Is(err, store.ErrNotMade); charged != (row[2] == "perhaps") {
				t.Errorf("%v may have been charged: %v", err, charged)
			}
			l := newFailing(t, "`failover` with memory", stint.FailOpen)
			l.fail(err)
			eventually(t, func() bool {
				messages, _ := l.said()
				return slices.Contains(messages, row[3])
			})
		})
	}
}

// Calls return what the page says.
func TestCallsWhenRedisFails(t *testing.T) {
	ctx := context.Background()
	failed := func(err error) bool { return errors.As(err, new(*stint.StoreError)) }
	answer := func(err error) string {
		switch {
		case failed(err):
			return "a `*StoreError`"
		case err != nil:
			return err.Error()
		}
		return "nil"
	}
	calls := map[string]func(l *failingLimiter, granted *stint.Permit) error{
		"`Allow`": func(l *failingLimiter, _ *stint.Permit) error { return l.Allow(ctx, "k", 1) },
		"`Take`, `Wait`": func(l *failingLimiter, _ *stint.Permit) error {
			_, taken := l.Take(ctx, "k", 1)
			_, waited := l.Wait(ctx, "k", 1)
			return errors.Join(taken, waited)
		},
		"`Permit.Extend` of a permit that Redis has granted": func(_ *failingLimiter, p *stint.Permit) error { return p.Extend(ctx, 2) },
		"`Permit.Settle` of a permit that Redis has granted": func(_ *failingLimiter, p *stint.Permit) error { return p.Settle(ctx, 0) },
		"`Peek`, `PeekRequest`, `Usage`": func(l *failingLimiter, _ *stint.Permit) error {
			_, err := l.Peek(ctx, "k")
			return err
		},
		"`Reset`": func(l *failingLimiter, _ *stint.Permit) error {
			_, err := l.Reset(ctx, "k")
			return err
		},
		"`Limiter.Ban`": func(l *failingLimiter, _ *stint.Permit) error { return l.Ban(ctx, "k", time.Hour) },
	}
	for _, row := range table(t, "docs/redis-failures.md", "| call | FailOpen |") {
		call := calls[row[0]]
		if call == nil {
			t.Errorf("no call %s", row[0])
			continue
		}
		delete(calls, row[0])
		for i, want := range row[1:] {
			setup, policy := "`redisstore`", []stint.FailurePolicy{stint.FailOpen, stint.FailClosed, stint.FailOpen}[i]
			if i == 2 {
				setup = "`failover` with memory"
			}
			l := newFailing(t, setup, policy)
			granted, err := l.Take(ctx, "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			l.fail(redisstore.ErrUnavailable)
			if got := answer(call(l, granted)); !strings.HasPrefix(want, got) &&
				!(got == "nil" && (strings.HasPrefix(want, "the answer of memory") || strings.HasPrefix(want, "a permit") || want == "as the limit's policy says")) {
				t.Errorf("%s, column %d: %s, want %s", row[0], i, got, want)
			}
		}
	}
	for call := range calls {
		t.Errorf("docs/redis-failures.md has no row %s", call)
	}
}

// The page shows the log of a failover whose Redis stops and comes back.
func TestLogWhenRedisFails(t *testing.T) {
	server := miniredis.RunT(t)
	addr := server.Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
	defer rdb.Close()
	l := &failingLimiter{}
	lim := stint.Must(stint.New(stint.Rate(100, time.Hour, stint.WithName("calls")), stint.WithKey(stint.GivenKey()),
		stint.WithStore(failover.New(redisstore.New(rdb, redisstore.WithTimeout(time.Minute)), memstore.New())),
		stint.WithLogger(slog.New(slog.NewTextHandler(l, nil)))))
	ask := func() {
		if err := lim.Allow(t.Context(), "k", 1); err != nil {
			t.Error(err)
		}
	}
	logged := func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		text := strings.ReplaceAll(l.text.String(), addr, "127.0.0.1:6379")
		return regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(text, "")
	}
	server.Close()
	for range 5 {
		ask()
	}
	eventually(t, func() bool {
		return strings.Contains(logged(), "calls no longer go to the primary store, because it fails")
	})
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(logged(), "answers again") })
	if want := blocks(t, "docs/redis-failures.md", "text")[0]; logged() != want {
		t.Errorf("it logs\n%swant\n%s", logged(), want)
	}
	runtime.KeepAlive(lim) // a limiter that nobody uses logs nothing
}
