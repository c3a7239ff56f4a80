package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// everyLimit has limits of each algorithm.
func everyLimit(t *testing.T) (all []*store.Limit) {
	t.Helper()
	for i, specs := range everyKind {
		spec := specs[0]
		spec.Name = fmt.Sprint("x", i)
		all = append(all, limit(t, spec))
	}
	return all
}

// Verify passes with the rights that the store needs, charges nothing and leaves nothing, by the
// server's clock and by another. Without one of them, the error names it, and no key is left.
func TestVerifyNamesTheMissingRight(t *testing.T) {
	server := redistest.Start(t)
	set := func(rules ...any) { server.Do(append([]any{"ACL", "SETUSER", "limits"}, rules...)...) }
	set("on", ">pw", "~stint:*", "+@all")
	client := func(o *redis.Options) { o.Username, o.Password, o.ContextTimeoutEnabled = "limits", "pw", true }
	rdb, ctx := server.Client(client), context.Background()
	limits := everyLimit(t)
	verify := func(opts ...redisstore.Option) error {
		s := redisstore.New(rdb, append(opts, patient)...)
		defer s.Close()
		err := s.Verify(ctx, limits...)
		if keys, left := server.Client().Keys(ctx, "*").Result(); len(keys) > 0 || left != nil {
			t.Errorf("%v: keys are left: %q, %v", err, keys, left)
		}
		return err
	}
	for _, opts := range [][]redisstore.Option{nil, {redisstore.WithClock(time.Now)}} {
		if err := verify(opts...); err != nil {
			t.Error(err)
		}
	}
	rights := append(used(t), "+eval", "+evalsha")
	for _, right := range rights {
		set("-" + right[1:])
		err := verify()
		if !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), right) && !strings.Contains(err.Error(), "'"+right[1:]+"'") {
			t.Errorf("without %s: %v", right, err)
		}
		set(right)
	}
	set("-zcount", "-lset")
	if err := verify(); err == nil || !strings.Contains(err.Error(), "+zcount") || !strings.Contains(err.Error(), "+lset") {
		t.Errorf("without two rights: %v", err)
	}
	// Only what the limits need.
	limits = limits[:1]
	if err := verify(); err != nil {
		t.Errorf("without rights that a token bucket doesn't need: %v", err)
	}
	set("+@all", "resetkeys", "~other:*")
	if err := verify(); !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the keys: %v", err)
	}
}

// The line that docs/redis.md has makes a user with the rights that are needed, and no others.
func TestVerifyDocumentedRights(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Fields(regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindString(string(text)))
	if len(line) < 6 || !slices.Equal(sorted(slices.Clone(line[6:])), sorted(append(used(t), "+eval", "+evalsha"))) {
		t.Errorf("docs/redis.md has the line %q, and scripts use %q", line, used(t))
	}
	server := redistest.Start(t)
	server.Do(anys(line)...)
	rdb := server.Client(func(o *redis.Options) { o.Username, o.Password = "limits", "password" })
	if err := redisstore.New(rdb, patient).Verify(context.Background(), everyLimit(t)...); err != nil {
		t.Error(err)
	}
}

func TestVerifyErrors(t *testing.T) {
	ctx, l := context.Background(), limit(t, store.Spec{Units: 1, Period: time.Second})
	server := redistest.Start(t, "--requirepass", "pw")
	wrong := redis.NewClient(&redis.Options{Addr: server.Client().Options().Addr, Dialer: server.Client().Options().Dialer, Password: "wrong"})
	defer wrong.Close()
	without := redis.NewClient(&redis.Options{Addr: server.Client().Options().Addr, Dialer: server.Client().Options().Dialer})
	defer without.Close()
	gone := redistest.Start(t)
	dead := gone.Client()
	gone.Kill()
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", redistest.Shared(t).Port())
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		s    store.Verifier
		want error
		says string
	}{
		{"wrong password", ctx, redisstore.New(wrong), redisstore.ErrConfiguration, "WRONGPASS"},
		{"no password", ctx, redisstore.New(without), redisstore.ErrConfiguration, "NOAUTH"},
		{"not there", ctx, redisstore.New(dead), redisstore.ErrUnavailable, "connect"},
		{"a replica", ctx, redisstore.New(replica.Client()), redisstore.ErrUnavailable, "READONLY"},
		{"no client", ctx, redisstore.New(nil), redisstore.ErrConfiguration, "client is nil"},
		{"canceled", canceled, redisstore.New(redistest.Shared(t).Client()), context.Canceled, ""},
		{"behind failover", ctx, failover.New(redisstore.New(wrong), memstore.New()), redisstore.ErrConfiguration, "WRONGPASS"},
	} {
		if err := c.s.Verify(c.ctx, l); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v and %q", c.name, err, c.want, c.says)
		}
	}
	if err := redisstore.New(redistest.Shared(t).Client()).Verify(ctx, new(store.Limit)); !errors.Is(err, store.ErrLimit) {
		t.Error(err)
	}
	if err := failover.New(memstore.New(), redisstore.New(wrong)).Verify(ctx, l); err != nil {
		t.Errorf("with memory as the primary: %v", err)
	}
}

// On each master of a cluster, and each shard of a ring, rights are tried.
func TestVerifyEveryMaster(t *testing.T) {
	ctx, limits := context.Background(), everyLimit(t)
	cluster := redistest.StartCluster(t, 3, 0)
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	shards := map[string]string{}
	for i, s := range servers {
		shards[fmt.Sprint(i)] = s.Client().Options().Addr
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: shards, ContextTimeoutEnabled: true})
	defer ring.Close()
	each := func(client redis.UniversalClient, f func(ctx context.Context, c *redis.Client) error) error {
		if c, ok := client.(*redis.ClusterClient); ok {
			return c.ForEachMaster(ctx, f)
		}
		return client.(*redis.Ring).ForEachShard(ctx, f)
	}
	for name, client := range map[string]redis.UniversalClient{"cluster": cluster.Client(), "ring": ring} {
		t.Run(name, func(t *testing.T) {
			s := redisstore.New(client, patient)
			if err := s.Verify(ctx, limits...); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex // each asks all at once
			var addrs []string
			if err := each(client, func(ctx context.Context, c *redis.Client) error {
				if n, err := c.DBSize(ctx).Result(); err != nil || n != 0 {
					t.Errorf("%d keys are left, %v", n, err)
				}
				mu.Lock()
				defer mu.Unlock()
				addrs = append(addrs, c.Options().Addr)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if len(addrs) < 2 {
				t.Fatal(addrs)
			}
			for _, addr := range addrs {
				on := func(rule string) {
					if err := each(client, func(ctx context.Context, c *redis.Client) error {
						if c.Options().Addr != addr {
							return nil
						}
						return c.Do(ctx, "ACL", "SETUSER", "default", rule).Err()
					}); err != nil {
						t.Fatal(err)
					}
				}
				on("-zcount")
				if err := s.Verify(ctx, limits...); !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), "+zcount") {
					t.Errorf("without a right on %s: %v", addr, err)
				}
				on("+zcount")
			}
		})
	}
}
