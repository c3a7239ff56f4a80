package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Driver drives the clock of the process: a tool says what time it is. It is safe for
// concurrent use.
type Driver struct {
	start time.Time
	gone  atomic.Int64 // nanoseconds since start

	mu     sync.Mutex
	alarms map[*alarm]struct{}
}

// alarm is an action at an instant: c receives it, or f is called.
type alarm struct {
	by *Driver
	at time.Duration // since start
	c  chan time.Time
	f  func()
}

// Drive sets the clock to start. From then on until End, only the Driver's Advance
// moves the time. Make, use and drop limiters, stores and caches in between: nothing
// may read the clock while Drive and End are called.
func Drive(start time.Time) *Driver {
	if driver != nil {
		panic("clock: somebody drives already")
	}
	driver = &Driver{start: start.Round(0), alarms: map[*alarm]struct{}{}}
	now = driver.Now
	since = func(t time.Time) time.Duration { return now().Sub(t) }
	return driver
}

// End returns to the clock of package time.
func (d *Driver) End() { driver, now, since = nil, time.Now, time.Since }

// Now returns the time.
func (d *Driver) Now() time.Time { return d.start.Add(time.Duration(d.gone.Load())) }

// Advance lets time pass. Timers fire one after the other, each at its time. When
// Advance returns, functions given to AfterFunc have returned, but a goroutine that
// waits on a channel may not have run yet.
func (d *Driver) Advance(by time.Duration) {
	end := time.Duration(d.gone.Load()) + by
	for a := d.next(end); a != nil; a = d.next(end) {
		if a.f != nil {
			a.f()
			continue
		}
		select {
		case a.c <- d.Now():
		default:
		}
	}
}

// next advances to the first alarm up to end and returns it, or advances to end and
// returns nil.
func (d *Driver) next(end time.Duration) (first *alarm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.alarms {
		if a.at <= end && (first == nil || a.at < first.at) {
			first = a
		}
	}
	now := end
	if first != nil {
		delete(d.alarms, first)
		now = first.at
	}
	d.gone.Store(max(d.gone.Load(), int64(now)))
	return first
}

func (d *Driver) alarm(in time.Duration, c chan time.Time, f func()) *alarm {
	a := &alarm{by: d, c: c, f: f}
	a.set(max(in, 0))
	return a
}

// set makes the alarm go off after in, or never if in is negative, and reports whether
// it was pending. An alarm that is set anew drops what it hasn't delivered yet.
func (a *alarm) set(in time.Duration) (was bool) {
	d := a.by
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was = d.alarms[a]
	delete(d.alarms, a)
	if a.c != nil {
		select {
		case <-a.c:
		default:
		}
	}
	if in >= 0 {
		a.at = time.Duration(d.gone.Load()) + in
		d.alarms[a] = struct{}{}
	}
	return was
}
