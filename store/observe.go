package store

import (
	"slices"
	"sync"
	"weak"
)

// Observable is implemented by stores that tell of what happens to them beside the
// answers to calls. A store made of stores passes on what they tell.
type Observable interface {
	// Observe has o told from now on, for as long as somebody else has o: the store
	// doesn't keep it. See Observers.
	Observe(o *Observer)
}

// Observer is told of notices, by several goroutines at a time: those of callers, and
// the store's own.
type Observer struct{ Tell func(Notice) }

// Notice is what has happened to a store.
type Notice struct {
	Kind NoticeKind
	// Err is why, of Degraded.
	Err error
	// Key and Limit are whose slot it was, of LeaseLost.
	Key   string
	Limit *Limit
}

// NoticeKind says what has happened.
type NoticeKind uint8

const (
	// Degraded: the part of the store that should decide has failed a call, or a
	// probe. Another part decides instead, if there is one.
	Degraded NoticeKind = iota
	// Restored: that part decides again.
	Restored
	// LeaseLost: the lease of a slot that is still held is gone, and somebody else may
	// have the slot.
	LeaseLost
)

// Observers are those of a store, which it doesn't keep: an Observer that nobody else
// has is forgotten, and with it what it leads to, such as a limiter. The zero value has
// none. It is safe for concurrent use.
type Observers struct {
	mu  sync.Mutex
	all []weak.Pointer[Observer]
}

// Observe adds o. Added again it is told once.
func (s *Observers) Observe(o *Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(w weak.Pointer[Observer]) bool { return w.Value() == nil || w.Value() == o })
	s.all = append(s.all, weak.Make(o))
}

// Tell tells the observers of n, with no lock held, and reports whether there are any.
func (s *Observers) Tell(n Notice) bool {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	told := false
	for _, w := range all {
		if o := w.Value(); o != nil {
			o.Tell(n)
			told = true
		}
	}
	return told
}
