package stint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/store"
)

// OptionError is one problem with options. New, Check, With and Update return
// all problems in one error (errors.Join), each element of which is, or wraps,
// an *OptionError.
type OptionError struct {
	// Limit is the name of the limit that the problem is about; empty for none.
	Limit string
	// Route is the pattern of the WithRoute that contains it; empty for none.
	Route string
	// Option is the wrong option, with its argument if that alone is wrong:
	// "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". It is empty if the
	// limit's own numbers are wrong, or if something is missing.
	Option string
	// Problem says what is wrong; it is empty if Option shows it.
	Problem string
	// Write says what to write instead: "write 0 or more", "leave it out".
	Write string

	named *store.SpecError // Problem and Write, if they contain names
}

// Names returns the names of Go's in Problem and then in Write, in the order in which they
// are there, such as "TokenBucket" or "time.Second": for tools whose readers write
// something else, such as a configuration file.
func (e *OptionError) Names() []string {
	if e.named == nil {
		return nil
	}
	return slices.Clone(inside.Names(e.named))
}

// Error returns the route, the limit, the option, the problem and what to write
// instead, as far as they are set.
func (e *OptionError) Error() string {
	return mistake.Text(e.Route, e.Limit, e.Option, e.Problem, e.Write)
}

// optionError returns a mistake as an error.
func optionError(m *mistake.Mistake) *OptionError {
	return &OptionError{m.Limit, m.Route, m.Option, m.Problem, m.Write, m.Named}
}

// optionErrors returns mistakes as the elements of one error, each with a heading.
func optionErrors(all mistake.List, heading string) []error {
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = fmt.Errorf("%s%w", heading, optionError(m))
	}
	return errs
}

// joined returns one error for all mistakes, or nil.
func joined(all mistake.List) error { return errors.Join(optionErrors(all, "stint: ")...) }
