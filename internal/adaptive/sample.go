package adaptive

import (
	"time"

	"github.com/stint-go/stint/store"
)

// A result's receipt says in its Mark where the limit stood, and why, also where
// nothing was charged: no other caller reads it.
const reasonBits = 3

// standing adds to a result where its limit stood.
func standing(r store.Result, limit, inFlight int64, why Reason) store.Result {
	r.Remaining, r.Held = max(0, limit-inFlight), inFlight
	r.Receipt.Mark = limit<<reasonBits | int64(why)
	return r
}

func stood(r *store.Receipt) (limit int64, why Reason) {
	return r.Mark >> reasonBits, Reason(r.Mark & (1<<reasonBits - 1))
}

// Stood returns where the limit stood when c was decided with res, and why. For a result
// without a decision it returns where the limit stands now.
func (r *Rule) Stood(c *store.Charge, res *store.Result) (limit int64, why Reason) {
	if res.Receipt.Mark != 0 {
		return stood(&res.Receipt)
	}
	k := r.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.keys[place{r.name, c.Key}]; e != nil {
		return e.limit.Current(), e.limit.Reason()
	}
	return r.cfg.Start, Start
}

// Change is a limit that has moved.
type Change struct {
	Charge            store.Charge // on it
	From, To          int64
	Reason            Reason
	InFlight          int64         // units
	Latency, Baseline time.Duration // 0 where there was none
}

// End releases what the charges hold of limits of this process, with what has been
// seen of the request: nil for nothing. It returns what has moved. The receipts are
// spent by it; where the limits stood they still say. InFlight of the sample is for
// End to know.
func (k *Keys) End(charges []store.Charge, results []store.Result, seen *Sample) (moved []Change) {
	for i := range charges {
		if RuleOf(charges[i].Limit) == nil {
			continue
		}
		if c, changed := k.end(results[i].Receipt.Lease, seen); changed {
			c.Charge = charges[i]
			moved = append(moved, c)
		}
		results[i].Receipt.Lease = store.LeaseID{}
		k.freed(charges[i].Limit.Name(), charges[i].Key)
	}
	return moved
}

func (k *Keys) end(id store.LeaseID, seen *Sample) (c Change, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, held := k.release(id)
	if !held {
		return c, false
	}
	e := l.of
	if seen != nil {
		s := *seen
		s.InFlight = l.inFlight
		before := e.limit.Current()
		if changed = e.limit.Add(time.Since(k.born), s); changed {
			c = Change{
				From: before, To: e.limit.Current(), Reason: e.limit.Reason(),
				InFlight: e.inFlight, Latency: e.limit.Latency(), Baseline: e.limit.Baseline(),
			}
		}
	}
	k.rest(e)
	return c, changed
}
