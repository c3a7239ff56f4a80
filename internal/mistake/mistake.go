// Package mistake collects what is wrong with options: where, what, and what to write
// instead.
package mistake

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Mistake is one problem with options; see stint.OptionError for its fields.
type Mistake struct {
	Limit, Route, Option, Problem, Write string
	Named                                *store.SpecError // Problem and Write, if they contain names
}

// List are the problems found, in order.
type List []*Mistake

// Bad adds a problem, with the arguments of inside.NewSpecError.
func (l *List) Bad(option, problem, write string, names ...any) {
	if len(names) > 0 {
		l.add(option, inside.NewSpecError("", problem, write, names...))
		return
	}
	*l = append(*l, &Mistake{Option: option, Problem: problem, Write: write})
}

func (l *List) add(option string, e *store.SpecError) {
	*l = append(*l, &Mistake{Option: option, Problem: e.Problem, Write: e.Write, Named: e})
}

// Of returns what a store says of itself, as mistakes in option.
func Of(option string, s any) (l List) {
	if checked, ok := s.(store.Checked); ok {
		for _, e := range checked.Misconfigured() {
			l.add(option, e)
		}
	}
	return l
}

// At returns the mistakes as those of options in a route, or of a limit, or both. They are
// copies, because an option or a limit may be used in several places.
func (l List) At(route, limit string) List {
	return l.each(func(m *Mistake) { m.Route, m.Limit = route, limit })
}

// Within returns the mistakes as those of an argument of option.
func (l List) Within(option string) List {
	return l.each(func(m *Mistake) { m.Option = option + "(" + m.Option + ")" })
}

func (l List) each(change func(*Mistake)) List {
	if len(l) == 0 {
		return nil
	}
	changed := make(List, len(l))
	for i, m := range l {
		c := *m
		change(&c)
		changed[i] = &c
	}
	return changed
}

// options are the options that set numbers of a store's limit. The others are arguments of
// the limit itself.
var options = map[string]string{
	"Name": "WithName", "Algorithm": "WithAlgorithm", "Burst": "WithBurst", "Queue": "WithQueue",
	"Debt": "WithDebt", "WarmUp": "WithWarmUp", "Buckets": "WithBuckets",
}

// InSpec returns the mistakes that store.NewLimit has found.
func InSpec(err error) (l List) {
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		wrong := e.(*store.SpecError)
		l.add(options[wrong.Field], wrong)
	}
	return l
}

// Text returns a mistake as one line: what is set of these, in this order.
func Text(route, limit, option, problem, write string) string {
	var s string
	if route != "" {
		s = fmt.Sprintf("WithRoute(%q): ", route)
	}
	if limit != "" {
		s += fmt.Sprintf("limit %.80q: ", limit)
	}
	for _, part := range [...]string{option, problem} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + write
}

// Error is the error of a function made with arguments that can't work. New calls such
// functions first, and reports it.
type Error struct{ Mistakes List }

func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = "stint: " + Text(m.Route, m.Limit, m.Option, m.Problem, m.Write)
	}
	return strings.Join(lines, "\n")
}

// In returns the mistakes that err reports about the argument of an option.
func In(option string, err error) List {
	if wrong := (*Error)(nil); errors.As(err, &wrong) {
		return wrong.Mistakes.Within(option)
	}
	return nil
}
