package stintgin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint/adapters/internal/frameworkcontext"
)

// baseWriter is the writer that the limiter gets. It writes to gin's writer, unless a limit
// looks at the response: then to the server's, below gin's. It asks gin for the status,
// which in gin may change until it is written.
type baseWriter struct {
	gin gin.ResponseWriter
	w   http.ResponseWriter

	c       *gin.Context
	carried *frameworkcontext.Context[*gin.Context] // carries c; or nil
	watched bool
	over    bool // the request has ended, and without a panic
}

// writers holds the writers of requests that have ended.
var writers = sync.Pool{New: func() any { return new(baseWriter) }}

// put puts b back into the pool, unless a limit's writer around it may have been kept.
func (b *baseWriter) put() {
	if b.over && !b.watched {
		*b = baseWriter{}
		writers.Put(b)
	}
}

// RequestWithContext returns a copy of r that carries the gin context, and makes it the request of that
// context: see stint.Limiter.Admit.
func (b *baseWriter) RequestWithContext(r *http.Request) *http.Request {
	if b.carried == nil {
		b.carried = frameworkcontext.New(r, b.c)
		b.c.Request = b.carried.Request()
	}
	return b.carried.Request()
}

// watch lets a limit see what is written to c, through w, until restore is called. w is
// the limiter's writer around b.
//
// Engine.HandleContext puts gin's own writer back into the context. So the limiter's
// writer takes the place of the server's writer below gin's, where everything passes.
// If an outer middleware has replaced gin's writer, what is written there may not be
// what is sent (it may be compressed). Then the limiter's writer goes on top, and
// HandleContext bypasses both.
func (b *baseWriter) watch(c *gin.Context, w http.ResponseWriter) (restore func()) {
	b.watched = true
	if place := below(b.gin); place != nil {
		server := *place
		b.w = server
		*place = serverWriter{w.(limited), b}
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

// limited has the methods of a limiter's writer around a baseWriter.
type limited interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	io.StringWriter
}

// serverWriter is the limiter's writer in the place of the server's. gin expects CloseNotify of the server's writer,
// and no limit looks at it.
type serverWriter struct {
	limited
	closeNotifier
}

// Unwrap returns the limiter's writer. The Unwrap of that leads past it.
func (w serverWriter) Unwrap() http.ResponseWriter { return w.limited }

// closeNotifier is http.CloseNotifier, which is deprecated.
type closeNotifier interface{ CloseNotify() <-chan bool }

func (b *baseWriter) Status() int                             { return b.gin.Status() }
func (b *baseWriter) Written() bool                           { return b.gin.Written() }
func (b *baseWriter) Unwrap() http.ResponseWriter             { return b.w }
func (b *baseWriter) Header() http.Header                     { return b.w.Header() }
func (b *baseWriter) WriteHeader(status int)                  { b.w.WriteHeader(status) }
func (b *baseWriter) Write(p []byte) (int, error)             { return b.w.Write(p) }
func (b *baseWriter) WriteString(s string) (n int, err error) { return io.WriteString(b.w, s) }
func (b *baseWriter) Flush()                                  { _ = http.NewResponseController(b.w).Flush() }
func (b *baseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.w).Hijack()
}

// CloseNotify panics, as gin does, if the server's writer doesn't have it.
func (b *baseWriter) CloseNotify() <-chan bool { return b.w.(closeNotifier).CloseNotify() }

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
