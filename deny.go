package stint

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/respond"
	"github.com/stint-go/stint/store"
)

// Redirect returns a deny handler that sends the client to url with 302, for instance to a
// waiting room. The response has no RateLimit, X-RateLimit-* or Retry-After, because a client
// that honors these fields wouldn't follow the redirect.
func Redirect(url string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field.RemoveLimitFields(w.Header())
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

// Degrade returns a deny handler that serves h instead of an error, for instance a cached page
// or a cheaper response. If h writes no status, the status is 200, even if h writes no body
// either. The response has no Retry-After, since the client has been served. Cache-Control is
// no-store unless h sets it. The response keeps its RateLimit fields.
func Degrade(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		field.SetServed(w.Header())
		if !respond.Answers(w, r, http.StatusOK, func(w http.ResponseWriter) { h.ServeHTTP(w, r) }) {
			w.WriteHeader(http.StatusOK)
		}
	})
}

// WithDenyHandler sets the handler that writes the responses to requests that a limit denies:
// Redirect, PlainText, or any other handler. The header fields are set before h runs, and
// DeniedFromContext returns the denial. New returns an error if h is nil. h may
//
//   - write a body. If h hasn't called WriteHeader, the first Write, ReadFrom or Flush sends
//     the status of the denial: 429, or 503 if the concurrency of the whole service is
//     exhausted. If h writes a status, as http.Redirect, http.ServeFile or a proxy does, that
//     status is sent; informational statuses (1xx) don't count.
//   - serve the request with 200, if h is wrapped in Degrade.
//   - write nothing, and only log or set header fields. The limiter then writes a problem body.
//   - pass the request to another route of the application, usually inside Degrade. There, the
//     limiter that denied the request admits it; other limiters decide it.
//
// Given to WithRoute, h answers requests of that route, whichever limit denies them. The most
// specific route that matches and has a WithDenyHandler decides, even if a more specific route
// has an Only. Without such a route, the WithDenyHandler of the limiter decides. If a request
// can be interpreted in several ways, the first interpretation that has a handler decides.
//
// By default, the function of WithErrorHandler writes the response. Without both, the response
// has the status of the denial and an application/problem+json body (RFC 9457) with the names
// of the limits that denied.
func WithDenyHandler(h http.Handler) RouteOption {
	return denyHandlerOption{settingOf("WithDenyHandler(nil)", h == nil), h}
}

type denyHandlerOption struct {
	setting
	h http.Handler
}

func (o denyHandlerOption) applyLimiter(c *config) {
	o.check(&c.Errs)
	c.denyHandler = o.h
}

func (o denyHandlerOption) applyRoute(rc *compile.Route) {
	o.check(&rc.Errs)
	rc.DenyHandler = o.h
}

func (o denyHandlerOption) check(errs *optionerror.List) {
	if o.h == nil {
		errs.Add("WithDenyHandler(nil)", "", "pass a handler, or leave it out for the default error response")
	}
}

// WithErrorHandler sets the function that writes the responses to all denied requests, except
// those that a WithDenyHandler handles. By default, the limiter writes a problem body. New
// returns an error if h is nil. The error passed to h is one of these:
//
//   - A limit denies the request: a *DeniedError. errors.Is(err, ErrDenied) is true.
//   - The key can't be determined: an error of a KeyFunc, ErrEmptyKey or ErrKeyTooLong.
//   - A predicate blocks the request: ErrBlocked.
//   - A WithLimitFunc fails: its error. Under FailClosed it may be a *SourceError.
//   - The store fails under FailClosed: a *StoreError.
//   - The request's context ends during the decision or the wait: the error wraps
//     context.Canceled or context.DeadlineExceeded.
//
// The status of the denial is the result of the error's StatusCode method. For an error without
// that method, the status is 503 if a context has ended, and 500 otherwise. If h hasn't called
// WriteHeader, the first Write, ReadFrom or Flush sends the status of the denial. If h writes a
// status, that status is sent. If h writes nothing, the limiter writes a problem body without
// the error's text.
//
// The writer passed to h, and to the handler of WithDenyHandler, has a method
// ImplicitStatus() int, which returns the status that is sent if h writes none. Adapters call
// it if their framework's writer stores a status of its own.
func WithErrorHandler(h func(http.ResponseWriter, *http.Request, error)) Option {
	return checkedOption(h != nil, "WithErrorHandler(nil)",
		"pass a function, or leave it out for the default error response",
		func(c *config) {
			c.errorHandler = h
		})
}

