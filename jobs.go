package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Allow charges cost to all limits of the limiter, and to those that a WithLimitSource has for
// the key. Limits of routes aren't charged. Use Allow instead of Take for jobs, queues and RPCs
// that are charged once and hold no slots. Allow returns nil if all limits allow the charge, a
// *DeniedError if one denies it, and otherwise the errors of Take. If Allow returns an error,
// nothing is charged. key and cost are as in Take.
//
// Allow returns ErrHolds if a limit of the limiter has slots, even in a dry run. It ignores
// Bandwidth and WithSettle, which apply to responses. If a limit makes callers wait
// (WithMaxWait, WithQueue, a LeakyBucket), Allow blocks until the call's turn. If the wait, or
// ctx's deadline during the wait, is over before that, the error is a *DeniedError. If the store
// or the source fails, Allow returns nil, unless a limit is FailClosed.
//
// With a store in memory and without observers, a call that returns nil without waiting
// allocates nothing.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) error {
	v := l.decidingVersion()
	if l.destinations.observers.Load() != nil || l.destinations.storeFailed.Load() != 0 {
		return allowAdmitted(ctx, v, key, cost, nil)
	}
	var denial store.Result
	allowed, decided := allow(ctx, v, key, cost, &denial)
	switch {
	case allowed:
		return nil
	case decided && cost == 1:
		return allowAdmitted(ctx, v, key, cost, &denial)
	default:
		return allowAdmitted(ctx, v, key, cost, nil)
	}
}

// allowAdmitted is Allow by an admission. denial is the denial that allow has found, or nil.
func allowAdmitted(ctx context.Context, v *version, key string, cost int64, denial *store.Result) error {
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	if denial != nil {
		return a.adoptDenial(key, cost, denial)
	}
	if decided, err := a.decideGiven(ctx, key, cost, false); err != nil || !decided {
		return err
	}
	a.sendOutcome(EventAdmitted, nil)
	a.sendEnd()
	a.call.LeaveCharged()
	return nil
}

// Take charges a job, a queue message or an RPC. It charges cost, from 1 to 2^40, to all limits
// of the limiter, and to those that a WithLimitSource has for the key. Limits of routes aren't
// charged. Call Done on the permit when the work is done: otherwise the permit's slots stay
// taken until the process ends. If no limit has slots and nothing is settled, Allow is faster.
//
// If a limit denies the charge, the error is a *DeniedError. If ctx has already ended, the
// error wraps ctx's error. If the cost is out of range, the error wraps store.ErrCost. In each
// case nothing is charged. If the store fails, Take returns an empty permit, or a *StoreError
// if a limit is FailClosed. If the source fails, its limits are left out, or, under FailClosed,
// Take returns a *SourceError. Any other error of the source is returned.
//
// Limits with a constant key (Global, and Join or Hash of such keys) are charged under that
// key; all other limits are charged under key. If the limiter has such other limits, Take
// returns ErrEmptyKey for an empty key, and ErrKeyTooLong for a key that is too long.
// Predicates, other key functions and WithCost need a request and are ignored. WithMaxWait and
// WithQueue apply: Take waits as a request does. If ctx's deadline ends the wait, the error is a
// *DeniedError. For a limiter without HTTP requests, use WithKey(GivenKey()).
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Permit, error) {
	return l.take(ctx, key, cost, false)
}

// Wait is like Take, but blocks until the call's turn comes and slots are free, or until ctx
// ends. WithMaxWait doesn't bound it. If ctx is canceled, nothing is charged and the error wraps
// ctx's error. If ctx's deadline ends the wait, the error is a *DeniedError. Wait returns a
// *DeniedError at once if the turn is expected after ctx's deadline, if the cost can never pass,
// or if the queue is full (WithQueue, a LeakyBucket).
//
// Callers of one process are served by class (ContextWithPriority), and within a class in order
// of arrival. See docs/waiting.md.
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

// Peek returns the units that key has left in the limiter's limits, and in those that a
// WithLimitSource has for key. It charges nothing. If the source fails, the error is a
// *SourceError under both failure policies. If the source denies the key, for instance because
// the key has no plan, the limits of the source are left out; if the limiter has no other
// limits, Peek returns the source's error. Decision.Allowed reports whether each enforced limit
// has a unit left. RetryAfter is the time until every limit has a unit.
func (l *Limiter) Peek(ctx context.Context, key string) (Decision, error) {
	v := l.currentVersion()
	return l.peek(ctx, v, key, v.plans.Base.Entries)
}

