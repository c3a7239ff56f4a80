// Package frameworkcontext makes requests carry the context of a framework. gin and echo have a
// context of their own for each request, where authentication stores the caller, and
// reuse it for later requests.
package frameworkcontext

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Context is a request's context that carries a framework's context, a C, until End. It is safe
// for concurrent use: functions that get the request may keep it.
type Context[C any] struct {
	parent    context.Context
	framework C
	ended     atomic.Bool
	request   http.Request
}

// New returns the context of a copy of r, its Request, which carries the framework's context. Both are
// one allocation.
func New[C any](r *http.Request, framework C) *Context[C] {
	c := &Context[C]{parent: r.Context(), framework: framework}
	c.request = *r.WithContext(c) // inlined, the copy in between is on the stack
	return c
}

// Request returns the request that carries the framework's context.
func (c *Context[C]) Request() *http.Request { return &c.request }

// End ends the use of the framework's context, which is about to serve another request.
func (c *Context[C]) End() { c.ended.Store(true) }

// From returns the framework's context that r carries. valid reports whether r carries one that hasn't
// ended.
func From[C any](r *http.Request) (framework C, valid bool) {
	if c, _ := r.Context().Value(key[C]{}).(*Context[C]); c != nil && !c.ended.Load() {
		return c.framework, true
	}
	return framework, false
}

type key[C any] struct{}

func (c *Context[C]) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *Context[C]) Done() <-chan struct{}       { return c.parent.Done() }
func (c *Context[C]) Err() error                  { return c.parent.Err() }

// Value returns c for its own key, and otherwise the parent's value.
func (c *Context[C]) Value(k any) any {
	if _, isKey := k.(key[C]); isKey {
		return c
	}
	return c.parent.Value(k)
}
