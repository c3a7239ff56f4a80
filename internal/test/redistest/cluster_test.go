package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// seen says how often the cluster's nodes have answered with this error.
func seen(c *Cluster, prefix string) (n int) {
	for _, s := range c.Nodes {
		if !s.p.answers() {
			continue
		}
		// errorstat_ASK:count=2
		count := strings.TrimPrefix(s.Info("errorstats", "errorstat_"+prefix), "count=")
		if count != "" {
			n += int(s.number(count))
		}
	}
	return n
}

func TestClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 0)
	if len(c.Nodes) != 3 || len(c.Addrs()) != 3 {
		t.Fatalf("%d nodes", len(c.Nodes))
	}
	rdb := c.Client()
	owners := map[string]bool{}
	for i := range 50 {
		key := fmt.Sprint("k", i)
		if err := rdb.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		owner := c.NodeOf(key)
		owners[owner.Addr()] = true
		if got := owner.Do("GET", key); got != fmt.Sprint(i) {
			t.Errorf("%s at its node: %v", key, got)
		}
	}
	if len(owners) != 3 {
		t.Errorf("50 keys live on %d nodes", len(owners))
	}
	if a, b := c.SlotOf("{x}a"), c.SlotOf("{x}b"); a != b {
		t.Errorf("one tag, slots %d and %d", a, b)
	}
}

func TestClusterMigration(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 0)
	rdb := c.Client()
	ctx := t.Context()
	incr := func(key string, want int64) {
		t.Helper()
		if got, err := rdb.Incr(ctx, key).Result(); err != nil || got != want {
			t.Fatalf("INCR %s: %d, %v; want %d", key, got, err, want)
		}
	}
	incr("{u}a", 1)
	incr("{u}b", 1)

	m := c.BeginMigration("{u}a")
	if m.From == m.To || m.From != c.NodeOf("{u}a") {
		t.Fatalf("from %s to %s", m.From.Addr(), m.To.Addr())
	}
	incr("{u}a", 2) // still where it was
	if n := seen(c, "ASK"); n != 0 {
		t.Fatalf("%d ASK for keys that haven't moved", n)
	}
	incr("{u}new", 1)
	if n := seen(c, "ASK"); n != 1 {
		t.Errorf("%d ASK for a new key", n)
	}
	m.MoveKeys("{u}a")
	incr("{u}a", 3)
	if n := seen(c, "ASK"); n != 2 {
		t.Errorf("%d ASK after a key has moved", n)
	}
	// One here, one there: no node can answer. Before Redis 7 the old node sends the
	// client to the new one, to be told so there.
	if _, err := m.From.p.do("MGET", "{u}a", "{u}b"); err == nil ||
		!strings.Contains(err.Error(), "TRYAGAIN") && !strings.Contains(err.Error(), fmt.Sprintf("ASK %d %s", m.Slot, m.To.Addr())) {
		t.Errorf("a command on both sides: %v", err)
	}
	if n := seen(c, "MOVED"); n != 0 {
		t.Errorf("%d MOVED half-way", n)
	}
	m.Finish()
	if c.NodeOf("{u}b") != m.To {
		t.Error("the slot hasn't moved")
	}
	incr("{u}a", 4)
	incr("{u}b", 2)
	if _, err := m.From.p.do("GET", "{u}a"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("MOVED %d %s", m.Slot, m.To.Addr())) {
		t.Errorf("who asks the old place: %v", err)
	}

	back := c.MigrateSlot("{u}a")
	if back.From != m.To {
		t.Errorf("moved from %s, which didn't have it", back.From.Addr())
	}
	incr("{u}a", 5)
}

func TestFaultsClusterReplicaTakesOver(t *testing.T) {
	Suite(t, "faults")
	t.Parallel()
	c := StartCluster(t, 3, 1)
	rdb := c.Client(func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 100 * time.Millisecond })
	old := c.NodeOf("k")
	old.Do("SET", "k", "v")
	if n := old.Do("WAIT", 1, patience.Milliseconds()); n != int64(1) {
		t.Fatalf("%v replicas have the key", n)
	}
	if err := rdb.Get(t.Context(), "k").Err(); err != nil {
		t.Fatal(err)
	}
	old.Kill()
	await(t, "a replica to take over", func() error { return rdb.Get(t.Context(), "k").Err() })
	if now := c.NodeOf("k"); now == old {
		t.Error("the dead node still has the key")
	}
	old.Restart()
	c.AwaitOK()
	if role := old.Info("replication", "role"); role != "slave" {
		t.Errorf("who comes back is %s", role)
	}
}
