package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// call is one decision on its way: scratch that is pooled, and copied into a
// Permit or a DeniedError at the end.
type call struct {
	callState

	entries []*entry
	charges []store.Charge
	results []store.Result
	paced   []paced // that wait for bytes, and charge nothing here
	keys    []knownKey
	fields  field.Writer
	said    []field.Limit // of limits whose number is the moment's
}

// callState is what a call knows that isn't scratch: it begins anew with each.
type callState struct {
	lim        *version
	store      store.Store   // of the plan's charges
	generation *generation   // whose limits the charges name
	r          *http.Request // nil outside HTTP
	outer      *Permit
	policy     string // RateLimit-Policy if it is the whole plan's
	needs      needs  // of its limits
	began      bool   // to wait: an observer has been told
	granted    bool   // it has what it was granted: see giveBack
	classed    bool   // ofClass is known
	ofClass    uint8
	patient    bool // Wait: every limit waits as long as the context lets it
	waited     time.Duration
	came       time.Time      // when it first began to wait
	lines      []lineStatus   // of each charge, if it has seen a line
	claim      *waiting.Claim // of turns that others have left
}

// knownKey is the answer of a KeyFunc.
type knownKey struct {
	source *keySource
	key    string
	skip   bool
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall(v *version, r *http.Request) *call {
	c := calls.Get().(*call)
	c.lim, c.store, c.generation, c.r = v, v.store, v.generation, r
	return c
}

// kept is the number of limits up to which a call's scratch is kept.
const kept = 64

func (c *call) free() {
	if cap(c.charges) > kept {
		return
	}
	clear(c.entries)
	clear(c.charges)
	clear(c.results)
	clear(c.keys)
	clear(c.fields.Items)
	clear(c.paced)
	c.callState = callState{}
	c.entries, c.charges, c.results = c.entries[:0], c.charges[:0], c.results[:0]
	c.keys, c.said, c.paced = c.keys[:0], c.said[:0], c.paced[:0]
	calls.Put(c)
}

// gather makes the charges of a request.
func (c *call) gather(p *plan) error {
	c.policy = p.policy
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

// chargeAll makes the charges of a WithLimitFunc.
func (c *call) chargeAll(f *limitFunc) error {
	limits, err := f.fn(c.r)
	if err != nil {
		return c.limitsError(err, f.shared.dryRun)
	}
	for _, l := range limits {
		e, err := f.entry(l)
		if err == nil && c.lim.lent && !l.rule.named {
			err = errUnnamed("", l.rule)
		}
		if err == nil && c.has(e.limit.Name()) {
			err = errNamesake("", e.limit.Name())
		}
		if err != nil {
			err = c.limitsError(err, f.reports(l))
		} else {
			err = c.charge(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a limit of that name is among the call's.
func (c *call) has(name string) bool {
	return slices.ContainsFunc(c.entries, func(e *entry) bool { return e.limit.Name() == name }) ||
		slices.ContainsFunc(c.paced, func(p paced) bool { return p.entry.limit.Name() == name })
}

// limitsError is what becomes of a request whose limits a function can't tell. It
// goes on without those that would only report.
func (c *call) limitsError(err error, dryRun bool) error {
	err = &requestError{err: fmt.Errorf("stint: WithLimitFunc: %w", err), status: statusOf(err)}
	c.lim.observe(Event{Kind: LimitsFailed, Request: c.r, Err: err})
	if dryRun {
		return nil
	}
	return err
}

// charge adds the charge of one limit.
func (c *call) charge(e *entry) error {
	k, err := c.key(e)
	if err != nil {
		return err
	}
	if k.skip {
		c.policy = ""
		return nil
	}
	if e.needs&paces != 0 {
		c.paced = append(c.paced, paced{e, k.key})
		c.needs |= e.needs
		return nil
	}
	cost, err := c.cost(e)
	if err != nil {
		return err
	}
	c.add(e, k.key, cost)
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
		c.lim.observe(Event{Kind: DryRunDenied, Request: c.r, Err: err, Decision: Decision{Limit: e.limit.Name()}})
		return 0, nil
	}
	// Above what any limit holds: refused by the limit, rather than a
	// malformed call, which would be the store's failure and pass.
	return min(cost, store.MaxCost), nil
}

func (c *call) add(e *entry, key string, cost int64) {
	c.needs |= e.needs
	c.entries = append(c.entries, e)
	c.charges = append(c.charges, store.Charge{Key: key, Limit: e.limit, Cost: cost, DryRun: e.dryRun})
	c.results = append(c.results, store.Result{})
}

// key calls the entry's KeyFunc, once a request however many limits share it.
func (c *call) key(e *entry) (knownKey, error) {
	for i := range c.keys {
		if c.keys[i].source == e.key {
			return c.keys[i], nil
		}
	}
	k := knownKey{source: e.key}
	raw, err := e.key.fn(c.r)
	if err == nil {
		k.key, err = keytext.Encode(raw)
	}
	if err != nil {
		if k.skip = errors.Is(err, ErrEmptyKey) && c.lim.emptyKey == SkipEmptyKey; !k.skip {
			return k, c.keyError(e, err)
		}
	}
	c.keys = append(c.keys, k)
	return k, nil
}

func (c *call) keyError(e *entry, err error) error {
	re := &requestError{err: err, status: statusOf(err), limit: e.limit.Name()}
	kind := KeyFailed
	switch {
	case errors.Is(err, ErrEmptyKey):
		re.status, kind = http.StatusForbidden, EmptyKey
	case errors.Is(err, ErrKeyTooLong):
		re.status = http.StatusForbidden
	}
	c.lim.observe(Event{Kind: kind, Request: c.r, Err: re})
	return re
}

// mayWait reports whether something may make the call wait.
func (c *call) mayWait() bool { return c.patient || c.needs&waits != 0 }

// longWait is how long Wait waits for a turn when its context has no deadline.
const longWait = time.Hour

// bound sets how long each charge may wait.
func (c *call) bound(ctx context.Context) error {
	left := Never
	if t, ok := ctx.Deadline(); ok {
		if left = time.Until(t); left <= 0 {
			return context.DeadlineExceeded
		}
	}
	for i, e := range c.entries {
		wait := e.maxWait
		if c.patient {
			wait = longWait
			if left < Never {
				wait = left
			}
		}
		c.charges[i].MaxWait = e.kind.patience(e, wait, left, c.needs&counts != 0)
	}
	return nil
}

// ask has the charges decided once.
func (c *call) ask(ctx context.Context) error {
	if c.lim.family.turns.Vacant() {
		return c.askVacant(ctx)
	}
	return c.askStore(ctx)
}

func (c *call) askStore(ctx context.Context) error {
	if c.reserves() {
		var end func()
		ctx, end = outliving(ctx)
		defer end()
	}
	return c.store.Take(ctx, c.charges, c.results)
}

// take asks, and notes what the call has then.
func (c *call) take(ctx context.Context) error {
	if err := c.ask(ctx); err != nil {
		return err
	}
	if c.granted = granted(c.charges, c.results); c.granted && c.needs&slots != 0 {
		c.lim.family.hold(c.entries, c.charges, c.ofClass, 1)
	}
	return nil
}

// handOver leaves what the call was granted to its permit.
func (c *call) handOver() {
	c.granted = false
}

// giveBack gives back what the call was granted and hasn't handed over.
func (c *call) giveBack(ctx context.Context) {
	if c.claim != nil {
		c.dropClaim(ctx)
	}
	if !c.granted {
		return
	}
	c.granted = false
	if c.needs&slots != 0 {
		c.lim.family.hold(c.entries, c.charges, c.ofClass, -1)
	}
	c.lim.cancel(ctx, c.store, made(c.charges, c.results, func(r *store.Receipt) bool { return r.Cost > 0 }))
}

// end ends the call, deferred by whoever has begun it: whatever it still has is
// given back. On any way out but a panic it has nothing: its permit has, or it
// was refused, or has given back itself. Functions of the application are called
// at many moments, and none of these has to know what there is to lose.
func (c *call) end(ctx context.Context) {
	c.giveBack(ctx)
	c.free()
}

// decide gets the call answered: after nil, either all of it is granted, and
// its turn has come, or results say why not. Another error is a
// *canceledError or the store's.
func (c *call) decide(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &canceledError{err} // a store may not look: it would charge who has left
	}
	if len(c.charges) == 0 { // nothing but bytes, which are paid for later
		c.granted = true
		return nil
	}
	waits := c.mayWait()
	if waits {
		if err := c.bound(ctx); err != nil {
			return &canceledError{err}
		}
	}
	take := (*call).take
	if c.needs&slots != 0 {
		take = (*call).takeSlots
	}
	if err := take(c, ctx); err != nil {
		if c.goOn(ctx, err) {
			return c.decide(ctx)
		}
		return err
	}
	switch {
	case !waits:
	case !c.granted:
		c.noteTurns()
	case c.claim != nil || longest(c.charges, c.results) > 0:
		return c.sleep(ctx)
	case ctx.Err() != nil: // it has left while the store was asked
		c.giveBack(ctx)
		return &canceledError{ctx.Err()}
	}
	return nil
}

// chargeAgain adds the charge of an entry whose limit the plan has already, by
// another route's settings. For another key that is another charge.
func (c *call) chargeAgain(e *entry) error {
	k, err := c.key(e)
	if err != nil || k.skip || !e.kind.repeated() && c.outer.chargedFor(e.limit, k.key) {
		return err
	}
	for i := range c.paced {
		if p := &c.paced[i]; p.entry.limit == e.limit && p.key == k.key {
			if p.entry.dryRun {
				p.entry = e
			}
			return nil
		}
	}
	c.policy = ""
	for i, o := range c.entries {
		if o.limit == e.limit && c.charges[i].Key == k.key {
			return c.merge(i, e)
		}
	}
	return c.charge(e)
}

// merge makes one charge of charge i and that of e, for the same limit and key: at
// the higher cost, but a dry run takes no part in one that is enforced.
func (c *call) merge(i int, e *entry) error {
	o, ch := c.entries[i], &c.charges[i]
	if e.dryRun && !o.dryRun {
		return nil
	}
	cost, err := c.cost(e)
	if err != nil {
		return err
	}
	if o.dryRun == e.dryRun {
		cost = max(cost, ch.Cost)
	}
	if o.dryRun != e.dryRun || e.closed {
		c.entries[i] = e
	}
	ch.Cost, ch.DryRun = cost, e.dryRun
	c.needs |= e.needs
	return nil
}
