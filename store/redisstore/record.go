package redisstore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/lua"
	"github.com/stint-go/stint/store"
)

// record is a limit as the scripts read it.
type record struct {
	set   lua.Set
	terms store.Terms
	spec  store.Spec

	fixed string // all of it, but the calendar's windows
	zoned bool   // it ends in those

	always any // fixed, if that is the whole text always

	// The letter by which the script knows charges that go the short way, and
	// the arguments that don't change; 0 if no charge does.
	letter byte
	short  [5]any

	calendar atomic.Pointer[calendar] // what was told last
}

// calendar is what the script is told of the windows around one of them.
type calendar struct {
	start, end int64 // of the one
	text       any   // the record
	short      [5]any
}

// recordOf returns the limit's record. They are kept, but no more than a few
// thousand: a program may make limits up all the time.
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
	r := &record{terms: l.Terms(), spec: l.Spec()}
	t, s := &r.terms, &r.spec
	units, unit := strconv.FormatInt(s.Units, 10), strconv.FormatInt(t.Numbers.Unit, 10)
	period, kind := t.Period, int64(0)
	if length, ok := s.Window.Fixed(); ok {
		period, kind = length, 1
	} else if s.Window != (store.Window{}) {
		period, kind, r.zoned = s.Window.Nominal(), 2, true
	}
	switch s.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		tag := tagOf(t)
		r.set = lua.TokenBucket
		r.fixed = join("b", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit,
			t.Capacity, t.Queue, t.Largest, boolean(s.Debt), t.Longest) + "," + orDash(tag) + "," + gridOf(t)
		if tag != "" && t.Queue == 0 && !s.Debt {
			r.letter = 'b'
			grid := gridOf(t)
			us, _ := strconv.ParseInt(grid, 10, 64)
			lifetime := strconv.FormatInt((t.Capacity+us)/1000+2, 10)
			r.short = [5]any{strconv.FormatInt(t.Capacity, 10), tag, lifetime, strconv.FormatInt(t.Token, 10), grid}
		}
	case store.IntervalBucket:
		r.set = lua.IntervalBucket
		r.fixed = join("i", s.Units, t.Numbers.Unit, s.Burst, period, kind)
	case store.FixedWindow:
		r.set = lua.FixedWindow
		r.fixed = join("f", s.Units, t.Numbers.Unit, period, kind)
		if r.letter = 'p'; s.Window != (store.Window{}) {
			r.letter = 'w'
		}
		r.short = [5]any{units, strconv.FormatInt(t.Period, 10), "", "", unit}
	case store.SlidingWindow:
		r.set = lua.SlidingWindow
		r.fixed = join("s", s.Units) + "," + brief(t.Numbers.Token) + "," + unit
	case store.SlidingLog:
		r.set = lua.SlidingLog
		r.fixed = join("g", s.Units) + "," + brief(t.Numbers.Token) + "," + unit
	case store.WarmUp:
		r.set = lua.WarmUp
		r.fixed = join("w", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit, t.Warm, t.Largest, t.Longest)
	case store.Ban:
		r.set, r.letter = lua.Ban, 'n'
		r.fixed = join("n", s.Units, t.Period, s.Ban.Microseconds())
		r.short = [5]any{"", "", "", "", ""}
	case store.Concurrency:
		r.set = lua.Concurrency
		r.fixed = join("c", s.Units)
		r.letter = 'c'
		r.short = [5]any{units, "", "", "", ""}
	}
	if r.set&(lua.FixedWindow|lua.IntervalBucket|lua.Concurrency) == 0 {
		r.always = r.fixed
	}
	return r
}

// text is the record, as the scripts read it.
func (r *record) text(t *told) any {
	switch {
	case r.always != nil:
		return r.always
	case r.spec.Algorithm == store.Concurrency:
		return r.fixed + "," + strconv.FormatInt(t.lease, 10)
	case !r.zoned:
		return r.fixed
	}
	near := r.around(t.wall)
	if len(t.asked) == 0 {
		return near.text
	}
	spans := r.spec.Window.Around(t.wall, spansBefore, spansAfter)
	for _, at := range t.asked {
		spans = append(spans, r.spec.Window.Around(at, 1, 1)...)
	}
	return r.windows(spans)
}

