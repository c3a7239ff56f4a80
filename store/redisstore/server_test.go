package redisstore_test

import (
	"context"
	"errors"
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

func limit(t testing.TB, spec store.Spec) *store.Limit {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "n"
	}
	l, err := store.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(s store.Store, key string, l *store.Limit, cost int64) (store.Result, error) {
	var r [1]store.Result
	err := s.Take(context.Background(), []store.Charge{{Key: key, Limit: l, Cost: cost}}, r[:])
	return r[0], err
}

func settle(s store.Store, key string, l *store.Limit, receipt store.Receipt, cost int64) (store.Result, error) {
	var r [1]store.Result
	err := s.Settle(context.Background(), []store.Charge{{Key: key, Limit: l, Cost: cost, Receipt: receipt}}, r[:])
	return r[0], err
}

// eventually asks until it is so, of a real server.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not yet: %s", what)
		}
	}
}

// patient is for what isn't about a server that doesn't answer: on a busy machine
// answers take their time.
var patient = redisstore.WithTimeout(time.Minute)

// The server grants exactly what the limit has, however many ask at once.
func TestHammer(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		t.Run(fmt.Sprint("heeds deadlines ", heeds), func(t *testing.T) {
			rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = heeds })
			s := redisstore.New(rdb, redisstore.WithPrefix(redistest.Prefix(t)), patient)
			bucket := limit(t, store.Spec{Name: "b", Units: 1000, Period: 24 * time.Hour})
			window := limit(t, store.Spec{Name: "w", Units: 700, Period: 24 * time.Hour, Algorithm: store.FixedWindow})
			var granted atomic.Int64
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					for range 40 {
						var r [2]store.Result
						if err := s.Take(context.Background(), []store.Charge{{Key: "k", Limit: bucket, Cost: 1}, {Key: "k", Limit: window, Cost: 1}}, r[:]); err != nil {
							t.Error(err)
						}
						if r[0].OK && r[1].OK {
							granted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := granted.Load(); n != 700 {
				t.Errorf("%d of 700 granted", n)
			}
			if r, err := take(s, "k", bucket, 0); err != nil || r.Remaining != 300 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// Charges of callers that have left are given back.
func TestLeaversAreRefunded(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), redisstore.WithTimeout(time.Minute))
	l := limit(t, store.Spec{Units: 100, Period: 24 * time.Hour})
	slots := limit(t, store.Spec{Name: "c", Units: 100, Algorithm: store.Concurrency})
	if _, err := take(s, "k", l, 1); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	// With less time than the store has, a caller doesn't make the call itself.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			var r [2]store.Result
			if err := s.Take(ctx, []store.Charge{{Key: "k", Limit: l, Cost: 1}, {Key: "k", Limit: slots, Cost: 1}}, r[:]); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
	time.AfterFunc(50*time.Millisecond, cancel)
	wg.Wait()
	server.Resume()
	eventually(t, "all but the first given back", func() bool {
		r, err := take(s, "k", l, 0)
		c, err2 := take(s, "k", slots, 0)
		return err == nil && err2 == nil && r.Remaining == 99 && c.Remaining == 100
	})
}

// No call is held beyond the timeout by a client that ignores deadlines and would wait
// for a minute, and service resumes by itself.
func TestPausedServer(t *testing.T) {
	server := redistest.Start(t)
	const timeout = 200 * time.Millisecond
	s := redisstore.New(server.Client(), redisstore.WithTimeout(timeout))
	l := limit(t, store.Spec{Units: 1_000_000, Period: time.Second})
	eventually(t, "a first call", func() bool { _, err := take(s, "k", l, 1); return err == nil })
	server.Pause()
	pulse := redistest.StartPulse(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			start := pulse.Elapsed()
			_, err := take(s, fmt.Sprint(i), l, 1)
			if held := pulse.Elapsed() - start; err == nil || !redisstore.Unusable(err) || held > 3*timeout {
				t.Errorf("held for %v, %v", held, err)
			}
		})
	}
	wg.Wait()
	server.Resume()
	eventually(t, "service", func() bool { _, err := take(s, "k", l, 1); return err == nil })
}

