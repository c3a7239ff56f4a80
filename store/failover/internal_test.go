package failover

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
)

// A caller that finds the breaker open may keep its release only after the breaker has
// closed and the goroutine is gone.
func TestKeptTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := storefake.New()
		s := New(p, nil)
		for range 3 {
			s.keepReleases([]store.Charge{{Key: "k", Limit: probeLimit(nil), Receipt: store.Receipt{Cost: 1, Lease: store.Lease(7)}}})
			synctest.Wait()
		}
		if _, settled := p.Counts(); settled != 3 || s.probing || len(s.pending) != 0 {
			t.Errorf("settled %d, %d kept", settled, len(s.pending))
		}
	})
}

// A call counts in the period in which it began: neither its success nor its failure says
// anything about the primary after an outage that came between.
func TestOutcomesOfAnEarlierPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(storefake.New(), nil, WithThreshold(2))
		defer s.Close()
		before, _ := s.circuit.state()
		down := errors.New("down")
		s.recordFailure(before, down, nil)
		if s.State() != Closed {
			t.Fatal("open after one failure")
		}
		s.recordSuccess(before)
		s.recordFailure(before, down, nil)
		if s.State() != Closed {
			t.Fatal("open although a success came between")
		}
		s.recordFailure(before, down, nil)
		if s.State() != Open {
			t.Fatal("closed after two failures in a row")
		}
		s.recordFailure(before, down, nil)
		s.recordSuccess(before)
		if got := s.Stats(); got.State != Open || got.Opened != 1 {
			t.Fatalf("%+v", got)
		}
		s.closeBreaker()
		after, _ := s.circuit.state()
		s.recordFailure(before, down, nil)
		s.recordFailure(after, down, nil)
		if s.State() != Closed {
			t.Fatal("a failure of an earlier period counts")
		}
		s.recordSuccess(before)
		s.recordFailure(after, down, nil)
		if s.State() != Open {
			t.Fatal("a success of an earlier period counts")
		}
	})
}

// A release that the primary goes on failing is tried for a minute.
func TestReleaseIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, last := storefake.New(), time.Time{}
		p.OnSettle = func(*storefake.Call) error {
			last = time.Now()
			return storefake.ErrDown
		}
		s := New(p, nil, WithThreshold(1000))
		start := time.Now()
		s.keepReleases([]store.Charge{{Key: "k", Limit: probeLimit(nil), Receipt: store.Receipt{Cost: 1, Lease: store.Lease(7)}}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if took := last.Sub(start); took < keepFor || took > keepFor+time.Second || len(s.pending) != 0 || s.probing {
			t.Errorf("tried for %v, %d kept", took, len(s.pending))
		}
	})
}
