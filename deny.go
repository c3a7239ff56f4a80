package stint

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/respond"
)

// DeniedError is the refusal of a request by its limits. Nothing was charged. Find it
// with errors.As.
type DeniedError struct {
	Decision Decision

	by  *version // the one that refused
	why refusal
	// fields are the values of the response's header fields, kept here to save an
	// allocation each.
	fields [4]string
}

// Error returns the name of the limit that refused, never the key.
func (e *DeniedError) Error() string {
	s := "stint: denied by limit " + e.Decision.Limit
	switch after := e.Decision.RetryAfter; {
	case after == Never:
		s += ": costs more than it can ever hold"
	case after > 0:
		s += ", retry after " + after.String()
	case e.full():
		s += ": its slots are taken"
	}
	return s
}

// full reports whether the limit that refused is one of slots.
func (e *DeniedError) full() bool {
	return slices.ContainsFunc(e.Decision.Limits, func(l LimitStatus) bool {
		return l.Name == e.Decision.Limit && l.InFlight > 0
	})
}

// StatusCode returns 429, or 503 if the concurrency of the whole service (a limit with
// the key Global) refused.
func (e *DeniedError) StatusCode() int { return e.why.problem().Status() }

// refusal says what a refusal means. If several limits refuse, the last in this order
// counts.
type refusal uint8

const (
	quotaExceeded   refusal = iota
	reducedCapacity         // of the whole service
	abnormalUsage
)

var problems = [...]field.Problem{
	quotaExceeded: field.QuotaExceeded, reducedCapacity: field.ReducedCapacity, abnormalUsage: field.AbnormalUsage,
}

// problem returns the problem that the client gets.
func (r refusal) problem() field.Problem { return problems[r] }

// denied1 and denied4 are refusals with room for their limits, which saves an allocation.
type (
	denied1 struct {
		DeniedError
		limits [1]LimitStatus
	}
	denied4 struct {
		DeniedError
		limits [4]LimitStatus
	}
)

// newDenied returns the error of a denied call.
func (c *call) newDenied() *DeniedError {
	var err *DeniedError
	var limits []LimitStatus
	switch n := len(c.Results); {
	case n == 1:
		d := new(denied1)
		err, limits = &d.DeniedError, d.limits[:]
	case n <= 4:
		d := new(denied4)
		err, limits = &d.DeniedError, d.limits[:n:n]
	default:
		err, limits = new(DeniedError), make([]LimitStatus, n)
	}
	c.setDecision(&err.Decision, limits)
	err.by, err.why = c.version, c.why()
	return err
}

// why returns what a refused call's refusal means.
func (c *call) why() (why refusal) {
	for i, e := range c.entries {
		if !c.Results[i].OK && !e.dryRun {
			why = max(why, e.kind.refusal(&c.Charges[i]))
		}
	}
	return why
}

// setFailed sets the header fields of an answer to err. A refusal by limits already has
// its own.
func setFailed(h http.Header, err error) {
	if _, ok := err.(*DeniedError); !ok {
		field.Failed(h, failure.Status(err))
	}
}

// refusalIn finds the refusal by limits that err is or wraps, or nil.
func refusalIn(err error) *DeniedError {
	if de, ok := err.(*DeniedError); ok { // errors.As allocates
		return de
	}
	if de := (*DeniedError)(nil); errors.As(err, &de) {
		return de
	}
	return nil
}

// versionOf returns the version that answers a refusal: the version of l that refused, or
// l's present one for another limiter's refusal. stintecho hands errors to the
// application, which may pass them to any limiter.
func (l *Limiter) versionOf(err *DeniedError) *version {
	if err.by != nil && err.by.limiter == l {
		return err.by
	}
	return l.now.Load()
}

type (
	deniedKey struct{}
	// answeringKey leads to something while a handler of a limiter answers a refusal.
	answeringKey struct{ limiter *Limiter }
)

// DeniedFromContext returns the refusal that a handler given to WithDenyHandler
// answers; elsewhere it returns nil.
func DeniedFromContext(ctx context.Context) *DeniedError {
	err, _ := ctx.Value(deniedKey{}).(*DeniedError)
	return err
}

