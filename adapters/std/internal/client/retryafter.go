package client

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// farthest is the longest pause that is believed. Servers have sent Retry-After:
// 9223372037, which overflows as nanoseconds; beyond a day the exact number makes no
// difference to anybody.
const farthest = 24 * time.Hour

// pause returns how long the server that sent an answer asks not to be called again.
// said is false if it doesn't ask.
//
// The fields are read in order of reliability: Retry-After, then RateLimit (draft
// revisions 08 to 11, then 07), the three RateLimit-* fields of draft 06 and earlier,
// and X-RateLimit-*. The first that asks for a pause counts. Retry-After is about this
// answer, so it is read only if the answer is a denial (403, 429, 503). The others are
// read in all answers, since a granted one may have been the last for now. An answer
// from a cache (Age) describes the limit in the past: only its Retry-After is read.
func pause(resp *http.Response, now time.Time) (d time.Duration, said bool) {
	h := resp.Header
	sent := now
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		sent = date // instants in the answer are by the server's clock
	}
	if denied(resp.StatusCode) {
		if d, ok := parseRetryAfter(h["Retry-After"], sent); ok {
			return d, true
		}
	}
	if age := h.Get("Age"); age != "" && strings.Trim(age, "0") != "" {
		return 0, false
	}
	limited := resp.StatusCode == http.StatusTooManyRequests
	if lines := h["Ratelimit"]; len(lines) > 0 {
		if d, ok := longest(parseRateLimit(lines), limited); ok {
			return d, true
		}
	}
	if d, ok := parseTrio(h["Ratelimit-Remaining"], h["Ratelimit-Reset"], limited, nil); ok {
		return d, true
	}
	return parseTrio(h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"], limited, func(n int64) time.Duration {
		return sinceEpoch(n, sent)
	})
}

// denied reports whether a status says that the server was called too often. Some APIs
// answer a secondary limit with 403.
func denied(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusForbidden
}

// parseRetryAfter parses delay-seconds or an HTTP-date (RFC 9110 §10.2.3). A date
// counts relative to the time at which the answer says it was sent. Limiters behind one
// another may send several fields: the longest well-formed one counts.
func parseRetryAfter(lines []string, sent time.Time) (d time.Duration, said bool) {
	for _, line := range lines {
		text := strings.Trim(line, " \t")
		if n, ok := parseDigits(text); ok {
			d, said = max(d, clampSeconds(n)), true
		} else if date, err := http.ParseTime(text); err == nil {
			d, said = max(d, min(date.Sub(sent), farthest)), true
		}
	}
	return d, said
}

// longest returns how long the policies that are used up ask to wait. A denial proves
// that one of them is, even if none says so: the request may have cost more than what
// is left.
func longest(items []policyLeft, limited bool) (d time.Duration, said bool) {
	var partly time.Duration
	var partlySaid bool
	for _, item := range items {
		switch {
		case !item.hasSeconds:
		case item.left == 0:
			d, said = max(d, clampSeconds(item.seconds)), true
		case limited:
			partly, partlySaid = max(partly, clampSeconds(item.seconds)), true
		}
	}
	if said {
		return d, true
	}
	return partly, partlySaid
}

// parseTrio parses a Remaining and a Reset field. reset converts the number of the
// latter into a wait if it isn't in seconds.
func parseTrio(remaining, resets []string, limited bool, reset func(int64) time.Duration) (time.Duration, bool) {
	if len(remaining) != 1 || len(resets) != 1 {
		return 0, false
	}
	left, ok := parseDigits(strings.Trim(remaining[0], " \t"))
	if !ok || left > 0 && !limited {
		return 0, false
	}
	n, ok := parseDigits(strings.Trim(resets[0], " \t"))
	switch {
	case !ok:
		return 0, false
	case reset != nil:
		return reset(n), true
	}
	return clampSeconds(n), true
}

// sinceEpoch interprets an X-RateLimit-Reset, for which there is no standard: from
// 10^12 on as milliseconds since 1970, from 10^9 on as seconds since 1970, and below
// that as seconds from now.
func sinceEpoch(n int64, sent time.Time) time.Duration {
	var at time.Time
	switch {
	case n >= 1e12:
		at = time.UnixMilli(n)
	case n >= 1e9:
		at = time.Unix(n, 0)
	default:
		return clampSeconds(n)
	}
	return min(max(at.Sub(sent), 0), farthest) // Sub saturates
}

func clampSeconds(n int64) time.Duration {
	return time.Duration(min(n, int64(farthest/time.Second))) * time.Second
}

// parseDigits parses 1*DIGIT: no sign, no fraction, no space. A number too large for an
// int64 becomes the largest one.
func parseDigits(text string) (n int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, false
		}
		if n > (math.MaxInt64-9)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + int64(text[i]-'0')
	}
	return n, true
}
