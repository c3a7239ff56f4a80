package stint

import (
	"errors"
	"slices"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
)

// DeniedError is the denial of a request by its limits. Nothing was charged. Find it
// with errors.As, or ask errors.Is(err, ErrDenied).
type DeniedError struct {
	Decision Decision

	by  *version // the one that denied
	why limit.Denial
}

// ErrDenied matches every *DeniedError: errors.Is(err, ErrDenied) reports whether
// limits have denied a request.
var ErrDenied = errors.New("stint: denied")

// Is reports whether target is ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// Error returns the name of the limit that denied, never the key.
func (e *DeniedError) Error() string {
	s := "stint: denied by limit " + e.Decision.Limit
	switch after, ok := e.Decision.Retry(); {
	case e.Decision.RetryAfter == Never:
		s += ": costs more than it can ever hold"
	case e.full():
		s += ": its slots are taken"
	case ok:
		s += ", retry after " + after.String()
	}
	return s
}

// full reports whether the limit that denied is one of slots.
func (e *DeniedError) full() bool {
	return slices.ContainsFunc(e.Decision.Limits, func(l LimitStatus) bool {
		return l.Name == e.Decision.Limit && l.InFlight > 0
	})
}

// StatusCode returns 429, or 503 if the concurrency of the whole service (a limit with
// the key Global) denied.
func (e *DeniedError) StatusCode() int { return problems[e.why].Status() }

// problems are what the client gets.
var problems = [...]field.Problem{
	limit.QuotaExceeded: field.QuotaExceeded, limit.ReducedCapacity: field.ReducedCapacity, limit.AbnormalUsage: field.AbnormalUsage,
}

// denied1 and denied4 are denials with room for their limits, which saves an allocation.
type (
	denied1 struct {
		DeniedError
		limits [1]LimitStatus
	}
	denied4 struct {
		DeniedError
		limits [4]LimitStatus
	}
)

// newDenied returns the error of a call that a version has denied.
func newDenied(v *version, c *decide.Call) *DeniedError {
	var err *DeniedError
	var limits []LimitStatus
	switch n := len(c.Results); {
	case n == 1:
		d := new(denied1)
		err, limits = &d.DeniedError, d.limits[:]
	case n <= 4:
		d := new(denied4)
		err, limits = &d.DeniedError, d.limits[:n:n]
	default:
		err, limits = new(DeniedError), make([]LimitStatus, n)
	}
	err.Decision.set(c, limits)
	err.by, err.why = v, whyDenied(c)
	return err
}

// whyDenied returns what the denial of a call means.
func whyDenied(c *decide.Call) (why limit.Denial) {
	for i, l := range c.Limits {
		if !c.Results[i].OK && !l.DryRun {
			why = max(why, l.Denial(&c.Charges[i]))
		}
	}
	return why
}

// denialIn finds the denial by limits that err is or wraps, or nil.
func denialIn(err error) *DeniedError {
	if de, ok := err.(*DeniedError); ok { // errors.As allocates
		return de
	}
	if de := (*DeniedError)(nil); errors.As(err, &de) {
		return de
	}
	return nil
}
