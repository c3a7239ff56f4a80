package algorithm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func wall(t time.Time) int64 { return t.UnixMicro() - Epoch*1_000_000 }

func instant(us int64) string {
	return time.UnixMicro(us + Epoch*1_000_000).UTC().Format("2006-01-02 15:04:05")
}

func TestWindowBounds(t *testing.T) {
	// in, start and end are UTC.
	for _, tt := range []struct {
		w              Window
		zone           string
		in, start, end string
	}{
		{Hourly, "", "2026-03-01 12:34:56", "2026-03-01 12:00:00", "2026-03-01 13:00:00"},
		{Hourly, "", "1999-12-31 23:59:59", "1999-12-31 23:00:00", "2000-01-01 00:00:00"},
		{Hourly, "Asia/Kolkata", "2026-03-01 12:34:56", "2026-03-01 12:30:00", "2026-03-01 13:30:00"},
		{Hourly, "Asia/Kathmandu", "2026-03-01 12:10:00", "2026-03-01 11:15:00", "2026-03-01 12:15:00"},
		// An hour that is skipped or shown twice is nothing to an hourly window.
		{Hourly, "Europe/Berlin", "2026-03-29 01:30:00", "2026-03-29 01:00:00", "2026-03-29 02:00:00"},
		{Hourly, "Europe/Berlin", "2026-10-25 00:30:00", "2026-10-25 00:00:00", "2026-10-25 01:00:00"},
		{Hourly, "Europe/Berlin", "2026-10-25 01:30:00", "2026-10-25 01:00:00", "2026-10-25 02:00:00"},
		// Lord Howe, from +11 back to +10:30 at 15:00Z and on again at 15:30Z.
		{Hourly, "Australia/Lord_Howe", "2026-04-04 14:59:59", "2026-04-04 14:00:00", "2026-04-04 15:00:00"},
		{Hourly, "Australia/Lord_Howe", "2026-04-04 15:10:00", "2026-04-04 15:00:00", "2026-04-04 15:30:00"},
		{Hourly, "Australia/Lord_Howe", "2026-04-04 15:30:00", "2026-04-04 15:30:00", "2026-04-04 16:30:00"},
		{Hourly, "Australia/Lord_Howe", "2026-10-03 15:10:00", "2026-10-03 14:30:00", "2026-10-03 16:00:00"},
		{Hourly, "Australia/Lord_Howe", "2026-10-03 15:50:00", "2026-10-03 14:30:00", "2026-10-03 16:00:00"},
		{Hourly, "Australia/Lord_Howe", "2026-10-03 16:00:00", "2026-10-03 16:00:00", "2026-10-03 17:00:00"},

		{Daily, "", "2026-03-01 12:34:56", "2026-03-01 00:00:00", "2026-03-02 00:00:00"},
		{Daily, "", "2000-02-29 00:00:00", "2000-02-29 00:00:00", "2000-03-01 00:00:00"},
		{Daily, "Europe/Berlin", "2026-03-29 12:00:00", "2026-03-28 23:00:00", "2026-03-29 22:00:00"},
		{Daily, "Europe/Berlin", "2026-10-25 12:00:00", "2026-10-24 22:00:00", "2026-10-25 23:00:00"},
		{Daily, "America/New_York", "2026-03-08 12:00:00", "2026-03-08 05:00:00", "2026-03-09 04:00:00"},
		{Daily, "Australia/Lord_Howe", "2026-10-03 20:00:00", "2026-10-03 13:30:00", "2026-10-04 13:00:00"},
		// No midnight: the day begins at one.
		{Daily, "America/Sao_Paulo", "2018-11-04 02:59:59", "2018-11-03 03:00:00", "2018-11-04 03:00:00"},
		{Daily, "America/Sao_Paulo", "2018-11-04 03:00:00", "2018-11-04 03:00:00", "2018-11-05 02:00:00"},
		{Daily, "Asia/Beirut", "2022-03-27 12:00:00", "2022-03-26 22:00:00", "2022-03-27 21:00:00"},
		{Daily, "Africa/Cairo", "2023-04-28 12:00:00", "2023-04-27 22:00:00", "2023-04-28 21:00:00"},
		// Midnight becomes eleven: the old day goes on for another hour.
		{Daily, "America/Sao_Paulo", "2019-02-17 02:30:00", "2019-02-16 02:00:00", "2019-02-17 03:00:00"},
		{Daily, "Asia/Beirut", "2022-10-29 21:30:00", "2022-10-28 21:00:00", "2022-10-29 22:00:00"},
		{Daily, "Africa/Cairo", "2023-10-26 21:30:00", "2023-10-25 21:00:00", "2023-10-26 22:00:00"},
		// A minute past midnight becomes 23:01: the new day has begun already.
		{Daily, "America/St_Johns", "2010-11-07 02:30:30", "2010-11-07 02:30:00", "2010-11-08 03:30:00"},
		{Daily, "America/St_Johns", "2010-11-07 03:00:00", "2010-11-07 02:30:00", "2010-11-08 03:30:00"},
		{Daily, "America/St_Johns", "2010-11-07 04:00:00", "2010-11-07 02:30:00", "2010-11-08 03:30:00"},
		// Samoa had no 30 December 2011.
		{Daily, "Pacific/Apia", "2011-12-30 09:59:59", "2011-12-29 10:00:00", "2011-12-30 10:00:00"},
		{Daily, "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-30 10:00:00", "2011-12-31 10:00:00"},

		{Weekly, "", "2026-01-01 00:00:00", "2025-12-29 00:00:00", "2026-01-05 00:00:00"},
		{Weekly, "", "1969-12-28 23:00:00", "1969-12-22 00:00:00", "1969-12-29 00:00:00"},
		{Weekly, "Europe/Berlin", "2026-03-29 12:00:00", "2026-03-22 23:00:00", "2026-03-29 22:00:00"},
		{Monthly, "", "2024-02-10 00:00:00", "2024-02-01 00:00:00", "2024-03-01 00:00:00"},
		{Monthly, "", "2100-02-10 00:00:00", "2100-02-01 00:00:00", "2100-03-01 00:00:00"},
		{Monthly, "Europe/Berlin", "2026-10-25 12:00:00", "2026-09-30 22:00:00", "2026-10-31 23:00:00"},
		{Monthly, "America/Sao_Paulo", "2026-12-31 23:00:00", "2026-12-01 03:00:00", "2027-01-01 03:00:00"},

		{Every(7 * time.Minute), "", "1970-01-01 00:06:59", "1970-01-01 00:00:00", "1970-01-01 00:07:00"},
		{Every(7 * time.Minute), "", "1969-12-31 23:59:59", "1969-12-31 23:53:00", "1970-01-01 00:00:00"},
		{Every(7 * 24 * time.Hour), "", "2026-01-01 00:00:00", "2026-01-01 00:00:00", "2026-01-08 00:00:00"},
	} {
		w := tt.w
		if tt.zone != "" {
			w = w.In(location(t, tt.zone))
		}
		in, err := time.Parse(time.DateTime, tt.in)
		if err != nil {
			t.Fatal(err)
		}
		start, end := w.bounds(wall(in))
		if instant(start) != tt.start || instant(end) != tt.end {
			t.Errorf("%v at %s: [%s, %s), want [%s, %s)", w, tt.in, instant(start), instant(end), tt.start, tt.end)
		}
	}
}

