package store

import (
	"errors"
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

// Every is the window of length d, a multiple of a microsecond, aligned to the
// Unix epoch.
func Every(d time.Duration) Window { return Window{kind: everyWindow, every: d} }

// In is the window in the time zone loc.
func (w Window) In(loc *time.Location) Window {
	w.loc = loc
	return w
}

func (w Window) check() error {
	switch {
	case w.kind != everyWindow:
		return nil
	case w.every <= 0 || w.every%time.Microsecond != 0:
		return errors.New("Every(" + w.every.String() + "): write a positive multiple of a microsecond")
	case w.loc != nil:
		return errors.New("Every is aligned to the Unix epoch and knows no time zone: write Hourly, Daily, Weekly or Monthly.In(location)")
	}
	return nil
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
