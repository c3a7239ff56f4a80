package console

import (
	"sync"
	"sync/atomic"
	"time"
)

// seenKeys remembers which keys a limiter has decided: all of the last 50,000, and at most
// 100,000. Of other keys it reports up to one in fifty as seen. It has two Bloom filters. The
// older is dropped when the newer is full. It is safe for concurrent use.
type seenKeys struct {
	current, previous atomic.Pointer[filter]
	mu                sync.Mutex // held to drop one
}

// A filter has 64 KB, and room for filterKeys keys.
const (
	filterBits = 1 << 19
	filterKeys = 50_000
	probes     = 4
)

type filter struct {
	words [filterBits / 64]atomic.Uint64
	n     atomic.Int64 // keys
	since time.Time    // when it was begun
}

func (s *seenKeys) begin() {
	s.current.Store(&filter{since: time.Now()})
}

// bit returns the place of one of a hash's bits.
func bit(hash uint64, i int) (word int, mask uint64) {
	at := (hash + uint64(i)*(hash>>32|1)) % filterBits
	return int(at / 64), 1 << (at % 64)
}

func (f *filter) has(hash uint64) bool {
	for i := range probes {
		if word, mask := bit(hash, i); f.words[word].Load()&mask == 0 {
			return false
		}
	}
	return true
}

// add adds the hash of a key.
func (s *seenKeys) add(hash uint64) {
	f := s.current.Load()
	if f.has(hash) {
		return
	}
	for i := range probes {
		word, mask := bit(hash, i)
		f.words[word].Or(mask)
	}
	if f.n.Add(1) < filterKeys {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == f { // another may have been faster
		s.previous.Store(f)
		s.begin()
	}
}

// has reports whether a key was added since the instant that is returned.
func (s *seenKeys) has(hash uint64) (bool, time.Time) {
	current, previous := s.current.Load(), s.previous.Load()
	if previous == nil {
		return current.has(hash), current.since
	}
	return current.has(hash) || previous.has(hash), previous.since
}
