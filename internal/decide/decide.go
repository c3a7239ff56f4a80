// Package decide turns charges into an outcome: over a store, over the lines of those who
// wait for something of it, and over the limits of this process.
//
// A [Call] collects charges and decides them. What is granted has one owner: at first the
// call, which gives it back unless it is told to whom it goes, by [Call.HandTo] or
// [Call.Spend]. So whatever panics in between, nothing is lost. [Grants] are the owner from
// then on, until they end.
//
// The package knows neither requests nor observers: an outcome is a value.
package decide

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Backend decides a limiter's charges, from one Update to the next.
type Backend struct {
	Store store.Store
	// Release releases slots for less than Store.Settle takes, if Store is one in memory; or it is nil.
	Release func(key string, l *store.Limit, lease store.LeaseID)
	Local   *adaptive.Store // decides the limits of this process, and has Store decide the rest
	Keys    *adaptive.Keys  // of the limits of this process
	Lines   *waiting.Lines
	// Newest returns what a limit has become by an Update, or the limit itself.
	Newest func(*limit.Limit) *limit.Limit
	// Turns gives back turns that no waiter uses, perhaps long after their calls have gone.
	Turns waiting.Settle
	// Leases is told of leases that are lost; or nil.
	Leases *store.Observer
}

// Call is charges that are decided together. It is for one goroutine at a time. Init makes
// it ready for use, and Reset for other charges.
type Call struct {
	// Limits, Charges and Results have an element for each charge.
	Limits  []*limit.Limit
	Charges []store.Charge
	Results []store.Result

	state
	rare

	by     *Backend
	class  func(context.Context) int
	waits  func(i int, queued int64, d time.Duration)
	ranked func(context.Context) uint8 // Class, bound once
	renews func(int) (*store.Limit, waiting.Terms, bool)
}

// state is the part of a call that Reset zeroes. It has no pointers: see Add.
type state struct {
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
	// Renewed: a limit has been replaced by what an Update has made of it.
	Renewed bool
	// Rank is the call's class among those that wait, if it matters.
	Rank uint8
	// Waited is the total time waited, Took that which the store has taken.
	Waited, Took time.Duration

	local bool // by.Local decides it
	ranks bool // Rank is known
	owns  bool // all of Charges have been made for the call, and it is still their owner
}

// rare is what only calls have that were in a line, or whose store has failed.
type rare struct {
	// Seen has what the call has seen of the line of each charge, or is empty.
	Seen []waiting.Seen
	// Lost has the charges that the store failed to decide, while limits of this process,
	// which need no store, go on; or nil.
	Lost *Lost

	came time.Time // when it first took a place in a line
}

// Lost are charges that a store failed to decide.
type Lost struct {
	Charges []store.Charge
	Err     error
}

// Init makes a call ready for use, once. class returns its class, and is called at most
// once in each use, if the call takes a slot or waits. waits is told that it begins to wait
// for charge i: for d, if that is known, and as one of queued. Both may panic.
func (c *Call) Init(class func(context.Context) int, waits func(i int, queued int64, d time.Duration)) {
	c.class, c.waits = class, waits
	c.ranked, c.renews = c.rank, c.renew // a method value for each use would allocate
}

// By sets what decides the call from now on, while it has no charges.
func (c *Call) By(b *Backend) { c.by = b }

// kept is the largest number of charges for which a call's memory is kept.
const kept = 64

