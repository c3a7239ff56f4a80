package stint

import (
	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/store"
)

// kind is what makes limits of one kind what they are. Each is a type in the file
// of its limit's constructor, and the flow of a request names none: it asks the
// kind, or, where that would be asking a plain request for nothing, looks at what
// the kind has said that requests need.
type kind interface {
	// enter completes the entry of a limit of this kind: it takes from it the
	// settings that don't go with the kind, and says what its requests need.
	enter(e *entry)
	// decided makes the limit one that something else than the limiter's store
	// decides, or returns it as it is.
	decided(l *store.Limit, p *process) *store.Limit
	// same reports whether l, another's limit with the same numbers, goes by the
	// same beside them.
	same(l *store.Limit) bool
	// unit is how much one of the store's units is, and of what.
	unit() (size int64, of string)
	// lacks is what such a limit has to have beside it and doesn't, among all
	// limits of a plan; nil if it lacks nothing.
	lacks(e *entry, beside []*entry) *OptionError
	// counted reports whether refusals of the limit count for a ban.
	counted(e *entry) bool

	// repeated reports whether a limiter further in charges the limit again.
	repeated() bool
	// succeeds reports whether requests that waited for another kind of limit may
	// be decided by this one, which an Update has put in its place.
	succeeds() bool
	// stood is how many units the limit had in a decision, and why.
	stood(c *store.Charge, r *store.Result) (quota int64, why AdaptiveReason)
	// binds reports whether what is left of the limit says how many requests may
	// still pass.
	binds() bool
	// free reports whether a request would pass, by the answer to a charge of
	// nothing.
	free(r *store.Result) bool
	// refusal is what it means that the limit has refused a charge.
	refusal(c *store.Charge) refusal
	// unsettled says why Permit.Settle can't be told of the limit; "" if it can.
	unsettled() string
}

// needs are what a limit's requests need beyond being let in or refused at once.
type needs uint8

const (
	waits    needs = 1 << iota // may have to wait, for a turn or a slot
	slots                      // take slots, which others may wait for
	local                      // are decided in this process, whatever the store
	counts                     // have their refusals counted
	paces                      // have bytes to pay for, and are charged nothing before
	watches                    // the response is looked at
	releases                   // there is something to do when the request ends
)

// charged is the kind of Rate and Quota, which charge a request and keep the
// charge. Other kinds are made of it, and differ in what they say otherwise.
type charged struct{}

func (*charged) enter(e *entry) {
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

func (*charged) decided(l *store.Limit, _ *process) *store.Limit { return l }
func (*charged) same(l *store.Limit) bool                        { return adaptive.Of(l) == nil }
func (*charged) unit() (int64, string)                           { return 1, "" }
func (*charged) lacks(*entry, []*entry) *OptionError             { return nil }
func (*charged) counted(*entry) bool                             { return true }
func (*charged) repeated() bool                                  { return false }
func (*charged) succeeds() bool                                  { return true }
func (*charged) binds() bool                                     { return true }
func (*charged) refusal(*store.Charge) refusal                   { return quotaExceeded }
func (*charged) unsettled() string                               { return "" }

func (*charged) stood(c *store.Charge, _ *store.Result) (int64, AdaptiveReason) {
	return c.Limit.Spec().Units, NotAdaptive
}

// A limit with debt may let a charge pass without having a whole unit.
func (*charged) free(r *store.Result) bool { return r.Remaining > 0 || r.ResetAfter == 0 }
