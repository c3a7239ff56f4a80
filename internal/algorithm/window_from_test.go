package algorithm

import (
	"testing"
	"time"
)

// fromZones are zones whose clocks change in every way, and fromAnchors instants that few calendars agree on.
var (
	fromZones = []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca",
		"Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut",
	}
	fromAnchors = []string{
		"2024-02-29 23:59:59", "2026-01-31 00:00:00", "2025-03-30 01:30:00", "2026-10-25 02:30:00",
		"2019-12-30 12:34:56", "2026-11-29 09:00:00",
	}
)

// shows reports whether clocks show at at what a window from t begins with.
func showsStart(w Window, at, t time.Time) bool {
	y, m, d := at.Date()
	last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
	sameTime := at.Format("15:04:05") == t.Format("15:04:05")
	switch w.kind {
	case hourlyWindow:
		return at.Format("04:05") == t.Format("04:05")
	case dailyWindow:
		return sameTime
	case weeklyWindow:
		return sameTime && at.Weekday() == t.Weekday()
	case monthlyWindow:
		return sameTime && d == min(t.Day(), last)
	default:
		return sameTime && m == t.Month() && d == min(t.Day(), last)
	}
}

// Windows from a date follow each other without gap or overlap, and begin when clocks show what they showed
// then: or at once when clocks skip that.
func TestWindowsFrom(t *testing.T) {
	for _, zone := range fromZones {
		loc := location(t, zone)
		for _, kind := range []Window{Hourly, Daily, Weekly, Monthly, Yearly} {
			for _, anchor := range fromAnchors {
				from, err := time.ParseInLocation(time.DateTime, anchor, loc)
				if err != nil {
					t.Fatal(err)
				}
				w := kind.In(loc).From(from.Add(999 * time.Millisecond))
				if other := kind.From(from).In(loc); other.String() != w.String() || other.id() != w.id() || other.code() != w.code() {
					t.Errorf("%v by In and From, %v by From and In", w, other)
				}
				if s, _ := w.bounds(wall(from)); s != wall(from) && kind.kind != hourlyWindow {
					// It shows the same a second time: the window began at the first.
					if first := time.UnixMicro(s + Epoch*1_000_000).In(loc); !showsStart(w, first, from) || from.Sub(first) > 2*time.Hour {
						t.Errorf("%v: no window begins at %v but at %v", w, from, first)
					}
				}
				first := time.Date(2010, 12, 1, 0, 0, 0, 0, time.UTC)
				if zone != "Pacific/Apia" {
					first = time.Date(2023, 12, 1, 0, 0, 0, 0, time.UTC)
				}
				start, _ := w.bounds(wall(first))
				exact, all := 0, 0
				for start < wall(first.AddDate(3, 0, 0)) {
					s, end := w.bounds(start)
					if s != start || end <= start {
						t.Fatalf("%v: [%s, %s) at %s", w, instant(s), instant(end), instant(start))
					}
					for _, at := range []int64{start + 1, (start + end) / 2, end - 1} {
						if s, e := w.bounds(at); s != start || e != end {
							t.Fatalf("%v at %s: [%s, %s), want [%s, %s)", w, instant(at), instant(s), instant(e), instant(start), instant(end))
						}
					}
					at := time.UnixMicro(start + Epoch*1_000_000).In(loc)
					switch all++; {
					case showsStart(w, at, from):
						exact++
					case kind.kind == hourlyWindow && zone == "Australia/Lord_Howe": // an hour of 30 or 90 minutes
					default:
						if changed, _ := at.ZoneBounds(); !changed.Equal(at) {
							t.Fatalf("%v begins at %v, when clocks don't change", w, at)
						}
					}
					start = end
				}
				years := map[windowKind]int{hourlyWindow: 3 * 8766, dailyWindow: 1096, weeklyWindow: 157, monthlyWindow: 37, yearlyWindow: 4}
				if want := years[kind.kind]; all < want-25 || all > want+25 || kind.kind > weeklyWindow && (all < want-1 || all > want+1) {
					t.Errorf("%v: %d windows in three years, want about %d", w, all, want)
				}
				if exact < all-15 && !(kind.kind == hourlyWindow && zone == "Australia/Lord_Howe") {
					t.Errorf("%v: only %d of %d windows begin when clocks show it", w, exact, all)
				}
			}
		}
	}
}

