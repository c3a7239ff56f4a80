package stint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/tenants"
)

// Whatever an Update or stop replaces, an observer that got a request's decision gets its end.
func TestObserversGetTheEnd(t *testing.T) {
	name := stint.WithName("x")
	for limits, limit := range map[string]stint.Limit{
		"plain": ample(name), "slots": stint.Concurrency(1<<20, name), "adaptive": stint.AdaptiveConcurrency(99, 99, name),
		"settled": ample(name, stint.WithSettle(stint.FailedOnly)),
	} {
		for _, way := range []string{"Update", "Update while others are admitted", "stop"} {
			t.Run(limits+", "+way, func(t *testing.T) {
				var first, second inFlight
				l := limiter(t, theKey, limit)
				stop := l.Observe(first.observe)
				replace := func() {
					if way != "stop" {
						if err := l.Update(theKey, limit, stint.WithObserver(second.observe)); err != nil {
							t.Error(err)
						}
					}
					stop()
				}
				if way != "stop" {
					stop()
					if err := l.Update(theKey, limit, stint.WithObserver(first.observe)); err != nil {
						t.Fatal(err)
					}
				}
				through(l, get("/"), func(http.ResponseWriter, *http.Request) {
					release := take(t, l, 1).Detach()
					defer release()
					through(l, get("/"), func(http.ResponseWriter, *http.Request) {
						replace()
						if way != "stop" && way != "Update" {
							through(l, get("/"), func(http.ResponseWriter, *http.Request) { replace() })
						}
					})
				})
				if first.begun < 2 || first.now != 0 || second.now != 0 {
					t.Errorf("%d begun, %d in flight; of the next %d in flight", first.begun, first.now, second.now)
				}
			})
		}
	}
}

// However many end a permit at once, it ends once.
func TestObserversAreToldOnceOfAnEnd(t *testing.T) {
	for name, limit := range map[string]stint.Limit{"a rate": ample(), "a slot": stint.Concurrency(9)} {
		var ended atomic.Int32
		l := limiter(t, theKey, limit)
		l.Observe(func(e stint.Event) {
			if e.Kind == stint.EventEnded {
				ended.Add(1)
			}
		})
		p := take(t, l, 1)
		var all sync.WaitGroup
		for range 8 {
			all.Go(p.Done)
			all.Go(func() { p.Detach()() })
		}
		all.Wait()
		if got := ended.Load(); got != 1 {
			t.Errorf("%s: ended %d times", name, got)
		}
	}
}

// An observer may use the request's permit in any event: no lock is held then.
func TestObserversUseThePermit(t *testing.T) {
	name := stint.WithName("x")
	write := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) }
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	settle := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	tests := []struct {
		name   string
		limits []stint.Option
		store  func(cancel func()) store.Store // by default one that works
		do     http.HandlerFunc
		n      int
		told   stint.EventKind
	}{
		{"settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)}, nil, nothing, 1, stint.EventSettled},
		{"not settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)},
			func(func()) store.Store { return unsettled() }, nothing, 1, stint.EventSettleFailed},
		{"not released", []stint.Option{stint.Concurrency(9, name)},
			func(func()) store.Store { return unsettled() }, nothing, 1, stint.EventSettleFailed},
		{"not settled by hand", []stint.Option{stint.Rate(9, time.Second, name)},
			func(func()) store.Store { return unsettled() },
			func(_ http.ResponseWriter, r *http.Request) {
				_ = stint.FromContext(r.Context()).Settle(r.Context(), 2)
			}, 1, stint.EventSettleFailed},
		{"paced", []stint.Option{stint.Bandwidth(1<<20, name)}, nil, write(10), 1, stint.EventPaced},
		{"a store that fails under a response", []stint.Option{stint.Bandwidth(1<<20, name)},
			func(func()) store.Store { s := newSpy(); s.FailWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"a store that fails under a response, closed", []stint.Option{stint.Bandwidth(1<<20, name, stint.WithFailurePolicy(stint.FailClosed))},
			func(func()) store.Store { s := newSpy(); s.FailWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"bytes not given back", []stint.Option{stint.Bandwidth(1<<20, name)}, func(func()) store.Store { return unsettled() },
			func(w http.ResponseWriter, r *http.Request) { // the second write pays for more than it writes
				write(10)(w, r)
				write(10)(w, r)
			}, 1, stint.EventSettleFailed},
		{"a limit that changes", []stint.Option{stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name)}, nil,
			func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond) // in real time, like the rest: a bubble doesn't see a lock that is waited for
			}, 12, stint.EventLimitChanged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var permit *stint.Permit
			told := map[stint.EventKind]bool{}
			opts := append(tt.limits, theKey, stint.WithObserver(func(e stint.Event) {
				told[e.Kind] = true
				_ = permit.Decision()
				if e.Kind != stint.EventSettleFailed && e.Kind != stint.EventSettled { // or it would be told of its own
					_ = permit.Settle(ctx, 1)
				}
				if e.Kind == tt.told {
					permit.Done()
				}
			}))
			if tt.store != nil {
				opts = append(opts, stint.WithStore(tt.store(cancel)))
			}
			l := limiter(t, opts...)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				// A window of a slow machine may have too few requests to say anything.
				for i := 0; i < tt.n || tt.n > 1 && !told[tt.told]; i++ {
					through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, r *http.Request) {
						permit = stint.FromContext(r.Context())
						tt.do(w, r)
					})
				}
			}()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the observer waits for a lock")
			}
			if !told[tt.told] {
				t.Errorf("not told of %v", tt.told)
			}
		})
	}
}

