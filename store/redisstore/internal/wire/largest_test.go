package wire

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// The scripts and the steps agree where numbers are the largest that a limit, a
// charge, a debt and a refund may have: what is a product of two of them in the
// steps is more than a double can tell.
func TestTwinsAtTheLargest(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	rdb := redistest.Start(t).Client()
	for _, spec := range []store.Spec{
		{Units: 1, Period: time.Minute},
		{Units: 1, Period: 2 * year},
		{Units: 1, Period: 2 * year, Debt: true},
		{Units: 1, Period: time.Microsecond, Debt: true},
		{Units: 14, Period: time.Microsecond, Burst: 1 << 35},
		{Units: 1, Period: time.Hour, Burst: 10, Queue: 500_000},
		{Algorithm: store.LeakyBucket, Units: 1, Period: time.Minute, Queue: 1 << 20},
		{Algorithm: store.IntervalBucket, Units: 1, Period: time.Minute},
		{Algorithm: store.IntervalBucket, Units: store.MaxCost, Period: time.Microsecond, Burst: store.MaxCost},
		{Algorithm: store.IntervalBucket, Units: store.MaxCost, Window: store.Every(2 * year)},
		{Algorithm: store.FixedWindow, Units: store.MaxCost, Period: time.Microsecond},
		{Algorithm: store.FixedWindow, Units: store.MaxCost, Window: store.Every(2 * year)},
		{Algorithm: store.SlidingLog, Units: store.MaxCost, Period: time.Microsecond},
		{Algorithm: store.SlidingCounter, Units: store.MaxCost, Period: time.Microsecond},
		{Algorithm: store.SlidingLog, Units: store.MaxCost, Period: 2 * year},
		{Algorithm: store.SlidingCounter, Units: store.MaxCost, Period: 2 * year},
		{Algorithm: store.SlidingWindow, Units: store.MaxCost, Period: 2 * year, Buckets: 1000},
		{Algorithm: store.WarmUp, Units: 1, Period: time.Minute, WarmUp: time.Minute},
		{Algorithm: store.WarmUp, Units: 1, Period: 2 * year, WarmUp: time.Second},
		{Algorithm: store.Concurrency, Units: store.MaxCost},
	} {
		spec.Name = "l"
		for seed := range uint64(4) {
			w := newTwins(rdb, seed)
			w.limits, w.keys, w.now = [][]*store.Limit{{mustLimit(t, spec)}}, []string{"k"}, 1_000_000_000
			if err := w.playLargest(); err != nil {
				t.Fatalf("%+v, seed %d: %v\n%s", spec, seed, err, strings.Join(w.log, "\n"))
			}
		}
	}
}

// A window of more units than a state of one integer has digits for: what goes beyond
// them is counted in words.
func TestWindowOfMoreThanTenDigits(t *testing.T) {
	l := mustLimit(t, store.Spec{Name: "l", Algorithm: store.FixedWindow, Units: 30_000_000_000, Window: store.Every(time.Hour)})
	w := newTwins(redistest.Start(t).Client(), 1)
	w.limits, w.keys, w.now = [][]*store.Limit{{l}}, []string{"k"}, 1_000_000_000
	for _, cost := range []int64{1, 9_999_999_998, 1, 9_999_999_999, 9_999_999_999, 3, 2, 1} {
		d := &Decision{Keys: []string{"k:lFixedWindow"}, Leases: make([]store.LeaseID, 1), Results: make([]store.Result, 1)}
		d.Charges = []store.Charge{{Key: "k", Limit: l, Cost: cost}}
		if err := w.takeOne(d); err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(w.log, "\n"))
		}
	}
}

