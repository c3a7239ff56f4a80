package decide

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Grants own what a call was granted, from Call.HandTo until ReleaseLocally and End. Package permit says
// when they end. Grants are safe for concurrent use. ReleaseLocally is called once.
type Grants struct {
	mu    sync.Mutex // guards the results of the grants, and what raises have changed
	more  atomic.Pointer[moreGrants]
	first Grant // without a Limit if there is none
}

// moreGrants are the grants behind the first, and what raises have changed. They stand apart, so that the permit of
// one limit and its request take 512 bytes.
type moreGrants struct {
	list   []Grant
	room   [1]Grant // the list of two limits
	raised atomic.Pointer[raised]
}

// Grant is a charge that one limit has granted. It keeps the result in less room than a store.Result, because
// allocating a permit takes a fifth of the time of a request, and most of a permit are its grants.
type Grant struct {
	Limit *limit.Limit
	Key   string
	Cost  int64 // that was charged

	// The result, without Begun, of which observers have been notified. wait is its Delay if ok, and otherwise its
	// RetryAfter. held has its Held in the low heldBits, and its Processes in the others.
	remaining, held  int64
	resetAfter, wait time.Duration
	ok               bool

	// The receipt, and in tenant the 48 bits of the tenant of a fair queue that holds the slots. The fields stand here
	// so that the small ones share a word with ok.
	path          uint8
	tenant        [3]uint16
	lease         store.LeaseID
	instant, mark int64
	receiptCost   int64 // its Cost; see setSettling
}

// heldBits is how many bits a number of held slots has: of at most store.MaxCost, or more if that has been lowered.
const heldBits = 42

// receipt returns the receipt of the charge.
func (g *Grant) receipt() store.Receipt {
	return store.Receipt{
		Instant: g.instant, Mark: g.mark, Cost: g.receiptCost, Lease: g.lease,
		Path: g.path,
	}
}

// keepReceipt keeps the receipt of the charge.
func (g *Grant) keepReceipt(r *store.Receipt) {
	g.instant, g.mark, g.receiptCost, g.lease = r.Instant, r.Mark, r.Cost, r.Lease
	g.path = r.Path
}

// result returns the result of the charge.
func (g *Grant) result() store.Result {
	r := store.Result{
		OK: g.ok, Processes: uint32(g.held >> heldBits), Held: g.held & (1<<heldBits - 1),
		Remaining: g.remaining, ResetAfter: g.resetAfter, Receipt: g.receipt(),
	}
	if g.ok {
		r.Delay = g.wait
	} else {
		r.RetryAfter = g.wait
	}
	return r
}

// keepResult keeps the result of the charge.
func (g *Grant) keepResult(r *store.Result) {
	g.ok, g.remaining, g.resetAfter = r.OK, r.Remaining, r.ResetAfter
	g.held = r.Held | int64(r.Processes)<<heldBits
	if g.wait = r.RetryAfter; g.ok {
		g.wait = r.Delay
	}
	g.keepReceipt(&r.Receipt)
}

// HandTo makes grants the owner of what the call has been granted. The call still says what it was, until
// it is reset.
func (c *Call) HandTo(gs *Grants) {
	if n := len(c.Charges) - 1; n > 0 {
		more := new(moreGrants)
		if more.list = more.room[:]; n > len(more.room) {
			more.list = make([]Grant, n)
		}
		gs.more.Store(more)
	}
	c.owns = false
	for i := range c.Charges {
		g, ch := gs.At(i), &c.Charges[i]
		g.Limit, g.Key, g.Cost = c.Limits[i], ch.Key, ch.Cost
		g.keepResult(&c.Results[i])
		if len(c.tenants) > 0 {
			g.keepTenant(c.tenants[i])
		}
	}
}

// keepTenant keeps the tenant that holds the slots.
func (g *Grant) keepTenant(t lines.Tenant) {
	g.tenant = [3]uint16{uint16(t), uint16(t >> 16), uint16(t >> 32)}
}

// keptTenant returns the tenant that holds the slots, or 0.
func (g *Grant) keptTenant() lines.Tenant {
	t := &g.tenant
	return lines.Tenant(t[0]) | lines.Tenant(t[1])<<16 | lines.Tenant(t[2])<<32
}

// Len returns how many there are, At one of them. What At returns doesn't change.
func (gs *Grants) Len() int {
	if gs.first.Limit == nil {
		return 0
	}
	if more := gs.more.Load(); more != nil {
		return 1 + len(more.list)
	}
	return 1
}

func (gs *Grants) At(i int) *Grant {
	if i == 0 {
		return &gs.first
	}
	return &gs.more.Load().list[i-1]
}

// Named returns which grants are of limits with a name.
func (gs *Grants) Named(name string) (named []int) {
	for i := range gs.Len() {
		if gs.At(i).Limit.StoreLimit.Name() == name {
			named = append(named, i)
		}
	}
	return named
}

