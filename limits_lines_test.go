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
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
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

// Impatient clients of a fleet use the rate: 12 a second at 10/s, who wait up to 3 s and leave after 2 s.
func TestImpatientFleet(t *testing.T) {
	for processes, least := range map[int]float64{1: 0.99, 2: 0.98, 8: 0.95, 32: 0.9} {
		synctest.Test(t, func(t *testing.T) {
			shared := memstore.New()
			var calls, passed atomic.Int64
			var fleet []*stint.Limiter
			for i := range processes {
				trip := 100*time.Microsecond + time.Duration(i)*4900*time.Microsecond/time.Duration(max(processes-1, 1))
				far := &spy{Store: shared}
				there := func(c *asks) error {
					calls.Add(1)
					time.Sleep(trip / 2)
					err := c.Pass()
					time.Sleep(trip / 2)
					return err
				}
				far.OnTake, far.OnSettle = there, there
				fleet = append(fleet, limiter(t, stint.WithKey(stint.GivenKey()), stint.WithStore(far),
					stint.Rate(10, time.Second, stint.WithName("r"), stint.WithMaxWait(3*time.Second))))
			}
			rnd := rand.New(rand.NewPCG(1, uint64(processes)))
			var all sync.WaitGroup
			start, warm := time.Now(), int64(0)
			for time.Since(start) < 300*time.Second {
				if time.Since(start) < 30*time.Second {
					warm = passed.Load()
				}
				time.Sleep(time.Duration(rnd.ExpFloat64() / 12 * float64(time.Second)))
				l := fleet[rnd.IntN(processes)]
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					if _, err := l.Take(ctx, "k", 1); err == nil {
						passed.Add(1)
					}
				})
			}
			used := float64(passed.Load()-warm) / 2700
			all.Wait()
			t.Logf("%d processes use %.3f of the rate with %.2f calls a pass", processes, used, float64(calls.Load())/float64(passed.Load()))
			if used < least || used > 1.01 {
				t.Errorf("%d processes use %.3f of the rate, want %.2f or more", processes, used, least)
			}
		})
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

var _ store.Store
