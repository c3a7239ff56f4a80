package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/slots"
	"github.com/stint-go/stint/store"
)

// Allow charges cost to all of the limiter's limits (not those of its routes), and to those
// that a WithLimitSource has for the key. Use it instead of Take for jobs, queues and RPCs that
// are charged once and hold no slots. It returns nil if all limits let the charge pass, a
// *DeniedError if one denies, and otherwise the errors of Take. Unless it returns nil, nothing
// is charged. The rules of Take for keys and costs apply.
//
// It returns ErrHolds if a limit of the limiter has slots, even in a dry run. It ignores
// Bandwidth and WithSettle, which apply to responses. If a limit makes callers wait
// (WithMaxWait, WithQueue, a LeakyBucket), Allow blocks until its turn has come. If the store
// or the source fails, it returns nil unless a limit is FailClosed.
//
// With a store in memory, and without waiting or observers, it allocates nothing when it
// returns nil.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	v := l.decidingVersion()
	var denial store.Result
	denied := false
	if l.destinations.observers.Load() == nil && l.destinations.storeFailed.Load() == 0 {
		allowed, decided := allow(ctx, v, key, cost, &denial)
		if allowed {
			return nil
		}
		denied = decided && cost == 1
	}
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	if denied {
		return a.adoptDenial(key, cost, &denial)
	}
	if decided, err := a.decideGiven(ctx, key, cost, false); err != nil || !decided {
		return err
	}
	a.sendOutcome(EventAdmitted, nil)
	a.sendEnd()
	a.call.Spend()
	return nil
}

// Take is for jobs, queues and RPCs. It charges cost, from 1 to 2^40, to all of the limiter's
// limits (not those of its routes), and to those that a WithLimitSource has for the key. Call
// Done on the permit when the work is over: without it, the permit's slots stay taken as long
// as the process lives. If no limit has slots and nothing is settled, Allow costs less.
//
// If a limit denies, the error is a *DeniedError; if ctx has already ended, it wraps ctx's
// error; if the cost is out of range, it wraps store.ErrCost. In each case nothing is charged.
// If the store fails, the permit is empty, or, if a limit is FailClosed, the error is a
// *StoreError. If the source fails, its limits are left out, or, under FailClosed, the error is
// a *SourceError. Any other error of the source is returned.
//
// Limits with a constant key (Global, and Join or Hash of such keys) are charged under that
// key, as for requests; all others under key. If the limiter has others, an empty key is an
// error (ErrEmptyKey), and so is a key that is too long (ErrKeyTooLong). Predicates, other key
// functions and WithCost need a request and are ignored; WithMaxWait applies. For a limiter
// that is used only this way, write WithKey(GivenKey()).
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, false)
}

// Wait is Take, but blocks until key's turn comes or ctx ends. If ctx ends, nothing is charged
// and the error wraps ctx's error. Wait returns a *DeniedError at once if the turn comes after
// ctx's deadline, if the cost can never pass, or if the queue is full (WithQueue, a
// LeakyBucket). Wait also blocks until a slot of a concurrency limit is free; if none comes
// free by ctx's deadline, the error is a *DeniedError.
//
// Some limits can't reserve a turn as far ahead as ctx allows: a SlidingCounter reserves one
// window ahead, and a bucket that another version of the limit has charged reserves nothing for
// a ctx without a deadline. Then Wait asks again after RetryAfter. Callers that ask again have
// no place in a line: the first to ask when units are available is served.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, true)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, patient bool) (*Permit, error) {
	a := beginAdmission(l.decidingVersion(), nil, nil)
	defer a.end(ctx)
	a.call.Patient = patient
	decided, err := a.decideGiven(ctx, key, cost, true)
	switch {
	case err != nil:
		return nil, err
	case !decided:
		return &Permit{}, nil
	}
	p, _ := a.permit(ctx, a.call.Needs)
	a.sendOutcome(EventAdmitted, nil)
	a.handTo(p)
	return p, nil
}

