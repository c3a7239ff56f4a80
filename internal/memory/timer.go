package memory

import (
	"math"
	"time"
	"weak"

	"github.com/stint-go/stint/internal/background"
)

// The timer sweeps the store while it holds anything: a second after its first key and after each sweep
// that has dropped keys, at most longestTick after a call, and without calls after twice the time.
// So a store that is idle for days wakes its process a few times.
const (
	shortestTick = time.Second
	longestTick  = 10 * time.Second
	// noTick is the instant of the next tick if there is none, and neverTick if there never is one: time
	// passes by the Clock.
	noTick    = math.MaxInt64
	neverTick = math.MinInt64 / 2
)

// startTimer sees to it that a tick comes soon if the store holds keys.
func (s *Store) startTimer(now int64) {
	at, d := s.tickAt.Load(), longestTick
	if at-now <= longestTick.Microseconds() || s.keys.Load() == 0 {
		return
	}
	if at == noTick {
		d = shortestTick
	}
	s.tickAfter(d, now, at)
}

// tickAfter sets the next tick to d after now, unless it isn't at was any more. The timer doesn't keep a
// store that nobody uses.
func (s *Store) tickAfter(d time.Duration, now, was int64) {
	at := now + d.Microseconds()
	if !s.tickAt.CompareAndSwap(was, at) {
		return
	}
	w := weak.Make(s)
	time.AfterFunc(d, func() {
		if s := w.Value(); s != nil {
			background.Do("removing expired keys", func() { s.tick(d, at) })
		}
	})
}

// tick sweeps as many shards as are swept in a rotation. It was set for the instant at, d before.
func (s *Store) tick(d time.Duration, at int64) {
	if s.tickAt.Load() != at {
		return // a call has set an earlier one
	}
	now, expired, holds := s.steady(), s.expired.Load(), false
	for range rotation / s.every {
		sh := &s.shards[s.next.Add(1)&s.mask]
		sh.lock()
		s.sweepShard(sh, now)
		holds = holds || sh.shared != nil
		sh.mu.Unlock()
	}
	switch {
	case !holds && s.keys.Load() == 0:
		if s.tickAt.CompareAndSwap(at, noTick) {
			s.startTimer(now) // for a key that has come meanwhile
		}
	case s.expired.Load() != expired:
		s.tickAfter(shortestTick, now, at)
	default:
		s.tickAfter(2*d, now, at)
	}
}