// zones with something to get wrong, and a year or two in which they do it.
var zones = []struct {
	name     string
	from, to int
}{
	{"UTC", 1999, 2001},
	{"Europe/Berlin", 2025, 2027},
	{"Europe/Dublin", 2026, 2027},
	{"America/Sao_Paulo", 2017, 2019},
	{"America/St_Johns", 2009, 2011},
	{"America/Caracas", 2007, 2008},
	{"Asia/Beirut", 2021, 2023},
	{"Africa/Cairo", 2010, 2011},
	{"Africa/Cairo", 2023, 2024},
	{"Africa/Casablanca", 2018, 2020},
	{"Africa/Monrovia", 1971, 1973},
	{"Asia/Pyongyang", 2015, 2018},
	{"Asia/Kathmandu", 1985, 1987},
	{"Australia/Lord_Howe", 2025, 2027},
	{"Antarctica/Troll", 2025, 2026},
	{"Pacific/Apia", 2010, 2012},
	{"Pacific/Kwajalein", 1993, 1994},
	{"America/Juneau", 1867, 1868},
	{"Asia/Manila", 1844, 1846},
	{"Europe/Warsaw", 2039, 2041}, // golang/go#81583
	{"Pacific/Chatham", 2059, 2061},
}

// label is the number of the window the clocks show, told from the fields of a
// time.Time and not from its seconds.
func label(w Window, at time.Time) int64 {
	y, m, d := at.Date()
	day := floorDiv(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix(), 86400)
	switch w.kind {
	case dailyWindow:
		return day
	case weeklyWindow:
		return floorDiv(day-int64(at.Weekday()+6)%7+3, 7)
	default:
		return int64(y)*12 + int64(m) - 1
	}
}

