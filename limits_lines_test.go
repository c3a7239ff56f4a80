package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

var errLost = errors.New("answer lost")

// someLost has every so many settlements fail, half of them after they were made; 0 for none.
func someLost(every int64, settle func(*asks) error) func(*asks) error {
	var settles atomic.Int64
	return func(c *asks) error {
		n := settles.Add(1)
		if every == 0 || n%every != 0 {
			return settle(c)
		}
		if n%(2*every) != 0 {
			c.Charges, c.Results = nil, nil // so it takes as long
		}
		_ = settle(c)
		return errLost
	}
}

// On a store across a network, each slot that is released goes to a call in line by one call of the store, whatever
// else is asked meanwhile. So a line uses all slots, and as many more as an Update adds.
func TestSlotsAcrossANetworkAreUsed(t *testing.T) {
	for _, tt := range []struct {
		name            string
		before, slots   int64
		held, roundTrip time.Duration
	}{
		{"held for ten round trips", 50, 50, 10 * time.Millisecond, time.Millisecond},
		{"held for two round trips", 10, 10, 10 * time.Millisecond, 5 * time.Millisecond},
		{"more after an Update", 5, 100, 50 * time.Millisecond, time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := slow(tt.roundTrip, tt.roundTrip)
				limit := func(n int64) stint.Option { return stint.Concurrency(n, stint.WithName("slots")) }
				l := limiter(t, theKey, stint.WithStore(s), limit(tt.before))
				ctx, stop := context.WithCancel(context.Background())
				var all sync.WaitGroup
				var passed atomic.Int64
				for range 2 * tt.slots {
					all.Go(func() {
						for {
							p, err := l.Wait(ctx, "k", 1)
							if err != nil {
								return
							}
							passed.Add(1)
							time.Sleep(tt.held)
							p.Done()
						}
					})
				}
				time.Sleep(time.Second)
				if err := l.Update(limit(tt.slots)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				const measured = 2 * time.Second
				asksBefore, _ := s.Counts()
				before := passed.Load()
				time.Sleep(measured)
				got, due := passed.Load()-before, tt.slots*int64(measured/(tt.held+2*tt.roundTrip))
				asks, _ := s.Counts()
				if got*100 < due*95 {
					t.Errorf("%d calls have got slots in %v, want %d", got, measured, due)
				}
				if asks -= asksBefore; int64(asks)*100 > got*150 {
					t.Errorf("%d calls of the store for %d slots, want about one for each", asks, got)
				}
				stop()
				all.Wait()
				noLines(t, l)
			})
		})
	}
}

// A request that waits for its rate holds no slot, so it takes none from another client.
func TestWaitingHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t,
			stint.Rate(10, time.Second, stint.WithName("rate"), stint.WithMaxWait(10*time.Second), stint.WithKey(stint.Header("Client"))),
			stint.Concurrency(50, stint.WithName("slots"), stint.WithKey(stint.Global())))
		request := func(client string) int {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Client", client)
			w := httptest.NewRecorder()
			l.Serve(w, r, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Millisecond) }))
			return w.Code
		}
		var all sync.WaitGroup
		passed := atomic.Int64{}
		for range 70 {
			all.Go(func() {
				if request("busy") == http.StatusOK {
					passed.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		for i := range 20 {
			if code := request(fmt.Sprint("other ", i)); code != http.StatusOK {
				t.Errorf("another client gets %d while requests of one wait for its rate", code)
			}
		}
		if all.Wait(); passed.Load() != 70 {
			t.Errorf("%d of 70 requests of the busy client passed", passed.Load())
		}
	})
}

// Two limits that wait hold at every instant: the turn of one isn't spent while a request waits for the other.
func TestTwoLimitsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.GivenKey()),
			stint.Rate(10, time.Second, stint.WithName("smooth"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(100), stint.WithMaxWait(5*time.Minute)),
			stint.Rate(20, time.Minute, stint.WithName("minute"), stint.WithAlgorithm(stint.FixedWindow), stint.WithMaxWait(5*time.Minute)))
		var mu sync.Mutex
		var passed []time.Time
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				p, err := l.Wait(t.Context(), "k", 1)
				if err != nil {
					t.Error(err)
					return
				}
				p.Done()
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, time.Now())
			})
		}
		all.Wait()
		slices.SortFunc(passed, time.Time.Compare)
		for i, at := range passed {
			if i > 0 && at.Sub(passed[i-1]) < 100*time.Millisecond {
				t.Errorf("request %d passes %v after the one before it, want 100ms at least", i, at.Sub(passed[i-1]))
			}
			if i >= 20 && at.Sub(passed[i-20]) < 40*time.Second {
				t.Errorf("requests %d to %d pass within %v", i-20, i, at.Sub(passed[i-20]))
			}
		}
	})
}

