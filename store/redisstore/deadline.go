package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// deadline is the context of a call to the server: it carries nothing but its
// end. It is used again for the next call, with its timer and channel, unless
// the timer went off: a context and a timer for each call would be a third of
// what the call allocates.
type deadline struct {
	at    atomic.Int64 // after origin; the client may still look when the call is over
	done  chan struct{}
	timer *time.Timer
}

var origin = time.Now()

// start sets the deadline going. expired is called, once the time has come, in a
// goroutine of its own; it is the same function each time.
func (d *deadline) start(at time.Time, expired func()) {
	d.at.Store(int64(at.Sub(origin)))
	left := time.Until(at)
	if d.timer == nil {
		d.done = make(chan struct{})
		d.timer = time.AfterFunc(left, expired)
		return
	}
	d.timer.Reset(left)
}

func (d *deadline) Deadline() (time.Time, bool) {
	return origin.Add(time.Duration(d.at.Load())), true
}

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func (d *deadline) Value(any) any { return nil }
