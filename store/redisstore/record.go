package redisstore

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// record is a limit as the scripts read it.
type record struct {
	*algorithm
	terms engine.Terms
	spec  store.Spec
	args  []any // of a charge of one

	calendar atomic.Pointer[calendar] // sent last
}

// calendar holds a script's arguments about the windows around one of them.
type calendar struct {
	start, end int64 // of the one
	limit      any
	bounds     [3]any
	head       any // of the one (headOf)
}

// recordOf returns the limit's record. At most a few thousand are kept, because a
// program may make new limits all the time.
func recordOf(l *store.Limit) *record {
	if r, ok := records.Load(l); ok {
		return r.(*record)
	}
	if recorded.Add(1) > mostRecords {
		records.Clear()
		recorded.Store(1)
	}
	r, _ := records.LoadOrStore(l, newRecord(l))
	return r.(*record)
}

const mostRecords = 4096

var (
	records  sync.Map // *store.Limit to *record
	recorded atomic.Int64
)

func newRecord(l *store.Limit) *record {
	r := &record{algorithm: &algorithms[l.Algorithm()], terms: l.Engine(engine.Access{}).Terms(), spec: l.Spec()}
	r.args = r.arguments(r)
	return r
}

// zoned reports whether the limit's windows are those of a calendar that a script
// doesn't know.
func (r *record) zoned() bool {
	_, fixed := r.spec.Window.Engine(engine.Access{}).Fixed()
	return r.spec.Window != (store.Window{}) && !fixed
}

// window returns a script's arguments about a limit's windows that don't begin with a charge,
// and where the present one and the next two begin.
func (r *record) window(t *timeArgs) (limit any, bounds *[3]any) {
	near := r.around(t.wall)
	if !r.zoned() || len(t.asked) == 0 {
		return near.limit, &near.bounds
	}
	spans := r.spec.Window.Engine(engine.Access{}).Around(t.wall, spansBefore, spansAfter)
	for _, at := range t.asked {
		spans = append(spans, r.spec.Window.Engine(engine.Access{}).Around(at, 1, 1)...)
	}
	return r.spans(spans), &near.bounds
}

// around returns a script's arguments about the windows around wall. It is the same as
// long as one of them lasts, and is cached, because computing a time zone takes as long
// as the rest of a call.
func (r *record) around(wall int64) *calendar {
	if c := r.calendar.Load(); c != nil && c.start <= wall && wall < c.end {
		return c
	}
	spans := r.spec.Window.Engine(engine.Access{}).Around(wall, spansBefore, spansAfter)
	near := spans[spansBefore:]
	c := &calendar{start: near[0].Start, end: near[0].End, head: headOf(near[0].Start)}
	for i := range c.bounds {
		c.bounds[i] = strconv.FormatInt(near[i].Start, 10)
	}
	if length, fixed := r.spec.Window.Engine(engine.Access{}).Fixed(); fixed {
		c.limit = strconv.FormatInt(length, 10) + ",1"
	} else {
		c.limit = r.spans(spans)
	}
	r.calendar.Store(c)
	return c
}

// spans encodes windows of the calendar as window.lua reads them.
func (r *record) spans(spans []engine.Span) string {
	slices.SortFunc(spans, func(a, b engine.Span) int { return cmp.Compare(a.Start, b.Start) })
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
	return strconv.FormatInt(r.spec.Window.Engine(engine.Access{}).Nominal(), 10) + ",2," + strconv.Itoa(pairs) + string(b)
}

// The number of windows of the calendar that a script gets, before and after the present
// one. It asks if it needs others.
const (
	spansBefore = 2
	spansAfter  = 4
)

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
