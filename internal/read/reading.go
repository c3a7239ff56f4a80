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
	"github.com/stint-go/stint/internal/mistakes/keysample"
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
	// Failures are reported to observers, in this order. The error of the last is the
	// request's, if there is one.
	Failures []Failure
	readingState

	plans     *Plans
	call      *decide.Call   // gets the charges
	entries   []*Entry       // of the charges
	uncharged []unchargedKey // keys without a charge
	index     *index         // of entries and uncharged, if there are many; or nil
	charged   func(e *Entry, key string) bool
}

// readingState is the part of a reading that End zeroes. It has no pointers: see Call.Add of package decide.
type readingState struct {
	// PolicyDiffers: the plan's Policy doesn't apply, because the limits charged aren't those of the plan, or have
	// other numbers.
	PolicyDiffers bool

	nested bool
	// readAll: limits are looked up, and none is charged; see ReadAll.
	readAll bool
	paces   limit.Needs // of Paced
	// enforced: some limit is charged for the request, and isn't a dry run. noLimits: a
	// function has returned no limits.
	enforced, noLimits bool
}

// Paced is a Bandwidth and the key of one request.
type Paced struct {
	*Entry
	Key string
}

// unchargedKey is a key of a request that no charge of the reading has: its limit is left out, or a
// limiter further out has charged it.
type unchargedKey struct {
	key  *keys.Key
	text string // "": limits with this key are left out
}

// Failure is something that kept a request from being charged.
type Failure struct {
	Kind  FailureKind
	Limit string // that it is about, or ""
	Err   error
}

// FailureKind is what has failed.
type FailureKind uint8

const (
	KeyFailed FailureKind = iota
	EmptyKey              // of a limit in dry run, without an error
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

// SetPlans sets the plans of the readings that begin from now on.
func (q *Reading) SetPlans(plans *Plans) { q.plans = plans }

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
	q.entries, q.uncharged, q.Paced = q.entries[:0], q.uncharged[:0], q.Paced[:0]
	q.R = nil
	if q.index != nil {
		q.index = nil
	}
	if q.Failures != nil {
		q.Failures = nil
	}
	q.readingState = readingState{}
}

