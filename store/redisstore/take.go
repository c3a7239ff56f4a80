package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// taking is a decision on its way to the server. Its slices are its own: a caller that leaves takes
// its own slices along.
type taking struct {
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

func siteOfTaking(w *taking) site { return w.site }

// Take implements store.Store. For calls whose charges are in several slots of a
// cluster, see the package comment.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := s.check(ctx, charges, results); err != nil || len(charges) == 0 {
		return err
	}
	if s.stocks != nil && len(charges) == 1 {
		return s.takePrefetched(ctx, charges, results)
	}
	if s.denies.deny(charges, results) {
		return nil
	}
	return s.ask(ctx, charges, results)
}

// ask makes the server decide.
func (s *Store) ask(ctx context.Context, charges []store.Charge, results []store.Result) error {
	t := s.ticket()
	if err := s.fill(t, charges); err != nil {
		return err
	}
	if s.layout != oneServer {
		t.Body.site = s.siteOf(t.Body.Keys[0])
		for _, key := range t.Body.Keys[1:] {
			if s.siteOf(key) != t.Body.site {
				return s.takeApart(ctx, &t.Body.Decision, results)
			}
		}
	}
	if err := tooMany(len(charges)); err != nil {
		return err
	}
	since := s.denies.instant()
	reusable, err := s.takes.Do(ctx, t)
	if err == nil {
		copy(results, t.Body.Results)
		if t.Body.Granted {
			s.startRenewals(t)
		} else {
			s.denies.remember(charges, results, since)
		}
	}
	if reusable {
		s.tickets.Put(t)
	}
	return err
}

// mostCharges is how many charges can be decided together. A script looks at all of
// them before it makes any, and Lua has room for 8000 values in a call.
const mostCharges = 7000

func tooMany(charges int) error {
	if charges <= mostCharges {
		return nil
	}
	return fmt.Errorf("redisstore: %w: a Take of %d charges: write commands of at most %d", ErrConfiguration, charges, mostCharges)
}

// mostKeys is how many charges of different decisions, or settlements, go into one call
// of a script. More are split over several calls in a pipeline, because all other callers
// wait while a script runs.
const mostKeys = 1000

// splitLarge splits groups whose decisions have more charges than that together.
func splitLarge(groups [][]*batch.Call[taking]) [][]*batch.Call[taking] {
	for i := 0; i < len(groups); i++ {
		keys := 0
		for j, t := range groups[i] {
			if keys += len(t.Body.Keys); keys > mostKeys && j > 0 {
				groups = slices.Insert(groups, i+1, groups[i][j:])
				groups[i] = groups[i][:j]
				break
			}
		}
	}
	return groups
}

// check is the beginning of all calls.
func (s *Store) check(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if s.wrong != nil || s.closed == nil {
		return s.unusable()
	}
	if err := store.Check(charges, results); err != nil {
		return store.NotMade(fmt.Errorf("redisstore: %w", err))
	}
	if ctx.Err() != nil {
		return store.NotMade(fault.ContextEnded(ctx))
	}
	return nil
}

func (s *Store) ticket() *batch.Call[taking] {
	t, ok := s.tickets.Get().(*batch.Call[taking])
	if !ok {
		return batch.NewCall[taking]()
	}
	t.Renew()
	return t
}

// fill puts the charges into t.
func (s *Store) fill(t *batch.Call[taking], charges []store.Charge) error {
	d := &t.Body.Decision
	d.Charges = append(d.Charges[:0], charges...)
	d.Results = append(d.Results[:0], make([]store.Result, len(charges))...)
	d.Keys, d.Leases = d.Keys[:0], d.Leases[:0]
	d.Granted = false
	var seen map[string]bool
	if len(charges) > 100 { // else to look is cheaper
		seen = make(map[string]bool, len(charges))
	}
	for i := range charges {
		c := &charges[i]
		key := wire.StorageKey(s.prefix, c.Key, c.Limit)
		if seen == nil && slices.Contains(d.Keys, key) || seen[key] {
			return fmt.Errorf("redisstore: %w", store.ErrDuplicate)
		}
		if seen != nil {
			seen[key] = true
		}
		d.Keys = append(d.Keys, key)
		var lease store.LeaseID
		if wire.TraitsOf(c.Limit).Leases && c.Cost > 0 {
			id, err := uuid.NewRandom()
			if err != nil {
				return fmt.Errorf("redisstore: %w", err)
			}
			lease = store.LeaseID(id)
		}
		d.Leases = append(d.Leases, lease)
	}
	return nil
}

// startRenewals starts the renewal of the leases of a granted decision.
func (s *Store) startRenewals(t *batch.Call[taking]) {
	d := &t.Body.Decision
	if !d.Granted {
		return
	}
	for i := range d.Charges {
		if r := &d.Results[i]; r.Receipt.Lease != (store.LeaseID{}) {
			s.startRenewal(d.Keys[i], &d.Charges[i], r.Receipt.Lease, t.Since, t.Body.decided)
		}
	}
}

