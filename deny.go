package stint

import (
	"net/http"
	"strconv"
	"sync"
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// keptBody is the size above which a buffer isn't kept.
const keptBody = 4 << 10

// writeProblem answers with an application/problem+json body (RFC 9457). All
// strings in it are constants or limit names, which need no escaping.
func writeProblem(w http.ResponseWriter, r *http.Request, f *fieldWriter, status int, kind, title string, violated []LimitStatus) {
	f.set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	buf := bodies.Get().(*[]byte)
	b := append((*buf)[:0], `{"type":"`...)
	b = append(b, kind...)
	b = append(b, `","title":"`...)
	b = append(b, title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	sep := `,"violated-policies":["`
	for i := range violated {
		if violated[i].Allowed || violated[i].DryRun {
			continue
		}
		b = append(b, sep...)
		b = append(b, violated[i].Name...)
		sep = `","`
	}
	if sep == `","` {
		b = append(b, `"]`...)
	}
	b = append(b, "}\n"...)
	_, _ = w.Write(b) // a client that has gone is nobody's problem
	if cap(b) <= keptBody {
		*buf = b
		bodies.Put(buf)
	}
}

// deny answers a request that a limit refused.
func (v *version) deny(w http.ResponseWriter, r *http.Request, err *DeniedError) {
	if v.denyHandler != nil && answers(w, r, func(w http.ResponseWriter) {
		v.denyHandler.ServeHTTP(w, r.WithContext(&deniedContext{r.Context(), err}))
	}) {
		return
	}
	kind, title := problemTypes+"quota-exceeded", "Quota exceeded"
	switch {
	case err.banned:
		kind, title = problemTypes+"abnormal-usage-detected", "Abnormal usage detected"
	case err.StatusCode() == http.StatusServiceUnavailable:
		kind, title = problemTypes+"temporary-reduced-capacity", "Capacity temporarily reduced"
	}
	// The last slot is kept free for this.
	f := fieldWriter{h: w.Header(), slots: err.fields[fieldSlots-1:]}
	writeProblem(w, r, &f, err.StatusCode(), kind, title, err.Decision.Limits)
}

// fail answers a request that was refused for another reason.
func (v *version) fail(w http.ResponseWriter, r *http.Request, err error) {
	if v.errorHandler != nil && answers(w, r, func(w http.ResponseWriter) { v.errorHandler(w, r, err) }) {
		return
	}
	f := fieldWriter{h: w.Header()}
	status := statusOf(err)
	writeProblem(w, r, &f, status, "about:blank", http.StatusText(status), nil)
}

// answers runs a handler for a request that was refused, and reports whether it
// has answered: by a status, a body or a flush, or by taking the connection over.
// Otherwise w is ready for another answer.
func answers(w http.ResponseWriter, r *http.Request, handler func(http.ResponseWriter)) bool {
	s := &response{r: r}
	handler(s.watch(w))
	if s.status != 0 || s.hijacked {
		return true
	}
	// gin's writer has ways to write that net/http doesn't know.
	if asked, ok := w.(interface{ Written() bool }); ok && asked.Written() {
		return true
	}
	f := fieldWriter{h: w.Header()}
	f.notStored() // whatever the handler has set for an answer of its own
	return false
}

// Redirect is a deny handler that sends the client elsewhere with 302, such as
// to a waiting room. RateLimit and Retry-After are left out, as they would
// keep a client from following.
func Redirect(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		delete(h, fieldRateLimit)
		delete(h, fieldRetryAfter)
		h.Set("Cache-Control", "no-store")
		http.Redirect(w, r, url, http.StatusFound)
	})
}

// PlainText is a deny handler that answers with a text/plain body and the
// status of the refusal.
func PlainText(body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusTooManyRequests
		if err := DeniedFromContext(r.Context()); err != nil {
			status = err.StatusCode()
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			_, _ = w.Write([]byte(body))
		}
	})
}
