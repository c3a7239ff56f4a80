package stintecho

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/labstack/echo/v4"
)

// beneath is the writer that the limiter gets. It writes to echo's response, unless a
// limit looks at what is written: then the limiter's writer takes the place of the one
// below echo's response, and beneath writes to that.
type beneath struct {
	res    *echo.Response
	to     http.ResponseWriter
	denied error // left to the application's HTTPErrorHandler
}

// WriteError makes a beneath a stint.ErrorWriter.
func (b *beneath) WriteError(err error) { b.denied = err }

func (b *beneath) Written() bool                           { return b.res.Committed }
func (b *beneath) Unwrap() http.ResponseWriter             { return b.to }
func (b *beneath) Header() http.Header                     { return b.to.Header() }
func (b *beneath) Write(p []byte) (int, error)             { return b.to.Write(p) }
func (b *beneath) WriteString(s string) (n int, err error) { return io.WriteString(b.to, s) }
func (b *beneath) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.to).Hijack()
}

// WriteHeader sends informational responses past echo, which takes them for the response.
func (b *beneath) WriteHeader(status int) {
	if b.to == http.ResponseWriter(b.res) && status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		b.res.Writer.WriteHeader(status)
		return
	}
	b.to.WriteHeader(status)
}

// Flush does nothing if the writer below can't flush.
func (b *beneath) Flush()            { _ = b.FlushError() }
func (b *beneath) FlushError() error { return http.NewResponseController(b.to).Flush() }
