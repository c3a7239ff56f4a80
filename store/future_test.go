package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// minuteLimits are limits of 60 a minute, one of each kind.
var minuteLimits = []store.Spec{
	{Algorithm: store.TokenBucket, Units: 60, Period: time.Minute},
	{Algorithm: store.TokenBucket, Units: 60, Period: time.Minute, Burst: 60, Debt: true},
	{Algorithm: store.LeakyBucket, Units: 60, Period: time.Minute, Burst: 59, Queue: store.None},
	{Algorithm: store.IntervalBucket, Units: 60, Period: time.Minute},
	{Algorithm: store.IntervalBucket, Units: 60, Window: store.Every(time.Minute)},
	{Algorithm: store.FixedWindow, Units: 60, Period: time.Minute},
	{Algorithm: store.FixedWindow, Units: 60, Window: store.Every(time.Minute)},
	{Algorithm: store.SlidingWindow, Units: 60, Period: time.Minute},
	{Algorithm: store.SlidingLog, Units: 60, Period: time.Minute},
	{Algorithm: store.SlidingCounter, Units: 60, Period: time.Minute},
	{Algorithm: store.WarmUp, Units: 60, Period: time.Minute, WarmUp: time.Minute},
}

// A receipt from the future was made before the clock was set back. It refunds nothing, also of charges that have
// been made since; nor does one that a bucket was refilled after.
func TestReceiptFromTheFuture(t *testing.T) {
	for _, s := range minuteLimits {
		for _, back := range []time.Duration{10 * time.Minute, time.Hour} {
			for _, raised := range []int64{0, 1, 30} {
				m := newMeter(t, s)
				m.sleep(72 * time.Hour)
				future := m.take(60, 0)
				if !future.OK {
					t.Fatalf("%v: 60 of 60: %s", s.Algorithm, show(future))
				}
				m.sleep(2 * time.Minute)
				m.sleep(-back)
				for m.take(1, 0).OK {
				}
				m.sleep(3 * time.Minute)
				for m.take(1, 0).OK {
				}
				left := m.take(0, 0).Remaining
				receipt := future.Receipt
				if raised > 0 { // a debt is charged, and can be taken back
					receipt = m.settle(receipt, 60+raised)
					receipt = m.settle(receipt, 60)
				}
				m.settle(receipt, 0)
				if r := m.take(0, 0); r.Remaining > left {
					t.Errorf("%v %v, set back by %v, raised by %d: %d left after a refund, %d before", s.Algorithm, s.Window, back, raised, r.Remaining, left)
				}
			}
		}
	}
}

// Once the clock has come again to the instant of a charge, its receipt is no longer from the future, and others may
// have charged the units that its refund gives back. It gives back at most its own cost, and that once.
func TestReceiptOfAnInstantThatComesAgain(t *testing.T) {
	refunded := 0
	for _, s := range minuteLimits {
		for _, back := range []time.Duration{time.Second, 40 * time.Second, 2 * time.Minute} {
			for _, after := range []time.Duration{0, 20 * time.Second, time.Minute} {
				m := newMeter(t, s)
				m.sleep(72 * time.Hour)
				early := m.must(20)
				m.sleep(-back)
				for m.take(1, 0).OK {
				}
				m.sleep(back + after)
				for m.take(1, 0).OK {
				}
				left := m.take(0, 0).Remaining
				receipt := m.settle(early, 5)
				m.settle(m.settle(receipt, 0), 0)
				switch more := m.take(0, 0).Remaining - left; {
				case more > 20:
					t.Errorf("%v %v, set back by %v, %v later: a charge of 20 gave back %d", s.Algorithm, s.Window, back, after, more)
				case more > 0:
					refunded++
				}
			}
		}
	}
	if refunded == 0 {
		t.Error("no refund gave anything back")
	}
}