// Peek returns what key has left of the limiter's limits, and of those that a WithLimitSource
// has for it. It charges nothing. If the source fails, the error is a *SourceError, whatever
// the failure policy. If the source denies the key, for instance because the key has no plan,
// its limits are left out; without other limits, its error is returned. Decision.Allowed
// reports whether each enforced limit has a unit left; RetryAfter is the time until every limit
// has one.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	v := l.currentVersion()
	return l.peek(ctx, v, key, v.plans.Base.Entries)
}

// PeekAll is Peek for all of the limiter's limits, including those of its routes.
// Decision.Limits has each limit once. The other fields combine all limits, although no single
// request is subject to all of them. Limits that a WithLimitFunc returns are left out, and so
// is a Bandwidth.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	v := l.currentVersion()
	return l.peek(ctx, v, key, slices.Collect(v.plans.Entries))
}

// peek returns how key stands with the limits of a version's entries.
func (l *Limiter) peek(ctx context.Context, v *version, key string, entries []*read.Entry) (d Decision, err error) {
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	entries, known, err := a.reading.OfKey(ctx, key, entries, true)
	if err != nil {
		return Decision{}, err
	}
	if len(entries) == 0 && known {
		return Decision{Allowed: true}, nil
	}
	if err := a.chargeGiven(key, 0, entries); err != nil {
		return Decision{}, err
	}
	return a.peekDecision(ctx)
}

// PeekRequest returns what each limit has left for a request, including limits from functions
// and sources. It charges nothing. Decision.Allowed reports whether each enforced limit has a
// unit left, and is true for a request without limits. If the request would be denied for a
// reason other than a limit, that is the error. If the store fails, the error is a *StoreError.
//
// Keys made by an adapter, such as stintgin.Key, can't be read from r. A Bandwidth is left out.
func (l *Limiter) PeekRequest(r *http.Request) (Decision, error) {
	v := l.currentVersion()
	switch exempt, blocked := v.plans.SkipOrBlock(r); {
	case exempt:
		return Decision{Allowed: true}, nil
	case blocked:
		return Decision{}, errBlocked
	}
	a := beginAdmission(v, r, nil)
	defer a.end(r.Context())
	if err := a.reading.Request(v.plans.Find(r)); err != nil {
		return Decision{}, err
	}
	if len(a.call.Charges) == 0 {
		return Decision{Allowed: true}, nil
	}
	for i := range a.call.Charges {
		a.call.Charges[i].Cost = 0
	}
	return a.peekDecision(r.Context())
}

// allow is Allow for one limit in memory. It uses no admission: getting and filling one takes
// more than half as long as the decision. If the limit denies, allow sets the times and the units of
// denial. If decided is false, nothing is charged, and Allow decides again to find out why.
func allow(ctx context.Context, v *version, key string, cost int64, denial *store.Result) (allowed, decided bool) {
	e := v.plans.Base.Single
	if e == nil || v.memory == nil || cost < 1 || ctx.Err() != nil {
		return false, false
	}
	entryKey, err := e.Key.ForGiven(keytext.Encode(key))
	if err != nil {
		return false, false
	}
	call := singleCalls.Get().(*singleCall)
	c, r := &call.charges[0], &call.results[0]
	c.Key, c.Limit, c.Cost = entryKey, e.StoreLimit, cost
	if err = v.memory.Take(ctx, call.charges[:], call.results[:]); err == nil {
		allowed, decided = r.OK, true
		denial.Remaining, denial.RetryAfter, denial.ResetAfter = r.Remaining, r.RetryAfter, r.ResetAfter
	}
	c.Key, c.Limit = "", nil
	singleCalls.Put(call)
	return allowed, decided
}

// singleCall is a call of one charge. It is in a pool, because what is given to a store escapes to the
// heap.
type singleCall struct {
	charges [1]store.Charge
	results [1]store.Result
}

var singleCalls = sync.Pool{New: func() any { return new(singleCall) }}

// adoptDenial returns the error of a denial that allow has found.
func (a *admission) adoptDenial(key string, cost int64, answer *store.Result) error {
	if err := a.chargeGiven(key, cost, a.version.plans.Base.Entries); err != nil {
		return err
	}
	a.call.Results[0] = *answer
	a.call.Results[0].MoreAfter = answer.RetryAfter // of a cost of 1
	a.observers = nil                               // there were none
	a.recordResults()
	err := newDeniedOutsideHTTP(a.version, &a.call)
	a.sendOutcome(EventDenied, nil)
	return err
}

