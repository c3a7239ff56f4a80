package events

import (
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strconv"
)

// Present leaves out attributes that are empty texts or zero, except the one named
// anyway.
func Present(attrs []slog.Attr, anyway string) []slog.Attr {
	return slices.DeleteFunc(attrs, func(a slog.Attr) bool {
		switch a.Value.Kind() {
		case slog.KindString:
			return a.Value.String() == ""
		case slog.KindDuration:
			return a.Value.Duration() == 0
		}
		return a.Value.Int64() == 0 && a.Key != anyway
	})
}

// Format writes attributes as key="value", separated by spaces.
func Format(w io.Writer, attrs []slog.Attr) {
	for i, a := range attrs {
		if i > 0 {
			_, _ = io.WriteString(w, " ")
		}
		_, _ = io.WriteString(w, a.Key+"="+strconv.Quote(a.Value.String()))
	}
}

// JSON returns attributes as a JSON object, durations in seconds.
func JSON(attrs []slog.Attr) ([]byte, error) {
	all := map[string]any{}
	for _, a := range attrs {
		if v := a.Value; v.Kind() == slog.KindDuration {
			all[a.Key] = v.Duration().Seconds()
		} else {
			all[a.Key] = v.Any()
		}
	}
	return json.Marshal(all)
}
