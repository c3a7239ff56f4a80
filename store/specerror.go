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

// NewSpecError returns a SpecError. problem and write are formats with a %v for each of
// names, which are names of Go's: an Algorithm, or a text such as "time.Second". Without
// names both are taken as they are.
func NewSpecError(field, problem, write string, names ...any) *SpecError {
	e := &SpecError{Field: field, Problem: problem, Write: write}
	if len(names) > 0 {
		e.named = &named{problem, write, names}
		e.Problem, e.Write = e.In(func(name string) string { return name })
	}
	return e
}

// Error returns the problem and what to write instead.
func (e *SpecError) Error() string { return e.Problem + ": " + e.Write }

// In returns Problem and Write for readers who don't write Go, such as those of a
// configuration file. word returns their word for a name of Go's.
func (e *SpecError) In(word func(name string) string) (problem, write string) {
	n := e.named
	if n == nil {
		return e.Problem, e.Write
	}
	words := make([]any, len(n.names))
	for i, name := range n.names {
		words[i] = word(fmt.Sprint(name))
	}
	const between = "\x00"
	problem, write, _ = strings.Cut(fmt.Sprintf(n.problem+between+n.write, words...), between)
	return problem, write
}

// named are the formats of texts with names in them, and the names, those of problem
// first.
type named struct {
	problem, write string
	names          []any
}
