package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

// slot identifies what a release frees. Keeping each slot once bounds what retrying
// callers can pile up: no more than the primary gave out before the breaker opened,
// since it gives out nothing after that.
type slot struct {
	key, limit string
	receipt    store.Receipt
}

func slotOf(c *store.Charge) slot { return slot{c.Key, c.Limit.Name(), c.Receipt} }

// kept is a release that the primary hasn't made yet.
type kept struct {
	charge store.Charge
	tried  time.Time // when it was first tried in the background; zero: it wasn't
}

// keepFor is how long a release is tried again that the primary fails. An outage may last
// longer: a release is given up only when it fails, never while no store is asked.
const keepFor = time.Minute

// keep remembers the releases among charges that the open breaker has kept from the
// primary.
func (s *Store) keep(charges []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if c.Cost != 0 || c.Receipt.Lease == (store.LeaseID{}) {
			continue
		}
		if _, known := s.kept[slotOf(c)]; !known {
			s.keepOne(kept{charge: *c})
		}
	}
}

// keepOne has a release made in the background. The caller holds mu.
func (s *Store) keepOne(k kept) {
	if s.life.Err() != nil {
		return
	}
	if s.kept == nil {
		s.kept = map[slot]kept{}
	}
	s.kept[slotOf(&k.charge)] = k
	s.work() // the breaker may have closed meanwhile
}

// release makes the kept releases on the primary, one per call, so that one failure
// doesn't fail the rest. Those that fail, or that the breaker doesn't let through, are
// kept again.
func (s *Store) release(all map[slot]kept) {
	for _, k := range all {
		charges := []store.Charge{k.charge}
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		err := s.ask(s.life, charges, func() error { // a timeout is the primary's failure
			return caught(func() error { return s.primary.Settle(ctx, charges, make([]store.Result, 1)) })
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
		s.keepOne(k)
		s.mu.Unlock()
	}
}
