package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// Versions of a limit with very different periods, in use at once.
var versionRows = []row{
	{"a look drops nothing", func(s *suite) {
		// 10 per 20 s beside 3 per second, which looks and is denied.
		for _, a := range sliding {
			key := a.String()
			long, short := s.version(a, 10, 20*time.Second), s.version(a, 3, time.Second)
			s.must(s.take(key, long, 1))
			passed := int64(1)
			for range 170 {
				s.peek(key, short)
				s.take(key, short, 4)
				if s.take(key, long, 1).OK {
					passed++
				}
				s.sleep(100 * time.Millisecond)
			}
			most := int64(10)
			if a == store.SlidingCounter {
				most = 10 + 17*10/20
			}
			if passed > most || passed < 10 {
				s.Errorf("%v: %d pass in 17 s, want %d", a, passed, most)
			}
		}
	}},
	{"a deploy", func(s *suite) {
		// 100 a minute is replaced by 10 a second, or the other way round: both ask for two
		// minutes.
		for _, a := range slices.Concat(sliding, []store.Algorithm{store.FixedWindow, store.IntervalBucket}) {
			for i, first := range []bool{true, false} {
				key := a.String() + " " + []string{"to a second", "to a minute"}[i]
				minute, second := s.version(a, 100, time.Minute), s.version(a, 10, time.Second)
				if !first {
					minute, second = second, minute
				}
				var passed [2]int64
				for range 120 {
					for try := range 4 {
						v := try % 2
						if s.take(key, []*store.Limit{minute, second}[v], 5).OK {
							passed[v] += 5
						}
					}
					s.sleep(time.Second)
				}
				if !first {
					passed[0], passed[1] = passed[1], passed[0]
				}
				if passed[0] > 3*100+100 || passed[1] > 121*10+10 || passed[0]+passed[1] < 100 {
					s.Errorf("%v: %d pass by 100 a minute and %d by 10 a second, in two minutes", key, passed[0], passed[1])
				}
			}
		}
	}},
	{"turns are kept", func(s *suite) {
		// All turns of a second are told while another version looks.
		for _, a := range []store.Algorithm{store.TokenBucket, store.IntervalBucket, store.SlidingWindow, store.SlidingLog, store.SlidingCounter} {
			key := a.String()
			l, other := s.version(a, 10, time.Second), s.version(a, 1000, time.Hour)
			passed := 0
			for range 50 {
				s.peek(key, other)
				if s.reserve(key, l, 1, time.Second).OK {
					passed++
				}
			}
			if passed < 10 || passed > 31 {
				s.Errorf("%v: %d pass at once or have a turn within a second, of 10 a second", a, passed)
			}
		}
	}},
	{"a refund is of its own charge", func(s *suite) {
		// A charge that no version counts any more, of a second that began when the part of
		// two seconds did in which another version has charged since.
		short := s.limit(store.Spec{Algorithm: store.SlidingWindow, Units: 2, Period: time.Second, Buckets: 1})
		long := s.limit(store.Spec{Algorithm: store.SlidingWindow, Units: 1, Period: 20 * time.Second, Buckets: 10})
		for key := range 8 {
			key := fmt.Sprint(key)
			receipt := s.must(s.take(key, short, 1)).Receipt
			s.sleep(time.Second)
			s.must(s.take(key, long, 1))
			s.settle(key, short, receipt, 0)
			if s.take(key, long, 1).OK {
				s.Errorf("2 pass in a second, at 1 in 20 s: a charge of another version has been refunded")
			}
			s.sleep(700 * time.Millisecond)
		}
	}},
	{"a ban keeps what others count", func(s *suite) {
		b := s.banned(store.Spec{Units: 10, Period: time.Hour, Ban: time.Hour})
		short := s.limit(store.Spec{Name: "st-ban", Algorithm: store.Ban, Units: 3, Period: time.Second, Ban: time.Hour})
		b.rate = s.limit(store.Spec{Name: "st-rate", Units: 1, Period: 24 * time.Hour})
		b.pass(10)
		for left := int64(9); left > 0; left-- {
			b.strike(left)
			s.sleep(time.Minute)
			s.peek("k", short)
		}
		b.begin(time.Hour)
	}},
}

var sliding = []store.Algorithm{store.SlidingWindow, store.SlidingLog, store.SlidingCounter}

// version is one of a limit's versions.
func (s *suite) version(a store.Algorithm, units int64, period time.Duration) *store.Limit {
	s.Helper()
	return s.limit(store.Spec{Name: "st-" + a.String(), Algorithm: a, Units: units, Period: period})
}
