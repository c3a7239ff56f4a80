package store

import "strings"

// SpecError is one problem with a Spec, or with a store that implements Checked.
type SpecError struct {
	Field   string // of Spec; empty for a store
	Problem string
	Write   string // what to write instead: "use 1 to 1000"
	// Names are the Go identifiers in Problem and then in Write, in order, such as
	// "TokenBucket" or "time.Second". A program that reads limits from another language than Go
	// replaces them by its own words.
	Names []string
}

// Error returns the field, unless the problem begins with it, the problem and the correction.
func (e *SpecError) Error() string {
	text := e.Problem + ": " + e.Write
	if e.Field == "" || strings.HasPrefix(text, strings.ToLower(e.Field)) {
		return text
	}
	return e.Field + ": " + text
}
