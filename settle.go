package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// settleSource is one use of WithSettle. Limits that share it share one call of fn per
// request.
type settleSource struct {
	fn func(r *http.Request, status int, written int64) int64
}

// AsCharged, returned by the function of a WithSettle, leaves the charge unchanged.
const AsCharged int64 = -1

// WithSettle gives a request its true cost once its response is known. When the handler
// has returned, cost is called with the status and the number of body bytes written,
// and the charge is replaced by its result: the difference is refunded, or owed by the
// next request. AsCharged leaves the charge unchanged. The request passed to cost is
// the one the next handler got, with its permit and, if the router sets them, its
// pattern and path values.
//
//	// Only failed logins count.
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute), stint.WithSettle(stint.FailedOnly))
//
// The charge made before the handler runs takes effect at once, so that concurrent
// requests can't pass on credit; a WithCost beside it says how much to reserve. That
// charge stands where cost isn't called: outside HTTP (Take, Wait), and in an adapter
// that doesn't pass on the writer of Limiter.Admit. It applies to Rate and Quota;
// slots of a concurrency limit are released instead. New rejects a nil cost. cost is
// called concurrently.
//
//   - cost is called once per request, for all limits that share the option, on the
//     request's goroutine, even if the client has left.
//   - A limit that the handler has settled itself, by Permit.Settle, stays as it is:
//     the handler knows better.
//   - A handler's panic counts as 500, whatever it has written before. After a panic
//     with http.ErrAbortHandler the status is the one written, or 500 if none was.
//   - After a Hijack the status is 101, and written counts what was written before it.
//     After Permit.Detach, cost is called when the release has been called, too.
//   - For HEAD, written is 0, whatever the handler writes.
//   - If the handler returns without an answer after the request's context has ended, the
//     status is 499, as in nginx's logs: the client has left, and gets none.
//
// If a charge can't be settled, it stands, and observers get an EventSettleFailed; if
// it is settled, they get an EventSettled. A store in memory takes no time. Another
// store is called when the handler has returned, once for all settlements and releases
// of slots, for up to 2 seconds. The client waits for that only if the response doesn't
// declare its Content-Length.
func WithSettle(cost func(r *http.Request, status int, written int64) int64) SettleOption {
	src := &settleSource{cost}
	return checkedSetting(cost != nil, "WithSettle(nil)", "write a function, such as stint.FailedOnly, or leave it out",
		func(s *settings) { s.settle = src })
}

// FailedOnly is a function for WithSettle: requests answered with a status below 400
// cost nothing, such as successful logins. A request whose client left before it was
// answered keeps its cost.
func FailedOnly(_ *http.Request, status int, _ int64) int64 {
	if status < 400 {
		return 0
	}
	return AsCharged
}

// RefundOn returns a function for WithSettle: requests answered with one of these
// statuses cost nothing, such as 304 and 503.
func RefundOn(statuses ...int) func(r *http.Request, status int, written int64) int64 {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int, _ int64) int64 {
		if slices.Contains(statuses, status) {
			return 0
		}
		return AsCharged
	}
}

// Settle replaces the request's provisional cost, refunding or charging the difference.
// A refund gives back what time hasn't already given back; an additional cost is owed
// by the next request. cost is from 0 to 2^40. Settling again replaces what was settled
// before. Settle may be called after the handler has returned.
//
// It applies to the limits named. With none named, it applies to those with a WithCost
// or, if there are none, to all rates and quotas; never to concurrency. If the request
// has passed several limiters, a name means the innermost limit of that name; without
// names, the innermost limiter with a WithCost counts, and if none has one, all rates
// and quotas of the innermost. Dry runs don't change that choice.
//
// The error is about a cost out of range, a name the permit doesn't have, a limit that
// can't be settled, or the store (a *StoreError): what it couldn't settle stays
// charged. If the store can't tell whether it has settled a charge, for instance because
// its answer was lost, that charge is never settled again, neither by Settle, which
// returns an error then, nor by a WithSettle: the difference would be refunded twice.
// Where the error is store.ErrNotMade (errors.Is), Settle may be called again.
func (p *Permit) Settle(ctx context.Context, cost int64, limits ...string) error {
	if p == nil {
		return nil
	}
	if cost < 0 || cost > store.MaxCost {
		return fmt.Errorf("stint: Settle: %w: %d: write 0 to 2^40", store.ErrCost, cost)
	}
	if len(limits) == 0 {
		q, chosen := p.grantsWithCost()
		return q.settle(ctx, chosen, cost)
	}
	named := map[*Permit][]int{}
	for _, name := range limits {
		q, all := p.grantsNamed(name)
		if q == nil {
			return fmt.Errorf("stint: Settle: the permit has no limit %q", name)
		}
		for _, i := range all {
			if why := q.grants[i].entry.kind.whyUnsettled(); why != "" {
				return fmt.Errorf("stint: Settle: %q is %s", name, why)
			}
			if !slices.Contains(named[q], i) {
				named[q] = append(named[q], i)
			}
		}
	}
	for q := p; q != nil; q = q.outer {
		if err := q.settle(ctx, named[q], cost); err != nil {
			return err
		}
	}
	return nil
}

