package respond

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/turns"
	"github.com/stint-go/stint/store"
)

// Payer is how bytes are paid for. Its functions may end the response: no lock is held
// when they are called.
type Payer struct {
	Store store.Store
	// Lines are those of the store: a chunk of bytes waits for its turn as a request does.
	Lines    *turns.Lines
	GiveBack turns.Settle
	// StoreFailed reports an error of the store on charges, and whether a body is cut off
	// because of it: the write or read that is cut off then returns what StoreFailed
	// returns. The charges are valid until it returns.
	StoreFailed func(charges []store.Charge, err error, cut bool) error
}

// lane is one direction of a request whose bytes are paced: its response's body, or its
// own. Bytes are paid for before the handler's writes or reads move them, in one call to
// the store for each piece; what is left of the last piece is given back at the end.
//
// A limit in dry run is charged in the calls that the others need, and influences
// neither those nor the pieces. If all limits are dry runs, the lane delays nothing:
// bytes are charged after they have moved.
type lane struct {
	Payer
	ctx      context.Context
	enforced bool  // some limit is
	piece    int64 // the most bytes paid for at once
	// arrives: a client decides when more of it comes, so what hasn't come is hardly
	// paid for. A client that stalls must not hold what others wait for.
	arrives bool
	flush   func() // sends what has been paid for before a pause; may be nil

	mu      sync.Mutex // a request's body may be read while the handler returns
	tolls   []toll
	charges []store.Charge // of the call under way, one for each toll
	results []store.Result
	next    int64 // bytes to pay for next: it grows up to a piece
	room    int64 // bytes left according to the last answer
	moved   int64
	moving  bool  // what pay has let go hasn't all moved yet
	total   int64 // bytes that will move in all, or -1
	waited  time.Duration
	open    time.Time // the store has failed: unpaced until then
	err     error     // nothing moves any more
}

// maxPause is how far away a turn may be, because a store's reservations are bounded.
const maxPause = time.Hour

// reopen is how long a lane goes on unpaced after its store has failed: it must not
// wait for a failing store at each piece.
const reopen = time.Second

var errEnded = errors.New("stint: the request has ended")

func newLane(p Payer, ctx context.Context, limits []ByteLimit) *lane {
	l := &lane{Payer: p, ctx: ctx, total: -1}
	l.enforced = slices.ContainsFunc(limits, func(e ByteLimit) bool { return !e.DryRun })
	l.tolls = make([]toll, len(limits))
	l.charges, l.results = make([]store.Charge, len(limits)), make([]store.Result, len(limits))
	for i, e := range limits {
		l.tolls[i].ByteLimit = e
		l.charges[i] = store.Charge{Key: e.Key, Limit: e.Limit, DryRun: e.DryRun}
		if !e.DryRun {
			l.charges[i].MaxWait = maxPause
		}
		if l.heeds(&l.tolls[i]) && (l.piece == 0 || e.Piece < l.piece) {
			l.piece = e.Piece
		}
	}
	return l
}

// heeds reports whether a limit influences what is paid for, and when.
func (l *lane) heeds(t *toll) bool { return t.DryRun != l.enforced }

// pay returns how many of want bytes may move now, at least one. It returns when they
// have been paid for and their turn has come. If it returns no error, move must be called
// when they have moved, or some of them.
func (l *lane) pay(want int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.credit() == 0 {
		if time.Now().Before(l.open) {
			l.moving = true
			return want, nil
		}
		l.err = l.take(l.size(want))
	}
	if l.err != nil {
		return 0, l.err
	}
	l.moving = true
	return min(want, l.credit()), nil
}

// credit returns how many bytes have been paid to all limits and haven't moved. If
// negative, so many have moved that haven't been paid to some limit.
func (l *lane) credit() int64 {
	credit := int64(store.MaxCost)
	for i := range l.tolls {
		if t := &l.tolls[i]; l.heeds(t) {
			credit = min(credit, t.credit)
		}
	}
	return credit
}

// size returns how many bytes to pay for. The first payment is for what is there, since
// many responses are a single write. Each further one is for twice as much, so that
// neither a small response nor a long one costs unnecessary calls. While there is room
// for what is there, it doesn't wait for more.
//
// What arrives is paid for when it is there, and as much ahead as there has been, up to
// LeastPiece: so reads of a few bytes don't each cost a call.
func (l *lane) size(want int64) int64 {
	if l.arrives {
		n := max(want, min(l.moved, LeastPiece))
		if l.total >= 0 {
			n = max(want, min(n, l.total-l.moved))
		}
		return min(n, l.piece)
	}
	n := l.ahead(want)
	if l.total >= 0 {
		n = l.piece
		if left := l.total - l.moved; left > 0 {
			n = left
		}
	}
	if l.room >= want {
		n = min(n, l.room)
	}
	return min(max(n, 1), l.piece)
}

