package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// settleRequest is what a Settle asks of one site, and the answer.
type settleRequest struct {
	site    site
	charges []store.Charge
	results []store.Result
	keys    []string
	indexes []int // in the caller's slices
	// unlessReset: settle only if the keys haven't been reset since they were charged.
	unlessReset bool
	// banFor, if positive, bans the keys by hand for so many microseconds: see BanFor of a settlement in package wire.
	banFor int64
	// onlyReleases: it does no more than release leases of one slot each, which this store held.
	onlyReleases bool

	settlements []wire.Settlement // of the charges
	open        []wire.Settlement // those still to be made
	made        bool              // some have been made

	// Room for a batch that this is the first of, if all of it is of one site.
	rounds   [1]round
	commands [1]command
}

func siteOfSettle(w *settleRequest) site { return w.site }

// partsOfSettle reports a request as touched once some of it is settled: that must not be settled again
// with the rest.
func partsOfSettle(w *settleRequest) (*site, []string, bool) { return &w.site, w.keys, !w.made }

func (w *settleRequest) add(c store.Charge, key string, index int) {
	w.charges = append(w.charges, c)
	w.results = append(w.results, store.Result{})
	w.keys = append(w.keys, key)
	w.indexes = append(w.indexes, index)
}

// clear removes the charges, and keeps their room.
func (w *settleRequest) clear() {
	w.charges, w.results, w.keys, w.indexes = w.charges[:0], w.results[:0], w.keys[:0], w.indexes[:0]
	w.onlyReleases = false
}

// begin makes all settlements open. It is called again if they are sent again.
func (w *settleRequest) begin() {
	w.made = false
	w.settlements = slices.Grow(w.settlements[:0], len(w.charges))[:len(w.charges)]
	for i := range w.settlements {
		m := &w.settlements[i]
		m.Charge, m.Result, m.Key = &w.charges[i], &w.results[i], w.keys[i]
		m.UnlessReset, m.BanFor = w.unlessReset, w.banFor
	}
	w.open = w.settlements
}

// settleSender sends batches of settlements.
type settleSender struct {
	*server
	denies *denyCache
}

// send asks the server for a batch. Each round sends up to mostKeys settlements to
// each site, in order: the next go when the server has answered those before, since what
// a turn gives back depends on the turns behind it. Had they left together, a script that
// the server lacks, and that is sent again with its text, would be overtaken.
func (s settleSender) send(ctx context.Context, calls []*batch.Call[settleRequest]) {
	for _, c := range calls {
		c.Failed = nil
		c.Body.begin()
	}
	left := calls
	var asked []int64
	for n := 0; n < maxTries && len(left) > 0; {
		again, more, progress := s.sendRound(ctx, left, asked)
		left, asked = again, append(asked, more...)
		if !progress {
			n++
		}
	}
	for _, c := range left {
		c.Failed = fault.Worse(c.Failed, errCalendar)
	}
	for _, c := range calls {
		if c.Body.made {
			c.Failed = fault.PartlyMade(c.Failed)
		}
	}
}

// sendRound makes one round. It returns the calls with settlements still to make: later
// ones, and those that weren't made because windows of the calendar were missing,
// with the instants asked for. progress reports whether at least a part of the round was answered
// or has failed.
func (s settleSender) sendRound(
	ctx context.Context, calls []*batch.Call[settleRequest], asked []int64,
) (again []*batch.Call[settleRequest], more []int64, progress bool) {
	calls, removals := removalsIn(calls)
	rounds, commands := s.roundsOf(calls, s.times(asked), len(removals))
	for i := range removals {
		commands = append(commands, command{args: removals[i].args})
	}
	s.exec(ctx, commands)
	for i := range removals {
		s.recordRemoval(&removals[i], commands[len(rounds)+i].cmd.Err())
	}
	progress = len(removals) > 0
	for i := range rounds {
		left, asks, advanced := s.readRound(&rounds[i], &commands[i])
		again, more, progress = append(again, left...), append(more, asks...), progress || advanced
	}
	clear(rounds)
	clear(commands)
	return again, more, progress
}

// round is the settlements that one command makes.
type round struct {
	calls       []*batch.Call[settleRequest]
	settlements []*wire.Settlement // the first open ones of the calls
	groups      [][]*wire.Settlement
}

