package respond

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer is a ResponseWriter around another one. It offers everything else that the
// other can do through Unwrap, for http.ResponseController, except the three interfaces
// below. Flush and Hijack may be those of a writer further down: they are looked for as
// http.ResponseController does, so that no call of it goes past this writer.
type writer struct {
	s *Watched
	w http.ResponseWriter
}

// sink takes the bytes that a handler writes through its writer; w is the writer below.
type sink interface {
	write(w io.Writer, b []byte) (int, error)
	writeString(w io.Writer, text string) (int, error)
	readFrom(w io.ReaderFrom, src io.Reader, through io.Writer) (int64, error)
}

func (w *writer) Header() http.Header         { return w.w.Header() }
func (w *writer) Unwrap() http.ResponseWriter { return w.w }
func (w *writer) NeedsResponse() bool         { return w.s.Decides }
func (w *writer) ImplicitStatus() int         { return w.s.implicit }

func (w *writer) answered() bool { return w.s.Answered() }

func (w *writer) Write(b []byte) (int, error) {
	w.begin()
	return w.s.sink.write(w.w, b)
}

// begin sends the implicit status before the first byte.
func (w *writer) begin() {
	if w.s.implicit != 0 && !w.s.Answered() {
		w.WriteHeader(w.s.implicit)
	}
}

func (w *writer) WriteHeader(status int) {
	// Informational answers come before the one that counts.
	if w.s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.s.status = status
	}
	w.w.WriteHeader(status)
}

// WriteString exists whether or not the writer below has it: for io.WriteString the
// only difference is a copy of the text.
func (w *writer) WriteString(text string) (int, error) {
	w.begin()
	return w.s.sink.writeString(w.w, text)
}

type flusher writer

func (f *flusher) Flush() {
	(*writer)(f).begin()
	f.s.recordWritten(0)
	_ = http.NewResponseController(f.w).Flush()
}

// FlushError is the method that http.ResponseController looks for first.
func (f *flusher) FlushError() error {
	(*writer)(f).begin()
	f.s.recordWritten(0)
	return http.NewResponseController(f.w).Flush()
}

type hijacker writer

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(h.w).Hijack()
	if err != nil {
		return conn, buf, err
	}
	h.s.hijacked = true
	if h.s.OnHijack != nil {
		conn = newHijackedConn(conn, h.s.OnHijack())
	}
	return conn, buf, nil
}

// hijackedConn is a connection that a handler has taken over. closed is called when the handler closes it.
type hijackedConn struct {
	net.Conn
	closed func()
}

func (c *hijackedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// NetConn returns the connection itself, as that of a tls.Conn does.
func (c *hijackedConn) NetConn() net.Conn { return c.Conn }

// halfConn is a hijackedConn that can be closed in one direction, as proxies do.
type halfConn struct{ hijackedConn }

func (c *halfConn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func newHijackedConn(conn net.Conn, closed func()) net.Conn {
	c := hijackedConn{conn, closed}
	if _, ok := conn.(interface{ CloseWrite() error }); ok {
		return &halfConn{c}
	}
	return &c
}

type readerFrom writer

func (r *readerFrom) ReadFrom(src io.Reader) (int64, error) {
	(*writer)(r).begin()
	return r.s.sink.readFrom(r.w.(io.ReaderFrom), src, (*writer)(r))
}

// Handlers test for these interfaces by assertion and do something else without them, so
// each combination is a type of its own. Server push isn't among them: browsers have
// dropped it.
type (
	flushes struct {
		writer
		flusher
	}
	hijacks struct {
		writer
		hijacker
	}
	flushesHijacks struct {
		writer
		flusher
		hijacker
	}
	reads struct {
		writer
		readerFrom
	}
	flushesReads struct {
		writer
		flusher
		readerFrom
	}
	hijacksReads struct {
		writer
		hijacker
		readerFrom
	}
	flushesHijacksReads struct {
		writer
		flusher
		hijacker
		readerFrom
	}
)

// below reports whether http.ResponseController finds a writer that can flush, and one that can hijack.
func below(w http.ResponseWriter) (flush, hijack bool) {
	for !flush || !hijack {
		switch w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			flush = true
		}
		if _, ok := w.(http.Hijacker); ok {
			hijack = true
		}
		unwraps, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = unwraps.Unwrap()
	}
	return flush, hijack
}

// withInterfaces returns the writer with those of the interfaces that the writer below has.
func (w *writer) withInterfaces() http.ResponseWriter {
	f, h, r := flusher(*w), hijacker(*w), readerFrom(*w)
	flush, hijack := below(w.w)
	_, read := w.w.(io.ReaderFrom)
	switch {
	case flush && hijack && read:
		return &flushesHijacksReads{*w, f, h, r}
	case flush && hijack:
		return &flushesHijacks{*w, f, h}
	case flush && read:
		return &flushesReads{*w, f, r}
	case hijack && read:
		return &hijacksReads{*w, h, r}
	case flush:
		return &flushes{*w, f}
	case hijack:
		return &hijacks{*w, h}
	case read:
		return &reads{*w, r}
	}
	return w
}
