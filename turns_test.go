package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// slow is a store in memory to which it is a way there and a way back, and of
// whose settlements every so many fail, half of them after they were made.
type slow struct {
	*memstore.Store
	take, settle time.Duration
	fails        int64
	settles      atomic.Int64
}

func (s *slow) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	time.Sleep(s.take / 2)
	defer time.Sleep(s.take / 2)
	return s.Store.Take(ctx, charges, results)
}

func (s *slow) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	time.Sleep(s.settle / 2)
	defer time.Sleep(s.settle / 2)
	n := s.settles.Add(1)
	if s.fails > 0 && n%s.fails == 0 {
		if n%(2*s.fails) == 0 {
			_ = s.Store.Settle(ctx, charges, results)
		}
		return errLost
	}
	return s.Store.Settle(ctx, charges, results)
}

// AnswersAtOnce takes back what the store inside says.
func (s *slow) AnswersAtOnce() bool { return false }

// lonely is a slow store that doesn't keep who leaves: it settles back what it has
// granted to them, in no order, as one in a network does.
type lonely struct{ slow }

func (s *lonely) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	charges, answers := slices.Clone(charges), make([]store.Result, len(results))
	done := make(chan error, 1)
	go func() { done <- s.slow.Take(ctx, charges, answers) }()
	select {
	case err := <-done:
		copy(results, answers)
		return err
	case <-ctx.Done():
	}
	go func() {
		<-done
		for i := range charges {
			charges[i].Cost, charges[i].Receipt = 0, answers[i].Receipt
		}
		time.Sleep(rand.N(100 * time.Millisecond))
		_ = s.slow.Settle(context.Background(), charges, answers)
	}()
	return ctx.Err()
}

// A caller that leaves while the store is asked leaves nothing behind either.
func TestAllLeaveAsking(t *testing.T) {
	name := stint.WithName("r")
	for what, limit := range map[string]stint.Limit{
		"leaky bucket": stint.Rate(10, time.Second, name, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(1000)),
		"token bucket": stint.Rate(10, time.Second, name, stint.WithBurst(1), stint.WithMaxWait(time.Hour)),
		"fixed window": stint.Rate(10, time.Second, name, stint.WithAlgorithm(stint.FixedWindow), stint.WithMaxWait(time.Hour)),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &lonely{slow{Store: memstore.New(), take: 20 * time.Millisecond}}
				l := limiter(t, theKey, limit, stint.WithStore(st))
				take(t, l, 1)
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range 60 {
					wg.Go(func() {
						if p, err := l.Take(ctx, "k", 1); err == nil {
							p.Done()
						} else if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					})
					time.Sleep(time.Millisecond)
				}
				cancel()
				wg.Wait()
				time.Sleep(time.Second)
				for _, next := range []*stint.Limiter{limiter(t, theKey, limit, stint.WithStore(st.Store)), l} {
					start := time.Now()
					take(t, next, 1)
					if waited := time.Since(start); waited > 120*time.Millisecond {
						t.Errorf("the next waits %v behind nobody", waited)
					}
				}
			})
		})
	}
}

// A store that never answers delays a leaving caller for a while, not for ever.
func TestLeaveWhoNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &lonely{slow{Store: memstore.New(), take: time.Hour}}
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Second)), stint.WithStore(st))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := l.Take(ctx, "k", 1)
		if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited != 3*time.Second {
			t.Errorf("%v after %v, want the deadline's error 2 s after it", err, waited)
		}
		time.Sleep(2 * time.Hour) // the answer
	})
}

// waitAndLeave has n callers wait, and leave together, in any order.
func waitAndLeave(t *testing.T, l *stint.Limiter, n int, cost func(int) int64) {
	t.Helper()
	var leave []context.CancelFunc
	var wg sync.WaitGroup
	for i := range n {
		ctx, cancel := context.WithCancel(t.Context())
		leave = append(leave, cancel)
		wg.Go(func() {
			if _, err := l.Take(ctx, "k", cost(i)); !errors.Is(err, context.Canceled) {
				t.Errorf("%d: %v, want a cancellation", i, err)
			}
		})
		synctest.Wait()
	}
	newRand(uint64(n)).Shuffle(n, func(i, j int) { leave[i], leave[j] = leave[j], leave[i] })
	for _, cancel := range leave {
		cancel()
	}
	wg.Wait()
}