// WithProblem makes the limiter answer denials with a problem body (RFC 9457) in every adapter.
// WithDenyHandler and WithErrorHandler take precedence. By default, stintecho passes denials to
// the application's HTTPErrorHandler, and all other adapters answer with a problem body.
func WithProblem() Option {
	return option("WithProblem", func(c *config) { c.problem = true })
}

// answer answers a request that was not admitted with err. Serve needs it only for denials that a
// handler may see: all others by a limit are answered where they are found, by admission.finishDenied.
func answer(v *version, w http.ResponseWriter, r *http.Request, err error) {
	if denied := denialIn(err); denied != nil {
		answerDenied(v, w, r, denied, err)
		return
	}
	answerFailed(v, w, r, err)
}

// answerDenied answers a request that a limit denied with denied, which err is or wraps.
func answerDenied(v *version, w http.ResponseWriter, r *http.Request, denied *DeniedError, err error) {
	h := v.denyHandlerOf(r)
	if e := v.errorHandler; h == nil && e != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e(w, r, err) })
	}
	if answerWith(v, h, w, r, denied, denied.StatusCode(), err) {
		return
	}
	var few [4]string
	violated := few[:0]
	for i := range denied.Decision.Limits {
		if l := &denied.Decision.Limits[i]; !l.Allowed && !l.DryRun {
			violated = append(violated, l.Name)
		}
	}
	problems[denied.reason].Write(w, r, violated...)
}

// answerFailed answers a request that was denied for a reason other than a limit.
func answerFailed(v *version, w http.ResponseWriter, r *http.Request, err error) {
	var h http.Handler
	if e := v.errorHandler; e != nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e(w, r, err) })
	}
	if status := failure.Status(err); !answerWith(v, h, w, r, nil, status, err) {
		problem := field.BlankProblem(status)
		if errors.Is(err, ErrEmptyKey) {
			detail := "the request has no key"
			if f := (*failure.Error)(nil); errors.As(err, &f) && f.Limit != "" {
				detail += " for limit " + f.Limit
			}
			problem = problem.WithDetail(detail)
		}
		problem.Write(w, r)
	}
}

// answerWith has h answer a denied request, with status unless it writes another, and
// reports whether it did. The handler may send the request through the limiter again, to
// another route: the limiter lets it pass, or each denial would call the handler again.
func answerWith(v *version, h http.Handler, w http.ResponseWriter, r *http.Request, denied *DeniedError, status int,
	err error) bool {
	if h == nil {
		return passError(v, w, err)
	}
	asked := r.WithContext(&answering{r.Context(), v.events.destinations, denied})
	defer func() { r.MultipartForm = asked.MultipartForm }() // the server removes its files
	if respond.Answers(w, asked, status, func(w http.ResponseWriter) { h.ServeHTTP(w, asked) }) {
		return true
	}
	field.SetNotStored(w.Header()) // the handler may have allowed caching
	return false
}

// passError passes the error of a denied request to a router's error handler, and reports whether there is
// one. A limiter WithProblem answers by itself.
func passError(v *version, w http.ResponseWriter, err error) bool {
	router, ok := w.(errorWriter)
	if !ok || v.problem {
		return false
	}
	router.WriteError(err)
	return true
}

// setFailedFields sets the header fields of an answer to err, unless it is a denial by limits, which
// already has its own.
func setFailedFields(h http.Header, err error) {
	if _, ok := err.(*DeniedError); !ok {
		field.SetFailed(h, failure.Status(err))
	}
}

// setMissingFields sets the header fields of an answer to err. Admit has already set those of its own denials.
// A failure, and a denial by Allow, Take, Wait or Extend, have none yet.
func setMissingFields(h http.Header, err error) {
	switch denied := denialIn(err); {
	case denied == nil:
		field.SetFailed(h, failure.Status(err))
	case len(denied.unwritten) > 0:
		denied.setFields(h)
	}
}

type (
	deniedKey struct{}
	// answeringKey leads to something while a handler of a limiter answers a denial.
	answeringKey struct{ limiter *destinations }
)

// DeniedFromContext returns the denial that is stored in ctx, or nil. Only the request that is
// passed to WithDenyHandler's handler has one.
func DeniedFromContext(ctx context.Context) *DeniedError {
	err, _ := ctx.Value(deniedKey{}).(*DeniedError)
	return err
}

