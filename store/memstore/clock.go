package memstore

import (
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/store"
)

// now reads both clocks at once.
func (s *Store) now() store.Now {
	t := clock.Now()
	return store.Now{
		Steady: int64(t.Sub(s.base)) / 1000,
		Wall:   t.UnixMicro() - store.Epoch*1_000_000,
	}
}

// instant reads the monotonic clock, and the wall clock only if it is needed.
func (s *Store) instant(wall bool) store.Now {
	if wall {
		return s.now()
	}
	return store.Now{Steady: clock.Micros(s.base)}
}
