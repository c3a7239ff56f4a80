// Package client sends requests at the pace that a limiter permits and that servers ask
// for: what is behind stinthttp.NewTransport.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

const (
	defaultMaxPause = 60 * time.Second
	defaultRetries  = 3
	// firstBackoff is the pause after a denial if the server doesn't ask for one. It doubles
	// with each retry.
	firstBackoff = time.Second
	// maxDrain is how many bytes of a discarded answer are read so that its connection
	// can be reused; leastDrain is how long that may take if there is no pause.
	maxDrain   = 64 << 10
	leastDrain = 100 * time.Millisecond
)

// Transport is the http.RoundTripper of stinthttp.NewTransport. Make one with New; its fields
// are set before it is used.
type Transport struct {
	Limiter     *stint.Limiter // nil: only servers set the pace
	Base        http.RoundTripper
	Destination stint.Key     // which requests share a turn, a limit and a pause
	MaxPause    time.Duration // the longest pause to wait for, 0 for none
	Retries     int
	Retryable   func(*http.Request) bool // whether a request may be sent twice
	// RetryForbidden says that a 403 that asks for a pause is retried, too.
	RetryForbidden bool
	// Pauses is the limiter's store, which is a store.Banner, if it keeps pauses for all of its processes; or nil.
	Pauses store.Store

	gates gates
}

// New returns a Transport with the defaults.
func New(lim *stint.Limiter, base http.RoundTripper) *Transport {
	return &Transport{Limiter: lim, Base: base, Destination: stint.KeyFunc(schemeAndHost), MaxPause: defaultMaxPause,
		Retries: defaultRetries, Retryable: Replayable}
}

// schemeAndHost returns the origin of a request's URL (RFC 6454), without the scheme's
// default port and without the dot that ends an absolute name: two spellings of a host must
// not be two destinations.
func schemeAndHost(r *http.Request) (string, error) {
	u := r.URL
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" && port != defaultPorts[u.Scheme] {
		host += ":" + port
	}
	return u.Scheme + "://" + host, nil
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := t.Destination.Of(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	host, _ := schemeAndHost(r)
	to := gateKey{host, key}
	send, notBefore := r, time.Time{}
	for try := 0; ; try++ {
		permit, err := t.waitTurn(r.Context(), to, notBefore)
		if err != nil {
			closeBody(send)
			return nil, err
		}
		resp, err := t.send(send, permit)
		if err != nil {
			return resp, err
		}
		now := time.Now()
		d := pause(resp, now)
		asked := d > 0
		if !asked && overloaded(resp.StatusCode) {
			d = firstBackoff << min(try, 10)
		}
		if d > 0 {
			t.gates.close(to, now, d)
		}
		if asked {
			t.sharePause(r.Context(), to, d)
		}
		again, opens := t.retry(r, resp, to, try, now.Add(d))
		if again == nil {
			return resp, nil
		}
		permit.Done() // for a body that its server doesn't end
		drain(r.Context(), resp.Body, opens.Sub(now))
		send, notBefore = again, opens
	}
}

// waitTurn waits until the destination's gate is open and lim gives a turn. If a gate
// closes during the wait for lim, or another process was asked for a pause meanwhile, it waits
// for the gate too and asks lim once more: otherwise everything that lim let go meanwhile would
// go at once.
func (t *Transport) waitTurn(ctx context.Context, destination gateKey, notBefore time.Time) (*stint.Permit, error) {
	for {
		opened, err := t.passGate(ctx, destination)
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, time.Until(notBefore)); err != nil {
			return nil, err
		}
		if t.Limiter == nil {
			return nil, nil
		}
		permit, err := t.Limiter.Wait(ctx, destination.key, 1)
		if err != nil {
			return nil, err
		}
		t.learnPause(ctx, destination)
		now := time.Now()
		opens := t.gates.opening(destination)
		if !opens.After(opened) || !opens.After(now) || !t.worthWaiting(ctx, now, opens.Sub(now)) {
			return permit, nil
		}
		endUnsent(ctx, permit)
	}
}

// endUnsent ends a permit under which nothing was sent, even if ctx has ended meanwhile. It
// names the limits, because Settle without names leaves those without a WithCost alone
// beside those that have one. A slot, or what the store can't settle, is an error here:
// Done releases the one, and the other stays charged.
func endUnsent(ctx context.Context, permit *stint.Permit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), background.SettleTimeout)
	defer cancel()
	for _, l := range permit.Decision().Limits {
		_ = permit.Settle(ctx, 0, l.Name)
	}
	permit.Ignore() // no server has been asked
	permit.Done()
}

// passGate waits for a turn at the gate and returns when that gate opened. A request
// that can't wait that long goes ahead: the server's own answer is worth more to its
// caller than an error made here.
func (t *Transport) passGate(ctx context.Context, destination gateKey) (opened time.Time, err error) {
	for {
		now := time.Now()
		opens, turn := t.gates.place(destination, now)
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
func (t *Transport) worthWaiting(ctx context.Context, now time.Time, d time.Duration) bool {
	if d > t.MaxPause {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || !now.Add(d).After(deadline)
}

// send sends r under permit. The response's body takes over the permit; if there is
// none, send releases it.
func (t *Transport) send(r *http.Request, permit *stint.Permit) (*http.Response, error) {
	returned := false
	defer func() {
		if !returned {
			permit.Drop()
			permit.Done()
		}
	}()
	resp, err := t.Base.RoundTrip(r)
	returned = true
	if resp == nil && err == nil {
		err = fmt.Errorf("stinthttp: Transport: %T returned neither a response nor an error", t.Base)
	}
	if err != nil {
		reportError(r.Context(), permit)
		permit.Done()
		return resp, err
	}
	if refused(resp) {
		permit.Drop()
	}
	if permit == nil || resp.Body == nil || resp.Body == http.NoBody {
		permit.Done()
		return resp, nil
	}
	resp.Body = hold(r.Context(), resp.Body, permit)
	return resp, nil
}

// reportError reports an error of base, or of a response's body, to adaptive limits. The context's own
// end is no sign of overload. How long a canceled request took says nothing about the server; one
// whose deadline has passed took at least that long.
func reportError(ctx context.Context, permit *stint.Permit) {
	switch ended := ctx.Err(); {
	case ended == nil:
		permit.Drop()
	case errors.Is(ended, context.Canceled):
		permit.Ignore()
	}
}

// CloseIdleConnections makes http.Client.CloseIdleConnections reach base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// heldBody is a response's body that ends a permit when it ends.
type heldBody struct {
	io.ReadCloser
	ctx    context.Context
	permit *stint.Permit
	closed atomic.Bool
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		if err != io.EOF && !b.closed.Load() {
			reportError(b.ctx, b.permit)
		}
		b.permit.Done()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.permit.Done()
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// heldConn is the body of a 101 response, which can also be written to.
type heldConn struct {
	io.ReadWriteCloser
	permit *stint.Permit
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	if err != nil {
		c.permit.Done()
	}
	return n, err
}

func (c *heldConn) Close() error {
	defer c.permit.Done()
	return c.ReadWriteCloser.Close()
}

func hold(ctx context.Context, body io.ReadCloser, permit *stint.Permit) io.ReadCloser {
	if conn, ok := body.(io.ReadWriteCloser); ok {
		permit.Ignore() // how long a connection lives says nothing about the server's load
		return &heldConn{conn, permit}
	}
	return &heldBody{ReadCloser: body, ctx: ctx, permit: permit}
}
