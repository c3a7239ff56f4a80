package stint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
)

var (
	secret    = []byte("0123456789abcdef")
	byTenant  = stint.Header("X-Tenant")
	constants = map[string]stint.Key{
		"global":      stint.Global(),
		"joined":      stint.Join(stint.Global(), stint.Global()),
		"hashed":      stint.Hash(secret, stint.Global()),
		"hashed join": stint.Hash(secret, stint.Join(stint.Global(), stint.Hash(secret, stint.Global()))),
	}
)

// The key given is for limits without a constant key. If there are none, any will do.
func TestConstantKeysNeedNone(t *testing.T) {
	calls := map[string]func(l *stint.Limiter, key string) error{
		"Allow":   func(l *stint.Limiter, key string) error { return l.Allow(t.Context(), key, 1) },
		"Take":    func(l *stint.Limiter, key string) error { _, err := l.Take(t.Context(), key, 1); return err },
		"Wait":    func(l *stint.Limiter, key string) error { _, err := l.Wait(t.Context(), key, 1); return err },
		"Peek":    func(l *stint.Limiter, key string) error { _, err := l.Peek(t.Context(), key); return err },
		"PeekAll": func(l *stint.Limiter, key string) error { _, err := l.PeekAll(t.Context(), key); return err },
	}
	unfit := map[string]error{"": stint.ErrEmptyKey, strings.Repeat("k", 5000): stint.ErrKeyTooLong}
	for name, key := range constants {
		alone := stint.Rate(9, time.Hour, stint.WithKey(key))
		paced := stint.Bandwidth(1<<20, stint.WithKey(byTenant)) // no call charges it
		other := stint.Rate(9, time.Hour, stint.WithKey(byTenant))
		for call, do := range calls {
			for given, want := range unfit {
				for _, l := range []*stint.Limiter{limiter(t, alone), limiter(t, alone, paced), limiter(t, alone, stint.Rate(9, time.Minute, stint.WithKey(key)))} {
					if err := do(l, given); err != nil {
						t.Errorf("%s: %s with a key of %d bytes: %v", name, call, len(given), err)
					}
				}
				if err := do(limiter(t, alone, other), given); !errors.Is(err, want) {
					t.Errorf("%s: %s with a key of %d bytes, beside a limit that needs it: %v, want %v", name, call, len(given), err, want)
				}
			}
		}
	}
}

// A limit with a constant key has one bucket for everybody: jobs of any key and
// requests share it, and it is charged together with limits of other keys or not at
// all.
func TestConstantKeys(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		names := 0
		for name, key := range constants {
			names++
			slots, tenant := fmt.Sprint("slots", names), fmt.Sprint("tenant", names)
			t.Run(name, func(t *testing.T) {
				l := limiter(t, stint.WithStore(s), stint.WithKey(byTenant),
					stint.Concurrency(1, stint.WithName(slots), stint.WithKey(key)),
					stint.Rate(3, 1000*time.Hour, stint.WithName(tenant)))
				left := func(key string) string {
					d, err := l.Peek(t.Context(), key)
					if err != nil {
						t.Fatal(err)
					}
					return fmt.Sprint(d.Limits[0].Remaining, " ", d.Limits[1].Remaining)
				}
				a, err := l.Take(t.Context(), "a", 1)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.Take(t.Context(), "b", 1); denied(t, err).Decision.Limit != slots {
					t.Errorf("b, while a holds the one slot: %v", err)
				}
				if got := left("a") + ", " + left("b"); got != "0 2, 0 3" {
					t.Errorf("while a runs a has %s left, want 0 2, and 0 3", got)
				}
				request := get("/")
				request.Header.Set("X-Tenant", "a")
				if w := through(l, request, nil); w.Code < 400 {
					t.Errorf("a request while a job holds the slot: %d", w.Code)
				}
				a.Done()
				w := through(l, request, func(http.ResponseWriter, *http.Request) {
					if _, err := l.Take(t.Context(), "c", 1); denied(t, err).Decision.Limit != slots {
						t.Errorf("a job while a request holds the slot: %v", err)
					}
				})
				if w.Code != 200 || left("a") != "1 1" {
					t.Errorf("the request: %d, and a has %s left, want 1 1: jobs and requests of a tenant share its limit", w.Code, left("a"))
				}

				if p, err := l.Take(t.Context(), "d", 1); err != nil {
					t.Error(err)
				} else if _, err := l.Reset(t.Context(), "d"); err != nil {
					t.Error(err)
				} else if got := left("d"); got != "0 3" {
					t.Errorf("Reset leaves d %s, want 0 3: the slot is everybody's", got)
				} else if err := l.ResetLimit(t.Context(), slots); err != nil || left("d") != "1 3" {
					t.Errorf("ResetLimit: %v, leaves %s, want 1 3", err, left("d"))
				} else {
					p.Done()
				}
				if got := left("a"); got != "1 1" {
					t.Errorf("after Resets of another key and limit a has %s left, want 1 1", got)
				}
			})
		}
	})
}

func TestWaitForAConstantKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, everybody, stint.Rate(1, time.Minute), stint.AdaptiveConcurrency(1, 9, stint.WithInitialLimit(1)))
		p, err := l.Wait(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(2*time.Minute, p.Done)
		start := time.Now()
		p, err = l.Wait(t.Context(), "b", 1)
		if err != nil || time.Since(start) != 2*time.Minute {
			t.Errorf("b waited %v for a's turn and slot, want 2m: %v", time.Since(start), err)
		}
		p.Done()
	})
}

func TestResetLimit(t *testing.T) {
	l := limiter(t, stint.WithKey(byTenant), stint.Rate(5, time.Hour), stint.AdaptiveConcurrency(1, 9, stint.WithInitialLimit(5), stint.WithKey(stint.Global())),
		stint.WithRoute("/login", stint.Only(stint.Rate(1, time.Hour, stint.WithName("login"), stint.WithKey(stint.Global())))))
	if got := codes(l, "GET", "/login", 2); got != "200 429" {
		t.Fatal(got)
	}
	if _, err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if got := codes(l, "GET", "/login", 1); got != "429" {
		t.Errorf("after Reset of a key: %s", got)
	}
	if err := l.ResetLimit(t.Context(), "login"); err != nil {
		t.Error(err)
	}
	if got := codes(l, "GET", "/login", 2); got != "200 429" {
		t.Errorf("after ResetLimit: %s", got)
	}
	if _, err := l.Take(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	if err := l.ResetLimit(t.Context(), "adaptive"); err != nil {
		t.Error(err)
	}
	if d, _ := l.Peek(t.Context(), "k"); d.Limits[1].InFlight != 0 || d.Limits[0].Remaining != 4 {
		t.Errorf("after ResetLimit of adaptive: %+v", d.Limits)
	}
	for name, want := range map[string]string{"rate": "Reset with the key", "none": `no limit "none"`} {
		if err := l.ResetLimit(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	plain := limiter(t, everybody, stint.Rate(1, time.Hour, stint.WithName("calls")), stint.WithStore(newSpy()))
	if err := plain.ResetLimit(t.Context(), "calls"); err == nil || !strings.Contains(err.Error(), "store.Resetter") {
		t.Errorf("a store without Reset: %v", err)
	}
	if _, err := plain.Reset(t.Context(), "k"); err != nil {
		t.Errorf("nothing of k's to reset: %v", err)
	}
}

// A limit with GivenKey is for Take: requests have no such key. Adapters say so when they
// mount the limiter (internal/test/adaptertest).
func TestGivenKey(t *testing.T) {
	given := stint.WithKey(stint.GivenKey())
	l := limiter(t, given, stint.Rate(1, time.Hour), stint.Concurrency(2, stint.WithKey(stint.Global())))
	for key, want := range map[string]bool{"a": true, "b": true} {
		p, err := l.Take(t.Context(), key, 1)
		if (err == nil) != want {
			t.Errorf("%s: %v", key, err)
		}
		p.Done()
	}
	if _, err := l.Take(t.Context(), "a", 1); denied(t, err).Decision.Limit != "rate" {
		t.Error(err)
	}
	seen := &events{}
	update(t, l, given, stint.Rate(1, time.Hour), stint.WithoutWarnings(), seen.Option())
	if w := through(l, get("/"), nil); w.Code != 500 || seen.Kinds() != "Updated KeyFailed" {
		t.Errorf("a request all the same: %d, %s", w.Code, seen.Kinds())
	}

	for _, k := range []stint.Key{stint.Join(stint.Global(), stint.GivenKey()), stint.Hash(secret, stint.GivenKey())} {
		if _, err := stint.New(stint.Rate(1, time.Hour), stint.WithKey(k)); err == nil || !strings.Contains(err.Error(), "GivenKey() can't be") {
			t.Errorf("part of a key: %v", err)
		}
	}
}

// What Allow returns, how often it calls the store, and what it leaves behind.
func TestAllow(t *testing.T) {
	rate := stint.Rate(3, time.Hour, stint.WithName("rate"))
	free := stint.WithSettle(func(*http.Request, int, int64) int64 { return 0 })
	named := stint.WithName("other")
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	passes := is(nil)
	denials := func(err error) bool { return errors.As(err, new(*stint.DeniedError)) }
	failed := func(err error) bool { return errors.As(err, new(*stint.StoreError)) && errors.Is(err, errDown) }
	for _, tt := range []struct {
		name  string
		opts  []stint.Option
		cost  int64
		fails bool // the store
		want  func(error) bool
		takes int
		left  int64 // of the rate
	}{
		{"passes", []stint.Option{rate}, 1, false, passes, 1, 2},
		{"is charged what it costs", []stint.Option{rate}, 3, false, passes, 1, 0},
		{"costs more than there can be", []stint.Option{rate}, 4, false, denials, 1, 3},
		{"costs nothing", []stint.Option{rate}, 0, false, is(store.ErrCost), 0, 3},
		{"costs less than nothing", []stint.Option{rate}, -1, false, is(store.ErrCost), 0, 3},
		{"slots", []stint.Option{rate, stint.Concurrency(2, named)}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots that only report", []stint.Option{rate, stint.Concurrency(2, named, stint.WithDryRun(true))}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots of this process", []stint.Option{rate, stint.AdaptiveConcurrency(1, 2, named)}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots of a route", []stint.Option{rate, stint.WithRoute("/", stint.Concurrency(1, named))}, 1, false, passes, 1, 2},
		{"settled by responses", []stint.Option{rate, free}, 1, false, passes, 1, 2},
		{"bytes", []stint.Option{rate, stint.Bandwidth(4096, named)}, 1, false, passes, 1, 2},
		{"the store fails", []stint.Option{rate}, 1, true, passes, 1, 3},
		{"the store fails, closed", []stint.Option{rate, stint.WithFailurePolicy(stint.FailClosed)}, 1, true, failed, 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, append(tt.opts, theKey, stint.WithStore(s))...)
			if tt.fails {
				s.FailWith(errDown)
			}
			if err := l.Allow(t.Context(), "k", tt.cost); !tt.want(err) {
				t.Errorf("got %v", err)
			}
			s.FailWith(nil)
			if takes, settles := s.Counts(); takes != tt.takes || settles != 0 {
				t.Errorf("%d Takes and %d Settles, want %d and none", takes, settles, tt.takes)
			}
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Limits[0].Remaining != tt.left {
				t.Errorf("%d left, %v; want %d", d.Limits[0].Remaining, err, tt.left)
			}
		})
	}
}

// A denial of Allow says and logs what one of Take does, though a store in memory is asked
// by its Allow, and once.
func TestAllowDeniesAsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []stint.Limit{
			stint.Rate(3, time.Hour, stint.WithName("a")),
			stint.Rate(7, time.Minute, stint.WithName("a"), stint.WithBurst(3)),
			stint.Rate(3, time.Hour, stint.WithName("a"), stint.WithAlgorithm(stint.SlidingLog)),
			stint.Quota(3, stint.Daily, stint.WithName("a")),
		} {
			for _, cost := range []int64{1, 2, 4} {
				denial := func(call func(l *stint.Limiter) error) (stint.Decision, string, int64) {
					var log bytes.Buffer
					l := limiter(t, theKey, limit, stint.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
					if err := l.Allow(t.Context(), "k", 2); err != nil {
						t.Fatal(err)
					}
					if cost == 1 {
						if err := l.Allow(t.Context(), "k", 1); err != nil {
							t.Fatal(err)
						}
					}
					var denied *stint.DeniedError
					if err := call(l); !errors.As(err, &denied) {
						t.Fatalf("cost %d: %v, want a denial", cost, err)
					}
					return denied.Decision, log.String(), remaining(t, l)
				}
				got, logged, left := denial(func(l *stint.Limiter) error { return l.Allow(t.Context(), "k", cost) })
				want, wantLogged, wantLeft := denial(func(l *stint.Limiter) error { _, err := l.Take(t.Context(), "k", cost); return err })
				if !reflect.DeepEqual(got, want) || logged != wantLogged || left != wantLeft {
					t.Errorf("cost %d: Allow: %+v, %d left\n%s\nTake: %+v, %d left\n%s", cost, got, left, logged, want, wantLeft, wantLogged)
				}
				if !strings.Contains(logged, "event=Denied") {
					t.Errorf("the log has no denial: %s", logged)
				}
			}
		}
	})
}

