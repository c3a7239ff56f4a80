// Package near finds the charges that bring a key near a limit: those that take its use of the limit to a mark, which
// is a percentage of WithNearLimit.
package near

import (
	"cmp"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Table remembers the marks that keys have reached, so that each is found once in a period. It is safe for concurrent
// use.
type Table struct {
	mu      sync.Mutex
	reached map[id]mark
	swept   time.Time // when a full table was last swept
	// Room is for how many keys the table has room; 0 stands for 100,000. It is set before the first use.
	Room int
}

// id is a limit with its numbers, and a key. A limit whose numbers change is another one: after a change to a larger
// plan, a key reaches the marks of the new plan.
type id struct {
	limit        uint64 // its hash
	units, burst int64
	key          string
}

// mark is the highest mark that a key has reached, and when the period ends in which it did, in Unix nanoseconds.
type mark struct {
	percent int
	end     int64
}

// mostKeys bounds a Table's memory to about 15 MB.
const mostKeys = 100_000

// sweepEvery is the shortest time between two sweeps of a full table.
const sweepEvery = time.Second

// UseKnown reports whether the result of a decision has the use that its charge leads to. It has none if nothing was
// charged: a dry run denies, or the call was served a turn for which another call had asked. If the charge has waited
// for a later window, the result has the use of the window before.
func UseKnown(c *store.Charge, r *store.Result) bool {
	switch c.Limit.Algorithm() {
	case store.TokenBucket, store.LeakyBucket: // when the turn comes, as much is used as the result says
		return r.Receipt.Cost > 0
	case store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog:
	}
	return r.Receipt.Cost > 0 && r.Delay == 0
}

// Reached returns the mark that a charge has reached which added units to a key's use of a limit, or 0 if there is
// none. The mark is the highest at or below the use after the charge, and those below it count as reached. A mark is
// reached once in a period: the window, or the period of a rate. In a later period it is reached again once the use has
// been below it. Use that other processes have charged counts. full reports that the table is full,
// so it doesn't remember the mark.
func (t *Table) Reached(l *limit.Limit, c *store.Charge, r *store.Result, added int64) (percent int, full bool) {
	used, of := l.Use(c, r)
	percent = highest(l.Marks, used, of)
	if percent == 0 || added <= 0 {
		return 0, false
	}
	spec := c.Limit.Spec()
	key, now := id{inside.Hash(c.Limit), spec.Units, spec.Burst, c.Key}, time.Now()
	end := endOf(&spec, r, now)
	t.mu.Lock()
	defer t.mu.Unlock()
	m, known := t.reached[key]
	switch {
	case !known && !t.hasRoom(now):
		return percent, true
	case known && isOver(&spec, m, end, now):
		m.percent = min(m.percent, percentOf(max(used-added, 0), of))
		if startsAnew(spec.Algorithm) {
			m.percent = 0
		}
	}
	if percent <= m.percent {
		return 0, false
	}
	if t.reached == nil {
		t.reached = map[id]mark{}
	}
	t.reached[key] = mark{percent, end}
	return percent, false
}

// highest returns the highest of marks that used of so many units reaches, or 0.
func highest(marks []int, used, of int64) (percent int) {
	if of <= 0 {
		return 0
	}
	for _, m := range marks {
		if used*100 >= int64(m)*of {
			percent = m
		}
	}
	return percent
}

// percentOf returns the percentage that used is of so many units, rounded down. It is at most 100.
func percentOf(used, of int64) int { return int(min(used*100/of, 100)) }

// endOf returns when the period ends in which a charge was decided with r: a window or an interval after MoreAfter, by
// the clock of the store. ResetAfter may be the end of a later window, in which turns are reserved.
func endOf(s *store.Spec, r *store.Result, now time.Time) int64 {
	period := s.Period
	if inWindows(s.Algorithm) {
		period = r.MoreAfter
	}
	return now.Add(period).UnixNano()
}

// inWindows reports whether an algorithm gives units back together, at the end of a window or an interval.
func inWindows(a store.Algorithm) bool {
	switch a {
	case store.FixedWindow, store.IntervalBucket:
		return true
	case store.TokenBucket, store.LeakyBucket, store.SlidingWindow, store.SlidingCounter, store.SlidingLog:
	}
	return false
}

// startsAnew reports whether each period of an algorithm begins with no use.
func startsAnew(a store.Algorithm) bool {
	switch a {
	case store.FixedWindow:
		return true
	case store.TokenBucket, store.IntervalBucket, store.LeakyBucket, store.SlidingWindow, store.SlidingCounter,
		store.SlidingLog:
	}
	return false
}

// isOver reports whether the period of m is over. end is the end of the present period. Two ends of one window differ
// by how long the store takes to answer; those of two windows by at least a window, whatever the clocks say.
func isOver(s *store.Spec, m mark, end int64, now time.Time) bool {
	if !startsAnew(s.Algorithm) {
		return now.UnixNano() >= m.end
	}
	length := s.Period.Microseconds()
	if length == 0 {
		fixed := false
		if length, _, fixed = inside.Fixed(s.Window); !fixed {
			length = inside.Nominal(s.Window)
		}
	}
	return (end-m.end)/1000 > length/2
}

// hasRoom reports whether the table has room for another key. A full table drops the keys whose period is over, at
// most once in sweepEvery. The caller holds t.mu.
func (t *Table) hasRoom(now time.Time) bool {
	room := cmp.Or(t.Room, mostKeys)
	if len(t.reached) < room {
		return true
	}
	if since := now.Sub(t.swept); 0 <= since && since < sweepEvery {
		return false
	}
	t.swept = now
	for key, m := range t.reached {
		if now.UnixNano() >= m.end {
			delete(t.reached, key)
		}
	}
	return len(t.reached) < room
}
