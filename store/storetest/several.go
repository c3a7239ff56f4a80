package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/store"
)

var severalRows = []row{
	{"all or none", allOrNone},
	{"the wait of each", func(s *suite) {
		fast := s.limit(store.Spec{Name: "st-fast", Units: 1, Period: time.Second})
		slow := s.limit(store.Spec{Name: "st-slow", Units: 1, Period: time.Hour})
		wide := s.limit(store.Spec{Name: "st-wide", Units: 9, Period: time.Hour})
		charges := []store.Charge{{Key: "k", Limit: fast, Cost: 1}, {Key: "k", Limit: slow, Cost: 1},
			{Key: "k", Limit: wide, Cost: 1}}
		if _, granted := s.decide(charges...); !granted {
			s.Fatal("denied with room everywhere")
		}
		r, granted := s.decide(charges...)
		s.denied(r[0], time.Second)
		s.denied(r[1], time.Hour)
		if granted || !r[2].OK || r[2].Remaining != 8 {
			s.Errorf("the limit that had room: %s", show(r[2]))
		}
		s.sleep(time.Second) // one limit has room again, but isn't charged
		r, _ = s.decide(charges...)
		if !r[0].OK || r[0].Remaining != 1 || r[0].ResetAfter != 0 {
			s.Errorf("the limit that had room and was not charged: %s", show(r[0]))
		}
		s.left("k", fast, 1)
	}},
	{"one key, several limits, and the other way round", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 2, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Units: 5, Period: time.Hour})
		r, granted := s.decide(store.Charge{Key: "k", Limit: a, Cost: 2}, store.Charge{Key: "l", Limit: a, Cost: 1},
			store.Charge{Key: "k", Limit: b, Cost: 3})
		if !granted || r[0].Remaining != 0 || r[1].Remaining != 1 || r[2].Remaining != 2 {
			s.Errorf("left %d %d %d, want 0 1 2", r[0].Remaining, r[1].Remaining, r[2].Remaining)
		}
		s.left("k", a, 0)
		s.left("l", a, 1)
		s.left("k", b, 2)
		s.left("l", b, 5)
	}},
	{"peeks among charges", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 2, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Units: 2, Period: time.Hour})
		s.must(s.take("k", a, 2))
		r, granted := s.decide(store.Charge{Key: "k", Limit: a}, store.Charge{Key: "k", Limit: b, Cost: 1})
		if !granted || !r[0].OK || r[0].Remaining != 0 || r[1].Remaining != 1 {
			s.Errorf("peek at an empty limit beside a charge: %s, %s", show(r[0]), show(r[1]))
		}
	}},
	{"twenty limits", func(s *suite) {
		var charges []store.Charge
		for i := range 20 {
			charges = append(charges, store.Charge{Key: "k", Cost: 1,
				Limit: s.limit(store.Spec{Name: "st-" + string(rune('a'+i)), Units: int64(100 - i), Period: time.Hour})})
		}
		for n := range int64(81) {
			r, granted := s.decide(charges...)
			for i := range r {
				want := 100 - int64(i) - n - 1
				if r[i].Remaining != want {
					s.Fatalf("decision %d, limit %d: %s, want %d left", n, i, show(r[i]), want)
				}
			}
			if !granted {
				s.Fatalf("decision %d denied", n)
			}
		}
		if _, granted := s.decide(charges...); granted {
			s.Error("granted although the last is used up")
		}
		s.left("k", charges[0].Limit, 19)
	}},
	{"a denial holds no slot", func(s *suite) {
		slots := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 2})
		rate := s.limit(store.Spec{Name: "st-rate", Units: 1, Period: time.Hour})
		both := []store.Charge{{Key: "k", Limit: slots, Cost: 1}, {Key: "k", Limit: rate, Cost: 1}}
		s.decide(both...)
		for range 5 {
			if r, granted := s.decide(both...); granted || r[0].Remaining != 1 {
				s.Fatalf("%s, %s", show(r[0]), show(r[1]))
			}
		}
		s.left("k", slots, 1)
		// Without a slot nothing else is charged.
		s.must(s.take("k", slots, 1))
		s.sleep(time.Hour)
		if _, granted := s.decide(both...); granted {
			s.Fatal("no slot, and granted")
		}
		s.left("k", rate, 1)
	}},
	{"delays are each limit's own", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 1, Period: time.Second})
		b := s.limit(store.Spec{Name: "st-b", Units: 1, Period: 3 * time.Second})
		both := []store.Charge{{Key: "k", Limit: a, Cost: 1, MaxWait: 2 * time.Second},
			{Key: "k", Limit: b, Cost: 1, MaxWait: 3 * time.Second}}
		s.decide(both...)
		r, granted := s.decide(both...)
		if !granted || r[0].Delay != time.Second || r[1].Delay != 3*time.Second {
			s.Errorf("%s, %s", show(r[0]), show(r[1]))
		}
		r, granted = s.decide(both...)
		if granted || !r[0].OK || r[0].Delay != 0 || r[1].RetryAfter != 3*time.Second {
			s.Errorf("%s, %s", show(r[0]), show(r[1]))
		}
		// The first limit wasn't charged: its next turn is still two seconds away.
		if r := s.reserve("k", a, 1, time.Hour); r.Delay != 2*time.Second {
			s.Errorf("a denied call has reserved a turn: %s", show(r))
		}
	}},
}