// When nobody waits nothing is owed, and the next caller waits as if the others had
// never come.
func TestAllLeave(t *testing.T) {
	const second = time.Second
	name, wait := stint.WithName("r"), stint.WithMaxWait(time.Hour)
	one := func(int) int64 { return 1 }
	mixed := func(i int) int64 { return 1 + int64(i%3) }
	limits := []struct {
		name  string
		limit stint.Limit
		cost  func(int) int64
	}{
		{"leaky bucket", stint.Rate(10, second, name, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20_000)), one},
		{"leaky bucket, several costs", stint.Rate(10, second, name, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20_000)), mixed},
		{"token bucket", stint.Rate(10, second, name, stint.WithBurst(1), wait), one},
		{"token bucket, several costs", stint.Rate(10, second, name, stint.WithBurst(3), wait), mixed},
		{"debt", stint.Rate(10, second, name, stint.WithBurst(0), stint.WithDebt(), wait), mixed},
		{"warm-up", stint.Rate(10, second, name, stint.WithWarmUp(4*second), wait), mixed},
		{"interval bucket", stint.Rate(10, second, name, stint.WithAlgorithm(stint.IntervalBucket), wait), one},
		{"fixed window", stint.Rate(10, second, name, stint.WithAlgorithm(stint.FixedWindow), wait), one},
		{"sliding window", stint.Rate(10, second, name, stint.WithAlgorithm(stint.SlidingWindow), wait), one},
		{"sliding log", stint.Rate(10, second, name, stint.WithAlgorithm(stint.SlidingLog), wait), mixed},
	}
	stores := []struct {
		name string
		make func() store.Store
	}{
		{"in memory", func() store.Store { return memstore.New() }},
		{"slow", func() store.Store {
			return &slow{Store: memstore.New(), take: 2 * time.Millisecond, settle: 40 * time.Millisecond}
		}},
	}
	for _, tt := range limits {
		for _, st := range stores {
			t.Run(tt.name+"/"+st.name, func(t *testing.T) {
				next := func(leavers int) (waits []time.Duration) { // how long each of the next waits
					synctest.Test(t, func(t *testing.T) {
						l := limiter(t, theKey, tt.limit, stint.WithStore(st.make()))
						start := time.Now()
						for range 10 {
							ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // or it is refused
							_, _ = l.Take(ctx, "k", 1)
							cancel()
						}
						waitAndLeave(t, l, leavers, tt.cost)
						time.Sleep(300*time.Millisecond - time.Since(start))
						noLines(t, l)
						for i := range 15 {
							start := time.Now()
							take(t, l, tt.cost(i))
							waits = append(waits, time.Since(start))
						}
						noLines(t, l)
					})
					return waits
				}
				if got, want := next(20), next(0); !slices.Equal(got, want) {
					t.Errorf("the next wait\n%v, want\n%v", got, want)
				}
			})
		}
	}
}

// As many leave as possible, of one kind or of many: the next caller waits for nobody.
func TestManyLeave(t *testing.T) {
	for name, cost := range map[string]func(int) int64{
		"of one cost": func(int) int64 { return 1 },
		"of many":     func(i int) int64 { return 1 + int64(i%1000) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, stint.Rate(100, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(10_000_000)))
				take(t, l, 1)
				waitAndLeave(t, l, 10_000, cost)
				start := time.Now()
				take(t, l, 1)
				if waited := time.Since(start); waited != 10*time.Millisecond {
					t.Errorf("the next waited %v, want 10ms", waited)
				}
				synctest.Wait()
				noLines(t, l)
			})
		})
	}
}

// A caller that stays in another line keeps its turn: what was left before it goes to
// the next of its own line, and what nobody takes passes.
func TestLeavingBeforeAnotherLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20)))
		take(t, l, 1)
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		enter := func(ctx context.Context, cost int64) {
			go func() {
				if _, err := l.Take(ctx, "k", cost); err == nil {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(start))
				}
			}()
			synctest.Wait()
		}
		ctx, leave := context.WithCancel(t.Context())
		enter(ctx, 1)
		enter(ctx, 1)
		enter(t.Context(), 2) // 400 ms
		leave()
		synctest.Wait()
		enter(t.Context(), 1) // has the first turn
		enter(t.Context(), 2)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := millis(100, 400, 600); !slices.Equal(at, want) {
			t.Errorf("passed at %v, want %v", at, want)
		}
		noLines(t, l)
	})
}

// In a crowd of which most lose their patience, the full rate still passes.
func TestImpatientCrowd(t *testing.T) {
	stores := map[string]func() store.Store{
		"in memory": func() store.Store { return memstore.New() },
		"slow": func() store.Store {
			return &slow{Store: memstore.New(), take: 2 * time.Millisecond, settle: 60 * time.Millisecond}
		},
		"failing": func() store.Store {
			return &slow{Store: memstore.New(), take: 2 * time.Millisecond, settle: 2 * time.Millisecond, fails: 2}
		},
	}
	limits := map[string]stint.Limit{
		"leaky":  stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50)),
		"bucket": stint.Rate(100, time.Second, stint.WithName("r"), stint.WithBurst(1), stint.WithMaxWait(500*time.Millisecond)),
	}
	for name, makeStore := range stores {
		for of, limit := range limits {
			for seed := range uint64(3) {
				t.Run(fmt.Sprint(of, " ", name, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := limiter(t, theKey, stint.WithStore(makeStore()), limit)
						passed, _ := impatient(t, l, 5*time.Second, newRand(seed))
						if passed < 495 || passed > 501 {
							t.Errorf("%d passed in 5s, want 495 to 501", passed)
						}
						time.Sleep(time.Second) // what has been left last is on its way
						noLines(t, l)
					})
				})
			}
		}
	}
}

// impatient has a thousand arrive a second, of which four in five wait for less
// than 100 ms. It returns how many have passed in the time given, and how many
// when all have passed or left.
func impatient(t *testing.T, l *stint.Limiter, d time.Duration, rnd *rand.Rand) (inTime, passed int64) {
	t.Helper()
	var early, all atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for time.Since(start) < d {
		ctx, cancel := context.WithCancel(t.Context())
		if rnd.IntN(5) > 0 {
			time.AfterFunc(time.Duration(rnd.IntN(100_000))*time.Microsecond, cancel)
		}
		wg.Go(func() {
			defer cancel()
			if _, err := l.Take(ctx, "k", 1); err == nil {
				all.Add(1)
				if time.Since(start) <= d {
					early.Add(1)
				}
			}
		})
		time.Sleep(time.Duration(rnd.IntN(2_000)) * time.Microsecond)
	}
	wg.Wait()
	return early.Load(), all.Load()
}