// charge returns the charge that settles grant i: its receipt's part of the cost is cost then.
func (gs *Grants) charge(i int, cost int64) store.Charge {
	g, l := gs.At(i), gs.limitOf(i)
	return store.Charge{
		Key: g.Key, Limit: l.StoreLimit, Cost: cost, MaxWait: l.Wait.InQueue(), DryRun: l.DryRun, Receipt: g.receipt(),
	}
}

// recalled returns the charge of grant i at what it has cost so far.
func (gs *Grants) recalled(i int) store.Charge {
	c := gs.charge(i, 0)
	c.Cost = gs.costOf(i)
	return c
}

// currentCost returns what the charge of the grant's receipt has cost so far.
func (g *Grant) currentCost() int64 {
	switch {
	case !g.ok || g.Limit.Kind.Traits().Unsettled != "":
		return g.Cost
	case g.settling():
		return ^g.receiptCost
	}
	return g.receiptCost
}

// setSettling records whether a settlement of the grant is under way: from when the store is asked until
// its answer says whether the settlement was made. If that is never known, the grant stays so and isn't
// settled again. The receipt holds the complement of its cost meanwhile. That takes no room, since no
// charge costs less than 0.
func (g *Grant) setSettling(settling bool) {
	if g.settling() != settling {
		g.receiptCost = ^g.receiptCost
	}
}

// settling reports whether a settlement of the grant is under way, or may have been made.
func (g *Grant) settling() bool { return g.receiptCost < 0 }

// uncharged reports whether the limit is a dry run that would have denied, and so charged nothing.
func (g *Grant) uncharged() bool { return g.Limit.DryRun && !g.ok }

// recordSettled completes and records the result of settling grant i, whose cost is known by that.
func (gs *Grants) recordSettled(i int, r *store.Result) {
	g, l := gs.At(i), gs.limitOf(i)
	r.OK, r.Delay = true, g.result().Delay
	if l.Wait.For == limit.ForTurn {
		l.CountWaiting(r, 0)
	}
	g.keepResult(r)
}

// Recall adds the grants to a call, as if it had just been granted them, at what they
// have cost by now.
func (gs *Grants) Recall(c *Call) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for i := range gs.Len() {
		c.Limits, c.Charges = append(c.Limits, gs.limitOf(i)), append(c.Charges, gs.recalled(i))
		c.Results = append(c.Results, gs.At(i).result())
	}
}

// HandlerSettled remembers which charges the handler has settled itself. It is guarded by the lock of its
// Grants.
type HandlerSettled struct{ charges []bool }

func (h *HandlerSettled) has(i int) bool { return h != nil && h.charges != nil && h.charges[i] }

func (h *HandlerSettled) add(amends []Amend, grants int) {
	if h.charges == nil {
		h.charges = make([]bool, grants)
	}
	for _, a := range amends {
		h.charges[a.Grant] = true
	}
}

// Settle makes charges cost what amends say, even if ctx has ended, once a raise under way has ended. handler, if it
// isn't nil, remembers them. The settlement is empty if there was nothing to settle. It has an error and no charges if
// the store wasn't asked.
func (gs *Grants) Settle(
	ctx context.Context, b *Backend, amends []Amend, timed bool, handler *HandlerSettled,
) Settlement {
	gs.lockUnraised()
	defer gs.mu.Unlock()
	amends = slices.DeleteFunc(amends, func(a Amend) bool { return gs.At(a.Grant).uncharged() })
	if len(amends) == 0 {
		return Settlement{}
	}
	if slices.ContainsFunc(amends, func(a Amend) bool { return gs.At(a.Grant).settling() }) {
		return Settlement{Err: errSettlementUnknown}
	}
	charges := gs.beginSettling(make([]store.Charge, 0, len(amends)), amends)
	results := make([]store.Result, len(charges))
	s := b.settle(context.WithoutCancel(ctx), b.Store, charges, results, timed)
	gs.recordSettlement(&s, amends, results)
	if s.Amended && handler != nil {
		handler.add(amends, gs.Len())
	}
	return s
}

// beginSettling appends the charges that make the amends.
func (gs *Grants) beginSettling(to []store.Charge, amends []Amend) []store.Charge {
	for _, a := range amends {
		to = append(to, gs.charge(a.Grant, gs.receiptCostFor(a.Grant, a.Cost)))
		gs.At(a.Grant).setSettling(true)
	}
	return to
}

// recordSettlement records what has become of the amends. results are theirs.
func (gs *Grants) recordSettlement(s *Settlement, amends []Amend, results []store.Result) {
	switch {
	case s.Err == nil:
		first := len(s.Charges) - len(amends)
		for i, a := range amends {
			gs.recordSettled(a.Grant, &results[i])
			c, l := &s.Charges[first+i], gs.limitOf(a.Grant)
			if added := c.Cost - c.Receipt.Cost; l.Marks != nil && added > 0 {
				s.Increases = append(s.Increases, Increase{l, first + i, added})
			}
		}
		s.Amended = len(amends) > 0
	case errors.Is(s.Err, store.ErrNotMade):
		for _, a := range amends {
			gs.At(a.Grant).setSettling(false)
		}
	}
}

