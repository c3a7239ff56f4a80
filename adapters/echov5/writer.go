package stintecho

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"
)

// baseWriter is the writer that the limiter gets. It writes to what echo's context has as its
// response, which another middleware may have replaced.
type baseWriter struct {
	w   http.ResponseWriter
	err error // of the next handler, or of the limiter for the application's HTTPErrorHandler

	c       *echo.Context
	carried *echoContext // carries c; or nil
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
		b.carried = newEchoContext(r, b.c)
		b.c.SetRequest(&b.carried.request)
	}
	return &b.carried.request
}

// WriteError passes a denial to the router: see stint.Limiter.Deny.
func (b *baseWriter) WriteError(err error) { b.err = httpError(err) }

func (b *baseWriter) Unwrap() http.ResponseWriter { return b.w }
func (b *baseWriter) Header() http.Header         { return b.w.Header() }
func (b *baseWriter) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b *baseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.w).Hijack()
}

// Written reports whether a response has been sent.
func (b *baseWriter) Written() bool {
	res, err := echo.UnwrapResponse(b.w)
	return err == nil && res.Committed
}

// WriteHeader sends informational responses past echo, which takes them for the response.
func (b *baseWriter) WriteHeader(status int) {
	if res, ok := b.w.(*echo.Response); ok && status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		res.ResponseWriter.WriteHeader(status)
		return
	}
	b.w.WriteHeader(status)
}

// Flush does nothing if the writer below can't flush.
func (b *baseWriter) Flush() { _ = b.FlushError() }

// FlushError flushes what is below echo's response, which panics where that can't flush.
func (b *baseWriter) FlushError() error {
	to := b.w
	if res, ok := to.(*echo.Response); ok {
		if to = res.ResponseWriter; !res.Committed {
			res.WriteHeader(res.Status)
		}
	}
	return http.NewResponseController(to).Flush()
}
