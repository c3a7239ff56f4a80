package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Reading is the reading of one request, or of a key that a job is given: what it is
// charged, and what went wrong on the way. It is for one goroutine at a time. Init makes it
// ready for use; Begin and End enclose each.
type Reading struct {
	// Paced are the Bandwidths: they charge for bytes later, and nothing in the call.
	Paced []Paced
	R     *http.Request // nil outside HTTP
	// Plan is the request's, nil outside HTTP.
	Plan *Plan
	// Wrong is reported to observers, in this order. The error of the last is the
	// request's, if there is one.
	Wrong []Wrong
	state

	plans   *Plans
	call    *decide.Call // gets the charges
	entries []*Entry     // of the charges
	keys    []known      // that are no charge's
	many    *many        // finds what there is too much of to look through; or nil
	charged func(e *Entry, key string) bool
}

// state is the part of a reading that End zeroes. It has no pointers: see Call.Add of package decide.
type state struct {
	// Differs: the limits charged aren't those, or have other numbers than those, of which the
	// plan's Policy is.
	Differs bool

	nested bool
	// everything: limits are looked at, and none is charged; see Everything.
	everything bool
	paces      limit.Needs // of Paced
	// enforced: some limit is charged for the request, and isn't a dry run. planless: a
	// function has returned no limits.
	enforced, planless bool
}

// Paced is a Bandwidth and the key of one request.
type Paced struct {
	*Entry
	Key string
}

// known is a key of a request, with which nothing is charged or somebody else has.
type known struct {
	of  *keys.Key
	key string // "": limits with this key are left out
}

// Wrong is something that kept a request from being charged.
type Wrong struct {
	What  What
	Limit string // that it is about, or ""
	Err   error
}

// What is a kind of Wrong.
type What uint8

const (
	KeyFailed What = iota
	EmptyKey
	LimitsFailed
	SourceFailed // the request goes on
	NoLimits
	DryRunDenied // a limit in dry run would have denied the request for that
)

// Init makes a reading ready for use, once. call gets the charges. charged reports whether a
// limiter further out has charged the limit for that key: a request is charged once, however
// many limiters it passes.
func (q *Reading) Init(call *decide.Call, charged func(e *Entry, key string) bool) {
	q.call, q.charged = call, charged
}

// By sets the plans of the readings that begin from now on.
func (q *Reading) By(plans *Plans) { q.plans = plans }

// Begin begins to read a request or, if r is nil, what a job is given. nested says that the
// request has passed a limiter further out.
func (q *Reading) Begin(r *http.Request, nested bool) {
	q.R, q.nested = r, nested
	if r == nil {
		q.Plan = nil
	}
}

// End drops what the reading refers to, except what the next is likely to refer to, too.
func (q *Reading) End() {
	q.entries, q.keys, q.Paced = q.entries[:0], q.keys[:0], q.Paced[:0]
	q.R = nil
	if q.many != nil {
		q.many = nil
	}
	if q.Wrong != nil {
		q.Wrong = nil
	}
	q.state = state{}
}

// Policy returns RateLimit-Policy if the plan's applies as it is, or "".
func (q *Reading) Policy() string {
	if q.Differs {
		return ""
	}
	return q.Plan.Policy
}

