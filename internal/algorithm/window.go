package algorithm

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"strconv"
	"strings"
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
	yearlyWindow
	everyFrom // only in a code: a window of Every that doesn't begin at the Unix epoch
)

// Window is store.Window.
type Window struct {
	kind  windowKind
	every time.Duration
	loc   *time.Location // nil: UTC

	// from is the argument of From in Unix seconds, or one of the two below. The location decides what
	// the clock shows then, so From and In work out shift anew.
	from  int64
	shift int64 // by how much windows begin later than without From: see shiftAt
}

// Values of Window.from that aren't instants.
const (
	notFrom  = 0                 // there is no From
	fromZero = math.MinInt64     // From got the zero Time
	fromUnix = math.MinInt64 + 1 // From got the Unix epoch
)

// nowhere is the location of a window in a nil one.
var nowhere = time.FixedZone("a nil *time.Location", 0)

// The calendar windows. They are in UTC unless In gives a location. A week starts on
// Monday.
var (
	Hourly  = Window{kind: hourlyWindow}
	Daily   = Window{kind: dailyWindow}
	Weekly  = Window{kind: weeklyWindow}
	Monthly = Window{kind: monthlyWindow}
	Yearly  = Window{kind: yearlyWindow}
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
	return w.anchored()
}

// From makes windows begin when the clock of the window's zone shows what it showed at t.
// store.Window.From has the rules.
func (w Window) From(t time.Time) Window {
	switch w.from = t.Unix(); {
	case t.IsZero():
		w.from = fromZero
	case w.from == 0:
		w.from = fromUnix
	}
	return w.anchored()
}

// anchored returns the window with the shift that its From has in its location.
func (w Window) anchored() Window {
	switch w.from {
	case notFrom, fromZero:
	case fromUnix:
		w.shift = w.shiftAt(0)
	default:
		w.shift = w.shiftAt(w.from)
	}
	return w
}

// shiftAt returns the shift of a window that begins at the instant t, in Unix seconds: what the clock shows
// beyond the start of an hour, day or week, in seconds; for a month, as if it had 31 days; for a year, as if it
// were a leap year; for a window made by Every, microseconds.
func (w Window) shiftAt(t int64) int64 {
	at := time.Unix(t, 0).UTC()
	if w.loc != nil {
		at = at.In(w.loc)
	}
	_, month, day := at.Date()
	hour, minute, second := at.Clock()
	clock := int64(hour*3600 + minute*60 + second)
	switch w.kind {
	case everyWindow:
		if d := w.every.Microseconds(); d > 0 {
			return floorMod(t*1_000_000, d)
		}
		return 0
	case hourlyWindow:
		return clock % 3600
	case dailyWindow:
		return clock
	case weeklyWindow:
		return int64(at.Weekday()+6)%7*86400 + clock
	case monthlyWindow:
		return int64(day-1)*86400 + clock
	case yearlyWindow:
		return int64(time.Date(leapYear, month, day, 0, 0, 0, 0, time.UTC).YearDay()-1)*86400 + clock
	default:
		return 0
	}
}

// leapYear is a year that has every date.
const leapYear = 2000

// canonical returns the one window among those that are equal: dates with the same shift are one From.
func (w Window) canonical() Window {
	w.from = notFrom
	return w
}

// check reports what is wrong with the window.
func (w Window) check(bad wrong) {
	switch {
	case w.kind == noWindow:
		bad("Window", "the zero Window", "use a window such as %v or %v", "Daily", "Every")
	case w.from == fromZero:
		bad("Window", "its windows begin at the zero time", "pass the time at which a window begins, or leave %v out", "From")
	case w.loc == nowhere:
		bad("Window", "the time zone is nil",
			`check the error of time.LoadLocation; where the system has no zones, import _ "time/tzdata"`)
	case w.kind != everyWindow:
	case badUnit(bad, "Window", "a window of ", w.every):
	case w.every < time.Millisecond:
		bad("Window", "a window of "+w.every.String(), "use 1ms or more")
	case w.every%time.Microsecond != 0:
		bad("Window", "a window of "+w.every.String(), "use a whole number of microseconds")
	case w.every > longestPeriod:
		bad("Window", "a window of "+w.every.String(), "use at most two years")
	case w.loc != nil:
		bad("Window", "a window made by %v has no time zone", "leave %v out, or use a calendar window such as %v",
			"Every", "In", "Daily")
	}
}

// String is store.Window.String.
func (w Window) String() string {
	names := [...]string{"none", "every " + w.every.String(), "hourly", "daily", "weekly", "monthly", "yearly"}
	s := names[w.kind]
	if w.shift != 0 {
		s += " from " + w.anchor()
	}
	if w.loc != nil {
		s += " in " + w.loc.String()
	}
	return s
}

// anchor returns where windows with a shift begin: "00:30" past each hour, "09:00" of each day, "Tuesday 09:00",
// "day 31 09:00", "29 February 09:00", or an instant at which a window made by Every begins.
func (w Window) anchor() string {
	if w.kind == everyWindow {
		return time.UnixMicro(w.shift).UTC().Format(time.RFC3339Nano)
	}
	at := time.Date(leapYear, 1, 1, 0, 0, int(w.shift), 0, time.UTC)
	clock := at.Format("15:04:05")
	clock = strings.TrimSuffix(clock, ":00")
	switch w.kind {
	case weeklyWindow:
		return time.Weekday((w.shift/86400+1)%7).String() + " " + clock
	case monthlyWindow:
		return fmt.Sprintf("day %d %s", at.Day(), clock)
	case yearlyWindow:
		return at.Format("2 January ") + clock
	default:
		return clock
	}
}

