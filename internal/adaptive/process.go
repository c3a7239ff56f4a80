package adaptive

import "github.com/stint-go/stint/store"

// Process is what a limiter needs of Keys. Because it is an interface, a program that
// makes no Keys doesn't link what is behind it: a linker keeps the methods only of
// types that are made.
type Process interface {
	Limit(l *store.Limit, cfg Config) *store.Limit
	Over(below store.Store) store.Store
	End(charges []store.Charge, results []store.Result, seen *Sample) []Change
	Retire(gone map[string]bool)
	Len() int
}

// Follower is the rule that a limit of this process follows.
type Follower interface {
	Config() Config
	// Meet returns the present limit. Callers that wait for slots of key without asking
	// use it: the key may change to this rule by it.
	Meet(key string) int64
	// Stood returns where the limit stood when c was decided with r, and why. For a
	// result without a decision it returns where the limit stands now.
	Stood(c *store.Charge, r *store.Result) (limit int64, why Reason)
}

// Of returns the Follower of a limit of this process, or nil for any other.
func Of(l *store.Limit) Follower {
	f, _ := l.Decider().(Follower)
	return f
}