// Amend is the new cost of one charge.
type Amend struct {
	Grant int
	Cost  int64
	// AtLeast: the charge stands if Cost is below what it costs.
	AtLeast bool
}

// ReleaseLocally releases what this process counts for the grants: the slots of shares and of adaptive
// limits. End, which comes later, finds no leases of this process then. If learns is set, adaptive limits
// learn from the sample. ReleaseLocally returns the limits that have changed.
func (gs *Grants) ReleaseLocally(b *Backend, class uint8, learns bool, sample *adaptive.Sample) []adaptive.Change {
	for i := range gs.Len() {
		g := gs.At(i)
		g.Limit.ReleaseHere(b.Lines, g.Key, g.Cost, class, g.keptTenant())
	}
	if !learns {
		return nil
	}
	c := Borrow()
	defer c.Free()
	gs.mu.Lock() // a Decision may be reading the results
	defer gs.mu.Unlock()
	for i := range gs.Len() {
		c.Charges, c.Results = append(c.Charges, gs.recalled(i)), append(c.Results, gs.At(i).result())
	}
	changes := b.Keys.End(c.Charges, c.Results, sample)
	for i := range c.Results {
		gs.At(i).keepReceipt(&c.Results[i].Receipt)
	}
	return changes
}

// Ending says what to settle when grants end, in one call of the store.
type Ending struct {
	// Leases: the slots are released.
	Leases bool
	// Unmoved are further charges, which give back bytes that were paid for and not moved.
	Unmoved []store.Charge
	// Amends are the costs that depend on the response. HandlerSettled has the charges that the handler has
	// settled itself, which stand; nil for none.
	Amends         []Amend
	HandlerSettled *HandlerSettled
	// Timed: Settlement.Took is asked for.
	Timed bool
}

// onlyLeases reports whether the ending releases slots, does nothing else, and isn't timed.
func (e *Ending) onlyLeases() bool {
	return e.Leases && !e.Timed && len(e.Unmoved)+len(e.Amends) == 0
}

// End settles an Ending. done gets the outcome, whose slices are valid until
// it returns, even if the store panics. ctx must not end with the request.
func (gs *Grants) End(ctx context.Context, b *Backend, e Ending, done func(Settlement)) {
	if b.Release != nil && e.onlyLeases() {
		gs.releaseInMemory(b)
		done(Settlement{})
		return
	}
	c := Borrow()
	defer c.Free()
	s := Settlement{Err: errStorePanicked} // unless it returns
	defer func() {
		if s.Err == errStorePanicked {
			s.Charges = c.Charges
		}
		done(s)
	}()
	s = gs.end(ctx, b, c, e)
}

// releaseInMemory releases the slots by Backend.Release, and wakes the calls that wait for them.
func (gs *Grants) releaseInMemory(b *Backend) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for i := range gs.Len() {
		if g := gs.At(i); g.lease != (store.LeaseID{}) {
			b.Release(g.Key, g.Limit.StoreLimit, g.lease)
		}
	}
	if b.Lines.Waiting() {
		b.wake(gs.leases(nil))
	}
}

// leases appends the charges that release the slots.
func (gs *Grants) leases(to []store.Charge) []store.Charge {
	for i := range gs.Len() {
		if g := gs.At(i); g.lease != (store.LeaseID{}) {
			to = append(to, gs.charge(i, 0))
		}
	}
	return to
}

// end settles an Ending, with the charges in c: first those without an amend, then the amends in their
// order. The lock is held while the store is asked, so that no Settle sees grants that are being settled.
func (gs *Grants) end(ctx context.Context, b *Backend, c *Call, e Ending) Settlement {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if e.Leases {
		c.Charges = gs.leases(c.Charges)
	}
	c.Charges = append(c.Charges, e.Unmoved...)
	firstAmended := len(c.Charges)
	amends := e.Amends
	if len(amends) > 0 {
		amends = slices.DeleteFunc(amends, func(a Amend) bool { return gs.stands(a, e.HandlerSettled.has(a.Grant)) })
		c.Charges = gs.beginSettling(c.Charges, amends)
	}
	c.Results = append(c.Results[:0], make([]store.Result, len(c.Charges))...)
	s := b.settle(ctx, b.Store, c.Charges, c.Results, e.Timed)
	gs.recordSettlement(&s, amends, c.Results[firstAmended:])
	return s
}

// stands reports whether an amend leaves the grant's cost as it is. So it does if the handler has settled
// the charge itself.
func (gs *Grants) stands(a Amend, handlerSettled bool) bool {
	g := gs.At(a.Grant)
	if g.uncharged() || g.settling() || handlerSettled || a.AtLeast && a.Cost < gs.costOf(a.Grant) {
		return true
	}
	return g.receiptCost == gs.receiptCostFor(a.Grant, a.Cost)
}

// Include reports whether a grant is of a limit with a hash (inside.Hash), for a key.
func (gs *Grants) Include(hash uint64, key string) bool {
	for i := range gs.Len() {
		if g := gs.At(i); inside.Hash(g.Limit.StoreLimit) == hash && g.Key == key {
			return true
		}
	}
	return false
}
