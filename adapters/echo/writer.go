package stintecho

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint/adapters/internal/lead"
)

// beneath is the writer that the limiter gets. It writes to echo's response, unless a
// limit looks at what is written: then the limiter's writer takes the place of the one
// below echo's response, and beneath writes to that.
type beneath struct {
	res *echo.Response
	to  http.ResponseWriter
	err error // of the next handler, or of the limiter for the application's HTTPErrorHandler

	c       echo.Context
	led     *lead.Context[echo.Context] // to c; or nil
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

// Lead makes a copy of r that leads to the echo context the request of that context, and
// returns it: see stint.Limiter.Admit.
func (b *beneath) Lead(r *http.Request) *http.Request {
	if b.led == nil {
		b.led = lead.To(r, b.c)
		b.c.SetRequest(b.led.Request())
	}
	return b.led.Request()
}

// WriteError makes a beneath a stint.ErrorWriter.
func (b *beneath) WriteError(err error) { b.err = failure(err) }

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
