package store_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// What holds of every limit at every moment of every trace, said without a
// model: each property asks the steps alone.

// walk runs random traces over limits of every algorithm, and at every step
// hands the bench to look before it goes on.
func walk(t *testing.T, n uint64, look func(d dice, b *bench) error) {
	t.Helper()
	for s := range traces(t, n) {
		d := seed(s)
		a := oneOf(d, algorithms...)
		b := newBench([]rule{drawRule(d, a)}, d.roll(years), d.roll(20*years))
		for id := range int(1 + d.roll(40)) {
			if b.now.Steady > 15*years {
				break
			}
			if err := b.run(drawOp(d, b, id)); err != nil {
				t.Fatalf("seed %d: %v", s, err)
			}
			if err := look(d, b); err != nil {
				t.Fatalf("seed %d: %v at %d, state %+v: %v", s, b.rules[0], b.now.Steady, b.states[0], err)
			}
		}
	}
}

// try answers a charge after a time, and changes nothing.
func (b *bench) try(after int64, cost int64, maxWait time.Duration) store.Result {
	return b.attempts(after).take(cost, maxWait)
}

// attempts is a meter on a copy of the first limit's state.
func (b *bench) attempts(after int64) *meter {
	m := &meter{limit: b.rules[0].limit, state: clone(b.states[:1])[0], now: b.now}
	m.sleep(micros(after))
	return m
}

// resolution is the tick in which the first limit answers.
func (b *bench) resolution() int64 { return b.tick(0) }

// maxWaitTooShort reports whether a charge on a limit with a queue isn't granted within its maxWait, not even on
// an unused key, but would be if it could wait longer.
func maxWaitTooShort(l *store.Limit, now store.Now, cost int64, maxWait time.Duration) bool {
	r := (&meter{limit: l, now: now}).take(cost, maxWait)
	return l.Spec().Queue > 0 && !r.OK && r.RetryAfter != store.Never
}

// checkMaxWaitTooShort checks that RetryAfter then says by how much the maxWait is too short.
func checkMaxWaitTooShort(l *store.Limit, now store.Now, cost int64, maxWait time.Duration) error {
	after := (&meter{limit: l, now: now}).take(cost, maxWait).RetryAfter
	enough, short := (&meter{limit: l, now: now}).take(cost, maxWait+after), (&meter{limit: l, now: now}).take(cost, maxWait+after-l.Tick())
	reaches := (maxWait + after).Truncate(l.Tick()) <= 365*24*time.Hour // a longer wait isn't granted
	if after <= 0 || enough.OK != reaches || short.OK {
		return fmt.Errorf("cost %d, wait %v: %v longer: %s; a tick less: %s", cost, maxWait, after, show(enough), show(short))
	}
	return nil
}

func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, 3000, func(d dice, b *bench) error {
		c := drawCharge(d, b, 0, 1_000_000, b.resolution())
		r := b.try(0, c.cost, c.maxWait)
		switch {
		case r.OK && (r.RetryAfter != 0 || r.Delay > c.maxWait && b.rules[0].limit.Spec().Queue <= 0):
			return fmt.Errorf("cost %d, wait %v: %s", c.cost, c.maxWait, show(r))
		case r.OK:
			return nil
		case r.RetryAfter == store.Never:
			// Not however long one waits: not if no call has ever come.
			fresh := &meter{limit: b.rules[0].limit, now: b.now}
			if r := fresh.take(c.cost, 1<<63-1); r.OK {
				return fmt.Errorf("cost %d never passes, but does: %s", c.cost, show(r))
			}
			return nil
		case maxWaitTooShort(b.rules[0].limit, b.now, c.cost, c.maxWait):
			return checkMaxWaitTooShort(b.rules[0].limit, b.now, c.cost, c.maxWait)
		case b.rules[0].limit.Algorithm() == store.Concurrency:
			return nil // it can't be known
		}
		seen++
		after := r.RetryAfter.Microseconds()
		if after <= 0 {
			return fmt.Errorf("cost %d: denied, %s", c.cost, show(r))
		}
		if then := b.try(after, c.cost, c.maxWait); !then.OK {
			return fmt.Errorf("cost %d, wait %v: %s; then: %s", c.cost, c.maxWait, show(r), show(then))
		}
		if before := b.try(after-b.resolution(), c.cost, c.maxWait); before.OK {
			return fmt.Errorf("cost %d, wait %v: %s; passes a tick earlier", c.cost, c.maxWait, show(r))
		}
		return nil
	})
	enough(t, seen)
}

