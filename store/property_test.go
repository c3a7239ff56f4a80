package store_test

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/engine"
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
			if r := fresh.take(c.cost, c.maxWait); r.OK {
				return fmt.Errorf("cost %d never passes, but does: %s", c.cost, show(r))
			}
			return nil
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

// Until MoreAfter there is no more than r says, for algorithms that can tell to the
// tick (an empty IntervalBucket with a debt can't). From then on there is more, unless
// no more fits.
func TestMoreAfter(t *testing.T) {
	t.Parallel()
	seen := map[store.Algorithm]int{}
	walk(t, 3000, func(d dice, b *bench) error {
		l := b.rules[0].limit
		c := drawCharge(d, b, 0, 1_000_000, b.resolution())
		m := b.attempts(0)
		r := m.take(c.cost, c.maxWait)
		after, known := l.Engine(engine.Access{}).MoreAfter(&r)
		switch a := l.Algorithm(); {
		case a == store.Concurrency || !known:
			if known || a != store.Concurrency {
				return fmt.Errorf("%s: %v, %v", show(r), after, known)
			}
			return nil
		case !r.OK:
			if after < 0 || after > r.RetryAfter {
				return fmt.Errorf("%s: more after %v", show(r), after)
			}
			return nil
		case a == store.WarmUp && c.cost == 0:
			return nil // a guess
		case r.Remaining >= (&meter{limit: l, now: m.now}).take(0, 0).Remaining:
			return nil // full
		case a == store.TokenBucket, a == store.LeakyBucket, a == store.WarmUp, a == store.IntervalBucket && r.Remaining > 0 && l.Spec().Period > 0:
			early := *m
			early.state = clone([]store.State{m.state})[0]
			ticks := pick[int64](a == store.WarmUp, 3, 2) // how cold it was is told to the tick
			if early.sleep(after - micros(ticks*b.resolution())); early.now.Steady > m.now.Steady && early.take(0, 0).Remaining > r.Remaining {
				return fmt.Errorf("cost %d: %s, more after %v, and ticks before", c.cost, show(r), after)
			}
		}
		seen[l.Algorithm()]++
		tick := micros(b.resolution())
		if m.sleep((after + tick - 1).Truncate(tick)); m.take(0, 0).Remaining <= r.Remaining {
			return fmt.Errorf("cost %d: %s, no more after %v", c.cost, show(r), after)
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
		left := b.try(0, 0, 0).Remaining
		if s.Debt {
			if left == 0 {
				return nil
			}
			left++ // one more passes on credit
		}
		if left > 0 && s.Algorithm != store.WarmUp && !s.Debt {
			if r := b.try(0, left, 0); !r.OK {
				return fmt.Errorf("%d remain: %s", left, show(r))
			}
			if r := b.try(0, left+1, 0); r.OK {
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
			store.Decide(m.now, []store.Charge{{Limit: m.limit, Cost: 1}}, states, results)
			m.state = states[0]
			if !results[0].OK {
				return fmt.Errorf("%d of %d remaining: %s", i+1, left, show(results[0]))
			}
		}
		if r := m.take(1, 0); r.OK {
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

// Changing a limit's numbers keeps what has been consumed: a bucket stays
// taken until the instant until which it was, or as a whole; a window keeps its
// count. Nothing is given back, and no call is denied for longer than it takes
// to fill what there now is.
func TestChangedNumbersKeepWhatWasConsumed(t *testing.T) {
	t.Parallel()
	seen := 0
	walk(t, 4000, func(d dice, b *bench) error {
		old := b.rules[0]
		a := old.limit.Algorithm()
		next := drawRule(d, a)
		if (old.bounds == nil) != (next.bounds == nil) || old.window != next.window {
			return nil
		}
		before := b.try(0, 0, 0)
		changed := &meter{limit: next.limit, state: clone(b.states[:1])[0], now: b.now}
		fresh := (&meter{limit: next.limit, now: b.now}).take(0, 0)
		after := changed.take(0, 0)
		if after.Remaining > fresh.Remaining {
			return fmt.Errorf("now %v: %s; a new key %s", next, show(after), show(fresh))
		}
		seen++
		spec, was := next.limit.Spec(), old.limit.Spec()
		switch a {
		case store.TokenBucket, store.LeakyBucket:
			// What was consumed is so many tokens; what was promised is so much time.
			atLeast := carried(was, spec, before.ResetAfter-2*micros(b.resolution()))
			atMost := carried(was, spec, before.ResetAfter)
			if after.ResetAfter < atLeast-micros(1) || after.ResetAfter > atMost+200*ms {
				return fmt.Errorf("%s; now %v: %s, want reset from %v to %v", show(before), next, show(after), atLeast, atMost)
			}
		case store.FixedWindow:
			if was.Period == spec.Period && after.Remaining != max(0, spec.Units-(was.Units-before.Remaining)) && before.Remaining > 0 {
				return fmt.Errorf("%s; now %v: %s", show(before), next, show(after))
			}
		case store.Concurrency:
			if after.Remaining != max(0, spec.Units-(was.Units-before.Remaining)) {
				return fmt.Errorf("%s; now %v: %s", show(before), next, show(after))
			}
		case store.WarmUp:
			if b.try(0, 1, 0).RetryAfter > 2*micros(b.resolution()) && after.Remaining > 0 {
				return fmt.Errorf("%s; now %v: %s", show(before), next, show(after))
			}
		}
		// And it goes on: the changed state obeys the rules of the new limit.
		again := changed.take(0, 0)
		if again != after {
			return fmt.Errorf("now %v: %s, then %s", next, show(after), show(again))
		}
		if views := a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket || a == store.SlidingCounter; views {
			// A look writes nothing, so it is the other version that goes on; a charge does.
			if after = changed.take(1, 0); !after.OK {
				return nil
			}
		}
		if after.ResetAfter < 10*365*24*time.Hour {
			changed.sleep(after.ResetAfter)
			fresh := (&meter{limit: next.limit, now: changed.now}).take(0, 0)
			if r := changed.take(0, 0); a != store.Concurrency && r != fresh {
				return fmt.Errorf("now %v: %s; then %s", next, show(after), show(r))
			}
		}
		return nil
	})
	enough(t, seen)
}

// carried is the ResetAfter of a bucket whose numbers have changed.
func carried(was, is store.Spec, reset time.Duration) time.Duration {
	left := rat(max(reset.Microseconds(), 0))
	used := least(left, filling(was))
	ahead := minus(left, used)
	if token(was).Cmp(token(is)) != 0 { // carried over, for no more than a year
		ahead = least(ahead, rat(365*24*3600*1_000_000))
	}
	used = least(times(over(used, token(was)), token(is)), filling(is))
	return micros(ceil(plus(used, ahead)))
}

// token is the time, in microseconds, in which one comes.
func token(s store.Spec) *big.Rat { return big.NewRat(s.Period.Microseconds(), s.Units) }

// filling is the time in which an empty bucket gets full.
func filling(s store.Spec) *big.Rat {
	full := max(s.Burst, 0)
	if s.Algorithm == store.LeakyBucket {
		full++
	}
	return times(token(s), rat(full))
}

// However versions of a limit that are in use at once alternate, they let no more pass
// than the most generous of each of their numbers would, and one more burst whenever a
// version returns; and what one of them may drop, none of them misses.
func TestVersionsTakeTurns(t *testing.T) {
	t.Parallel()
	for seedOf := range traces(t, 2000) {
		d := seed(seedOf)
		a := oneOf(d, store.TokenBucket, store.IntervalBucket)
		var (
			limits    []*store.Limit
			burst     int64
			rate      = new(big.Rat) // units a microsecond
			slowest   = new(big.Rat) // microseconds a unit
			tick      int64
			any       = a == store.TokenBucket && d.roll(2) == 0
			now       = d.roll(years)
			start     = now
			state     store.State
			passed    int64
			forgotten = int64(math.MaxInt64)
			charged   = map[*store.Limit]int64{} // when it last did
			returns   int64
		)
		for range 2 + d.roll(2) {
			spec := store.Spec{Name: "x", Algorithm: a, Units: 1 + d.roll(20), Burst: 1 + d.roll(30),
				Period: oneOf(d, time.Millisecond, 7*time.Millisecond, time.Second, time.Minute)}
			if any {
				spec.Units, spec.Period = anyNumber(d, store.MaxCost/4), micros(anyNumber(d, 2*years))
				spec.Burst = oneOf(d, spec.Burst, anyNumber(d, store.MaxCost))
			}
			l, err := store.NewLimit(spec)
			if err != nil {
				if any { // too long to fill
					continue
				}
				t.Fatal(err)
			}
			limits = append(limits, l)
			burst, tick = max(burst, spec.Burst), max(tick, l.Tick().Microseconds())
			rate, slowest = most(rate, over(rat(1), token(spec))), most(slowest, token(spec))
		}
		if len(limits) < 2 || times(slowest, rat(burst)).Cmp(rat(years/2)) > 0 {
			continue
		}
		span := ceil(times(slowest, rat(5)))
		units := int64(0)
		for _, l := range limits {
			units = max(units, l.Spec().Units)
		}
		for range 300 {
			if now += oneOf(d, 0, d.roll(2000), d.roll(200_000), d.roll(30_000_000)); any {
				now += oneOf(d, 0, d.roll(span), d.roll(1000))
			}
			if now > 15*years {
				break
			}
			if now >= forgotten {
				state = store.State{}
			}
			l := oneOf(d, limits...)
			charges := []store.Charge{{Limit: l, Cost: d.roll(4)}}
			results := make([]store.Result, 1)
			states := []store.State{state}
			if any {
				left := (&meter{limit: l, state: state, now: store.Now{Steady: now}}).take(0, 0).Remaining
				charges[0].Cost = oneOf(d, 0, 1, left, left+1, d.roll(left+1))
			}
			store.Decide(store.Now{Steady: now}, charges, states, results)
			state = states[0]
			passed += results[0].Receipt.Cost
			if results[0].Receipt.Cost > 0 {
				idle := min(ceil(filling(l.Spec())), time.Hour.Microseconds())
				if last, has := charged[l]; has && a == store.TokenBucket && now >= last+idle {
					returns++
				}
				charged[l] = now
			}
			forgotten = now + l.Lifetime(store.Now{Steady: now}, &state, &results[0]).Microseconds()
			allowed := burst*(1+returns) + ceil(times(rate, rat(now-start)))
			if any {
				allowed += ceil(times(rate, rat(tick)))
			}
			if a == store.IntervalBucket { // an interval's tokens come at once
				allowed += units
			}
			if passed > allowed {
				t.Fatalf("seed %d: %v of %v and %v: %d passed in %v, want %d at the most",
					seedOf, a, limits[0].Spec(), limits[1].Spec(), passed, micros(now-start), allowed)
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
		a := oneOf(d, algorithms[:len(algorithms)-1]...) // slots have no turns
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

// Versions whose ticks differ take turns within a tick, thousands of times: what lies
// between two ticks isn't given back each time.
func TestVersionsTakeTurnsWithinATick(t *testing.T) {
	var limits []*store.Limit
	for _, s := range []store.Spec{{Units: 1000, Period: time.Second, Burst: 10}, {Units: 999, Period: time.Second, Burst: 1}} {
		limits = append(limits, newMeter(t, s).limit)
	}
	m := &meter{now: store.Now{Steady: 1_000_000}}
	passed := int64(0)
	for i := 0; m.now.Steady < 2_000_000; i++ {
		m.limit = limits[i%2]
		passed += m.take(1, 0).Receipt.Cost
		m.sleep(23 * time.Microsecond)
	}
	if passed < 10+980 || passed > 10+1000 {
		t.Errorf("%d pass in a second, want 990 to 1010", passed)
	}
}

// What doesn't fit into a lowered limit is kept: the larger one finds it again each time
// that the smaller one has looked.
func TestALoweredLimitKeepsWhatDoesNotFit(t *testing.T) {
	spec := func(a store.Algorithm, n int64, d time.Duration) store.Spec {
		return store.Spec{Algorithm: a, Units: n, Period: d, Burst: n}
	}
	for _, tt := range []struct {
		algorithm store.Algorithm
		small     int64 // units a day
		found     int64
	}{
		{store.TokenBucket, 3, 0},
		{store.TokenBucket, 1, 0},
		{store.IntervalBucket, 1, 0}, // it counts units, not time
	} {
		m := newMeter(t, spec(tt.algorithm, 1000, time.Second))
		large, small := m.limit, newMeter(t, spec(tt.algorithm, tt.small, 24*time.Hour)).limit
		for range 3 {
			m.take(1000-tt.found, 0)
			m.limit = small
			m.take(0, 0)
			m.limit = large
			m.left(tt.found)
		}
	}
}

// Versions of a window that take turns a thousand times a second: they let through no
// more than both would by themselves, and never starve.
func TestVersionsOfWindowsTakeTurns(t *testing.T) {
	const span = 24 * time.Second
	every := func(d time.Duration, n int64) store.Spec {
		return store.Spec{Algorithm: store.FixedWindow, Units: n, Window: store.Every(d)}
	}
	per := func(a store.Algorithm, d time.Duration, n int64) store.Spec {
		return store.Spec{Algorithm: a, Units: n, Period: d}
	}
	for _, pair := range [][2]store.Spec{
		{per(store.FixedWindow, sec, 100), per(store.FixedWindow, 6*sec, 600)},
		{per(store.FixedWindow, sec, 100), every(6*sec, 600)},
		{every(sec, 100), every(6*sec, 600)},
		{every(sec, 100), every(1100*ms, 110)},
		{per(store.SlidingCounter, sec, 100), per(store.SlidingCounter, 6*sec, 600)},
		{per(store.SlidingCounter, sec, 100), per(store.SlidingCounter, 1100*ms, 110)},
		{per(store.SlidingWindow, sec, 100), per(store.SlidingWindow, 1100*ms, 110)},
		{per(store.SlidingLog, sec, 100), per(store.SlidingLog, 1100*ms, 110)},
		{per(store.IntervalBucket, sec, 100), per(store.IntervalBucket, 6*sec, 600)},
		{per(store.IntervalBucket, sec, 100), {Algorithm: store.IntervalBucket, Units: 600, Window: store.Every(6 * sec)}},
	} {
		limits := []*store.Limit{newMeter(t, pair[0]).limit, newMeter(t, pair[1]).limit}
		pass := func(turn ...*store.Limit) (passed int64) {
			m := &meter{now: store.Now{Steady: 1_000_000, Wall: 1_000_000}}
			for i := 0; m.now.Steady < 1_000_000+span.Microseconds(); i++ {
				m.limit = turn[i%len(turn)]
				passed += m.take(1, 0).Receipt.Cost
				m.sleep(970 * time.Microsecond)
			}
			return passed
		}
		a, b, both := pass(limits[0]), pass(limits[1]), pass(limits...)
		if both > a+b || both < min(a, b)/3 {
			t.Errorf("%v and %v: %d pass in %v, by themselves %d and %d", pair[0], pair[1], both, span, a, b)
		}
	}
}

// A limit may change between windows from the first charge, which are by the steady
// clock, and those of the calendar: what is consumed stays consumed.
func TestWindowsByOtherClocks(t *testing.T) {
	for _, a := range []store.Algorithm{store.FixedWindow, store.IntervalBucket} {
		period := newMeter(t, store.Spec{Algorithm: a, Units: 5, Period: time.Hour}).limit
		daily := newMeter(t, store.Spec{Algorithm: a, Units: 5, Window: store.Daily}).limit
		for _, wall := range []int64{20 * years, -26 * years} {
			for _, limits := range [][2]*store.Limit{{period, daily}, {daily, period}} {
				now := func(l *store.Limit, at int64) store.Now { // as memory tells it
					if l.FollowsCalendar() {
						return store.Now{Steady: at, Wall: wall + at}
					}
					return store.Now{Steady: at}
				}
				m := &meter{limit: limits[0], now: now(limits[0], 1_000_000)}
				m.take(5, 0)
				m.limit, m.now = limits[1], now(limits[1], 60_000_000)
				if r := m.take(1, 0); r.OK {
					t.Errorf("%v, %v, wall %d: %s", limits[0].Spec(), limits[1].Spec(), wall, show(r))
				}
			}
		}
	}
}
