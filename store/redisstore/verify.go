package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// verifyTime is how long a call of Verify may take, if that is longer than the timeout of the
// others: the first calls of a process also connect.
const verifyTime = 5 * time.Second

// Verify implements store.Verifier, which stint's Limiter.CheckStore calls. On each master of a
// cluster, and on each shard of a ring that is up, Verify runs the limits' scripts and each
// command that they may use. It uses keys of its own, which begin with the prefix and
// "%check:", and removes them. It charges nothing. Optional commands, such as INFO, aren't
// tried.
//
// If a permission is missing or the password is wrong, the error names the problem and wraps
// ErrConfiguration. Other errors are as in Take. Each call to the server may take 5 seconds, or
// WithTimeout if WithTimeout is longer.
func (s *Store) Verify(ctx context.Context, limits ...*store.Limit) error {
	if s.wrong != nil || s.closed == nil {
		return s.unusable()
	}
	for _, l := range limits {
		if l == nil || inside.Hash(l) == 0 {
			return fmt.Errorf("redisstore: %w", store.ErrLimit)
		}
	}
	if len(limits) == 0 {
		return nil
	}
	s.firstCall.Do(s.hook)
	all, err := s.probes(ctx)
	if err != nil {
		return classify(err)
	}
	for _, p := range all {
		if err := p.verify(ctx, limits); err != nil {
			return err
		}
	}
	return nil
}

// probe is a store on one master whose keys are no other store's.
type probe struct {
	*Store
	identity string // whose keys are on the master
}

func (s *Store) newProbe(client redis.UniversalClient, layout layout, identity string) probe {
	p := New(nil, WithPrefix(s.prefix+"%check:"), WithLeaseTTL(s.leaseTTL), WithTimeout(max(s.timeout, verifyTime)))
	p.client, p.layout, p.clock, p.wrong = client, layout, s.clock, nil
	p.firstCall.Do(func() {}) // the client isn't changed again
	return probe{p, identity}
}

// probes returns one for each master.
func (s *Store) probes(ctx context.Context) (all []probe, err error) {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		//lint:ignore SA1019 Redis 6.2 has no CLUSTER SHARDS
		slots, err := c.ClusterSlots(ctx).Result()
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		for _, r := range slots {
			if len(r.Nodes) > 0 && !seen[r.Nodes[0].Addr] {
				seen[r.Nodes[0].Addr] = true
				all = append(all, s.newProbe(c, bySlot, wire.SlotTag(uint16(r.Start))))
			}
		}
		return all, nil
	case *redis.Ring:
		var mu sync.Mutex
		err = c.ForEachShard(ctx, func(_ context.Context, shard *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, s.newProbe(shard, oneServer, "0"))
			return nil
		})
		return all, err
	}
	return []probe{s.newProbe(s.client, s.layout, "0")}, nil
}

func (p probe) verify(ctx context.Context, limits []*store.Limit) error {
	defer func() {
		p.closing.Do(func() { close(p.closed) })
		p.leases.close()
	}()
	if err := p.tryCommands(ctx, limits); err != nil {
		return err
	}
	// Rights alone don't say whether the server runs the scripts.
	var some []*store.Limit // one of each algorithm
	for _, l := range limits {
		if !slices.ContainsFunc(some, func(o *store.Limit) bool { return o.Algorithm() == l.Algorithm() }) {
			some = append(some, l)
		}
	}
	defer p.remove(some)
	for _, l := range some {
		if err := p.tryScripts(ctx, l); err != nil {
			return err
		}
	}
	return p.tryScripts(ctx, some...)
}

// commandsOf returns the commands that scripts for the limits may use.
func commandsOf(limits []*store.Limit) (all []any) {
	for _, s := range wire.Scripts(limits) {
		for _, command := range scripts.Commands(s.Source) {
			if !slices.Contains(all, any(command)) {
				all = append(all, command)
			}
		}
	}
	return all
}

