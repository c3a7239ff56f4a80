package stint

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// slots holds the waits whose end nobody knows: a concurrency limit is full.
// Who waits for slots of one limit and key stands in a line. Only the head
// asks the store, when it is woken: by becoming the head, by a permit that has
// released a slot, or every slotPoll, as slots may be released elsewhere too.
type slots struct {
	waiting atomic.Int64 // in all lines: lets others pass without the lock
	mu      sync.Mutex
	lines   map[slotKey]*list.List // of chan struct{}
}

type slotKey struct{ limit, key string }

// slotPoll is how often the head of a line asks without being woken.
const slotPoll = 100 * time.Millisecond

// takeSlots asks the store, in turn where the call waits for slots.
func (c *call) takeSlots(ctx context.Context) error {
	s := &c.lim.family.slots
	if s.waiting.Load() > 0 {
		// Somebody waits: a slot that is free now is theirs.
		for i, e := range c.entries {
			if e.slots && !e.dryRun && s.busy(c.slotKey(i)) {
				if c.patience(ctx, i) <= 0 {
					return c.refuse(ctx, i)
				}
				return c.waitSlot(ctx, i)
			}
		}
	}
	if err := c.take(ctx); err != nil {
		return err
	}
	if i := c.full(ctx); i >= 0 {
		return c.waitSlot(ctx, i)
	}
	return nil
}

func (c *call) slotKey(i int) slotKey { return slotKey{c.charges[i].Limit.Name(), c.charges[i].Key} }

// patience is how long a charge may go on waiting for a slot.
func (c *call) patience(ctx context.Context, i int) time.Duration {
	wait := c.entries[i].maxWait
	if c.patient {
		wait = longWait
	}
	if wait == 0 {
		return 0
	}
	wait -= c.waited
	if t, ok := ctx.Deadline(); ok {
		if left := time.Until(t); left < wait || c.patient {
			wait = left
		}
	}
	return wait
}

// full returns the first charge that is refused for want of a slot and may
// wait, or -1 if there is none or something else refuses as well.
func (c *call) full(ctx context.Context) int {
	first := -1
	for i, e := range c.entries {
		switch r := &c.results[i]; {
		case r.OK || e.dryRun:
		case !e.slots || r.RetryAfter == Never || c.patience(ctx, i) <= 0:
			return -1
		case first < 0:
			first = i
		}
	}
	return first
}

// refuse answers a call that may not overtake who waits for charge i's slots.
func (c *call) refuse(ctx context.Context, i int) error {
	costs := make([]int64, len(c.charges))
	for j := range c.charges {
		costs[j], c.charges[j].Cost = c.charges[j].Cost, 0
	}
	err := c.take(ctx)
	for j := range c.charges {
		c.charges[j].Cost = costs[j]
	}
	c.results[i].OK, c.results[i].Remaining = false, 0 // what is free is not theirs
	return err
}

// waitSlot stands in line for charge i's slots until the call is granted,
// refused by something else, or out of patience.
func (c *call) waitSlot(ctx context.Context, i int) error {
	s := &c.lim.family.slots
	start, before := time.Now(), c.waited
	defer func() { c.waited = before + time.Since(start) }()
	until := start.Add(c.patience(ctx, i))
	key := c.slotKey(i)
	woken, place := s.join(key)
	defer func() { s.leave(key, place) }()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	asked := false
	for {
		select {
		case <-woken:
		case <-timer.C:
			if !time.Now().Before(until) {
				if asked {
					return nil
				}
				return c.refuse(ctx, i)
			}
		case <-ctx.Done():
			if asked && ctx.Err() == context.DeadlineExceeded {
				return nil // no slot in time: the limit's answer stands
			}
			clear(c.results)
			return &canceledError{ctx.Err()}
		}
		c.renew()
		if err := c.take(ctx); err != nil {
			return err
		}
		asked = true
		c.waited = before + time.Since(start)
		j := c.full(ctx)
		if j < 0 {
			return nil
		}
		if j != i { // free here, full there: the next here may go
			s.leave(key, place)
			i, key = j, c.slotKey(j)
			woken, place = s.join(key)
		}
		timer.Reset(min(slotPoll, time.Until(until)))
	}
}

// renew has a call that waits for slots ask for them by the limits as they now
// are: an Update that came after the call may have made more slots, or fewer,
// and there is one line for old and new. Who the call is, what it costs and what
// limits it has stay as they were when it came; what its limits say is taken from
// one generation, and shows in its fields and its decision.
func (c *call) renew() {
	g := c.lim.family.now.Load()
	if g == c.generation {
		return
	}
	c.generation = g
	for i, e := range c.entries {
		c.charges[i].Limit = g.successor(e.limit)
	}
	c.policy = ""
}

// wakeAll tells the head of every line that there may be more slots.
func (s *slots) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		s.wakeHead(line)
	}
}

// join enters the line of key. The head is woken at once: a slot may have come
// free since it asked.
func (s *slots) join(key slotKey) (woken chan struct{}, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(1)
	line := s.lines[key]
	if line == nil {
		if s.lines == nil {
			s.lines = map[slotKey]*list.List{}
		}
		line = list.New()
		s.lines[key] = line
	}
	woken = make(chan struct{}, 1)
	if line.Len() == 0 {
		woken <- struct{}{}
	}
	return woken, line.PushBack(woken)
}

// leave takes a place out of the line and wakes the head: there may be another
// slot, and who left the head's place may have used up its wake-up.
func (s *slots) leave(key slotKey, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Add(-1)
	line := s.lines[key]
	line.Remove(place)
	if line.Len() == 0 {
		delete(s.lines, key)
		return
	}
	s.wakeHead(line)
}

// wake tells the head of key's line that a slot has been released.
func (s *slots) wake(key slotKey) {
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if line := s.lines[key]; line != nil {
		s.wakeHead(line)
	}
}

func (s *slots) wakeHead(line *list.List) {
	select {
	case line.Front().Value.(chan struct{}) <- struct{}{}:
	default:
	}
}

// busy reports whether anybody waits in key's line.
func (s *slots) busy(key slotKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[key] != nil
}
