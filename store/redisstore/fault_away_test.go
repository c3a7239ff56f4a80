package redisstore_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// away are the classes of a server that is gone: it could not be asked, or it
// left with the question.
var away = []error{redisstore.ErrUnavailable, redisstore.ErrIndeterminate}

// A server that is killed and started again has lost its counts, and serves.
func TestKilledServer(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	server.Kill()
	f.fails(t, "connection refused", redisstore.ErrUnavailable)
	server.Restart()
	f.passes(t)
	f.end(t, someLost, away...)
}

// A server that starts again with what it had, and takes its time to read it.
func TestFaultsLoadingServer(t *testing.T) {
	redistest.Suite(t, "faults")
	server := redistest.Start(t, "--appendonly", "yes")
	server.Needs("loading-process-events-interval-bytes")
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	pipe := rdb.Pipeline()
	for i := range 5000 {
		pipe.Set(context.Background(), "ballast"+strconv.Itoa(i), "v", 0)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		t.Fatal(err)
	}
	// While a dump is read, callers are told so; while commands are, they wait.
	server.Do("BGREWRITEAOF")
	eventually(t, "the file is a dump", func() bool {
		return server.Info("persistence", "aof_rewrite_in_progress") == "0" && server.Info("persistence", "aof_rewrite_scheduled") == "0"
	})
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	// A millisecond for each entry, and a look at the callers every few, until they
	// have seen it.
	server.Launch("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	f.fails(t, "LOADING", redisstore.ErrUnavailable)
	server.Do("CONFIG", "SET", "key-load-delay", 0)
	server.Await()
	f.passes(t)
	f.end(t, allKept, away...)
}

// A server that can't save its dumps refuses to write.
func TestServerThatCannotSave(t *testing.T) {
	server := redistest.Start(t, "--stop-writes-on-bgsave-error", "yes")
	server.Do("CONFIG", "SET", "save", "3600 1000000") // no release before 7 takes this as one argument
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, patient))
	f.passes(t)
	// A directory in the dump's place can't be replaced by it.
	dump, _ := server.Do("CONFIG", "GET", "dbfilename").([]any)
	if err := os.MkdirAll(filepath.Join(server.Dir(), dump[1].(string), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	server.Do("BGSAVE")
	f.fails(t, "MISCONF", redisstore.ErrServer)
	server.Do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	f.passes(t)
	f.end(t, allKept, redisstore.ErrServer)
}

// A master of a cluster dies, and its replica takes over.
func TestFaultsClusterMasterDies(t *testing.T) {
	redistest.Suite(t, "faults")
	cluster := redistest.StartCluster(t, 3, 1)
	rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	cluster.NodeOf("{k}").Kill()
	f.fails(t, "", redisstore.ErrUnavailable)
	start := time.Now()
	cluster.AwaitOK()
	t.Logf("sound after %v", time.Since(start))
	f.passes(t)
	t.Logf("passes after %v", time.Since(start))
	f.end(t, someLost, away...)
}

// Without a replica, the cluster is down until the master is back.
func TestFaultsClusterDown(t *testing.T) {
	redistest.Suite(t, "faults")
	cluster := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "2000")
	rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	node := cluster.NodeOf("{k}")
	for _, other := range cluster.Nodes {
		if other != node {
			other.Kill()
		}
	}
	f.fails(t, "CLUSTERDOWN", redisstore.ErrUnavailable)
	for _, other := range cluster.Nodes {
		if other != node {
			other.Restart()
		}
	}
	cluster.AwaitOK()
	f.passes(t)
	f.end(t, allKept, away...) // the node of the key has kept its counts
}

// Sentinels promote a replica, in order. Clients are told before the old master
// becomes a replica, so that at the most the calls under way fail.
func TestFaultsSentinelFailover(t *testing.T) {
	redistest.Suite(t, "faults")
	group := redistest.StartSentinel(t, 1)
	rdb := group.Client(func(o *redis.FailoverOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	master := group.Switch()
	from, _ := master.CommandStats("evalsha")
	f.passes(t)
	if calls, _ := master.CommandStats("evalsha"); calls == from {
		t.Error("somebody else than the new master decides")
	}
	f.end(t, someLost, away...) // what was not replicated may pass again
}

// The master dies, and sentinels promote its replica.
func TestFaultsSentinelMasterDies(t *testing.T) {
	redistest.Suite(t, "faults")
	group := redistest.StartSentinel(t, 1)
	rdb := group.Client(func(o *redis.FailoverOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	from := f.failed.Load()
	group.Failover() // when it returns, callers may have followed already
	f.passes(t)
	if f.failed.Load() == from {
		t.Error("no call has failed")
	}
	f.end(t, someLost, away...)
}

// A server of a ring dies: after a while the client asks another for its keys,
// which has not counted them.
func TestFaultsRingServerDies(t *testing.T) {
	redistest.Suite(t, "faults")
	servers := map[string]*redistest.Server{"a": redistest.Start(t), "b": redistest.Start(t)}
	ring := redis.NewRing(&redis.RingOptions{
		Addrs:                 map[string]string{"a": servers["a"].Addr(), "b": servers["b"].Addr()},
		HeartbeatFrequency:    50 * time.Millisecond,
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { ring.Close() })
	f := drive(t, redisstore.New(ring, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	for _, s := range servers {
		if s.Do("DBSIZE") != int64(0) {
			s.Kill()
			break
		}
	}
	eventually(t, "calls fail", func() bool { return f.failed.Load() > 0 })
	f.passes(t)
	f.end(t, someLost, away...)
}

// With memory beside it, no caller sees that the server is gone, nor waits for it
// while the breaker is open, and the breaker closes by itself.
func TestMemoryWhileTheServerIsGone(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s := failover.New(redisstore.New(rdb, redisstore.WithTimeout(callTimeout)), memstore.New())
	defer s.Close()
	l := limit(t, store.Spec{Name: "a", Units: 1, Period: time.Minute, Burst: burst})
	pulse := redistest.StartPulse(t)
	pass := func() time.Duration {
		start := pulse.Elapsed()
		results := make([]store.Result, 1)
		if err := s.Take(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: 1}}, results); err != nil || !results[0].OK {
			t.Fatalf("%+v %v", results[0], err)
		}
		return pulse.Elapsed() - start
	}
	pass()
	server.Pause()
	eventually(t, "the breaker opens", func() bool { pass(); return s.Stats().State == failover.Open })
	var longest time.Duration
	for range 1000 {
		longest = max(longest, pass())
	}
	if longest > callTimeout {
		t.Errorf("held for %v while open", longest)
	}
	server.Resume()
	eventually(t, "the breaker closes", func() bool { pass(); return s.Stats().State == failover.Closed })
	t.Logf("longest while open: %v, %+v", longest, s.Stats())
}
