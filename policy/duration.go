package policy

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// units are those of time.ParseDuration, plus days and weeks, in which quotas are
// usually stated. Months are missing because their length varies.
var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// parseDuration reads "1m30s", "1.5h" or "2w". It is exact: a fraction that isn't a
// whole number of nanoseconds is an error rather than rounded.
func parseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, errors.New("no duration: write one, such as 30s, 5m or 1d")
	}
	var total int64
	for rest := s; rest != ""; {
		integer, after := digits(rest)
		var fraction string
		if cut, dot := strings.CutPrefix(after, "."); dot {
			fraction, after = digits(cut)
			if fraction == "" {
				return 0, fmt.Errorf("duration %.80q: write digits after the point, or leave it out", s)
			}
		}
		if integer == "" {
			return 0, fmt.Errorf("duration %.80q: write one such as 30s, 5m, 1h30m or 1d", s)
		}
		end := strings.IndexAny(after, "0123456789.")
		if end < 0 {
			end = len(after)
		}
		unit, found := units[after[:end]]
		if !found {
			return 0, fmt.Errorf("duration %.80q: write numbers with the units ns, us, ms, s, m, h, d or w, such as 1h30m", s)
		}
		part, err := nanoseconds(integer, fraction, int64(unit))
		if err != nil {
			return 0, fmt.Errorf("duration %.80q: %w", s, err)
		}
		if total > math.MaxInt64-part {
			return 0, fmt.Errorf("duration %.80q: %w", s, errTooLong)
		}
		total, rest = total+part, after[end:]
	}
	return time.Duration(total), nil
}

var errTooLong = errors.New("write less than 292 years")

func digits(s string) (head, tail string) {
	tail = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(tail)], tail
}

// nanoseconds returns integer.fraction units in nanoseconds.
func nanoseconds(integer, fraction string, unit int64) (total int64, err error) {
	for _, c := range integer {
		if total > (math.MaxInt64-9)/10 {
			return 0, errTooLong
		}
		total = total*10 + int64(c-'0')
	}
	if total > math.MaxInt64/unit-1 {
		return 0, errTooLong
	}
	total *= unit
	for _, c := range strings.TrimRight(fraction, "0") {
		if unit%10 != 0 {
			return 0, errors.New("write a whole number of nanoseconds")
		}
		unit /= 10
		total += int64(c-'0') * unit
	}
	return total, nil
}

// duration reads a positive duration.
func (d *decoder) duration(n *yaml.Node, what string) (time.Duration, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		d.bad(n, "%s must be a duration: write one such as 30s, 5m, 1h30m or 1d", what)
		return 0, false
	}
	v, err := parseDuration(n.Value)
	switch {
	case err != nil:
		d.bad(n, "%v", err)
		return 0, false
	case v == 0:
		d.bad(n, "%s of 0: write a positive duration, or leave it out", what)
		return 0, false
	}
	return v, true
}

// per reads the two sides of "100/1m".
func (d *decoder) per(n *yaml.Node, what, example string) (units int64, rest string, ok bool) {
	if n.Kind == yaml.ScalarNode {
		count, after, slash := strings.Cut(n.Value, "/")
		if v, err := parseInt(count); err == nil && slash && after != "" {
			return v, after, true
		}
	}
	d.bad(n, "%s must be a number, a slash and a time: write it like %s", what, example)
	return 0, "", false
}
