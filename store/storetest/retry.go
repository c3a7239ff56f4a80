package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// kind is a limit of each algorithm, with its tick: the smallest time that makes a
// difference to it.
type kind struct {
	name string
	spec store.Spec
	tick time.Duration
}

var kinds = []kind{
	{"TokenBucket", store.Spec{Units: 10, Period: time.Second}, time.Microsecond},
	{"TokenBucket 3 per second", store.Spec{Units: 3, Period: time.Second, Burst: 5}, time.Microsecond},
	{"TokenBucket 7 per minute", store.Spec{Units: 7, Period: time.Minute}, time.Microsecond},
	{"TokenBucket 999 per second", store.Spec{Units: 999, Period: time.Second, Burst: 4}, 100 * time.Microsecond},
	{"TokenBucket 1000000 per day", store.Spec{Units: 1_000_000, Period: 24 * time.Hour, Burst: 20}, time.Microsecond},
	{"TokenBucket with debt", store.Spec{Units: 7, Period: time.Minute, Burst: 3, Debt: true}, time.Microsecond},
	{"TokenBucket with queue", store.Spec{Units: 3, Period: time.Second, Burst: 2, Queue: 4}, time.Microsecond},
	{"IntervalBucket", store.Spec{Algorithm: store.IntervalBucket, Units: 3, Period: time.Second, Burst: 7}, time.Microsecond},
	{"IntervalBucket hourly", store.Spec{Algorithm: store.IntervalBucket, Units: 3, Window: store.Hourly, Burst: 7}, time.Microsecond},
	{"LeakyBucket", store.Spec{Algorithm: store.LeakyBucket, Units: 7, Period: time.Second, Burst: 2, Queue: 3}, time.Microsecond},
	{"LeakyBucket 999 per second", store.Spec{Algorithm: store.LeakyBucket, Units: 999, Period: time.Second, Queue: 3}, 100 * time.Microsecond},
	{"FixedWindow", store.Spec{Algorithm: store.FixedWindow, Units: 5, Period: 7 * time.Second}, time.Microsecond},
	{"FixedWindow daily", store.Spec{Algorithm: store.FixedWindow, Units: 5, Window: store.Daily}, time.Microsecond},
	{"FixedWindow every 90s", store.Spec{Algorithm: store.FixedWindow, Units: 5, Window: store.Every(90 * time.Second)}, time.Microsecond},
	{"SlidingWindow", store.Spec{Algorithm: store.SlidingWindow, Units: 5, Period: 10 * time.Second}, time.Microsecond},
	{"SlidingWindow in thirds", store.Spec{Algorithm: store.SlidingWindow, Units: 5, Period: time.Second, Buckets: 3}, time.Microsecond},
	{"SlidingCounter", store.Spec{Algorithm: store.SlidingCounter, Units: 5, Period: 7 * time.Second}, time.Microsecond},
	{"SlidingLog", store.Spec{Algorithm: store.SlidingLog, Units: 5, Period: 7 * time.Second}, time.Microsecond},
	{"WarmUp", store.Spec{Algorithm: store.WarmUp, Units: 5, Period: time.Second, WarmUp: 4 * time.Second}, time.Microsecond},
	{"WarmUp 7 per minute", store.Spec{Algorithm: store.WarmUp, Units: 7, Period: time.Minute, WarmUp: 10 * time.Second}, time.Microsecond},
}

// each makes one row for each kind.
func each(prefix string, rule func(*suite, kind)) []row {
	rows := make([]row, len(kinds))
	for i, k := range kinds {
		rows[i] = row{prefix + k.name, func(s *suite) { rule(s, k) }}
	}
	return rows
}

func retryRows() []row {
	return append(slices.Concat(each("", retriedInTime), each("more/", moreInTime), each("reserved/", reservedInTime)),
		row{"several", severalInTime})
}

// span returns the approximate time in which a kind gives back all it has.
func (k kind) span() time.Duration {
	switch k.spec.Window {
	case store.Window{}:
		return k.spec.Period * time.Duration(max(k.spec.Burst, k.spec.Queue, 1)) / time.Duration(k.spec.Units)
	case store.Hourly:
		return time.Hour
	case store.Daily:
		return 24 * time.Hour
	default:
		return 90 * time.Second
	}
}

// pause returns a random multiple of the tick, often a short one.
func (k kind) pause(rnd *rand.Rand) time.Duration {
	d := time.Duration(rnd.Int64N(int64(k.span()))) >> rnd.IntN(8)
	return d / k.tick * k.tick
}

// retriedInTime: RetryAfter is the first instant at which the same cost passes, and
// denials before that change nothing.
func retriedInTime(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(1, 1))
	l := s.limit(k.spec)
	retried := 0
	for range 150 {
		cost := 1 + rnd.Int64N(3)
		r := s.take("k", l, cost)
		if r.OK || r.RetryAfter == store.Never {
			s.sleep(k.pause(rnd))
			continue
		}
		if again := s.take("k", l, cost); again != r {
			s.Fatalf("denied twice at one instant: %s, then %s", show(r), show(again))
		}
		if r.RetryAfter%k.tick != 0 {
			s.Fatalf("retry %v is not a multiple of the tick %v", r.RetryAfter, k.tick)
		}
		s.sleep(r.RetryAfter - k.tick)
		if early := s.take("k", l, cost); early.OK || early.RetryAfter != k.tick {
			s.Fatalf("%v before RetryAfter: %s, want no retry %v", k.tick, show(early), k.tick)
		}
		s.sleep(k.tick)
		if late := s.take("k", l, cost); !late.OK {
			s.Fatalf("at RetryAfter: %s", show(late))
		}
		retried++
	}
	if retried < 10 {
		s.Fatalf("only %d denials: the suite is at fault", retried)
	}
}

