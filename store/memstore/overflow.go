package memstore

import (
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// The keys that find the store full share one state for each limit and shard.
// A shard has few of these; charges on limits beyond them are refused, since
// two limits can not count in one state and neither may lose its count.
const mostShared = 32

type spill struct{ states []spilled }

type spilled struct {
	wide
	limit uint64 // Limit.Hash
	// busy: handed out and not yet put back.
	busy bool
}

// share has the visit decided against the state its limit's overflowing keys
// share, or leaves it where it is: if there is none and none is to be made, if
// there are too many, or if another charge of the call has been handed it.
func (v *visit) share(l *store.Limit, st *store.State, now int64, create bool) {
	sh := v.shard
	if sh.spill == nil {
		if !create {
			return
		}
		sh.spill = new(spill)
	}
	p := sh.spill
	i := slices.IndexFunc(p.states, func(e spilled) bool { return e.limit == l.Hash() })
	switch {
	case i >= 0:
		if p.states[i].busy {
			return
		}
	case !create:
		return
	default:
		i = slices.IndexFunc(p.states, func(e spilled) bool { return !e.busy && e.until <= now })
		if i < 0 && len(p.states) < mostShared {
			i = len(p.states)
			p.states = append(p.states, spilled{})
		}
		if i < 0 {
			return
		}
		p.states[i] = spilled{limit: l.Hash()}
	}
	v.where, v.spill = shared, i
	p.states[i].busy = true
	*st = p.states[i].state
}

// put is the way back.
func (p *spill) put(i int, st *store.State, until int64, alive bool) {
	e := &p.states[i]
	e.busy = false
	e.until = until
	if alive {
		e.state = *st
	} else {
		e.state = store.State{}
	}
}

// expire lets go of expired states, and of the memory once there are no others.
func (sh *shard) expireShared(now int64) {
	if sh.spill != nil && !slices.ContainsFunc(sh.spill.states, func(e spilled) bool { return e.until > now }) {
		sh.spill = nil
	}
}

// overflowed in the last byte of a receipt's lease says that the charge was
// made against a shared state: that is where it is to be settled, even if its
// key has found a place since then. Leases are told apart by the first 8 bytes.
const overflowed = 1

// count keeps the statistics of a charge, and answers one that was decided
// nowhere.
func (s *Store) count(v *visit, c *store.Charge, r *store.Result, now int64) {
	switch v.where {
	case nowhere:
		wait := v.shard.spill.wait(now)
		*r = store.Result{OK: c.Cost == 0, ResetAfter: wait}
		if !r.OK {
			r.RetryAfter = wait
		}
	case shared:
		if r.Receipt.Cost > 0 {
			r.Receipt.Lease[len(r.Receipt.Lease)-1] = overflowed
		}
	default:
		return
	}
	if c.Cost > 0 {
		s.overflow.Add(1)
		if !r.OK {
			s.refused.Add(1)
		}
	}
}

// wait is how long it takes until the first shared state expires; a second, if
// that can't be said.
func (p *spill) wait(now int64) time.Duration {
	first := int64(never)
	for i := range p.states {
		first = min(first, p.states[i].until)
	}
	if first == never {
		return time.Second
	}
	return time.Duration(max(first-now, 1)) * time.Microsecond
}

// refuse answers charges of which one is nowhere and so refuses the call: the
// others say what they would have, and nothing is charged.
func refuse(now store.Now, visits []visit, charges []store.Charge, states []store.State, results []store.Result) {
	asked, tried := slices.Clone(charges), slices.Clone(states)
	for i := range visits {
		if visits[i].where == nowhere {
			asked[visits[i].i].Cost = 0
		}
	}
	granted := store.Decide(now, asked, tried, results)
	for i := range asked {
		if granted && asked[i].Cost > 0 && results[i].OK {
			peek := []store.Charge{{Key: asked[i].Key, Limit: asked[i].Limit}}
			store.Decide(now, peek, states[i:i+1], results[i:i+1])
		} else {
			states[i] = tried[i]
		}
	}
}
