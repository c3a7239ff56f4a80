package redisstore

import (
	"context"
	"errors"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Settle implements store.Store. All charges of a cluster slot or a server are settled in one
// call.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	err := s.settle(ctx, charges, results)
	if fault.Temporary(err) || err != nil && errors.Is(err, ctx.Err()) {
		s.unreleased.add(charges)
	}
	return err
}

// settle is Settle without retries. All charges go into one call, unless they may be on several sites.
func (s *Store) settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		s.updateRenewals(charges)
		return err
	}
	if s.layout != oneServer && len(charges) > 1 {
		return s.settleAcrossSites(ctx, charges, results)
	}
	call := s.newSettle()
	for i := range charges {
		s.addCharge(&call.Body, &charges[i], s.keyOf(&charges[i]), i)
	}
	call.Body.site = s.layout.siteOf(call.Body.keys[0])
	reusable, err := s.settles.Do(ctx, call)
	if err == nil {
		copy(results, call.Body.results)
	}
	if reusable {
		s.settleCalls.Put(call)
	}
	return err
}

// settleAcrossSites settles charges that may be on several sites.
func (s *Store) settleAcrossSites(ctx context.Context, charges []store.Charge, results []store.Result) error {
	var parts []*batch.Call[settleRequest]
	partOf := make(map[site]*batch.Call[settleRequest])
	for i := range charges {
		key := s.keyOf(&charges[i])
		at := s.layout.siteOf(key)
		part := partOf[at]
		if part == nil {
			part = batch.NewCall[settleRequest]()
			part.Body.site = at
			partOf[at] = part
			parts = append(parts, part)
		}
		s.addCharge(&part.Body, &charges[i], key, i)
	}
	for _, part := range parts {
		s.settles.Submit(part)
	}
	var failed error
	made := false
	for _, part := range parts {
		if _, err := part.Wait(ctx); err != nil {
			failed = fault.Worse(failed, err)
			continue
		}
		made = true
		for j, i := range part.Body.indexes {
			results[i] = part.Body.results[j]
		}
	}
	if made {
		return fault.PartlyMade(failed)
	}
	return failed
}

// newSettle returns a call without charges.
func (s *Store) newSettle() *batch.Call[settleRequest] {
	call, ok := s.settleCalls.Get().(*batch.Call[settleRequest])
	if !ok {
		return batch.NewCall[settleRequest]()
	}
	call.Renew()
	call.Body.clear()
	return call
}

// addCharge adds a charge, and stops or changes the renewal of its lease.
func (s *Store) addCharge(w *settleRequest, c *store.Charge, key string, index int) {
	oneSlot := s.updateRenewal(key, c)
	w.onlyReleases = oneSlot && (w.onlyReleases || len(w.charges) == 0)
	w.add(*c, key, index)
}

// keyOf returns the server's key of a charge.
func (s *Store) keyOf(c *store.Charge) string { return wire.StorageKey(s.prefix, c.Key, c.Limit) }

// updateRenewals is updateRenewal for charges that aren't sent. So a lease that they release expires even
// if its release isn't retried.
func (s *Store) updateRenewals(charges []store.Charge) {
	for i := range charges {
		if c := &charges[i]; c.Limit != nil {
			s.updateRenewal(s.keyOf(c), c)
		}
	}
}

// updateRenewal stops the renewal of the lease that a charge releases, or has a lease renewed with the
// slots that the charge leaves it. oneSlot reports whether the charge releases a lease of this store that
// never had more than one slot.
func (s *Store) updateRenewal(key string, c *store.Charge) (oneSlot bool) {
	switch {
	case releases(c):
		l, held := s.leases.stop(key, c.Receipt.Lease)
		return held && !l.several
	case c.Receipt.Lease != (store.LeaseID{}):
		s.leases.amend(key, c.Receipt.Lease, c.Cost)
	}
	return false
}

// releases reports whether a settled charge releases a lease.
func releases(c *store.Charge) bool { return c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) }