// A failover reports to its limiter the primary's failures, failed probes while the
// breaker is open, and its closing, even if it is inside another store.
func TestEventsOfAFailover(t *testing.T) {
	for _, nested := range []bool{false, true} {
		t.Run(fmt.Sprint("nested ", nested), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				primary := newSpy()
				s := failover.New(primary, memstore.New(), failover.WithThreshold(2), failover.WithProbe(time.Second, time.Second))
				defer s.Close()
				var given store.Store = s
				if nested {
					given = failover.New(memstore.New(), s)
				}
				h := newLogged(slog.LevelInfo)
				var mu sync.Mutex // the store tells on its own goroutine
				var told []string
				l := limiter(t, stint.Rate(99, time.Hour, stint.WithName("x")), theKey, stint.WithStore(given), h.with(), stint.WithLimiterName("front"))
				l.Observe(func(e stint.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == stint.EventStoreDegraded {
						told = append(told, fmt.Sprint(e.Limiter, " down ", errors.Is(e.Err, errDown), " open ", errors.Is(e.Err, failover.ErrOpen)))
					}
				})
				ask := func() {
					if err := s.Take(t.Context(), []store.Charge{{Key: "k", Limit: quota(t), Cost: 1}}, make([]store.Result, 1)); err != nil {
						t.Fatal(err)
					}
				}
				ask()
				primary.FailWith(errDown)
				ask()
				ask()
				time.Sleep(2500 * time.Millisecond)
				primary.FailWith(nil)
				time.Sleep(time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				failed, open, well := "front down true open false", "front down true open true", "front down false open false"
				// The first probe may be told before the failure that has made it.
				slices.Sort(told[:max(len(told)-1, 0)])
				if want := []string{failed, failed, open, open, open, well}; !slices.Equal(told, want) {
					t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
				}
				if got := brief(h.lines(t)); got != "WARN a call of the primary store failed\nWARN calls no longer go to the primary store, because it fails\nINFO the primary store answers again" {
					t.Errorf("logged\n%s", got)
				}
			})
		})
	}
}

func quota(t *testing.T) *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "x", Units: 99, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A store doesn't keep alive a limiter to which nothing else refers.
func TestStoresKeepNoLimiter(t *testing.T) {
	s := failover.New(newSpy(), memstore.New())
	gone := func() weak.Pointer[stint.Limiter] {
		return weak.Make(limiter(t, stint.Rate(9, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s)))
	}()
	if !collected(func() bool { return gone.Value() == nil }) {
		t.Error("the store keeps the limiter")
	}
	_ = s.Stats() // it lives on
}

// lose deletes what a server knows of leases. A busy machine that renews one too late may
// have lost it before: that is a lost lease too.
func lose(t *testing.T, rdb *redis.Client, prefix string) {
	t.Helper()
	keys, err := rdb.Keys(context.Background(), prefix+"*").Result()
	if err == nil && len(keys) > 0 {
		err = rdb.Del(context.Background(), keys...).Err()
	}
	if err != nil {
		t.Fatal(keys, err)
	}
}

