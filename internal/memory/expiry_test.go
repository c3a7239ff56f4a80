package memory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

// reference is a store that forgets nothing and has nothing to get wrong.
type reference struct {
	base   time.Time
	leases uint64
	states map[string]*store.State
}

func (m *reference) now() store.Now {
	t := time.Now()
	return store.Now{Steady: t.Sub(m.base).Microseconds(), Wall: t.UnixMicro() - store.Epoch*1_000_000}
}

func (m *reference) state(c *store.Charge) *store.State {
	id := fmt.Sprint(c.Limit.Algorithm(), c.Limit.Name(), " ", c.Key)
	if m.states[id] == nil {
		m.states[id] = new(store.State)
	}
	return m.states[id]
}

func (m *reference) take(charges []store.Charge, results []store.Result) {
	now := m.now()
	states := make([]store.State, len(charges))
	lease := false
	for i := range charges {
		states[i] = *m.state(&charges[i])
		lease = lease || charges[i].Limit.Algorithm() == store.Concurrency
	}
	if lease {
		m.leases++
		now.Lease = store.Lease(m.leases)
	}
	store.Decide(now, charges, states, results)
	for i := range charges {
		*m.state(&charges[i]) = states[i]
	}
}

func (m *reference) settle(c *store.Charge, r *store.Result) {
	store.Amend(m.now(), c, m.state(c), r)
}

// Random calls at random times: a store that sweeps, grows and shrinks gives
// the answers of one that never forgets.
func TestExpiryIsLossless(t *testing.T) {
	specs := []store.Spec{
		{Name: "bucket", Units: 5, Period: time.Second},
		{Name: "sevenths", Units: 7, Period: time.Second, Burst: 3},
		{Name: "odd", Units: 997, Period: 100 * time.Second, Burst: 5},
		{Name: "queue", Units: 5, Period: time.Second, Burst: 2, Queue: 3},
		{Name: "debt", Units: 5, Period: time.Second, Debt: true},
		{Name: "leaky", Algorithm: store.LeakyBucket, Units: 5, Period: time.Second},
		{Name: "interval", Algorithm: store.IntervalBucket, Units: 2, Period: time.Second, Burst: 6},
		{Name: "window", Algorithm: store.FixedWindow, Units: 5, Period: time.Second},
		{Name: "calendar", Algorithm: store.FixedWindow, Units: 5, Window: store.Every(2 * time.Second)},
		{Name: "hourly", Algorithm: store.IntervalBucket, Units: 2, Burst: 5, Window: store.Hourly},
		{Name: "sliding", Algorithm: store.SlidingWindow, Units: 5, Period: time.Second, Buckets: 7},
		{Name: "log", Algorithm: store.SlidingLog, Units: 5, Period: time.Second},
		{Name: "counter", Algorithm: store.SlidingCounter, Units: 5, Period: time.Second},
		{Name: "warm", Algorithm: store.WarmUp, Units: 5, Period: time.Second, WarmUp: time.Second},
		{Name: "slots", Algorithm: store.Concurrency, Units: 5},
		{Name: "ban", Algorithm: store.Ban, Units: 3, Period: 5 * time.Second, Ban: 3 * time.Second},
	}
	calls := 20_000
	if testing.Short() {
		calls = 4000
	}
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 2))
				limits := make([]*store.Limit, len(specs))
				for i, spec := range specs {
					limits[i] = newLimit(t, spec)
				}
				// Often close to full, but never over.
				s := memory.New(memory.Config{MaxKeys: int64(len(limits)) * 60})
				ref := &reference{base: time.Now(), states: make(map[string]*store.State)}
				var made []store.Charge
				begun := 0
				for call := range calls {
					if r.IntN(3) == 0 {
						pause := time.Duration(r.IntN(100)) * time.Millisecond
						if r.IntN(50) == 0 {
							pause *= 40
						}
						time.Sleep(pause + time.Duration(r.IntN(1000))*time.Microsecond)
					}
					charges := make([]store.Charge, 1+r.IntN(3)*r.IntN(3))
					for i, l := range r.Perm(len(limits))[:len(charges)] {
						charges[i] = store.Charge{
							Key:    fmt.Sprint("key", r.IntN(60)),
							Limit:  limits[l],
							Cost:   int64(r.IntN(4)),
							DryRun: r.IntN(10) == 0,
							Final:  r.IntN(4) > 0,
						}
						if r.IntN(4) == 0 {
							charges[i].MaxWait = time.Duration(r.IntN(2000)) * time.Millisecond
						}
					}
					if slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Limit.Algorithm() == store.Ban }) {
						for i := range charges { // of whose limits it counts denials
							charges[i].Key, charges[i].Cost = fmt.Sprint("key", call/10%5), 1+int64(r.IntN(4))
						}
					}
					got, want := make([]store.Result, len(charges)), make([]store.Result, len(charges))
					if err := s.Take(ctx, charges, got); err != nil {
						t.Fatal(err)
					}
					ref.take(charges, want)
					for i := range got {
						if got[i] != want[i] {
							t.Fatalf("call %d, %s %s:\n got %+v\nwant %+v", call, charges[i].Limit.Name(), charges[i].Key, got[i], want[i])
						}
						if got[i].Begun {
							begun++
						}
						if got[i].Receipt.Cost > 0 {
							charges[i].Receipt = got[i].Receipt
							made = append(made, charges[i])
						}
					}
					for len(made) > 0 && r.IntN(3) == 0 {
						i := r.IntN(len(made))
						c := made[i]
						made[i] = made[len(made)-1]
						made = made[:len(made)-1]
						c.Cost = int64(r.IntN(5))
						if r.IntN(2) == 0 || c.Limit.Algorithm() == store.Concurrency {
							c.Cost = 0
						}
						var got, want [1]store.Result
						if err := s.Settle(ctx, []store.Charge{c}, got[:]); err != nil {
							t.Fatal(err)
						}
						ref.settle(&c, &want[0])
						if got != want {
							t.Fatalf("call %d, settling %s %s at %d of %d:\n got %+v\nwant %+v", call, c.Limit.Name(), c.Key, c.Cost, c.Receipt.Cost, got[0], want[0])
						}
					}
				}
				st := s.Stats()
				t.Logf("%+v; the reference holds %d", st, len(ref.states))
				if st.Expired < uint64(calls/10) || st.Overflow > 0 || begun < calls/2000 {
					t.Errorf("nothing was put to the test: %+v, %d bans", st, begun)
				}
			})
		})
	}
}

