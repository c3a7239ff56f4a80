package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/explore"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
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

// lonely is a slow store that doesn't keep who leaves: it settles back what it has
// granted to them, in no order, as one in a network does.
func lonely(take time.Duration) *spy {
	s, there := slow(take, 0), late(take)
	s.OnTake = func(c *asks) error {
		own := *c
		own.Charges, own.Results = slices.Clone(c.Charges), make([]store.Result, len(c.Results))
		done := make(chan error, 1)
		go func() { done <- there(&own) }()
		select {
		case err := <-done:
			copy(c.Results, own.Results)
			return err
		case <-c.Ctx.Done():
		}
		go func() {
			<-done
			for i := range own.Charges {
				own.Charges[i].Cost, own.Charges[i].Receipt = 0, own.Results[i].Receipt
			}
			time.Sleep(rand.N(100 * time.Millisecond))
			_ = s.Settle(context.Background(), own.Charges, own.Results)
		}()
		return c.Ctx.Err()
	}
	return s
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
				st := lonely(20 * time.Millisecond)
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
		st := lonely(time.Hour)
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

// When no caller waits nothing is owed, and the next caller waits as if the others had
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
		{"debt", stint.Rate(10, second, name, stint.WithBurst(0), stint.WithDebt(), wait), one},
		{"warm-up", stint.Rate(10, second, name, stint.WithWarmUp(4*second), wait), one},
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
			return slow(2*time.Millisecond, 40*time.Millisecond)
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
							ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // or it is denied
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

// As many leave as possible, of one kind or of many: the next caller waits for none of them.
func TestManyLeave(t *testing.T) {
	for name, cost := range map[string]func(int) int64{
		"of one cost": func(int) int64 { return 1 },
		"of many":     func(i int) int64 { return 1 + int64(i%1000) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, stint.Rate(100, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(10_000_000)))
				take(t, l, 1)
				waitAndLeave(t, l, 2000, cost)
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

// Costs of one key wait in one line: those behind a caller that leaves move up, whatever
// they cost.
func TestCostsShareALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20)))
		take(t, l, 1)
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		enter := func(ctx context.Context, cost int64) {
			go func() {
				if p, err := l.Take(ctx, "k", cost); err == nil {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(start))
					if err := p.Settle(ctx, cost); err != nil { // what several turns have cost is known
						t.Error(err)
					}
				}
			}()
			synctest.Wait()
		}
		ctx, leave := context.WithCancel(t.Context())
		enter(ctx, 1)
		enter(ctx, 3)
		enter(t.Context(), 2)
		enter(t.Context(), 1)
		leave()
		synctest.Wait()
		enter(t.Context(), 3)
		time.Sleep(time.Second)
		synctest.Wait()
		if want := millis(200, 300, 600); !slices.Equal(at, want) {
			t.Errorf("passed at %v, want %v", at, want)
		}
		noLines(t, l)
	})
}

// Clients that are less patient than the wait is long don't bring the line to a standstill:
// at 12 a second on a rate of 10, with 3 s of waiting and 2 s of patience, the rate is used.
func TestLessPatientThanTheWait(t *testing.T) {
	wait := stint.WithMaxWait(3 * time.Second)
	for name, of := range map[string]struct {
		limits    []stint.Option
		processes int
		cost      int64 // the highest
		units     int64 // a second
	}{
		"token bucket":            {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), wait)}, 1, 1, 10},
		"leaky bucket":            {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(30))}, 1, 1, 10},
		"warm-up":                 {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithWarmUp(time.Second), wait)}, 1, 1, 10},
		"fixed window":            {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.FixedWindow), wait)}, 1, 1, 10},
		"sliding window":          {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.SlidingWindow), wait)}, 1, 1, 10},
		"two limits":              {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), wait), stint.Rate(700, time.Minute, stint.WithName("s"), stint.WithBurst(1), wait)}, 1, 1, 10},
		"two processes":           {[]stint.Option{stint.Rate(10, time.Second, stint.WithName("r"), wait)}, 2, 1, 10},
		"requests of 1 to 3 each": {[]stint.Option{stint.Rate(20, time.Second, stint.WithName("r"), wait)}, 1, 3, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				var fleet []*stint.Limiter
				for range of.processes {
					fleet = append(fleet, limiter(t, append(of.limits, theKey, stint.WithStore(s))...))
				}
				var units atomic.Int64
				var wg sync.WaitGroup
				const seconds = 120
				for i := range seconds * 12 {
					ctx, leave := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour) // a deadline would deny at once
					time.AfterFunc(2*time.Second, leave)
					cost := 1 + int64(i)%of.cost
					wg.Go(func() {
						defer leave()
						if err := fleet[i%of.processes].Allow(ctx, "k", cost); err == nil {
							units.Add(cost)
						}
					})
					time.Sleep(time.Second / 12)
				}
				wg.Wait()
				if want := of.units * seconds * 9 / 10; units.Load() < want {
					t.Errorf("%d units are served in %d s, want %d", units.Load(), seconds, want)
				}
				time.Sleep(3 * time.Second) // until what another process has reserved behind has come
				for _, l := range fleet {
					noLines(t, l)
				}
			})
		})
	}
}

