package store_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// What passes is judged by the version that let it pass, over everything that has
// passed by any version since that one was known: the test's own list, which nothing
// leaves.

// passed is a charge that has passed.
type passed struct {
	by        int // the version
	made, run int64
	cost      int64
	receipt   store.Receipt
}

// kept tells whether a version at at still counts what ran at run, and for how long at
// least a version is known after its charge.
func kept(s store.Spec) (counts func(run, at int64) bool, known int64) {
	p := s.Period.Microseconds()
	if s.Algorithm != store.SlidingWindow {
		return func(run, at int64) bool { return run > at-p }, p
	}
	tick := bucketTick(s)
	bucket := func(at int64) int64 { // any, for these specs
		return floorTo(at, tick) * s.Buckets / p
	}
	return func(run, at int64) bool { return bucket(run) > bucket(at)-s.Buckets }, p - p/s.Buckets - tick
}

// judged plays a trace of versions of a limit that is a record, and reports the first
// pass that its version forbids, or a denial that nothing explains.
func judged(d dice, specs []store.Spec, turns, refunds bool) error {
	m := &meter{now: store.Now{Steady: d.roll(years), Wall: d.roll(years)}}
	limits := make([]*store.Limit, len(specs))
	joined, last := make([]int, len(specs)), make([]int64, len(specs))
	shortest := int64(math.MaxInt64)
	for i, s := range specs {
		l, err := store.NewLimit(s)
		if err != nil {
			return nil
		}
		limits[i], last[i] = l, math.MinInt64/2
		shortest = min(shortest, s.Period.Microseconds())
	}
	var all []passed
	trail := ""
	for range 60 + d.roll(200) {
		v := int(d.roll(int64(len(specs))))
		s := specs[v]
		p := s.Period.Microseconds()
		m.sleep(micros(oneOf(d, 0, 1, d.roll(shortest), d.roll(shortest/8+1), d.roll(p/s.Units+1), p/s.Units, shortest, d.roll(p))))
		at := m.now.Steady
		m.limit = limits[v]
		counts, known := kept(s)
		if refunds && len(all) > 0 && d.roll(4) == 0 {
			a := &all[d.roll(int64(len(all)))]
			m.limit = limits[a.by]
			cost := d.roll(a.cost + 1)
			a.receipt = m.settle(a.receipt, cost)
			a.cost = cost
			last[a.by] = math.MinInt64 / 2
			for _, b := range all {
				if b.by == a.by && b.cost > 0 {
					last[a.by] = max(last[a.by], b.made)
				}
			}
			trail += fmt.Sprintf("\n  at %d version %d settles what ran at %d to %d", at, a.by, a.run, cost)
			continue
		}
		cost := oneOf(d, 0, 1, 1, 1, 2, 1+d.roll(s.Units))
		wait := time.Duration(0)
		if turns && d.roll(3) == 0 {
			wait = micros(d.roll(2 * p))
		}
		r := m.take(cost, wait)
		trail += fmt.Sprintf("\n  at %d version %d takes %d, waits %v: %s", at, v, cost, wait, show(r))
		if cost == 0 {
			continue
		}
		sum := int64(0)
		run := at + r.Delay.Microseconds()
		for i, a := range all {
			if !r.OK && counts(a.run, at) || r.OK && i >= joined[v] && at < last[v]+known && counts(a.run, run) {
				sum += a.cost
			}
		}
		switch {
		case r.OK:
			if at >= last[v]+known {
				joined[v] = len(all)
			}
			last[v] = max(last[v], at)
			if sum+cost > s.Units {
				return fmt.Errorf("%d and %d more where %d may, since charge %d:%s", sum, cost, s.Units, joined[v], trail)
			}
			all = append(all, passed{by: v, made: at, run: run, cost: cost, receipt: r.Receipt})
		case !turns && sum+cost <= s.Units:
			return fmt.Errorf("denied where %d of %d are used:%s", sum, s.Units, trail)
		}
	}
	return nil
}

// TestVersionsOfRecords draws versions of one limit with very different spans, which
// charge, look, reserve turns and refund at irregular instants.
func TestVersionsOfRecords(t *testing.T) {
	t.Parallel()
	for _, a := range []store.Algorithm{store.SlidingLog, store.SlidingWindow} {
		t.Run(a.String(), func(t *testing.T) {
			for seedOf := range traces(t, 1500) {
				d := seed(seedOf)
				specs := make([]store.Spec, 2+d.roll(3))
				for i := range specs {
					specs[i] = store.Spec{Name: "limit", Algorithm: a, Units: oneOf[int64](d, 1, 2, 3, 5, 10, 100),
						Period: oneOf(d, time.Second, 20*time.Second, time.Minute, 1100*ms, 7*ms, time.Hour)}
					if a == store.SlidingWindow {
						specs[i].Buckets = oneOf[int64](d, 1, 2, 5, 10)
					}
				}
				if err := judged(d, specs, d.roll(3) == 0, d.roll(2) == 0); err != nil {
					t.Fatalf("seed %d: %+v: %v", seedOf, specs, err)
				}
			}
		})
	}
}

