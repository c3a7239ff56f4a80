package field

import (
	"net/http"
	"strconv"
	"time"
)

// xRateLimit sets the fields of the limit with the least left, unless an outer limiter
// has written as little or less.
func (w *Writer) xRateLimit(h http.Header, unix bool) {
	var least *Item
	for i := range w.Items {
		if it := &w.Items[i]; it.Policy != "" && (least == nil || it.Remaining < least.Remaining) {
			least = it
		}
	}
	if least == nil {
		return
	}
	if n, there := outerNumber(h, xRemaining); there && n <= least.Remaining {
		return
	}
	w.number(h, xLimit, least.Capacity)
	w.number(h, xRemaining, least.Remaining)
	reset := seconds(least.Reset)
	if unix {
		at := time.Now().Add(least.Reset)
		if reset = at.Unix(); at.Nanosecond() > 0 {
			reset++ // whoever waits for it finds the units there
		}
	}
	w.number(h, xReset, reset)
}

// number sets a field of one number, replacing what outer limiters have set.
func (w *Writer) number(h http.Header, field uint8, n int64) {
	if w.last[field] == "" || w.numbers[field] != n {
		w.text = appendInt(w.text[:0], n)
		w.copied(field) // which keeps it as the last
		w.numbers[field] = n
	}
	w.set(h, field, w.last[field], false)
}

// outerNumber returns what an outer limiter has written in a field of one number.
func outerNumber(h http.Header, field uint8) (n int64, there bool) {
	had := h[composed[field]]
	if len(had) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(had[0], 10, 64)
	return n, err == nil
}