// PeekAll is like Peek, but includes the limits of routes. Decision.Limits has each limit once.
// The other fields combine all limits, although no single request is subject to all of them.
// Limits that a WithLimitFunc returns, and Bandwidths, are left out.
func (l *Limiter) PeekAll(ctx context.Context, key string) (Decision, error) {
	v := l.currentVersion()
	return l.peek(ctx, v, key, slices.Collect(v.plans.Entries))
}

// peek returns how key stands with the limits of a version's entries.
func (l *Limiter) peek(ctx context.Context, v *version, key string, entries []*read.Entry) (d Decision, err error) {
	a := beginAdmission(v, nil, nil)
	defer a.end(ctx)
	entries, known, err := a.reading.OfKey(ctx, key, entries, true)
	v.sendSourceAnswers(a.reading.Failures)
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

// PeekRequest returns the units that a request has left in each of its limits, including limits
// from functions and sources. It charges nothing. Decision.Allowed reports whether each
// enforced limit has a unit left. For a request without limits, Allowed is true. If the request
// would be denied for a reason other than a limit, PeekRequest returns the error of that
// denial. If the store fails, the error is a *StoreError.
//
// Keys made by an adapter, such as stintgin.Key, can't be read from r. Bandwidths are left out.
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
	if e == nil || v.memory == nil || cost < 1 || cost > store.MaxCost || ctx.Err() != nil ||
		v.backend.Lines.Waiting() {
		return false, false
	}
	entryKey, err := e.Key.ForGiven(keytext.Encode(key))
	if err != nil {
		return false, false
	}
	if allowed, decided = v.memory.Allow(e.StoreLimit, entryKey, cost, denial); decided {
		return allowed, true
	}
	charges, results := [...]store.Charge{{Key: entryKey, Limit: e.StoreLimit, Cost: cost}}, [1]store.Result{}
	if err = v.memory.Take(ctx, charges[:], results[:]); err != nil {
		return false, false
	}
	r := &results[0]
	denial.Remaining, denial.RetryAfter, denial.ResetAfter = r.Remaining, r.RetryAfter, r.ResetAfter
	return r.OK, true
}

// adoptDenial returns the error of a denial that allow has found.
func (a *admission) adoptDenial(key string, cost int64, answer *store.Result) error {
	if err := a.chargeGiven(key, cost, a.version.plans.Base.Entries); err != nil {
		return err
	}
	a.call.Results[0] = *answer
	a.call.Results[0].MoreAfter = answer.RetryAfter // of a cost of 1
	a.observers = nil                               // there were none
	a.version.recordResults(&a.call)
	err := newDeniedOutsideHTTP(a.version, &a.call)
	a.sendOutcome(EventDenied, nil)
	return err
}

