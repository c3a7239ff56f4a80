// Package respond observes and paces responses for limits: their status, how much of them
// was written, and how fast they may be written.
//
// A [Watched] response returns a ResponseWriter that can do what the one below
// it can, and records what is written. A [Paced] one also has a pacer for the response's
// body and possibly one for the request's: bytes are paid for before they move, by
// calls to a store.
//
// The package knows a store, charges on it and the functions of a [Payer]. It knows
// neither who admitted the request nor who observes it.
package respond

import (
	"io"
	"net/http"
	"strconv"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Watched is the response to one request. Begin makes the zero Watched ready. Its
// methods are for one goroutine at a time.
type Watched struct {
	// Decides says that limits decide by the response. Its writers have a method
	// NeedsResponse that reports it.
	Decides bool
	// OnHijack, if not nil, is called when the handler has taken over the connection. The function that it
	// returns is called each time that the handler closes the connection.
	OnHijack func() (closed func())

	r        *http.Request       // the request that the next handler got
	w        http.ResponseWriter // the writer given to Writer; nil before
	sink     sink                // of the bytes that the handler writes
	status   int                 // as written; 0 before
	implicit int                 // sent before the first byte if the handler writes no status; 0 leaves that to w
	written  int64               // bytes of the body
	hijacked bool
	panicked bool
	aborted  bool // the panic was http.ErrAbortHandler
	sealed   bool
}

// Begin makes s the response to r.
func (s *Watched) Begin(r *http.Request) { s.r = r }

// Writer returns a writer around w for the next handler, which records what is written.
// It is an http.Flusher or http.Hijacker if http.ResponseController finds one in w, and an io.ReaderFrom if w is.
func (s *Watched) Writer(w http.ResponseWriter) http.ResponseWriter { return s.wrap(w, s) }

// wrap is Writer with another sink.
func (s *Watched) wrap(w http.ResponseWriter, sink sink) http.ResponseWriter {
	s.w, s.sink = w, sink
	return (&writer{s, w}).withInterfaces()
}

// Next returns r, which the next handler gets.
func (s *Watched) Next(r *http.Request) *http.Request {
	s.r = r
	return r
}

// Request returns the request that the next handler got.
func (s *Watched) Request() *http.Request { return s.r }

// RecordPanic records a panic of the handler. aborted says that it was
// http.ErrAbortHandler.
func (s *Watched) RecordPanic(aborted bool) { s.panicked, s.aborted = true, aborted }

// recordWritten records n bytes of the body. For HEAD a server sends none of them.
func (s *Watched) recordWritten(n int64) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.r.Method != http.MethodHead {
		s.written += n
	}
}

// Answered reports whether there is a response: a status, a body or a flush, or a
// connection taken over.
func (s *Watched) Answered() bool { return s.status != 0 || s.hijacked }

// Begun reports whether a response has begun, as far as one of its writers, w or one that it wraps, is a Watched's.
func Begun(w http.ResponseWriter) bool {
	for {
		if of, ok := w.(interface{ answered() bool }); ok && of.answered() {
			return true
		}
		around, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = around.Unwrap()
	}
}

// Unanswered is the status of a response that was never begun and whose client has left,
// as nginx logs it.
const Unanswered = 499

// clientLeft reports whether the request's context has ended before anything was sent.
// gin lets a handler set a status that is sent later.
func (s *Watched) clientLeft() bool {
	if s.hijacked || s.r.Context().Err() == nil {
		return false
	}
	if framework, ok := s.w.(interface{ Written() bool }); ok {
		return !framework.Written()
	}
	return s.status == 0
}

// Outcome is the outcome of a response.
type Outcome struct {
	Status   int   // 101 after a Hijack, 500 after a panic, Unanswered, that of an RPC
	Written  int64 // bytes of the body; 0 for HEAD
	Hijacked bool
}

// Outcome returns the outcome of the response when its handler has returned or
// panicked. ok is false if the handler didn't get a Writer. A panic is a failure
// whatever has been written, except http.ErrAbortHandler, by which a proxy ends a
// response whose client has left.
func (s *Watched) Outcome() (o Outcome, ok bool) {
	return Outcome{s.finalStatus(), s.written, s.hijacked}, s.w != nil
}

// Seal makes the outcome final, because the handler has returned: from then on its writer
// may belong to another response.
func (s *Watched) Seal() { s.status, s.sealed = s.finalStatus(), true }

func (s *Watched) finalStatus() (status int) {
	switch {
	case s.sealed:
		return s.status
	case s.hijacked:
		return http.StatusSwitchingProtocols
	case s.panicked && !(s.aborted && s.status != 0):
		return http.StatusInternalServerError
	case s.clientLeft():
		return Unanswered
	}
	status = s.status
	// gin's writer accepts another status as long as nothing is written.
	if framework, ok := s.w.(interface{ Status() int }); ok && framework.Status() != 0 {
		status = framework.Status()
	}
	if status == 0 {
		status = http.StatusOK // what a server sends for a handler that wrote nothing
	}
	if status == http.StatusOK && s.w != nil {
		return rpcStatus(s.w.Header())
	}
	return status
}

// PushBefore sends a complete response to the client, so that the client doesn't wait for
// a call of the store to that follows. A response without a declared length is left
// alone, because flushing would change its framing.
func (s *Watched) PushBefore(to store.Store) {
	if inside.AnswersAtOnce(to) || s.w == nil || s.sealed || s.hijacked || s.panicked || s.written == 0 {
		return
	}
	if n, err := strconv.ParseInt(s.w.Header().Get("Content-Length"), 10, 64); err == nil && n == s.written {
		_ = http.NewResponseController(s.w).Flush()
	}
}

func (s *Watched) write(w io.Writer, b []byte) (int, error) {
	n, err := w.Write(b)
	s.recordWritten(int64(n))
	return n, err
}

func (s *Watched) writeString(w io.Writer, text string) (int, error) {
	n, err := io.WriteString(w, text)
	s.recordWritten(int64(n))
	return n, err
}

func (s *Watched) readFrom(w io.ReaderFrom, src io.Reader, _ io.Writer) (int64, error) {
	n, err := w.ReadFrom(src)
	if n > 0 {
		s.recordWritten(n)
	}
	return n, err
}

// Answers runs a handler, and reports whether it has answered: by a status, a body, a
// flush or a hijack. If not, w is ready for another answer. A body or a flush without a
// status is sent with the one given.
func Answers(w http.ResponseWriter, r *http.Request, status int, handler func(http.ResponseWriter)) bool {
	s := &Watched{implicit: status}
	s.Begin(r)
	handler(s.Writer(w))
	if s.Answered() {
		return true
	}
	// gin's writer can be written to by methods that net/http's doesn't have.
	framework, ok := w.(interface{ Written() bool })
	return ok && framework.Written()
}
