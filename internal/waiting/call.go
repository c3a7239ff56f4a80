package waiting

import (
	"context"
	"math"
	"time"

	"github.com/stint-go/stint/store"
)

// Lines is where those wait who want something of the limits of one process.
type Lines struct {
	Turns
	Slots
}

// Longest is how long a patient call waits for a turn when its context has no
// deadline.
const Longest = time.Hour

// outlives is for how long the answer of a store is waited for that may have reserved
// a turn for somebody who has left since.
const outlives = 2 * time.Second

// Call is charges that are decided together and may have to wait for it. It is
// for one goroutine.
type Call struct {
	Charges []store.Charge
	Results []store.Result
	Store   store.Store // that decides them

	// Patient: every limit waits as long as the context lets it.
	Patient bool
	// Counting: a refusal is counted by one of the limits.
	Counting bool
	// Aging is what a class is worth in a line.
	Aging time.Duration
	// Settle gives back what is left in the lines, also when the call is long gone.
	Settle Settle
	// Granted: the charges have been made, and are to be given back unless they
	// are used.
	Granted bool
	// Begun: Caller.Waits has been told.
	Begun bool
	// Waited is for how long, all in all.
	Waited time.Duration
	// Timed has Took be how long the store has taken, all calls together.
	Timed bool
	Took  time.Duration
	// Seen is what the call has seen of the line of each charge, or empty.
	Seen []Seen

	by    Caller
	in    any       // the *Lines: see lines
	waits bool      // something may make it wait
	came  time.Time // when it first began to
	claim *Claim    // of turns that others have left
	slot  slotWait
}

// slotWait is what a call knows that waits for slots.
type slotWait struct {
	charge int       // whose line it stands in
	booked time.Time // up to when the wait there is counted
	asked  bool      // results are an answer: by the limits that the call now has
	want   *Want
	err    error // the store's
}

// Ask has the store decide the charges, whoever waits for what.
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

// Seen is what a call has seen of the line of one of its limits.
type Seen struct {
	Queued int64 // with it, when it came
	Waited time.Duration
}

// Terms are how a limit lets a charge wait for it.
type Terms struct {
	Way Way
	// MaxWait is for how long, 0 for not at all.
	MaxWait time.Duration
	// Queues: without a MaxWait it waits as far as the limit's own queue goes.
	Queues bool
	// Room is how many may wait in a line of slots; nil for as many as there are
	// slots, and for any number of patient calls.
	Room *int64
	// Slots is how many slots there are. It is asked of a key that is waited for.
	Slots func(*store.Charge) int64
}

// Closed reports whether nobody may wait for slots.
func (t *Terms) Closed() bool { return t.Room != nil && *t.Room == 0 }

// Way is what a charge waits for.
type Way uint8

const (
	// ForTurn: an instant of a rate.
	ForTurn Way = iota
	// ForSlot: something that others hold.
	ForSlot
	// ForNothing: the limit lets nobody wait.
	ForNothing
)

// Caller is whose charges wait. Its methods are called by the call's goroutine,
// with no lock held.
type Caller interface {
	// Terms are those of charge i.
	Terms(i int) *Terms
	// Class is the call's among those that wait. It is asked once something depends
	// on it, and every time.
	Class(ctx context.Context) uint8
	// Shares returns the shares of charge i's limit as it now is. The function is
	// called under the lock of the lines.
	Shares(i int) func() *Shares
	// Renew is called before a call that waits for charge at's slots asks again.
	// The caller may change the call's charges to what its limits have become. It
	// returns where that charge now is, and whether the charges are others.
	Renew(at int) (now int, others bool)
	// Waits tells that the call begins to wait for charge i: for d, where that is
	// known. It is called once.
	Waits(i int, d time.Duration)
	// Holds tells that the call has been granted the slots that it asked for.
	Holds()
}

// LeftError is why nobody waits for the answer any more: the context's error. What
// the call then has (Granted) is to be given back.
type LeftError struct{ Err error }

// Error is the context's.
func (e *LeftError) Error() string { return e.Err.Error() }

// Unwrap returns the context's error.
func (e *LeftError) Unwrap() error { return e.Err }

// Take gets the call answered: after nil, either all of it is granted, and its turn
// has come, or results say why not. Another error is a *LeftError or the store's.
// waits says that something may make it wait, slots that it takes some.
func (ls *Lines) Take(ctx context.Context, c *Call, by Caller, waits, slots bool) error {
	w := (*waiter)(c)
	w.by, w.in, w.waits = by, ls, waits
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
	case ctx.Err() != nil: // it has left while the store was asked
		return &LeftError{ctx.Err()}
	}
	return nil
}

// Peek has the call answered as it stands, after what others have left has gone
// back.
func (ls *Lines) Peek(ctx context.Context, c *Call, by Caller) error {
	w := (*waiter)(c)
	w.by, w.in, w.waits = by, ls, false
	return w.ask(ctx)
}

// drop leaves the turns that the call has taken over from others and not used.
func (w *waiter) drop(ctx context.Context) {
	if w.claim != nil {
		w.lines().Drop(ctx, w.claim)
		w.claim = nil
	}
}

// delay is the largest delay of the enforced limits: what a request sleeps.
func (c *Call) delay() (d time.Duration) {
	for i := range c.Results {
		if c.Results[i].OK && !c.Charges[i].DryRun {
			d = max(d, c.Results[i].Delay)
		}
	}
	return d
}

// note keeps that n wait for the limit of charge i.
func (w *waiter) note(i int, n int64) {
	if len(w.Seen) == 0 {
		w.Seen = make([]Seen, len(w.Charges))
	}
	w.Seen[i].Queued = n
}

// waiter is a call on its way through the lines.
type waiter Call

// lines are those that the call goes through. Calls are kept in a pool, and a linker
// keeps the methods of every type that one leads to; this is how a server in which
// nobody waits is not built with the lines.
func (w *waiter) lines() *Lines { return w.in.(*Lines) }

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
			wait = 0 // waits in the process: see waitSlot
		case t.Way == ForSlot: // and isn't counted while it does
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

// rank is the call's, for as long as it waits, whatever for.
func (w *waiter) rank(ctx context.Context, now time.Time) Rank {
	if w.came.IsZero() {
		w.came = now
	}
	return RankOf(w.by.Class(ctx), w.came, w.Aging)
}

// begin tells the caller that the call has begun to wait. A call that waits for
// several things in turn begins once.
func (w *waiter) begin(i int, d time.Duration) {
	if !w.Begun {
		w.Begun = true
		w.by.Waits(i, d)
	}
}

// take asks, and notes what the call has then.
func (w *waiter) take(ctx context.Context) error {
	if err := w.ask(ctx); err != nil {
		return err
	}
	if w.Granted = store.Granted(w.Charges, w.Results); w.Granted {
		w.by.Holds()
	}
	return nil
}

// KeyOf says which slots a charge is about.
func KeyOf(ch *store.Charge) Key { return Key{Limit: ch.Limit.Name(), Key: ch.Key} }

// room is how many may stand in line for charge i's slots. By default it is as many
// as there are slots, so that a crowd finds a full line and not an endless one;
// patient callers are the application's own, and it knows how many there are.
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