// grantsNamed finds the limit of a name, from p outwards. A request that is held to several
// routes may be charged for it under several keys.
func (p *Permit) grantsNamed(name string) (*Permit, []int) {
	for q := p; q != nil; q = q.outer {
		if all := q.where(func(e *entry) bool { return e.limit.Name() == name }); len(all) > 0 {
			return q, all
		}
	}
	return nil, nil
}

// grantsWithCost finds the limits that Settle applies to without a name. Enforced limits
// determine which, if there are any.
func (p *Permit) grantsWithCost() (*Permit, []int) {
	rates := func(e *entry) bool { return e.kind.whyUnsettled() == "" }
	costs := func(e *entry) bool { return rates(e) && e.cost != nil }
	for _, dryRun := range [...]bool{false, true} {
		for _, which := range [...]func(*entry) bool{costs, rates} {
			for q := p; q != nil; q = q.outer {
				if len(q.where(func(e *entry) bool { return which(e) && e.dryRun == dryRun })) > 0 {
					return q, q.where(which)
				}
			}
		}
	}
	return p, nil
}

// where returns which of the permit's own grants are of such an entry.
func (p *Permit) where(is func(*entry) bool) (chosen []int) {
	for i := range p.grants {
		if is(p.grants[i].entry) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// settle replaces the cost of the chosen charges.
func (p *Permit) settle(ctx context.Context, chosen []int, cost int64) error {
	charges, took, err := p.amend(ctx, chosen, cost)
	switch {
	case err != nil && len(charges) == 0:
		return &StoreError{err}
	case err != nil:
		err = &StoreError{err}
		p.version.observeSettleFailed(p.plan, charges, took, err)
	case len(charges) > 0:
		p.observeSettled(took)
	}
	return err
}

// errUnknown is the error of settling a charge again of which an earlier settlement may
// have been made.
var errUnknown = errors.New("whether an earlier settlement was made isn't known, so the charge isn't settled again")

func (p *Permit) amend(ctx context.Context, chosen []int, cost int64) (charges []store.Charge, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	chosen = slices.DeleteFunc(chosen, func(i int) bool { return p.grants[i].reported() })
	if len(chosen) == 0 {
		return nil, 0, nil
	}
	if slices.ContainsFunc(chosen, func(i int) bool { return p.grants[i].unknown() }) {
		return nil, 0, errUnknown
	}
	charges = make([]store.Charge, len(chosen))
	results := make([]store.Result, len(chosen))
	for k, i := range chosen {
		charges[k] = p.grants[i].charge(cost)
	}
	if ctx.Err() != nil {
		return charges, 0, store.NotMade(ctx.Err())
	}
	p.doubt(chosen)
	if took, err = p.version.settleTimed(ctx, p.version.store, charges, results); err != nil {
		if errors.Is(err, store.ErrNotMade) {
			p.doubt(chosen)
		}
		return charges, took, err
	}
	for k, i := range chosen {
		p.setResult(i, results[k])
	}
	p.markByHand(chosen)
	return charges, took, nil
}

func (p *Permit) doubt(chosen []int) {
	for _, i := range chosen {
		p.grants[i].doubt()
	}
}

// amend is the new cost of one charge.
type amend struct {
	i    int // of the charge
	cost int64
}

// amends calls the permit's WithSettle functions.
func (p *Permit) amends() (all []amend) {
	s := p.response
	if s == nil {
		return nil
	}
	got, ok := s.Outcome()
	if !ok {
		return nil
	}
	costs := map[*settleSource]int64{}
	for i := range p.grants {
		e := p.grants[i].entry
		if e.settle == nil {
			continue
		}
		cost, asked := costs[e.settle]
		if !asked {
			cost = e.settle.fn(s.Request(), got.Status, got.Written)
			costs[e.settle] = cost
			if cost != AsCharged && (cost < 0 || cost > store.MaxCost) {
				err := fmt.Errorf("stint: WithSettle: limit %s: %w: %d: return 0 to 2^40, or AsCharged", e.limit.Name(), store.ErrCost, cost)
				about := store.Charge{Key: p.grants[i].key, Limit: e.limit, Cost: cost, DryRun: e.dryRun}
				p.version.observeSettleFailed(p.plan, []store.Charge{about}, 0, err)
			}
		}
		if cost >= 0 && cost <= store.MaxCost {
			all = append(all, amend{i, cost})
		}
	}
	return all
}

// due returns those of amends that still have to be made. The caller holds p.mu.
func (p *Permit) due(amends []amend) []amend {
	return slices.DeleteFunc(amends, func(a amend) bool {
		return p.byHand(a.i) ||
			p.grants[a.i].reported() ||
			p.grants[a.i].unknown() ||
			p.grants[a.i].result.Receipt.Cost == a.cost
	})
}

func (p *Permit) byHand(i int) bool { return p.response.byHand != nil && p.response.byHand[i] }

// markByHand records that the handler has settled the chosen charges. The caller
// holds p.mu.
func (p *Permit) markByHand(chosen []int) {
	if p.response == nil {
		return
	}
	if p.response.byHand == nil {
		p.response.byHand = make([]bool, len(p.grants))
	}
	for _, i := range chosen {
		p.response.byHand[i] = true
	}
}

// setResult records the result of settling charge i. The caller holds p.mu.
func (p *Permit) setResult(i int, r store.Result) {
	was := &p.grants[i].result
	r.OK, r.Delay = true, was.Delay
	*was = r
}

// ending is the outcome of the store's call at the end of a request.
type ending struct {
	charges []store.Charge // in the call's memory
	settled bool           // whether the call has amended costs
	took    time.Duration
	err     error // a *StoreError
}

// addReleases adds the charges that release the permit's slots.
func (c *call) addReleases(p *Permit) {
	p.mu.Lock() // Settle may be changing the results
	defer p.mu.Unlock()
	for i := range p.grants {
		if g := &p.grants[i]; g.result.Receipt.Lease != (store.LeaseID{}) {
			c.Charges = append(c.Charges, g.charge(0))
		}
	}
}

// finish makes the call's charges, which give something back, and the amends, at once.
func (p *Permit) finish(c *call, amends []amend) (end ending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(amends) > 0 {
		amends = p.due(amends)
	}
	back := len(c.Charges)
	for _, a := range amends {
		c.Charges = append(c.Charges, p.grants[a.i].charge(a.cost))
	}
	for _, a := range amends {
		p.grants[a.i].doubt()
	}
	c.Results = append(c.Results[:0], make([]store.Result, len(c.Charges))...)
	end.charges = c.Charges
	if end.took, end.err = p.version.settle((*outliving)(p), p.version.store, c.Charges, c.Results); end.err != nil {
		if errors.Is(end.err, store.ErrNotMade) {
			for _, a := range amends {
				p.grants[a.i].doubt()
			}
		}
		return end
	}
	for k, a := range amends {
		p.setResult(a.i, c.Results[back+k])
	}
	end.settled = len(amends) > 0
	return end
}

// outliving is the context of what is done when a permit's request is over: the request's
// own, as context.WithoutCancel would make it, without its allocation.
type outliving Permit

func (*outliving) Deadline() (none time.Time, ok bool) { return none, false }

func (*outliving) Done() <-chan struct{} { return nil }

func (*outliving) Err() error { return nil }

func (o *outliving) Value(key any) any { return o.ctx.Value(key) }

// observeSettled notifies the observers that the request's cost has changed.
func (p *Permit) observeSettled(took time.Duration) {
	if p.version.limiter.audience.Load() == nil {
		return
	}
	e := &Event{Kind: EventSettled, StoreTook: took}
	if p.response != nil {
		e.Request = p.response.Request()
	}
	p.tell(e)
}

// cancel settles charges, even if ctx has ended, and wakes the waiters for the slots
// among them. If it fails, it notifies observers.
func (v *version) cancel(ctx context.Context, s store.Store, p *plan, charges []store.Charge) {
	took, err := v.settle(context.WithoutCancel(ctx), s, charges, make([]store.Result, len(charges)))
	if err != nil {
		v.observeSettleFailed(p, charges, took, err)
	}
}

// settleTimed calls the store's Settle, and measures its time if there are observers.
func (v *version) settleTimed(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result) (took time.Duration, err error) {
	if v.limiter.audience.Load() == nil {
		return 0, s.Settle(ctx, charges, results)
	}
	start := time.Now()
	err = s.Settle(ctx, charges, results)
	return time.Since(start), err
}

// settle is cancel without notifying observers, for callers that must finish other work
// before an observer may panic. ctx must not end with the request. The error is a
// *StoreError.
func (v *version) settle(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result) (took time.Duration, err error) {
	if len(charges) == 0 {
		return 0, nil
	}
	if !store.AnswersAtOnce(s) { // for a store in memory a timer would cost more than the call
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, background.GiveBack)
		defer stop()
	}
	took, err = v.settleTimed(ctx, s, charges, results)
	for i := range charges {
		if charges[i].Receipt.Lease != (store.LeaseID{}) {
			v.lines.Wake(waiting.KeyOf(&charges[i]))
		}
	}
	if err != nil {
		return took, &StoreError{err}
	}
	return took, nil
}
