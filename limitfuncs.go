package stint

import (
	"context"
	"errors"
	"net/http"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
)

// WithLimitFunc adds limits that depend on the request, such as the limits of a tenant's plan.
// These limits are decided together with those of the limiter and its routes. They don't apply
// on a route with Only or Exempt. By default a limiter has no such function. WithLimitFunc
// requires a default WithKey. New returns an error if f is nil. f is called concurrently.
//
// If f returns an error, the request is denied and the error is passed to the error handler.
// The status is the result of the error's StatusCode() int method, or 500 without one. If the
// error wraps a *SourceError, the limiter's WithFailurePolicy decides instead. If f returns
// neither limits nor an error, and no other limit applies to the request, the request is denied
// with ErrNoLimits, so that a missing plan doesn't admit all requests. To add no limit
// deliberately, return Exempt().
//
// Every limit needs a WithName, unique among the request's limits. A Limit is compiled once,
// however often it is returned, so return the same values where possible: package variables, or
// the cached values of package tenants. Limits with the same name in different plans share a
// key's counts, so a tenant that changes plans keeps its counts.
//
// Allow, Take, Peek and Reset have no request, so they ignore the limits of f. For limits that
// depend on a key only, use [WithLimitSource].
func WithLimitFunc(f func(*http.Request) ([]Limit, error)) Option {
	return option("WithLimitFunc", func(c *config) {
		addFunc(c, func(fn *compile.Func) *limitFunc { return &limitFunc{fn: fn, ofRequest: f} })
		if f == nil {
			c.Errs.Add("WithLimitFunc(nil)", "", "pass a function, or leave it out")
		}
	})
}

// WithLimitSource adds limits that depend on a key, such as the tenant, and that are loaded at
// run time, for instance by package tenants. By default a limiter has no source. For a request,
// s is called with the key that k returns, which may be empty, but is at most 4 KiB long
// (ErrKeyTooLong). The last argument of s is the limiter that calls s. Allow, Take, Wait, Peek,
// PeekAll and Reset call s with the key that they are given. If s returns invalid limits, the
// error is also a *SourceError.
//
// If k or s returns an error without limits, the request is denied as after an error of a
// WithLimitFunc. If s returns both limits and an error, the limits apply and the error is only
// reported: as an EventSourceFailed if the error wraps a *SourceError, otherwise as an
// EventLimitsFailed. A *SourceError without Err beside limits reports that the source answers
// again. s is called concurrently.
//
// New returns an error if s is nil, and if k is GivenKey or a key that WithKey rejects. An
// adapter panics if it mounts a limiter whose k it can't compute from its requests.
func WithLimitSource(k Key, s func(ctx context.Context, key string, by LimitUser) ([]Limit, error)) Option {
	return option("WithLimitFunc", func(c *config) {
		problems := k.described().Problems.Within("WithLimitSource")
		if k.described().Given {
			problems.Add("WithLimitSource(GivenKey())", compile.NoGivenKey, `use another key, such as stint.Header("X-Tenant")`)
		}
		if s == nil {
			problems.Add("WithLimitSource", "the function is nil", "pass a function, or leave the option out")
		}
		c.Errs = append(c.Errs, problems...)
		// also with problems, or New would report that there are no limits, too
		addFunc(c, func(fn *compile.Func) *limitFunc {
			fn.Source = k.key
			return &limitFunc{fn: fn, ofKey: s}
		})
	})
}

// LimitUser is a limiter that calls the function of a [WithLimitSource].
type LimitUser struct{ fn *compile.Func }

// ID returns a comparable value that identifies the limiter and stays the same after an Update.
// The ID of the zero LimitUser is nil.
func (u LimitUser) ID() any {
	if u.fn == nil {
		return nil
	}
	return u.fn.Owner
}