// TestALookDropsNothing has a version with a short span look, and one with a long span
// charge, which lets through what it does by itself.
func TestALookDropsNothing(t *testing.T) {
	for _, a := range []store.Algorithm{store.SlidingLog, store.SlidingWindow} {
		long := store.Spec{Algorithm: a, Units: 10, Period: 20 * time.Second}
		short := store.Spec{Algorithm: a, Units: 3, Period: time.Second}
		m := newMeter(t, long)
		limits := []*store.Limit{m.limit, newMeter(t, short).limit}
		passed := int64(0)
		for range 2000 {
			m.limit = limits[0]
			passed += m.take(1, 0).Receipt.Cost
			m.limit = limits[1]
			m.take(0, 0)
			m.sleep(100 * ms)
		}
		if passed > 110 {
			t.Errorf("%v: %d pass in 200 s beside a version that looks, by itself 110", a, passed)
		}
	}
}

// TestADeploy replaces 100 a minute by 10 a second: both versions take turns for twelve
// minutes, and let no more through than both by themselves.
func TestADeploy(t *testing.T) {
	for _, a := range []store.Algorithm{store.SlidingLog, store.SlidingWindow} {
		was := store.Spec{Algorithm: a, Units: 100, Period: time.Minute}
		is := store.Spec{Algorithm: a, Units: 10, Period: time.Second}
		limits := []*store.Limit{newMeter(t, was).limit, newMeter(t, is).limit}
		pass := func(turn ...*store.Limit) (passed int64) {
			m := &meter{}
			for i := 0; m.now.Steady < 720_000_000; i++ {
				m.limit = turn[i%len(turn)]
				passed += m.take(1, 0).Receipt.Cost
				m.sleep(3 * ms)
			}
			return passed
		}
		old, now, both := pass(limits[0]), pass(limits[1]), pass(limits...)
		if both > old+now || both < now/3 {
			t.Errorf("%v: %d pass in twelve minutes, by themselves %d and %d", a, both, old, now)
		}
	}
}

// TestARecordBecomesShortAgain: once a version's own charges count no more, what only it
// counted is dropped, and the state is that of the other version alone.
func TestARecordBecomesShortAgain(t *testing.T) {
	for _, a := range []store.Algorithm{store.SlidingLog, store.SlidingWindow} {
		long := newMeter(t, store.Spec{Algorithm: a, Units: 10, Period: time.Minute}).limit
		short := newMeter(t, store.Spec{Algorithm: a, Units: 1000, Period: time.Second}).limit
		m := &meter{limit: long}
		m.take(1, 0)
		m.limit = short
		most := 0
		for m.now.Steady < 60_000_000 {
			m.take(1, 0)
			most = max(most, len(m.state.Log))
			m.sleep(2 * ms)
		}
		if most > 3000 {
			t.Errorf("%v: %d entries", a, most)
		}
		m.sleep(time.Second)
		if m.take(1, 0); m.state.Rest != nil || len(m.state.Log) > 1000 {
			t.Errorf("%v: %d entries, %+v", a, len(m.state.Log), m.state.Rest)
		}
	}
}

