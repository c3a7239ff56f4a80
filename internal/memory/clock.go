package memory

import "github.com/stint-go/stint/store"

// now reads both clocks at once.
func (s *Store) now() store.Now {
	t := s.clock()
	return store.Now{
		Steady: int64(t.Sub(s.base)) / 1000,
		Wall:   t.UnixMicro() - store.Epoch*1_000_000,
	}
}

// steady reads the monotonic clock only, in half the time.
func (s *Store) steady() int64 { return int64(s.since(s.base)) / 1000 }

// instant returns the present, with the wall clock and the id of a lease as far as a call needs
// them. Ids must ascend in each state. They do, because the caller holds the locks.
func (s *Store) instant(wall, lease bool) (now store.Now) {
	if wall {
		now = s.now()
	} else {
		now.Steady = s.steady()
	}
	if lease {
		now.Lease = store.Lease(s.leases.Add(1))
	}
	return now
}