// Lost leases are logged and reported, with their limit and key.
func TestLostLeasesAreTold(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	prefix := "lost-" + t.Name() + ":"
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient, redisstore.WithLeaseTTL(100*time.Millisecond))
	defer s.Close()
	h := newLogged(slog.LevelInfo)
	told := make(chan string, 1)
	l := limiter(t, stint.Concurrency(1, stint.WithName("slots")), theKey, stint.WithStore(s), h.with(), stint.WithLogKeys())
	l.Observe(func(e stint.Event) {
		if e.Kind == stint.EventLeaseLost {
			told <- e.Decision.Limit + " of " + e.Key(0)
		}
	})
	p, err := l.Take(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	lose(t, rdb, prefix)
	select {
	case got := <-told:
		if got != "slots of k" {
			t.Errorf("told %q", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("not told")
	}
	lines := h.lines(t)
	if len(lines) != 1 || lines[0]["level"] != "ERROR" || lines[0]["key"] != "k" || lines[0]["limit"] != "slots" {
		t.Errorf("logged %v", lines)
	}
}

// A lost lease is told to the limiter that took it, once: to its observers, and to those of
// the limiter that it is derived from, which see all its events. Limiters beside it that have
// a limit of the same name aren't told.
func TestLostLeaseIsToldToItsLimiter(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	prefix := redistest.Prefix(t)
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient, redisstore.WithLeaseTTL(100*time.Millisecond))
	defer s.Close()
	told := make(chan string, 99)
	named := func(name string, l *stint.Limiter) *stint.Limiter {
		l.Observe(func(e stint.Event) {
			if e.Kind == stint.EventLeaseLost {
				told <- name + " " + e.Decision.Limit
			}
		})
		return l
	}
	opts := []stint.Option{stint.Concurrency(9, stint.WithName("slots")), theKey, stint.WithStore(failover.New(s, memstore.New()))}
	first := named("first", limiter(t, opts...))
	named("second", limiter(t, opts...))
	derived := named("derived", derive(t, first, stint.Concurrency(9, stint.WithName("more"))))
	for _, l := range []*stint.Limiter{first, derived} {
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Done()
	}
	lose(t, rdb, prefix)
	var got []string
	for range 5 {
		select {
		case one := <-told:
			got = append(got, one)
		case <-time.After(time.Minute):
			t.Fatalf("told %q", got)
		}
	}
	slices.Sort(got)
	if want := []string{"derived more", "derived slots", "first more", "first slots", "first slots"}; !slices.Equal(got, want) || len(told) > 0 {
		t.Errorf("told %q and %d more, want %q", got, len(told), want)
	}
}

// logged is a handler that keeps what it is given, and counts what it is asked.
type logged struct {
	slog.Handler
	mu    sync.Mutex // some lines come from a timer
	out   *bytes.Buffer
	asked atomic.Int64
}

func newLogged(level slog.Level) *logged {
	out := new(bytes.Buffer)
	return &logged{Handler: slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}), out: out}
}

func (h *logged) Enabled(ctx context.Context, level slog.Level) bool {
	h.asked.Add(1)
	return h.Handler.Enabled(ctx, level)
}

func (h *logged) with() stint.Option { return stint.WithLogger(slog.New(h)) }

func (h *logged) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Handler.Handle(ctx, r)
}

// lines returns what was logged since it was last called.
func (h *logged) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for d := json.NewDecoder(h.out); d.More(); {
		line := map[string]any{}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

// brief is the text of lines, without their numbers.
func brief(lines []map[string]any) string {
	var all []string
	for _, l := range lines {
		all = append(all, fmt.Sprint(l["level"], " ", strings.TrimPrefix(l["msg"].(string), "stint: ")))
	}
	return strings.Join(all, "\n")
}

// A hundred thousand failures in five minutes make one line per minute, and the lines account
// for all of them. When the store has been well for a while, a line says so.
func TestLogsOfManyFailures(t *testing.T) {
	oneGoroutine(t)
	synctest.Test(t, func(t *testing.T) {
		const failures, waves = 100_000, 1000
		h := newLogged(slog.LevelInfo)
		down := newSpy()
		down.FailWith(errDown)
		l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("x")), theKey, stint.WithStore(down), h.with(), stint.WithLimiterName("front"))
		for range waves {
			for range failures / waves {
				if err := l.Allow(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Minute / waves)
		}
		synctest.Wait()
		sum := 0
		lines := h.lines(t)
		for _, line := range lines {
			suppressed, _ := line["suppressed"].(float64)
			sum += 1 + int(suppressed)
			if line["level"] != "ERROR" || line["error"] != errDown.Error() || line["request"] != "passed" || line["limiter"] != "front" || line["store"] != "storefake.Store" {
				t.Errorf("%v", line)
			}
		}
		if len(lines) != 6 || sum != failures {
			t.Errorf("%d lines for %d failures, want 6 for %d", len(lines), sum, failures)
		}

		down.FailWith(nil)
		for range 71 {
			_ = l.Allow(t.Context(), "k", 1)
			time.Sleep(time.Second)
		}
		if got := brief(h.lines(t)); got != "INFO the store answers again" {
			t.Errorf("afterwards: %q", got)
		}
		_ = l.Allow(t.Context(), "k", 1)
		if got := h.lines(t); len(got) != 0 {
			t.Errorf("and again: %v", got)
		}
	})
}