// trial tries commands, and returns those that it may not use, each with the server's error. A
// server looks at a user's rights once the number of arguments is right, and before what they
// say. So each command gets the key as one argument after the other, until the server has no more to say
// about their number. What a command has written is removed in the same script.
const trial = `
local unpack, key, lacks = unpack or table.unpack, KEYS[1], {}
local function remove()
  for _, command in ipairs({'DEL', 'UNLINK'}) do
    local gone = redis.pcall(command, key)
    if type(gone) ~= 'table' then return end
  end
  redis.pcall('PEXPIRE', key, '1')
end
for _, command in ipairs(ARGV) do
  local args, said = {command}, nil
  repeat
    local answer = redis.pcall(unpack(args))
    said = type(answer) == 'table' and answer.err and string.lower(answer.err)
    args[#args + 1] = key
  until not said or not string.find(said, 'wrong number of arg', 1, true) or #args > 9
  if said then
    for _, about in ipairs({'noperm', 'permission', "can't run this command", 'unknown'}) do
      if string.find(said, about, 1, true) then
        lacks[#lacks + 1] = command
        lacks[#lacks + 1] = said
        break
      end
    end
  end
  remove()
end
return lacks
`

// tryCommands tries each command that the limits' scripts may use.
func (p probe) tryCommands(ctx context.Context, limits []*store.Limit) error {
	due, end := context.WithTimeout(ctx, p.timeout)
	defer end()
	commands := []command{{args: append([]any{"eval", trial, 1, p.prefix + "{" + p.identity + "}"}, commandsOf(limits)...)}}
	p.exec(due, commands)
	lacks, err := commands[0].cmd.StringSlice()
	if err != nil {
		if ctx.Err() != nil {
			return fault.ContextEnded(ctx)
		}
		return classify(err)
	}
	if len(lacks) == 0 {
		return nil
	}
	var rights []string
	for i := 0; i < len(lacks); i += 2 {
		rights = append(rights, "+"+strings.ToLower(lacks[i]))
	}
	return fmt.Errorf("redisstore: %w: the server doesn't let this user run commands that the limits need: grant it %s: %s",
		ErrConfiguration, strings.Join(rights, " "), lacks[1])
}

// tryScripts runs the scripts of limits: it looks, charges, settles up and down, renews and
// resets.
func (p probe) tryScripts(ctx context.Context, limits ...*store.Limit) error {
	charges := make([]store.Charge, len(limits))
	results := make([]store.Result, len(limits))
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("redisstore: %s %s: %w", what, limits[0].Algorithm(), err)
		}
		return nil
	}
	for _, cost := range []int64{0, 1} {
		for i, l := range limits {
			charges[i] = store.Charge{Key: p.identity, Limit: l, Cost: cost}
		}
		if err := step("a charge of", p.Take(ctx, charges, results)); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(results, func(r store.Result) bool { return !r.OK }) {
		if err := step("renewing", p.renewOnce(ctx)); err != nil {
			return err
		}
		for i := range charges {
			charges[i].Receipt = results[i].Receipt
		}
		for _, cost := range []int64{2, 0} {
			for i := range charges {
				charges[i].Cost = cost
			}
			if err := step("settling", p.Settle(ctx, charges, results)); err != nil {
				return err
			}
		}
	}
	_, err := p.Reset(ctx, p.identity, limits...)
	return step("resetting", err)
}

// renewOnce renews what the probe holds.
func (p probe) renewOnce(ctx context.Context) error {
	calls := p.renewals.due(time.Now(), 0)
	if len(calls) == 0 {
		return nil
	}
	defer p.leases.underWay.Done()
	due, end := context.WithTimeout(ctx, p.timeout)
	defer end()
	times := p.times(nil)
	for _, c := range calls {
		commands := []command{p.renewals.command(times, c)}
		p.exec(due, commands)
		if _, _, err := c.answer(&commands[0]); err != nil {
			return classify(err)
		}
	}
	return nil
}

// remove removes the probe's keys. Whether that works doesn't matter: they expire.
func (p probe) remove(limits []*store.Limit) {
	keys := []any{"unlink"}
	for _, l := range limits {
		key := wire.StorageKey(p.prefix, p.identity, l)
		keys = append(keys, key, wire.ResetKey(key))
	}
	due, end := context.WithTimeout(context.Background(), p.timeout)
	defer end()
	commands := []command{{args: keys}}
	if p.clock != nil {
		commands = append(commands, command{args: []any{"unlink", p.layout.guardKey(p.prefix, p.layout.siteOf(keys[1].(string)))}})
	}
	p.exec(due, commands)
}
