package wire

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// TestTwinsOnMalformedStates changes states as no limit writes them. The script and the steps take
// the same ones for never seen, and no script fails, with the key alone and in a batch.
func TestTwinsOnMalformedStates(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(), context.Background()
	full, err := store.NewLimit(store.Spec{Name: "full", Algorithm: store.SlidingLog, Units: 1, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []store.Spec{
		{Algorithm: store.TokenBucket, Units: 10, Period: time.Minute},
		{Algorithm: store.TokenBucket, Units: 7, Period: time.Minute, Burst: 10},
		{Algorithm: store.IntervalBucket, Units: 10, Burst: 25, Period: time.Minute},
		{Algorithm: store.IntervalBucket, Units: 10, Burst: 25, Window: store.Every(time.Minute)},
		{Algorithm: store.IntervalBucket, Units: 10, Burst: 25, Window: store.Daily},
		{Algorithm: store.FixedWindow, Units: 10, Period: time.Minute},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Every(7 * time.Second)},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Every(time.Minute)},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily},
		{Algorithm: store.SlidingWindow, Units: 10, Period: time.Minute, Buckets: 6},
		{Algorithm: store.SlidingCounter, Units: 10, Period: time.Minute},
		{Algorithm: store.SlidingLog, Units: 10, Period: time.Minute},
		{Algorithm: store.WarmUp, Units: 10, Period: time.Minute, WarmUp: 4 * time.Minute},
		{Algorithm: store.Ban, Units: 5, Period: time.Minute, Ban: time.Hour},
	} {
		t.Run(s.Algorithm.String(), func(t *testing.T) {
			s.Name = "l"
			l, err := store.NewLimit(s)
			if err != nil {
				t.Fatal(err)
			}
			w, key := newTwins(rdb, 1), "a:"+l.StateName()
			limits := []*store.Limit{l}
			if s.Algorithm == store.Ban { // which counts what another denies
				limits = append(limits, full)
			}
			// take charges a, and in a batch other keys too. It returns the receipt of a.
			take := func(cost int64, wait time.Duration) (store.Receipt, error) {
				d := &Decision{Results: make([]store.Result, len(limits)), Leases: make([]store.LeaseID, len(limits))}
				d.Keys = make([]string, len(limits))
				for _, l := range limits {
					d.Charges = append(d.Charges, store.Charge{Limit: l, Cost: cost, MaxWait: wait, Final: true})
				}
				ds := w.onAll(d)
				p := NewTakeCall(ds)
				script, args := p.Args(w.times(nil), 0)
				reply, err := w.run(script, p.Keys, args)
				if err == nil {
					_, _, err = p.Answer(reply)
				}
				return ds[0].Results[0].Receipt, err
			}
			settle := func(r store.Receipt, cost int64) error {
				c := store.Charge{Key: "a", Limit: l, Cost: cost, Receipt: r}
				ss := Group([]*Settlement{{Charge: &c, Result: new(store.Result), Key: key}})
				script, keys, args := SettleArgs(ss, w.times(nil), 0)
				reply, err := w.run(script, keys, args)
				if err == nil {
					_, _, err = SettleAnswer(ss, reply)
				}
				return err
			}
			changed := 0
			for seed := range uint64(400) {
				w.rnd = rand.New(rand.NewPCG(seed, 8))
				w.keys = pick(w, []string{"a"}, []string{"a", "b", "c", "d"})
				rdb.FlushDB(ctx)
				w.now = 1e12 + w.roll(1e9)
				var receipt store.Receipt
				for range 1 + w.roll(6) {
					w.now += pick(w, 1, w.roll(20e6))
					r, err := take(1+w.roll(2), pick(w, 0, 0, time.Minute))
					if err != nil {
						t.Fatal(err)
					}
					if r.Cost > 0 {
						receipt = r
					}
				}
				var was, is string
				if l.Algorithm() == store.SlidingLog {
					at := -1 - w.roll(min(2, rdb.LLen(ctx, key).Val()))
					was = rdb.LIndex(ctx, key, at).Val()
					is = w.malformed(was)
					err = rdb.LSet(ctx, key, at, is).Err()
				} else if was = rdb.Get(ctx, key).Val(); was != "" {
					is = w.malformed(was)
					err = rdb.Set(ctx, key, is, 0).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
				if is == was {
					continue
				}
				changed++
				w.now += pick(w, 0, 11e6, w.roll(61e6))
				for range 2 {
					if w.roll(3) == 0 && (receipt.Cost > 0 || l.Algorithm() == store.Ban) {
						err = settle(receipt, w.roll(4))
					} else {
						_, err = take(w.roll(12), pick(w, 0, time.Minute))
					}
					if err != nil {
						t.Errorf("seed %d: %q for %q: %v", seed, is, was, err)
					}
				}
			}
			if changed < 200 {
				t.Errorf("%d states changed", changed)
			}
		})
	}
}

