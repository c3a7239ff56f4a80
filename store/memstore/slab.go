package memstore

import "github.com/stint-go/stint/store"

// slab keeps a shard's states that don't fit a word. Words refer to them by
// place.
type slab struct {
	states []wide
	free   int64 // index of a free one, -1 if there is none; its until is the next
	used   int
}

type wide struct {
	state store.State
	// until is the instant at which the state becomes as if never seen, in
	// microseconds.
	until int64
}

func newSlab(room int) *slab {
	return &slab{states: make([]wide, 0, room), free: -1}
}

// at returns the state a word refers to, until the next add.
func (b *slab) at(word int64) *wide { return &b.states[word>>rateBits-1] }

// add keeps a state and returns the word that refers to it.
func (b *slab) add(w wide) int64 {
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

// release frees the state a word refers to.
func (b *slab) release(word int64) {
	i := word>>rateBits - 1
	b.states[i] = wide{until: b.free} // and lets go of its log
	b.free = i
	b.used--
}

// move takes over a state of another slab.
func (b *slab) move(from *slab, word int64) int64 { return b.add(*from.at(word)) }
