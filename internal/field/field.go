// Package field writes the header fields and bodies that tell a client about its limits: RateLimit and
// RateLimit-Policy, the X-RateLimit fields, Retry-After, and problem bodies. Items are all that it
// knows of limits: it knows neither stores nor algorithms.
//
// The RateLimit fields are those of draft-ietf-httpapi-ratelimit-headers-11. The draft
// still changes: only this package knows its spelling, and the spelling isn't part of
// the module's promise of compatibility.
package field

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Styles is a set of ways to tell clients about their limits.
type Styles uint8

const (
	// RateLimit is RateLimit-Policy and RateLimit, an item for each limit.
	RateLimit Styles = 1 << iota
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, of the limit with the least
	// left. Reset is in seconds.
	XRateLimit
	// XRateLimitUnix is XRateLimit with the Unix time of the reset.
	XRateLimitUnix
)

// Item is a limit's part of the fields of one decision.
type Item struct {
	Name string
	// Policy is its item of RateLimit-Policy, made by the function Policy. If it is
	// empty, no field shows the limit; its denials still count in Retry-After.
	Policy string
	// Capacity is how many units are left of a key that has used none.
	Capacity int64
	// Remaining is how many units are left.
	Remaining int64
	// More is the time until more units are left; negative if unknown.
	More time.Duration
	// Reset is the time until all units are there.
	Reset time.Duration
	// Denied says that the limit denied the request. Retry is the time after which it
	// would let the request pass, or Never.
	Denied bool
	Retry  time.Duration

	superseded bool // another item of the same name has less left
}

// Never is the Retry of a request that can never pass.
const Never = time.Duration(math.MaxInt64)

// Policy returns a limit's item of RateLimit-Policy: units per in, which is rounded up
// to a second. If in is 0, the units are concurrent requests. The name must not need
// escaping.
func Policy(name string, units int64, in time.Duration) string {
	var room [64]byte
	b := append(append(room[:0], '"'), name...)
	b = appendInt(append(b, `";q=`...), units)
	if in == 0 {
		return string(append(b, `;qu="concurrent-requests"`...))
	}
	return string(appendInt(append(b, `;w=`...), seconds(in)))
}

// Writer writes the fields of one response after another. Its zero value is ready to
// use. It isn't safe for concurrent use.
type Writer struct {
	// Items are the items that Write writes.
	Items []Item
	// Jitter is added to Retry-After: a random part of it.
	Jitter time.Duration

	// These are of the current response.
	outermost bool // no limiter before this one has set a field
	denied    bool // a limit has denied the request

	text     []byte
	lastText [fields]string // the last text of each field; many responses have the same again
	// lastNumber has the numbers of the texts of fields that are numbers: no text is made for the same
	// number again.
	lastNumber [fields]int64
	// Strings and slots are cut off larger pieces, as net/textproto does: a response has
	// few short values, and each would otherwise be an allocation.
	texts strings.Builder
	block []string
	used  int // of block
}

// Begin drops the items of the response before.
func (w *Writer) Begin() { w.Items = w.Items[:0] }

// Add adds an item, and returns it for all of its fields to be set.
func (w *Writer) Add() *Item {
	n := len(w.Items)
	if n == cap(w.Items) {
		w.Items = append(w.Items, Item{})
	}
	w.Items = w.Items[:n+1]
	return &w.Items[n]
}

// The fields that a Writer sets.
const (
	rateLimitField uint8 = iota
	rateLimitPolicyField
	xLimit
	xRemaining
	xReset
	retryAfter
	cacheControl
	fields // how many there are
)

// The keys are in canonical form, as http.Header stores them: Add finds them under any
// other spelling.
var fieldNames = [fields]string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining",
	"X-Ratelimit-Reset", "Retry-After", "Cache-Control"}

// keptText is the size above which the text buffer isn't kept.
const keptText = 4 << 10

