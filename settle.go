package stint

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/turns"
	"github.com/stint-go/stint/store"
)

// AsCharged, returned by the function of a WithSettle, leaves the charge unchanged.
const AsCharged int64 = -1

// WithSettle gives a request its true cost once its response is known. When the handler has
// returned, cost is called with the status and the number of body bytes written, and the charge
// is replaced by its result: the difference is refunded, or owed by the next request. AsCharged
// leaves the charge unchanged. cost gets the same request as the next handler, with its permit
// and, if the router sets them, its pattern and path values.
//
//	// Only failed logins count.
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute), stint.WithSettle(stint.FailedOnly))
//
// The provisional charge is made before the handler runs, so that concurrent requests can't
// pass on credit. It is 1, or the cost that a WithCost beside it returns. The provisional
// charge stands if cost isn't called: outside HTTP (Take, Wait), and in an adapter that doesn't
// pass on the writer of Limiter.Admit. WithSettle applies to Rate and Quota; slots of a
// concurrency limit are released instead. New returns an error if cost is nil. cost is called
// concurrently.
//
//   - cost is called once per request, for all limits that share the option, on the
//     request's goroutine, even if the client has left.
//   - A limit that the handler has settled by Permit.Settle isn't settled again.
//   - If the request is ambiguous (docs/routes.md) and its routes settle a limit differently,
//     nothing is refunded and the highest cost counts.
//   - If the handler panics, the status is 500, whatever the handler wrote before. After a
//     panic with http.ErrAbortHandler it is the status written, or 500 if none was.
//   - After a Hijack the status is 101, and written counts what was written before it.
//   - For a gRPC response with 200 (Content-Type application/grpc…), the status is translated
//     from its grpc-status: 401 for UNAUTHENTICATED, 503 for UNAVAILABLE.
//   - Permit.Done and Permit.Detach have no influence: cost is called when the handler has
//     returned.
//   - For HEAD, written is 0, whatever the handler writes.
//   - If the client has left and the handler returns without an answer, the status is 499, as
//     in nginx's logs.
//
// Observers get an EventSettled, or an EventSettleFailed if the charge can't be settled and
// therefore stands. Settling takes no noticeable time in memory. Any other store is called when
// the handler has returned, once for all settlements and releases of slots, for up to 2
// seconds. The client waits for that only if the response doesn't declare its Content-Length.
func WithSettle(cost func(r *http.Request, status int, written int64) int64) ChargeOption {
	by := &read.Settler{Cost: cost, ByStatus: byStatus(cost)}
	return settleOption{checkedSetting(cost != nil, "WithSettle(nil)", "write a function, such as stint.FailedOnly, or leave it out",
		func(s *compile.Settings) { s.Settler = by })}
}

// byStatus reports whether a function of WithSettle is one of this package, which look at
// nothing but the status.
func byStatus(cost func(*http.Request, int, int64) int64) bool {
	at := reflect.ValueOf(cost).Pointer()
	return at == reflect.ValueOf(FailedOnly).Pointer() || at == reflect.ValueOf(RefundOn()).Pointer()
}

// FailedOnly is a function for WithSettle: requests answered with a status below 400, or
// grpc-status 0, cost nothing, such as successful logins. A request whose client left before it was
// answered keeps its cost.
func FailedOnly(_ *http.Request, status int, _ int64) int64 {
	if status < 400 {
		return 0
	}
	return AsCharged
}

// RefundOn returns a function for WithSettle: requests answered with one of these
// statuses cost nothing, such as 304 and 503.
//
//go:noinline
func RefundOn(statuses ...int) func(r *http.Request, status int, written int64) int64 {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int, _ int64) int64 {
		if slices.Contains(statuses, status) {
			return 0
		}
		return AsCharged
	}
}