// A recovery says how many failures came since the last logged one, so that all are
// accounted for, however short the trouble was. Several limiters on one store log its state once,
// and a store that fails in part hasn't recovered because some of its calls succeed.
func TestLogsOfShortTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s := newLogged(slog.LevelInfo), newSpy()
		var all []*stint.Limiter
		for range 3 {
			all = append(all, limiter(t, stint.Rate(999, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with()))
		}
		for range 2 {
			for range 15 {
				for _, err := range []error{errDown, nil} {
					s.FailWith(err)
					for _, l := range all {
						through(l, get("/"), nil)
					}
				}
				time.Sleep(time.Second)
			}
			if got := brief(h.lines(t)); got != "ERROR the store failed to decide a request" {
				t.Errorf("while it fails in part: %q", got)
			}
			time.Sleep(10 * time.Second)
			for _, l := range all {
				through(l, get("/"), nil)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			lines := h.lines(t)
			if got := brief(lines); got != "INFO the store answers again" || lines[0]["suppressed"] != 44.0 || lines[0]["store"] != "storefake.Store" {
				t.Errorf("afterwards: %v", lines)
			}
			time.Sleep(time.Minute)
		}
	})
}

// What is logged, at which level and with which limit; and no key, unless WithLogKeys
// asks for it.
func TestLogs(t *testing.T) {
	name := stint.WithName("x")
	down := func() stint.Option { return stint.WithStore(failing(errDown)) }
	header := stint.WithKey(stint.Header("X-Api-Key"))
	broken := errors.New("no such session")
	source := func(err error, limits ...stint.Limit) stint.Option {
		return stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) { return limits, err })
	}
	tests := []struct {
		name string
		opts []stint.Option
		want string
		key  bool // with WithLogKeys
	}{
		{"a request that passes", []stint.Option{stint.Rate(9, time.Hour), header}, "", false},
		{"a denial", []stint.Option{stint.Rate(1, time.Hour), header}, "DEBUG a request was denied", true},
		{"a block", []stint.Option{stint.Rate(9, time.Hour), header, stint.WithBlock(func(*http.Request) bool { return true })}, "DEBUG a request was denied\nDEBUG a request was denied", false},
		{"a store that fails", []stint.Option{stint.Rate(1, time.Hour, name), header, down()}, "ERROR the store failed to decide a request", true},
		{"a store that fails, closed", []stint.Option{stint.Rate(1, time.Hour, name), header, down(), stint.WithFailurePolicy(stint.FailClosed)}, "ERROR the store failed to decide a request", true},
		{"an empty key", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-None"))}, "DEBUG a request with an empty key was denied\nDEBUG a request with an empty key was denied", false},
		{"a key that fails", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", broken }))}, "WARN a key function failed, and the request was denied", false},
		{"a limit function that fails", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, broken }), header}, "ERROR a request was denied, because its limits or its cost could not be determined", false},
		{"a tenant without a plan", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, tenants.ErrNoPlan }), header}, "DEBUG a request was denied by the function that returns its limits\nDEBUG a request was denied by the function that returns its limits", false},
		{"a key that is denied", []stint.Option{stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", tenants.ErrNoPlan }))}, "DEBUG a request was denied because of its key\nDEBUG a request was denied because of its key", false},
		{"a source that fails", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, &stint.SourceError{Err: broken} }), header}, "ERROR limits can't be loaded, and requests pass without them", false},
		{"a source that fails, closed", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, &stint.SourceError{Err: broken} }), header, stint.WithFailurePolicy(stint.FailClosed)}, "ERROR limits can't be loaded, and requests are denied", false},
		{"a cost below 0", []stint.Option{stint.Rate(9, time.Hour), cost(-1), header}, "ERROR a request was denied, because its limits or its cost could not be determined", false},
		{"a charge that can't be settled", []stint.Option{stint.Rate(9, time.Hour, name, stint.WithSettle(stint.FailedOnly)), header, stint.WithStore(unsettled())}, "WARN a request's final cost could not be recorded, so its earlier cost stays charged", true},
		{"a limit function that fails, in a dry run", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, broken }), header, stint.WithDryRun(true)},
			"ERROR a request would have been denied without the dry run, because its limits could not be determined", false},
		{"a tenant without a plan, in a dry run", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, tenants.ErrNoPlan }), header, stint.WithDryRun(true)},
			"DEBUG without the dry run, the function that returns a request's limits would have denied it\nDEBUG without the dry run, the function that returns a request's limits would have denied it", false},
		{"limits beside an error", []stint.Option{source(broken, stint.Rate(9, time.Hour, name)), header}, "ERROR a function returned limits and an error, and the limits apply to the request", false},
		{"limits beside an error of the source", []stint.Option{source(&stint.SourceError{Err: broken}, stint.Rate(9, time.Hour, name)), header},
			"ERROR limits can't be loaded, and requests get the limits that were returned with the error", false},
		{"an invalid limit of a source", []stint.Option{source(nil, stint.Rate(0, time.Hour, name)), header}, "ERROR limits that were loaded are invalid, and requests pass without them", false},
		{"an invalid limit of a source, closed", []stint.Option{source(nil, stint.Rate(0, time.Hour, name)), header, stint.WithFailurePolicy(stint.FailClosed)},
			"ERROR limits that were loaded are invalid, and requests are denied", false},
		{"a key that is too long", []stint.Option{stint.Rate(9, time.Hour), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return strings.Repeat("x", 5000), nil }))},
			"DEBUG a request was denied because of its key\nDEBUG a request was denied because of its key", false},
		{"a slot that can't be released", []stint.Option{stint.Concurrency(9, name), header, stint.WithStore(unsettled())}, "WARN a request's slot could not be released, so it stays taken until its lease ends", true},
		{"a slot and a cost that can't be settled", []stint.Option{stint.Concurrency(9, name), stint.Rate(9, time.Hour, stint.WithName("y"), stint.WithSettle(stint.FailedOnly)), header, stint.WithStore(unsettled())},
			"WARN a request's slot could not be released, and its final cost not be recorded: the slot stays taken until its lease ends, and the earlier cost stays charged", false},
		{"a ban", []stint.Option{stint.Rate(1, time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour)), header}, "DEBUG a request was denied\nDEBUG a ban has begun", true},
		{"a ban that only reports", []stint.Option{stint.Rate(1, time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithDryRun(true)), header}, "DEBUG a request was denied\nDEBUG a ban in a dry run would have begun\nDEBUG a limit in a dry run would have denied a request", true},
	}
	for _, tt := range tests {
		for _, keys := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, keys), func(t *testing.T) {
				h := newLogged(slog.LevelDebug)
				opts := append(tt.opts, h.with(), stint.WithLimiterName("front"))
				if keys {
					opts = append(opts, stint.WithLogKeys())
				}
				l := limiter(t, opts...)
				h.lines(t) // what it has
				for range 2 {
					r := get("/")
					r.Header.Set("X-Api-Key", credential)
					through(l, r, func(http.ResponseWriter, *http.Request) {})
				}
				text := h.out.String()
				lines := h.lines(t)
				if got := brief(lines); got != tt.want {
					t.Errorf("logged\n%s\nwant\n%s", got, tt.want)
				}
				for _, line := range lines {
					if line["limiter"] != "front" {
						t.Errorf("without the limiter's name: %v", line)
					}
				}
				if strings.Contains(text, credential) != (keys && tt.key) {
					t.Errorf("keys %t: %s", keys, text)
				}
			})
		}
	}
}

