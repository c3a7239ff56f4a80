package redisstore

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

// A panic while an answer is decoded, with everything else as it is: callers of all verbs have an
// error, no connection slot stays taken, and slots of a limit that may have been taken are released.
func TestDecodingPanics(t *testing.T) {
	for name, own := range map[string]bool{"on the store's goroutine": false, "on the caller's": true} {
		t.Run(name, func(t *testing.T) {
			logged := logs(t)
			s := manyStore(t, redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
			s.takes.Direct, s.settles.Direct = own, own
			quota := denyLimit(t, store.Spec{Name: "n", Units: 99, Algorithm: store.FixedWindow, Window: store.Monthly})
			slot := denyLimit(t, store.Spec{Name: "n", Units: 1, Algorithm: store.Concurrency})
			take := func(l *store.Limit) (r [1]store.Result, err error) {
				err = s.Take(context.Background(), []store.Charge{{Key: "a", Limit: l, Cost: 1}}, r[:])
				return r, err
			}
			taken, err := take(quota)
			if err != nil {
				t.Fatal(err)
			}
			same := []store.Charge{{Key: "a", Limit: quota, Cost: 1, Receipt: taken[0].Receipt}}

			takes, settles := s.takes.Send, s.settles.Send
			s.takes.Send = func(ctx context.Context, calls []*batch.Call[takeRequest]) { takes(ctx, calls); panic("oops") }
			s.settles.Send = func(ctx context.Context, calls []*batch.Call[settleRequest]) { settles(ctx, calls); panic("oops") }
			const panics = 20
			for range panics {
				if _, err := take(quota); !errors.Is(err, ErrIndeterminate) {
					t.Fatalf("Take: %v, want ErrIndeterminate", err)
				}
				if err := s.Settle(context.Background(), same, make([]store.Result, 1)); !errors.Is(err, ErrIndeterminate) {
					t.Fatalf("Settle: %v, want ErrIndeterminate", err)
				}
			}
			if lines := strings.Count(logged.String(), "panic=oops"); lines != 2*panics {
				t.Errorf("%d panics in the log, want %d", lines, 2*panics)
			}
			if _, err := take(slot); !errors.Is(err, ErrIndeterminate) {
				t.Fatalf("Take of a slot: %v, want ErrIndeterminate", err)
			}
			s.unreleased.mu.Lock()
			if p := s.unreleased.pending; len(p) != 1 || p[0].charge.Limit != slot {
				t.Errorf("%d slots are to be released", len(p))
			}
			s.unreleased.mu.Unlock()

			s.takes.Send, s.settles.Send = takes, settles
			if r, err := take(quota); err != nil || r[0].Remaining != 99-1-panics-1 {
				t.Errorf("after it: %+v, %v", r, err)
			}
		})
	}
}

// A clock of WithClock that panics ends neither the process nor the renewal of leases.
func TestRenewalPanics(t *testing.T) {
	logged := logs(t)
	var mu sync.Mutex
	panics, asked := false, 0
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if asked++; panics {
			panic("oops")
		}
		return time.Now()
	}
	calls := func(on bool) (before int) {
		mu.Lock()
		defer mu.Unlock()
		panics, before = on, asked
		return before
	}
	// No server: what is renewed has no answer, and is renewed again.
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	rdb.AddHook(failing(func(redis.Cmder) error { return errors.New("failed by the test") }))
	synctest.Test(t, func(t *testing.T) {
		s := New(rdb, WithClock(clock))
		defer s.Close()
		slot := denyLimit(t, store.Spec{Name: "n", Units: 1, Algorithm: store.Concurrency})
		s.leases.start("k", &store.Charge{Key: "k", Limit: slot, Cost: 1}, store.LeaseID{1}, time.Now(), 0)
		calls(true)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		before := calls(false)
		if panicked := strings.Count(logged.String(), "panic=oops"); panicked < 2 || panicked != before {
			t.Errorf("%d panics of %d are in the log", panicked, before)
		}
		time.Sleep(time.Minute)
		if calls(false) == before {
			t.Error("leases aren't renewed any more")
		}
	})
}

// A panic of a hook doesn't end what a store looks for in the background.
func TestWatchPanics(t *testing.T) {
	logged := logs(t)
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
		defer rdb.Close()
		rdb.AddHook(&panicking{before: true})
		s, o := New(rdb), &store.Observer{Tell: func(store.Notice) {}}
		defer s.Close()
		s.Observe(o)
		time.Sleep(2*watchEvery + time.Second)
		synctest.Wait()
		runtime.KeepAlive(o)
	})
	if asked := strings.Count(logged.String(), "oops before"); asked != 3 {
		t.Errorf("asked %d times, want 3", asked)
	}
}
