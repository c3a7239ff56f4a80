// Package optionerror collects the problems with options that New and Update return as errors:
// where each is, what it is, and what to write instead. Likely mistakes, which are only warnings, are
// those of package mistakes.
package optionerror

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Problem is one problem with options. stint.OptionError has the same fields.
type Problem struct {
	Limit, Route, Option, What, Write string
	Named                             *store.SpecError // What and Write, if they contain names
}

// List has the problems in the order in which they were found.
type List []*Problem

// Add adds a problem, with the arguments of inside.NewSpecError.
func (l *List) Add(option, what, write string, names ...any) {
	if len(names) > 0 {
		l.addSpecError(option, inside.NewSpecError("", what, write, names...))
		return
	}
	*l = append(*l, &Problem{Option: option, What: what, Write: write})
}

func (l *List) addSpecError(option string, e *store.SpecError) {
	*l = append(*l, &Problem{Option: option, What: e.Problem, Write: e.Write, Named: e})
}

// OfStore returns the problems that a store reports about itself, as those of option.
func OfStore(option string, s any) (l List) {
	if checked, ok := s.(store.Checked); ok {
		for _, e := range checked.Misconfigured() {
			l.addSpecError(option, e)
		}
	}
	return l
}

// At returns the problems as those of a limit, of a route, or of a limit in a route. They are
// copies, because an option or a limit may be used in several places.
func (l List) At(route, limit string) List {
	return l.each(func(p *Problem) { p.Route, p.Limit = route, limit })
}

// Within returns the problems as those of an argument of option.
func (l List) Within(option string) List {
	return l.each(func(p *Problem) { p.Option = option + "(" + p.Option + ")" })
}

func (l List) each(change func(*Problem)) List {
	if len(l) == 0 {
		return nil
	}
	changed := make(List, len(l))
	for i, p := range l {
		c := *p
		change(&c)
		changed[i] = &c
	}
	return changed
}

// options are the options that set fields of a store's limit, with the word that precedes the value of a field in a
// problem that is nothing but the value: "burst 5". The others are arguments of the limit itself.
var options = map[string]struct{ option, word string }{
	"Name": {"WithName", "name "}, "Algorithm": {"WithAlgorithm", "algorithm "}, "Burst": {"WithBurst", "burst "},
	"Queue": {"WithQueue", "queue "}, "Debt": {option: "WithDebt"}, "WarmUp": {"WithWarmUp", "warm-up "},
	"Buckets": {"WithBuckets", "buckets "}, "Ban": {"WithBanFor", "ban "},
}

// OfSpec returns the problems that an error of store.NewLimit has.
func OfSpec(err error) (l List) {
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		spec := e.(*store.SpecError)
		o := options[spec.Field]
		if value, only := strings.CutPrefix(spec.Problem, o.word); only && o.word != "" {
			l = append(l, &Problem{Option: o.option + "(" + value + ")", Write: spec.Write, Named: spec})
		} else {
			l.addSpecError(o.option, spec)
		}
	}
	return l
}

// Text returns a problem as one line: those of its parts that are set, in this order.
func Text(route, limit, option, what, write string) string {
	var s string
	if route != "" {
		s = fmt.Sprintf("WithRoute(%q): ", route)
	}
	if limit != "" && option != fmt.Sprintf("WithName(%.80q)", limit) {
		s += fmt.Sprintf("limit %.80q: ", limit)
	}
	for _, part := range [...]string{option, what} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + write
}

// Error is the error of a key that was made with arguments that can't work. New reports its
// problems, and no request is read for the key.
type Error struct{ Problems List }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = "stint: " + Text(p.Route, p.Limit, p.Option, p.What, p.Write)
	}
	return strings.Join(lines, "\n")
}
