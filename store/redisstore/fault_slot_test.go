package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A slot moves to another node while it is used, and stops half-way: the keys
// of one Take are on either side, and no node can decide it. As soon as they are
// together again, wherever that is, clients find them. A Take that has charges
// in another slot as well gets those back.
func TestFaultsSlotMoves(t *testing.T) {
	redistest.Suite(t, "faults")
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(func(o *redis.ClusterOptions) {
		o.ContextTimeoutEnabled = true
		o.ClusterStateReloadInterval = time.Hour // it learns from errors alone
	})
	s := redisstore.New(rdb, patient)
	stays := "s"
	for cluster.NodeOf("{"+stays+"}") == cluster.NodeOf("{two}") {
		stays += "s"
	}
	loads := map[string]*traffic{"one": drive(t, s, "one"), "two": drive(t, s, "two", stays)}
	for key, f := range loads {
		f.passes(t)
		move := cluster.BeginMigration("{" + key + "}")
		f.passes(t)
		// Keys that no call has seen yet are the new node's, also those of calls
		// that travel with others; of two it thinks that the old node has some.
		var new sync.WaitGroup
		for i := range 8 {
			new.Go(func() {
				l := limit(t, store.Spec{Name: fmt.Sprint("new", i), Units: 1, Period: time.Hour})
				for range 10 {
					r, err := take(s, key, l, 1)
					if err != nil || !r.OK {
						t.Errorf("a new key: %+v, %v", r, err)
						return
					}
					if r, err = settle(s, key, l, r.Receipt, 0); err != nil || r.Remaining != 1 {
						t.Errorf("a new key, settled: %+v, %v", r, err)
					}
				}
			})
		}
		new.Wait()
		if n := f.failed.Load(); n > 0 {
			t.Errorf("%d calls failed for others with new keys", n)
		}
		d := limit(t, store.Spec{Name: "d", Units: 1, Period: time.Hour})
		e, results := limit(t, store.Spec{Name: "e", Units: 1, Period: time.Hour}), make([]store.Result, 2)
		pair := []store.Charge{{Key: key, Limit: d, Cost: 1}, {Key: key, Limit: e, Cost: 1}}
		if err := s.Take(t.Context(), pair, results); !errors.Is(err, redisstore.ErrUnavailable) || !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("two new keys: %v", err)
		}
		move.MoveKeys("stint:{" + key + "}:a/t")
		f.fails(t, "TRYAGAIN", redisstore.ErrUnavailable)
		move.MoveKeys()
		f.passes(t)
		if move.From.Info("errorstats", "errorstat_ASK") == "" {
			t.Error("no client was told to ASK")
		}
		move.Finish()
		f.passes(t)
		if err := s.Take(t.Context(), pair, results); err != nil || !results[0].OK || !results[1].OK {
			t.Errorf("two new keys, once the slot has moved: %+v, %v", results, err)
		}
		if move.From.Info("errorstats", "errorstat_MOVED") == "" {
			t.Error("no client was told that the slot has MOVED")
		}
	}
	for _, f := range loads {
		f.end(t, allKept, redisstore.ErrUnavailable)
	}
}

// Leases whose keys are on either side of a slot half-way are renewed, and both
// can be released.
func TestFaultsLeasesInSlotHalfWay(t *testing.T) {
	redistest.Suite(t, "faults")
	cluster := redistest.StartCluster(t, 2, 0)
	rdb := cluster.Client()
	s := redisstore.New(rdb, patient, redisstore.WithLeaseTTL(fleetLease)).
		WithLost(func(_ string, l *store.Limit) { t.Errorf("lost %s", l.Name()) })
	defer s.Close()
	charges, results := make([]store.Charge, 2), make([]store.Result, 2)
	for i := range charges {
		charges[i] = store.Charge{Key: "k", Cost: 1, Limit: limit(t, store.Spec{Name: fmt.Sprint("l", i), Units: 1, Algorithm: store.Concurrency})}
	}
	if err := s.Take(t.Context(), charges, results); err != nil || !results[0].OK || !results[1].OK {
		t.Fatal(results, err)
	}
	move := cluster.BeginMigration("{k}")
	move.MoveKeys("stint:{k}:l0/c")
	for i, c := range charges {
		key := fmt.Sprintf("stint:{k}:l%d/c", i)
		first := runsOut(t, rdb, key)
		for range 2 {
			eventually(t, c.Limit.Name()+" renewed", func() bool {
				if r, err := take(s, c.Key, c.Limit, 0); err != nil || r.Remaining != 0 {
					t.Fatalf("%s is free: %+v, %v", c.Limit.Name(), r, err)
				}
				return runsOut(t, rdb, key)[0].After(first[0])
			})
			first = runsOut(t, rdb, key)
		}
	}
	for i, c := range charges {
		if r, err := settle(s, c.Key, c.Limit, results[i].Receipt, 0); err != nil {
			t.Errorf("%s released: %+v, %v", c.Limit.Name(), r, err)
		}
		if r, err := take(s, c.Key, c.Limit, 0); err != nil || r.Remaining != 1 {
			t.Errorf("%s after its release: %+v, %v", c.Limit.Name(), r, err)
		}
	}
}