// In a crowd of which most lose their patience, the full rate still passes.
func TestImpatientCrowd(t *testing.T) {
	stores := map[string]func() store.Store{
		"in memory": func() store.Store { return memstore.New() },
		"slow": func() store.Store {
			return slow(2*time.Millisecond, 60*time.Millisecond)
		},
	}
	limits := map[string]stint.Limit{
		"leaky":  stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50)),
		"bucket": stint.Rate(100, time.Second, stint.WithName("r"), stint.WithBurst(1), stint.WithMaxWait(500*time.Millisecond)),
	}
	seeds := uint64(3)
	if raceEnabled {
		seeds = 1 // thousands of callers race in one
	}
	for name, makeStore := range stores {
		for of, limit := range limits {
			for seed := range seeds {
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
		time.Sleep(time.Duration(rnd.IntN(2_000)) * time.Microsecond) // in a bubble, or before a real server
	}
	wg.Wait()
	return early.Load(), all.Load()
}

// stops makes callers of s stop before a call lands, and before its answer goes back.
func (q queue) stops(s *explore.Scheduler, st *spy) {
	st.OnTake = func(c *asks) error {
		s.Step(c.Ctx, "Take lands")
		err := c.Pass()
		s.Note(c.Ctx, "cost %d is told %v, %v", c.Charges[0].Cost, c.Results[0].OK, c.Results[0].Delay)
		s.Step(c.Ctx, "Take returns")
		return err
	}
	var settles atomic.Int64
	st.OnSettle = func(c *asks) error {
		n := int(settles.Add(1))
		marks := make([]int64, len(c.Charges))
		for i := range c.Charges {
			marks[i] = c.Charges[i].Receipt.Mark
		}
		s.Note(c.Ctx, "settles %d", marks)
		s.Step(c.Ctx, "Settle lands")
		if q.reversed {
			slices.Reverse(c.Charges)
		}
		var err error
		if n != q.fails || q.landed {
			err = c.Pass()
		}
		if n == q.fails {
			err = errLost
		}
		for i, charge := range c.Charges {
			switch {
			case q.trusted: // says that it has given back what it was asked to
				c.Results[i].Receipt.Mark = min(c.Results[i].Receipt.Mark, charge.Receipt.Mark-1)
			case q.denied: // says that it hasn't
				c.Results[i].Receipt.Mark = charge.Receipt.Mark
			}
			marks[i] = c.Results[i].Receipt.Mark
		}
		s.Note(c.Ctx, "has settled: %d, %v", marks, err)
		s.Step(c.Ctx, "Settle returns")
		return err
	}
}

// queue is a line of waiters A, B and C for a rate that passes one every 100 ms,
// of whom some leave, and a newcomer N. All come and leave at one instant, so
// that what they are told and what goes back can be exact.
type queue struct {
	first  string // who waits already; the others come while it is explored
	come   string // who comes
	leave  string // who leaves
	double string // whose cost is 2
	limits []stint.Limit

	fails  int  // the settlement that fails, from 1; 0 for none
	landed bool // and yet was made
	late   bool // 50 ms pass at some moment

	reversed, trusted, denied bool // what is broken
}

const perTurn = 100 * time.Millisecond

func (q queue) scenario(s *explore.Scheduler) {
	st := &spy{Store: memstore.New(), AtOnce: true}
	opts := []stint.Option{theKey, stint.WithStore(st)}
	for _, l := range q.limits {
		opts = append(opts, l)
	}
	l := stint.Must(stint.New(opts...))
	look := stint.Must(stint.New(append(opts, stint.WithStore(st.Store))...)) // as another process
	start := time.Now()
	units, ends := 0, time.Duration(0) // that have passed, and when the last of them did
	var passed []time.Duration
	var mu sync.Mutex
	enter := func(ctx, leave context.Context, name string) {
		cost := q.cost(name)
		_, err := l.Take(leave, "k", cost)
		s.Note(ctx, "goes: %v", err)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			ends = max(ends, time.Since(start))
			units += int(cost)
			for range cost {
				passed = append(passed, time.Since(start))
			}
		case !errors.Is(err, context.Canceled):
			s.Broken("%s: %v", name, err)
		}
	}
	if _, err := l.Take(context.Background(), "k", 1); err != nil { // passes at once
		panic(err)
	}
	for _, name := range strings.Split(q.first+q.come, "") {
		leave, cancel := context.WithCancel(context.Background())
		s.Go(name, func(ctx context.Context) {
			defer cancel()
			if strings.Contains(q.come, name) {
				s.Step(ctx, "comes")
			}
			enter(ctx, &explored{leave, ctx}, name)
		})
		synctest.Wait()
		if strings.Contains(q.leave, name) {
			s.Go("("+name+")", func(ctx context.Context) {
				s.Step(ctx, name+" leaves")
				cancel()
			})
		}
	}
	if q.late {
		s.Go("clock", func(ctx context.Context) { s.Pass(ctx, perTurn/2) })
	}
	q.stops(s, st)
	s.State(func() string {
		d, err := look.Peek(context.Background(), "k")
		return fmt.Sprint(d.Limits, err, l.Turns())
	})
	s.End(func() {
		st.OnTake, st.OnSettle = nil, nil
		slices.Sort(passed)
		for i, at := range passed {
			if at < time.Duration(i+1)*perTurn {
				s.Broken("over the rate: passed at %v", passed)
				break
			}
		}
		if q.fails > 0 {
			return
		}
		stay := 0
		for _, name := range strings.Split(q.first+q.come, "") {
			if !strings.Contains(q.leave, name) {
				stay += int(q.cost(name))
			}
		}
		if units < stay {
			s.Broken("%d units passed, want %d", units, stay)
		}
		if q.double == "" && !q.late && ends != time.Duration(units)*perTurn {
			s.Broken("passed at %v, want every %v", passed, perTurn)
		}
		d, err := look.Peek(context.Background(), "k")
		if owed := time.Duration(units+1)*perTurn - time.Since(start); err != nil || (units == 0 || q.double == "") && d.ResetAfter != max(0, owed) {
			s.Broken("%v is owed with nobody waiting, want %v, %v", d.ResetAfter, owed, err)
		}
	})
}

