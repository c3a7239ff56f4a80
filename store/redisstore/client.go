package redisstore

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
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

// useClone has a clone that keeps to deadlines make the commands of this package that the client is
// given, unless the client keeps to them.
func useClone(c *redis.Client) {
	if c.Options().ContextTimeoutEnabled {
		return
	}
	cloned.mu.Lock()
	defer cloned.mu.Unlock() // when the hook is there: others then make calls that need it
	client := weak.Make(c)
	if cloned.clients[client] {
		return
	}
	cloned.clients[client] = true
	runtime.AddCleanup(c, forgetClone, client)
	o := c.Options()
	clone := c.WithTimeout(o.ReadTimeout) // it has options of its own, and sets both timeouts
	changed := clone.Options()
	changed.ContextTimeoutEnabled, changed.WriteTimeout = true, o.WriteTimeout
	c.AddHook(cloneHook{clone})
}

// cloned is the set of clients with a clone. It keeps none of them alive.
var cloned = struct {
	mu      sync.Mutex
	clients map[weak.Pointer[redis.Client]]bool
}{clients: map[weak.Pointer[redis.Client]]bool{}}

func forgetClone(client weak.Pointer[redis.Client]) {
	cloned.mu.Lock()
	defer cloned.mu.Unlock()
	delete(cloned.clients, client)
}

// cloneHook passes the commands of this package to a clone of the client.
type cloneHook struct{ by *redis.Client }

func (d cloneHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d cloneHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isOurs(cmd) {
			return next(ctx, cmd)
		}
		return d.by.Process(ctx, cmd)
	}
}

func (d cloneHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || !isOurs(cmds[0]) { // a pipeline is all ours or not at all
			return next(ctx, cmds)
		}
		pipe := d.by.Pipeline()
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

// warnOfWaiting warns of a client that can't be cloned and doesn't keep to deadlines.
func warnOfWaiting(options string) {
	slog.Warn("redisstore: the client doesn't keep to deadlines: while the server doesn't answer, it holds its connections for ReadTimeout, and calls fail; each call takes another goroutine",
		"write", "redis."+options+"{ContextTimeoutEnabled: true}")
}
