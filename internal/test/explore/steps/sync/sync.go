// Package sync is package sync for code that is explored: see package steps.
package sync

import (
	"sync"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
)

// Mutex is sync.Mutex.
type Mutex struct{ held bool }

// Lock is a step that waits for the mutex.
func (m *Mutex) Lock() {
	steps.AtLock(unsafe.Pointer(m), &m.held)
	m.held = true
	m.note("locks")
}

// TryLock is a step.
func (m *Mutex) TryLock() bool {
	steps.At(steps.TryLock, unsafe.Pointer(m))
	if m.held {
		steps.Unchanged()
		m.note("fails to lock")
		return false
	}
	m.held = true
	m.note("locks")
	return true
}

// Unlock is a step.
func (m *Mutex) Unlock() {
	steps.At(steps.Unlock, unsafe.Pointer(m))
	m.held = false
	m.note("unlocks")
}

func (m *Mutex) note(what string) {
	if steps.Tracing() {
		steps.Note("%s mutex %s", what, steps.Name(unsafe.Pointer(m)))
	}
}

// WaitGroup is sync.WaitGroup.
type WaitGroup struct {
	n     int
	taken bool // n isn't 0
}

// Add is a step.
func (w *WaitGroup) Add(n int) {
	steps.At(steps.Store, unsafe.Pointer(w))
	w.add(n)
}

// Done is a step. Like Unlock, it can't be taken where the step can that waits for it.
func (w *WaitGroup) Done() {
	steps.At(steps.Unlock, unsafe.Pointer(w))
	w.add(-1)
}

// Wait is a step that waits for the last Done.
func (w *WaitGroup) Wait() {
	steps.AtLock(unsafe.Pointer(w), &w.taken)
	if steps.Tracing() {
		steps.Note("waits for group %s no more", steps.Name(unsafe.Pointer(w)))
	}
}

func (w *WaitGroup) add(n int) {
	w.n += n
	w.taken = w.n != 0
	if steps.Tracing() {
		steps.Note("group %s is %d", steps.Name(unsafe.Pointer(w)), w.n)
	}
}

// Pool is a sync.Pool that loses nothing. Get and Put are no steps: what comes from a pool
// tells nothing.
type Pool struct {
	New  func() any
	idle []any
}

// Get is no step.
func (p *Pool) Get() any {
	if n := len(p.idle); n > 0 {
		x := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return x
	}
	if p.New == nil {
		return nil
	}
	return p.New()
}

// Put is no step.
func (p *Pool) Put(x any) { p.idle = append(p.idle, x) }

// Once is sync.Once.
type Once struct {
	m    Mutex
	done bool
}

// Do is the steps of a mutex: who comes while f runs waits for it.
func (o *Once) Do(f func()) {
	o.m.Lock()
	defer o.m.Unlock()
	if !o.done {
		defer func() { o.done = true }()
		f()
	}
}

// OnceFunc is sync.OnceFunc, for functions that don't panic.
func OnceFunc(f func()) func() {
	var once Once
	return func() { once.Do(f) }
}

// Map is here for packages of which something else is explored: no step.
type Map = sync.Map
