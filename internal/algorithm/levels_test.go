package algorithm

import (
	"math/rand/v2"
	"testing"
)

// A history has the charges and their instants, as if every refund had been made from the
// start. It drains by one unit each instant.
type history []Entry

// used is the number of units in use at at.
func (h history) used(at int64) (used int64) {
	last := int64(0)
	for _, e := range h {
		used = max(used-(e.At-last), 0) + e.Units
		last = e.At
	}
	return max(used-(at-last), 0)
}

// returnable is the most that a refund of charge i can give back at at: what would be in
// use less, had it cost nothing.
func (h history) returnable(i int, at, refund int64) int64 {
	without := append(history{}, h...)
	without[i].Units -= min(refund, h[i].Units)
	return h.used(at) - without.used(at)
}

// levelsTrace draws charges and refunds of a bucket whose capacity is capacity, and
// returns what refunds have given back, and what they would have by the whole history.
func levelsTrace(t *testing.T, seed uint64, capacity int64, open, ops int, pace int64) (given, exactly int64) {
	r := rand.New(rand.NewPCG(seed, 0x5717))
	var h history
	var marks []int64 // what was in use after each charge, less what it has been refunded
	var v levels
	var streams []int
	now := int64(0)
	for range ops {
		now += r.Int64N(pace*capacity/(4*int64(open)) + 1)
		used := h.used(now)
		if len(streams) == 0 || len(streams) < open && r.IntN(2) == 0 {
			cost := 1 + r.Int64N(max(3*capacity/int64(open), 2))
			if used+cost > capacity {
				continue
			}
			h = append(h, Entry{At: now, Units: cost})
			marks = append(marks, used+cost)
			streams = append(streams, len(h)-1)
			if len(v) > 0 {
				v = v.charge(now, used, used+cost, false)
			}
			continue
		}
		at := r.IntN(len(streams))
		i := streams[at]
		streams = append(streams[:at], streams[at+1:]...)
		refund := r.Int64N(h[i].Units + 1)
		low, from := used, now
		if len(v) == 0 {
			v = startLevels(now, used)
		} else {
			v = v.lower(used)
			low, from = v.since(h[i].At)
		}
		back := min(refund, low, max(marks[i]-(from-h[i].At), 0))
		if most := h.returnable(i, now, refund); back > most {
			t.Fatalf("seed %d: %d of %d given back at %d for a charge of %d, where %d may be\n%v\n%v", seed, back, refund, now, h[i].At, most, h, v)
		}
		exactly += h.returnable(i, now, refund)
		given += back
		h[i].Units -= back
		marks[i] -= back
		v = v.refund(h[i].At, back)
		if got := h.used(now); got != used-back {
			t.Fatalf("seed %d: %d in use, want %d", seed, got, used-back)
		}
		if len(v) > maxLevels {
			t.Fatalf("seed %d: %d levels", seed, len(v))
		}
		for j := 1; j < len(v); j++ {
			if v[j].At <= v[j-1].At || v[j].Units < v[j-1].Units || v[j].Units == v[j-1].Units && j < len(v)-1 {
				t.Fatalf("seed %d: levels don't ascend: %v", seed, v)
			}
		}
	}
	return given, exactly
}

// TestLevelsNeverGiveBackTooMuch holds refunds to a bucket that knows its whole history:
// after each, as much is in use as if the charge had cost less from the start.
func TestLevelsNeverGiveBackTooMuch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		levelsTrace(t, seed, 1+int64(seed%97)*7+40, 1+int(seed%40), 200, 1+int64(seed%9))
	}
}

// TestLevelsGiveBackMost: eight levels give back 98 % and more of what the whole
// history would, also under pressure and with many charges open.
func TestLevelsGiveBackMost(t *testing.T) {
	t.Parallel()
	for _, open := range []int{2, 5, 10, 40} {
		for _, pace := range []int64{1, 3, 8} {
			var given, exactly int64
			for seed := range uint64(2) {
				g, e := levelsTrace(t, seed, 10_000, open, 3000, pace)
				given, exactly = given+g, exactly+e
			}
			t.Logf("%d open, pace %d: %.1f%%", open, pace, 100*float64(given)/float64(exactly))
			if 100*given < 98*exactly {
				t.Errorf("%d open, pace %d: %d of %d given back", open, pace, given, exactly)
			}
		}
	}
}
