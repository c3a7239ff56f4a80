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
	Lines  *turns.Lines
	Refund turns.Settle
	// StoreFailed reports an error of the store on charges. If one of their limits fails closed, the body
	// is cut off: the write or read returns what StoreFailed returns. The charges are valid until it returns.
	StoreFailed func(charges []store.Charge, err error, failsClosed bool) error
}

// pacer is one direction of a request whose bytes are paced: its response's body, or its
// own. Bytes are paid for before the handler's writes or reads move them, in one call to
// the store for each piece; the unused part of the last piece is given back at the end.
//
// A limit in dry run is charged in the calls that the others need, and influences
// neither those nor the pieces. If all limits are dry runs, the pacer delays nothing:
// bytes are charged after they have moved.
type pacer struct {
	Payer
	ctx      context.Context
	enforced bool  // some limit is
	piece    int64 // the most bytes paid for at once
	// incoming: the client sends the bytes. Few are paid for before they arrive, so that a client
	// that stalls doesn't hold bytes that others wait for.
	incoming bool
	flush    func() // sends what has been paid for before a pause; may be nil

	mu           sync.Mutex // a request's body may be read while the handler returns
	accounts     []account
	charges      []store.Charge // of the call under way, one for each account
	results      []store.Result
	nextSize     int64 // bytes to pay for next: it grows up to a piece
	roomLeft     int64 // bytes left according to the last answer
	moved        int64
	moving       bool  // recordMoved hasn't been called for the last pay
	total        int64 // bytes that will move in all, or -1
	waited       time.Duration
	unpacedUntil time.Time // the store has failed: unpaced until then
	err          error     // nothing moves any more
}

// maxPause is how far away a turn may be, because a store's reservations are bounded.
const maxPause = time.Hour

// unpacedFor is how long a pacer goes on unpaced after its store has failed: it must not
// wait for a failing store at each piece.
const unpacedFor = time.Second

var errEnded = errors.New("stint: the request has ended")

func newPacer(payer Payer, ctx context.Context, limits []ByteLimit) *pacer {
	p := &pacer{Payer: payer, ctx: ctx, total: -1}
	p.enforced = slices.ContainsFunc(limits, func(e ByteLimit) bool { return !e.DryRun })
	p.accounts = make([]account, len(limits))
	p.charges, p.results = make([]store.Charge, len(limits)), make([]store.Result, len(limits))
	for i, e := range limits {
		p.accounts[i].ByteLimit = e
		p.charges[i] = store.Charge{Key: e.Key, Limit: e.Limit, DryRun: e.DryRun}
		if !e.DryRun {
			p.charges[i].MaxWait = maxPause
		}
		if p.paces(&p.accounts[i]) && (p.piece == 0 || e.Piece < p.piece) {
			p.piece = e.Piece
		}
	}
	return p
}

// paces reports whether a limit influences how many bytes are paid for, and when.
func (p *pacer) paces(a *account) bool { return a.DryRun != p.enforced }

// pay returns how many of want bytes may move now, at least one. It returns when they
// have been paid for and their turn has come. If it returns no error, recordMoved must be called
// when they have moved, or some of them.
func (p *pacer) pay(want int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.credit() == 0 {
		if time.Now().Before(p.unpacedUntil) {
			p.moving = true
			return want, nil
		}
		p.err = p.payFor(p.size(want))
	}
	if p.err != nil {
		return 0, p.err
	}
	p.moving = true
	return min(want, p.credit()), nil
}

// credit returns how many bytes have been paid to all limits and haven't moved. If
// negative, so many have moved that haven't been paid to some limit.
func (p *pacer) credit() int64 {
	credit := int64(store.MaxCost)
	for i := range p.accounts {
		if a := &p.accounts[i]; p.paces(a) {
			credit = min(credit, a.credit)
		}
	}
	return credit
}

// size returns how many bytes to pay for, if want are there. The first payment is for these, since
// many responses are a single write. Each further one is for twice as much, so that
// neither a small response nor a long one costs unnecessary calls. If the limits have room
// for these, but not for more, it pays for no more, rather than wait.
//
// Incoming bytes are paid for when they have arrived, and as many ahead as have arrived before, up to
// LeastPiece: so reads of a few bytes don't each cost a call.
func (p *pacer) size(want int64) int64 {
	if p.incoming {
		n := max(want, min(p.moved, LeastPiece))
		if p.total >= 0 {
			n = max(want, min(n, p.total-p.moved))
		}
		return min(n, p.piece)
	}
	n := p.ahead(want)
	if p.total >= 0 {
		n = p.piece
		if left := p.total - p.moved; left > 0 {
			n = left
		}
	}
	if p.roomLeft >= want {
		n = min(n, p.roomLeft)
	}
	return min(max(n, 1), p.piece)
}

