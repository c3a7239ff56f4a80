package memory_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

// A flood of new keys neither resets a key that has a place, nor passes more
// than one key's worth in each shard.
func TestFloodAtTheCap(t *testing.T) {
	for _, spec := range []store.Spec{
		{Units: 10, Period: time.Hour},
		{Algorithm: store.IntervalBucket, Units: 10, Period: time.Hour},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily},
		{Algorithm: store.SlidingLog, Units: 10, Period: time.Hour},
		{Algorithm: store.Concurrency, Units: 10},
	} {
		t.Run(spec.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const held, flood, shards = 320, 5000, 32 // one for 16 keys, but a power of two
				s, l := memory.New(memory.Config{MaxKeys: held}), newLimit(t, spec)
				for i := range held {
					take(t, s, fmt.Sprint("held", i), l, 4)
				}
				passed := 0
				for i := range flood {
					if take(t, s, fmt.Sprint("flood", i), l, 1).OK {
						passed++
					}
					if key := fmt.Sprint("held", i%held); take(t, s, key, l, 0).Remaining != 6 {
						t.Fatalf("%s has lost its state", key)
					}
				}
				if passed < 10 || passed > 10*shards {
					t.Errorf("%d of the flood passed, not 10 in each of at most %d shards", passed, shards)
				}
				want := memory.Stats{Keys: held, MaxKeys: held, Overflow: flood, Denied: uint64(flood - passed)}
				if got := s.Stats(); got != want {
					t.Errorf("counted %+v, want %+v", got, want)
				}
				for i := range held {
					if r := take(t, s, fmt.Sprint("held", i), l, 6); !r.OK || r.Remaining != 0 {
						t.Fatalf("held key %d: %+v", i, r)
					}
				}
			})
		})
	}
}

// What has expired makes room at once, whichever shard it is in.
func TestRoomAtTheCap(t *testing.T) {
	for _, n := range []int{1, 4, 17, 100, 256, 1000} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New(memory.Config{MaxKeys: int64(n)})
			l := newLimit(t, store.Spec{Units: 1, Period: time.Second})
			for round := range 3 {
				for i := range n {
					take(t, s, fmt.Sprint(round, i), l, 1)
				}
				if st := s.Stats(); st.Keys != int64(n) || st.Overflow != 0 {
					t.Fatalf("round %d: %+v", round, st)
				}
				time.Sleep(time.Second)
			}
			// Several at once: the first half stays.
			charges := []store.Charge{{Key: "x", Limit: l, Cost: 1}, {Key: "y", Limit: l, Cost: 1}}
			if n > 1 {
				takeAll(t, s, charges...)
				if st := s.Stats(); st.Overflow != 0 {
					t.Errorf("two new keys: %+v", st)
				}
			}
		})
	}
}

// Peeks and denials take no place.
func TestNothingKeptForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 2})
		l := newLimit(t, store.Spec{Units: 5, Period: time.Hour})
		closed := newLimit(t, store.Spec{Name: "closed", Units: 1, Period: time.Hour})
		take(t, s, "k", closed, 1)
		for i := range 10 {
			if r := take(t, s, fmt.Sprint(i), l, 0); !r.OK || r.Remaining != 5 {
				t.Errorf("peek: %+v", r)
			}
			if r := take(t, s, fmt.Sprint(i), l, 6); r.OK || r.RetryAfter != store.Never {
				t.Errorf("too large: %+v", r)
			}
			r := takeAll(t, s, store.Charge{Key: fmt.Sprint(i), Limit: l, Cost: 1}, store.Charge{Key: "k", Limit: closed, Cost: 1})
			if !r[0].OK || r[0].Remaining != 5 || r[1].OK {
				t.Errorf("denied by the other: %+v", r)
			}
		}
		if st := s.Stats(); st.Keys != 1 || st.Overflow != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// A charge made in overflow is settled there, also when its key has got a
// place in the meantime.
func TestSettleInOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 1}) // one shard
		l := newLimit(t, store.Spec{Units: 10, Period: time.Hour})
		slots := newLimit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 3})
		blocker := newLimit(t, store.Spec{Name: "blocker", Algorithm: store.Concurrency, Units: 1})
		block := take(t, s, "holds the place", blocker, 1)

		charged := take(t, s, "a", l, 6)
		leaseA, leaseB := take(t, s, "a", slots, 1), take(t, s, "b", slots, 2)
		if !charged.OK || !leaseA.OK || !leaseB.OK || take(t, s, "c", slots, 1).OK {
			t.Fatal("overflow does not count three slots")
		}
		if r := take(t, s, "d", l, 0); r.Remaining != 4 {
			t.Errorf("a peek in overflow: %+v", r)
		}
		// An unmarked receipt frees nothing there.
		settle(t, s, "d", l, 0, store.Receipt{Cost: 6, Mark: 1 << 50})
		if r := take(t, s, "d", l, 0); r.Remaining != 4 {
			t.Errorf("an unknown receipt has freed %d", r.Remaining-4)
		}

		settle(t, s, "holds the place", blocker, 0, block.Receipt)
		own := take(t, s, "a", slots, 3)
		if !own.OK || s.Stats().Keys != 1 {
			t.Fatalf("the free place is not taken: %+v, %+v", own, s.Stats())
		}
		settle(t, s, "a", slots, 0, leaseA.Receipt)
		if take(t, s, "a", slots, 1).OK {
			t.Error("a lease of the overflow was released from the key's own state")
		}
		if r := take(t, s, "e", slots, 1); !r.OK {
			t.Errorf("the slot did not go back to the overflow: %+v", r)
		}
		settle(t, s, "a", slots, 0, leaseA.Receipt) // twice
		if take(t, s, "f", slots, 1).OK {
			t.Error("releasing twice has freed two")
		}
		settle(t, s, "a", slots, 0, own.Receipt)
		if n := s.Stats().Keys; n != 0 {
			t.Errorf("%d keys, none is held", n)
		}

		take(t, s, "holds the place", blocker, 1)
		if r := settle(t, s, "a", l, 2, charged.Receipt); r.Remaining != 8 {
			t.Errorf("6 settled as 2 in overflow: %+v", r)
		}
		if r := take(t, s, "g", l, 8); !r.OK || r.Remaining != 0 {
			t.Errorf("after the refund: %+v", r)
		}
		// A debt of a charge whose own state is gone falls on the overflow.
		if r := settle(t, s, "h", l, 3, store.Receipt{Cost: 1}); r.Remaining != 0 || r.ResetAfter != 72*time.Minute {
			t.Errorf("debt at the cap: %+v", r)
		}
	})
}

