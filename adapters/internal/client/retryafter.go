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

// pause returns how long the server that sent an answer asks not to be called again, or 0 if
// it doesn't ask. A time that is over when the answer arrives can't be true of a denial, and
// means nothing of an answer that was granted: it is ignored.
//
// Retry-After is about this answer, so it is read only if the answer is a denial (403, 429,
// 503), and nothing else is read then. The other fields are read in all answers, since a
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
		if d := parseRetryAfter(h["Retry-After"], sent); d > 0 {
			return d
		}
	}
	if age := h.Get("Age"); age != "" && strings.Trim(age, "0") != "" {
		return 0
	}
	limited := resp.StatusCode == http.StatusTooManyRequests
	return max(
		longest(parseRateLimit(h["Ratelimit"]), limited),
		longest(parseTrios(h["Ratelimit-Remaining"], h["Ratelimit-Reset"], clampSeconds), limited),
		longest(parseTrios(h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"], func(n int64) time.Duration {
			return sinceEpoch(n, sent)
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
		if n, ok := parseSeconds(text); ok {
			d = max(d, clampSeconds(n))
		} else if date, err := http.ParseTime(text); err == nil {
			d = max(d, min(date.Sub(sent), farthest))
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
// of one belongs to the first of the other. If there are more of one, none is believed. pause
// converts a number of Reset.
func parseTrios(remaining, resets []string, pause func(int64) time.Duration) (items []policyLeft) {
	remaining, resets = members(remaining), members(resets)
	if len(remaining) != len(resets) {
		return nil
	}
	for i := range remaining {
		left, ok := parseDigits(remaining[i])
		n, also := parseSeconds(resets[i])
		if ok && also {
			items = append(items, policyLeft{left, pause(n)})
		}
	}
	return items
}

// members splits the lines of a field at their commas: a proxy may have joined them.
func members(lines []string) (all []string) {
	for _, line := range lines {
		for m := range strings.SplitSeq(line, ",") {
			all = append(all, strings.Trim(m, " \t"))
		}
	}
	return all
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

// parseSeconds parses 1*DIGIT with or without a fraction, which is rounded up.
func parseSeconds(text string) (n int64, ok bool) {
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