// Requests that pass don't call the logger, and denials call it once unless they are
// logged.
func TestLogsCost(t *testing.T) {
	h := newLogged(slog.LevelInfo)
	l := limiter(t, stint.Rate(5, time.Hour), theKey, h.with())
	h.asked.Store(0) // when it was made
	for range 5 {
		through(l, get("/"), nil)
	}
	if h.asked.Load() != 0 {
		t.Errorf("asked %d times in 5 requests that passed", h.asked.Load())
	}
	for range 7 {
		through(l, get("/"), nil)
	}
	if h.asked.Load() != 7 || h.out.Len() != 0 {
		t.Errorf("asked %d times in 7 denials, and wrote %q", h.asked.Load(), h.out)
	}
}

// The log belongs to the limiter: it stays across Updates and is used by derived
// limiters without a logger of their own.
func TestWhoLogs(t *testing.T) {
	a, b, c := newLogged(slog.LevelDebug), newLogged(slog.LevelDebug), newLogged(slog.LevelDebug)
	all := []*logged{a, b, c}
	none := stint.Rate(1, time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 }))
	l := limiter(t, none, theKey, a.with(), stint.WithoutWarnings("cost-too-high"))
	d := stint.Must(l.With(stint.WithLogKeys()))
	steps := []struct {
		what string
		do   func() error
		want string // of l, and of d
	}{
		{"from the start", func() error { return nil }, "a, a with keys"},
		{"after an Update", func() error { return l.Update(none, stint.Complete(), theKey) }, "a, a with keys"},
		{"after one with a logger", func() error { return l.Update(none, theKey, b.with()) }, "b, b with keys"},
		{"with a logger of its own", func() error { return d.Update(c.with()) }, "b, c with keys"},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			h.lines(t)
		}
		var got []string
		for _, of := range []*stint.Limiter{l, d} {
			through(of, get("/"), nil)
			for i, h := range all {
				for _, line := range h.lines(t) {
					to := string("abc"[i])
					if line["key"] != nil {
						to += " with keys"
					}
					got = append(got, to)
				}
			}
		}
		if got := strings.Join(got, ", "); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// Without WithLogger, the logger is slog.Default at the time of the message.
