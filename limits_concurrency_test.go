package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/explore"
	"github.com/stint-go/stint/store"
)

func TestSlotsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(2, stint.WithQueue(1000), stint.WithMaxWait(10*time.Second)), stint.Rate(100, time.Second))
		start := time.Now()
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("%v ", time.Since(start))+fmt.Sprintf(format, args...))
		}
		var wg sync.WaitGroup
		enter := func(name string, leave time.Duration, work time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			if leave > 0 {
				time.AfterFunc(leave, cancel)
			}
			wg.Go(func() {
				defer cancel()
				through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) {
					note("%s", name)
					time.Sleep(work)
				})
			})
			synctest.Wait()
		}
		enter("a", 0, 2*time.Second)
		enter("b", 0, 3*time.Second)
		enter("c", 0, 4*time.Second)
		enter("d", time.Second, time.Second) // gives up as the second in line
		enter("e", 0, time.Second)
		enter("f", 0, time.Second)
		wg.Wait()
		want := "0s a|0s b|2s c|3s e|4s f"
		if got := strings.Join(log, "|"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := remaining(t, l); got != 2 {
			t.Errorf("%d slots free at the end, want 2", got)
		}
	})
}

func TestWaitForSlotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Second)), seen.Option())
		p := take(t, l, 1)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := l.Take(t.Context(), "k", 1)
				if d := denied(t, err).Decision; d.Limit != "concurrency" || d.RetryAfter != time.Second || d.Limits[0].RetryAfter != time.Second {
					t.Errorf("%+v", d)
				}
				if got := time.Since(start); got != time.Second {
					t.Errorf("denied after %v, want 1s", got)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := seen.Last(); got.Kind != stint.EventDenied || got.Waited != time.Second {
			t.Errorf("%v after %v", got.Kind, got.Waited)
		}
		// Who waited in vain left nothing behind.
		p.Done()
		for range 2 {
			take(t, l, 1).Done()
		}
	})
}

func TestNobodyOvertakesWhoWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1))
		p := take(t, l, 1)
		var order []string
		var wg sync.WaitGroup
		wg.Go(func() {
			q, err := l.Wait(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			order = append(order, "waiter")
			time.Sleep(time.Second)
			q.Done()
		})
		synctest.Wait()
		// Before the waiter's goroutine runs, the slot looks free.
		p.Done()
		_, err := l.Take(t.Context(), "k", 1)
		if d := denied(t, err).Decision; d.Limit != "concurrency" || d.Allowed || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
		if q, err := l.Take(t.Context(), "other", 1); err != nil {
			t.Errorf("another key is denied: %v", err)
		} else {
			q.Done()
		}
		wg.Wait()
		if !slices.Equal(order, []string{"waiter"}) {
			t.Error(order)
		}
	})
}

// A request waits for a slot only if nothing else denies, and the other limits are
// asked again once there is a slot.
func TestSlotAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Minute)), stint.Rate(2, time.Hour))
		p := take(t, l, 1)
		time.AfterFunc(3*time.Second, p.Done)
		start := time.Now()
		at, denials := passed(l, 2)
		if !slices.Equal(at, millis(3000)) || denials != 1 || time.Since(start) != 3*time.Second {
			t.Errorf("passed at %v, %d denied after %v", at, denials, time.Since(start))
		}
		p2, err := l.Take(t.Context(), "k", 1) // the rate denies: no wait
		if denied(t, err).Decision.Limit != "rate" || p2 != nil || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Reset frees the key's slots, and who waits for one has it at once.
func TestResetWakesWaiters(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"fixed":    stint.Concurrency(1, stint.WithQueue(5)),
		"adaptive": stint.AdaptiveConcurrency(1, 1, stint.WithQueue(5)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, limit)
				defer take(t, l, 1).Done()
				start := time.Now()
				go func() {
					time.Sleep(5 * time.Millisecond)
					if _, err := l.Reset(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}()
				take(t, l, 1).Done()
				if waited := time.Since(start); waited != 5*time.Millisecond {
					t.Errorf("waited for %v, want 5ms", waited)
				}
			})
		})
	}
}

