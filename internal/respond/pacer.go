package respond

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Payer is how bytes are paid for. Its functions may end the response: no lock is held
// when they are called.
type Payer struct {
	// Backend decides the charges: a chunk of bytes waits for its turn as a request does.
	Backend *decide.Backend
	// Refund settles charges that give bytes back, even if ctx has ended.
	Refund func(ctx context.Context, charges []store.Charge)
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
	limits       []*limit.Limit // of the accounts, as their chunks wait for them
	call         decide.Call    // that is under way, with a charge for each account
	nextSize     int64          // bytes to pay for next: it grows up to a piece
	roomLeft     int64          // bytes left according to the last answer
	moved        int64
	moving       bool  // recordMoved hasn't been called for the last pay
	total        int64 // bytes that will move in all, or -1
	waited       time.Duration
	unpacedUntil time.Time // the store has failed: unpaced until then
	err          error     // nothing moves any more
}

// unpacedFor is how long a pacer goes on unpaced after its store has failed: it must not
// wait for a failing store at each piece.
const unpacedFor = time.Second

var errEnded = errors.New("stint: the request has ended")

func newPacer(payer Payer, ctx context.Context, limits []ByteLimit) *pacer {
	p := &pacer{Payer: payer, ctx: ctx, total: -1}
	p.enforced = slices.ContainsFunc(limits, func(e ByteLimit) bool { return !e.DryRun })
	p.accounts, p.limits = make([]account, len(limits)), make([]*limit.Limit, len(limits))
	for i, e := range limits {
		p.accounts[i].ByteLimit = e
		p.limits[i] = &limit.Limit{StoreLimit: e.Limit, Kind: limit.Bandwidth, DryRun: e.DryRun, Closed: e.Closed}
		if p.enforced {
			p.limits[i].Wait = limit.Wait{For: limit.ForTurn, MaxWait: store.Never}
		}
		if p.paces(&p.accounts[i]) && (p.piece == 0 || e.Piece < p.piece) {
			p.piece = e.Piece
		}
	}
	p.call.Init(func(context.Context) int { return 0 }, nil, func(int, int64, time.Duration) { p.beforePause() })
	p.call.By(payer.Backend)
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

// ask has the charges decided for each limit's part of n bytes. It returns when they are granted and their turns
// have come, or with the error of decide.Call.Decide.
func (p *pacer) ask(n int64) (err error) {
	p.call.Reset()
	p.call.Patient = p.enforced
	for i := range p.accounts {
		p.call.Add(p.limits[i], p.accounts[i].Key, p.accounts[i].cost(n))
	}
	p.withoutLock(func() {
		if !p.enforced { // then nothing denies, and an error of the store matters to nothing else
			if err = p.Backend.Store.Take(p.ctx, p.call.Charges, p.call.Results); err != nil && p.ctx.Err() == nil {
				err = &decide.Failed{Err: err}
			}
			return
		}
		if err = p.call.Decide(p.ctx); p.call.Owns() {
			p.call.LeaveCharged()
		}
	})
	p.waited += p.call.Waited
	return err
}

// payFor pays for n bytes and waits for their turn.
func (p *pacer) payFor(n int64) error {
	err := p.ask(n)
	var failed *decide.Failed
	if p.call.Allowed && (err != nil || p.err != nil) { // the client has left meanwhile, or the pacer has ended
		if err = errors.Unwrap(err); p.err != nil {
			err = p.err
		}
		p.refundLast()
		return err
	}
	switch {
	case p.err != nil:
		return p.err
	case errors.As(err, &failed):
		return p.handleStoreError(failed.Err)
	case err != nil:
		return errors.Unwrap(err)
	case !p.call.Allowed:
		return p.whyDenied(n)
	}
	if p.call.BeganWaiting {
		p.nextSize = p.piece // streams that take turns have turns of equal size
	}
	p.recordPayment(n, 0)
	return nil
}

// whyDenied returns why n bytes that wait for as long as it takes have been denied.
func (p *pacer) whyDenied(n int64) error {
	for i := range p.call.Results {
		if r := &p.call.Results[i]; !r.OK && !p.call.Charges[i].DryRun && r.RetryAfter == store.Never {
			return fmt.Errorf("stint: limit %q: %d bytes can never pass", p.call.Charges[i].Limit.Name(), n)
		}
	}
	return context.DeadlineExceeded // its turn would come after the request's end
}

// beforePause sends the bytes that were paid for before, when a call begins to wait.
func (p *pacer) beforePause() {
	p.mu.Lock()
	flushes := p.flush != nil && p.moved > 0
	p.mu.Unlock()
	if flushes {
		p.flush()
	}
}

// recordPayment records that each limit has been paid for n bytes. If they have already moved, took is how long
// that took.
func (p *pacer) recordPayment(n int64, took time.Duration) {
	p.roomLeft = store.MaxCost
	for i := range p.accounts {
		a := &p.accounts[i]
		a.pay(n, p.call.Charges[i].Cost, &p.call.Results[i], took)
		if !a.DryRun {
			p.roomLeft = min(p.roomLeft, a.credit-n+p.call.Results[i].Remaining*a.Block)
		}
	}
}

// handleStoreError handles a failure of the store.
func (p *pacer) handleStoreError(err error) error {
	failsClosed := slices.ContainsFunc(p.accounts, func(a account) bool { return a.Closed })
	if !failsClosed {
		p.clearCredit()
		p.unpacedUntil = time.Now().Add(unpacedFor)
	}
	p.withoutLock(func() { err = p.StoreFailed(p.call.Charges, err, failsClosed) })
	if failsClosed {
		return err
	}
	return p.err // it may have ended meanwhile
}

// clearCredit makes all limits ignore the bytes that have moved, and the payments for them.
func (p *pacer) clearCredit() {
	for i := range p.accounts {
		p.accounts[i].credit, p.accounts[i].receipt = 0, store.Receipt{}
	}
}

// refundLast gives back the charges of the last call, none of whose bytes have moved.
func (p *pacer) refundLast() {
	var refunds []store.Charge
	for i := range p.call.Charges {
		refunds = p.giveBack(refunds, &p.accounts[i], p.call.Results[i].Receipt)
	}
	p.refund(refunds)
}

// giveBack has the next stream that waits use what a receipt has paid for, or appends the charge that refunds it.
func (p *pacer) giveBack(refunds []store.Charge, a *account, unused store.Receipt) []store.Charge {
	if unused.Cost == 0 {
		return refunds
	}
	if !a.DryRun && len(p.accounts) == 1 {
		turn := &lines.Turn{Cost: unused.Cost, Limit: a.Limit, Result: store.Result{OK: true, Receipt: unused},
			Asked: time.Now()}
		if p.Backend.Lines.GiveTurn(lines.KeyOf(a.Limit, a.Key), turn) {
			return refunds
		}
	}
	return append(refunds, store.Charge{Key: a.Key, Limit: a.Limit, DryRun: a.DryRun, Receipt: unused})
}

// refund settles charges that give bytes back.
func (p *pacer) refund(charges []store.Charge) {
	if len(charges) > 0 {
		p.withoutLock(func() { p.Refund(p.ctx, charges) })
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
	p.refund(p.refunds())
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
	err := p.ask(ahead)
	var failed *decide.Failed
	switch {
	case err == nil && p.err != nil: // the pacer has ended meanwhile
		p.refundLast()
	case err == nil:
		p.recordPayment(ahead, took)
	case errors.As(err, &failed):
		_ = p.handleStoreError(failed.Err) // a dry run is never FailClosed
	default:
		p.clearCredit()
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

// refunds returns the charges that refund the bytes that were paid for and haven't moved. If another
// stream of this process waits for such bytes, it gets them.
func (p *pacer) refunds() (refunds []store.Charge) {
	for i := range p.accounts {
		a := &p.accounts[i]
		refunds = p.giveBack(refunds, a, a.takeUnused())
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