// around returns what the script is told of the windows around wall, which is the
// same for as long as one of them lasts: to work a time zone out takes as long as
// the rest of a call.
func (r *record) around(wall int64) *calendar {
	if c := r.calendar.Load(); c != nil && c.start <= wall && wall < c.end {
		return c
	}
	spans := r.spec.Window.Around(wall, spansBefore, spansAfter)
	near := spans[spansBefore:]
	c := &calendar{start: near[0].Start, end: near[0].End, text: any(r.fixed), short: r.short}
	for i := range 3 {
		c.short[i+1] = strconv.FormatInt(near[i].Start, 10)
	}
	if r.zoned {
		c.text = r.windows(spans)
	}
	r.calendar.Store(c)
	return c
}

// windows is the record with windows of the calendar.
func (r *record) windows(spans []store.Span) string {
	slices.SortFunc(spans, func(a, b store.Span) int { return cmp.Compare(a.Start, b.Start) })
	spans = slices.Compact(spans)
	var b []byte
	pairs := 0
	for i, s := range spans {
		b = strconv.AppendInt(append(b, ','), s.Number, 10)
		b = strconv.AppendInt(append(b, ','), s.Start, 10)
		pairs++
		if i == len(spans)-1 || spans[i+1].Start != s.End { // what comes then is not told
			b = strconv.AppendInt(append(b, ",-,"...), s.End, 10)
			pairs++
		}
	}
	return r.fixed + "," + strconv.Itoa(pairs) + string(b)
}

// How many windows of the calendar a script is told of, before the present one
// and after. It asks if it needs others.
const (
	spansBefore = 2
	spansAfter  = 4
)

// goesShort reports whether the charge can go the short way through the script.
func (r *record) goesShort(c *store.Charge) bool {
	if r.letter == 0 || c.Cost <= 0 || c.DryRun {
		return false
	}
	switch r.letter {
	case 'n':
		return true
	case 'c':
		return c.Cost == 1
	}
	return c.Cost <= r.terms.Largest && c.MaxWait <= 0
}

// shortArgs are the five arguments of a charge that goes the short way.
func (r *record) shortArgs(c *store.Charge, t *told) [5]any {
	args := r.short
	switch r.letter {
	case 'b':
		if c.Cost > 1 {
			args[3] = strconv.FormatInt(c.Cost*r.terms.Token, 10)
		}
	case 'c':
		args[1] = strconv.FormatInt(t.lease, 10)
		args[2] = strconv.FormatInt(2*(t.lease/1000+1), 10)
	case 'w':
		return r.around(t.wall).short
	}
	return args
}

// tagOf is the four digits that name a rate before the instant that is its whole
// state, or nothing: see tokenbucket.lua. Both have to stay below 2^63.
func tagOf(t *store.Terms) string {
	const twoYears = 2 * 366 * 24 * 3600 * 1_000_000
	if t.Scale != (store.Scale{PerTick: 1}) || t.Capacity > twoYears {
		return ""
	}
	m, k := t.Token, 0
	for m%10 == 0 && k < 8 {
		m /= 10
		k++
	}
	for m < 100 && k > 0 {
		m *= 10
		k--
	}
	if m > 999 || k == 8 && m > 222 {
		return ""
	}
	return strconv.FormatInt(int64(k+1)*1000+m, 10)
}

// gridOf is the grid of plain states (tokenbucket.lua), in microseconds: about ten
// tokens, so that one charge in ten renews a lifetime, and ten seconds at the most,
// which is how much longer than it has to a key may live.
func gridOf(t *store.Terms) string {
	us := int64(10_000)
	for us < 10*t.Token && us < 10_000_000 {
		us *= 10
	}
	return strconv.FormatInt(us, 10)
}

// brief is a number as few characters tell it, to whoever reads 6e7 too: it stands
// in each entry of a log.
func brief(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimRight(s, "0")
	if zeros := len(s) - len(digits); zeros > 2 {
		return digits + "e" + strconv.Itoa(zeros)
	}
	return s
}

func tick(s store.Scale) int64 {
	us := int64(1)
	for range s.Exponent {
		us *= 10
	}
	return us
}

func join(letter string, numbers ...int64) string {
	b := []byte(letter)
	for _, n := range numbers {
		b = strconv.AppendInt(append(b, ','), n, 10)
	}
	return string(b)
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
