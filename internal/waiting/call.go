package waiting

import (
	"context"
	"math"
	"time"

	"github.com/stint-go/stint/store"
)

// Lines are the lines of those in this process who wait for something of one store.
type Lines struct {
	Turns
	Slots
}

// Longest is how long a patient call waits for a turn if its context has no deadline.
const Longest = time.Hour

// Call is a set of charges that are decided together and may have to wait for it. It is
// for one goroutine at a time.
type Call struct {
	Charges []store.Charge
	Results []store.Result
	Store   store.Store // decides the charges

	// Patient: every limit lets the call wait as long as the context allows.
	Patient bool
	// Counting: a denial is counted by one of the limits.
	Counting bool
	// Aging is how much waiting time a class is worth in a line.
	Aging time.Duration
	// Settle gives back what is left in the lines, even long after the call has gone.
	Settle Settle
	// Granted: the charges have been made, and must be given back unless they are used.
	Granted bool
	// Begun: Caller.Waits has been called.
	Begun bool
	// Waited is the total time waited.
	Waited time.Duration
	// Timed makes Took the time that the store has taken, in all calls together.
	Timed bool
	Took  time.Duration
	// Seen has the call's observation of the line of each charge, or is empty.
	Seen []Seen

	by    Caller
	lines *Lines    // that it goes through
	waits bool      // something may make it wait
	came  time.Time // when it first began to wait
	claim *Claim    // on turns that others have left
	slot  slotWait
}

// slotWait is the state of a call that waits for slots.
type slotWait struct {
	charge int       // whose line it stands in
	booked time.Time // up to when the wait there has been counted
	asked  bool      // results are an answer by the limits that the call now has
	want   *Want
	err    error // the store's
}

// Ask asks the store to decide the charges, whoever waits for what.
func (c *Call) Ask(ctx context.Context) error {
	if !c.Timed {
		return c.Store.Take(ctx, c.Charges, c.Results)
	}
	start := time.Since(epoch)
	err := c.Store.Take(ctx, c.Charges, c.Results)
	c.Took += time.Since(epoch) - start
	return err
}

// epoch is any instant: to ask for the time since one reads one clock of the system,
// where to ask for the time reads two.
var epoch = time.Now()

// Seen is a call's observation of the line of one of its limits.
type Seen struct {
	Queued int64 // including it, when it came
	Waited time.Duration
}

// Terms are how a limit lets a charge wait.
type Terms struct {
	Way Way
	// MaxWait is the longest wait; 0 means none.
	MaxWait time.Duration
	// Queues: without a MaxWait, the charge waits as far as the limit's own queue goes.
	Queues bool
	// Room is how many may wait in a line of slots. nil means as many as there are
	// slots, and any number of patient calls.
	Room *int64
	// Slots returns how many slots there are, for a key that is waited for.
	Slots func(*store.Charge) int64
}

// Closed reports whether no call may wait for slots.
func (t *Terms) Closed() bool { return t.Room != nil && *t.Room == 0 }

// Way is the kind of thing that a charge waits for.
type Way uint8

const (
	// ForTurn: an instant of a rate.
	ForTurn Way = iota
	// ForSlot: something that others hold.
	ForSlot
	// ForNothing: the limit lets no call wait.
	ForNothing
)

// Caller is the owner of a Call. Its methods are called by the call's goroutine, with
// no lock held.
type Caller interface {
	// Terms returns the terms of charge i.
	Terms(i int) *Terms
	// Class returns the call's class among those that wait. It is called only if
	// something depends on it, and may be called more than once.
	Class(ctx context.Context) uint8
	// Shares returns the shares of charge i's limit as it now is. The returned function
	// is called under the lock of the lines.
	Shares(i int) func() *Shares
	// Renew is called before a call that waits for slots asks again. The caller may
	// replace the limits of the call's charges by what they have become. It reports
	// whether it did.
	Renew() (others bool)
	// Waits reports that the call begins to wait for charge i: for d, if that is known.
	// It is called once.
	Waits(i int, d time.Duration)
	// Holds reports that the call has been granted the slots that it asked for.
	Holds()
}

// LeftError wraps the error of the context whose end has ended the wait. If the call is
// Granted, its charges must be given back.
type LeftError struct{ Err error }

// Error returns the context's error text.
func (e *LeftError) Error() string { return e.Err.Error() }

// Unwrap returns the context's error.
func (e *LeftError) Unwrap() error { return e.Err }

