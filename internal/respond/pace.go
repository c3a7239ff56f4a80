package respond

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/store"
)

// Paced is a response whose bytes, and possibly those of its request, are paid for
// before they move. Begin makes the zero Paced ready. Its methods are for one goroutine
// at a time, except that the request's body may be read while the handler returns.
type Paced struct {
	*Watched
	// response and up pace the response's body and the request's; up may be nil.
	response, request *pacer
}

// Begin begins to pace w, which has begun. The limits, at least one, pace its body or the
// request's, or both.
func (s *Paced) Begin(w *Watched, p Payer, limits []ByteLimit) {
	s.Watched = w
	r := w.r
	var responses, requests []ByteLimit
	for _, e := range limits {
		if e.Responses {
			responses = append(responses, e)
		}
		if e.Requests {
			requests = append(requests, e)
		}
	}
	s.response = newPacer(p, r.Context(), responses)
	s.response.flush = func() { _ = http.NewResponseController(s.w).Flush() }
	if len(requests) > 0 && r.Body != nil && r.Body != http.NoBody {
		s.request = newPacer(p, r.Context(), requests)
		s.request.total, s.request.incoming = r.ContentLength, true
	}
}

// Writer is that of a Watched, and also paces what is written.
func (s *Paced) Writer(w http.ResponseWriter) http.ResponseWriter { return s.wrap(w, s) }

// Next returns r for the next handler: r itself or, if its body is paced, a copy. copied
// says that r is already a copy.
func (s *Paced) Next(r *http.Request, copied bool) *http.Request {
	if s.request != nil {
		if !copied {
			shallow := *r
			r = &shallow
		}
		r.Body = &pacedBody{r.Body, s.request}
	}
	return s.Watched.Next(r)
}

// End stops the pacing and returns the charges to settle, which give back the bytes
// that were paid for and haven't moved.
func (s *Paced) End() []store.Charge { return append(s.response.end(), s.request.end()...) }

// Delayed returns how long writing has been delayed. That time says nothing about the
// speed of a handler.
func (s *Paced) Delayed() time.Duration { return s.response.delayed() }

// Moved is the effect of a ByteLimit on a response.
type Moved struct {
	Bytes, RequestBytes int64         // bytes that have moved
	Waited              time.Duration // how long they were delayed, or would have been
	Err                 error         // why the response was cut off, or nil
}

// Moved returns the effect of the ByteLimit on the response.
func (s *Paced) Moved(e ByteLimit) Moved {
	m := Moved{}
	if e.Responses {
		m.Bytes, m.Waited, m.Err = s.response.outcome(e)
	}
	if s.request != nil && e.Requests {
		n, waited, err := s.request.outcome(e)
		m.RequestBytes, m.Waited = n, m.Waited+waited
		if m.Err == nil {
			m.Err = err
		}
	}
	return m
}

// pacedBody is a request's body, paced.
type pacedBody struct {
	io.ReadCloser
	pacer *pacer
}

// Read reads the bytes that have arrived, at most a piece, and then waits until they have been paid for.
func (b *pacedBody) Read(p []byte) (n int, err error) {
	if !b.pacer.enforced {
		start := time.Now()
		n, err = b.ReadCloser.Read(p)
		b.pacer.recordUnpaced(int64(n), time.Since(start))
		return n, err
	}
	if b.pacer.bytesLeft() == 0 { // only the end is left to read
		return b.ReadCloser.Read(p)
	}
	n, err = b.ReadCloser.Read(p[:min(int64(len(p)), b.pacer.piece)])
	for unpaid := int64(n); unpaid > 0; {
		k, err := b.pacer.pay(unpaid)
		if err != nil {
			return 0, err
		}
		b.pacer.recordMoved(k)
		unpaid -= k
	}
	return n, err
}

// inPacedBody reports whether the handler's next bytes belong to a body that is paced.
func (s *Paced) inPacedBody() bool {
	return !s.hijacked && s.r.Method != http.MethodHead &&
		s.status != http.StatusNoContent && s.status != http.StatusNotModified
}