// Reset ends a use of the call. What it has been granted must have found an owner.
func (c *Call) Reset() {
	if cap(c.Charges) > kept {
		c.Limits, c.Charges, c.Results = nil, nil, nil
	}
	// The slices' elements aren't cleared: that would cost a tenth of a decision. The
	// next charges overwrite them, and a pool doesn't retain calls for long.
	c.Limits, c.Charges, c.Results = c.Limits[:0], c.Charges[:0], c.Results[:0]
	c.state = state{}
	if c.Seen != nil || c.Lost != nil || !c.came.IsZero() {
		c.rare = rare{}
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
	ch.Key, ch.Cost, ch.MaxWait, ch.DryRun = key, cost, 0, l.DryRun
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

// Canceled is the error of a decision or a wait that ended because its context did: the
// client left, or the server gave up the request. What was charged is given back.
type Canceled struct{ Err error }

func (e *Canceled) Error() string { return "stint: not admitted: " + e.Err.Error() }

// Unwrap returns the context's error.
func (e *Canceled) Unwrap() error { return e.Err }

// StatusCode returns 503, whoever ended the context. A server that shuts down can't be
// told from a client that left, and only in the first case is the answer read.
func (e *Canceled) StatusCode() int { return 503 }

// Failed is the error of a decision that the store couldn't make.
type Failed struct {
	Err    error // the store's
	Closed bool  // a limit is FailClosed
}

func (e *Failed) Error() string { return e.Err.Error() }

// Unwrap returns the store's error.
func (e *Failed) Unwrap() error { return e.Err }

// Decide has the charges decided, and waits for the turn if there is one. If it returns
// nil, either all charges are granted (Allowed), or the results say which limit denied. The
// error is a *Canceled or a *Failed.
func (c *Call) Decide(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Canceled{err} // a store may ignore ctx, and charge a client that has left
	}
	if len(c.Charges) == 0 { // only Bandwidths, which charge as bytes move
		c.Allowed = true
		return nil
	}
	if c.Patient || c.Needs&(limit.Waits|limit.Slots) != 0 {
		return c.wait(ctx)
	}
	var err error
	if c.Timed {
		var took time.Duration
		took, err = waiting.TakeTimed(ctx, c.store(), c.Charges, c.Results)
		c.Took += took
	} else {
		err = c.store().Take(ctx, c.Charges, c.Results)
	}
	if err != nil {
		return c.goOn(ctx, err)
	}
	if inside.Granted(c.Charges, c.Results) {
		c.own()
	}
	return nil
}

// own makes the call the owner of what it has been granted.
func (c *Call) own() {
	c.Allowed, c.owns = true, true
}

// Spend leaves charged what the call has been granted: nothing of it will be given back.
func (c *Call) Spend() { c.owns = false }

// Owns reports whether the call has been granted something that is still its own.
func (c *Call) Owns() bool { return c.owns }

// GiveBack gives back what the call still owns, as if it had never been granted.
func (c *Call) GiveBack(ctx context.Context) Settlement {
	if !c.owns {
		return Settlement{}
	}
	c.owns = false
	made := make([]store.Charge, 0, len(c.Charges))
	for i, ch := range c.Charges {
		c.Limits[i].ReleaseHere(c.by.Lines, ch.Key, ch.Cost, c.Rank)
		if r := c.Results[i].Receipt; r.Cost > 0 {
			ch.Cost, ch.Receipt = 0, r
			made = append(made, ch)
		}
	}
	return c.by.settle(context.WithoutCancel(ctx), c.store(), made, make([]store.Result, len(made)), c.Timed)
}

// wait is Decide for calls that may have to wait, or that others may wait for.
func (c *Call) wait(ctx context.Context) error {
	err := c.line(ctx)
	if left, ok := err.(*waiting.LeftError); ok { // errors.As allocates
		return &Canceled{left.Err}
	}
	if err != nil {
		return c.goOn(ctx, err)
	}
	return nil
}

// line takes the call through the lines. Whatever panics there, the call knows afterwards
// what it has been granted.
func (c *Call) line(ctx context.Context) error {
	w := c.by.Lines.Begin()
	w.Charges, w.Results, w.Store, w.Settle = c.Charges, c.Results, c.store(), c.by.Turns
	for _, l := range c.Limits {
		w.Terms = append(w.Terms, l.Terms)
	}
	w.Patient, w.Counting, w.Timed = c.Patient, c.Needs&limit.Counts != 0, c.Timed
	w.Class, w.Newest, w.Waits = c.ranked, c.renews, c.waits
	w.BeganWaiting, w.Arrived, w.Waited, w.Took, w.Seen = c.BeganWaiting, c.came, c.Waited, c.Took, c.Seen // as far as it has come
	defer func() {
		c.BeganWaiting, c.came, c.Waited, c.Took, c.Seen = w.BeganWaiting, w.Arrived, w.Waited, w.Took, w.Seen
		if w.Granted {
			c.own()
		}
		w.Free()
	}()
	return w.Take(ctx, c.Patient || c.Needs&limit.Waits != 0, c.Needs&limit.Slots != 0)
}

// Peek answers charges of cost 0 as they stand.
func (c *Call) Peek(ctx context.Context) error {
	if err := c.store().Take(ctx, c.Charges, c.Results); err != nil {
		return err
	}
	for i := range c.Results {
		r := &c.Results[i]
		// A limit with debt may let a charge pass without having a whole unit.
		owing := c.Limits[i].Kind.Traits().Way != waiting.ForSlot && r.ResetAfter == 0
		if r.OK = r.Remaining > 0 || owing; !r.OK {
			r.RetryAfter, _ = inside.MoreAfter(c.Charges[i].Limit, r)
		}
	}
	return nil
}

// rank returns the call's class. It asks for it at most once.
func (c *Call) rank(ctx context.Context) uint8 {
	if !c.ranks {
		c.Rank, c.ranks = uint8(min(max(c.class(ctx), 0), waiting.Classes-1)), true
	}
	return c.Rank
}

// renew replaces the limit of charge i by what it has become. The call keeps its keys and
// its costs.
func (c *Call) renew(i int) (*store.Limit, waiting.Terms, bool) {
	l := c.by.Newest(c.Limits[i])
	if l == c.Limits[i] {
		return nil, waiting.Terms{}, false
	}
	c.Limits[i], c.Renewed = l, true
	c.Needs |= l.Needs
	return l.StoreLimit, l.Terms, true
}

// goOn lets a call continue without its charges on the store, which has failed with
// err, if none of its enforced limits is in the store, or if limits of this process,
// which need no store, still hold. Otherwise it returns the error of Decide.
func (c *Call) goOn(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil { // not the store's fault
		clear(c.Results)
		return &Canceled{ended}
	}
	stored, here, closed := false, false, false
	for _, l := range c.Limits {
		stored = stored || l.Needs&limit.Local == 0 && !l.DryRun
		here = here || l.Needs&limit.Local != 0 && !l.DryRun
		closed = closed || l.Closed
	}
	if stored && (closed || !here) {
		return &Failed{err, closed}
	}
	c.Lost = &Lost{slices.Clone(c.Charges), err}
	c.Keep(func(l *limit.Limit) bool { return l.Needs&limit.Local != 0 })
	return c.Decide(ctx)
}

// Keep removes the charges of all other limits, which haven't been made.
func (c *Call) Keep(which func(*limit.Limit) bool) {
	n := 0
	c.Needs = 0
	for i, l := range c.Limits {
		if !which(l) {
			continue
		}
		c.Needs |= l.Needs
		c.Limits[n], c.Charges[n], c.Results[n] = l, c.Charges[i], c.Results[i]
		if len(c.Seen) > 0 {
			c.Seen[n] = c.Seen[i]
		}
		n++
	}
	c.Limits, c.Charges, c.Results = c.Limits[:n], c.Charges[:n], c.Results[:n]
	c.Seen = c.Seen[:min(n, len(c.Seen))]
}