// Allow blocks where Take would. When its context ends, it leaves the line and has
// charged nothing.
func TestAllowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Second, stint.WithMaxWait(2*time.Second)))
		start := time.Now()
		for want := range 3 {
			if err := l.Allow(t.Context(), "k", 1); err != nil || time.Since(start) != time.Duration(want)*time.Second {
				t.Fatalf("%v after %v, want nil after %ds", err, time.Since(start), want)
			}
		}
		ctx, cancel := contextFor(t, 500*time.Millisecond)
		defer cancel()
		if err := l.Allow(ctx, "k", 1); !errors.As(err, new(*stint.DeniedError)) {
			t.Errorf("a turn behind the deadline: %v, want a denial", err)
		}
		ctx, leave := contextFor(t, time.Hour)
		time.AfterFunc(time.Second/2, leave)
		if err := l.Allow(ctx, "k", 1); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
			t.Errorf("who has left: %v", err)
		}
		time.Sleep(time.Second) // the turn is its line's, and has passed unused
		if left := remaining(t, l); left != 0 {
			t.Errorf("%d left, want 0", left)
		}
		time.Sleep(time.Second)
		if left := remaining(t, l); left != 1 {
			t.Errorf("%d left, want 1", left)
		}
	})
}

// Observers get an Allow like a Take; a panic of theirs costs nothing.
func TestAllowObserved(t *testing.T) {
	var e events
	l := limiter(t, theKey, stint.Rate(1, time.Hour), e.Option())
	_ = l.Allow(t.Context(), "k", 1)
	_ = l.Allow(t.Context(), "k", 1)
	if got := e.Kinds(); got != "Admitted Denied" {
		t.Errorf("events %q", got)
	}
	l = limiter(t, theKey, stint.Rate(2, time.Hour), stint.WithObserver(func(stint.Event) { panic("observer") }))
	func() {
		defer func() { _ = recover() }()
		_ = l.Allow(t.Context(), "k", 1)
	}()
	if left := remaining(t, l); left != 2 {
		t.Errorf("%d left, want 2: the caller never heard that it may go on", left)
	}
}

