package memstore

import (
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Engine is for packages of this module that set the store's time.
func (s *Store) Engine(engine.Access) storeEngine { return storeEngine{s} }

type storeEngine struct{ store *Store }

// SetClock makes the store go by c. It is for a store that nothing has used.
func (e storeEngine) SetClock(c *clock.Clock) { e.store.clock, e.store.base = c, c.Now() }

// now reads both clocks at once.
func (s *Store) now() store.Now {
	t := s.clock.Now()
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
	return store.Now{Steady: s.clock.Micros(s.base)}
}