func TestLogsByDefault(t *testing.T) {
	s := newSpy()
	s.FailWith(errDown)
	l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s))
	var out bytes.Buffer
	logTo(t, &out)
	through(l, get("/"), nil)
	if !strings.Contains(out.String(), "stint: the store failed") {
		t.Errorf("logged %q", &out)
	}
}

// A policy file that becomes bad, or good again, is logged at once.
func TestLogsOfAPolicyFileThatFlips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLogged(slog.LevelInfo)
		l := limiter(t, stint.Rate(1, time.Hour), theKey, h.with())
		for i := range 10 {
			var err error
			want := "INFO the policy is in force"
			if i%2 == 0 {
				err = fmt.Errorf("mistake %d", i)
				want = "ERROR the policy could not be reloaded, and the last good one stays in force"
			}
			l.ReportPolicy("limits.yaml", err)
			if got := brief(h.lines(t)); got != want {
				t.Errorf("flip %d: logged %q, want %q", i, got, want)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if lines := h.lines(t); len(lines) > 0 {
			t.Errorf("logged later: %v", lines)
		}
	})
}

// A primary store that fails one call has a line about that. That it fails is logged when the
// breaker opens, and that it answers when it closes: once, however many limiters share the store.
func TestLogsOfAPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, primary := newLogged(slog.LevelInfo), newSpy()
		s := failover.New(primary, memstore.New(), failover.WithThreshold(3))
		defer s.Close()
		var all []*stint.Limiter
		for range 2 {
			all = append(all, limiter(t, stint.Rate(999, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with()))
		}
		ask := func(times int, err error) {
			primary.FailWith(err)
			for i := range times {
				through(all[i%2], get("/"), nil)
			}
			time.Sleep(5 * time.Minute)
			synctest.Wait()
		}
		const one, fails, answers = "WARN a call of the primary store failed", "WARN calls no longer go to the primary store, because it fails", "INFO the primary store answers again"
		ask(1, errDown)
		ask(10, nil)
		lines := h.lines(t)
		if got := brief(lines); got != one || lines[0]["store"] != "storefake.Store" {
			t.Errorf("after one failure: %v", lines)
		}
		primary.FailWith(errDown)
		for i := range 3 {
			through(all[i%2], get("/"), nil)
		}
		time.Sleep(time.Second)
		ask(1, nil)
		if got, want := brief(h.lines(t)), one+"\n"+fails+"\n"+answers; got != want {
			t.Errorf("after a failure of a second:\n%s\nwant\n%s", got, want)
		}
		ask(0, nil)
		ask(3, errDown)
		lines = h.lines(t)
		for _, line := range lines[2:] {
			if got := brief([]map[string]any{line}); got != fails && got != one || line["store"] != "storefake.Store" {
				t.Errorf("while it fails: %v", line)
			}
		}
		if n := len(lines); n < 5 || n > 9 {
			t.Errorf("%d lines in five minutes", n)
		}
	})
}