// The decision of an Allow has taken the store's time; its end takes none.
func TestAllowEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[stint.EventKind]time.Duration{}
		l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithStore(slow(30*time.Millisecond, 0)),
			stint.WithObserver(func(e stint.Event) { took[e.Kind] = e.StoreTook }))
		if err := l.Allow(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		want := map[stint.EventKind]time.Duration{stint.EventAdmitted: 30 * time.Millisecond, stint.EventEnded: 0}
		if !maps.Equal(took, want) {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Guava's SmoothBursty: costs 1, 6, 2 wait 0, 2, 12 s.
		l := limiter(t, theKey, stint.Rate(1, 2*time.Second, stint.WithDebt(), stint.WithBurst(0)))
		for _, step := range []struct {
			cost int64
			wait time.Duration
		}{{1, 0}, {6, 2 * time.Second}, {2, 12 * time.Second}} {
			start := time.Now()
			p, err := l.Wait(t.Context(), "k", step.cost)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != step.wait || p.Decision().Delay != step.wait {
				t.Errorf("cost %d waited %v, and says %v; want %v", step.cost, got, p.Decision().Delay, step.wait)
			}
			p.Done()
		}
	})
}

func TestWaitDeniesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithBurst(2)))
		start := time.Now()
		take(t, l, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		_, err := l.Wait(ctx, "k", 1)
		if d := denied(t, err).Decision; d.RetryAfter != time.Second {
			t.Errorf("retry after %v: with the same deadline the same call passes in 1s", d.RetryAfter)
		}
		if _, err = l.Wait(t.Context(), "k", 3); denied(t, err).Decision.RetryAfter != stint.Never {
			t.Errorf("%v, want never", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("took %v, want nothing", time.Since(start))
		}
	})
}

func TestWaitCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute), stint.Concurrency(5))
		take(t, l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		start := time.Now()
		_, err := l.Wait(ctx, "k", 1)
		if !errors.Is(err, context.Canceled) || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		d, _ := l.Peek(t.Context(), "k")
		if free := d.Limits[1].Remaining; free != 4 || d.Limits[0].ResetAfter != 50*time.Second {
			t.Errorf("%d slots free, full in %v; want 4, 50s: the canceled call left a trace", free, d.Limits[0].ResetAfter)
		}
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v from a context that has ended", err)
		}
	})
}

func TestTake(t *testing.T) {
	l := limiter(t, stint.Rate(5, time.Hour, everybody, cost(9)), stint.Quota(9, stint.Monthly, stint.WithKey(stint.Header("X-None"))),
		stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	p, err := l.Take(t.Context(), "tenant-7", 3) // neither the keys nor the costs of requests count
	if err != nil {
		t.Fatal(err)
	}
	d := p.Decision()
	if !d.Allowed || d.Limit != "rate" || d.Remaining != 2 || d.Limits[1].Remaining != 6 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []int64{0, -1, store.MaxCost + 1} {
		if _, err := l.Take(t.Context(), "tenant-7", bad); !errors.Is(err, store.ErrCost) {
			t.Errorf("cost %d: %v", bad, err)
		}
	}
	if _, err := l.Take(t.Context(), "", 1); !errors.Is(err, stint.ErrEmptyKey) {
		t.Errorf("empty key: %v", err)
	}
	if _, err := l.Take(t.Context(), strings.Repeat("k", 1<<20), 1); !errors.Is(err, stint.ErrKeyTooLong) {
		t.Errorf("1 MB key: %v", err)
	}
	routes := limiter(t, stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	if _, err := routes.Take(t.Context(), "k", 1); err == nil {
		t.Error("a limiter with routes only takes")
	}
}

func TestPeekAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(2, time.Hour), stint.Concurrency(3), stint.WithRoute("/a", stint.Only(stint.Rate(1, time.Hour))))
		codes(l, "GET", "/a", 2)
		take(t, l, 2)
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Allowed || d.Limit != "rate" || d.Limits[1].Remaining != 1 || d.ResetAfter != time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		if d.RetryAfter != 30*time.Minute {
			t.Errorf("one unit in %v, want 30m", d.RetryAfter)
		}
		if other, _ := l.Peek(t.Context(), "other"); !other.Allowed || other.Remaining != 2 {
			t.Errorf("another key: %+v", other)
		}
		if _, err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d, _ = l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 2 || d.Limits[1].Remaining != 3 {
			t.Errorf("after Reset: %+v", d)
		}
		if got := codes(l, "GET", "/a", 1); got != "200" {
			t.Errorf("a route's limit after Reset: %s", got)
		}
		if _, err := l.Peek(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		if _, err := l.Reset(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		plain := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(newSpy()))
		if _, err := plain.Reset(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "store.Resetter") {
			t.Errorf("a store without Reset: %v", err)
		}
	})
}

