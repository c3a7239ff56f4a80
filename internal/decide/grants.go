package decide

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Grants are the owner of what a call was granted, from Call.HandTo until ReleaseHere and End.
// Their permit ends them: when the handler returns or panics (Permit.finish, deferred), by an early
// Done, or by the release of a detached permit. Grants are safe for concurrent use, except that only
// one goroutine at a time may end them.
type Grants struct {
	mu   sync.Mutex // guards the results of the elements of list
	list []Grant
}

// Grant is a charge that one limit has granted. A permit is as large as its grants, and
// allocating it takes a fifth of a request, so results are kept in less room.
type Grant struct {
	Limit *limit.Limit
	Key   string
	Cost  int64 // that was charged

	// The result, without Begun, of which observers have been notified. Of Delay and
	// RetryAfter it has one: if ok, that is Delay.
	remaining, held  int64
	resetAfter, wait time.Duration
	ok               bool

	// The receipt. Its fields stand here so that the small ones share a word with ok.
	path                uint8
	lease               store.LeaseID
	instant, mark, owed int64 // owed is its Cost: see setUnknown
}

// receipt returns the receipt of the charge.
func (g *Grant) receipt() store.Receipt {
	return store.Receipt{
		Instant: g.instant, Mark: g.mark, Cost: g.owed, Lease: g.lease,
		Path: g.path,
	}
}

// keepReceipt keeps the receipt of the charge.
func (g *Grant) keepReceipt(r *store.Receipt) {
	g.instant, g.mark, g.owed, g.lease = r.Instant, r.Mark, r.Cost, r.Lease
	g.path = r.Path
}

// result returns the result of the charge.
func (g *Grant) result() store.Result {
	r := store.Result{OK: g.ok, Held: g.held, Remaining: g.remaining, ResetAfter: g.resetAfter, Receipt: g.receipt()}
	if g.ok {
		r.Delay = g.wait
	} else {
		r.RetryAfter = g.wait
	}
	return r
}

// keepResult keeps the result of the charge.
func (g *Grant) keepResult(r *store.Result) {
	g.ok, g.held, g.remaining, g.resetAfter = r.OK, r.Held, r.Remaining, r.ResetAfter
	if g.wait = r.RetryAfter; g.ok {
		g.wait = r.Delay
	}
	g.keepReceipt(&r.Receipt)
}

// HandTo makes grants the owner of what the call has been granted. room has an element for
// each charge. The call still says what it was, until it is reset.
func (c *Call) HandTo(gs *Grants, room []Grant) {
	for i := range room {
		g, ch := &room[i], &c.Charges[i]
		g.Limit, g.Key, g.Cost = c.Limits[i], ch.Key, ch.Cost
		g.keepResult(&c.Results[i])
	}
	gs.list, c.owns = room, false
}

// Len returns how many there are, At one of them. What At returns doesn't change.
func (gs *Grants) Len() int { return len(gs.list) }

func (gs *Grants) At(i int) *Grant { return &gs.list[i] }