// While the primary store is back after an outage, requests don't stand behind turns of the other store, nor behind
// turns that the primary granted long ago.
func TestTurnsOfAStoreThatNoLongerDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		primary := &spy{Store: memstore.New()}
		primary.OnTake = func(c *asks) error {
			if down.Load() {
				return errDown
			}
			return c.Pass()
		}
		fallback := failover.New(primary, memstore.New())
		l := limiter(t, stint.WithKey(stint.GivenKey()), stint.WithStore(fallback), stint.Rate(1, time.Minute, stint.WithName("r"), stint.WithMaxWait(2*time.Minute)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { _, _ = l.Wait(ctx, "k", 1) })
		}
		time.Sleep(time.Second)
		down.Store(true)
		for range 20 { // trips the breaker
			_ = l.Allow(ctx, "other", 1)
		}
		time.Sleep(time.Second)
		down.Store(false)
		time.Sleep(2 * time.Minute)
		cancel()
		all.Wait()
		start := time.Now()
		wait, stop := context.WithTimeout(t.Context(), 2*time.Minute+time.Second)
		defer stop()
		if _, err := l.Take(wait, "k", 1); err != nil || time.Since(start) > 2*time.Minute {
			t.Errorf("a request that waits up to 2m ends after %v: %v", time.Since(start), err)
		}
	})
}

// A turn of the secondary is kept while probes of the primary fail: the same store still decides.
func TestTurnsWhileThePrimaryStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failover.New(storefake.Down(), memstore.New(), failover.WithThreshold(1), failover.WithProbe(250*time.Millisecond, time.Second))
		defer s.Close()
		l := limiter(t, stint.WithKey(stint.GivenKey()), stint.WithStore(s),
			stint.Rate(10, time.Minute, stint.WithBurst(1), stint.WithName("r"), stint.WithMaxWait(time.Hour)))
		if err := l.Allow(t.Context(), "other", 1); err != nil { // opens the breaker
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		var all sync.WaitGroup
		for range 11 {
			all.Go(func() {
				if _, err := l.Take(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
			})
		}
		if all.Wait(); time.Since(start).Round(time.Second) != time.Minute {
			t.Errorf("11 requests at 10 a minute take %v", time.Since(start))
		}
	})
}

// Each failover of a nested one drops the turns of the store that it no longer asks.
func TestTurnsOfANestedFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := &spy{Store: memstore.New()}
		inner := failover.New(storefake.Down(), second, failover.WithThreshold(1))
		defer inner.Close()
		outer := failover.New(inner, memstore.New(), failover.WithThreshold(1))
		defer outer.Close()
		l := limiter(t, stint.WithKey(stint.GivenKey()), stint.WithStore(outer),
			stint.Rate(1, time.Minute, stint.WithName("r"), stint.WithMaxWait(time.Hour)))
		for _, key := range []string{"other", "k"} { // opens the breaker of the inner one
			if err := l.Allow(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		start := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := l.Allow(t.Context(), "k", 1); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		second.FailWith(errDown)
		if err := l.Allow(t.Context(), "other", 1); err != nil { // opens the breaker of the outer one
			t.Fatal(err)
		}
		if waiting.Wait(); time.Since(start) > time.Second {
			t.Errorf("a request has waited %v for a turn of a store that no longer decides", time.Since(start))
		}
	})
}

// After a Reset, requests don't wait for turns that no longer exist.
func TestWaitingOverAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.GivenKey()), stint.Rate(10, time.Minute, stint.WithBurst(1), stint.WithName("r"), stint.WithMaxWait(10*time.Minute)))
		var all sync.WaitGroup
		for range 90 {
			all.Go(func() {
				if _, err := l.Take(t.Context(), "k", 1); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(3 * time.Second)
		if err := l.Update(stint.Rate(10, time.Second, stint.WithBurst(1), stint.WithName("r"), stint.WithMaxWait(10*time.Minute))); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		reset := time.Now()
		if all.Wait(); time.Since(reset) > 10*time.Second {
			t.Errorf("90 requests at 10/s take %v after a Reset and an Update", time.Since(reset))
		}
		noLines(t, l)
	})
}

