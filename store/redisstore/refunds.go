package redisstore

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// refunds settles charges that no caller will settle to 0, or to what was used: the caller has left,
// another part of the call was denied, or prefetched tokens weren't used.
type refunds struct {
	server  *server
	settles *batch.Queue[settleRequest]
	closed  <-chan struct{}
}

// longestPause bounds the pauses between tries, which take one to two minutes in all.
const longestPause = time.Minute

// start settles c without waiting for it, and tries again while it is known not to
// have been executed, even if that turns out after the timeout. If the outcome isn't
// known, the charge may stand: executing it twice would free charges of others. tried
// receives the result of the first try.
func (f *refunds) start(c *batch.Call[settleRequest]) (tried <-chan error) {
	first := make(chan error, 1)
	go func() {
		err := f.try(c, func(err error) { first <- err })
		for pause := min(f.server.timeout, longestPause); fault.NotMade(err) && pause <= longestPause; pause *= 2 {
			select {
			case <-f.closed: // the last chance
				pause = longestPause
			case <-time.After(pause):
			}
			again := batch.NewCall[settleRequest]()
			again.Body = c.Body
			again.Body.site = f.server.layout.siteOf(c.Body.keys[0])
			err = f.try(again, func(error) {})
		}
	}()
	return first
}

// try settles c. It calls report with the result, at the timeout at the latest, and
// returns the final result.
func (f *refunds) try(c *batch.Call[settleRequest], report func(error)) error {
	c.Ended = make(chan error, 1)
	reusable, err := f.settles.Do(context.Background(), c)
	report(err)
	if !reusable {
		err = <-c.Ended
	}
	return err
}

// refundAbandoned refunds the charges granted to a caller that has left. It doesn't wait.
func (f *refunds) refundAbandoned(c *batch.Call[takeRequest]) {
	if refund := newRefund(&c.Body.Decision, c.Body.site); refund != nil {
		f.start(refund)
	}
}

// newRefund returns the call that refunds a decision's charges, or nil if it has none.
func newRefund(d *wire.Decision, at site) *batch.Call[settleRequest] {
	if !d.Granted {
		return nil
	}
	refund := batch.NewCall[settleRequest]()
	refund.Body.site = at
	for i := range d.Charges {
		if r := &d.Results[i]; r.Receipt.Cost > 0 {
			c := d.Charges[i]
			c.Cost, c.Receipt = 0, r.Receipt
			refund.Body.add(c, d.Keys[i], i)
		}
	}
	if len(refund.Body.charges) == 0 {
		return nil
	}
	return refund
}

// refundParts refunds the granted parts of a call that was denied or has failed, and
// sets their results to the state of their limits afterwards. If the outcome isn't known
// by until, it returns an error, and the refunds go on.
func (f *refunds) refundParts(ctx context.Context, parts []*batch.Call[takeRequest], until time.Time) error {
	due, end := context.WithDeadline(ctx, until)
	defer end()
	calls, tried := make([]*batch.Call[settleRequest], len(parts)), make([]<-chan error, len(parts))
	for n, part := range parts {
		if calls[n] = newRefund(&part.Body.Decision, part.Body.site); calls[n] != nil {
			tried[n] = f.start(calls[n])
		}
	}
	for n, part := range parts {
		if calls[n] == nil {
			continue
		}
		select {
		case err := <-tried[n]:
			if err != nil {
				return err
			}
		case <-due.Done():
			if ctx.Err() != nil {
				return fault.ContextEnded(ctx)
			}
			return fault.ErrTimeout
		}
		for j, i := range calls[n].Body.indexes {
			r := calls[n].Body.results[j]
			r.OK, r.RetryAfter, r.Receipt = true, 0, store.Receipt{}
			part.Body.Results[i] = r
		}
	}
	return nil
}

// refundTokens refunds prefetched tokens, unless their key has been reset since. It
// doesn't wait for the server.
func (f *refunds) refundTokens(c store.Charge) (tried <-chan error) {
	key := wire.StorageKey(f.server.prefix, c.Key, c.Limit)
	refund := batch.NewCall[settleRequest]()
	refund.Body.site = f.server.layout.siteOf(key)
	refund.Body.unlessReset = true
	refund.Body.add(c, key, 0)
	return f.start(refund)
}
