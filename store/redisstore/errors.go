package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// Classes of errors caused by the server or the connection to it. An error of a Store matches
// exactly one of them (errors.Is) and wraps the client's own error. Errors about the call
// itself (store.ErrCost and the like) and about the caller's context belong to no class. The
// class determines what may have been charged. All classes except ErrIndeterminate wrap
// store.ErrNotMade. ErrConfiguration also wraps store.ErrMisconfigured.
var (
	// ErrUnavailable: the call wasn't executed, and nothing was charged. The connection was
	// refused, the connection pool is exhausted, or the server is loading its data, is a
	// replica, or has no quorum.
	ErrUnavailable = fault.ErrUnavailable
	// ErrIndeterminate: the charges may have been made. The call was sent but no reply came in
	// time, the connection was lost, the call panicked, a script failed after it had written,
	// or a call with several keys succeeded in one part of a cluster and failed in another.
	ErrIndeterminate = fault.ErrIndeterminate
	// ErrServer: the server replied but refused to write, and nothing was charged. The server
	// is out of memory (OOM), can't save (MISCONF) or is blocked by a script (BUSY). An
	// operator has to fix the server.
	ErrServer = fault.ErrServer
	// ErrConfiguration: nothing was charged, and a retry won't help. Permissions are missing,
	// the password is wrong, a cluster is accessed through a client for one server, a script
	// failed before it had written anything, or New was called with invalid options.
	ErrConfiguration = fault.ErrConfiguration
)

// The first word of error replies, by class. All other replies are ErrConfiguration:
// the server has read the command and rejects it.
var (
	unavailable = []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS"}
	unserving   = []string{"OOM", "MISCONF", "BUSY"}
)

// classify wraps err in its class.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConfiguration) || fault.Temporary(err):
		return err
	}
	if reply := redis.Error(nil); errors.As(err, &reply) && strings.Contains(reply.Error(), "unauthenticated") {
		// From a client without a password, Redis reads at most ten words of a command, and answers
		// "ERR Protocol error: unauthenticated multibulk length".
		return fmt.Errorf("redisstore: %w: NOAUTH: the server requires a password: %w", ErrConfiguration, err)
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
	if _, inner, found := strings.Cut(text, ": -"); found &&
		(strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "@user_script")) {
		text = inner
	}
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "PARTIAL": // lua/outcome.lua
		return ErrIndeterminate
	case slices.Contains(unavailable, word):
		return ErrUnavailable
	case slices.Contains(unserving, word):
		return ErrServer
	case strings.HasPrefix(text, "ERR max number of clients"):
		return ErrUnavailable
	}
	return ErrConfiguration
}

// isNoScript reports whether the server doesn't know a script, and so hasn't run it.
func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }
