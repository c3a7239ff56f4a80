package respond

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// Payer is how bytes are paid for. Its functions may end the response: no lock is
// held when they are called.
type Payer struct {
	Store store.Store
	// GiveBack settles charges, even if ctx has ended.
	GiveBack func(ctx context.Context, charges []store.Charge)
	// StoreFailed is told an error of the store, and whether a body is cut off for
	// it: the write or read that is cut off then returns what StoreFailed returns.
	StoreFailed func(err error, cut bool) error
}

// lane is one direction of a request whose bytes are paced: its response's
// body, or its own. Bytes are paid for before they move, in one call to the store
// for each piece; what is left of the last one is given back at the end.
//
// A limit that only reports is charged in the calls that the others need, and
// shapes neither those nor the pieces. Where all of them only report, the lane
// holds nothing back: bytes are charged when they have moved.
type lane struct {
	Payer
	ctx   context.Context
	holds bool   // some limit is enforced
	piece int64  // bytes paid for at once, at the most
	flush func() // sends what has been paid for, before a pause; may be nil

	mu      sync.Mutex // a request's body may be read while the handler returns
	tolls   []toll
	charges []store.Charge // of the call under way, one a toll
	results []store.Result
	next    int64 // bytes to pay for next: it grows up to a piece
	room    int64 // bytes that the last answer had left
	moved   int64
	total   int64 // bytes that will move, or -1
	waited  time.Duration
	open    time.Time // the store has failed: unpaced until then
	err     error     // nothing moves any more
}

// maxPause is how far away a turn may be; a store's reservations end somewhere.
const maxPause = time.Hour

// reopen is how long a lane goes on unpaced after its store has failed: it must
// not wait for a store that is down at each of its pieces.
const reopen = time.Second

var errEnded = errors.New("stint: the request has ended")

