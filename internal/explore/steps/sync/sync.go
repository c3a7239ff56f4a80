// Package sync is package sync for code that is explored: see package steps.
package sync

import (
	"sync"
	"unsafe"

	"github.com/stint-go/stint/internal/explore/steps"
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

// Map is here for packages of which something else is explored: no step.
type Map = sync.Map
