package stint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/explore"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// stepped is a store in memory at which callers stop: before a call lands, and
// before its answer goes back.
type stepped struct {
	*memstore.Store
	s *explore.Scheduler
	queue

	mu      sync.Mutex
	on      bool
	settles int
}

func (st *stepped) switched(on bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.on = on
}

func (st *stepped) stops() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.on
}

func (st *stepped) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if !st.stops() {
		return st.Store.Take(ctx, charges, results)
	}
	st.s.Step(ctx, "Take lands")
	err := st.Store.Take(ctx, charges, results)
	st.s.Note(ctx, "cost %d is told %v, %v", charges[0].Cost, results[0].OK, results[0].Delay)
	st.s.Step(ctx, "Take returns")
	return err
}

var errLost = errors.New("answer lost")

func (st *stepped) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if !st.stops() {
		return st.Store.Settle(ctx, charges, results)
	}
	st.mu.Lock()
	st.settles++
	n := st.settles
	st.mu.Unlock()
	marks := make([]int64, len(charges))
	for i := range charges {
		marks[i] = charges[i].Receipt.Mark
	}
	st.s.Note(ctx, "settles %d", marks)
	st.s.Step(ctx, "Settle lands")
	if st.reversed {
		slices.Reverse(charges)
	}
	var err error
	if n != st.fails || st.landed {
		err = st.Store.Settle(ctx, charges, results)
	}
	if n == st.fails {
		err = errLost
	}
	for i := range charges {
		switch {
		case st.trusted: // says that it has given back what it was asked to
			results[i].Receipt.Mark = min(results[i].Receipt.Mark, charges[i].Receipt.Mark-1)
		case st.denied: // says that it hasn't
			results[i].Receipt.Mark = charges[i].Receipt.Mark
		}
	}
	for i := range charges {
		marks[i] = results[i].Receipt.Mark
	}
	st.s.Note(ctx, "has settled: %d, %v", marks, err)
	st.s.Step(ctx, "Settle returns")
	return err
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
	st := &stepped{Store: memstore.New(), s: s, queue: q}
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
	st.switched(true)
	s.State(func() string {
		d, err := look.Peek(context.Background(), "k")
		return fmt.Sprint(d.Limits, err, l.Turns())
	})
	s.End(func() {
		st.switched(false)
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
// sooner, and when nobody waits nothing is owed.
func TestTurnsInEveryOrder(t *testing.T) {
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
		{"with a quota", queue{first: "A", come: "BN", leave: "AB", limits: both}},
		{"token bucket", queue{first: "A", come: "BN", leave: "AB", limits: bucket}},
		{"debt", queue{first: "A", come: "BN", leave: "AB", limits: debt}},
		{"time passes", queue{first: "AB", come: "N", leave: "AB", late: true, limits: only}},
		{"two costs, and all leave", queue{first: "ABC", come: "N", leave: "ABCN", double: "B", limits: only}},
		{"a settlement fails", queue{first: "AB", come: "CN", leave: "AB", fails: 1, limits: only}},
		{"a settlement fails that was made", queue{first: "AB", come: "CN", leave: "AB", fails: 1, landed: true, limits: only}},
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
