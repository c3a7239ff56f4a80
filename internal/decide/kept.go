package decide

import (
	"strings"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// Kept is what grants hold of one limit, in values that can leave the process. A receipt belongs to the numbers that
// it was charged by, so they are kept with it.
type Kept struct {
	State string     // StateName of the limit
	Spec  store.Spec // of the limit; its Window may be left out
	Cost  int64      // that was charged at first
	// Before and Least are those of raises: see raisedGrant.
	Before, Least int64
	// Receipt is that of the charge. Its Cost is below 0 if it isn't known whether an earlier settlement was made.
	Receipt store.Receipt
}

// Keep returns what the grants hold of rates, quotas and bans, once a raise under way has ended. Slots can't be kept.
func (gs *Grants) Keep() (all []Kept) {
	gs.lockUnraised()
	defer gs.mu.Unlock()
	for i := range gs.Len() {
		g, l, r := gs.At(i), gs.limitOf(i), gs.raisedGrant(i)
		if g.uncharged() || l.Kind != limit.Charged && l.Kind != limit.Banning {
			continue
		}
		all = append(all, Kept{
			State: l.StoreLimit.StateName(), Spec: l.StoreLimit.Spec(), Cost: g.Cost,
			Before: r.before, Least: r.least, Receipt: g.receipt(),
		})
	}
	return all
}

// Resume makes grants, which have none yet, the owner of what was kept of others. current returns the limit that has
// a name now, and the key to charge for it, or nil. What was kept of limits that are gone is dropped: their charges
// stand.
func (gs *Grants) Resume(all []Kept, current func(name string) (l *limit.Limit, key string)) {
	var grants []Grant
	rs, isRaised := new(raised), false
	for i := range all {
		k := &all[i]
		name, _, _ := strings.Cut(k.State, "/")
		l, key := current(name)
		if l == nil || l.Kind != limit.Charged && l.Kind != limit.Banning ||
			(l.Kind == limit.Banning) != (k.Spec.Algorithm == store.Ban) {
			continue
		}
		g, r := k.resume(l, key)
		grants, rs.grants = append(grants, g), append(rs.grants, r)
		isRaised = isRaised || r != raisedGrant{}
	}
	if len(grants) == 0 {
		return
	}
	gs.first = grants[0]
	if len(grants) > 1 || isRaised {
		more := &moreGrants{list: grants[1:]}
		if isRaised {
			more.raised.Store(rs)
		}
		gs.more.Store(more)
	}
}

// resume returns the grant that was kept, of the limit that has its name now. If that has another algorithm or window,
// nothing of the charge counts for it: the cost so far stands, and only what is added is charged.
func (k *Kept) resume(l *limit.Limit, key string) (Grant, raisedGrant) {
	g := Grant{Limit: l, Key: key, Cost: k.Cost, ok: true}
	if l.Kind == limit.Banning {
		return g, raisedGrant{}
	}
	r := raisedGrant{before: k.Before, least: k.Least}
	g.keepReceipt(&k.Receipt)
	if same := k.limit(l); same != nil {
		g.Limit = same
		return g, r
	}
	r = raisedGrant{before: k.Before + g.currentCost()}
	g.keepReceipt(&store.Receipt{})
	return g, r
}

// limit returns l with the numbers of the charge. It returns nil if l has other states.
func (k *Kept) limit(l *limit.Limit) *limit.Limit {
	now := l.StoreLimit.Spec()
	if l.StoreLimit.StateName() != k.State {
		return nil
	}
	spec := k.Spec
	spec.Name, spec.Window = now.Name, now.Window
	if spec == now {
		return l
	}
	numbers, err := store.NewLimit(spec)
	if err != nil || numbers.StateName() != k.State {
		return nil
	}
	old := new(limit.Limit)
	l.CopyTo(old)
	old.StoreLimit = numbers
	return old
}
