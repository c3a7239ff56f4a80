package stinthttp

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/std/internal/client"
)

// TransportOption changes a default of NewTransport.
type TransportOption interface{ apply(*client.Transport) }

type transportOption func(*client.Transport)

func (set transportOption) apply(x *client.Transport) { set(x) }

// WithDestination sets which requests share a turn, a limit and a pause, such as those
// of one account at an API that limits by account:
//
//	stinthttp.WithDestination(stint.Hash(secret, stint.Header("Authorization")))
//
// lim is charged for the key that k returns. A pause that a server asks for is never
// applied to other hosts, even if they share the key. If k returns an error, RoundTrip
// returns it and sends nothing. The default key is the request's scheme and host, such
// as "https://api.example.com": in lower case, without a default port or a final dot.
// NewTransport rejects the zero Key, one made with wrong
// arguments, stint.GivenKey, and the Key of an adapter.
func WithDestination(k stint.Key) TransportOption {
	return transportOption(func(t *client.Transport) { t.Destination = k })
}

// WithMaxPause bounds each wait that a server asks for; jitter comes on top. If a server
// asks for a longer pause, the answer is returned at once, and requests made meanwhile
// are sent. It doesn't bound the waits for lim, which end with the request's context.
// The default is 60 seconds. With 0, requests never wait for servers. NewTransport
// rejects less.
func WithMaxPause(d time.Duration) TransportOption {
	return transportOption(func(t *client.Transport) { t.MaxPause = d })
}

// WithRetries sets how often a request is sent again after a 429 or 503. The default is
// 3. With 0 every answer is returned as it is, but later requests still wait for the
// pauses that it asks for. NewTransport rejects less.
func WithRetries(n int) TransportOption {
	return transportOption(func(t *client.Transport) { t.Retries = n })
}

// WithRetryable sets which requests may be sent again after a 429 or 503, instead of
// those that net/http itself would send again (see NewTransport):
//
//	stinthttp.WithRetryable(func(r *http.Request) bool { return r.URL.Path == "/search" })
//
// A body that can't be sent twice never is, whatever may returns. may is called
// concurrently. NewTransport rejects a nil one.
func WithRetryable(may func(*http.Request) bool) TransportOption {
	return transportOption(func(t *client.Transport) { t.Retryable = may })
}

// NewTransport sends requests through base at the pace that lim permits and that servers
// ask for. If base is nil, it is http.DefaultTransport; if lim is nil, only the servers
// set the pace. The RoundTripper is safe for concurrent use, keeps no goroutine,
// keeps the pauses of at most 1024 destinations, and never changes the request it is
// given.
//
// A request first waits until its destination has no pause in force, then for its turn
// by lim (stint.Limiter.Wait, at cost 1). Limits with stint.GivenKey count each
// destination separately; those with stint.Global count all together; other key
// functions aren't called. If lim denies a request, because its turn would come after
// the context's deadline, nothing is sent and the error is a *stint.DeniedError. A slot
// of a concurrency limit is held until the response's body is read to its end or
// closed, for good if neither happens; a request that waits to be sent again holds none.
//
// A server asks for a pause by one of these:
//
//   - Retry-After in a 403, 429 or 503, in seconds or as a date. A fraction of a second is
//     rounded up.
//   - Otherwise, in any answer, a RateLimit field (draft-ietf-httpapi-ratelimit-headers, revisions
//     07 to 11 and the names proposed since), the RateLimit-* fields of earlier
//     revisions, or X-RateLimit-* fields, if they say that nothing is left.
//
// If several servers of the way send fields, such as an upstream and a gateway, the longest
// pause counts. Malformed fields are ignored. All requests to the destination wait for the same
// pause. Afterwards they go on one after another, at a growing rate, rather than all at
// once.
//
// A request is sent again after a 429 or 503 if net/http itself would send it again: a GET,
// HEAD, OPTIONS or TRACE, or one that has an Idempotency-Key field. All others are sent once;
// see WithRetryable. It waits for the pause first, or
// without one for 1 s, then 2 s, 4 s and so on. The answer is instead returned at once,
// its body unread, if the request's body can't be sent twice (it needs GetBody),
// WithRetries is used up, or the wait would exceed WithMaxPause or the context's
// deadline. All waits end with the request's context.
//
// Like New, NewTransport panics on invalid options and on a Limiter that stint.New has not made,
// on the former with an error that holds a
// *stint.OptionError for each.
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
		wrong = append(wrong, &stint.OptionError{Option: "WithRetryable(nil)", Write: "write a function, or leave it out for GET, HEAD, OPTIONS, TRACE and requests with an Idempotency-Key"})
	}
	if d := t.MaxPause; d < 0 {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithMaxPause(%v)", d), Write: "write 0 or more"})
	} else if 0 < d && d < time.Millisecond { // its unit is missing
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithMaxPause(%v)", d), Write: fmt.Sprintf("write %d*time.Millisecond", int64(d))})
	}
	if t.Retries < 0 {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithRetries(%d)", t.Retries), Write: "write 0 or more"})
	}
	instead := "write another key, or leave it out for the scheme and host"
	if t.Destination == (stint.Key{}) {
		return append(wrong, &stint.OptionError{Option: "WithDestination(Key{})", Write: instead})
	}
	// A limiter with the key finds out what is wrong with it, and which requests have it.
	l, err := stint.New(stint.Rate(1, time.Second), stint.WithKey(t.Destination), stint.WithoutWarnings())
	if err != nil {
		return append(wrong, fmt.Errorf("WithDestination: %w", err))
	}
	if l.Mount("stinthttp.NewTransport") != nil {
		wrong = append(wrong, &stint.OptionError{Option: fmt.Sprintf("WithDestination(%v)", t.Destination), Problem: "requests don't have it", Write: instead})
	}
	return wrong
}
