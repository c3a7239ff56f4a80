package stint

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// ErrBlocked is the reason of a refusal by WithBlock.
var ErrBlocked = errors.New("stint: blocked")

// DeniedError is the refusal of a request by its limits. Nothing was charged.
type DeniedError struct {
	Decision Decision

	by     *version // that refused
	status int
	banned bool // a ban refused
	// fields are the strings that the response's header holds, here to save
	// an allocation each.
	fields [fieldSlots]string
}

// Error names the limit that refused, never the key.
func (e *DeniedError) Error() string {
	s := "stint: denied by limit " + e.Decision.Limit
	switch after := e.Decision.RetryAfter; {
	case after == Never:
		s += ": costs more than it can ever hold"
	case after > 0:
		s += ", retry after " + after.String()
	}
	return s
}

// StatusCode is 429, or 503 where the concurrency of the whole service (a
// limit with the key Global) refused.
func (e *DeniedError) StatusCode() int {
	if e.status == 0 {
		return http.StatusTooManyRequests
	}
	return e.status
}

// StoreError is a failure of the store under FailClosed.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "stint: store: " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// StatusCode is 503.
func (e *StoreError) StatusCode() int { return http.StatusServiceUnavailable }

// requestError is a refusal for a reason other than a limit.
type requestError struct {
	err    error
	status int
	limit  string // the limit whose key it was; "" for none
}

func (e *requestError) Error() string {
	if e.limit == "" {
		return e.err.Error()
	}
	return "stint: limit " + e.limit + ": " + strings.TrimPrefix(e.err.Error(), "stint: ")
}

func (e *requestError) Unwrap() error { return e.err }

// StatusCode is 403 where the request is at fault, and 500 where a function of
// the application is, unless that function's error has a StatusCode of its own.
func (e *requestError) StatusCode() int { return e.status }

// statusOf is the status that an application's function asks for by its error,
// such as 401 of a KeyFunc that finds no session; 500 where it doesn't say, or
// asks for one that would not refuse.
func statusOf(err error) int {
	var s interface{ StatusCode() int }
	if errors.As(err, &s) {
		if status := s.StatusCode(); status >= 400 && status <= 599 {
			return status
		}
	}
	return http.StatusInternalServerError
}

// canceledError is a wait that ended because the caller left or ran out of
// time. What had been charged is given back.
type canceledError struct{ err error }

func (e *canceledError) Error() string { return "stint: canceled while waiting: " + e.err.Error() }
func (e *canceledError) Unwrap() error { return e.err }

// StatusCode is 503 where the service set the deadline that passed. Nobody
// reads the other one but logs: 499, as nginx calls it, is a client that left.
func (e *canceledError) StatusCode() int {
	if errors.Is(e.err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return 499
}

type deniedKey struct{}

// deniedContext carries the refusal to a deny handler.
type deniedContext struct {
	context.Context
	err *DeniedError
}

func (c *deniedContext) Value(key any) any {
	if key == (deniedKey{}) {
		return c.err
	}
	return c.Context.Value(key)
}

// DeniedFromContext returns, in a handler given to WithDenyHandler, the
// refusal it answers; elsewhere nil.
func DeniedFromContext(ctx context.Context) *DeniedError {
	err, _ := ctx.Value(deniedKey{}).(*DeniedError)
	return err
}