// A process that ends leaves what its lines hold charged: one turn, however many requests wait.
func TestShutdownLeavesOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memstore.New()
		opts := []stint.Option{stint.WithKey(stint.GivenKey()), stint.WithStore(shared),
			stint.Rate(1, time.Second, stint.WithBurst(1), stint.WithName("r"), stint.WithMaxWait(5*time.Minute))}
		ctx, end := context.WithCancel(t.Context())
		l := limiter(t, opts...)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { _, _ = l.Take(ctx, "k", 1) })
		}
		synctest.Wait()
		end()
		all.Wait()
		next := limiter(t, opts...)
		start := time.Now()
		if _, err := next.Take(t.Context(), "k", 1); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("the next process waits %v: %v", time.Since(start), err)
		}
	})
}

// A refund lets no later request overtake those that wait.
func TestRefundBesideWaiters(t *testing.T) {
	for _, algorithm := range []stint.Algorithm{stint.TokenBucket, stint.FixedWindow, stint.SlidingWindow, stint.SlidingCounter, stint.SlidingLog, stint.IntervalBucket} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, stint.WithKey(stint.GivenKey()),
				stint.Rate(5, time.Minute, stint.WithAlgorithm(algorithm), stint.WithName("r"), stint.WithMaxWait(10*time.Minute)))
			p, err := l.Take(t.Context(), "k", 5)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			passed := map[int]time.Time{}
			var all sync.WaitGroup
			enter := func(i int) {
				all.Go(func() {
					if _, err := l.Take(t.Context(), "k", 1); err != nil {
						t.Error(algorithm, i, err)
					}
					mu.Lock()
					defer mu.Unlock()
					passed[i] = time.Now()
				})
				time.Sleep(time.Millisecond)
			}
			for i := range 5 {
				enter(i)
			}
			if err := p.Settle(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				enter(5 + i)
			}
			all.Wait()
			for i := 1; i < 10; i++ {
				if passed[i].Before(passed[i-1]) {
					t.Errorf("%v: request %d passes %v before request %d", algorithm, i, passed[i-1].Sub(passed[i]), i-1)
				}
			}
		})
	}
}

// fleet is limiters on one store, as of so many processes, whose round trips are from 100 µs to 5 ms.
type fleet struct {
	limiters []*stint.Limiter
	calls    atomic.Int64 // of the store
}

// newFleet makes a fleet. behind returns the store of a process.
func newFleet(t *testing.T, processes int, behind func(i int) store.Store, limits ...stint.Option) *fleet {
	f := new(fleet)
	for i := range processes {
		trip := 100*time.Microsecond + time.Duration(i)*4900*time.Microsecond/time.Duration(max(processes-1, 1))
		far := &spy{Store: behind(i)}
		there := func(c *asks) error {
			f.calls.Add(1)
			time.Sleep(trip / 2)
			err := c.Pass()
			time.Sleep(trip / 2)
			return err
		}
		far.OnTake, far.OnSettle = there, there
		f.limiters = append(f.limiters, limiter(t, append(limits, stint.WithKey(stint.GivenKey()), stint.WithStore(far))...))
	}
	return f
}

// impatient has clients that leave after 2 s ask for 1.2 times a rate, each at one of the processes. It returns the part
// of the rate that has passed after a warm-up, and the calls of the store for each pass.
func (f *fleet) impatient(t *testing.T, perSecond float64, warmUp, d time.Duration) (used, calls float64) {
	var passed atomic.Int64
	var all sync.WaitGroup
	rnd := rand.New(rand.NewPCG(1, uint64(len(f.limiters))))
	start, warm := time.Now(), int64(0)
	for next := start; next.Sub(start) < d; {
		if next.Sub(start) < warmUp {
			warm = passed.Load()
		}
		next = next.Add(time.Duration(rnd.ExpFloat64() / 1.2 / perSecond * float64(time.Second)))
		time.Sleep(time.Until(next)) // in a bubble, or before a real server
		l := f.limiters[rnd.IntN(len(f.limiters))]
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			defer time.AfterFunc(2*time.Second, leave).Stop()
			if _, err := l.Take(ctx, "k", 1); err == nil {
				passed.Add(1)
			}
		})
	}
	used = float64(passed.Load()-warm) / perSecond / (d - warmUp).Seconds()
	all.Wait()
	return used, float64(f.calls.Load()) / float64(passed.Load())
}

