package waiting

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Lines are the lines of those in this process who wait for something of one store.
type Lines struct {
	Turns
	Slots
}

// Waiter is a set of charges on its way through the lines, for a call that may have to
// wait, or that others may wait for. It is for one goroutine at a time. Begin returns one,
// and Free takes it back.
//
// Its ways, each over the next:
//
//	Take                    the whole way: until the call is granted, denied or has left
//	takeSlots               of a call that takes slots, in its turn: it stands in line with waitSlot
//	take                    one decision, and what has to follow it (slots are counted)
//	ask                     one decision, which takes over turns that others have left
//	sleep                   until the turn that was reserved, which may come earlier meanwhile
type Waiter struct {
	Asked
	Outcome

	lines *Lines
	visit *Visit // of the lines of turns
	slot  slotWait
}

// Asked is the charges of a call, and how it may wait for them.
type Asked struct {
	Charges []store.Charge
	Results []store.Result // of the charges
	Terms   []Terms        // of the charges
	Store   store.Store    // decides the charges

	// Patient: every limit lets the call wait as long as the context allows.
	Patient bool
	// Counting: a denial is counted by one of the limits.
	Counting bool
	// Timed: Outcome.Took is asked for.
	Timed bool
	// Settle gives back what is left in the lines, even long after the call has gone.
	Settle Settle

	// These are called by the call's goroutine, with no lock held, and may panic.

	// Class returns the call's class among those that wait. It is called only if
	// something depends on it, and may be called more than once.
	Class func(context.Context) uint8
	// Newest returns what the limit of charge i has become by an Update, and its terms, if
	// that is another limit than it was; see compile.Registry.Newest for what it takes over.
	// A call that waits for slots asks before it asks the store again. So it stays in line, at
	// its rank, with its key, its cost and its own patience, for the slots and shares that
	// there are now, and all of its limits are renewed, its rates too. A call that waits for a
	// turn doesn't ask: its turn was computed by the old numbers, and stays as it is.
	Newest func(i int) (l *store.Limit, t Terms, other bool)
	// Waits is called once, when the call begins to wait for charge i: for d, if that is
	// known, and as one of queued.
	Waits func(i int, queued int64, d time.Duration)
}

// Outcome says what has become of a call. It is true at any time, also after a panic.
type Outcome struct {
	// Granted: the charges have been made, and must be given back unless they are used.
	Granted bool
	// BeganWaiting: the call has begun to wait.
	BeganWaiting bool
	// Arrived is when the call first took a place in a line, for whatever it was.
	Arrived time.Time
	// Waited is the total time waited.
	Waited time.Duration
	// Took is the time that the store has taken, in all calls together, if the call is
	// Timed.
	Took time.Duration
	// Seen has the call's observation of the line of each charge, or is empty.
	Seen []Seen
}

// Seen is a call's observation of the line of one of its limits.
type Seen struct {
	Queued int64 // including it, when it came
	Waited time.Duration
}

// slotWait is the state of a call that waits for slots.
type slotWait struct {
	charge int       // whose line it stands in
	booked time.Time // up to when the wait there has been counted
	asked  bool      // results are an answer by the limits that the call now has
	want   *Want
	err    error // the store's
}

var waiters = sync.Pool{New: func() any { return new(Waiter) }}

// Begin returns a waiter, for which the caller sets what is Asked. Its Terms are empty, and
// have room.
func (ls *Lines) Begin() *Waiter {
	w := waiters.Get().(*Waiter)
	w.lines = ls
	return w
}

