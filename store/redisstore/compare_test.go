package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// fleet is processes on one server. Their time is a bubble's; the server's goes on by itself,
// and is only compared with itself.
type fleet struct {
	t      *testing.T
	client func() redis.UniversalClient
	prefix redisstore.Option
	key    string // of what limits mean, in the server

	mu     sync.Mutex
	warned []string
}

func newFleet(t *testing.T, server *redistest.Server) *fleet {
	prefix := redistest.Prefix(t)
	return &fleet{t: t, prefix: redisstore.WithPrefix(prefix), key: prefix + "{%limits}", client: func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	}}
}

// process is one of the fleet.
type process struct {
	*stint.Limiter
	*redisstore.Store
	client redis.UniversalClient
}

// start starts a process, which has a store and a limiter.
func (f *fleet) start(name string, opts ...stint.Option) process {
	f.t.Helper()
	return f.startOn(name, nil, opts...)
}

// startOn starts one whose limiter has a store made of the process's.
func (f *fleet) startOn(name string, over func(store.Store) store.Store, opts ...stint.Option) process {
	f.t.Helper()
	p := process{client: f.client()}
	p.Store = redisstore.New(p.client, f.prefix, patient)
	var s store.Store = p.Store
	if over != nil {
		s = over(s)
	}
	l, err := stint.New(append(opts, stint.WithKey(stint.Global()), stint.WithStore(s), stint.WithLogger(slog.New(slog.DiscardHandler)),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWarning {
				f.mu.Lock()
				f.warned = append(f.warned, fmt.Sprint(name, " ", e.Warning.Kind, " ", e.Warning.Limits, " ", e.Warning.Text))
				f.mu.Unlock()
			}
		}))...)
	if err != nil {
		f.t.Fatal(err)
	}
	p.Limiter = l
	f.t.Cleanup(func() { p.stop(); runtime.KeepAlive(p.Limiter) })
	return p
}

func (p process) stop() {
	synctest.Wait() // for the calls under way
	_ = p.Close()
	_ = p.client.Close()
}

func (f *fleet) warnings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.warned)
}

func api(n int64) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName("api")) }

// differs is the warning of a process that has a rate of here and meets one of there.
func differs(name string, here, there int) string {
	return fmt.Sprintf(`%s name-conflict [api] limit "api" is "TokenBucket: %d per 1m0s, burst %[2]d" here and "TokenBucket: %d per 1m0s, burst %[3]d" in another process on its Redis, `+
		`so what a caller gets depends on which one decides: deploy one configuration, or write another stint.WithName in one of them`, name, here, there)
}

// Two processes that give a name other numbers are both warned, once, when both have had them
// for 15 minutes. When they agree, that is no longer described.
func TestNamesInOtherProcesses(t *testing.T) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, server)
		f.start("same", api(5))
		time.Sleep(time.Hour)
		before := f.start("before", api(5))
		time.Sleep(3 * time.Minute)
		after := f.start("after", api(6), stint.Rate(9, time.Second, stint.WithName("own")))
		time.Sleep(15*time.Minute + time.Second)
		if all := f.warnings(); all != nil {
			t.Errorf("warned early: %q", all)
		}
		time.Sleep(3 * time.Hour)
		want := []string{differs("after", 6, 5), differs("before", 5, 6), differs("same", 5, 6)}
		if all := sorted(f.warnings()); !slices.Equal(all, want) {
			t.Errorf("warned\n%q\nwant\n%q", all, want)
		}
		for _, p := range []process{before, after} {
			all := p.Describe().Warnings
			if len(all) != 1 || all[0].Kind != stint.WarnNameConflict || !strings.HasSuffix(all[0].Link, "/warnings.md#name-conflict") {
				t.Errorf("described %+v", all)
			}
		}
		key, ttl := f.meanings(server.Client())
		if len(key) != 3 || ttl < 14*time.Minute || ttl > 15*time.Minute+time.Second {
			t.Errorf("the server has %q for %v", key, ttl)
		}

		if err := after.Update(api(5), stint.WithKey(stint.Global())); err != nil {
			t.Fatal(err)
		}
		if all := after.Describe().Warnings; slices.ContainsFunc(all, func(w stint.Warning) bool { return w.Kind == stint.WarnNameConflict }) {
			t.Errorf("described once updated: %+v", all)
		}
		time.Sleep(20 * time.Minute)
		if all := before.Describe().Warnings; len(all) > 0 {
			t.Errorf("described once the other is updated: %+v", all)
		}
	})
}

// meanings returns what the server has been told, and for how long it keeps that.
func (f *fleet) meanings(c *redis.Client) ([]string, time.Duration) {
	return c.ZRange(context.Background(), f.key, 0, -1).Val(), c.PTTL(context.Background(), f.key).Val()
}

