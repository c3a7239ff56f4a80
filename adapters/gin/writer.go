package stintgin

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer is a gin.ResponseWriter whose limits look at what is written: it asks
// gin's own for what net/http doesn't know (Status, Size, Written), and writes
// through theirs, which ends in gin's as well.
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
