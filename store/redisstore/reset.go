package redisstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Reset implements store.Resetter. This store stops renewing its leases of the limits. Other
// processes report their leases as lost (store.LeaseLost). If there are more than 1000 limits,
// Reset needs several calls to the server. If Reset fails, some limits may have been reset, and
// leases are still renewed.
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	if s.wrong != nil || s.closed == nil {
		return false, s.unusable()
	}
	keys := make([]string, 0, len(limits)) // all in one slot: they share a tag
	for _, l := range limits {
		if l == nil || inside.Hash(l) == 0 {
			return false, fmt.Errorf("redisstore: %w", store.ErrLimit)
		}
		keys = append(keys, wire.StorageKey(s.prefix, key, l))
	}
	if len(limits) == 0 {
		return false, nil
	}
	defer s.denies.forget(key)
	defer s.prefetching.forget(key, limits)
	if ctx.Err() != nil {
		return false, fault.ContextEnded(ctx)
	}
	endReset := s.leases.beginReset(keys)
	limited, end := context.WithTimeout(ctx, s.timeout)
	defer end()
	due := &resetContext{Context: limited}
	var commands []command
	for n := 0; n < len(keys); n += mostKeys {
		commands = append(commands, s.resetCommand(keys[n:min(n+mostKeys, len(keys))], limits[n:]))
	}
	type answer struct {
		found bool
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		found, err := s.execAll(due, commands)
		done <- answer{found, err}
	}()
	select {
	case a := <-done:
		found, err = a.found, a.err
	case <-due.Done(): // the client may not notice
		if err = fault.ErrTimeout; due.Withdraw() {
			err = s.unsent(fault.ErrNoConnection)
		}
	}
	endReset(err == nil)
	if err != nil && ctx.Err() != nil {
		return found, fault.ContextEnded(ctx)
	}
	return found, classify(err)
}

// resetContext is the context of a Reset.
type resetContext struct {
	context.Context
	batch.Outgoing
}

// execAll sends the commands, and returns the first error of them and whether one of them answers with
// more than 0.
func (s *server) execAll(ctx context.Context, commands []command) (more bool, err error) {
	err = fault.ErrPanicked
	background.Do("a Redis is called", func() {
		s.exec(ctx, commands)
		err = nil
		for i := range commands {
			n, failed := commands[i].cmd.Int64()
			more, err = more || n > 0, cmp.Or(err, failed)
		}
	})
	return more, err
}

// resetCommand returns the command that forgets keys, which are those of the first limits.
func (s *server) resetCommand(keys []string, limits []*store.Limit) command {
	all := wire.ResetKeys(keys, limits)
	script, args := wire.ResetArgs(keys, limits, s.times(nil), s.room(all))
	return s.command(script, s.layout.siteOf(keys[0]), all, args)
}
