package stint

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// lane is one direction of a request whose bytes are paced: its response's
// body, or its own. Bytes are paid for before they move, by a charge in the
// store for each piece; what is left of the last one is given back at the end.
type lane struct {
	ctx   context.Context
	lim   *version
	r     *http.Request // for the observers
	of    []paced
	piece int64  // bytes paid for at once, at the most
	block int64  // what is paid for is a multiple of it
	flush func() // sends what has been paid for, before a pause; may be nil

	mu      sync.Mutex // a request's body may be read while the handler returns
	charges []store.Charge
	results []store.Result // of the last piece
	credit  int64          // bytes of it that have not moved
	next    int64          // bytes to pay for next: it grows up to a piece
	room    int64          // bytes that the last answer had left
	moved   int64
	total   int64 // bytes that will move, or -1
	waited  time.Duration
	would   []time.Duration // of each limit: had it not been a dry run
	open    time.Time       // the store has failed: unpaced until then
	err     error           // nothing moves any more
}

// maxPause is how far away a turn may be; a store's reservations end somewhere.
const maxPause = time.Hour

// reopen is how long a lane goes on unpaced after its store has failed: it must
// not wait for a store that is down at each of its pieces.
const reopen = time.Second

var errEnded = errors.New("stint: the request has ended")

func newLane(v *version, r *http.Request, of []paced) *lane {
	l := &lane{ctx: r.Context(), lim: v, r: r, of: of, total: -1}
	l.charges, l.results = make([]store.Charge, len(of)), make([]store.Result, len(of))
	l.would = make([]time.Duration, len(of))
	for i, p := range of {
		l.charges[i] = store.Charge{Key: p.key, Limit: p.entry.limit, DryRun: p.entry.dryRun}
		if !p.entry.dryRun {
			l.charges[i].MaxWait = maxPause
		}
		b := p.entry.bandwidth
		if i == 0 || b.piece < l.piece {
			l.piece = b.piece
		}
		l.block = max(l.block, b.block)
	}
	l.piece = max(l.piece/l.block, 1) * l.block
	return l
}

// pay returns how many of want bytes may move now, at least one: when they have
// been paid for, and their turn has come.
func (l *lane) pay(want int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.credit == 0 {
		if !l.open.IsZero() && time.Now().Before(l.open) {
			return want, nil
		}
		l.err = l.take(l.size(want))
	}
	if l.err != nil {
		return 0, l.err
	}
	return min(want, l.credit), nil
}

// size is how many bytes to pay for. The first payment is for what is there, as
// many responses are a single write, and each further one for twice as much, so
// that neither a small response nor a long one costs calls it doesn't need. While
// there is room for what is there, it doesn't wait for more.
func (l *lane) size(want int64) int64 {
	n := max(want, l.next)
	l.next = min(max(2*l.next, leastPiece), l.piece)
	if l.total >= 0 {
		n = l.piece
		if left := l.total - l.moved; left > 0 {
			n = left
		}
	}
	if l.room >= want {
		n = min(n, l.room/l.block*l.block)
	}
	n = max(n, 1)
	return (min(n, l.piece) + l.block - 1) / l.block * l.block
}

// take pays for n bytes and waits for their turn. The caller holds l.mu, which
// is let go meanwhile.
func (l *lane) take(n int64) error {
	for i := range l.charges {
		l.charges[i].Cost = n / l.of[i].entry.bandwidth.block
	}
	results := make([]store.Result, len(l.charges))
	l.mu.Unlock()
	err := l.lim.store.Take(l.ctx, l.charges, results)
	l.mu.Lock()
	if err == nil {
		l.results = results
	}
	switch {
	case l.err != nil: // it has ended meanwhile
		if err == nil {
			l.cancel()
		}
		return l.err
	case err != nil && l.ctx.Err() != nil:
		return l.ctx.Err()
	case err != nil:
		return l.failed(err)
	}
	l.room = store.MaxCost
	pause, granted := longest(l.charges, l.results), true
	for i := range l.results {
		if !l.charges[i].DryRun {
			l.room = min(l.room, l.results[i].Remaining*l.of[i].entry.bandwidth.block)
		}
		switch r := &l.results[i]; {
		case r.OK:
		case l.charges[i].DryRun:
			spec := l.charges[i].Limit.Spec() // what it can't have now it would wait for
			l.would[i] += time.Duration(float64(l.charges[i].Cost) / float64(spec.Units) * float64(spec.Period))
		default:
			pause, granted = max(pause, min(r.RetryAfter, maxPause)), false
		}
	}
	if pause > 0 {
		l.next = l.piece // streams that take turns have turns of one size
	}
	if err := l.pause(pause); err != nil {
		if granted {
			l.cancel()
		}
		return err
	}
	if granted {
		l.credit = n
	}
	return nil
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
	l.mu.Unlock()
	if l.flush != nil && l.moved > 0 {
		l.flush()
	}
	start, timer := time.Now(), time.NewTimer(d)
	var err error
	select {
	case <-timer.C:
	case <-l.ctx.Done():
		timer.Stop()
		err = l.ctx.Err()
	}
	l.mu.Lock()
	l.waited += time.Since(start)
	if l.err != nil {
		err = l.err
	}
	return err
}

// failed is what becomes of a lane whose store has failed.
func (l *lane) failed(err error) error {
	se := &StoreError{err}
	for _, p := range l.of {
		if p.entry.closed {
			l.lim.observe(Event{Kind: StoreFailed, Request: l.r, Err: se})
			return se
		}
	}
	l.lim.observe(Event{Kind: StoreFailed, Request: l.r, Err: err})
	clear(l.results)
	l.credit, l.open = 0, time.Now().Add(reopen)
	return nil
}

// cancel gives the last piece back, none of which has moved.
func (l *lane) cancel() {
	l.lim.cancel(l.ctx, made(l.charges, l.results, func(r *store.Receipt) bool { return r.Cost > 0 }))
	clear(l.results)
}

// move notes that n bytes have moved.
func (l *lane) move(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved += n
	l.credit = max(l.credit-n, 0)
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
	for i := range l.results {
		unused := l.credit / l.of[i].entry.bandwidth.block
		if receipt := l.results[i].Receipt; receipt.Cost > 0 && unused > 0 {
			ch := l.charges[i]
			ch.Cost, ch.Receipt = max(receipt.Cost-unused, 0), receipt
			back = append(back, ch)
		}
	}
	l.credit = 0
	return back
}

// cut is why the lane was cut off, or nil.
func (l *lane) cut() error {
	if l == nil || l.err == errEnded {
		return nil
	}
	return l.err
}