func TestWindowsAgainstWalk(t *testing.T) {
	for _, z := range zones {
		loc := location(t, z.name)
		from := time.Date(z.from, 1, 1, 0, 0, 0, 0, time.UTC)
		to := time.Date(z.to+1, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, w := range []Window{Daily.In(loc), Weekly.In(loc), Monthly.In(loc)} {
			// starts[i] is an instant at which a higher number than ever is
			// shown, found by looking at the label every ten minutes, then
			// every minute and every second of those.
			var starts, numbers []int64
			high := label(w, from.Add(-48*time.Hour).In(loc))
			for at := from.Add(-48 * time.Hour); at.Before(to); at = at.Add(10 * time.Minute) {
				if label(w, at.In(loc)) <= high {
					continue
				}
				first := at.Add(-10 * time.Minute)
				for label(w, first.Add(time.Minute).In(loc)) <= high {
					first = first.Add(time.Minute)
				}
				for label(w, first.In(loc)) <= high {
					first = first.Add(time.Second)
				}
				high = label(w, first.In(loc))
				starts, numbers = append(starts, wall(first)), append(numbers, high)
				if at.Before(first) {
					t.Fatal("walked too far")
				}
			}
			for i := 1; i < len(starts)-1; i++ {
				s, e := starts[i], starts[i+1]
				for _, at := range []int64{s, s + 1, s + 60_000_000, (s + e) / 2, e - 60_000_001, e - 1} {
					if gs, ge := w.bounds(at); gs != s || ge != e {
						t.Fatalf("%v at %s: [%s, %s), want [%s, %s)", w, instant(at), instant(gs), instant(ge), instant(s), instant(e))
					}
					j := (i * 7) % len(starts)
					if got, want := w.between(at, starts[j]), numbers[j]-numbers[i]; got != want {
						t.Fatalf("%v: %d windows between %s and %s, want %d", w, got, instant(at), instant(starts[j]), want)
					}
				}
				for j := i; j < len(starts); j += 5 {
					if got := w.startAhead(s, numbers[j]-numbers[i]); got != starts[j] {
						t.Fatalf("%v: %d after %s is %s, want %s", w, numbers[j]-numbers[i], instant(s), instant(got), instant(starts[j]))
					}
				}
			}
		}
	}
}

// Windows of every kind follow each other without a gap, and the three methods agree.
func TestWindowsTile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	windows := []Window{Every(1 * time.Microsecond), Every(7 * time.Minute), Every(365 * 24 * time.Hour)}
	for _, z := range zones {
		loc := location(t, z.name)
		windows = append(windows, Hourly.In(loc), Daily.In(loc), Weekly.In(loc), Monthly.In(loc))
	}
	windows = append(windows, Daily, Hourly.In(time.FixedZone("odd", -12345)), Daily.In(time.FixedZone("far", 50*3600)))
	for i, w := range windows {
		loc := w.loc
		if loc == nil {
			loc = time.UTC
		}
		for range 200 {
			at := time.Date(1800+rnd.IntN(400), 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rnd.Int64N(int64(365 * 24 * time.Hour))))
			if k := i - 3; k >= 0 && k/4 < len(zones) && rnd.IntN(2) == 0 {
				at = time.Date(zones[k/4].from, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rnd.Int64N(int64(365 * 24 * time.Hour))))
			}
			if _, until := at.In(loc).ZoneBounds(); !until.IsZero() && rnd.IntN(2) == 0 {
				at = until.Add(time.Duration(rnd.Int64N(int64(6*time.Hour))) - 3*time.Hour)
			}
			from := wall(at)
			start, end := w.bounds(from)
			if start > from || from >= end {
				t.Fatalf("%v at %s: [%s, %s)", w, instant(from), instant(start), instant(end))
			}
			if s, _ := w.bounds(start); s != start {
				t.Fatalf("%v: the window of %s begins at %s", w, instant(start), instant(s))
			}
			if w.between(from, end-1) != 0 || w.between(start, from) != 0 {
				t.Fatalf("%v at %s: a boundary inside a window", w, instant(from))
			}
			n := int64(0)
			for s, e := start, end; n < 60; s, e = w.bounds(e) {
				if got := w.startAhead(start, n); got != s {
					t.Fatalf("%v: window %d after %s begins at %s, walked to %s", w, n, instant(start), instant(got), instant(s))
				}
				if got := w.between(from, s); got != n && n > 0 {
					t.Fatalf("%v: %d windows between %s and %s, walked %d", w, got, instant(from), instant(s), n)
				}
				if got := w.between(s, from); got != -n && n > 0 {
					t.Fatalf("%v: %d windows back from %s to %s, walked %d", w, got, instant(s), instant(from), n)
				}
				step := w.between(s, e)
				if step < 1 || step > 2 { // 2: a day that was left out
					t.Fatalf("%v: %d windows in [%s, %s)", w, step, instant(s), instant(e))
				}
				n += step
			}
		}
	}
}