// everywhere is a limiter with limits of its own and of routes, of every kind that can
// be asked.
func everywhere(t *testing.T, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	shared := stint.Rate(9, time.Hour, stint.WithName("shared"))
	return limiter(t, append([]stint.Option{
		stint.WithKey(byTenant),
		stint.Rate(5, time.Hour, stint.WithName("rate")), shared,
		stint.WithRoute("/login", stint.Only(shared, stint.Rate(1, time.Hour, stint.WithName("login")), stint.Ban(1, time.Hour, stint.WithBanFor(2*time.Hour)))),
		stint.WithRoute("/slots", stint.Only(stint.Concurrency(3, stint.WithName("slots"), stint.WithQueue(1)),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("adaptive"), stint.WithInitialLimit(4), stint.WithKey(stint.Global())))),
		stint.WithRoute("/turns", stint.Rate(2, time.Minute, stint.WithName("turns"), stint.WithMaxWait(time.Hour))),
		stint.WithRoute("/bytes", stint.Bandwidth(4096, stint.WithName("bytes")), stint.Rate(7, time.Hour, stint.WithName("downloads"))),
	}, opts...)...)
}

func standing(t *testing.T, l *stint.Limiter, key string) string {
	t.Helper()
	d, err := l.PeekAll(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range d.Limits {
		all = append(all, fmt.Sprintf("%s %d", s.Name, s.Remaining))
		if !s.Allowed {
			all[len(all)-1] += " denies"
		}
	}
	return strings.Join(all, ", ")
}

// PeekAll has each limit that a key has, once, and changes nothing.
func TestPeekAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := everywhere(t)
		const fresh = "rate 5, shared 9, login 1, ban 1, slots 3, turns 2, downloads 7, adaptive 4"
		for range 2 {
			if got := standing(t, l, "a"); got != fresh {
				t.Errorf("never seen: %s", got)
			}
		}
		as := func(tenant, path string, next func(http.ResponseWriter, *http.Request)) {
			r := get(path)
			r.Header.Set("X-Tenant", tenant)
			through(l, r, next)
		}
		as("a", "/", nil)
		for range 3 {
			as("a", "/login", nil)
		}
		as("a", "/slots", func(http.ResponseWriter, *http.Request) {
			if got, want := standing(t, l, "a"), "rate 4, shared 7, login 0 denies, ban 0 denies, slots 2, turns 2, downloads 7, adaptive 3"; got != want {
				t.Errorf("in a request it is %s, want %s", got, want)
			}
			if got, want := standing(t, l, "b"), "rate 5, shared 9, login 1, ban 1, slots 3, turns 2, downloads 7, adaptive 3"; got != want {
				t.Errorf("of somebody else it is %s, want %s", got, want)
			}
		})
		if _, err := l.PeekAll(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		routes := limiter(t, stint.WithKey(byTenant), stint.WithRoute("/", stint.Rate(1, time.Hour, stint.WithName("only"))))
		if got := standing(t, routes, "a"); got != "only 1" {
			t.Errorf("of a limiter with routes only: %s", got)
		}
	})
}

func TestPeekAllFails(t *testing.T) {
	sp := newSpy()
	sp.FailWith(errDown)
	broken := limiter(t, stint.WithKey(byTenant), stint.WithStore(sp), stint.Rate(1, time.Hour, stint.WithName("r")))
	if _, err := broken.PeekAll(t.Context(), "k"); !errors.As(err, new(*stint.StoreError)) {
		t.Error(err)
	}
	bytes := limiter(t, stint.WithKey(byTenant), stint.Bandwidth(4096))
	if _, err := bytes.PeekAll(t.Context(), "k"); err == nil {
		t.Error("a Bandwidth was looked at")
	}
}

