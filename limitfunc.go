package stint

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
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
	return checkedOption(f != nil, "WithLimitFunc(nil)", "write a function, or leave it out",
		func(c *config) {
			c.limitFuncs = append(c.limitFuncs, func(r *http.Request, _ func(...Limit) error) ([]Limit, error) { return f(r) })
		})
}

// ErrNoLimits is the error of a request for which a WithLimitFunc returns neither limits nor
// an error, and which no other limit holds. It is answered with 500, and logged.
var ErrNoLimits = errors.New("stint: no limits: return stint.Exempt() for a request without limits")

// Exempt stands for no limits where a WithLimitFunc returns it, alone: for a tenant whose
// plan has none. Other limits of the limiter still apply. New and WithRoute reject it: a
// WithRoute without options exempts a route.
func Exempt() Limit { return Limit{exempt} }

var exempt = &rule{spec: store.Spec{Name: "exempt"}, kind: &charged{}}

// WithLimitSource is WithLimitFunc for limits that are read from elsewhere and kept, as
// package plans does. f also gets check, which returns what is wrong with limits returned
// together: all that CheckLimits reports, and names that limits of this limiter have. Call
// it for limits that have just been read, before they replace good ones. It may be kept and
// called later, concurrently.
func WithLimitSource(f func(r *http.Request, check func(...Limit) error) ([]Limit, error)) Option {
	return checkedOption(f != nil, "WithLimitSource(nil)", "write a function, or leave it out",
		func(c *config) { c.limitFuncs = append(c.limitFuncs, f) })
}

// limitSource returns the limits of a request; see WithLimitSource.
type limitSource = func(r *http.Request, check func(...Limit) error) ([]Limit, error)

// limitFunc is one WithLimitFunc and the settings that its limits don't set.
type limitFunc struct {
	fn     limitSource
	check  func(...Limit) error // its own; a method value for each request would allocate
	shared settings
	source *warn.Source // of the default key
	family *family
	names  *names
}

func newLimitFunc(fn limitSource, shared settings, source *warn.Source, family *family, names *names) *limitFunc {
	f := &limitFunc{fn: fn, shared: shared, source: source, family: family, names: names}
	f.check = func(limits ...Limit) error {
		wrong, rules := wrongTogether(limits), names.now.Load().rules
		for _, l := range limits {
			if l.rule != nil && rules[l.rule.spec.Name] != nil {
				wrong = append(wrong, errNamesake("", l.rule.spec.Name))
			}
		}
		return joined(wrong)
	}
	return f
}

// limit returns the store's limit for a rule that the function returned.
func (f *limitFunc) limit(r *rule) (*store.Limit, error) {
	n := f.names.now.Load()
	if l := n.limits[r]; l != nil {
		return l, nil
	}
	if n.rules[r.spec.Name] != nil {
		return nil, optionError(errNamesake("", r.spec.Name))
	}
	l, wrong := r.compileOnce()
	if l != nil {
		l = r.kind.decided(l, f.family.adaptive)
	}
	return l, errors.Join(optionErrors(wrong, "")...)
}

// reports reports whether a limit that the function returned is a dry run.
func (f *limitFunc) reports(l Limit) bool {
	return f.shared.dryRun || l.rule != nil && l.rule.shared.dryRun
}

// dynamicEntry is an entry made for a limit that a limitFunc returned.
type dynamicEntry struct {
	from  *limitFunc
	entry *entry
}

// entry compiles a limit that the function returned, or finds what was compiled before.
func (f *limitFunc) entry(l Limit) (*entry, error) {
	switch l.rule {
	case nil:
		return nil, optionError(errZeroLimit)
	case exempt:
		return nil, optionError(errExemptBeside)
	}
	if d := l.rule.resolved.Load(); d != nil && d.from == f {
		return d.entry, nil
	}
	compiled, err := f.limit(l.rule)
	if err != nil {
		return nil, err
	}
	settled := l.rule.shared.or(f.shared)
	source := f.names.now.Load().sources[settled.key]
	if source == nil {
		source = new(warn.Source) // a key of its own is not watched
	}
	e := newEntry(l.rule, compiled, settled, source)
	l.rule.resolved.Store(&dynamicEntry{f, e})
	return e, nil
}

// chargeAll makes the charges of a WithLimitFunc.
func (c *call) chargeAll(f *limitFunc) error {
	limits, err := f.fn(c.r, f.check)
	if err != nil {
		return c.limitsError(err, f.shared.dryRun)
	}
	if len(limits) == 1 && limits[0].rule == exempt {
		return nil
	}
	c.planless = c.planless || len(limits) == 0 && !f.shared.dryRun
	for _, l := range limits {
		e, err := f.entry(l)
		if err == nil && c.version.lent && !l.rule.named {
			err = optionError(errUnnamed("", l.rule))
		}
		if err == nil && c.has(e.limit.Name()) {
			err = optionError(errNamesake("", e.limit.Name()))
		}
		if err != nil {
			err = c.limitsError(err, f.reports(l))
		} else {
			err = c.charge(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// limitsError handles a request whose limits a function fails to return. The request
// goes on without them if they would only report.
func (c *call) limitsError(err error, dryRun bool) error {
	err = &failure.Error{Err: fmt.Errorf("stint: WithLimitFunc: %w", err), Status: failure.Status(err)}
	c.version.observe(&Event{Kind: EventLimitsFailed, Route: c.plan.route(), Request: c.r, Err: err})
	if dryRun {
		return nil
	}
	return err
}

// has reports whether a limit of that name is among the call's.
func (c *call) has(name string) bool {
	return slices.ContainsFunc(c.entries, func(e *entry) bool { return e.limit.Name() == name }) ||
		slices.ContainsFunc(c.paced, func(p paced) bool { return p.entry.limit.Name() == name })
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
		name := l.rule.spec.Name
		_, wrong := l.rule.compileOnce()
		switch {
		case wrong != nil:
		case !l.rule.named:
			wrong = mistake.List{{Limit: name,
				Problem: "a default name, and what a key has consumed goes by the name", Write: "write stint.WithName"}}
		case names[name]:
			wrong = mistake.List{errNamesake("", name)}
		}
		names[name] = true
		all = append(all, wrong...)
	}
	return all
}

var errExemptBeside = &mistake.Mistake{Option: "Exempt()", Problem: "beside other limits", Write: "return it alone, or leave it out"}

var errZeroLimit = &mistake.Mistake{Problem: "zero Limit", Write: "return stint.Rate, Quota or Concurrency"}

// compileOnce is compile under the limit's own name, for limits that a WithLimitFunc
// returns.
func (r *rule) compileOnce() (*store.Limit, mistake.List) {
	r.once.Do(func() { r.compiled, r.wrong = r.compile(r.spec.Name) })
	return r.compiled, r.wrong
}