// Free ends the use of a waiter.
func (w *Waiter) Free() {
	terms := w.Terms
	*w = Waiter{}
	clear(terms)
	w.Terms = terms[:0]
	waiters.Put(w)
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
	// Shares returns the shares of the limit as it now is, or nil. It is called under the
	// lock of the lines, and returns at once.
	Shares func() *Shares
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
func (w *Waiter) Take(ctx context.Context, waits, slots bool) error {
	defer w.leave(ctx) // unless its turn has come: also if a store or the caller panics
	for {
		if waits {
			if err := w.bound(ctx); err != nil {
				return &LeftError{err}
			}
		}
		take := (*Waiter).take
		if slots {
			take = (*Waiter).takeSlots
		}
		if err := take(w, ctx); err != nil {
			return err
		}
		if after, again := w.again(ctx); !again {
			break
		} else if err := w.pause(ctx, after); err != nil {
			return err
		}
	}
	switch {
	case !waits:
	case !w.Granted:
		w.noteTurns()
	case w.visit != nil || w.delay() > 0:
		return w.sleep(ctx)
	case ctx.Err() != nil: // the caller has left while the store was asked
		return &LeftError{ctx.Err()}
	}
	return nil
}

// askOnce asks the store to decide the charges, whoever waits for what.
func (w *Waiter) askOnce(ctx context.Context) error {
	if !w.Timed {
		return w.Store.Take(ctx, w.Charges, w.Results)
	}
	took, err := TakeTimed(ctx, w.Store, w.Charges, w.Results)
	w.Took += took
	return err
}

// TakeTimed asks a store to decide charges, and returns how long that took.
func TakeTimed(ctx context.Context, s store.Store, charges []store.Charge, results []store.Result) (time.Duration, error) {
	start := time.Since(epoch)
	err := s.Take(ctx, charges, results)
	return time.Since(epoch) - start, err
}

// epoch is any instant: to ask for the time since one reads one clock of the system,
// where to ask for the time reads two.
var epoch = time.Now()

// delay returns the largest delay of the enforced limits: how long the request sleeps.
func (w *Waiter) delay() (d time.Duration) {
	for i := range w.Results {
		if w.Results[i].OK && !w.Charges[i].DryRun {
			d = max(d, w.Results[i].Delay)
		}
	}
	return d
}

// note records that n wait for the limit of charge i.
func (w *Waiter) note(i int, n int64) {
	if len(w.Seen) == 0 {
		w.Seen = make([]Seen, len(w.Charges))
	}
	w.Seen[i].Queued = n
}

// bound sets how long each charge may wait.
func (w *Waiter) bound(ctx context.Context) error {
	left, err := Left(ctx)
	if err != nil {
		return err
	}
	for i := range w.Charges {
		w.Charges[i].MaxWait = w.Terms[i].Within(left, w.Patient, w.Counting)
	}
	return nil
}

// Left returns how long a context lasts: store.Never if it has no deadline.
func Left(ctx context.Context) (time.Duration, error) {
	t, ok := ctx.Deadline()
	if !ok {
		return store.Never, nil
	}
	left := time.Until(t)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return left, nil
}

// Within returns how long the store may have a charge wait, of a call whose context lasts for
// left.
func (t *Terms) Within(left time.Duration, patient, counting bool) time.Duration {
	switch {
	case t.Way == ForNothing:
		return 0
	case t.Way == ForSlot && !counting:
		return 0 // it waits in the process: see waitSlot
	case patient, t.MaxWait == 0 && t.Queues:
		return left
	}
	return min(t.MaxWait, left)
}

// rank returns the call's rank, the same for as long as it waits, whatever for.
func (w *Waiter) rank(ctx context.Context, now time.Time) Rank {
	if w.Arrived.IsZero() {
		w.Arrived = now
	}
	return Rank{w.Class(ctx), w.Arrived}
}

// begin tells the caller that the call has begun to wait. A call that waits for several
// things in turn begins once.
func (w *Waiter) begin(i int, d time.Duration) {
	if !w.BeganWaiting {
		w.BeganWaiting = true
		w.Waits(i, w.Seen[i].Queued, d)
	}
}

// take asks, and records what the call then has.
func (w *Waiter) take(ctx context.Context) error {
	if err := w.ask(ctx); err != nil {
		return err
	}
	if w.Granted = inside.Granted(w.Charges, w.Results); w.Granted {
		for i := range w.Charges {
			if w.takesSlots(i) {
				w.lines.AddHeld(KeyOf(&w.Charges[i]), w.Class(ctx), w.Charges[i].Cost)
			}
		}
	}
	return nil
}

// takesSlots reports whether charge i takes slots from others. A dry run takes none.
func (w *Waiter) takesSlots(i int) bool {
	return w.Terms[i].Way == ForSlot && !w.Charges[i].DryRun && w.Charges[i].Cost > 0
}

// KeyOf returns which slots a charge is about.
func KeyOf(ch *store.Charge) Key { return KeyIn(ch.Limit, ch.Key) }

// KeyIn returns which slots of a limit are a key's.
func KeyIn(l *store.Limit, key string) Key {
	return Key{Limit: l.Name(), Key: key, Decided: inside.Decider(l) != nil}
}

// room returns how many may stand in line for charge i's slots. By default it is as
// many as there are slots, so that a crowd finds a full line rather than an endless
// one. Patient callers are the application's own, and it knows how many there are.
func (w *Waiter) room(i int) int64 {
	t := &w.Terms[i]
	switch {
	case t.Room != nil:
		return *t.Room
	case w.Patient:
		return math.MaxInt64
	}
	return t.Slots(&w.Charges[i])
}
