package store

// Decide answers charges[i] against states[i] at now, in two phases: every
// limit is looked at first, and only if none refuses are the states changed.
// It reports whether the decision is granted, and writes results either way.
//
// The caller holds the states exclusively, has called Check, and writes them
// back when Decide returns true. After false no state has changed.
func Decide(now Now, charges []Charge, states []State, results []Result) bool {
	panic("TODO")
}

// Amend makes the earlier charge c, whose receipt it carries, cost c.Cost
// after all; see Store.Settle. The caller holds the state exclusively and
// writes it back.
func Amend(now Now, c *Charge, s *State, r *Result) {
	panic("TODO")
}
