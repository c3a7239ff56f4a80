package adaptive

import (
	"time"

	"github.com/stint-go/stint/store"
)

// The Mark of a result's receipt has the limit that it was decided by, and its Reason, even if
// nothing was charged: no other caller reads it.
const reasonBits = 3

// withCapacity adds to a result the limit that it was decided by.
func withCapacity(r store.Result, limit, inFlight int64, why Reason) store.Result {
	r.Remaining, r.Held = max(0, limit-inFlight), inFlight
	r.Receipt.Mark = limit<<reasonBits | int64(why)
	return r
}

// capacityOf returns the limit that a receipt has.
func capacityOf(r *store.Receipt) (limit int64, why Reason) {
	return r.Mark >> reasonBits, Reason(r.Mark & (1<<reasonBits - 1))
}

// DecidedCapacity returns the limit by which c was decided with res, and its Reason. For a result
// without a decision it returns the present limit.
func (r *Rule) DecidedCapacity(c *store.Charge, res *store.Result) (limit int64, why Reason) {
	if res.Receipt.Mark != 0 {
		return capacityOf(&res.Receipt)
	}
	k := r.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.keys[limitKey{r.name, c.Key}]; e != nil {
		return e.limit.Current(), e.limit.Reason()
	}
	return r.cfg.Start, Start
}

// Change is a change of a limit.
type Change struct {
	Charge            store.Charge // on it
	From, To          int64
	Reason            Reason
	InFlight          int64         // units
	Latency, Baseline time.Duration // 0 where there was none
}

// End releases the slots that the charges hold of limits of this process, and adds the request's sample
// to the limits, unless it is nil. End sets InFlight in it. It returns the changes of the limits. It clears
// the leases of the receipts, which still say by which limits they were decided.
func (k *Keys) End(charges []store.Charge, results []store.Result, sample *Sample) (changes []Change) {
	for i := range charges {
		if RuleOf(charges[i].Limit) == nil {
			continue
		}
		if c, changed := k.end(results[i].Receipt.Lease, sample); changed {
			c.Charge = charges[i]
			changes = append(changes, c)
		}
		results[i].Receipt.Lease = store.LeaseID{}
		k.freed(charges[i].Limit.Name(), charges[i].Key)
	}
	return changes
}

func (k *Keys) end(id store.LeaseID, sample *Sample) (c Change, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, held := k.release(id)
	if !held {
		return c, false
	}
	e := l.entry
	if sample != nil {
		s := *sample
		s.InFlight = l.inFlight
		before := e.limit.Current()
		if changed = e.limit.Add(time.Since(k.start), s); changed {
			c = Change{
				From: before, To: e.limit.Current(), Reason: e.limit.Reason(),
				InFlight: e.inFlight, Latency: e.limit.Latency(), Baseline: e.limit.Baseline(),
			}
		}
	}
	k.keepIdle(e)
	return c, changed
}
