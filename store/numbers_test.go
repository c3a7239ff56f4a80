package store_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Versions of one limit take turns at one state. What they admit in the long run is tested
// with package versionstest, and here what they answer.

// versions are limits that share a state of a key.
type versions struct {
	limits []*store.Limit
	meter  // limit is the version that has answered last
	made   []versionCharge
}

type versionCharge struct {
	limit   *store.Limit
	receipt store.Receipt
}

// drawVersions draws two or three versions of a limit.
func drawVersions(d dice, a store.Algorithm) *versions {
	v := &versions{}
	v.now.Steady = d.roll(years)
	v.now.Wall = v.now.Steady + d.roll(20*years)
	first := drawRule(d, a).limit
	v.limits = append(v.limits, first)
	for range 1 + d.roll(2) {
		l := drawRule(d, a).limit
		if l.StateName() != first.StateName() { // of another period
			s := first.Spec()
			s.Units = oneOf(d, 1, 2, 3, 10, 1+d.roll(1000), 1+d.roll(2*s.Units))
			if again, err := store.NewLimit(s); err == nil {
				l = again
			} else {
				l = first
			}
		}
		v.limits = append(v.limits, l)
	}
	v.limit = first
	return v
}

// copied returns v as it is after a time, for trying something.
func (v *versions) copied(after time.Duration) *meter {
	m := &meter{limit: v.limit, state: clone([]store.State{v.state})[0], now: v.now}
	m.sleep(after)
	return m
}

// tick is the tick in which the state and the limit count.
func (v *versions) tick() time.Duration {
	switch v.limit.Algorithm() {
	case store.TokenBucket, store.LeakyBucket, store.WarmUp:
		if is := inside.State(&v.state); is.Live {
			return max(v.limit.Tick(), micros(algorithm.ScaleOf(is.Numbers.Unit).Tick()))
		}
	case store.SlidingWindow:
	default:
		return time.Microsecond
	}
	return v.limit.Tick()
}

// step lets time pass, and a version charge, look or settle.
func (v *versions) step(d dice) error {
	last := v.copied(0).take(0, 0)
	period := v.limit.Spec().Period.Microseconds()
	if period == 0 {
		period = time.Hour.Microseconds()
	}
	wait := oneOf(d, 0, 0, 1, last.MoreAfter.Microseconds(), last.MoreAfter.Microseconds()-1, last.ResetAfter.Microseconds()/2,
		last.ResetAfter.Microseconds(), d.roll(period), d.roll(1_000_000), d.roll(period/v.limit.Spec().Units+2))
	v.sleep(micros(max(0, min(wait, years/20))))
	v.limit = oneOf(d, v.limits...)
	if len(v.made) > 0 && d.roll(4) == 0 {
		i := d.roll(int64(len(v.made)))
		c := &v.made[i]
		v.limit = c.limit
		before := v.copied(0).take(0, 0)
		cost := oneOf(d, 0, 0, d.roll(c.receipt.Cost+1), c.receipt.Cost+1+d.roll(3))
		was := c.receipt
		c.receipt = v.settle(was, cost)
		after := v.copied(0).take(0, 0)
		if a := v.limit.Algorithm(); a != store.WarmUp && a != store.SlidingCounter && after.Remaining > before.Remaining+max(0, was.Cost-cost) {
			return fmt.Errorf("settled %+v to %d: %s, was %s", was, cost, show(after), show(before))
		}
		return nil
	}
	cost, within := v.charge(d)
	used, known := v.used()
	r := v.take(cost, within)
	if r.Receipt.Cost > 0 {
		if is, _ := v.used(); known {
			// What is in use is converted to thousandths of a token, and these to units,
			// rounded up.
			more := minus(minus(is, used), rat(cost))
			unit := big.NewRat(1, inside.Terms(v.limit).Token)
			if more.Sign() < 0 || more.Cmp(plus(big.NewRat(1, 1000), unit)) > 0 {
				return fmt.Errorf("%v tokens more are in use after a charge of %d", more, cost)
			}
		}
		v.made = append(v.made, versionCharge{v.limit, r.Receipt})
	}
	return nil
}

