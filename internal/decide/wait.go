package decide

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// wait has the charges decided, for a call that may have to wait, or that may find others waiting. The error is a
// *Canceled or the store's.
func (c *Call) wait(ctx context.Context) error {
	if c.Needs&limit.Slots != 0 {
		c.classOf(ctx) // slots are counted by class: read it before there is anything to lose
	}
	if c.Needs&limit.Fair != 0 {
		c.readTenants()
	}
	c.setFinal(ctx)
	if i, found := c.awaited(ctx); found {
		return c.waitBehind(ctx, i)
	}
	if !c.Patient && c.Needs&limit.Waits == 0 {
		return c.takeHere(ctx)
	}
	return c.askFirst(ctx)
}

// waitBehind has the call join the line of charge i, in which others wait, or denies it if it may not wait.
func (c *Call) waitBehind(ctx context.Context, i int) error {
	if c.patience(ctx, i) > 0 {
		return c.waitInLines(ctx, place{charge: i})
	}
	return c.denyBehind(ctx, i)
}

// heldCharge returns the only charge of the call that isn't a dry run, if it waits for a turn. The call's line may
// hold that turn, since nothing else would be held meanwhile.
func (c *Call) heldCharge() (i int, holds bool) {
	i = -1
	for j := range c.Charges {
		if c.Charges[j].DryRun {
			continue
		}
		if i >= 0 {
			return 0, false
		}
		i = j
	}
	return i, i >= 0 && c.Limits[i].Wait.For == limit.ForTurn
}

// takeHere asks the store, and counts the slots that the call is granted.
func (c *Call) takeHere(ctx context.Context) error {
	err := c.take(ctx)
	if c.owns {
		for i, l := range c.Limits {
			l.HoldHere(c.by.Lines, c.Charges[i].Key, c.Charges[i].Cost, c.Class, c.tenantOf(i))
		}
	}
	return err
}

// askFirst asks the store for a call that finds no line, or whose line it leads. If it has to wait, it joins one. A
// raise is the owner of what it is granted, so that it can give it back if its permit ends: its line holds nothing for
// it.
func (c *Call) askFirst(ctx context.Context) error {
	held, holds := c.heldCharge()
	if holds = holds && !c.raise; holds {
		// Of calls that come at once, one may be granted a turn, and the others join its line.
		key := lines.KeyOf(c.Charges[held].Limit, c.Charges[held].Key)
		c.Charges[held].MaxWait = 0
		if c.by.Lines.BeginFirst(key) {
			c.first = key
			defer c.endsFirst() // also if the store panics
			if i, found := c.awaited(ctx); found {
				// The call that was the first before has made a line since this one looked.
				c.endsFirst()
				return c.waitBehind(ctx, i)
			}
			c.Charges[held].MaxWait = max(c.patience(ctx, held), 0)
		}
	} else {
		horizon := lines.Horizon
		if inside.AnswersAtOnce(c.store()) {
			horizon = 0
		}
		c.setMaxWaits(ctx, horizon)
	}
	if err := c.takeOutliving(ctx); err != nil {
		return err
	}
	switch {
	case !c.owns:
		i, comes, waits := c.lacking(ctx)
		if !waits {
			c.recordQueued()
			return nil
		}
		return c.waitInLines(ctx, place{charge: i, answered: true, comes: comes})
	case c.delay() == 0:
		if err := ctx.Err(); err != nil { // the caller has left while the store was asked
			return &Canceled{err}
		}
		return nil
	case holds:
		c.classOf(ctx) // before there is anything to lose
		return c.waitInLines(ctx, place{charge: held, turn: c.handTurn(held)})
	}
	return c.sleep(ctx)
}

// endsFirst lets another call be the first of its line, once the call has joined it or needn't.
func (c *Call) endsFirst() {
	if key := c.first; key != (lines.Key{}) {
		c.first = lines.Key{}
		c.by.Lines.EndFirst(key)
	}
}

