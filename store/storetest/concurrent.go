package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/store"
)

// callers runs f in n goroutines.
func callers(n int, f func(caller int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// attempt is decide for use on other goroutines.
func (s *suite) attempt(charges ...store.Charge) ([]store.Result, bool) {
	results := make([]store.Result, len(charges))
	if err := s.store.Take(context.Background(), charges, results); err != nil {
		s.Error(err)
		return results, false
	}
	for i := range results {
		if !results[i].OK && !charges[i].DryRun {
			return results, false
		}
	}
	return results, true
}

var concurrentRows = append(each("exactly the burst/", exactlyTheBurst), []row{
	{"several limits in any order", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 100, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Algorithm: store.FixedWindow, Units: 60, Period: time.Hour})
		c := s.limit(store.Spec{Name: "st-c", Algorithm: store.SlidingLog, Units: 80, Period: time.Hour})
		var passed atomic.Int64
		callers(32, func(i int) {
			charges := []store.Charge{{Key: "k", Limit: a, Cost: 1}, {Key: "k", Limit: b, Cost: 1},
				{Key: "l", Limit: c, Cost: 1}}
			charges[0], charges[i%3] = charges[i%3], charges[0]
			charges[1], charges[1+i%2] = charges[1+i%2], charges[1]
			for range 10 {
				if _, granted := s.attempt(charges...); granted {
					passed.Add(1)
				}
			}
		})
		if passed.Load() != 60 {
			s.Errorf("%d passed, want 60", passed.Load())
		}
		s.left("k", a, 40)
		s.left("k", b, 0)
		s.left("l", c, 20)
	}},
	{"slots", func(s *suite) {
		l := s.limit(store.Spec{Algorithm: store.Concurrency, Units: 7})
		var held, most, passed atomic.Int64
		callers(16, func(int) {
			for range 50 {
				r, granted := s.attempt(store.Charge{Key: "k", Limit: l, Cost: 1})
				if !granted {
					continue
				}
				passed.Add(1)
				if n := held.Add(1); n > most.Load() {
					most.Store(n)
				}
				held.Add(-1)
				for range 2 { // the second release frees nothing
					if err := s.store.Settle(context.Background(), []store.Charge{{Key: "k", Limit: l, Receipt: r[0].Receipt}},
						r); err != nil {
						s.Error(err)
					}
				}
			}
		})
		if most.Load() > 7 || passed.Load() == 0 {
			s.Errorf("up to %d of 7 slots held, %d passed", most.Load(), passed.Load())
		}
		s.left("k", l, 7)
	}},
	{"many keys", func(s *suite) {
		l := s.limit(store.Spec{Units: 5, Period: time.Hour})
		var passed atomic.Int64
		callers(16, func(int) {
			for i := range 100 {
				if _, granted := s.attempt(store.Charge{Key: fmt.Sprint(i), Limit: l, Cost: 1}); granted {
					passed.Add(1)
				}
			}
		})
		if passed.Load() != 500 {
			s.Errorf("%d passed, want 5 of each of 100 keys", passed.Load())
		}
	}},
	{"refunds", func(s *suite) {
		l := s.limit(store.Spec{Units: 50, Period: time.Hour})
		callers(16, func(int) {
			for range 50 {
				r, granted := s.attempt(store.Charge{Key: "k", Limit: l, Cost: 3})
				if granted {
					if err := s.store.Settle(context.Background(), []store.Charge{{Key: "k", Limit: l, Receipt: r[0].Receipt}},
						r); err != nil {
						s.Error(err)
					}
				}
			}
		})
		s.left("k", l, 50)
	}},
}...)

// exactlyTheBurst: of callers that come at one instant, as many pass as would pass one
// after the other.
func exactlyTheBurst(s *suite, k kind) {
	l := s.limit(k.spec)
	want := int64(0)
	for s.take("one by one", l, 1).OK {
		want++
	}
	var passed atomic.Int64
	callers(32, func(int) {
		for range 4 {
			if _, granted := s.attempt(store.Charge{Key: "together", Limit: l, Cost: 1}); granted {
				passed.Add(1)
			}
		}
	})
	if passed.Load() != want {
		s.Errorf("%d passed together, %d one by one", passed.Load(), want)
	}
	if a, b := s.peek("one by one", l), s.peek("together", l); a != b {
		s.Errorf("one by one %s, together %s", show(a), show(b))
	}
}
