package stint

import (
	"net/http"

	"github.com/stint-go/stint/internal/field"
)

// deny answers a request that a limit refused.
func (v *version) deny(w http.ResponseWriter, r *http.Request, err *DeniedError) {
	if v.denyHandler != nil && answers(w, r, func(w http.ResponseWriter) {
		v.denyHandler.ServeHTTP(w, r.WithContext(&deniedContext{r.Context(), err}))
	}) {
		return
	}
	problem := field.Problem{Type: field.QuotaExceeded, Title: "Quota exceeded", Status: err.StatusCode()}
	switch {
	case err.banned:
		problem.Type, problem.Title = field.AbnormalUsage, "Abnormal usage detected"
	case problem.Status == http.StatusServiceUnavailable:
		problem.Type, problem.Title = field.ReducedCapacity, "Capacity temporarily reduced"
	}
	var few [4]string
	problem.Violated = few[:0]
	for i := range err.Decision.Limits {
		if l := &err.Decision.Limits[i]; !l.Allowed && !l.DryRun {
			problem.Violated = append(problem.Violated, l.Name)
		}
	}
	problem.Write(w, r)
}

// fail answers a request that was refused for another reason.
func (v *version) fail(w http.ResponseWriter, r *http.Request, err error) {
	if v.errorHandler != nil && answers(w, r, func(w http.ResponseWriter) { v.errorHandler(w, r, err) }) {
		return
	}
	status := statusOf(err)
	problem := field.Problem{Type: field.Blank, Title: http.StatusText(status), Status: status}
	problem.Write(w, r)
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
	field.NotStored(w.Header()) // whatever the handler has set for an answer of its own
	return false
}

// Redirect is a deny handler that sends the client elsewhere with 302, such as
// to a waiting room. RateLimit and Retry-After are left out, as they would
// keep a client from following.
func Redirect(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Del("RateLimit")
		h.Del("Retry-After")
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
