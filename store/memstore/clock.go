package memstore

import (
	"time"

	"github.com/stint-go/stint/store"
)

// steady is the time since the store was made, in microseconds.
func (s *Store) steady() int64 { return int64(time.Since(s.base)) / 1000 }

// now reads both clocks at once.
func (s *Store) now() store.Now {
	t := time.Now()
	return store.Now{
		Steady: int64(t.Sub(s.base)) / 1000,
		Wall:   t.UnixMicro() - store.Epoch*1_000_000,
	}
}

// instant reads the clocks that the limit needs.
func (s *Store) instant(l *store.Limit) store.Now {
	if followsCalendar(l) {
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

// advance holds now against the newest instant the shard has seen. Clocks are
// read before locks are taken, so callers come out of order; an older instant
// is treated as the newest, and so never rewinds a state. The caller holds the
// lock.
func (sh *shard) advance(now *store.Now) {
	if now.Steady >= sh.newest {
		sh.newest = now.Steady
		return
	}
	now.Wall += sh.newest - now.Steady
	now.Steady = sh.newest
}
