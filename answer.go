package stint

import (
	"context"
	"net/http"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/respond"
)

// answer answers a request that was not admitted.
func answer(v *version, w http.ResponseWriter, r *http.Request, err error) {
	if denied := denialIn(err); denied != nil {
		answerDenied(v, w, r, denied, err)
		return
	}
	answerFailed(v, w, r, err)
}

// answerDenied answers a request that a limit denied with denied, which err is or wraps.
func answerDenied(v *version, w http.ResponseWriter, r *http.Request, denied *DeniedError, err error) {
	h := v.denyHandler
	if e := v.errorHandler; h == nil && e != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e(w, r, err) })
	}
	if answerBy(v, h, w, r, denied, denied.StatusCode(), err) {
		return
	}
	var few [4]string
	violated := few[:0]
	for i := range denied.Decision.Limits {
		if l := &denied.Decision.Limits[i]; !l.Allowed && !l.DryRun {
			violated = append(violated, l.Name)
		}
	}
	problems[denied.why].Write(w, r, violated...)
}

// answerFailed answers a request that was denied for a reason other than a limit.
func answerFailed(v *version, w http.ResponseWriter, r *http.Request, err error) {
	var h http.Handler
	if e := v.errorHandler; e != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e(w, r, err) })
	}
	if status := failure.Status(err); !answerBy(v, h, w, r, nil, status, err) {
		field.Blank(status).Write(w, r)
	}
}

// answerBy has h answer a denied request, with status unless it writes another, and
// reports whether it did. The handler may send the request through the limiter again, to
// another route: the limiter lets it pass, or each denial would call the handler again.
// Without a handler, and unless the limiter is WithProblem, an ErrorWriter takes the error.
func answerBy(v *version, h http.Handler, w http.ResponseWriter, r *http.Request, denied *DeniedError, status int, err error) bool {
	if h == nil {
		to, ok := w.(ErrorWriter)
		if ok = ok && !v.problem; ok {
			to.WriteError(err)
		}
		return ok
	}
	asked := r.WithContext(&answering{r.Context(), v.events.to, denied})
	defer func() { r.MultipartForm = asked.MultipartForm }() // the server removes its files
	if respond.Answers(w, asked, status, func(w http.ResponseWriter) { h.ServeHTTP(w, asked) }) {
		return true
	}
	field.NotStored(w.Header()) // the handler may have allowed caching
	return false
}

// setFailed sets the header fields of an answer to err. A denial by limits already has
// its own.
func setFailed(h http.Header, err error) {
	if _, ok := err.(*DeniedError); !ok {
		field.Failed(h, failure.Status(err))
	}
}

// setUnset sets the header fields of an answer to err as far as they may not be set.
func setUnset(h http.Header, err error) {
	switch denied := denialIn(err); {
	case denied == nil:
		field.Failed(h, failure.Status(err))
	case denied.outside:
		denied.setFields(h)
	}
}

type (
	deniedKey struct{}
	// answeringKey leads to something while a handler of a limiter answers a denial.
	answeringKey struct{ limiter *recipients }
)

// DeniedFromContext returns the denial that a handler given to WithDenyHandler
// answers; elsewhere it returns nil.
func DeniedFromContext(ctx context.Context) *DeniedError {
	err, _ := ctx.Value(deniedKey{}).(*DeniedError)
	return err
}

// answering is the context of a request that a handler of a limiter answers.
type answering struct {
	context.Context
	limiter *recipients  // which is the limiter's only
	denied  *DeniedError // nil if the denial isn't a limit's
}

func (c *answering) Value(key any) any {
	if key == (answeringKey{c.limiter}) {
		return c
	}
	if key == (deniedKey{}) && c.denied != nil {
		return c.denied
	}
	return c.Context.Value(key)
}

// isAnswering reports whether a handler of the limiter is answering the request.
func isAnswering(ctx context.Context, limiter *recipients) bool {
	return ctx.Value(answeringKey{limiter}) != nil
}

// ErrorWriter is a ResponseWriter of a router that has an error handler of its own. An
// adapter passes one to Limiter.Deny to leave to that handler what the limiter isn't
// configured to answer: by WithDenyHandler, WithErrorHandler or WithProblem. WriteError
// gets the error that Deny was given. The header fields are already set.
type ErrorWriter interface {
	http.ResponseWriter
	WriteError(err error)
}