func (q queue) cost(name string) int64 {
	if strings.Contains(q.double, name) {
		return 2
	}
	return 1
}

// explored is a context that ends as another does, of an actor.
type explored struct {
	context.Context
	actor context.Context
}

func (c *explored) Value(key any) any { return c.actor.Value(key) }

func leaky(opts ...stint.RateOption) stint.Limit {
	return stint.Rate(10, time.Second, append(opts, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(9))...)
}

// In every order of events, those who stay go at the rate without a gap and never
// sooner, and when no caller waits nothing is owed.
func TestEveryOrderOfTurns(t *testing.T) {
	only := []stint.Limit{leaky()}
	both := []stint.Limit{leaky(), stint.Quota(100, stint.Daily, stint.WithName("q"))}
	bucket := []stint.Limit{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithBurst(1), stint.WithMaxWait(time.Second))}
	debt := []stint.Limit{stint.Rate(10, time.Second, stint.WithName("r"), stint.WithBurst(0), stint.WithDebt(), stint.WithMaxWait(time.Second))}
	tests := []struct {
		name string
		queue
	}{
		{"all leave, one comes", queue{first: "ABC", come: "N", leave: "ABC", limits: only}},
		{"two leave, one comes", queue{first: "ABC", come: "N", leave: "AC", limits: only}},
		{"one leaves, one comes and leaves", queue{first: "AB", come: "N", leave: "BN", limits: only}},
		{"two come and leave", queue{first: "A", come: "BN", leave: "AB", limits: only}},
		{"all come and leave", queue{come: "AN", leave: "AN", limits: only}},
		{"with a quota", queue{first: "A", come: "N", leave: "A", limits: both}},
		{"token bucket", queue{first: "A", come: "BN", leave: "AB", limits: bucket}},
		{"debt", queue{first: "A", come: "BN", leave: "AB", limits: debt}},
		{"time passes", queue{first: "AB", come: "N", leave: "AB", late: true, limits: only}},
		{"two costs, and all leave", queue{first: "AB", come: "N", leave: "ABN", double: "B", limits: only}},
		{"a settlement fails", queue{first: "A", come: "BN", leave: "AB", fails: 1, limits: only}},
		{"a settlement fails that was made", queue{first: "A", come: "BN", leave: "AB", fails: 1, landed: true, limits: only}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			explore.Run(t, tt.scenario)
		})
	}
}

