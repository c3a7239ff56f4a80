package batch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// batch is calls that are sent together.
type batch[T any] struct {
	deadline
	calls   []*Call[T]
	index   int  // under Queue.mu: its place in Queue.watched
	overdue bool // under Queue.mu
}

func (q *Queue[T]) newBatch() *batch[T] {
	if b, ok := q.batches.Get().(*batch[T]); ok {
		return b
	}
	return &batch[T]{}
}

// watch has b expire at the timeout of its oldest call.
func (q *Queue[T]) watch(b *batch[T]) {
	b.set(b.calls[0].Since.Add(q.Timeout))
	q.mu.Lock()
	defer q.mu.Unlock()
	b.index = len(q.watched)
	q.watched = append(q.watched, b)
	if end := b.end(); q.timerAt.IsZero() || end.Before(q.timerAt) {
		q.setTimer(end)
	}
}

// setTimer schedules expireOverdue. The caller holds the lock.
func (q *Queue[T]) setTimer(at time.Time) {
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.expireOverdue)
	} else {
		q.timer.Reset(time.Until(at))
	}
}

// unwatch ends watching a batch that is back, and reports whether it is in time.
func (q *Queue[T]) unwatch(b *batch[T]) (inTime bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.overdue {
		q.overdue--
		return false
	}
	q.remove(b)
	return true
}

// remove takes a batch out of watched. The caller holds the lock.
func (q *Queue[T]) remove(b *batch[T]) {
	end := len(q.watched) - 1
	last := q.watched[end]
	q.watched[b.index], last.index = last, b.index
	q.watched[end] = nil
	q.watched = q.watched[:end]
}

// expireOverdue ends the batches whose deadline has passed.
func (q *Queue[T]) expireOverdue() {
	now := time.Now()
	var overdue []*batch[T]
	var soonest time.Time
	q.mu.Lock()
	for i := len(q.watched) - 1; i >= 0; i-- { // remove puts one that was seen in the place of b
		b := q.watched[i]
		switch end := b.end(); {
		case !end.After(now):
			q.remove(b)
			b.overdue = true
			q.overdue++
			overdue = append(overdue, b)
		case soonest.IsZero() || end.Before(soonest):
			soonest = end
		}
	}
	if q.timerAt = soonest; !soonest.IsZero() {
		q.setTimer(soonest)
	}
	q.mu.Unlock()
	for _, b := range overdue {
		q.expire(b)
	}
}

// expire ends a batch's calls without an answer. The batch counts as in flight until the
// client comes back: otherwise a client that ignores deadlines would be asked more and
// more. While all batches in flight are overdue, no call waits for one.
func (q *Queue[T]) expire(b *batch[T]) {
	q.mu.Lock()
	var unsent []*Call[T]
	if q.overdue == q.MaxInFlight {
		unsent, q.pending = q.pending, nil
	}
	another := len(q.pending) > 0 && q.mayStart()
	if another {
		q.inFlight++
	}
	q.mu.Unlock()
	if another {
		go q.sendAll(q.next())
	}
	close(b.done)
	err := fault.ErrTimeout
	if b.Withdraw() {
		err = q.unsent(fault.ErrNoConnection)
	}
	for _, c := range b.calls {
		c.answer(err, true)
	}
	for _, c := range unsent {
		c.answer(q.unsent(fault.ErrUnsent), false)
	}
}

// deadline is the context of a batch, and holds nothing but its end. It is
// reused for the next batch, with its channel, unless the time ran out: a context and a
// timer per call would be a third of what a call allocates, and a timer alone a tenth
// of the time it takes. The Queue ends it, with one timer for all batches.
type deadline struct {
	Outgoing
	at   atomic.Int64 // after origin; the client may still read it after the call
	done chan struct{}
}

var origin = time.Now()

// set sets when the call ends.
func (d *deadline) set(at time.Time) {
	d.at.Store(int64(at.Sub(origin)))
	d.state.Store(unknown)
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
