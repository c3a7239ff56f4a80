package stint

import (
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/store"
)

// The fields are those of draft-ietf-httpapi-ratelimit-headers-11. The draft
// moves: this file is all that knows its spelling, and the spelling is not
// part of this module's promise of compatibility.

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

// headerSet has a bit for each style sent. headersSet tells none from unset.
type headerSet uint8

const (
	draftSet   = headerSet(1) << DraftHeaders
	legacySet  = headerSet(1) << LegacyHeaders
	headersSet = headerSet(1) << 7
)

// values is how many field values a granted request gets.
func (s headerSet) values() (n int) {
	if s&draftSet != 0 {
		n += 2
	}
	if s&legacySet != 0 {
		n += 3
	}
	return n
}

// The keys are in the form that http.Header stores them: Add with any other
// spelling finds them.
const (
	fieldRateLimit  = "Ratelimit"
	fieldPolicy     = "Ratelimit-Policy"
	fieldRetryAfter = "Retry-After"
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// fieldSlots is how many field values a response gets at the most: the two
// RateLimit fields, the three legacy ones, Retry-After, Cache-Control and
// Content-Type.
const fieldSlots = 8

// policyItem is a limit's item of RateLimit-Policy.
func policyItem(l *store.Limit) string {
	spec := l.Spec()
	b := append([]byte{'"'}, spec.Name...)
	b = append(b, `";q=`...)
	b = appendInt(b, spec.Units)
	if spec.Algorithm == store.Concurrency {
		return string(append(b, `;qu="concurrent-requests"`...))
	}
	b = append(b, `;w=`...)
	return string(appendSeconds(b, span(spec)))
}

// span is the time that a limit's units belong to. For a calendar window it is
// the longest that there will be: a promise of less than there is, never of more.
func span(s store.Spec) time.Duration {
	if s.Period > 0 {
		return s.Period
	}
	return s.Window.Length(time.Now())
}

// appendRateLimit appends a limit's item of RateLimit.
func appendRateLimit(b []byte, l *store.Limit, r *store.Result) []byte {
	b = append(b, '"')
	b = append(b, l.Name()...)
	b = append(b, `";r=`...)
	b = appendInt(b, r.Remaining)
	if after, known := l.MoreAfter(r); known {
		b = appendSeconds(append(b, `;t=`...), after)
	}
	return b
}

// maxInteger is the largest Integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

func appendInt(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}

func appendSeconds(b []byte, d time.Duration) []byte {
	return appendInt(b, seconds(d))
}

// seconds rounds up: a client that comes back on time must not be early.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// writeFields sets the fields of a decision. The values are substrings of one
// string: one allocation in all.
func (c *call) writeFields(f *fieldWriter) {
	set := c.lim.headers
	b := c.buf[:0]

	var outdone []bool
	if set&draftSet != 0 {
		outdone = c.outdone(f)
		for i := range c.results {
			if c.charges[i].DryRun || c.entries[i].bans || outdone != nil && outdone[i] {
				continue
			}
			if len(b) > 0 {
				b = append(b, ", "...)
			}
			b = appendRateLimit(b, c.charges[i].Limit, &c.results[i])
		}
	}
	rateLimit := len(b)
	policy := c.policy
	if outdone != nil {
		policy = "" // names limits that aren't shown
	}
	if set&draftSet != 0 && policy == "" {
		for i, e := range c.entries {
			item := e.policy
			if item == "" || outdone != nil && outdone[i] {
				continue
			}
			if l := c.charges[i].Limit; l != e.limit { // renewed
				item = policyItem(l)
			}
			if len(b) > rateLimit {
				b = append(b, ", "...)
			}
			b = append(b, item...)
		}
	}
	policyEnd := len(b)
	var legacy [3]int
	if set&legacySet != 0 {
		if i := c.least(); i >= 0 {
			b = appendInt(b, c.charges[i].Limit.Spec().Units)
			legacy[0] = len(b)
			b = appendInt(b, c.results[i].Remaining)
			legacy[1] = len(b)
			b = appendSeconds(b, c.results[i].ResetAfter)
			legacy[2] = len(b)
		}
	}
	numbers := len(b)
	retry := c.retryAfter()
	if retry > 0 {
		b = strconv.AppendInt(b, retry, 10)
	}
	c.buf = b
	s := string(b)

	if rateLimit > 0 {
		f.add(fieldRateLimit, s[:rateLimit])
		if policy == "" {
			policy = s[rateLimit:policyEnd]
		}
		f.add(fieldPolicy, policy)
	}
	if legacy[2] > 0 {
		f.least(s[policyEnd:legacy[0]], s[legacy[0]:legacy[1]], s[legacy[1]:legacy[2]])
	}
	if retry > 0 {
		f.latest(s[numbers:], retry)
	}
}

// least is the enforced limit with the least left, or -1.
func (c *call) least() int {
	least := -1
	for i := range c.results {
		if !c.charges[i].DryRun && !c.entries[i].bans && (least < 0 || c.results[i].Remaining < c.results[least].Remaining) {
			least = i
		}
	}
	return least
}

// retryAfter is the value of Retry-After: the latest of the limits that
// refuse, at least 1; 0 for none, when nothing refuses or waiting doesn't help.
func (c *call) retryAfter() int64 {
	n := int64(0)
	for i := range c.results {
		r := &c.results[i]
		if r.OK || c.charges[i].DryRun {
			continue
		}
		if r.RetryAfter == Never {
			return 0
		}
		n = max(n, seconds(r.RetryAfter), 1)
	}
	return min(n, maxInteger)
}

// fieldWriter puts values into a header without an allocation for each.
type fieldWriter struct {
	h     http.Header
	slots []string
}

// set replaces the field.
func (f *fieldWriter) set(key, value string) {
	if len(f.slots) == 0 {
		f.h[key] = []string{value}
		return
	}
	f.slots[0] = value
	f.h[key] = f.slots[:1:1]
	f.slots = f.slots[1:]
}

// add adds a line to what an outer limiter has set.
func (f *fieldWriter) add(key, value string) {
	if had := f.h[key]; len(had) > 0 {
		f.h[key] = append(had, value)
		return
	}
	f.set(key, value)
}

// least sets the legacy fields unless those of an outer limiter say less.
func (f *fieldWriter) least(limit, remaining, reset string) {
	if had := f.h[legacyRemaining]; len(had) > 0 {
		outer, err := strconv.ParseInt(had[0], 10, 64)
		own, _ := strconv.ParseInt(remaining, 10, 64)
		if err == nil && outer <= own {
			return
		}
	}
	f.set(legacyLimit, limit)
	f.set(legacyRemaining, remaining)
	f.set(legacyReset, reset)
}

// latest sets Retry-After unless it is later already.
func (f *fieldWriter) latest(value string, n int64) {
	if had := f.h[fieldRetryAfter]; len(had) > 0 {
		if outer, err := strconv.ParseInt(had[0], 10, 64); err == nil && outer >= n {
			return
		}
	}
	f.set(fieldRetryAfter, value)
}

// failed sets the fields of a refusal that isn't a limit's.
func (f *fieldWriter) failed(status int) {
	f.notStored()
	if status == http.StatusServiceUnavailable {
		f.latest("1", 1)
	}
}

// notStored marks a response as one that is no copy of the resource: caches
// must not keep it, and fields that describe the resource go.
func (f *fieldWriter) notStored() {
	f.set("Cache-Control", "no-store")
	for _, key := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Expires"} {
		delete(f.h, key)
	}
}