// The explorer finds faults made on purpose.
func TestTurnsBroken(t *testing.T) {
	only := []stint.Limit{leaky()}
	tests := []struct {
		name string
		queue
		want string
	}{
		{"settled in the wrong order, and nobody asks what has come back",
			queue{first: "ABC", leave: "ABC", reversed: true, trusted: true, limits: only}, "is owed with nobody waiting"},
		{"nobody asks what has come back", queue{first: "A", come: "N", leave: "A", trusted: true, limits: only}, "want every 100ms"},
		{"what has come back is had again", queue{first: "AB", come: "N", leave: "AB", denied: true, limits: only}, "is owed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, trace := explore.Find(t, tt.scenario); !strings.Contains(trace, tt.want) {
				t.Errorf("found %q, want %q", trace, tt.want)
			}
		})
	}
}

// Two limiters on one store stand for two processes. What callers of one leave goes
// back unless the other's have reserved behind it; then the next caller of the same
// process gets it, or it passes unused.
func TestLeavingInAFleet(t *testing.T) {
	const turn = 100 * time.Millisecond
	leaky := stint.Rate(10, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(100))
	next := func(l *stint.Limiter) time.Duration {
		start := time.Now()
		take(t, l, 1)
		return time.Since(start)
	}
	stays := func(o *stint.Limiter) { go func() { _, _ = o.Take(context.Background(), "k", 1) }() }
	tests := []struct {
		name  string
		other func(*stint.Limiter) // with five waiting here
		after time.Duration
		here  time.Duration // what the next waits here, and then the next there
		there time.Duration
	}{
		{"nobody behind", func(*stint.Limiter) {}, 0, turn, turn},
		{"one behind", stays, 0, turn, 6 * turn},
		{"one behind, later", stays, 350 * time.Millisecond, turn / 2, 2*turn + turn},
		{"one behind that leaves too", func(o *stint.Limiter) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(turn/4, cancel)
			go func() { _, _ = o.Take(ctx, "k", 1) }()
		}, turn / 2, turn / 2, turn},
		{"when all turns have passed", stays, 7 * turn, 0, turn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				here, there := limiter(t, theKey, leaky, stint.WithStore(s)), limiter(t, theKey, leaky, stint.WithStore(s))
				take(t, here, 1)
				ctx, cancel := context.WithCancel(t.Context())
				for range 5 {
					go func() { _, _ = here.Take(ctx, "k", 1) }()
				}
				synctest.Wait()
				tt.other(there)
				synctest.Wait()
				cancel()
				synctest.Wait()
				time.Sleep(tt.after)
				if got := next(here); got != tt.here {
					t.Errorf("the next here waited %v, want %v", got, tt.here)
				}
				if got := next(there); got != tt.there {
					t.Errorf("the next there waited %v, want %v", got, tt.there)
				}
				time.Sleep(time.Second)
				noLines(t, here)
				noLines(t, there)
			})
		})
	}
}

