package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/failure"
)

// FailurePolicy says what happens to a request that the store can't decide.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// WithFailurePolicy sets what happens to a request when the store fails. Of the limits
// of one request the strictest policy counts. The default is FailOpen. New rejects
// values other than FailOpen and FailClosed.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	return checkedSetting(p == FailOpen || p == FailClosed, fmt.Sprintf("WithFailurePolicy(%d)", p), "write stint.FailOpen or stint.FailClosed",
		func(s *settings) { s.policy = p })
}

// StoreError is a failure of the store: under FailClosed, or of a Permit.Settle.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "stint: store: " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *StoreError) StatusCode() int { return http.StatusServiceUnavailable }

// failed turns the error of a decision into that of Admit or Take: nil if the request
// passes despite a store's failure.
func (c *call) failed(ctx context.Context, err error) error {
	if ce := (*failure.Canceled)(nil); errors.As(err, &ce) {
		c.observe(EventCanceled, err)
		return err
	}
	if ctxErr := ctx.Err(); ctxErr != nil { // not the store's fault
		err = &failure.Canceled{Err: ctxErr}
		clear(c.Results)
		c.observe(EventCanceled, err)
		return err
	}
	told := Event{Kind: EventStoreFailed, Route: c.plan.route(), Request: c.r, Err: err, Waited: c.Waited, StoreTook: c.Took, EndsWait: c.Begun, below: c.below}
	if !slices.ContainsFunc(c.entries, func(e *entry) bool { return e.closed }) {
		c.version.observeOf(&told, c.Charges)
		return nil
	}
	err = &StoreError{err}
	told.Err = err
	c.version.observeOf(&told, c.Charges)
	return err
}

// finishUndecided finishes a request that could not be decided: it is denied with the error,
// or passes, with a permit if its bytes are paced.
func (c *call) finishUndecided(ctx context.Context, err error) (p *Permit, next *http.Request, _ error) {
	if err = c.failed(ctx, err); err != nil {
		c.outer.recordInnerDenial()
		return nil, nil, err
	}
	if len(c.paced) == 0 {
		return nil, c.r, nil
	}
	// Bandwidths ask the store themselves, which may be back by then, and have a
	// FailurePolicy of their own.
	c.keep(func(*entry) bool { return false })
	c.Waited = 0 // the permit has none of the limits that it waited for
	p, next = c.permit(ctx)
	return p, next, nil
}

// goOn lets a call continue without its charges on the store, which has failed with
// err, if none of its enforced limits is in the store, or if limits of this process,
// which need no store, still hold. Otherwise it returns err.
func (c *call) goOn(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.As(err, new(*failure.Canceled)) {
		return err
	}
	stored, here, closed := false, false, false
	for _, e := range c.entries {
		stored = stored || e.needs&local == 0 && !e.dryRun
		here = here || e.needs&local != 0 && !e.dryRun
		closed = closed || e.closed
	}
	if stored && (closed || !here) {
		return err
	}
	c.version.observeOf(&Event{Kind: EventStoreFailed, Route: c.plan.route(), Request: c.r, Err: err}, c.Charges)
	c.keep(func(e *entry) bool { return e.needs&local != 0 })
	return c.decide(ctx)
}

// keep removes the charges of all other limits, which haven't been made.
func (c *call) keep(which func(*entry) bool) {
	n := 0
	c.needs = c.ofPaced()
	for i, e := range c.entries {
		if !which(e) {
			continue
		}
		c.needs |= e.needs
		c.entries[n], c.Charges[n], c.Results[n] = e, c.Charges[i], c.Results[i]
		if len(c.Seen) > 0 {
			c.Seen[n] = c.Seen[i]
		}
		n++
	}
	c.entries = slices.Delete(c.entries, n, len(c.entries))
	c.Charges = slices.Delete(c.Charges, n, len(c.Charges))
	c.Results = slices.Delete(c.Results, n, len(c.Results))
	c.Seen = c.Seen[:min(n, len(c.Seen))]
}