// With names, Reset leaves the other limits alone.
func TestResetSomeLimits(t *testing.T) {
	l := everywhere(t)
	r := get("/login")
	r.Header.Set("X-Tenant", "a")
	for range 3 {
		through(l, r, nil)
	}
	for _, step := range []struct {
		limits    []string
		err, want string
	}{
		{[]string{"elsewhere"}, `there is no limit "elsewhere"`, "shared 8, login 0 denies, ban 0 denies"},
		{[]string{"ban", "adaptive"}, `the key of "adaptive" is constant, so it can't be reset for one caller`, "shared 8, login 0 denies, ban 0 denies"},
		{[]string{"ban"}, "", "shared 8, login 0 denies, ban 1"},
		{[]string{"login", "shared"}, "", "shared 9, login 1, ban 1"},
	} {
		_, err := l.Reset(t.Context(), "a", step.limits...)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%q: %v", step.limits, err)
		}
		if got := standing(t, l, "a"); !strings.Contains(got, step.want) {
			t.Errorf("after a reset of %q: %s, want %s", step.limits, got, step.want)
		}
	}
}

// A request of cost 0 is never denied and never waits: neither if a limit is used up,
// nor behind those who wait.
func TestCostsNothing(t *testing.T) {
	const second = time.Second
	wait := stint.WithMaxWait(time.Minute)
	byHeader := stint.WithCost(func(r *http.Request) int64 {
		if r.Header.Get("Free") != "" {
			return 0
		}
		return 1
	})
	limits := map[string]stint.Limit{
		"token bucket":   stint.Rate(1, second, wait),
		"at once":        stint.Rate(1, second),
		"debt":           stint.Rate(1, second, stint.WithBurst(0), stint.WithDebt(), wait),
		"leaky bucket":   stint.Rate(1, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(3)),
		"interval":       stint.Rate(1, second, stint.WithAlgorithm(stint.IntervalBucket), wait),
		"fixed window":   stint.Rate(1, second, stint.WithAlgorithm(stint.FixedWindow), wait),
		"sliding window": stint.Rate(1, second, stint.WithAlgorithm(stint.SlidingWindow), wait),
		"sliding log":    stint.Rate(1, second, stint.WithAlgorithm(stint.SlidingLog), wait),
		"warm-up":        stint.Rate(1, second, stint.WithWarmUp(4*second), wait),
		"quota":          stint.Quota(1, stint.Daily),
		// A default cost takes no slots.
		"slots":         stint.Concurrency(1, wait, stint.WithQueue(3), byHeader),
		"slots at once": stint.Concurrency(1, byHeader),
		"adaptive":      stint.AdaptiveConcurrency(1, 1, wait, stint.WithQueue(3), byHeader),
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, byHeader, limit, stint.WithRoute("/elsewhere", stint.Rate(1, second, stint.WithName("elsewhere")))) // which takes the cost
				ctx, cancel := context.WithCancel(t.Context())
				enter := func(ctx context.Context) {
					go through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
					synctest.Wait()
				}
				free := func(when string) {
					t.Helper()
					r, start := get("/"), time.Now()
					r.Header.Set("Free", "1")
					if w := through(l, r, nil); w.Code != 200 || time.Since(start) > 0 {
						t.Errorf("%s: %d after %v, want 200 at once", when, w.Code, time.Since(start))
					}
				}
				enter(ctx)
				free("all used up")
				enter(ctx)
				enter(ctx)
				free("behind others")
				cancel()
				synctest.Wait()
				free("behind what others have left")
				noLines(t, l)
			})
		})
	}
}

// PeekRequest looks at what a request would be charged, by its own keys, and charges nothing.
func TestPeekRequest(t *testing.T) {
	header := func(name string) stint.Option { return stint.WithKey(stint.Header(name)) }
	vip := stint.Rate(50, time.Hour, stint.WithName("vip"))
	l := limiter(t, header("X-Tenant"), stint.Rate(3, time.Hour, stint.WithName("rate"), stint.WithFixedCost(2)),
		stint.WithRoute("GET /login", stint.Only(stint.Rate(1, time.Hour, stint.WithName("login"), stint.WithKey(stint.Global())))), stint.WithRoute("GET /free", stint.Exempt()),
		stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{vip}, nil }),
		stint.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }),
		stint.WithBlock(func(r *http.Request) bool { return r.Header.Get("X-Block") != "" }))
	ask := func(path, field string) *http.Request {
		r := get(path)
		if r.Header.Set("X-Tenant", "a"); field != "" {
			r.Header.Set(field, "x")
		}
		return r
	}
	for range 2 {
		for _, tt := range []struct {
			path, field, want string
			allowed           bool
		}{
			{"/", "", "[rate 3 vip 50]", true}, {"/login", "", "[login 1]", true}, {"/free", "", "[]", true},
			{"/", "X-Skip", "[]", true}, {"/", "X-Block", "[]", false},
		} {
			d, err := l.PeekRequest(ask(tt.path, tt.field))
			got := []any{}
			for _, s := range d.Limits {
				got = append(got, s.Name, s.Remaining)
			}
			if fmt.Sprint(got) != tt.want || d.Allowed != tt.allowed || errors.Is(err, stint.ErrBlocked) == tt.allowed {
				t.Errorf("%s %s: %v, allowed %t, %v; want %s", tt.path, tt.field, got, d.Allowed, err, tt.want)
			}
		}
	}
	through(l, ask("/", ""), nil)
	through(l, ask("/login", ""), nil)
	if d, err := l.PeekRequest(ask("/login", "")); err != nil || d.Allowed || d.RetryAfter <= 0 {
		t.Errorf("used up: %+v, %v", d, err)
	}
	if d, err := l.PeekRequest(ask("/", "")); err != nil || d.Remaining != 1 {
		t.Errorf("two of three used: %+v, %v", d, err)
	}
	if _, err := l.PeekRequest(get("/")); !errors.Is(err, stint.ErrEmptyKey) {
		t.Errorf("without a key: %v", err)
	}
}

