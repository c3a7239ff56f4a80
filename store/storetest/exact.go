package storetest

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/store"
)

var exactRows = append(days(), row{"a long wait", longWait})

// days tests a day of a caller that takes all there is whenever it looks. It gets the
// burst, and from then on exactly what the rate gives, to the last unit.
func days() []row {
	var rows []row
	for _, r := range []struct {
		units  int64
		period time.Duration
		tick   time.Duration
	}{
		{3, time.Second, time.Microsecond},
		{7, time.Minute, time.Microsecond},
		{999, time.Second, 100 * time.Microsecond},
		{1_000_000, 24 * time.Hour, time.Microsecond},
		{7, 24 * time.Hour, time.Microsecond},
		{365, 24 * time.Hour, 10 * time.Microsecond},
		{14_272, time.Second, time.Millisecond},
		{10_000_000, time.Second, time.Microsecond},
	} {
		rows = append(rows, row{fmt.Sprintf("TokenBucket %d per %v", r.units, r.period), func(s *suite) {
			// The burst is as much as the rate gives in an hour, and the caller looks more
			// often than that: nothing is lost to a full bucket.
			burst := max(r.units*int64(time.Hour/time.Second)/int64(r.period/time.Second), 3)
			l := s.limit(store.Spec{Units: r.units, Period: r.period, Burst: burst})
			day(s, l, burst, r.tick, func(elapsed time.Duration) int64 { return product(elapsed, r.units, r.period) })
		}})
	}
	return append(rows,
		row{"TokenBucket with debt", func(s *suite) {
			// The caller takes one token more than there are: all 501 have to come
			// back.
			l := s.limit(store.Spec{Units: 7, Period: time.Minute, Burst: 500, Debt: true})
			r := s.must(s.take("k", l, 501))
			if r.ResetAfter != 501*time.Minute/7+1*time.Microsecond-(501*time.Minute/7)%time.Microsecond {
				s.Errorf("501 tokens at 7 a minute come back in %v", r.ResetAfter)
			}
		}},
		row{"IntervalBucket", func(s *suite) {
			l := s.limit(store.Spec{Algorithm: store.IntervalBucket, Units: 7, Period: time.Minute, Burst: 500})
			day(s, l, 500, time.Microsecond, func(elapsed time.Duration) int64 { return int64(elapsed/time.Minute) * 7 })
		}},
		row{"rounded rates", func(s *suite) {
			// No integer below 2^53 holds an instant of these rates, so they are lower by less
			// than one part in 10,000.
			for _, spec := range []store.Spec{
				{Units: 348_773, Period: time.Minute},
				{Units: 1_000_003, Period: time.Second},
				{Units: 9_999_999_967, Period: 24 * time.Hour, Burst: 10_000_000},
				{Units: 61, Period: time.Minute + time.Microsecond, Burst: 610},
				{Algorithm: store.LeakyBucket, Units: 348_773, Period: time.Minute},
			} {
				spec.Name = fmt.Sprintf("st-%v-%d", spec.Algorithm, spec.Units)
				l := s.limit(spec)
				all := max(l.Spec().Burst, l.Spec().Queue)
				r := s.take("k", l, all)
				least := ceil(all, spec.Period, spec.Units)
				if !r.OK || r.ResetAfter < least || r.ResetAfter > least+least/10_000+l.Tick() {
					s.Errorf("%d at %d per %v: %s, want reset %v", all, spec.Units, spec.Period, show(r), least)
				}
			}
		}},
		row{"SlidingLog", func(s *suite) { windows(s, store.SlidingLog) }},
		row{"SlidingWindow", func(s *suite) { windows(s, store.SlidingWindow) }},
		row{"FixedWindow", func(s *suite) { windows(s, store.FixedWindow) }},
		row{"LeakyBucket", func(s *suite) {
			// The queue is always full: every turn is exact to the microsecond.
			l := s.limit(store.Spec{Algorithm: store.LeakyBucket, Units: 7, Period: time.Minute, Queue: 3})
			start := s.elapse()
			turns := int64(0)
			for start() < 3*time.Hour {
				r := s.take("k", l, 1)
				if !r.OK {
					s.sleep(r.RetryAfter)
					continue
				}
				if want := ceil(turns, time.Minute, 7) - start(); r.Delay != want && !(want < 0 && r.Delay == 0) {
					s.Fatalf("turn %d at %v: delay %v, want %v", turns, start(), r.Delay, want)
				}
				turns++
			}
			if turns < 7*180 {
				s.Errorf("%d turns in three hours at 7 a minute", turns)
			}
		}},
	)
}

// elapse returns a clock of the time that the suite sleeps from here on.
func (s *suite) elapse() func() time.Duration {
	var at time.Duration
	sleep := s.sleep
	s.sleep = func(d time.Duration) { sleep(d); at += d }
	return func() time.Duration { return at }
}

// product returns floor(elapsed * n / period).
func product(elapsed time.Duration, n int64, period time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(elapsed), uint64(n))
	q, _ := bits.Div64(hi, lo, uint64(period))
	return int64(q)
}

// ceil returns the first microsecond at which n units have come.
func ceil(n int64, period time.Duration, units int64) time.Duration {
	us := (n*int64(period/time.Microsecond) + units - 1) / units
	return time.Duration(us) * time.Microsecond
}

// day lets a greedy caller look at about 300 random instants. given returns how much
// has come since the first charge.
func day(s *suite, l *store.Limit, burst int64, tick time.Duration, given func(time.Duration) int64) {
	rnd := rand.New(rand.NewPCG(3, 3))
	s.must(s.take("k", l, burst))
	taken, at := burst, time.Duration(0)
	for at < 24*time.Hour {
		d := time.Duration(rnd.Int64N(int64(10*time.Minute))) >> (rnd.IntN(4) * rnd.IntN(4)) / tick * tick
		s.sleep(d)
		at += d
		want := burst + given(at) - taken
		if got := s.peek("k", l).Remaining; got != want {
			s.Fatalf("after %v, %d taken: %d left, want %d", at, taken, got, want)
		}
		if r := s.take("k", l, want+1); want < burst && r.OK {
			s.Fatalf("after %v: %d passed with %d left", at, want+1, want)
		}
		if want > 0 {
			s.must(s.take("k", l, want))
			taken += want
		}
	}
}

// windows lets a greedy caller of a window return at each RetryAfter for four hours: 7 per
// minute are 7 times the minutes, plus the first 7. Each minute is as the one before.
func windows(s *suite, a store.Algorithm) {
	l := s.limit(store.Spec{Algorithm: a, Units: 7, Period: time.Minute})
	align := s.take("align", l, 1) // the buckets of a SlidingWindow are aligned to the clock
	s.sleep(align.ResetAfter)
	for i := range 4 * 60 {
		s.must(s.take("k", l, 7))
		r := s.take("k", l, 1)
		s.denied(r, time.Minute)
		if s.Failed() {
			s.Fatalf("failed in minute %d", i)
		}
		s.sleep(r.RetryAfter)
	}
}

// longWait: a slow limit stays exact far into the future.
func longWait(s *suite) {
	l := s.limit(store.Spec{Units: 1, Period: 24 * time.Hour, Burst: 300})
	s.must(s.take("k", l, 300))
	s.denied(s.take("k", l, 300), 300*24*time.Hour)
	s.sleep(100*24*time.Hour - time.Microsecond)
	s.left("k", l, 99)
	s.sleep(time.Microsecond)
	s.left("k", l, 100)
	s.denied(s.take("k", l, 300), 200*24*time.Hour)
}