// ahead returns how many bytes to pay for if want are there and the total isn't known.
func (l *lane) ahead(want int64) int64 {
	n := max(want, l.next)
	l.next = min(max(2*l.next, LeastPiece), l.piece)
	return n
}

// withoutLock calls f without l.mu, which the caller holds, and locks it again even if f
// panics.
func (l *lane) withoutLock(f func()) {
	l.mu.Unlock()
	defer l.mu.Lock()
	f()
}

// price sets the charges to each limit's part of n bytes.
func (l *lane) price(n int64) {
	for i := range l.tolls {
		l.charges[i].Cost = l.tolls[i].cost(n)
	}
}

// ask asks the store for the charges.
func (l *lane) ask() (err error) {
	l.withoutLock(func() {
		ctx, end := turns.Outliving(l.ctx, l.Store)
		defer end()
		err = l.Store.Take(ctx, l.charges, l.results)
	})
	return err
}

// take pays for n bytes and waits for their turn.
func (l *lane) take(n int64) error {
	l.price(n)
	w := l.Lines.Claim(l.charges)
	leave := func() {
		if waiter := w; waiter != nil {
			w = nil
			l.withoutLock(func() { l.Lines.Leave(l.ctx, waiter) })
		}
	}
	defer func() { leave() }() // also if a store panics
	err := l.ask()
	w.Restore(l.charges)
	switch {
	case err == nil:
	case l.err != nil: // the lane has ended meanwhile
		return l.err
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	default:
		leave()
		return l.fail(err)
	}
	pause, passes, err := l.answer(n)
	if l.err != nil {
		err = l.err
	}
	switch {
	case err != nil && !passes:
		return err
	case !passes:
		leave()
		return l.pause(pause, nil)
	case w != nil || pause > 0:
		w = l.Lines.Join(w, l.charges, l.results, l.GiveBack)
		if err == nil && !w.Served() {
			l.next = l.piece // streams that take turns have turns of equal size
			err = l.pause(l.delay(), w)
		}
	}
	if err != nil {
		leave()
		l.cancel()
		return err
	}
	l.recordPayment(n, w, 0)
	w = nil
	return nil
}

// delay returns how long it takes until the turns of all charges have come.
func (l *lane) delay() (d time.Duration) {
	for i := range l.results {
		if !l.charges[i].DryRun {
			d = max(d, l.results[i].Delay)
		}
	}
	return d
}

// answer evaluates the store's answer for n bytes: how long they have to wait, for the
// turns that are reserved or until turns can be reserved, and whether they pass then.
func (l *lane) answer(n int64) (pause time.Duration, passes bool, err error) {
	passes = true
	for i := range l.results {
		r := &l.results[i]
		switch {
		case l.charges[i].DryRun:
		case r.OK:
			pause = max(pause, r.Delay)
		case r.RetryAfter == store.Never:
			return 0, false, fmt.Errorf("stint: limit %q: %d bytes can never pass", l.charges[i].Limit.Name(), n)
		default:
			pause, passes = max(pause, min(r.RetryAfter, maxPause)), false
		}
	}
	return pause, passes, nil
}

// recordPayment records that each limit has been paid for n bytes, in the lines of w if that
// isn't nil. They took that long to move if they have moved.
func (l *lane) recordPayment(n int64, w *turns.Waiter, took time.Duration) {
	l.room = store.MaxCost
	for i := range l.tolls {
		t := &l.tolls[i]
		t.pay(n, l.charges[i].Cost, &l.results[i], took)
		if w != nil {
			if receipts := w.Receipts(i); receipts != nil {
				t.receipts = receipts
			}
		}
		if !t.DryRun {
			l.room = min(l.room, t.credit-n+l.results[i].Remaining*t.Block)
		}
	}
}

