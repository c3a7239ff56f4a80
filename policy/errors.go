package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// Error is one mistake in a file: its position, and what to write instead.
type Error struct {
	File string
	// Line and Column count from 1. Column counts characters, not bytes.
	Line, Column int
	Text         string
	// Unknown is the name, if the mistake is a name that isn't registered, such as that of a
	// key or a cost of the application.
	Unknown string
}

// Error returns "file:line:column: text", the form that editors and CI systems
// recognize.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Errors holds all mistakes in a file, in the order of the file. Parse, Load and Watch
// return it for a file that can't be used.
type Errors []*Error

// Error returns one line for each mistake.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes, for errors.As.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// decoder reads one file. It continues after a mistake, so that all are reported at
// once: each try costs a deployment.
type decoder struct {
	file   string
	config *config
	errs   Errors
	// reported has the errors in errs.
	reported map[Error]bool

	namedKeys map[string]*namedKey
	settles   map[string]stint.ChargeOption
	places    map[string]place // of limits
	routes    map[string]place // by pattern
	domain    string           // of the file, or ""
	after     []string         // limits with after: true
	base      []stint.Option   // of a file with a domain, without its routes
}

func (d *decoder) bad(n *yaml.Node, format string, args ...any) {
	d.at(n.Line, n.Column, format, args...)
}

// unknown reports a name that isn't registered.
func (d *decoder) unknown(n *yaml.Node, format string, args ...any) {
	d.report(Error{Line: n.Line, Column: n.Column, Text: fmt.Sprintf(format, args...), Unknown: n.Value})
}

func (d *decoder) at(line, column int, format string, args ...any) {
	d.report(Error{Line: line, Column: column, Text: fmt.Sprintf(format, args...)})
}

// report adds a mistake to errs, once: that of a key is found in each limit that uses it.
func (d *decoder) report(e Error) {
	e.File, e.Line, e.Column = d.file, max(e.Line, 1), max(e.Column, 1)
	if d.reported == nil {
		d.reported = map[Error]bool{}
	}
	if !d.reported[e] {
		d.reported[e] = true
		d.errs = append(d.errs, &e)
	}
}

// err returns the mistakes found in the file, or nil.
func (d *decoder) err() error {
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.errs
}

// suggestion returns what to write instead of word: the nearest of the names if one is close,
// otherwise all of them.
func suggestion(word string, names []string) string {
	if near := nearest(word, names); near != "" {
		return "write " + near
	}
	switch {
	case len(names) == 0:
		return "leave it out"
	case len(names) > 40: // a policy's own names, too many to list
		return "write one of the names given, such as " + names[0]
	}
	return "write " + joinOr(names)
}

// joinOr returns "a, b or c".
func joinOr(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// nearest returns the name that word is most likely a misspelling of, or "".
func nearest(word string, names []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	best, found := "", 0
	w := plain(word)
	if len(w) > 64 { // the distance takes time in proportion to the product of the lengths
		return ""
	}
	for _, name := range names {
		p := plain(name)
		// At most a third of the letters may differ: beyond that it is another word.
		if n := distance(w, p); n <= max(len(w), len(p))/3 && (best == "" || n < found) {
			best, found = name, n
		}
	}
	return best
}

// distance returns how many letters must be inserted, deleted, replaced or swapped with
// their neighbour to turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