// A length is that of the longest window there is: each is checked.
func TestWindowLength(t *testing.T) {
	const h = time.Hour
	from := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		w    Window
		zone string
		want time.Duration
	}{
		{Hourly, "", h},
		{Hourly, "Europe/Berlin", h},
		{Hourly, "Asia/Kathmandu", h},
		{Hourly, "Australia/Lord_Howe", h + h/2},
		{Daily, "", 24 * h},
		{Daily, "Asia/Tokyo", 24 * h},
		{Daily, "Europe/Berlin", 25 * h},
		{Daily, "America/New_York", 25 * h},
		{Daily, "America/Havana", 25 * h},
		{Daily, "Africa/Casablanca", 25 * h},
		{Daily, "Australia/Lord_Howe", 24*h + h/2},
		{Daily, "Antarctica/Troll", 26 * h},
		{Weekly, "", 168 * h},
		{Weekly, "Europe/Berlin", 169 * h},
		{Monthly, "", 31 * 24 * h},
		{Monthly, "Asia/Tokyo", 31 * 24 * h},
		{Monthly, "Europe/Berlin", 31*24*h + h},    // October
		{Monthly, "America/New_York", 31 * 24 * h}, // November has 30 days
		{Every(90 * time.Second), "", 90 * time.Second},
		{Window{}, "", 0},
	} {
		if tt.zone != "" {
			tt.w = tt.w.In(location(t, tt.zone))
		}
		if got := tt.w.Length(from); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.w, got, tt.want)
		}
		if tt.w.kind < hourlyWindow {
			continue
		}
		var longest int64
		for at := wall(from); at < wall(from.AddDate(10, 0, 0)); {
			start, end := tt.w.bounds(at)
			longest, at = max(longest, end-start), end
		}
		if micros(longest) != tt.want {
			t.Errorf("%v: the longest is %v, want %v", tt.w, micros(longest), tt.want)
		}
	}
	// Mexico's clocks were set back for the last time at 07:00Z on 30 October
	// 2022: that day counts to its end, and later none is as long.
	mexico := Daily.In(location(t, "America/Mexico_City"))
	midnight := time.Date(2022, 10, 31, 6, 0, 0, 0, time.UTC)
	if before, after := mexico.Length(midnight.Add(-1)), mexico.Length(midnight); before != 25*h || after != 24*h {
		t.Errorf("%v until %v, then %v", before, midnight, after)
	}
}

