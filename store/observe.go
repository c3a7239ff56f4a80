package store

import (
	"slices"
	"sync"
	"weak"
)

// Observable is implemented by stores that report events other than the answers to
// calls. A store made of other stores passes on their events.
type Observable interface {
	// Observe tells o of events from now on, for as long as the caller keeps a
	// reference to o: the store doesn't. See Observers.
	Observe(o *Observer)
}

// Degradable is implemented by stores that go on without the store they prefer.
type Degradable interface {
	// Degraded returns why calls don't go to the preferred store now, or nil if they do.
	// It makes no call. It is safe for concurrent use.
	Degraded() error
}

// Observer receives notices. Its functions are called concurrently, from the goroutines of
// callers and from the store's own.
type Observer struct {
	Tell func(Notice)
}

// Notice is one event of a store.
type Notice struct {
	Kind NoticeKind
	// Store is the store that CallFailed, Degraded and Restored are about. If it is nil, that is
	// the one that reports.
	Store Store
	// Err is the cause of CallFailed and Degraded, and of MayForget and Full what to do about it.
	// A failure is logged once, however many limiters are told, if its Err is a pointer of its own.
	Err error
	// Key and Limit identify the slot of LeaseLost.
	Key   string
	Limit *Limit
}

// NoticeKind is the kind of an event.
type NoticeKind uint8

const (
	// CallFailed: the part of the store that should decide has failed a call. Another part has
	// decided it, if there is one, and the next call goes to this part again.
	CallFailed NoticeKind = iota
	// Degraded: calls no longer go to the part that should decide, or that part has failed another
	// probe.
	Degraded
	// Restored: the part that should decide does so again.
	Restored
	// LeaseLost: the store had lost the lease of a slot that is still held, so another request
	// may have got the slot. The slot counts again, unless another process has reset the limit.
	// It is sent only to the Observer of the Charge that took the lease, once for each loss.
	LeaseLost
	// MayForget: the store's server may drop counts before they expire, so a key that has used up a
	// limit may get all of it again. If Err is nil, the server no longer does so.
	MayForget
	// Full: the store has no room for new keys. Err says what happens to them, and what to write.
	Full
)

// Observers is a store's set of observers. It holds weak references: an Observer that
// nothing else refers to is forgotten, and so is what it refers to, such as a limiter.
// The zero value is empty. It is safe for concurrent use.
type Observers struct {
	mu  sync.Mutex
	all []weak.Pointer[Observer]
}

// Observe adds o. An Observer that is added twice is told once.
func (s *Observers) Observe(o *Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(w weak.Pointer[Observer]) bool { return w.Value() == nil || w.Value() == o })
	s.all = append(s.all, weak.Make(o))
}

// Any reports whether there are any observers.
func (s *Observers) Any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(w weak.Pointer[Observer]) bool { return w.Value() != nil })
}

// Tell passes n to every observer, holding no lock, and reports whether there are any.
func (s *Observers) Tell(n Notice) bool {
	all := s.present()
	for _, o := range all {
		o.Tell(n)
	}
	return len(all) > 0
}

// present returns the observers that aren't garbage.
func (s *Observers) present() (all []*Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.all {
		if o := w.Value(); o != nil {
			all = append(all, o)
		}
	}
	return all
}
