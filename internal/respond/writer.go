package respond

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer is a ResponseWriter around another one. It offers everything else that the
// other can do through Unwrap, for http.ResponseController, except the four interfaces
// below.
type writer struct {
	s *Watched
	w http.ResponseWriter
}

// body takes what a handler writes through its writer; w is the writer below.
type body interface {
	write(w io.Writer, b []byte) (int, error)
	writeString(w io.Writer, text string) (int, error)
	readFrom(w io.ReaderFrom, src io.Reader, through io.Writer) (int64, error)
}

func (w *writer) Header() http.Header         { return w.w.Header() }
func (w *writer) Unwrap() http.ResponseWriter { return w.w }
func (w *writer) Write(b []byte) (int, error) { return w.s.to.write(w.w, b) }

func (w *writer) WriteHeader(status int) {
	// Informational answers come before the one that counts.
	if w.s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.s.status = status
	}
	w.w.WriteHeader(status)
}

// WriteString exists whether or not the writer below has it: for io.WriteString the
// only difference is a copy of the text.
func (w *writer) WriteString(text string) (int, error) { return w.s.to.writeString(w.w, text) }

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

type pusher writer

func (p *pusher) Push(target string, opts *http.PushOptions) error {
	return p.w.(http.Pusher).Push(target, opts)
}

type readerFrom writer

func (r *readerFrom) ReadFrom(src io.Reader) (int64, error) {
	return r.s.to.readFrom(r.w.(io.ReaderFrom), src, (*writer)(r))
}

// Optional interfaces of a ResponseWriter.
const (
	flushes = 1 << iota
	hijacks
	pushes
	readsFrom
)

// Handlers test for these by assertion and do something else without them, so each
// combination is a type of its own. All of them are in every program, with the names of
// all promoted methods: hence the short names, and fields that aren't pointers, since
// then only pointers to these structs have methods.
type (
	f struct {
		writer
		flusher
	}
	h struct {
		writer
		hijacker
	}
	fh struct {
		writer
		flusher
		hijacker
	}
	p struct {
		writer
		pusher
	}
	fp struct {
		writer
		flusher
		pusher
	}
	hp struct {
		writer
		hijacker
		pusher
	}
	fhp struct {
		writer
		flusher
		hijacker
		pusher
	}
	r struct {
		writer
		readerFrom
	}
	fr struct {
		writer
		flusher
		readerFrom
	}
	hr struct {
		writer
		hijacker
		readerFrom
	}
	fhr struct {
		writer
		flusher
		hijacker
		readerFrom
	}
	pr struct {
		writer
		pusher
		readerFrom
	}
	fpr struct {
		writer
		flusher
		pusher
		readerFrom
	}
	hpr struct {
		writer
		hijacker
		pusher
		readerFrom
	}
	fhpr struct {
		writer
		flusher
		hijacker
		pusher
		readerFrom
	}
)

// exactly returns the writer with those of the interfaces that the writer below has.
func (w *writer) exactly() http.ResponseWriter {
	flush, hijack, push, read := flusher(*w), hijacker(*w), pusher(*w), readerFrom(*w)
	switch w.has() {
	case flushes:
		return &f{*w, flush}
	case hijacks:
		return &h{*w, hijack}
	case flushes | hijacks:
		return &fh{*w, flush, hijack}
	case pushes:
		return &p{*w, push}
	case flushes | pushes:
		return &fp{*w, flush, push}
	case hijacks | pushes:
		return &hp{*w, hijack, push}
	case flushes | hijacks | pushes:
		return &fhp{*w, flush, hijack, push}
	case readsFrom:
		return &r{*w, read}
	case flushes | readsFrom:
		return &fr{*w, flush, read}
	case hijacks | readsFrom:
		return &hr{*w, hijack, read}
	case flushes | hijacks | readsFrom:
		return &fhr{*w, flush, hijack, read}
	case pushes | readsFrom:
		return &pr{*w, push, read}
	case flushes | pushes | readsFrom:
		return &fpr{*w, flush, push, read}
	case hijacks | pushes | readsFrom:
		return &hpr{*w, hijack, push, read}
	case flushes | hijacks | pushes | readsFrom:
		return &fhpr{*w, flush, hijack, push, read}
	}
	return w
}

// has returns which of the interfaces the writer below has.
func (w *writer) has() (has int) {
	if _, ok := w.w.(http.Flusher); ok {
		has |= flushes
	}
	if _, ok := w.w.(http.Hijacker); ok {
		has |= hijacks
	}
	if _, ok := w.w.(http.Pusher); ok {
		has |= pushes
	}
	if _, ok := w.w.(io.ReaderFrom); ok {
		has |= readsFrom
	}
	return has
}
