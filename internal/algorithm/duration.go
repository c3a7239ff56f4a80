package algorithm

import (
	"fmt"
	"time"
)

// MissingUnit returns the correction of a duration that was written as a number without a unit, as 60 for
// 60*time.Second, as a format with the names that it needs, or "" for other durations. least and most bound the valid
// durations.
func MissingUnit(d, least, most time.Duration) (format string, names []any) {
	if d <= 0 || d >= time.Millisecond || d%time.Microsecond == 0 {
		return "", nil
	}
	format = "use %v"
	for _, unit := range [...]struct {
		of   time.Duration
		name string
	}{{time.Second, "time.Second"}, {time.Millisecond, "time.Millisecond"}} {
		if with := d * unit.of; least <= with && with <= most {
			if names != nil {
				format += " or %v"
			}
			names = append(names, fmt.Sprintf("%d*%s", int64(d), unit.name))
		}
	}
	return format + ", since a number without a unit is in nanoseconds", names
}

// badUnit reports a period that lacks its unit, and whether it does.
func badUnit(bad wrong, field, what string, d time.Duration) bool {
	format, names := MissingUnit(d, time.Millisecond, longestPeriod)
	if format != "" {
		bad(field, what+d.String(), format, names...)
	}
	return format != ""
}

// longestPeriod bounds the periods, windows and warm-ups of limits: two years.
const longestPeriod = horizon / 10 * time.Microsecond
