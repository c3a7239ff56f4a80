package field

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// supersede leaves one item for each name, the one with less left, since a client can read
// only one. It removes others from the fields of outer limiters, and marks its own
// as superseded. It reports whether any of its own is.
func (w *Writer) supersede(h http.Header) (some bool) {
	for i := range w.Items {
		it := &w.Items[i]
		if it.Policy == "" {
			continue
		}
		for j := range w.Items[:i] {
			if o := &w.Items[j]; o.Policy != "" && o.Name == it.Name {
				o.superseded = o.superseded || o.Remaining > it.Remaining
				it.superseded = it.superseded || o.Remaining <= it.Remaining
			}
		}
	}
	for i := range w.Items {
		it := &w.Items[i]
		if it.Policy == "" {
			continue
		}
		if left, found := outerRemaining(h[fieldNames[rateLimitField]], it.Name); found && !it.superseded {
			if it.superseded = left <= it.Remaining; !it.superseded {
				removeItem(h, fieldNames[rateLimitField], it.Name)
				removeItem(h, fieldNames[rateLimitPolicyField], it.Name)
			}
		}
		some = some || it.superseded
	}
	return some
}

// nameOf returns the name in an item of either field.
func nameOf(item string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(item, `"`), `"`)
	return name
}

// outerRemaining returns the remaining units that values of RateLimit have under a name.
func outerRemaining(values []string, name string) (left int64, found bool) {
	for _, value := range values {
		for item := range strings.SplitSeq(value, ", ") {
			if nameOf(item) != name {
				continue
			}
			_, number, _ := strings.Cut(item, ";r=")
			number, _, _ = strings.Cut(number, ";")
			if n, err := strconv.ParseInt(number, 10, 64); err == nil {
				return n, true
			}
		}
	}
	return 0, false
}

// removeItem removes the item of a name from a field.
func removeItem(h http.Header, key, name string) {
	var values []string
	for _, value := range h[key] {
		items := slices.DeleteFunc(strings.Split(value, ", "), func(item string) bool { return nameOf(item) == name })
		if len(items) > 0 {
			values = append(values, strings.Join(items, ", "))
		}
	}
	if h[key] = values; values == nil {
		delete(h, key)
	}
}
