package stintecho

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint/adapters/internal/frameworkcontext"
)

// baseWriter is the writer that the limiter gets. It writes to echo's response, unless a
// limit looks at what is written: then the limiter's writer takes the place of the one
// below echo's response, and baseWriter writes to that.
type baseWriter struct {
	res *echo.Response
	w   http.ResponseWriter
	err error // of the next handler, or of the limiter for the application's HTTPErrorHandler

	c       echo.Context
	carried *frameworkcontext.Context[echo.Context] // carries c; or nil
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

// RequestWithContext returns a copy of r that carries the echo context, and makes it the request of that
// context: see stint.Limiter.Admit.
func (b *baseWriter) RequestWithContext(r *http.Request) *http.Request {
	if b.carried == nil {
		b.carried = frameworkcontext.New(r, b.c)
		b.c.SetRequest(b.carried.Request())
	}
	return b.carried.Request()
}

// WriteError passes a denial to the router: see stint.Limiter.Deny.
func (b *baseWriter) WriteError(err error) { b.err = httpError(err) }

func (b *baseWriter) Written() bool                           { return b.res.Committed }
func (b *baseWriter) Unwrap() http.ResponseWriter             { return b.w }
func (b *baseWriter) Header() http.Header                     { return b.w.Header() }
func (b *baseWriter) Write(p []byte) (int, error)             { return b.w.Write(p) }
func (b *baseWriter) WriteString(s string) (n int, err error) { return io.WriteString(b.w, s) }
func (b *baseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.w).Hijack()
}

// WriteHeader sends informational responses past echo, which takes them for the response.
func (b *baseWriter) WriteHeader(status int) {
	if b.w == http.ResponseWriter(b.res) && status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		b.res.Writer.WriteHeader(status)
		return
	}
	b.w.WriteHeader(status)
}

// Flush does nothing if the writer below can't flush.
func (b *baseWriter) Flush()            { _ = b.FlushError() }
func (b *baseWriter) FlushError() error { return http.NewResponseController(b.w).Flush() }
