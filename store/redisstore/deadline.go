package redisstore

import (
	"context"
	"sync/atomic"
	"time"
)

// deadline is the context of a call to the server, and holds nothing but its end. It is
// reused for the next call, with its channel, unless the time ran out: a context and a
// timer per call would be a third of what a call allocates, and a timer alone a tenth
// of the time it takes. The line that calls stand in ends them, with one timer for all.
type deadline struct {
	at   atomic.Int64 // after origin; the client may still read it after the call
	done chan struct{}
}

var origin = time.Now()

// until sets when the call ends.
func (d *deadline) until(at time.Time) {
	d.at.Store(int64(at.Sub(origin)))
	if d.done == nil {
		d.done = make(chan struct{})
	}
}

func (d *deadline) end() time.Time { return origin.Add(time.Duration(d.at.Load())) }

func (d *deadline) Deadline() (time.Time, bool) { return d.end(), true }

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
