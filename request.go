package stint

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// call is the scratch memory of one decision. Calls are pooled; the outcome is copied
// into a Permit or a DeniedError.
type call struct {
	callState
	waiting.Call

	entries []*entry
	paced   []paced // the Bandwidths: they charge for bytes later, nothing here
	keys    []knownKey
	fields  field.Writer
}

// callState is the part of a call that is zeroed before the call is used again.
type callState struct {
	version  *version
	r        *http.Request // nil outside HTTP
	outer    *Permit
	plan     *plan  // nil outside HTTP
	policy   string // RateLimit-Policy if the plan's applies as it is, or ""
	needs    needs  // of all its limits
	names    *names // by which a call that waits has looked its limits up
	walked   bool   // waiting.Call has state to be cleared
	classed  bool   // class is known
	held     bool   // some limit is charged for the request, and isn't a dry run
	planless bool   // a WithLimitFunc returned no limits
	class    uint8
	below    uint32 // which observers get its events: see Event.below
}

// knownKey is the key of a request.
type knownKey struct {
	of  *keys.Key
	key string // "": limits with this key are left out
}

var calls = sync.Pool{New: func() any { return new(call) }}

// kept is the largest number of limits for which a call goes back to the pool.
const kept = 64

// admit decides a request, and returns the one for the next handler. If answers is set, it
// answers denials by limits that no handler sees, and returns errAnswered.
func (v *version) admit(w http.ResponseWriter, r *http.Request, answers bool) (p *Permit, next *http.Request, err error) {
	ctx := r.Context()
	outer := FromContext(ctx)
	if outer != nil && outer.opened(r) {
		outer = nil
	}
	if v.answers(ctx) {
		return nil, r, nil
	}
	if len(v.skip)+len(v.block) > 0 {
		if exempt, err := v.sift(r); exempt || err != nil {
			if err != nil {
				outer.recordInnerDenial()
			}
			return nil, r, err
		}
	}
	plan := v.base
	if v.router != nil {
		plan = v.plan(r)
	}
	c := calls.Get().(*call)
	defer c.end(ctx)
	c.version, c.Store, c.r, c.outer = v, v.store, r, outer
	if err := c.gather(plan); err != nil {
		outer.recordInnerDenial()
		return nil, nil, err
	}
	if len(c.Charges) == 0 && len(c.paced) == 0 {
		return nil, r, nil
	}
	if err := c.decide(ctx); err != nil {
		return c.finishUndecided(ctx, err)
	}
	if !c.Granted {
		return nil, nil, c.deny(w, answers)
	}
	next = r
	var slots []string
	if !v.withoutPermit || c.needs&releases != 0 || c.Timed { // observers are notified when it ends
		p, next = c.permit(ctx)
		slots = p.fields[:]
	}
	if v.styles != 0 {
		c.setFields(w.Header(), slots)
	}
	if c.Timed || c.needs&counts != 0 {
		c.observe(EventAdmitted, nil)
	}
	c.Granted = false // the permit gives it back
	return p, next, nil
}

// gather makes the charges of a request.
func (c *call) gather(p *plan) error {
	c.plan, c.policy = p, p.policy
	for _, e := range p.entries {
		if err := c.charge(e); err != nil {
			return err
		}
	}
	for _, e := range p.again {
		if err := c.chargeAgain(e); err != nil {
			return err
		}
	}
	for _, f := range p.funcs {
		c.policy = ""
		if err := c.chargeAll(f); err != nil {
			return err
		}
	}
	if c.planless && !c.held {
		return c.limitsError(ErrNoLimits, false)
	}
	if c.needs&local != 0 {
		c.decideLocally()
	}
	return nil
}

// charge adds the charge of one limit.
func (c *call) charge(e *entry) error {
	key, err := c.key(e)
	if err != nil {
		return err
	}
	c.held = c.held || key != "" && !e.dryRun
	if key == "" || c.charged(e, key) {
		c.policy = "" // the plan's names limits that aren't charged here
		return nil
	}
	if e.needs&paces != 0 {
		c.paced = append(c.paced, paced{e, key})
		c.needs |= e.needs
		return nil
	}
	cost := int64(1)
	if e.cost != nil {
		if cost, err = c.cost(e); err != nil {
			return err
		}
	}
	c.add(e, key, cost)
	return nil
}

// charged reports whether a limiter of the family further out has charged the limit for
// that key already: a request is charged once, however many limiters it passes.
func (c *call) charged(e *entry, key string) bool {
	return c.outer != nil && !e.kind.repeated() && c.outer.has(func(p *Permit, o *entry, under string) bool {
		return p.version.family == c.version.family && o.limit.Hash() == e.limit.Hash() && under == key
	})
}

