package storetest

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/store"
)

// raiseRows: what is used up stays used up when a limit's numbers are raised. A store
// that expires states must set the expiry by the numbers now in use.
var raiseRows = []row{
	{"a longer period", func(s *suite) { longerPeriod(s, 1) }},
	{"a longer period, eight limits in a call", func(s *suite) { longerPeriod(s, 8) }},
	{"a larger burst", largerBurst},
	{"a ban that counts for longer", func(s *suite) {
		b := s.banned(store.Spec{Units: 4, Period: time.Second, Ban: time.Hour})
		b.pass(4)
		b.strike(3)
		b.strike(2)
		b.ban = s.limit(store.Spec{Name: "st-ban", Algorithm: store.Ban, Units: 4, Period: time.Minute, Ban: time.Hour})
		b.left(2)
		s.sleep(2 * time.Second) // as long as the denials would have counted
		b.left(2)
		s.sleep(50 * time.Second)
		b.pass(2)
		b.strike(1)
		b.begin(time.Hour)
	}},
	{"a window that was over stays over", func(s *suite) {
		for _, a := range windowed {
			was := s.limit(store.Spec{Name: "st-" + a.String(), Algorithm: a, Units: 10, Period: time.Second})
			is := s.limit(store.Spec{Name: "st-" + a.String(), Algorithm: a, Units: 10, Period: time.Minute})
			s.must(s.take("k", was, 10))
			s.sleep(1200 * time.Millisecond)
			if r := s.peek("k", is); r.Remaining != 10 || r.ResetAfter != 0 {
				s.Errorf("%v: %s, want all left", a, show(r))
			}
		}
	}},
}

var windowed = []store.Algorithm{store.FixedWindow, store.SlidingWindow, store.SlidingLog, store.IntervalBucket}

// longerPeriod uses up ten per second, changes the limit to ten per minute, and keeps
// asking: nothing passes that the minute doesn't give. The limits are asked in one
// call.
func longerPeriod(s *suite, limits int) {
	for _, a := range append(windowed, store.TokenBucket) {
		var charges [2][]store.Charge
		for i, period := range []time.Duration{time.Second, time.Minute} {
			for n := range limits {
				l := s.limit(store.Spec{Name: fmt.Sprintf("st-%v-%d", a, n), Algorithm: a, Units: 10, Period: period})
				charges[i] = append(charges[i], store.Charge{Key: "k", Limit: l, Cost: 5})
			}
		}
		for range 2 {
			if _, granted := s.decide(charges[0]...); !granted {
				s.Fatalf("%v: fewer than ten a second pass", a)
			}
			s.sleep(10 * time.Millisecond)
		}
		given := int64(0)
		for range 40 { // 40 of the minute's 60 seconds
			r, granted := s.decide(charges[1]...)
			if granted {
				given += 5
			}
			if a != store.TokenBucket && granted {
				s.Fatalf("%v: used up, then ten a minute: %s", a, show(r[0]))
			}
			s.sleep(time.Second)
		}
		if given > 10 { // 10 * 40/60, and what the rate per second gave
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
