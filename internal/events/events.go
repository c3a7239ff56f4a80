// Package events is what all events of a limiter have in common: the names and log
// messages of their kinds, how an event is shown without a key, who is told of it, and
// how long observers may ask for its keys.
package events

import (
	"errors"
	"strconv"

	"github.com/stint-go/stint/internal/logs"
)

// Kind is the kind of an event. Package stint documents its values.
type Kind uint8

// The kinds of event.
const (
	Admitted Kind = iota
	Denied
	Canceled
	Blocked
	EmptyKey
	KeyFailed
	LimitsFailed
	StoreFailed
	SettleFailed
	DryRunDenied
	Updated
	LimitChanged
	Waiting
	Settled
	Paced
	Banned
	Ended
	StoreDegraded
	Policy
	LeaseLost
	Warning
	kinds
)

var all = [kinds]struct {
	name    string
	decided bool         // it has a decision
	message logs.Message // none: it isn't logged
	over    logs.Message // what the message says is over: the event has no error
	blamed  logs.Message // instead: the error's status says that the caller is at fault
}{
	Admitted:      {name: "Admitted", decided: true},
	Denied:        {name: "Denied", decided: true, message: logs.Refused},
	Canceled:      {name: "Canceled", decided: true},
	Blocked:       {name: "Blocked", message: logs.Refused},
	EmptyKey:      {name: "EmptyKey", message: logs.EmptyKey},
	KeyFailed:     {name: "KeyFailed", message: logs.KeyFailed},
	LimitsFailed:  {name: "LimitsFailed", message: logs.LimitsFailed, blamed: logs.LimitsRefused},
	StoreFailed:   {name: "StoreFailed", message: logs.StoreFailed},
	SettleFailed:  {name: "SettleFailed", message: logs.SettleFailed},
	DryRunDenied:  {name: "DryRunDenied", decided: true},
	Updated:       {name: "Updated"},
	LimitChanged:  {name: "LimitChanged"},
	Waiting:       {name: "Waiting"},
	Settled:       {name: "Settled", decided: true},
	Paced:         {name: "Paced"},
	Banned:        {name: "Banned", decided: true, message: logs.Banned},
	Ended:         {name: "Ended", decided: true},
	StoreDegraded: {name: "StoreDegraded", message: logs.PrimaryFailed, over: logs.PrimaryAnswers},
	Policy:        {name: "Policy", message: logs.PolicyRefused, over: logs.PolicyInForce},
	LeaseLost:     {name: "LeaseLost", message: logs.LeaseLost},
	Warning:       {name: "Warning", message: logs.Warning},
}

// String returns the name of the kind: "Admitted".
func (k Kind) String() string {
	if k < kinds {
		return all[k].name
	}
	return "EventKind(" + strconv.Itoa(int(k)) + ")"
}

// Decided reports whether events of the kind have a decision.
func (k Kind) Decided() bool { return k < kinds && all[k].decided }

// Message returns the log message of an event with the error err, or 0 for none.
func (k Kind) Message(err error) logs.Message {
	if k >= kinds {
		return 0
	}
	if over := all[k].over; err == nil && over != 0 {
		return over
	}
	if blamed := all[k].blamed; blamed != 0 {
		var s interface{ StatusCode() int } // which escapes
		if errors.As(err, &s) && s.StatusCode() < 500 {
			return blamed
		}
	}
	return all[k].message
}
