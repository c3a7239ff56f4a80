package stint

import (
	"context"
	"errors"
	"net/http"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/read"
)

// WithLimitFunc adds limits that depend on the request, such as those of a tenant's
// plan. They are decided together with the limiter's other limits, or with its route's;
// a route that is exempt stays exempt. It needs a default WithKey. New rejects a nil f.
// f is called concurrently.
//
// If f returns an error, the request is denied: the error goes to the error handler.
// Its status is that of its StatusCode() int method if it has one, otherwise 500. If f
// returns no limits and no error, and no other limit of the request holds, that is
// ErrNoLimits: a plan that isn't found is no reason to let everything pass. Exempt()
// exempts.
//
// Every limit needs a WithName that differs from the others'. A Limit is compiled once
// however often it is returned, so return the same values where possible: package
// variables, or the cached values of package plans. Limits with the same name in different plans
// share a key's consumption, so a tenant who changes plans keeps its count.
func WithLimitFunc(f func(*http.Request) ([]Limit, error)) Option {
	add := withLimits(func(of *compile.Func) *limitFunc { return &limitFunc{fn: f, of: of} })
	return limiterOption(func(c *config) {
		if add(c); f == nil {
			c.Errs.Bad("WithLimitFunc(nil)", "", "write a function, or leave it out")
		}
	})
}

// ErrNoLimits is the error of a request for which a WithLimitFunc returns neither limits nor
// an error, and which no other limit holds. It is answered with 500, and logged.
var ErrNoLimits = read.ErrNoLimits

// Exempt stands for no limits where a WithLimitFunc returns it, alone: for a tenant whose
// plan has none. Other limits of the limiter still apply. New and WithRoute reject it: a
// WithRoute without options exempts a route.
func Exempt() Limit { return Limit{exempt} }

// WithLimitSource is WithLimitFunc for limits that are read from elsewhere by a key and kept,
// as package plans does. f gets the request's context, its key by k, which may be empty, and
// check, which returns what is wrong with limits returned together: all that CheckLimits
// reports, names that limits of this limiter have, and what its defaults make wrong, such as a
// cost that never passes. Call it for limits that have just been
// read, before they replace good ones. It may be kept and called later, concurrently.
//
// An error of k denies the request, as one of f does. New rejects a nil f, what it rejects
// in WithKey, and GivenKey; a limiter isn't mounted in an adapter whose requests don't have k.
func WithLimitSource(k Key, f func(ctx context.Context, key string, check func(...Limit) error) ([]Limit, error)) Option {
	add := withLimits(func(of *compile.Func) *limitFunc {
		l := &limitFunc{of: of}
		of.Source = k.is
		check := l.check // a method value for each request would allocate
		l.fn = func(r *http.Request) ([]Limit, error) {
			key, err := k.is.Of(r)
			if err != nil {
				return nil, err
			}
			return f(r.Context(), key, check)
		}
		return l
	})
	return limiterOption(func(c *config) {
		wrong := k.described().Wrong.Within("WithLimitSource")
		if k.described().Given {
			wrong.Bad("WithLimitSource(GivenKey())", "requests don't have it", "write another key, such as stint.Header")
		}
		if f == nil {
			wrong.Bad("WithLimitSource", "the function is nil", "write one, or leave the option out")
		}
		c.Errs = append(c.Errs, wrong...)
		add(c) // also with something wrong, or New would say that there are no limits, too
	})
}

func withLimits(made func(*compile.Func) *limitFunc) limiterOption {
	return func(c *config) {
		c.Funcs = append(c.Funcs, func(of *compile.Func) *read.Func { return &read.Func{Charge: made(of).charge} })
	}
}

// limitFunc is one WithLimitFunc or WithLimitSource.
type limitFunc struct {
	fn func(*http.Request) ([]Limit, error)
	of *compile.Func
}

// check returns what is wrong with limits returned together, for the limiter's own.
func (f *limitFunc) check(limits ...Limit) error {
	wrong := wrongTogether(limits)
	for _, l := range limits {
		switch {
		case l.rule == nil || l.rule == exempt:
		case f.of.Taken(l.rule):
			wrong = append(wrong, compile.Namesake("", l.rule.Spec.Name))
		default:
			if _, m := l.rule.Compiled(); m == nil { // or it is reported already
				_, m = f.of.Entry(l.rule)
				wrong = append(wrong, m...)
			}
		}
	}
	return joined(wrong)
}

// reports reports whether a limit that the function returned is a dry run.
func (f *limitFunc) reports(l Limit) bool {
	return f.of.Shared.DryRun || l.rule != nil && l.rule.Shared.DryRun
}

// entry returns a limit that the function returned, as requests are read for it.
func (f *limitFunc) entry(q *read.Reading, l Limit) (*read.Entry, error) {
	switch l.rule {
	case nil:
		return nil, optionError(errZeroLimit)
	case exempt:
		return nil, optionError(errExemptBeside)
	}
	e, wrong := f.of.Entry(l.rule)
	switch {
	case wrong != nil:
		return nil, errors.Join(optionErrors(wrong, "")...)
	case f.of.Lent() && !l.rule.Named:
		return nil, optionError(compile.Unnamed("", l.rule))
	case q.Has(e.Name()):
		return nil, optionError(compile.Namesake("", e.Name()))
	}
	return e, nil
}

// charge adds the charges of the limits that the function returns for a request.
func (f *limitFunc) charge(q *read.Reading) error {
	limits, err := f.fn(q.R)
	if err != nil {
		return q.DenyLimits(err, f.of.Shared.DryRun)
	}
	if len(limits) == 1 && limits[0].rule == exempt {
		return nil
	}
	if len(limits) == 0 && !f.of.Shared.DryRun {
		q.Planless()
	}
	for _, l := range limits {
		e, err := f.entry(q, l)
		if err != nil {
			err = q.DenyLimits(err, f.reports(l))
		} else {
			err = q.Charge(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckLimits returns what is wrong with limits that a WithLimitFunc is going to return
// together, or nil. Use it to reject limits from elsewhere when they are read. It reports
// the zero Limit, wrong numbers and options, a name that two limits have, and a missing
// WithName, since counts are kept under the name. The error is made by errors.Join and
// holds an *OptionError for each problem.
func CheckLimits(limits ...Limit) error { return joined(wrongTogether(limits)) }

func wrongTogether(limits []Limit) (all mistake.List) {
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
		_, wrong := l.rule.Compiled()
		switch {
		case wrong != nil:
		case !l.rule.Named:
			wrong = mistake.List{{Limit: name,
				Problem: "a default name, and what a key has consumed goes by the name", Write: "write stint.WithName"}}
		case names[name]:
			wrong = mistake.List{compile.Namesake("", name)}
		}
		names[name] = true
		all = append(all, wrong...)
	}
	return all
}

var errExemptBeside = &mistake.Mistake{Option: "Exempt()", Problem: "beside other limits", Write: "return it alone, or leave it out"}

var errZeroLimit = &mistake.Mistake{Problem: "zero Limit", Write: "return stint.Rate, Quota or Concurrency"}
