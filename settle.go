package stint

import (
	"context"
	"net/http"
	"reflect"
	"slices"

	"github.com/stint-go/stint/internal/compile"
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
	settler := &read.Settler{Cost: cost, ByStatus: byStatus(cost)}
	return settleOption{checkedSetting(cost != nil, "WithSettle(nil)", "write a function, such as stint.FailedOnly, or leave it out",
		func(s *compile.Settings) { s.Settler = settler })}
}

// byStatus reports whether a function of WithSettle is one of this package, which look at
// nothing but the status.
func byStatus(cost func(*http.Request, int, int64) int64) bool {
	code := reflect.ValueOf(cost).Pointer()
	return code == reflect.ValueOf(FailedOnly).Pointer() || code == reflect.ValueOf(RefundOn()).Pointer()
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
	return p.coreOrNil().Settle(ctx, cost, limits)
}

// giveTurnsBack returns the function that gives back turns that a version's requests have reserved and
// no call uses.
func giveTurnsBack(v *version) turns.Settle {
	return func(ctx context.Context, charges []store.Charge) []store.Result {
		return giveBack(ctx, v, subject{observers: v.events.observers()}, charges)
	}
}

// giveBack settles charges of a request, even if ctx has ended, and returns the results. If it
// fails, it notifies observers and returns nil.
func giveBack(ctx context.Context, v *version, about subject, charges []store.Charge) []store.Result {
	s := v.backend.Settle(ctx, charges, about.observers != nil)
	v.events.sendUnsettled(about, s)
	return s.Results
}
