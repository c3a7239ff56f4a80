package memory

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// Keys expire by time, also without calls, and the timer stops when nothing is left.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{MaxKeys: 10_000})
		short := mustLimit(t, store.Spec{Name: "short", Units: 1, Period: 5 * time.Second})
		long := mustLimit(t, store.Spec{Name: "long", Algorithm: store.FixedWindow, Units: 1, Period: time.Hour})
		settle := mustLimit(t, store.Spec{Name: "settle", Units: 10, Period: 10 * time.Second})
		take := func(key string, l *store.Limit) store.Result {
			var r [1]store.Result
			if err := s.Take(t.Context(), []store.Charge{{Key: key, Limit: l, Cost: 1}}, r[:]); err != nil {
				t.Fatal(err)
			}
			return r[0]
		}
		holds := func(keys int64, running bool) {
			t.Helper()
			if got := s.Stats().Keys; got != keys || (s.tickAt.Load() != noTick) != running {
				t.Errorf("%d keys, next tick at %d; want %d, %v", got, s.tickAt.Load(), keys, running)
			}
		}
		holds(0, false)
		for i := range 9_000 {
			take(fmt.Sprint(i), short)
		}
		take("a", long)
		for range 60 { // one call a second, as of a health check
			take("check", short)
			time.Sleep(time.Second)
		}
		holds(2, true)
		time.Sleep(time.Minute)
		holds(1, true)
		time.Sleep(2 * time.Hour)
		holds(0, false)

		for i := range 12_000 { // beyond the cap, keys share states
			take(fmt.Sprint(i), long)
		}
		time.Sleep(2 * time.Hour)
		holds(0, false)
		if s.shards[0].shared != nil {
			t.Error("shared states are left")
		}

		r := take("settled", settle)
		time.Sleep(time.Hour)
		holds(0, false)
		late := []store.Charge{{Key: "settled", Limit: settle, Cost: 5, Receipt: r.Receipt}}
		if err := s.Settle(t.Context(), late, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		holds(1, true)
		time.Sleep(time.Minute)
		holds(0, false)
	})
}

// The timer doesn't keep a store that nobody uses.
func TestTimerKeepsNoStore(t *testing.T) {
	long := mustLimit(t, store.Spec{Name: "long", Algorithm: store.FixedWindow, Units: 1, Period: 24 * time.Hour})
	dropped := make(chan struct{})
	func() {
		s := New(Config{})
		runtime.AddCleanup(s, func(c chan struct{}) { close(c) }, dropped)
		if err := s.Take(t.Context(), []store.Charge{{Key: "k", Limit: long, Cost: 1}}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		if s.tickAt.Load() == noTick {
			t.Error("the timer doesn't run")
		}
	}()
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		select {
		case <-dropped:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the store is still held")
		}
	}
}

// A store with a clock of its own has no timer: its time passes by the clock.
func TestNoTimerWithAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		s := New(Config{Clock: func() time.Time { return now }})
		l := mustLimit(t, store.Spec{Units: 1, Period: time.Second})
		if err := s.Take(t.Context(), []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		time.Sleep(time.Hour)
		if s.Stats().Keys != 1 {
			t.Error("a timer has dropped the key")
		}
	})
}
