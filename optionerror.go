package stint

import (
	"errors"
	"fmt"

	"github.com/stint-go/stint/store"
)

// OptionError is one thing that is wrong with options. New, Check, With, Update and
// Limit.Check return all there are in one error (errors.Join), of which each
// element is, or wraps, an OptionError.
type OptionError struct {
	// Limit is the name of the limit that it is about; empty for none.
	Limit string
	// Route is the pattern of the WithRoute that it is in; empty for none.
	Route string
	// Option is the option that is wrong, with its argument where that alone is
	// wrong: "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". It is empty
	// where the limit's own numbers are, or something is missing.
	Option string
	// Problem says what is wrong; empty where Option shows it.
	Problem string
	// Write says what to do about it: "write 0 or more", "leave it out".
	Write string
}

// Error is the route, the limit, the option, the problem and what to write, as far
// as there are any.
func (e *OptionError) Error() string {
	var s string
	if e.Route != "" {
		s = fmt.Sprintf("WithRoute(%q): ", e.Route)
	}
	if e.Limit != "" {
		s += fmt.Sprintf("limit %.80q: ", e.Limit)
	}
	for _, part := range []string{e.Option, e.Problem} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + e.Write
}

// mistakes are what is wrong, in the order in which it was found.
type mistakes []*OptionError

func (m *mistakes) bad(option, problem, write string) {
	*m = append(*m, &OptionError{Option: option, Problem: problem, Write: write})
}

// at are the mistakes of options that stand in a route, or with a limit, or both.
// They are copies: an option, and a limit, may stand in several places.
func (m mistakes) at(route, limit string) mistakes {
	placed := make(mistakes, len(m))
	for i, e := range m {
		c := *e
		c.Route, c.Limit = route, limit
		placed[i] = &c
	}
	return placed
}

// within are the mistakes of what was given to an option.
func (m mistakes) within(option string) mistakes {
	outer := make(mistakes, len(m))
	for i, e := range m {
		c := *e
		c.Option = option + "(" + e.Option + ")"
		outer[i] = &c
	}
	return outer
}

// errors are the mistakes as the elements of one error, each under a heading.
func (m mistakes) errors(heading string) []error {
	errs := make([]error, len(m))
	for i, e := range m {
		errs[i] = fmt.Errorf("%s%w", heading, e)
	}
	return errs
}

// joined makes one error of all that is wrong, or nil.
func (m mistakes) joined() error { return errors.Join(m.errors("stint: ")...) }

// specOptions are the options by which numbers come into a store's limit. The
// others are arguments of the limit itself.
var specOptions = map[string]string{
	"Name": "WithName", "Algorithm": "WithAlgorithm", "Burst": "WithBurst", "Queue": "WithQueue",
	"Debt": "WithDebt", "WarmUp": "WithWarmUp", "Buckets": "WithBuckets",
}

// inSpec are the mistakes that a store has found in a limit.
func inSpec(err error) (m mistakes) {
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		wrong := e.(*store.SpecError)
		m.bad(specOptions[wrong.Field], wrong.Problem, wrong.Write)
	}
	return m
}
