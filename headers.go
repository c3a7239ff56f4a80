package stint

import (
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/store"
)

// HeaderStyle is a set of header fields that tell clients about their limits.
type HeaderStyle uint8

const (
	// RateLimitHeaders sends RateLimit-Policy and RateLimit as in
	// draft-ietf-httpapi-ratelimit-headers-11, one item for each limit.
	// RateLimit-Policy has q units in w seconds. RateLimit has r, the units left, and
	// t, the seconds until there are more. Nested limiters add their items; if two
	// limits have the same name, the one with less left is shown.
	//
	// r may exceed q if the limit has a burst. w of a calendar window is the longest
	// that the window can be: 31 days for Monthly, 25 hours for Daily where clocks are
	// set back by an hour.
	RateLimitHeaders HeaderStyle = iota
	// XRateLimitHeaders sends X-RateLimit-Limit, -Remaining and -Reset of the limit with
	// the least left, among nested limiters too. Reset is in seconds from now.
	XRateLimitHeaders
	// XRateLimitUnixHeaders sends the same, but Reset is the Unix time of it in seconds,
	// by this process's clock, as GitHub, httprate and ulule/limiter send it. It can't be
	// combined with XRateLimitHeaders.
	XRateLimitUnixHeaders
	// NoHeaders sends none of them. It can't be combined with the others.
	NoHeaders
)

const headersToWrite = "write stint.RateLimitHeaders, XRateLimitHeaders, XRateLimitUnixHeaders or NoHeaders"

// WithHeaders sets which header fields tell clients about their limits. The default is
// RateLimitHeaders. Retry-After is part of every denial, whatever the style, unless the
// request can never pass. New rejects an empty list, unknown styles, NoHeaders beside
// another, and both kinds of X-RateLimit-Reset.
func WithHeaders(styles ...HeaderStyle) Option {
	return limiterOption(func(c *config) {
		c.styles = 0
		none := false
		for _, s := range styles {
			switch s {
			case RateLimitHeaders:
				c.styles |= field.RateLimit
			case XRateLimitHeaders:
				c.styles |= field.XRateLimit
			case XRateLimitUnixHeaders:
				c.styles |= field.XRateLimitUnix
			case NoHeaders:
				none = true
			default:
				c.errs.Bad("WithHeaders", fmt.Sprintf("unknown style %d", s), headersToWrite)
			}
		}
		switch {
		case len(styles) == 0:
			c.errs.Bad("WithHeaders()", "", headersToWrite)
		case none && c.styles != 0:
			c.errs.Bad("WithHeaders", "NoHeaders beside another style", "leave one out")
		case c.styles&field.XRateLimit != 0 && c.styles&field.XRateLimitUnix != 0:
			c.errs.Bad("WithHeaders", "one X-RateLimit-Reset can't be both seconds and a Unix time", "leave XRateLimitHeaders or XRateLimitUnixHeaders out")
		}
	})
}

// setFields sets the header fields of the call's decision in h. Dry runs have none.
// slots holds the fields' values, so it must live as long as the response.
func (c *call) setFields(h http.Header, slots []string) {
	items := c.fields.Items[:0]
	for i, e := range c.entries {
		ch, r := &c.Charges[i], &c.Results[i]
		if ch.DryRun {
			continue
		}
		items = append(items, field.Item{})
		it := &items[len(items)-1]
		it.Limit, it.Remaining, it.Reset, it.Denied, it.Retry, it.More = &e.said, r.Remaining, r.ResetAfter, !r.OK, r.RetryAfter, -1
		if e.needs&local != 0 { // the limit's number changes
			limit, _ := e.kind.stood(ch, r)
			it.Limit = e.saidOf(limit)
		}
		if after, known := ch.Limit.MoreAfter(r); known {
			it.More = after
		}
	}
	c.fields.Items = items
	c.fields.Write(h, c.version.styles, c.policy, slots)
}

// saidOf is said for an adaptive limit while its number is units. Decisions follow one
// another faster than the number changes, so the last one is kept.
func (e *entry) saidOf(units int64) *field.Limit {
	if last := e.saidLast.Load(); last != nil && last.Units == units {
		return last
	}
	l := &field.Limit{Name: e.said.Name, Units: units, Policy: field.Policy(e.said.Name, units, 0)}
	e.saidLast.Store(l)
	return l
}

// said returns the part of a limit's fields that is the same in every decision.
func said(l *store.Limit) field.Limit {
	spec := l.Spec()
	return field.Limit{Name: spec.Name, Units: spec.Units, Policy: field.Policy(spec.Name, spec.Units, span(spec))}
}

// span returns the time that a limit's units are for, or 0 for a concurrency limit. For a
// calendar window it is the longest that the window can be: the field may promise less
// than there is, never more.
func span(s store.Spec) time.Duration {
	if s.Window == (store.Window{}) {
		return s.Period
	}
	return s.Window.Length(time.Now())
}
