package failover

import (
	"context"

	"github.com/stint-go/stint/store"
)

// slot identifies what a release frees. Keeping each slot once bounds what retrying
// callers can pile up: no more than the primary gave out before the breaker opened,
// since it gives out nothing after that.
type slot struct {
	key, limit string
	receipt    store.Receipt
}

// keep remembers the releases among charges that the open breaker has kept from the
// primary.
func (s *Store) keep(charges []store.Charge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return
	}
	for i := range charges {
		c := &charges[i]
		if c.Cost != 0 || c.Receipt.Lease == (store.LeaseID{}) {
			continue
		}
		if s.kept == nil {
			s.kept = map[slot]store.Charge{}
		}
		s.kept[slot{c.Key, c.Limit.Name(), c.Receipt}] = *c
	}
	if len(s.kept) > 0 { // the breaker may have closed meanwhile
		s.work()
	}
}

// release makes the kept releases on the primary, one per call, so that one failure
// doesn't fail the rest. Those that the breaker doesn't let through are kept again.
func (s *Store) release(kept map[slot]store.Charge) {
	for _, c := range kept {
		charges := []store.Charge{c}
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		err := s.ask(ctx, charges, func() error {
			return caught(func() error { return s.primary.Settle(ctx, charges, make([]store.Result, 1)) })
		})
		cancel()
		if err == errNotAsked {
			s.keep(charges)
		}
	}
}
