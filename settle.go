package stint

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// WithCost sets the function that returns how many units a request costs. The default is 1. A
// request of cost 0 is never charged, denied or delayed. A negative cost is an error: the
// response has status 500. Costs above 2^40 count as 2^40. New returns an error if cost is nil.
// cost is called concurrently. A handler that learns the true cost later passes it to
// Permit.Settle.
//
// Given to New, With or WithRoute, WithCost is the default for rates and quotas there. A
// request takes one slot of a Concurrency or AdaptiveConcurrency unless that limit has a
// WithCost of its own. If a cost can never pass a limit, the limiter logs a warning
// (cost-too-high).
func WithCost(cost func(*http.Request) int64) ChargeOption {
	return checkedSetting(cost != nil, "WithCost(nil)", "pass a function, or leave it out if every request costs 1",
		func(s *compile.Settings) { s.Cost, s.Fixed = cost, 0 })
}

// WithFixedCost sets the same cost for all requests, for instance for the requests of a route.
// The default is 1. units is from 1 to 2^40. New returns an error for other values, and for a
// cost that can never pass a limit, or not within its WithMaxWait.
func WithFixedCost(units int64) ChargeOption {
	o := checkedSetting(units >= 1 && units <= store.MaxCost, fmt.Sprintf("WithFixedCost(%d)", units), "use 1 to 2^40",
		func(s *compile.Settings) {
			s.Cost, s.Fixed = func(*http.Request) int64 { return units }, units
		})
	o.name = "WithCost"
	return o
}

// AsCharged is the value that a function of [WithSettle] returns to leave the charge unchanged.
const AsCharged int64 = -1

// WithSettle sets the function that computes the cost of a request from its response. When the
// handler has returned, cost is called with the status and the number of body bytes written, and
// its result replaces the charge. By default a request keeps the cost that it was charged before
// the handler ran. A difference is refunded or charged in addition. An additional charge may
// delay later requests. AsCharged leaves the charge unchanged. cost gets the same request as the
// next handler, with its permit and, if the router sets them, its pattern and path values.
//
//	// Only failed logins count.
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute), stint.WithSettle(stint.FailedOnly))
//
// Before the handler runs, the request is charged a provisional cost: 1, or the result of
// WithCost. So concurrent requests can't exceed the limit before they are settled. If cost
// isn't called, the provisional charge remains: outside HTTP (Take, Wait), and in an adapter
// that doesn't pass on the writer of Limiter.Admit. WithSettle applies to Rate and Quota only.
// New returns an error if cost is nil. cost is called concurrently.
//
//   - cost is called once per request for all limits that share the option, on the request's
//     goroutine. It is called even if the client has disconnected.
//   - A limit that the handler has settled by Permit.Settle isn't settled again.
//   - If the request is ambiguous (docs/routes.md) and its routes settle a limit by different
//     WithSettles, the limit is never settled below its charge, and the highest cost counts.
//   - If the handler panics, the status is 500, whatever the handler wrote before. After a
//     panic with http.ErrAbortHandler, the status is the one that the handler wrote, or 500 if
//     the handler wrote none.
//   - After a Hijack the status is 101, and written is the number of bytes written before the
//     Hijack.
//   - For a gRPC response with 200 (Content-Type application/grpc…), the status is translated
//     from its grpc-status: 401 for UNAUTHENTICATED, 503 for UNAVAILABLE.
//   - Permit.Done and Permit.Detach don't change when cost is called.
//   - For HEAD, written is 0, whatever the handler writes.
//   - If the client has disconnected and the handler returns without writing a response, the
//     status is 499, as in nginx's logs.
//
// Observers get an [EventSettled], or an [EventSettleFailed] if the charge can't be settled and
// therefore isn't changed. A store outside of the process is called once, when the handler has
// returned, for all settlements and releases of slots. The call may take up to 2 seconds. It
// delays the end of a response only if the response has no Content-Length.
func WithSettle(cost func(r *http.Request, status int, written int64) int64) ChargeOption {
	settler := &read.Settler{Cost: cost}
	return unitsOption{checkedSetting(cost != nil, "WithSettle(nil)", "pass a function, such as stint.FailedOnly, or leave it out",
		func(s *compile.Settings) { s.Settler = settler })}
}

