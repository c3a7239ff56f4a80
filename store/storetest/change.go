package storetest

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

var changeRows = append(each("same numbers, another limit/", sameNumbers), []row{
	{"no fresh burst", func(s *suite) {
		// A key that is used up under one set of numbers never has more left under
		// another than the new numbers have beyond the old.
		for _, a := range []store.Algorithm{store.TokenBucket, store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingLog} {
			for _, to := range []store.Spec{
				{Units: 10, Period: time.Minute},
				{Units: 12, Period: time.Minute},
				{Units: 5, Period: time.Minute},
				{Units: 1, Period: time.Minute},
				{Units: 1000, Period: time.Minute},
				{Units: 61, Period: time.Minute + time.Microsecond},
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
					s.Errorf("%v, 10 of 10 used, then %d a minute: the added units are missing", a, to.Units)
				}
			}
		}
	}},
	{"back and forth", func(s *suite) {
		// Two versions of a program run together with different numbers for one limit:
		// neither gains units from the other, and neither starves.
		for _, pair := range [][2]store.Spec{
			{{Units: 10, Burst: 10}, {Units: 7, Burst: 10}},
			{{Units: 10, Burst: 10}, {Units: 7, Burst: 7}},
			{{Units: 10, Burst: 10}, {Units: 10, Burst: 3}},
			{{Units: 30, Burst: 10}, {Units: 1, Burst: 10}},
			{{Units: 30, Burst: 3}, {Units: 1, Burst: 10}},
			{{Units: 10, Burst: 10}, {Units: 61, Burst: 10, Period: time.Minute + time.Microsecond}},
		} {
			for _, a := range []store.Algorithm{store.TokenBucket, store.IntervalBucket} {
				alternate(s, a, pair)
			}
		}
	}},
	{"odd numbers to odd numbers", func(s *suite) {
		// From thirds of a microsecond to sevenths: rounded, but never in the caller's
		// favour.
		a := s.limit(store.Spec{Units: 3, Period: time.Second, Burst: 7})
		b := s.limit(store.Spec{Units: 7, Period: time.Second, Burst: 7})
		s.must(s.take("k", a, 7)) // full in 2333333.33 µs
		if r := s.peek("k", b); r.ResetAfter != time.Second || r.Remaining != 0 {
			s.Errorf("%s, want reset 1s and none left", show(r))
		}
		s.must(s.take("l", a, 1)) // full in 333333.33 µs
		if r := s.peek("l", b); r.ResetAfter != 142858*time.Microsecond || r.Remaining != 6 {
			s.Errorf("%s, want reset 142.858ms and 6 left", show(r))
		}
	}},
	{"one integer to two, and back", func(s *suite) {
		one := s.limit(store.Spec{Units: 60, Period: time.Minute, Burst: 10, Queue: 5})
		two := s.limit(store.Spec{Units: 61, Period: time.Minute + time.Microsecond, Burst: 10, Queue: 5})
		for i, pair := range [][2]*store.Limit{{one, two}, {two, one}} {
			from, to := pair[0], pair[1]
			key := fmt.Sprint(i)
			s.must(s.take(key, from, 10))
			spec := to.Spec()
			full := ceil(10, spec.Period, spec.Units)
			if r := s.peek(key, to); r.Remaining != 5 || r.ResetAfter < full || r.ResetAfter > full+2*time.Microsecond {
				s.Errorf("10 of 10 used, then %v: %s, want full in %v", spec, show(r), full)
			}
			// A turn that has been announced stays where it is.
			turn := s.take(key, to, 1)
			if !turn.OK || turn.Delay == 0 {
				s.Errorf("10 of 10 used, then %v: %s, want a turn", spec, show(turn))
			}
			if r := s.peek(key, from); r.Remaining > 5 || r.ResetAfter < turn.Delay {
				s.Errorf("%v with a turn in %v, then %v: %s", spec, turn.Delay, from.Spec(), show(r))
			}
			s.sleep(time.Minute)
			s.left(key, from, 15)
		}
	}},
}...)

// sameNumbers: a limit is identified by its name and numbers, not by its pointer.
func sameNumbers(s *suite, k kind) {
	a, b := s.limit(k.spec), s.limit(k.spec)
	s.must(s.take("k", a, 1))
	if x, y := s.peek("k", a), s.peek("k", b); x != y {
		s.Errorf("%s and %s", show(x), show(y))
	}
	if r := s.peek("k", b); r.ResetAfter == 0 {
		s.Errorf("the charge did not count: %s", show(r))
	}
}

// alternate asks two versions of one limit alternately for five minutes.
func alternate(s *suite, a store.Algorithm, pair [2]store.Spec) {
	const minutes = 5
	name := a.String()
	var limits [2]*store.Limit
	for i, spec := range pair {
		spec.Name, spec.Algorithm = "st-"+a.String(), a
		if spec.Period == 0 {
			spec.Period = time.Minute
		}
		limits[i] = s.limit(spec)
		name += fmt.Sprint(" ", spec.Units, "/", spec.Burst)
	}
	passed := int64(0)
	for range minutes * 60 {
		for _, l := range limits {
			if s.take(name, l, 1).OK {
				passed++
			}
		}
		s.sleep(time.Second)
	}
	x, y := pair[0], pair[1]
	most := max(x.Burst, y.Burst) + minutes*max(x.Units, y.Units)
	if least := minutes*min(x.Units, y.Units) - 1; passed < least || passed > most {
		s.Errorf("%s a minute, in turns: %d passed in %d minutes, want %d to %d", name, passed, minutes, least, most)
	}
}
