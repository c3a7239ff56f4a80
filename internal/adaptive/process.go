package adaptive

import "github.com/stint-go/stint/store"

// Process is what a limiter asks of Keys. A program that makes none has none of what
// is behind it: a linker keeps the methods of types that are made.
type Process interface {
	Limit(l *store.Limit, cfg Config) *store.Limit
	Over(below store.Store) store.Store
	End(charges []store.Charge, results []store.Result, seen *Sample) []Change
	Retire(gone map[string]bool)
	Len() int
}

// Follower is what a limit of this process goes by.
type Follower interface {
	Config() Config
	// Meet is for who waits for slots of key without asking: the key may go by
	// this for it. It returns the limit of the moment.
	Meet(key string) int64
	// Stood returns where the limit stood when c was decided with r, and why; of a
	// result that is none, where it stands now.
	Stood(c *store.Charge, r *store.Result) (limit int64, why Reason)
}

// Of returns what a limit of this process goes by, nil of any other.
func Of(l *store.Limit) Follower {
	f, _ := l.Decider().(Follower)
	return f
}
