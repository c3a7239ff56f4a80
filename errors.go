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
	fields [4]string
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

// StatusCode is 403 where the request is at fault, and what statusOf says where a
// function of the application has failed.
func (e *requestError) StatusCode() int { return e.status }

// statusOf is the status that an error asks for, such as 401 of a KeyFunc that
// finds no session. Without one, or with one that would not refuse, it is 503
// where a context has ended and 500 otherwise.
func statusOf(err error) int {
	var s interface{ StatusCode() int }
	if errors.As(err, &s) {
		if status := s.StatusCode(); status >= 400 && status <= 599 {
			return status
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// canceledError is a decision or a wait that ended because its context did: the
// client left, or the server gave the request up. What had been charged is given
// back.
type canceledError struct{ err error }

func (e *canceledError) Error() string { return "stint: not admitted: " + e.err.Error() }
func (e *canceledError) Unwrap() error { return e.err }

// StatusCode is 503, whoever ended the context: a server that shuts down and a
// client that has left look alike, and only one of them reads the answer.
func (e *canceledError) StatusCode() int { return http.StatusServiceUnavailable }

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
