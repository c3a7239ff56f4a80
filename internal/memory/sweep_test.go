package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// What expires gives its memory back: tables, slabs and shared states.
func TestMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{MaxKeys: 20_000})
		bucket := mustLimit(t, store.Spec{Name: "bucket", Units: 1, Period: time.Minute})
		window := mustLimit(t, store.Spec{Name: "window", Algorithm: store.FixedWindow, Units: 1, Period: time.Minute})
		busy := mustLimit(t, store.Spec{Name: "busy", Units: 1, Period: time.Minute})
		take := func(key string, l *store.Limit) {
			if err := s.Take(t.Context(), []store.Charge{{Key: key, Limit: l, Cost: 1}}, make([]store.Result, 1)); err != nil {
				t.Fatal(err)
			}
		}
		memory := func() (slots, states, shared int) {
			for i := range s.shards {
				sh := &s.shards[i]
				slots += sh.slots()
				if sh.slab != nil {
					states += cap(sh.slab.states)
				}
				if sh.shared != nil {
					shared += cap(sh.shared.states)
				}
			}
			return slots, states, shared
		}
		for i := range 15_000 {
			take(fmt.Sprint(i), bucket)
			take(fmt.Sprint(i), window)
		}
		slots, states, shared := memory()
		t.Logf("full: %d slots, %d states, %d shared", slots, states, shared)
		if slots < 20_000 || states < 9_000 || shared == 0 {
			t.Error("the store is not full")
		}
		time.Sleep(time.Minute)
		for range 3000 {
			take("busy", busy)
			time.Sleep(time.Millisecond)
		}
		slots, states, shared = memory()
		t.Logf("after %d expired: %d slots, %d states, %d shared", s.Stats().Expired, slots, states, shared)
		if slots > 200 || states > 0 || shared > 0 {
			t.Errorf("one key is left, and %d slots, %d states, %d shared", slots, states, shared)
		}
	})
}

// A call that comes late makes up for some of the visits that were due, not
// for all of them at once.
func TestCatchUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		l := mustLimit(t, store.Spec{Units: 1, Period: time.Second})
		charges, results := []store.Charge{{Limit: l, Cost: 1}}, make([]store.Result, 1)
		for i := range 10_000 {
			charges[0].Key = fmt.Sprint(i)
			s.Take(t.Context(), charges, results)
		}
		time.Sleep(time.Hour)
		before := s.next.Load()
		charges[0].Key = "late"
		s.Take(t.Context(), charges, results)
		if n := s.next.Load() - before; n != catchUp {
			t.Errorf("%d visits in one call, not %d", n, catchUp)
		}
		before = s.next.Load()
		s.Take(t.Context(), charges, results)
		if n := s.next.Load() - before; n != 0 {
			t.Errorf("%d visits at the same instant", n)
		}
	})
}

// Shared states that hold leases end with them, at a time that can't be known.
func TestWaitForLeases(t *testing.T) {
	p := &sharedStates{states: []sharedState{{slabState: slabState{until: never}}}}
	if got := p.untilExpiry(5); got != time.Second {
		t.Errorf("wait = %v", got)
	}
	p.states = append(p.states, sharedState{slabState: slabState{until: 105}})
	if got := p.untilExpiry(5); got != 100*time.Microsecond {
		t.Errorf("wait = %v", got)
	}
}
