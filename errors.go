package stint

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// The errors of requests and calls, for errors.Is. Errors with details have types of their own:
// [DeniedError], [StoreError], [SourceError] and [OptionError].
var (
	// ErrDenied matches every *DeniedError: errors.Is(err, ErrDenied) reports whether
	// limits have denied a request.
	ErrDenied = errors.New("stint: denied")
	// ErrBlocked is the error of a request that a [WithBlock] predicate denies. The response
	// has status 403.
	ErrBlocked = errors.New("stint: blocked by a WithBlock predicate")
	// ErrEmptyKey is the error of a request whose key is empty, unless WithEmptyKey
	// exempts such requests.
	ErrEmptyKey = keytext.ErrEmpty
	// ErrKeyTooLong is the error of a request whose key is longer than 4 KiB.
	ErrKeyTooLong = keytext.ErrTooLong
	// ErrNoLimits is the error if no limit applies to a request because a WithLimitFunc
	// returned neither limits nor an error. The response has status 500, and the error is
	// logged.
	ErrNoLimits = read.ErrNoLimits
	// ErrHolds is the error of Allow on a limiter with a Concurrency or an AdaptiveConcurrency.
	// A slot must be released, and Allow returns no permit to release it. Use Take instead, and
	// call Done on the permit.
	ErrHolds = errors.New("stint: Allow: the limiter has a limit with slots: use Take, and call Done")
)

// StoreError reports that the store failed. Under FailClosed, a StoreError is the error of the
// request. Permit.Settle always returns the StoreError.
type StoreError struct{ Err error }

func (e *StoreError) Error() string { return "stint: store: " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *StoreError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *StoreError) StatusCode() int { return http.StatusServiceUnavailable }

// SourceError reports that limits couldn't be loaded. A function of WithLimitFunc or
// WithLimitSource returns a SourceError if its source fails. Under FailClosed, a SourceError is
// the error of the request. Peek and Reset always return the SourceError.
type SourceError struct{ Err error }

func (e *SourceError) Error() string {
	if e.Err == nil {
		return "stint: limits can be loaded again"
	}
	return "stint: limits could not be loaded: " + strings.TrimPrefix(e.Err.Error(), "stint: ")
}

// Unwrap returns the source's own error.
func (e *SourceError) Unwrap() error { return e.Err }

// StatusCode returns 503.
func (e *SourceError) StatusCode() int { return http.StatusServiceUnavailable }

// OptionError is one problem with options. New, Check, With and Update join all problems in one
// error (errors.Join). Each joined error is, or wraps, an *OptionError.
type OptionError struct {
	// Limit is the name of the limit that the problem is about; empty for none, and for several.
	Limit string
	// Route is the pattern of the WithRoute that contains it; empty for none.
	Route string
	// Option is the wrong option, with its argument if only the argument is wrong:
	// "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". Option is empty if the limit's
	// own numbers are wrong, or if an option is missing.
	Option string
	// Problem describes the problem. It is empty if Option alone shows the problem.
	Problem string
	// Write is the correction: "use 0 or more", "leave it out".
	Write string

	named *store.SpecError // Problem and Write, if they contain names
}

// Names returns the Go identifiers in Problem and then in Write, in order, such as
// "TokenBucket" or "time.Second". Tools whose users write something other than Go, such as a
// configuration file, replace them.
func (e *OptionError) Names() []string {
	if e.named == nil {
		return nil
	}
	return slices.Clone(e.named.Names)
}

// Error returns the fields that are set: route, limit, option, problem and correction.
func (e *OptionError) Error() string {
	return optionerror.Text(e.Route, e.Limit, e.Option, e.Problem, e.Write)
}

// optionError returns a problem as an error.
func optionError(p *optionerror.Problem) *OptionError {
	return &OptionError{p.Limit, p.Route, p.Option, p.What, p.Write, p.Named}
}

// optionErrors returns problems as the elements of one error, each with a heading.
func optionErrors(all optionerror.List, heading string) []error {
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = fmt.Errorf("%s%w", heading, optionError(m))
	}
	return errs
}

// joinProblems returns one error for all problems, or nil.
func joinProblems(all optionerror.List) error { return errors.Join(optionErrors(all, "stint: ")...) }