// A Reset that can reset nothing is an error.
func TestResetWithoutLimits(t *testing.T) {
	l := limiter(t, everybody, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{stint.Exempt()}, nil }))
	if _, err := l.Reset(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "limits of functions") {
		t.Errorf("%v", err)
	}
}

// used is what Usage returns, in short.
func used(t *testing.T, l *stint.Limiter, r *http.Request) string {
	t.Helper()
	all, err := l.Usage(r)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, u := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d/%d left %d in %v %s", u.Limit, u.Used, u.Capacity, u.Remaining, u.ResetAfter, u.Route)))
	}
	return strings.Join(lines, "\n")
}

// Usage has every limit under the request's own keys, whatever the path, and charges nothing.
// What is left counts a queue only as far as a request may wait in it: in a decision, in header fields, and
// for Peek and Usage.
func TestShortWaitInAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithMaxWait(300*time.Millisecond)),
			stint.WithHeaders(stint.XRateLimitHeaders))
		look := func(left int64, retry time.Duration) {
			t.Helper()
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Allowed != (left > 0) || d.Remaining != left || d.Limits[0].Capacity != 4 || d.RetryAfter != retry {
				t.Errorf("%+v, %v", d, err)
			}
			if u, err := l.Usage(get("/")); err != nil || u[0].Capacity != 4 || u[0].Used != 4-left || u[0].Remaining != left {
				t.Errorf("%+v, %v", u, err)
			}
		}
		look(4, 0)
		waited := make(chan *stint.Permit)
		go func() {
			p, err := l.Take(context.Background(), "k", 4)
			if err != nil {
				t.Error(err)
			}
			waited <- p
		}()
		synctest.Wait()
		look(0, 100*time.Millisecond)
		w := through(l, get("/"), nil)
		if h := w.Header(); w.Code != http.StatusTooManyRequests || h.Get("X-RateLimit-Limit") != "4" || h.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("%d %v", w.Code, h)
		}
		p := <-waited
		if err := p.Settle(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if d := p.Decision(); d.Remaining != 4 || d.Limits[0].Capacity != 4 { // three have drained
			t.Errorf("%+v", d)
		}
		p.Done()
	})
}

