package redisstore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// A client with default options ends its part of a call at the timeout too, so its ways
// come free although the server doesn't answer. A clone makes the calls: the user's own
// stay as they are, and hooks added before the first call see all of them.
func TestDefaultClientKeepsToDeadlines(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Hour, 2*time.Hour })
	s := New(rdb, WithPrefix(redistest.Prefix(t)))
	t.Cleanup(func() { s.Close() })
	var mu sync.Mutex
	seen := 0
	rdb.AddHook(failing(func(redis.Cmder) error {
		mu.Lock()
		defer mu.Unlock()
		seen++
		return nil
	}))
	l := denyLimit(t, store.Spec{Name: "n", Units: 9, Period: time.Hour})
	take := func() error {
		return s.Take(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1))
	}
	for err := take(); err != nil; err = take() { // a real server
		time.Sleep(time.Millisecond)
	}
	server.Pause()
	for range maxInFlight {
		if err := take(); !Unusable(err) { // on the connection there is, or on a new one that isn't answered
			t.Error(err)
		}
	}
	for taken := 1; taken > 0; time.Sleep(time.Millisecond) { // a real connection
		taken, _ = s.takes.Load()
	}
	others := make(chan error, 1) // calls of the user, who waits for as long as it takes
	go func() { others <- rdb.Get(context.Background(), "k").Err() }()
	server.Resume()
	if err := <-others; err != redis.Nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen < 2+maxInFlight {
		t.Errorf("a hook saw %d calls", seen)
	}
	if o := rdb.Options(); o.ContextTimeoutEnabled || o.ReadTimeout != time.Hour || o.WriteTimeout != 2*time.Hour {
		t.Errorf("the user's options have changed: %+v", o)
	}
}

// chained is a hook that fails all commands, and counts how often a client chains its hooks:
// whenever one is added.
type chained struct {
	failing
	times atomic.Int64
}

func (h *chained) DialHook(next redis.DialHook) redis.DialHook {
	h.times.Add(1)
	return next
}

// All stores on a client have one hook, even if their first calls are concurrent, and a client
// that nobody uses any more is freed.
func TestOneHookPerClient(t *testing.T) {
	l := denyLimit(t, store.Spec{Name: "n", Units: 9, Period: time.Hour})
	hooks := func(rdb *redis.Client, stores int) (added int64) {
		h := &chained{failing: func(redis.Cmder) error { return errors.New("failed by the test") }}
		rdb.AddHook(h)
		own := h.times.Load()
		var calls sync.WaitGroup
		for range stores {
			calls.Go(func() {
				s := New(rdb)
				defer s.Close()
				if err := s.Take(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)); err == nil {
					t.Error("a call didn't fail")
				}
			})
		}
		calls.Wait()
		return h.times.Load() - own
	}
	gone := func() weak.Pointer[redis.Client] {
		one, other := redis.NewClient(&redis.Options{}), redis.NewClient(&redis.Options{})
		defer one.Close()
		defer other.Close()
		for _, tt := range []struct {
			rdb    *redis.Client
			stores int
			want   int64
		}{{one, 100, 1}, {one, 1, 0}, {other, 2, 1}, {redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}), 2, 1}} {
			if added := hooks(tt.rdb, tt.stores); added != tt.want {
				t.Errorf("%d stores have added %d hooks, want %d", tt.stores, added, tt.want)
			}
		}
		return weak.Make(one)
	}()
	known := func() bool {
		hooked.mu.Lock()
		defer hooked.mu.Unlock()
		return hooked.clients[gone] != nil
	}
	for end := time.Now().Add(time.Minute); gone.Value() != nil || known(); runtime.Gosched() {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("a client that nobody uses is kept: %t, its entry: %t", gone.Value() != nil, known())
		}
	}
}

// A cluster's or a ring's client that doesn't keep to deadlines is warned of, once.
func TestWarningOfWaitingClients(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		logged := logs(t)
		for _, rdb := range []redis.UniversalClient{
			redis.NewClient(&redis.Options{}),
			redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: enabled, Addrs: []string{"127.0.0.1:1"}}),
			redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: enabled}),
		} {
			New(rdb)
			rdb.Close()
		}
		text, want := logged.String(), 0
		if !enabled {
			want = 1
		}
		for _, write := range []string{"ClusterOptions{ContextTimeoutEnabled: true}", "RingOptions{ContextTimeoutEnabled: true}"} {
			if got := strings.Count(text, write); got != want {
				t.Errorf("%s: %d warnings, want %d: %s", write, got, want, text)
			}
		}
	}
}

// The clone's ways are go-redis's own: the oldest version that this package can use has
// them. make test-newest runs these tests with the newest.
func TestInstallOldestClient(t *testing.T) {
	redistest.Suite(t, "install")
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mod := "-modfile=" + filepath.Join(dir, "go.mod")
	for _, args := range [][]string{
		{"get", mod, "github.com/redis/go-redis/v9@v9.19.0"},
		{"test", mod, "-count=1", "-run", "^TestDefaultClient|^TestHookPanics$|^TestPausedServer$", "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
}
