package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// taking is a decision on its way. Its slices are its own: a caller that leaves takes
// its own slices along.
type taking struct {
	decision
	site    site
	one     lone
	decided int64 // the server's instant
}

// lone holds the allocations of a call that is sent alone, to be reused.
type lone struct {
	decisions [1]*decision
	commands  [1]command
	shapes    [1]shape
	entries   [1]entry
	records   [4]*record
}

// plan returns the plan of the decision alone.
func (w *taking) plan() plan {
	one := &w.one
	one.decisions[0] = &w.decision
	one.entries[0] = entry{decisions: one.decisions[:]}
	one.shapes[0] = newShape(&w.decision, one.records[:0])
	one.shapes[0].entries = one.entries[:]
	return plan{shapes: one.shapes[:], keys: w.keys, strings: stringsIn(one.shapes[:], len(w.keys))}
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
		t.Body.site = s.siteOf(t.Body.keys[0])
		for _, key := range t.Body.keys[1:] {
			if s.siteOf(key) != t.Body.site {
				return s.takeApart(ctx, &t.Body.decision, results)
			}
		}
	}
	if err := tooMany(len(charges)); err != nil {
		return err
	}
	since := s.denies.instant()
	reusable, err := s.takes.Do(ctx, t)
	if err == nil {
		copy(results, t.Body.results)
		if t.Body.granted {
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
			if keys += len(t.Body.keys); keys > mostKeys && j > 0 {
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
	d := &t.Body.decision
	d.charges = append(d.charges[:0], charges...)
	d.results = append(d.results[:0], make([]store.Result, len(charges))...)
	d.keys, d.leases = d.keys[:0], d.leases[:0]
	d.granted = false
	var seen map[string]bool
	if len(charges) > 100 { // else to look is cheaper
		seen = make(map[string]bool, len(charges))
	}
	for i := range charges {
		c := &charges[i]
		key := storageKey(s.prefix, c.Key, c.Limit)
		if seen == nil && slices.Contains(d.keys, key) || seen[key] {
			return fmt.Errorf("redisstore: %w", store.ErrDuplicate)
		}
		if seen != nil {
			seen[key] = true
		}
		d.keys = append(d.keys, key)
		var lease store.LeaseID
		if algorithms[c.Limit.Algorithm()].leases && c.Cost > 0 {
			id, err := uuid.NewRandom()
			if err != nil {
				return fmt.Errorf("redisstore: %w", err)
			}
			lease = store.LeaseID(id)
		}
		d.leases = append(d.leases, lease)
	}
	return nil
}

// startRenewals starts the renewal of the leases of a granted decision.
func (s *Store) startRenewals(t *batch.Call[taking]) {
	d := &t.Body.decision
	if !d.granted {
		return
	}
	for i := range d.charges {
		if r := &d.results[i]; r.Receipt.Lease != (store.LeaseID{}) {
			s.startRenewal(d.keys[i], &d.charges[i], r.Receipt.Lease, t.Since, t.Body.decided)
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
	times := s.timeArgs(asked)
	if len(calls) == 1 {
		w := &calls[0].Body
		p, commands := w.plan(), w.one.commands[:]
		commands[0] = s.takeCommand(&p, w.site, times)
		s.exec(ctx, commands)
		again, more = s.readTake(&p, &commands[0], calls)
		commands[0] = command{}
		return again, more
	}
	groups := splitLarge(groupBySite(calls, siteOfTaking))
	plans := make([]plan, len(groups))
	commands := make([]command, len(groups))
	for i, group := range groups {
		ds := make([]*decision, len(group))
		for j, t := range group {
			ds[j] = &t.Body.decision
		}
		plans[i] = newPlan(ds)
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
func (s *Store) takeCommand(p *plan, at site, t timeArgs) command {
	script, args := takeArgs(p, t, s.head(p.keys))
	return s.command(script, at, p.keys, args)
}

// readTake reads the answer to a plan. It returns the calls that weren't decided, and the
// instants asked for.
func (s *Store) readTake(p *plan, c *command, group []*batch.Call[taking]) (again []*batch.Call[taking], more []int64) {
	reply, err := c.cmd.Result()
	err = classify(err)
	var left unanswered[*decision]
	var now int64
	if err == nil {
		if now, left, err = takeAnswer(p, reply); err != nil {
			err = unread(err)
		} else {
			s.learn(now)
		}
	}
	for _, t := range group {
		t.Failed, t.Body.decided = err, now
		if slices.Contains(left.what, &t.Body.decision) {
			again = append(again, t)
		}
	}
	return again, left.asked
}

// takeApart takes the charges of a call that are in several places. All places are
// asked at once, which takes no longer than one; if one denies, the charges at the others
// are given back.
func (s *Store) takeApart(ctx context.Context, whole *decision, results []store.Result) error {
	var parts []*batch.Call[taking]
	var indexes [][]int
	at := make(map[site]int)
	for i, key := range whole.keys {
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
		d := &parts[n].Body.decision
		d.charges = append(d.charges, whole.charges[i])
		d.keys = append(d.keys, key)
		d.leases = append(d.leases, whole.leases[i])
	}
	for _, t := range parts {
		if err := tooMany(len(t.Body.charges)); err != nil {
			return err
		}
	}
	for _, t := range parts {
		t.Body.results = make([]store.Result, len(t.Body.charges))
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
		granted = granted && t.Body.granted
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
			results[i] = t.Body.results[j]
		}
		if granted {
			s.startRenewals(t)
		}
	}
	return nil
}
