// Package batch sends calls to a server in batches, so that callers share round trips.
package batch

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

// Queue is where calls wait to be sent to the server. It never waits for more calls to
// arrive: while fewer batches are in flight than there may be, a call is sent at once and
// alone. Otherwise calls gather, and the next batch that comes back is followed by one with
// all of them. So batches are as large as the load makes them, and no goroutine waits for calls.
// While calls are made, one timer ends those that take too long; it stops by itself after a
// timeout without a call.
//
// No call takes longer than Timeout from its submission, whatever the client does: a
// batch ends at the timeout of its oldest call. By then all batches that were in flight when
// a call came are back or overdue, so the call is in a batch, or it fails when the last of
// them is overdue.
//
// A panic of Send, AfterSend or Abandoned is logged and goes no further: the calls of the batch
// are answered, and another batch may be sent.
//
// The exported fields aren't changed once calls are made.
type Queue[T any] struct {
	MaxInFlight      int // batches in flight at a time, at the most
	MaxInFlightShort int // the same while round trips are short; 0: as MaxInFlight
	MaxSize          int // calls in a batch, at the most
	Timeout          time.Duration
	// Direct: the client keeps to a context's deadline. A caller then sends the batch itself if
	// its call needn't wait.
	Direct bool
	// Send calls the server, and sets Failed of each call that has no answer. If it panics, the
	// outcome of none is known.
	Send func(ctx context.Context, calls []*Call[T])
	// Unsent, if there is one, returns the error of calls that weren't sent, for which err is the
	// reason if the client can connect.
	Unsent func(err error) error
	// AfterSend, if there is one, is called after Send, before the callers are answered.
	AfterSend func(calls []*Call[T])
	// Abandoned is called for an answered call whose caller has left.
	Abandoned func(*Call[T])

	roundTrip atomic.Int64 // the moving average of batches, in nanoseconds
	mu        sync.Mutex
	pending   []*Call[T]  // in the order of their submission
	inFlight  int         // batches, including those overdue
	overdue   int         // of inFlight
	watched   []*batch[T] // those in flight and not overdue, in no order
	timer     *time.Timer // calls expireOverdue
	timerAt   time.Time   // when timer fires; zero: it is stopped
	batches   sync.Pool   // of *batch[T]
}

// Call is one call, with what is asked and answered in its Body.
type Call[T any] struct {
	Body   T
	Failed error     // set by Queue.Send
	Since  time.Time // when it was submitted
	// Ended, if there is one, receives Failed once the batch is back, whether or not the caller
	// has left.
	Ended chan error

	state atomic.Int32
	ready chan struct{} // holds one
	// For the caller, once ready:
	err error
	// overdue: the batch is still in flight, and the call must not be reused.
	overdue bool
}

// The states of a call.
const (
	waiting int32 = iota
	answered
	abandoned // the caller has left
)

// NewCall returns a call with an empty Body.
func NewCall[T any]() *Call[T] { return &Call[T]{ready: make(chan struct{}, 1)} }

// Renew prepares a call that Do has reported reusable for being submitted again. It keeps the
// Body.
func (c *Call[T]) Renew() {
	c.state.Store(waiting)
	c.Failed, c.err = nil, nil
}

// answer passes the result to the caller, and reports whether it was still there.
func (c *Call[T]) answer(err error, overdue bool) bool {
	if !c.state.CompareAndSwap(waiting, answered) {
		return false
	}
	c.err, c.overdue = err, overdue
	c.ready <- struct{}{}
	return true
}

// Wait returns the answer to a submitted call, or an error when ctx ends.
func (c *Call[T]) Wait(ctx context.Context) (reusable bool, err error) {
	ended := ctx.Done()
	if ended == nil {
		<-c.ready
		return !c.overdue, c.err
	}
	select {
	case <-c.ready:
		return !c.overdue, c.err
	default:
	}
	select {
	case <-c.ready:
		return !c.overdue, c.err
	case <-ended:
		if c.state.CompareAndSwap(waiting, abandoned) {
			return false, fault.ContextEnded(ctx)
		}
		<-c.ready
		return !c.overdue, c.err
	}
}

// Do makes the call c. If another goroutine sends it, it also ends with the context: a
// caller that sends it itself is in the client until the answer or the timeout. If
// reusable is true, the call may be made again.
func (q *Queue[T]) Do(ctx context.Context, c *Call[T]) (reusable bool, err error) {
	direct := q.Direct
	if direct {
		if end, ok := ctx.Deadline(); ok {
			direct = time.Until(end) >= q.Timeout
		}
	}
	q.submit(c, direct)
	return c.Wait(ctx)
}

