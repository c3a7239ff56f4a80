package redisstore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
)

// line is where calls wait to be sent to the server. It never waits for more calls to
// arrive: while a way to the server is free, a call goes at once and alone. When all
// ways are taken, calls gather, and the next way to come free takes all of them along.
// So batches are as large as the load makes them, and no goroutine stands by. While
// calls are made, one timer ends those that take too long; it stops by itself after a
// timeout without a call.
//
// No call takes longer than timeout from its submission, whatever the client does: a
// batch ends at the timeout of its oldest call. By then all ways that were taken when a
// call came are free or overdue, so the call is in a batch, or it fails when the last
// way is overdue.
//
// A panic of send, sent or gone is logged and goes no further: the batch is over, its calls have
// an answer, and its way is free.
type line[T any] struct {
	ways    int // batches under way at a time, at the most
	few     int // while the way is short; 0: as many
	most    int // calls in a batch
	timeout time.Duration
	// direct: the client keeps to a context's deadline. A caller that finds a free way
	// then makes the call itself.
	direct bool
	// send calls the server, and sets failed for each call without an answer. If it panics, the
	// outcome of none is known.
	send func(ctx context.Context, batch []*ticket[T])
	// sent, if there is one, is called after send, before the callers are answered.
	sent func(batch []*ticket[T])
	// gone is called for an answered call whose caller has left.
	gone func(*ticket[T])

	usual    atomic.Int64 // what a batch takes, in nanoseconds
	mu       sync.Mutex
	pending  []*ticket[T]
	busy     int         // ways taken
	stuck    int         // of these, overdue
	departed []*trip[T]  // those under way and not overdue, in no order
	watch    *time.Timer // calls overdue
	watched  time.Time   // when it will; zero: it won't
	trips    sync.Pool
}

// ticket is one call.
type ticket[T any] struct {
	what   T
	failed error // set by send
	since  time.Time
	state  atomic.Int32
	ready  chan struct{} // holds one
	// For the caller, once ready:
	err error
	// late: the batch is still under way, and the ticket must not be reused.
	late bool
	// ended, if there is one, receives the batch's error, whether or not the caller has left.
	ended chan error
}

const (
	waiting int32 = iota
	answered
	abandoned // the caller has gone
)

func newTicket[T any]() *ticket[T] { return &ticket[T]{ready: make(chan struct{}, 1)} }

// answer passes the result to the caller, and reports whether it was still there.
func (t *ticket[T]) answer(err error, late bool) bool {
	if !t.state.CompareAndSwap(waiting, answered) {
		return false
	}
	t.err, t.late = err, late
	t.ready <- struct{}{}
	return true
}

// trip is a batch on its way.
type trip[T any] struct {
	deadline
	batch []*ticket[T]
	at    int  // under line.mu: its place in line.departed
	late  bool // under line.mu: it is overdue
}

func (l *line[T]) newTrip() *trip[T] {
	if r, ok := l.trips.Get().(*trip[T]); ok {
		return r
	}
	return &trip[T]{}
}

// depart enters a trip among those that are watched.
func (l *line[T]) depart(r *trip[T]) {
	r.until(r.batch[0].since.Add(l.timeout))
	l.mu.Lock()
	defer l.mu.Unlock()
	r.at = len(l.departed)
	l.departed = append(l.departed, r)
	if end := r.end(); l.watched.IsZero() || end.Before(l.watched) {
		l.look(end)
	}
}

// look schedules overdue. The caller holds the lock.
func (l *line[T]) look(at time.Time) {
	l.watched = at
	if l.watch == nil {
		l.watch = time.AfterFunc(time.Until(at), l.overdue)
	} else {
		l.watch.Reset(time.Until(at))
	}
}

