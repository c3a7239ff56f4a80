// Package limit has limits as a limiter applies them, and the table of what distinguishes
// their kinds. It knows no requests.
package limit

import (
	"sync/atomic"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
)

// Limit is a limit as a limiter applies it: named, and with its settings filled in.
type Limit struct {
	Limit *store.Limit
	Kind  Kind
	Needs Needs
	Terms waiting.Terms
	// DryRun: it only reports.
	DryRun bool
	// Closed: if the store fails, the request is denied.
	Closed bool
	// Costs: a function of the application says what a request costs.
	Costs bool
	// Policy is its part of header fields, or nil. That of an adaptive limit is replaced
	// when its number changes.
	Policy atomic.Pointer[Policy]
}

// Policy is a limit's part of the header fields of every decision.
type Policy struct {
	Units int64
	Text  string // its item of RateLimit-Policy; "" if no field shows the limit
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
)

// HoldHere counts the slots of a charge as held by a class, in this process.
func (l *Limit) HoldHere(lines *waiting.Lines, key string, cost int64, class uint8) {
	if l.Needs&Slots != 0 && cost > 0 {
		lines.AddHeld(waiting.KeyIn(l.Limit, key), class, cost)
	}
}

// ReleaseHere counts them as no longer held.
func (l *Limit) ReleaseHere(lines *waiting.Lines, key string, cost int64, class uint8) {
	if l.Needs&Slots != 0 && cost > 0 {
		lines.AddHeld(waiting.KeyIn(l.Limit, key), class, -cost)
	}
}
