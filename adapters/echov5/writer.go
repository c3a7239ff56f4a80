package stintecho

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"
)

// beneath is the writer that the limiter gets. It writes to what echo's context has as its
// response, which another middleware may have replaced.
type beneath struct {
	to  http.ResponseWriter
	err error // of the next handler, or of the limiter for the application's HTTPErrorHandler

	c       *echo.Context
	led     *led // to c; or nil
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
		b.led = leadTo(r, b.c)
		b.c.SetRequest(&b.led.request)
	}
	return &b.led.request
}

// WriteError makes a beneath a stint.ErrorWriter.
func (b *beneath) WriteError(err error) { b.err = failure(err) }

func (b *beneath) Unwrap() http.ResponseWriter { return b.to }
func (b *beneath) Header() http.Header         { return b.to.Header() }
func (b *beneath) Write(p []byte) (int, error) { return b.to.Write(p) }
func (b *beneath) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(b.to).Hijack()
}

// Written reports whether a response has been sent.
func (b *beneath) Written() bool {
	res, err := echo.UnwrapResponse(b.to)
	return err == nil && res.Committed
}

// WriteHeader sends informational responses past echo, which takes them for the response.
func (b *beneath) WriteHeader(status int) {
	if res, ok := b.to.(*echo.Response); ok && status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		res.ResponseWriter.WriteHeader(status)
		return
	}
	b.to.WriteHeader(status)
}

// Flush does nothing if the writer below can't flush.
func (b *beneath) Flush() { _ = b.FlushError() }

// FlushError flushes what is below echo's response, which panics where that can't flush.
func (b *beneath) FlushError() error {
	to := b.to
	if res, ok := to.(*echo.Response); ok {
		if to = res.ResponseWriter; !res.Committed {
			res.WriteHeader(res.Status)
		}
	}
	return http.NewResponseController(to).Flush()
}
