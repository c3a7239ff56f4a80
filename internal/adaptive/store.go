package adaptive

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Store decides charges on limits of this process (Keys.Limit) itself, and passes all
// others to the store below. Make one with Keys.Over.
//
// It takes its own slots first, and gives them back if the store below denies or
// fails. If one of its own limits denies, the store below is asked without being
// charged, so that its limits still say what they would have said. It isn't asked at
// all if it has no charge.
type Store struct {
	keys  *Keys
	below store.Store
}

// Over returns a store over below. Several stores may share the keys.
func (k *Keys) Over(below store.Store) *Store { return &Store{k, below} }

// belowCharges is the charges of a call that are for the store below, with room for a veto.
type belowCharges struct {
	charges []store.Charge
	results []store.Result
	places  []int // indexes in the call
}

var belowPool = sync.Pool{New: func() any { return new(belowCharges) }}

func (r *belowCharges) add(i int, c store.Charge) {
	r.charges, r.results, r.places = append(r.charges, c), append(r.results, store.Result{}), append(r.places, i)
}

func (r *belowCharges) free() {
	clear(r.charges)
	clear(r.results)
	r.charges, r.results, r.places = r.charges[:0], r.results[:0], r.places[:0]
	belowPool.Put(r)
}

// chargesBelow returns those of charges that are for the store below, or nil if all are.
func chargesBelow(charges []store.Charge) *belowCharges {
	if !slices.ContainsFunc(charges, func(c store.Charge) bool { return RuleOf(c.Limit) != nil }) {
		return nil
	}
	r := belowPool.Get().(*belowCharges)
	for i := range charges {
		if RuleOf(charges[i].Limit) == nil {
			r.add(i, charges[i])
		}
	}
	return r
}

// addVeto adds a charge that never passes, in place of the denied ones of this process.
func (r *belowCharges) addVeto() {
	key := r.charges[0].Key // in the same slot of a cluster
	r.charges, r.results = append(r.charges, inside.Veto(key)), append(r.results, store.Result{})
}

// copyResults copies the results of the store below to their places.
func (r *belowCharges) copyResults(results []store.Result) {
	for k, i := range r.places {
		results[i] = r.results[k]
	}
}

// denied reports whether an enforced charge is denied.
func (r *belowCharges) denied() bool {
	for k := range r.charges {
		if !r.results[k].OK && !r.charges[k].DryRun {
			return true
		}
	}
	return false
}

// Take decides the charges: it makes all of them or none.
func (s *Store) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	r := chargesBelow(charges)
	if r == nil {
		return s.below.Take(ctx, charges, results)
	}
	defer r.free()
	if duplicated(charges) {
		return store.ErrDuplicate
	}
	granted := false
	defer func() {
		if !granted { // also if the store below panics
			s.keys.releaseDenied(charges, results)
		}
	}()
	denied := s.keys.take(charges, results)
	if len(r.charges) == 0 {
		granted = !denied
		return nil
	}
	if denied {
		r.addVeto()
	}
	if err := s.below.Take(ctx, r.charges, r.results); err != nil {
		return err
	}
	r.copyResults(results)
	granted = !denied && !r.denied()
	return nil
}

// duplicated reports whether a limit of this process is charged twice for the same key.
func duplicated(charges []store.Charge) bool {
	for i := range charges {
		a := &charges[i]
		if RuleOf(a.Limit) == nil {
			continue
		}
		for k := range charges[:i] {
			if b := &charges[k]; b.Key == a.Key && b.Limit.Name() == a.Limit.Name() && RuleOf(b.Limit) != nil {
				return true
			}
		}
	}
	return false
}

// take decides the charges of this process, and reports whether one is denied.
func (k *Keys) take(charges []store.Charge, results []store.Result) (denied bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range charges {
		if r := RuleOf(charges[i].Limit); r != nil {
			results[i] = k.decide(r, &charges[i])
			denied = denied || !results[i].OK && !charges[i].DryRun
		}
	}
	return denied
}

// releaseDenied gives back the slots of a call that isn't granted. As with any store, the
// results then say what is left without them.
func (k *Keys) releaseDenied(charges []store.Charge, results []store.Result) {
	for i := range charges {
		if c, res := &charges[i], &results[i]; RuleOf(c.Limit) != nil && res.Receipt.Cost > 0 {
			k.end(res.Receipt.Lease, nil)
			limit, why := capacityOf(&res.Receipt)
			*res = withCapacity(store.Result{OK: res.OK}, limit, int64(res.Held)-res.Receipt.Cost, why)
			k.freed(c.Limit.Name(), c.Key)
		}
	}
}

// Settle settles the charges on limits of this process first, then those below. What is
// released here stays released if the store below fails.
func (s *Store) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	r := chargesBelow(charges)
	if r == nil {
		return s.below.Settle(ctx, charges, results)
	}
	defer r.free()
	for i := range charges {
		if c := &charges[i]; RuleOf(c.Limit) != nil {
			results[i] = s.keys.settle(c)
			s.keys.freed(c.Limit.Name(), c.Key)
		}
	}
	if len(r.charges) == 0 {
		return nil
	}
	if err := s.below.Settle(ctx, r.charges, r.results); err != nil {
		return err
	}
	r.copyResults(results)
	return nil
}

// settle changes a lease to hold c.Cost.
func (k *Keys) settle(c *store.Charge) store.Result {
	if c.Cost == 0 {
		k.end(c.Receipt.Lease, nil)
	} else {
		k.resize(c.Receipt.Lease, c.Cost)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	res := k.decide(RuleOf(c.Limit), &store.Charge{Key: c.Key, Limit: c.Limit})
	res.Receipt.Cost, res.Receipt.Lease = c.Cost, c.Receipt.Lease
	return res
}

func (k *Keys) resize(id store.LeaseID, units int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, held := k.leases[id]; held {
		l.entry.inFlight += units - l.units
		l.units = units
		k.leases[id] = l
	}
}

// Reset makes the limits forget key. Those of the store below forget it only if that is
// a store.Resetter.
func (s *Store) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	below := make([]*store.Limit, 0, len(limits))
	for _, l := range limits {
		if RuleOf(l) == nil {
			below = append(below, l)
		}
	}
	if len(below) > 0 {
		rs, can := s.below.(store.Resetter)
		if !can {
			return false, fmt.Errorf("%T doesn't implement store.Resetter", s.below)
		}
		if found, err = rs.Reset(ctx, key, below...); err != nil {
			return found, err
		}
	}
	for _, l := range limits {
		if r := RuleOf(l); r != nil {
			found = r.reset(key) || found
		}
	}
	return found, nil
}

// AnswersAtOnce reports whether the store below answers at once: limits of this process
// always do.
func (s *Store) AnswersAtOnce() bool { return inside.AnswersAtOnce(s.below) }