// charge draws a cost and a wait.
func (v *versions) charge(d dice) (cost int64, wait time.Duration) {
	left := v.copied(0).take(0, 0).Remaining
	s := v.limit.Spec()
	cost = min(oneOf(d, 0, 1, 1, 1, 2, left, left, left+1, max(s.Burst, 1), s.Units, d.roll(left+1)), store.MaxCost)
	if s.Debt || s.Algorithm == store.WarmUp {
		cost = min(cost, 1000)
	}
	if d.roll(4) == 0 {
		r := v.copied(0).take(cost, 0)
		wait = oneOf(d, 1000, s.Period, time.Second, r.RetryAfter, r.RetryAfter/2, r.RetryAfter-1000, year, 2*year)
		if wait < 0 || wait == store.Never {
			wait = time.Second
		}
	}
	return cost, wait
}

// used is how many tokens of the last charge's version are in use, of a bucket with a
// tick of a microsecond.
func (v *versions) used() (*big.Rat, bool) {
	is := inside.State(&v.state)
	a := v.limit.Algorithm()
	if a != store.TokenBucket && a != store.LeakyBucket || !is.Live || is.Numbers.Token == 0 {
		return rat(0), false
	}
	return big.NewRat(max(0, is.W[algorithm.Tat]-is.Numbers.At(v.now.Steady)), is.Numbers.Token), true
}

func walkVersions(t *testing.T, n uint64, look func(d dice, v *versions) error) {
	t.Helper()
	for s := range traces(t, n) {
		d := seed(s)
		v := drawVersions(d, oneOf(d, rates...)) // slots have no numbers to convert
		for range 1 + d.roll(40) {
			if v.now.Steady > 15*years {
				break
			}
			err := v.step(d)
			if err == nil {
				v.limit = oneOf(d, v.limits...)
				err = look(d, v)
			}
			if err != nil {
				names := ""
				for _, l := range v.limits {
					names += fmt.Sprintf("\n  %v", rule{limit: l})
				}
				t.Fatalf("seed %d: %v now asks, at %d, state %+v: %v%s", s, rule{limit: v.limit}, v.now.Steady, *inside.State(&v.state), err, names)
			}
		}
	}
}

// What is denied to one version passes after RetryAfter, and not a tick earlier, whichever
// version has charged last.
func TestRetryAfterOfVersions(t *testing.T) {
	t.Parallel()
	seen := 0
	walkVersions(t, 4000, func(d dice, v *versions) error {
		cost, wait := v.charge(d)
		r := v.copied(0).take(cost, wait)
		switch {
		case r.OK, r.RetryAfter != store.Never && r.RetryAfter > 100*year: // turns are told for two centuries
			return nil
		case r.RetryAfter == store.Never:
			if r := (&meter{limit: v.limit, now: v.now}).take(cost, 1<<63-1); r.OK {
				return fmt.Errorf("cost %d, wait %v never passes, but does: %s", cost, wait, show(r))
			}
			return nil
		case maxWaitTooShort(v.limit, v.now, cost, wait):
			return checkMaxWaitTooShort(v.limit, v.now, cost, wait)
		}
		seen++
		if r.RetryAfter <= 0 {
			return fmt.Errorf("cost %d, wait %v: %s", cost, wait, show(r))
		}
		if then := v.copied(r.RetryAfter).take(cost, wait); !then.OK {
			return fmt.Errorf("cost %d, wait %v: %s; then: %s", cost, wait, show(r), show(then))
		}
		if before := v.copied(max(0, r.RetryAfter-v.tick())).take(cost, wait); before.OK {
			return fmt.Errorf("cost %d, wait %v: %s; a tick earlier: %s", cost, wait, show(r), show(before))
		}
		return nil
	})
	enough(t, seen)
}

// More than is left to one version is left after MoreAfter, and not a tick earlier,
// whichever version has charged last.
func TestMoreAfterOfVersions(t *testing.T) {
	t.Parallel()
	walkVersions(t, 4000, func(d dice, v *versions) error {
		cost, wait := oneOf[int64](d, 0, 1), oneOf(d, 0, micros(1+d.roll(2_000_000)))
		m := v.copied(0)
		r := m.take(cost, wait)
		tick := v.tick()
		fresh := (&meter{limit: v.limit, now: v.now}).take(0, wait).Remaining
		return moreAfter(r, fresh, tick, func(after time.Duration) int64 {
			then := &meter{limit: v.limit, state: clone([]store.State{m.state})[0], now: m.now}
			then.sleep(after)
			return then.take(0, wait).Remaining
		})
	})
}