// allOrNone: a denial leaves every limit unchanged, whatever the algorithms.
func allOrNone(s *suite) {
	rnd := rand.New(rand.NewPCG(4, 4))
	specs := []store.Spec{
		{Name: "st-token", Units: 5, Period: time.Second},
		{Name: "st-interval", Algorithm: store.IntervalBucket, Units: 6, Period: 2 * time.Second},
		{Name: "st-leaky", Algorithm: store.LeakyBucket, Units: 7, Period: time.Second},
		{Name: "st-fixed", Algorithm: store.FixedWindow, Units: 8, Period: 3 * time.Second},
		{Name: "st-window", Algorithm: store.SlidingWindow, Units: 9, Period: 3 * time.Second},
		{Name: "st-log", Algorithm: store.SlidingLog, Units: 8, Period: 2 * time.Second},
		{Name: "st-warm", Algorithm: store.WarmUp, Units: 9, Period: time.Second, WarmUp: time.Second},
		{Name: "st-slots", Algorithm: store.Concurrency, Units: 6},
	}
	limits := make([]*store.Limit, len(specs))
	for i := range specs {
		limits[i] = s.limit(specs[i])
	}
	snapshot := func() []store.Result {
		peeks := make([]store.Charge, len(limits))
		for i, l := range limits {
			peeks[i] = store.Charge{Key: "k", Limit: l}
		}
		r, _ := s.decide(peeks...)
		return r
	}
	granted, denied := 0, 0
	var leases []store.Receipt
	for range 400 {
		var charges []store.Charge
		for _, i := range rnd.Perm(len(limits))[:2+rnd.IntN(len(limits)-2)] {
			c := store.Charge{Key: "k", Limit: limits[i], Cost: 1 + rnd.Int64N(2)}
			if rnd.IntN(2) == 0 {
				c.MaxWait = 500 * time.Millisecond
			}
			charges = append(charges, c)
		}
		before := snapshot()
		r, ok := s.decide(charges...)
		if ok {
			granted++
			for i := range r {
				if r[i].Receipt.Lease != (store.LeaseID{}) {
					leases = append(leases, r[i].Receipt)
				}
			}
		} else {
			denied++
			after := snapshot()
			for i := range after {
				if after[i] != before[i] {
					s.Fatalf("a denied call changed %s: %s, was %s", limits[i].Name(), show(after[i]), show(before[i]))
				}
			}
		}
		s.sleep(time.Duration(rnd.Int64N(400_000)) * time.Microsecond)
		if len(leases) > 0 && rnd.IntN(3) == 0 {
			s.settle("k", limits[len(limits)-1], leases[0], 0)
			leases = leases[1:]
		}
	}
	if granted < 20 || denied < 20 {
		s.Fatalf("%d granted, %d denied: the suite is at fault", granted, denied)
	}
}