// ahead returns how many bytes to pay for if want are there and the total isn't known.
func (p *pacer) ahead(want int64) int64 {
	n := max(want, p.nextSize)
	p.nextSize = min(max(2*p.nextSize, LeastPiece), p.piece)
	return n
}

// withoutLock calls f without p.mu, which the caller holds, and locks it again even if f
// panics.
func (p *pacer) withoutLock(f func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	f()
}

// setCosts sets the charges to each limit's part of n bytes.
func (p *pacer) setCosts(n int64) {
	for i := range p.accounts {
		p.charges[i].Cost = p.accounts[i].cost(n)
	}
}

// ask asks the store for the charges.
func (p *pacer) ask() (err error) {
	p.withoutLock(func() {
		ctx, end := turns.Outliving(p.ctx, p.Store)
		defer end()
		err = p.Store.Take(ctx, p.charges, p.results)
	})
	return err
}

// payFor pays for n bytes and waits for their turn. If the store can't reserve turns so far ahead, it
// waits until the store can, and pays for nothing.
func (p *pacer) payFor(n int64) error {
	p.setCosts(n)
	w := p.Lines.Claim(p.charges)
	leave := func() {
		if waiter := w; waiter != nil {
			w = nil
			p.withoutLock(func() { p.Lines.Leave(p.ctx, waiter) })
		}
	}
	defer func() { leave() }() // also if a store panics
	err := p.ask()
	w.Restore(p.charges)
	switch {
	case err == nil:
	case p.err != nil: // the pacer has ended meanwhile
		return p.err
	case p.ctx.Err() != nil:
		return p.ctx.Err()
	default:
		leave()
		return p.handleStoreError(err)
	}
	granted, wait, err := p.evaluate(n)
	if p.err != nil {
		err = p.err
	}
	if !granted {
		if err != nil {
			return err
		}
		leave()
		return p.pause(wait, nil)
	}
	if w != nil || wait > 0 {
		w = p.Lines.Join(w, p.charges, p.results, p.Refund)
		if err == nil && !w.Served() {
			p.nextSize = p.piece // streams that take turns have turns of equal size
			err = p.pause(p.delay(), w)
		}
	}
	if err != nil {
		leave()
		p.refundLast()
		return err
	}
	p.recordPayment(n, w, 0)
	w = nil
	return nil
}

// delay returns how long it takes until the turns of all charges have come.
func (p *pacer) delay() (d time.Duration) {
	for i := range p.results {
		if !p.charges[i].DryRun {
			d = max(d, p.results[i].Delay)
		}
	}
	return d
}

// evaluate evaluates the store's answer for n bytes: whether they are granted, and how long they wait,
// for the turns that are reserved or until turns can be reserved.
func (p *pacer) evaluate(n int64) (granted bool, wait time.Duration, err error) {
	granted = true
	for i := range p.results {
		r := &p.results[i]
		switch {
		case p.charges[i].DryRun:
		case r.OK:
			wait = max(wait, r.Delay)
		case r.RetryAfter == store.Never:
			return false, 0, fmt.Errorf("stint: limit %q: %d bytes can never pass", p.charges[i].Limit.Name(), n)
		default:
			granted, wait = false, max(wait, min(r.RetryAfter, maxPause))
		}
	}
	return granted, wait, nil
}

// recordPayment records that each limit has been paid for n bytes, in the lines of w if that
// isn't nil. If they have already moved, took is how long that took.
func (p *pacer) recordPayment(n int64, w *turns.Waiter, took time.Duration) {
	p.roomLeft = store.MaxCost
	for i := range p.accounts {
		a := &p.accounts[i]
		a.pay(n, p.charges[i].Cost, &p.results[i], took)
		if w != nil {
			if receipts := w.Receipts(i); receipts != nil {
				a.receipts = receipts
			}
		}
		if !a.DryRun {
			p.roomLeft = min(p.roomLeft, a.credit-n+p.results[i].Remaining*a.Block)
		}
	}
}

// pause waits for d or, if w isn't nil, for its turns, which are expected after d. First it
// flushes the bytes that were paid for before. It doesn't wait for a turn after the request's end.
func (p *pacer) pause(d time.Duration, w *turns.Waiter) error {
	if t, ok := p.ctx.Deadline(); ok && time.Until(t) < d {
		return context.DeadlineExceeded
	}
	flushes := p.flush != nil && p.moved > 0
	start := time.Now()
	var err error
	p.withoutLock(func() {
		if flushes {
			p.flush()
		}
		if w != nil {
			err = w.Wait(p.ctx)
			return
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			err = p.ctx.Err()
		}
	})
	p.waited += time.Since(start)
	if p.err != nil {
		err = p.err
	}
	return err
}

