package respond

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/store/memstore"
)

// bare is a ResponseWriter that can do nothing else.
type bare struct {
	http.ResponseWriter
	log []string
}

// The three interfaces that a ResponseWriter may have beside.
type (
	canFlush  struct{ b *bare }
	canHijack struct{ b *bare }
	canRead   struct{ b *bare }
)

func (c canFlush) Flush() { c.b.log = append(c.b.log, "flush") }
func (c canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.b.log = append(c.b.log, "hijack")
	return nil, nil, nil
}
func (c canRead) ReadFrom(src io.Reader) (int64, error) {
	c.b.log = append(c.b.log, "read")
	return io.Copy(c.b.ResponseWriter, src)
}

// able returns a ResponseWriter for each combination of the three.
func able(combination int) (http.ResponseWriter, *bare) {
	b := &bare{ResponseWriter: httptest.NewRecorder()}
	f, h, r := canFlush{b}, canHijack{b}, canRead{b}
	w := http.ResponseWriter(b)
	return [...]http.ResponseWriter{
		w,
		struct {
			http.ResponseWriter
			canFlush
		}{w, f},
		struct {
			http.ResponseWriter
			canHijack
		}{w, h},
		struct {
			http.ResponseWriter
			canFlush
			canHijack
		}{w, f, h},
		struct {
			http.ResponseWriter
			canRead
		}{w, r},
		struct {
			http.ResponseWriter
			canFlush
			canRead
		}{w, f, r},
		struct {
			http.ResponseWriter
			canHijack
			canRead
		}{w, h, r},
		struct {
			http.ResponseWriter
			canFlush
			canHijack
			canRead
		}{w, f, h, r},
	}[combination], b
}

// used lists the features of a ResponseWriter that a handler has found and used.
func used(w http.ResponseWriter) string {
	var can []string
	if _, err := io.WriteString(w, "text "); err == nil {
		can = append(can, "write")
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
		can = append(can, "flush")
	}
	if http.NewResponseController(w).Flush() == nil {
		can = append(can, "controlled flush")
	}
	if r, ok := w.(io.ReaderFrom); ok {
		n, err := r.ReadFrom(strings.NewReader("read"))
		can = append(can, "read "+strconv.FormatInt(n, 10))
		if err != nil {
			can = append(can, err.Error())
		}
	}
	if h, ok := w.(http.Hijacker); ok {
		if _, _, err := h.Hijack(); err == nil {
			can = append(can, "hijack")
		}
	}
	return strings.Join(can, ", ")
}

// A Writer can do exactly what the one below it can, and what is done is recorded.
func TestWriterIsExact(t *testing.T) {
	for combination := range 8 {
		w, below := able(combination)
		want := used(w)
		wanted := strings.Join(below.log, ", ")

		w, below = able(combination)
		var s Watched
		s.Begin(httptest.NewRequest("GET", "/", nil))
		wrapped := s.Writer(w)
		if got := used(wrapped); got != want {
			t.Errorf("%d: it can %s; the one below %s", combination, got, want)
		}
		if got := strings.Join(below.log, ", "); got != wanted {
			t.Errorf("%d: it has done %s; the one below would have %s", combination, got, wanted)
		}
		if u, ok := wrapped.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap() != w {
			t.Errorf("%d: Unwrap doesn't return the writer below", combination)
		}
		outcome := Outcome{Status: 200, Written: int64(len("text "))}
		if strings.Contains(want, "read") {
			outcome.Written += int64(len("read"))
		}
		if strings.Contains(want, "hijack") {
			outcome.Status, outcome.Hijacked = 101, true
		}
		if got, ok := s.Outcome(); !ok || got != outcome {
			t.Errorf("%d: noted %+v, want %+v", combination, got, outcome)
		}
	}
}

// fails is a server's writer, whose flush says what has gone wrong.
type fails struct{ http.ResponseWriter }

func (fails) Flush()            {}
func (fails) FlushError() error { return io.ErrClosedPipe }

// http.ResponseController gets the error of a flush that fails.
func TestWriterFlushError(t *testing.T) {
	var s Watched
	s.Begin(httptest.NewRequest("GET", "/", nil))
	w := s.Writer(fails{httptest.NewRecorder()})
	if err := http.NewResponseController(w).Flush(); err != io.ErrClosedPipe {
		t.Errorf("got %v", err)
	}
	if !s.Answered() {
		t.Error("a flush is no answer")
	}
}

// To copy nothing is no answer yet: net/http writes no header for it.
func TestCopyOfNothing(t *testing.T) {
	var watched Watched
	paced, _ := begin(t, t.Context(), memstore.New(), false)
	for name, s := range map[string]interface {
		Begin(*http.Request)
		Writer(http.ResponseWriter) http.ResponseWriter
		Outcome() (Outcome, bool)
	}{"watched": &watched, "paced": begun{paced}} {
		s.Begin(httptest.NewRequest("GET", "/", nil))
		below, _ := able(4) // an io.ReaderFrom
		w := s.Writer(below)
		w.Header().Set("Content-Length", "9")
		if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("")); n != 0 || err != nil {
			t.Errorf("%s: copied %d, %v", name, n, err)
		}
		w.WriteHeader(http.StatusNotFound)
		if got, _ := s.Outcome(); got.Status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", name, got.Status)
		}
	}
}

// begun is a Paced that has begun.
type begun struct{ *Paced }

func (begun) Begin(*http.Request) {}
