package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// Close releases all slots that are held, also many of one key, those of leases of several
// slots, and those of several keys. What permits release later frees no slot of others.
func TestCloseReleasesSlots(t *testing.T) {
	servers := map[string]redis.UniversalClient{
		"one server": redistest.Shared(t).Client(),
		"a cluster":  redistest.StartCluster(t, 3, 0).Client(),
	}
	for name, rdb := range servers {
		t.Run(name, func(t *testing.T) {
			const many, keys = 1203, 30
			prefix := redisstore.WithPrefix(redistest.Prefix(t))
			l := limit(t, store.Spec{Units: many, Algorithm: store.Concurrency})
			leaving, staying := redisstore.New(rdb, prefix, patient), redisstore.New(rdb, prefix, patient)
			defer staying.Close()
			held := make(chan store.Charge, many+keys)
			hold := func(key string, cost int64) {
				r, err := take(leaving, key, l, cost)
				if err != nil || !r.OK {
					t.Error(r, err)
				}
				held <- store.Charge{Key: key, Limit: l, Receipt: r.Receipt}
			}
			var wg sync.WaitGroup
			for g := range 16 {
				wg.Go(func() {
					for i := g; i < many; i += 16 {
						hold("one", 1)
					}
				})
			}
			for i := range keys {
				wg.Go(func() { hold(fmt.Sprint(i), many/int64(1+i%2)) })
			}
			wg.Wait()
			if err := leaving.Close(); err != nil {
				t.Fatal(err)
			}
			for i := -1; i < keys; i++ {
				key := "one"
				if i >= 0 {
					key = fmt.Sprint(i)
				}
				if r, err := take(staying, key, l, many); err != nil || !r.OK {
					t.Errorf("after Close, the slots of %s: %+v, %v", key, r, err)
				}
			}
			close(held)
			for c := range held {
				if err := leaving.Settle(context.Background(), []store.Charge{c}, make([]store.Result, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := take(staying, "one", l, 0); err != nil || r.Held != many {
				t.Errorf("%d of %d slots are held after late releases: %v", r.Held, many, err)
			}
			if err := leaving.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A slot whose release has failed is released by Close.
func TestCloseReleasesWhatIsRetried(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), patient, redisstore.WithLeaseTTL(time.Hour))
	other := redisstore.New(server.Client(), patient)
	defer other.Close()
	l := limit(t, store.Spec{Units: 1, Algorithm: store.Concurrency})
	held, err := take(s, "k", l, 1)
	if err != nil || !held.OK {
		t.Fatal(held, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Settle(ctx, []store.Charge{{Key: "k", Limit: l, Receipt: held.Receipt}}, make([]store.Result, 1)) // next tried in a second
	s.Close()
	if r, err := take(other, "k", l, 1); err != nil || !r.OK {
		t.Error(r, err)
	}
}

// Close returns while the server is paused.
func TestCloseOfPausedServer(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), redisstore.WithTimeout(200*time.Millisecond))
	l := limit(t, store.Spec{Units: 9, Algorithm: store.Concurrency})
	for _, cost := range []int64{1, 2} {
		eventually(t, "a slot", func() bool { r, err := take(s, "k", l, cost); return err == nil && r.OK })
	}
	server.Pause()
	defer server.Resume()
	pulse := redistest.StartPulse(t)
	begin := pulse.Elapsed()
	s.Close()
	if took := pulse.Elapsed() - begin; took > 600*time.Millisecond {
		t.Errorf("Close took %v of a server that doesn't answer, with a timeout of 200ms", took)
	}
}
