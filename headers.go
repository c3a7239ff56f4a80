package stint

import (
	"fmt"
	"net/http"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"

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
	// the least left, among nested limiters too. Limit is its capacity, such as the burst of
	// a bucket (LimitStatus.Capacity). Reset is in seconds from now.
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
	return option("WithHeaders", func(c *config) {
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
				c.Errs.Bad("WithHeaders", fmt.Sprintf("unknown style %d", s), headersToWrite)
			}
		}
		switch {
		case len(styles) == 0:
			c.Errs.Bad("WithHeaders()", "", headersToWrite)
		case none && c.styles != 0:
			c.Errs.Bad("WithHeaders", "NoHeaders beside another style", "leave one out")
		case c.styles&field.XRateLimit != 0 && c.styles&field.XRateLimitUnix != 0:
			c.Errs.Bad("WithHeaders", "one X-RateLimit-Reset can't be both seconds and a Unix time", "leave XRateLimitHeaders or XRateLimitUnixHeaders out")
		}
	})
}

// WithHidden keeps a limit out of the RateLimit and X-RateLimit fields, such as one that
// protects a server and that clients can't plan by. The limit decides as without it; its
// denials have a Retry-After, and the problem body names it. By default the fields show all
// limits but a Ban, a Bandwidth and dry runs. New rejects it on a Ban or a Bandwidth.
func WithHidden() LimitOption {
	return changeOption{change: func(r *compile.Rule) { r.Hidden = true }}
}

// WithRetryJitter adds a random time of up to d to the Retry-After of each denial by a limit,
// so that clients denied together don't come back together. Decision.RetryAfter and the other
// fields keep the earliest instant. The default is 0, which adds nothing. New rejects a
// negative d, and one above 0 and below a millisecond.
func WithRetryJitter(d time.Duration) Option {
	valid, write := engine.CheckDuration(d, d >= 0, "write a duration, such as 5*time.Second")
	return checkedOption(valid, fmt.Sprintf("WithRetryJitter(%v)", d), write,
		func(c *config) { c.retryJitter = d })
}

// setFields sets the header fields of the call's decision in h. Dry runs have none.
func (a *admission) setFields(h http.Header) {
	a.fields.Begin()
	for i, l := range a.call.Limits {
		ch, r := &a.call.Charges[i], &a.call.Results[i]
		if ch.DryRun {
			continue
		}
		said := l.Policy.Load()
		if l.Needs&limit.Local != 0 && said.Text != "" {
			said = policyNow(l, ch, r)
		}
		it := a.fields.Add()
		it.Name, it.Policy, it.Capacity = ch.Limit.Name(), said.Text, said.Capacity
		it.Remaining, it.Reset, it.Denied, it.Retry, it.More = r.Remaining, r.ResetAfter, !r.OK, r.RetryAfter, -1
		if after, known := inside.MoreAfter(ch.Limit, r); known {
			it.More = after
		}
	}
	a.fields.Jitter = a.version.retryJitter
	a.fields.Write(h, a.version.styles, a.reading.Policy())
}

// policyNow returns what fields say of an adaptive limit. Decisions follow one another
// faster than its number changes, so the last is kept.
func policyNow(l *limit.Limit, c *store.Charge, r *store.Result) *limit.Policy {
	slots, _ := limit.Stood(c, r)
	if last := l.Policy.Load(); last.Capacity == slots {
		return last
	}
	said := &limit.Policy{Capacity: slots, Text: field.Policy(c.Limit.Name(), slots, 0)}
	l.Policy.Store(said)
	return said
}