func TestWindowAheadSaturates(t *testing.T) {
	for _, w := range []Window{Hourly, Daily, Weekly, Monthly, Daily.In(location(t, "Europe/Berlin")), Every(time.Microsecond), Every(time.Hour), Every(250 * 365 * 24 * time.Hour)} {
		start, _ := w.bounds(0)
		a, b := w.startAhead(start, 1<<40), w.startAhead(start, 1<<62)
		if w.kind == everyWindow && w.every == time.Microsecond {
			if a != start+1<<40 {
				t.Errorf("%v: %d", w, a)
			}
		} else if a != b {
			t.Errorf("%v: %s and %s", w, instant(a), instant(b))
		}
		if years := float64(b-start) / (365 * 24 * 3600e6); years < 190 || years > 251 {
			t.Errorf("%v: %v years ahead", w, years)
		}
		if s, _ := w.bounds(b); s != b {
			t.Errorf("%v: %s is not where a window begins", w, instant(b))
		}
	}
}

func TestWindowsDoNotAllocate(t *testing.T) {
	w := Daily.In(location(t, "America/Sao_Paulo"))
	at := wall(time.Date(2019, 2, 17, 2, 30, 0, 0, time.UTC))
	if n := testing.AllocsPerRun(100, func() {
		s, e := w.bounds(at)
		w.startAhead(s, 40)
		w.between(s, e)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWindowLength(b *testing.B) {
	from := time.Date(2026, 6, 15, 1, 0, 0, 0, time.UTC)
	for _, w := range []Window{Daily, Daily.In(location(b, "Europe/Berlin")), Monthly.In(location(b, "America/New_York"))} {
		b.Run(w.String(), func(b *testing.B) {
			for b.Loop() {
				w.Length(from)
			}
		})
	}
}

func BenchmarkWindowBounds(b *testing.B) {
	for _, w := range []Window{Every(time.Hour), Daily, Monthly, Daily.In(location(b, "Europe/Berlin")), Monthly.In(location(b, "Europe/Berlin"))} {
		for _, at := range []time.Time{time.Date(2026, 6, 15, 1, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)} {
			b.Run(fmt.Sprintf("%v/%v", w, at.Month()), func(b *testing.B) {
				us := wall(at)
				for b.Loop() {
					w.bounds(us)
				}
			})
		}
	}
}

// What a limit keeps of its last window doesn't change what the calendar says, wherever it
// is asked next.
func TestKeptBoundsAreTheCalendars(t *testing.T) {
	for _, w := range []Window{Hourly, Daily, Monthly, Daily.In(location(t, "Pacific/Apia")), Hourly.In(location(t, "Australia/Lord_Howe")), Every(90 * time.Minute)} {
		l, problems := New(Spec{Name: "quota", Algorithm: FixedWindow, Units: 1, Window: w})
		if problems != nil {
			t.Fatal(*problems[0])
		}
		r := rand.New(rand.NewPCG(1, 2))
		at := wall(time.Date(2011, 12, 28, 0, 0, 0, 0, time.UTC))
		for range 2000 {
			at += r.Int64N(w.Nominal()) - w.Nominal()/3
			start, end := w.bounds(at)
			if got := l.startAt(at); got != start {
				t.Fatalf("%v, at %s: opened at %s, want %s", w, instant(at), instant(got), instant(start))
			}
			if got, want := l.boundary(start, 1), w.startAhead(start, 1); got != want {
				t.Fatalf("%v, at %s: ends at %s, want %s", w, instant(at), instant(got), instant(want))
			}
			for _, later := range []int64{at, end - 1, end, end + 1, end + w.Nominal()} {
				if got, want := l.boundariesIn(start, later), w.between(start, later); got != want {
					t.Fatalf("%v, from %s to %s: %d windows, want %d", w, instant(start), instant(later), got, want)
				}
			}
		}
	}
}
