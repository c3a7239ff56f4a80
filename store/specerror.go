package store

// SpecError is one problem with a Spec, or with a store that implements Checked.
type SpecError struct {
	Field   string // of Spec; empty for a store
	Problem string
	Write   string // what to write instead: "use 1 to 1000"
	// Names are the names of Go's in Problem and then in Write, in the order in which they are
	// there, such as "TokenBucket" or "time.Second". Who reads limits from another language
	// than Go puts its own words there.
	Names []string
}

// Error returns the problem and the correction.
func (e *SpecError) Error() string { return e.Problem + ": " + e.Write }
