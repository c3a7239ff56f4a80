package redisstore

import (
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

const (
	// watchEvery is how often the servers are asked about what observers are told.
	watchEvery = 5 * time.Minute
	// watchWithin is how long all of them may take to answer a question.
	watchWithin = 2 * time.Second
)

// watch is what a store looks for in the background, for as long as it has observers.
type watch struct {
	observers store.Observers

	mu sync.Mutex
	on bool // a look is under way or due, or the servers refuse it
}

// Observe implements store.Observable: it tells o of store.MayForget. It returns at once,
// and asks the servers in the background.
func (s *Store) Observe(o *store.Observer) {
	if s.Misconfigured() != nil {
		return
	}
	w := &s.watch
	w.observers.Observe(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.on {
		w.on = true
		go s.watchServers()
		return
	}
	s.evictions.repeat(o)
}

// watchServers looks now, and from time to time while anybody observes.
func (s *Store) watchServers() {
	if !s.observed() {
		return
	}
	again := true
	background.Do("asking a Redis for observers", func() { again = s.lookForEvictions() }) // hooks may panic
	if again {
		time.AfterFunc(watchEvery, s.watchServers)
	}
}

// observed reports whether to look. Without observers, the next one starts the watch again.
func (s *Store) observed() bool {
	select {
	case <-s.closed:
		return false
	default:
	}
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = w.observers.Any() // Observe adds an observer before it looks at this
	return w.on
}