// Impatient clients of a fleet use the rate: 12 a second at 10/s, who wait up to 3 s and leave after 2 s. So they do
// beside a quota, with more calls of the store. 32 processes may hold 32 turns, which is longer than their clients wait.
func TestImpatientFleet(t *testing.T) {
	quota := stint.Quota(1_000_000, stint.Daily, stint.WithName("q"))
	for processes, least := range map[int]float64{1: 0.99, 2: 0.98, 8: 0.95, 32: 0.85} {
		for _, beside := range [][]stint.Option{nil, {quota}} {
			synctest.Test(t, func(t *testing.T) {
				shared := memstore.New()
				f := newFleet(t, processes, func(int) store.Store { return shared },
					append(beside, stint.Rate(10, time.Second, stint.WithName("r"), stint.WithMaxWait(3*time.Second)))...)
				used, calls := f.impatient(t, 10, 30*time.Second, 300*time.Second)
				t.Logf("%d processes, %d limits: %.3f of the rate, %.2f calls a pass", processes, 1+len(beside), used, calls)
				if used < least || used > 1.01 {
					t.Errorf("%d processes with %d limits use %.3f of the rate, want %.2f or more", processes, 1+len(beside), used, least)
				}
			})
		}
	}
}

// On a real Redis, 32 processes use their rate at 100 a second.
func TestServersImpatientFleet(t *testing.T) {
	redistest.Suite(t, "servers")
	server := redistest.Shared(t)
	client, prefix := server.Client(), redisstore.WithPrefix(redistest.Prefix(t))
	f := newFleet(t, 32, func(i int) store.Store {
		s := redisstore.New(client, prefix)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}, stint.Rate(100, time.Second, stint.WithBurst(10), stint.WithName("r"), stint.WithMaxWait(3*time.Second), stint.WithFailurePolicy(stint.FailClosed)))
	used, calls := f.impatient(t, 100, 3*time.Second, 15*time.Second)
	t.Logf("%.3f of the rate, %.2f calls a pass", used, calls)
	if used < 0.9 || used > 1.05 {
		t.Errorf("32 processes use %.3f of the rate, want 0.9 or more", used)
	}
}

// The fields and Peek count a queue only as far as a request may wait.
func TestQueueWithinMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.GivenKey()),
			stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithMaxWait(300*time.Millisecond)))
		for i, want := range []int64{3, 2, 1, 0} {
			go func() { _, _ = l.Take(t.Context(), "k", 1) }()
			synctest.Wait()
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != want || d.Allowed != (want > 0) {
				t.Errorf("after %d requests: %d left, allowed: %v, %v; want %d", i+1, d.Remaining, d.Allowed, err, want)
			}
		}
		var denied *stint.DeniedError
		if err := l.Allow(t.Context(), "k", 1); !errors.As(err, &denied) || denied.Decision.RetryAfter != 100*time.Millisecond {
			t.Errorf("the fifth request: %v, want a denial for 100ms", err)
		}
		time.Sleep(time.Second)
	})
}

// A rate is used in full where calls of a high class, or raises, take the turns of expensive calls of a low one: what
// they don't need of a turn is there for the next call.
func TestCheapCallsBeforeExpensiveOnes(t *testing.T) {
	for _, raises := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Rate(1000, time.Second, stint.WithBurst(700), stint.WithMaxWait(time.Minute)))
			const span = 30 * time.Second
			end := time.Now().Add(span)
			var cheap, expensive atomic.Int64
			use := func(call func() error, cost int64, n *atomic.Int64) {
				if err := call(); err != nil {
					t.Error(err)
				}
				if time.Now().Before(end) {
					n.Add(cost)
				}
			}
			for i := range 6 {
				go func() {
					time.Sleep(time.Duration(i) * 3_777_777)
					for time.Now().Before(end) {
						use(func() error { return l.Allow(context.Background(), "k", 600) }, 600, &expensive)
					}
				}()
			}
			for i := range 10 {
				go func() {
					time.Sleep(time.Duration(i) * 7_777_777)
					p, cost := take(t, l, 1), int64(1)
					defer p.Done()
					for time.Now().Before(end) {
						time.Sleep(500 * time.Millisecond)
						use(func() error {
							if raises {
								cost += 20
								return p.Extend(context.Background(), cost)
							}
							return l.Allow(stint.ContextWithPriority(context.Background(), 9), "k", 20)
						}, 20, &cheap)
					}
				}()
			}
			time.Sleep(span + time.Minute)
			all := int64(1000 * span / time.Second)
			if used := cheap.Load() + expensive.Load(); used < all*95/100 || used > all+700 {
				t.Errorf("raises %v: %d of %d units used, %d of them by cheap calls", raises, used, all, cheap.Load())
			}
		})
	}
}