// sendTakes calls the server for a batch.
func (s *Store) sendTakes(ctx context.Context, calls []*batch.Call[taking]) {
	var asked []int64
	for range tries {
		var more []int64
		if calls, more = s.takeOnce(ctx, calls, asked); len(calls) == 0 {
			return
		}
		asked = append(asked, more...)
	}
	for _, t := range calls {
		t.Failed = fmt.Errorf("redisstore: %w: %w", ErrUnavailable, errAsks)
	}
}

// takeOnce returns the tickets that weren't decided because windows of the calendar
// were missing, and the instants asked for.
func (s *Store) takeOnce(ctx context.Context, calls []*batch.Call[taking], asked []int64) (again []*batch.Call[taking], more []int64) {
	times := s.times(asked)
	if len(calls) == 1 {
		w := &calls[0].Body
		p, commands := w.single.Plan(&w.Decision), w.single.commands[:]
		commands[0] = s.takeCommand(&p, w.site, times)
		s.exec(ctx, commands)
		again, more = s.readTake(&p, &commands[0], calls)
		commands[0] = command{}
		return again, more
	}
	groups := splitLarge(groupBySite(calls, siteOfTaking))
	plans := make([]wire.Plan, len(groups))
	commands := make([]command, len(groups))
	for i, group := range groups {
		ds := make([]*wire.Decision, len(group))
		for j, t := range group {
			ds[j] = &t.Body.Decision
		}
		plans[i] = wire.NewPlan(ds)
		commands[i] = s.takeCommand(&plans[i], group[0].Body.site, times)
	}
	s.exec(ctx, commands)
	for i, group := range groups {
		left, asks := s.readTake(&plans[i], &commands[i], group)
		again, more = append(again, left...), append(more, asks...)
	}
	return again, more
}

// takeCall returns the call that decides p.
func (s *Store) takeCommand(p *wire.Plan, at site, t wire.Times) command {
	script, args := p.Args(t, s.head(p.Keys))
	return s.command(script, at, p.Keys, args)
}

// readTake reads the answer to a plan. It returns the calls that weren't decided, and the
// instants asked for.
func (s *Store) readTake(p *wire.Plan, c *command, group []*batch.Call[taking]) (again []*batch.Call[taking], more []int64) {
	reply, err := c.cmd.Result()
	err = classify(err)
	var left wire.Unanswered[*wire.Decision]
	var now int64
	if err == nil {
		if now, left, err = p.Answer(reply); err != nil {
			err = unread(err)
		} else {
			s.learn(now)
		}
	}
	for _, t := range group {
		t.Failed, t.Body.decided = err, now
		if slices.Contains(left.Of, &t.Body.Decision) {
			again = append(again, t)
		}
	}
	return again, left.Asked
}

// takeApart takes the charges of a call that are in several places. All places are
// asked at once, which takes no longer than one; if one denies, the charges at the others
// are given back.
func (s *Store) takeApart(ctx context.Context, whole *wire.Decision, results []store.Result) error {
	var parts []*batch.Call[taking]
	var indexes [][]int
	at := make(map[site]int)
	for i, key := range whole.Keys {
		p := s.siteOf(key)
		n, known := at[p]
		if !known {
			n = len(parts)
			at[p] = n
			t := batch.NewCall[taking]()
			t.Body.site = p
			parts, indexes = append(parts, t), append(indexes, nil)
		}
		indexes[n] = append(indexes[n], i)
		d := &parts[n].Body.Decision
		d.Charges = append(d.Charges, whole.Charges[i])
		d.Keys = append(d.Keys, key)
		d.Leases = append(d.Leases, whole.Leases[i])
	}
	for _, t := range parts {
		if err := tooMany(len(t.Body.Charges)); err != nil {
			return err
		}
	}
	for _, t := range parts {
		t.Body.Results = make([]store.Result, len(t.Body.Charges))
		s.takes.Submit(t)
	}
	var failed error
	answered := make([]*batch.Call[taking], 0, len(parts))
	granted := true
	for _, t := range parts {
		if _, err := t.Wait(ctx); err != nil {
			failed = fault.Worse(failed, err)
			continue
		}
		answered = append(answered, t)
		granted = granted && t.Body.Granted
	}
	if failed != nil || !granted {
		if err := s.giveBackParts(ctx, answered, parts[0].Since.Add(s.timeout)); err != nil {
			return fault.PartlyMade(err)
		}
	}
	if failed != nil {
		return failed
	}
	for n, t := range parts {
		for j, i := range indexes[n] {
			results[i] = t.Body.Results[j]
		}
		if granted {
			s.startRenewals(t)
		}
	}
	return nil
}
