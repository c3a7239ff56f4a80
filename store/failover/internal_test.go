package failover

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// scripted is a store whose Take fails with err, and that counts releases.
type scripted struct {
	err            error
	taken, settled int
}

func (s *scripted) Take(context.Context, []store.Charge, []store.Result) error {
	s.taken++
	return s.err
}

func (s *scripted) Settle(_ context.Context, charges []store.Charge, _ []store.Result) error {
	s.settled += len(charges)
	return nil
}

// A caller that finds the breaker open may keep its release only after the breaker has
// closed and the goroutine is gone.
func TestKeptTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{}
		s := New(p, nil)
		for range 3 {
			s.keep([]store.Charge{{Key: "k", Limit: probeLimit, Receipt: store.Receipt{Cost: 1, Lease: store.Lease(7)}}})
			synctest.Wait()
		}
		if p.settled != 3 || s.probing || len(s.kept) != 0 {
			t.Errorf("settled %d, %d kept", p.settled, len(s.kept))
		}
	})
}

// Calls pass an open breaker without touching the library's: half open, it would count
// them instead of a probe.
func TestOpenIsNotEntered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(&scripted{err: errors.New("down")}, nil, WithThreshold(1), WithProbe(time.Hour, 0))
		defer s.Close()
		charges, results := []store.Charge{{Key: "k", Limit: probeLimit, Cost: 1}}, make([]store.Result, 1)
		for range 10 {
			s.Take(t.Context(), charges, results)
			time.Sleep(time.Second)
		}
		if got := s.breaker.Counts(); got.Requests != 0 || s.State() != Open {
			t.Errorf("%v, %+v", s.State(), got)
		}
	})
	// One who has seen it closed and gets in as it opens turns back.
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{err: errors.New("down")}
		s := New(p, nil, WithThreshold(1), WithProbe(time.Hour, 0))
		defer s.Close()
		charges, results := []store.Charge{{Key: "k", Limit: probeLimit, Cost: 1}}, make([]store.Result, 1)
		s.Take(t.Context(), charges, results)
		time.Sleep(time.Second)
		s.open.Store(false) // as it was when he looked
		if err := s.Take(t.Context(), charges, results); !errors.Is(err, ErrOpen) || p.taken != 1 {
			t.Errorf("%v, asked %d times", err, p.taken)
		}
	})
	if !excluded(errNotAsked) || !excluded(final{error: errNotAsked}) || excluded(final{error: errNotAsked, counted: true}) {
		t.Error("who was not asked is no success and no failure")
	}
}

// A probe that the library doesn't let through wasn't made, and is no failure.
func TestProbeNotLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		s := New(&scripted{err: down}, nil, WithThreshold(1), WithProbe(1, 0)) // the library's clock must have moved on by 2
		defer s.Close()
		charges, results := []store.Charge{{Key: "k", Limit: probeLimit, Cost: 1}}, make([]store.Result, 1)
		s.Take(t.Context(), charges, results)
		for range 4 {
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if err := s.Take(t.Context(), charges, results); err.Error() != ErrOpen.Error()+": down" || !errors.Is(err, down) {
				t.Fatal(err)
			}
		}
		if got := s.Stats().Probes; got != 2 {
			t.Errorf("%d probes in 4 ns, want 2", got)
		}
	})
}
