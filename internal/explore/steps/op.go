package steps

import (
	"iter"
	"math/bits"
)

// touch is an action of a step on an object. Objects are numbered in the order in which a run
// comes upon them.
type touch struct {
	kind Kind
	obj  int
}

func (t touch) meets(u touch) bool {
	if t.obj != u.obj {
		return false
	}
	switch t.kind {
	case Load, refused, call, back:
		return u.kind != t.kind
	}
	return true
}

// op is a step.
type op struct {
	touch
	held *bool      // by a Lock's mutex
	more []touch    // what else it touches
	ways func() int // in which it can be taken at the moment; nil: in one
	// waits: it may have no way, and what gives it one isn't known from the kinds.
	waits bool
}

// open is how many ways the step can be taken in, 0 if it has to wait.
func (o *op) open() int {
	switch {
	case o.ways != nil:
		return o.ways()
	case o.kind == Lock && *o.held:
		return 0
	}
	return 1
}

// touches calls f with all that the step touches.
func (o *op) touches(f func(touch)) {
	f(o.touch)
	for _, t := range o.more {
		f(t)
	}
}

// meets says whether two steps may come to something else in the other order.
func (o *op) meets(p *op) (met bool) {
	if o.more == nil && p.more == nil {
		return o.touch.meets(p.touch)
	}
	o.touches(func(t touch) { p.touches(func(u touch) { met = met || t.meets(u) }) })
	return met
}

// follows says of steps of two actors that meet whether o can only be taken where p can
// not: there is nothing to turn round.
func (o *op) follows(p *op) bool { return o.kind == Lock && (p.kind == Unlock || p.kind == refused) }

// most is how many actors a scenario may have, those included that it starts on its way.
const most = 32

// set is a set of actors.
type set uint32

func one(i int) set          { return 1 << i }
func (s set) has(i int) bool { return s>>i&1 != 0 }
func (s set) first() int     { return bits.TrailingZeros32(uint32(s)) }
func (s set) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; s != 0 && yield(s.first()); s &= s - 1 {
		}
	}
}
