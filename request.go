package stint

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/framework"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// call is one decision on its way: scratch that is pooled, and copied into a
// Permit or a DeniedError at the end.
type call struct {
	callState
	waiting.Call

	entries []*entry
	paced   []paced // that wait for bytes, and charge nothing here
	keys    []knownKey
	fields  field.Writer
	said    []field.Limit // of limits whose number is the moment's
	// statuses are of the decision that observers are told.
	statuses []LimitStatus
	lent     eventKeys
}

// callState is what a call knows that isn't scratch: it begins anew with each.
type callState struct {
	lim        *version
	generation *generation        // whose limits the charges name; nil: the version's
	r          *http.Request      // nil outside HTTP
	in         framework.Own      // context of the request, or nil
	framed     *framework.Context // nil where no KeyFunc has asked for it
	outer      *Permit
	plan       *plan  // nil outside HTTP
	policy     string // RateLimit-Policy if it is the whole plan's
	needs      needs  // of its limits
	walked     bool   // something of waiting is in the Call
	classed    bool   // class is known
	class      uint8
}

// knownKey is the answer of a KeyFunc.
type knownKey struct {
	source *keySource
	key    string // "" where the limits that have it are left out
}

var calls = sync.Pool{New: func() any { return new(call) }}

// kept is the number of limits up to which a call's scratch is kept.
const kept = 64

// admit decides a request.
func (v *version) admit(w http.ResponseWriter, r *http.Request, in framework.Own) (*Permit, error) {
	if len(v.skip)+len(v.block) > 0 {
		if exempt, err := v.sift(r); exempt || err != nil {
			return nil, err
		}
	}
	p := v.base
	if v.router != nil {
		p = v.plan(r)
	}
	ctx := r.Context()
	outer := FromContext(ctx)
	if outer != nil {
		if o := v.beside(outer); o != v {
			return o.admit(w, r, in)
		}
	}
	c := calls.Get().(*call)
	defer c.end(ctx)
	c.lim, c.Store, c.r, c.in, c.outer = v, v.store, r, in, outer
	if err := c.gather(p); err != nil {
		return nil, err
	}
	if len(c.Charges) == 0 && len(c.paced) == 0 {
		return nil, nil
	}
	if err := c.decide(ctx); err != nil {
		return c.undecided(ctx, err)
	}
	if !c.Granted {
		return nil, c.refused(w.Header())
	}
	var permit *Permit
	var slots []string
	if !v.withoutPermit || c.needs&releases != 0 {
		permit = c.permit(ctx)
		slots = permit.fields[:]
	}
	if v.styles != 0 {
		c.setFields(w.Header(), slots)
	}
	if c.Timed || c.needs&counts != 0 {
		c.observe(EventAdmitted, nil)
	}
	c.Granted = false // it is the permit's now
	return permit, nil
}