// Check returns an error if a function of [WithLimitSource] or [WithLimitFunc] can't return
// limits together. It reports a zero Limit, invalid numbers and options, two limits with the
// same name, a limit without a WithName, names that the limiter already uses, and conflicts
// with the limiter's defaults, such as a cost that can never pass. The error is made by
// errors.Join and holds an [*OptionError] for each problem. Call Check before you replace valid
// limits by new ones. The zero LimitUser checks limits that no limiter uses yet.
func (u LimitUser) Check(limits ...Limit) error {
	problems := problemsTogether(limits)
	for _, l := range limits {
		if u.fn != nil && l.rule != nil && l.rule != exempt {
			problems = append(problems, u.fn.Check(l.rule)...)
		}
	}
	return joinProblems(problems)
}

// addFunc adds the limit function that newFunc returns.
func addFunc(c *config, newFunc func(*compile.Func) *limitFunc) {
	c.Funcs = append(c.Funcs, func(fn *compile.Func) *read.Func {
		function := newFunc(fn)
		charging := &read.Func{}
		charging.Charge = func(q *read.Reading) error { return function.charge(q, charging.SourceSample) }
		if function.ofKey != nil {
			charging.OfKey = function.entries
		}
		return charging
	})
}

// limitFunc is one WithLimitFunc or WithLimitSource.
type limitFunc struct {
	fn        *compile.Func
	ofRequest func(*http.Request) ([]Limit, error)                                 // or
	ofKey     func(ctx context.Context, key string, by LimitUser) ([]Limit, error) // of a WithLimitSource
}

// isDryRun reports whether a limit that the function returned is a dry run.
func (f *limitFunc) isDryRun(l Limit) bool {
	if l.rule == nil {
		return f.fn.Defaults.DryRun
	}
	return l.rule.Settings.WithDefaults(f.fn.Defaults).DryRun
}

// entry returns the entry of a limit that the function returned, or why it can't be used.
func (f *limitFunc) entry(q *read.Reading, l Limit) (*read.Entry, error) {
	switch l.rule {
	case nil:
		return nil, optionError(errZeroLimit)
	case exempt:
		return nil, optionError(errExemptBeside)
	}
	e, problems := f.fn.Entry(l.rule)
	switch {
	case problems != nil:
		return nil, errors.Join(optionErrors(problems, "")...)
	case f.fn.StoreShared() && !l.rule.Named:
		return nil, optionError(compile.NameMissing("", l.rule))
	case q.Has(e.Name()):
		return nil, optionError(compile.NameTaken("", e.Name()))
	}
	return e, nil
}

// charge adds the charges of the limits that the function returns for a request. sample is of the key of a
// source.
func (f *limitFunc) charge(q *read.Reading, sample *keysample.Sample) error {
	limits, err := f.limits(q, sample)
	return f.each(q, limits, err, !f.fn.Defaults.Closed, q.ChargeReturned)
}

// limits calls the function for a request.
func (f *limitFunc) limits(q *read.Reading, sample *keysample.Sample) ([]Limit, error) {
	if f.ofKey == nil {
		return f.ofRequest(q.R)
	}
	key, err := q.SourceKey(f.fn.Source, sample)
	switch {
	case err != nil:
		return nil, err
	case len(key) > keytext.MaxRaw:
		return nil, ErrKeyTooLong
	}
	return f.ofKey(q.R.Context(), key, LimitUser{f.fn})
}

// entries returns the entries of the limits that the source has for a key. If peeks is set, a failure of
// the source is an error whatever the failure policy, and a denial of the key is none.
func (f *limitFunc) entries(ctx context.Context, q *read.Reading, key string,
	peeks bool) (all []*read.Entry, err error) {
	if len(key) > keytext.MaxRaw {
		return nil, ErrKeyTooLong
	}
	limits, err := f.ofKey(ctx, key, LimitUser{f.fn})
	err = f.each(q, limits, err, !peeks && !f.fn.Defaults.Closed, func(e *read.Entry) error {
		all = append(all, e)
		return nil
	})
	if peeks && !errors.As(err, new(*SourceError)) {
		err = nil
	}
	return all, err
}

