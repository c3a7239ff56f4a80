package failover_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// A primary that can be read but not written counts as down, and stays so.
func TestReadOnlyPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{written: errReadOnly}
		var events []change
		s := observed(t, failover.New(p, &side{}, failover.WithThreshold(2)), func(e change) { events = append(events, e) })
		trip(t, s, 2)
		for range 40 {
			time.Sleep(250 * time.Millisecond)
			if r, err := take(s); err != nil || r.Path != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		synctest.Wait()
		if got, want := s.Stats(), (failover.Stats{State: failover.Open, Failures: 2, Fallbacks: 42, Opened: 1, Probes: 40}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		p.set(func(p *side) { p.written = nil })
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if len(events) != 2 || events[0].Err != errReadOnly || s.Stats().Probes != 41 || s.State() != failover.Closed {
			t.Errorf("%v, events %+v", s.State(), events)
		}
	})
}

// An answer that denies the probe's charge proves no write.
func TestDeniedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		s := failover.New(p, nil, failover.WithThreshold(1))
		trip(t, s, 1)
		p.set(func(p *side) { p.err, p.denies = nil, true })
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.Stats(); got.State != failover.Open || got.Probes != 4 {
			t.Errorf("%+v", got)
		}
		p.set(func(p *side) { p.denies = false })
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if s.State() != failover.Closed {
			t.Error(s.State())
		}
	})
}

// The probe charges each key of the call that opened the breaker once, and not
// those of calls that fail later.
func TestProbedKeys(t *testing.T) {
	keys := func(charges []store.Charge) (keys []string) {
		for _, c := range charges {
			if isProbe([]store.Charge{c}) {
				keys = append(keys, c.Key)
			}
		}
		return keys
	}
	other, err := store.NewLimit(store.Spec{Name: "other", Units: 1, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int) (charges []store.Charge, keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
			charges = append(charges, store.Charge{Key: keys[i], Limit: limit, Cost: 3, MaxWait: time.Second, DryRun: true})
		}
		return charges, keys
	}
	eight, names := many(8)
	ten, _ := many(10)
	for _, tt := range []struct {
		name string
		call func(s *failover.Store) error
		want []string
	}{
		{"take", func(s *failover.Store) error { return s.Take(t.Context(), eight, make([]store.Result, 8)) }, names},
		{"many", func(s *failover.Store) error { return s.Take(t.Context(), ten, make([]store.Result, 10)) }, names},
		{"one key of two limits", func(s *failover.Store) error {
			return s.Take(t.Context(), []store.Charge{{Key: "a", Limit: limit, Cost: 1}, {Key: "b", Limit: limit}, {Key: "a", Limit: other, Cost: 1}}, make([]store.Result, 3))
		}, []string{"a", "b"}},
		{"settle", func(s *failover.Store) error { _, err := settle(s, store.Receipt{Cost: 1}); return err }, []string{"k"}},
		{"reset", func(s *failover.Store) error { _, err := s.Reset(t.Context(), "r", limit); return err }, []string{"r"}},
		{"reset of no limits", func(s *failover.Store) error { _, err := s.Reset(t.Context(), "r"); return err }, []string{"r"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &side{err: errDown}
				s := failover.New(p, nil, failover.WithThreshold(1))
				p.set(func(p *side) { p.hang = 100 * time.Millisecond })
				go takeFor(t.Context(), s, "late")
				synctest.Wait()
				p.set(func(p *side) { p.hang = 0 })
				if err := tt.call(s); !errors.Is(err, errDown) {
					t.Fatal(err)
				}
				p.fail(nil)
				time.Sleep(250 * time.Millisecond)
				synctest.Wait()
				if got := keys(p.takes); !slices.Equal(got, tt.want) || s.State() != failover.Closed {
					t.Errorf("probed %q, want %q; %v", got, tt.want, s.State())
				}
			})
		})
	}
}

