package stintgin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"
)

// wrapper is what a permit has for the writer of a response that it looks at.
type wrapper = func(http.ResponseWriter) http.ResponseWriter

// watch has a permit look at what is written to c until restore is called.
//
// Engine.HandleContext puts gin's own writer back into the context. The permit's
// writer therefore takes the server's place below that one, where everything
// passes. Where a middleware further out has replaced gin's writer, what is written
// here need not be what is sent (it may be compressed), so the permit's writer
// goes on top; HandleContext then bypasses both.
func watch(c *gin.Context, wrap wrapper) (restore func()) {
	outer := c.Writer
	if place := below(outer); place != nil {
		server := *place
		*place = between(wrap, server, outer)
		return func() { *place = server }
	}
	c.Writer = &writer{outer, wrap(outer)}
	return func() { c.Writer = outer }
}

// below is where gin's own writer keeps the one that it writes to, nil for another
// writer. gin has it in an exported field, but of a type that isn't.
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

// between is the permit's writer with what gin looks for below its own: that has
// to push and to tell when the client has left, which no limit looks at.
func between(wrap wrapper, server http.ResponseWriter, above gin.ResponseWriter) http.ResponseWriter {
	b := &beneath{server, above}
	l := wrap(b).(limited)
	if pusher, ok := server.(http.Pusher); ok {
		return struct {
			limited
			closeNotifier
			http.Pusher
		}{l, b, pusher}
	}
	return struct {
		limited
		closeNotifier
	}{l, b}
}

// limited is what a permit's writer can do around a beneath.
type limited interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	io.StringWriter
	Unwrap() http.ResponseWriter
}

// closeNotifier is http.CloseNotifier, which is deprecated.
type closeNotifier interface{ CloseNotify() <-chan bool }

// beneath is a server's writer below gin's. It knows the status before it is
// written, which in gin may change until then.
type beneath struct {
	http.ResponseWriter
	gin gin.ResponseWriter
}

func (b *beneath) Status() int                 { return b.gin.Status() }
func (b *beneath) Unwrap() http.ResponseWriter { return b.ResponseWriter }
func (b *beneath) WriteString(s string) (n int, err error) {
	return io.WriteString(b.ResponseWriter, s)
}
func (b *beneath) Flush() { _ = http.NewResponseController(b.ResponseWriter).Flush() }
func (b *beneath) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.ResponseWriter).Hijack()
}

// CloseNotify panics, as gin does, where the server's writer hasn't got it.
func (b *beneath) CloseNotify() <-chan bool {
	return b.ResponseWriter.(closeNotifier).CloseNotify()
}

// writer is a gin.ResponseWriter whose limits look at what is written: it asks
// the one below for what net/http doesn't know (Status, Size, Written), and writes
// through theirs, which ends in that one as well.
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

// Flush, and Hijack above, are there because gin's writer has them.
func (w *writer) Flush() { w.limited.(http.Flusher).Flush() }
