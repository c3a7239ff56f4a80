// Package decide turns charges into an outcome: over a store, over the lines in which calls wait,
// and over the limits of this process.
//
// A [Call] collects charges and decides them. What is granted has one owner: at first the
// call, which gives it back unless [Call.HandTo] makes grants the owner, or
// [Call.LeaveCharged] ends the ownership. So whatever panics in between, nothing is lost. [Grants] are the owner from
// then on, until they end.
//
// A call asks the store once, unless other calls wait for the units of one of its charges. A call that has to wait,
// or that finds others waiting, stands in the line of the charge for which it waits longest, and asks the store when
// the line says so. If units of another charge are missing, it changes lines. Package lines says who asks, and when.
// What a call has been granted while it stands in line is a turn of the line, or is for the call alone, which then
// waits for the last few milliseconds.
//
// The package knows neither requests nor observers: an outcome is a value.
package decide

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/lines"
	"github.com/stint-go/stint/store"
)

// Backend decides a limiter's charges, from one Update to the next.
type Backend struct {
	Store store.Store
	// Release releases slots for less than Store.Settle takes, if Store is one in memory; or it is nil.
	Release func(key string, l *store.Limit, lease store.LeaseID)
	Local   *adaptive.Store // decides the limits of this process, and has Store decide the rest
	Keys    *adaptive.Keys  // of the limits of this process
	Lines   *lines.Lines
	// Current returns the limit that an Update has put in a limit's place, or the limit itself. See
	// compile.Registry.Current.
	Current func(*limit.Limit) *limit.Limit
	// Leases is notified of leases that are lost; or nil.
	Leases *store.Observer
}

// ForBytes returns a backend for charges of bytes. Their limits count in units that change with their numbers, so a
// call that waits keeps its limits if an Update changes them.
func (b *Backend) ForBytes() *Backend {
	bytes := *b
	bytes.Current = func(l *limit.Limit) *limit.Limit { return l }
	bytes.Leases = nil
	return &bytes
}

// Call is charges that are decided together. It is for one goroutine at a time. Init makes
// it ready for use, and Reset for other charges.
type Call struct {
	// Limits, Charges and Results have an element for each charge.
	Limits  []*limit.Limit
	Charges []store.Charge
	Results []store.Result

	callState
	slowPath

	by         *Backend
	readClass  func(context.Context) int
	readTenant func(i int) string
	waits      func(i int, queued int64, d time.Duration)
	first      lines.Key      // that Lines.BeginFirst got, or the zero Key
	tenants    []lines.Tenant // has an element for each charge, or is empty
}

// callState is the part of a call that Reset zeroes. It has no pointers: see Add.
type callState struct {
	// Needs are those of all limits.
	Needs limit.Needs
	// Patient: the call waits as long as its context allows, whatever the limits say.
	Patient bool
	// Timed: Took is asked for.
	Timed bool
	// Allowed: every enforced limit has granted its charge. If it is false without an
	// error, the results say which has not.
	Allowed bool
	// BeganWaiting: the call has begun to wait.
	BeganWaiting bool
	// Renewed: a limit has been replaced by the one that an Update has put in its place.
	Renewed bool
	// Class is the call's class among those that wait, if it matters.
	Class uint8
	// Waited is the total time waited, Took that which the store has taken.
	Waited, Took time.Duration

	raise      bool // it raises what a request costs that has begun
	local      bool // by.Local decides it
	classified bool // Class is set
	served     bool // its line has served it a turn
	// endedByDeadline: the call would have waited longer if its context did.
	endedByDeadline bool
	owns            bool // all of Charges have been made for the call, and it is still their owner
}

// slowPath has what only calls need that were in a line, or whose store has failed.
type slowPath struct {
	// LineWaits has an element for each charge, or is empty if the call was in no line.
	LineWaits []LineWait
	// Lost has the charges that the store failed to decide, while limits of this process,
	// which need no store, go on; or nil.
	Lost *Lost

	arrived  time.Time // when it first joined a line
	standing int       // the charge in whose line it stands
	since    time.Time // since when, or the zero Time
}

// LineWait is how a call has waited in the line of one of its charges.
type LineWait struct {
	Queued int64 // how many waited when the call came, itself included
	Waited time.Duration
}

// Lost are charges that a store failed to decide.
type Lost struct {
	Charges []store.Charge
	Err     error
}

// Init makes a call ready for use, once. class returns its class, and is called at most
// once in each use, if the call takes a slot or waits. tenant returns the key of the tenant of charge i, and is
// called if the limit needs that (limit.Fair). waits is called when the call begins to wait
// for charge i: for d, if that is known, and as one of queued. All may panic.
func (c *Call) Init(class func(context.Context) int, tenant func(i int) string,
	waits func(i int, queued int64, d time.Duration)) {
	c.readClass, c.readTenant, c.waits = class, tenant, waits
}

// By sets what decides the call from now on, while it has no charges.
func (c *Call) By(b *Backend) { c.by = b }

// mostKept is the largest number of charges for which a call's memory is kept.
const mostKept = 64