// Take gets an answer for the call. If the error is nil, either everything is granted
// and its turn has come, or the results say why not. Otherwise it is a *LeftError or
// the store's error. waits says that something may make the call wait, slots that it
// takes slots.
func (ls *Lines) Take(ctx context.Context, c *Call, by Caller, waits, slots bool) error {
	w := (*waiter)(c)
	w.by, w.lines, w.waits = by, ls, waits
	defer w.drop(ctx) // if a store or the caller panics
	if waits {
		if err := w.bound(ctx); err != nil {
			return &LeftError{err}
		}
	}
	take := (*waiter).take
	if slots {
		take = (*waiter).takeSlots
	}
	if err := take(w, ctx); err != nil {
		return err
	}
	switch {
	case !waits:
	case !c.Granted:
		w.noteTurns()
	case c.claim != nil || c.delay() > 0:
		return w.sleep(ctx)
	case ctx.Err() != nil: // the caller has left while the store was asked
		return &LeftError{ctx.Err()}
	}
	return nil
}

// Peek gets an answer for the call as it stands, after what others have left has gone
// back.
func (ls *Lines) Peek(ctx context.Context, c *Call, by Caller) error {
	w := (*waiter)(c)
	w.by, w.lines, w.waits = by, ls, false
	return w.ask(ctx)
}

// drop leaves the turns that the call has taken over from others and hasn't used.
func (w *waiter) drop(ctx context.Context) {
	if w.claim != nil {
		w.lines.Drop(ctx, w.claim)
		w.claim = nil
	}
}

// delay returns the largest delay of the enforced limits: how long the request sleeps.
func (c *Call) delay() (d time.Duration) {
	for i := range c.Results {
		if c.Results[i].OK && !c.Charges[i].DryRun {
			d = max(d, c.Results[i].Delay)
		}
	}
	return d
}

// note records that n wait for the limit of charge i.
func (w *waiter) note(i int, n int64) {
	if len(w.Seen) == 0 {
		w.Seen = make([]Seen, len(w.Charges))
	}
	w.Seen[i].Queued = n
}

// waiter is a call on its way through the lines.
type waiter Call

// bound sets how long each charge may wait.
func (w *waiter) bound(ctx context.Context) error {
	left := store.Never
	if t, ok := ctx.Deadline(); ok {
		if left = time.Until(t); left <= 0 {
			return context.DeadlineExceeded
		}
	}
	for i := range w.Charges {
		t := w.by.Terms(i)
		wait := t.MaxWait
		if w.Patient {
			wait = Longest
			if left < store.Never {
				wait = left
			}
		}
		switch {
		case t.Way == ForNothing:
			wait = 0
		case t.Way == ForSlot && !w.Counting:
			wait = 0 // it waits in the process: see waitSlot
		case t.Way == ForSlot: // and isn't counted while it waits
			wait = min(max(wait, 0), left)
		case wait > 0:
			wait = min(wait, left)
		case t.Queues && left < store.Never:
			wait = left
		}
		w.Charges[i].MaxWait = wait
	}
	return nil
}

// rank returns the call's rank, the same for as long as it waits, whatever for.
func (w *waiter) rank(ctx context.Context, now time.Time) Rank {
	if w.came.IsZero() {
		w.came = now
	}
	return RankOf(w.by.Class(ctx), w.came, w.Aging)
}

// begin tells the caller that the call has begun to wait. A call that waits for several
// things in turn begins once.
func (w *waiter) begin(i int, d time.Duration) {
	if !w.Begun {
		w.Begun = true
		w.by.Waits(i, d)
	}
}

// take asks, and records what the call then has.
func (w *waiter) take(ctx context.Context) error {
	if err := w.ask(ctx); err != nil {
		return err
	}
	if w.Granted = store.Granted(w.Charges, w.Results); w.Granted {
		w.by.Holds()
	}
	return nil
}

// KeyOf returns which slots a charge is about.
func KeyOf(ch *store.Charge) Key { return KeyIn(ch.Limit, ch.Key) }

// KeyIn returns which slots of a limit are a key's.
func KeyIn(l *store.Limit, key string) Key {
	return Key{Limit: l.Name(), Key: key, Decided: l.Decider() != nil}
}

// room returns how many may stand in line for charge i's slots. By default it is as
// many as there are slots, so that a crowd finds a full line rather than an endless
// one. Patient callers are the application's own, and it knows how many there are.
func (w *waiter) room(i int) int64 {
	t := w.by.Terms(i)
	switch {
	case t.Room != nil:
		return *t.Room
	case w.Patient:
		return math.MaxInt64
	}
	return t.Slots(&w.Charges[i])
}
