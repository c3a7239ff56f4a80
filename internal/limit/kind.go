package limit

import (
	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/store"
)

// Kind is a kind of limit. What distinguishes kinds is in the table kinds, and in what the
// numbers of a limit are: the flow of a request names no kind.
type Kind uint8

const (
	Charged    Kind = iota // a Rate or a Quota: a request is charged, and keeps the charge
	Concurrent             // a Concurrency: a request takes slots until it ends
	Adaptive               // an AdaptiveConcurrency: so it does, of this process
	Bandwidth              // a request is charged for bytes as they move
	Banning                // a Ban: it charges nothing, and counts what others deny
)

// kinds has a row for each kind.
var kinds = [...]Traits{
	Charged: {
		WaitsFor: ForTurn, Costs: AnyCost, Settled: true, Shown: true, Binds: true, Counted: true, denies: quota,
	},
	Concurrent: {
		WaitsFor: ForSlot, Costs: OwnCost, Shown: true, Binds: true, denies: capacity,
		Needs: Releases, Enforced: Slots, Unsettled: slotsAreReleased,
	},
	Adaptive: {
		WaitsFor: ForSlot, Costs: OwnCost, Shown: true, Binds: true, denies: capacity,
		Needs: Releases | Local | Watches, Enforced: Slots, Unsettled: slotsAreReleased,
	},
	Bandwidth: {
		WaitsFor: ForNothing, Binds: true, denies: quota,
		Needs: Paces | Watches | Releases,
	},
	Banning: {
		WaitsFor: ForNothing, Nested: true, denies: abuse,
		Needs: Counts, Unsettled: "a ban, which charges nothing",
	},
}

const slotsAreReleased = "a concurrency limit: its slots are released by Done"

// Traits are what a kind does.
type Traits struct {
	// WaitsFor says what its requests wait for.
	WaitsFor WaitsFor
	// Needs are those of all its requests, Enforced further ones that a dry run doesn't have.
	Needs, Enforced Needs
	// Costs says which WithCost applies to it.
	Costs Costs
	// Settled: a WithSettle applies to it. Unsettled is why Permit.Settle doesn't, or "".
	Settled   bool
	Unsettled string
	// Shown: header fields show it.
	Shown bool
	// Binds: the units left of it say how many requests may still pass.
	Binds bool
	// Nested: an inner limiter charges it again.
	Nested bool
	// Counted: its denials count for a ban.
	Counted bool

	denies func(*store.Charge) Denial // what its denial of a charge means
}

// Costs says which functions of the application tell what a request costs.
type Costs uint8

const (
	NoCost  Costs = iota
	OwnCost       // the limit's own
	AnyCost       // the limiter's and the route's, too
)

// Denial says what a denial means. If several limits deny, the last in this order counts.
type Denial uint8

const (
	QuotaExceeded   Denial = iota
	ReducedCapacity        // of the whole service
	AbnormalUsage
)

func quota(*store.Charge) Denial { return QuotaExceeded }

func capacity(c *store.Charge) Denial {
	if c.Key == keytext.GlobalText {
		return ReducedCapacity
	}
	return QuotaExceeded
}

func abuse(*store.Charge) Denial { return AbnormalUsage }

// Traits returns what the kind does.
func (k Kind) Traits() *Traits { return &kinds[k] }

// Hidden reports whether header fields leave the limit out although they show others of its kind.
func (l *Limit) Hidden() bool {
	return kinds[l.Kind].Shown && !l.DryRun && l.Policy.Load().Text == ""
}

// Denial returns what the limit's denial of a charge means.
func (l *Limit) Denial(c *store.Charge) Denial { return kinds[l.Kind].denies(c) }

// DecidedCapacity returns how many units a key had at most when a charge was decided, and why.
func DecidedCapacity(c *store.Charge, r *store.Result) (capacity int64, why adaptive.Reason) {
	if rule := adaptive.RuleOf(c.Limit); rule != nil {
		return rule.DecidedCapacity(c, r)
	}
	return inside.Full(inside.Part(c.Limit, int64(r.Processes)), c.MaxWait), adaptive.None
}

// HasUse reports whether keys have a use of a rate or quota, as Limit.Use returns it: a bucket saves up units.
func HasUse(l *store.Limit) bool {
	s := l.Spec()
	switch s.Algorithm {
	case store.WarmUp:
		return false
	case store.TokenBucket:
		return s.Burst > 0
	case store.IntervalBucket, store.LeakyBucket, store.FixedWindow, store.SlidingWindow, store.SlidingCounter,
		store.SlidingLog:
	}
	return true
}

// Use returns how many units a key has used of a limit after a charge, and of how many: the burst of a bucket, the
// units of a window, or the burst and the queue of a LeakyBucket. Units that are owed, or wait in a queue, are used,
// too.
func (l *Limit) Use(c *store.Charge, r *store.Result) (used, of int64) {
	of, _ = DecidedCapacity(c, r)
	used = max(of-r.Remaining, 0)
	if s := inside.Part(c.Limit, int64(r.Processes)).Spec(); s.Algorithm == store.TokenBucket && s.Queue > 0 {
		of = s.Burst
	}
	return used, of
}
