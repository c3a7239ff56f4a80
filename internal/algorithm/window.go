package algorithm

import (
	"fmt"
	"hash/fnv"
	"time"
)

type windowKind uint8

const (
	noWindow windowKind = iota
	everyWindow
	hourlyWindow
	dailyWindow
	weeklyWindow
	monthlyWindow
)

// Window is store.Window.
type Window struct {
	kind  windowKind
	every time.Duration
	loc   *time.Location // nil: UTC
}

// nowhere is the location of a window in a nil one.
var nowhere = time.FixedZone("a nil *time.Location", 0)

// The calendar windows. They are in UTC unless In gives a location. A week starts on
// Monday.
var (
	Hourly  = Window{kind: hourlyWindow}
	Daily   = Window{kind: dailyWindow}
	Weekly  = Window{kind: weeklyWindow}
	Monthly = Window{kind: monthlyWindow}
)

// Every returns a window of length d, aligned to the Unix epoch. d is a multiple of a
// microsecond, at most two years; NewLimit returns an error for any other d.
func Every(d time.Duration) Window { return Window{kind: everyWindow, every: d} }

// In returns the window in the time zone loc. NewLimit returns an error if loc is nil, as after
// a failed time.LoadLocation. It also returns an error if the window was made by Every, which
// has no time zone.
func (w Window) In(loc *time.Location) Window {
	if w.loc = loc; loc == nil {
		w.loc = nowhere
	}
	return w
}

// check reports what is wrong with the window.
func (w Window) check(bad wrong) {
	switch {
	case w.loc == nowhere:
		bad("Window", "the time zone is nil",
			`check the error of time.LoadLocation; where the system has no zones, import _ "time/tzdata"`)
	case w.kind != everyWindow:
	case 0 < w.every && w.every < time.Millisecond: // it lacks its unit
		bad("Window", "a window of "+w.every.String(), fmt.Sprintf("write %d*%%v", int64(w.every)), "time.Millisecond")
	case w.every <= 0 || w.every%time.Microsecond != 0:
		bad("Window", "a window of "+w.every.String(), "write a multiple of a microsecond, a millisecond or more")
	case float64(w.every.Microseconds()) > horizon/10:
		bad("Window", "a window of "+w.every.String(), "write at most two years")
	case w.loc != nil:
		bad("Window", "a window of "+w.every.String()+" is aligned to the Unix epoch and has no time zone",
			"write %v, %v, %v or %v", "Hourly", "Daily", "Weekly", "Monthly")
	}
}

// String returns the name of the window: "daily", "every 1h0m0s", "daily in
// Europe/Berlin".
func (w Window) String() string {
	names := [...]string{"none", "every " + w.every.String(), "hourly", "daily", "weekly", "monthly"}
	s := names[w.kind]
	if w.loc != nil {
		s += " in " + w.loc.String()
	}
	return s
}

// bounds returns the window that wall lies in: start <= wall < end. All
// instants are in microseconds since Epoch.
func (w Window) bounds(wall int64) (start, end int64) {
	if w.kind == everyWindow {
		d := w.every.Microseconds()
		start = wall - floorMod(wall+Epoch*1_000_000, d)
		return start, start + d
	}
	n, z := w.number(wall)
	return w.startOf(n, z), w.startOf(n+1, z)
}

// startAhead returns the start of the n-th window after the one starting at start, or of the
// last one within 200 years.
func (w Window) startAhead(start, n int64) int64 {
	if w.kind == everyWindow {
		d := w.every.Microseconds()
		return start + min(n, max(1, far/d))*d
	}
	k, z := w.number(start)
	return w.startOf(k+min(n, far/w.Nominal()), z)
}

// between returns the number of windows that begin in (from, to].
func (w Window) between(from, to int64) int64 {
	a, _ := w.number(from)
	b, _ := w.number(to)
	return b - a
}

// code returns a negative number that distinguishes windows of different length or
// location. The low three bits of its absolute value are the kind; the rest is the
// length of a window made by Every, or a hash of the zone.
func (w Window) code() int64 {
	more := w.every.Microseconds()
	if w.loc != nil && w.loc != time.UTC {
		_, offset := time.Unix(Epoch, 0).In(w.loc).Zone()
		zone := fnv.New32a()
		fmt.Fprint(zone, w.loc, offset) // two fixed zones may share a name
		more = int64(zone.Sum32())
	}
	return -8*more - int64(w.kind)
}

// decodeWindow returns the kind of the window with a code, and what the code has behind that: the length
// of a window made by Every, in microseconds.
func decodeWindow(code int64) (kind windowKind, more int64) { return windowKind(-code & 7), -code / 8 }

// id returns a text that distinguishes windows of different length or location.
func (w Window) id() string {
	names := [...]string{"none", "every:" + w.every.String(), "hourly", "daily", "weekly", "monthly"}
	id := names[w.kind]
	if w.loc != nil && w.loc != time.UTC {
		_, offset := time.Unix(Epoch, 0).In(w.loc).Zone() // two fixed zones may share a name
		id = fmt.Sprintf("%s:%v%+d", id, w.loc, offset)
	}
	return id
}

// Length returns the length of the longest window that overlaps the ten years after from: 31
// days for months, and 25 hours for days where clocks are set back by an hour. For the zero
// Window, Length returns 0.
func (w Window) Length(from time.Time) time.Duration {
	switch w.kind {
	case noWindow:
		return 0
	case everyWindow:
		return w.every
	}
	longest := w.Nominal()
	start, _ := w.bounds(from.UnixMicro() - Epoch*1_000_000)
	t := start/1_000_000 + Epoch
	for z, until := w.zone(t), t+tenYears; z.until < until; {
		next := w.zone(z.until)
		back := z.offset - next.offset
		if w.kind == hourlyWindow {
			back = floorMod(back, 3600) // offsets leave whole hours out
		}
		// The window in which the clocks are set back is the one before.
		if w.Nominal()+back*1_000_000 > longest {
			start, end := w.bounds((z.until - 1 - Epoch) * 1_000_000)
			longest = max(longest, end-start)
		}
		z = next
	}
	return micros(longest)
}

