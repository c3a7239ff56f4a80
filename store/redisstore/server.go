package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// server is what a store keeps its states in: one server, a cluster or a ring.
type server struct {
	client    redis.UniversalClient
	layout    layout
	prefix    string           // of all keys
	timeout   time.Duration    // of a call
	clock     func() time.Time // nil: the server's
	alone     bool             // each command is sent by itself
	leaseTTL  time.Duration
	leaseTime *wire.LeaseTime // leaseTTL, as arguments

	clockOffset atomic.Int64 // of the server's clock from the client's, in microseconds
	firstCall   sync.Once
	dials       atomic.Pointer[dials] // of a *redis.Client, since the first call
}

// command is a command for the server, mostly one that runs a script.
type command struct {
	script *scripts.Script // nil: args are all of the command
	args   []any           // its name and the script come at the beginning
	cmd    *redis.Cmd      // with its answer
	first  int             // the index of the script's first argument in args
	arg    firstArg        // that argument, if the command's context is an outgoing
}

// room returns how many arguments a command has before the script's: its name, the
// script, the number of keys, and the keys.
func (s *server) room(keys []string) int {
	if s.clock != nil {
		return 4 + len(keys)
	}
	return 3 + len(keys)
}

// command returns the command that runs a script on keys of a site. It fills in the first
// room(keys) of args.
func (s *server) command(script *scripts.Script, at site, keys []string, args []any) command {
	n := s.room(keys)
	args[2] = n - 3
	for i, key := range keys {
		args[3+i] = key
	}
	if s.clock != nil {
		args[n-1] = s.layout.guardKey(s.prefix, at)
	}
	return command{script: script, args: args, first: n}
}

// make makes the command for the client, a new one each time it is sent: it holds the answer. If source
// is true, it sends the script's text. out is nil if nobody asks whether the command has been sent.
func (c *command) make(ctx context.Context, out outgoing, source bool) {
	args := c.args
	if c.cmd != nil {
		args = slices.Clone(args)
	}
	if c.script != nil {
		args[0], args[1] = evalsha, c.script.Arg
		if source {
			args[0], args[1] = eval, c.script.Source
		}
	}
	if out != nil {
		c.arg.out = out
		if value, ok := args[c.first].(string); ok {
			c.arg.value = value
		}
		args[c.first] = &c.arg
	}
	c.cmd = redis.NewCmd(ctx, args...)
}

// The names of commands, as their arguments.
var evalsha, eval any = "evalsha", "eval"

// exec sends the commands. Their errors are in them.
func (s *server) exec(ctx context.Context, commands []command) {
	defer s.reloadCluster(ctx, commands)
	s.try(ctx, commands, false)
	// A server that doesn't know a script hasn't run it, so the command is sent again with
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
	s.try(ctx, unknown, true)
	for i, c := range unknown {
		commands[at[i]].cmd = c.cmd
	}
}

// reloadCluster makes a cluster's client reload the map of slots after a network error. By
// itself go-redis (v9.22) goes on asking a dead master for up to a minute after its
// replica has taken over. ReloadState doesn't block and merges concurrent calls.
func (s *server) reloadCluster(ctx context.Context, commands []command) {
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

// try passes the commands to the client. The goroutine may be that of another caller, and calls of
// others may be in the batch. So a panic, for instance of a hook, becomes
// an error of the commands that no server has answered by then: their failure policies
// apply, and the next batch is sent.
func (s *server) try(ctx context.Context, commands []command, source bool) {
	out, _ := ctx.(outgoing)
	for i := range commands {
		if commands[i].script == nil { // nothing says when it is sent
			out = nil
		}
	}
	if out != nil {
		out.Hold()
	}
	for i := range commands {
		commands[i].make(ctx, out, source)
	}
	err := fault.ErrPanicked
	background.Do("the client makes a call", func() { err = s.process(ctx, commands) })
	for i := range commands {
		c := commands[i].cmd
		if err != nil && c.Err() == nil && c.Val() == nil {
			c.SetErr(err)
		}
		if c.Err() != nil && out != nil {
			s.setUnsent(c, out)
		}
	}
}

// setUnsent changes the error of a command that could have been sent, as far as the error says, but
// wasn't.
func (s *server) setUnsent(c *redis.Cmd, out outgoing) {
	switch err := c.Err(); {
	case errors.Is(err, fault.ErrPanicked) || !errors.Is(classify(err), ErrIndeterminate) || !out.Withdraw():
	case errors.Is(err, context.DeadlineExceeded):
		c.SetErr(s.unsent(fault.ErrNoConnection))
	default:
		c.SetErr(fault.NoConnection(err))
	}
}

// unsent returns the error of a call that wasn't sent: that of the latest dial if it failed, otherwise err.
func (s *server) unsent(err error) error {
	if d := s.dials.Load(); d != nil {
		if failed := d.failed.Load(); failed != nil {
			return fault.NoConnection(*failed)
		}
	}
	return err
}

// process returns the error of commands that were never given to a server; the others
// have their own.
func (s *server) process(ctx context.Context, commands []command) error {
	s.firstCall.Do(s.hook)
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

// hook adds this package's hook to the client, if it is one for which there is a hook.
func (s *server) hook() {
	if c, ok := s.client.(*redis.Client); ok {
		s.dials.Store(addHook(c))
	}
}

// clientNow returns the client's instant, in microseconds since store.Epoch.
func (s *server) clientNow() int64 {
	now := time.Now
	if s.clock != nil {
		now = s.clock
	}
	return now().UnixMicro() - store.Epoch*1_000_000
}

// times returns the arguments of a script that are about time, the last of which are instants
// that it has asked for.
func (s *server) times(asked []int64) wire.Times {
	now := s.clientNow()
	t := wire.Times{Wall: now + s.clockOffset.Load(), Asked: asked, Lease: s.leaseTime}
	if s.clock != nil {
		t.Clock = strconv.FormatInt(now, 10) + ",1"
	}
	return t
}

// recordClock records the offset of the server's clock, from the instant in an answer.
func (s *server) recordClock(now int64) { s.clockOffset.Store(now - s.clientNow()) }

// maxTries is how often a call is made until the script has all windows of the calendar
// that it needs: the present one, if the server's clock differs; that of the state; and
// that of the end of the longest wait. Others may change the state in between.
const maxTries = 8

// errCalendar is the error of a call that keeps asking for windows.
var errCalendar = fmt.Errorf("redisstore: %w: the script keeps asking for calendar windows", fault.ErrUnavailable)

// malformed returns the error of an answer that makes no sense.
func malformed(err error) error {
	return fmt.Errorf("redisstore: %w: %w", ErrConfiguration, err)
}
