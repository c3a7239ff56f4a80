package stint

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/felixge/httpsnoop"

	"github.com/stint-go/stint/store"
)

// response is what a permit knows of the response to its request. Only permits
// of limits that ask for it have one: no other ResponseWriter is wrapped.
type response struct {
	r        *http.Request       // as the next handler was given it
	w        http.ResponseWriter // that ResponseWriter was given; nil before
	status   int                 // that was written; 0 before
	written  int64               // bytes of the body
	hijacked bool
	panicked bool
	aborted  bool   // panicked with http.ErrAbortHandler
	byHand   []bool // of each charge: the handler has settled it
	// down and up pace the response's body and the request's; nil where nothing does.
	down, up *lane
}

// responded makes the permit's part of the response, if some limit asks for it.
func (c *call) responded() *response {
	if c.r == nil {
		return nil
	}
	if len(c.paced) > 0 {
		s := &response{r: c.r}
		s.pace(c.lim, slices.Clone(c.paced))
		return s
	}
	for _, e := range c.entries {
		if e.settle != nil || e.adaptive != nil {
			return &response{r: c.r}
		}
	}
	return nil
}

// request is r for the next handler. own: it is a copy already.
func (s *response) request(r *http.Request, own bool) *http.Request {
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

// has reports whether a Bandwidth that paces the response is such a one. It is
// called on a nil response too.
func (s *response) has(which func(*entry) bool) bool {
	return s != nil && s.down != nil && slices.ContainsFunc(s.down.tolls, func(t toll) bool { return which(t.entry) })
}

// NeedsResponse reports whether a limit of the permit looks at the response or
// paces it:
// ResponseWriter then returns another writer than it is given.
func (p *Permit) NeedsResponse() bool { return p != nil && p.response != nil }

// ResponseWriter returns the writer for the next handler: w itself, unless a
// limit looks at the response or paces it. Then it is one around w that can do exactly
// what w can: it is an http.Flusher, http.Hijacker, http.Pusher or io.ReaderFrom
// if w is one, and Unwrap gives w, as http.ResponseController wants it. Call it
// once. What net/http keeps to itself doesn't get through: http.MaxBytesReader
// can't have the server close the connection, so mount http.MaxBytesHandler
// further out.
func (p *Permit) ResponseWriter(w http.ResponseWriter) http.ResponseWriter {
	if !p.NeedsResponse() {
		return w
	}
	return p.response.watch(w)
}

// watch is a writer around w that notes what is written.
//
// Which of the optional interfaces w has, nobody can say at compile time, and a
// wrapper that has others breaks handlers: there are as many wrappers as
// combinations, and httpsnoop has them all.
func (s *response) watch(w http.ResponseWriter) http.ResponseWriter {
	s.w = w
	var write func([]byte) (int, error)
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				// Informational answers come before the one that counts.
				if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
					s.status = status
				}
				next(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			write = func(b []byte) (int, error) { return s.write(next, b) }
			return write
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(text string) (int, error) {
				if s.paces() {
					return write([]byte(text))
				}
				start := s.begin()
				n, err := next(text)
				s.passed(int64(n), start)
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { return s.readFrom(next, src, write) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				s.wrote(0)
				next()
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, buf, err := next()
				s.hijacked = s.hijacked || err == nil
				return conn, buf, err
			}
		},
	})
}

// wrote notes n bytes of the body. To HEAD a server sends none of them.
func (s *response) wrote(n int64) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	if s.r.Method != http.MethodHead {
		s.written += n
	}
}

// end is what the response has come to when the handler has returned or
// panicked. A panic is a failure whatever has been written, but
// http.ErrAbortHandler is how a proxy ends a response whose client has left.
func (s *response) end() (status int, written int64) {
	switch {
	case s.hijacked:
		return http.StatusSwitchingProtocols, s.written
	case s.panicked && !(s.aborted && s.status != 0):
		return http.StatusInternalServerError, s.written
	}
	// gin's writer takes another status for as long as nothing is written.
	if asked, ok := s.w.(interface{ Status() int }); ok && asked.Status() != 0 {
		return asked.Status(), s.written
	}
	if s.status == 0 {
		return http.StatusOK, s.written // what a server sends for a handler that wrote nothing
	}
	return s.status, s.written
}

// push sends what is complete to the client, so that it doesn't wait for what
// is told to a store behind it. What has no declared length is left alone: to
// flush it would change how it is framed.
func (s *response) push(v *version) {
	if store.AnswersAtOnce(v.store) || s.hijacked || s.panicked || s.written == 0 {
		return
	}
	if n, err := strconv.ParseInt(s.w.Header().Get("Content-Length"), 10, 64); err == nil && n == s.written {
		if f, ok := s.w.(http.Flusher); ok {
			f.Flush()
		}
	}
}