// decideGiven decides the charges of a key that is given, outside HTTP. If decided is false and
// err is nil, the key has no limits, or the store or their source has failed and no limit is
// FailClosed. Unless the call may hold slots, a limit that has some is an error.
func (a *admission) decideGiven(ctx context.Context, key string, cost int64, mayHold bool) (decided bool, err error) {
	if cost < 1 || cost > store.MaxCost {
		return false, fmt.Errorf("stint: %w: %d: use 1 to 2^40, or use Peek", store.ErrCost, cost)
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
// Users of policy files get the errors of Take, Settle, Reset and Ban too, so these name nothing of Go.
var errUncharged = errors.New("stint: there is no limit that a key can be charged for (bandwidths and limits of functions are left out): " +
	"add a limit outside the routes, such as a rate")

// Usage is the number of units of one limit that the caller of a request has used: see
// [Limiter.Usage].
type Usage struct {
	Limit string // its name
	// Route is the pattern of the WithRoute that has the limit. If several routes have the
	// limit, their patterns are separated by commas. Route is "" for limits of the limiter and
	// of functions.
	Route string
	// Capacity is LimitStatus.Capacity, the sum of Used and Remaining. While the caller has a
	// debt, Used exceeds Capacity.
	Capacity, Used, Remaining int64
	// ResetAfter is LimitStatus.ResetAfter: the time until the limit is full again.
	ResetAfter time.Duration
}

// Usage returns the units that the caller of a request has used of every limit, for instance
// for an account page. It charges nothing. The limits are those of the limiter, of all its
// routes (not only those that match the request), and of functions and sources. The key of each
// limit is computed from this request. Usage calls the store once.
//
// Usage leaves out limits whose key is empty or can't be determined for this request, limits
// whose own WithSkip exempts the request, dry runs, limits with WithHidden, and Bandwidths. It
// ignores the WithSkip and WithBlock of the limiter, and errors of limit functions.
//
// The error is a *StoreError if the store fails, or a *SourceError if a source fails and
// returns no limits. If a key function returns an error without a status, or with a status of
// 500 or above, Usage returns this error, and logs it like that of a request. Keys made by an
// adapter, such as stintgin.Key, return such an error unless the request has passed through the
// middleware of l.
func (l *Limiter) Usage(r *http.Request) ([]Usage, error) {
	v := l.currentVersion()
	a := beginAdmission(v, r, nil)
	defer a.end(r.Context())
	var failed *SourceError
	keyFailure, err := a.reading.ReadAll()
	v.sendSourceAnswers(a.reading.Failures)
	switch {
	case errors.As(err, &failed):
		return nil, failed
	case keyFailure != nil:
		e := a.event(EventKeyFailed, keyFailure)
		e.Decision.Limit = keyFailure.Limit
		v.events.send(v.events.observers(), &e)
		return nil, keyFailure
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
		all[i] = Usage{
			Limit: s.Name, Route: strings.Join(routes[a.call.Limits[i].StoreLimit], ", "), Capacity: s.Capacity,
			Used: max(s.Capacity-s.Remaining, s.InFlight), Remaining: s.Remaining, ResetAfter: s.ResetAfter,
		}
	}
	return all, nil
}

// Reset resets the named limits for key: used units become available again, and slots that are
// held no longer count. If no limit is named, Reset resets all limits of the limiter, of its
// routes, and of a WithLimitSource for key. A Ban ends, and its denials are removed. An
// AdaptiveConcurrency returns to its initial limit for key. found reports whether there was
// anything to reset: if it is false, check how the key is written; see Key.Of. Reset doesn't reset limits with a
// constant key, and returns an error if one is named; see ResetLimit. Limits of a WithLimitFunc
// depend on a request and can't be reset by key. If the limiter has no other limits, Reset
// returns an error. Errors of a source are as in Peek.
//
// Requests that were admitted before the Reset may still be refunded after it. Such refunds are
// added to the limit.
//
// The store must implement store.Resetter; otherwise Reset returns an error. memstore and
// redisstore implement store.Resetter. failover resets both of its stores, and returns an error
// for a store that doesn't implement store.Resetter.
func (l *Limiter) Reset(ctx context.Context, key string, limits ...string) (found bool, err error) {
	encoded, err := keytext.Encode(key)
	if err != nil {
		return false, err
	}
	v := l.currentVersion()
	entries, sourced, known, err := v.entriesOf(ctx, key)
	if err != nil {
		return false, err
	}
	if entries = append(entries, sourced...); len(entries) == 0 && !known {
		return false, errUncharged
	}
	for _, name := range limits {
		switch known, keyed, _ := keyKinds(entries, name); {
		case !known:
			return false, fmt.Errorf("stint: Reset: there is no limit %q", name)
		case !keyed:
			return false, fmt.Errorf("stint: Reset: the key of %q is constant, so it can't be reset for one caller", name)
		}
	}
	return reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Key.Constant != "" || len(limits) > 0 && !slices.Contains(limits, e.Name()) {
			return ""
		}
		return encoded
	})
}

// Ban bans key by hand, for at least d, in the named Bans of the limiter, of its routes, and of a WithLimitSource
// for key. If no limit is named, Ban bans key in all Bans whose key isn't constant. Requests of the key are then
// denied as by a ban that denials have started. A ban that ends later stays, and so do the denials that a Ban has
// counted. Reset ends the ban. The limiter sends an EventBanned with ByHand for each Ban in which the ban has begun.
//
// Ban returns an error, and changes nothing, if d isn't from a millisecond to 365 days, if the limiter has no such
// Ban, if a named limit isn't a Ban or has a constant key, or if all of the Bans are dry runs. Errors of a source
// are as in Peek. Bans of a WithLimitFunc depend on a request, so they can't ban by key.
//
// The store must implement store.Banner; otherwise Ban returns an error. memstore, redisstore and failover
// implement store.Banner. The error is a *StoreError if the store fails: the key may then be banned or not. On a
// failover, the store that decides now bans the key: a ban in the secondary lasts while the secondary decides.
// Ban is safe for concurrent use.
func (l *Limiter) Ban(ctx context.Context, key string, d time.Duration, limits ...string) error {
	if err := store.CheckBan(d); err != nil {
		return fmt.Errorf("stint: Ban: %w: %v: pass a duration from time.Millisecond to 365*24*time.Hour", err, d)
	}
	encoded, err := keytext.Encode(key)
	if err != nil {
		return err
	}
	v := l.currentVersion()
	entries, sourced, _, err := v.entriesOf(ctx, key)
	if err != nil {
		return err
	}
	bans, err := bansOf(append(entries, sourced...), encoded, limits)
	if err != nil {
		return err
	}
	in, can := v.backend.Store.(store.Banner)
	if !can {
		return fmt.Errorf("stint: Ban: %T doesn't implement store.Banner: pass a store that does, such as those of memstore and redisstore", v.backend.Store)
	}
	stored := make([]*store.Limit, len(bans))
	for i := range bans {
		stored[i] = bans[i].Limit
	}
	began := time.Now()
	results, err := in.Ban(ctx, encoded, d, stored...)
	if err != nil {
		return &StoreError{err}
	}
	v.events.sendBans(bans, results, time.Since(began))
	return nil
}

