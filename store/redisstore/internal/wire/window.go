package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// unaligned returns the arguments of lua/window.lua for windows that begin with a charge.
func unaligned(l *limit) (limit, start, next, after any) {
	period := strconv.FormatInt(l.terms.Period, 10)
	return period + ",0", period, "", ""
}

// varyWindow is vary for the codecs whose first argument is the window, whose second and third
// are cost and how, and whose last ones are where windows begin.
func varyWindow(l *limit, args []any, c *store.Charge, t *Times) {
	if l.spec.Window != (store.Window{}) {
		limit, starts := l.window(t)
		args[0] = limit
		copy(args[len(args)-len(starts):], starts[:])
	}
	varyCostAndWait(l, args, c, t)
}

// zoned reports whether a script can't compute the limit's windows, which follow the calendar.
func (l *limit) zoned() bool {
	_, _, fixed := inside.Fixed(l.spec.Window)
	return l.spec.Window != (store.Window{}) && !fixed
}

// window returns a script's arguments about a limit's windows that don't begin with a charge,
// and where the present one and the next two begin.
func (l *limit) window(t *Times) (limit any, starts *[3]any) {
	near := l.around(t.Wall)
	if !l.zoned() || len(t.Asked) == 0 {
		return near.limit, &near.starts
	}
	spans := inside.Around(l.spec.Window, t.Wall, spansBefore, spansAfter)
	for _, at := range t.Asked {
		spans = append(spans, inside.Around(l.spec.Window, at, 1, 1)...)
	}
	return l.spans(spans), &near.starts
}

// around returns a script's arguments about the windows around wall. It is the same as
// long as one of them lasts, and is cached, because computing a time zone takes as long
// as the rest of a call.
func (l *limit) around(wall int64) *calendar {
	if c := l.calendar.Load(); c != nil && c.start <= wall && wall < c.end {
		return c
	}
	spans := inside.Around(l.spec.Window, wall, spansBefore, spansAfter)
	near := spans[spansBefore:]
	c := &calendar{start: near[0].Start, end: near[0].End, head: headOf(near[0].Start)}
	for i := range c.starts {
		c.starts[i] = strconv.FormatInt(near[i].Start, 10)
	}
	if length, from, fixed := inside.Fixed(l.spec.Window); fixed {
		c.limit = strconv.FormatInt(length, 10) + ",1"
		if from > 0 {
			c.limit = strconv.FormatInt(length, 10) + ",1," + strconv.FormatInt(from, 10)
		}
	} else {
		c.limit = l.spans(spans)
	}
	l.calendar.Store(c)
	return c
}

// spans encodes windows of the calendar as lua/window.lua reads them.
func (l *limit) spans(spans []algorithm.Span) string {
	slices.SortFunc(spans, func(a, b algorithm.Span) int { return cmp.Compare(a.Start, b.Start) })
	spans = slices.Compact(spans)
	var b []byte
	pairs := 0
	for i, s := range spans {
		b = strconv.AppendInt(append(b, ','), s.Number, 10)
		b = strconv.AppendInt(append(b, ','), s.Start, 10)
		pairs++
		if i == len(spans)-1 || spans[i+1].Start != s.End { // the windows after it aren't sent
			b = strconv.AppendInt(append(b, ",-,"...), s.End, 10)
			pairs++
		}
	}
	return strconv.FormatInt(inside.Nominal(l.spec.Window), 10) + ",2," + strconv.Itoa(pairs) + string(b)
}

// The number of windows of the calendar that a script gets, before and after the present
// one. It asks if it needs others.
const (
	spansBefore = 2
	spansAfter  = 4
)

// headOf returns the first nine digits of the integers of the window at start, or "" if that
// doesn't begin at a whole minute since 2026.
func headOf(start int64) string {
	if start < 0 || start%minute != 0 {
		return ""
	}
	return fmt.Sprintf("1%08d", start/minute)
}

const minute = 60_000_000 // in microseconds
