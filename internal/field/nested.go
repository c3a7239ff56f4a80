package field

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// outdo leaves one item for each name, the one with less left, since a client can read
// only one. It removes others from what outer limiters have written, and marks its own
// as outdone. It reports whether any of its own is.
func (w *Writer) outdo(h http.Header) (some bool) {
	for i := range w.Items {
		it := &w.Items[i]
		if it.Policy == "" {
			continue
		}
		for j := range w.Items[:i] {
			if o := &w.Items[j]; o.Policy != "" && o.Name == it.Name {
				o.outdone = o.outdone || o.Remaining > it.Remaining
				it.outdone = it.outdone || o.Remaining <= it.Remaining
			}
		}
	}
	for i := range w.Items {
		it := &w.Items[i]
		if it.Policy == "" {
			continue
		}
		if left, there := outer(h[composed[limitLine]], it.Name); there && !it.outdone {
			if it.outdone = left <= it.Remaining; !it.outdone {
				strike(h, composed[limitLine], it.Name)
				strike(h, composed[policyLine], it.Name)
			}
		}
		some = some || it.outdone
	}
	return some
}

// nameOf returns the name in an item of either field.
func nameOf(item string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(item, `"`), `"`)
	return name
}

// outer returns how much lines of RateLimit say is left under a name.
func outer(lines []string, name string) (left int64, there bool) {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ", ") {
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

// strike removes the item of a name from a field.
func strike(h http.Header, key, name string) {
	var lines []string
	for _, line := range h[key] {
		items := slices.DeleteFunc(strings.Split(line, ", "), func(item string) bool { return nameOf(item) == name })
		if len(items) > 0 {
			lines = append(lines, strings.Join(items, ", "))
		}
	}
	if h[key] = lines; lines == nil {
		delete(h, key)
	}
}
