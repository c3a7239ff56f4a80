package store

import (
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// Engine is for the packages of this module: what they need of a limit beside what the
// author of a store needs. The type of its parameter is internal, so no other module can
// call it.
func (l *Limit) Engine(engine.Access) *limitEngine { return (*limitEngine)(l) }

// Engine is for the packages of this module, which may look into a state: see Limit.Engine.
func (s *State) Engine(engine.Access) *engine.State { return (*engine.State)(&s.is) }

// Engine is for the packages of this module: see Limit.Engine.
func (w Window) Engine(engine.Access) windowEngine { return windowEngine(w) }

// limitEngine has the methods of a Limit that only this module calls.
type limitEngine Limit

func (e *limitEngine) limit() *Limit { return (*Limit)(e) }

// Hash distinguishes limits of different StateName within this process. It is seeded anew in
// every process, and never 0 for a Limit made by NewLimit.
func (e *limitEngine) Hash() uint64 { return e.hash }

// Identity returns the identity of a key under a limit, for a store that keeps no keys,
// from a seeded hash of the key. It is never 0. Two of n keys share an identity with a
// probability of n²/2^65 (one in thirty million for a million keys) and are then counted
// together. Without the seed no caller can construct a collision.
func (e *limitEngine) Identity(hash uint64) uint64 { return max(hash^e.hash, 1) }

// Writes reports whether the limit writes its states under these numbers.
func (e *limitEngine) Writes(n engine.Numbers) bool { return e.numbers == n }

// StepInstant decides a charge alone, for a TokenBucket or LeakyBucket whose State is Live,
// was written under the limit's numbers, and consists of A alone. Most do, so a store may
// keep them in one word. It returns the new A. If ok is false, the step needs or leaves more
// of a State than that, and r is meaningless.
func (e *limitEngine) StepInstant(now, a int64, c *Charge, r *Result) (next int64, ok bool) {
	return e.limit().stepInstant(now, a, c, r)
}

// Step decides a charge alone, as Decide does, and changes the state even if it denies.
func (e *limitEngine) Step(now *Now, c *Charge, s *State, r *Result) {
	e.limit().step(now, c, &s.is, r)
}

// Terms returns the numbers that the limit's steps use.
func (e *limitEngine) Terms() engine.Terms {
	t := engine.Terms{
		Numbers: e.numbers, Scale: e.scale.Scale, Token: e.token,
		Capacity: e.capacity, Queue: e.queue, Largest: e.largest,
		Period: e.period, Warm: e.warm, Patience: e.patience,
	}
	t.Longest = e.most
	return t
}

// Full returns how many units are left of a key that has used none.
func (e *limitEngine) Full() int64 { return e.full }

// MoreAfter returns the time after which more units are left than r says, or after
// which the charge that r denies passes, whichever comes first. known is false for
// Concurrency: the time until a slot is released is unknown.
func (e *limitEngine) MoreAfter(r *Result) (after time.Duration, known bool) {
	if e.spec.Algorithm == Concurrency {
		return 0, false
	}
	if after = r.MoreAfter; !r.OK && r.RetryAfter > 0 {
		after = min(after, r.RetryAfter) // Never is the largest Duration
	}
	return after, true
}

// Behind reports whether charge a was made behind charge b, where both are charges of
// this limit and one key. Of two such charges a must be refunded first, because nothing
// is given back for a charge while others have turns reserved behind it. If neither is
// behind the other, the order of refunds doesn't matter.
func (e *limitEngine) Behind(a, b Receipt) bool {
	if a.Path != b.Path { // issued by different stores
		return false
	}
	return e.limit().behind(a, b)
}

// Standing returns the receipt for what remains of a charge after a refund: settling
// was at cost 0 has returned is. While others wait behind the charge, little or nothing
// comes back and the rest stays reserved. The receipt returned stands for that rest, as
// if the charge had had its cost from the start. Its Cost is 0 if nothing remains.
func (e *limitEngine) Standing(was, is Receipt) Receipt {
	back := e.limit().back(was, is)
	if back <= 0 {
		return was
	}
	if back >= was.Cost {
		return Receipt{}
	}
	is.Cost, is.Lease, is.Path = was.Cost-back, was.Lease, was.Path
	return is
}

// Without returns the receipt that a charge on a TokenBucket would have if its last
// tokens had been a separate charge made after it.
func (e *limitEngine) Without(r Receipt, tokens int64) Receipt {
	r.Mark -= tokens * e.token
	r.Cost -= tokens
	return r
}

// DecidedBy returns a copy of the limit that a composite store decides in its own way.
// That store recognizes it by Decider. All other stores ignore the mark.
func (e *limitEngine) DecidedBy(decider any) *Limit {
	d := Limit(*e)
	d.decider = decider
	return &d
}

// Decider returns the value given to DecidedBy, or nil for a limit that every store
// decides.
func (e *limitEngine) Decider() any { return e.decider }

// Veto returns a charge that every store denies, so that nothing in the same Take is
// charged: a composite store whose own limits deny adds it to the charges of the store
// below, which then answers what it would have answered. Charge the key of one of the
// others, since stores may keep keys apart. A Ban doesn't count the denial. The name of
// the charge's limit is one that NewLimit denies, so it never equals another limit's.
func (e *limitEngine) Veto(key string) Charge {
	return Charge{Key: key, Limit: veto, Cost: 2, MaxWait: time.Second} // countsFor says why it waits
}

var veto = func() *Limit {
	l, err := NewLimit(Spec{Name: "veto", Algorithm: Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	l.spec.Name = "-veto"
	l.workOutName()
	return l
}()

// Counts reports whether a Ban counts a denial of c, where ban is a charge on the Ban in
// the same decision: see Ban.
func (e *limitEngine) Counts(c, ban *Charge) bool { return c.countsFor(ban) }

// windowEngine has the methods of a Window that only this module calls.
type windowEngine Window

// Around returns the calendar window that contains wall, in microseconds since Epoch,
// with the given numbers of windows before and after it.
func (e windowEngine) Around(wall int64, before, after int) []engine.Span {
	w := Window(e)
	at, _ := w.bounds(wall)
	for range before {
		at, _ = w.bounds(at - 1)
	}
	spans := make([]engine.Span, before+after+1)
	for i := range spans {
		n, _ := w.number(at)
		_, end := w.bounds(at)
		spans[i] = engine.Span{Number: n, Start: at, End: end}
		at = end
	}
	return spans
}

// Fixed returns the length, in microseconds, of a window made by Every. For all others
// ok is false: their lengths vary (see Around).
func (e windowEngine) Fixed() (length int64, ok bool) {
	return e.every.Microseconds(), e.kind == everyWindow
}

// Nominal returns the approximate length of a window in microseconds: that of the
// longest window in a location whose clocks never change.
func (e windowEngine) Nominal() int64 { return Window(e).nominal() }