// cost returns what the request costs a limit. A negative cost is an error; on a limit
// in dry run, which must not deny, it is reported and counts as 0.
func (c *call) cost(e *entry) (int64, error) {
	if e.cost == nil {
		return 1, nil
	}
	cost := e.cost(c.r)
	if cost < 0 {
		err := &failure.Error{Err: fmt.Errorf("%w: WithCost returned %d", store.ErrCost, cost), Status: http.StatusInternalServerError, Limit: e.limit.Name()}
		told := Event{Kind: EventLimitsFailed, Route: c.plan.route(), Request: c.r, Err: err, Decision: Decision{Limit: err.Limit}}
		if e.dryRun {
			told.Kind = EventDryRunDenied
		}
		c.version.observe(&told)
		if e.dryRun {
			return 0, nil
		}
		return 0, err
	}
	// A cost above MaxCost is lowered, so that the limit denies it. As it is, the store
	// would return an error, and the request would pass as if the store had failed.
	return min(cost, store.MaxCost), nil
}

func (c *call) add(e *entry, key string, cost int64) {
	c.needs |= e.needs
	c.entries = append(c.entries, e)
	c.Results = append(c.Results, store.Result{})
	n := len(c.Charges)
	if n == cap(c.Charges) {
		c.Charges = append(c.Charges, store.Charge{})
	}
	c.Charges = c.Charges[:n+1]
	ch := &c.Charges[n] // a leftover of the previous call, usually of the same limit
	ch.Key, ch.Cost, ch.MaxWait, ch.DryRun = key, cost, 0, e.dryRun
	if ch.Limit != e.limit {
		ch.Limit = e.limit
	}
	if o := c.version.limiter.storeObserver; ch.Observer != o {
		ch.Observer = o
	}
}

// decide has the charges decided, and waits for the turn if there is one. If it returns
// nil, either all charges are granted or the results say which limit denied. The error
// is a *failure.Canceled or the store's.
func (c *call) decide(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &failure.Canceled{Err: err} // a store may ignore ctx, and charge a client that has left
	}
	to := c.version.limiter.audience.Load()
	c.Timed, c.below = to != nil, to.next()
	if len(c.Charges) == 0 { // only Bandwidths, which charge as bytes move
		c.Granted = true
		return nil
	}
	if c.Patient || c.needs&(waits|slots) != 0 {
		return c.wait(ctx)
	}
	var err error
	if c.Timed {
		err = c.Ask(ctx)
	} else {
		err = c.Store.Take(ctx, c.Charges, c.Results)
	}
	if err != nil {
		return c.goOn(ctx, err)
	}
	if c.Granted = store.Granted(c.Charges, c.Results); !c.Granted {
		if c.version.lines.Vacant() {
			// Waiters that left may have reserved the turns that are in its way.
			return c.wait(ctx)
		}
	}
	return nil
}

// giveBack gives back what the call was granted, unless a permit has taken it over.
func (c *call) giveBack(ctx context.Context) {
	if !c.Granted {
		return
	}
	c.Granted = false
	if c.needs&slots != 0 {
		(*caller)(c).hold(-1)
	}
	made := make([]store.Charge, 0, len(c.Charges))
	for i := range c.Charges {
		if ch, r := c.Charges[i], &c.Results[i].Receipt; r.Cost > 0 {
			ch.Cost, ch.Receipt = 0, *r
			made = append(made, ch)
		}
	}
	c.version.cancel(ctx, c.Store, c.plan, made)
}

// end returns the call to the pool, and gives back what it still holds. Whoever begins a
// call defers it. Only after a panic does a call still hold something; otherwise its
// permit does, or it was denied, or it has given everything back. The application's
// functions, which may panic, are called at many points: with this defer none of those
// points has to know what is held.
func (c *call) end(ctx context.Context) {
	if c.Granted {
		c.giveBack(ctx)
	}
	if cap(c.Charges) > kept {
		return
	}
	// The slices' elements aren't cleared: that would cost a tenth of a decision. The
	// next call overwrites them, and a pool doesn't retain calls for long.
	if c.walked {
		c.Call = waiting.Call{Charges: c.Charges, Results: c.Results}
	}
	c.callState = callState{}
	c.Granted, c.Timed, c.Took = false, false, 0
	c.Charges, c.Results = c.Charges[:0], c.Results[:0]
	c.entries, c.keys, c.paced = c.entries[:0], c.keys[:0], c.paced[:0]
	calls.Put(c)
}
