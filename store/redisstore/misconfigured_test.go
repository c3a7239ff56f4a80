package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A store remembers wrong arguments: no default takes their place, and no call is sent.
func TestMisconfiguredOptions(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	ctx := context.Background()
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 1, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]*redisstore.Store{
		"the zero redisstore.Store: use redisstore.New(client)":     new(redisstore.Store),
		"the Redis client is nil: pass a client":                    redisstore.New(nil),
		`prefix "{a}": use a prefix without braces`:                 redisstore.New(rdb, redisstore.WithPrefix("{a}")),
		"redisstore.New: option 1 is nil: leave it out":             redisstore.New(rdb, nil),
		"WithTimeout(0s): use 1ms or more":                          redisstore.New(rdb, redisstore.WithTimeout(0)),
		"WithLeaseTTL(99ms): use 100ms or more":                     redisstore.New(rdb, redisstore.WithLeaseTTL(99*time.Millisecond)),
		"WithClock(nil): pass a function":                           redisstore.New(rdb, redisstore.WithClock(nil)),
		"WithDenyCache(0): use 1 or more":                           redisstore.New(rdb, redisstore.WithDenyCache(0)),
		"WithPrefetch(1, 1s): use 2 or more tokens":                 redisstore.New(rdb, redisstore.WithPrefetch(1, time.Second)),
		"WithPrefetch(9, 0s): use 2 or more tokens and 1ms or more": redisstore.New(rdb, redisstore.WithPrefetch(9, 0)),
	} {
		charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
		_, resetErr := s.Reset(ctx, "k", l)
		for i, err := range []error{s.Take(ctx, charges, results), s.Settle(ctx, charges, results), resetErr} {
			if !errors.Is(err, redisstore.ErrConfiguration) || !strings.Contains(err.Error(), want) {
				t.Errorf("call %d: %v, want %q", i, err, want)
			}
		}
		if wrong := s.Misconfigured(); len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), want) {
			t.Errorf("%v, want %q", wrong, want)
		}
	}
}
