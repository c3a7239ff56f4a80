package memory

import (
	"fmt"
	"sync/atomic"
)

// recount counts the keys in the tables, and holds each shard to what it says of
// itself. The store must not be in use.
func (s *Store) recount() (keys int, err error) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.lock()
		defer sh.mu.Unlock()
		filled, live, wide := 0, 0, 0
		for j := range sh.slots() {
			sl := &sh.table.Load().slots[j]
			h, w := atomic.LoadUint64(&sl.hash), atomic.LoadInt64(&sl.word)
			if h == 0 {
				continue
			}
			filled++
			if found, _ := sh.table.Load().find(h); found != sl {
				return 0, fmt.Errorf("shard %d: the key in slot %d isn't found there", i, j)
			}
			if w == vacant {
				continue
			}
			live++
			if !packed(w) {
				wide++
			}
		}
		if filled != int(sh.filled) || live != int(sh.live) {
			return 0, fmt.Errorf("shard %d: %d of its slots are filled, %d hold a state, it counts %d and %d", i, filled, live, sh.filled, sh.live)
		}
		if sh.slab != nil && sh.slab.used != wide || sh.slab == nil && wide > 0 {
			return 0, fmt.Errorf("shard %d: %d states in a slab of %+v", i, wide, sh.slab)
		}
		if sh.shared != nil {
			for _, e := range sh.shared.states {
				if e.inUse {
					return 0, fmt.Errorf("shard %d: a shared state was not put back", i)
				}
			}
		}
		keys += live
	}
	return keys, nil
}
