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
)

// The classes of errors that the server, or the way to it, may cause. An error
// of a Store matches one of them (errors.Is) and wraps the client's own, unless
// it is about the call (store.ErrCost and its like) or the caller's context.
// Nothing is ever sent twice: see each class for what may have been charged.
var (
	// ErrUnavailable: the call was not executed and nothing was charged. The
	// connection was refused or the pool is exhausted, or the server is loading,
	// a replica, or without a quorum.
	ErrUnavailable = errors.New("the server is not available")
	// ErrIndeterminate: the call was sent and no answer came in time, or the
	// connection was lost, or the client panicked; or a call with several keys was made in one place of a
	// cluster and not in another. The charges may stand.
	ErrIndeterminate = errors.New("no answer from the server: the charges may stand")
	// ErrServer: the server answers and won't write. It is out of memory, can't
	// save (MISCONF) or is held up by a script (BUSY). Nothing was charged, and
	// somebody has to look after it.
	ErrServer = errors.New("the server is in trouble")
	// ErrConfiguration: it will not get better by itself. Missing rights, a wrong
	// password, a cluster asked through a client for one server, a script that
	// fails, options of New that can't be. Nothing was charged.
	ErrConfiguration = errors.New("misconfigured")
)

// IsFailure reports whether err says that the server can't be used for now:
// ErrUnavailable, ErrIndeterminate or ErrServer. It is for failover.WithFailure.
// ErrConfiguration is none: deciding elsewhere would hide a mistake that stays
// until somebody mends it.
func IsFailure(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrIndeterminate) || errors.Is(err, ErrServer)
}

// The first word of error replies, by class. All others are of configuration:
// the server has read the command and won't have it.
var (
	unavailable = []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS"}
	troubled    = []string{"OOM", "MISCONF", "BUSY"}
)

// classified is err with its class.
func classified(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConfiguration) || IsFailure(err):
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
	return ErrIndeterminate // sent, for all that is known
}

func classOfReply(text string) error {
	// Before version 7, an error inside of a script was put in another's text:
	// ERR Error running script (call to f_…): @user_script:3: -READONLY You…
	if _, inner, found := strings.Cut(text, ": -"); found && strings.HasPrefix(text, "ERR Error running script") {
		text = inner
	}
	word, _, _ := strings.Cut(text, " ")
	switch {
	case slices.Contains(unavailable, word):
		return ErrUnavailable
	case slices.Contains(troubled, word):
		return ErrServer
	case strings.HasPrefix(text, "ERR max number of clients"):
		return ErrUnavailable
	}
	return ErrConfiguration
}

// isNoScript reports whether the server said that it doesn't know a script, and
// so has not run it.
func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// errLate is the error of calls whose answer has not come within the timeout.
// It is shared: an error a caller would cost more than the call.
var errLate = fmt.Errorf("redisstore: timeout: %w", ErrIndeterminate)

// errUnsent is the error of calls that were not sent within the timeout, all
// ways to the server being taken by calls that it has not answered.
var errUnsent = fmt.Errorf("redisstore: %w: earlier calls have not been answered in time", ErrUnavailable)

// errPanicked is the error of calls that the client has not come back from. For all
// that is known they were sent.
var errPanicked = fmt.Errorf("redisstore: %w: the client panicked", ErrIndeterminate)

// left is the error of a call whose caller doesn't wait for the answer.
func left(ctx context.Context) error {
	return fmt.Errorf("redisstore: %w", ctx.Err())
}

// notMade reports whether a call is known not to have been executed, and may be by
// and by.
func notMade(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrServer)
}

// graver is the error of a call that has failed in two places: that with less of a
// promise about what was charged.
func graver(a, b error) error {
	if a == nil || !errors.Is(a, ErrIndeterminate) && errors.Is(b, ErrIndeterminate) {
		return b
	}
	return a
}

// uncertain is the error of a call of which a part failed after another was made.
// The part's own class is left out: it promises what doesn't hold of the whole.
func uncertain(err error) error {
	if !IsFailure(err) && !errors.Is(err, ErrConfiguration) || errors.Is(err, ErrIndeterminate) {
		return err
	}
	return fmt.Errorf("redisstore: %w: %v", ErrIndeterminate, err)
}
