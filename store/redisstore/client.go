package redisstore

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"
)

// A client with ContextTimeoutEnabled ends its part of a call at the call's deadline. So a
// caller may make the call on its own goroutine, and a connection whose answer is lost comes
// free then, not after ReadTimeout. A *redis.Client that lacks the option makes this store's
// commands by a clone that has it, with the same connections and timeouts.
//
// go-redis clones no hooks (up to v9.23). So the commands go to the user's client, through
// its hooks, the last of which hands them to the clone. It is added at the first call: hooks
// that are added later aren't asked. Nothing else of the user's client changes. From v9.22 on
// a hook may be added while others use the client: so go.mod requires that.
//
// A hook can't be removed, and each makes all commands of the client slower. So all stores on a
// client share one.

// addHook adds the hook of this package to a client, and returns where the hook records dials. Unless
// the client keeps to deadlines, the hook has a clone make the commands of this package.
func addHook(c *redis.Client) *dials {
	hooked.mu.Lock()
	defer hooked.mu.Unlock() // when the hook is there: others then make calls that need it
	client := weak.Make(c)
	if d := hooked.clients[client]; d != nil {
		return d
	}
	h := clientHook{dials: new(dials)}
	hooked.clients[client] = h.dials
	runtime.AddCleanup(c, forgetHook, client)
	if o := c.Options(); !o.ContextTimeoutEnabled {
		h.clone = c.WithTimeout(o.ReadTimeout) // it has options of its own, and sets both timeouts
		changed := h.clone.Options()
		changed.ContextTimeoutEnabled, changed.WriteTimeout = true, o.WriteTimeout
	}
	c.AddHook(h)
	return h.dials
}

// hooked has the clients with a hook. It keeps none of them alive.
var hooked = struct {
	mu      sync.Mutex
	clients map[weak.Pointer[redis.Client]]*dials
}{clients: map[weak.Pointer[redis.Client]]*dials{}}

func forgetHook(client weak.Pointer[redis.Client]) {
	hooked.mu.Lock()
	defer hooked.mu.Unlock()
	delete(hooked.clients, client)
}

// dials has the outcome of a client's latest attempt to connect.
type dials struct{ failed atomic.Pointer[error] }

// clientHook records dials, and passes the commands of this package to a clone of the client, if there is
// one.
type clientHook struct {
	dials *dials
	clone *redis.Client
}

func (h clientHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			h.dials.failed.Store(&err)
		} else {
			h.dials.failed.Store(nil)
		}
		return conn, err
	}
}

func (h clientHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	if h.clone == nil {
		return next
	}
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isOurs(cmd) {
			return next(ctx, cmd)
		}
		return h.clone.Process(ctx, cmd)
	}
}

func (h clientHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.clone == nil {
		return next
	}
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || !isOurs(cmds[0]) { // a pipeline is all ours or not at all
			return next(ctx, cmds)
		}
		pipe := h.clone.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// once is a command that the client sends once. By default go-redis retries a command
// without an answer, and would charge four times. Redirections within a cluster are
// followed: a redirected command wasn't executed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// isOurs reports whether a command is of this package.
func isOurs(cmd redis.Cmder) bool {
	_, ok := cmd.(once)
	return ok
}

// outgoing is the context of a call that records whether its commands have been sent: a
// batch.Outgoing.
type outgoing interface {
	Hold()
	Begin() error
	Withdraw() bool
}

// firstArg is the first argument of a script after its keys. The client asks for its bytes when it sends the
// command, and not before it has a connection.
type firstArg struct {
	value string
	out   outgoing
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (a *firstArg) MarshalBinary() ([]byte, error) { return []byte(a.value), a.out.Begin() }

// String returns what is sent, for hooks that log commands.
func (a *firstArg) String() string { return a.value }

// warnOfWaiting warns of a client that can't be cloned and doesn't keep to deadlines.
func warnOfWaiting(options string) {
	slog.Warn("redisstore: the client ignores deadlines: each call takes an extra goroutine and, "+
		"if the server doesn't answer, keeps a connection for ReadTimeout, so that other calls may fail",
		"write", "redis."+options+"{ContextTimeoutEnabled: true}")
}
