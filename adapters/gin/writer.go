package stintgin

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"
)

// wrapper wraps the writer of a response that a permit looks at.
type wrapper = func(http.ResponseWriter) http.ResponseWriter

// watch lets a permit see what is written to c until restore is called.
//
// Engine.HandleContext puts gin's own writer back into the context. So the permit's
// writer takes the place of the server's writer below gin's, where everything passes.
// If an outer middleware has replaced gin's writer, what is written there may not be
// what is sent (it may be compressed). Then the permit's writer goes on top, and
// HandleContext bypasses both.
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

// between returns the permit's writer with CloseNotify, which gin expects of the server's
// and no limit looks at.
func between(wrap wrapper, server http.ResponseWriter, above gin.ResponseWriter) http.ResponseWriter {
	b := &beneath{server, above}
	return struct {
		limited
		closeNotifier
	}{wrap(b).(limited), b}
}

// limited has the methods of a permit's writer around a beneath.
type limited interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	io.StringWriter
	Unwrap() http.ResponseWriter
}

// closeNotifier is http.CloseNotifier, which is deprecated.
type closeNotifier interface{ CloseNotify() <-chan bool }

// beneath is the server's writer below gin's. It asks gin for the status, which in gin
// may change until it is written.
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

// CloseNotify panics, as gin does, if the server's writer doesn't have it.
func (b *beneath) CloseNotify() <-chan bool {
	return b.ResponseWriter.(closeNotifier).CloseNotify()
}

// writer is a gin.ResponseWriter whose limits look at what is written. It asks the
// writer below for what net/http doesn't know (Status, Size, Written), and writes
// through the permit's, which ends in the same writer.
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
