package client

import (
	"context"
	"io"
	"net/http"
	"time"
)

// retry returns a copy of r to send at an instant from opens on, or nil if resp is the answer to r. If a function
// of the user panics, nobody gets resp, so its body is closed, which also ends the permit.
func (t *Transport) retry(r *http.Request, resp *http.Response, to gateKey, try int,
	opens time.Time) (*http.Request, time.Time) {
	returned := false
	defer func() {
		if !returned && resp.Body != nil {
			_ = resp.Body.Close()
		}
	}()
	var again *http.Request
	if try < t.Retries && t.mayRetry(r, resp) {
		if g := t.gates.opening(to); g.After(opens) {
			opens = g // another answer has asked for a longer pause
		}
		now := time.Now()
		if t.worthWaiting(r.Context(), now, opens.Sub(now)) {
			again, _ = resend(r) // resp says more than an error about why there is no retry
		}
	}
	returned = true
	return again, opens
}

// mayRetry reports whether an answer asks to try again, and the request may be sent
// twice.
func (t *Transport) mayRetry(r *http.Request, resp *http.Response) bool {
	switch {
	case !overloaded(resp.StatusCode) && !(t.RetryForbidden && resp.StatusCode == http.StatusForbidden && refused(resp)):
		return false
	case r.Body != nil && r.Body != http.NoBody && r.GetBody == nil:
		return false
	}
	return t.Retryable(r)
}

// overloaded reports whether a status says that the server can't take more requests for now.
func overloaded(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// refused reports whether an answer says that the server failed or couldn't take the request, which cuts
// adaptive limits. A 403 without a pause is about the request itself.
func refused(resp *http.Response) bool {
	switch status := resp.StatusCode; {
	case status == http.StatusForbidden:
		return pause(resp, time.Now()) > 0
	default:
		return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
	}
}

// Replayable reports whether net/http itself would send the request again on a connection that
// broke: of a safe method, or with an Idempotency-Key. A PUT or DELETE that is sent twice may
// undo what another client did in between. A 429 makes no difference: a gateway may send it
// after the server behind it has begun.
func Replayable(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// resend returns a copy of the request to send once more, since base has already had r.
func resend(r *http.Request) (*http.Request, error) {
	again := r.Clone(r.Context())
	if r.GetBody != nil && r.Body != nil && r.Body != http.NoBody {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	return again, nil
}

// drain discards an answer. It reads the rest if that is short and comes during the
// pause, so that the connection can be reused. Close ends a Read that waits.
func drain(ctx context.Context, body io.ReadCloser, pause time.Duration) {
	if body == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, max(pause, leastDrain))
	defer stop()
	keep := context.AfterFunc(ctx, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	if keep() {
		_ = body.Close()
	}
}

// closeBody does what base would have done for a request that isn't sent.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// sleep waits for d, or until ctx ends. It reports a context that has already ended
// even if d is 0.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
