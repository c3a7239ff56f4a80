package stint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/store"
)

// Decision is the answer of all limits of a limiter to a request.
type Decision struct {
	// Allowed reports that no enforced limit refused.
	Allowed bool
	// Limit is the name of the limit that denied with the longest wait, or otherwise of
	// the enforced one with the least left.
	Limit string
	// Remaining is what is left of that limit, in whole units.
	Remaining int64
	// Delay is how long the request waits, or has waited, for its turn or a slot.
	Delay time.Duration
	// RetryAfter is the time after which the same cost would pass if nobody else came.
	// It is 0 if the request is allowed, or if the time is unknown (a concurrency limit
	// is full), and Never if the cost can never pass.
	RetryAfter time.Duration
	// ResetAfter is the time until that limit is full again.
	ResetAfter time.Duration
	// Queued is how many requests waited in this process for the same thing when this
	// one began to wait, including itself, or when it was refused without waiting. It
	// is 0 if nobody waited. Waiters for a slot are counted by limit and key; waiters
	// for the turn of a rate by all their limits, keys and costs. If there were several
	// waits, it is the longest line.
	Queued int64
	// Limits is every limit's own answer, in order, including dry runs. Those of
	// AdaptiveConcurrency come after those of the store.
	Limits []LimitStatus
}

// LimitStatus is one limit's own answer.
type LimitStatus struct {
	Name string
	// Allowed is this limit's own answer. A request that it allows may still be refused
	// by another.
	Allowed bool
	// DryRun reports that the limit only reports.
	DryRun bool
	// Reason says why an AdaptiveConcurrency's limit is what it is; NotAdaptive for any
	// other limit.
	Reason AdaptiveReason
	// Quota is how many units pass per period, or how many slots there are: for an
	// AdaptiveConcurrency, at that moment.
	Quota int64
	// InFlight is how many slots of a concurrency limit are held, including this
	// request's. It may exceed Quota after an Update has lowered that. It is 0 for
	// other limits.
	InFlight int64
	// Cost is what the request was charged, or would have been, in units; after a
	// Settle, what it has cost.
	Cost int64
	// Remaining is what is left after the decision.
	Remaining int64
	// Delay, RetryAfter and ResetAfter are those of Decision, for this limit alone.
	Delay, RetryAfter, ResetAfter time.Duration
}

// decide sets d to the decision that the results add up to. statuses, which has the same
// length, becomes d.Limits.
func (d *Decision) decide(entries []*entry, charges []store.Charge, results []store.Result, statuses []LimitStatus) {
	*d = Decision{Allowed: store.Granted(charges, results), Limits: statuses}
	named := -1
	for i := range results {
		ch, r, l, k := &charges[i], &results[i], &statuses[i], entries[i].kind
		l.Name, l.Allowed, l.DryRun, l.InFlight, l.Cost = ch.Limit.Name(), r.OK, ch.DryRun, r.Held, ch.Cost
		l.Remaining, l.Delay, l.RetryAfter, l.ResetAfter = r.Remaining, r.Delay, r.RetryAfter, r.ResetAfter
		l.Quota, l.Reason = k.stood(ch, r)
		if ch.DryRun || r.OK && (!d.Allowed || !k.binds()) {
			continue
		}
		if d.Allowed {
			d.Delay = max(d.Delay, r.Delay)
			if named < 0 || r.Remaining < results[named].Remaining {
				named = i
			}
		} else {
			d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
			if named < 0 || r.RetryAfter > results[named].RetryAfter {
				named = i
			}
		}
	}
	if named >= 0 {
		d.Limit = charges[named].Limit.Name()
		d.Remaining = results[named].Remaining
		d.ResetAfter = results[named].ResetAfter
	}
}

// refusedBy returns what d would be if limit i, a dry run, had been enforced.
func (d Decision) refusedBy(i int) Decision {
	l := &d.Limits[i]
	d.Allowed, d.Limit = false, l.Name
	d.Remaining, d.RetryAfter, d.ResetAfter = l.Remaining, l.RetryAfter, l.ResetAfter
	return d
}

// ErrBlocked is the error of a request that a WithBlock predicate refuses. It is
// answered with 403.
var ErrBlocked = errors.New("stint: blocked by a WithBlock predicate")

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

// problem returns what the client is told.
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