// Slots of two limits: those who wait for one must not block those who don't.
func TestTwoConcurrencyLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := stint.WithMaxWait(time.Minute)
		l := limiter(t, wait,
			stint.Concurrency(2, stint.WithName("all"), everybody),
			stint.Concurrency(1, stint.WithName("each"), stint.WithKey(stint.Header("X-User"))))
		start := time.Now()
		var mu sync.Mutex
		var log []string
		var wg sync.WaitGroup
		enter := func(user string, work time.Duration) {
			r := get("/")
			r.Header.Set("X-User", user)
			wg.Go(func() {
				through(l, r, func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					log = append(log, fmt.Sprint(time.Since(start), " ", user))
					mu.Unlock()
					time.Sleep(work)
				})
			})
			synctest.Wait()
		}
		enter("a", 3*time.Second)
		enter("a", time.Second) // waits for a's slot
		enter("b", time.Second) // goes on at once
		enter("b", time.Second)
		enter("c", time.Second) // waits for a slot of all
		wg.Wait()
		if got, want := strings.Join(log, ", "), "0s a, 0s b, 1s b, 2s c, 3s a"; got != want && got != "0s a, 0s b, 1s c, 2s b, 3s a" {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Slots are released elsewhere too, because the store has other users.
func TestSlotReleasedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		here := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithMaxWait(time.Minute), stint.WithName("concurrency")))
		there := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithName("concurrency")))
		p := take(t, there, 1)
		time.AfterFunc(1050*time.Millisecond, p.Done)
		start := time.Now()
		q := take(t, here, 1)
		if got := time.Since(start); got < 1050*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("got the slot after %v", got)
		}
		q.Done()
	})
}

func TestManyWaitForSlots(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newRand(seed)
			l := limiter(t, theKey, stint.Concurrency(3, stint.WithQueue(1000), stint.WithMaxWait(20*time.Second)))
			var mu sync.Mutex
			inside, most := 0, 0
			var wg sync.WaitGroup
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Millisecond, cancel)
				}
				cost, work := 1+rnd.Int64N(3), time.Duration(rnd.IntN(300))*time.Millisecond
				wg.Go(func() {
					defer cancel()
					p, err := l.Take(ctx, "k", cost)
					if err != nil {
						return
					}
					defer p.Done()
					mu.Lock()
					inside += int(cost)
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(work)
					mu.Lock()
					inside -= int(cost)
					mu.Unlock()
				})
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
			}
			wg.Wait()
			if got := remaining(t, l); most > 3 || got != 3 {
				t.Errorf("seed %d: %d slots taken at once, %d free at the end", seed, most, got)
			}
		})
	}
}

// A limit lowered below what is held reports what is held until it is released.
func TestInFlightOfALoweredLimit(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		slots := func(n int64) stint.Limit { return stint.Concurrency(n, stint.WithName("lowered")) }
		l := limiter(t, theKey, stint.WithStore(s), slots(10))
		var held []*stint.Permit
		for range 5 {
			held = append(held, take(t, l, 1))
		}
		status := func(when string, want int64) {
			t.Helper()
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Limits[0].InFlight != want || d.Limits[0].Remaining != max(0, d.Limits[0].Capacity-int64(want)) {
				t.Errorf("%s: %+v, %v; want %d in flight", when, d.Limits[0], err, want)
			}
		}
		status("5 of 10", 5)
		update(t, l, slots(2), theKey)
		status("5 of 2", 5)
		_, err := l.Take(t.Context(), "k", 1)
		if got := denied(t, err).Decision.Limits[0].InFlight; got != 5 {
			t.Errorf("a denial says %d in flight, want 5", got)
		}
		for i, p := range held {
			p.Done()
			status("released", int64(4-i))
		}
		p := take(t, l, 2)
		if got := p.Decision().Limits[0].InFlight; got != 2 {
			t.Errorf("a permit says %d in flight, want its own 2", got)
		}
		p.Done()
	})
}