// handleStoreError handles a failure of the store.
func (p *pacer) handleStoreError(err error) error {
	failsClosed := slices.ContainsFunc(p.accounts, func(a account) bool { return a.Closed })
	if !failsClosed {
		p.clearCredit()
		p.unpacedUntil = time.Now().Add(unpacedFor)
	}
	p.withoutLock(func() { err = p.StoreFailed(p.charges, err, failsClosed) })
	if failsClosed {
		return err
	}
	return p.err // it may have ended meanwhile
}

// clearCredit makes all limits ignore the bytes that have moved, and the payments for them.
func (p *pacer) clearCredit() {
	for i := range p.accounts {
		p.accounts[i].credit, p.accounts[i].receipts = 0, nil
	}
}

// refundLast gives back the charges of the last call, none of whose bytes have moved.
func (p *pacer) refundLast() {
	var refunds []store.Charge
	for i, ch := range p.charges {
		r := p.results[i].Receipt
		if r.Cost > 0 && (ch.DryRun || !p.Lines.Return(&ch, []store.Receipt{r})) {
			ch.Cost, ch.Receipt = 0, r
			refunds = append(refunds, ch)
		}
	}
	if len(refunds) > 0 {
		p.withoutLock(func() { p.Refund(p.ctx, refunds) })
	}
}

// recordMoved records that n bytes that were paid for have moved. If the pacer has ended meanwhile,
// it gives back the payments for the others.
func (p *pacer) recordMoved(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved += n
	p.moving = false
	for i := range p.accounts {
		a := &p.accounts[i]
		a.credit = max(a.credit-n, 0) // while unpaced, more moves than was paid for
	}
	if p.err == nil {
		return
	}
	if refunds := p.refunds(); len(refunds) > 0 {
		p.withoutLock(func() { p.Refund(p.ctx, refunds) })
	}
}

// recordUnpaced records that n bytes have moved in a pacer that delays nothing, and makes its
// limits count them.
func (p *pacer) recordUnpaced(n int64, took time.Duration) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved += n
	for i := range p.accounts {
		p.accounts[i].credit -= n
	}
	short := -p.credit()
	if short <= 0 || p.err != nil {
		return
	}
	if time.Now().Before(p.unpacedUntil) {
		p.clearCredit()
		return
	}
	ahead := p.ahead(short) - short
	if p.total >= 0 {
		ahead = min(ahead, max(p.total-p.moved, 0))
	}
	p.setCosts(ahead)
	switch err := p.ask(); {
	case err == nil && p.err != nil: // the pacer has ended meanwhile
		p.refundLast()
	case err == nil:
		p.recordPayment(ahead, nil, took)
	case p.ctx.Err() != nil:
		p.clearCredit()
	default:
		_ = p.handleStoreError(err) // a dry run is never FailClosed
	}
}

// bytesLeft returns how many bytes are still to move, or -1 if unknown.
func (p *pacer) bytesLeft() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total < 0 {
		return -1
	}
	return max(p.total-p.moved, 0)
}

// end stops the pacer and returns the charges that refund the bytes that haven't moved. If bytes
// are moving just now, recordMoved does that.
func (p *pacer) end() (refunds []store.Charge) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = errEnded
	}
	if p.moving {
		return nil
	}
	return p.refunds()
}

// refunds returns the charges that refund the bytes that were paid for and haven't moved. If other
// streams of this process wait for such bytes, they get them.
func (p *pacer) refunds() (refunds []store.Charge) {
	for i := range p.accounts {
		a := &p.accounts[i]
		unused := a.takeUnused()
		if !a.DryRun && len(unused) > 0 && p.Lines.Return(&p.charges[i], unused) {
			continue
		}
		for _, r := range unused {
			refunds = append(refunds, store.Charge{Key: a.Key, Limit: a.Limit, DryRun: a.DryRun, Receipt: r})
		}
	}
	return refunds
}

// outcome returns the effect of e: how many bytes have moved, how long they were
// delayed, or would have been by a dry run, and why the body was cut off.
func (p *pacer) outcome(e ByteLimit) (moved int64, waited time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waited = p.waited
	if e.DryRun {
		i := slices.IndexFunc(p.accounts, func(a account) bool { return a.ByteLimit == e })
		waited = p.accounts[i].dryRunDelay
	}
	if p.err != errEnded {
		err = p.err
	}
	return p.moved, waited, err
}

// delayed returns how long the pacer has been delayed.
func (p *pacer) delayed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited
}
