package stint

import (
	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/mistake"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/store"
)

// kind is the behaviour that limits of one kind share. Each kind is a type in the file of its
// limit's constructor, and the flow of a request names none of them. It asks the kind,
// or, where a plain request would ask for nothing, looks at the needs that the kind has
// set.
type kind interface {
	// enter completes the entry of r, a limit of this kind: it removes settings that don't
	// apply to the kind, and sets what its requests need.
	enter(e *entry, r *rule)
	// decided marks the limit as one that something other than the limiter's store
	// decides, or returns it unchanged.
	decided(l *store.Limit, all *adaptive.Keys) *store.Limit
	// same reports whether l, a limit with the same numbers, also has the same rule
	// beside them.
	same(l *store.Limit) bool
	// says describes a limit with these numbers by everything that its counting depends on.
	says(s store.Spec) string
	// lacks returns what such a limit needs beside it and doesn't have, among all
	// limits of a plan; nil if nothing is missing.
	lacks(e *entry, beside []*entry) *mistake.Mistake
	// counted reports whether denials by the limit count for a ban.
	counted(e *entry) bool

	// repeated reports whether an inner limiter charges the limit again.
	repeated() bool
	// stood returns how many units the limit had in a decision, and why.
	stood(c *store.Charge, r *store.Result) (quota int64, why AdaptiveReason)
	// binds reports whether what is left of the limit says how many requests may still
	// pass.
	binds() bool
	// free reports whether a request would pass, according to the answer to a charge of
	// cost 0.
	free(r *store.Result) bool
	// denial returns what the limit's denial of a charge means.
	denial(c *store.Charge) denial
	// whyUnsettled returns why Permit.Settle doesn't apply to the limit, or "" if it does.
	whyUnsettled() string
}

// needs is a set of things that a limit's requests need beyond an immediate decision.
type needs uint8

const (
	waits    needs = 1 << iota // may have to wait, for a turn or a slot
	slots                      // take slots, which others may wait for
	local                      // are decided in this process, whatever the store
	counts                     // have their denials counted
	paces                      // are charged for bytes as they move, and for nothing before
	watches                    // have their response observed
	releases                   // leave something to do when they end
)

// charged is the kind of Rate and Quota, which charge a request and keep the charge.
// Other kinds embed it and override what differs.
type charged struct{}

func (*charged) enter(e *entry, _ *rule) {
	if e.wait.Queues = e.limit.Spec().Queue > 0; e.wait.Queues || e.wait.MaxWait > 0 {
		e.needs |= waits
	}
	if e.settle != nil {
		e.needs |= watches | releases
	}
	if !e.dryRun {
		e.said = said(e.limit)
	}
}

func (*charged) decided(l *store.Limit, _ *adaptive.Keys) *store.Limit { return l }

func (*charged) same(l *store.Limit) bool { return l.Decider() == nil }

func (*charged) says(s store.Spec) string { return namesakes.Says(s) }

func (*charged) lacks(*entry, []*entry) *mistake.Mistake { return nil }

func (*charged) counted(*entry) bool { return true }

func (*charged) repeated() bool { return false }

func (*charged) binds() bool { return true }

func (*charged) denial(*store.Charge) denial { return quotaExceeded }

func (*charged) whyUnsettled() string { return "" }

func (*charged) stood(c *store.Charge, _ *store.Result) (int64, AdaptiveReason) {
	return c.Limit.Spec().Units, NotAdaptive
}

// A limit with debt may let a charge pass without having a whole unit.
func (*charged) free(r *store.Result) bool { return r.Remaining > 0 || r.ResetAfter == 0 }