// TestMalformedPlainStates has a batch meet states that are compared as text: one that looks as if
// there was room, and one that looks exhausted. Both count as never seen.
func TestMalformedPlainStates(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(), context.Background()
	for _, s := range []store.Spec{
		{Name: "l", Units: 10, Period: time.Minute},
		{Name: "l", Algorithm: store.FixedWindow, Units: 10, Window: store.Every(time.Minute)},
	} {
		l, err := store.NewLimit(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, used := range []int64{1, 10} {
			rdb.FlushDB(ctx)
			w := newTwins(rdb, 1)
			w.now = 1e12
			charge := func(cost int64, keys ...string) (results []store.Result) {
				t.Helper()
				w.keys = keys
				d := &Decision{Charges: []store.Charge{{Limit: l, Cost: cost}}, Results: make([]store.Result, 1), Leases: make([]store.LeaseID, 1), Keys: make([]string, 1)}
				ds := w.onAll(d)
				p := NewTakeCall(ds)
				script, args := p.Args(w.times(nil), 0)
				reply, err := w.run(script, p.Keys, args)
				if err == nil {
					_, _, err = p.Answer(reply)
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range ds {
					results = append(results, d.Results[0])
				}
				return results
			}
			charge(used, "a")
			a, b := "a:"+l.StateName(), "b:"+l.StateName()
			plain := rdb.Get(ctx, a).Val()
			rdb.Set(ctx, a, plain[:18]+"x", 0)
			if got := charge(1, "a", "b", "c", "d"); !got[0].OK || got[0] != got[1] {
				t.Errorf("%v, %q: %+v, a key never seen %+v", s.Algorithm, plain, got[0], got[1])
			}
			if is, other := rdb.Get(ctx, a).Val(), rdb.Get(ctx, b).Val(); is != other {
				t.Errorf("%v, %q: the server keeps %q, of a key never seen %q", s.Algorithm, plain, is, other)
			}
		}
	}
}

// malformed is a text with one change.
func (w *twins) malformed(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ':' || r == ';' })
	word := pick(w, words...)
	at := strings.Index(text, word) + int(w.roll(int64(len(word))))
	switch w.roll(6) {
	case 0: // one character less
		return text[:at] + text[at+1:]
	case 1: // another
		return text[:at] + pick(w, "-", "+", ":", ";", "x", " ", "e", "0", "9") + text[at+1:]
	case 2: // one more
		return text[:at] + pick(w, "-", ":", ";", "0", "9", ".", "0000000000000000000") + text[at:]
	case 3: // no end
		return text[:at]
	case 4: // another number
		return strings.Replace(text, word, pick(w, "", "0", "1", "-1", "-0", "007", "99", "1099511627777", "9007199254740984", "9007199254740991", "9007199254740992", "-9007199254740991", "99999999999999999999", "0x10", "1e3"), 1)
	default:
		return text + pick(w, ":", ":0", ":1", ";", ";1:1;", "x", "\n", text)
	}
}