const tenYears = 10 * 366 * 24 * 3600

// Nominal returns the length, in microseconds, of the longest window of w's kind where
// clocks never change.
func (w Window) Nominal() int64 {
	const hour = 3600 * 1_000_000
	switch w.kind {
	case hourlyWindow:
		return hour
	case dailyWindow:
		return 24 * hour
	case weeklyWindow:
		return 7 * 24 * hour
	default:
		return 31 * 24 * hour
	}
}

// zone is a time during which a location's clocks don't change, in seconds since 1970,
// and their offset from UTC.
type zone struct{ from, until, offset int64 }

const always = 1 << 62

// zone returns the zone of the instant t.
func (w Window) zone(t int64) zone {
	if w.loc == nil || w.loc == time.UTC {
		return zone{from: -always, until: always}
	}
	at := time.Unix(t, 0).In(w.loc)
	_, offset := at.Zone()
	z := zone{from: -always, until: always, offset: int64(offset)}
	from, until := at.ZoneBounds()
	if !from.IsZero() {
		z.from = from.Unix()
	}
	if !until.IsZero() {
		z.until = until.Unix()
	}
	if z.until <= t {
		// On the last day of a leap year that the zone's last rule covers,
		// ZoneBounds ends the zone a day before the year: golang/go#81583.
		z.until += 24 * 3600
	}
	if w.kind == hourlyWindow {
		// Whole hours make no difference to where an hour begins, and without
		// them no hour is skipped or repeated.
		z.offset = floorMod(z.offset, 3600)
	}
	return z
}

// reach is more than any zone has ever changed its clocks by at once, in seconds:
// countries have moved across the date line.
const reach = 25 * 3600

// number returns the number of the window that contains wall, and its zone. It is the
// highest number the clocks have shown so far: setting clocks back doesn't return to an
// earlier window.
func (w Window) number(wall int64) (int64, zone) {
	if w.kind == everyWindow {
		return floorDiv(wall+Epoch*1_000_000, w.every.Microseconds()), zone{}
	}
	t := floorDiv(wall, 1_000_000) + Epoch
	z := w.zone(t)
	n := w.numberByClock(t + z.offset)
	for p := z; p.from > t-reach; {
		last := p.from - 1
		p = w.zone(last)
		n = max(n, w.numberByClock(last+p.offset))
	}
	return n, z
}

// startOf returns the first instant at which the clocks show window n or a later one.
// near is a zone close to it, which saves a lookup.
func (w Window) startOf(n int64, near zone) int64 {
	shows := w.clockAtStart(n)
	t := shows - near.offset
	if t-reach < near.from || t >= near.until {
		t = shows - w.zone(t).offset - reach
		z := w.zone(t)
		for max(z.from, shows-z.offset) >= z.until {
			z = w.zone(z.until)
		}
		t = max(z.from, shows-z.offset)
	}
	return (t - Epoch) * 1_000_000
}

// numberByClock returns the number of the window in which clocks show c, read as seconds since
// 1970.
func (w Window) numberByClock(c int64) int64 {
	switch w.kind {
	case hourlyWindow:
		return floorDiv(c, 3600)
	case dailyWindow:
		return floorDiv(c, 86400)
	case weeklyWindow:
		return floorDiv(c+3*86400, 7*86400) // 1970 began on a Thursday
	default:
		y, m, _ := time.Unix(c, 0).UTC().Date()
		return int64(y)*12 + int64(m) - 1
	}
}

// clockAtStart returns what the clocks show at the start of window n, in seconds since 1970: the
// inverse of numberByClock.
func (w Window) clockAtStart(n int64) int64 {
	switch w.kind {
	case hourlyWindow:
		return n * 3600
	case dailyWindow:
		return n * 86400
	case weeklyWindow:
		return (n*7 - 3) * 86400
	default:
		y, m := floorDiv(n, 12), floorMod(n, 12)
		return time.Date(int(y), time.Month(m+1), 1, 0, 0, 0, 0, time.UTC).Unix()
	}
}

// bounds are those of the calendar window that a limit has opened last. Nearly all that it
// decides is in that window, and the calendar takes as long to work them out as the
// decision: longer where clocks change.
type bounds struct{ start, end int64 }

// Span is one window of the calendar, from Start up to but not including End, in
// microseconds since store.Epoch. The windows of a calendar are numbered in order. A number
// is skipped where a time zone has skipped a day.
type Span struct{ Number, Start, End int64 }

// Around returns the calendar window that contains wall, in microseconds since Epoch,
// with the given numbers of windows before and after it.
func (w Window) Around(wall int64, before, after int) []Span {
	at, _ := w.bounds(wall)
	for range before {
		at, _ = w.bounds(at - 1)
	}
	spans := make([]Span, before+after+1)
	for i := range spans {
		n, _ := w.number(at)
		_, end := w.bounds(at)
		spans[i] = Span{Number: n, Start: at, End: end}
		at = end
	}
	return spans
}

// Fixed returns the length, in microseconds, of a window made by Every. For all others
// ok is false: their lengths vary.
func (w Window) Fixed() (length int64, ok bool) { return w.every.Microseconds(), w.kind == everyWindow }
