package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

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
			most = max(most, len(m.state.Engine(engine.Access{}).Log))
			m.sleep(2 * ms)
		}
		if most > 3000 {
			t.Errorf("%v: %d entries", a, most)
		}
		m.sleep(time.Second)
		if m.take(1, 0); m.state.Engine(engine.Access{}).Rest != nil || len(m.state.Engine(engine.Access{}).Log) > 1000 {
			t.Errorf("%v: %d entries, %+v", a, len(m.state.Engine(engine.Access{}).Log), m.state.Engine(engine.Access{}).Rest)
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
		for states[1].Engine(engine.Access{}).A == 0 && denied < 100 {
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
	if m.take(1, 0); m.state.Engine(engine.Access{}).Numbers != short.Engine(engine.Access{}).Terms().Numbers || m.state.Engine(engine.Access{}).Log != nil {
		t.Errorf("still in windows of %+v: %v", m.state.Engine(engine.Access{}).Numbers, m.state.Engine(engine.Access{}).Log)
	}
}
