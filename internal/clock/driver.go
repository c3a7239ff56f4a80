package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Driver is the clock of a process in which a tool says what time it is. It is safe
// for concurrent use.
type Driver struct {
	start time.Time
	gone  atomic.Int64 // nanoseconds since start

	mu     sync.Mutex
	alarms map[*alarm]struct{}
}

// alarm is what is to happen at an instant: an entry in c, or a call of f.
type alarm struct {
	by *Driver
	at time.Duration // since start
	c  chan time.Time
	f  func()
}

// Drive makes it start o'clock, and nothing but the Driver's Advance moves the time
// on, until its End. Limiters, stores and caches are made, used and left in between:
// nothing may read the clock while Drive and End are called.
func Drive(start time.Time) *Driver {
	if driver != nil {
		panic("clock: somebody drives already")
	}
	driver = &Driver{start: start.Round(0), alarms: map[*alarm]struct{}{}}
	now = driver.Now
	since = func(t time.Time) time.Duration { return now().Sub(t) }
	return driver
}

// End returns to the time of package time.
func (d *Driver) End() { driver, now, since = nil, time.Now, time.Since }

// Now is the time.
func (d *Driver) Now() time.Time { return d.start.Add(time.Duration(d.gone.Load())) }

// Advance lets time go by. Timers fire one after the other, each at its time: those of
// AfterFunc have returned when Advance does, and who waits for a channel may only
// have been told.
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

// next is the first alarm up to end, whose time it becomes, or nil and end.
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

// set has the alarm go off after a time, or not at all if that is below 0, and reports
// whether it would have. Of one that is set anew nobody hears that it has gone off.
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