// Shared states are bounded too. Charges beyond them are denied, and deny
// those beside them unless they are dry runs.
func TestTooManyLimitsInOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 1})
		limit := func(i int) *store.Limit {
			return newLimit(t, store.Spec{Name: fmt.Sprint("limit", i), Units: 2, Period: time.Duration(i+1) * time.Minute})
		}
		held := newLimit(t, store.Spec{Name: "held", Units: 9, Period: 9 * time.Hour})
		take(t, s, "held", held, 1)
		n := 0
		for ; n < 1000 && take(t, s, "k", limit(n), 2).OK; n++ {
		}
		if n < 8 || n > 100 {
			t.Fatalf("%d shared states", n)
		}
		last := limit(n)
		r := takeAll(t, s, store.Charge{Key: "held", Limit: held, Cost: 1}, store.Charge{Key: "k", Limit: last, Cost: 1})
		if !r[0].OK || r[0].Remaining != 8 || r[0].Receipt != (store.Receipt{}) {
			t.Errorf("beside a denied charge: %+v", r[0])
		}
		if r[1].OK || r[1].Remaining != 0 || r[1].RetryAfter != time.Minute {
			t.Errorf("without a state: %+v", r[1])
		}
		r = takeAll(t, s, store.Charge{Key: "held", Limit: held, Cost: 1}, store.Charge{Key: "k", Limit: last, Cost: 1, DryRun: true})
		if !r[0].OK || r[0].Remaining != 7 || r[0].Receipt.Cost != 1 || r[1].OK || r[1].Receipt.Cost != 0 {
			t.Errorf("beside a dry run: %+v", r)
		}
		// Denied by another charge as well: the states stay as they are.
		r = takeAll(t, s, store.Charge{Key: "held", Limit: held, Cost: 8}, store.Charge{Key: "k", Limit: last, Cost: 1})
		if r[0].OK || r[0].Remaining != 7 || r[1].OK {
			t.Errorf("both deny: %+v", r)
		}
		time.Sleep(time.Minute) // the first one's state has expired
		if r := take(t, s, "k", last, 1); !r.OK {
			t.Errorf("after an expiry: %+v", r)
		}
	})
}

// Two new keys of one limit in a call can not share a state.
func TestTwoKeysOfOneLimitInOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 1})
		l := newLimit(t, store.Spec{Units: 10, Period: time.Hour})
		take(t, s, "held", l, 1)
		r := takeAll(t, s, store.Charge{Key: "a", Limit: l, Cost: 4}, store.Charge{Key: "b", Limit: l, Cost: 4})
		if r[0].OK && r[1].OK {
			t.Errorf("both were charged: %+v", r)
		}
		if r := take(t, s, "c", l, 10); !r.OK {
			t.Errorf("a denied call was charged: %+v", r)
		}
	})
}

// A store that is full says so, once to each observer: those that come later, too.
func TestFullStoreIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{MaxKeys: 8})
		told := 0
		o := &store.Observer{Tell: func(n store.Notice) {
			if n.Kind != store.Full || !strings.Contains(n.Err.Error(), "WithMaxKeys(32)") {
				t.Errorf("told %+v", n)
			}
			told++
		}}
		s.Observe(o)
		l := newLimit(t, store.Spec{Name: "calls", Units: 5, Period: time.Hour})
		take := func(n int) {
			for i := range n {
				if err := s.Take(t.Context(), []store.Charge{{Key: strconv.Itoa(i), Limit: l, Cost: 1}}, make([]store.Result, 1)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		if take(100); told != 0 {
			t.Errorf("told after %d charges that found no room", s.Stats().Overflow)
		}
		if take(500); told != 1 {
			t.Errorf("told %d times, want once", told)
		}
		late := 0
		other := &store.Observer{Tell: func(store.Notice) { late++ }}
		s.Observe(other)
		if take(500); told != 1 || late != 1 {
			t.Errorf("told %d times, and one that came later %d times, want once each", told, late)
		}
		runtime.KeepAlive([]any{o, other})
	})
}