// Write sets the fields of the items in h. It keeps the items that outer limiters have set, but
// if two limits have the same name, it shows the one with less left. policy is the
// RateLimit-Policy of all items, or "" if it isn't known or two items may have the same
// name.
//
// If an item is denied, Write also marks the response as not being a copy of the
// resource, and sets Retry-After unless the request can never pass.
func (w *Writer) Write(h http.Header, styles Styles, policy string) {
	w.outermost = len(h) == 0
	w.denied = false
	for i := range w.Items {
		it := &w.Items[i]
		it.Remaining, it.superseded = min(max(it.Remaining, 0), maxInteger), false
		w.denied = w.denied || it.Denied
	}
	if styles&RateLimit != 0 {
		w.setRateLimit(h, policy)
	}
	if styles&(XRateLimit|XRateLimitUnix) != 0 {
		w.setXRateLimit(h, styles&XRateLimitUnix != 0)
	}
	if w.denied {
		w.setDenial(h)
	}
	if cap(w.text) > keptText {
		w.text = nil
	}
}

// setRateLimit sets RateLimit and RateLimit-Policy.
func (w *Writer) setRateLimit(h http.Header, policy string) {
	nested := !w.outermost && len(h[fieldNames[rateLimitField]]) > 0
	if (nested || policy == "") && w.supersede(h) {
		policy = "" // it names limits that aren't shown
	}
	b := w.text[:0]
	for i := range w.Items {
		it := &w.Items[i]
		if it.Policy == "" || it.superseded {
			continue
		}
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, it.Policy[:len(it.Name)+len(`"";`)]...) // both fields begin an item with its name
		b = strconv.AppendInt(append(b, "r="...), it.Remaining, 10)
		if it.More >= 0 {
			b = strconv.AppendInt(append(b, `;t=`...), seconds(it.More), 10)
		}
	}
	if w.text = b; len(b) == 0 {
		return
	}
	w.set(h, rateLimitField, "", nested)
	if policy == "" {
		b = b[:0]
		for i := range w.Items {
			it := &w.Items[i]
			if it.Policy == "" || it.superseded {
				continue
			}
			if len(b) > 0 {
				b = append(b, ", "...)
			}
			b = append(b, it.Policy...)
		}
		w.text = b
	}
	w.set(h, rateLimitPolicyField, policy, true)
}

// set sets a field to a value, or to a copy of the text if the value is "". adds says that the value
// is added to those of outer limiters; otherwise it replaces them.
func (w *Writer) set(h http.Header, field uint8, value string, adds bool) {
	if value == "" {
		value = w.copyText(field)
	}
	key := fieldNames[field]
	if adds && !w.outermost {
		if previous := h[key]; len(previous) > 0 {
			h[key] = append(previous, value)
			return
		}
	}
	slot := w.slot()
	slot[0] = value
	h[key] = slot
}

// copyText returns a copy of the text, for a field.
func (w *Writer) copyText(field uint8) string {
	// RateLimit has another text after each request that passes.
	remembers := field != rateLimitField || w.denied
	if remembers && w.lastText[field] == string(w.text) {
		return w.lastText[field]
	}
	if w.texts.Cap()-w.texts.Len() < len(w.text) {
		w.texts = strings.Builder{}
		w.texts.Grow(max(textPiece, len(w.text)))
	}
	w.texts.Write(w.text)
	value := w.texts.String()[w.texts.Len()-len(w.text):]
	if remembers {
		w.lastText[field] = value
	}
	return value
}

// textPiece is how much memory is allocated for texts at once. A value that is kept keeps all of it.
const textPiece = 1 << 10

// slot returns room for one value.
func (w *Writer) slot() []string {
	if w.used == len(w.block) {
		w.block, w.used = make([]string, 64), 0
	}
	w.used++
	return w.block[w.used-1 : w.used : w.used]
}

// maxInteger is the largest Integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

func appendInt(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, 0), maxInteger), 10)
}

// seconds rounds up: a client that returns on time must not be early.
func seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
