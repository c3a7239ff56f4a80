package stinthttp

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// TransportOption changes what Transport does.
type TransportOption func(*transport)

// WithDestination says which requests share a turn, a limit and a pause, such
// as those of one account at an API that limits by account:
//
//	stinthttp.WithDestination(stint.Hash(secret, stint.Header("Authorization")))
//
// The key is what lim is charged for; a pause that a server asks for also
// never goes beyond its host. The default key is the request's scheme and
// host, such as "https://api.example.com". An error of k is returned from
// RoundTrip, and nothing is sent. WithDestination panics on nil.
func WithDestination(k stint.KeyFunc) TransportOption {
	if k == nil {
		panic("stinthttp: WithDestination(nil): write a key function, or leave it out for the scheme and host")
	}
	return func(t *transport) { t.key = k }
}

// WithMaxWait bounds how long a request waits, at a time, because its server
// asks it to; jitter comes on top. A longer pause is not waited for: the
// answer that asks for it is returned, and requests that come meanwhile are
// sent. The default is 60 seconds. It doesn't bound the waits for lim, which
// end with the request's context. 0 never waits for servers.
func WithMaxWait(d time.Duration) TransportOption {
	return func(t *transport) { t.maxWait = max(d, 0) }
}

// WithRetries sets how often a request is sent again after an answer of 429 or
// 503. The default is 3; with 0 every answer is returned as it is, but pauses
// are still kept.
func WithRetries(n int) TransportOption {
	return func(t *transport) { t.retries = max(n, 0) }
}

const (
	defaultMaxWait = 60 * time.Second
	defaultRetries = 3
	// firstBackoff is the wait before the first retry where the server doesn't
	// say how long; it doubles with each.
	firstBackoff = time.Second
	// maxDrain is how much of an answer that is not returned is read, so that
	// its connection can be used again.
	maxDrain = 64 << 10
)

// Transport sends requests through base at the pace that lim permits and that
// the servers ask for. A nil base is http.DefaultTransport; a nil lim permits
// everything, and leaves the pace to the servers.
//
// A request first waits until no pause of its destination is in force, then
// for its turn by lim (stint.Limiter.Wait, at cost 1). Limits with
// stint.GivenKey count each destination by itself, those with stint.Global all
// together; other key functions are not called. What lim refuses, because its
// turn would come after the context's deadline, is not sent; the error is a
// *stint.DeniedError. A slot of a concurrency limit is held until the
// response's body is read to its end or closed.
//
// A server asks for a pause with Retry-After in a 403, 429 or 503, or, in any
// answer, with a RateLimit field (draft-ietf-httpapi-ratelimit-headers,
// revisions 07 to 11 and the names proposed since), the RateLimit-* fields of
// earlier revisions or X-RateLimit-* that say that nothing is left. Malformed
// fields are ignored. All requests to the destination wait for the same pause,
// and go on one after another, faster and faster, not all at once.
//
// After 429, whatever the method, and after 503, if the method is idempotent
// or the request has an Idempotency-Key, the request is sent again when the
// pause is over (without one, after 1 s, then 2 s, 4 s …), unless its body can
// not be sent twice (it needs GetBody), WithRetries is used up, or the wait
// would be longer than WithMaxWait or the context's deadline: then that answer
// is returned at once, its body unread. Waits end with the request's context.
//
// The RoundTripper is safe for concurrent use, starts no goroutines, and keeps
// the pauses of 1024 destinations at the most. It never changes the request it
// is given.
func Transport(lim *stint.Limiter, base http.RoundTripper, opts ...TransportOption) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{lim: lim, base: base, key: schemeAndHost, maxWait: defaultMaxWait, retries: defaultRetries}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

type transport struct {
	lim     *stint.Limiter
	base    http.RoundTripper
	key     stint.KeyFunc
	maxWait time.Duration
	retries int
	gates   gates
}