// Where returns which grants are of such a limit.
func (gs *Grants) Where(is func(*limit.Limit) bool) (chosen []int) {
	for i := range gs.list {
		if is(gs.list[i].Limit) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// charge returns the charge that settles the grant at a cost.
func (g *Grant) charge(cost int64) store.Charge {
	return store.Charge{Key: g.Key, Limit: g.Limit.StoreLimit, Cost: cost, DryRun: g.Limit.DryRun, Receipt: g.receipt()}
}

// costs returns what the limit has cost the request so far.
func (g *Grant) costs() int64 {
	if g.ok && g.Limit.Kind.Traits().Unsettled == "" {
		if g.unknown() {
			return ^g.owed
		}
		return g.owed
	}
	return g.Cost
}

// setUnknown records whether it is unknown what the grant costs: from when the store is asked
// to settle it until the store says what became of that. If it never does, the receipt isn't
// used again. The receipt holds the complement of its cost meanwhile: below 0, which no charge
// costs, so that this takes no room.
func (g *Grant) setUnknown(unknown bool) {
	if g.unknown() != unknown {
		g.owed = ^g.owed
	}
}

// unknown reports whether a settlement of the grant may have been made or not.
func (g *Grant) unknown() bool { return g.owed < 0 }

// reported reports whether the limit is a dry run that would have denied. Nothing was
// charged then.
func (g *Grant) reported() bool { return g.Limit.DryRun && !g.ok }

// recordSettled records the result of settling the grant, whose cost is known by that.
func (g *Grant) recordSettled(r store.Result) {
	r.OK, r.Delay = true, g.result().Delay
	g.keepResult(&r)
}

// Recall adds the grants to a call, as if it had just been granted them, at what they
// have cost by now.
func (gs *Grants) Recall(c *Call) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for i := range gs.list {
		g := &gs.list[i]
		c.Limits, c.Charges, c.Results = append(c.Limits, g.Limit), append(c.Charges, g.charge(g.costs())), append(c.Results, g.result())
	}
}

// Hand remembers which charges the handler has settled itself. It is guarded by the lock
// of its Grants.
type Hand struct{ settled []bool }

func (h *Hand) has(i int) bool { return h != nil && h.settled != nil && h.settled[i] }

// Settle makes charges cost what amends say, even if ctx has ended. by, if it isn't nil,
// remembers them. The settlement is empty if there was nothing to settle; it has an error and no charges if
// the store wasn't asked.
func (gs *Grants) Settle(ctx context.Context, b *Backend, amends []Amend, timed bool, by *Hand) Settlement {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	amends = slices.DeleteFunc(amends, func(a Amend) bool { return gs.list[a.Grant].reported() })
	if len(amends) == 0 {
		return Settlement{}
	}
	if slices.ContainsFunc(amends, func(a Amend) bool { return gs.list[a.Grant].unknown() }) {
		return Settlement{Err: errUnknown}
	}
	charges, results := make([]store.Charge, len(amends)), make([]store.Result, len(amends))
	for k, a := range amends {
		charges[k] = gs.list[a.Grant].charge(a.Cost)
	}
	for _, a := range amends {
		gs.list[a.Grant].setUnknown(true)
	}
	done := b.settle(context.WithoutCancel(ctx), b.Store, charges, results, timed)
	if done.Err != nil {
		if errors.Is(done.Err, store.ErrNotMade) {
			for _, a := range amends {
				gs.list[a.Grant].setUnknown(false)
			}
		}
		return done
	}
	for k, a := range amends {
		gs.list[a.Grant].recordSettled(results[k])
	}
	if by != nil {
		if by.settled == nil {
			by.settled = make([]bool, len(gs.list))
		}
		for _, a := range amends {
			by.settled[a.Grant] = true
		}
	}
	done.Amended = true
	return done
}

// Amend is the new cost of one charge.
type Amend struct {
	Grant int
	Cost  int64
	// AtLeast: it isn't the new cost if it is below what the charge costs.
	AtLeast bool
}

// ReleaseHere releases what this process counts for the grants: from then on others may have
// their slots here. It comes before End, which then finds no leases of this process left.
// learns says that there is a limit that follows latency, which gets the sample.
// ReleaseHere returns the limits that have changed by it.
func (gs *Grants) ReleaseHere(b *Backend, class uint8, learns bool, sample *adaptive.Sample) []adaptive.Change {
	for i := range gs.list {
		g := &gs.list[i]
		g.Limit.ReleaseHere(&b.Lines.Slots, g.Key, g.Cost, class)
	}
	if !learns {
		return nil
	}
	c := Borrow()
	defer c.Free()
	gs.mu.Lock() // a Decision may be reading the results
	defer gs.mu.Unlock()
	for i := range gs.list {
		g := &gs.list[i]
		c.Charges, c.Results = append(c.Charges, g.charge(g.costs())), append(c.Results, g.result())
	}
	changes := b.Keys.End(c.Charges, c.Results, sample)
	for i := range c.Results {
		gs.list[i].keepReceipt(&c.Results[i].Receipt)
	}
	return changes
}

// Ending says what to settle when grants end, in one call of the store.
type Ending struct {
	// Leases: the slots are released.
	Leases bool
	// Unmoved are further charges, which give back bytes that were paid for and not moved.
	Unmoved []store.Charge
	// Amends are the costs that the response has shown. ByHand has the charges that the
	// handler has settled itself, which stay as they are; nil for none.
	Amends []Amend
	ByHand *Hand
	// Timed: Settlement.Took is asked for.
	Timed bool
}

// onlyLeases reports whether slots are released and nobody asks how.
func (e *Ending) onlyLeases() bool {
	return e.Leases && !e.Timed && len(e.Unmoved)+len(e.Amends) == 0
}

// End settles an Ending. done gets the outcome, whose slices are valid until
// it returns, even if the store panics. ctx must not end with the request.
func (gs *Grants) End(ctx context.Context, b *Backend, e Ending, done func(Settlement)) {
	if b.Release != nil && e.onlyLeases() {
		gs.release(b)
		done(Settlement{})
		return
	}
	c := Borrow()
	defer c.Free()
	answered, outcome := false, Settlement{}
	defer func() {
		if !answered {
			outcome = Settlement{Charges: c.Charges, Err: errStorePanicked}
		}
		done(outcome)
	}()
	outcome = gs.end(ctx, b, c, e)
	answered = true
}

// release releases the slots by Backend.Release, and wakes those who wait for them.
func (gs *Grants) release(b *Backend) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for i := range gs.list {
		if g := &gs.list[i]; g.lease != (store.LeaseID{}) {
			b.Release(g.Key, g.Limit.StoreLimit, g.lease)
		}
	}
	if b.Lines.Slots.Waiting() {
		b.wake(gs.leases(nil))
	}
}

