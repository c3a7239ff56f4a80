package redisstore

import (
	"context"
	"errors"
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
	settled bool // part of it has been
	// unlessReset: settle only if the keys haven't been reset since they were charged.
	unlessReset bool
}

func siteOfSettling(w *settling) site { return w.site }

func (w *settling) add(c store.Charge, key string, index int) {
	w.charges = append(w.charges, c)
	w.results = append(w.results, store.Result{})
	w.keys = append(w.keys, key)
	w.indexes = append(w.indexes, index)
}

// Settle implements store.Store. The charges of one slot or server are settled in one
// call, several slots or servers each in a call of their own.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	err := s.settle(ctx, charges, results)
	if IsFailure(err) || err != nil && errors.Is(err, ctx.Err()) {
		s.letGo(charges)
	}
	return err
}

func (s *Store) settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		s.release(charges)
		return err
	}
	s.release(charges)
	var tickets []*ticket[settling]
	var at map[site]int // of tickets, if there may be many
	if s.layout != oneServer && len(charges) > 1 {
		at = make(map[site]int)
	}
	for i := range charges {
		key := storageKey(s.prefix, charges[i].Key, charges[i].Limit)
		p := s.siteOf(key)
		n, known := at[p]
		if !known && (at != nil || len(tickets) == 0) {
			n = len(tickets)
			tickets = append(tickets, newTicket[settling]())
			tickets[n].what.site = p
			if at != nil {
				at[p] = n
			}
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
	made := false
	for _, t := range tickets {
		if _, err := t.wait(ctx); err != nil {
			failed = graver(failed, err)
			continue
		}
		made = true
		for j, i := range t.what.indexes {
			results[i] = t.what.results[j]
		}
	}
	if made {
		return uncertain(failed)
	}
	return failed
}

// release ends the renewal of leases that are given back, whatever the outcome of the
// call: if the release of a slot fails, it is tried again, until its lease expires.
func (s *Store) release(charges []store.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) && c.Limit != nil {
			s.leases.drop(storageKey(s.prefix, c.Key, c.Limit), c.Receipt.Lease)
		}
	}
}

// sendSettles calls the server for a batch.
func (s *Store) sendSettles(ctx context.Context, batch []*ticket[settling]) {
	for _, t := range batch {
		w := &t.what
		t.failed, w.settled = nil, false // also if it is sent again
		w.made = make([]settlement, len(w.charges))
		for i := range w.made {
			w.made[i] = settlement{charge: &w.charges[i], result: &w.results[i], key: w.keys[i], unlessReset: w.unlessReset}
		}
	}
	left := batch
	var asked []int64
	for n := 0; n < tries && len(left) > 0; n++ {
		var more []int64
		left, more = s.settleOnce(ctx, left, asked)
		asked = append(asked, more...)
	}
	for _, t := range left {
		t.failed = graver(t.failed, fmt.Errorf("redisstore: %w: %w", ErrUnavailable, errAsks))
	}
	for _, t := range batch {
		if t.what.settled {
			t.failed = uncertain(t.failed)
		}
	}
}

// settleOnce returns the tickets of which something wasn't settled because windows of
// the calendar were missing, and the instants asked for.
func (s *Store) settleOnce(ctx context.Context, batch []*ticket[settling], asked []int64) (again []*ticket[settling], more []int64) {
	groups := grouped(batch, siteOfSettling)
	var pieces [][]*settlement // of the groups, in their order
	var calls []call
	told := s.told(asked)
	for _, group := range groups {
		var made []*settlement
		for _, t := range group {
			for j := range t.what.made {
				made = append(made, &t.what.made[j])
			}
		}
		for piece := range slices.Chunk(made, mostKeys) {
			script, keys, args := settleArgs(piece, told)
			args = append(make([]any, s.head(keys)), args...)
			calls = append(calls, s.call(script, group[0].what.site, keys, args))
			pieces = append(pieces, piece)
		}
	}
	s.exec(ctx, calls)
	stale := make(map[*settlement]bool)
	failed := make(map[*settlement]error)
	for i, piece := range pieces {
		reply, err := calls[i].cmd.Result()
		err = classified(err)
		if err == nil {
			var now int64
			var left unanswered[*settlement]
			if now, left, err = settleAnswer(piece, reply); err != nil {
				err = unread(err)
			} else {
				s.learn(now)
			}
			for _, m := range left.what {
				stale[m] = true
			}
			more = append(more, left.asked...)
		}
		if err != nil {
			for _, m := range piece {
				failed[m] = err
			}
		}
	}
	for _, t := range batch {
		var left []settlement
		for j := range t.what.made {
			m := &t.what.made[j]
			s.denies.forget(m.charge.Key) // made, for all that is known
			switch err := failed[m]; {
			case err != nil:
				t.failed = graver(t.failed, err)
			case stale[m]:
				left = append(left, *m)
			default:
				t.what.settled = true
			}
		}
		if len(left) > 0 {
			t.what.made = left
			again = append(again, t)
		}
	}
	return again, more
}