// moreAfter checks the MoreAfter of an answer by what is left then, and a tick earlier.
// fresh is how much is left of a key never seen.
func moreAfter(r store.Result, fresh int64, tick time.Duration, left func(after time.Duration) int64) error {
	switch {
	case r.Remaining >= fresh: // more can't be
		if r.MoreAfter < 0 {
			return fmt.Errorf("%s", show(r))
		}
	case r.MoreAfter <= 0 || left(r.MoreAfter) <= r.Remaining:
		return fmt.Errorf("%s; then %d", show(r), left(r.MoreAfter))
	case left(max(0, r.MoreAfter-tick)) > r.Remaining:
		return fmt.Errorf("%s; %d a tick earlier", show(r), left(max(0, r.MoreAfter-tick)))
	}
	return nil
}

// Until MoreAfter there is no more than r says, and from then on there is.
func TestMoreAfter(t *testing.T) {
	t.Parallel()
	seen := map[store.Algorithm]int{}
	walk(t, 3000, func(d dice, b *bench) error {
		l := b.rules[0].limit
		c := drawCharge(d, b, 0, 1_000_000, b.resolution())
		m := b.attempts(0)
		r := m.take(c.cost, c.maxWait)
		after, known := inside.MoreAfter(l, &r)
		if l.Algorithm() == store.Concurrency {
			if known || r.MoreAfter != 0 {
				return fmt.Errorf("%s: %v, %v", show(r), after, known)
			}
			return nil
		}
		if want := r.MoreAfter; !known || r.OK && after != want || !r.OK && after != min(want, r.RetryAfter) {
			return fmt.Errorf("%s: more or passes after %v", show(r), after)
		}
		fresh := (&meter{limit: l, now: m.now}).take(0, c.maxWait).Remaining
		if r.Remaining < fresh {
			seen[l.Algorithm()]++
		}
		err := moreAfter(r, fresh, micros(b.resolution()), func(after time.Duration) int64 {
			then := *m
			then.state = clone([]store.State{m.state})[0]
			then.sleep(after)
			return then.take(0, c.maxWait).Remaining
		})
		if err != nil {
			return fmt.Errorf("cost %d, wait %v: %w", c.cost, c.maxWait, err)
		}
		return nil
	})
	for _, a := range algorithms {
		if a != store.Concurrency && a != store.Ban {
			enough(t, seen[a]*10)
		}
	}
}

// enough says that a property has not been tested by accident only.
func enough(t *testing.T, seen int) {
	t.Helper()
	if seen < 100 && os.Getenv("STINT_SEED") == "" {
		t.Errorf("only %d cases", seen)
	}
}

// A turn is when the charge would pass without waiting, and not a tick later.
func TestDelayIsTheTurn(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, 3000, func(d dice, b *bench) error {
		c := drawCharge(d, b, 0, 1_000_000, b.resolution())
		r := b.try(0, c.cost, time.Hour)
		if !r.OK || r.Delay == 0 {
			return nil
		}
		seen++
		s := b.rules[0].limit.Spec()
		capacity := max(s.Burst, 0)
		if s.Algorithm == store.LeakyBucket {
			capacity++
		}
		if s.Queue > 0 && c.cost > capacity {
			return nil // passes only by queueing
		}
		at := r.Delay.Microseconds()
		if then := b.try(at, c.cost, 1); !then.OK || then.Delay != 0 {
			return fmt.Errorf("cost %d: %s; then: %s", c.cost, show(r), show(then))
		}
		if before := b.try(at-b.resolution(), c.cost, 1); before.OK {
			return fmt.Errorf("cost %d: %s; passes a tick earlier", c.cost, show(r))
		}
		return nil
	})
	enough(t, seen)
}

