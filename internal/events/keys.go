package events

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// Keys holds the keys of an event while its observers run. Other events reuse it, so an
// event remembers its turn. Of is safe for concurrent use with the other methods; those
// are for one goroutine at a time.
type Keys struct {
	turn    atomic.Uint64
	readers atomic.Int64 // who look at the charges if it is their turn
	charges []store.Charge
}

// Lend makes the keys of charges available to an event until TakeBack, and returns its
// turn. Events whose turns are over don't read them, and no other event has this turn.
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