// deny answers a request that a limit refused.
func (v *version) deny(w http.ResponseWriter, r *http.Request, err *DeniedError) {
	if v.denyHandler != nil {
		if v.answerBy(r, err, func(r *http.Request) bool { return v.denyHandler(w, r, err) }) {
			return
		}
		field.NotStored(w.Header()) // in case the handler has allowed caching
	}
	var few [4]string
	violated := few[:0]
	for i := range err.Decision.Limits {
		if l := &err.Decision.Limits[i]; !l.Allowed && !l.DryRun {
			violated = append(violated, l.Name)
		}
	}
	err.why.problem().Write(w, r, violated...)
}

// fail answers a request that was refused for a reason other than a limit.
func (v *version) fail(w http.ResponseWriter, r *http.Request, err error) {
	if v.errorHandler != nil {
		if v.answerBy(r, nil, func(r *http.Request) bool { return v.errorHandler(w, r, err) }) {
			return
		}
		field.NotStored(w.Header())
	}
	field.Blank(failure.Status(err)).Write(w, r)
}

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
// of the refusal.
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

// WithDenyHandler makes h answer requests that a limit refuses: Redirect, PlainText, or
// any handler. The fields are set before it runs, and DeniedFromContext returns which
// limit refused. New refuses a nil h. h may
//
//   - write a reduced answer, such as a page from a cache. As everywhere in net/http, a
//     body without a status is sent with 200; write DeniedFromContext(ctx).StatusCode()
//     first to refuse with another body.
//   - write nothing, and only log or set fields. Then the request is answered as
//     without h.
//   - send the request to another route of the application. The limiter that refused it
//     lets it pass there; others decide it.
//
// By default the answer is 429 (503 if the concurrency of the whole service is
// exhausted), with an application/problem+json body (RFC 9457) that names the violated
// policies.
func WithDenyHandler(h http.Handler) Option {
	return checkedOption(h != nil, "WithDenyHandler(nil)", "write a handler, or leave it out for a problem body", func(c *config) {
		c.denyHandler = func(w http.ResponseWriter, r *http.Request, _ *DeniedError) bool {
			return respond.Answers(w, r, func(w http.ResponseWriter) { h.ServeHTTP(w, r) })
		}
	})
}

// WithErrorHandler makes h answer requests that are refused for another reason than a
// limit. The error is one of these:
//
//   - The key can't be determined: an error of a KeyFunc, ErrEmptyKey or ErrKeyTooLong.
//   - A predicate blocks the request: ErrBlocked.
//   - A WithLimitFunc fails: its error.
//   - The store fails under FailClosed: a *StoreError.
//   - The request's context ends during the decision or the wait: the error wraps
//     context.Canceled or context.DeadlineExceeded.
//
// By default the answer has the error's StatusCode, 503 if a context has ended, or 500,
// and a problem body that doesn't show the error's text. That is also the answer if h
// writes nothing. New refuses a nil h.
func WithErrorHandler(h func(http.ResponseWriter, *http.Request, error)) Option {
	return checkedOption(h != nil, "WithErrorHandler(nil)", "write a function, or leave it out for a problem body", func(c *config) {
		c.errorHandler = func(w http.ResponseWriter, r *http.Request, err error) bool {
			return respond.Answers(w, r, func(w http.ResponseWriter) { h(w, r, err) })
		}
	})
}

// WithProblem makes the limiter answer refusals with its own problem body (RFC 9457),
// through every adapter, unless a WithDenyHandler or WithErrorHandler answers. By
// default stintecho leaves refusals to the application's HTTPErrorHandler; the other
// adapters answer this way anyway.
func WithProblem() Option {
	return limiterOption(func(c *config) { c.problem = true })
}

// deny sets the fields of a denial and returns its error. Building that error costs as
// much as setting all fields, so it is skipped when no handler will see it.
func (c *call) deny(w http.ResponseWriter, answers bool) error {
	c.outer.recordInnerDenial()
	if answers = answers || c.in != nil && c.version.problem; !answers || c.version.denyHandler != nil {
		err := c.newDenied()
		c.setFields(w.Header(), err.fields[:])
		c.observe(EventDenied, nil)
		return err
	}
	c.setFields(w.Header(), nil)
	c.observe(EventDenied, nil)
	c.fields.Problem(w, c.r, c.why().problem())
	return ErrAnswered
}
