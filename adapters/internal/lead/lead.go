// Package lead makes requests lead to a framework's own context. gin and echo keep a
// context of their own for each request, where authentication stores who is asking, and
// reuse it for later requests.
package lead

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Context is a request's context that leads to the framework's own, a C, until End. It
// is safe for concurrent use: anybody who was given the request may keep it.
type Context[C any] struct {
	parent  context.Context
	own     C
	over    atomic.Bool
	request http.Request
}

// To returns the context of a copy of r, its Request, which leads to own. Both take one
// allocation.
func To[C any](r *http.Request, own C) *Context[C] {
	c := &Context[C]{parent: r.Context(), own: own}
	c.request = *r.WithContext(c) // inlined, the copy in between is on the stack
	return c
}

// Request returns the request that leads to the framework's context.
func (c *Context[C]) Request() *http.Request { return &c.request }

// End says that the framework's context is about to serve another request.
func (c *Context[C]) End() { c.over.Store(true) }

// Of returns the framework's context that r leads to, and whether it is still that of r's
// request.
func Of[C any](r *http.Request) (own C, valid bool) {
	if c, _ := r.Context().Value(key[C]{}).(*Context[C]); c != nil && !c.over.Load() {
		return c.own, true
	}
	return own, false
}

type key[C any] struct{}

func (c *Context[C]) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *Context[C]) Done() <-chan struct{}       { return c.parent.Done() }
func (c *Context[C]) Err() error                  { return c.parent.Err() }

// Value returns c for its own key, and otherwise the parent's value.
func (c *Context[C]) Value(k any) any {
	if _, own := k.(key[C]); own {
		return c
	}
	return c.parent.Value(k)
}