// Looks and denials leave what each version answers as it is.
func TestVersionsLookWithoutATrace(t *testing.T) {
	t.Parallel()
	walkVersions(t, 2000, func(d dice, v *versions) error {
		var want []store.Result
		for _, l := range v.limits {
			m := v.copied(0)
			m.limit = l
			want = append(want, m.take(0, 0))
		}
		m := v.copied(0)
		for range 3 {
			m.limit = oneOf(d, v.limits...)
			m.take(0, time.Hour)
			charges := []store.Charge{{Key: "k", Limit: m.limit, Cost: 1}, {Key: "k", Limit: m.limit, Cost: store.MaxCost}}
			states := []store.State{m.state, {}}
			if !store.Decide(m.now, charges, states, make([]store.Result, 2)) {
				m.state = states[0]
			}
		}
		for i, l := range v.limits {
			m.limit = l
			unit := inside.State(&v.state).Numbers.Unit
			if l.Algorithm() == store.IntervalBucket && unit < 0 && inside.Terms(l).Numbers.Unit != unit {
				continue // it doesn't know the state's calendar, and another look may bring it up to date
			}
			if got := m.take(0, 0); got != want[i] {
				return fmt.Errorf("%v: %s, was %s", rule{limit: l}, show(got), show(want[i]))
			}
		}
		return nil
	})
}

// What several limits deny together passes when the last of them lets it pass.
func TestRetryAfterOfSeveral(t *testing.T) {
	t.Parallel()
	seen := 0
	for s := range traces(t, 1500) {
		d := seed(s)
		var sets []*versions
		for range 2 + d.roll(2) {
			sets = append(sets, drawVersions(d, oneOf(d, rates...))) // slots have no turns
		}
		now := sets[0].now
		decide := func(after time.Duration, cost int64, keep bool) ([]store.Result, bool, time.Duration) {
			charges, states, results := make([]store.Charge, len(sets)), make([]store.State, len(sets)), make([]store.Result, len(sets))
			tick := time.Duration(0)
			for i, v := range sets {
				charges[i] = store.Charge{Key: "k", Limit: v.limit, Cost: cost}
				states[i] = clone([]store.State{v.state})[0]
				tick = max(tick, v.tick())
			}
			at := now
			at.Steady, at.Wall = at.Steady+after.Microseconds(), at.Wall+after.Microseconds()
			granted := store.Decide(at, charges, states, results)
			for i, v := range sets {
				if keep {
					v.state = states[i]
				}
			}
			return results, granted, tick
		}
		for range 20 {
			by := oneOf(d, 0, 1, d.roll(1_000_000), d.roll(3_600_000_000))
			now.Steady, now.Wall = now.Steady+by, now.Wall+by
			for _, v := range sets {
				v.now, v.limit = now, oneOf(d, v.limits...)
			}
			cost := 1 + d.roll(5)
			results, granted, tick := decide(0, cost, true)
			retry := time.Duration(0)
			for _, r := range results {
				retry = max(retry, r.RetryAfter)
			}
			if granted || retry == store.Never || retry > 5*year {
				continue
			}
			seen++
			if results, granted, _ := decide(retry, cost, false); !granted {
				t.Fatalf("seed %d: denied for %v, then %+v", s, retry, results)
			}
			if _, granted, _ := decide(max(0, retry-tick), cost, false); granted {
				t.Fatalf("seed %d: denied for %v, and passes a tick earlier", s, retry)
			}
		}
	}
	enough(t, seen)
}

