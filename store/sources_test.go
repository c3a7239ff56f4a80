package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// The numbers of other limiters' documents and bug reports, run on the steps.

// desk drives several limits on one key by hand, each charged the same.
type desk struct {
	limits []*store.Limit
	states []store.State
	now    store.Now
}

func newDesk(t *testing.T, specs ...store.Spec) *desk {
	t.Helper()
	d := &desk{states: make([]store.State, len(specs))}
	for i, s := range specs {
		s.Name = fmt.Sprintf("limit%d", i)
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		d.limits = append(d.limits, l)
	}
	return d
}

func (d *desk) sleep(by time.Duration) {
	d.now.Steady += by.Microseconds()
	d.now.Wall += by.Microseconds()
}

func (d *desk) take(cost int64, maxWait time.Duration) (bool, []store.Result) {
	charges, results := make([]store.Charge, len(d.limits)), make([]store.Result, len(d.limits))
	for i, l := range d.limits {
		charges[i] = store.Charge{Key: "k", Limit: l, Cost: cost, MaxWait: maxWait}
	}
	return store.Decide(d.now, charges, d.states, results), results
}

// passes counts how many of n requests at one instant pass.
func (d *desk) passes(n int) (passed int) {
	for range n {
		if ok, _ := d.take(1, 0); ok {
			passed++
		}
	}
	return passed
}

// delay is how long a granted request waits: as long as its slowest limit says.
func delay(results []store.Result) (longest time.Duration) {
	for _, r := range results {
		longest = max(longest, r.Delay)
	}
	return longest
}