// Reset ends a use of the call. What it has been granted must have found an owner.
func (c *Call) Reset() {
	if cap(c.Charges) > mostKept {
		c.Limits, c.Charges, c.Results = nil, nil, nil
	}
	// The slices' elements aren't cleared: that would cost a tenth of a decision. The
	// next charges overwrite them, and a pool doesn't retain calls for long.
	c.Limits, c.Charges, c.Results = c.Limits[:0], c.Charges[:0], c.Results[:0]
	if len(c.tenants) > 0 {
		c.tenants = c.tenants[:0]
	}
	c.callState = callState{}
	if c.LineWaits != nil || c.Lost != nil || !c.arrived.IsZero() {
		c.slowPath = slowPath{}
	}
}

// Add adds a charge. The call before was usually by the same limits, and has left them in the
// slices. A pointer that stands there already isn't written again: while the collector marks,
// writing one costs as much as looking at several.
func (c *Call) Add(l *limit.Limit, key string, cost int64) {
	c.Needs |= l.Needs
	if n := len(c.Limits); n < cap(c.Limits) && c.Limits[:n+1][n] == l {
		c.Limits = c.Limits[:n+1]
	} else {
		c.Limits = append(c.Limits, l)
	}
	c.Results = append(c.Results, store.Result{})
	n := len(c.Charges)
	if n == cap(c.Charges) {
		c.Charges = append(c.Charges, store.Charge{})
	}
	c.Charges = c.Charges[:n+1]
	ch := &c.Charges[n]
	ch.Key, ch.Cost, ch.MaxWait, ch.DryRun, ch.Final = key, cost, 0, l.DryRun, l.Needs&limit.Counts != 0 && !c.raise
	if ch.Limit != l.StoreLimit {
		ch.Limit = l.StoreLimit
	}
	if ch.Observer != c.by.Leases {
		ch.Observer = c.by.Leases
	}
}

// Replace makes charge i one of l, at a cost.
func (c *Call) Replace(i int, l *limit.Limit, cost int64) {
	c.Limits[i], c.Charges[i].Cost, c.Charges[i].DryRun = l, cost, l.DryRun
	c.Needs |= l.Needs
}

// Locally has limits of this process among the call's decided, too. Their charges come
// last.
func (c *Call) Locally() { c.local = true }

// store returns the store that decides the call.
func (c *Call) store() store.Store {
	if c.local {
		return c.by.Local
	}
	return c.by.Store
}

// LeaveCharged ends the ownership of what the call has been granted: the charges stand.
func (c *Call) LeaveCharged() { c.owns = false }

// Owns reports whether the call has been granted something that is still its own.
func (c *Call) Owns() bool { return c.owns }

// Undo gives back what the call still owns, as if it had never been granted.
func (c *Call) Undo(ctx context.Context) Settlement {
	if !c.owns {
		return Settlement{}
	}
	c.owns = false
	made := make([]store.Charge, 0, len(c.Charges))
	for i, ch := range c.Charges {
		c.Limits[i].ReleaseHere(c.by.Lines, ch.Key, ch.Cost, c.Class, c.tenantOf(i))
		if r := c.Results[i].Receipt; r.Cost > 0 {
			ch.Cost, ch.Receipt = 0, r
			made = append(made, ch)
		}
	}
	return c.by.settle(context.WithoutCancel(ctx), c.store(), made, make([]store.Result, len(made)), c.Timed)
}

// Keep removes the charges of all limits but those that keep selects. They haven't been made.
func (c *Call) Keep(keep func(*limit.Limit) bool) {
	n := 0
	c.Needs = 0
	for i, l := range c.Limits {
		if !keep(l) {
			continue
		}
		c.Needs |= l.Needs
		c.Limits[n], c.Charges[n], c.Results[n] = l, c.Charges[i], c.Results[i]
		if len(c.LineWaits) > 0 {
			c.LineWaits[n] = c.LineWaits[i]
		}
		if len(c.tenants) > 0 {
			c.tenants[n] = c.tenants[i]
		}
		n++
	}
	c.Limits, c.Charges, c.Results = c.Limits[:n], c.Charges[:n], c.Results[:n]
	c.LineWaits = c.LineWaits[:min(n, len(c.LineWaits))]
	c.tenants = c.tenants[:min(n, len(c.tenants))]
}

// classOf sets and returns the call's class. It reads it at most once.
func (c *Call) classOf(ctx context.Context) uint8 {
	if !c.classified {
		c.Class, c.classified = uint8(min(max(c.readClass(ctx), 0), lines.Classes-1)), true
	}
	return c.Class
}

// readTenants sets the tenants of the charges, once.
func (c *Call) readTenants() {
	if len(c.tenants) > 0 {
		return
	}
	for i, l := range c.Limits {
		t := lines.Tenant(0)
		if l.Needs&limit.Fair != 0 {
			t = lines.TenantOf(c.readTenant(i))
		}
		c.tenants = append(c.tenants, t)
	}
}

// tenantOf returns the tenant of charge i, or 0 if its limit had no fair queue when the tenants were read.
func (c *Call) tenantOf(i int) lines.Tenant {
	if len(c.tenants) == 0 {
		return 0
	}
	return c.tenants[i]
}