// FailedOnly is a function for WithSettle: requests with a response status below 400, or with
// grpc-status 0, cost nothing. Use FailedOnly to count failed logins. If the client disconnects
// before the response, the request keeps its cost.
func FailedOnly(_ *http.Request, status int, _ int64) int64 {
	if status < 400 {
		return 0
	}
	return AsCharged
}

// RefundOn returns a function for [WithSettle] that refunds a request if its response has one
// of the statuses, for instance 304 or 503.
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
// refund is limited to the tokens that haven't been refilled since the charge. An additional
// cost is always charged, and may delay later requests. cost is from 0 to 2^40. Another call of
// Settle replaces the earlier cost. Settle may be called after the handler has returned.
//
// Settle works even if ctx has ended, because a request's context ends when the client
// disconnects. The store's context has the values of ctx and a timeout of 2 seconds. redisstore
// takes no longer than its WithTimeout.
//
// Settle applies to the named limits. If no limit is named, Settle applies to the limits with a
// WithCost or, if there are none, to all rates and quotas. It never applies to concurrency
// limits. If the request has passed several limiters, a name selects the innermost limit of
// that name. Without names, Settle applies to the innermost limiter with a WithCost or, if
// there is none, to the innermost limiter. Dry runs don't affect this choice.
//
// Settle returns an error if cost is out of range, if the permit has no limit of a given name,
// if a limit can't be settled, or if the store fails (a *StoreError). After an error the charge
// isn't changed, unless the outcome is unknown, for instance because the store's reply was
// lost. Settle may be called again if the error wraps store.ErrNotMade (errors.Is). After an
// unknown outcome, the charge can't be settled again, because the difference might be refunded
// twice: later calls of Settle return an error, and a WithSettle skips the charge.
//
// After an Extend, Settle can't go below the cost before the last raise. Settle waits for an
// Extend that is under way.
func (p *Permit) Settle(ctx context.Context, cost int64, limits ...string) error {
	return p.coreOrNil().Settle(ctx, cost, limits)
}

// Extend raises the cost of a request that has begun, for instance while a response streams.
// cost is the total so far, in units of the limits, from 0 to 2^40. Extend charges the
// difference to every limit that Settle with the same arguments would settle. If one of them
// denies it, nothing is charged, the request keeps what it holds, and the error is a
// *DeniedError. A limit whose cost is as high already isn't asked; if none is asked, Extend
// returns nil.
//
//	for chunk := range chunks {
//		used += chunk.Tokens
//		if err := p.Extend(ctx, used); err != nil {
//			return err // the budget is used up
//		}
//		write(chunk)
//	}
//
// A limit with WithMaxWait or a queue makes Extend wait. It is served before requests that haven't been
// admitted yet. Limiter.Wait doesn't change how long Extend waits. A step above the burst of a bucket, or
// above burst and queue with a WithQueue, is always denied: split it into smaller steps. Extend uses the
// numbers that an Update has given the limits meanwhile.
//
// A Ban of the same limiter that is in force denies the raise. A Ban doesn't count denied
// raises. A dry run never denies: what it would have denied isn't charged to it.
//
// If the store fails, Extend returns nil, or a *StoreError if one of the limits is FailClosed.
// The difference is then never charged later, not even by Settle or WithSettle. If no limit
// applies to the request, or if Take returned the permit while the store failed, Extend charges
// nothing and returns nil.
//
// Extend returns an error, and charges nothing, if cost is out of range, if ctx has ended, if
// the permit has no limit of a given name, if a limit can't be settled, or if the named limits
// are of several limiters, which don't decide together. The error wraps ctx's error if ctx ends
// while Extend waits. If ctx's deadline ends the wait, the error is a *DeniedError.
//
// Calls of Extend on one permit take turns. The end of the permit (Done, or the return of the
// handler) cancels an Extend that waits, and those that wait for their turn: they return an
// error that wraps context.Canceled, and charge nothing. Don't call Extend after the end.
//
// When the response has begun, its status can't change any more. End the stream in a way that
// its client understands, for instance by an event. Limiter.Deny writes nothing after the
// beginning of a response whose writer the limiter wraps (see Limiter.Admit).
//
// Observers get one EventExtended for each call that asks the store.
func (p *Permit) Extend(ctx context.Context, cost int64, limits ...string) error {
	return p.coreOrNil().Extend(ctx, cost, limits)
}
