package lines

import (
	"errors"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Classes is the number of priority classes, from 0 on.
const Classes = 10

// Raises is the class of raises: calls of requests that have begun. It is above all others.
const Raises = Classes

// Shares are the percentages of a limit's slots that are reserved for classes; 0 for
// none.
type Shares [Classes]uint8

// Key identifies a line: the limit for whose units its calls wait, and the key that is charged. A limit of slots
// is another limit than a rate of its name, which an Update may have put in its place, and so is one that
// something other than a store decides (store.Limit.Decider).
type Key struct {
	Limit, Key     string
	Slots, Decided bool
}

// KeyOf returns the key of the line in which a charge waits.
func KeyOf(l *store.Limit, key string) Key {
	return Key{Limit: l.Name(), Key: key, Slots: l.Algorithm() == store.Concurrency, Decided: inside.Decider(l) != nil}
}

// Waiter is a call in a line. [Lines.Join] enters it there, once.
type Waiter struct {
	Key     Key
	Cost    int64 // in units of the limit
	Class   uint8
	Tenant  Tenant    // in a fair queue, where it takes the place of Class
	Arrived time.Time // when the call began to wait, in whichever line
	Until   time.Time // when the call stops waiting in this line
	Room    int64     // how many may wait in the line
	// Alone is how long the call waits for its own units, if no other call has charged any.
	Alone time.Duration
	// Holds: the call has no other charge than dry runs, so its line holds a turn for it however far ahead.
	Holds bool
	// Set distinguishes the charges of calls with several: a turn is for one set. It is 0 for a call that Holds.
	Set uint64
	// Single: the call has no other charge than dry runs. Even if its line holds nothing for it, it may take a turn
	// that the line holds.
	Single bool
	// Owns: the call, and not its line, owns what it is granted, and gives it back if it leaves.
	Owns bool
	// AtOnce: the store answers at once, so the call asks when its units have come, and reserves nothing.
	AtOnce bool
	// TakesSlots: the call takes slots of some limit, so it reserves nothing for long.
	TakesSlots bool
	// Supply is how the limit's units come when the call joins.
	Supply Supply
	// Shares returns the shares of the limit as it now is, or nil. It is called under
	// the lock of the lines, and returns at once.
	Shares func() *Shares

	// AsksAtOnce is set by Join: the call is to ask as soon as it calls Wait.
	AsksAtOnce bool
	// Horizon is set when the call is told to ask: how far ahead it may reserve what it asks for, if it
	// doesn't hold.
	Horizon time.Duration

	line    *line
	woken   chan struct{}
	timer   *time.Timer
	inLine  bool
	asking  bool  // it has been told to ask, and hasn't answered
	askedAt bool  // it has asked once more because its time was up
	turn    *Turn // that it was served
	refunds bool  // it was served a turn for more than it costs
}

// Turn is units of a limit that a line has reserved at an instant.
type Turn struct {
	At    time.Time
	Cost  int64
	Limit *store.Limit
	By    *Waiter // that asked for it
	// Result is the store's, of the instant Asked.
	Result store.Result
	Asked  time.Time
	// Set is that of the calls that it is for, and Results are those of all of their charges; nil if Set is 0.
	Set     uint64
	Results []store.Result
	Behind  int64 // when the turn is served: the units for which calls wait then
}

// suits reports whether the turn suffices for a call.
func (t *Turn) suits(w *Waiter) bool {
	if t.Set != 0 {
		return w.Set == t.Set
	}
	return (w.Holds || w.Single) && w.Cost <= t.Cost
}

// SetOf returns the Set of calls with such charges.
func SetOf(charges []store.Charge) (set uint64) {
	for i := range charges {
		c := &charges[i]
		set = (set ^ hashOf(KeyOf(c.Limit, c.Key)) ^ uint64(c.Cost)) * 0x9E3779B97F4A7C15
	}
	return max(set, 1)
}

// How a wait ends if neither an answer nor the context ends it.
var (
	ErrFull = errors.New("lines: there is no room in the line")
	ErrLate = errors.New("lines: the turn comes too late")
)

// take returns the turn that the call was served, which is the caller's then, or nil. It is called under the lock: a
// turn may be served while the call is about to ask.
func (w *Waiter) take() *Turn {
	t := w.turn
	w.turn = nil
	return t
}

func (w *Waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it hasn't looked since the last wake-up
	}
}
