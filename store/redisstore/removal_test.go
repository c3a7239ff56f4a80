package redisstore_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// commandNames are the names of the commands that a client sends.
type commandNames struct {
	mu    sync.Mutex
	names []string
}

func (n *commandNames) add(cmds ...redis.Cmder) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cmd := range cmds {
		n.names = append(n.names, strings.ToLower(cmd.Name()))
	}
}

// since returns the commands since the last call.
func (n *commandNames) since() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := n.names
	n.names = nil
	return names
}

func (n *commandNames) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (n *commandNames) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.add(cmd)
		return next(ctx, cmd)
	}
}

func (n *commandNames) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.add(cmds...)
		return next(ctx, cmds)
	}
}

// A lease of one slot is released by a command, others by a script: whatever a lease has come to
// hold comes free, also if it is released with the receipt of its Take.
func TestReleaseByCommand(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	sent := &commandNames{}
	rdb.AddHook(sent)
	prefix := redistest.Prefix(t)
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient)
	defer s.Close()
	other := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient)
	defer other.Close()
	l, rate := limit(t, store.Spec{Units: 4, Algorithm: store.Concurrency}), limit(t, store.Spec{Name: "r", Units: 9, Period: time.Hour})
	ctx := context.Background()
	settle := func(s store.Store, charges ...store.Charge) {
		t.Helper()
		if err := s.Settle(ctx, charges, make([]store.Result, len(charges))); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name      string
		cost      int64
		do        func(c store.Charge)
		byCommand bool
	}{
		{"one slot", 1, func(c store.Charge) { settle(s, c) }, true},
		{"several slots", 3, func(c store.Charge) { settle(s, c) }, false},
		{"a slot that has become three", 1, func(c store.Charge) {
			more := c
			more.Cost = 3
			settle(s, more)
			sent.since()
			settle(s, c)
		}, false},
		{"three and none in one call", 1, func(c store.Charge) {
			more := c
			more.Cost = 3
			settle(s, more, c)
		}, false},
		{"one slot, by a store that hasn't taken it", 1, func(c store.Charge) { settle(other, c) }, false},
		{"one slot, twice in a call", 1, func(c store.Charge) { settle(s, c, c) }, false},
		{"one slot and a rate", 1, func(c store.Charge) {
			r, err := take(s, "k", rate, 1)
			if err != nil {
				t.Fatal(err)
			}
			sent.since()
			settle(s, c, store.Charge{Key: "k", Limit: rate, Receipt: r.Receipt})
			if left, err := take(s, "k", rate, 0); err != nil || left.Remaining != 9 {
				t.Error(left, err)
			}
		}, false},
		{"one slot of a key that is a string now", 1, func(c store.Charge) {
			if err := rdb.Set(ctx, prefix+"{k}:n/c", "a string", 0).Err(); err != nil {
				t.Fatal(err)
			}
			settle(s, c)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := take(s, "k", l, test.cost)
			if err != nil || !r.OK {
				t.Fatal(r, err)
			}
			sent.since()
			test.do(store.Charge{Key: "k", Limit: l, Receipt: r.Receipt})
			if got := slices.Contains(sent.since(), "zrem"); got != test.byCommand {
				t.Errorf("released by a command: %t, want %t", got, test.byCommand)
			}
			if free, err := take(s, "k", l, 0); err != nil || free.Held != 0 || free.Remaining != 4 {
				t.Error(free, err)
			}
		})
	}
}
