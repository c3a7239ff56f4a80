package redisstore_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// notices returns an observer, and what it is told in the order in which that comes.
func notices() (o *store.Observer, all chan store.Notice) {
	all = make(chan store.Notice, 99)
	return &store.Observer{Tell: func(n store.Notice) { all <- n }}, all
}

// A server that may evict keys, and one that does, is told of; others aren't. When it is put
// right, that is told too.
func TestEvictionsAreTold(t *testing.T) {
	for _, tt := range []struct {
		name, maxmemory, policy string
		evicts                  bool
		told                    string
	}{
		{"any key", "1gb", "allkeys-lru", false, "evicts keys when it is full (maxmemory-policy allkeys-lru), so"},
		{"any key with a lifetime", "1gb", "volatile-lru", false, "evicts keys when it is full (maxmemory-policy volatile-lru), so"},
		{"as advised", "1gb", "volatile-ttl", false, ""},
		{"none", "1gb", "noeviction", false, ""},
		{"never full", "0", "allkeys-lru", false, ""},
		{"as advised, and too small", "1gb", "volatile-ttl", true, "has evicted 50 keys since"},
		{"any key, and it does", "1gb", "allkeys-random", true, "evicts keys when it is full (maxmemory-policy allkeys-random), and has evicted 50 since"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory", tt.maxmemory, "--maxmemory-policy", tt.policy)
			evict := func() {
				for i := range 50 {
					server.Do("SET", fmt.Sprint("other", i), "x", "EX", 1000)
				}
				server.Do("CONFIG", "SET", "maxmemory", "1")
				server.Do("CONFIG", "SET", "maxmemory", tt.maxmemory)
			}
			evict() // before the program begins
			s := redisstore.New(server.Client(), patient)
			o, all := notices()
			s.ObserveEvictions(o)
			s.LookForEvictions()
			if tt.evicts {
				evict()
			}
			for len(all) > 0 {
				<-all
			}
			if !s.LookForEvictions() {
				t.Error("the server isn't asked again")
			}
			got := ""
			if len(all) > 0 {
				got = (<-all).Err.Error()
			}
			if (got == "") != (tt.told == "") || !strings.Contains(got, tt.told) {
				t.Errorf("told %q, want %q", got, tt.told)
			}
			if tt.told != "" && !tt.evicts {
				server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
				s.LookForEvictions()
				if len(all) == 0 || (<-all).Err != nil {
					t.Error("that it is put right isn't told")
				}
			}
			runtime.KeepAlive(o)
		})
	}
}

// The master of a cluster that has another policy is named.
func TestEvictionsOfOneMaster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	c.Nodes[1].Do("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lfu")
	s := redisstore.New(c.Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true }), patient)
	o, all := notices()
	s.ObserveEvictions(o)
	s.LookForEvictions()
	if got := fmt.Sprint((<-all).Err); !strings.Contains(got, "the Redis at "+c.Nodes[1].Addr()+" evicts keys when it is full (maxmemory-policy allkeys-lfu)") {
		t.Errorf("told %q", got)
	}
	runtime.KeepAlive(o)
}

// Where INFO isn't allowed, nothing is told, and it isn't asked for again. Neither does a
// server that is gone, or a closed store, say anything.
func TestEvictionsWhereInfoIsDenied(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	server.Do("ACL", "SETUSER", "poor", "on", ">pw", "+@all", "-info", "~*")
	s := redisstore.New(server.Client(func(o *redis.Options) { o.Username, o.Password = "poor", "pw" }), patient)
	o, all := notices()
	s.ObserveEvictions(o)
	if s.LookForEvictions() {
		t.Error("a server that refuses INFO is asked again")
	}
	closed := redisstore.New(server.Client(), patient)
	closed.Close()
	o2, more := notices()
	closed.ObserveEvictions(o2)
	if closed.LookForEvictions() {
		t.Error("a closed store asks again")
	}
	if len(all)+len(more) > 0 {
		t.Errorf("%d told", len(all)+len(more))
	}
	runtime.KeepAlive(o)
	runtime.KeepAlive(o2)
}

// A limiter that comes later is told what is known, and a server is asked no more once no
// limiter is left.
func TestEvictionsAreToldToWhoComesLater(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")
	s := redisstore.New(server.Client(), patient)
	o, all := notices()
	s.Observe(o)
	<-all
	o2, more := notices()
	s.Observe(o2)
	if n := <-more; n.Kind != store.MayForget || n.Err == nil {
		t.Errorf("told %+v", n)
	}
	runtime.KeepAlive(o)
	runtime.KeepAlive(o2)
	alone := redisstore.New(server.Client(), patient)
	if alone.LookForEvictions() {
		t.Error("a server is asked for nobody")
	}
}

// On a server that evicts keys, a caller gets a limit anew that is used up, and the limiter has
// said so before.
func TestALimiterOnAServerThatEvicts(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "allkeys-lru")
	s := redisstore.New(server.Client(), patient)
	defer s.Close()
	warned := make(chan stint.Warning, 9)
	l := stint.Must(stint.New(stint.Quota(1, stint.Daily, stint.WithName("daily")), stint.WithKey(stint.GivenKey()), stint.WithStore(s),
		stint.WithLogger(slog.New(slog.DiscardHandler)), stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWarning {
				warned <- *e.Warning
			}
		})))
	passes := func() bool { return l.Allow(t.Context(), "caller", 1) == nil }
	if !passes() || passes() {
		t.Fatal("not one of two passes")
	}
	select {
	case w := <-warned:
		if w.Kind != "store-forgets" || !strings.Contains(w.Text, "the Redis at "+server.Addr()+" evicts keys when it is full (maxmemory-policy allkeys-lru)") {
			t.Errorf("warned %+v", w)
		}
	case <-time.After(time.Minute):
		t.Fatal("no warning")
	}
	key, _ := server.Do("KEYS", "*").([]any)
	if len(key) != 1 {
		t.Fatalf("the keys are %v", key)
	}
	value := strings.Repeat("x", 1<<16)
	for i := 0; server.Do("EXISTS", key[0]) == int64(1); i++ { // by a sample of keys: the caller's is the oldest
		if i > 10_000 {
			t.Fatal("the caller's key is never evicted")
		}
		for j := range 50 {
			server.Do("SET", fmt.Sprint("other", i, ".", j), value)
		}
	}
	if !passes() {
		t.Error("the caller's quota isn't given anew, so the warning is wrong")
	}
}