func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byUser, calls := stint.WithKey(stint.Header("X-User")), 0
		session := stint.KeyFunc(func(r *http.Request) (string, error) {
			if calls++; r.Header.Get("X-Session") == "" {
				return "", asked(401)
			}
			return r.Header.Get("X-Session"), nil
		})
		both := stint.Rate(6, time.Hour, stint.WithName("both"))
		l := limiter(t, byUser, stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/usage" }),
			stint.Rate(10, time.Hour, stint.WithName("calls")),
			stint.Rate(5, time.Hour, stint.WithName("session"), stint.WithKey(session)),
			stint.Quota(8, stint.Daily, stint.WithName("session-day"), stint.WithKey(session)),
			stint.Concurrency(3, stint.WithName("slots"), stint.WithKey(stint.Global())),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("adaptive"), stint.WithKey(stint.Global())),
			stint.Rate(7, time.Hour, stint.WithName("guests"), stint.WithKey(stint.RemoteIP()), stint.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-User") != "" })),
			stint.Rate(7, time.Hour, stint.WithName("tried"), stint.WithDryRun(true)),
			stint.Rate(7, time.Hour, stint.WithName("hidden"), stint.WithHidden()),
			stint.Bandwidth(1<<20, stint.WithName("bytes")),
			stint.WithRoute("POST /orders", stint.Rate(4, time.Hour, stint.WithName("orders")), both),
			stint.WithRoute("GET /reports", stint.Only(stint.Rate(2, time.Hour, stint.WithName("reports")), both)),
			stint.WithRoute("GET /free", stint.Exempt()))
		ask := func(method, path string, fields ...string) *http.Request {
			r := from("192.0.2.1:1", fields...)
			r.Method, r.URL.Path = method, path
			return r
		}
		through(l, ask("POST", "/orders", "X-User", "ada", "X-Session", "s"), nil)
		through(l, ask("GET", "/", "X-User", "ada", "X-Session", "s"), func(http.ResponseWriter, *http.Request) {
			const want = "calls 2/10 left 8 in 12m0s\nsession 2/5 left 3 in 24m0s\nsession-day 2/8 left 6 in 24h0m0s\nslots 1/3 left 2 in 0s\n" +
				"orders 1/4 left 3 in 15m0s POST /orders\nboth 1/6 left 5 in 10m0s POST /orders, GET /reports\n" +
				"reports 0/2 left 2 in 0s GET /reports\nadaptive 1/9 left 8 in 0s"
			for range 2 { // nothing is charged
				calls = 0
				if got := used(t, l, ask("GET", "/usage", "X-User", "ada", "X-Session", "s")); got != want || calls != 1 {
					t.Errorf("got\n%s\nafter %d calls of the key, want\n%s", got, calls, want)
				}
			}
		})
		const bob = "calls 0/10 left 10 in 0s\nslots 0/3 left 3 in 0s\norders 0/4 left 4 in 0s POST /orders\n" +
			"both 0/6 left 6 in 0s POST /orders, GET /reports\nreports 0/2 left 2 in 0s GET /reports\nadaptive 0/9 left 9 in 0s"
		calls = 0
		if got := used(t, l, ask("GET", "/usage", "X-User", "bob")); got != bob || calls != 1 {
			t.Errorf("without a session, after %d calls of the key:\n%s\nwant\n%s", calls, got, bob)
		}
		const guest = "slots 0/3 left 3 in 0s\nguests 0/7 left 7 in 0s\nadaptive 0/9 left 9 in 0s"
		if got := used(t, l, ask("GET", "/usage")); got != guest {
			t.Errorf("without a user:\n%s\nwant\n%s", got, guest)
		}
		if got := used(t, limiter(t, byUser, stint.Rate(1, time.Hour)), ask("GET", "/")); got != "" {
			t.Errorf("a limiter none of whose keys the request has: %s", got)
		}
	})
}

// Limits of functions and sources are those of the request's tenant.
func TestUsageOfTenants(t *testing.T) {
	byTenant := stint.Header("X-Tenant")
	source := func(_ context.Context, tenant string, _ stint.LimitUser) ([]stint.Limit, error) {
		plan := func(n int64) []stint.Limit { return []stint.Limit{stint.Rate(n, time.Hour, stint.WithName("plan"))} }
		switch tenant {
		case "paid":
			return plan(100), nil
		case "free":
			return plan(2), nil
		case "stale":
			return plan(7), &stint.SourceError{Err: errors.New("down")}
		case "down":
			return nil, &stint.SourceError{Err: errors.New("down")}
		}
		return nil, errors.New("no such tenant")
	}
	extra := stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
		if r.Header.Get("X-Tenant") != "paid" {
			return []stint.Limit{stint.Exempt()}, nil
		}
		return []stint.Limit{stint.Quota(9, stint.Monthly, stint.WithName("exports"), stint.WithKey(stint.Global()))}, nil
	})
	l := limiter(t, stint.WithKey(byTenant), stint.Rate(50, time.Hour, stint.WithName("own")), stint.WithLimitSource(byTenant, source), extra)
	ask := func(tenant string) *http.Request { return from("192.0.2.1:1", "X-Tenant", tenant) }
	for range 2 {
		through(l, ask("free"), nil)
	}
	for tenant, want := range map[string]string{
		"free":  "own 2/50 plan 2/2",
		"paid":  "own 0/50 plan 0/100 exports 0/9",
		"stale": "own 0/50 plan 0/7",
		"else":  "own 0/50",
		"down":  "stint: limits could not be loaded: down",
	} {
		all, err := l.Usage(ask(tenant))
		var got []string
		for _, u := range all {
			got = append(got, fmt.Sprintf("%s %d/%d", u.Limit, u.Used, u.Capacity))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != want || err != nil && !errors.As(err, new(*stint.SourceError)) {
			t.Errorf("%s: %q, %v; want %s", tenant, got, err, want)
		}
	}
}

// A key function that fails with 500 makes Usage fail, and is logged.
func TestUsageWhenAKeyFails(t *testing.T) {
	broken := stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("no context") })
	var log bytes.Buffer
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("calls")),
		stint.Rate(9, time.Hour, stint.WithName("user"), stint.WithKey(broken)),
		stint.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	all, err := l.Usage(get("/"))
	if all != nil || err == nil || err.Error() != "stint: limit user: no context" {
		t.Errorf("%v, %v", all, err)
	}
	if !strings.Contains(log.String(), "a key function failed") || !strings.Contains(log.String(), "no context") {
		t.Errorf("log: %s", &log)
	}
}

func TestUsageWithoutStore(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(storefake.Down()))
	if all, err := l.Usage(get("/")); all != nil || !errors.As(err, new(*stint.StoreError)) {
		t.Errorf("%v, %v", all, err)
	}
}
