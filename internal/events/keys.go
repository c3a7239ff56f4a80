package events

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// Keys are the keys of an event, for as long as its observers run. They are used again
// by other events, so an event knows its turn. Of is safe for concurrent use with the
// other methods; those are for one goroutine at a time.
type Keys struct {
	turn    atomic.Uint64
	readers atomic.Int64 // who look at the charges if it is their turn
	charges []store.Charge
}

// Lend has an event know the keys of charges until TakeBack, and returns its turn.
// Events of turns that are over don't look at them, and this turn has no other event.
func (k *Keys) Lend(charges []store.Charge) (turn uint64) {
	k.charges = charges
	return k.turn.Load()
}

// Of returns the key of charge i if it is still the event's turn, and "" otherwise.
func (k *Keys) Of(turn uint64, i int) (key string) {
	k.readers.Add(1)
	if k.turn.Load() == turn && i >= 0 && i < len(k.charges) {
		key = k.charges[i].Key
	}
	k.readers.Add(-1)
	return key
}

// TakeBack ends the turn. It waits for other goroutines that are reading a key.
func (k *Keys) TakeBack() {
	k.turn.Add(1)
	for k.readers.Load() > 0 {
		runtime.Gosched()
	}
}
