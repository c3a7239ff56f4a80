package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// Versions of a limit with other numbers, in use at once or one after the other. The answers in
// detail are in testdata/versions.trace.
var versionRows = append(slices.Concat(
	each("same numbers, another limit/", sameNumbers),
	each("a look changes nothing/", looksByAnother),
	each("settled after a change/", settledAfterChange),
), []row{
	{"no fresh burst", func(s *suite) {
		// A key that is used up under one set of numbers never has more left under
		// another than the new numbers have beyond the old.
		for _, a := range rates(store.LeakyBucket) {
			for _, units := range []int64{10, 12, 5, 1, 1000} {
				name := fmt.Sprintf("%v %d", a, units)
				s.must(s.take(name, s.version(a, 10, time.Minute), 10))
				r := s.peek(name, s.version(a, units, time.Minute))
				if r.Remaining > max(units-10, 0) || r.ResetAfter == 0 {
					s.Errorf("%v, 10 of 10 used, then %d a minute: %s", a, units, show(r))
				}
			}
		}
	}},
	{"another period", func(s *suite) {
		// A bucket is converted; a window of another period counts by itself.
		for _, a := range rates() {
			second, hour := s.version(a, 10, time.Second), s.version(a, 10, time.Hour)
			fresh := s.peek("other", hour).Remaining
			for s.take(a.String(), second, 1).OK {
			}
			used := fresh - s.peek(a.String(), hour).Remaining
			if window := isWindow(a); window != (used == 0) {
				s.Errorf("%v: used up at 10 a second, and %d are used at 10 an hour", a, used)
			}
			s.must(s.take(a.String()+" from the hour", hour, 1))
			if r := s.peek(a.String()+" from the hour", second); (r.ResetAfter == 0) != isWindow(a) {
				s.Errorf("%v: one used at 10 an hour: %s at 10 a second", a, show(r))
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
			alternate(s, pair)
		}
	}},
	{"turns are kept", func(s *suite) {
		// Another version asks, and is denied, while all turns of a second are reserved.
		for _, a := range rates(store.LeakyBucket, store.FixedWindow) {
			key := a.String()
			l, other := s.version(a, 10, time.Second), s.version(a, 1, time.Second)
			passed := 0
			for range 50 {
				for _, r := range []store.Result{s.take(key, other, 1), s.reserve(key, l, 1, time.Second)} {
					if r.OK {
						passed++
					}
				}
			}
			if passed < 10 || passed > 31 {
				s.Errorf("%v: %d pass at once or have a turn within a second, of 10 a second", a, passed)
			}
		}
	}},
	{"a longer period", func(s *suite) { longerPeriod(s, 1) }},
	{"a longer period, eight limits in a call", func(s *suite) { longerPeriod(s, 8) }},
	{"a larger burst", largerBurst},
	{"a ban of another period", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: time.Minute, Ban: time.Hour})
		hour := s.limit(store.Spec{Name: "st-ban", Algorithm: store.Ban, Units: 3, Period: time.Hour, Ban: 2 * time.Hour})
		b.rate = s.limit(store.Spec{Name: "st-rate", Units: 1, Period: 24 * time.Hour})
		b.pass(3)
		b.strike(2)
		s.peek("k", hour)
		b.strike(1)
		minute := b.ban
		b.ban = hour
		b.left(3)
		b.strike(2) // and the other's denials are forgotten
		b.ban = minute
		b.left(3)
		b.strike(2)
		b.strike(1)
		b.begin(time.Hour)
		b.ban = hour
		b.deny(time.Hour) // the ban that was announced
	}},
}...)

// rates returns the algorithms that let Units pass in a Period and need no other number, but those of except.
func rates(except ...store.Algorithm) (all []store.Algorithm) {
	except = append(except, store.WarmUp, store.Concurrency, store.Ban)
	for a := range algorithms {
		if !slices.Contains(except, a) {
			all = append(all, a)
		}
	}
	return all
}

// version returns one of a limit's versions.
func (s *suite) version(a store.Algorithm, units int64, period time.Duration) *store.Limit {
	s.Helper()
	return s.limit(store.Spec{Name: "st-" + a.String(), Algorithm: a, Units: units, Period: period})
}

// other returns a kind with other numbers, of the same period.
func (k kind) other() store.Spec {
	spec := k.spec
	spec.Units = 7 * (spec.Units + 1)
	if spec.Burst > 0 {
		spec.Burst += 2
	}
	return spec
}

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

// looksByAnother: looks and denials of another version change nothing.
func looksByAnother(s *suite, k kind) {
	l, other := s.limit(k.spec), s.limit(k.other())
	for range 30 {
		s.peek("k", other)
		s.take("k", other, store.MaxCost)
		a, b := s.take("k", l, 1), s.take("alone", l, 1)
		if a.Receipt, b.Receipt = (store.Receipt{}), (store.Receipt{}); a != b {
			s.Fatalf("%s, and without another version's looks %s", show(a), show(b))
		}
		s.sleep(k.span() / 16 / k.tick * k.tick)
	}
}