// Policy returns RateLimit-Policy if the plan's applies as it is, or "".
func (q *Reading) Policy() string {
	if q.PolicyDiffers {
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
		if err := q.chargeRest(p); err != nil {
			return err
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.putLocalLast()
	}
	return nil
}

// chargeRest makes the charges that depend on those made already, or on what functions return.
func (q *Reading) chargeRest(p *Plan) error {
	q.PolicyDiffers = true
	if len(p.interpretations) > 0 {
		if err := q.chargeInterpretations(p); err != nil {
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
		if len(p.interpretations) > 0 {
			if err := q.costInInterpretations(f, q.entries[first:]); err != nil {
				return err
			}
		}
	}
	if q.noLimits && !q.enforced {
		return q.deny(NoLimits, &failure.Error{Err: ErrNoLimits})
	}
	return nil
}

// ErrNoLimits: see stint.ErrNoLimits.
var ErrNoLimits = errors.New("stint: a limit function returned no limits: " +
	"return stint.Exempt() for a request without limits")

// RecordNoLimits records that a function has returned no limits. If no other limit holds, the request
// is denied.
func (q *Reading) RecordNoLimits() { q.noLimits = true }

// ReadAll makes charges of no cost to all limits that the plans have, and their functions for the
// request, under the keys that the request has for them. It returns why a function that returned no
// limits has none; the other charges are made all the same. keyFailure is the first failure of a key
// function with a status of 500 or above, or nil.
func (q *Reading) ReadAll() (keyFailure *failure.Error, err error) {
	q.Plan, q.PolicyDiffers, q.readAll = nil, true, true
	for e := range q.plans.Entries {
		q.addPeek(e)
	}
	for _, f := range q.plans.Base.Funcs {
		limits, failures := len(q.entries), len(q.Failures)
		_ = f.Charge(q) // which is also in Failures
		for _, w := range q.Failures[failures:] {
			if len(q.entries) == limits && (w.Kind == LimitsFailed || w.Kind == SourceFailed) {
				err = errors.Join(err, w.Err)
			}
		}
	}
	for _, w := range q.Failures {
		failed := w.Kind == KeyFailed && keyFailure == nil && errors.As(w.Err, &keyFailure)
		if failed && keyFailure.Status < http.StatusInternalServerError {
			keyFailure = nil
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.putLocalLast()
	}
	return keyFailure, err
}

// addPeek makes the charge of ReadAll to one limit.
func (q *Reading) addPeek(e *Entry) {
	if e.DryRun || e.Needs&limit.Paces != 0 || e.Hidden() || e.Skip != nil && e.Skip(q.R) {
		return
	}
	key, err := q.key(e)
	if err != nil || key == "" {
		q.keepKey(e.Key, "")
	} else if q.find(e.StoreLimit, key) < 0 {
		q.add(e, key, 0)
	}
}

// putLocalLast puts the charges of limits of this process last. Otherwise their order stays.
func (q *Reading) putLocalLast() {
	c := q.call
	c.Locally()
	q.PolicyDiffers = true // the limits' numbers change
	placed := 0            // charges of the store that are in place
	for i, e := range q.entries {
		if e.Needs&limit.Local != 0 {
			continue
		}
		if i > placed {
			ch := c.Charges[i]
			copy(q.entries[placed+1:], q.entries[placed:i])
			copy(c.Limits[placed+1:], c.Limits[placed:i])
			copy(c.Charges[placed+1:], c.Charges[placed:i])
			q.entries[placed], c.Limits[placed], c.Charges[placed] = e, &e.Limit, ch
		}
		placed++
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
		q.PolicyDiffers = true
		q.keepKey(e.Key, "")
		return nil
	}
	if !e.DryRun {
		q.enforced = true
	}
	if q.nested && q.charged(e, key) {
		q.PolicyDiffers = true
		q.keepKey(e.Key, key)
		return nil
	}
	if e.Needs&limit.Paces != 0 {
		q.keepKey(e.Key, key)
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
// keys is called once: keys that aren't those of charges are kept in uncharged.
func (q *Reading) key(e *Entry) (string, error) {
	if key, ok := q.knownKey(e.Key); ok {
		return key, q.checkEmpty(e, key)
	}
	key, err := e.Key.Read(q.R)
	if err == nil {
		if e.Sample.Open() {
			e.Sample.Add(q.R, key)
		}
		key, err = keytext.Encode(key)
	}
	if err != nil {
		if err = q.denyKey(e, err); err != nil {
			return "", err
		}
		key = ""
	}
	return key, nil
}

// knownKey returns the text of a key that has been read. ok reports whether it has.
func (q *Reading) knownKey(k *keys.Key) (text string, ok bool) {
	if len(q.entries)+len(q.uncharged) > mostScanned {
		text, ok = q.buildIndex().keys[k]
		return text, ok
	}
	for i, o := range q.entries {
		if o.Key == k {
			return q.call.Charges[i].Key, true
		}
	}
	for i := range q.uncharged {
		if q.uncharged[i].key == k {
			return q.uncharged[i].text, true
		}
	}
	return "", false
}

// SourceKey returns the request's key for a source of limits, as it is. s is the sample of the key.
func (q *Reading) SourceKey(k *keys.Key, s *keysample.Sample) (string, error) {
	key, err := k.Read(q.R)
	if err != nil && q.readAll {
		failed := &failure.Error{Err: err, Status: failure.Status(err), By: "WithLimitSource"}
		q.Failures = append(q.Failures, Failure{KeyFailed, "", failed})
	}
	if err != nil || !s.Open() {
		return key, err
	}
	if _, sampled := q.knownKey(k); !sampled {
		s.Add(q.R, key)
		if text, err := keytext.Encode(key); err == nil || errors.Is(err, keytext.ErrEmpty) {
			q.keepKey(k, text) // limits with the same key don't add the request once more
		}
	}
	return key, nil
}

// checkEmpty returns the denial of a request if its key for a limit is empty, unless the limit is left
// out for such requests.
func (q *Reading) checkEmpty(e *Entry, key string) error {
	if key != "" {
		return nil
	}
	return q.denyKey(e, keytext.ErrEmpty)
}

// find returns the charge of a limit for a key, or -1.
func (q *Reading) find(l *store.Limit, key string) int {
	if len(q.entries) > mostScanned {
		if i, ok := q.buildIndex().charges[chargeKey{l, key}]; ok {
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

// mostScanned is how many charges and keys are searched without an index.
const mostScanned = 32

// index finds the keys and the charges of a reading that has many, so that the time of a reading is
// linear in its limits.
type index struct {
	keys      map[*keys.Key]string
	charges   map[chargeKey]int
	entries   int // how many of them are in the maps
	uncharged int // how many of Reading.uncharged are in the maps
}

// chargeKey identifies a charge of a reading.
type chargeKey struct {
	limit *store.Limit
	key   string
}

// buildIndex returns an index of the keys and charges that the reading has by now.
func (q *Reading) buildIndex() *index {
	if q.index == nil {
		q.index = &index{keys: map[*keys.Key]string{}, charges: map[chargeKey]int{}}
	}
	m := q.index
	for ; m.entries < len(q.entries); m.entries++ {
		e, c := q.entries[m.entries], &q.call.Charges[m.entries]
		m.keys[e.Key], m.charges[chargeKey{c.Limit, c.Key}] = c.Key, m.entries
	}
	for ; m.uncharged < len(q.uncharged); m.uncharged++ {
		m.keys[q.uncharged[m.uncharged].key] = q.uncharged[m.uncharged].text
	}
	return m
}

// keepKey keeps a key that is no charge's.
func (q *Reading) keepKey(k *keys.Key, key string) {
	q.uncharged = append(q.uncharged, unchargedKey{k, key})
}

// denyKey returns the denial of a request whose key can't be determined, or nil if the
// limit is left out instead.
func (q *Reading) denyKey(e *Entry, err error) error {
	empty := errors.Is(err, keytext.ErrEmpty)
	switch {
	case empty && e.SkipEmpty:
		return nil
	case empty && e.DryRun:
		q.Failures = append(q.Failures, Failure{EmptyKey, e.Name(), nil})
		return nil
	}
	denial := &failure.Error{Err: err, Status: http.StatusForbidden, Limit: e.Name()}
	kind := EmptyKey
	if !empty {
		denial.Status, kind = failure.Status(err), KeyFailed
	}
	q.Failures = append(q.Failures, Failure{kind, denial.Limit, denial})
	return denial
}

// cost returns what the request costs a limit. A negative cost is an error; on a limit
// in dry run, which must not deny, it is reported and counts as 0.
func (q *Reading) cost(e *Entry) (int64, error) {
	if e.Cost == nil {
		return 1, nil
	}
	cost := e.Cost(q.R)
	if cost < 0 {
		err := &failure.Error{Err: fmt.Errorf("%w: WithCost returned %d: return 0 to 2^40", store.ErrCost, cost),
			Status: http.StatusInternalServerError, Limit: e.Name()}
		if e.DryRun {
			q.Failures = append(q.Failures, Failure{DryRunDenied, err.Limit, err})
			return 0, nil
		}
		q.Failures = append(q.Failures, Failure{LimitsFailed, err.Limit, err})
		return 0, err
	}
	// A cost above MaxCost is lowered, so that the limit denies it. As it is, the store
	// would return an error, and the request would pass as if the store had failed.
	return min(cost, store.MaxCost), nil
}

// DenyLimits records why a function returned no limits, and returns the denial of its request,
// or nil if it goes on without them.
func (q *Reading) DenyLimits(kind FailureKind, denial *failure.Error, goesOn bool) error {
	if err := q.deny(kind, denial); !goesOn {
		return err
	}
	return nil
}

// RecordSourceAnswers records that a source of limits that had failed answers again.
func (q *Reading) RecordSourceAnswers() { q.Failures = append(q.Failures, Failure{Kind: SourceFailed}) }

// deny records why functions leave a request without limits, and returns the denial.
func (q *Reading) deny(kind FailureKind, denial *failure.Error) error {
	denial.Status = failure.Status(denial.Err)
	q.Failures = append(q.Failures, Failure{kind, "", denial})
	return denial
}

// OfKey returns entries, and those of the limits that a key has by the functions of the plans. asked
// reports whether a function was called. peeks is that of Func.
func (q *Reading) OfKey(ctx context.Context, key string, entries []*Entry,
	peeks bool) (all []*Entry, asked bool, err error) {
	all = slices.Clip(entries)
	for _, f := range q.plans.Base.Funcs {
		if f.OfKey == nil {
			continue
		}
		more, err := f.OfKey(ctx, q, key, peeks)
		if err != nil {
			return nil, true, err
		}
		all, asked = append(all, more...), true
	}
	if peeks && len(all) == 0 && len(q.Failures) > 0 {
		return nil, true, q.Failures[0].Err
	}
	if q.noLimits && !slices.ContainsFunc(all, func(e *Entry) bool { return !e.DryRun }) {
		return nil, true, q.deny(NoLimits, &failure.Error{Err: ErrNoLimits})
	}
	return all, asked, nil
}

// ChargeGiven makes the charges of a key that Take and the like are given, to entries.
func (q *Reading) ChargeGiven(key string, cost int64, entries []*Entry) error {
	encoded, encodeErr := keytext.Encode(key)
	for _, e := range entries {
		if e.Needs&limit.Paces != 0 {
			continue
		}
		entryKey, err := e.Key.ForGiven(encoded, encodeErr)
		if err != nil {
			return err
		}
		if q.find(e.StoreLimit, entryKey) < 0 {
			q.add(e, entryKey, cost)
		}
		if e.Tenant != nil {
			tenant, _ := e.Tenant.ForGiven(encoded, encodeErr) // an empty one if the key can't be encoded
			q.keepKey(e.Tenant, tenant)
		}
	}
	if q.call.Needs&limit.Local != 0 {
		q.putLocalLast()
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

// Tenant returns the key of the tenant of charge i, whose limit has a fair queue. It is "" if the request's key for
// that is empty, or can't be determined.
func (q *Reading) Tenant(i int) string {
	k := q.entries[i].Tenant
	text, known := q.knownKey(k)
	if !known {
		raw, err := k.Read(q.R)
		if err == nil {
			text, _ = keytext.Encode(raw)
		}
		q.keepKey(k, text)
	}
	return text
}