// arrive removes the trip again, and reports whether it is in time.
func (l *line[T]) arrive(r *trip[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.late {
		l.stuck--
		return false
	}
	l.forget(r)
	return true
}

// forget takes a trip off the list. The caller holds the lock.
func (l *line[T]) forget(r *trip[T]) {
	end := len(l.departed) - 1
	last := l.departed[end]
	l.departed[r.at], last.at = last, r.at
	l.departed[end] = nil
	l.departed = l.departed[:end]
}

// overdue ends the trips whose time has come.
func (l *line[T]) overdue() {
	now := time.Now()
	var late []*trip[T]
	var soonest time.Time
	l.mu.Lock()
	for i := len(l.departed) - 1; i >= 0; i-- { // forget puts one that was seen in the place of r
		r := l.departed[i]
		switch end := r.end(); {
		case !end.After(now):
			l.forget(r)
			r.late = true
			l.stuck++
			late = append(late, r)
		case soonest.IsZero() || end.Before(soonest):
			soonest = end
		}
	}
	if l.watched = soonest; !soonest.IsZero() {
		l.look(soonest)
	}
	l.mu.Unlock()
	for _, r := range late {
		l.expire(r)
	}
}

// do makes the call t. If another goroutine sends it, it also ends with the context: a
// caller that sends it itself is in the client until the answer or the timeout. If
// reusable is true, the ticket may be used again.
func (l *line[T]) do(ctx context.Context, t *ticket[T]) (reusable bool, err error) {
	own := l.direct
	if own {
		if end, ok := ctx.Deadline(); ok {
			own = time.Until(end) >= l.timeout
		}
	}
	l.submit(t, own)
	return t.wait(ctx)
}

// submit sends t or has it sent. own allows the caller to send it itself.
func (l *line[T]) submit(t *ticket[T], own bool) {
	t.since = time.Now()
	l.mu.Lock()
	switch {
	case l.free(): // then nothing is pending
		l.busy++
		l.mu.Unlock()
		r := l.newTrip()
		r.batch = append(r.batch, t)
		if !own {
			go l.work(r)
			return
		}
		l.run(r)
		if r := l.next(); r != nil {
			go l.work(r)
		}
	case l.stuck == l.ways:
		l.mu.Unlock()
		t.answer(errUnsent, false)
	default:
		l.pending = append(l.pending, t)
		l.mu.Unlock()
	}
}

// far is how long a batch takes if the way is long. There, calls that wait for another
// batch to come back would wait as long again, so each gets a way of its own. If the
// way is short, most of the time is the server's, and fewer ways make larger batches.
const far = time.Millisecond

// free reports whether another batch may set out. The caller holds the lock.
func (l *line[T]) free() bool {
	if l.few > 0 && l.usual.Load() < int64(far) && l.busy-l.stuck >= l.few {
		return false
	}
	return l.busy < l.ways
}

// wait returns the answer to a submitted ticket, or an error when ctx ends.
func (t *ticket[T]) wait(ctx context.Context) (reusable bool, err error) {
	gone := ctx.Done()
	if gone == nil {
		<-t.ready
		return !t.late, t.err
	}
	select {
	case <-t.ready:
		return !t.late, t.err
	default:
	}
	select {
	case <-t.ready:
		return !t.late, t.err
	case <-gone:
		if t.state.CompareAndSwap(waiting, abandoned) {
			return false, left(ctx)
		}
		<-t.ready
		return !t.late, t.err
	}
}

// crowd is how many answered callers are let run before the next batch sets out. Some
// of them are about to call again, and would otherwise wait for that batch to come
// back.
const crowd = 8

// work continues until nothing is pending.
func (l *line[T]) work(r *trip[T]) {
	for r != nil {
		answered := len(r.batch)
		l.run(r)
		if answered >= crowd {
			runtime.Gosched()
		}
		r = l.next()
	}
}

// next takes what is pending, or gives the way back.
func (l *line[T]) next() *trip[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.pending), l.most)
	if n == 0 {
		l.busy--
		return nil
	}
	r := l.newTrip()
	r.batch = append(r.batch, l.pending[:n]...)
	l.pending = slices.Delete(l.pending, 0, n)
	return r
}

// run makes the trip of one batch.
func (l *line[T]) run(r *trip[T]) {
	now := time.Now()
	r.batch = slices.DeleteFunc(r.batch, func(t *ticket[T]) bool {
		if now.Sub(t.since) >= l.timeout {
			t.answer(errUnsent, false)
			return true
		}
		return t.state.Load() == abandoned // before it was sent: nothing to undo
	})
	if len(r.batch) == 0 {
		l.trips.Put(r)
		return
	}
	l.depart(r)
	l.call(r)
	// Lost updates don't matter.
	usual := l.usual.Load()
	l.usual.Store(usual + (int64(time.Since(now))-usual)/8)
	inTime := l.arrive(r)
	for _, t := range r.batch {
		// Once answered, a ticket may be reused by another call: expire must not be
		// going through the batch then.
		failed := t.failed
		if !t.answer(failed, !inTime) && failed == nil {
			background.Do("a charge is given back", func() { l.gone(t) })
		}
		if t.ended != nil {
			t.ended <- failed
		}
	}
	if inTime {
		clear(r.batch)
		r.batch = r.batch[:0]
		l.trips.Put(r)
	}
}

// call calls the server for a batch.
func (l *line[T]) call(r *trip[T]) {
	panicked := true
	background.Do("a Redis is called", func() {
		l.send(r, r.batch)
		panicked = false
	})
	if panicked {
		for _, t := range r.batch {
			t.failed = errPanicked
		}
	}
	if l.sent != nil {
		background.Do("a Redis is called", func() { l.sent(r.batch) })
	}
}

// expire ends a batch's calls without an answer. The way stays taken until the
// client comes back: otherwise a client that ignores deadlines would be asked more and
// more. While no way is left, no call waits for one.
func (l *line[T]) expire(r *trip[T]) {
	l.mu.Lock()
	var unsent []*ticket[T]
	if l.stuck == l.ways {
		unsent, l.pending = l.pending, nil
	}
	instead := len(l.pending) > 0 && l.free()
	if instead {
		l.busy++
	}
	l.mu.Unlock()
	if instead {
		go l.work(l.next())
	}
	close(r.done)
	for _, t := range r.batch {
		t.answer(errLate, true)
	}
	for _, t := range unsent {
		t.answer(errUnsent, false)
	}
}

// Timeout implements store.Bounded. It returns that of WithTimeout.
func (s *Store) Timeout() time.Duration { return s.timeout }
