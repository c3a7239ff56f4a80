package failover_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// fleet is n processes whose primary fails.
func fleet(t *testing.T, n int) (all []*failover.Store) {
	for range n {
		s := failover.New(&side{err: errDown}, memstore.New(), failover.WithThreshold(1), failover.WithProbe(1000*time.Hour, time.Second), failover.WithProcesses(n))
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, s)
	}
	return all
}

// ask makes a charge in a process.
func ask(t *testing.T, s *failover.Store, l *store.Limit, cost int64) store.Result {
	t.Helper()
	r := make([]store.Result, 1)
	if err := s.Take(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: cost}}, r); err != nil {
		t.Fatal(err)
	}
	return r[0]
}

// capacity returns the capacity of the part of a limit that has given an answer.
func capacity(l *store.Limit, r store.Result) int64 {
	return inside.Full(inside.Part(l, int64(r.Processes)), 0)
}

// Processes whose primary fails admit together what the limit admits, rounded up in each.
func TestProcessesShareALimit(t *testing.T) {
	for _, tc := range []struct {
		name string
		spec store.Spec
		n    int
		want int64 // units that pass at once
		part int64 // shown
	}{
		{"bucket", store.Spec{Units: 100, Period: time.Hour}, 8, 104, 13},
		{"bucket with a burst", store.Spec{Units: 100, Period: time.Hour, Burst: 20}, 8, 24, 3},
		{"window", store.Spec{Units: 10_000, Algorithm: store.FixedWindow, Window: store.Daily}, 8, 10_000, 1250},
		{"sliding", store.Spec{Units: 10, Algorithm: store.SlidingWindow, Period: time.Hour}, 3, 12, 4},
		{"counter", store.Spec{Units: 10, Algorithm: store.SlidingCounter, Period: time.Hour}, 3, 12, 4},
		{"log", store.Spec{Units: 2, Algorithm: store.SlidingLog, Period: time.Hour}, 3, 3, 1},
		{"interval", store.Spec{Units: 10, Algorithm: store.IntervalBucket, Period: time.Hour}, 2, 10, 5},
		{"slots", store.Spec{Units: 10, Algorithm: store.Concurrency}, 4, 12, 3},
		{"one process", store.Spec{Units: 10, Period: time.Hour}, 1, 10, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.spec.Name = "l"
				l, err := store.NewLimit(tc.spec)
				if err != nil {
					t.Fatal(err)
				}
				passed := int64(0)
				for _, s := range fleet(t, tc.n) {
					for {
						r := ask(t, s, l, 1)
						if got := capacity(l, r); got != tc.part {
							t.Fatalf("a capacity of %d is shown, want %d", got, tc.part)
						}
						if !r.OK {
							break
						}
						passed++
					}
				}
				if passed != tc.want {
					t.Errorf("%d processes admit %d, want %d", tc.n, passed, tc.want)
				}
			})
		})
	}
}

// A cost above the part is charged as the whole part, and one above the limit never passes.
func TestCostsAboveThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := store.NewLimit(store.Spec{Name: "tokens", Units: 10_000, Period: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		processes := fleet(t, 8)
		for range 3 {
			for _, s := range processes {
				if r := ask(t, s, l, 4096); r.OK {
					passed++
					if r.Receipt.Cost != 1250 || r.Remaining != 0 || r.Processes != 8 {
						t.Errorf("%+v, want the whole part", r)
					}
				}
			}
		}
		if passed != 8 {
			t.Errorf("%d requests of 4096 pass a limit of 10,000 in 8 processes, want 8", passed)
		}
		if r := ask(t, processes[0], l, 10_001); r.OK || r.RetryAfter != store.Never {
			t.Errorf("a cost above the limit: %+v", r)
		}
		if r := ask(t, processes[0], l, 10_000); r.OK || r.RetryAfter != time.Hour {
			t.Errorf("the whole limit, of a part that is used up: %+v", r)
		}

		// A settlement above the part is a debt.
		time.Sleep(time.Hour)
		r := ask(t, processes[0], l, 4096)
		settled := make([]store.Result, 1)
		if err := processes[0].Settle(context.Background(), []store.Charge{{Key: "k", Limit: l, Cost: 5000, Receipt: r.Receipt}}, settled); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if r := ask(t, processes[0], l, 1); r.OK || settled[0].Processes != 8 {
			t.Errorf("an hour gives 1250 of 5000: %+v, settled %+v", r, settled[0])
		}
		time.Sleep(2*time.Hour + time.Minute)
		if r := ask(t, processes[0], l, 1); !r.OK {
			t.Errorf("after the debt: %+v", r)
		}
	})
}

// A Ban isn't divided, nor is a queue, nor is any limit while the primary decides.
func TestUndivided(t *testing.T) {
	ban, err := store.NewLimit(store.Spec{Name: "ban", Algorithm: store.Ban, Units: 8, Period: time.Hour, Ban: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r := ask(t, fleet(t, 8)[0], ban, 1); r.Remaining != 8 || r.Processes != 0 {
		t.Errorf("a ban: %+v", r)
	}
	// Nor is the queue of a LeakyBucket: as many wait in each process, at the part's rate.
	queue, err := store.NewLimit(store.Spec{Name: "queue", Algorithm: store.LeakyBucket, Units: 80, Period: time.Minute, Queue: 20})
	if err != nil {
		t.Fatal(err)
	}
	for n, last := range map[int]time.Duration{1: 15 * time.Second, 8: 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			waits, delay := 0, time.Duration(0)
			for p := fleet(t, n)[0]; ; waits++ {
				r := make([]store.Result, 1)
				charge := store.Charge{Key: "k", Limit: queue, Cost: 1, MaxWait: time.Hour}
				if err := p.Take(context.Background(), []store.Charge{charge}, r); err != nil {
					t.Fatal(err)
				}
				if !r[0].OK {
					break
				}
				delay = r[0].Delay
			}
			if waits != 1+20 || delay != last {
				t.Errorf("%d processes: %d pass, the last after %v, want 21, the last after %v", n, waits, delay, last)
			}
		})
	}
	up := failover.New(memstore.New(), memstore.New(), failover.WithProcesses(8))
	defer up.Close()
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 80, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r := ask(t, up, l, 1); r.Remaining != 79 || r.Processes != 0 {
		t.Errorf("on the primary: %+v", r)
	}
	// A failover in a failover makes a part of a part.
	inner := failover.New(&side{err: errDown}, memstore.New(), failover.WithProcesses(4))
	defer inner.Close()
	outer := failover.New(&side{err: errDown}, inner, failover.WithProcesses(2))
	defer outer.Close()
	if r := ask(t, outer, l, 1); r.Remaining != 9 || r.Processes != 8 || capacity(l, r) != 10 {
		t.Errorf("a part of a part: %+v", r)
	}
	chunks := inside.Part(inside.Part(inside.WithLeastBurst(l, 30), 2), 4)
	if spec := chunks.Spec(); spec.Burst != 30 || spec.Units != 10 {
		t.Errorf("a part of a part of a limit that needs a burst of 30: %d and a burst of %d", spec.Units, spec.Burst)
	}
	for _, s := range []*failover.Store{
		failover.New(memstore.New(), memstore.New(), failover.WithProcesses(0)),
		failover.New(memstore.New(), memstore.New(), failover.WithProcesses(1_000_001)),
		failover.New(memstore.New(), nil, failover.WithProcesses(2)),
	} {
		wrong := s.Misconfigured()
		if len(wrong) != 1 || !strings.Contains(errors.Join(wrong[0]).Error(), "WithProcesses(") {
			t.Errorf("%v", wrong)
		}
	}
}
