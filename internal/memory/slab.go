package memory

import (
	"math"

	"github.com/stint-go/stint/store"
)

// slab holds a shard's states that don't fit a word. Words refer to them by place.
type slab struct {
	states []slabState
	free   int64 // head of the free list, linked by until; -1 if it is empty
	used   int
}

type slabState struct {
	state [1]store.State // an array, since store.Decide takes a slice of states
	// until is the instant at which the state expires, in microseconds.
	until int64
}

func newSlab(room int) *slab {
	return &slab{states: make([]slabState, 0, room), free: -1}
}

// at returns the state that a word refers to. The pointer is valid until the next add.
func (b *slab) at(word int64) *slabState { return &b.states[word>>rateBits-1] }

// add adds a state and returns the word that refers to it.
func (b *slab) add(w slabState) int64 {
	b.used++
	i := b.free
	if i < 0 {
		i = int64(len(b.states))
		b.states = append(b.states, w)
	} else {
		b.free = b.states[i].until
		b.states[i] = w
	}
	return (i + 1) << rateBits
}

// remove removes the state that a word refers to.
func (b *slab) remove(word int64) {
	i := word>>rateBits - 1
	b.states[i] = slabState{until: b.free} // without the state's log, which is freed
	b.free = i
	b.used--
}

// move adds a copy of another slab's state.
func (b *slab) move(from *slab, word int64) int64 { return b.add(*from.at(word)) }

// never is the until of a state that holds leases: it lives until they are released.
const never = math.MaxInt64