func TestWindowsFromBounds(t *testing.T) {
	for _, tt := range []struct {
		w                    Window
		from, in, start, end string
	}{
		{Hourly, "2026-01-01 10:30:15", "2026-03-01 12:30:14", "2026-03-01 11:30:15", "2026-03-01 12:30:15"},
		{Daily, "2026-05-01 09:00:00", "2020-03-01 08:59:59", "2020-02-29 09:00:00", "2020-03-01 09:00:00"},
		{Weekly, "2026-12-01 09:00:00", "2026-11-29 12:00:00", "2026-11-24 09:00:00", "2026-12-01 09:00:00"},
		{Monthly, "2026-01-31 09:00:00", "2026-03-01 00:00:00", "2026-02-28 09:00:00", "2026-03-31 09:00:00"},
		{Monthly, "2026-01-31 09:00:00", "2024-02-29 08:59:59", "2024-01-31 09:00:00", "2024-02-29 09:00:00"},
		{Yearly, "2024-02-29 06:00:00", "2026-06-01 00:00:00", "2026-02-28 06:00:00", "2027-02-28 06:00:00"},
		{Yearly, "2024-02-29 06:00:00", "2028-02-28 07:00:00", "2027-02-28 06:00:00", "2028-02-29 06:00:00"},
		{Yearly, "2026-03-01 00:00:00", "2024-02-29 12:00:00", "2023-03-01 00:00:00", "2024-03-01 00:00:00"},
		{Yearly, "2026-01-01 00:00:00", "2024-12-31 12:00:00", "2024-01-01 00:00:00", "2025-01-01 00:00:00"},
		{Every(7 * time.Hour), "2026-01-01 03:00:00", "2026-01-01 02:00:00", "2025-12-31 20:00:00", "2026-01-01 03:00:00"},
		{Every(90 * time.Minute), "1999-01-01 03:00:01", "2026-01-01 02:00:00", "2026-01-01 01:30:01", "2026-01-01 03:00:01"},
	} {
		at := func(s string) time.Time {
			at, err := time.Parse(time.DateTime, s)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		w := tt.w.From(at(tt.from))
		if start, end := w.bounds(wall(at(tt.in))); instant(start) != tt.start || instant(end) != tt.end {
			t.Errorf("%v at %s: [%s, %s), want [%s, %s)", w, tt.in, instant(start), instant(end), tt.start, tt.end)
		}
	}
}

// Equal windows have one name, and others another.
func TestWindowNames(t *testing.T) {
	at := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	berlin := location(t, "Europe/Berlin")
	names := map[string]string{} // by id
	codes := map[int64]string{}
	for want, equal := range map[string][]Window{
		"daily":                     {Daily, Daily.From(at("2026-05-05T00:00:00Z")), Daily.From(at("1969-05-05T02:00:00+02:00"))},
		"daily from 09:00":          {Daily.From(at("2026-05-05T09:00:00Z")), Daily.From(at("1926-01-01T09:00:00Z"))},
		"hourly from 00:30:15":      {Hourly.From(at("2026-05-05T09:30:15Z"))},
		"weekly":                    {Weekly, Weekly.From(at("2026-11-30T00:00:00Z"))},
		"weekly from Sunday 00:00":  {Weekly.From(at("2026-11-29T00:00:00Z"))},
		"monthly":                   {Monthly, Monthly.From(at("2026-04-01T00:00:00Z"))},
		"monthly from day 30 00:00": {Monthly.From(at("2026-04-30T00:00:00Z"))},
		"monthly from day 31 00:00": {Monthly.From(at("2026-05-31T00:00:00Z"))},
		"monthly from day 31 01:00 in Europe/Berlin": {
			Monthly.From(at("2026-01-31T00:00:00Z")).In(berlin), Monthly.In(berlin).From(at("2026-05-30T23:00:00Z")),
		},
		"daily in Europe/Berlin":                 {Daily.In(berlin), Daily.In(berlin).From(at("2026-07-01T22:00:00Z"))},
		"yearly":                                 {Yearly, Yearly.From(at("2027-01-01T00:00:00Z"))},
		"yearly from 28 February 00:00":          {Yearly.From(at("2026-02-28T00:00:00Z"))},
		"yearly from 29 February 00:00":          {Yearly.From(at("2024-02-29T00:00:00Z"))},
		"yearly from 1 March 00:00":              {Yearly.From(at("2024-03-01T00:00:00Z")), Yearly.From(at("2025-03-01T00:00:00Z"))},
		"every 1h0m0s":                           {Every(time.Hour), Every(time.Hour).From(time.Unix(0, 0)), Every(time.Hour).From(at("2026-03-01T00:00:00Z"))},
		"every 1h0m0s from 1970-01-01T00:00:01Z": {Every(time.Hour).From(time.Unix(1, 0)), Every(time.Hour).From(time.Unix(-3599, 5))},
		"every 2h0m0s from 1970-01-01T00:00:01Z": {Every(2 * time.Hour).From(time.Unix(1, 0))},
	} {
		for _, w := range equal {
			if w.String() != want {
				t.Errorf("%q, want %q", w, want)
			}
			if other, taken := names[w.id()]; taken && other != want {
				t.Errorf("%q and %q have the id %q", other, want, w.id())
			}
			if other, taken := codes[w.code()]; taken && other != want {
				t.Errorf("%q and %q have the code %d", other, want, w.code())
			}
			names[w.id()], codes[w.code()] = want, want
			if w.canonical() != equal[0].canonical() {
				t.Errorf("%q: a limit's window isn't the same value", w)
			}
			if !validIntervalUnit(w.code()) {
				t.Errorf("%q: no state has its code %d", w, w.code())
			}
			if length := w.Length(at("2026-01-01T00:00:00Z")); intervalLength(w.code()) < length.Microseconds() {
				t.Errorf("%q: its intervals are at most %d long, its length is %v", w, intervalLength(w.code()), length)
			}
		}
	}
}

func TestWrongFrom(t *testing.T) {
	for _, w := range []Window{Daily.From(time.Time{}), Daily.From(time.Time{}).In(time.UTC), Every(time.Hour).From(time.Time{}), Window{}.From(time.Unix(5, 0)), Window{}.In(time.UTC)} {
		if _, problems := New(Spec{Name: "quota", Algorithm: FixedWindow, Units: 1, Window: w}); problems == nil {
			t.Errorf("%v is valid", w)
		}
	}
	for _, w := range []Window{Monthly, Yearly, Every(2 * time.Microsecond), Hourly.In(location(t, "Europe/Berlin"))} {
		for _, sec := range []int64{-1 << 63, -1<<63 + 1, -1 << 40, -1, 1 << 40, 1<<63 - 1} {
			far := w.From(time.Unix(sec, 0))
			if start, end := far.bounds(0); start > 0 || end <= 0 {
				t.Errorf("%v from %d: [%d, %d)", w, sec, start, end)
			}
		}
	}
}
