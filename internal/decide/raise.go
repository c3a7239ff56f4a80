package decide

import (
	"context"
	"errors"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
)

// A raise of grants is a call of its own: it charges the difference to the cost so far. Its charge takes the place of
// the grant's, which stands from then on. So a grant has one receipt, and a settlement can take back the last raise at
// most.

// raised is what raises have changed in grants. It is guarded by Grants.mu.
type raised struct {
	grants  []raisedGrant
	running *raise // the raise under way, or nil
	ended   bool   // the permit has ended
}

// raisedGrant is what raises have changed in one grant.
type raisedGrant struct {
	limit *limit.Limit // that the receipt is of; nil if it is the grant's own
	// before is the part of the cost that the receipt isn't of: earlier charges, which stand, and raises that have
	// passed without being charged.
	before int64
	// least is the least that the receipt's charge can be settled at.
	least int64
}

// raise is a raise under way.
type raise struct {
	cancel context.CancelFunc
	done   chan struct{}
	grants []int   // that its charges are for; the charges behind those are of bans
	costs  []int64 // that are added to theirs
}

// Raised is the outcome of a raise.
type Raised struct {
	// Asked: the store was asked, so the call says what it answered.
	Asked bool
	// Passed: the cost is raised, charged or not.
	Passed bool
	// Undone is the settlement by which a raise was taken back that was granted too late.
	Undone Settlement
	// Err is why the raise was neither granted nor denied: a *Canceled, a *Failed, which may have passed, or an error
	// about the grants.
	Err error
}

var (
	errRaiseEnded    = &Canceled{permitEnded{}}
	errRaisePanicked = errors.New("the store panicked, so whether the cost was raised isn't known")
)

// permitEnded is the error of a raise that the end of its permit has canceled.
type permitEnded struct{}

func (permitEnded) Error() string { return "the permit has ended" }

// Unwrap returns context.Canceled.
func (permitEnded) Unwrap() error { return context.Canceled }

// raisedOrNil returns what raises have changed, or nil.
func (gs *Grants) raisedOrNil() *raised {
	if more := gs.more.Load(); more != nil {
		return more.raised.Load()
	}
	return nil
}

// Raised reports whether a raise has ever been charged, or is under way. It is two atomic loads.
func (gs *Grants) Raised() bool { return gs.raisedOrNil() != nil }

// toRaise returns what raises have changed, and makes it for the first raise. The caller holds gs.mu.
func (gs *Grants) toRaise() *raised {
	if rs := gs.raisedOrNil(); rs != nil {
		return rs
	}
	more := gs.more.Load()
	if more == nil {
		more = new(moreGrants)
		gs.more.Store(more)
	}
	rs := &raised{grants: make([]raisedGrant, gs.Len())}
	more.raised.Store(rs)
	return rs
}

// raisedGrant returns what raises have changed in grant i.
func (gs *Grants) raisedGrant(i int) (r raisedGrant) {
	if rs := gs.raisedOrNil(); rs != nil {
		r = rs.grants[i]
	}
	return r
}

// limitOf returns the limit that grant i's receipt is of.
func (gs *Grants) limitOf(i int) *limit.Limit {
	if l := gs.raisedGrant(i).limit; l != nil {
		return l
	}
	return gs.At(i).Limit
}

// costOf returns what grant i has cost the request so far.
func (gs *Grants) costOf(i int) int64 { return gs.raisedGrant(i).before + gs.At(i).currentCost() }

// receiptCostFor returns what the charge of grant i's receipt is to cost if the request is to cost cost in all.
func (gs *Grants) receiptCostFor(i int, cost int64) int64 {
	r := gs.raisedGrant(i)
	return max(cost-r.before, r.least)
}

// lockUnraised locks gs.mu when no raise is under way.
func (gs *Grants) lockUnraised() {
	gs.mu.Lock()
	for rs := gs.raisedOrNil(); rs != nil && rs.running != nil; {
		gs.awaitRaise(context.Background(), rs.running)
	}
}

