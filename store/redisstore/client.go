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

// keepToDeadlines has the client's commands of this store made by a clone that keeps to deadlines.
func (s *Store) keepToDeadlines() {
	c, single := s.client.(*redis.Client)
	if !single || c.Options().ContextTimeoutEnabled {
		return
	}
	detours.mu.Lock()
	defer detours.mu.Unlock() // when the hook is there: others then make calls that need it
	of := weak.Make(c)
	if detours.of[of] {
		return
	}
	detours.of[of] = true
	runtime.AddCleanup(c, forgetDetour, of)
	o := c.Options()
	clone := c.WithTimeout(o.ReadTimeout) // it has options of its own, and sets both timeouts
	own := clone.Options()
	own.ContextTimeoutEnabled, own.WriteTimeout = true, o.WriteTimeout
	c.AddHook(detour{clone})
}

// detours has the clients with a detour, and keeps none of them alive.
var detours = struct {
	mu sync.Mutex
	of map[weak.Pointer[redis.Client]]bool
}{of: map[weak.Pointer[redis.Client]]bool{}}

func forgetDetour(of weak.Pointer[redis.Client]) {
	detours.mu.Lock()
	defer detours.mu.Unlock()
	delete(detours.of, of)
}

// detour hands the commands of this package to another client.
type detour struct{ by *redis.Client }

func (d detour) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d detour) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !ours(cmd) {
			return next(ctx, cmd)
		}
		return d.by.Process(ctx, cmd)
	}
}

func (d detour) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if len(cmds) == 0 || !ours(cmds[0]) { // a pipeline is all ours or not at all
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

func ours(cmd redis.Cmder) bool {
	_, ok := cmd.(once)
	return ok
}

// warnOfWaiting warns of a client that can't be cloned and doesn't keep to deadlines.
func warnOfWaiting(options string) {
	slog.Warn("redisstore: the client doesn't keep to deadlines: while the server doesn't answer, it holds its connections for ReadTimeout, and calls fail; each call takes another goroutine",
		"write", "redis."+options+"{ContextTimeoutEnabled: true}")
}
