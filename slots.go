package stint

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// slotWait bounds the wait for a slot where WithQueue is given and WithMaxWait
// isn't: an HTTP/1.1 server doesn't notice that a client has left while the
// request's body is unread, so a wait without a bound would never end.
const slotWait = 5 * time.Second

// Concurrency limits a key to n requests in flight at once. A request that
// costs c takes c slots. Its default name is "concurrency".
//
// A slot is given back when the handler returns, also by a panic. A handler
// that hands its connection on (a websocket) calls Permit.Detach.
func Concurrency(n int64, opts ...ConcurrencyOption) Limit {
	k := &concurrency{}
	k.most = func(c *store.Charge) int64 { return c.Limit.Spec().Units }
	return newLimit(k, store.Spec{Name: "concurrency", Algorithm: store.Concurrency, Units: n}, opts)
}

// concurrency is the kind of Concurrency.
type concurrency struct{ held }

// line is how requests wait for a limit's slots.
type line struct {
	room   *int64 // of WithQueue; nil without
	shares *waiting.Shares
	most   func(*store.Charge) int64 // how many slots there are
}

// closed reports whether nobody may wait.
func (l *line) closed() bool { return l.room != nil && *l.room == 0 }

// held is what kinds have in common whose requests take slots.
type held struct {
	charged
	line
}

// lined is a kind with slots.
type lined interface{ terms() *line }

func (h *held) terms() *line { return &h.line }

func (h *held) enter(e *entry) {
	e.settle, e.line = nil, &h.line // of the limiter: slots are released
	switch {
	case h.closed():
		e.maxWait = 0
	case h.room != nil && e.maxWait == 0:
		e.maxWait = slotWait
	}
	h.charged.enter(e)
	e.needs |= releases
	if !e.dryRun {
		e.needs |= slots
	}
}

// counted: who waits for a slot in vain is not banned for it.
func (*held) counted(e *entry) bool { return e.maxWait == 0 }

func (*held) free(r *store.Result) bool { return r.Remaining > 0 }

func (*held) refusal(c *store.Charge) refusal {
	if c.Key == keytext.GlobalText {
		return reducedCapacity
	}
	return quotaExceeded
}

func (*held) unsettled() string { return "a concurrency limit: its slots are released by Done" }

// patience: it waits in the process, see waitSlot. The store is told where a
// refusal would be counted meanwhile.
func (*held) patience(_ *entry, wait, left time.Duration, counting bool) time.Duration {
	if !counting {
		return 0
	}
	return min(max(wait, 0), left)
}

// takeSlots is take for a call with slots, in turn where it waits for them.
func (c *call) takeSlots(ctx context.Context) error {
	c.class(ctx) // who holds slots is counted by class
	if c.lim.family.slots.Waiting() {
		if i, n := c.behind(); n > 0 {
			if c.patience(ctx, i) > 0 {
				return c.waitSlot(ctx, i, false)
			}
			c.note(i, n)
			return c.refuse(ctx, i)
		}
	}
	if err := c.take(ctx); err != nil || c.granted {
		return err
	}
	if i := c.full(ctx); i >= 0 {
		return c.waitSlot(ctx, i, true)
	}
	return nil
}

// slotsOf says which slots a charge is about.
func slotsOf(ch *store.Charge) waiting.Key { return waiting.Key{Limit: ch.Limit.Name(), Key: ch.Key} }

// hold counts sign times what charges cost as held by a class.
func (f *family) hold(entries []*entry, charges []store.Charge, class uint8, sign int64) {
	for i, e := range entries {
		if ch := &charges[i]; e.needs&slots != 0 && ch.Cost > 0 {
			f.slots.Hold(slotsOf(ch), class, sign*ch.Cost)
		}
	}
}

// behind is the first charge whose slots others wait for, and how many do: a slot
// that is free now is theirs. A charge that takes none is behind nobody.
func (c *call) behind() (i int, queued int64) {
	s := &c.lim.family.slots
	for i, e := range c.entries {
		if e.needs&slots == 0 || c.charges[i].Cost == 0 {
			continue
		}
		key := slotsOf(&c.charges[i])
		n := s.Queued(key)
		if n == 0 {
			continue
		}
		e.line.most(&c.charges[i]) // a key of this process goes by this limit now
		return i, n
	}
	return 0, 0
}

// patience is how long a charge may go on waiting for a slot: as long as its own
// limit says, however long the call has stood in the lines of others. Wait has
// one patience for all of them.
func (c *call) patience(ctx context.Context, i int) time.Duration {
	wait := c.entries[i].maxWait
	switch {
	case c.entries[i].line.closed():
		return 0
	case c.patient:
		wait = longWait - c.waited
	case len(c.lines) > 0:
		wait -= c.lines[i].waited
	}
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
		case e.needs&slots == 0 || r.RetryAfter == Never || c.patience(ctx, i) <= 0:
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
	err := c.ask(ctx)
	for j := range c.charges {
		c.charges[j].Cost = costs[j]
	}
	c.results[i].OK, c.results[i].Remaining = false, 0 // what is free is not theirs
	return err
}