// bansOf returns a charge of key on each Ban among entries whose key isn't constant or, if names are given, on each
// Ban of a name.
func bansOf(entries []*read.Entry, key string, names []string) (bans []store.Charge, err error) {
	for _, name := range names {
		known, keyed, _ := keyKinds(entries, name)
		isBan := slices.ContainsFunc(entries, func(e *read.Entry) bool {
			return e.Name() == name && e.StoreLimit.Algorithm() == store.Ban
		})
		switch {
		case !known:
			return nil, fmt.Errorf("stint: Ban: there is no limit %q", name)
		case !isBan:
			return nil, fmt.Errorf("stint: Ban: %q is no ban: name a ban", name)
		case !keyed:
			return nil, fmt.Errorf("stint: Ban: the key of %q is constant, so a ban would deny all callers: name a ban with another key", name)
		}
	}
	enforced := false
	for _, e := range entries {
		if e.StoreLimit.Algorithm() != store.Ban || e.Key.Constant != "" ||
			len(names) > 0 && !slices.Contains(names, e.Name()) {
			continue
		}
		enforced = enforced || !e.DryRun
		i := slices.IndexFunc(bans, func(c store.Charge) bool { return c.Limit == e.StoreLimit })
		if i < 0 {
			i, bans = len(bans), append(bans, store.Charge{Key: key, Limit: e.StoreLimit, DryRun: true})
		}
		bans[i].DryRun = bans[i].DryRun && e.DryRun
	}
	switch {
	case len(bans) == 0:
		return nil, errors.New("stint: Ban: there is no ban whose key isn't constant: add one")
	case !enforced:
		return nil, errors.New("stint: Ban: a ban in a dry run denies nobody: remove the dry run")
	}
	return bans, nil
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

// ResetLimit resets a limit with a constant key, such as Global, for all callers together. For
// any other limit, ResetLimit returns an error.
func (l *Limiter) ResetLimit(ctx context.Context, name string) error {
	v := l.currentVersion()
	entries := slices.Collect(v.plans.Entries)
	switch known, _, constant := keyKinds(entries, name); {
	case !known:
		return fmt.Errorf("stint: ResetLimit: there is no limit %q", name)
	case !constant:
		return fmt.Errorf("stint: ResetLimit: the key of %q isn't constant: use Reset with the key to forget", name)
	}
	_, err := reset(ctx, v, entries, func(e *read.Entry) string {
		if e.Name() != name {
			return ""
		}
		return e.Key.Constant
	})
	return err
}

// reset makes each of the limits of entries forget the key that keyOf returns, unless
// that is "". found reports whether one had anything to forget.
func reset(
	ctx context.Context, v *version, entries []*read.Entry, keyOf func(*read.Entry) string,
) (found bool, err error) {
	limits, stored := map[string][]*store.Limit{}, false
	for _, e := range entries {
		if key := keyOf(e); key != "" && !slices.Contains(limits[key], e.StoreLimit) {
			limits[key] = append(limits[key], e.StoreLimit)
			stored = stored || e.Needs&limit.Local == 0
		}
	}
	if _, can := v.backend.Store.(store.Resetter); stored && !can {
		return false, fmt.Errorf("stint: Reset: %T doesn't implement store.Resetter: pass a store that does, such as those of memstore and redisstore", v.backend.Store)
	}
	for key, limits := range limits {
		here, err := v.backend.Local.Reset(ctx, key, limits...)
		found = found || here
		if err != nil {
			return found, &StoreError{err}
		}
		for _, l := range limits { // its turns are no more, and its slots may be free
			v.backend.Lines.Forget(lines.KeyOf(l, key))
		}
	}
	return found, nil
}
