package storetest

import (
	"time"

	"github.com/stint-go/stint/store"
)

var changeRows = append(each("same numbers, another limit/", sameNumbers), []row{
	{"no fresh burst", func(s *suite) {
		// Used up, and then given other numbers of every sort: what it has left
		// is never more than the new numbers have beyond the old.
		for _, a := range []store.Algorithm{store.TokenBucket, store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingLog} {
			for _, to := range []store.Spec{
				{Units: 10, Period: time.Minute},
				{Units: 12, Period: time.Minute},
				{Units: 5, Period: time.Minute},
				{Units: 1, Period: time.Minute},
				{Units: 1000, Period: time.Minute},
			} {
				name := a.String() + time.Duration(to.Units).String()
				from := s.limit(store.Spec{Name: "st-" + a.String(), Algorithm: a, Units: 10, Period: time.Minute})
				to.Name, to.Algorithm = from.Name(), a
				s.must(s.take(name, from, 10))
				r := s.peek(name, s.limit(to))
				if most := max(to.Units-10, 0); r.Remaining > most {
					s.Errorf("%v, 10 of 10 used, then %d a minute: %s", a, to.Units, show(r))
				}
				if r.ResetAfter == 0 {
					s.Errorf("%v, 10 of 10 used, then %d a minute: nothing of it is left", a, to.Units)
				}
			}
		}
	}},
	{"back and forth", func(s *suite) {
		// Two versions of a program with different numbers for one limit. (Each
		// full in the same time: a bucket that is full earlier clamps.)
		a := s.limit(store.Spec{Units: 10, Period: time.Minute})
		b := s.limit(store.Spec{Units: 7, Period: time.Minute})
		passed := 0
		for range 600 { // ten minutes
			for _, l := range []*store.Limit{a, b} {
				if s.take("k", l, 1).OK {
					passed++
				}
			}
			s.sleep(time.Second)
		}
		if passed > 10+100 || passed < 7+69 {
			s.Errorf("%d passed in ten minutes of 7 or 10 a minute", passed)
		}
	}},
	{"odd numbers to odd numbers", func(s *suite) {
		// From thirds of a microsecond to sevenths: rounded, and never to the
		// advantage of the caller.
		a := s.limit(store.Spec{Units: 3, Period: time.Second, Burst: 7})
		b := s.limit(store.Spec{Units: 7, Period: time.Second, Burst: 7})
		s.must(s.take("k", a, 7)) // full in 2333333.33 µs
		if r := s.peek("k", b); r.ResetAfter != time.Second || r.Remaining != 0 {
			s.Errorf("%s, want it clamped to a second", show(r))
		}
		s.must(s.take("l", a, 1)) // full in 333333.33 µs
		if r := s.peek("l", b); r.ResetAfter != 333334*time.Microsecond || r.Remaining != 4 {
			s.Errorf("%s, want reset 333.334ms and 4 left", show(r))
		}
	}},
}...)

// sameNumbers: a limit is its name and numbers, not its pointer.
func sameNumbers(s *suite, k kind) {
	a, b := s.limit(k.spec), s.limit(k.spec)
	s.must(s.take("k", a, 1))
	if x, y := s.peek("k", a), s.peek("k", b); x != y {
		s.Errorf("%s and %s", show(x), show(y))
	}
	if r := s.peek("k", b); r.ResetAfter == 0 {
		s.Errorf("nothing was charged: %s", show(r))
	}
}