// A script that the server has forgotten is sent again, in a pipeline as well.
func TestForgottenScripts(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	one := redistest.Shared(t).Client()
	for name, rdb := range map[string]redis.UniversalClient{"one": one, "cluster": cluster.Client()} {
		t.Run(name, func(t *testing.T) {
			s := redisstore.New(rdb, redisstore.WithPrefix(redistest.Prefix(t)), patient)
			l := limit(t, store.Spec{Units: 1000, Period: 24 * time.Hour})
			for round := range 5 {
				flush := rdb.ScriptFlush
				if err := flush(context.Background()).Err(); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						if r, err := take(s, fmt.Sprint(i), l, 1); err != nil || r.Remaining != int64(999-round) {
							t.Errorf("%+v, %v", r, err)
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// Several keys of a cluster are all charged or none.
func TestAcrossSlots(t *testing.T) {
	s := redisstore.New(redistest.StartCluster(t, 3, 0).Client(), patient)
	l := limit(t, store.Spec{Units: 10, Period: 24 * time.Hour})
	slots := limit(t, store.Spec{Name: "c", Units: 10, Algorithm: store.Concurrency})
	var charges []store.Charge
	for i := range 6 {
		charges = append(charges, store.Charge{Key: fmt.Sprint("key", i), Limit: l, Cost: 2}, store.Charge{Key: fmt.Sprint("key", i), Limit: slots, Cost: 1})
	}
	r := make([]store.Result, len(charges))
	if err := s.Take(context.Background(), charges, r); err != nil {
		t.Fatal(err)
	}
	charges[6].Cost = 9 // key3: 8 left
	if err := s.Take(context.Background(), charges, r); err != nil {
		t.Fatal(err)
	}
	for i, c := range charges {
		ok, left := i != 6, int64(8+i%2)
		if r[i].OK != ok || r[i].Remaining != left || r[i].Receipt != (store.Receipt{}) || r[i].Delay != 0 {
			t.Errorf("charge %d: %+v", i, r[i])
		}
		if p, err := take(s, c.Key, c.Limit, 0); err != nil || p.Remaining != left {
			t.Errorf("%s %s: %+v, %v", c.Key, c.Limit.Name(), p, err)
		}
	}
}

func TestErrors(t *testing.T) {
	l := limit(t, store.Spec{Units: 10, Period: time.Hour})
	class := func(t *testing.T, s *redisstore.Store, want error) {
		t.Helper()
		_, err := take(s, "k", l, 1)
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if errors.Is(err, store.ErrMisconfigured) != (want == redisstore.ErrConfiguration) {
			t.Errorf("%v: not to be told by the class", err)
		}
	}
	t.Run("killed", func(t *testing.T) {
		server := redistest.Start(t)
		rdb := server.Client()
		server.Kill()
		class(t, redisstore.New(rdb, patient), redisstore.ErrUnavailable)
	})
	t.Run("replica", func(t *testing.T) {
		server := redistest.Start(t, "--replicaof", "127.0.0.1", redistest.Shared(t).Port())
		class(t, redisstore.New(server.Client(), patient), redisstore.ErrUnavailable)
	})
	t.Run("out of memory", func(t *testing.T) {
		server := redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
		class(t, redisstore.New(server.Client(), patient), redisstore.ErrServer)
	})
	t.Run("no password", func(t *testing.T) {
		server := redistest.Start(t)
		server.Do("ACL", "SETUSER", "poor", "on", ">pw", "+hello", "+ping", "~*")
		rdb := server.Client(func(o *redis.Options) { o.Username, o.Password = "poor", "pw" })
		class(t, redisstore.New(rdb, patient), redisstore.ErrConfiguration)
		rdb = server.Client(func(o *redis.Options) { o.Username, o.Password = "poor", "wrong" })
		class(t, redisstore.New(rdb, patient), redisstore.ErrConfiguration)
		// Rights for the script, and none for what it does.
		server.Do("ACL", "SETUSER", "half", "on", ">pw", "+hello", "+ping", "+eval", "+evalsha", "~*")
		rdb = server.Client(func(o *redis.Options) { o.Username, o.Password = "half", "pw" })
		class(t, redisstore.New(rdb, patient), redisstore.ErrConfiguration)
	})
	t.Run("options", func(t *testing.T) {
		class(t, redisstore.New(nil), redisstore.ErrConfiguration)
		class(t, redisstore.New(redistest.Shared(t).Client(), redisstore.WithPrefix("{x}")), redisstore.ErrConfiguration)
	})
	t.Run("charges", func(t *testing.T) {
		s := redisstore.New(redistest.Shared(t).Client(), patient)
		_, err := take(s, "k", &store.Limit{}, 1)
		if !errors.Is(err, store.ErrLimit) || redisstore.Unusable(err) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Take(ctx, []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)); !errors.Is(err, context.Canceled) || redisstore.Unusable(err) {
			t.Error(err)
		}
	})
}

// A key that has lost its lifetime (PERSIST, a restored dump) is given one by the next call
// with that key alone, and soon by calls with several, each of which checks one.
func TestLostLifetimeIsRepaired(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s := redisstore.New(rdb, patient)
	ctx := context.Background()
	l := limit(t, store.Spec{Units: 1000, Period: time.Hour})
	other := limit(t, store.Spec{Name: "other", Units: 1000, Period: time.Hour})
	charges := func(cost int64, keys ...string) (cs []store.Charge) {
		for _, k := range keys {
			cs = append(cs, store.Charge{Key: k, Limit: l, Cost: cost})
		}
		return cs
	}
	ask := func(cs []store.Charge) {
		t.Helper()
		if err := s.Take(ctx, cs, make([]store.Result, len(cs))); err != nil {
			t.Error(err)
		}
	}
	for name, next := range map[string]func(key string, r store.Receipt){
		"granted": func(k string, _ store.Receipt) { ask(charges(1, k)) },
		"denied":  func(k string, _ store.Receipt) { ask(charges(1000, k)) },
		"a look":  func(k string, _ store.Receipt) { ask(charges(0, k)) },
		// Of several keys one is asked, as the clock has it.
		"two limits": func(k string, _ store.Receipt) {
			for range 100 {
				ask(append(charges(1, k), store.Charge{Key: k, Limit: other, Cost: 1}))
			}
		},
		"with another": func(k string, _ store.Receipt) {
			for range 100 {
				ask(append(charges(1, k), store.Charge{Key: k + "2", Limit: l, Cost: 1}))
			}
		},
		"a dry run": func(k string, _ store.Receipt) { c := charges(1, k); c[0].DryRun = true; ask(c) },
		"partly settled": func(k string, r store.Receipt) {
			if _, err := settle(s, k, l, r, 2); err != nil {
				t.Error(err)
			}
		},
		"in batches": func(k string, _ store.Receipt) {
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				var wg sync.WaitGroup
				for i := range 40 {
					wg.Go(func() { ask(charges(1, fmt.Sprint(k, " ", i%10))) })
				}
				for range 3 {
					wg.Go(func() { ask(charges(1, k)) })
				}
				wg.Wait()
				if left, err := rdb.PTTL(ctx, "stint:{"+k+"}:n/t").Result(); err != nil || left > 0 {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := take(s, name, l, 5)
			if err != nil {
				t.Fatal(err)
			}
			key := "stint:{" + name + "}:n/t"
			if kept, err := rdb.Persist(ctx, key).Result(); err != nil || !kept {
				t.Fatal(kept, err)
			}
			next(name, r.Receipt)
			if left, err := rdb.PTTL(ctx, key).Result(); err != nil || left <= 0 {
				t.Errorf("the key stays for ever: %v, %v", left, err)
			}
		})
	}
}
