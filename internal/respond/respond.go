// Package respond is what a limit learns from a response and does to it: its
// status, how much of it was written, and how fast it may be written.
//
// A [Response] hands out a ResponseWriter that can do exactly what the one below
// it can, and notes what is written. Where limits pace bytes it has a lane for the
// response's body and maybe one for the request's: bytes are paid for before they
// move, by calls to a store.
//
// It knows a store, charges on it and the functions of a [Payer], and neither who
// admitted the request nor who observes it.
package respond

import (
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/store"
)

// Response is the response to one request. The zero Response is made ready by
// Begin. But for the request's body, which may be read while the handler returns,
// its methods are for one goroutine at a time.
type Response struct {
	r        *http.Request       // as the next handler was given it
	w        http.ResponseWriter // that Writer was given; nil before
	status   int                 // that was written; 0 before
	written  int64               // bytes of the body
	hijacked bool
	panicked bool
	aborted  bool // panicked with http.ErrAbortHandler
	// down and up pace the response's body and the request's; nil where nothing does.
	down, up *lane
}

// Begin makes s the response to r.
func (s *Response) Begin(r *http.Request) { s.r = r }

// Pace has entries, of which there is at least one, pace the response's body and,
// where they say so, the request's.
func (s *Response) Pace(p Payer, entries []Entry) {
	s.down = newLane(p, s.r.Context(), entries)
	s.down.flush = func() { _ = http.NewResponseController(s.w).Flush() }
	var up []Entry
	for _, e := range entries {
		if e.Requests {
			up = append(up, e)
		}
	}
	if len(up) > 0 && s.r.Body != nil && s.r.Body != http.NoBody {
		s.up = newLane(p, s.r.Context(), up)
		s.up.total = s.r.ContentLength
	}
}

// Next returns r for the next handler: r itself or, where its body is paced, a
// copy of it. own: r is a copy already.
func (s *Response) Next(r *http.Request, own bool) *http.Request {
	if s.up != nil {
		if !own {
			shallow := *r
			r = &shallow
		}
		r.Body = &pacedBody{r.Body, s.up}
	}
	s.r = r
	return r
}

// Request returns the request as the next handler was given it.
func (s *Response) Request() *http.Request { return s.r }

// Panicked notes a panic of the handler. aborted: with http.ErrAbortHandler.
func (s *Response) Panicked(aborted bool) { s.panicked, s.aborted = true, aborted }

// wrote notes n bytes of the body. To HEAD a server sends none of them.
func (s *Response) wrote(n int64) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.r.Method != http.MethodHead {
		s.written += n
	}
}

// Answered reports whether there is a response: a status, a body or a flush, or a
// connection taken over.
func (s *Response) Answered() bool { return s.status != 0 || s.hijacked }

// Outcome is what a response has come to.
type Outcome struct {
	Status   int   // 101 after a Hijack, 500 after a panic
	Written  int64 // bytes of the body; 0 for HEAD
	Hijacked bool
}

// Outcome returns what the response has come to when its handler has returned or
// panicked; ok is false if the handler was not given a Writer. A panic is a
// failure whatever has been written, but http.ErrAbortHandler is how a proxy ends
// a response whose client has left.
func (s *Response) Outcome() (o Outcome, ok bool) {
	return Outcome{s.end(), s.written, s.hijacked}, s.w != nil
}

func (s *Response) end() (status int) {
	switch {
	case s.hijacked:
		return http.StatusSwitchingProtocols
	case s.panicked && !(s.aborted && s.status != 0):
		return http.StatusInternalServerError
	}
	// gin's writer takes another status for as long as nothing is written.
	if asked, ok := s.w.(interface{ Status() int }); ok && asked.Status() != 0 {
		return asked.Status()
	}
	if s.status == 0 {
		return http.StatusOK // what a server sends for a handler that wrote nothing
	}
	return s.status
}

// PushBefore sends what is complete to the client, so that it doesn't wait for
// what to is told behind it. What has no declared length is left alone: to flush
// it would change how it is framed.
func (s *Response) PushBefore(to store.Store) {
	if store.AnswersAtOnce(to) || s.w == nil || s.hijacked || s.panicked || s.written == 0 {
		return
	}
	if n, err := strconv.ParseInt(s.w.Header().Get("Content-Length"), 10, 64); err == nil && n == s.written {
		if f, ok := s.w.(http.Flusher); ok {
			f.Flush()
		}
	}
}

// End stops the pacing, and returns the charges to settle: they give back the
// bytes that were paid for and have not moved.
func (s *Response) End() []store.Charge { return append(s.down.end(), s.up.end()...) }

// HeldUp returns how long writing has been held up: time that says nothing about
// how fast a handler is.
func (s *Response) HeldUp() time.Duration { return s.down.heldUp() }

// Paced is what an Entry has made of a response.
type Paced struct {
	Bytes, RequestBytes int64         // that have moved
	Waited              time.Duration // that they were held up for, or would have been
	Err                 error         // why the response was cut off, or nil
}

// Paced returns what the Entry has made of the response.
func (s *Response) Paced(e Entry) Paced {
	p := Paced{}
	p.Bytes, p.Waited, p.Err = s.down.outcome(e)
	if s.up != nil && e.Requests {
		n, waited, err := s.up.outcome(e)
		p.RequestBytes, p.Waited = n, p.Waited+waited
		if p.Err == nil {
			p.Err = err
		}
	}
	return p
}