// leases appends the charges that release the slots.
func (gs *Grants) leases(to []store.Charge) []store.Charge {
	for i := range gs.list {
		if g := &gs.list[i]; g.lease != (store.LeaseID{}) {
			to = append(to, g.charge(0))
		}
	}
	return to
}

// end is End, with the charges in c.
func (gs *Grants) end(ctx context.Context, b *Backend, c *Call, e Ending) Settlement {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if e.Leases {
		c.Charges = gs.leases(c.Charges)
	}
	c.Charges = append(c.Charges, e.Unmoved...)
	amends := e.Amends
	if len(amends) > 0 {
		amends = slices.DeleteFunc(amends, func(a Amend) bool { return gs.list[a.Grant].stands(a, e.ByHand.has(a.Grant)) })
	}
	first := len(c.Charges) // of the amends
	for _, a := range amends {
		c.Charges = append(c.Charges, gs.list[a.Grant].charge(a.Cost))
		gs.list[a.Grant].setUnknown(true)
	}
	c.Results = append(c.Results[:0], make([]store.Result, len(c.Charges))...)
	end := b.settle(ctx, b.Store, c.Charges, c.Results, e.Timed)
	switch {
	case end.Err == nil:
		for k, a := range amends {
			gs.list[a.Grant].recordSettled(c.Results[first+k])
		}
		end.Amended = len(amends) > 0
	case errors.Is(end.Err, store.ErrNotMade):
		for _, a := range amends {
			gs.list[a.Grant].setUnknown(false)
		}
	}
	return end
}

// stands reports whether an amend of the grant changes nothing. What the handler has settled itself
// stays as it is. But if several readings of the request have the limit, the handler may not be that
// of the reading which the amend is from, and the higher cost counts.
func (g *Grant) stands(a Amend, byHand bool) bool {
	switch {
	case g.reported() || g.unknown() || g.owed == a.Cost:
		return true
	case byHand && len(g.Limit.Uses) < 2:
		return true
	}
	return (byHand || a.AtLeast) && a.Cost < g.owed
}

// Charged reports whether one of the grants is of a limit that says what hash says, for a
// key.
func (gs *Grants) Charged(hash uint64, key string) bool {
	for i := range gs.list {
		if g := &gs.list[i]; inside.Hash(g.Limit.StoreLimit) == hash && g.Key == key {
			return true
		}
	}
	return false
}
