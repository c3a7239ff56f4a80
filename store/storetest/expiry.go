package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/store"
)

func expiryRows() []row {
	rows := append(each("lossless/", lossless), each("not before its time/", notBefore)...)
	return append(rows, row{"kept among ten thousand others", func(s *suite) {
		// A store that frees memory must not drop what still counts.
		day := s.limit(store.Spec{Name: "st-day", Units: 1, Period: 24 * time.Hour})
		short := s.limit(store.Spec{Name: "st-short", Units: 1, Period: time.Second})
		for i := range 100 {
			s.must(s.take(fmt.Sprint("day", i), day, 1))
		}
		for i := range 900 { // ten in a call: a store elsewhere takes long for each
			var charges []store.Charge
			for k := range 10 {
				charges = append(charges, store.Charge{Key: fmt.Sprint("short", i, ".", k), Limit: short, Cost: 1})
			}
			if _, granted := s.decide(charges...); !granted {
				s.Fatalf("keys never seen are denied")
			}
			s.sleep(100 * time.Millisecond)
		}
		for i := range 100 {
			if r := s.take(fmt.Sprint("day", i), day, 1); r.OK {
				s.Fatalf("one in 24 h, and a second one passed after 90 s: key %d was forgotten", i)
			}
		}
	}}, row{"a lease has no time", func(s *suite) {
		// Leases of stores in memory don't expire. Elsewhere, holders renew theirs.
		slots := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 1})
		r := s.must(s.take("k", slots, 1))
		s.sleep(time.Second)
		for i := range 1000 {
			s.must(s.take(fmt.Sprint(i), slots, 1))
		}
		s.left("k", slots, 0)
		s.settle("k", slots, r.Receipt, 0)
		s.left("k", slots, 1)
	}})
}

// lossless: after ResetAfter a key is as if never seen.
func lossless(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(6, 6))
	l := s.limit(k.spec)
	for round := range 8 {
		for range 1 + rnd.IntN(12) {
			s.reserve("old", l, 1+rnd.Int64N(3), time.Duration(rnd.IntN(2))*k.span())
			s.sleep(k.pause(rnd) / 8 / k.tick * k.tick)
		}
		s.sleep(s.peek("old", l).ResetAfter)
		fresh := fmt.Sprint("fresh", round)
		for i := range 12 {
			cost, wait := rnd.Int64N(4), time.Duration(rnd.IntN(2))*k.span()/2
			a, b := s.reserve("old", l, cost, wait), s.reserve(fresh, l, cost, wait)
			a.Receipt, b.Receipt = store.Receipt{}, store.Receipt{}
			if a != b {
				s.Fatalf("charge %d of %d after the reset: %s, on a key never seen %s", i, cost, show(a), show(b))
			}
			s.sleep(k.pause(rnd) / 4 / k.tick * k.tick)
		}
	}
}

// notBefore: until ResetAfter it isn't.
func notBefore(s *suite, k kind) {
	l := s.limit(k.spec)
	full := s.peek("k", l).Remaining
	s.must(s.take("k", l, 1))
	r := s.peek("k", l)
	if r.ResetAfter < k.tick || r.ResetAfter%k.tick != 0 {
		s.Fatalf("charged: %s", show(r))
	}
	s.sleep(r.ResetAfter - k.tick)
	for i := range 100 { // other keys, for which the store may drop expired ones
		s.take(fmt.Sprint(i), l, 1)
	}
	if r := s.peek("k", l); r.ResetAfter != k.tick {
		s.Errorf("%v before it is over: %s", k.tick, show(r))
	}
	s.sleep(k.tick)
	if r := s.peek("k", l); r.ResetAfter != 0 || r.Remaining != full {
		s.Errorf("when it is over: %s", show(r))
	}
}
