package slots

import (
	"errors"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// Classes is the number of priority classes, from 0 on.
const Classes = 10

// Shares are the percentages of a limit's slots that are reserved for classes; 0 for
// none.
type Shares [Classes]uint8

// Key identifies slots: by the limit and the key that holds them. A limit that something other than
// a store decides (store.Limit.Decider) is another limit than one of its name in a store.
type Key struct {
	Limit, Key string
	Decided    bool
}

// KeyOf identifies the slots that a key has of a limit.
func KeyOf(l *store.Limit, key string) Key {
	return Key{Limit: l.Name(), Key: key, Decided: inside.Decider(l) != nil}
}

// Waiter is a call in the line for the slots of one key. [Lines.Join] enters it there, once.
type Waiter struct {
	Key     Key
	Cost    int64 // in slots
	Class   uint8
	Arrived time.Time // when the call began to wait, for whatever it was
	// Shares returns the shares of the limit as it now is, or nil. It is called under
	// the lock of the lines, and returns at once.
	Shares func() *Shares
	Room   int64     // how many may wait in the line
	Until  time.Time // when the call stops waiting

	woken  chan struct{}
	timer  *time.Timer
	inLine bool
	looked bool // whether it is the head, since it joined
	head   bool // when it last looked
}

// How a wait ends if neither an answer nor the context ends it.
var (
	ErrFull = errors.New("slots: there is no room in the line")
	ErrLate = errors.New("slots: the wait has taken too long")
)

func (w *Waiter) wake() {
	select {
	case w.woken <- struct{}{}:
	default: // it hasn't looked since the last wake-up
	}
}