// Processes that are right are silent for hours.
func TestNamesThatAgree(t *testing.T) {
	server := redistest.Shared(t)
	everybody := stint.WithKey(stint.Global())
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, f *fleet)
	}{
		{"the same numbers", func(t *testing.T, f *fleet) {
			for i := range 5 {
				f.start(fmt.Sprint(i), api(5))
				time.Sleep(7 * time.Minute)
			}
		}},
		{"a rolling deploy", func(t *testing.T, f *fleet) {
			var old []process
			for i := range 6 {
				old = append(old, f.start(fmt.Sprint("old ", i), api(5)))
			}
			time.Sleep(24 * time.Hour)
			for i, p := range old { // fourteen minutes from the first to the last
				f.start(fmt.Sprint("new ", i), api(6))
				time.Sleep(140 * time.Second)
				p.stop()
			}
		}},
		{"a deploy that is rolled back", func(t *testing.T, f *fleet) {
			old := f.start("old", api(5))
			time.Sleep(time.Hour)
			for range 3 {
				p := f.start("new", api(6))
				time.Sleep(14 * time.Minute)
				p.stop()
			}
			_ = old
		}},
		{"an update of all, one after the other", func(t *testing.T, f *fleet) {
			var all []process
			for i := range 6 {
				all = append(all, f.start(fmt.Sprint(i), api(5)))
			}
			for n := range int64(3) {
				time.Sleep(time.Hour)
				for _, p := range all {
					if err := p.Update(api(6+n), everybody); err != nil {
						t.Error(err)
					}
					time.Sleep(100 * time.Second)
				}
			}
		}},
		{"limits of each tenant", func(t *testing.T, f *fleet) {
			for i := range int64(3) {
				p := f.start(fmt.Sprint(i), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{api(5 + i)}, nil }))
				p.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) {})
			}
			f.start("fixed", api(5))
		}},
		{"names of their own", func(t *testing.T, f *fleet) {
			f.start("first", api(5))
			f.start("second", stint.Rate(6, time.Minute, stint.WithName("apis")), stint.Rate(6, time.Minute, stint.WithName("ap")))
		}},
		{"limits of the process itself", func(t *testing.T, f *fleet) {
			for i := range int64(2) {
				f.start(fmt.Sprint(i), stint.AdaptiveConcurrency(1, 5+i, stint.WithName("api")))
			}
		}},
		{"one that isn't to be warned", func(t *testing.T, f *fleet) {
			f.start("loud", api(5))
			f.start("silent", api(6), stint.WithoutWarnings(stint.WarnNameConflict))
			f.start("another", api(7), stint.WithoutWarnings())
		}},
		{"one that has ended", func(t *testing.T, f *fleet) {
			f.start("ended", api(5)).stop()
			p := f.start("once", api(5))
			time.Sleep(time.Hour)
			p.stop()
			f.start("now", api(6))
		}},
		{"a limiter that is gone", func(t *testing.T, f *fleet) {
			p := f.start("both", api(5))
			time.Sleep(time.Hour)
			if err := p.Update(stint.Rate(5, time.Minute, stint.WithName("other")), everybody, stint.WithoutWarnings(stint.WarnUpdateDrops)); err != nil {
				t.Error(err)
			}
			f.start("now", api(6))
		}},
		{"other prefixes", func(t *testing.T, f *fleet) {
			f.start("first", api(5))
			g := newFleet(t, server)
			g.start("second", api(6))
			time.Sleep(time.Hour)
			if all := g.warnings(); all != nil {
				t.Errorf("warned %q", all)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, server)
				tt.run(t, f)
				time.Sleep(3 * time.Hour)
				if all := f.warnings(); all != nil {
					t.Errorf("warned %q", all)
				}
			})
		})
	}
}

// What is compared doesn't depend on how the server is reached, or on what is over the store.
func TestNamesOnEveryKindOfServer(t *testing.T) {
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for _, tt := range []struct {
		name   string
		client func() redis.UniversalClient
		opt    redisstore.Option
		over   func(store.Store) store.Store
	}{
		{name: "cluster", client: func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Nodes[0].Addr()}, ContextTimeoutEnabled: true, MaxRetries: -1})
		}},
		{name: "cluster, by the caller's clock", opt: redisstore.WithClock(time.Now), client: func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Nodes[0].Addr()}, ContextTimeoutEnabled: true, MaxRetries: -1})
		}},
		{name: "ring", client: func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": server.Addr(), "b": cluster.Nodes[0].Addr()}, ContextTimeoutEnabled: true, MaxRetries: -1})
		}},
		{name: "by the caller's clock", opt: redisstore.WithClock(time.Now)},
		{name: "without batches", opt: redisstore.WithoutBatching()},
		{name: "with failover", over: func(s store.Store) store.Store { return failover.New(s, memstore.New()) }},
		{name: "as what another fails over to", over: func(s store.Store) store.Store { return failover.New(memstore.New(), failover.New(s, nil)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, server)
				if tt.client != nil {
					f.client = tt.client
				}
				if prefix := f.prefix; tt.opt != nil {
					f.prefix = func(s *redisstore.Store) { prefix(s); tt.opt(s) }
				}
				f.startOn("first", tt.over, api(5))
				f.startOn("second", tt.over, api(6))
				time.Sleep(40 * time.Minute)
				if all, want := sorted(f.warnings()), []string{differs("first", 5, 6), differs("second", 6, 5)}; !slices.Equal(all, want) {
					t.Errorf("warned\n%q\nwant\n%q", all, want)
				}
			})
		})
	}
}