// Request makes the charges of a request.
func (q *Reading) Request(p *Plan) error {
	if q.Plan != p {
		q.Plan = p
	}
	for _, e := range p.plain {
		if err := q.charge(e); err != nil {
			return err
		}
	}
	if len(p.plain) != len(p.Entries) || len(p.Funcs) > 0 {
		if err := q.more(p); err != nil {
			return err
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.arrange()
	}
	return nil
}

// more makes the charges that depend on those made already, or on what functions return.
func (q *Reading) more(p *Plan) error {
	q.Differs = true
	if len(p.readings) > 0 {
		if err := q.readings(p); err != nil {
			return err
		}
	} else if p.plain == nil {
		for _, e := range p.Entries {
			if err := q.Charge(e); err != nil {
				return err
			}
		}
	}
	for _, f := range p.Funcs {
		first := len(q.entries)
		if err := f.Charge(q); err != nil {
			return err
		}
		if len(p.readings) > 0 {
			if err := q.usedBy(f, q.entries[first:]); err != nil {
				return err
			}
		}
	}
	if q.planless && !q.enforced {
		return q.deny(NoLimits, ErrNoLimits)
	}
	return nil
}

// ErrNoLimits: see stint.ErrNoLimits.
var ErrNoLimits = errors.New("stint: no limits: return stint.Exempt() for a request without limits")

// Planless records that a function has returned no limits. If no other limit holds, the request
// is denied.
func (q *Reading) Planless() { q.planless = true }

// Everything makes charges of no cost to all limits that the plans have, and their functions for the
// request, under the keys that the request has for them. It returns why a function that returned no
// limits has none; the other charges are made all the same.
func (q *Reading) Everything() (err error) {
	q.Plan, q.Differs, q.everything = nil, true, true
	for e := range q.plans.Entries {
		q.lookAt(e)
	}
	for _, f := range q.plans.Base.Funcs {
		limits, wrong := len(q.entries), len(q.Wrong)
		_ = f.Charge(q) // which is also in Wrong
		for _, w := range q.Wrong[wrong:] {
			if len(q.entries) == limits && (w.What == LimitsFailed || w.What == SourceFailed) {
				err = errors.Join(err, w.Err)
			}
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.arrange()
	}
	return err
}

// lookAt makes the charge of Everything to one limit.
func (q *Reading) lookAt(e *Entry) {
	if e.DryRun || e.Needs&limit.Paces != 0 || e.Hidden() || e.Skip != nil && e.Skip(q.R) {
		return
	}
	key, err := q.key(e)
	if err != nil || key == "" {
		q.know(e.Key, "")
	} else if q.find(e.Limit.Limit, key) < 0 {
		q.add(e, key, 0)
	}
}

// arrange puts the charges of limits of this process last.
func (q *Reading) arrange() {
	c := q.call
	c.Locally()
	q.Differs = true // the limits' numbers change
	n := 0
	for i, e := range q.entries {
		if e.Needs&limit.Local != 0 {
			continue
		}
		if i > n {
			ch := c.Charges[i]
			copy(q.entries[n+1:], q.entries[n:i])
			copy(c.Limits[n+1:], c.Limits[n:i])
			copy(c.Charges[n+1:], c.Charges[n:i])
			q.entries[n], c.Limits[n], c.Charges[n] = e, &e.Limit, ch
		}
		n++
	}
}

// Charge adds the charge of one limit, unless the request skips it.
func (q *Reading) Charge(e *Entry) error {
	if e.Skip != nil && e.Skip(q.R) {
		return nil
	}
	return q.charge(e)
}

func (q *Reading) charge(e *Entry) error {
	key, err := q.key(e)
	if err != nil {
		return err
	}
	if key == "" {
		q.Differs = true
		q.know(e.Key, "")
		return nil
	}
	if !e.DryRun {
		q.enforced = true
	}
	if q.nested && q.charged(e, key) {
		q.Differs = true
		q.know(e.Key, key)
		return nil
	}
	if e.Needs&limit.Paces != 0 {
		q.know(e.Key, key)
		q.paces |= e.Needs
		q.Paced = append(q.Paced, Paced{e, key})
		return nil
	}
	cost := int64(1)
	if e.Cost != nil {
		if cost, err = q.cost(e); err != nil {
			return err
		}
	}
	q.add(e, key, cost)
	return nil
}

func (q *Reading) add(e *Entry, key string, cost int64) {
	if n := len(q.entries); n < cap(q.entries) && q.entries[:n+1][n] == e { // as in Call.Add
		q.entries = q.entries[:n+1]
	} else {
		q.entries = append(q.entries, e)
	}
	q.call.Add(&e.Limit, key, cost)
}

// Has reports whether a limit of that name is among the charged.
func (q *Reading) Has(name string) bool {
	return slices.ContainsFunc(q.entries, func(e *Entry) bool { return e.Name() == name }) ||
		slices.ContainsFunc(q.Paced, func(p Paced) bool { return p.Name() == name })
}

// key returns the request's key for a limit, or "" if the limit is left out. A function that makes
// keys is called once: keys that aren't those of charges are made known.
func (q *Reading) key(e *Entry) (string, error) {
	if len(q.entries)+len(q.keys) > few {
		if key, ok := q.indexed().keys[e.Key]; ok {
			return key, q.allows(e, key)
		}
	} else {
		for i, o := range q.entries {
			if o.Key == e.Key {
				return q.call.Charges[i].Key, nil
			}
		}
		for i := range q.keys {
			if q.keys[i].of == e.Key {
				return q.keys[i].key, q.allows(e, q.keys[i].key)
			}
		}
	}
	key, err := e.Key.Of(q.R)
	if err == nil {
		if e.Look.Open() {
			e.Look.See(q.R, key)
		}
		key, err = keytext.Encode(key)
	}
	if err != nil {
		if err = q.keyless(e, err); err != nil {
			return "", err
		}
		key = ""
	}
	return key, nil
}

// allows returns the denial of a request whose key is empty, and known by a limit that was left out
// for that; or nil.
func (q *Reading) allows(e *Entry, key string) error {
	if key != "" {
		return nil
	}
	return q.keyless(e, keytext.ErrEmpty)
}

// find returns the charge of a limit for a key, or -1.
func (q *Reading) find(l *store.Limit, key string) int {
	if len(q.entries) > few {
		if i, ok := q.indexed().charges[place{l, key}]; ok {
			return i
		}
		return -1
	}
	for i := range q.call.Charges {
		if c := &q.call.Charges[i]; c.Limit == l && c.Key == key {
			return i
		}
	}
	return -1
}

// few is how many charges and keys are looked through.
const few = 32

// many has the keys and the charges of a reading by what they are looked for by, so that reading is
// linear in the limits.
type many struct {
	keys    map[*keys.Key]string
	charges map[place]int
	entries int // how many of them are in the maps
	known   int // how many of Reading.keys are
}

// place is where a charge is made.
type place struct {
	limit *store.Limit
	key   string
}

// indexed returns an index of what the reading has by now.
func (q *Reading) indexed() *many {
	if q.many == nil {
		q.many = &many{keys: map[*keys.Key]string{}, charges: map[place]int{}}
	}
	m := q.many
	for ; m.entries < len(q.entries); m.entries++ {
		e, c := q.entries[m.entries], &q.call.Charges[m.entries]
		m.keys[e.Key], m.charges[place{c.Limit, c.Key}] = c.Key, m.entries
	}
	for ; m.known < len(q.keys); m.known++ {
		m.keys[q.keys[m.known].of] = q.keys[m.known].key
	}
	return m
}

// know keeps a key that is no charge's.
func (q *Reading) know(of *keys.Key, key string) { q.keys = append(q.keys, known{of, key}) }

// keyless returns the denial of a request whose key can't be determined, or nil if the
// limit is left out instead.
func (q *Reading) keyless(e *Entry, err error) error {
	re := &failure.Error{Err: err, Status: failure.Status(err), Limit: e.Name()}
	what := KeyFailed
	switch {
	case errors.Is(err, keytext.ErrEmpty) && e.SkipEmpty:
		return nil
	case errors.Is(err, keytext.ErrEmpty):
		re.Status, what = http.StatusForbidden, EmptyKey
	case errors.Is(err, keytext.ErrTooLong):
		re.Status = http.StatusForbidden
	}
	q.Wrong = append(q.Wrong, Wrong{what, re.Limit, re})
	return re
}

// cost returns what the request costs a limit. A negative cost is an error; on a limit
// in dry run, which must not deny, it is reported and counts as 0.
func (q *Reading) cost(e *Entry) (int64, error) {
	if e.Cost == nil {
		return 1, nil
	}
	cost := e.Cost(q.R)
	if cost < 0 {
		err := &failure.Error{Err: fmt.Errorf("%w: WithCost returned %d", store.ErrCost, cost), Status: http.StatusInternalServerError, Limit: e.Name()}
		if e.DryRun {
			q.Wrong = append(q.Wrong, Wrong{DryRunDenied, err.Limit, err})
			return 0, nil
		}
		q.Wrong = append(q.Wrong, Wrong{LimitsFailed, err.Limit, err})
		return 0, err
	}
	// A cost above MaxCost is lowered, so that the limit denies it. As it is, the store
	// would return an error, and the request would pass as if the store had failed.
	return min(cost, store.MaxCost), nil
}

// DenyLimits records why a function returned no limits, and returns the denial of its request,
// or nil if it goes on without them.
func (q *Reading) DenyLimits(what What, err error, goesOn bool) error {
	if err = q.deny(what, err); goesOn {
		return nil
	}
	return err
}

// deny records why functions leave a request without limits, and returns the denial.
func (q *Reading) deny(what What, err error) error {
	err = &failure.Error{Err: fmt.Errorf("stint: WithLimitFunc: %w", err), Status: failure.Status(err)}
	q.Wrong = append(q.Wrong, Wrong{what, "", err})
	return err
}

// OfKey returns entries, and those of the limits that a key has by the functions of the plans. known
// reports whether some function has been asked. looks is that of Func.
func (q *Reading) OfKey(ctx context.Context, key string, entries []*Entry, looks bool) (all []*Entry, known bool, err error) {
	all = slices.Clip(entries)
	for _, f := range q.plans.Base.Funcs {
		if f.OfKey == nil {
			continue
		}
		more, err := f.OfKey(ctx, q, key, looks)
		if err != nil {
			return nil, true, err
		}
		all, known = append(all, more...), true
	}
	if looks && len(all) == 0 && len(q.Wrong) > 0 {
		return nil, true, q.Wrong[0].Err
	}
	if q.planless && !slices.ContainsFunc(all, func(e *Entry) bool { return !e.DryRun }) {
		return nil, true, q.deny(NoLimits, ErrNoLimits)
	}
	return all, known, nil
}

// ChargeGiven makes the charges of a key that Take and the like are given, to entries.
func (q *Reading) ChargeGiven(key string, cost int64, entries []*Entry) error {
	encoded, unfit := keytext.Encode(key)
	for _, e := range entries {
		if e.Needs&limit.Paces != 0 {
			continue
		}
		under, err := e.Key.Under(encoded, unfit)
		if err != nil {
			return err
		}
		if q.find(e.Limit.Limit, under) < 0 {
			q.add(e, under, cost)
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.arrange()
	}
	return nil
}

// Settlers returns what makes the charges cost something else in the end, or nil for none:
// an element for each charge, which may be nil.
func (q *Reading) Settlers() (all []*Settler) {
	// Those of the store, which come first, are left out if it has failed.
	left := q.entries[len(q.entries)-len(q.call.Limits):]
	for i, e := range left {
		if e.Settler == nil {
			continue
		}
		if all == nil {
			all = make([]*Settler, len(left))
		}
		all[i] = e.Settler
	}
	return all
}

// Needs returns those of the charges and of the Bandwidths.
func (q *Reading) Needs() limit.Needs { return q.call.Needs | q.paces }

type priorityKey struct{}

// WithPriority returns a context whose requests have a class.
func WithPriority(ctx context.Context, class int) context.Context {
	return context.WithValue(ctx, priorityKey{}, class)
}

// Class returns the request's class among those that wait.
func (q *Reading) Class(ctx context.Context) int {
	if q.plans.Priority != nil && q.R != nil {
		return q.plans.Priority(q.R)
	}
	n, _ := ctx.Value(priorityKey{}).(int)
	return n
}