// A plan is lowered while a key has used up the old one.
func TestLoweredPlan(t *testing.T) {
	const day = 24 * time.Hour
	large := func(debt bool) store.Spec {
		return store.Spec{Units: 1_000_000, Period: day, Burst: 1_000_000, Debt: debt}
	}
	small := func(debt bool) store.Spec { return store.Spec{Units: 1000, Period: day, Burst: 1000, Debt: debt} }
	// token is how long the old plan takes to drain one.
	const token = day / 1_000_000
	for _, tt := range []struct {
		name  string
		debt  bool
		wait  time.Duration
		more  int64 // by which the old charge is raised
		fewer int64 // by which it is lowered
		want  int64 // the old plan's tokens that have to drain
	}{
		{name: "alone", want: 1_000_000 - 999},
		{name: "with debt", debt: true, want: 1_000_000 - 1000},
		{name: "raised", more: 500, want: 1_000_000 - 999 + 500},
		{name: "with debt, raised", debt: true, more: 500, want: 1_000_000 - 1000 + 500},
		{name: "lowered", fewer: 500, want: 1_000_000 - 999 - 500},
		{name: "an hour and 12 minutes of waiting", wait: 72 * time.Minute, want: 1_000_000 - 999 - 50},
		{name: "unbounded waiting", wait: year, want: 1_000_000 - 999},
		{name: "with debt, unbounded waiting", debt: true, wait: store.Never, want: 1_000_000 - 1000},
	} {
		m := newMeter(t, large(tt.debt))
		m.sleep(time.Hour)
		first := m.must(1_000_000)
		before, after := m.limit, newMeter(t, small(tt.debt)).limit
		m.limit = after
		m.take(1, tt.wait)
		if m.limit = before; tt.more > 0 {
			m.settle(first, 1_000_000+tt.more)
		} else if tt.fewer > 0 {
			m.settle(first, 1_000_000-tt.fewer)
		}
		m.limit = after
		r := m.take(1, tt.wait)
		if want := time.Duration(tt.want) * token; r.OK || r.RetryAfter != want || r.Remaining != 0 {
			t.Errorf("%s: %s, want retry %v", tt.name, show(r), want)
		}
		if is := inside.State(&m.state).Numbers; is.Burst != 1_000_000 {
			t.Errorf("%s: a denial has converted the state: %+v", tt.name, is)
		}
		m.sleep(r.RetryAfter - time.Microsecond)
		if r := m.take(1, tt.wait); r.OK {
			t.Errorf("%s: passes early: %s", tt.name, show(r))
		}
		m.sleep(time.Microsecond)
		if r := m.take(1, tt.wait); !r.OK {
			t.Errorf("%s: %s", tt.name, show(r))
		}
		// From now on the new plan's rate counts.
		if r := m.take(1, 0); r.OK || tt.wait != 72*time.Minute && r.RetryAfter != day/1000 {
			t.Errorf("%s, the next: %s", tt.name, show(r))
		}
	}
}

// A charge made before the numbers last changed isn't refunded, even if they have changed
// back. One made after is.
func TestRefundOfAnotherVersion(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 1, Period: time.Hour, Burst: 10},
		{Units: 1, Period: time.Hour, Burst: 10, Debt: true},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Hour, Burst: 9, Queue: 1},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Hour, Burst: 10},
		{Algorithm: store.IntervalBucket, Units: 1, Window: store.Hourly, Burst: 10},
	} {
		for _, between := range []time.Duration{time.Microsecond, time.Second} {
			m := newMeter(t, s)
			m.sleep(72 * time.Hour)
			a := m.limit
			s.Units, s.Burst = 2, s.Burst+5
			b := newMeter(t, s).limit
			s.Units, s.Burst = 1, s.Burst-5
			first := m.must(3)
			m.sleep(between)
			m.limit = b
			second := m.must(1)
			m.sleep(between)
			m.limit = a
			left := m.take(0, 0).Remaining
			m.settle(first, 1) // by a version whose numbers the state doesn't have
			m.left(left)
			third := m.must(2)
			m.settle(first, 0)
			m.limit = b
			m.settle(second, 0)
			m.limit = a
			m.left(left - 2)
			m.sleep(between)
			m.settle(third, 0)
			if got := m.take(0, 0).Remaining; got > left || got < left-1 { // less thousandths
				t.Errorf("%+v, %v between: %d left, want %d", s, between, got, left)
			}
			// What a settlement adds is always charged.
			m.must(1)
			m.limit = b
			before := m.take(0, 0)
			m.settle(second, 3)
			m.limit = a
			if after := m.take(0, 0); after.ResetAfter <= before.ResetAfter && after.Remaining >= before.Remaining {
				t.Errorf("%+v: raised: %s, was %s", s, show(after), show(before))
			}
		}
	}
}