// A waiter gets a slot when it is released, in whatever order callers ask, leave and
// release: no caller has to wait for the next poll, no slot is held twice, and none is
// lost.
func TestEveryOrderOfALine(t *testing.T) {
	explore.Run(t, func(s *explore.Scheduler) {
		start := time.Now()
		st := newSpy() // whose answers take a while after the first: anybody may come in before and after
		l, err := stint.New(theKey, stint.WithStore(st),
			stint.Concurrency(1, stint.WithName("x"), stint.WithQueue(2), stint.WithMaxWait(time.Minute)))
		if err != nil {
			s.Broken("%v", err)
			return
		}
		inside := 1
		enter := func(waits context.Context) {
			p, err := l.Take(waits, "k", 1)
			if err != nil {
				if !errors.Is(err, context.Canceled) || waits.Err() == nil {
					s.Broken("%v", err)
				}
				return
			}
			if inside++; inside > 1 || time.Since(start) > 0 {
				s.Broken("%d inside after %v", inside, time.Since(start))
			}
			p.Done()
			inside--
		}
		s.Go("a", func(ctx context.Context) {
			p, err := l.Take(ctx, "k", 1)
			if err != nil {
				s.Broken("%v", err)
			}
			st.OnTake = func(c *asks) error {
				s.Step(c.Ctx, "asks")
				err := c.Pass()
				if !c.Results[0].OK {
					s.Step(c.Ctx, "is denied")
				}
				return err
			}
			st.OnSettle = func(c *asks) error {
				s.Step(c.Ctx, "gives back")
				return c.Pass()
			}
			for _, name := range []string{"b", "c"} {
				s.Go(name, func(ctx context.Context) {
					waits, cancel := context.WithCancel(ctx)
					defer cancel()
					if name == "c" {
						s.Go("c's client", func(ctx context.Context) {
							s.Step(ctx, "leaves")
							cancel()
						})
					}
					enter(waits)
				})
			}
			p.Done()
			inside--
		})
		s.End(func() {
			if waiting, lines := l.Lines(); waiting != 0 || lines != 0 || l.Held() != 0 {
				s.Broken("%d wait in %d lines, %d keys are held", waiting, lines, l.Held())
			}
		})
	})
}

// A cost that is a default is in units of rates: requests take one slot, unless the limit of
// slots has a cost of its own.
func TestDefaultCostChargesNoSlots(t *testing.T) {
	ten := stint.WithCost(func(*http.Request) int64 { return 10 })
	two := stint.WithCost(func(*http.Request) int64 { return 2 })
	for name, tt := range map[string]struct {
		opts  []stint.Option
		costs []int64
	}{
		"of the limiter": {[]stint.Option{ten, stint.Rate(100, time.Hour), stint.Concurrency(3), stint.AdaptiveConcurrency(3, 9)}, []int64{10, 1, 1}},
		"of a route":     {[]stint.Option{stint.WithRoute("/", ten, stint.Rate(100, time.Hour), stint.Concurrency(3))}, []int64{10, 1}},
		"its own":        {[]stint.Option{ten, stint.Rate(100, time.Hour), stint.Concurrency(3, two), stint.AdaptiveConcurrency(3, 9, two)}, []int64{10, 2, 2}},
		"of a limit func": {[]stint.Option{ten, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{stint.Rate(100, time.Hour, stint.WithName("plan")), stint.Concurrency(3, stint.WithName("slots"))}, nil
		})}, []int64{10, 1}},
	} {
		var costs []int64
		w := through(limiter(t, append(tt.opts, theKey)...), get("/"), func(_ http.ResponseWriter, r *http.Request) {
			for _, l := range stint.FromContext(r.Context()).Decision().Limits {
				costs = append(costs, l.Cost)
			}
		})
		if w.Code != 200 || !slices.Equal(costs, tt.costs) {
			t.Errorf("%s: %d, costs %d, want %d", name, w.Code, costs, tt.costs)
		}
	}
}