// denied returns the error of a refused call.
func (c *call) denied() *DeniedError {
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
	c.decided(&err.Decision, limits)
	err.by, err.why = c.lim, c.why()
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

// ErrAnswered is the error of AdmitIn for a request that it has refused and answered.
// Nothing is left to do.
var ErrAnswered = errors.New("stint: refused and answered")

// setFailed sets the header fields of an answer to err. A refusal by limits already has
// its own.
func setFailed(h http.Header, err error) {
	if _, ok := err.(*DeniedError); !ok {
		field.Failed(h, failure.Status(err))
	}
}

// Deny answers a request that Admit has refused with err, which may be wrapped. A
// request whose context ended while it waited gets 503, since it may be the server that
// ended it; if the client has left, nobody reads the answer. Deny is for adapters, and
// for applications to which an adapter passes its errors.
func (l *Limiter) Deny(w http.ResponseWriter, r *http.Request, err error) {
	if denied := refusalIn(err); denied != nil {
		l.deniedBy(denied).deny(w, r, denied)
		return
	}
	l.now.Load().fail(w, r, err)
}

// Answers reports whether Deny answers err in a way that the limiter was configured
// for: by WithDenyHandler for refusals by limits, by WithErrorHandler for other errors,
// by WithProblem for both. It is for adapters to routers with an error handler of their
// own, which answers the rest.
func (l *Limiter) Answers(err error) bool {
	if denied := refusalIn(err); denied != nil {
		v := l.deniedBy(denied)
		return v.denyHandler != nil || v.problem
	}
	v := l.now.Load()
	return v.errorHandler != nil || v.problem
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

// deniedBy returns the version that answers a refusal: the version of l that refused, or
// l's present one for another limiter's refusal. stintecho hands errors to the
// application, which may pass them to any limiter.
func (l *Limiter) deniedBy(err *DeniedError) *version {
	if err.by != nil && err.by.of == l {
		return err.by
	}
	return l.now.Load()
}

type (
	deniedKey struct{}
	// answeringKey leads to something while a handler of a limiter answers a refusal.
	answeringKey struct{ limiter *Limiter }
)

// answering is the context of a request that a handler of a limiter answers.
type answering struct {
	context.Context
	limiter *Limiter
	denied  *DeniedError // nil if the refusal isn't a limit's
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

// answerBy has a handler answer a refused request, and reports whether it did. The
// handler may send the request through the limiter again, to another route: the limiter
// lets it pass, or each refusal would call the handler again.
func (v *version) answerBy(r *http.Request, denied *DeniedError, handler func(*http.Request) bool) bool {
	told := r.WithContext(&answering{r.Context(), v.of, denied})
	defer func() { r.MultipartForm = told.MultipartForm }() // the server removes its files
	return handler(told)
}

// answers reports whether a handler of the limiter is answering the request.
func (v *version) answers(ctx context.Context) bool {
	return (v.denyHandler != nil || v.errorHandler != nil) && ctx.Value(answeringKey{v.of}) != nil
}

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

// HeaderStyle is a set of header fields that tell clients about their limits.
type HeaderStyle uint8

const (
	// DraftHeaders sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, one item for each limit.
	// RateLimit-Policy has q units in w seconds. RateLimit has r, the units left, and
	// t, the seconds until there are more. Nested limiters add their items; if two
	// limits have the same name, the one with less left is shown.
	//
	// r may exceed q if the limit has a burst. w of a calendar window is the longest
	// that the window can be: 31 days for Monthly, 25 hours for Daily where clocks are
	// set back by an hour.
	DraftHeaders HeaderStyle = iota
	// LegacyHeaders sends X-RateLimit-Limit, -Remaining and -Reset (in seconds) of the
	// limit with the least left, among nested limiters too.
	LegacyHeaders
	// NoHeaders sends neither. It can't be combined with the others.
	NoHeaders
)

// WithHeaders sets which header fields tell clients about their limits. The default is
// DraftHeaders. Retry-After is part of every refusal, whatever the style, unless the
// request can never pass. New refuses an empty list, unknown styles, and NoHeaders
// beside another.
func WithHeaders(styles ...HeaderStyle) Option {
	return limiterOption(func(c *config) {
		c.styles = 0
		none := false
		for _, s := range styles {
			switch s {
			case DraftHeaders:
				c.styles |= field.Draft
			case LegacyHeaders:
				c.styles |= field.Legacy
			case NoHeaders:
				none = true
			default:
				c.errs.Bad("WithHeaders", fmt.Sprintf("unknown style %d", s), "write stint.DraftHeaders, LegacyHeaders or NoHeaders")
			}
		}
		switch {
		case len(styles) == 0:
			c.errs.Bad("WithHeaders()", "", "write stint.DraftHeaders, LegacyHeaders or NoHeaders")
		case none && c.styles != 0:
			c.errs.Bad("WithHeaders", "NoHeaders beside another style", "leave one out")
		}
	})
}
