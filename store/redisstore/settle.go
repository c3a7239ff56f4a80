package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/stint-go/stint/store"
)

// settling is what a caller settles at one place.
type settling struct {
	site    site
	charges []store.Charge
	results []store.Result
	keys    []string
	indexes []int // in the caller's slices
	made    []settlement
}

func siteOfSettling(w *settling) site { return w.site }

func (w *settling) add(c store.Charge, key string, index int) {
	w.charges = append(w.charges, c)
	w.results = append(w.results, store.Result{})
	w.keys = append(w.keys, key)
	w.indexes = append(w.indexes, index)
}

// Settle implements store.Store. The charges of one place are settled in one
// call; several places, of a cluster or a ring, each by itself.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		s.release(charges)
		return err
	}
	s.release(charges)
	var tickets []*ticket[settling]
	for i := range charges {
		key := storageKey(s.prefix, charges[i].Key, charges[i].Limit)
		p := s.siteOf(key)
		n := slices.IndexFunc(tickets, func(t *ticket[settling]) bool { return t.what.site == p })
		if n < 0 {
			n = len(tickets)
			tickets = append(tickets, newTicket[settling]())
			tickets[n].what.site = p
		}
		tickets[n].what.add(charges[i], key, i)
	}
	if len(tickets) == 1 {
		if _, err := s.settles.do(ctx, tickets[0]); err != nil {
			return err
		}
		copy(results, tickets[0].what.results)
		return nil
	}
	for _, t := range tickets {
		s.settles.submit(t, false)
	}
	var failed error
	for _, t := range tickets {
		if _, err := t.wait(ctx); err != nil {
			if failed == nil {
				failed = err
			}
			continue
		}
		for j, i := range t.what.indexes {
			results[i] = t.what.results[j]
		}
	}
	return failed
}

// release ends the renewal of leases that are given back, whatever becomes of
// the call: a slot whose release fails comes free with its lease's time.
func (s *Store) release(charges []store.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) && c.Limit != nil {
			s.leases.drop(storageKey(s.prefix, c.Key, c.Limit), c.Receipt.Lease)
		}
	}
}

// sendSettles asks the server for a batch.
func (s *Store) sendSettles(ctx context.Context, batch []*ticket[settling]) {
	for _, t := range batch {
		w := &t.what
		w.made = make([]settlement, len(w.charges))
		for i := range w.made {
			w.made[i] = settlement{charge: &w.charges[i], result: &w.results[i], key: w.keys[i]}
		}
	}
	for _, many := range []bool{false, true} {
		if batch = s.settleOnce(ctx, batch, many); len(batch) == 0 {
			return
		}
	}
	for _, t := range batch {
		t.failed = fmt.Errorf("redisstore: %w: %w", ErrUnavailable, errStale)
	}
}

// settleOnce returns those of which something was not settled for want of the
// calendar.
func (s *Store) settleOnce(ctx context.Context, batch []*ticket[settling], many bool) (again []*ticket[settling]) {
	groups := grouped(batch, siteOfSettling)
	made := make([][]*settlement, len(groups))
	calls := make([]call, len(groups))
	told := s.told(many)
	for i, group := range groups {
		for _, t := range group {
			for j := range t.what.made {
				made[i] = append(made[i], &t.what.made[j])
			}
		}
		script, keys, args := settleArgs(made[i], told)
		calls[i] = s.call(script, group[0].what.site, keys, append(make([]any, s.head(keys)), args...))
	}
	s.exec(ctx, calls)
	for i, group := range groups {
		reply, err := calls[i].cmd.Result()
		err = classified(err)
		var stale []*settlement
		if err == nil {
			var now int64
			if now, stale, err = settleAnswer(made[i], reply); err != nil {
				err = unread(err)
			} else {
				s.learn(now)
			}
		}
		for _, t := range group {
			t.failed = err
			for j := range t.what.charges { // made, for all that is known
				s.denies.forget(t.what.charges[j].Key)
			}
			if len(stale) == 0 {
				continue
			}
			var left []settlement
			for j := range t.what.made {
				if slices.Contains(stale, &t.what.made[j]) {
					left = append(left, t.what.made[j])
				}
			}
			if t.what.made = left; len(left) > 0 {
				again = append(again, t)
			}
		}
	}
	return again
}
