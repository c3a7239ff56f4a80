package store

import (
	"time"

	"github.com/stint-go/stint/internal/algorithm"
)

// Window is a period of the calendar: Hourly, Daily, Weekly, Monthly, Yearly, or a window made by
// Every. The zero Window means no window. Windows have the lengths of the calendar: a day has
// 23 or 25 hours when clocks change, and a month has 28 to 31 days. They begin at midnight and at the first of a month,
// unless From gives another beginning.
//
// A window begins when local time first reaches the window's start, or passes it because of a
// clock change:
//
//   - If clocks skip midnight, the day begins right after the skipped time.
//   - If clocks pass midnight twice, the day begins only once.
//   - A day that a time zone skips (Samoa, 30 December 2011) is a window of length 0.
//   - An hour is an hour of elapsed time. Where clocks change by part of an hour (Lord Howe
//     Island), one hourly window is longer and one is shorter.
type Window algorithm.Window

// The calendar windows. They are in UTC unless In gives a location. A week starts on
// Monday.
var (
	Hourly  = Window(algorithm.Hourly)
	Daily   = Window(algorithm.Daily)
	Weekly  = Window(algorithm.Weekly)
	Monthly = Window(algorithm.Monthly)
	Yearly  = Window(algorithm.Yearly)
)

// Every returns a window of length d, aligned to the Unix epoch or to From. d is a multiple of a
// microsecond, at most two years; NewLimit returns an error for any other d.
func Every(d time.Duration) Window { return Window(algorithm.Every(d)) }

// In returns the window in the time zone loc. NewLimit returns an error if loc is nil, as after
// a failed time.LoadLocation. It also returns an error if the window was made by Every, which
// has no time zone.
func (w Window) In(loc *time.Location) Window { return Window(algorithm.Window(w).In(loc)) }

// From returns the window with another beginning: each window begins when the clock of its zone (In; else UTC)
// shows what it showed at t. Windows also reach back before t. In and From may be given in any order.
//
//   - Hourly begins at the minute and second of t.
//   - Daily begins at the time of day.
//   - Weekly begins at the weekday and time.
//   - Monthly begins at the day and time. In a shorter month, it begins on the month's last day.
//   - Yearly begins at the date and time. If t is on 29 February, the window begins on 28 February in years without
//     that day.
//   - Every(d) begins at t and each d before and after, and has no zone.
//
// Fractions of a second are dropped. NewLimit returns an error if t is the zero Time. Equal windows have
// equal names: Daily from 09:00 on one date is the same window as from 09:00 on another, if the zone's clock shows
// 09:00 on both. A limit with another window counts anew, so a key whose window is changed gets a fresh quota.
func (w Window) From(t time.Time) Window { return Window(algorithm.Window(w).From(t)) }

// String returns the name of the window: "daily", "every 1h0m0s", "daily in Europe/Berlin",
// "monthly from day 31 09:00 in Europe/Berlin".
func (w Window) String() string { return algorithm.Window(w).String() }

// Length returns the length of the longest window that overlaps the ten years after from: 31
// days for months, 366 for years, and 25 hours for days where clocks are set back by an hour. For the zero
// Window, Length returns 0.
func (w Window) Length(from time.Time) time.Duration { return algorithm.Window(w).Length(from) }
