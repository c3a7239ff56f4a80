package field

import (
	"net/http"
	"strconv"
	"time"
)

// setXRateLimit sets the fields of the limit with the least left, unless an outer limiter
// has written as little or less.
func (w *Writer) setXRateLimit(h http.Header, unix bool) {
	var least *Item
	for i := range w.Items {
		if it := &w.Items[i]; it.Policy != "" && (least == nil || it.Remaining < least.Remaining) {
			least = it
		}
	}
	if least == nil {
		return
	}
	if n, found := outerNumber(h, xRemaining); found && n <= least.Remaining {
		return
	}
	w.setNumber(h, xLimit, least.Capacity)
	w.setNumber(h, xRemaining, least.Remaining)
	reset := seconds(least.Reset)
	if unix {
		at := time.Now().Add(least.Reset)
		if reset = at.Unix(); at.Nanosecond() > 0 {
			reset++ // a client that waits until then finds the units
		}
	}
	w.setNumber(h, xReset, reset)
}

// setNumber sets a field of one number, replacing the value of outer limiters.
func (w *Writer) setNumber(h http.Header, field uint8, n int64) {
	if w.lastText[field] == "" || w.lastNumber[field] != n {
		w.text = appendInt(w.text[:0], n)
		w.copyText(field) // which sets lastText
		w.lastNumber[field] = n
	}
	w.set(h, field, w.lastText[field], false)
}

// outerNumber returns the value of an outer limiter in a field of one number.
func outerNumber(h http.Header, field uint8) (n int64, found bool) {
	values := h[fieldNames[field]]
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}