// A probe runs the algorithm of what failed, as often as needed, and holds no slot.
func TestProbedAlgorithms(t *testing.T) {
	for _, spec := range append(versionstest.Kinds(t),
		store.Spec{Algorithm: store.TokenBucket, Units: 5, Period: time.Hour, Debt: true, Burst: store.None},
		store.Spec{Algorithm: store.IntervalBucket, Units: 5, Window: store.Daily},
		store.Spec{Algorithm: store.SlidingWindow, Units: 5, Period: time.Hour, Buckets: 101},
		store.Spec{Algorithm: store.SlidingWindow, Units: 5, Period: time.Hour, Buckets: 1000},
		store.Spec{Algorithm: store.WarmUp, Units: 5, Period: time.Hour, WarmUp: time.Microsecond},
	) {
		synctest.Test(t, func(t *testing.T) {
			spec.Name = "own"
			own, err := store.NewLimit(spec)
			if err != nil {
				t.Fatal(err)
			}
			p := newGate(memstore.New())
			s := failover.New(p, nil, failover.WithThreshold(1), failover.WithProbe(time.Millisecond, time.Second))
			for range 3000 {
				p.shut.Store(true)
				if err := s.Take(t.Context(), []store.Charge{{Key: "k", Limit: own, Cost: 1}}, make([]store.Result, 1)); err == nil {
					t.Fatal("no error")
				}
				p.shut.Store(false)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if s.State() != failover.Closed {
					_, err := s.Degraded()
					t.Fatalf("%v: %+v, %v", spec.Algorithm, s.Stats(), err)
				}
			}
			if last := p.Last(); !isProbe([]store.Charge{last}) || last.Limit.Algorithm() != spec.Algorithm {
				t.Errorf("%v: probed with %v", spec.Algorithm, last.Limit.Algorithm())
			}
		})
	}
}

// A probe takes nothing from the limits of its key, and a key can be probed as often as
// needed.
func TestProbeHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		p := newGate(m)
		s := failover.New(p, nil, failover.WithThreshold(1), failover.WithProbe(time.Millisecond, 250*time.Millisecond))
		results := make([]store.Result, 1)
		for range 1000 {
			p.shut.Store(true)
			if err := s.Take(t.Context(), charge(), results); err == nil {
				t.Fatal("no error")
			}
			p.shut.Store(false)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if s.State() != failover.Closed {
				t.Fatalf("%+v", s.Stats())
			}
		}
		peek := []store.Charge{{Key: "k", Limit: limit}}
		if err := s.Take(t.Context(), peek, results); err != nil || results[0].Remaining != 10 {
			t.Errorf("%+v, %v", results[0], err)
		}
	})
}

// One of three parts is down. However healthy the others are, the breaker opens once,
// and closes when that part is back.
func TestPrimaryDownInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{}, &side{}
		var events []change
		s := observed(t, failover.New(p, q, failover.WithThreshold(3)), func(e change) { events = append(events, e) })
		p.set(func(p *side) { p.lost = map[string]error{"c": errDown} })
		// Successes between: the calls of the part that is down fall back, each
		// by itself.
		for range 100 {
			for _, key := range []string{"a", "c", "b", "c", "c"} {
				if r, err := takeFor(t.Context(), s, key); err != nil || (r.Path == 1) != (key == "c") {
					t.Fatalf("%s: %+v, %v", key, r, err)
				}
			}
		}
		if got, want := s.Stats(), (failover.Stats{Failures: 300, Fallbacks: 300}); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		for range 3 {
			takeFor(t.Context(), s, "c")
		}
		opened := time.Now()
		for range 60 {
			time.Sleep(time.Second)
			for _, key := range []string{"a", "b", "c"} {
				if r, err := takeFor(t.Context(), s, key); err != nil || r.Path != 1 {
					t.Fatalf("%s: %+v, %v", key, r, err)
				}
			}
		}
		// Another part goes down before the first is back: one more cycle.
		p.set(func(p *side) { p.lost["b"] = errReadOnly })
		time.Sleep(time.Second)
		p.set(func(p *side) { delete(p.lost, "c") })
		time.Sleep(time.Second)
		for range 3 {
			takeFor(t.Context(), s, "b")
		}
		time.Sleep(time.Minute)
		p.set(func(p *side) { delete(p.lost, "b") })
		time.Sleep(time.Second)
		synctest.Wait()
		var states []failover.State
		for _, e := range events {
			states = append(states, e.To)
		}
		if want := []failover.State{failover.Open, failover.Closed, failover.Open, failover.Closed}; !slices.Equal(states, want) {
			t.Fatalf("%+v", events)
		}
		if !events[0].At.Equal(opened) || events[0].Err != errDown || events[2].Err != errReadOnly {
			t.Errorf("%+v", events)
		}
	})
}
