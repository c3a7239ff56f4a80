package memstore

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/store"
)

// rates are the numbers that words refer to. Programs have a few, so they are
// never forgotten; one that makes up ever new ones finds the list full at some
// time, and the states of its later limits in slabs.
//
// The list belongs to the process, not to a store: it holds nothing of anybody,
// and a shard has no room to say where to look.
var rates rateList

type rateList struct {
	// list is written once at each place, before anybody is told of the place:
	// words travel under the lock of their shard.
	list [1 << rateBits]store.Numbers
	// known finds the places. It is replaced, never changed.
	known atomic.Pointer[map[store.Numbers]int64]
	mu    sync.Mutex
}

func (r *rateList) at(place int64) store.Numbers { return r.list[place&rateMask] }

// place finds the numbers, and adds them if there is room; 0 if there isn't.
func (r *rateList) place(n store.Numbers) int64 {
	if known := r.known.Load(); known != nil {
		if place := (*known)[n]; place != 0 || len(*known) == rateMask {
			return place
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var known map[store.Numbers]int64
	if p := r.known.Load(); p != nil {
		known = *p
	}
	if place := known[n]; place != 0 || len(known) == rateMask {
		return place
	}
	place := int64(len(known) + 1)
	more := maps.Clone(known)
	if more == nil {
		more = make(map[store.Numbers]int64)
	}
	more[n] = place
	r.list[place] = n
	r.known.Store(&more)
	return place
}
