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
	// watchEvery is the interval at which the servers are asked about evictions.
	watchEvery = 5 * time.Minute
	// watchWithin is how long all of them may take to answer.
	watchWithin = 2 * time.Second
)

// evictions asks servers in the background, for as long as there are observers, whether they evict
// keys, and tells the observers.
type evictions struct {
	client    redis.UniversalClient
	closed    <-chan struct{} // no more is asked then
	observers store.Observers

	mu       sync.Mutex
	watching bool             // a look is under way or due, or the servers refuse it
	found    error            // what the last look has found, or nil
	before   map[string]int64 // how many keys each server had evicted at its first look, by run_id
}

// observe adds o to the observers of store.MayForget. It returns at once.
func (e *evictions) observe(o *store.Observer) {
	e.observers.Observe(o)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.watching {
		e.watching = true
		go e.watch()
		return
	}
	if e.found != nil {
		n := store.Notice{Kind: store.MayForget, Err: e.found}
		go background.Do("telling of evictions", func() { o.Tell(n) })
	}
}

// watch asks the servers now, and at intervals while there are observers.
func (e *evictions) watch() {
	if !e.observed() {
		return
	}
	again := true
	background.Do("asking a Redis for observers", func() { again = e.look() }) // hooks may panic
	if again {
		time.AfterFunc(watchEvery, e.watch)
	}
}

// observed reports whether to look. Without observers, the next one starts the watch again.
func (e *evictions) observed() bool {
	select {
	case <-e.closed:
		return false
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watching = e.observers.Any() // observe adds an observer before it looks at this
	return e.watching
}

// look asks the servers, and notifies observers of evictions. It reports whether to ask again.
func (e *evictions) look() (again bool) {
	ctx, cancel := context.WithTimeout(context.Background(), watchWithin)
	defer cancel()
	all, err := serverInfos(ctx, e.client)
	if errors.Is(err, redis.ErrClosed) {
		return false
	}
	e.mu.Lock()
	before := e.found
	if found := e.evicting(all); err == nil || found != nil { // a server that doesn't answer takes nothing back
		e.found = found
	}
	now := e.found
	e.mu.Unlock()
	if before != nil || now != nil {
		e.observers.Tell(store.Notice{Kind: store.MayForget, Err: now})
	}
	reply := redis.Error(nil)
	return !errors.As(err, &reply) || classOfReply(reply.Error()) != ErrConfiguration
}

// evicting returns an error that describes the servers' evictions, or nil if there are none. The caller
// holds the lock.
func (e *evictions) evicting(all []serverInfo) error {
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
				since = fmt.Sprintf(", and has evicted %d since this process first asked", s.evicted)
			}
			return fmt.Errorf("the Redis at %s evicts keys when it is full (maxmemory-policy %s)%s, "+
				"so counts of callers can start again at 0: "+
				"set its maxmemory-policy to volatile-ttl, or use a separate Redis for limits", s.addr, s.policy, since)
		case s.evicted > 0:
			return fmt.Errorf("the Redis at %s has evicted %d keys since this process first asked, "+
				"so counts of callers can start again at 0: "+
				"raise its maxmemory, or use a separate Redis for limits", s.addr, s.evicted)
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
func serverInfos(ctx context.Context, client redis.UniversalClient) (all []serverInfo, err error) {
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
	switch c := client.(type) {
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