// In two crowds of impatient callers, of two processes, the full rate passes.
func TestImpatientFleet(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			var passed [2]int64
			var wg sync.WaitGroup
			for i := range passed {
				wg.Go(func() {
					l := limiter(t, theKey, stint.WithStore(&spy{Store: s, OnTake: late(2 * time.Millisecond), OnSettle: late(2 * time.Millisecond)}),
						stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50)))
					passed[i], _ = impatient(t, l, 5*time.Second, newRand(10*seed+uint64(i)))
					time.Sleep(time.Second)
					noLines(t, l)
				})
			}
			wg.Wait()
			if n := passed[0] + passed[1]; n < 495 || n > 501 {
				t.Errorf("%d passed in 5s, want 495 to 501", n)
			}
		})
	}
}

// On a real server nothing is owed for callers that have left together.
func TestAllLeaveOnRedis(t *testing.T) {
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	defer s.Close()
	waits := make(chan struct{}, 20)
	l := limiter(t, theKey, stint.WithStore(s), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventWaiting {
			waits <- struct{}{}
		}
	}), stint.Rate(10, time.Hour, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(100)))
	take(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { _, _ = l.Take(ctx, "k", 1) })
	}
	for range 20 {
		<-waits
	}
	cancel()
	wg.Wait()
	for owed := time.Hour; owed > 6*time.Minute; { // those of one that has passed; what is left meanwhile goes back in the background
		d, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		owed = d.ResetAfter
	}
}

// On a real server, by its own clock: 99 % of the time for which the bucket was taken
// has been used.
func TestImpatientCrowdOnRedis(t *testing.T) {
	server := redistest.Shared(t)
	rdb := server.Client()
	s := redisstore.New(rdb, patient, redisstore.WithPrefix(redistest.Prefix(t)))
	defer s.Close()
	limit := stint.Rate(100, time.Second, stint.WithName("r"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50))
	l := limiter(t, theKey, stint.WithStore(s), limit)
	taken := func() time.Time { // until when the bucket is, by the server's clock
		now, err := rdb.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return now.Add(d.ResetAfter)
	}
	take(t, l, 1)
	// On a machine that is busy with something else callers go late, and a turn that
	// is left then passes before anybody has heard of it: no more of them than there are
	// in the time that the machine keeps from the process. What is lost in the line is
	// lost in every try, and on a quiet machine too.
	pulse := redistest.StartPulse(t)
	var tries []string
	for range 5 {
		start, began, beats := taken(), time.Now(), pulse.Elapsed()
		_, passed := impatient(t, l, 1500*time.Millisecond, newRand(1))
		kept := time.Since(began) - (pulse.Elapsed() - beats)
		turns := taken().Sub(start).Seconds() * 100
		if float64(passed) >= 0.99*turns-2 {
			return
		}
		tries = append(tries, fmt.Sprintf("%d passed in %.1f turns, with %v kept by the machine", passed, turns, kept))
		if float64(passed) < 0.99*turns-2-kept.Seconds()*100 {
			t.Fatal(tries)
		}
	}
	t.Log(tries)
}

