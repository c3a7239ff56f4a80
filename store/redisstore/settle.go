package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// settling is the settlements of a caller at one place.
type settling struct {
	site    site
	charges []store.Charge
	results []store.Result
	keys    []string
	indexes []int             // in the caller's slices
	room    []wire.Settlement // of which made is a part
	made    []wire.Settlement // those still to be made
	settled bool              // part of it has been
	// unlessReset: settle only if the keys haven't been reset since they were charged.
	unlessReset bool
	// releases: it does no more than release leases of one slot each, which this store held.
	releases bool
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
	if fault.Temporary(err) || err != nil && errors.Is(err, ctx.Err()) {
		s.retryReleases(charges)
	}
	return err
}

func (s *Store) settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		s.stopRenewals(charges)
		return err
	}
	if s.layout == oneServer || len(charges) == 1 {
		t := s.settlingTicket()
		for i := range charges {
			key := wire.StorageKey(s.prefix, charges[i].Key, charges[i].Limit)
			one := s.stopRenewal(key, &charges[i])
			t.Body.releases = one && (t.Body.releases || i == 0)
			t.Body.add(charges[i], key, i)
		}
		t.Body.site = s.siteOf(t.Body.keys[0])
		reusable, err := s.settles.Do(ctx, t)
		if err == nil {
			copy(results, t.Body.results)
		}
		if reusable {
			s.settleTickets.Put(t)
		}
		return err
	}
	var tickets []*batch.Call[settling]
	at := make(map[site]int) // of tickets
	for i := range charges {
		key := wire.StorageKey(s.prefix, charges[i].Key, charges[i].Limit)
		one := s.stopRenewal(key, &charges[i])
		p := s.siteOf(key)
		n, known := at[p]
		if !known {
			n = len(tickets)
			at[p] = n
			tickets = append(tickets, batch.NewCall[settling]())
			tickets[n].Body.site = p
		}
		tickets[n].Body.releases = one && (tickets[n].Body.releases || !known)
		tickets[n].Body.add(charges[i], key, i)
	}
	for _, t := range tickets {
		s.settles.Submit(t)
	}
	var failed error
	made := false
	for _, t := range tickets {
		if _, err := t.Wait(ctx); err != nil {
			failed = fault.Worse(failed, err)
			continue
		}
		made = true
		for j, i := range t.Body.indexes {
			results[i] = t.Body.results[j]
		}
	}
	if made {
		return fault.PartlyMade(failed)
	}
	return failed
}

// stopRenewals ends the renewal of the leases that the charges release, whatever the
// outcome of the call: a release that fails is retried until its lease expires.
func (s *Store) stopRenewals(charges []store.Charge) {
	for i := range charges {
		if c := &charges[i]; c.Limit != nil {
			s.stopRenewal(wire.StorageKey(s.prefix, c.Key, c.Limit), c)
		}
	}
}

// stopRenewal stops the renewal of the lease that the charge releases. It reports whether this
// store held it, and it has never held more than one slot.
func (s *Store) stopRenewal(key string, c *store.Charge) (one bool) {
	if c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) {
		of, held := s.leases.stopRenewal(key, c.Receipt.Lease)
		return held && !of.several
	}
	if c.Receipt.Lease != (store.LeaseID{}) {
		s.leases.amend(key, c.Receipt.Lease, c.Cost)
	}
	return false
}

// settlingTicket returns a ticket without charges.
func (s *Store) settlingTicket() *batch.Call[settling] {
	t, ok := s.settleTickets.Get().(*batch.Call[settling])
	if !ok {
		return batch.NewCall[settling]()
	}
	t.Renew()
	w := &t.Body
	w.charges, w.results, w.keys, w.indexes, w.releases = w.charges[:0], w.results[:0], w.keys[:0], w.indexes[:0], false
	return t
}

// sendSettles calls the server for a batch. Each round sends up to mostKeys settlements to
// each place, in order: the next go when the server has answered those before, since what
// a turn gives back depends on the turns behind it. Had they left together, a script that
// the server lacks, and that is sent again with its text, would be overtaken.
func (s *Store) sendSettles(ctx context.Context, calls []*batch.Call[settling]) {
	for _, t := range calls {
		w := &t.Body
		t.Failed, w.settled = nil, false // also if it is sent again
		w.room = slices.Grow(w.room[:0], len(w.charges))[:len(w.charges)]
		w.made = w.room
		for i := range w.made {
			m := &w.made[i]
			m.Charge, m.Result, m.Key, m.UnlessReset = &w.charges[i], &w.results[i], w.keys[i], w.unlessReset
		}
	}
	left := calls
	var asked []int64
	for n := 0; n < tries && len(left) > 0; {
		again, more, progress := s.settleOnce(ctx, left, asked)
		left, asked = again, append(asked, more...)
		if !progress {
			n++
		}
	}
	for _, t := range left {
		t.Failed = fault.Worse(t.Failed, fmt.Errorf("redisstore: %w: %w", ErrUnavailable, errAsks))
	}
	for _, t := range calls {
		if t.Body.settled {
			t.Failed = fault.PartlyMade(t.Failed)
		}
	}
}