// awaitRaise unlocks gs.mu until the raise or ctx has ended.
func (gs *Grants) awaitRaise(ctx context.Context, r *raise) {
	gs.mu.Unlock()
	defer gs.mu.Lock()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// EndRaises cancels the raise under way, and returns when it has ended. Raises that come later are canceled, too.
func (gs *Grants) EndRaises() {
	if !gs.Raised() {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	rs := gs.raisedOrNil()
	rs.ended = true
	for rs.running != nil {
		rs.running.cancel()
		gs.awaitRaise(context.Background(), rs.running)
	}
}

// Raise raises costs to what the amends say, by a call that has no charges yet, when the raises before it have ended.
// If a limit denies, nothing is charged. If the store fails and no limit is FailClosed, the raise passes, and what it
// adds is never charged. Costs that are as high already stay.
func (gs *Grants) Raise(ctx context.Context, c *Call, amends []Amend) (done Raised) {
	raising, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := gs.beginRaise(ctx, c, amends, cancel)
	if r == nil {
		return Raised{Err: err}
	}
	done.Asked, done.Err = true, errRaisePanicked
	defer func() { gs.endRaise(ctx, c, r, &done) }() // also if the store panics
	defer func() {
		if !done.Passed {
			done.Undone = c.Undo(ctx)
		}
	}()
	done.Err = c.Decide(raising)
	failed, _ := done.Err.(*Failed)
	done.Passed = done.Err == nil && c.Allowed || failed != nil && !failed.Closed
	return done
}

// beginRaise makes the charges of a raise when its turn has come. It returns nil if there is nothing to charge.
func (gs *Grants) beginRaise(ctx context.Context, c *Call, amends []Amend, cancel context.CancelFunc) (*raise, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for rs := gs.raisedOrNil(); rs != nil && rs.running != nil; {
		if gs.awaitRaise(ctx, rs.running); ctx.Err() != nil {
			return nil, &Canceled{ctx.Err()}
		}
	}
	r := &raise{cancel: cancel, done: make(chan struct{})}
	c.raise, c.Class, c.classified = true, lines.Raises, true
	for _, a := range amends {
		g := gs.At(a.Grant)
		more := a.Cost - gs.costOf(a.Grant)
		switch {
		case g.uncharged():
		case g.settling():
			return nil, errSettlementUnknown
		case more > 0:
			c.Add(gs.limitOf(a.Grant), g.Key, more)
			r.grants, r.costs = append(r.grants, a.Grant), append(r.costs, more)
		}
	}
	if len(r.grants) == 0 {
		return nil, nil
	}
	rs := gs.toRaise()
	if rs.ended {
		return nil, errRaiseEnded
	}
	c.renew()
	for i := range gs.Len() { // bans that have begun deny
		if g := gs.At(i); g.Limit.Needs&limit.Counts != 0 && !g.Limit.DryRun {
			c.Add(g.Limit, g.Key, g.Cost)
		}
	}
	rs.running = r
	return r, nil
}

// endRaise records the outcome of a raise in the grants, and lets the next begin.
func (gs *Grants) endRaise(ctx context.Context, c *Call, r *raise, done *Raised) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	rs := gs.raisedOrNil()
	for k, i := range r.grants {
		g, raised := gs.At(i), &rs.grants[i]
		switch {
		case !done.Passed:
		case done.Err == nil && c.Lost == nil && c.Results[k].OK && c.Results[k].Receipt.Cost > 0:
			result := c.Results[k]
			// What a part of the limit hasn't charged, since the raise costs more than the part, has passed.
			passed := r.costs[k] - result.Receipt.Cost
			*raised = raisedGrant{limit: c.Limits[k], before: gs.costOf(i) + passed}
			result.Delay = g.result().Delay
			g.keepResult(&result)
		default: // a dry run has denied it, or it passed without the store
			raised.before += r.costs[k]
			raised.least = g.receiptCost
		}
	}
	if done.Passed {
		c.LeaveCharged()
	}
	if _, canceled := done.Err.(*Canceled); canceled && ctx.Err() == nil {
		done.Err = errRaiseEnded
	}
	rs.running = nil
	close(r.done)
}