// Load reports how many batches are in flight and how many calls wait to be sent.
func (q *Queue[T]) Load() (inFlight, pending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight, len(q.pending)
}

// Submit has c sent by another goroutine, and doesn't wait for its answer.
func (q *Queue[T]) Submit(c *Call[T]) { q.submit(c, false) }

// submit sends c or has it sent. direct allows the caller to send it itself.
func (q *Queue[T]) submit(c *Call[T], direct bool) {
	c.Since = time.Now()
	q.mu.Lock()
	switch {
	case q.mayStart(): // then nothing is pending
		q.inFlight++
		q.mu.Unlock()
		b := q.newBatch()
		b.calls = append(b.calls, c)
		if !direct {
			go q.sendAll(b)
			return
		}
		q.sendOne(b)
		if b := q.next(); b != nil {
			go q.sendAll(b)
		}
	case q.overdue == q.MaxInFlight:
		q.mu.Unlock()
		c.answer(q.unsent(fault.ErrUnsent), false)
	default:
		q.pending = append(q.pending, c)
		q.mu.Unlock()
	}
}

// unsent returns the error of calls that weren't sent.
func (q *Queue[T]) unsent(err error) error {
	if q.Unsent == nil {
		return err
	}
	return q.Unsent(err)
}

// shortRoundTrip is the longest average of round trips that counts as short. If they take longer, calls
// that wait for another batch to come back would wait as long again, so all of MaxInFlight are
// used. If they are short, most of the time is the server's, and fewer batches are larger.
const shortRoundTrip = time.Millisecond

// mayStart reports whether another batch may be sent. The caller holds the lock.
func (q *Queue[T]) mayStart() bool {
	if q.MaxInFlightShort > 0 && q.roundTrip.Load() < int64(shortRoundTrip) && q.inFlight-q.overdue >= q.MaxInFlightShort {
		return false
	}
	return q.inFlight < q.MaxInFlight
}

// yieldAfter is the size of a batch after which answered callers are let run before the next
// batch is sent. Some of them are about to call again, and would otherwise wait for that batch
// to come back.
const yieldAfter = 8

// sendAll sends b and what is pending, until nothing is.
func (q *Queue[T]) sendAll(b *batch[T]) {
	for b != nil {
		size := len(b.calls)
		q.sendOne(b)
		if size >= yieldAfter {
			runtime.Gosched()
		}
		b = q.next()
	}
}

// next returns the batch that follows one that is back, or nil if nothing is pending.
func (q *Queue[T]) next() *batch[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.pending), q.MaxSize)
	if n == 0 {
		q.inFlight--
		return nil
	}
	b := q.newBatch()
	b.calls = append(b.calls, q.pending[:n]...)
	q.pending = slices.Delete(q.pending, 0, n)
	return b
}

// sendOne sends a batch and answers its calls.
func (q *Queue[T]) sendOne(b *batch[T]) {
	now := time.Now()
	b.calls = slices.DeleteFunc(b.calls, func(c *Call[T]) bool {
		if now.Sub(c.Since) >= q.Timeout {
			c.answer(q.unsent(fault.ErrUnsent), false)
			return true
		}
		return c.state.Load() == abandoned // before it was sent: nothing to undo
	})
	if len(b.calls) == 0 {
		q.batches.Put(b)
		return
	}
	q.watch(b)
	q.callServer(b)
	// Lost updates don't matter.
	average := q.roundTrip.Load()
	q.roundTrip.Store(average + (int64(time.Since(now))-average)/8)
	inTime := q.unwatch(b)
	for _, c := range b.calls {
		// Once answered, a call may be reused: expire must not be going through the batch then.
		failed := c.Failed
		if !c.answer(failed, !inTime) && failed == nil {
			background.Do("a charge is given back", func() { q.Abandoned(c) })
		}
		if c.Ended != nil {
			c.Ended <- failed
		}
	}
	if inTime {
		clear(b.calls)
		b.calls = b.calls[:0]
		q.batches.Put(b)
	}
}

// callServer calls the server for a batch.
func (q *Queue[T]) callServer(b *batch[T]) {
	panicked := true
	background.Do("a Redis is called", func() {
		q.Send(b, b.calls)
		panicked = false
	})
	if panicked {
		for _, c := range b.calls {
			c.Failed = fault.ErrPanicked
		}
	}
	if q.AfterSend != nil {
		background.Do("a Redis is called", func() { q.AfterSend(b.calls) })
	}
}