// Calls whose limits say the same, for the same key and at the same cost, stand in one
// line, wherever the limits come from: when the first leaves, all behind it move up.
func TestKindsOfLines(t *testing.T) {
	rate := func() stint.Limit {
		return stint.Rate(1, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Minute))
	}
	quota := func() stint.Limit {
		return stint.Quota(100, stint.Daily.In(time.FixedZone("z", 3600)), stint.WithName("q"))
	}
	fresh := func(limits ...func() stint.Limit) []stint.Option {
		return []stint.Option{theKey, stint.WithLimitFunc(func(*http.Request) (all []stint.Limit, err error) {
			for _, l := range limits {
				all = append(all, l())
			}
			return all, nil
		})}
	}
	turned := func() []stint.Option {
		n := 0
		return []stint.Option{theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			if n++; n%2 == 0 {
				return []stint.Limit{rate(), quota()}, nil
			}
			return []stint.Limit{quota(), rate()}, nil
		})}
	}
	tests := []struct {
		name   string
		opts   []stint.Option
		update []stint.Option // before each of them
		queued int64
	}{
		{"one limit", []stint.Option{theKey, rate()}, nil, 3},
		{"a limit function's, fresh for each", fresh(rate), nil, 3},
		{"two of a limit function", fresh(rate, quota), nil, 3},
		{"two, in either order", turned(), nil, 3},
		{"updates that say the same", []stint.Option{theKey, rate()}, []stint.Option{theKey, rate()}, 3},
		{"updates between a limit and a function's", []stint.Option{theKey, rate()}, append(fresh(rate), stint.Complete()), 3},
		{"updates to another rate", []stint.Option{theKey, rate()},
			[]stint.Option{theKey, stint.Rate(2, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Minute))}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.opts...)
				through(l, get("/"), nil)
				var mu sync.Mutex
				var queued int64
				var waited time.Duration
				first, leave := context.WithCancel(t.Context())
				for i := range 3 {
					ctx := t.Context()
					if i == 0 {
						ctx = first
					} else if tt.update != nil {
						update(t, l, tt.update...)
					}
					start := time.Now()
					go through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						queued = max(queued, stint.FromContext(r.Context()).Decision().Queued)
						waited = time.Since(start)
					})
					synctest.Wait()
				}
				leave()
				time.Sleep(time.Minute)
				synctest.Wait()
				if queued != tt.queued {
					t.Errorf("the last was %d. in line, want %d", queued, tt.queued)
				}
				if one := tt.queued == 3; one && waited != 2*time.Second {
					t.Errorf("the last waited %v, want 2s: one has left", waited)
				}
				noLines(t, l)
			})
		})
	}
}

// A panic of what gives turns back is the caller's that leaves. Its turn is written off, as after
// any failure, and turns left later go back.
func TestPanicBehindWaiters(t *testing.T) {
	for name, tt := range map[string]struct {
		settle   func(*asks) error
		observer func(stint.Event)
	}{
		"an observer": {func(*asks) error { return errDown }, func(e stint.Event) {
			if e.Kind == stint.EventSettleFailed {
				panic("oops")
			}
		}},
		"a store": {func(*asks) error { panic("oops") }, func(stint.Event) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &spy{Store: memstore.New(), OnSettle: tt.settle, AtOnce: true}
				l := limiter(t, theKey, stint.WithStore(s), stint.WithObserver(tt.observer),
					stint.Rate(1, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Hour)))
				start := time.Now()
				panics := 0
				enter := func() (leave func(), turn <-chan time.Duration) {
					ctx, cancel := context.WithCancel(t.Context())
					came := make(chan time.Duration, 1)
					go func() {
						defer func() {
							if recover() == "oops" {
								panics++
							}
						}()
						if _, err := l.Take(ctx, "k", 1); err == nil {
							came <- time.Since(start)
						} else if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					}()
					synctest.Wait()
					return func() { cancel(); synctest.Wait() }, came
				}
				take(t, l, 1)
				_, first := enter()
				leave, _ := enter()
				leave() // its turn, at 2s, is lost
				s.OnSettle = nil
				_, second := enter()
				leave, _ = enter()
				leave()
				_, third := enter()
				for i, want := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second} {
					if got := <-[]<-chan time.Duration{first, second, third}[i]; got != want {
						t.Errorf("turn %d at %v, want %v", i, got, want)
					}
				}
				_, made := s.Counts()
				if panics != 1 || made != 2 {
					t.Errorf("%d panics and %d settlements, want 1 and 2", panics, made)
				}
			})
		})
	}
}