// Settle replaces the request's provisional cost, refunding or charging the difference. A
// refund is limited to the tokens that haven't been refilled since; an additional cost is owed
// by the next request. cost is from 0 to 2^40. Settling again replaces the earlier cost. Settle
// may be called after the handler has returned.
//
// Settle works even if ctx has ended, since a request's context ends when the client
// disconnects. The store gets the values of ctx without its deadline, and has up to 2 seconds;
// redisstore takes no longer than its WithTimeout.
//
// Settle applies to the limits named. If none is named, it applies to the limits with a
// WithCost or, if there are none, to all rates and quotas; never to concurrency. If the request
// has passed several limiters, a name means the innermost limit of that name; without names,
// the innermost limiter with a WithCost is settled or, if none has one, the innermost limiter.
// Dry runs don't change that choice. If the request is ambiguous (docs/routes.md), Settle
// without names applies to each limit that it would apply to in any interpretation, and refunds
// only limits that it applies to in all of them.
//
// Settle returns an error if cost is out of range, if the permit has no limit of a name, if a
// limit can't be settled, or if the store fails (a *StoreError): then the charge stands. If the
// outcome is unknown, for instance because the store's answer was lost, the charge is never
// settled again, since the difference might be refunded twice: later calls of Settle return an
// error, and a WithSettle skips it. If the error wraps store.ErrNotMade (errors.Is), Settle may
// be called again.
func (p *Permit) Settle(ctx context.Context, cost int64, limits ...string) error {
	if p == nil || p.version == nil { // nothing was decided
		return nil
	}
	if cost < 0 || cost > store.MaxCost {
		return fmt.Errorf("stint: Settle: %w: %d: write 0 to 2^40", store.ErrCost, cost)
	}
	amends := map[*Permit][]decide.Amend{}
	if len(limits) == 0 {
		p.withoutNames(cost, amends)
	}
	for _, name := range limits {
		q, all := p.grantsNamed(name)
		if q == nil {
			return fmt.Errorf("stint: Settle: the permit has no limit %q", name)
		}
		for _, i := range all {
			if why := q.grants.At(i).Limit.Kind.Traits().Unsettled; why != "" {
				return fmt.Errorf("stint: Settle: %q is %s", name, why)
			}
			if a := (decide.Amend{Grant: i, Cost: cost}); !slices.Contains(amends[q], a) {
				amends[q] = append(amends[q], a)
			}
		}
	}
	for q := p; q != nil; q = q.outer {
		if err := q.settle(ctx, amends[q]); err != nil {
			return err
		}
	}
	return nil
}

// grantsNamed finds the limit of a name, from p outwards. A request that is held to several
// routes may be charged for it under several keys.
func (p *Permit) grantsNamed(name string) (*Permit, []int) {
	for q := p; q != nil; q = q.outer {
		if all := q.grants.Where(func(l *limit.Limit) bool { return l.StoreLimit.Name() == name }); len(all) > 0 {
			return q, all
		}
	}
	return nil, nil
}

// preference is how soon Settle without names applies to a limit: to those of the lowest preference
// that a request has, and there to those of the innermost limiter. Enforced limits come first.
type preference int

const (
	withCost preference = iota
	rate
	dryRunWithCost
	dryRunRate
	none
)

func preferenceOf(u limit.Use) preference {
	n := rate
	if u.Costs {
		n = withCost
	}
	if u.DryRun {
		n += dryRunWithCost
	}
	return n
}

// takes reports whether the limits chosen by a preference include one.
func (n preference) takes(u limit.Use) bool { return u.Costs || n == rate || n == dryRunRate }

// preferences returns that of the permit's limits, in each reading of its request.
func (p *Permit) preferences() []preference {
	all := make([]preference, len(p.plan.Readings()))
	for reading := range all {
		all[reading] = none
		for i := range p.grants.Len() {
			l := p.grants.At(i).Limit
			if u, ok := l.UseIn(reading); ok && l.Kind.Traits().Unsettled == "" {
				all[reading] = min(all[reading], preferenceOf(u))
			}
		}
	}
	return all
}