// What remains passes, at once or one by one, and no more.
func TestRemainingPasses(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, 3000, func(d dice, b *bench) error {
		s := b.rules[0].limit.Spec()
		wait := time.Duration(0)
		if s.Queue > 0 && d.roll(2) == 0 {
			wait = micros(1 + d.roll(2*s.Period.Microseconds()))
		}
		left := b.try(0, 0, wait).Remaining
		if s.Debt {
			if left == 0 {
				return nil
			}
			left++ // one more passes on credit
		}
		if left > 0 && s.Algorithm != store.WarmUp && !s.Debt {
			if r := b.try(0, left, wait); !r.OK {
				return fmt.Errorf("%d remain: %s", left, show(r))
			}
			if r := b.try(0, left+1, wait); r.OK {
				return fmt.Errorf("%d remain: one more passes: %s", left, show(r))
			}
		}
		if left > 50 {
			return nil
		}
		seen++
		m := b.attempts(0)
		for i := range left {
			m.now.Steady += 0
			m.now.Lease = store.Lease(b.leases + 1 + uint64(i))
			states, results := []store.State{m.state}, make([]store.Result, 1)
			store.Decide(m.now, []store.Charge{{Limit: m.limit, Cost: 1, MaxWait: wait}}, states, results)
			m.state = states[0]
			if !results[0].OK {
				return fmt.Errorf("%d of %d remaining: %s", i+1, left, show(results[0]))
			}
		}
		if r := m.take(1, wait); r.OK {
			return fmt.Errorf("%d remained, one more passes: %s", left, show(r))
		}
		return nil
	})
	enough(t, seen)
}

// A state may be dropped ResetAfter after its last change: whatever comes then gets the
// same answers. A tick earlier something is still missing.
func TestForgettingIsLossless(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, 2000, func(d dice, b *bench) error {
		if b.rules[0].limit.Algorithm() == store.Concurrency {
			return nil
		}
		r := b.try(0, 0, 0)
		after := r.ResetAfter.Microseconds()
		fresh := &meter{limit: b.rules[0].limit, now: b.now}
		if after > 0 {
			seen++
			m := b.attempts(after - b.resolution())
			f := *fresh
			f.sleep(micros(after - b.resolution()))
			if was := m.take(0, 0); was.ResetAfter <= 0 || was.ResetAfter > micros(b.resolution()) {
				return fmt.Errorf("a tick before %v: %s", r.ResetAfter, show(was))
			}
		}
		m := b.attempts(after)
		fresh.sleep(r.ResetAfter)
		for range 4 {
			c := drawCharge(d, b, 0, 1_000_000, b.resolution())
			got, want := m.take(c.cost, c.maxWait), fresh.take(c.cost, c.maxWait)
			if got != want {
				return fmt.Errorf("after %v: %s; a new key: %s", r.ResetAfter, show(got), show(want))
			}
			by := oneOf(d, 0, 1, got.RetryAfter, got.Delay, got.ResetAfter, got.ResetAfter/2)
			if by > 365*24*time.Hour {
				by = 0
			}
			m.sleep(by.Truncate(time.Microsecond))
			fresh.sleep(by.Truncate(time.Microsecond))
		}
		return nil
	})
	enough(t, seen)
}

