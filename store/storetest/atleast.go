package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// atLeastRows check the column "at least" of docs/guarantees.md, for callers that always ask: they retry each
// denied request at RetryAfter.
var atLeastRows = append(each("", alwaysAsks), []row{
	{"SlidingCounter 1 per second", func(s *suite) {
		alwaysAsks(s, kind{"", store.Spec{Algorithm: store.SlidingCounter, Units: 1, Period: time.Second}, time.Microsecond})
	}},
	{"SlidingCounter 60 per minute", func(s *suite) {
		alwaysAsks(s, kind{"", store.Spec{Algorithm: store.SlidingCounter, Units: 60, Period: time.Minute}, time.Microsecond})
	}},
	{"IntervalBucket with a small burst", func(s *suite) {
		spec := store.Spec{Algorithm: store.IntervalBucket, Units: 5, Period: time.Second, Burst: 2}
		alwaysAsks(s, kind{"", spec, time.Microsecond})
	}},
	{"Concurrency", func(s *suite) {
		l := s.limit(store.Spec{Algorithm: store.Concurrency, Units: 3})
		for range 3 {
			held := []store.Result{s.must(s.take("k", l, 1)), s.must(s.take("k", l, 1)), s.must(s.take("k", l, 1))}
			for _, r := range held {
				s.settle("k", l, r.Receipt, 0)
			}
		}
	}},
	{"Ban", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: time.Minute, Ban: time.Hour})
		for range 3 { // two denials a minute are no reason
			b.pass(3)
			b.strike(2)
			b.strike(1)
			s.sleep(time.Minute)
		}
		b.pass(3)
		b.strike(2)
		b.strike(1)
		b.begin(time.Hour)
		s.sleep(time.Hour)
		b.pass(3)
	}},
}...)

// alwaysAsks lets a caller ask for some time, be idle, and ask again.
func alwaysAsks(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(5, 5))
	l := s.limit(k.spec)
	if l.Algorithm() == store.SlidingCounter { // its windows are aligned to the clock
		s.sleep(s.take("align", l, 1).ResetAfter)
	}
	elapsed := s.elapse()
	for range 6 {
		var passes []time.Duration
		began := elapsed()
		for asked := 0; asked < 40 || asked < 200 && elapsed() < began+4*k.spec.Period; asked++ {
			r := s.take("k", l, 1)
			if r.OK {
				passes = append(passes, elapsed()+r.Delay)
			} else {
				s.sleep(r.RetryAfter)
			}
		}
		if !s.passEnough(l, passes, began, elapsed()) {
			return
		}
		s.sleep(k.pause(rnd))
	}
}

// passEnough reports whether enough charges have passed in each span of a time in which a caller always
// asks. The charges that pass at the first instant of a span count, and those at its end don't.
func (s *suite) passEnough(l *store.Limit, passes []time.Duration, began, ended time.Duration) bool {
	s.Helper()
	spec := l.Spec()
	n, p := spec.Units, spec.Period
	check := func(from, to time.Duration, least int64) bool {
		i, _ := slices.BinarySearch(passes, from)
		j, _ := slices.BinarySearch(passes, to)
		if int64(j-i) < least {
			s.Errorf("%d pass from %v to %v, where %d have to", j-i, from, to, least)
		}
		return !s.Failed()
	}
	// A span is shortest for what passes in it if it begins right after a charge and ends right before one.
	spans := func(from time.Duration, least func(time.Duration) int64) bool {
		for i := range passes {
			for j := i + 1; j < len(passes); j++ {
				if passes[i] >= from && passes[j] > passes[i] && !check(passes[i]+1, passes[j], least(passes[j]-passes[i]-1)) {
					return false
				}
			}
		}
		return true
	}
	switch tick := l.Tick(); spec.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return spans(began, func(t time.Duration) int64 { return product(max(t-tick, 0), n, p) })
	case store.WarmUp:
		each := ceil(1, p, n) + tick
		return spans(began, func(t time.Duration) int64 { return int64(t / (3 * each)) }) &&
			spans(began+spec.WarmUp, func(t time.Duration) int64 { return int64(t / each) })
	case store.SlidingWindow, store.SlidingLog:
		return spans(began, func(t time.Duration) int64 { return int64(t/p) * n })
	case store.SlidingCounter:
		for from := (began + p - 1) / p * p; from+p <= ended; from += p {
			if !check(from, from+p, n) {
				return false
			}
		}
		return true
	case store.FixedWindow, store.IntervalBucket:
		most := n
		if spec.Algorithm == store.IntervalBucket {
			most = min(n, spec.Burst)
		}
		if span, ok := fixedLength(spec); ok {
			return spans(began, func(t time.Duration) int64 { return int64(t/span) * most })
		}
		return true
	default:
		panic("no least of " + spec.Algorithm.String())
	}
}

// fixedLength returns the length of a limit's windows, if all have the same.
func fixedLength(spec store.Spec) (time.Duration, bool) {
	if spec.Period > 0 {
		return spec.Period, true
	}
	length := spec.Window.Length(time.Now())
	return length, length > 0
}