// withoutNames adds what a Settle without names makes of the charges. If some of the limiters
// passed have read the request in several ways, it applies to each limit that it applies to by
// some combination of readings, and refunds what it applies to by all.
func (p *Permit) withoutNames(cost int64, amends map[*Permit][]decide.Amend) {
	var passed []*Permit
	var of [][]preference
	for q := p; q != nil; q = q.outer {
		passed, of = append(passed, q), append(of, q.preferences())
	}
	// chosen reports whether limiter k is chosen by its preference n, if most is what the others
	// have in the reading that favors them least, or most.
	chosen := func(k int, n preference, most func([]preference) preference) bool {
		for i, other := range of {
			if i < k && most(other) <= n || i > k && most(other) < n {
				return false
			}
		}
		return true
	}
	for k, q := range passed {
		for i := range q.grants.Len() {
			g := q.grants.At(i)
			some, all := false, true
			for reading, n := range of[k] {
				if u, ok := g.Limit.UseIn(reading); ok && g.Limit.Kind.Traits().Unsettled == "" {
					some = some || n.takes(u) && chosen(k, n, slices.Max)
					all = all && n.takes(u) && chosen(k, n, slices.Min)
				}
			}
			switch {
			case some && all:
				amends[q] = append(amends[q], decide.Amend{Grant: i, Cost: cost})
			case some:
				amends[q] = append(amends[q], decide.Amend{Grant: i, Cost: max(cost, g.Cost)})
			}
		}
	}
}

// settle replaces the cost of charges.
func (p *Permit) settle(ctx context.Context, amends []decide.Amend) error {
	if len(amends) == 0 {
		return nil
	}
	done := p.grants.Settle(ctx, p.version.backend, amends, p.to != nil, p.hand())
	switch {
	case done.Err != nil && len(done.Charges) == 0:
		return &StoreError{done.Err}
	case done.Err != nil:
		return p.version.events.sendUnsettled(p.subject(), done)
	case done.Amended:
		p.sendSettled(done.Took)
	}
	return nil
}

// hand returns what remembers which charges the handler has settled itself, or nil if
// nothing depends on that.
func (p *Permit) hand() *decide.Hand {
	if p.response == nil {
		return nil
	}
	return &p.response.byHand
}

// amends calls the permit's WithSettle functions.
func (p *Permit) amends() (all []decide.Amend) {
	s := p.response
	if s == nil {
		return nil
	}
	got, ok := s.Outcome()
	if !ok {
		return nil
	}
	costs := map[*read.Settler]int64{}
	for i, by := range s.settlers {
		if by == nil {
			continue
		}
		cost, atLeast := by.FinalCost(func(one *read.Settler) int64 {
			cost, asked := costs[one]
			if !asked {
				cost = one.Cost(s.Request(), got.Status, got.Written)
				if cost != AsCharged && (cost < 0 || cost > store.MaxCost) {
					g := p.grants.At(i)
					err := fmt.Errorf("stint: WithSettle: limit %s: %w: %d: return 0 to 2^40, or AsCharged", g.Limit.StoreLimit.Name(), store.ErrCost, cost)
					about := store.Charge{Key: g.Key, Limit: g.Limit.StoreLimit, Cost: cost, DryRun: g.Limit.DryRun}
					p.version.events.sendSettleFailed(p.subject(), []store.Charge{about}, 0, err)
					cost = AsCharged
				}
				costs[one] = cost
			}
			return cost
		})
		if cost >= 0 {
			all = append(all, decide.Amend{Grant: i, Cost: cost, AtLeast: atLeast})
		}
	}
	return all
}

// sendSettled notifies the observers that the request's cost has changed.
func (p *Permit) sendSettled(took time.Duration) {
	if p.to == nil {
		return
	}
	e := p.event(EventSettled)
	e.StoreTook = took
	if p.response != nil {
		e.Request = p.response.Request()
	}
	p.sendDecision(&e)
}

// giveTurnsBack returns the function that gives back turns that a version's requests have reserved and
// no call uses.
func giveTurnsBack(v *version) turns.Settle {
	return func(ctx context.Context, charges []store.Charge) []store.Result {
		return giveBack(ctx, v, subject{to: v.events.observers()}, charges)
	}
}

// giveBack settles charges of a request, even if ctx has ended, and returns the results. If it
// fails, it notifies observers and returns nil.
func giveBack(ctx context.Context, v *version, of subject, charges []store.Charge) []store.Result {
	done := v.backend.Settle(ctx, charges, of.to != nil)
	v.events.sendUnsettled(of, done)
	return done.Results
}
