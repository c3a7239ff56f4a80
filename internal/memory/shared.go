package memory

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// mostShared is how many shared states a shard has. Keys that find the store full share
// one state for each limit and shard. Charges on limits without one are denied: two
// limits can't count in one state, and neither may lose its count.
const mostShared = 32

// sharedStates are a shard's shared states.
type sharedStates struct{ states []sharedState }

type sharedState struct {
	slabState
	limit uint64 // inside.Hash
	inUse bool   // by a visit, which hasn't put it back yet
}

// place returns the index of the limit's shared state. If there is none and create is true, it
// creates one. It returns -1 if there is none then, or if it is in use.
func (p *sharedStates) place(l *store.Limit, now int64, create bool) int {
	hash := inside.Hash(l)
	i := slices.IndexFunc(p.states, func(e sharedState) bool { return e.limit == hash })
	switch {
	case i >= 0 && p.states[i].inUse:
		return -1
	case i >= 0 || !create:
		return i
	}
	i = slices.IndexFunc(p.states, func(e sharedState) bool { return !e.inUse && e.until <= now })
	if i < 0 && len(p.states) < mostShared {
		i = len(p.states)
		p.states = append(p.states, sharedState{})
	}
	if i >= 0 {
		p.states[i] = sharedState{limit: hash}
	}
	return i
}

// use returns a shared state, which is in use until put.
func (p *sharedStates) use(i int) store.State {
	p.states[i].inUse = true
	return p.states[i].state[0]
}

// put puts a shared state back.
func (p *sharedStates) put(i int, st *store.State, until int64, alive bool) {
	e := &p.states[i]
	e.inUse, e.until = false, until
	e.state[0] = store.State{}
	if alive {
		e.state[0] = *st
	}
}

// untilExpiry returns the time until the first shared state expires, or a second if that is
// unknown.
func (p *sharedStates) untilExpiry(now int64) time.Duration {
	first := int64(never)
	for i := range p.states {
		first = min(first, p.states[i].until)
	}
	if first == never {
		return time.Second
	}
	return time.Duration(max(first-now, 1)) * time.Microsecond
}
