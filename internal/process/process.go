// Package process holds what one process decides, whatever the store: adaptive limits, and
// the lines of those who wait for turns and slots.
package process

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/waiting"
)

// Process holds the adaptive limits and the waiters of a family of limiters. They are
// made when the first option needs them, by functions that only such options refer to,
// so that other servers aren't linked with their code. It is safe for concurrent use,
// except for Meet. The zero Process has neither.
type Process struct {
	once   sync.Once
	limits atomic.Pointer[adaptive.Process]

	begin  atomic.Pointer[func() Lines] // once a limiter of the family needs lines
	stores atomic.Pointer[[]*Waiters]   // those of each store; replaced by Meet
}

// Waiters are the lines of those who wait for something of one store. A limiter made by
// With may have a store of its own, with limits of the same names.
type Waiters struct{ lines atomic.Pointer[Lines] }

// Lines are lines of waiters: waiting.Lines.
type Lines interface {
	Take(ctx context.Context, c *waiting.Call, by waiting.Caller, waits, slots bool) error
	Peek(ctx context.Context, c *waiting.Call, by waiting.Caller) error
	Vacant() bool
	Hold(of waiting.Key, class uint8, n int64)
	Wake(of waiting.Key)
	WakeAll()
}

// Open makes the lines that aren't there yet, for all stores and those to come, unless
// begin is nil.
func (p *Process) Open(begin func() Lines) {
	if begin == nil {
		return
	}
	p.begin.CompareAndSwap(nil, &begin)
	for _, w := range p.waiters() {
		w.open(begin)
	}
}

// Meet adds the waiters for a store, if it doesn't know them. It is called by one
// goroutine at a time.
func (p *Process) Meet(w *Waiters) {
	all := p.waiters()
	if slices.Contains(all, w) {
		return
	}
	all = append(slices.Clip(all), w)
	p.stores.Store(&all)
	if begin := p.begin.Load(); begin != nil {
		w.open(*begin)
	}
}

func (p *Process) waiters() []*Waiters {
	if all := p.stores.Load(); all != nil {
		return *all
	}
	return nil
}

func (w *Waiters) open(begin func() Lines) {
	if w.lines.Load() == nil {
		l := begin()
		w.lines.CompareAndSwap(nil, &l)
	}
}

// Lines returns the lines, or nil if there are none yet.
func (w *Waiters) Lines() Lines {
	if l := w.lines.Load(); l != nil {
		return *l
	}
	return nil
}

// Wake wakes those who wait for a limit's slots of a key, because one was released.
func (w *Waiters) Wake(limit, key string) {
	if ls := w.Lines(); ls != nil {
		ls.Wake(waiting.Key{Limit: limit, Key: key})
	}
}

// wake wakes those who wait for the slots of an adaptive limit, whatever their store.
func (p *Process) wake(limit, key string) {
	for _, w := range p.waiters() {
		w.Wake(limit, key)
	}
}

// WakeAll wakes those who wait for slots, because limits have changed.
func (p *Process) WakeAll() {
	for _, w := range p.waiters() {
		if ls := w.Lines(); ls != nil {
			ls.WakeAll()
		}
	}
}

// MakeLimits returns the adaptive limits, which begin makes if there are none.
func (p *Process) MakeLimits(begin func(freed func(limit, key string)) adaptive.Process) adaptive.Process {
	p.once.Do(func() {
		all := begin(p.wake)
		p.limits.Store(&all)
	})
	return p.Limits()
}

// Limits returns the adaptive limits, or nil if there are none yet.
func (p *Process) Limits() adaptive.Process {
	if all := p.limits.Load(); all != nil {
		return *all
	}
	return nil
}
