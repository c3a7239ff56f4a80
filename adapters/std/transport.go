package stinthttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/internal/client"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store"
)

// TransportOption changes a default of NewTransport.
type TransportOption interface{ apply(*client.Transport) }

type transportOption func(*client.Transport)

func (set transportOption) apply(x *client.Transport) { set(x) }

// WithDestination sets the key of a request's destination: requests with the same destination
// share limits and pauses. If an API limits by account, for instance, use the account:
//
//	stinthttp.WithDestination(stint.Hash(secret, stint.Header("Authorization")))
//
// Requests are charged to lim under the key that k returns. A pause never applies to other
// hosts, even if they share the key. If k returns an error, RoundTrip returns it and sends
// nothing. The default key is the request's scheme and host, such as "https://api.example.com":
// in lower case, without a default port or a final dot. NewTransport panics if k is the zero
// Key, was made with wrong arguments, or is stint.GivenKey or the Key of an adapter.
func WithDestination(k stint.Key) TransportOption {
	return transportOption(func(t *client.Transport) { t.Destination = k })
}

// WithMaxPause sets the longest pause that requests wait for. If a server asks for a longer
// pause, the response is returned at once, and later requests are sent. A random time, by which
// requests are spread after a pause, comes in addition to d. WithMaxPause doesn't bound the
// waits for lim, which end with the request's context. The default is 60 seconds. With 0,
// requests never pause. NewTransport panics if d is negative, or above 0 and below a
// millisecond.
func WithMaxPause(d time.Duration) TransportOption {
	return transportOption(func(t *client.Transport) { t.MaxPause = d })
}

// WithRetries sets the number of retries of a request. The default is 3.
// With 0, every response is returned without a retry, but later requests still wait for the
// pause. NewTransport panics if n is negative.
func WithRetries(n int) TransportOption {
	return transportOption(func(t *client.Transport) { t.Retries = n })
}

// WithRetryable sets which requests may be retried after a 429 or 503. By default, a request is
// retried if net/http itself would retry it (see NewTransport). With WithRetryable, requests are
// also retried after a 403 that asks for a pause, because some APIs deny with 403 if a rate
// limit is exhausted:
//
//	stinthttp.WithRetryable(func(r *http.Request) bool { return r.URL.Host == "api.github.com" && r.Method == "GET" })
//
// A request whose body can't be sent twice isn't retried, even if retryable returns true.
// retryable is called concurrently. NewTransport panics if retryable is nil.
func WithRetryable(retryable func(*http.Request) bool) TransportOption {
	return transportOption(func(t *client.Transport) { t.Retryable, t.RetryForbidden = retryable, true })
}

// PauseLimit is the name of the limit under which WithSharedPause keeps pauses in a store. Don't
// use this name for other limits.
const PauseLimit = client.PauseLimit

// WithSharedPause makes all processes pause if a server asks one of them for a pause. The
// pause is kept in the store of lim, for its host and destination, if it is at most
// WithMaxPause. It applies to the Transports whose limiters use that store and that have
// WithSharedPause:
//
//	lim, err := stint.New(stint.Rate(50, time.Second, stint.WithName("api-calls")),
//		stint.WithStore(redisstore.New(rdb)), stint.WithKey(stint.GivenKey()))
//	client := &http.Client{Transport: stinthttp.NewTransport(lim, nil, stinthttp.WithSharedPause())}
//
// A later pause extends the pause in the store, and never shortens it. By the store's clock, the
// pause ends at the same time in all processes. Then each process sends its requests at a growing
// rate. Requests that can't wait that long are sent, as without WithSharedPause. If a denial
// doesn't say how long to wait, its pause of 1 s or more isn't shared.
//
// A request looks for a pause in the store after its turn, before it is sent: one call of
// the store, which on Redis is a round trip. If there is a pause, the request's charges are
// refunded, and it takes another turn afterwards. A response that asks for a pause costs one more
// call.
//
// If the store fails, or lim is nil, a pause applies to its process only. A pause in the store isn't a ban of the
// limiter: it denies no other calls of lim, and Limiter.Reset doesn't end it. It is stored under PauseLimit. By
// default, a pause applies only to the Transport that got the response. NewTransport panics if the store of its
// limiter doesn't implement store.Banner.
func WithSharedPause() TransportOption {
	return transportOption(func(t *client.Transport) {
		if t.Limiter != nil {
			t.Pauses = t.Limiter.Describe().Store
		}
	})
}