// slotWaiter is a call that waits for slots: what its lines have to know of it.
type slotWaiter struct {
	*call
	charge int       // whose line it stands in
	booked time.Time // up to when the wait there is counted
	asked  bool      // results are an answer: by the limits that the call now has
	want   *waiting.Want
	err    error // the store's
}

// waitSlot stands in line for charge i's slots until the call is granted,
// refused by something else, or out of patience. asked says that results hold
// the refusal that brought it here.
func (c *call) waitSlot(ctx context.Context, i int, asked bool) error {
	w := &slotWaiter{call: c, asked: asked}
	err := c.lim.family.slots.Wait(ctx, w.wants(ctx, i), w)
	w.book()
	switch {
	case err == nil:
		return w.err
	case err == waiting.ErrFull || err == waiting.ErrLate:
		if w.asked {
			return nil
		}
		return c.refuse(ctx, w.charge)
	}
	return w.timedOut(ctx, err)
}

// wants has the call want the slots of charge i.
func (w *slotWaiter) wants(ctx context.Context, i int) *waiting.Want {
	now := time.Now()
	f, e, ch := w.lim.family, w.entries[i], &w.charges[i]
	w.charge, w.booked = i, now
	w.want = &waiting.Want{
		Key: slotsOf(ch), Cost: ch.Cost, Rank: w.rank(ctx, now),
		Shares: func() *waiting.Shares { return f.shares(e) },
		Room:   w.room(i), Until: now.Add(w.patience(ctx, i)),
	}
	return w.want
}

// room is how many may stand in line for charge i's slots. By default it is as many
// as there are slots, so that a crowd finds a full line and not an endless one;
// Wait's callers are the application's own, and it knows how many there are.
func (c *call) room(i int) int64 {
	e, ch := c.entries[i], &c.charges[i]
	switch {
	case e.line.room != nil:
		return *e.line.room
	case c.patient:
		return math.MaxInt64
	}
	return e.line.most(ch)
}

// shares are those of e's limit as it now is.
func (f *family) shares(e *entry) *waiting.Shares {
	if r := f.now.Load().named().rules[e.limit.Name()]; r != nil {
		if l, ok := r.kind.(lined); ok {
			return l.terms().shares
		}
		return nil
	}
	return e.line.shares
}

// Came implements waiting.Asker.
func (w *slotWaiter) Came(queued int64, joined bool) {
	w.note(w.charge, queued)
	if joined {
		w.waiting(w.charge, 0)
	}
}

// Ask implements waiting.Asker.
func (w *slotWaiter) Ask(ctx context.Context) *waiting.Want {
	if i, others := w.renew(w.charge); others { // there is no answer to go by then
		w.charge, w.asked = i, false
	}
	if err := w.bound(ctx); err != nil {
		w.err = w.timedOut(ctx, err)
		return nil
	}
	if w.err = w.take(ctx); w.err != nil {
		return nil
	}
	w.asked = true
	w.book()
	switch i := w.full(ctx); {
	case i < 0:
		return nil
	case w.results[w.charge].OK:
		return w.wants(ctx, i)
	}
	return w.want
}

// book counts how long the call has stood in its line.
func (w *slotWaiter) book() {
	now := time.Now()
	d := now.Sub(w.booked)
	w.booked = now
	w.waited += d
	w.lines[w.charge].waited += d
}

// timedOut ends a wait whose context has ended with err. Where that is the
// deadline, no slot has come in time, which is the limit's answer.
func (w *slotWaiter) timedOut(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		clear(w.results)
		return &canceledError{err}
	case w.asked:
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()
	return w.refuse(ctx, w.charge)
}

// renew has a call that waits for charge at's slots ask by the limits as they now
// are: an Update that came after the call may have made more slots, or fewer, or
// another kind of limit, and there is one line for old and new. Who the call is,
// what it costs and what limits it has stay as they were when it came; what its
// limits say is taken from one generation, and shows in its fields and its
// decision. It returns which charge that is now, and whether the limits are others.
func (c *call) renew(at int) (now int, others bool) {
	g := c.lim.family.now.Load()
	if g == c.generation || c.generation == nil && g == c.lim.generation {
		return at, false
	}
	c.generation = g
	entries, charges, lines := slices.Clone(c.entries), slices.Clone(c.charges), c.lines
	c.entries, c.charges, c.results = c.entries[:0], c.charges[:0], c.results[:0]
	c.needs, c.policy, c.lines = 0, "", nil
	for i := range c.paced {
		c.needs |= c.paced[i].entry.needs
	}
	for i, e := range entries {
		c.add(g.successor(e), charges[i].Key, charges[i].Cost)
	}
	c.store = c.lim.store
	if c.needs&local != 0 {
		c.decideLocally()
	}
	// Limits of this process stand last: one that has become one, or is one no
	// longer, has another place now.
	c.lines = make([]lineStatus, len(lines))
	for i, e := range entries {
		j := slices.IndexFunc(c.charges, func(ch store.Charge) bool {
			return ch.Key == charges[i].Key && ch.Limit.Name() == e.limit.Name()
		})
		c.lines[j] = lines[i]
		if i == at {
			now = j
		}
	}
	return now, true
}