// However many keys have expired, a few seconds of calls on one other key drop
// them, at any pace.
func TestBusyKeySweeps(t *testing.T) {
	for _, pace := range []time.Duration{100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		for _, algorithm := range []store.Algorithm{store.TokenBucket, store.FixedWindow} {
			t.Run(fmt.Sprint(algorithm, pace), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 50_000
					s := memory.New(memory.Config{})
					l := newLimit(t, store.Spec{Algorithm: algorithm, Units: 1, Period: 30 * time.Second})
					kept := newLimit(t, store.Spec{Name: "kept", Units: 1, Period: time.Hour})
					for i := range n {
						take(t, s, fmt.Sprint(i), l, 1)
					}
					for i := range 1000 {
						take(t, s, fmt.Sprint(i), kept, 1)
					}
					time.Sleep(31 * time.Second)
					for range 3 * time.Second / pace {
						take(t, s, "busy", l, 1)
						time.Sleep(pace)
					}
					if st := s.Stats(); st.Keys < 1001 || st.Keys > 1001+n/20 {
						t.Errorf("%d of %d expired keys are kept", st.Keys-1001, n)
					}
					for i := range 1000 {
						if take(t, s, fmt.Sprint(i), kept, 1).OK {
							t.Fatalf("live key %d was dropped", i)
						}
					}
				})
			})
		}
	}
}

// New keys all the time, each seen once: what is kept follows what is live.
func TestChurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		l := newLimit(t, store.Spec{Units: 1, Period: 500 * time.Millisecond})
		most := int64(0)
		for i := range 100_000 {
			take(t, s, fmt.Sprint(i), l, 1)
			time.Sleep(50 * time.Microsecond) // 10,000 are live
			most = max(most, s.Stats().Keys)
		}
		if most > 40_000 {
			t.Errorf("%d keys were held at a time, 10,000 of them live", most)
		}
		t.Logf("%d at the most", most)
	})
}

// 40 bytes for each of a million token buckets, at any number on the way
// there: also just after the tables have grown.
func TestHeapPerKey(t *testing.T) {
	if testing.Short() || memory.RaceDetector {
		t.Skip("a million keys")
	}
	last, most := heapPerKey(t, addresses(t, 1_000_000), newLimit(t, store.Spec{Units: 1, Period: 24 * time.Hour}))
	t.Logf("%.1f bytes a key at a million, %.1f at the most from 100,000 on", last, most)
	if last > 40 || most > 40 {
		t.Errorf("%.1f bytes a key at a million, %.1f at the most: more than 40", last, most)
	}
}
