package stinthttp

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// TransportOption changes a default of Transport.
type TransportOption func(*transport)

// WithDestination sets which requests share a turn, a limit and a pause, such as those
// of one account at an API that limits by account:
//
//	stinthttp.WithDestination(stint.Hash(secret, stint.Header("Authorization")))
//
// lim is charged for the key that k returns. A pause that a server asks for is never
// applied to other hosts, even if they share the key. If k returns an error, RoundTrip
// returns it and sends nothing. The default key is the request's scheme and host, such
// as "https://api.example.com". WithDestination panics if k is nil.
func WithDestination(k stint.KeyFunc) TransportOption {
	if k == nil {
		panic("stinthttp: WithDestination(nil): write a key function, or leave it out for the scheme and host")
	}
	return func(t *transport) { t.key = k }
}

// WithMaxWait bounds each wait that a server asks for; jitter comes on top. If a server
// asks for a longer pause, the answer is returned at once, and requests made meanwhile
// are sent. It doesn't bound the waits for lim, which end with the request's context.
// The default is 60 seconds. With 0 or less, requests never wait for servers.
func WithMaxWait(d time.Duration) TransportOption {
	return func(t *transport) { t.maxWait = max(d, 0) }
}

// WithRetries sets how often a request is sent again after a 429 or 503. The default is
// 3. With 0 or less every answer is returned as it is, but later requests still wait
// for the pauses that it asks for.
func WithRetries(n int) TransportOption {
	return func(t *transport) { t.retries = max(n, 0) }
}

const (
	defaultMaxWait = 60 * time.Second
	defaultRetries = 3
	// firstBackoff is the wait before the first retry if the server doesn't ask for
	// one. It doubles with each retry.
	firstBackoff = time.Second
	// maxDrain is how many bytes of a discarded answer are read so that its connection
	// can be reused; leastDrain is how long that may take if there is no pause.
	maxDrain   = 64 << 10
	leastDrain = 100 * time.Millisecond
)

// Transport sends requests through base at the pace that lim permits and that servers
// ask for. If base is nil, it is http.DefaultTransport; if lim is nil, only the servers
// set the pace. The RoundTripper is safe for concurrent use, starts no goroutines,
// keeps the pauses of at most 1024 destinations, and never changes the request it is
// given.
//
// A request first waits until its destination has no pause in force, then for its turn
// by lim (stint.Limiter.Wait, at cost 1). Limits with stint.GivenKey count each
// destination separately; those with stint.Global count all together; other key
// functions aren't called. If lim refuses a request, because its turn would come after
// the context's deadline, nothing is sent and the error is a *stint.DeniedError. A slot
// of a concurrency limit is held until the response's body is read to its end or
// closed, and during a pause not at all.
//
// A server asks for a pause by one of these:
//
//   - Retry-After in a 403, 429 or 503.
//   - In any answer, a RateLimit field (draft-ietf-httpapi-ratelimit-headers, revisions
//     07 to 11 and the names proposed since), the RateLimit-* fields of earlier
//     revisions, or X-RateLimit-* fields, if they say that nothing is left.
//
// Malformed fields are ignored. All requests to the destination wait for the same
// pause. Afterwards they go on one after another, at a growing rate, rather than all at
// once.
//
// A request is sent again after a 429, whatever its method, and after a 503 if its
// method is idempotent or it has an Idempotency-Key. It waits for the pause first, or
// without one for 1 s, then 2 s, 4 s and so on. The answer is instead returned at once,
// its body unread, if the request's body can't be sent twice (it needs GetBody),
// WithRetries is used up, or the wait would exceed WithMaxWait or the context's
// deadline. All waits end with the request's context.
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

// schemeAndHost returns the origin of a request's URL (RFC 6454), without the scheme's
// default port: two spellings of a host must not be two destinations.
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
		// Another answer may have asked for a longer pause.
		d = max(d, t.gates.opening(to).Sub(now))
		if !t.worthWaiting(r.Context(), now, d) {
			return resp, nil
		}
		again, err := resend(r)
		if err != nil {
			return resp, nil // it says more than an error about why there is no retry
		}
		permit.Done() // for a body that its server doesn't end
		drain(r.Context(), resp.Body, d)
		send, notBefore = again, now.Add(d)
	}
}

// clear waits until the destination's gate is open and lim gives a turn. If a gate
// closes during the wait for lim, it waits for the gate too and asks lim once more:
// otherwise everything that lim let go meanwhile would go at once.
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
		giveBack(ctx, permit)
	}
}

// giveBackTimeout bounds giveBack: its caller waits.
const giveBackTimeout = 2 * time.Second

// giveBack ends a permit under which nothing was sent, even if ctx has ended meanwhile. It
// names the limits, because Settle without names leaves those without a WithCost alone
// beside those that have one. A slot, or what the store can't settle, is an error here:
// Done releases the one, and the other stays charged.
func giveBack(ctx context.Context, permit *stint.Permit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	for _, l := range permit.Decision().Limits {
		_ = permit.Settle(ctx, 0, l.Name)
	}
	permit.Done()
}

// passGate waits for a turn at the gate and returns when that gate opened. A request
// that can't wait that long goes ahead: the server's own answer is worth more to its
// caller than an error made here.
func (t *transport) passGate(ctx context.Context, to gateKey) (opened time.Time, err error) {
	for {
		now := time.Now()
		opens, turn := t.gates.place(to, now)
		if !opens.After(opened) || !turn.After(now) || !t.worthWaiting(ctx, now, opens.Sub(now)) {
			return opens, ctx.Err()
		}
		if deadline, ok := ctx.Deadline(); ok && turn.After(deadline) {
			turn = opens.Add(rand.N(deadline.Sub(opens) + 1)) // its own place comes too late
		}
		if err := sleep(ctx, turn.Sub(now)); err != nil {
			return opened, err
		}
		opened = opens
	}
}

// worthWaiting reports whether a request may wait for d.
func (t *transport) worthWaiting(ctx context.Context, now time.Time, d time.Duration) bool {
	if d > t.maxWait {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || !now.Add(d).After(deadline)
}

// send sends r under permit. The response's body takes over the permit; if there is
// none, send releases it.
func (t *transport) send(r *http.Request, permit *stint.Permit) (*http.Response, error) {
	held := false
	defer func() {
		if !held {
			permit.Done()
		}
	}()
	resp, err := t.base.RoundTrip(r)
	if resp == nil && err == nil {
		return nil, fmt.Errorf("stinthttp: Transport: %T returned neither a response nor an error", t.base)
	}
	if err == nil && permit != nil && resp.Body != nil && resp.Body != http.NoBody {
		held = true
		resp.Body = hold(resp.Body, permit)
	}
	return resp, err
}

// CloseIdleConnections makes http.Client.CloseIdleConnections reach base.
func (t *transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// heldBody is a response's body that ends a permit when it ends.
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

// heldConn is the body of a 101 response, which can also be written to.
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
