// Package lines has the lines in which calls of one process wait: for turns of rates, and for slots of
// concurrency limits. A turn is an instant that a rate has reserved in its future. A call is a request, or a
// chunk of a stream's bytes. A line doesn't know how many units there are: it says which call asks the store
// for them, and when.
//
// A wait goes like this:
//
//  1. A call that has to wait enters the line of a limit and key with [Lines.Join]. If the line is full, the
//     call replaces the last waiter of the lowest rank, if that is below its own. If its turn would come too
//     late, the call isn't let in. A class below its share ranks above all others; otherwise a higher class ranks
//     above a lower one, and within a class the order is that of arrival. In a fair queue (Waiter.Tenant), the tenant
//     that holds the fewest slots ranks highest, and a call replaces the last waiter of the tenant that has the most.
//  2. [Lines.Wait] returns when the call is to ask the store, or when the line has served it a turn. The call
//     asks, and tells the line by [Lines.Answer].
//  3. A call with one charge (Waiter.Holds) asks with as much MaxWait as it has left. The turn that it is granted
//     belongs to the line, which serves it, when it has come, to the first call that it suffices for. A line holds
//     one turn, or as many as come within 10 ms, or a round trip and 5 ms. So only the first of a line hold turns,
//     and all others have charged nothing.
//  4. A call with several charges, or with slots, holds nothing. It asks for all of them at once, shortly before
//     the store has said that they would pass, for each slot that is released, and otherwise a few times per second. If
//     units of another limit are missing, it changes lines. What it is granted for an instant to come is its own if
//     it takes slots; otherwise it is a turn of the line, for calls with the same charges.
//  5. The wait ends with a turn, with an answer, with the context, when the call's time is up, or when the call
//     is replaced. The call then leaves with [Lines.Leave]. A turn that it hasn't taken goes to the next call. A
//     turn that comes while no call waits passes unused.
//
// The state of a line changes under one lock, in [Lines.advance], which looks at all of it. So no wake-up is
// lost: what a call leaves undone when it goes, the next call is told.
package lines

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Lines holds the lines of one store. The zero value is ready to use. It is safe for concurrent use.
type Lines struct {
	n      atomic.Int64 // of lines: lets others pass without the lock
	mu     sync.Mutex
	all    map[Key]*line
	trip   time.Duration // of a call of the store, smoothed
	held   held
	firsts [256]firstAsk // by a hash of the key
}

// firstAsk is the place of a call that asks although no other of its key waits, and may be granted a turn.
type firstAsk struct {
	taken atomic.Bool
	// delayed are the lines that don't ask before the call has joined one, or has ended. n is how many.
	delayed []*line
	n       atomic.Int64
}

// A line of slots asks without being told of a release after a while. All lines together ask a hundred times
// a second, but each at least once a second.
const (
	pollLeast   = 100 * time.Millisecond
	pollMost    = time.Second
	pollPerLine = 10 * time.Millisecond
)

// Waiting reports whether there is a line. It is one atomic load.
func (ls *Lines) Waiting() bool { return ls.n.Load() > 0 }