// bounds returns the window that wall lies in: start <= wall < end. All
// instants are in microseconds since Epoch.
func (w Window) bounds(wall int64) (start, end int64) {
	if w.kind == everyWindow {
		d := w.every.Microseconds()
		start = wall - floorMod(wall+Epoch*1_000_000-w.shift, d)
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

// code returns a negative number that distinguishes windows of different length, location or From.
// The low three bits of its absolute value are the kind; the rest is the length of a window made by
// Every, or a hash of the zone and From. If a window made by Every has a From, the rest is a hash, and in its
// low six bits the logarithm of a length that is at least the window's.
func (w Window) code() int64 {
	kind, more := w.kind, w.every.Microseconds()
	if differs := w.loc != nil && w.loc != time.UTC; differs || w.shift != 0 {
		text := fnv.New32a()
		if differs {
			_, offset := time.Unix(Epoch, 0).In(w.loc).Zone()
			fmt.Fprint(text, w.loc, offset) // two fixed zones may share a name
		}
		if w.shift != 0 {
			fmt.Fprint(text, " from ", w.every, w.shift)
		}
		more = int64(text.Sum32())
		if kind == everyWindow {
			kind, more = everyFrom, more<<6+int64(bits.Len64(uint64(w.every.Microseconds())))
		}
	}
	return -8*more - int64(kind)
}

// decodeWindow returns the kind of the window with a code, and what the code has behind that: of a window made by
// Every its length, in microseconds; with a From at least its length, and less than 2^63.
func decodeWindow(code int64) (kind windowKind, more int64) {
	kind, more = windowKind(-code&7), -code/8
	if kind == everyFrom {
		more = 1 << min(more&63, 62)
	}
	return kind, more
}

// id returns a text that distinguishes windows of different length, location or From.
func (w Window) id() string {
	names := [...]string{"none", "every:" + w.every.String(), "hourly", "daily", "weekly", "monthly", "yearly"}
	id := names[w.kind]
	if w.loc != nil && w.loc != time.UTC {
		_, offset := time.Unix(Epoch, 0).In(w.loc).Zone() // two fixed zones may share a name
		id = fmt.Sprintf("%s:%v%+d", id, w.loc, offset)
	}
	if w.shift != 0 {
		id += ":from" + strconv.FormatInt(w.shift, 10)
	}
	return id
}

// Length returns the length of the longest window that overlaps the ten years after from: 31
// days for months, 366 for years, and 25 hours for days where clocks are set back by an hour. For the
// zero Window, Length returns 0.
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
	case yearlyWindow:
		return 366 * 24 * hour
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
		return floorDiv(wall+Epoch*1_000_000-w.shift, w.every.Microseconds()), zone{}
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
		return floorDiv(c-w.shift, 3600)
	case dailyWindow:
		return floorDiv(c-w.shift, 86400)
	case weeklyWindow:
		return floorDiv(c-w.shift+3*86400, 7*86400) // 1970 began on a Thursday
	case yearlyWindow:
		n := int64(time.Unix(c, 0).UTC().Year())
		return w.latest(n, c)
	default:
		y, m, _ := time.Unix(c, 0).UTC().Date()
		return w.latest(int64(y)*12+int64(m)-1, c)
	}
}

// latest returns the number of the window in which clocks show c, in the month or year n: n, or the one before if n
// begins later.
func (w Window) latest(n, c int64) int64 {
	if w.shift != 0 && c < w.clockAtStart(n) {
		return n - 1
	}
	return n
}

// clockAtStart returns what the clocks show at the start of window n, in seconds since 1970: the
// inverse of numberByClock.
func (w Window) clockAtStart(n int64) int64 {
	switch w.kind {
	case hourlyWindow:
		return n*3600 + w.shift
	case dailyWindow:
		return n*86400 + w.shift
	case weeklyWindow:
		return (n*7-3)*86400 + w.shift
	case yearlyWindow:
		at := time.Date(leapYear, 1, 1, 0, 0, int(w.shift), 0, time.UTC)
		return startOfDay(n, at.Month(), at.Day()) + w.shift%86400
	default:
		y, m := floorDiv(n, 12), floorMod(n, 12)
		return startOfDay(y, time.Month(m+1), int(w.shift/86400)+1) + w.shift%86400
	}
}

// startOfDay returns what clocks show at the start of a day, or of the month's last if the month is shorter.
func startOfDay(year int64, month time.Month, day int) int64 {
	if day > 28 {
		day = min(day, time.Date(int(year), month+1, 0, 0, 0, 0, 0, time.UTC).Day())
	}
	return time.Date(int(year), month, day, 0, 0, 0, 0, time.UTC).Unix()
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

// Fixed returns the length of a window made by Every, and how long after the Unix epoch one begins, in
// microseconds. For all others ok is false: their lengths vary.
func (w Window) Fixed() (length, from int64, ok bool) {
	return w.every.Microseconds(), w.shift, w.kind == everyWindow
}