// The beginning and the end of each outage are each one line, at once, however soon they follow each other,
// and nothing about an outage is logged after it. The lines say what decides meanwhile.
func TestLogsOfShortOutages(t *testing.T) {
	for decides, secondary := range map[string]store.Store{"memory of this process": memstore.New(), "storefake.Store": newSpy(), "failure policies": nil} {
		synctest.Test(t, func(t *testing.T) {
			h, primary := newLogged(slog.LevelWarn), newSpy()
			s := failover.New(primary, secondary)
			defer s.Close()
			l := limiter(t, stint.Rate(999, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with())
			logged := func(n int, want string) {
				t.Helper()
				synctest.Wait()
				var got []string
				for _, line := range h.lines(t) {
					if line["msg"] == "stint: the store failed to decide a request" { // without a secondary
						continue
					}
					got = append(got, fmt.Sprint(line["msg"]))
					if line["decides"] != decides {
						t.Errorf("outage %d: %v, want decides=%s", n, line, decides)
					}
				}
				if got := strings.Join(got, ", "); got != want {
					t.Errorf("outage %d: logged %q, want %q", n, got, want)
				}
			}
			for n := range 4 {
				primary.FailWith(errDown)
				for range 10 {
					through(l, get("/"), nil)
				}
				want := "stint: calls no longer go to the primary store, because it fails"
				if n == 0 {
					want = "stint: a call of the primary store failed, " + want
				}
				logged(n, want)
				primary.FailWith(nil)
				time.Sleep(5 * time.Second)
				logged(n, "")
			}
			time.Sleep(5 * time.Minute)
			logged(4, "")
		})
	}
}

// Of a misconfigured primary there is one line, and one when that is over.
func TestLogsOfAMisconfiguredPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, primary := newLogged(slog.LevelInfo), newSpy()
		s := failover.New(primary, memstore.New())
		defer s.Close()
		l := limiter(t, stint.Rate(5, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with())
		primary.FailWith(store.NotMade(fmt.Errorf("WRONGPASS: %w", store.ErrMisconfigured)))
		passed := 0
		for range 8 {
			if err := l.Allow(t.Context(), "k", 1); err == nil {
				passed++
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		const line = "ERROR a call of the primary store failed, because the store is misconfigured\nERROR calls no longer go to the primary store, because it is misconfigured"
		if got := brief(h.lines(t)); got != line || passed != 5 {
			t.Errorf("%d of 5 passed, and logged:\n%s", passed, got)
		}
		primary.FailWith(nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lines := h.lines(t)
		if got := brief(lines[len(lines)-1:]); got != "INFO the primary store answers again" {
			t.Errorf("when the password is right, logged %s", got)
		}
	})
}

// The lines about a denial and about an empty key have the method and the path of the request.
func TestDenialsAreLoggedWithTheirRequests(t *testing.T) {
	for _, opts := range [][]stint.Option{
		{theKey},
		{stint.WithKey(stint.Header("X-API-Key"))},
		{theKey, stint.WithBlock(func(*http.Request) bool { return true })},
	} {
		h := newLogged(slog.LevelDebug)
		l := limiter(t, append(opts, stint.Rate(1, time.Hour), h.with())...)
		h.lines(t)
		for range 2 {
			through(l, httptest.NewRequest("PUT", "/items/"+strings.Repeat("x", 300)+"?token=secret", nil), nil)
		}
		lines := h.lines(t)
		if len(lines) == 0 || lines[0]["method"] != "PUT" || lines[0]["url_path"] != "/items/"+strings.Repeat("x", 193) {
			t.Errorf("logged %v", lines)
		}
	}
}