// Queued returns how many wait in key's line, and whether there is a line. There is one without waiters as long
// as it holds a turn.
func (ls *Lines) Queued(key Key) (waiting int64, found bool) {
	if !ls.Waiting() {
		return 0, false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[key]
	if l == nil {
		return 0, false
	}
	ls.advance(l, time.Now()) // a turn that has come just now is no longer waited for
	return l.n, true
}

// Raising returns how many raises wait in key's line.
func (ls *Lines) Raising(key Key) int64 {
	if !ls.Waiting() {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.all[key]; l != nil {
		return int64(len(l.classes[Raises].waiters))
	}
	return 0
}

// Standing is what waits in a line.
type Standing struct {
	Units int64         // for which calls wait
	Held  int64         // of these, for which the line holds turns
	Next  time.Duration // until the next turn that the line holds, or 0
}

// Standing returns what waits in key's line.
func (ls *Lines) Standing(key Key) (s Standing) {
	if !ls.Waiting() {
		return Standing{}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[key]
	if l == nil {
		return Standing{}
	}
	s.Units = l.waiting()
	for _, t := range l.turns {
		s.Held += t.Cost
	}
	if len(l.turns) > 0 && l.n > 0 {
		s.Next = max(time.Until(l.turns[0].At), 0)
	}
	return s
}

// Estimate returns after how long a call of the lowest class would get its turn in key's line, or 0 if there is none.
func (ls *Lines) Estimate(key Key, cost int64) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[key]
	if l == nil || l.supply.ofSlots() {
		return 0
	}
	now := time.Now()
	return l.estimate(now, 0, cost).Sub(now)
}

// BeginFirst reports whether the calling call may be granted a turn although it stands in no line, because no other
// call of its key is about to be. EndFirst must follow then, after Join if the call joins a line. Another call may have
// made a line before, so the call has to look for one again.
func (ls *Lines) BeginFirst(key Key) bool { return ls.firstOf(key).taken.CompareAndSwap(false, true) }

// EndFirst ends what BeginFirst has begun.
func (ls *Lines) EndFirst(key Key) {
	f := ls.firstOf(key)
	f.taken.Store(false)
	if f.n.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delayed, now := f.delayed, time.Now()
	f.delayed = nil
	f.n.Store(0)
	for _, l := range delayed {
		l.delayed, l.firstAsk = false, nil
		ls.advance(l, now)
	}
}

func (ls *Lines) firstOf(key Key) *firstAsk { return &ls.firsts[hashOf(key)%uint64(len(ls.firsts))] }

// AddHeld counts n slots of key as held by a class and, if it isn't zero, by a tenant, or as released if n is negative.
func (ls *Lines) AddHeld(key Key, class uint8, t Tenant, n int64) { ls.held.add(key, class, t, n) }

// Wake tells key's line that a slot has been released.
func (ls *Lines) Wake(key Key) { ls.change(key, false) }

// Forget drops the turns that key's line holds: the limit has been reset.
func (ls *Lines) Forget(key Key) { ls.change(key, true) }

func (ls *Lines) change(key Key, drop bool) {
	if !ls.Waiting() {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.all[key]; l != nil {
		ls.hurry(l, drop, time.Now())
	}
}

// WakeAll tells every line that there may be more units.
func (ls *Lines) WakeAll() { ls.changeAll(false) }

// ForgetAll drops the turns of every line: another store decides from now on.
func (ls *Lines) ForgetAll() { ls.changeAll(true) }

func (ls *Lines) changeAll(drop bool) {
	if !ls.Waiting() {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	for _, l := range ls.all {
		ls.hurry(l, drop, now)
	}
}

// hurry has a line ask now, without the turns that it holds if they are dropped.
func (ls *Lines) hurry(l *line, drop bool, now time.Time) {
	if drop {
		l.turns, l.last = nil, time.Time{}
	}
	l.next, l.scheduled = now, false
	l.released = l.asking > 0
	ls.advance(l, now)
	l.again, l.released = l.released, false
}

// Join enters the line of w's key, if there is room or a waiter of a lower rank is replaced. It
// returns how many wait there then, and when w's turn is expected if that is known. Leave must follow.
//
// turn is one that w has been granted without standing in line, or nil. If it has been denied instead, comes is
// when its units come, or the zero Time if that isn't known.
func (ls *Lines) Join(w *Waiter, turn *Turn, comes time.Time) (queued int64, expected time.Time, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	l := ls.all[w.Key]
	if l == nil {
		l = &line{key: w.Key, supply: w.Supply, firstAsk: ls.firstOf(w.Key)}
		if !comes.IsZero() {
			l.expect(w, comes)
			if expected = comes; !w.Holds {
				l.schedule(comes.Add(-l.lead(w)-ls.trip), now)
			}
		}
	} else {
		ls.advance(l, now)
		l.supply = w.Supply
	}
	if turn != nil {
		l.hold(turn)
		l.last = later(l.last, turn.At)
	}
	if l.n > 0 || len(l.turns) > 0 {
		if expected, err = ls.admit(l, w, turn != nil, now); err != nil {
			if turn != nil {
				ls.advance(ls.register(l), now)
			}
			return l.n, expected, err
		}
	}
	w.woken = make(chan struct{}, 1)
	l.insert(w)
	w.line = ls.register(l)
	if at := comes.Add(-l.lead(w) - ls.trip); w.Class == Raises && !comes.IsZero() && at.Before(l.next) {
		l.schedule(at, now) // it is before those for whom the line would ask later
	}
	ls.advance(l, now)
	w.AsksAtOnce = w.asking
	return l.n, expected, nil
}

// admit decides whether w may join the line, and makes room for it.
func (ls *Lines) admit(l *line, w *Waiter, hasTurn bool, now time.Time) (expected time.Time, err error) {
	switch {
	case hasTurn:
		expected = l.last
	case l.supply.ofSlots():
	default:
		if expected = l.estimate(now, w.Class, w.Cost); expected.After(w.Until) {
			return expected, ErrLate
		}
	}
	if l.n >= w.Room {
		last := l.replacedBy(&ls.held, w)
		if last == nil {
			return expected, ErrFull
		}
		l.remove(last)
		last.wake()
	}
	return expected, nil
}

// Wait waits until the call is served a turn, which the call owns then, or is to ask: turn is nil then. The error is
// ErrFull if the call has been replaced, ErrLate if its time is up, or ctx's. The first of a line asks once more when
// its time is up.
func (ls *Lines) Wait(ctx context.Context, w *Waiter) (turn *Turn, err error) {
	for {
		if err := ctx.Err(); err != nil { // even if just woken
			return nil, err
		}
		turn, left, done, err := ls.look(w)
		if done {
			return turn, err
		}
		if w.timer == nil {
			w.timer = time.NewTimer(left)
		} else {
			w.timer.Reset(left)
		}
		select {
		case <-w.woken:
		case <-w.timer.C:
		case <-ctx.Done():
		}
	}
}

// look returns whether w's wait is over, and the turn that it was served, or for how long it may go on.
func (ls *Lines) look(w *Waiter) (turn *Turn, left time.Duration, done bool, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if left = w.Until.Sub(now); left <= 0 {
		ls.advance(w.line, now) // a turn may have come at this instant
	}
	switch l := w.line; {
	case w.turn != nil, w.asking:
		return w.take(), 0, true, nil
	case !w.inLine:
		return nil, 0, true, ErrFull
	case left > 0:
		return nil, left, false, nil
	case w.askedAt, l.asking+len(l.turns) > 0, l.first(&ls.held, func(*Waiter) bool { return true }) != w:
		return nil, 0, true, ErrLate
	default:
		w.askedAt, w.asking, w.Horizon = true, true, 0
		l.asking, l.askingCost, l.askHolds = 1, w.Cost, w.Holds
		return nil, 0, true, nil
	}
}

// Answer is what a call has been told by the store.
type Answer struct {
	// Turn is what the call has been granted, for an instant to come. The line is its owner from now on.
	Turn *Turn
	// Passed: the call has been granted everything for itself, to run at At.
	Passed bool
	At     time.Time
	// Left is how many units were left when the call passed.
	Left int64
	// Failed: the store has failed.
	Failed bool
	// Retry is, for a denied call, the time until it is to ask again, less a round trip; 0 if that isn't known.
	Retry time.Duration
	// Elsewhere: the call was denied, but not by the limit of this line.
	Elsewhere bool
	// Took is how long the store took, or 0 if it answers at once.
	Took   time.Duration
	Supply Supply // of the line's limit now
}

// Answer tells the line what a call that was to ask has been told.
func (ls *Lines) Answer(w *Waiter, a Answer) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := time.Now()
	if a.Took > 0 {
		ls.trip += (a.Took - ls.trip) / 8
	}
	l := w.line
	w.asking = false
	l.asking--
	again := l.again
	l.again, l.supply = false, a.Supply
	switch {
	case a.Failed:
		// Under FailOpen, calls pass without the store: not all of the line at once.
		l.next, l.scheduled = now.Add(min(max(l.supply.Every*time.Duration(w.Cost), retryLeast), lookAgain)), false
		if l.supply.ofSlots() {
			l.next = now.Add(ls.poll())
		}
	case a.Turn != nil:
		l.granted(a.Turn.At, w.Cost, now, ls.trip)
		l.hold(a.Turn)
		l.scheduleNext(&ls.held, a.Turn.At, now, ls.trip)
	case a.Passed:
		l.pass(w, now)
		l.granted(a.At, w.Cost, now, ls.trip)
		l.scheduleNext(&ls.held, a.At, now, ls.trip)
		if l.supply.ofSlots() {
			if l.released = a.Left > int64(l.asking)*w.Cost; l.released { // more than those that are asking take
				l.next = now
			} else { // an ask would be denied, and be under way when a slot is released
				l.next = now.Add(ls.poll())
			}
		}
	case a.Elsewhere:
		// The next call is likely to be denied, too.
		l.next, l.scheduled = now.Add(min(l.supply.Every*time.Duration(w.Cost), lookAgain)), false
	default:
		l.denied(w, a.Retry, now, ls.trip)
		if l.supply.ofSlots() {
			l.next = now.Add(ls.poll())
		}
	}
	if again {
		l.next, l.scheduled, l.released = now, false, true
	}
	ls.advance(l, now)
	l.again, l.released = l.released && l.asking > 0 && l.supply.ofSlots(), false
}

// granted records that a call that asked has been granted units at an instant.
func (l *line) granted(at time.Time, cost int64, now time.Time, trip time.Duration) {
	l.win()
	l.last = later(l.last, at)
	immediate := !at.After(now)
	switch {
	case immediate && l.supply.AtOnce:
		if l.ahead = 0; trip > 0 {
			l.next, l.scheduled = now.Add(l.supply.spacing(cost)), false
		}
	case immediate:
		l.ahead = min(max(2*l.ahead, 2), mostAsks)
	default:
		l.ahead = 0
	}
}

// scheduleNext has the next call, if it holds nothing, ask when its units are about to come. at is when those of
// the call before it have.
func (l *line) scheduleNext(h *held, at, now time.Time, trip time.Duration) {
	w := l.first(h, func(w *Waiter) bool { return !w.asking })
	if w == nil || w.Holds || l.supply.ofSlots() || l.supply.AtOnce {
		return
	}
	next := at.Add(l.supply.Every*time.Duration(w.Cost) - l.lead(w) - trip)
	l.schedule(next, now)
}

// denied records that w, which asked, has been denied, and is to ask again after retry.
func (l *line) denied(w *Waiter, retry time.Duration, now time.Time, trip time.Duration) {
	l.ahead = 0
	l.expect(w, now.Add(retry+w.Horizon))
	if !w.Holds {
		if l.scheduled {
			l.lose()
		}
		retry -= l.horizon(w) - w.Horizon // it will ask for more
	}
	// A lead of more than half would have it ask again and again while it waits for the last part.
	l.schedule(now.Add(max(retry-trip, retry/2)), now)
}

// expect records when the units of w, the first of the line, come.
func (l *line) expect(w *Waiter, comes time.Time) {
	if l.supply.Window == 0 && !l.supply.Prepaid {
		comes = comes.Add(-l.supply.Every * time.Duration(w.Cost))
	}
	l.last = later(l.last, comes)
}

// schedule has the line ask at an instant that the store's answers give.
func (l *line) schedule(at, now time.Time) {
	if most := now.Add(lookAgain); at.After(most) {
		l.next, l.scheduled = most, false
		return
	}
	l.next, l.scheduled = at, true
}

func later(t, u time.Time) time.Time {
	if t.After(u) {
		return t
	}
	return u
}

// Leave takes a waiter out of its line. A turn that it was served and hasn't taken goes to the next call.
func (ls *Lines) Leave(w *Waiter) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.line == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l, now := w.line, time.Now()
	l.remove(w)
	if w.asking {
		w.asking = false
		l.asking--
		if l.supply.ofSlots() { // it may have been told to ask for a slot that has been released
			l.next, l.released = now, true
		}
	}
	if w.refunds {
		w.refunds = false
		l.refunding--
	}
	if t := w.take(); t != nil {
		t.At = now
		l = ls.register(l)
		l.hold(t)
	}
	ls.advance(l, now)
	l.again, l.released = l.again || l.released && l.asking > 0, false
}

// GiveTurn gives a turn that has come, and is unused, to the first call of key's line that it suffices for. It reports
// whether there is one.
func (ls *Lines) GiveTurn(key Key, t *Turn) bool {
	if !ls.Waiting() {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[key]
	if l == nil || l.first(&ls.held, t.suits) == nil {
		return false
	}
	t.At = time.Now()
	l.hold(t)
	ls.advance(l, t.At)
	return true
}

// register returns the line of l's key: l, or the one that has replaced it when it was over.
func (ls *Lines) register(l *line) *line {
	if now := ls.all[l.key]; now != nil {
		return now
	}
	if ls.all == nil {
		ls.all = map[Key]*line{}
	}
	ls.all[l.key] = l
	ls.n.Add(1)
	return l
}

// advance serves the calls whose turns have come, tells calls to ask, and sets the line's timer for the next. It
// drops a line that is over.
func (ls *Lines) advance(l *line, now time.Time) {
	l.serve(&ls.held, now)
	next := l.ask(&ls.held, now, ls.trip)
	if len(l.turns) > 0 && (next.IsZero() || l.turns[0].At.Before(next)) {
		next = l.turns[0].At
	}
	switch {
	case next.IsZero():
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(next.Sub(now), func() { ls.onTimer(l) })
	default:
		l.timer.Reset(next.Sub(now))
	}
	if l.over() && ls.all[l.key] == l {
		delete(ls.all, l.key)
		ls.n.Add(-1)
	}
}

func (ls *Lines) onTimer(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.advance(l, time.Now())
}

// poll returns after how long a line of slots asks without being told of a release, give or take a tenth:
// processes that began to wait together must not ask together.
func (ls *Lines) poll() time.Duration {
	d := min(max(time.Duration(len(ls.all))*pollPerLine, pollLeast), pollMost)
	return d - d/10 + rand.N(d/5)
}

// Counts returns how many calls wait, in how many lines, and of how many keys slots are held, and by how many tenants
// of them.
func (ls *Lines) Counts() (waiting, lines, held int) {
	ls.mu.Lock()
	for _, l := range ls.all {
		waiting += int(l.n)
	}
	lines = len(ls.all)
	ls.mu.Unlock()
	return waiting, lines, ls.held.len()
}
