package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// Error is one mistake in a file: where it is, and what to write instead.
type Error struct {
	File string
	// Line and Column count from 1. Column counts characters.
	Line, Column int
	Text         string
}

// Error is "file:line:column: text", as editors and CI systems read it.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Errors are all mistakes in a file, in the order of the file: what Parse,
// Load and Watch return for a file that can't be used.
type Errors []*Error

// Error has a line for each.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each, for errors.As.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// decoder reads one file. It goes on after a mistake, so that all are reported
// at once: whoever deploys a policy has one try a deployment.
type decoder struct {
	file string
	with *config
	errs Errors

	named   map[string]*namedKey
	builtin map[string]*key
	settles map[string]stint.SettleOption
}

func (d *decoder) bad(n *yaml.Node, format string, args ...any) {
	d.at(n.Line, n.Column, format, args...)
}

func (d *decoder) at(line, column int, format string, args ...any) {
	e := &Error{File: d.file, Line: max(line, 1), Column: max(column, 1), Text: fmt.Sprintf(format, args...)}
	// One mistake may be met twice, as a key's is in each limit that uses it.
	if !slices.ContainsFunc(d.errs, func(o *Error) bool { return *o == *e }) {
		d.errs = append(d.errs, e)
	}
}

// failed returns what is wrong with the file, or nil.
func (d *decoder) failed() error {
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.errs
}

// choose says what to write instead of word: the nearest of the names if one
// is near, or else all of them.
func choose(word string, names []string) string {
	if near := nearest(word, names); near != "" {
		return "write " + near
	}
	switch {
	case len(names) == 0:
		return "leave it out"
	case len(names) > 40: // a policy's own names: too many to help
		return "write one of the names given, such as " + names[0]
	}
	return "write " + either(names)
}

// either is "a, b or c".
func either(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// nearest returns the name that word is most likely a slip of, or "".
func nearest(word string, names []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
	}
	best, found := "", 0
	w := plain(word)
	if len(w) > 64 { // the distance costs the product of the lengths
		return ""
	}
	for _, name := range names {
		p := plain(name)
		// A third of the letters may be wrong: more than that is another word.
		if n := distance(w, p); n <= max(len(w), len(p))/3 && (best == "" || n < found) {
			best, found = name, n
		}
	}
	return best
}

// distance is how many letters have to be put in, left out, replaced or
// swapped with their neighbour to make b of a.
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
