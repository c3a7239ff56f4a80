package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// lane is one direction of a request whose bytes are paced: its response's
// body, or its own. Bytes are paid for before they move, in one call to the store
// for each piece; what is left of the last one is given back at the end.
//
// A limit that only reports is charged in the calls that the others need, and
// shapes neither those nor the pieces. Where all of them only report, the lane
// holds nothing back: bytes are charged when they have moved.
type lane struct {
	ctx   context.Context
	lim   *version
	r     *http.Request // for the observers
	holds bool          // some limit is enforced
	piece int64         // bytes paid for at once, at the most
	flush func()        // sends what has been paid for, before a pause; may be nil

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

func newLane(v *version, r *http.Request, of []paced) *lane {
	l := &lane{ctx: r.Context(), lim: v, r: r, total: -1}
	l.holds = slices.ContainsFunc(of, func(p paced) bool { return !p.entry.dryRun })
	l.tolls = make([]toll, len(of))
	l.charges, l.results = make([]store.Charge, len(of)), make([]store.Result, len(of))
	for i, p := range of {
		l.tolls[i].paced = p
		l.charges[i] = store.Charge{Key: p.key, Limit: p.entry.limit, DryRun: p.entry.dryRun}
		if !p.entry.dryRun {
			l.charges[i].MaxWait = maxPause
		}
		if piece := p.entry.bandwidth.piece; l.heeds(p.entry) && (l.piece == 0 || piece < l.piece) {
			l.piece = piece
		}
	}
	return l
}

// heeds reports whether a limit has a say in what is paid for, and when.
func (l *lane) heeds(e *entry) bool { return e.dryRun != l.holds }

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
		if t := &l.tolls[i]; l.heeds(t.entry) {
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
	l.next = min(max(2*l.next, leastPiece), l.piece)
	return n
}

// ask asks the store for each limit's part of n bytes. The caller holds l.mu,
// which is let go meanwhile.
func (l *lane) ask(n int64) error {
	for i := range l.tolls {
		l.charges[i].Cost = l.tolls[i].cost(n)
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	return l.lim.store.Take(l.ctx, l.charges, l.results)
}

// observe tells the observers of e. The caller holds l.mu, which is let go
// meanwhile: they may end the request.
func (l *lane) observe(e Event) {
	l.mu.Unlock()
	defer l.mu.Lock()
	l.lim.observe(e)
}

// take pays for n bytes and waits for their turn.
func (l *lane) take(n int64) error {
	err := l.ask(n)
	passes := err == nil && granted(l.charges, l.results)
	switch {
	case l.err != nil: // it has ended meanwhile
		if passes {
			l.cancel()
		}
		return l.err
	case err != nil && l.ctx.Err() != nil:
		return l.ctx.Err()
	case err != nil:
		return l.failed(err)
	}
	pause, err := l.wait(n)
	if err != nil {
		return err
	}
	if pause > 0 {
		l.next = l.piece // streams that take turns have turns of one size
	}
	if err := l.pause(pause); err != nil {
		if passes {
			l.cancel()
		}
		return err
	}
	if passes {
		l.paid(n, 0)
	}
	return nil
}

// wait is how long n bytes wait by the store's answer: for the turns that are
// reserved, or until there are any to reserve.
func (l *lane) wait(n int64) (time.Duration, error) {
	pause := longest(l.charges, l.results)
	for i := range l.results {
		switch r := &l.results[i]; {
		case r.OK || l.charges[i].DryRun:
		case r.RetryAfter == Never:
			return 0, fmt.Errorf("stint: limit %q: %d bytes can never pass", l.charges[i].Limit.Name(), n)
		default:
			pause = max(pause, min(r.RetryAfter, maxPause))
		}
	}
	return pause, nil
}

// paid notes that each limit has been paid for n bytes, which have taken so long
// to move if they have moved.
func (l *lane) paid(n int64, took time.Duration) {
	l.room = store.MaxCost
	for i := range l.tolls {
		t := &l.tolls[i]
		t.pay(n, l.charges[i].Cost, &l.results[i], took)
		if !t.entry.dryRun {
			l.room = min(l.room, t.credit-n+l.results[i].Remaining*t.entry.bandwidth.block)
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
	start := time.Now()
	err := l.sleep(d)
	l.waited += time.Since(start)
	if l.err != nil {
		err = l.err
	}
	return err
}

// sleep is pause without l.mu, also where flush panics.
func (l *lane) sleep(d time.Duration) error {
	flushes := l.flush != nil && l.moved > 0
	l.mu.Unlock()
	defer l.mu.Lock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	if flushes {
		l.flush()
	}
	select {
	case <-timer.C:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

// failed is what becomes of a lane whose store has failed.
func (l *lane) failed(err error) error {
	for i := range l.tolls {
		if l.tolls[i].entry.closed {
			se := &StoreError{err}
			l.observe(Event{Kind: StoreFailed, Request: l.r, Err: se})
			return se
		}
	}
	l.forget()
	l.open = time.Now().Add(reopen)
	l.observe(Event{Kind: StoreFailed, Request: l.r, Err: err})
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
	back := made(l.charges, l.results, func(r *store.Receipt) bool { return r.Cost > 0 })
	if _, err := l.lim.settle(l.ctx, back); err != nil {
		l.observe(Event{Kind: SettleFailed, Err: err})
	}
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

// held is how long the bytes were held up, or would have been by a limit that
// only reports.
func (l *lane) held(t *toll) time.Duration {
	if t.entry.dryRun {
		return t.would
	}
	return l.waited
}

// cut is why the lane was cut off, or nil.
func (l *lane) cut() error {
	if l == nil || l.err == errEnded {
		return nil
	}
	return l.err
}