// counted counts the calls of scripts, which reach the server unless that is away.
type counted struct {
	calls atomic.Int64
	away  atomic.Bool
}

func (h *counted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		if c.Name() == "evalsha" {
			h.calls.Add(1)
			if h.away.Load() {
				c.SetErr(io.EOF)
				return io.EOF
			}
		}
		return next(ctx, c)
	}
}

// The rights that docs/redis.md lists suffice. A server that refuses isn't asked again, and none
// is for a store that is closed.
func TestNamesAreComparedWhereAllowed(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rights := anys(regexp.MustCompile(`[+~][a-z]+(:\*)?`).FindAllString(section, -1))
	server := redistest.Start(t)
	for _, tt := range []struct {
		name   string
		rule   []any
		warned bool
		calls  int64 // of a store in three hours
	}{
		{"all rights", []any{"~*"}, true, 34},
		{"without sorted sets", []any{"~*", "-zadd"}, false, 1},
		{"without the key", nil, false, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server.Do(append(append([]any{"ACL", "SETUSER", "poor", "reset", "on", ">pw"}, rights...), tt.rule...)...)
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, server)
				hook := new(counted)
				f.client = func() redis.UniversalClient {
					c := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "poor", Password: "pw", ContextTimeoutEnabled: true, MaxRetries: -1})
					c.AddHook(hook)
					return c
				}
				p := f.start("first", api(5))
				time.Sleep(time.Second)
				f.client = newFleet(t, server).client
				f.start("second", api(6))
				time.Sleep(3 * time.Hour)
				if all := f.warnings(); len(all) > 0 != tt.warned || hook.calls.Load() != tt.calls {
					t.Errorf("%d calls, warned %q", hook.calls.Load(), all)
				}
				_ = p.Close()
				time.Sleep(time.Hour)
				if n := hook.calls.Load(); n > tt.calls {
					t.Errorf("a closed store has made %d calls", n-tt.calls)
				}
			})
		})
	}
}

// A server that is away for some time takes nothing back, and is asked again.
func TestNamesOnAServerThatIsAway(t *testing.T) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		f, hook := newFleet(t, server), new(counted)
		reach := f.client
		f.client = func() redis.UniversalClient {
			c := reach()
			c.AddHook(hook)
			return c
		}
		p := f.start("first", api(5))
		f.start("second", api(6))
		away := func(d time.Duration) {
			hook.away.Store(true)
			time.Sleep(d)
			hook.away.Store(false)
		}
		time.Sleep(17 * time.Minute)
		away(time.Hour)
		if all := f.warnings(); all != nil {
			t.Errorf("warned %q", all)
		}
		time.Sleep(20 * time.Minute)
		away(time.Hour)
		if all := p.Describe().Warnings; len(f.warnings()) != 2 || len(all) != 1 {
			t.Errorf("warned %q, and described %+v", f.warnings(), all)
		}
	})
}

// However many names there are, the server keeps few.
func TestNamesAreBounded(t *testing.T) {
	server := redistest.Start(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, server)
		for i := range 7 {
			var opts []stint.Option
			for j := range 300 {
				opts = append(opts, stint.Rate(5, time.Minute, stint.WithName(fmt.Sprintf("n%d.%03d", i, j))))
			}
			f.start(fmt.Sprint(i), opts...)
			time.Sleep(time.Hour)
			if all, _ := f.meanings(server.Client()); len(all) != min(100*(i+1), 500) {
				t.Errorf("the server keeps %d of %d processes", len(all), i+1)
			}
		}
	})
	if ttl := server.Do("PTTL", server.Do("KEYS", "*").([]any)[0]); ttl.(int64) <= 0 {
		t.Errorf("they stay for %v", ttl)
	}
}

// Limiters come, change and go while a store looks, and it is closed.
func TestNamesMeanwhile(t *testing.T) {
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, server)
		f.start("first", api(5))
		p := f.start("second", api(6))
		var wg sync.WaitGroup
		for i := range int64(4) {
			wg.Go(func() {
				for range 20 {
					l, err := stint.New(stint.Rate(5+i, time.Minute, stint.WithName(fmt.Sprint("n", i))), stint.WithKey(stint.Global()),
						stint.WithStore(p.Store), stint.WithLogger(slog.New(slog.DiscardHandler)))
					if err != nil {
						t.Error(err)
						return
					}
					for n := range rand.Int64N(4) {
						time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Minute))))
						if err := l.Update(api(6), stint.Rate(9+n, time.Minute, stint.WithName("more")), stint.WithKey(stint.Global())); err != nil {
							t.Error(err)
						}
						_ = l.Describe()
						runtime.GC() // those before are forgotten
					}
				}
			})
		}
		time.Sleep(50 * time.Minute)
		if all := f.warnings(); len(all) < 2 {
			t.Errorf("warned %q", all)
		}
		_ = p.Close()
		wg.Wait()
	})
}