// moreInTime: MoreAfter is the first instant at which more than Remaining units are left. If
// that can't be, it is the time in which a rate gives one, and 0 for a window.
func moreInTime(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(4, 4))
	l := s.limit(k.spec)
	fresh := s.peek("k", l)
	if has := slices.Contains([]store.Algorithm{store.TokenBucket, store.LeakyBucket, store.WarmUp},
		k.spec.Algorithm); has != (fresh.MoreAfter > 0) {
		s.Errorf("more than all are left in %v", fresh.MoreAfter)
	}
	for range 100 {
		wait := time.Duration(rnd.IntN(2)) * k.span() / 4
		r := s.reserve("k", l, 1+rnd.Int64N(3), wait)
		if r.Remaining >= s.reserve("unused", l, 0, wait).Remaining {
			continue
		}
		if rnd.IntN(2) == 0 {
			s.sleep(k.pause(rnd) / 4 / k.tick * k.tick)
			continue
		}
		s.sleep(r.MoreAfter - k.tick)
		if early := s.reserve("k", l, 0, wait); early.Remaining > r.Remaining || early.MoreAfter != k.tick {
			s.Fatalf("%v before MoreAfter: %s, was %s", k.tick, show(early), show(r))
		}
		s.sleep(k.tick)
		if late := s.reserve("k", l, 0, wait); late.Remaining <= r.Remaining {
			s.Fatalf("at MoreAfter: %s, was %s", show(late), show(r))
		}
	}
}

// severalInTime: a decision that several limits deny passes at the last of their RetryAfter.
func severalInTime(s *suite) {
	rnd := rand.New(rand.NewPCG(9, 9))
	var charges []store.Charge
	for i, k := range kinds {
		k.spec.Name = fmt.Sprint("st-", i)
		charges = append(charges, store.Charge{Key: "k", Limit: s.limit(k.spec)})
	}
	denied := 0
	for range 300 {
		some := []store.Charge{}
		for _, i := range rnd.Perm(len(kinds))[:2+rnd.IntN(3)] {
			c := charges[i]
			c.Cost = 1 + rnd.Int64N(2)
			some = append(some, c)
		}
		r, granted := s.decide(some...)
		var wait, tick time.Duration
		for i := range r {
			if !r[i].OK && r[i].RetryAfter > wait {
				wait, tick = r[i].RetryAfter, some[i].Limit.Tick()
			}
		}
		if granted || wait > time.Hour {
			s.sleep(time.Duration(rnd.Int64N(100)) * 10 * time.Millisecond)
			continue
		}
		denied++
		s.sleep(wait - tick)
		if r, granted := s.decide(some...); granted {
			s.Fatalf("%v before the last RetryAfter: %v", tick, r)
		}
		s.sleep(tick)
		if r, granted := s.decide(some...); !granted {
			s.Fatalf("at the last RetryAfter: %v", r)
		}
	}
	if denied < 10 {
		s.Fatalf("only %d denials: the suite is at fault", denied)
	}
}

// reservedInTime: a charge that may wait waits exactly until it could have passed
// without waiting. If that is longer than it may wait, it is denied, and RetryAfter
// says when it no longer would be.
func reservedInTime(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(2, 2))
	l := s.limit(k.spec)
	if spec := l.Spec(); spec.Algorithm == store.LeakyBucket || spec.Queue > 0 {
		return // LeakyBucket queues by itself; the traces test it
	}
	tried := 0
	for range 100 {
		cost := 1 + rnd.Int64N(3)
		if l.Algorithm() == store.FixedWindow {
			cost = 1 // the part of a window that a larger charge doesn't fit into stays empty
		}
		r := s.take("k", l, cost)
		if r.OK || r.RetryAfter == store.Never {
			s.sleep(k.pause(rnd))
			continue
		}
		need := r.RetryAfter
		if need > time.Duration(inside.Terms(l).Patience)*time.Microsecond { // longer than the limit lets anybody wait
			s.sleep(k.pause(rnd))
			continue
		}
		if early := s.reserve("k", l, cost, need-k.tick); need > k.tick && (early.OK || early.RetryAfter != k.tick) {
			s.Fatalf("needs %v, may wait %v: %s, want no retry %v", need, need-k.tick, show(early), k.tick)
		}
		before := s.peek("k", l)
		reserved := s.reserve("k", l, cost, need)
		if !reserved.OK || reserved.Delay != need {
			s.Fatalf("needs and may wait %v: %s", need, show(reserved))
		}
		tried++
		if rnd.IntN(2) == 0 { // the caller gives up: as if it had never asked
			s.settle("k", l, reserved.Receipt, 0)
			if after := s.peek("k", l); after != before {
				s.Fatalf("reserved and cancelled: %s, was %s", show(after), show(before))
			}
			continue
		}
		s.sleep(k.pause(rnd))
	}
	if tried < 10 {
		s.Fatalf("only %d reservations: the suite is at fault", tried)
	}
}