// each calls charge for the entry of each limit that the function has returned, beside err. It returns the
// denial of the request, if there is one. open says that the request passes if the source fails.
func (f *limitFunc) each(q *read.Reading, limits []Limit, err error, open bool, charge func(*read.Entry) error) error {
	if err != nil {
		var source *SourceError
		some := len(limits) > 0
		if some && errors.As(err, &source) && source.Err == nil {
			q.RecordSourceAnswers()
		} else if err := f.fail(q, &failure.Error{Err: err,
			Source: &failure.Source{Holds: holding(limits, err), Invalid: errors.As(err, new(*OptionError))},
			Beside: some, WouldDeny: !some && f.fn.Defaults.DryRun}, open); err != nil || !some {
			return err
		}
	}
	if len(limits) == 1 && limits[0].rule == exempt {
		return nil
	}
	if len(limits) == 0 && !f.fn.Defaults.DryRun {
		q.RecordNoLimits()
	}
	for _, l := range limits {
		e, err := f.entry(q, l)
		switch {
		case err == nil:
			err = charge(e)
		default:
			if f.ofKey != nil {
				err = &SourceError{err}
			}
			err = f.fail(q, &failure.Error{Err: err, WouldDeny: f.isDryRun(l),
				Source: &failure.Source{Holds: "requests pass without them", Invalid: true}}, open)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fail records why the function returned no limits, or some that can't be used. denial.Source says what holds
// unless the request is denied. fail returns the denial, or nil if the request goes on.
func (f *limitFunc) fail(q *read.Reading, denial *failure.Error, open bool) error {
	err, source, goesOn := denial.Err, denial.Source, denial.WouldDeny || denial.Beside
	failed := errors.As(err, new(*SourceError))
	if f.ofKey == nil || !failed { // a SourceError is by the package of the source
		denial.By = f.fn.Option()
	}
	if !failed {
		denial.Source = nil
		return q.DenyLimits(read.LimitsFailed, denial, goesOn)
	}
	var says interface {
		OfKey() bool
		Known() bool
	} // package tenants has such errors
	if errors.As(err, &says) {
		source.OfKey, source.Known = says.OfKey(), says.Known()
	}
	if goesOn || open {
		return q.DenyLimits(read.SourceFailed, denial, true)
	}
	source.Holds = "requests are denied"
	return q.DenyLimits(read.LimitsFailed, denial, false)
}

// holding says which limits hold when a function has returned limits beside an error.
func holding(limits []Limit, err error) string {
	var says interface{ InForce() string }
	switch {
	case len(limits) == 0:
		return "requests pass without them"
	case errors.As(err, &says):
		return says.InForce()
	}
	return "requests get the limits that were returned with the error"
}

// problemsTogether returns the problems of limits that a function returns together.
func problemsTogether(limits []Limit) (all optionerror.List) {
	names := make(map[string]bool, len(limits))
	for _, l := range limits {
		switch {
		case l.rule == nil:
			all = append(all, errZeroLimit)
			continue
		case l.rule == exempt && len(limits) > 1:
			all = append(all, errExemptBeside)
			continue
		case l.rule == exempt:
			continue
		}
		name := l.rule.Spec.Name
		_, problems := l.rule.OwnLimit()
		switch {
		case problems != nil:
		case !l.rule.Named:
			problems = optionerror.List{compile.NameMissing("", l.rule)}
		case names[name]:
			problems = optionerror.List{compile.NameTaken("", name)}
		}
		names[name] = true
		all = append(all, problems...)
	}
	return all
}

var errExemptBeside = &optionerror.Problem{Option: "Exempt()", What: "combined with other limits",
	Write: "use it alone, or leave it out"}

var errZeroLimit = &optionerror.Problem{Option: "Limit{}", Write: "use a limit, such as stint.Rate(10, time.Second)"}