// decideGiven decides the charges of a key that is given, outside HTTP. If decided is false and
// err is nil, the key has no limits, or the store or their source has failed and no limit is
// FailClosed. Unless the call may hold slots, a limit that has some is an error.
func (a *admission) decideGiven(ctx context.Context, key string, cost int64, mayHold bool) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: write 1 to 2^40, or use Peek", store.ErrCost, cost)
	}
	entries, known, err := a.reading.OfKey(ctx, key, a.version.plans.Base.Entries, false)
	if len(a.reading.Failures) > 0 {
		a.sendFailures()
	}
	if err != nil {
		return false, err
	}
	if len(entries) == 0 && known {
		return false, nil
	}
	if !mayHold && slices.ContainsFunc(entries, func(e *read.Entry) bool { return e.Wait.For == limit.ForSlot }) {
		return false, ErrHolds
	}
	if err := a.chargeGiven(key, cost, entries); err != nil {
		return false, err
	}
	if err := a.decide(ctx); err != nil {
		return false, a.finishFailed(ctx, err)
	}
	if !a.call.Allowed {
		err := newDeniedOutsideHTTP(a.version, &a.call)
		a.sendOutcome(EventDenied, nil)
		return false, err
	}
	return true, nil
}

// peekDecision returns what is left of the limits of a call whose charges have no cost.
func (a *admission) peekDecision(ctx context.Context) (d Decision, err error) {
	if err := a.call.Peek(ctx); err != nil {
		return Decision{}, &StoreError{err}
	}
	d.addUp(&a.call, make([]LimitStatus, len(a.call.Results)))
	return d, nil
}

// chargeGiven makes the charges of a key, to entries.
func (a *admission) chargeGiven(key string, cost int64, entries []*read.Entry) error {
	if err := a.reading.ChargeGiven(key, cost, entries); err != nil {
		return err
	}
	if len(a.call.Charges) == 0 {
		return errUncharged
	}
	return nil
}

// errUncharged is the error of a limiter with no limit that a key can be charged for. A
// call that charges nothing must not look as if it had been let through.
var errUncharged = errors.New("stint: the limiter has nothing to charge a key for (a Bandwidth, the limits of a WithLimitFunc and, except for PeekAll and Reset, those of a WithRoute are left out): add a limit to New, such as a stint.Rate")

// Usage is what the caller of a request has used of one limit: see [Limiter.Usage].
type Usage struct {
	Limit string // its name
	// Route is the pattern of the WithRoute that the limit is written in, or several separated by
	// commas. It is "" for the limiter's own limits and those of functions.
	Route string
	// Capacity is LimitStatus.Capacity. Used and Left add up to it. Used exceeds it while the
	// caller owes units.
	Capacity, Used, Left int64
	// Reset is LimitStatus.ResetAfter: the time until the limit is full again.
	Reset time.Duration
}

// Usage returns what the caller of a request has used of every limit, for an account page. It
// charges nothing. The limits are the limiter's own, those of all its routes, whatever the
// request's path is, and those that functions and sources have for the request. Each is looked
// up under its own key, taken from this request. It calls the store once.
//
// These limits are left out: limits whose key is empty, too long or an error for this request,
// limits whose own WithSkip exempts the request, dry runs, limits with WithHidden, and
// Bandwidths. The WithSkip and WithBlock of the limiter are ignored, and so is the error of a
// limit function.
//
// The error is a *StoreError if the store fails, or a *SourceError if a source fails and
// returns no limits. Keys made by an adapter, such as stintgin.Key, are read if a middleware of
// that adapter has passed the request on.
func (l *Limiter) Usage(r *http.Request) ([]Usage, error) {
	v := l.currentVersion()
	a := beginAdmission(v, r, nil)
	defer a.end(r.Context())
	var failed *SourceError
	if err := a.reading.ReadAll(); errors.As(err, &failed) {
		return nil, failed
	}
	if len(a.call.Charges) == 0 {
		return nil, nil
	}
	d, err := a.peekDecision(r.Context())
	if err != nil {
		return nil, err
	}
	routes := map[*store.Limit][]string{}
	for _, p := range v.plans.Routes {
		for _, e := range p.Declared {
			routes[e.StoreLimit] = append(routes[e.StoreLimit], p.Pattern)
		}
	}
	all := make([]Usage, len(d.Limits))
	for i, s := range d.Limits {
		all[i] = Usage{s.Name, strings.Join(routes[a.call.Limits[i].StoreLimit], ", "), s.Capacity, max(s.Capacity-s.Remaining, s.InFlight), s.Remaining, s.ResetAfter}
	}
	return all, nil
}

