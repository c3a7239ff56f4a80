package redisstore

import (
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

	fixed string // all of it, but the calendar's bounds
	zoned bool   // it ends in those

	always any // fixed, if that is the whole text always

	// The letter by which the script knows charges that go the short way, and
	// the arguments that don't change; 0 if no charge does.
	letter byte
	short  [4]any

	calendar atomic.Pointer[calendar] // what was told last
}

// calendar is what the script is told of the windows around one of them.
type calendar struct {
	start, end int64 // of the one
	text       any   // the record
	short      [4]any
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
	units := strconv.FormatInt(s.Units, 10)
	aligned := int64(0)
	if length, ok := s.Window.Fixed(); ok {
		t.Period, aligned = length, 1
	}
	r.zoned = aligned == 0 && s.Window != store.Window{}
	switch s.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		tag := tagOf(t)
		r.set = lua.TokenBucket
		r.fixed = join("b", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit,
			t.Capacity, t.Queue, t.Largest, boolean(s.Debt), t.Longest) + "," + orDash(tag)
		if tag != "" && t.Queue == 0 && !s.Debt {
			r.letter = 'b'
			// Twice the time to full: the script sets it anew once that much has
			// been charged, so it is never shorter than the time to full.
			lifetime := strconv.FormatInt(2*t.Capacity/1000+2, 10)
			r.short = [4]any{strconv.FormatInt(t.Capacity, 10), tag, lifetime, strconv.FormatInt(t.Token, 10)}
		}
	case store.IntervalBucket:
		r.set = lua.IntervalBucket
		r.fixed = join("i", s.Units, t.Period, t.Numbers.Unit, s.Burst, aligned)
	case store.FixedWindow:
		r.set = lua.FixedWindow
		r.fixed = join("f", s.Units, t.Period, aligned)
		if r.letter = 'p'; s.Window != (store.Window{}) {
			r.letter = 'w'
		}
		r.short = [4]any{units, strconv.FormatInt(t.Period, 10), "", ""}
	case store.SlidingWindow:
		r.set = lua.SlidingWindow
		r.fixed = join("s", s.Units, t.Period, t.Token, t.Scale.PerTick, tick(t.Scale), s.Buckets)
	case store.SlidingLog:
		r.set = lua.SlidingLog
		r.fixed = join("g", s.Units, t.Period)
	case store.WarmUp:
		r.set = lua.WarmUp
		r.fixed = join("w", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit, t.Warm, t.Largest, t.Longest)
	case store.Ban:
		r.set, r.letter = lua.Ban, 'n'
		r.fixed = join("n", s.Units, t.Period, s.Ban.Microseconds())
		r.short = [4]any{"", "", "", ""}
	case store.Concurrency:
		r.set = lua.Concurrency
		r.fixed = join("c", s.Units)
		r.letter = 'c'
		r.short = [4]any{units, "", "", ""}
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
		return r.fixed + ",0"
	}
	if t.many {
		return r.bounds(r.spec.Window.Around(t.wall, boundsMany, boundsMany))
	}
	return r.around(t.wall).text
}

// around returns what the script is told of the windows around wall, which is the
// same for as long as one of them lasts: to work a time zone out takes as long as
// the rest of a call.
func (r *record) around(wall int64) *calendar {
	if c := r.calendar.Load(); c != nil && c.start <= wall && wall < c.end {
		return c
	}
	bounds := r.spec.Window.Around(wall, boundsBefore, boundsAfter)
	near := bounds[boundsBefore:]
	c := &calendar{start: near[0], end: near[1], text: any(r.fixed + ",0"), short: [4]any{r.short[0]}}
	for i := range 3 {
		c.short[i+1] = strconv.FormatInt(near[i], 10)
	}
	if r.zoned {
		c.text = r.bounds(bounds)
	}
	r.calendar.Store(c)
	return c
}

func (r *record) bounds(bounds []int64) string {
	var b strings.Builder
	b.WriteString(r.fixed)
	b.WriteString("," + strconv.Itoa(len(bounds)))
	for _, at := range bounds {
		b.WriteString("," + strconv.FormatInt(at, 10))
	}
	return b.String()
}

// How many windows of the calendar a script is told of, before the present one
// and after. It says so if it needs others, and is told of many: as far as
// anything may be reserved in days.
const (
	boundsBefore = 2
	boundsAfter  = 4
	boundsMany   = 400
)

// goesShort reports whether the charge can go the short way through the script.
func (r *record) goesShort(c *store.Charge) bool {
	if r.letter == 0 || c.Cost <= 0 || c.DryRun {
		return false
	}
	switch r.letter {
	case 'n':
		return true
	case 'b':
		return c.Cost <= r.terms.Largest && c.MaxWait <= 0
	case 'c':
		return c.Cost == 1
	}
	return c.MaxWait <= 0
}

// shortArgs are the four arguments of a charge that goes the short way.
func (r *record) shortArgs(c *store.Charge, t *told) [4]any {
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