// isWindow reports whether a counts in windows, whose period is part of the state's name.
func isWindow(a store.Algorithm) bool {
	switch a {
	case store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog:
		return true
	case store.TokenBucket, store.IntervalBucket, store.LeakyBucket, store.WarmUp:
		return false
	default:
		panic("no window and no bucket: " + a.String())
	}
}

// settledAfterChange: once another version has charged, and the first again, a bucket's
// earlier charge isn't refunded, and one in a window is. A debt is charged always.
func settledAfterChange(s *suite, k kind) {
	l, other := s.limit(k.spec), s.limit(k.other())
	full := s.peek("k", l).Remaining
	first := s.must(s.take("k", l, 1))
	// A debt in the numbers of another version.
	s.sleep(k.tick)
	s.reserve("k", other, 1, time.Minute)
	before := s.peek("k", l)
	raised := s.settle("k", l, first.Receipt, 2)
	if raised.ResetAfter <= before.ResetAfter && raised.Remaining >= before.Remaining {
		s.Errorf("a debt in a state of other numbers: %s, was %s", show(raised), show(before))
	}
	s.sleep(raised.ResetAfter)

	first = s.must(s.take("k", l, 1))
	s.sleep(k.tick)
	for i, version := range []*store.Limit{other, l} {
		if r := s.reserve("k", version, 1, time.Minute); !r.OK {
			s.Fatalf("charge %d: %s", i, show(r))
		}
	}
	before = s.peek("k", l)
	after := s.settle("k", l, first.Receipt, 0)
	switch {
	case !isWindow(l.Algorithm()):
		if after.Remaining != before.Remaining || after.ResetAfter != before.ResetAfter {
			s.Errorf("refunded although the numbers have changed: %s, was %s", show(after), show(before))
		}
	case after.Remaining != before.Remaining+1:
		s.Errorf("not refunded: %s, was %s, and %d of a new key", show(after), show(before), full)
	}
}

// alternate asks two versions of one limit alternately for five minutes.
func alternate(s *suite, pair [2]store.Spec) {
	const minutes = 5
	for _, a := range []store.Algorithm{store.TokenBucket, store.IntervalBucket} {
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
}

// longerPeriod uses up ten per second, changes the limit to ten per minute, and keeps
// asking: nothing passes that the minute doesn't give. The limits are asked in one
// call. A store that expires states must set the expiry by the numbers of the last charge.
func longerPeriod(s *suite, limits int) {
	for _, a := range []store.Algorithm{store.TokenBucket, store.LeakyBucket, store.IntervalBucket} {
		var charges [2][]store.Charge
		for i, period := range []time.Duration{time.Second, time.Minute} {
			for n := range limits {
				spec := store.Spec{Name: fmt.Sprintf("st-%v-%d", a, n), Algorithm: a, Units: 10, Period: period}
				if a == store.LeakyBucket {
					spec.Burst, spec.Queue = 9, store.None
				}
				charges[i] = append(charges[i], store.Charge{Key: "k", Limit: s.limit(spec), Cost: 5})
			}
		}
		for range 2 {
			if _, granted := s.decide(charges[0]...); !granted {
				s.Fatalf("%v: fewer than ten a second pass", a)
			}
			s.sleep(10 * time.Millisecond)
		}
		// The second's rate drains what it has charged. From the first charge on, the minute's does.
		given := int64(0)
		for range 40 * 4 {
			if _, granted := s.decide(charges[1]...); granted {
				given += 5
			}
			s.sleep(250 * time.Millisecond)
		}
		if given < 10 || given > 20 {
			s.Errorf("%v: %d pass in 40 s, at ten a minute", a, given)
		}
	}
}

// largerBurst raises a burst while the key is in use: no more passes than the larger
// burst and the rate allow.
func largerBurst(s *suite) {
	small := s.limit(store.Spec{Units: 100, Period: time.Second, Burst: 100})
	large := s.limit(store.Spec{Units: 100, Period: time.Second, Burst: 10_000})
	s.must(s.take("k", small, 50))
	passed, began := int64(50), s.now()
	for step := range 70 {
		s.sleep(100 * time.Millisecond)
		for range 10 {
			if step < 25 && passed > 9000 {
				break // by now the small burst's bucket would have been full again
			}
			if s.take("k", large, 300).OK {
				passed += 300
			}
		}
		if bound := 10_000 + int64(s.now().Sub(began)/(10*time.Millisecond)); passed > bound {
			s.Fatalf("%d pass in %v, the bound is %d", passed, s.now().Sub(began), bound)
		}
	}
	if passed < 10_000 {
		s.Errorf("%d pass", passed)
	}
}
