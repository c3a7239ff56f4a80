package memstore

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// mostShared is how many shared states a shard has. Keys that find the store full share
// one state for each limit and shard. Charges on limits without one are denied: two
// limits can't count in one state, and neither may lose its count.
const mostShared = 32

type spill struct{ states []spilled }

type spilled struct {
	wide
	limit uint64 // Limit.Hash
	// busy: a visit has the state and hasn't put it back yet.
	busy bool
}

// share gives the visit the state that the limit's keys beyond the cap share. It does
// nothing if there is no such state and none may be created, if there are too many, or if
// another charge of the call has it.
func (v *visit) share(l *store.Limit, st *store.State, now int64, create bool) {
	sh := v.shard
	if sh.spill == nil {
		if !create {
			return
		}
		sh.spill = new(spill)
	}
	p := sh.spill
	i := slices.IndexFunc(p.states, func(e spilled) bool { return e.limit == inside.Hash(l) })
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
		p.states[i] = spilled{limit: inside.Hash(l)}
	}
	v.where, v.spill = shared, i
	p.states[i].busy = true
	*st = p.states[i].state[0]
}

// put puts a shared state back.
func (p *spill) put(i int, st *store.State, until int64, alive bool) {
	e := &p.states[i]
	e.busy = false
	e.until = until
	if alive {
		e.state[0] = *st
	} else {
		e.state[0] = store.State{}
	}
}

// expireShared frees the shard's shared states once all of them have expired.
func (sh *shard) expireShared(now int64) {
	if sh.spill != nil && !slices.ContainsFunc(sh.spill.states, func(e spilled) bool { return e.until > now }) {
		sh.spill = nil
	}
}

// overflowed in the last byte of a receipt's lease says that the charge was made against
// a shared state. It is settled there, even if its key has found room since. The first 8
// bytes are enough to tell leases apart.
const overflowed = 1

// madeInShared reports whether an earlier charge was made against a shared state.
func madeInShared(c *store.Charge) bool { return c.Receipt.Lease[len(c.Receipt.Lease)-1] == overflowed }

// count updates the statistics for a charge, and makes the result of one for which there
// is no state.
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
		if s.overflow.Add(1) == reportAt {
			go background.Do("reporting a full store", s.reportFull) // the caller holds locks
		}
		if !r.OK {
			s.denied.Add(1)
		}
	}
}

// wait returns the time until the first shared state expires, or a second if that is
// unknown.
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

// deny decides a call that is denied because there is no state for one of its charges.
// The other results are those without the denial, and nothing is charged.
func deny(now store.Now, visits []visit, charges []store.Charge, states []store.State, results []store.Result) {
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
