package client

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// farthest is the longest pause that is believed. Servers have sent Retry-After:
// 9223372037, which overflows as nanoseconds; beyond a day the exact number makes no
// difference to anybody.
const farthest = 24 * time.Hour

// pause returns how long the server that sent an answer asks not to be called again, or 0 if
// it doesn't ask. A time that is over when the answer arrives can't be true of a denial, and
// means nothing of an answer that was granted: it is ignored.
//
// Retry-After and the fields in milliseconds are about this answer, so they are read only if the
// answer is a denial (403, 429, 503), and nothing else is read then. The other fields are read in all answers, since a
// granted one may have been the last for now: RateLimit (draft revisions 07 to 11), the three
// RateLimit-* fields of draft 06 and earlier, and X-RateLimit-*. An upstream and a gateway may
// send any of them, so the longest pause that one asks for counts. An answer from a cache (Age)
// describes the limit in the past: only its Retry-After is read.
func pause(resp *http.Response, now time.Time) time.Duration {
	h := resp.Header
	sent := now
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		sent = date // instants in the answer are by the server's clock
	}
	if denied(resp.StatusCode) {
		d := parseRetryAfter(h["Retry-After"], sent)
		if d = max(d, parseMilliseconds(h["Retry-After-Ms"]), parseMilliseconds(h["X-Ms-Retry-After-Ms"])); d > 0 {
			return d
		}
	}
	if age := h.Get("Age"); age != "" && strings.Trim(age, "0") != "" {
		return 0
	}
	limited := resp.StatusCode == http.StatusTooManyRequests
	return max(
		longest(parseRateLimit(h["Ratelimit"]), limited),
		longest(parseTrios(h["Ratelimit-Remaining"], h["Ratelimit-Reset"], parseDelay), limited),
		longest(parseTrios(h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"], func(text string) (time.Duration, bool) {
			return parseReset(text, sent)
		}), limited),
	)
}

// denied reports whether a status says that the server was called too often. Some APIs
// answer a secondary limit with 403.
func denied(status int) bool {
	return overloaded(status) || status == http.StatusForbidden
}

// parseRetryAfter parses delay-seconds or an HTTP-date (RFC 9110 §10.2.3). Some servers
// send a fraction of a second, which is rounded up. A date
// counts relative to the time at which the answer says it was sent. Limiters behind one
// another may send several fields: the longest well-formed one counts.
func parseRetryAfter(lines []string, sent time.Time) (d time.Duration) {
	for _, line := range lines {
		text := strings.Trim(line, " \t")
		if delay, ok := parseDelay(text); ok {
			d = max(d, delay)
		} else if date, err := http.ParseTime(text); err == nil {
			d = max(d, until(date, sent))
		}
	}
	return d
}

// parseMilliseconds parses retry-after-ms or x-ms-retry-after-ms, which some servers send beside
// Retry-After or instead of it. Of several, the longest counts.
func parseMilliseconds(lines []string) (d time.Duration) {
	for _, line := range lines {
		if n, ok := parseNumber(strings.Trim(line, " \t")); ok {
			d = max(d, clamp(n, time.Millisecond))
		}
	}
	return d
}

// longest returns how long the policies that are used up ask to wait, or 0. A denial proves
// that one of them is, even if none says so: the request may have cost more than what
// is left.
func longest(items []policyLeft, limited bool) time.Duration {
	var d, partly time.Duration
	for _, item := range items {
		if item.left == 0 {
			d = max(d, item.pause)
		} else if limited {
			partly = max(partly, item.pause)
		}
	}
	if d == 0 {
		return partly
	}
	return d
}

// parseTrios parses Remaining and Reset fields, of each server that has sent both: the first
// of one belongs to the first of the other. If there are more of one, none is believed. parse
// parses a Reset.
func parseTrios(remaining, resets []string, parse func(string) (time.Duration, bool)) (items []policyLeft) {
	remaining, resets = members(remaining), members(resets)
	if len(remaining) != len(resets) {
		return nil
	}
	for i := range remaining {
		left, ok := parseDigits(remaining[i])
		pause, also := parse(resets[i])
		if ok && also {
			items = append(items, policyLeft{left, pause})
		}
	}
	return items
}

// members splits the lines of a field at their commas: a proxy may have joined them. The comma
// after the day of an HTTP-date separates nothing.
func members(lines []string) (all []string) {
	for _, line := range lines {
		day := ""
		for m := range strings.SplitSeq(line, ",") {
			m = day + strings.Trim(m, " \t")
			if day = ""; slices.Contains(days, m) {
				day = m + ", "
				continue
			}
			all = append(all, m)
		}
	}
	return all
}

var days = []string{
	"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun",
	"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
}

// parseReset parses an X-RateLimit-Reset, for which there is no standard: a number, a duration
// such as 6m0s, an HTTP-date, or a date of RFC 3339. A number from 10^12 on is in milliseconds
// since 1970, from 10^9 on in seconds since 1970, and below that in seconds from now.
func parseReset(text string, sent time.Time) (time.Duration, bool) {
	if n, ok := parseNumber(text); ok {
		switch {
		case n >= 1e12:
			return until(time.UnixMilli(n), sent), true
		case n >= 1e9:
			return until(time.Unix(n, 0), sent), true
		}
		return clamp(n, time.Second), true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return min(max(d, 0), farthest), true
	}
	if date, err := http.ParseTime(text); err == nil {
		return until(date, sent), true
	}
	date, err := time.Parse(time.RFC3339, text)
	return until(date, sent), err == nil
}

// until returns the time from one instant until a later one, and 0 if that is over.
func until(at, from time.Time) time.Duration {
	return min(max(at.Sub(from), 0), farthest) // Sub saturates
}

func clamp(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(n, int64(farthest/unit))) * unit
}

// parseDelay parses delay-seconds.
func parseDelay(text string) (time.Duration, bool) {
	n, ok := parseNumber(text)
	return clamp(n, time.Second), ok
}

// parseNumber parses 1*DIGIT with or without a fraction, which is rounded up.
func parseNumber(text string) (n int64, ok bool) {
	whole, fraction, fractional := strings.Cut(text, ".")
	n, ok = parseDigits(whole)
	if !ok || !fractional {
		return n, ok
	}
	part, ok := parseDigits(fraction)
	if part > 0 && n < math.MaxInt64 {
		n++
	}
	return n, ok
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
