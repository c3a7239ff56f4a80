package stint

import (
	"errors"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// DeniedError is the denial of a request by its limits. Nothing was charged. Find it
// with errors.As, or ask errors.Is(err, ErrDenied).
type DeniedError struct {
	Decision Decision

	by      *version // the one that denied
	why     limit.Denial
	outside bool // by Allow, Take or Wait: no response has its fields
}

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

// newDeniedOutside is newDenied outside HTTP.
func newDeniedOutside(v *version, c *decide.Call) *DeniedError {
	err := newDenied(v, c)
	err.outside = true
	return err
}

// setFields sets the header fields of a denial outside HTTP, as admission.setFields does for a
// request. All limits are the version's own.
func (e *DeniedError) setFields(h http.Header) {
	var fields field.Writer
	for _, s := range e.Decision.Limits {
		i := slices.IndexFunc(e.by.plans.Base.Entries, func(of *read.Entry) bool { return of.Name() == s.Name })
		if i < 0 || s.DryRun {
			continue
		}
		of := e.by.plans.Base.Entries[i]
		it := fields.Add()
		*it = field.Item{
			Name: s.Name, Policy: of.Policy.Load().Text, Capacity: s.Capacity,
			Remaining: s.Remaining, Reset: s.ResetAfter, Denied: !s.Allowed, Retry: s.RetryAfter, More: -1,
		}
		if of.Needs&limit.Local != 0 && it.Policy != "" {
			it.Policy = field.Policy(s.Name, s.Capacity, 0)
		}
		r := store.Result{OK: s.Allowed, RetryAfter: s.RetryAfter, MoreAfter: s.more}
		if after, known := inside.MoreAfter(of.Limit.Limit, &r); known {
			it.More = after
		}
	}
	fields.Jitter = e.by.retryJitter
	fields.Write(h, e.by.styles, "")
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
