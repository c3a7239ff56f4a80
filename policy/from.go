package policy

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// from says when a quota's windows begin.
type from struct {
	node *yaml.Node
	form string // a key of fromForms
	at   time.Time
}

const fromExample = "a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, " +
	"09:00 for daily, 00:30 for hourly"

// fromForms has the windows for which a form is enough.
var fromForms = map[string][]string{
	"date":    {"hourly", "daily", "weekly", "monthly", "yearly", "every"},
	"weekday": {"weekly"},
	"time":    {"hourly", "daily"},
}

// in returns an instant at which a window begins in a zone; nil is UTC.
func (f *from) in(zone *time.Location) time.Time {
	if f.form == "date" {
		return f.at
	}
	if zone == nil {
		zone = time.UTC
	}
	hour, minute, second := f.at.Clock()
	return time.Date(f.at.Year(), f.at.Month(), f.at.Day(), hour, minute, second, 0, zone)
}

// parseFrom returns when windows begin, or nil. What is written without a date is in the first week of 2024, which
// began on a Monday, and in which no zone changed its clocks.
func parseFrom(text string) *from {
	if strings.ContainsAny(text, ".,") {
		return nil // windows begin at whole seconds
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return &from{form: "date", at: at}
	}
	clock := func(text string) (at time.Time, ok bool) {
		at, err := time.Parse("2006-01-02 15:04:05", "2024-01-01 "+text)
		if err != nil {
			at, err = time.Parse("2006-01-02 15:04", "2024-01-01 "+text)
		}
		return at, err == nil
	}
	if at, ok := clock(text); ok {
		return &from{form: "time", at: at}
	}
	name, rest, timed := strings.Cut(text, " ")
	if !timed {
		rest = "00:00"
	}
	at, ok := clock(rest)
	for range 7 {
		if ok && strings.EqualFold(name, at.Weekday().String()) {
			return &from{form: "weekday", at: at}
		}
		at = at.AddDate(0, 0, 1)
	}
	return nil
}