// Reset makes the limits named forget what key has used and the slots it holds. If no limit is
// named, it resets all of the limiter's limits, including those of its routes and those that a
// WithLimitSource has for key. A Ban ends and forgets its denials. An AdaptiveConcurrency
// starts anew for key. Limits with a constant key aren't reset, and naming one is an error; see
// ResetLimit. Limits of a WithLimitFunc depend on a request and can't be reset by key: if the
// limiter has no others, Reset returns an error. Errors of a source are as in Peek.
//
// Refunds of requests that were admitted before the Reset still count after it, on top of the
// limit.
//
// The store must implement store.Resetter; otherwise Reset returns an error. memstore and
// redisstore implement it, and failover if both of its sides do.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...string) error {
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	v := l.currentVersion()
	entries, sourced, known, err := v.entriesOf(ctx, key)
	if err != nil {
		return err
	}
	if entries = append(entries, sourced...); len(entries) == 0 && !known {
		return errUncharged
	}
	for _, name := range limits {
		switch known, keyed, _ := keyKinds(entries, name); {
		case !known:
			return fmt.Errorf("stint: Reset: the limiter has no limit %q", name)
		case !keyed:
			return fmt.Errorf("stint: Reset: the key of %q is constant: write ResetLimit", name)
		}
	}
	return reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Key.Constant != "" || len(limits) > 0 && !slices.Contains(limits, e.Name()) {
			return ""
		}
		return encoded
	})
}

// keyKinds reports whether there is a limit of a name, whether some request has a key of
// its own there, and whether some have a constant one.
func keyKinds(entries []*read.Entry, name string) (found, keyed, constant bool) {
	for _, e := range entries {
		if e.Name() == name {
			found, keyed, constant = true, keyed || e.Key.Constant == "", constant || e.Key.Constant != ""
		}
	}
	return found, keyed, constant
}

// ResetLimit resets one limit that has a constant key, such as Global, for all callers
// together. The name of any other limit is an error.
func (l *Limiter) ResetLimit(ctx context.Context, name string) error {
	v := l.currentVersion()
	entries := slices.Collect(v.plans.Entries)
	switch known, _, constant := keyKinds(entries, name); {
	case !known:
		return fmt.Errorf("stint: ResetLimit: the limiter has no limit %q", name)
	case !constant:
		return fmt.Errorf("stint: ResetLimit: the key of %q isn't constant: write Reset with the key to forget", name)
	}
	return reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Name() != name {
			return ""
		}
		return e.Key.Constant
	})
}

// reset makes each of the limits of entries forget the key that keyOf returns, unless
// that is "".
func reset(ctx context.Context, v *version, entries []*read.Entry, keyOf func(*read.Entry) string) error {
	limits, stored := map[string][]*store.Limit{}, false
	for _, e := range entries {
		if key := keyOf(e); key != "" && !slices.Contains(limits[key], e.StoreLimit) {
			limits[key] = append(limits[key], e.StoreLimit)
			stored = stored || e.Needs&limit.Local == 0
		}
	}
	if _, can := v.backend.Store.(store.Resetter); stored && !can {
		return fmt.Errorf("stint: Reset: %T doesn't implement store.Resetter: write a store that does, such as those of memstore and redisstore", v.backend.Store)
	}
	for key, limits := range limits {
		if err := v.backend.Local.Reset(ctx, key, limits...); err != nil {
			return &StoreError{err}
		}
		for _, l := range limits { // slots of it may be free now
			v.backend.Lines.Slots.Wake(slots.KeyOf(l, key))
		}
	}
	return nil
}
