package store

import (
	"fmt"
	"strings"
)

// SpecError is one problem with a Spec, or with a store that implements Checked.
type SpecError struct {
	Field   string // of Spec; empty for a store
	Problem string
	Write   string // what to write instead: "write a number from 1 to 1000"

	named *named
}

// newSpecError returns a SpecError. problem and write are formats with a %v for each of
// names, which are names of Go's: an Algorithm, or a text such as "time.Second". Without
// names both are taken as they are.
func newSpecError(field, problem, write string, names ...any) *SpecError {
	e := &SpecError{Field: field, Problem: problem, Write: write}
	if len(names) > 0 {
		const between = "\x00"
		e.Problem, e.Write, _ = strings.Cut(fmt.Sprintf(problem+between+write, names...), between)
		e.named = &named{}
		for _, name := range names {
			e.named.names = append(e.named.names, fmt.Sprint(name))
		}
	}
	return e
}

// Error returns the problem and the correction.
func (e *SpecError) Error() string { return e.Problem + ": " + e.Write }

// named are the names in a text. They are behind a pointer so that a SpecError can be compared.
type named struct{ names []string }

// wrong records one problem, with the arguments of newSpecError.
type wrong = func(field, problem, write string, names ...any)
