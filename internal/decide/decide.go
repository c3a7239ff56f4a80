package decide

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
)

// Canceled is the error of a decision or a wait that ended because its context did: the
// client left, or the server gave up the request. What was charged is given back.
type Canceled struct{ Err error }

func (e *Canceled) Error() string { return "stint: not admitted: " + e.Err.Error() }

// Unwrap returns the context's error.
func (e *Canceled) Unwrap() error { return e.Err }

// StatusCode returns 503, whoever ended the context. A server that shuts down can't be
// told from a client that left, and only in the first case is the answer read.
func (e *Canceled) StatusCode() int { return 503 }

// Failed is the error of a decision that the store couldn't make.
type Failed struct {
	Err    error // the store's
	Closed bool  // a limit is FailClosed
}

func (e *Failed) Error() string { return e.Err.Error() }

// Unwrap returns the store's error.
func (e *Failed) Unwrap() error { return e.Err }

// Decide has the charges decided, and waits for slots and for turns if the limits allow that. If it
// returns nil, either all charges are granted (Allowed), or the results say which limit denied. The
// error is a *Canceled or a *Failed.
func (c *Call) Decide(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Canceled{err} // a store may ignore ctx, and charge a client that has left
	}
	if len(c.Charges) == 0 { // only Bandwidths, which charge as bytes move
		c.Allowed = true
		return nil
	}
	var err error
	if c.Patient || c.Needs&(limit.Waits|limit.Slots) != 0 || c.by.Lines.Waiting() {
		if err = c.wait(ctx); err == nil && !c.owns && c.Needs&limit.Counts != 0 && !c.raise {
			c.countDenial(ctx)
		}
		c.countLines()
	} else {
		err = c.take(ctx)
	}
	switch err.(type) {
	case nil, *Canceled:
		return err
	}
	if ended := ctx.Err(); ended != nil { // not the store's fault
		clear(c.Results)
		return &Canceled{ended}
	}
	return c.decideWithoutStore(ctx, err)
}

// take asks the store to decide the charges. If all are granted, the call is their owner.
func (c *Call) take(ctx context.Context) error {
	err := c.ask(ctx)
	if err == nil && inside.Granted(c.Charges, c.Results) {
		c.Allowed, c.owns = true, true
	}
	return err
}

// ask asks the store to decide the charges.
func (c *Call) ask(ctx context.Context) error {
	if !c.Timed {
		return c.store().Take(ctx, c.Charges, c.Results)
	}
	start := time.Since(epoch)
	err := c.store().Take(ctx, c.Charges, c.Results)
	c.Took += time.Since(epoch) - start
	return err
}

// epoch is any instant: to ask for the time since one reads one clock of the system,
// where to ask for the time reads two.
var epoch = time.Now()

// decideWithoutStore decides a call whose store has failed with err. If all enforced limits are limits
// of this process, which need no store, those decide. So they do if some are, and none of the others
// is FailClosed. Otherwise the error is a *Failed.
func (c *Call) decideWithoutStore(ctx context.Context, err error) error {
	stored, here, closed := false, false, false
	for _, l := range c.Limits {
		stored = stored || l.Needs&limit.Local == 0 && !l.DryRun
		here = here || l.Needs&limit.Local != 0 && !l.DryRun
		closed = closed || l.Closed
	}
	if stored && (closed || !here) {
		return &Failed{err, closed}
	}
	c.Lost = &Lost{slices.Clone(c.Charges), err}
	c.Keep(func(l *limit.Limit) bool { return l.Needs&limit.Local != 0 })
	return c.Decide(ctx)
}

// Peek answers charges of cost 0 as they stand.
func (c *Call) Peek(ctx context.Context) error {
	for i, l := range c.Limits {
		c.Charges[i].MaxWait = l.Wait.InQueue()
	}
	if err := c.store().Take(ctx, c.Charges, c.Results); err != nil {
		return err
	}
	c.countLines()
	for i := range c.Results {
		r := &c.Results[i]
		// A limit with debt may let a charge pass without having a whole unit.
		owing := c.Limits[i].Kind.Traits().WaitsFor != limit.ForSlot && r.ResetAfter == 0
		if r.OK = r.Remaining > 0 || owing; !r.OK {
			r.RetryAfter, _ = inside.MoreAfter(c.Charges[i].Limit, r)
		}
	}
	return nil
}
