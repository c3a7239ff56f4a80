package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// once is a command that the client sends once. By default go-redis retries a command
// without an answer, and would charge four times. Redirections within a cluster are
// followed: a redirected command wasn't executed.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// call is one call of a script, or a command.
type command struct {
	script *scripts.Script // nil: args are all of a command
	args   []any           // of the command; its name and the script come at the beginning
	cmd    *redis.Cmd
}

// head returns how many arguments the command has before the script's: its name, the
// script, the number of keys, and the keys.
func (s *Store) head(keys []string) int {
	if s.clock != nil {
		return 4 + len(keys)
	}
	return 3 + len(keys)
}

// call returns a call at a place. It fills in the first head(keys) of args.
func (s *Store) command(script *scripts.Script, p site, keys []string, args []any) command {
	n := s.head(keys)
	args[2] = n - 3
	for i, key := range keys {
		args[3+i] = key
	}
	if s.clock != nil {
		args[n-1] = s.guardKey(p)
	}
	return command{script: script, args: args}
}

// command makes the call's command, a new one each time the call is made: a command
// holds its answer.
func (c *command) make(ctx context.Context, name, script any) {
	args := c.args
	if c.cmd != nil {
		args = slices.Clone(args)
	}
	if c.script != nil {
		args[0], args[1] = name, script
	}
	c.cmd = redis.NewCmd(ctx, args...)
}

// evalsha is the name of a command, as its argument.
var evalsha any = "evalsha"

// exec makes the calls. Their errors are in their commands.
func (s *Store) exec(ctx context.Context, commands []command) {
	defer s.look(ctx, commands)
	s.try(ctx, commands, "evalsha")
	// A server that doesn't know a script hasn't run it, so the call is sent again with
	// the script's text: once, since that makes it known.
	var unknown []command
	var at []int
	for i := range commands {
		if err := commands[i].cmd.Err(); err != nil && isNoScript(err) {
			unknown, at = append(unknown, commands[i]), append(at, i)
		}
	}
	if len(unknown) == 0 {
		return
	}
	s.try(ctx, unknown, "eval")
	for i, c := range unknown {
		commands[at[i]].cmd = c.cmd
	}
}

// look makes a cluster's client find out who serves what, after a network error. By
// itself go-redis (v9.22) goes on asking a dead master for up to a minute after its
// replica has taken over. ReloadState doesn't block and merges concurrent calls.
func (s *Store) look(ctx context.Context, commands []command) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	for i := range commands {
		reply := redis.Error(nil)
		if err := commands[i].cmd.Err(); err != nil && !errors.As(err, &reply) {
			cluster.ReloadState(ctx)
			return
		}
	}
}

// try passes the calls to the client. Which goroutine does that depends on who else is
// calling, and others may be in the batch. So a panic, for instance of a hook, becomes
// an error of the calls that no server has answered by then: their failure policies
// apply, and the line continues.
func (s *Store) try(ctx context.Context, commands []command, name string) {
	for i := range commands {
		switch c := &commands[i]; {
		case c.script == nil:
			c.make(ctx, nil, nil)
		case name == "eval":
			c.make(ctx, name, c.script.Source)
		default:
			c.make(ctx, evalsha, c.script.Arg)
		}
	}
	err := fault.ErrPanicked
	background.Do("the client makes a call", func() { err = s.process(ctx, commands) })
	if err == nil {
		return
	}
	for i := range commands {
		if c := commands[i].cmd; c.Err() == nil && c.Val() == nil {
			c.SetErr(err)
		}
	}
}

// process returns the error of commands that were never given to a server; the others
// have their own.
func (s *Store) process(ctx context.Context, commands []command) error {
	s.first.Do(s.keepToDeadlines)
	if len(commands) == 1 || s.alone {
		for i := range commands {
			_ = s.client.Process(ctx, once{commands[i].cmd})
		}
		return nil
	}
	pipe := s.client.Pipeline()
	for i := range commands {
		_ = pipe.Process(ctx, once{commands[i].cmd})
	}
	_, err := pipe.Exec(ctx)
	return err
}

// guardKey is the key that remembers, for a store with a clock of its own, the newest
// instant that the scripts of a place were called with.
func (s *Store) guardKey(p site) string {
	switch s.layout {
	case bySlot:
		return s.prefix + "{" + wire.SlotTag(p.slot) + "}%clock"
	case byTag:
		return s.prefix + "{" + p.tag + "}%clock"
	}
	return s.prefix + "%clock"
}

// here returns the client's instant, in microseconds since store.Epoch.
func (s *Store) here() int64 {
	now := time.Now
	if s.clock != nil {
		now = s.clock
	}
	return now().UnixMicro() - store.Epoch*1_000_000
}

// times returns the arguments of a script about the time and leases.
func (s *Store) times(asked []int64) wire.Times {
	now := s.here()
	t := wire.Times{Wall: now + s.ahead.Load(), Asked: asked, Lease: s.leaseTime}
	if s.clock != nil {
		t.Clock = strconv.FormatInt(now, 10) + ",1"
	}
	return t
}

// learn records the server's instant from an answer.
func (s *Store) learn(now int64) { s.ahead.Store(now - s.here()) }

// tries is how often a call is made until the script knows all windows of the calendar
// that it needs: the present one, if the server's clock differs; that of the state; and
// that of the end of the longest wait. Others may change the state in between.
const tries = 8

// errAsks is the error of a call that keeps asking for windows.
var errAsks = errors.New("redisstore: the script keeps asking for calendar windows")

// unread is the error of an answer that makes no sense.
func unread(err error) error {
	return fmt.Errorf("redisstore: %w: %w", ErrConfiguration, err)
}

// groupBySite groups what goes into one call, in order.
func groupBySite[T any](calls []*batch.Call[T], siteOf func(*T) site) [][]*batch.Call[T] {
	first := siteOf(&calls[0].Body)
	same := true
	for _, t := range calls[1:] {
		same = same && siteOf(&t.Body) == first
	}
	if same {
		return [][]*batch.Call[T]{calls}
	}
	at := make(map[site]int)
	var groups [][]*batch.Call[T]
	for _, t := range calls {
		p := siteOf(&t.Body)
		i, known := at[p]
		if !known {
			i = len(groups)
			at[p] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}
