package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// evictions holds what is known of the servers' evictions.
type evictions struct {
	mu     sync.Mutex
	found  error            // what the last look has found, or nil
	before map[string]int64 // how many keys each server had evicted at its first look, by run_id
}

// repeat tells o, on another goroutine, what the last look has found.
func (e *evictions) repeat(o *store.Observer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.found != nil {
		n := store.Notice{Kind: store.MayForget, Err: e.found}
		go background.Do("telling of evictions", func() { o.Tell(n) })
	}
}

// lookForEvictions asks the servers, and tells what is new. It reports whether to ask again.
func (s *Store) lookForEvictions() (again bool) {
	e := &s.evictions
	ctx, cancel := context.WithTimeout(context.Background(), watchWithin)
	defer cancel()
	all, err := s.serverInfos(ctx)
	if errors.Is(err, redis.ErrClosed) {
		return false
	}
	found := e.look(all)
	e.mu.Lock()
	was := e.found
	if err == nil || found != nil { // a server that doesn't answer takes nothing back
		e.found = found
	}
	now := e.found
	e.mu.Unlock()
	if was != nil || now != nil {
		s.watch.observers.Tell(store.Notice{Kind: store.MayForget, Err: now})
	}
	reply := redis.Error(nil)
	return !errors.As(err, &reply) || classOfReply(reply.Error()) != ErrConfiguration
}

// look returns what servers tell of their evictions, or nil if they make none.
func (e *evictions) look(all []serverInfo) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range all {
		if _, known := e.before[s.run]; !known {
			if e.before == nil {
				e.before = map[string]int64{}
			}
			e.before[s.run] = s.evicted
		}
		s.evicted -= e.before[s.run]
		kept := s.policy == "noeviction" || s.policy == "volatile-ttl"
		switch {
		case s.limited && !kept:
			since := ""
			if s.evicted > 0 {
				since = fmt.Sprintf(", and has evicted %d since this process asked first", s.evicted)
			}
			return fmt.Errorf("the Redis at %s evicts keys by %s when it is full%s, so callers get limits anew that they have used up: "+
				"write maxmemory-policy volatile-ttl in its configuration, or give limits a Redis of their own", s.addr, s.policy, since)
		case s.evicted > 0:
			return fmt.Errorf("the Redis at %s has evicted %d keys since this process asked first, so callers get limits anew that they have used up: "+
				"raise its maxmemory, or give limits a Redis of their own", s.addr, s.evicted)
		}
	}
	return nil
}

// serverInfo is the part of a server's INFO about its memory.
type serverInfo struct {
	addr, run, policy string
	limited           bool // by maxmemory
	evicted           int64
}

// serverInfos asks each master, in the order of their addresses.
func (s *Store) serverInfos(ctx context.Context) (all []serverInfo, err error) {
	var mu sync.Mutex
	ask := func(ctx context.Context, c *redis.Client) error {
		text, err := c.Info(ctx).Result()
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, readInfo(c.Options().Addr, text))
		}
		return err
	}
	switch c := s.client.(type) {
	case *redis.Client:
		err = ask(ctx, c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ask)
	case *redis.Ring:
		err = c.ForEachShard(ctx, ask)
	}
	slices.SortFunc(all, func(a, b serverInfo) int { return cmp.Compare(a.addr, b.addr) })
	return all, err
}

func readInfo(addr, text string) serverInfo {
	i := serverInfo{addr: addr}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "run_id":
			i.run = value
		case "maxmemory":
			i.limited = value != "0"
		case "maxmemory_policy":
			i.policy = value
		case "evicted_keys":
			i.evicted, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return i
}
