package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

// releasedSlot identifies the slot that a release frees. Keeping each slot once bounds how many releases
// retrying callers can add: no more than the primary gave out before the breaker opened,
// since it gives out nothing after that.
type releasedSlot struct {
	key, limit string
	receipt    store.Receipt
}

func slotOf(c *store.Charge) releasedSlot { return releasedSlot{c.Key, c.Limit.Name(), c.Receipt} }

// pendingRelease is a release that the primary hasn't made yet.
type pendingRelease struct {
	charge store.Charge
	tried  time.Time // when it was first tried in the background; zero: it wasn't
}

// keepFor is how long a release is tried again that the primary fails. An outage may last
// longer: a release is given up only when it fails, never while no store is asked.
const keepFor = time.Minute

// keepReleases keeps the releases among charges that weren't made because the breaker is open.
func (s *Store) keepReleases(charges []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if c.Cost != 0 || c.Receipt.Lease == (store.LeaseID{}) {
			continue
		}
		if _, known := s.pending[slotOf(c)]; !known {
			s.keepRelease(pendingRelease{charge: *c})
		}
	}
}

// keepRelease has a release made in the background. The caller holds mu.
func (s *Store) keepRelease(k pendingRelease) {
	if s.life.Err() != nil {
		return
	}
	if s.pending == nil {
		s.pending = map[releasedSlot]pendingRelease{}
	}
	s.pending[slotOf(&k.charge)] = k
	s.startProbing() // the breaker may have closed meanwhile
}

// makeReleases makes the pending releases on the primary, one per call, so that one failure
// doesn't fail the rest. Those that fail, or that the breaker doesn't let through, are
// kept again.
func (s *Store) makeReleases(all map[releasedSlot]pendingRelease) {
	for _, k := range all {
		charges := []store.Charge{k.charge}
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		err := s.ask(s.life, charges, func() error { // a timeout is the primary's failure
			return recoverPanic(func() error { return s.primary.Settle(ctx, charges, make([]store.Result, 1)) })
		})
		cancel()
		if err == nil {
			continue
		}
		if err != errNotAsked {
			if k.tried.IsZero() {
				k.tried = time.Now()
			}
			if time.Since(k.tried) >= keepFor {
				continue
			}
		}
		s.mu.Lock()
		s.keepRelease(k)
		s.mu.Unlock()
	}
}
