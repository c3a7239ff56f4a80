package store

import (
	"slices"
	"sync"
	"weak"
)

// Observers is a store's set of observers. It holds weak references, so that an Observer and
// its limiter can be garbage-collected. The zero value is an empty set. Observers is safe for
// concurrent use.
type Observers struct {
	mu  sync.Mutex
	all []weak.Pointer[Observer]
}

// Observe adds o to the set. If o is added twice, it still gets each notice once.
func (s *Observers) Observe(o *Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(w weak.Pointer[Observer]) bool { return w.Value() == nil || w.Value() == o })
	s.all = append(s.all, weak.Make(o))
}

// Any reports whether there is at least one observer.
func (s *Observers) Any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all, func(w weak.Pointer[Observer]) bool { return w.Value() != nil })
}

// Tell passes n to every observer, and reports whether there is at least one. No lock is held
// while observers run.
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