// delays reports whether the handler's next bytes may be delayed.
func (s *Paced) delays() bool { return s.inPacedBody() && s.response.enforced }

// declareLength tells the pacer how many bytes will come, once that is known.
func (s *Paced) declareLength() {
	if s.response.total >= 0 || s.response.moved > 0 {
		return
	}
	if n, err := strconv.ParseInt(s.w.Header().Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		s.response.total = n
	}
}

// begin returns the start time of a write that isn't delayed, if a Bandwidth in dry run
// needs it.
func (s *Paced) begin() (start time.Time) {
	if s.inPacedBody() {
		s.declareLength()
		start = time.Now()
	}
	return start
}

// recordUnpaced records n bytes of the body that were not delayed.
func (s *Paced) recordUnpaced(n int64, start time.Time) {
	s.recordWritten(n)
	if !start.IsZero() {
		s.response.recordUnpaced(n, time.Since(start))
	}
}

// write writes b one piece at a time.
func (s *Paced) write(w io.Writer, b []byte) (written int, err error) {
	if !s.delays() || len(b) == 0 {
		start := s.begin()
		n, err := w.Write(b)
		s.recordUnpaced(int64(n), start)
		return n, err
	}
	s.declareLength()
	for len(b) > written && err == nil {
		var n int
		n, err = s.writePiece(w, b[written:])
		written += n
	}
	return written, err
}

// writePiece writes as much of b as may be written at once.
func (s *Paced) writePiece(w io.Writer, b []byte) (n int, err error) {
	k, err := s.response.pay(int64(len(b)))
	if err != nil {
		s.cutOff()
		return 0, err
	}
	defer func() { // also if Write panics
		s.recordWritten(int64(n))
		s.response.recordMoved(int64(n))
	}()
	return w.Write(b[:k])
}

func (s *Paced) writeString(w io.Writer, text string) (int, error) {
	if s.delays() {
		return s.write(w, []byte(text))
	}
	start := s.begin()
	n, err := io.WriteString(w, text)
	s.recordUnpaced(int64(n), start)
	return n, err
}

// writeOnly hides that a response has ReadFrom.
type writeOnly struct{ io.Writer }

// readFrom copies src. If the length is declared, net/http can have the kernel copy a
// file, provided it gets the file itself, with nothing but a limited reader around it.
// Otherwise it copies through memory, by through.
func (s *Paced) readFrom(w io.ReaderFrom, src io.Reader, through io.Writer) (written int64, err error) {
	if !s.delays() {
		start := s.begin()
		n, err := w.ReadFrom(src)
		if n > 0 {
			s.recordUnpaced(n, start)
		}
		return n, err
	}
	if s.declareLength(); s.response.bytesLeft() < 0 {
		return io.Copy(writeOnly{through}, src)
	}
	limited, _ := src.(*io.LimitedReader)
	for {
		// If there is more than was declared, that is for the server to report.
		want := max(s.response.bytesLeft(), 1)
		piece := io.LimitedReader{R: src, N: want}
		if limited != nil {
			piece.R, piece.N = limited.R, min(want, limited.N)
		}
		if piece.N <= 0 {
			return written, nil
		}
		may, n, err := s.readPiece(w, &piece)
		if limited != nil {
			limited.N -= may - piece.N
		}
		written += n
		if err != nil || n < may {
			return written, err
		}
	}
}

// readPiece has w read as much of the piece as may be written at once, and returns how much
// that is.
func (s *Paced) readPiece(w io.ReaderFrom, piece *io.LimitedReader) (may, n int64, err error) {
	if s.response.bytesLeft() > 0 {
		if piece.N, err = s.response.pay(piece.N); err != nil {
			s.cutOff()
			return 0, 0, err
		}
	}
	defer func() { // also if ReadFrom panics
		if n > 0 { // else nothing is answered yet
			s.recordWritten(n)
		}
		s.response.recordMoved(n)
	}()
	may = piece.N
	n, err = w.ReadFrom(piece)
	return may, n, err
}

// cutOff makes sure that an incomplete response doesn't look complete: the server can't
// end it properly any more.
func (s *Paced) cutOff() {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Unix(1, 0))
}