func newLane(p Payer, ctx context.Context, entries []Entry) *lane {
	l := &lane{Payer: p, ctx: ctx, total: -1}
	l.holds = slices.ContainsFunc(entries, func(e Entry) bool { return !e.DryRun })
	l.tolls = make([]toll, len(entries))
	l.charges, l.results = make([]store.Charge, len(entries)), make([]store.Result, len(entries))
	for i, e := range entries {
		l.tolls[i].Entry = e
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

// heeds reports whether a limit has a say in what is paid for, and when.
func (l *lane) heeds(t *toll) bool { return t.DryRun != l.holds }

// pay returns how many of want bytes may move now, at least one: when they have
// been paid for, and their turn has come.
func (l *lane) pay(want int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.credit() == 0 {
		if time.Now().Before(l.open) {
			return want, nil
		}
		l.err = l.take(l.size(want))
	}
	if l.err != nil {
		return 0, l.err
	}
	return min(want, l.credit()), nil
}

// credit is how many bytes all limits have been paid for that have not moved;
// below 0, how many have moved that some have not been paid for.
func (l *lane) credit() int64 {
	credit := int64(store.MaxCost)
	for i := range l.tolls {
		if t := &l.tolls[i]; l.heeds(t) {
			credit = min(credit, t.credit)
		}
	}
	return credit
}

// size is how many bytes to pay for. The first payment is for what is there, as
// many responses are a single write, and each further one for twice as much, so
// that neither a small response nor a long one costs calls it doesn't need. While
// there is room for what is there, it doesn't wait for more.
func (l *lane) size(want int64) int64 {
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

// ahead is how many bytes to pay for where so many are there, and it isn't known
// how many will come.
func (l *lane) ahead(want int64) int64 {
	n := max(want, l.next)
	l.next = min(max(2*l.next, LeastPiece), l.piece)
	return n
}

// unlocked calls f without l.mu, which the caller holds, also where f panics.
func (l *lane) unlocked(f func()) {
	l.mu.Unlock()
	defer l.mu.Lock()
	f()
}

// ask asks the store for each limit's part of n bytes.
func (l *lane) ask(n int64) (err error) {
	for i := range l.tolls {
		l.charges[i].Cost = l.tolls[i].cost(n)
	}
	l.unlocked(func() { err = l.Store.Take(l.ctx, l.charges, l.results) })
	return err
}

// take pays for n bytes and waits for their turn.
func (l *lane) take(n int64) error {
	err := l.ask(n)
	switch {
	case err == nil:
	case l.err != nil: // it has ended meanwhile
		return l.err
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	default:
		return l.failed(err)
	}
	pause, passes, err := l.answer(n)
	if l.err != nil {
		err = l.err
	}
	if err == nil && pause > 0 {
		l.next = l.piece // streams that take turns have turns of one size
		err = l.pause(pause)
	}
	switch {
	case !passes:
	case err != nil:
		l.cancel()
	default:
		l.paid(n, 0)
	}
	return err
}

// answer is what the store has answered for n bytes: how long they wait, for the
// turns that are reserved or until there are any to reserve, and whether they
// pass then.
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

// paid notes that each limit has been paid for n bytes, which have taken so long
// to move if they have moved.
func (l *lane) paid(n int64, took time.Duration) {
	l.room = store.MaxCost
	for i := range l.tolls {
		t := &l.tolls[i]
		t.pay(n, l.charges[i].Cost, &l.results[i], took)
		if !t.DryRun {
			l.room = min(l.room, t.credit-n+l.results[i].Remaining*t.Block)
		}
	}
}

// pause waits until a turn has come, and sends what was paid for before. It
// doesn't wait for a turn that the request won't see.
func (l *lane) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if t, ok := l.ctx.Deadline(); ok && time.Until(t) < d {
		return context.DeadlineExceeded
	}
	flushes := l.flush != nil && l.moved > 0
	start := time.Now()
	var err error
	l.unlocked(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		if flushes {
			l.flush()
		}
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

// failed is what becomes of a lane whose store has failed.
func (l *lane) failed(err error) error {
	cut := slices.ContainsFunc(l.tolls, func(t toll) bool { return t.Closed })
	if !cut {
		l.forget()
		l.open = time.Now().Add(reopen)
	}
	l.unlocked(func() { err = l.StoreFailed(err, cut) })
	if cut {
		return err
	}
	return l.err // it may have ended meanwhile
}

// forget has no limit count what has moved and what was paid for it.
func (l *lane) forget() {
	for i := range l.tolls {
		l.tolls[i].credit, l.tolls[i].receipt = 0, store.Receipt{}
	}
}

// cancel gives the last piece back, none of which has moved.
func (l *lane) cancel() {
	var back []store.Charge
	for i, ch := range l.charges {
		if r := &l.results[i].Receipt; r.Cost > 0 {
			ch.Cost, ch.Receipt = 0, *r
			back = append(back, ch)
		}
	}
	l.unlocked(func() { l.GiveBack(l.ctx, back) })
}

// move notes that n bytes have moved that were paid for.
func (l *lane) move(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved += n
	for i := range l.tolls {
		t := &l.tolls[i]
		t.credit = max(t.credit-n, 0) // unpaced, more moves than was paid for
	}
}

// report notes that n bytes have moved in a lane that holds nothing back, and has
// its limits count them.
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
	switch err := l.ask(ahead); {
	case err == nil && l.err != nil: // it has ended meanwhile
		l.cancel()
	case err == nil:
		l.paid(ahead, took)
	case l.ctx.Err() != nil:
		l.forget()
	default:
		_ = l.failed(err) // a dry run is never FailClosed
	}
}

// left is how many bytes are still to move, or -1 if nobody knows.
func (l *lane) left() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total < 0 {
		return -1
	}
	return max(l.total-l.moved, 0)
}

// end stops the lane and returns the charges that give back what hasn't moved.
func (l *lane) end() (back []store.Charge) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errEnded
	}
	for i := range l.tolls {
		if ch, ok := l.tolls[i].change(); ok {
			back = append(back, ch)
		}
	}
	return back
}

// outcome is what e has made of the lane: how much has moved, how long that was
// held up, or would have been by a limit that only reports, and why it was cut off.
func (l *lane) outcome(e Entry) (moved int64, waited time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waited = l.waited
	if e.DryRun {
		i := slices.IndexFunc(l.tolls, func(t toll) bool { return t.Entry == e })
		waited = l.tolls[i].would
	}
	if l.err != errEnded {
		err = l.err
	}
	return l.moved, waited, err
}

// heldUp is how long the lane has been held up.
func (l *lane) heldUp() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waited
}
