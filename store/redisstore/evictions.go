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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

const (
	// evictionsEvery is how often servers are asked whether they evict keys.
	evictionsEvery = 5 * time.Minute
	// evictionsWithin is how long all of them may take to answer.
	evictionsWithin = 2 * time.Second
)

// evictions holds what is known of the servers' evictions.
type evictions struct {
	observers store.Observers

	mu     sync.Mutex
	looks  bool             // the servers are asked from time to time
	denied bool             // one of them refuses to answer, so none is asked again
	found  error            // what the last look has found, or nil
	before map[string]int64 // how many keys each server had evicted at its first look, by run_id
}

// Observe implements store.Observable: it tells o of store.MayForget. It returns at once, and
// asks the servers in the background.
func (s *Store) Observe(o *store.Observer) {
	if s.Misconfigured() != nil {
		return
	}
	e := &s.evictions
	e.observers.Observe(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.denied:
	case !e.looks:
		e.looks = true
		go s.watchEvictions()
	case e.found != nil:
		n := store.Notice{Kind: store.MayForget, Err: e.found}
		go background.Do("telling of evictions", func() { o.Tell(n) })
	}
}

// watchEvictions looks for evictions now, and from time to time while anybody observes them.
func (s *Store) watchEvictions() {
	again := false
	background.Do("looking for evictions", func() { again = s.lookForEvictions() }) // hooks may panic
	if again {
		time.AfterFunc(evictionsEvery, s.watchEvictions)
	}
}

// lookForEvictions asks the servers, and tells what is new. It reports whether to ask again.
func (s *Store) lookForEvictions() (again bool) {
	e := &s.evictions
	select {
	case <-s.closed:
		return false
	default:
	}
	e.mu.Lock()
	e.looks = e.observers.Any() // Observe adds an observer before it looks at this
	unobserved := !e.looks
	e.mu.Unlock()
	if unobserved {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), evictionsWithin)
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
	reply := redis.Error(nil)
	e.denied = errors.As(err, &reply) && classOfReply(reply.Error()) == ErrConfiguration
	now, denied := e.found, e.denied
	e.mu.Unlock()
	if was != nil || now != nil {
		e.observers.Tell(store.Notice{Kind: store.MayForget, Err: now})
	}
	return !denied
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