// A denial, a peek, and a late or empty settlement leave everything unchanged.
func TestNothingChangesWithoutACharge(t *testing.T) {
	t.Parallel()
	walk(t, 2000, func(d dice, b *bench) error {
		l := b.rules[0].limit
		want := b.try(0, 0, 0)
		states := clone(b.states[:1])
		for range 3 {
			var r store.Result
			c := drawCharge(d, b, 0, 1_000_000, b.resolution())
			store.Decide(b.now, []store.Charge{{Limit: l, Cost: 1 << 40}, {Limit: l, Cost: c.cost, MaxWait: c.maxWait}},
				[]store.State{states[0], states[0]}, make([]store.Result, 2))
			store.Decide(b.now, []store.Charge{{Limit: l, MaxWait: c.maxWait}}, states, make([]store.Result, 1))
			store.Amend(b.now, &store.Charge{Limit: l}, &states[0], &r)
			if r.Receipt.Cost != 0 || !r.OK || r.Remaining != want.Remaining || r.ResetAfter != want.ResetAfter {
				return fmt.Errorf("settling nothing: %s; was %s", show(r), show(want))
			}
		}
		for _, k := range b.open(0) {
			// Everything a charge did is over once the limit is as never used.
			late, m := clone(b.states[:1]), b.made[k]
			now := b.now
			reset := want.ResetAfter.Microseconds()
			now.Steady, now.Wall = now.Steady+reset, now.Wall+reset
			if l.Algorithm() == store.Concurrency {
				continue
			}
			var r store.Result
			store.Amend(now, &store.Charge{Limit: l, Receipt: m.receipt}, &late[0], &r)
			if full := (&meter{limit: l, now: now}).take(0, 0); r.Remaining != full.Remaining || r.ResetAfter != 0 {
				return fmt.Errorf("late refund: %s; a new key: %s", show(r), show(full))
			}
		}
		if got := store.Decide(b.now, []store.Charge{{Limit: l}}, states, make([]store.Result, 1)); !got {
			return fmt.Errorf("peek denied")
		}
		if got := (&meter{limit: l, now: b.now, state: states[0]}).take(0, 0); got != want {
			return fmt.Errorf("%s; was %s", show(got), show(want))
		}
		return nil
	})
}

// A dry run is charged beside the others and never affects their answers.
func TestDryRunIsAlone(t *testing.T) {
	t.Parallel()
	for s := range traces(t, 1500) {
		d := seed(s)
		rules := []rule{drawRule(d, oneOf(d, algorithms...)), drawRule(d, oneOf(d, algorithms...))}
		with, without := newBench(rules, 0, 0), newBench(rules[:1], 0, 0)
		for id := range 30 {
			o := drawOp(d, without, id)
			if o.settle != nil || without.now.Steady > 15*years {
				continue
			}
			o.charges[0].dry = false
			dry := drawCharge(d, with, 1, 1_000_000, 1)
			dry.dry = true
			both := o
			both.charges = append([]opCharge{o.charges[0]}, dry)
			if d.roll(2) == 0 {
				both.charges[0], both.charges[1] = both.charges[1], both.charges[0]
			}
			if err := without.run(o); err != nil {
				t.Fatalf("seed %d: %v", s, err)
			}
			if err := with.run(both); err != nil {
				t.Fatalf("seed %d: %v", s, err)
			}
			if got, want := with.last[0], without.last[0]; got != want {
				t.Fatalf("seed %d: %v beside a dry run of %v: %s, alone %s", s, rules[0], rules[1], show(got), show(want))
			}
		}
	}
}

// Reserving without end is denied at last: turns are in order, none is later than a
// year, and no sum overflows on the way.
func TestReservingWithoutEnd(t *testing.T) {
	t.Parallel()
	for s := range traces(t, 400) {
		d := seed(s)
		a := oneOf(d, rates...) // slots have no turns
		r := drawRule(d, a)
		m := newBench([]rule{r}, d.roll(years), d.roll(years)).attempts(0)
		spec := r.limit.Spec()
		cost := oneOf(d, 1, spec.Units, max(spec.Burst, 1))
		var last time.Duration
		for range 300 {
			res := m.take(cost, 1<<63-1)
			if res.RetryAfter == store.Never {
				break
			}
			if res.OK && (res.Delay < last || res.Delay > 366*24*time.Hour) || !res.OK && res.RetryAfter <= 0 || res.ResetAfter <= 0 {
				t.Fatalf("seed %d: %v, cost %d: %s after a delay of %v", s, r, cost, show(res), last)
			}
			if last = res.Delay; !res.OK {
				break
			}
		}
	}
}