// TestABanKeepsWhatOtherVersionsCount: a version with a short period that looks, or counts
// denials of its own, drops none that a longer one counts.
func TestABanKeepsWhatOtherVersionsCount(t *testing.T) {
	rate := newMeter(t, store.Spec{Units: 1, Period: 24 * time.Hour}).limit
	ban := func(name string, n int64, within time.Duration) *store.Limit {
		l, err := store.NewLimit(store.Spec{Name: name, Algorithm: store.Ban, Units: n, Period: within, Ban: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	long, short, middle := ban("ban", 10, time.Hour), ban("ban", 3, time.Second), ban("ban", 5, time.Minute)
	for _, counts := range []bool{false, true} {
		var states [2]store.State
		now, denied := store.Now{}, 0
		step := func(l *store.Limit, cost int64) {
			charges := []store.Charge{{Limit: rate, Key: "k", Cost: cost}, {Limit: l, Key: "k", Cost: cost}}
			var results [2]store.Result
			store.Decide(now, charges, states[:], results[:])
			if !results[0].OK {
				denied++
			}
		}
		step(long, 1)
		for states[1].A == 0 && denied < 100 {
			now.Steady += 61_000_000
			if counts && denied%2 == 1 {
				step(middle, 1)
			} else {
				step(long, 1)
			}
			step(short, 0)
		}
		want := 10
		if counts {
			want = 11 // the tenth is the other's
		}
		if denied != want {
			t.Errorf("others count %v: banned after %d denials, want %d", counts, denied, want)
		}
	}
}

// TestVersionsOfABan draws versions of one Ban with very different periods. Each begins a ban
// at the denial that is the n-th in its own span, by whichever version they were counted:
// never sooner, and not later while it is known.
func TestVersionsOfABan(t *testing.T) {
	t.Parallel()
	begun := 0
	for seedOf := range traces(t, 1500) {
		d := seed(seedOf)
		specs := make([]store.Spec, 2+d.roll(2))
		limits := make([]*store.Limit, len(specs))
		joined, last := make([]int, len(specs)), make([]int64, len(specs))
		for i := range specs {
			specs[i] = store.Spec{Name: "ban", Algorithm: store.Ban, Units: oneOf[int64](d, 1, 2, 3, 5, 10),
				Period: oneOf(d, time.Second, 20*time.Second, time.Minute, 7*ms, time.Hour), Ban: oneOf(d, time.Second, time.Hour)}
			last[i] = math.MinInt64 / 2
			l, err := store.NewLimit(specs[i])
			if err != nil {
				t.Fatal(err)
			}
			limits[i] = l
		}
		rate := newMeter(t, store.Spec{Units: 1, Period: 24 * time.Hour}).limit
		now := store.Now{Steady: d.roll(years)}
		states := make([]store.State, 2)
		var denials []int64
		banned, trail := int64(math.MinInt64), ""
		for range 100 {
			v := int(d.roll(int64(len(specs))))
			p := specs[v].Period.Microseconds()
			now.Steady += oneOf(d, 0, 1, d.roll(p), d.roll(p/4+1), p, d.roll(10_000_000))
			cost := oneOf[int64](d, 0, 1, 1)
			states[0] = store.State{}
			used := []store.State{{}}
			store.Decide(now, []store.Charge{{Limit: rate, Key: "k", Cost: 1}}, used, make([]store.Result, 1))
			states[0] = used[0]
			charges := []store.Charge{{Limit: rate, Key: "k", Cost: 1}, {Limit: limits[v], Key: "k", Cost: cost}}
			results := make([]store.Result, 2)
			store.Decide(now, charges, states, results)
			at := now.Steady
			trail += fmt.Sprintf("\n  at %d version %d cost %d: %s", at, v, cost, show(results[1]))
			if cost == 0 || at < banned {
				if results[1].OK != (cost == 0) && at < banned {
					t.Fatalf("seed %d: %+v: banned until %d:%s", seedOf, specs, banned, trail)
				}
				continue
			}
			denials = append(denials, at)
			all, known := int64(0), int64(0)
			if at >= last[v]+p {
				joined[v] = len(denials) - 1
			}
			last[v] = at
			for i, r := range denials {
				if r > at-p {
					if all++; i >= joined[v] {
						known++
					}
				}
			}
			began := !results[1].OK
			if n := specs[v].Units; began && all < n || !began && known >= n {
				t.Fatalf("seed %d: %+v: a ban began: %v, after %d denials, %d of them while it was known:%s", seedOf, specs, began, all, known, trail)
			}
			if began {
				begun++
				denials, banned = nil, at+specs[v].Ban.Microseconds()
				for i := range last {
					last[i] = math.MinInt64 / 2
				}
			}
		}
	}
	enough(t, begun)
}

// TestACounterKeepsReservedTurns: turns that a version with a long window has reserved
// count until that window is over, though one with a short window looks.
func TestACounterKeepsReservedTurns(t *testing.T) {
	m := newMeter(t, store.Spec{Algorithm: store.SlidingCounter, Units: 1000, Period: time.Minute})
	long, short := m.limit, newMeter(t, store.Spec{Algorithm: store.SlidingCounter, Units: 10, Period: time.Second}).limit
	m.must(1000)
	m.sleep(30 * time.Second)
	if r := m.take(500, time.Minute); !r.OK || r.Delay != time.Minute {
		t.Fatal(show(r))
	}
	m.sleep(31 * time.Second)
	m.limit = short
	m.take(0, 0)
	m.sleep(3 * time.Second)
	m.limit = long
	if r := m.take(1000, 0); r.OK {
		t.Errorf("1000 pass at 0 s, 500 at 90 s, and 1000 at 64 s, at 1000 a minute: %s", show(r))
	}
	m.sleep(3 * time.Minute) // the turns have run, and count no more
	m.limit = short
	if m.take(1, 0); m.state.Numbers != short.Terms().Numbers || m.state.Log != nil {
		t.Errorf("still in windows of %+v: %v", m.state.Numbers, m.state.Log)
	}
}
