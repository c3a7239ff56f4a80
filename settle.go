package stint

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/stint-go/stint/store"
)

// settleSource is one use of WithSettle. Limits that get it from the same one
// share one call a request.
type settleSource struct {
	fn func(r *http.Request, status int, written int64) int64
}

// AsCharged, returned by the function of a WithSettle, leaves the charge as it
// is.
const AsCharged int64 = -1

// WithSettle gives a request its true cost once its response is known: when
// the handler has returned, cost is asked with the status and the number of
// body bytes written, and what was charged becomes that. Below the charge the
// difference is refunded, above it is owed by the next; AsCharged leaves it.
// The request is the one the next handler was given, with its permit and, where
// the router sets them, its pattern and path values.
//
//	// Only failed logins count.
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute), stint.WithSettle(stint.FailedOnly))
//
// The charge made before the handler runs is what holds at once, so that many
// requests at a time can't pass on credit: a WithCost beside it says what to
// reserve. It stays where cost is not asked: outside HTTP (Take, Wait), and in
// an adapter that doesn't wrap the response as Permit.Next says. Slots of a concurrency
// limit are released, not settled.
//
//   - It is asked once a request, for all limits that share the option, on the
//     request's goroutine. It is asked also if the client has left.
//   - A limit that the handler has settled itself, by Permit.Settle, is left at
//     that: the handler knows better.
//   - A handler's panic is 500, whatever it has written before. One with
//     http.ErrAbortHandler is what has been written, 500 only if nothing has.
//   - After a Hijack the status is 101, and written what was written before.
//     After Permit.Detach cost is asked when the release is called.
//   - To HEAD nothing is written, whatever the handler writes.
//
// A charge that can't be settled stays as it is; observers are told
// (EventSettleFailed), as they are of what has been settled (EventSettled). With a store
// in memory that takes no time. Another one is told when the handler has
// returned, in one call with the release of slots, for up to 2 seconds: behind a
// response that declares its Content-Length, but before the end of one that
// doesn't.
func WithSettle(cost func(r *http.Request, status int, written int64) int64) SettleOption {
	if cost == nil {
		return settleOption{setting: func(s *settings) {
			s.errs.bad("WithSettle(nil)", "", "write a function, such as stint.FailedOnly, or leave it out")
		}}
	}
	src := &settleSource{cost}
	return settleOption{setting: func(s *settings) { s.settle = src }}
}

// FailedOnly is for WithSettle: requests that are answered with a status below
// 400 cost nothing, as logins that succeed.
func FailedOnly(_ *http.Request, status int, _ int64) int64 {
	if status < 400 {
		return 0
	}
	return AsCharged
}

// RefundOn is for WithSettle: requests that are answered with one of these
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

// amend is what one charge shall have cost.
type amend struct {
	i    int // of the charge
	cost int64
}

// amends asks the permit's WithSettle functions what the request has cost.
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
				p.lim.observe(Event{Kind: EventSettleFailed, Request: s.Request(),
					Err: fmt.Errorf("stint: WithSettle: cost %d for %q: %w", cost, e.limit.Name(), store.ErrCost)})
			}
		}
		if cost >= 0 && cost <= store.MaxCost {
			all = append(all, amend{i, cost})
		}
	}
	return all
}

// due leaves of amends those that still have to be made. The caller holds p.mu.
func (p *Permit) due(amends []amend) []amend {
	return slices.DeleteFunc(amends, func(a amend) bool {
		return p.byHand(a.i) ||
			p.grants[a.i].reported() ||
			p.grants[a.i].result.Receipt.Cost == a.cost
	})
}

func (p *Permit) byHand(i int) bool { return p.response.byHand != nil && p.response.byHand[i] }

// settledByHand notes that the handler has settled the chosen charges. The
// caller holds p.mu.
func (p *Permit) settledByHand(chosen []int) {
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

// push sends what is complete to the client before a store is told of the amends,
// or of bytes that were paid for and not sent.
func (p *Permit) push(amends []amend) {
	if s := p.response; s != nil && (len(amends) > 0 || len(s.paced) > 0) {
		s.PushBefore(p.lim.store)
	}
}

// finish releases the permit's slots, makes the amends and gives back the bytes
// that were paid for and not sent, in one call. It reports whether amends have
// been made; the error is a *StoreError.
func (p *Permit) finish(amends []amend) (settled bool, err error) {
	p.mu.Lock() // Settle may be at the results
	defer p.mu.Unlock()
	var charges []store.Charge
	for i := range p.grants {
		if g := &p.grants[i]; g.result.Receipt.Lease != (store.LeaseID{}) {
			charges = append(charges, g.charge(0))
		}
	}
	held := len(charges)
	if len(amends) > 0 {
		amends = p.due(amends)
	}
	for _, a := range amends {
		charges = append(charges, p.grants[a.i].charge(a.cost))
	}
	if s := p.response; s != nil {
		charges = append(charges, s.End()...)
	}
	results, err := p.lim.settle(p.ctx, p.lim.store, charges)
	if err != nil {
		return false, err
	}
	for k, a := range amends {
		p.settled(a.i, results[held+k])
	}
	return len(amends) > 0, nil
}

// settled takes over the result of settling charge i. The caller holds p.mu.
func (p *Permit) settled(i int, r store.Result) {
	was := &p.grants[i].result
	r.OK, r.Delay = true, was.Delay
	*was = r
}