// setMaxWaits sets how long the store may have each charge wait, if the charge may wait at all: up to the horizon,
// and as long as it would wait if it were alone.
func (c *Call) setMaxWaits(ctx context.Context, horizon time.Duration) {
	for i := range c.Charges {
		c.Charges[i].MaxWait = 0
		if c.Limits[i].Wait.For == limit.ForTurn {
			c.Charges[i].MaxWait = max(min(horizon+inside.Alone(&c.Charges[i]), c.patience(ctx, i)), 0)
		}
	}
}

// takeOutliving asks the store in a context that ends a while after ctx, if the call may be granted a turn. If ctx
// ended during the call, the store would give the turn back by itself, and no call would get it. So a call that
// is about to leave waits for the answer, and then leaves its line like all others.
func (c *Call) takeOutliving(ctx context.Context) error {
	if ctx.Done() != nil && !inside.AnswersAtOnce(c.store()) {
		longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(background.SettleTimeout, cancel) })
		defer func() {
			stop()
			cancel()
		}()
		ctx = longer
	}
	return c.takeHere(ctx)
}

// awaited returns the first charge for whose units others wait, or for which a turn is held: what is free now is
// theirs.
func (c *Call) awaited(ctx context.Context) (i int, found bool) {
	if !c.by.Lines.Waiting() {
		return 0, false
	}
	for i, l := range c.Limits {
		ch := &c.Charges[i]
		if ch.Cost == 0 || ch.DryRun || l.Wait.For == limit.ForNothing ||
			l.Wait.For == limit.ForSlot && !l.TakesSlots(ch.Cost) {
			continue
		}
		key := lines.KeyOf(ch.Limit, ch.Key)
		n, found := c.by.Lines.Queued(key)
		if c.raise { // it is before all but other raises
			n = c.by.Lines.Raising(key)
			found = n > 0
		}
		if !found || n == 0 && c.patience(ctx, i) <= 0 {
			continue
		}
		if l.Wait.Slots != nil {
			l.Wait.Slots(ch) // makes the key follow this limit now, without asking it
		}
		return i, true
	}
	return 0, false
}

// lacking returns the charge for which a denied call has to wait longest, and when its units come if that is known.
// waits is false if the call doesn't wait: it is denied by a limit for which it may not, or not so long.
func (c *Call) lacking(ctx context.Context) (slowest int, comes time.Time, waits bool) {
	longest := time.Duration(-1)
	now := time.Now()
	for i := range c.Charges {
		r, ch := &c.Results[i], &c.Charges[i]
		if r.OK || ch.DryRun {
			continue
		}
		patience := c.patience(ctx, i)
		if r.RetryAfter == store.Never || patience <= 0 {
			return 0, time.Time{}, false
		}
		after := time.Duration(0)
		if c.Limits[i].Wait.For == limit.ForTurn {
			if after = r.RetryAfter + c.reach(ch); after > patience {
				c.endedByDeadline = c.withinLimit(i, after)
				r.RetryAfter = after - patience
				return 0, time.Time{}, false
			}
		}
		if after > longest {
			slowest, longest = i, after
		}
	}
	if longest > 0 {
		comes = now.Add(longest)
	}
	return slowest, comes, longest >= 0
}

// reach returns how far ahead the store could have reserved a turn for a charge.
func (c *Call) reach(ch *store.Charge) time.Duration {
	return min(ch.MaxWait, time.Duration(inside.Terms(ch.Limit).Patience)*time.Microsecond)
}

