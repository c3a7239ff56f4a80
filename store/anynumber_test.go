package store_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// anyNumber is a number up to most, of any length.
func anyNumber(d dice, most int64) int64 { return 1 + d.roll(most)>>d.roll(44) }

// Every whole number of units per any number of microseconds is counted, in ticks of at
// most a millisecond.
func TestAnyNumber(t *testing.T) {
	d := seed(1)
	for range 20_000 {
		s := store.Spec{Name: "limit", Units: anyNumber(d, store.MaxCost), Period: micros(anyNumber(d, 2*years))}
		s.Algorithm = oneOf(d, store.TokenBucket, store.TokenBucket, store.LeakyBucket, store.WarmUp, store.SlidingWindow)
		switch s.Algorithm {
		case store.TokenBucket:
			s.Debt, s.Queue = d.roll(3) == 0, oneOf(d, 0, s.Units)
		case store.WarmUp:
			s.WarmUp = micros(anyNumber(d, 2*years))
		case store.SlidingWindow:
			s.Buckets = min(1+d.roll(1000), s.Period.Microseconds())
		}
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if tick := l.Tick(); tick < time.Microsecond || tick > time.Millisecond || time.Millisecond%tick != 0 {
			t.Fatalf("%+v: a tick of %v", s, tick)
		}
	}
}

// A caller that takes all there is whenever it looks gets the burst and from then on
// floor(elapsed × n / period), whatever the numbers.
func TestAnyNumberIsExact(t *testing.T) {
	d := seed(2)
	for range 500 {
		s := store.Spec{Name: "limit", Units: anyNumber(d, store.MaxCost/2), Period: micros(anyNumber(d, 2*years))}
		s.Burst = 2 * s.Units // nothing is lost to a full bucket
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		m := &meter{limit: l, now: store.Now{Steady: d.roll(years)}}
		tick := l.Tick()
		m.sleep(-micros(m.now.Steady % tick.Microseconds()))
		m.take(s.Burst, 0)
		taken, elapsed := s.Burst, int64(0)
		for range 30 {
			step := d.roll(s.Period.Microseconds()+1) >> d.roll(20)
			step -= step % tick.Microseconds()
			m.sleep(micros(step))
			elapsed += step
			come := floor(times(rat(elapsed), big.NewRat(s.Units, s.Period.Microseconds())))
			left := s.Burst + come - taken
			if got := m.take(0, 0).Remaining; got != left {
				t.Fatalf("%+v: %d left after %v, want %d", s, got, micros(elapsed), left)
			}
			if left > 0 {
				m.take(left, 0)
				taken += left
			}
		}
	}
}

// Rates whose numbers have few factors used to be counted in ticks of up to 100 ms, so
// that hundreds passed at once.
func TestNoLumps(t *testing.T) {
	m := newMeter(t, store.Spec{Units: 348_773, Period: time.Minute, Burst: 10})
	m.take(10, 0)
	for n := int64(1); n <= 1000; n++ {
		due := (n*60_000_000 + 348_772) / 348_773 // the microsecond that it comes in
		m.sleep(micros(due - 1 - m.now.Steady))
		if r := m.take(0, 0); r.Remaining != 0 && n < 10 {
			t.Fatalf("token %d is there at %d", n, m.now.Steady)
		}
		m.sleep(time.Microsecond)
		if r := m.take(1, 0); !r.OK {
			t.Fatalf("token %d is not there at %d: %s", n, due, show(r))
		}
	}
}

func TestTooLongToFill(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 1, Period: time.Hour, Burst: store.MaxCost},
		{Units: 1, Period: 2 * 365 * 24 * time.Hour, Burst: 51},
		{Units: 1, Period: 2 * 365 * 24 * time.Hour, Burst: 26, Debt: true},
	} {
		s.Name = "limit"
		if _, err := store.NewLimit(s); err == nil {
			t.Errorf("%+v can be made", s)
		}
		s.Burst--
		if _, err := store.NewLimit(s); err != nil && s.Burst < 1000 {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