// NewTransport returns a RoundTripper that sends requests through base at the rate that lim
// allows and that servers ask for. If base is nil, http.DefaultTransport is used. If lim is
// nil, only the servers' responses limit the rate. The RoundTripper is safe for concurrent use,
// runs no goroutine, stores the pauses of at most 1024 destinations, and never changes a
// request.
//
// A request first waits until no pause of its destination is in force, then for its turn
// (stint.Limiter.Wait, at cost 1). Limits with stint.GivenKey count each destination
// separately; limits with stint.Global count all destinations together; other key functions
// aren't called. If lim denies a request because its turn would come after the context's
// deadline, nothing is sent and the error is a *stint.DeniedError. A slot of a concurrency
// limit is held until the response's body is read to its end or closed, so always close it. A
// request holds no slot while it waits to be retried.
//
// An AdaptiveConcurrency learns from the time until the body's end. A request counts as dropped
// (stint.Permit.Drop) after a 429, a 403 that asks for a pause, a status of 500 or above, or an
// error of base or of the body. A request whose context was canceled isn't measured, nor is a
// connection after a 101.
//
// A server asks for a pause by one of these:
//
//   - Retry-After, Retry-After-Ms or X-Ms-Retry-After-Ms in a 403, 429 or 503.
//   - Otherwise, in any response, fields that show no units left: RateLimit
//     (draft-ietf-httpapi-ratelimit-headers, revisions 07 to 11 and the names proposed since),
//     the RateLimit-* fields of earlier revisions, or X-RateLimit-* fields.
//
// docs/outgoing.md lists the forms of each field.
//
// If several servers on the path send fields, such as an upstream and a gateway, the longest pause counts. Malformed
// fields are ignored, and so are times that are over, such as Retry-After: 0. After a 429 or 503 that doesn't say how
// long to wait, the pause is 1 s. After further denials of the same request, it is 2 s, 4 s and so on. All requests to
// the destination wait for the same pause, in all processes if there is a WithSharedPause. Afterwards they are sent
// one after another, at a growing rate, rather than all at once.
//
// A request is retried after a 429 or 503 if net/http itself would retry it: a GET, HEAD,
// OPTIONS or TRACE, or a request with an Idempotency-Key field. All others are sent once; see
// WithRetryable. Before a retry, the request waits for the pause. The request isn't retried,
// and the response is returned with its body unread, in three cases: the request has a body
// without GetBody, WithRetries is used up, or the wait would exceed WithMaxPause or the
// context's deadline. All waits end with the request's context.
//
// Like New, NewTransport panics if an option is invalid, with an error that holds a
// *stint.OptionError for each, if lim has a stint.Bandwidth, which doesn't pace outgoing
// requests, and if lim wasn't made by stint.New.
func NewTransport(lim *stint.Limiter, base http.RoundTripper, opts ...TransportOption) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	if lim != nil {
		lim.Describe() // panics if New hasn't made it
	}
	t := client.New(lim, base)
	var wrong []error
	for i, opt := range opts {
		if opt == nil {
			wrong = append(wrong, &stint.OptionError{Problem: fmt.Sprintf("option %d is nil", i+1), Write: "leave it out"})
			continue
		}
		opt.apply(t)
	}
	if err := errors.Join(append(wrong, invalid(t)...)...); err != nil {
		panic(fmt.Errorf("stinthttp: NewTransport: %w", err))
	}
	return t
}

// invalid returns what is wrong with the settings of t.
func invalid(t *client.Transport) (wrong []error) {
	if t.Retryable == nil {
		wrong = append(wrong, &stint.OptionError{Option: "WithRetryable(nil)",
			Write: "pass a function, or leave it out for GET, HEAD, OPTIONS, TRACE and requests with an Idempotency-Key"})
	}
	if valid, write := optionerror.CheckDuration(t.MaxPause, 0, 0, "use 0, or 1ms or more"); !valid {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithMaxPause(%v)", t.MaxPause), Write: write})
	}
	if _, bans := t.Pauses.(store.Banner); t.Pauses != nil && !bans {
		wrong = append(wrong, &stint.OptionError{Option: "WithSharedPause()",
			Problem: fmt.Sprintf("%T doesn't implement store.Banner", t.Pauses),
			Write:   "leave it out, or use a memstore or a redisstore in the limiter's WithStore"})
	}
	if t.Retries < 0 {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithRetries(%d)", t.Retries), Write: "use 0 or more"})
	}
	if t.Limiter != nil {
		for _, rule := range t.Limiter.Describe().Rules {
			if strings.HasPrefix(rule.Text, "Bandwidth:") {
				wrong = append(wrong, &stint.OptionError{Limit: rule.Limit, Problem: "a Bandwidth doesn't pace outgoing requests",
					Write: "leave it out, and read bodies at the pace of a Limiter.Wait for their bytes"})
			}
		}
	}
	instead := "use another key, or leave it out for the scheme and host"
	if t.Destination == (stint.Key{}) {
		return append(wrong, &stint.OptionError{Option: "WithDestination(Key{})", Write: instead})
	}
	// A limiter with the key finds out what is wrong with it, and which requests have it.
	l, err := stint.New(stint.Rate(1, time.Second), stint.WithKey(t.Destination), stint.WithoutWarnings())
	if err != nil {
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			var o *stint.OptionError // without New's heading
			if errors.As(e, &o) {
				o.Option = "WithDestination" + strings.TrimPrefix(o.Option, "WithKey")
				wrong = append(wrong, o)
			}
		}
		return wrong
	}
	if l.Mount("stinthttp.NewTransport") != nil {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithDestination(%v)", t.Destination),
			Problem: "a request doesn't have this key", Write: instead})
	}
	return wrong
}