// settleOnce makes one round. It returns the tickets with settlements still to make: later
// ones, and those that weren't made because windows of the calendar were missing,
// with the instants asked for. If one settlement of a ticket fails, its later ones aren't
// sent. progress reports whether at least a part of the round was answered or has failed.
func (s *Store) settleOnce(ctx context.Context, calls []*batch.Call[settling], asked []int64) (again []*batch.Call[settling], more []int64, progress bool) {
	calls, releases := releasesIn(calls)
	var groups [][]*batch.Call[settling]
	if len(calls) > 0 {
		groups = groupBySite(calls, siteOfSettling)
	}
	pieces := make([][]*wire.Settlement, len(groups))
	made := make([][][]*wire.Settlement, len(groups))
	commands := make([]command, len(groups), len(groups)+len(releases))
	times := s.times(asked)
	for i, group := range groups {
		piece := make([]*wire.Settlement, 0, len(group))
		for _, t := range group {
			for j := range t.Body.made[:min(len(t.Body.made), mostKeys-len(piece))] {
				piece = append(piece, &t.Body.made[j])
			}
		}
		made[i] = wire.Group(piece)
		room := 4 + 2*len(made[i]) // for as many keys as there may be
		script, keys, args := wire.SettleArgs(made[i], times, room)
		pieces[i], commands[i] = piece, s.command(script, group[0].Body.site, keys, args[room-s.head(keys):])
	}
	for i := range releases {
		commands = append(commands, command{args: releases[i].args})
	}
	s.exec(ctx, commands)
	for i := range releases {
		s.recordRelease(&releases[i], commands[len(groups)+i].cmd.Err())
		progress = true
	}
	for i, group := range groups {
		piece := pieces[i]
		reply, err := commands[i].cmd.Result()
		err = classify(err)
		var stale []*wire.Settlement
		if err == nil {
			var now int64
			var left wire.Unanswered[*wire.Settlement]
			if now, left, err = wire.SettleAnswer(made[i], reply); err != nil {
				err = unread(err)
			} else {
				s.learn(now)
			}
			stale, more = left.Of, append(more, left.Asked...)
		}
		progress = progress || err != nil || len(stale) < len(piece)
		for _, t := range group {
			w := &t.Body
			sent := min(len(w.made), len(piece))
			for _, m := range piece[:sent] {
				s.denies.forget(m.Charge.Key) // made, for all that is known
			}
			var left []wire.Settlement
			switch {
			case err != nil && sent > 0:
				t.Failed = err
				w.made = nil
				continue
			case len(stale) == 0:
				w.settled = w.settled || sent > 0
			default:
				for _, m := range piece[:sent] {
					if slices.Contains(stale, m) {
						left = append(left, *m)
					} else {
						w.settled = true
					}
				}
			}
			piece = piece[sent:]
			if w.made = append(left, w.made[sent:]...); len(w.made) > 0 {
				again = append(again, t)
			}
		}
	}
	return again, more, progress
}

// release is the release of leases of one key, by one ZREM. The script would also find out how
// many slots are still held, which Settle may leave out, and take the server 15 times as long.
type release struct {
	args    []any // of the command
	tickets []*batch.Call[settling]
}

// releasesIn takes the tickets that only release leases out of a batch, and returns their releases.
func releasesIn(calls []*batch.Call[settling]) (others []*batch.Call[settling], releases []release) {
	if !slices.ContainsFunc(calls, func(t *batch.Call[settling]) bool { return t.Body.releases }) {
		return calls, nil
	}
	of := make(map[string]int, len(calls)) // the release of a key
	for _, t := range calls {
		if !t.Body.releases {
			others = append(others, t)
			continue
		}
		for i := range t.Body.charges {
			key := t.Body.keys[i]
			n, known := of[key]
			if !known {
				n = len(releases)
				of[key] = n
				releases = append(releases, release{args: append(make([]any, 0, 3), "zrem", key)})
			}
			r := &releases[n]
			r.args = append(r.args, t.Body.charges[i].Receipt.Lease[:])
			r.tickets = append(r.tickets, t)
		}
	}
	return others, releases
}

// recordRelease records the outcome of a release.
func (s *Store) recordRelease(r *release, err error) {
	if err != nil && redis.HasErrorPrefix(err, "WRONGTYPE") {
		err = nil // the slots are gone
	}
	err = classify(err)
	for _, t := range r.tickets {
		w := &t.Body
		w.made = nil
		for i := range w.charges {
			c := &w.charges[i]
			s.denies.forget(c.Key)
			w.results[i] = store.Result{OK: true, Receipt: store.Receipt{Lease: c.Receipt.Lease, Path: c.Receipt.Path}}
		}
		if err != nil {
			t.Failed = fault.Worse(t.Failed, err)
		} else {
			w.settled = true
		}
	}
}