// answering is the context of a request that a handler of a limiter answers.
type answering struct {
	context.Context
	limiter *destinations // which is the limiter's only
	denied  *DeniedError  // nil if the denial isn't a limit's
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
func isAnswering(ctx context.Context, limiter *destinations) bool {
	return ctx.Value(answeringKey{limiter}) != nil
}

// The methods that a router's writer may have. Limiter.Admit and Deny describe them, so adapters need no names
// for these interfaces.
type (
	// errorWriter is the writer of a router that has its own error handler.
	errorWriter interface{ WriteError(err error) }
	// contextWriter is the writer of a router that has its own context type.
	contextWriter interface {
		RequestWithContext(r *http.Request) *http.Request
	}
)

// DeniedError is the error of a request that its limits have denied. Nothing was charged. To
// get the DeniedError in an error, use errors.As. To test for one, use errors.Is(err,
// ErrDenied).
type DeniedError struct {
	Decision Decision

	version *version // that denied
	reason  limit.Denial
	// unwritten has the limit of each element of Decision.Limits if Allow, Take, Wait or Extend denied,
	// since no response has their fields yet.
	unwritten []*limit.Limit
}

// Is reports whether target is ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// Error returns the name of the limit that denied, never the key.
func (e *DeniedError) Error() string {
	s := "stint: denied by limit " + e.Decision.Limit
	switch after, ok := e.Decision.Retry(); {
	case e.Decision.RetryAfter == Never:
		s += ": costs more than it can ever hold"
	case e.full():
		s += ": its slots are taken"
	case ok:
		s += ", retry after " + after.String()
	}
	return s
}

// full reports whether the limit that denied is one of slots.
func (e *DeniedError) full() bool {
	return slices.ContainsFunc(e.Decision.Limits, func(l LimitStatus) bool {
		return l.Name == e.Decision.Limit && l.InFlight > 0
	})
}

// StatusCode returns 429, or 503 if the denial is by a Concurrency or an AdaptiveConcurrency
// with the key Global.
func (e *DeniedError) StatusCode() int { return problems[e.reason].Status() }

// problems are what the client gets.
var problems = [...]field.Problem{
	limit.QuotaExceeded: field.QuotaExceeded, limit.ReducedCapacity: field.ReducedCapacity,
	limit.AbnormalUsage: field.AbnormalUsage,
}

// denied1 and denied4 are denials with room for their limits, which saves an allocation.
type (
	denied1 struct {
		DeniedError
		limits    [1]LimitStatus
		unwritten [1]*limit.Limit
	}
	denied4 struct {
		DeniedError
		limits    [4]LimitStatus
		unwritten [4]*limit.Limit
	}
)

// newDenied returns the error of a call that a version has denied.
func newDenied(v *version, c *decide.Call) *DeniedError {
	var err *DeniedError
	var limits []LimitStatus
	switch n := len(c.Results); {
	case n == 1:
		d := new(denied1)
		err, limits = &d.DeniedError, d.limits[:]
		err.unwritten = d.unwritten[:0]
	case n <= 4:
		d := new(denied4)
		err, limits = &d.DeniedError, d.limits[:n:n]
		err.unwritten = d.unwritten[:0]
	default:
		err, limits = new(DeniedError), make([]LimitStatus, n)
	}
	err.Decision.set(c, limits)
	err.version, err.reason = v, whyDenied(c)
	return err
}

// newDeniedOutsideHTTP is newDenied for Allow, Take, Wait and Extend.
func newDeniedOutsideHTTP(v *version, c *decide.Call) *DeniedError {
	err := newDenied(v, c)
	err.unwritten = append(err.unwritten, c.Limits...)
	return err
}

// setFields sets the header fields of a denial outside HTTP or by Extend, as admission.setFields does for a
// request.
func (e *DeniedError) setFields(h http.Header) {
	var fields field.Writer
	for i, l := range e.unwritten {
		if s := &e.Decision.Limits[i]; !s.DryRun {
			setItem(fields.Add(), l, s.Capacity, &store.Result{
				OK: s.Allowed, Remaining: s.Remaining, RetryAfter: s.RetryAfter, ResetAfter: s.ResetAfter,
				MoreAfter: s.more, Processes: s.processes,
			})
		}
	}
	fields.Jitter = e.version.retryJitter
	fields.Write(h, e.version.styles, "")
}

// whyDenied returns the reason of the denial of a call, for the client.
func whyDenied(c *decide.Call) (reason limit.Denial) {
	for i, l := range c.Limits {
		if !c.Results[i].OK && !l.DryRun {
			reason = max(reason, l.Denial(&c.Charges[i]))
		}
	}
	return reason
}

// denialIn finds the denial by limits that err is or wraps, or nil.
func denialIn(err error) *DeniedError {
	if de, ok := err.(*DeniedError); ok { // errors.As allocates
		return de
	}
	if de := (*DeniedError)(nil); errors.As(err, &de) {
		return de
	}
	return nil
}