// pause waits for d or, if w isn't nil, for its turns, which are expected after d. First it
// sends what was paid for before. It doesn't wait for a turn after the request's end.
func (l *lane) pause(d time.Duration, w *turns.Waiter) error {
	if t, ok := l.ctx.Deadline(); ok && time.Until(t) < d {
		return context.DeadlineExceeded
	}
	flushes := l.flush != nil && l.moved > 0
	start := time.Now()
	var err error
	l.withoutLock(func() {
		if flushes {
			l.flush()
		}
		if w != nil {
			err = w.Wait(l.ctx)
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			err = l.ctx.Err()
		}
	})
	l.waited += time.Since(start)
	if l.err != nil {
		err = l.err
	}
	return err
}

// fail handles a failure of the store.
func (l *lane) fail(err error) error {
	cut := slices.ContainsFunc(l.tolls, func(t toll) bool { return t.Closed })
	if !cut {
		l.forget()
		l.open = time.Now().Add(reopen)
	}
	l.withoutLock(func() { err = l.StoreFailed(l.charges, err, cut) })
	if cut {
		return err
	}
	return l.err // it may have ended meanwhile
}

// forget makes all limits ignore what has moved and what was paid for it.
func (l *lane) forget() {
	for i := range l.tolls {
		l.tolls[i].credit, l.tolls[i].receipts = 0, nil
	}
}

// cancel gives back what the last call was charged, none of which has moved.
func (l *lane) cancel() {
	var back []store.Charge
	for i, ch := range l.charges {
		r := l.results[i].Receipt
		if r.Cost > 0 && (ch.DryRun || !l.Lines.Return(&ch, []store.Receipt{r})) {
			ch.Cost, ch.Receipt = 0, r
			back = append(back, ch)
		}
	}
	if len(back) > 0 {
		l.withoutLock(func() { l.GiveBack(l.ctx, back) })
	}
}

// move records that n bytes that were paid for have moved. If the lane has ended meanwhile,
// it gives back the others.
func (l *lane) move(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved += n
	l.moving = false
	for i := range l.tolls {
		t := &l.tolls[i]
		t.credit = max(t.credit-n, 0) // while unpaced, more moves than was paid for
	}
	if l.err == nil {
		return
	}
	if back := l.change(); len(back) > 0 {
		l.withoutLock(func() { l.GiveBack(l.ctx, back) })
	}
}

// report records that n bytes have moved in a lane that delays nothing, and makes its
// limits count them.
func (l *lane) report(n int64, took time.Duration) {
	if n <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved += n
	for i := range l.tolls {
		l.tolls[i].credit -= n
	}
	short := -l.credit()
	if short <= 0 || l.err != nil {
		return
	}
	if time.Now().Before(l.open) {
		l.forget()
		return
	}
	ahead := l.ahead(short) - short
	if l.total >= 0 {
		ahead = min(ahead, max(l.total-l.moved, 0))
	}
	l.price(ahead)
	switch err := l.ask(); {
	case err == nil && l.err != nil: // the lane has ended meanwhile
		l.cancel()
	case err == nil:
		l.recordPayment(ahead, nil, took)
	case l.ctx.Err() != nil:
		l.forget()
	default:
		_ = l.fail(err) // a dry run is never FailClosed
	}
}

// left returns how many bytes are still to move, or -1 if unknown.
func (l *lane) left() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total < 0 {
		return -1
	}
	return max(l.total-l.moved, 0)
}

// end stops the lane and returns the charges that give back what hasn't moved. If some of
// it is moving just now, move does that.
func (l *lane) end() (back []store.Charge) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errEnded
	}
	if l.moving {
		return nil
	}
	return l.change()
}

// change returns the charges that give back what was paid for and hasn't moved. If other
// streams of this process wait for such bytes, they get them.
func (l *lane) change() (back []store.Charge) {
	for i := range l.tolls {
		t := &l.tolls[i]
		unused := t.change()
		if !t.DryRun && len(unused) > 0 && l.Lines.Return(&l.charges[i], unused) {
			continue
		}
		for _, r := range unused {
			back = append(back, store.Charge{Key: t.Key, Limit: t.Limit, DryRun: t.DryRun, Receipt: r})
		}
	}
	return back
}

// outcome returns the effect of e on the lane: how much has moved, how long that was
// delayed, or would have been by a dry run, and why it was cut off.
func (l *lane) outcome(e ByteLimit) (moved int64, waited time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited = l.waited
	if e.DryRun {
		i := slices.IndexFunc(l.tolls, func(t toll) bool { return t.ByteLimit == e })
		waited = l.tolls[i].would
	}
	if l.err != errEnded {
		err = l.err
	}
	return l.moved, waited, err
}

// heldUp returns how long the lane has been delayed.
func (l *lane) heldUp() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waited
}
