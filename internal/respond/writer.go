package respond

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer is a ResponseWriter around another one. What that one can do beside, it
// does through Unwrap, as http.ResponseController wants it, apart from the four
// interfaces below.
type writer struct {
	s *Response
	w http.ResponseWriter
}

func (w *writer) Header() http.Header         { return w.w.Header() }
func (w *writer) Unwrap() http.ResponseWriter { return w.w }
func (w *writer) Write(b []byte) (int, error) { return w.s.write(w.w, b) }

func (w *writer) WriteHeader(status int) {
	// Informational answers come before the one that counts.
	if w.s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.s.status = status
	}
	w.w.WriteHeader(status)
}

// WriteString is there whether the writer below has it or not: to io.WriteString
// that makes no difference but a copy of the text.
func (w *writer) WriteString(text string) (int, error) {
	if w.s.paces() {
		return w.Write([]byte(text))
	}
	start := w.s.begin()
	n, err := io.WriteString(w.w, text)
	w.s.passed(int64(n), start)
	return n, err
}

type flusher writer

func (f *flusher) Flush() {
	f.s.wrote(0)
	f.w.(http.Flusher).Flush()
}

// FlushError is what http.ResponseController looks for first.
func (f *flusher) FlushError() error {
	f.s.wrote(0)
	return http.NewResponseController(f.w).Flush()
}

type hijacker writer

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := h.w.(http.Hijacker).Hijack()
	h.s.hijacked = h.s.hijacked || err == nil
	return conn, buf, err
}

type readerFrom writer

func (r *readerFrom) ReadFrom(src io.Reader) (int64, error) {
	return r.s.readFrom(r.w.(io.ReaderFrom), src, (*writer)(r))
}

// Optional interfaces of a ResponseWriter.
const (
	flushes = 1 << iota
	hijacks
	pushes
	readsFrom
)

// Writer returns a writer around w for the next handler, which notes what is
// written and paces it. It is an http.Flusher, http.Hijacker, http.Pusher or
// io.ReaderFrom if w is one, and not if w is none.
//
// Handlers ask for these by assertion, and do something else if they don't get
// them: each combination is a type of its own.
func (s *Response) Writer(w http.ResponseWriter) http.ResponseWriter {
	s.w = w
	return (&writer{s, w}).exactly()
}

func (w *writer) exactly() http.ResponseWriter {
	p, has := w.has()
	f, h, r := (*flusher)(w), (*hijacker)(w), (*readerFrom)(w)
	switch has {
	case flushes:
		return struct {
			*writer
			*flusher
		}{w, f}
	case hijacks:
		return struct {
			*writer
			*hijacker
		}{w, h}
	case flushes | hijacks:
		return struct {
			*writer
			*flusher
			*hijacker
		}{w, f, h}
	case pushes:
		return struct {
			*writer
			http.Pusher
		}{w, p}
	case flushes | pushes:
		return struct {
			*writer
			*flusher
			http.Pusher
		}{w, f, p}
	case hijacks | pushes:
		return struct {
			*writer
			*hijacker
			http.Pusher
		}{w, h, p}
	case flushes | hijacks | pushes:
		return struct {
			*writer
			*flusher
			*hijacker
			http.Pusher
		}{w, f, h, p}
	case readsFrom:
		return struct {
			*writer
			*readerFrom
		}{w, r}
	case flushes | readsFrom:
		return struct {
			*writer
			*flusher
			*readerFrom
		}{w, f, r}
	case hijacks | readsFrom:
		return struct {
			*writer
			*hijacker
			*readerFrom
		}{w, h, r}
	case flushes | hijacks | readsFrom:
		return struct {
			*writer
			*flusher
			*hijacker
			*readerFrom
		}{w, f, h, r}
	case pushes | readsFrom:
		return struct {
			*writer
			http.Pusher
			*readerFrom
		}{w, p, r}
	case flushes | pushes | readsFrom:
		return struct {
			*writer
			*flusher
			http.Pusher
			*readerFrom
		}{w, f, p, r}
	case hijacks | pushes | readsFrom:
		return struct {
			*writer
			*hijacker
			http.Pusher
			*readerFrom
		}{w, h, p, r}
	case flushes | hijacks | pushes | readsFrom:
		return struct {
			*writer
			*flusher
			*hijacker
			http.Pusher
			*readerFrom
		}{w, f, h, p, r}
	}
	return w
}

// has returns which of the interfaces the writer below has.
func (w *writer) has() (p http.Pusher, has int) {
	if _, ok := w.w.(http.Flusher); ok {
		has |= flushes
	}
	if _, ok := w.w.(http.Hijacker); ok {
		has |= hijacks
	}
	p, ok := w.w.(http.Pusher)
	if ok {
		has |= pushes
	}
	if _, ok := w.w.(io.ReaderFrom); ok {
		has |= readsFrom
	}
	return p, has
}
