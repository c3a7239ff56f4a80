// Package limit has limits as a limiter applies them, and the table of what distinguishes
// their kinds. It knows no requests.
package limit

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Limit is a limit as a limiter applies it: named, and with its settings filled in.
type Limit struct {
	StoreLimit *store.Limit
	Kind       Kind
	Needs      Needs
	Wait       Wait
	// DryRun: it only reports.
	DryRun bool
	// Closed: if the store fails, the request is denied.
	Closed bool
	// Costs: a function of the application says what a request costs.
	Costs bool
	// NoRefund: the interpretations of an ambiguous request settle it by different WithSettles, so it is
	// never settled below its charge.
	NoRefund bool
	// Marks are the percentages of its use at which observers are notified, ascending; or nil.
	Marks []int
	// Record is what it has done. After an Update that leaves the numbers, the new limit has the same Record.
	Record *Record
	// Policy is its part of header fields, or nil. That of an adaptive limit is replaced
	// when its number changes.
	Policy atomic.Pointer[Policy]
}

// CopyTo makes to a copy that is for one request.
func (l *Limit) CopyTo(to *Limit) {
	to.StoreLimit, to.Kind, to.Needs, to.Wait = l.StoreLimit, l.Kind, l.Needs, l.Wait
	to.DryRun, to.Closed, to.Costs, to.NoRefund, to.Record = l.DryRun, l.Closed, l.Costs, l.NoRefund, l.Record
	to.Marks = l.Marks
	to.Policy.Store(l.Policy.Load())
}

// Merge makes a limit that is for one request as strict as it and another use of it together:
// it is enforced unless both are dry runs, fails closed if one does, has a cost if one does, and waits no
// longer than either.
func (l *Limit) Merge(o *Limit) {
	if l.DryRun && !o.DryRun {
		l.Record = o.Record
		l.Policy.Store(o.Policy.Load())
	}
	l.DryRun, l.Closed, l.Costs = l.DryRun && o.DryRun, l.Closed || o.Closed, l.Costs || o.Costs
	l.Needs |= o.Needs
	if l.Marks == nil {
		l.Marks = o.Marks
	}
	if o.Wait.longest() < l.Wait.longest() {
		l.Wait = o.Wait
	}
	if l.Wait.longest() == 0 {
		l.Needs &^= Waits
	}
}

// Record is what a limit has done in this process. It is safe for concurrent use; a nil Record
// records nothing.
type Record struct {
	Since         time.Time // the limit was made
	bound         atomic.Bool
	dryRunDenials atomic.Int64
	tooCostly     atomic.Bool
}

// MarkBound records that the limit has denied a request or made it wait. It is called for each denial,
// so it mostly writes nothing.
func (r *Record) MarkBound() {
	if r != nil && !r.bound.Load() {
		r.bound.Store(true)
	}
}

// CountDryRunDenial records that a dry run would have denied a request.
func (r *Record) CountDryRunDenial() {
	if r != nil {
		r.dryRunDenials.Add(1)
		r.MarkBound()
	}
}

// MarkTooCostly records that a request costs more than the limit ever lets pass. It reports whether that is
// the first time.
func (r *Record) MarkTooCostly() (first bool) {
	return r == nil || !r.tooCostly.Load() && !r.tooCostly.Swap(true)
}

// Bound reports whether the limit has denied something or made it wait, or would have.
func (r *Record) Bound() bool { return r.bound.Load() }

// DryRunDenials returns how often a dry run would have denied.
func (r *Record) DryRunDenials() int64 { return r.dryRunDenials.Load() }

// Policy is a limit's part of the header fields of every decision.
type Policy struct {
	Capacity int64  // what Remaining is at most
	Text     string // its item of RateLimit-Policy; "" if no field shows the limit
}

// Needs is a set of things that a limit's requests need beyond an immediate decision.
type Needs uint8

const (
	Waits    Needs = 1 << iota // may have to wait, for a turn or a slot
	Slots                      // take slots, which others may wait for
	Local                      // are decided in this process, whatever the store
	Counts                     // have their denials counted
	Paces                      // are charged for bytes as they move, and for nothing before
	Watches                    // have their response observed
	Releases                   // leave something to do when they end
	Fair                       // wait for slots by tenant
)

// TakesSlots reports whether a charge of the limit takes slots from others. A dry run takes none.
func (l *Limit) TakesSlots(cost int64) bool { return l.Needs&Slots != 0 && cost > 0 }

// HoldHere counts the slots of a charge as held by a class and a tenant, in this process.
func (l *Limit) HoldHere(ls *lines.Lines, key string, cost int64, class uint8, t lines.Tenant) {
	if l.TakesSlots(cost) {
		ls.AddHeld(lines.KeyOf(l.StoreLimit, key), class, t, cost)
	}
}

// ReleaseHere counts them as released.
func (l *Limit) ReleaseHere(ls *lines.Lines, key string, cost int64, class uint8, t lines.Tenant) {
	if l.TakesSlots(cost) {
		ls.AddHeld(lines.KeyOf(l.StoreLimit, key), class, t, -cost)
	}
}
