package stint

import (
	"net/http"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/respond"
)

// Redirect returns a deny handler that sends the client to url with 302, for instance
// to a waiting room. It removes RateLimit, X-RateLimit-* and Retry-After, which would
// keep a client from following.
func Redirect(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field.LeaveOut(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, url, http.StatusFound)
	})
}

// PlainText returns a deny handler that answers with a text/plain body and the status
// of the denial.
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

// Degrade returns a deny handler that serves h instead of denying: a page from a cache, a
// cheaper answer. h is served as anywhere else: a body without a status is sent with 200,
// and so is nothing at all. There is no Retry-After, since the client has been served, and
// Cache-Control is no-store unless h sets it. The RateLimit fields stay.
func Degrade(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field.Served(w.Header())
		if !respond.Answers(w, r, http.StatusOK, func(w http.ResponseWriter) { h.ServeHTTP(w, r) }) {
			w.WriteHeader(http.StatusOK)
		}
	})
}

// WithDenyHandler makes h answer requests that a limit denies: [Redirect], [PlainText],
// or any handler. The fields are set before it runs, and DeniedFromContext returns which
// limit denied. New rejects a nil h. h may
//
//   - write a body. As long as h hasn't called WriteHeader, the first Write, ReadFrom or
//     Flush sends the status of the denial: 429, or 503 if the concurrency of the whole
//     service is exhausted. A status that h writes is kept, as by http.Redirect,
//     http.ServeFile or a proxy; informational ones (1xx) don't count.
//   - serve the request after all, with 200: wrap it in [Degrade].
//   - write nothing, and only log or set fields. Then the limiter writes a problem body.
//   - send the request to another route of the application, as a rule inside Degrade. The
//     limiter that denied it lets it pass there; others decide it.
//
// By default the function of WithErrorHandler answers. Without that, the answer is the status of the
// denial with an application/problem+json body (RFC 9457) that names the violated
// policies.
func WithDenyHandler(h http.Handler) Option {
	return checkedOption(h != nil, "WithDenyHandler(nil)", "write a handler, or leave it out for a problem body", func(c *config) {
		c.denyHandler = h
	})
}

// WithErrorHandler makes h answer every request that is denied, unless a WithDenyHandler
// answers it. New rejects a nil h. The error is one of these:
//
//   - A limit denies the request: a *DeniedError. errors.Is(err, ErrDenied) is true.
//   - The key can't be determined: an error of a KeyFunc, ErrEmptyKey or ErrKeyTooLong.
//   - A predicate blocks the request: ErrBlocked.
//   - A WithLimitFunc fails: its error. Under FailClosed it may be a *SourceError.
//   - The store fails under FailClosed: a *StoreError.
//   - The request's context ends during the decision or the wait: the error wraps
//     context.Canceled or context.DeadlineExceeded.
//
// The status is that of the error's StatusCode method, otherwise 503 if a context has
// ended, or 500. As long as h hasn't called WriteHeader, the first Write, ReadFrom or
// Flush sends that status; one that h writes is kept. If h writes nothing, or by
// default, the limiter writes a problem body that doesn't show the error's text.
//
// The writer has a method ImplicitStatus() int, which returns that status, as does the one that a
// WithDenyHandler gets: an adapter needs it for a framework whose writer has a status of its own.
func WithErrorHandler(h func(http.ResponseWriter, *http.Request, error)) Option {
	return checkedOption(h != nil, "WithErrorHandler(nil)", "write a function, or leave it out for a problem body", func(c *config) {
		c.errorHandler = h
	})
}

// WithProblem makes the limiter answer denials with its own problem body (RFC 9457),
// through every adapter, unless a WithDenyHandler or WithErrorHandler answers. By
// default stintecho leaves denials to the application's HTTPErrorHandler; the other
// adapters answer this way anyway.
func WithProblem() Option {
	return option("WithProblem", func(c *config) { c.problem = true })
}
