package redisstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// runsOut returns the instants at which the leases on a key run out, in order.
func runsOut(t *testing.T, rdb redis.UniversalClient, key string) (all []time.Time) {
	t.Helper()
	members, err := rdb.ZRangeWithScores(context.Background(), key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Score > 0 { // others say how many slots are held
			all = append(all, time.UnixMicro(int64(m.Score)))
		}
	}
	return all
}

// A lease that is held is renewed, one that is released isn't, and one whose
// holder has died comes free. The clock stands still until a renewal was seen.
func TestLeases(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(redistest.ByToldClock())
	c, prefix := newClock(), redistest.Prefix(t)
	const ttl = 100 * time.Millisecond
	var lost atomic.Int64
	opts := []redisstore.Option{redisstore.WithPrefix(prefix), redisstore.WithClock(c.now), patient, redisstore.WithLeaseTTL(ttl)}
	mine := redisstore.New(rdb, opts...).WithLost(func(key string, l *store.Limit) {
		if key != "k" || l.Name() != "n" {
			t.Errorf("lost %q of %q", l.Name(), key)
		}
		lost.Add(1)
	})
	defer mine.Close()
	dead := redisstore.New(rdb, opts...)
	l := limit(t, store.Spec{Units: 4, Algorithm: store.Concurrency})
	held, err := take(mine, "k", l, 2)
	if err != nil || !held.OK {
		t.Fatal(held, err)
	}
	if r, err := take(dead, "k", l, 2); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	dead.Die()
	for _, free := range []int64{0, 2, 2, 2, 2} { // each a little over half a lease's time later
		eventually(t, "the renewal", func() bool {
			all := runsOut(t, rdb, prefix+"{k}:n/c")
			return len(all) > 0 && !all[len(all)-1].Before(c.now().Add(ttl))
		})
		c.sleep(ttl/2 + time.Microsecond)
		if r, err := take(mine, "k", l, free+1); err != nil || r.OK {
			t.Fatalf("a slot that is held was given away: %+v, %v", r, err)
		}
		if r, err := take(mine, "k", l, 0); err != nil || r.Remaining < free {
			t.Fatalf("%d are free, want %d: %v", r.Remaining, free, err)
		}
	}
	if n := lost.Load(); n != 0 {
		t.Errorf("%d leases reported lost", n)
	}
	// Another program takes the key away.
	if _, err := dead.Reset(context.Background(), "k", l); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss reported", func() bool { return lost.Load() == 1 })
	if r, err := settle(mine, "k", l, held.Receipt, 0); err != nil || r.Remaining != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A Reset that names a limit twice, on a key whose slots have all been released, doesn't keep later
// losses from being reported.
func TestResetNamesALimitTwice(t *testing.T) {
	ctx := context.Background()
	rdb := redistest.Shared(t).Client()
	var lost atomic.Int64
	opts := []redisstore.Option{redisstore.WithPrefix(redistest.Prefix(t)), patient, redisstore.WithLeaseTTL(100 * time.Millisecond)}
	mine := redisstore.New(rdb, opts...).WithLost(func(string, *store.Limit) { lost.Add(1) })
	defer mine.Close()
	other := redisstore.New(rdb, opts...)
	defer other.Close()
	l := limit(t, store.Spec{Units: 4, Algorithm: store.Concurrency})
	released, err := take(mine, "k", l, 1)
	if err != nil || !released.OK {
		t.Fatal(released, err)
	}
	if _, err := settle(mine, "k", l, released.Receipt, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Reset(ctx, "k", l, l); err != nil {
		t.Fatal(err)
	}
	if held, err := take(mine, "k", l, 1); err != nil || !held.OK {
		t.Fatal(held, err)
	}
	if _, err := other.Reset(ctx, "k", l); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss reported", func() bool { return lost.Load() == 1 })
}

// A server that is out of memory renews nothing, and says so.
func TestRenewalOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), patient).WithLost(func(string, *store.Limit) { t.Error("lost") })
	defer s.Close()
	l := limit(t, store.Spec{Algorithm: store.Concurrency, Units: 3})
	if r, err := take(s, "k", l, 1); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if !s.Renew() {
		t.Error("not renewed")
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if s.Renew() {
		t.Error("renewed by a server that is out of memory")
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if !s.Renew() {
		t.Error("not renewed by a server that has memory again")
	}
}

// Slots that the server has lost count again once their holder has renewed them, each with its
// weight, beside those that others have taken meanwhile. What was released or reset doesn't.
func TestLostSlotsCountAgain(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	cluster := redistest.StartCluster(t, 3, 0)
	for name, c := range map[string]struct {
		client redis.UniversalClient
		flush  func() error
	}{
		"one server": {rdb, func() error { return rdb.FlushAll(context.Background()).Err() }},
		"a cluster": {cluster.Client(), func() error {
			return cluster.Client().ForEachMaster(context.Background(), func(ctx context.Context, m *redis.Client) error { return m.FlushAll(ctx).Err() })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var lost atomic.Int64
			s := redisstore.New(c.client, patient, redisstore.WithLeaseTTL(time.Hour)).WithLost(func(string, *store.Limit) { lost.Add(1) })
			other := redisstore.New(c.client, patient, redisstore.WithLeaseTTL(time.Hour))
			defer other.Close()
			defer s.Close()
			l := limit(t, store.Spec{Units: 3, Algorithm: store.Concurrency})
			held := func(want int64) {
				t.Helper()
				if r, err := take(other, "k", l, 0); err != nil || r.Held != want || r.Remaining != max(0, 3-want) {
					t.Errorf("%d held and %d left, %v; want %d held", r.Held, r.Remaining, err, want)
				}
			}
			get := func(s store.Store, cost int64) store.Receipt {
				t.Helper()
				r, err := take(s, "k", l, cost)
				if err != nil || !r.OK {
					t.Fatalf("%+v, %v", r, err)
				}
				return r.Receipt
			}
			release := func(s store.Store, r store.Receipt) {
				t.Helper()
				if _, err := settle(s, "k", l, r, 0); err != nil {
					t.Error(err)
				}
			}
			renew := func(want int64) {
				t.Helper()
				if lost.Store(0); !s.Renew() || lost.Load() != want {
					t.Errorf("%d leases are reported lost, want %d", lost.Load(), want)
				}
			}
			flush := func() {
				t.Helper()
				if err := c.flush(); err != nil {
					t.Fatal(err)
				}
			}
			one, two := get(s, 1), get(s, 2)
			flush()
			held(0)
			renew(2)
			held(3)
			if r, err := take(other, "k", l, 1); err != nil || r.OK {
				t.Errorf("a fourth slot of three: %+v, %v", r, err)
			}
			renew(0)

			// Another has taken one meanwhile.
			flush()
			third := get(other, 1)
			renew(2)
			held(4)
			if r, err := take(other, "k", l, 1); err != nil || r.OK {
				t.Errorf("a fifth slot of three: %+v, %v", r, err)
			}
			release(s, two)
			held(2)
			release(other, third)
			held(1)

			// A slot settled for two is two when it comes back.
			if _, err := settle(s, "k", l, one, 2); err != nil {
				t.Fatal(err)
			}
			flush()
			renew(1)
			held(2)

			// What is released while it is lost stays free.
			flush()
			release(s, one)
			renew(0)
			held(0)

			// What another process has reset stays free, whatever is lost since.
			get(s, 1)
			if _, err := other.Reset(context.Background(), "k", l); err != nil {
				t.Fatal(err)
			}
			held(0)
			renew(1)
			held(0)
			renew(0)
			again := get(s, 1)
			held(1)
			release(s, again)
			get(s, 1)
			if _, err := s.Reset(context.Background(), "k", l); err != nil {
				t.Fatal(err)
			}
			renew(0)
			held(0)
		})
	}
}
