package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// If the clock is set back by hours, no request is denied for hours: what is used up comes
// back when the limit says, by the clock as it is now and not before, and no more
// passes then than the limit allows.
func TestClockSetBack(t *testing.T) {
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 10, Period: time.Minute},
		{Algorithm: store.LeakyBucket, Units: 10, Period: time.Minute, Burst: 9, Queue: store.None},
		{Algorithm: store.IntervalBucket, Units: 10, Period: time.Minute},
		{Algorithm: store.IntervalBucket, Units: 10, Window: store.Every(time.Minute)},
		{Algorithm: store.IntervalBucket, Units: 10, Window: store.Hourly},
		{Algorithm: store.FixedWindow, Units: 10, Period: time.Minute},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Every(time.Minute)},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily},
		{Algorithm: store.SlidingWindow, Units: 10, Period: time.Minute},
		{Algorithm: store.SlidingLog, Units: 10, Period: time.Minute},
		{Algorithm: store.SlidingCounter, Units: 10, Period: time.Minute},
		{Algorithm: store.WarmUp, Units: 10, Period: time.Minute, WarmUp: time.Minute},
	} {
		for _, back := range []time.Duration{time.Microsecond, 20 * time.Second, time.Hour, 50 * time.Hour} {
			for _, reserved := range []int64{0, 3} {
				for _, before := range []string{"", "refunds", "other numbers"} {
					setBack(t, s, back, reserved, before)
				}
			}
		}
	}
}

// setBack uses a limit up and sets the clock back, with reserved turns waiting. Before that,
// charges are refunded, or made by a version with other numbers.
func setBack(t *testing.T, s store.Spec, back time.Duration, reserved int64, earlier string) {
	t.Helper()
	m := newMeter(t, s)
	m.sleep(72*time.Hour + 30*time.Minute)
	var receipts []store.Receipt
	switch earlier {
	case "refunds":
		for range 3 {
			receipts = append(receipts, m.take(1, 0).Receipt)
			m.sleep(time.Microsecond)
		}
		m.settle(receipts[0], 0)
	case "other numbers":
		limit := m.limit
		other := s
		if other.Units = 20; other.Burst > 0 {
			other.Burst = 19
		}
		m.limit = newMeter(t, other).limit
		receipts = append(receipts, m.take(3, 0).Receipt)
		m.limit = limit
	}
	for range 10 {
		m.take(1, 0)
	}
	if reserved > 0 {
		m.take(reserved, 24*time.Hour)
	}
	before := m.take(1, 0).RetryAfter
	m.sleep(-back)
	r := m.take(1, 0)
	// By what is left of a window, the clock may be anywhere in one.
	if most := before + s.Period + s.Window.Length(time.Now()); r.OK || r.RetryAfter > most {
		t.Errorf("%v %v, %q, %d waiting, set back by %v: %s, before %v", s.Algorithm, s.Window, earlier, reserved, back, show(r), before)
		return
	}
	m.sleep(r.RetryAfter - time.Microsecond)
	if r := m.take(1, 0); r.OK {
		t.Errorf("%v %v, %q, %d waiting, set back by %v: passes early: %s", s.Algorithm, s.Window, earlier, reserved, back, show(r))
	}
	m.sleep(time.Microsecond)
	for _, receipt := range receipts[min(1, len(receipts)):] {
		m.settle(receipt, 0)
	}
	passed := 0
	for range 30 {
		if m.take(1, 0).OK {
			passed++
		}
	}
	if passed == 0 || passed > 10 {
		t.Errorf("%v %v, %q, %d waiting, set back by %v: %d pass", s.Algorithm, s.Window, earlier, reserved, back, passed)
	}
}

// A SlidingCounter that is set back across the start of its window counts what was charged in the window before
// in full, whatever the wall clock shows.
func TestCounterSetBack(t *testing.T) {
	for _, wall := range []time.Duration{0, 5 * time.Second, -time.Hour} {
		m := newMeter(t, store.Spec{Algorithm: store.SlidingCounter, Units: 60, Period: time.Minute})
		m.sleep(time.Hour + 59*time.Second)
		if !m.take(60, 0).OK {
			t.Fatal("60 of 60 don't pass")
		}
		m.sleep(3 * time.Second) // two of them are covered no more
		future := m.take(2, 0)
		if !future.OK {
			t.Fatalf("2 of 2 don't pass: %s", show(future))
		}
		m.sleep(-4500 * time.Millisecond)
		m.now.Wall += wall.Microseconds()
		if r := m.take(1, 0); r.OK {
			t.Errorf("one more passes 1.5 s after 60 of 60: %s", show(r))
		}
		m.settle(future.Receipt, 0) // its window is in the future
		passed := 0
		for range 60 {
			m.sleep(time.Second)
			for m.take(1, 0).OK {
				passed++
			}
		}
		if passed == 0 || passed > 60 {
			t.Errorf("%d pass in the minute after the clock was set back", passed)
		}
	}
}
