package steps

import (
	"iter"
	"math/bits"
)

// access is an action of a step on an object. Objects are numbered in the order in which a run
// first accesses them.
type access struct {
	kind Kind
	obj  int
}

// dependent reports whether the order of two accesses matters.
func (t access) dependent(u access) bool {
	if t.obj != u.obj {
		return false
	}
	switch t.kind {
	case Load, lockFailed, callBegin, callEnd:
		return u.kind != t.kind
	}
	return true
}

// op is a step.
type op struct {
	access
	held    *bool      // by a Lock's mutex
	others  []access   // what else it touches
	choices func() int // in which it can be taken at the moment; nil: in one
	// waits: it may have to wait, and the steps that end the wait aren't known from the kinds.
	waits bool
}

// enabledChoices is in how many ways the step can be taken now, 0 if it has to wait.
func (o *op) enabledChoices() int {
	switch {
	case o.choices != nil:
		return o.choices()
	case o.kind == Lock && *o.held:
		return 0
	}
	return 1
}

// eachAccess calls f with all accesses of the step.
func (o *op) eachAccess(f func(access)) {
	f(o.access)
	for _, t := range o.others {
		f(t)
	}
}

// dependent reports whether two steps may have another result in the other order.
func (o *op) dependent(p *op) (found bool) {
	if o.others == nil && p.others == nil {
		return o.access.dependent(p.access)
	}
	o.eachAccess(func(t access) { p.eachAccess(func(u access) { found = found || t.dependent(u) }) })
	return found
}

// follows reports, for dependent steps of two actors, whether o can only be taken where p can't: they
// can't be reversed.
func (o *op) follows(p *op) bool { return o.kind == Lock && (p.kind == Unlock || p.kind == lockFailed) }

// maxActors is how many actors a scenario may have, including those started by actors.
const maxActors = 32

// set is a set of actors.
type set uint32

func setOf(i int) set        { return 1 << i }
func (s set) has(i int) bool { return s>>i&1 != 0 }
func (s set) first() int     { return bits.TrailingZeros32(uint32(s)) }
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(s.first()); s &= s - 1 {
		}
	}
}
