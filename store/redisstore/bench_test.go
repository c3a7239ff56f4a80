package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
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

// BenchmarkUpdate reports what 50,000 keys take by MEMORY USAGE, and how long the server
// takes for a decision by commandstats, as two versions of a limit charge them: the first alone,
// then the second for the first time and for the second time.
func BenchmarkUpdate(b *testing.B) {
	const keys = 50_000
	server := redistest.Start(b)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	for _, a := range []store.Algorithm{
		store.TokenBucket, store.IntervalBucket, store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog,
	} {
		b.Run(a.String(), func(b *testing.B) {
			old := limit(b, store.Spec{Algorithm: a, Units: 1000, Period: time.Hour})
			updated := limit(b, store.Spec{Algorithm: a, Units: 2000, Period: time.Minute})
			for b.Loop() {
				server.Do("FLUSHALL")
				s := redisstore.New(rdb, patient, redisstore.WithoutBatching())
				for _, step := range []struct {
					name string
					l    *store.Limit
					cost int64
				}{{"old", old, 100}, {"updated", updated, 1}, {"after", updated, 1}} {
					server.Do("CONFIG", "RESETSTAT")
					var wg sync.WaitGroup
					for from := range 16 {
						wg.Go(func() {
							for i := from; i < keys; i += 16 {
								if _, err := take(s, fmt.Sprintf("10.0.%d.%d", i>>8, i&255), step.l, step.cost); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					wg.Wait()
					calls, usec := server.CommandStats("evalsha")
					b.ReportMetric(usec/float64(max(calls, 1)), "us-"+step.name)
					var sum int64
					names := rdb.Keys(context.Background(), "stint:*").Val()
					for i := 0; i < len(names); i += 50 {
						sum += rdb.MemoryUsage(context.Background(), names[i]).Val()
					}
					b.ReportMetric(float64(sum)/float64((len(names)+49)/50), "B/key-"+step.name)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
