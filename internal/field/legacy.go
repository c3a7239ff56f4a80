package field

import (
	"net/http"
	"strconv"
)

// legacy sets the fields of the limit with the least left, unless an outer limiter
// has written as little or less.
func (w *Writer) legacy(h http.Header) {
	var least *Item
	for i := range w.Items {
		if it := &w.Items[i]; it.Policy != "" && (least == nil || it.Remaining < least.Remaining) {
			least = it
		}
	}
	if least == nil {
		return
	}
	if n, there := outerNumber(h, legacyRemaining); there && n <= least.Remaining {
		return
	}
	w.number(h, legacyLimit, least.Units)
	w.number(h, legacyRemaining, least.Remaining)
	w.number(h, legacyReset, seconds(least.Reset))
}

// number sets a field of one number, replacing what outer limiters have set.
func (w *Writer) number(h http.Header, field uint8, n int64) {
	w.text = appendInt(w.text[:0], n)
	w.set(h, field, "", false)
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