// roundsOf returns a round for each site, and its command. There is room for more commands.
func (s settleSender) roundsOf(
	calls []*batch.Call[settleRequest], times wire.Times, room int,
) (rounds []round, commands []command) {
	if len(calls) == 0 {
		return nil, make([]command, 0, room)
	}
	bySite := groupBySite(calls, siteOfSettle)
	if first := &calls[0].Body; len(bySite) == 1 && room == 0 {
		rounds, commands = first.rounds[:], first.commands[:]
	} else {
		rounds, commands = make([]round, len(bySite)), make([]command, len(bySite), len(bySite)+room)
	}
	for i, calls := range bySite {
		r := round{calls: calls, settlements: make([]*wire.Settlement, 0, len(calls))}
		for _, c := range calls {
			open := c.Body.open
			for j := range open[:min(len(open), mostKeys-len(r.settlements))] {
				r.settlements = append(r.settlements, &open[j])
			}
		}
		r.groups = wire.Group(r.settlements)
		head := s.room(nil) + 2*len(r.groups) // for as many keys as there may be
		script, keys, args := wire.SettleArgs(r.groups, times, head)
		rounds[i], commands[i] = r, s.command(script, calls[0].Body.site, keys, args[head-s.room(keys):])
	}
	return rounds, commands
}

// readRound reads the answer to a round. again are its calls that have settlements still to make; asked
// are the instants whose windows the script lacked. progress reports whether the round made a settlement
// or failed: a failed round fails its calls, which send no more.
func (s settleSender) readRound(
	r *round, answered *command,
) (again []*batch.Call[settleRequest], asked []int64, progress bool) {
	reply, err := answered.cmd.Result()
	err = classify(err)
	var left wire.Unanswered[*wire.Settlement]
	if err == nil {
		var now int64
		if now, left, err = wire.SettleAnswer(r.groups, reply); err != nil {
			err = malformed(err)
		} else {
			s.recordClock(now)
		}
	}
	for _, m := range r.settlements {
		s.denies.forget(m.Charge.Key) // even after an error: the server may have made it
	}
	if err != nil {
		r.fail(err)
		return nil, nil, true
	}
	sent := r.settlements
	for _, c := range r.calls {
		n := min(len(c.Body.open), len(sent))
		c.Body.record(sent[:n], left.Items)
		if sent = sent[n:]; len(c.Body.open) > 0 {
			again = append(again, c)
		}
	}
	return again, left.Asked, len(left.Items) < len(r.settlements)
}

// fail gives the calls of a round its error, and leaves them nothing to send.
func (r *round) fail(err error) {
	for _, c := range r.calls {
		c.Failed, c.Body.open = err, nil
	}
}

// record notes that the first open settlements have been sent, and made but for those left.
func (w *settleRequest) record(sent, left []*wire.Settlement) {
	var still []wire.Settlement
	for _, m := range sent {
		if len(left) > 0 && slices.Contains(left, m) {
			still = append(still, *m)
		} else {
			w.made = true
		}
	}
	w.open = append(still, w.open[len(sent):]...)
}

// removal removes leases of one key, by one ZREM. The script would also find out how
// many slots are still held, which Settle may leave out, and take the server 15 times as long.
type removal struct {
	args  []any // of the command
	calls []*batch.Call[settleRequest]
}

// removalsIn takes the calls that only release leases out of a batch, and returns their removals.
func removalsIn(calls []*batch.Call[settleRequest]) (others []*batch.Call[settleRequest], removals []removal) {
	if !slices.ContainsFunc(calls, func(c *batch.Call[settleRequest]) bool { return c.Body.onlyReleases }) {
		return calls, nil
	}
	removalOf := make(map[string]int, len(calls)) // by key
	for _, c := range calls {
		if !c.Body.onlyReleases {
			others = append(others, c)
			continue
		}
		for i, key := range c.Body.keys {
			n, known := removalOf[key]
			if !known {
				n = len(removals)
				removalOf[key] = n
				removals = append(removals, removal{args: append(make([]any, 0, 3), "zrem", key)})
			}
			r := &removals[n]
			r.args = append(r.args, c.Body.charges[i].Receipt.Lease[:])
			r.calls = append(r.calls, c)
		}
	}
	return others, removals
}

// recordRemoval records the outcome of a removal.
func (s settleSender) recordRemoval(r *removal, err error) {
	if err != nil && redis.HasErrorPrefix(err, "WRONGTYPE") {
		err = nil // there are no leases at the key any more
	}
	err = classify(err)
	for _, call := range r.calls {
		w := &call.Body
		w.open = nil
		for i := range w.charges {
			c := &w.charges[i]
			s.denies.forget(c.Key)
			w.results[i] = store.Result{OK: true, Receipt: store.Receipt{Lease: c.Receipt.Lease, Path: c.Receipt.Path}}
		}
		if err != nil {
			call.Failed = fault.Worse(call.Failed, err)
		} else {
			w.made = true
		}
	}
}
