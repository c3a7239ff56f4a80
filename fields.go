package stint

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/store"
)

// HeaderStyle is a way to tell clients about their limits.
type HeaderStyle uint8

const (
	// DraftHeaders sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, one item for each limit.
	// Nested limiters add theirs; of two limits with one name the one with less
	// left is shown. RateLimit-Policy has q units in w seconds,
	// RateLimit has r, the units left, and t, the seconds until there are more.
	// r of a limit with a burst may be above q, and w of a calendar window is
	// the longest that the window can be: 31 days for Monthly, 25 hours for
	// Daily where the clocks are set back by one.
	DraftHeaders HeaderStyle = iota
	// LegacyHeaders sends X-RateLimit-Limit, -Remaining and -Reset (seconds)
	// of the limit with the least left, also among nested limiters.
	LegacyHeaders
	// NoHeaders sends neither.
	NoHeaders
)

// WithHeaders says which fields tell clients about their limits. The default
// is DraftHeaders. Retry-After is part of every refusal, whatever the style.
func WithHeaders(styles ...HeaderStyle) Option {
	return limiterOption(func(c *config) {
		c.styles, c.stylesSet = 0, true
		none := false
		for _, s := range styles {
			switch s {
			case DraftHeaders:
				c.styles |= field.Draft
			case LegacyHeaders:
				c.styles |= field.Legacy
			case NoHeaders:
				none = true
			default:
				c.errs.bad("WithHeaders", fmt.Sprintf("unknown style %d", s), "write stint.DraftHeaders, LegacyHeaders or NoHeaders")
			}
		}
		switch {
		case len(styles) == 0:
			c.errs.bad("WithHeaders()", "", "write stint.DraftHeaders, LegacyHeaders or NoHeaders")
		case none && c.styles != 0:
			c.errs.bad("WithHeaders", "NoHeaders beside another style", "leave one of them out")
		}
	})
}

// said is the part of a limit's fields that no decision changes.
func said(l *store.Limit) field.Limit {
	spec := l.Spec()
	return field.Limit{Name: spec.Name, Units: spec.Units, Policy: field.Policy(spec.Name, spec.Units, span(spec))}
}

// span is the time that a limit's units belong to; 0 for a concurrency limit. For a
// calendar window it is the longest that there will be: a promise of less than there
// is, never of more.
func span(s store.Spec) time.Duration {
	if s.Window == (store.Window{}) {
		return s.Period
	}
	return s.Window.Length(time.Now())
}
