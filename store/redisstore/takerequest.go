package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// takeRequest is what a Take asks of one site, and the answer. Its slices are its own: a caller that
// leaves takes its own slices along.
type takeRequest struct {
	wire.Decision
	site    site
	single  single
	decided int64 // the server's instant
}

// single holds the allocations of a call that is sent alone, to be reused.
type single struct {
	wire.Single
	commands [1]command
}

func siteOfTake(t *takeRequest) site { return t.site }

func partsOfTake(t *takeRequest) (*site, []string, bool) { return &t.site, t.Keys, true }

// fill replaces the charges by others.
func (t *takeRequest) fill(prefix string, charges []store.Charge) error {
	d := &t.Decision
	d.Charges = append(d.Charges[:0], charges...)
	d.Results = append(d.Results[:0], make([]store.Result, len(charges))...)
	d.Keys, d.Leases = d.Keys[:0], d.Leases[:0]
	d.Granted = false
	var seen map[string]bool
	if len(charges) > 100 { // else searching the keys is cheaper
		seen = make(map[string]bool, len(charges))
	}
	for i := range charges {
		c := &charges[i]
		key := wire.StorageKey(prefix, c.Key, c.Limit)
		if seen == nil && slices.Contains(d.Keys, key) || seen[key] {
			return fmt.Errorf("redisstore: %w", store.ErrDuplicate)
		}
		if seen != nil {
			seen[key] = true
		}
		d.Keys = append(d.Keys, key)
		lease, err := newLeaseID(c)
		if err != nil {
			return err
		}
		d.Leases = append(d.Leases, lease)
	}
	return nil
}

// newLeaseID returns the id of the lease that a charge takes, or none if it takes no lease.
func newLeaseID(c *store.Charge) (id store.LeaseID, err error) {
	if c.Cost == 0 || !wire.TraitsOf(c.Limit).Leases {
		return id, nil
	}
	random, err := uuid.NewRandom()
	if err != nil {
		return id, fmt.Errorf("redisstore: %w", err)
	}
	return store.LeaseID(random), nil
}

// sendTakes asks the server for a batch.
func (s *server) sendTakes(ctx context.Context, calls []*batch.Call[takeRequest]) {
	var asked []int64
	for range maxTries {
		var more []int64
		if calls, more = s.takeRound(ctx, calls, asked); len(calls) == 0 {
			return
		}
		asked = append(asked, more...)
	}
	for _, c := range calls {
		c.Failed = errCalendar
	}
}

// takeRound returns the calls that weren't decided because windows of the calendar
// were missing, and the instants asked for.
func (s *server) takeRound(
	ctx context.Context, calls []*batch.Call[takeRequest], asked []int64,
) (again []*batch.Call[takeRequest], more []int64) {
	times := s.times(asked)
	if len(calls) == 1 {
		t := &calls[0].Body
		one, commands := t.single.TakeCall(&t.Decision), t.single.commands[:]
		commands[0] = s.takeCommand(&one, t.site, times)
		s.exec(ctx, commands)
		again, more = s.readTake(&one, &commands[0], calls)
		commands[0] = command{}
		return again, more
	}
	groups := splitLarge(groupBySite(calls, siteOfTake))
	sent := make([]wire.TakeCall, len(groups))
	commands := make([]command, len(groups))
	for i, group := range groups {
		decisions := make([]*wire.Decision, len(group))
		for j, c := range group {
			decisions[j] = &c.Body.Decision
		}
		sent[i] = wire.NewTakeCall(decisions)
		commands[i] = s.takeCommand(&sent[i], group[0].Body.site, times)
	}
	s.exec(ctx, commands)
	for i, group := range groups {
		left, asks := s.readTake(&sent[i], &commands[i], group)
		again, more = append(again, left...), append(more, asks...)
	}
	return again, more
}

// mostKeys is how many charges of different decisions, or settlements, go into one call
// of a script. More are split over several commands in a pipeline, because all other callers
// wait while a script runs.
const mostKeys = 1000

// splitLarge splits groups whose calls have more than mostKeys keys together. A single call with more
// stays whole.
func splitLarge(groups [][]*batch.Call[takeRequest]) [][]*batch.Call[takeRequest] {
	for i := 0; i < len(groups); i++ {
		keys := 0
		for j, c := range groups[i] {
			if keys += len(c.Body.Keys); keys > mostKeys && j > 0 {
				groups = slices.Insert(groups, i+1, groups[i][j:])
				groups[i] = groups[i][:j]
				break
			}
		}
	}
	return groups
}

// takeCommand returns the command that decides p.
func (s *server) takeCommand(p *wire.TakeCall, at site, t wire.Times) command {
	script, args := p.Args(t, s.room(p.Keys))
	return s.command(script, at, p.Keys, args)
}

// readTake reads the answer to a call. It returns the calls that weren't decided, and the
// instants asked for.
func (s *server) readTake(
	p *wire.TakeCall, answered *command, group []*batch.Call[takeRequest],
) (again []*batch.Call[takeRequest], more []int64) {
	reply, err := answered.cmd.Result()
	err = classify(err)
	var left wire.Unanswered[*wire.Decision]
	var now int64
	if err == nil {
		if now, left, err = p.Answer(reply); err != nil {
			err = malformed(err)
		} else {
			s.recordClock(now)
		}
	}
	for _, c := range group {
		c.Failed, c.Body.decided = err, now
		if slices.Contains(left.Items, &c.Body.Decision) {
			again = append(again, c)
		}
	}
	return again, left.Asked
}