// Limiter.Wait waits for its turn by every algorithm, however far away it is, and asks again where
// none can be reserved that far. A queue that is full denies whoever waits.
func TestWaitForAnyTurn(t *testing.T) {
	with := func(a stint.Algorithm, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(2, time.Hour, append(opts, stint.WithAlgorithm(a))...)
	}
	const denied = -1
	for name, tt := range map[string]struct {
		limit    stint.Limit
		deadline time.Duration // or none
		want     time.Duration // of the sixth; 0 for any: those who ask again aren't in a line
	}{
		"token bucket":                {with(stint.TokenBucket), 0, 2 * time.Hour},
		"leaky bucket":                {with(stint.LeakyBucket, stint.WithQueue(5)), 0, 150 * time.Minute},
		"leaky bucket, full":          {with(stint.LeakyBucket, stint.WithQueue(4)), 0, denied},
		"leaky bucket, full, MaxWait": {with(stint.LeakyBucket, stint.WithQueue(4), stint.WithMaxWait(9*time.Hour)), 0, denied},
		"interval bucket":             {with(stint.IntervalBucket), 0, 2 * time.Hour},
		"fixed window":                {with(stint.FixedWindow), 0, 2 * time.Hour},
		"sliding window":              {with(stint.SlidingWindow), 0, 2 * time.Hour},
		"sliding log":                 {with(stint.SlidingLog), 0, 2 * time.Hour},
		"sliding counter":             {with(stint.SlidingCounter), 0, 0},
		"sliding counter, in time":    {with(stint.SlidingCounter), 24 * time.Hour, 0},
		"sliding counter, too late":   {with(stint.SlidingCounter), time.Hour, denied},
		"warm-up":                     {stint.Rate(2, time.Hour, stint.WithWarmUp(time.Hour)), 0, 0},
		"in time":                     {with(stint.TokenBucket), 2*time.Hour + time.Second, 2 * time.Hour},
		"too late":                    {with(stint.TokenBucket), 2*time.Hour - time.Second, denied},
		"a month":                     {stint.Rate(1, 30*24*time.Hour), 0, 5 * 30 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // the beginning of an hour
				l := limiter(t, theKey, tt.limit)
				start := time.Now()
				for range 5 {
					go func() {
						if _, err := l.Wait(context.Background(), "k", 1); err != nil {
							t.Error(err)
						}
					}()
					synctest.Wait()
				}
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				_, err := l.Wait(ctx, "k", 1)
				waited := time.Since(start)
				switch {
				case tt.want == denied:
					if !errors.Is(err, stint.ErrDenied) || waited > 0 {
						t.Errorf("%v after %v, want a denial at once", err, waited)
					}
				case err != nil || tt.want > 0 && waited != tt.want:
					t.Errorf("%v after %v, want a turn after %v", err, waited, tt.want)
				}
				if _, err := l.Wait(t.Context(), "k", 1<<20); name != "sliding log" && !errors.Is(err, stint.ErrDenied) {
					t.Errorf("a cost that can never pass: %v", err)
				}
				time.Sleep(365 * 24 * time.Hour)
				noLines(t, l)
			})
		})
	}
}

// Without a queue, nobody waits for a LeakyBucket, not even Wait.
func TestWaitWithoutAQueue(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(2, time.Hour, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(0)))
	if _, err := l.Wait(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Wait(t.Context(), "k", 1); !errors.Is(err, stint.ErrDenied) {
		t.Errorf("%v, want a denial", err)
	}
}

// A caller that asks again leaves as any other does.
func TestLeaveBeforeAskingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithAlgorithm(stint.SlidingCounter)))
		for range 2 {
			if _, err := l.Wait(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go l.Wait(context.Background(), "k", 1)
		}
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want that it has left after a minute", err, time.Since(start))
		}
		time.Sleep(10 * time.Hour)
		noLines(t, l)
	})
}

// Turns come first come, first served: a class is for slots.
func TestPriorityOfTurnsIsRejected(t *testing.T) {
	class := stint.WithPriority(func(*http.Request) int { return 1 })
	rate := stint.Rate(1, time.Second, stint.WithMaxWait(time.Second))
	_, err := stint.New(theKey, rate, class)
	var wrong *stint.OptionError
	if !errors.As(err, &wrong) || wrong.Option != "WithPriority" || !strings.Contains(wrong.Write, "Concurrency") {
		t.Errorf("New: %v, want that WithPriority is rejected", err)
	}
	limiter(t, theKey, rate, stint.Concurrency(1, stint.WithQueue(2)), class)
}
