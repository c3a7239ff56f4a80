package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// subject is one thing that is measured.
type subject struct {
	name   string
	limits bool // it decides; the others only show what a call costs
	// pad makes the keys in the server as long as the longest of them.
	pad  string
	call func(ctx context.Context, key string) error
}

// The limit of all of them: 10 a second, and so large a burst that nothing is
// refused and every call writes.
const (
	perSecond = 10
	burst     = 1_000_000_000
)

func newSubjects(s *server) (subjects []subject, end func()) {
	plain := redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, PoolSize: 128})
	piped, err := plain.AutoPipeline()
	if err != nil {
		panic(err)
	}
	mine := redisstore.New(plain, redisstore.WithTimeout(5*time.Second))
	rate := limit(store.Spec{Name: "rate", Units: perSecond, Period: time.Second, Burst: 10_000_000})
	allow := redis_rate.Limit{Rate: perSecond, Period: time.Second, Burst: burst}

	subjects = []subject{
		{"stint", true, "", func(ctx context.Context, key string) error {
			charges := [1]store.Charge{{Key: key, Limit: rate, Cost: 1}}
			var results [1]store.Result
			return mine.Take(ctx, charges[:], results[:])
		}},
		{"PING", false, "", func(ctx context.Context, _ string) error { return plain.Ping(ctx).Err() }},
		{"INCR", false, "", func(ctx context.Context, key string) error { return plain.Incr(ctx, "incr:"+key).Err() }},
	}
	for _, client := range []struct {
		name string
		redis.UniversalClient
	}{{"", plain}, {", AutoPipeline", piped}} {
		theirs := redis_rate.NewLimiter(client)
		subjects = append(subjects, subject{"redis_rate" + client.name, true, "........", func(ctx context.Context, key string) error {
			_, err := theirs.Allow(ctx, key, allow)
			return err
		}})
		db, err := ulule.NewStore(client)
		if err != nil {
			panic(err)
		}
		window := limiter.New(db, limiter.Rate{Period: time.Hour, Limit: burst})
		subjects = append(subjects, subject{"ulule/limiter" + client.name, true, ".....", func(ctx context.Context, key string) error {
			_, err := window.Get(ctx, key)
			return err
		}})
	}
	return subjects, func() {
		mine.Close()
		piped.Close()
		plain.Close()
	}
}

func limit(s store.Spec) *store.Limit {
	l, err := store.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}

// names are keys of one length.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user-%05d", i)
	}
	return keys
}
