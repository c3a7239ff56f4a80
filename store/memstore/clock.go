package memstore

import (
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// steady is the time since the store was made, in microseconds.
func (s *Store) steady() int64 { return int64(clock.Since(s.base)) / 1000 }

// now reads both clocks at once.
func (s *Store) now() store.Now {
	t := clock.Now()
	return store.Now{
		Steady: int64(t.Sub(s.base)) / 1000,
		Wall:   t.UnixMicro() - store.Epoch*1_000_000,
	}
}

// instant reads the clocks that are needed.
func (s *Store) instant(wall bool) store.Now {
	if wall {
		return s.now()
	}
	return store.Now{Steady: s.steady()}
}

// followsCalendar says whether a limit reads the wall clock.
func followsCalendar(l *store.Limit) bool {
	switch l.Algorithm() {
	case store.FixedWindow, store.IntervalBucket:
		return l.Spec().Window != (store.Window{})
	}
	return false
}
