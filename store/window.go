package store

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

// Window is a span of the calendar: Hourly, Daily, Weekly, Monthly, or one
// made by Every. Its bounds are worked out at the moment of a decision, never
// cached: a day has 23 or 25 hours when the clocks change, and months have
// their real lengths. The zero Window is none.
//
// A window begins at the first instant at which the clocks of its location
// show it, or something later. So a midnight that the clocks skip leaves the
// day to begin an instant after it, a midnight they repeat begins one day only,
// and a day that a zone leaves out (Samoa's 30 December 2011) is a window of no
// length. An hour is an hour of time whatever the clocks are set to; where they
// change by a part of one (Lord Howe), a longer and a shorter window take turns.
type Window struct {
	kind  windowKind
	every time.Duration
	loc   *time.Location // nil: UTC
}

// The calendar windows, in UTC unless given a location with In. A week starts
// on Monday.
var (
	Hourly  = Window{kind: hourlyWindow}
	Daily   = Window{kind: dailyWindow}
	Weekly  = Window{kind: weeklyWindow}
	Monthly = Window{kind: monthlyWindow}
)

// Every is the window of length d, a multiple of a microsecond and two years at
// the most, aligned to the Unix epoch.
func Every(d time.Duration) Window { return Window{kind: everyWindow, every: d} }

// In is the window in the time zone loc.
func (w Window) In(loc *time.Location) Window {
	w.loc = loc
	return w
}

// check says what is wrong with the window and what to write, if anything is.
func (w Window) check() (problem, write string) {
	switch {
	case w.kind != everyWindow:
		return "", ""
	case w.every <= 0 || w.every%time.Microsecond != 0:
		return "a window of " + w.every.String(), "write a positive multiple of a microsecond"
	case float64(w.every.Microseconds()) > horizon/10:
		return "a window of " + w.every.String(), "write two years at the most"
	case w.loc != nil:
		return "a window of " + w.every.String() + " is aligned to the Unix epoch and knows no time zone", "write Hourly, Daily, Weekly or Monthly"
	}
	return "", ""
}

// String names the window: "daily", "every 1h0m0s", "daily in Europe/Berlin".
func (w Window) String() string {
	names := [...]string{"none", "every " + w.every.String(), "hourly", "daily", "weekly", "monthly"}
	s := names[w.kind]
	if w.loc != nil {
		s += " in " + w.loc.String()
	}
	return s
}

// far is as long as a limit looks ahead, in microseconds: 200 years, which a
// time.Duration can still say.
const far = 200 * 365 * 24 * 3600 * 1_000_000

// bounds returns the window that wall lies in: start <= wall < end. All
// instants are in microseconds since Epoch.
func (w Window) bounds(wall int64) (start, end int64) {
	if w.kind == everyWindow {
		d := w.every.Microseconds()
		start = wall - floorMod(wall+Epoch*1_000_000, d)
		return start, start + d
	}
	n, z := w.number(wall)
	return w.opens(n, z), w.opens(n+1, z)
}

// ahead returns where the n-th window after the one that begins at start
// begins, or where the last one within 200 years does.
func (w Window) ahead(start, n int64) int64 {
	if w.kind == everyWindow {
		d := w.every.Microseconds()
		return start + min(n, max(1, far/d))*d
	}
	k, z := w.number(start)
	return w.opens(k+min(n, far/w.nominal()), z)
}

// between returns how many windows begin after from and not after to.
func (w Window) between(from, to int64) int64 {
	a, _ := w.number(from)
	b, _ := w.number(to)
	return b - a
}

// code tells windows of different length or place apart: a number below 0. Below 8 it
// is the kind; above, the length of those made by Every, and the zone of others.
func (w Window) code() int64 {
	more := w.every.Microseconds()
	if w.loc != nil && w.loc != time.UTC {
		_, offset := time.Unix(Epoch, 0).In(w.loc).Zone()
		zone := fnv.New32a()
		fmt.Fprint(zone, w.loc, offset) // two fixed zones may have one name
		more = int64(zone.Sum32())
	}
	return -8*more - int64(w.kind)
}

// everyOf is the length of the windows made by Every that have this code, 0 if it is
// that of others.
func everyOf(code int64) int64 {
	if windowKind(-code&7) != everyWindow {
		return 0
	}
	return -code / 8
}

// Length is the length of the longest window from the one that from lies in until
// ten years later: a month has 31 days, and a day 25 hours where the clocks are set
// back by one. The zero Window has none.
func (w Window) Length(from time.Time) time.Duration {
	switch w.kind {
	case noWindow:
		return 0
	case everyWindow:
		return w.every
	}
	longest := w.nominal()
	start, _ := w.bounds(from.UnixMicro() - Epoch*1_000_000)
	t := start/1_000_000 + Epoch
	for z, until := w.zone(t), t+tenYears; z.until < until; {
		next := w.zone(z.until)
		back := z.offset - next.offset
		if w.kind == hourlyWindow {
			back = floorMod(back, 3600) // whole hours are left out of offsets
		}
		// The window that the clocks are set back in is the one before.
		if w.nominal()+back*1_000_000 > longest {
			start, end := w.bounds((z.until - 1 - Epoch) * 1_000_000)
			longest = max(longest, end-start)
		}
		z = next
	}
	return micros(longest)
}

const tenYears = 10 * 366 * 24 * 3600

// nominal is the length of the longest window of w's kind where the clocks are
// never changed, in microseconds.
func (w Window) nominal() int64 {
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

// zone is a time during which the clocks of a location are not changed, in
// seconds since 1970, and how far they are ahead of UTC.
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

// reach is more than any zone has ever set its clocks by at once, in seconds:
// countries have changed sides of the date line.
const reach = 25 * 3600

// number returns the number of the window that wall lies in, and the zone. It
// is the highest number that the clocks have shown until then: clocks set back
// do not take a window back.
func (w Window) number(wall int64) (int64, zone) {
	if w.kind == everyWindow {
		return floorDiv(wall+Epoch*1_000_000, w.every.Microseconds()), zone{}
	}
	t := floorDiv(wall, 1_000_000) + Epoch
	z := w.zone(t)
	n := w.shown(t + z.offset)
	for p := z; p.from > t-reach; {
		last := p.from - 1
		p = w.zone(last)
		n = max(n, w.shown(last+p.offset))
	}
	return n, z
}

// opens returns the first instant at which the clocks show window n or a later
// one. near is a zone not far from it, to save looking it up.
func (w Window) opens(n int64, near zone) int64 {
	shows := w.face(n)
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

// shown is the number of the window that clocks showing c, read as seconds
// since 1970, are in.
func (w Window) shown(c int64) int64 {
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

// face is what the clocks show where window n begins: the inverse of shown.
func (w Window) face(n int64) int64 {
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