// step is one request in a script.
type step struct {
	at      time.Duration // since the start
	cost    int64
	maxWait time.Duration
	// What is expected: denied, with the time after which it would pass, or
	// granted after a delay.
	denied       bool
	delay, retry time.Duration
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestScripts(t *testing.T) {
	const day = 24 * time.Hour
	yes := func(at time.Duration, cost int64, delay time.Duration) step {
		return step{at: at, cost: cost, maxWait: time.Hour, delay: delay}
	}
	now := func(at time.Duration, cost int64) step { return step{at: at, cost: cost} }
	no := func(at time.Duration, cost int64, retry time.Duration) step {
		return step{at: at, cost: cost, denied: true, retry: retry}
	}
	for _, tc := range []struct {
		name  string
		spec  store.Spec
		steps []step
	}{
		{
			"prepay: each pays for the one before it",
			store.Spec{Units: 1, Period: 2 * sec, Debt: true},
			[]step{yes(0, 1, 0), yes(0, 6, 2*sec), yes(2*sec, 2, 12*sec), no(14*sec, 1, 4*sec), now(18*sec, 1)},
		},
		{
			"pay as you go: each pays for itself",
			store.Spec{Units: 1, Period: 2 * sec, Burst: 6},
			[]step{now(0, 1), no(0, 6, 2*sec), yes(0, 6, 2*sec), no(2*sec, 2, 4*sec), now(6*sec, 2)},
		},
		{
			"greedy: one every twelve seconds",
			store.Spec{Units: 5, Period: time.Minute},
			[]step{
				now(0, 5), no(0, 1, 12*sec), no(12*sec-1000, 1, 1000), now(12*sec, 1), no(12*sec, 1, 12*sec),
				now(24*sec, 1), now(36*sec, 1), now(48*sec, 1), now(60*sec, 1), no(60*sec, 1, 12*sec),
			},
		},
		{
			"interval: five after a minute",
			store.Spec{Algorithm: store.IntervalBucket, Units: 5, Period: time.Minute},
			[]step{
				now(0, 5), no(0, 1, time.Minute), no(12*sec, 1, 48*sec), no(time.Minute-1000, 1, 1000),
				now(time.Minute, 5), no(time.Minute, 1, time.Minute),
			},
		},
		{
			"leap array: a bucket exactly one interval old is out",
			store.Spec{Algorithm: store.SlidingWindow, Units: 10, Period: sec, Buckets: 2},
			[]step{
				now(0, 10), no(499*ms, 1, 501*ms), no(sec-1000, 1, 1000), now(sec, 10), no(sec, 1, sec),
				no(1500*ms, 1, 500*ms), now(2*sec, 10),
			},
		},
		{
			"sliding window: buckets leave one by one",
			store.Spec{Algorithm: store.SlidingWindow, Units: 10, Period: sec, Buckets: 10},
			[]step{now(50*ms, 4), now(150*ms, 6), no(960*ms, 1, 40*ms), now(sec, 4), no(sec, 1, 100*ms), now(1100*ms, 6)},
		},
		{
			"a cost above the burst never passes",
			store.Spec{Units: 10, Period: sec, Burst: 3},
			[]step{no(0, 4, store.Never), now(0, 3), no(0, 4, store.Never)},
		},
		{
			"nor does one above the limit of a window",
			store.Spec{Algorithm: store.FixedWindow, Units: 10, Period: sec},
			[]step{no(0, 11, store.Never), now(0, 10), no(300*ms, 10, 700*ms)},
		},
		{
			"fixed window: reserving in the windows to come",
			store.Spec{Algorithm: store.FixedWindow, Units: 5, Period: 10 * sec},
			[]step{
				now(0, 3), yes(sec, 3, 9*sec), yes(sec, 2, 0), // still fits the first
				yes(2*sec, 3, 18*sec), // 3 + 3 are not split over two
				yes(2*sec, 2, 18*sec), yes(2*sec, 1, 28*sec), no(11*sec, 1, 19*sec),
			},
		},
		{
			"sliding log: a denied retry costs nothing",
			store.Spec{Algorithm: store.SlidingLog, Units: 2, Period: sec},
			[]step{now(0, 1), now(0, 1), no(0, 1, sec), no(300*ms, 1, 700*ms), no(999*ms, 1, ms), now(sec, 1), now(sec, 1), no(sec, 1, sec)},
		},
		{
			"calendar: a month is as long as it is",
			store.Spec{Algorithm: store.FixedWindow, Units: 1, Window: store.Monthly},
			[]step{now(30*day, 1), no(30*day, 1, day), now(31*day, 1), no(32*day, 1, 27*day), now((31+28)*day, 1)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(t, tc.spec)
			for i, s := range tc.steps {
				d.now.Steady, d.now.Wall = s.at.Microseconds(), s.at.Microseconds()
				ok, rs := d.take(s.cost, s.maxWait)
				if r := rs[0]; ok == s.denied || r.Delay != s.delay || r.RetryAfter != s.retry {
					t.Fatalf("step %d, cost %d at %v: %s; want denied %v, delay %v, retry %v",
						i, s.cost, s.at, show(r), s.denied, s.delay, s.retry)
				}
			}
		})
	}
}

// Guava's SmoothBursty: with 10 a second and a second idle, 11 pass.
func TestElevenAfterAnIdleSecond(t *testing.T) {
	d := newDesk(t, store.Spec{Units: 10, Period: sec, Debt: true})
	for range 3 {
		if got := d.passes(100); got != 11 {
			t.Fatalf("%d pass, want 11", got)
		}
		d.sleep(1100 * ms) // a tenth to pay for the eleventh, then a second idle
	}
	// Without debt it is the burst.
	if got := newDesk(t, store.Spec{Units: 10, Period: sec}).passes(100); got != 10 {
		t.Fatalf("%d pass, want 10", got)
	}
}

// Guava's SmoothWarmingUp, 5 a second and warm after 4 s.
func TestWarmUpWaits(t *testing.T) {
	d := newDesk(t, store.Spec{Algorithm: store.WarmUp, Units: 5, Period: sec, WarmUp: 4 * sec})
	run := func(want ...time.Duration) {
		t.Helper()
		for i, w := range want {
			ok, rs := d.take(1, time.Hour)
			if !ok || rs[0].Delay != w*ms {
				t.Fatalf("request %d waits %v, want %v", i, rs[0].Delay, w*ms)
			}
			d.sleep(rs[0].Delay)
		}
	}
	cold := []time.Duration{0, 580, 540, 500, 460, 420, 380, 340, 300, 260, 220, 200, 200, 200, 200, 200}
	run(cold...)
	d.sleep(10 * sec)
	run(cold...)
	// Four permits are left of twenty; half a warm-up, once the last one's turn
	// is over, stores ten more.
	d.sleep(200*ms + 2*sec)
	run(0, 340, 300, 260, 220, 200, 200)
}

// A rate beside a count: exactly what passes is charged.
func TestRateBesideACount(t *testing.T) {
	d := newDesk(t,
		store.Spec{Units: 10, Period: sec, Debt: true},
		store.Spec{Algorithm: store.FixedWindow, Units: 80, Period: time.Minute})
	var got []int
	for range 9 {
		got = append(got, d.passes(100))
		d.sleep(5 * sec)
	}
	if want := []int{11, 11, 11, 11, 11, 11, 11, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("%v pass, want %v", got, want)
	}
	_, rs := d.take(1, 0)
	if !rs[0].OK || rs[1].OK || rs[1].RetryAfter != 15*sec {
		t.Errorf("the count should deny, for 15 s: %+v", rs)
	}
}

// 10/s and 100 a minute under 15/s: the count isn't spent on what the rate denies.
func TestUnionUnderLoad(t *testing.T) {
	d := newDesk(t,
		store.Spec{Units: 10, Period: sec},
		store.Spec{Algorithm: store.FixedWindow, Units: 100, Period: time.Minute})
	passed := 0
	for range 15 * 60 {
		passed += d.passes(1)
		d.sleep(sec / 15)
	}
	if passed != 100 {
		t.Errorf("%d pass in a minute, want 100", passed)
	}
}

// 2 a second, capacity 2: two loops of 20 polls every 200 ms.
func TestTwoPollingLoops(t *testing.T) {
	for _, step := range []time.Duration{100 * ms, 200 * ms} {
		d := newDesk(t, store.Spec{Units: 2, Period: sec})
		passed, limited := 0, 0
		for range int(4 * sec / step) {
			n := d.passes(2)
			passed, limited = passed+n, limited+2-n
			d.sleep(step)
		}
		if want := int(8 * sec / step); passed != 9 || passed+limited != want {
			t.Errorf("every %v: %d pass, %d limited; want 9 of %d", step, passed, limited, want)
		}
	}
}

// Taking all there is takes whole units and leaves the fractions.
func TestTakingWhatThereIs(t *testing.T) {
	d := newDesk(t, store.Spec{Units: 10, Period: sec})
	d.passes(10)
	var granted int64
	for range 40 { // 4 s and 8 s: 1.5 tokens at a time
		d.sleep(150 * ms)
		_, rs := d.take(0, 0)
		if ok, _ := d.take(rs[0].Remaining, 0); !ok {
			t.Fatal("what remains does not pass")
		}
		granted += rs[0].Remaining
	}
	if granted != 60 {
		t.Errorf("%d granted in 6 s, want 60", granted)
	}
}

// Twice the limit passes across the edge of two fixed windows, and across no other
// edge.
func TestEdgeOfAWindow(t *testing.T) {
	for _, tc := range []struct {
		spec          store.Spec
		first, second int
	}{
		{store.Spec{Algorithm: store.FixedWindow, Units: 50, Window: store.Every(time.Minute)}, 50, 50},
		{store.Spec{Algorithm: store.SlidingWindow, Units: 50, Period: time.Minute}, 50, 0},
		{store.Spec{Algorithm: store.SlidingLog, Units: 50, Period: time.Minute}, 50, 0},
		{store.Spec{Units: 50, Period: time.Minute}, 50, 0},
	} {
		d := newDesk(t, tc.spec)
		d.sleep(time.Minute - 100*ms)
		first := d.passes(100)
		d.sleep(200 * ms)
		if second := d.passes(100); first != tc.first || second != tc.second {
			t.Errorf("%v: %d, then %d pass; want %d, %d", tc.spec.Algorithm, first, second, tc.first, tc.second)
		}
	}
	// From the first request on: one opens the window, the rest come at its end.
	d := newDesk(t, store.Spec{Algorithm: store.FixedWindow, Units: 50, Period: time.Minute})
	d.passes(1)
	d.sleep(time.Minute - 1000)
	if n := d.passes(100); n != 49 {
		t.Errorf("%d pass at the end of the window, want 49", n)
	}
	d.sleep(1000)
	if n := d.passes(100); n != 50 {
		t.Errorf("%d pass in the next window, want 50", n)
	}
}

// All charges of one instant count, and a client that keeps retrying gets back in.
func TestOneInstantAndRetries(t *testing.T) {
	for _, a := range []store.Algorithm{store.SlidingLog, store.SlidingWindow, store.FixedWindow, store.TokenBucket} {
		d := newDesk(t, store.Spec{Algorithm: a, Units: 10, Period: sec})
		if n := d.passes(1000); n != 10 {
			t.Errorf("%v: %d of one instant pass, want 10", a, n)
		}
		passed := 0
		for range 100 { // ten times as fast as the limit
			d.sleep(10 * ms)
			passed += d.passes(1)
		}
		if want := map[bool]int{true: 10, false: 1}[a == store.TokenBucket]; passed != want {
			t.Errorf("%v: a client that keeps asking passes %d times in a second, want %d", a, passed, want)
		}
	}
}

// A state never expires at once, however fast it recovers: a key without a time to
// live, or with one of 0, would be no limit at all.
func TestFastestLimits(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 1000, Period: sec, Burst: 1},
		{Units: 1_000_000, Period: sec, Burst: 1},
		{Units: 7_000_000, Period: sec, Burst: 1},
		{Algorithm: store.FixedWindow, Units: 1, Period: time.Microsecond},
		{Algorithm: store.SlidingLog, Units: 1, Period: time.Microsecond},
		{Algorithm: store.SlidingWindow, Units: 1, Period: 10 * time.Microsecond},
	} {
		d := newDesk(t, s)
		if _, rs := d.take(1, 0); !rs[0].OK || rs[0].ResetAfter < time.Microsecond {
			t.Errorf("%v %d per %v: %s", s.Algorithm, s.Units, s.Period, show(rs[0]))
		}
		if d.passes(1) != 0 {
			t.Errorf("%v %d per %v: a second one passes at the same instant", s.Algorithm, s.Units, s.Period)
		}
	}
	if _, err := store.NewLimit(store.Spec{Name: "x", Units: 7, Period: sec, Burst: store.MaxCost}); err == nil {
		t.Error("a capacity that takes five thousand years to fill is accepted")
	}
}

// A lease is released once, and only by its holder.
func TestReleaseWhatIsNotHeld(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.Concurrency, Units: 2})
	first := m.must(1)
	m.sleep(time.Microsecond)
	second := m.must(1)
	m.left(0)
	m.settle(first, 0)
	m.settle(first, 0)
	m.settle(store.Receipt{Cost: 1, Lease: store.Lease(99)}, 0)
	m.settle(store.Receipt{}, 0)
	m.settle(first, 2) // nor does what is released come back
	m.left(1)
	m.settle(second, 0)
	m.left(2)
	if r := m.take(3, 0); r.OK || r.RetryAfter != store.Never {
		t.Errorf("three of two slots: %+v", r)
	}
}