// schemeAndHost is the origin of a request's URL (RFC 6454), without the
// scheme's own port: two spellings of a host must not be two destinations.
func schemeAndHost(r *http.Request) (string, error) {
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return r.URL.Scheme + "://" + host, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := t.key(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	host, _ := schemeAndHost(r)
	to := gateKey{host, key}
	send, notBefore := r, time.Time{}
	for try := 0; ; try++ {
		permit, err := t.clear(r.Context(), to, notBefore)
		if err != nil {
			closeBody(send)
			return nil, err
		}
		resp, err := t.send(send, permit)
		if err != nil {
			return resp, err
		}
		now := time.Now()
		d, said := pause(resp, now)
		if said {
			t.gates.close(to, now, d)
		}
		if try >= t.retries || !mayRetry(r, resp.StatusCode) {
			return resp, nil
		}
		if !said {
			d = jittered(firstBackoff << min(try, 10))
		}
		// Another answer may have asked for more.
		d = max(d, t.gates.opening(to).Sub(now))
		if !t.worthWaiting(r.Context(), now, d) {
			return resp, nil
		}
		again, err := resend(r)
		if err != nil {
			return resp, nil // which says more than why it stays the last
		}
		drain(resp.Body)
		send, notBefore = again, now.Add(d)
	}
}

// clear waits until the destination's gate is open and lim gives a turn. A
// gate that has closed during the wait for lim is waited for in turn, and lim
// asked once more: else what lim let go meanwhile would all go at once.
func (t *transport) clear(ctx context.Context, to gateKey, notBefore time.Time) (*stint.Permit, error) {
	for {
		opened, err := t.passGate(ctx, to)
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, time.Until(notBefore)); err != nil {
			return nil, err
		}
		if t.lim == nil {
			return nil, nil
		}
		permit, err := t.lim.Wait(ctx, to.key, 1)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		opens := t.gates.opening(to)
		if !opens.After(opened) || !opens.After(now) || !t.worthWaiting(ctx, now, opens.Sub(now)) {
			return permit, nil
		}
		_ = permit.Settle(ctx, 0) // at worst the turn stays paid for
		permit.Done()
	}
}

// passGate waits for a turn at the gate and returns when that gate opened. A
// request that can't wait as long goes ahead: the server's own answer is worth
// more to its caller than an error made here.
func (t *transport) passGate(ctx context.Context, to gateKey) (opened time.Time, err error) {
	for {
		now := time.Now()
		opens, turn := t.gates.place(to, now)
		if !opens.After(opened) || !turn.After(now) || !t.worthWaiting(ctx, now, opens.Sub(now)) {
			return opens, ctx.Err()
		}
		if deadline, ok := ctx.Deadline(); ok && turn.After(deadline) {
			turn = opens.Add(rand.N(deadline.Sub(opens) + 1)) // no room for its place in the line
		}
		if err := sleep(ctx, turn.Sub(now)); err != nil {
			return opened, err
		}
		opened = opens
	}
}

// worthWaiting reports whether d is within what a request may wait.
func (t *transport) worthWaiting(ctx context.Context, now time.Time, d time.Duration) bool {
	if d > t.maxWait {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || !now.Add(d).After(deadline)
}

// send sends r under permit, which it hands on to the response's body, or
// releases if there is none to come.
func (t *transport) send(r *http.Request, permit *stint.Permit) (*http.Response, error) {
	held := false
	defer func() {
		if !held {
			permit.Done()
		}
	}()
	resp, err := t.base.RoundTrip(r)
	if err == nil && permit != nil && resp.Body != nil && resp.Body != http.NoBody {
		held = true
		resp.Body = hold(resp.Body, permit)
	}
	return resp, err
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through to base.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// heldBody is a response's body that ends a permit when it ends itself.
type heldBody struct {
	io.ReadCloser
	permit *stint.Permit
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.permit.Done()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.permit.Done()
	return b.ReadCloser.Close()
}

// heldConn is the body of a 101 response, which is also written to.
type heldConn struct {
	heldBody
	io.Writer
}

func hold(body io.ReadCloser, permit *stint.Permit) io.ReadCloser {
	held := heldBody{body, permit}
	if w, ok := body.(io.Writer); ok {
		return &heldConn{held, w}
	}
	return &held
}
