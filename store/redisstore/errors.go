package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
)

// Classes of errors caused by the server or the way to it. An error of a Store matches
// exactly one of them (errors.Is) and wraps the client's own error, except errors about
// the call itself (store.ErrCost and the like) and about the caller's context. No call
// is ever sent twice: each class says what may have been charged. All but ErrIndeterminate
// wrap store.ErrNotMade; ErrConfiguration wraps store.ErrMisconfigured too.
var (
	// ErrUnavailable: the call wasn't executed, and nothing was charged. The connection
	// was denied, the pool is exhausted, or the server is loading, is a replica, or
	// has no quorum.
	ErrUnavailable = store.NotMade(errors.New("the server is not available"))
	// ErrIndeterminate: the charges may stand. The call was sent but no answer came in
	// time, the connection was lost, the call panicked, a script failed after it had
	// written something, or a call with several keys succeeded in one part of a cluster
	// and failed in another.
	ErrIndeterminate = errors.New("the outcome isn't known: the charges may stand")
	// ErrServer: the server answers but refuses to write, and nothing was charged. It
	// is out of memory (OOM), can't save (MISCONF) or is blocked by a script (BUSY). An
	// operator has to fix it.
	ErrServer = store.NotMade(errors.New("the server refuses to write"))
	// ErrConfiguration: nothing was charged, and trying again won't help. Permissions
	// are missing, the password is wrong, a cluster is accessed through a client for
	// one server, a script fails before it has written anything, or New was given options
	// that can't work.
	ErrConfiguration = store.NotMade(store.ErrMisconfigured)
)

// The first word of error replies, by class. All other replies are ErrConfiguration:
// the server has read the command and rejects it.
var (
	unavailable = []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS"}
	troubled    = []string{"OOM", "MISCONF", "BUSY"}
)

// classify wraps err in its class.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConfiguration) || unusable(err):
		return err
	}
	return fmt.Errorf("redisstore: %w: %w", classOf(err), err)
}

func classOf(err error) error {
	if reply := redis.Error(nil); errors.As(err, &reply) {
		return classOfReply(reply.Error())
	}
	var dial *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return ErrConfiguration
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return ErrUnavailable
	case errors.As(err, &dial) && dial.Op == "dial":
		return ErrUnavailable
	}
	return ErrIndeterminate // it may have been sent
}

func classOfReply(text string) error {
	// Before version 7, the server put a script's error inside another text: ERR Error
	// running script (call to f_…): @user_script:3: -READONLY You…
	// A script that catches the error has the part from @user_script.
	if _, inner, found := strings.Cut(text, ": -"); found && (strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "@user_script")) {
		text = inner
	}
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "PARTIAL": // lua/outcome.lua
		return ErrIndeterminate
	case slices.Contains(unavailable, word):
		return ErrUnavailable
	case slices.Contains(troubled, word):
		return ErrServer
	case strings.HasPrefix(text, "ERR max number of clients"):
		return ErrUnavailable
	}
	return ErrConfiguration
}

// isNoScript reports whether the server doesn't know a script, and so hasn't run it.
func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// errLate is the error of calls whose answer hasn't come within the timeout. It is
// shared: an error made for each caller would cost more than the call.
var errLate = fmt.Errorf("redisstore: timeout: %w", ErrIndeterminate)

// errUnsent is the error of calls that weren't sent within the timeout because earlier
// calls, still unanswered, took every way to the server.
var errUnsent = fmt.Errorf("redisstore: %w: earlier calls have not been answered in time", ErrUnavailable)

// errPanicked is the error of calls during which the client, or the decoding of the answer,
// panicked. They may have been sent.
var errPanicked = fmt.Errorf("redisstore: %w: the call panicked", ErrIndeterminate)

// left returns the error of a call whose caller doesn't wait for the answer any more.
func left(ctx context.Context) error {
	return fmt.Errorf("redisstore: %w", ctx.Err())
}

// unusable reports whether err means that the server can't be used now, which trying again
// may change.
func unusable(err error) bool { return notMade(err) || errors.Is(err, ErrIndeterminate) }

// notMade reports whether a call is known not to have been executed and may succeed
// later.
func notMade(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrServer)
}

// doubt ranks errors by what they leave open: 0 if nothing was charged, 1 if the caller
// has gone and the answer may still come, 2 if the charges may stand.
func doubt(err error) int {
	switch {
	case errors.Is(err, ErrIndeterminate):
		return 2
	case notMade(err) || errors.Is(err, ErrConfiguration):
		return 0
	}
	return 1
}

// graver chooses the error of a call that has failed in two places: the one that
// promises less about what was charged.
func graver(a, b error) error {
	if a == nil || doubt(b) > doubt(a) {
		return b
	}
	return a
}

// uncertain is the error of a call of which one part succeeded and another failed. The
// failed part's own class is left out: what it promises doesn't hold for the whole
// call.
func uncertain(err error) error {
	if err == nil || doubt(err) > 0 {
		return err
	}
	return fmt.Errorf("redisstore: %w: %v", ErrIndeterminate, err)
}
