package stintgin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint/adapters/internal/lead"
)

// beneath is the writer that the limiter gets. It writes to gin's writer, unless a limit
// looks at the response: then to the server's, below gin's. It asks gin for the status,
// which in gin may change until it is written.
type beneath struct {
	gin gin.ResponseWriter
	to  http.ResponseWriter

	c       *gin.Context
	led     *lead.Context[*gin.Context] // to c; or nil
	watched bool
	over    bool // the request has ended, and without a panic
}

// writers holds the writers of requests that have ended.
var writers = sync.Pool{New: func() any { return new(beneath) }}

// put puts b back into the pool, unless a limit's writer around it may have been kept.
func (b *beneath) put() {
	if b.over && !b.watched {
		*b = beneath{}
		writers.Put(b)
	}
}

// Lead makes a copy of r that leads to the gin context the request of that context, and
// returns it: see stint.Limiter.Admit.
func (b *beneath) Lead(r *http.Request) *http.Request {
	if b.led == nil {
		b.led = lead.To(r, b.c)
		b.c.Request = b.led.Request()
	}
	return b.led.Request()
}

// watch lets a limit see what is written to c, through w, until restore is called. w is
// the limiter's writer around b.
//
// Engine.HandleContext puts gin's own writer back into the context. So the limiter's
// writer takes the place of the server's writer below gin's, where everything passes.
// If an outer middleware has replaced gin's writer, what is written there may not be
// what is sent (it may be compressed). Then the limiter's writer goes on top, and
// HandleContext bypasses both.
func (b *beneath) watch(c *gin.Context, w http.ResponseWriter) (restore func()) {
	b.watched = true
	if place := below(b.gin); place != nil {
		server := *place
		b.to = server
		// gin expects CloseNotify of the server's writer, and no limit looks at it.
		*place = struct {
			limited
			closeNotifier
		}{w.(limited), b}
		return func() { *place = server }
	}
	c.Writer = &writer{b.gin, w}
	return func() { c.Writer = b.gin }
}

// below returns where gin's own writer keeps the writer it writes to, or nil for
// another writer. gin has it in an exported field of an unexported type.
func below(w gin.ResponseWriter) *http.ResponseWriter {
	v := reflect.ValueOf(w)
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != reflect.TypeFor[gin.Context]().PkgPath() {
		return nil
	}
	field := v.Elem().FieldByName("ResponseWriter")
	if !field.CanAddr() {
		return nil
	}
	place, _ := field.Addr().Interface().(*http.ResponseWriter)
	return place
}

// limited has the methods of a limiter's writer around a beneath.
type limited interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	io.StringWriter
	Unwrap() http.ResponseWriter
}

// closeNotifier is http.CloseNotifier, which is deprecated.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (b *beneath) Status() int                             { return b.gin.Status() }
func (b *beneath) Written() bool                           { return b.gin.Written() }
func (b *beneath) Unwrap() http.ResponseWriter             { return b.to }
func (b *beneath) Header() http.Header                     { return b.to.Header() }
func (b *beneath) WriteHeader(status int)                  { b.to.WriteHeader(status) }
func (b *beneath) Write(p []byte) (int, error)             { return b.to.Write(p) }
func (b *beneath) WriteString(s string) (n int, err error) { return io.WriteString(b.to, s) }
func (b *beneath) Flush()                                  { _ = http.NewResponseController(b.to).Flush() }
func (b *beneath) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.to).Hijack()
}

// CloseNotify panics, as gin does, if the server's writer doesn't have it.
func (b *beneath) CloseNotify() <-chan bool { return b.to.(closeNotifier).CloseNotify() }

// writer is a gin.ResponseWriter whose limits look at what is written. It asks the
// writer below for what net/http doesn't know (Status, Size, Written), and writes
// through the limiter's, which ends in the same writer.
type writer struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

func (w *writer) WriteHeader(status int)            { w.limited.WriteHeader(status) }
func (w *writer) Write(b []byte) (int, error)       { return w.limited.Write(b) }
func (w *writer) WriteString(s string) (int, error) { return io.WriteString(w.limited, s) }
func (w *writer) Unwrap() http.ResponseWriter       { return w.limited }
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.limited.(http.Hijacker).Hijack()
}

// Flush, and Hijack above, exist because gin's writer has them.
func (w *writer) Flush() { w.limited.(http.Flusher).Flush() }
