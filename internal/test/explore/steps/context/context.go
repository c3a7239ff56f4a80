// Package context is package context for code that is explored: see package steps.
package context

import (
	"context"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
)

// What is package context's.
type (
	Context    = context.Context
	CancelFunc = context.CancelFunc
)

// The errors of package context.
var (
	Canceled         = context.Canceled
	DeadlineExceeded = context.DeadlineExceeded
)

// Background is context.Background.
func Background() Context { return context.Background() }

// WithoutCancel is context.WithoutCancel.
func WithoutCancel(parent Context) Context { return context.WithoutCancel(parent) }

// WithValue is context.WithValue.
func WithValue(parent Context, key, v any) Context { return context.WithValue(parent, key, v) }

// cancelable is a context that can end.
type cancelable struct {
	Context
	done     chan struct{}
	err      error
	end      time.Time
	children []*cancelable
}

func (c *cancelable) Done() <-chan struct{} { return c.done }

// Err is a step.
func (c *cancelable) Err() error {
	steps.At(steps.Load, unsafe.Pointer(c))
	steps.Note("context %s: %v", steps.Name(unsafe.Pointer(c)), c.err)
	return c.err
}

func (c *cancelable) Deadline() (time.Time, bool) {
	if !c.end.IsZero() {
		return c.end, true
	}
	return c.Context.Deadline()
}

type self struct{}

func (c *cancelable) Value(key any) any {
	if key == (self{}) {
		return c
	}
	return c.Context.Value(key)
}

// WithCancel is context.WithCancel.
func WithCancel(parent Context) (Context, CancelFunc) {
	c := newCancelable(parent)
	return c, func() { c.cancel(Canceled) }
}

// AfterFunc is context.AfterFunc; its stop says nothing.
func AfterFunc(ctx Context, f func()) (stop func() bool) {
	stopped := make(chan struct{})
	lang.Go(func() {
		if lang.Select(false, lang.In(ctx.Done()), lang.In(stopped)) == 0 {
			f()
		}
	})
	return func() bool {
		lang.Close(stopped)
		return false
	}
}

func newCancelable(parent Context) *cancelable {
	c := &cancelable{Context: parent, done: make(chan struct{})}
	if above, ok := parent.Value(self{}).(*cancelable); ok && parent.Done() != nil {
		steps.At(steps.Store, unsafe.Pointer(above))
		if above.children = append(above.children, c); above.err != nil {
			c.err = above.err
			close(c.done)
		}
	}
	return c
}

// cancel is a step, and one more for each context below.
func (c *cancelable) cancel(err error) {
	steps.AtBoth(unsafe.Pointer(c), *(*unsafe.Pointer)(unsafe.Pointer(&c.done)))
	if c.err != nil {
		return
	}
	c.err = err
	close(c.done)
	steps.Note("context %s ends: %v", steps.Name(unsafe.Pointer(c)), err)
	for _, below := range c.children {
		below.cancel(err)
	}
}

// WithTimeout is context.WithTimeout.
func WithTimeout(parent Context, d time.Duration) (Context, CancelFunc) {
	return WithDeadline(parent, steps.Now().Add(d))
}

// WithDeadline is context.WithDeadline.
func WithDeadline(parent Context, end time.Time) (Context, CancelFunc) {
	c := newCancelable(parent)
	if c.end = end; c.err != nil {
		return c, func() {}
	}
	t := steps.NewTimer(end.Sub(steps.Now()), func() { c.cancel(DeadlineExceeded) }, nil, nil)
	return c, func() {
		t.Stop()
		c.cancel(Canceled)
	}
}