// patience returns how long charge i may go on waiting: as long as its own limit allows, however long the call has
// stood in the lines of others. A patient call waits until its deadline.
func (c *Call) patience(ctx context.Context, i int) time.Duration {
	w := &c.Limits[i].Wait
	wait := w.MaxWait
	switch {
	case w.For == limit.ForNothing || w.Closed() || c.Charges[i].DryRun:
		return 0
	case c.Patient || wait == 0 && w.Queues:
		wait = store.Never
	case len(c.LineWaits) > 0:
		wait -= c.LineWaits[i].Waited
		if c.standing == i && !c.since.IsZero() {
			wait -= time.Since(c.since)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	return wait
}

// withinLimit reports whether charge i's limit would let the call wait for so long, so that only its context doesn't.
func (c *Call) withinLimit(i int, d time.Duration) bool {
	return d <= c.patience(context.Background(), i)
}

// room returns how many may stand in line for charge i's units. For slots it is by default as many as there are,
// so that a crowd finds a full line rather than an endless one. Patient callers are the application's own, and it
// knows how many there are. A line for turns is bounded by the time that its calls may wait.
func (c *Call) room(i int) int64 {
	w := &c.Limits[i].Wait
	switch {
	case w.Room != nil:
		return *w.Room
	case c.Patient || w.For == limit.ForTurn:
		return math.MaxInt64
	}
	return w.Slots(&c.Charges[i])
}

// place is where a call stands in its wait, in one line after another.
type place struct {
	charge   int         // in whose line the call waits
	answered bool        // the results are the store's answer, by the limits that the call now has
	comes    time.Time   // when the store has said that the units come, or the zero Time
	turn     *lines.Turn // that the call was granted before it joins the line, or nil
	decided  bool        // the call is granted, or denied by something for which it doesn't wait
	ended    error       // why the wait has ended, if the call isn't decided
	expected time.Time   // the turn that comes too late, if ended is ErrLate and it is known
}

// waitInLines waits for charge after charge until the call is decided or out of patience.
func (c *Call) waitInLines(ctx context.Context, p place) error {
	c.classOf(ctx)
	for !p.decided && p.ended == nil {
		if err := c.waitInLine(ctx, &p); err != nil {
			return err
		}
	}
	if !p.decided {
		return c.endWait(ctx, &p)
	}
	if c.owns && !c.served && c.delay() > 0 {
		return c.sleep(ctx)
	}
	return nil
}

// waitInLine waits in the line of p.charge, and asks the store when the line says so. It returns when the call is
// decided, when it has to wait for another charge instead, which is p.charge then, or when the wait has ended. The
// error is the store's.
func (c *Call) waitInLine(ctx context.Context, p *place) error {
	i := p.charge
	ls, start := c.by.Lines, time.Now()
	if c.arrived.IsZero() {
		c.arrived = start
	}
	ch, l := &c.Charges[i], c.Limits[i]
	_, single := c.heldCharge()
	holds := single && !c.raise
	w := &lines.Waiter{
		Key: lines.KeyOf(ch.Limit, ch.Key), Cost: ch.Cost, Class: c.Class, Tenant: c.tenantOf(i), Arrived: c.arrived,
		Until: start.Add(c.patience(ctx, i)), Room: c.room(i),
		Holds: holds, Single: single, Owns: c.raise,
		Alone:  inside.Alone(ch),
		AtOnce: inside.AnswersAtOnce(c.store()), TakesSlots: c.Needs&limit.Slots != 0,
		Supply: lines.SupplyOf(ch.Limit, start), Shares: l.Wait.Shares,
	}
	if !holds {
		w.Set = lines.SetOf(c.Charges)
	}
	c.standing, c.since = i, start
	defer func() { // also if the store or the application panics
		ls.Leave(w)
		c.since = time.Time{}
		waited := time.Since(start)
		c.Waited += waited
		c.lineWait(i).Waited += waited
	}()
	if p.turn != nil {
		p.turn.By = w
	}
	queued, expected, err := ls.Join(w, p.turn, p.comes)
	p.turn, p.comes = nil, time.Time{}
	c.endsFirst()
	c.lineWait(i).Queued = queued
	if err != nil {
		p.ended, p.expected = err, expected
		return nil
	}
	wait := time.Duration(0)
	if !expected.IsZero() {
		wait = max(expected.Sub(start), 0)
	}
	if !w.AsksAtOnce { // a call that finds no line asks again in its own, and may be granted what has come meanwhile
		c.beginWait(i, wait)
	}
	for {
		t, ended := ls.Wait(ctx, w)
		switch {
		case ended != nil:
			p.ended = ended
			return nil
		case t != nil:
			p.decided, c.served = true, true
			return c.useTurn(ctx, i, t, t.By == w)
		}
		if moved, err := c.askInLine(ctx, w, p); moved || err != nil {
			return err
		}
		c.beginWait(i, wait)
	}
}

// askInLine asks the store for a call whose line has told it to. moved is set if the call leaves the line: it is
// decided, or waits for another charge.
func (c *Call) askInLine(ctx context.Context, w *lines.Waiter, p *place) (moved bool, err error) {
	i := p.charge
	a := lines.Answer{Failed: true}
	defer func() { // also if the store panics
		a.Supply = lines.SupplyOf(c.Charges[i].Limit, time.Now())
		c.by.Lines.Answer(w, a)
	}()
	if c.renew() {
		p.answered = false
	}
	if w.Holds {
		c.Charges[i].MaxWait = max(c.patience(ctx, i), 0)
	} else {
		c.setMaxWaits(ctx, w.Horizon)
	}
	asked := time.Now()
	if err := c.takeOutliving(ctx); err != nil {
		return true, err
	}
	p.answered = true
	now := time.Now()
	if !inside.AnswersAtOnce(c.store()) {
		a.Took = now.Sub(asked)
	}
	a.Failed = false
	if c.owns {
		if w.Holds || c.delay() > 0 && !w.TakesSlots && !w.Owns {
			a.Turn, p.answered = c.handTurn(i), false
			if a.Turn.By = w; !w.Holds {
				a.Turn.Set, a.Turn.Results = w.Set, slices.Clone(c.Results)
				a.Turn.At = now.Add(c.delay())
			}
			return false, nil
		}
		a.Passed, a.At, a.Left = true, now.Add(c.delay()), c.Results[i].Remaining
		p.decided = true
		return true, nil
	}
	lacks, comes, waits := c.lacking(ctx)
	switch {
	case !waits:
		p.decided = true
		c.expectLine(&a, i)
		return true, nil
	case lacks != i && c.Results[i].OK:
		a.Elsewhere = true
		p.charge, p.comes = lacks, comes
		return true, nil
	case lacks != i && c.Limits[lacks].Wait.For == limit.ForTurn:
		// The other limit's units come later.
		a.Elsewhere = true
		p.charge, p.comes = lacks, comes
		return true, nil
	}
	c.expectLine(&a, i)
	return false, nil
}

// expectLine sets when the line of charge i asks again after a denial.
func (c *Call) expectLine(a *lines.Answer, i int) {
	r := &c.Results[i]
	if r.OK || r.RetryAfter == store.Never {
		a.Elsewhere = true
		return
	}
	a.Retry = r.RetryAfter
}

// handTurn makes the turn that charge i was granted one of its line.
func (c *Call) handTurn(i int) *lines.Turn {
	c.owns, c.Allowed = false, false
	r, now := c.Results[i], time.Now()
	return &lines.Turn{At: now.Add(r.Delay), Cost: c.Charges[i].Cost, Limit: c.Charges[i].Limit, Result: r, Asked: now}
}

// useTurn makes the call the owner of a turn of charge i that has come. own reports whether the call has asked for
// it. Otherwise its dry runs are left uncharged, since they were charged for the call that did. If the turn is for
// a higher cost, the rest is refunded.
func (c *Call) useTurn(ctx context.Context, i int, t *lines.Turn, own bool) error {
	since := time.Since(t.Asked)
	if t.Results != nil {
		copy(c.Results, t.Results)
	} else if !own {
		for j := range c.Results { // the use of dry runs isn't known
			c.Results[j] = store.Result{OK: true, Remaining: inside.Full(c.Charges[j].Limit, c.Charges[j].MaxWait)}
		}
	}
	r := &c.Results[i]
	*r = t.Result
	for j := range c.Results { // they were relative to the instant of the decision
		result := &c.Results[j]
		result.ResetAfter, result.MoreAfter = max(0, result.ResetAfter-since), max(0, result.MoreAfter-since)
	}
	c.Charges[i].Limit, c.Allowed, c.owns = t.Limit, true, true
	c.countWaiting(i, t.Behind)
	if r.Receipt.Cost > c.Charges[i].Cost {
		ch := c.Charges[i]
		ch.Receipt = r.Receipt
		settled := c.by.settle(context.WithoutCancel(ctx), c.store(), []store.Charge{ch}, make([]store.Result, 1), c.Timed)
		if settled.Err == nil {
			r.Receipt = settled.Results[0].Receipt
		}
	}
	return nil
}

// sleep waits until the turns have come that the call was granted together with all else, within its horizon.
func (c *Call) sleep(ctx context.Context) error {
	d, i := c.delay(), c.slowest()
	c.lineWait(i)
	c.beginWait(i, d)
	start := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	waited := time.Since(start)
	c.Waited += waited
	c.LineWaits[i].Waited += waited
	for j := range c.Results { // they were relative to the instant of the decision
		c.Results[j].ResetAfter = max(0, c.Results[j].ResetAfter-waited)
	}
	if err := ctx.Err(); err != nil {
		return &Canceled{err}
	}
	return nil
}

// endWait ends a wait in which no turn or slot has come in time, or whose caller has left.
func (c *Call) endWait(ctx context.Context, p *place) error {
	timedOut := errors.Is(p.ended, context.DeadlineExceeded)
	switch {
	case p.ended != lines.ErrFull && p.ended != lines.ErrLate && !timedOut:
		clear(c.Results)
		return &Canceled{p.ended}
	case p.answered && p.expected.IsZero(): // the last denial is the limit's answer
		c.endedByDeadline = timedOut || p.ended == lines.ErrLate && c.withinLimit(p.charge, 1)
		return nil
	case timedOut: // the store is still to be asked
		c.endedByDeadline = true
		long, stop := context.WithTimeout(context.WithoutCancel(ctx), background.SettleTimeout)
		defer stop()
		ctx = long
	}
	if p.ended == lines.ErrFull { // the next place is free when the next turn has come
		return c.look(ctx, p.charge, func(s *lines.Standing) time.Duration { return s.Next })
	}
	late := time.Duration(0)
	if !p.expected.IsZero() {
		late = time.Until(p.expected)
		c.endedByDeadline = c.withinLimit(p.charge, late)
		late -= max(c.patience(ctx, p.charge), 0)
	}
	return c.look(ctx, p.charge, func(*lines.Standing) time.Duration { return late })
}

// renew replaces the limits of the call by those that an Update has put in their places. The call keeps
// its keys, its costs, its rank and its own patience, but waits for the units and shares that there are now. A turn
// that its line holds stays as it was granted.
func (c *Call) renew() (renewed bool) {
	for i, l := range c.Limits {
		if now := c.by.Current(l); now != l {
			c.Limits[i], c.Charges[i].Limit = now, now.StoreLimit
			c.Needs |= now.Needs
			renewed = true
		}
	}
	c.Renewed = c.Renewed || renewed
	return renewed
}

// denyBehind denies a call that must not overtake the calls that wait for charge i's units.
func (c *Call) denyBehind(ctx context.Context, i int) error {
	ch := &c.Charges[i]
	key := lines.KeyOf(ch.Limit, ch.Key)
	c.lineWait(i).Queued, _ = c.by.Lines.Queued(key)
	return c.look(ctx, i, func(*lines.Standing) time.Duration { return c.by.Lines.Estimate(key, ch.Cost) })
}

// look asks the store about the state of all limits, for a call that charge i denies, and charges nothing. If the
// charge waits for a turn, retry returns its RetryAfter, or 0 if the time isn't known: then it is the time until
// there is a unit more.
func (c *Call) look(ctx context.Context, i int, retry func(*lines.Standing) time.Duration) error {
	costs := make([]int64, len(c.Charges))
	for j := range c.Charges {
		costs[j], c.Charges[j].Cost = c.Charges[j].Cost, 0
		c.Charges[j].Final = false // it counts no denial
	}
	err := c.ask(ctx)
	for j := range c.Charges {
		c.Charges[j].Cost = costs[j]
	}
	r := &c.Results[i]
	if r.OK, r.Remaining = false, 0; err != nil || c.Limits[i].Wait.For != limit.ForTurn { // what is free belongs to others
		return err
	}
	s := c.by.Lines.Standing(lines.KeyOf(c.Charges[i].Limit, c.Charges[i].Key))
	if r.RetryAfter = retry(&s); r.RetryAfter <= 0 {
		r.RetryAfter = r.MoreAfter
	}
	r.RetryAfter = max(r.RetryAfter, time.Microsecond)
	return nil
}

// countLines has the results count the calls that wait in this process, of which the store knows nothing. A call
// that its line has served has counted them itself.
func (c *Call) countLines() {
	for i, l := range c.Limits {
		if c.served || l.Wait.For != limit.ForTurn || !l.Wait.Queues && !c.by.Lines.Waiting() {
			continue
		}
		s := c.by.Lines.Standing(lines.KeyOf(c.Charges[i].Limit, c.Charges[i].Key))
		c.countWaiting(i, max(s.Units-s.Held, 0))
	}
}

// countWaiting has the result of charge i count units of calls that wait in this process. What is left counts the
// limit's queue as far as the limit allows to wait, however far this call's last ask went. So the charge says that from
// now on, by which its capacity is worked out.
func (c *Call) countWaiting(i int, units int64) {
	l := c.Limits[i]
	if l.Wait.Queues {
		c.Charges[i].MaxWait = l.Wait.InQueue()
	}
	l.CountWaiting(&c.Results[i], units)
}

// beginWait notifies the call's owner that the call has begun to wait. A call that waits for several
// things in turn begins once.
func (c *Call) beginWait(i int, d time.Duration) {
	if !c.BeganWaiting && !c.raise {
		c.BeganWaiting = true
		c.waits(i, c.LineWaits[i].Queued, d)
	}
}

// lineWait returns the element of LineWaits for charge i.
func (c *Call) lineWait(i int) *LineWait {
	if len(c.LineWaits) == 0 {
		c.LineWaits = make([]LineWait, len(c.Charges))
	}
	return &c.LineWaits[i]
}

// recordQueued records, for a denied call, how many wait for the turn that it doesn't get.
func (c *Call) recordQueued() {
	for i := range c.Charges {
		if c.Results[i].OK {
			continue
		}
		if n, _ := c.by.Lines.Queued(lines.KeyOf(c.Charges[i].Limit, c.Charges[i].Key)); n > 0 {
			c.lineWait(i).Queued = n
			return
		}
	}
}

// delay returns how long the call waits for its turns: the largest delay of the enforced limits.
func (c *Call) delay() (d time.Duration) {
	for i := range c.Results {
		if c.Results[i].OK && !c.Charges[i].DryRun {
			d = max(d, c.Results[i].Delay)
		}
	}
	return d
}

// slowest returns the charge whose limit makes the call wait longest.
func (c *Call) slowest() int {
	slowest, longest := -1, time.Duration(math.MinInt64)
	for i := range c.Results {
		if wait := max(c.Results[i].Delay, c.Results[i].RetryAfter); wait > longest && !c.Charges[i].DryRun {
			slowest, longest = i, wait
		}
	}
	return slowest
}
