package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// traffic is a load on one key while something goes wrong.
type traffic struct {
	store   *redisstore.Store
	limits  []*store.Limit
	stop    context.CancelFunc
	callers sync.WaitGroup

	granted, unknown, failed atomic.Int64
	longest                  atomic.Int64 // call, in nanoseconds
	last                     atomic.Pointer[error]
}

const (
	burst       = 1_000_000
	callTimeout = 200 * time.Millisecond
)

func drive(t *testing.T, s *redisstore.Store) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	f := &traffic{store: s, stop: stop, limits: []*store.Limit{
		limit(t, store.Spec{Name: "a", Units: 1, Period: time.Minute, Burst: burst}),
		limit(t, store.Spec{Name: "b", Algorithm: store.FixedWindow, Units: burst, Period: 1000 * time.Hour}),
	}}
	for range 16 {
		f.callers.Go(func() {
			charges := []store.Charge{{Key: "k", Limit: f.limits[0], Cost: 1}, {Key: "k", Limit: f.limits[1], Cost: 1}}
			results := make([]store.Result, 2)
			for ctx.Err() == nil {
				start := time.Now()
				err := s.Take(context.Background(), charges, results)
				for held := int64(time.Since(start)); ; {
					if old := f.longest.Load(); held <= old || f.longest.CompareAndSwap(old, held) {
						break
					}
				}
				switch {
				case err == nil && results[0].OK && results[1].OK:
					f.granted.Add(1)
				case err == nil:
					t.Error("refused")
				default:
					f.failed.Add(1)
					f.last.Store(&err)
					if !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrServer) && !errors.Is(err, redisstore.ErrConfiguration) {
						f.unknown.Add(1)
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	t.Cleanup(stop)
	return f
}

// passes waits until calls are granted again.
func (f *traffic) passes(t *testing.T) {
	t.Helper()
	from := f.granted.Load()
	eventually(t, "calls pass", func() bool { return f.granted.Load() >= from+100 })
}

// fails waits until calls fail with an error of that class.
func (f *traffic) fails(t *testing.T, class error) {
	t.Helper()
	from := f.failed.Load()
	eventually(t, "calls fail", func() bool {
		last := f.last.Load()
		return f.failed.Load() >= from+20 && last != nil && errors.Is(*last, class)
	})
}

// end stops the load, and holds what was charged to what was granted: nothing
// twice, and nothing that was not asked for but those without an answer.
func (f *traffic) end(t *testing.T, counts bool) {
	t.Helper()
	f.stop()
	f.callers.Wait()
	if held := time.Duration(f.longest.Load()); held > 10*callTimeout {
		t.Errorf("a call was held for %v of %v", held, callTimeout)
	}
	if !counts {
		return
	}
	for _, l := range f.limits {
		least, most := f.granted.Load(), f.granted.Load()+f.unknown.Load()
		eventually(t, "charged is what was granted", func() bool { // late ones are given back
			r, err := take(f.store, "k", l, 0)
			used := burst - r.Remaining
			return err == nil && used >= least && used <= most
		})
	}
	t.Logf("%d granted, %d failed, %d of them without an answer, the longest took %v",
		f.granted.Load(), f.failed.Load(), f.unknown.Load(), time.Duration(f.longest.Load()))
}

// What goes wrong in a server that stays: the class of the errors, how long
// callers are held, nothing charged twice, and service resumes by itself.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name        string
		wrong, well func(s *redistest.Server)
		class       error // nil: nobody notices
	}{
		{
			"out of memory",
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") },
			redisstore.ErrServer,
		},
		{
			"read only",
			func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") },
			redisstore.ErrUnavailable,
		},
		{
			"rights taken away",
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "-evalsha") },
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "default", "+evalsha") },
			redisstore.ErrConfiguration,
		},
		{
			"paused",
			func(s *redistest.Server) { s.Pause() },
			func(s *redistest.Server) { s.Resume() },
			redisstore.ErrIndeterminate,
		},
		{
			"scripts flushed",
			func(s *redistest.Server) { s.Do("SCRIPT", "FLUSH") },
			func(s *redistest.Server) { s.Do("SCRIPT", "FLUSH") },
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
			f.passes(t)
			tt.wrong(server)
			if tt.class != nil {
				f.fails(t, tt.class)
			} else {
				f.passes(t)
			}
			tt.well(server)
			f.passes(t)
			f.end(t, true)
			if tt.class == nil && f.failed.Load() > 0 {
				t.Errorf("%d calls failed: %v", f.failed.Load(), *f.last.Load())
			}
		})
	}
}

// A script that doesn't end blocks everybody, until it is killed.
func TestBusyServer(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "20")
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	other := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	done := make(chan error, 1)
	go func() { done <- other.Eval(context.Background(), "while true do end", nil).Err() }()
	f.fails(t, redisstore.ErrServer)
	server.Do("SCRIPT", "KILL")
	<-done
	f.passes(t)
	f.end(t, true)
}

// A server that is killed and started again has lost its counts, and serves.
func TestKilledServer(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	server.Kill()
	f.fails(t, redisstore.ErrUnavailable)
	server.Restart()
	f.passes(t)
	f.end(t, false)
}

// A slot moves to another node while it is used: clients follow it.
func TestSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	move := cluster.BeginMigration("{k}")
	move.MoveKeys()
	move.Finish()
	f.passes(t)
	f.end(t, true)
}

// Sentinels promote a replica, in order.
func TestSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	group := redistest.StartSentinel(t, 1)
	rdb := group.Client(func(o *redis.FailoverOptions) { o.ContextTimeoutEnabled = true })
	f := drive(t, redisstore.New(rdb, redisstore.WithTimeout(callTimeout)))
	f.passes(t)
	group.Switch()
	f.passes(t)
	f.end(t, false) // what was not replicated may pass again
}
