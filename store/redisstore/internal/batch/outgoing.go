package batch

import (
	"context"
	"sync/atomic"
)

// Outgoing records whether commands have been sent. Its zero value says that they may have been.
type Outgoing struct{ state atomic.Int32 }

// The states of an Outgoing.
const (
	unknown int32 = iota
	held          // the client has the commands, and calls Begin before it sends them
	begun
	withdrawn
)

// Hold records that the commands aren't sent before Begin is called. It has no effect once they may have
// been sent.
func (o *Outgoing) Hold() { o.state.CompareAndSwap(unknown, held) }

// Begin is called before the first byte is sent. If it returns an error, nothing may be sent.
func (o *Outgoing) Begin() error {
	if !o.state.CompareAndSwap(held, begun) && o.state.Load() == withdrawn {
		return context.DeadlineExceeded
	}
	return nil
}

// Withdraw reports whether the commands haven't been sent, and makes sure that they never are.
func (o *Outgoing) Withdraw() bool {
	return o.state.CompareAndSwap(held, withdrawn) || o.state.Load() == withdrawn
}