// gather makes the charges of a request.
func (c *call) gather(p *plan) error {
	c.plan, c.policy = p, p.policy
	for _, e := range p.entries {
		if c.outer != nil && !e.kind.repeated() && c.outer.charged(e) {
			c.policy = "" // names limits that aren't charged here
			continue
		}
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
		if c.outer != nil && c.outer.chargedBy(f) {
			continue
		}
		c.policy = ""
		if err := c.chargeAll(f); err != nil {
			return err
		}
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
	if key == "" {
		c.policy = ""
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

// cost is what the request costs a limit. A limit that only reports is not charged
// what can't be.
func (c *call) cost(e *entry) (int64, error) {
	if e.cost == nil {
		return 1, nil
	}
	cost := e.cost(c.r)
	if cost < 0 {
		err := &requestError{err: store.ErrCost, status: http.StatusInternalServerError, limit: e.limit.Name()}
		if !e.dryRun {
			return 0, err
		}
		c.lim.observe(&Event{Kind: EventDryRunDenied, Route: c.plan.route(), Request: c.r, Err: err, Decision: Decision{Limit: e.limit.Name()}})
		return 0, nil
	}
	// Above what any limit holds: refused by the limit, rather than a
	// malformed call, which would be the store's failure and pass.
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
	ch := &c.Charges[n] // as the call before has left it, mostly of the same limit
	ch.Key, ch.Cost, ch.MaxWait, ch.DryRun = key, cost, 0, e.dryRun
	if ch.Limit != e.limit {
		ch.Limit = e.limit
	}
}

// key calls the entry's KeyFunc, once a request however many limits share it. It is
// "" where the limit is left out.
func (c *call) key(e *entry) (string, error) {
	for i := range c.keys {
		if c.keys[i].source == e.key {
			return c.keys[i].key, nil
		}
	}
	if c.in != nil && e.key.asks.Known() {
		c.enter()
	}
	key, err := e.key.fn(c.r)
	if err != nil && e.key.asks.Missed(err) && c.enter() {
		key, err = e.key.fn(c.r)
	}
	if err == nil {
		if w := e.key.lookout.Load(); w != nil && rand.Uint32()&1 == 0 {
			w.look(c.r, key)
		}
		key, err = keytext.Encode(key)
	}
	if err != nil {
		if err = c.keyless(e, err); err != nil {
			return "", err
		}
		key = ""
	}
	c.keys = append(c.keys, knownKey{e.key, key})
	return key, nil
}

// enter has the key functions that are still to be called see the framework's
// context, and reports whether they didn't before.
func (c *call) enter() bool {
	if c.in == nil || c.framed != nil {
		return false
	}
	c.r, c.framed = framework.Enter(c.r, c.in)
	return true
}

// keyless is what becomes of a request whose key can't be told: nil if the limit is
// left out.
func (c *call) keyless(e *entry, err error) error {
	re := &requestError{err: err, status: statusOf(err), limit: e.limit.Name()}
	kind := EventKeyFailed
	switch {
	case errors.Is(err, ErrEmptyKey) && c.lim.emptyKey == SkipEmptyKey:
		return nil
	case errors.Is(err, ErrEmptyKey):
		re.status, kind = http.StatusForbidden, EventEmptyKey
	case errors.Is(err, ErrKeyTooLong):
		re.status = http.StatusForbidden
	}
	c.lim.observe(&Event{Kind: kind, Route: c.plan.route(), Request: c.r, Err: re, Decision: Decision{Limit: re.limit}})
	return re
}

// decide gets the call answered: after nil, either all of it is granted, and
// its turn has come, or results say why not. Another error is a
// *canceledError or the store's.
func (c *call) decide(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &canceledError{err} // a store may not look: it would charge who has left
	}
	c.Timed = c.lim.of.told.Load() != nil
	if len(c.Charges) == 0 { // nothing but bytes, which are paid for later
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
		if ls := c.lim.family.process.lines(); ls != nil && ls.Vacant() {
			return c.wait(ctx) // what others have reserved, and left, is in its way
		}
	}
	return nil
}

// undecided is what becomes of a request that could not be decided: it is refused
// with the error, or passes, with a permit if there are bytes to be paced.
func (c *call) undecided(ctx context.Context, err error) (*Permit, error) {
	if err = c.failed(ctx, err); err != nil {
		c.outer.turnedAway()
		return nil, err
	}
	if len(c.paced) == 0 {
		return nil, nil
	}
	// They ask the store themselves, which may be back by then, and have a
	// FailurePolicy of their own.
	c.keep(func(*entry) bool { return false })
	c.Waited = 0 // for nothing
	return c.permit(ctx), nil
}

// failed turns what went wrong in a decision into Admit's or Take's error: nil
// where the request may pass all the same.
func (c *call) failed(ctx context.Context, err error) error {
	if ce := (*canceledError)(nil); errors.As(err, &ce) {
		c.observe(EventCanceled, err)
		return err
	}
	if ctxErr := ctx.Err(); ctxErr != nil { // not the store's fault
		err = &canceledError{ctxErr}
		clear(c.Results)
		c.observe(EventCanceled, err)
		return err
	}
	told := Event{Kind: EventStoreFailed, Route: c.plan.route(), Request: c.r, Err: err, Waited: c.Waited, StoreTook: c.Took, EndsWait: c.Begun}
	if !slices.ContainsFunc(c.entries, func(e *entry) bool { return e.closed }) {
		c.lim.observeOf(&told, c.Charges)
		return nil
	}
	err = &StoreError{err}
	told.Err = err
	c.lim.observeOf(&told, c.Charges)
	return err
}

// refused is the refusal of a request by its limits, with its fields in h.
func (c *call) refused(h http.Header) error {
	c.outer.turnedAway()
	err := c.denied()
	c.setFields(h, err.fields[:])
	c.observe(EventDenied, err)
	return err
}

// giveBack gives back what the call was granted and hasn't handed over.
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
	c.lim.cancel(ctx, c.Store, c.plan, made)
}

// setFields sets the fields of the call's decision in h. Dry runs have none. slots must
// live as long as the response.
func (c *call) setFields(h http.Header, slots []string) {
	items := c.fields.Items[:0]
	for i, e := range c.entries {
		ch, r := &c.Charges[i], &c.Results[i]
		if ch.DryRun {
			continue
		}
		items = append(items, field.Item{})
		it := &items[len(items)-1]
		it.Limit, it.Remaining, it.Reset, it.Refused, it.Retry, it.More = &e.said, r.Remaining, r.ResetAfter, !r.OK, r.RetryAfter, -1
		if e.needs&local != 0 { // its number changes
			limit, _ := e.kind.stood(ch, r)
			c.said = append(c.said, field.Limit{Name: it.Name, Units: limit, Policy: field.Policy(it.Name, limit, 0)})
			it.Limit = &c.said[len(c.said)-1]
		}
		if after, known := ch.Limit.MoreAfter(r); known {
			it.More = after
		}
	}
	c.fields.Items = items
	c.fields.Write(h, c.lim.styles, c.policy, slots)
}

// end ends the call, deferred by whoever has begun it: whatever it still has is
// given back. On any way out but a panic it has nothing: its permit has, or it
// was refused, or has given back itself. Functions of the application are called
// at many moments, and none of these has to know what there is to lose.
func (c *call) end(ctx context.Context) {
	if c.framed != nil {
		c.framed.Leave(c.r)
	}
	if c.Granted {
		c.giveBack(ctx)
	}
	if cap(c.Charges) > kept {
		return
	}
	// What is in the slices is written over by the next that is asked for, and a pool
	// keeps nothing for long: to clear it would cost a tenth of a decision.
	if c.walked {
		c.Call = waiting.Call{Charges: c.Charges, Results: c.Results}
	}
	c.callState = callState{}
	c.Granted, c.Timed, c.Took = false, false, 0
	c.Charges, c.Results = c.Charges[:0], c.Results[:0]
	c.entries, c.keys, c.said, c.paced = c.entries[:0], c.keys[:0], c.said[:0], c.paced[:0]
	calls.Put(c)
}
