package redisstore

import (
	"context"
	"fmt"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Take implements store.Store. For calls whose charges are in several slots of a
// cluster, see the package comment.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		return err
	}
	if s.prefetching != nil && len(charges) == 1 {
		return s.takePrefetched(ctx, charges, results)
	}
	if s.denies.deny(charges, results) {
		return nil
	}
	return s.ask(ctx, charges, results)
}

// takePrefetched is Take for a store that prefetches. It looks at the prefetched tokens before the deny
// cache: the server may have no tokens left because this store has them.
func (s *Store) takePrefetched(ctx context.Context, charges []store.Charge, results []store.Result) error {
	c := &charges[0]
	if s.prefetching.take(c, &results[0]) || s.denies.deny(charges, results) {
		return nil
	}
	k, n := s.prefetching.beginFetch(c)
	if n == 0 {
		return s.ask(ctx, charges, results)
	}
	bulk, taken := []store.Charge{*c}, make([]store.Result, 1)
	bulk[0].Cost = n
	err := s.ask(ctx, bulk, taken)
	if err != nil {
		taken[0] = store.Result{}
	}
	ok, over := s.prefetching.endFetch(c, k, taken[0], n, &results[0])
	if over > 0 { // wait, so a program that closes the client after its last call loses no tokens
		<-s.refunds.refundTokens(store.Charge{Key: c.Key, Limit: c.Limit, Cost: n - over, Receipt: taken[0].Receipt})
	}
	if ok || err != nil {
		return err
	}
	return s.ask(ctx, charges, results)
}

// ask makes the server decide.
func (s *Store) ask(ctx context.Context, charges []store.Charge, results []store.Result) error {
	call := s.newTake()
	if err := call.Body.fill(s.prefix, charges); err != nil {
		return err
	}
	if s.layout != oneServer {
		call.Body.site = s.layout.siteOf(call.Body.Keys[0])
		for _, key := range call.Body.Keys[1:] {
			if s.layout.siteOf(key) != call.Body.site {
				return s.takeAcrossSites(ctx, &call.Body.Decision, results)
			}
		}
	}
	if err := tooMany(len(charges)); err != nil {
		return err
	}
	since := s.denies.instant()
	reusable, err := s.takes.Do(ctx, call)
	if err == nil {
		copy(results, call.Body.Results)
		if call.Body.Granted {
			s.startRenewals(call)
		} else {
			s.denies.remember(charges, results, since)
		}
	}
	if reusable {
		s.takeCalls.Put(call)
	}
	return err
}

// newTake returns a call whose charges are to be filled in.
func (s *Store) newTake() *batch.Call[takeRequest] {
	call, ok := s.takeCalls.Get().(*batch.Call[takeRequest])
	if !ok {
		return batch.NewCall[takeRequest]()
	}
	call.Renew()
	return call
}

// mostCharges is how many charges can be decided together. A script looks at all of
// them before it makes any, and Lua has room for 8000 values in a call.
const mostCharges = 7000

func tooMany(charges int) error {
	if charges <= mostCharges {
		return nil
	}
	return fmt.Errorf("redisstore: %w: a Take of %d charges: use calls of at most %d", ErrConfiguration,
		charges, mostCharges)
}

// startRenewals starts the renewal of the leases of a granted decision.
func (s *Store) startRenewals(call *batch.Call[takeRequest]) {
	d := &call.Body.Decision
	if !d.Granted {
		return
	}
	for i := range d.Charges {
		if r := &d.Results[i]; r.Receipt.Lease != (store.LeaseID{}) {
			s.leases.start(d.Keys[i], &d.Charges[i], r.Receipt.Lease, call.Since, call.Body.decided)
		}
	}
}

// takeAcrossSites takes charges that are on several sites. All sites are
// asked at once, which takes no longer than one. If one denies, the charges at the others
// are refunded.
func (s *Store) takeAcrossSites(ctx context.Context, decision *wire.Decision, results []store.Result) error {
	parts, indexes := s.splitBySite(decision)
	for _, part := range parts {
		if err := tooMany(len(part.Body.Charges)); err != nil {
			return err
		}
	}
	for _, part := range parts {
		s.takes.Submit(part)
	}
	var failed error
	answered := make([]*batch.Call[takeRequest], 0, len(parts))
	granted := true
	for _, part := range parts {
		if _, err := part.Wait(ctx); err != nil {
			failed = fault.Worse(failed, err)
			continue
		}
		answered = append(answered, part)
		granted = granted && part.Body.Granted
	}
	if failed != nil || !granted {
		if err := s.refunds.refundParts(ctx, answered, parts[0].Since.Add(s.timeout)); err != nil {
			return fault.PartlyMade(err)
		}
	}
	if failed != nil {
		return failed
	}
	for n, part := range parts {
		for j, i := range indexes[n] {
			results[i] = part.Body.Results[j]
		}
		if granted {
			s.startRenewals(part)
		}
	}
	return nil
}

// splitBySite returns a call for each site of a decision, and the indexes of its charges in each.
func (s *Store) splitBySite(decision *wire.Decision) (parts []*batch.Call[takeRequest], indexes [][]int) {
	partOf := make(map[site]int)
	for i, key := range decision.Keys {
		at := s.layout.siteOf(key)
		n, known := partOf[at]
		if !known {
			n = len(parts)
			partOf[at] = n
			part := batch.NewCall[takeRequest]()
			part.Body.site = at
			parts, indexes = append(parts, part), append(indexes, nil)
		}
		indexes[n] = append(indexes[n], i)
		d := &parts[n].Body.Decision
		d.Charges = append(d.Charges, decision.Charges[i])
		d.Keys = append(d.Keys, key)
		d.Leases = append(d.Leases, decision.Leases[i])
		d.Results = append(d.Results, store.Result{})
	}
	return parts, indexes
}