// The same for turns of a WarmUp.
func TestRefundOfAnotherWarmUp(t *testing.T) {
	s := store.Spec{Algorithm: store.WarmUp, Units: 1, Period: time.Second, WarmUp: 10 * time.Second}
	m := newMeter(t, s)
	m.sleep(time.Hour)
	a := m.limit
	s.Units = 2
	b := newMeter(t, s).limit
	first := m.must(1)
	m.limit = b
	m.take(1, time.Hour)
	m.limit = a
	for _, cost := range []int64{0, 1} { // before the numbers have changed back, and after
		if cost > 0 {
			m.take(cost, time.Hour)
		}
		turn := m.take(1, 0).RetryAfter
		m.settle(first, 0)
		if got := m.take(1, 0).RetryAfter; got != turn {
			t.Errorf("the next turn comes in %v, was to in %v", got, turn)
		}
	}
	for _, l := range []*store.Limit{a, b} {
		m.limit = l
		turn := m.take(1, 0).RetryAfter
		m.settle(first, 3)
		if got := m.take(1, 0).RetryAfter; got <= turn {
			t.Errorf("raised by two: the next turn comes in %v, was to in %v", got, turn)
		}
	}
}

// What a settlement adds is charged whatever numbers the state has, also to an idle key.
func TestRaisedOnAnotherVersionsState(t *testing.T) {
	for _, a := range rates {
		for _, idle := range []bool{false, true} {
			s := store.Spec{Algorithm: a, Units: 5, Period: time.Hour}
			if a == store.WarmUp {
				s.WarmUp = time.Minute
			}
			m := newMeter(t, s)
			m.sleep(72 * time.Hour)
			was := m.limit
			mine := m.take(1, 0).Receipt
			s.Units = 10
			m.limit = newMeter(t, s).limit
			if idle {
				m.sleep(10 * time.Hour)
			} else {
				m.take(1, time.Hour)
			}
			before := m.take(0, 0)
			is := m.limit
			m.limit = was
			m.settle(mine, 4)
			m.limit = is
			if after := m.take(0, 0); after.Remaining > before.Remaining-3 && a != store.WarmUp || after.ResetAfter <= before.ResetAfter && (a == store.WarmUp || idle) {
				t.Errorf("%v, idle %v: %s, was %s", a, idle, show(after), show(before))
			}
		}
	}
}

// In a rolling deploy from 10/s to 100/s, old and new instances ask in turn. A demand that
// the larger limit has room for starves neither, and no more than it allows passes.
func TestRollingDeploy(t *testing.T) {
	before, after := newMeter(t, store.Spec{Units: 10, Period: sec}).limit, newMeter(t, store.Spec{Units: 100, Period: sec}).limit
	for _, tt := range []struct {
		demand, of, old int // requests a second; old of each `of` at old instances
		wantOld, want   float64
	}{
		{20, 2, 1, 10, 10},
		{60, 10, 9, 16, 6},
		{400, 2, 1, 0, 100},
	} {
		m := &meter{t: t, now: store.Now{Steady: 1_000_000_000}}
		var passed [2]int64
		const seconds = 60
		for i := range tt.demand * seconds * 2 {
			if i == tt.demand*seconds { // the bursts are over
				passed = [2]int64{}
			}
			version := 1
			if m.limit = after; i%tt.of < tt.old {
				m.limit, version = before, 0
			}
			passed[version] += m.take(1, 0).Receipt.Cost
			m.sleep(sec / time.Duration(tt.demand))
		}
		old, is := float64(passed[0])/seconds, float64(passed[1])/seconds
		t.Logf("%d/s, %d of %d at old instances: %.1f + %.1f pass a second", tt.demand, tt.old, tt.of, old, is)
		if old < tt.wantOld-1 || old > tt.wantOld+1 || is < tt.want-1 || is > tt.want+1 || old+is > 100.1 {
			t.Errorf("%d/s, %d of %d at old instances: %.1f + %.1f pass a second, want %v + %v", tt.demand, tt.old, tt.of, old, is, tt.wantOld, tt.want)
		}
	}
}

// If a rate can be counted, but not beside its warm-up, the error is about the warm-up.
func TestWarmUpThatIsRejected(t *testing.T) {
	spec := store.Spec{Name: "a", Algorithm: store.WarmUp, Units: 500201, Period: time.Minute, WarmUp: 476156 * time.Microsecond}
	_, err := store.NewLimit(spec)
	var problem *store.SpecError
	if !errors.As(err, &problem) || problem.Field != "WarmUp" {
		t.Errorf("%v", err)
	}
	spec.WarmUp = 480 * time.Millisecond
	if _, err := store.NewLimit(spec); err != nil {
		t.Errorf("what the error says to write: %v", err)
	}
}
