package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// BenchmarkTake: one token bucket, callers at once, on one key and on 10,000; and
// beside it what a script that does nothing takes, and PING.
func BenchmarkTake(b *testing.B) {
	server := redistest.Shared(b)
	l := limit(b, store.Spec{Units: 1000, Period: time.Second})
	for _, callers := range []int{1, 16, 128} {
		for _, keys := range []int{1, 10_000} {
			for _, heeds := range []bool{false, true} {
				b.Run(fmt.Sprintf("callers=%d/keys=%d/heeds=%v", callers, keys, heeds), func(b *testing.B) {
					rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = heeds })
					s := redisstore.New(rdb, redisstore.WithPrefix(redistest.Prefix(b)), patient)
					var n atomic.Int64
					spread(b, callers, func(ctx context.Context) error {
						var r [1]store.Result
						c := [1]store.Charge{{Key: fmt.Sprint(n.Add(1) % int64(keys)), Limit: l, Cost: 1}}
						return s.Take(ctx, c[:], r[:])
					})
				})
			}
		}
		b.Run(fmt.Sprintf("callers=%d/evalsha", callers), func(b *testing.B) {
			rdb := server.Client()
			script := redis.NewScript("return 1")
			spread(b, callers, func(ctx context.Context) error { return script.Run(ctx, rdb, []string{"k"}).Err() })
		})
	}
}

func spread(b *testing.B, callers int, do func(context.Context) error) {
	b.ReportAllocs()
	b.SetParallelism(max(1, callers/2)) // of two processors
	ctx := context.Background()
	if callers == 1 {
		for b.Loop() {
			if err := do(ctx); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := do(ctx); err != nil {
				b.Error(err)
			}
		}
	})
}
