package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// Two stores stand for two processes: together they run no more than two jobs
// of a customer at a time, and all of them, also when one panics.
func TestTwoAtATime(t *testing.T) {
	server := redistest.Start(t)
	var now, most, ran atomic.Int64
	second := make(chan struct{})
	both := sync.OnceFunc(func() { close(second) })
	var all sync.WaitGroup
	for range 2 {
		shared := redisstore.New(server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }),
			redisstore.WithTimeout(time.Minute))
		defer shared.Close()
		slots := stint.Must(limits(shared))
		for i := range 6 {
			all.Go(func() {
				defer func() { _ = recover() }()
				err := run(context.Background(), slots, "acme", func() {
					n := now.Add(1)
					defer now.Add(-1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					if n == 1 { // a first job lasts until there is a second
						<-second
					} else {
						both()
					}
					ran.Add(1)
					if i == 0 {
						panic("a job that fails")
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if most.Load() != 2 || ran.Load() != 12 {
		t.Errorf("%d at a time, %d ran, want 2 and 12", most.Load(), ran.Load())
	}
}
