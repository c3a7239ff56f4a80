// Package framework lets keys be read from a request as a router's framework sees it. gin
// and echo keep a context of their own for each request, where authentication stores
// who is asking, and reuse it for later requests.
//
// An adapter makes such a key ([Key]). It finds the framework's context
// through the request's ([Context]), which leads there only while a limiter decides.
package framework

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Own is a framework's own context of a request.
type Own interface{ SetRequest(*http.Request) }

// Context is a request's context that leads to the framework's own, until End. It is
// safe for concurrent use: anybody who was given the request may keep it.
type Context struct {
	parent context.Context

	mu    sync.Mutex
	own   any             // nil after End
	above context.Context // a context below parent whose values are found too; or nil
}

// Lead returns a context below parent that leads to own.
func Lead(parent context.Context, own any) *Context { return &Context{parent: parent, own: own} }

// Enter returns a copy of r whose context leads to own, and makes own hold that copy:
// what a key function parses of a body through one of them is parsed for the others and
// for the next handler. The adapter leaves files of a form to the server, whose request r
// is.
func Enter(r *http.Request, own Own) (*http.Request, *Context) {
	c := Lead(r.Context(), own)
	r = r.WithContext(c)
	own.SetRequest(r)
	return r, c
}

// End drops the framework's context, which is about to serve another request.
func (c *Context) End() {
	c.mu.Lock()
	c.own = nil
	c.mu.Unlock()
}

// Carry makes c carry the values of ctx, which descends from the parent.
func (c *Context) Carry(ctx context.Context) {
	c.mu.Lock()
	c.above = ctx
	c.mu.Unlock()
}

func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *Context) Done() <-chan struct{}       { return c.parent.Done() }
func (c *Context) Err() error                  { return c.parent.Err() }

type ownKey struct{}

// Value returns the parent's value, except for what c leads to and carries.
func (c *Context) Value(key any) any {
	c.mu.Lock()
	own, above := c.own, c.above
	c.mu.Unlock()
	if key == (ownKey{}) {
		return own
	}
	if above != nil {
		return above.Value(key)
	}
	return c.parent.Value(key)
}
