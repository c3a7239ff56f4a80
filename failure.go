package stint

import (
	"fmt"
	"net/http"

	"github.com/stint-go/stint/internal/compile"
)

// FailurePolicy says what happens to a request that the store can't decide.
type FailurePolicy uint8

const (
	// FailOpen lets the request pass without RateLimit fields.
	FailOpen FailurePolicy = iota + 1
	// FailClosed answers 503 with a Retry-After.
	FailClosed
)

// WithFailurePolicy sets what happens to a request when the store fails. Of the limits
// of one request the strictest policy counts. That of the limiter also says what happens when
// the source of limits fails (see SourceError): the request passes without these limits, or is
// answered with 503. The default is FailOpen. New rejects values other than FailOpen and
// FailClosed.
func WithFailurePolicy(p FailurePolicy) SharedOption {
	return checkedSetting(p == FailOpen || p == FailClosed, fmt.Sprintf("WithFailurePolicy(%d)", p), "write stint.FailOpen or stint.FailClosed",
		func(s *compile.Settings) { s.FailureSet, s.Closed = true, p == FailClosed })
}

// StoreError is a failure of the store: under FailClosed, or of a Permit.Settle.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "stint: store: " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *StoreError) StatusCode() int { return http.StatusServiceUnavailable }
