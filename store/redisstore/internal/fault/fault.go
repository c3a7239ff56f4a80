// Package fault defines the classes of errors of a call to the server, which package
// redisstore exports, and what follows from them about the charges.
package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/store"
)

// The classes. Package redisstore documents them.
var (
	ErrUnavailable   = store.NotMade(errors.New("the server is not available"))
	ErrIndeterminate = errors.New("the server may or may not have charged the request")
	ErrServer        = store.NotMade(errors.New("the server refuses to write"))
	ErrConfiguration = store.NotMade(store.ErrMisconfigured)
)

// The errors of calls that the server hasn't answered. They are shared: an error made for each
// caller would cost more than the call.
var (
	// ErrTimeout: no answer has come within the timeout.
	ErrTimeout = fmt.Errorf("redisstore: timeout: %w", ErrIndeterminate)
	// ErrUnsent: the call wasn't sent within the timeout, because earlier calls were still
	// unanswered.
	ErrUnsent = fmt.Errorf("redisstore: %w: earlier calls have not been answered in time", ErrUnavailable)
	// ErrNoConnection: the call wasn't sent within the timeout, because the client had no
	// connection.
	ErrNoConnection = NoConnection(errors.New("no connection within the timeout"))
	// ErrPanicked: the client, or the decoding of the answer, panicked. The call may have been
	// sent.
	ErrPanicked = fmt.Errorf("redisstore: %w: the call panicked", ErrIndeterminate)
)

// NoConnection returns the error of a call that wasn't sent because of err.
func NoConnection(err error) error { return fmt.Errorf("redisstore: %w: %w", ErrUnavailable, err) }

// ContextEnded returns the error of a call whose caller has stopped waiting.
func ContextEnded(ctx context.Context) error {
	return fmt.Errorf("redisstore: %w", ctx.Err())
}

// Temporary reports whether err means that the server can't be used now, which trying again
// may change.
func Temporary(err error) bool { return NotMade(err) || errors.Is(err, ErrIndeterminate) }

// NotMade reports whether a call is known not to have been executed and may succeed
// later.
func NotMade(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrServer)
}

// doubt ranks errors by what they leave open: 0 if nothing was charged, 1 if the caller
// has left and the answer may still come, 2 if the charges may stand.
func doubt(err error) int {
	switch {
	case errors.Is(err, ErrIndeterminate):
		return 2
	case NotMade(err) || errors.Is(err, ErrConfiguration):
		return 0
	}
	return 1
}

// Worse chooses the error of a call that has failed in two places: the one that
// promises less about what was charged.
func Worse(a, b error) error {
	if a == nil || doubt(b) > doubt(a) {
		return b
	}
	return a
}

// PartlyMade returns the error of a call of which one part succeeded and another failed. The
// failed part's own class is left out: what it promises doesn't hold for the whole
// call.
func PartlyMade(err error) error {
	if err == nil || doubt(err) > 0 {
		return err
	}
	return fmt.Errorf("redisstore: %w: %v", ErrIndeterminate, err)
}