// Dozens of the largest windows are reserved, and a count has more digits than any limit.
func TestTwinsFarAhead(t *testing.T) {
	rdb := redistest.Start(t).Client()
	for _, a := range []store.Algorithm{store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingLog} {
		l := mustLimit(t, store.Spec{Name: "l", Algorithm: a, Units: store.MaxCost, Period: time.Second})
		w := newTwins(rdb, 1)
		w.limits, w.keys, w.now = [][]*store.Limit{{l}}, []string{"k"}, 1_000_000_000
		rdb.FlushDB(context.Background())
		for i := range 60 {
			if w.now += pick[int64](w, 0, 0, 1, 100_000, 2_000_000); i >= 30 {
				w.now += 1_000_000
			}
			d := &Decision{Keys: []string{"k:l" + a.String()}, Leases: make([]store.LeaseID, 1), Results: make([]store.Result, 1)}
			d.Charges = []store.Charge{{Key: "k", Limit: l, Cost: pick[int64](w, 1, store.MaxCost), MaxWait: pick[time.Duration](w, 0, math.MaxInt64)}}
			if i < 30 {
				d.Charges[0].Cost, d.Charges[0].MaxWait = store.MaxCost, math.MaxInt64
			}
			err := w.takeOne(d)
			if err == nil && w.roll(4) == 0 {
				t := &w.taken[w.roll(int64(len(w.taken)))]
				err = w.settleOne(t, w.roll(t.charge.Receipt.Cost+1))
			}
			if err != nil {
				t.Fatalf("%v: %v\n%s", a, err, strings.Join(w.log, "\n"))
			}
		}
	}
}

func (w *twins) playLargest() error {
	w.rdb.FlushDB(context.Background())
	l := w.limits[0][0]
	key := "k:" + l.Name() + l.Algorithm().String()
	span := time.Duration(w.scale(l)) * time.Microsecond
	for range 60 {
		var err error
		if w.now += pick(w, 0, 0, 0, 1, span.Microseconds()); len(w.taken) > 0 && w.roll(2) == 0 {
			t := &w.taken[w.roll(int64(len(w.taken)))]
			err = w.settleOne(t, pick(w, 0, 1, t.charge.Cost, t.charge.Receipt.Cost, store.MaxCost, store.MaxCost, store.MaxCost-1))
		} else {
			w.leases++
			d := &Decision{Keys: []string{key}, Leases: []store.LeaseID{store.Lease(w.leases)}, Results: make([]store.Result, 1)}
			d.Charges = []store.Charge{{Key: "k", Limit: l,
				Cost:    pick(w, 1, 2, min(inside.Terms(l).Largest, store.MaxCost), store.MaxCost),
				MaxWait: pick(w, 0, 1, span, math.MaxInt64)}}
			err = w.takeOne(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *twins) takeOne(d *Decision) error {
	w.note("take %d, wait %v", d.Charges[0].Cost, d.Charges[0].MaxWait)
	p := NewTakeCall([]*Decision{d})
	script, args := p.Args(w.times(nil), 0)
	reply, err := w.run(script, p.Keys, args)
	if err == nil {
		_, _, err = p.Answer(reply)
	}
	if err == nil {
		err = w.decide(d)
	}
	if err != nil {
		return fmt.Errorf("%w: answer %v", err, reply)
	}
	return w.compare()
}

func (w *twins) settleOne(t *taken, cost int64) error {
	c := t.charge
	c.Cost = cost
	w.note("settle %+v to %d", c.Receipt, cost)
	s := &Settlement{Charge: &c, Result: new(store.Result), Key: t.key}
	script, keys, args := SettleArgs([][]*Settlement{{s}}, w.times(nil), 0)
	reply, err := w.run(script, keys, args)
	if err == nil {
		_, _, err = SettleAnswer([][]*Settlement{{s}}, reply)
	}
	if err != nil {
		return err
	}
	mine := c
	mine.Receipt.Lease = t.mine.Lease
	var want store.Result
	state := w.state(t.key)
	inside.State(state).Log = slices.Clone(inside.State(state).Log)
	store.Amend(store.Now{Steady: w.now, Wall: w.now}, &mine, state, &want)
	w.touched[t.key] = c.Limit
	t.mine = want.Receipt
	want.Receipt.Lease = c.Receipt.Lease
	if *s.Result != want {
		return fmt.Errorf("settled to %d: got %+v, want %+v, answer %v", cost, *s.Result, want, reply)
	}
	t.charge.Receipt = want.Receipt
	return w.compare()
}
