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

	// A plain token bucket's, as arguments.
	tag                                  string
	capacity, tagged, lifetime, inc, add any
	fast                                 bool
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
	aligned := int64(0)
	if length, ok := s.Window.Fixed(); ok {
		t.Period, aligned = length, 1
	}
	r.zoned = aligned == 0 && s.Window != store.Window{}
	switch s.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		r.set, r.tag = lua.TokenBucket, tagOf(t)
		r.fixed = join("b", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit,
			t.Capacity, t.Queue, t.Largest, boolean(s.Debt), t.Longest) + "," + orDash(r.tag)
		r.fast = r.tag != "" && t.Queue == 0 && !s.Debt
		inc := strconv.FormatInt(t.Token, 10)
		r.inc, r.add, r.tagged = inc, inc+"0000", r.tag
		r.capacity = strconv.FormatInt(t.Capacity, 10)
		// Twice the time to full: the script sets it anew once that much has
		// been charged, so it is never shorter than the time to full.
		r.lifetime = strconv.FormatInt(2*t.Capacity/1000+2, 10)
	case store.IntervalBucket:
		r.set = lua.IntervalBucket
		r.fixed = join("i", s.Units, t.Period, t.Numbers.Unit, s.Burst, aligned)
	case store.FixedWindow:
		r.set = lua.FixedWindow
		r.fixed = join("f", s.Units, t.Period, aligned)
	case store.SlidingWindow:
		r.set = lua.SlidingWindow
		r.fixed = join("s", s.Units, t.Period, t.Token, t.Scale.PerTick, tick(t.Scale), s.Buckets)
	case store.SlidingLog:
		r.set = lua.SlidingLog
		r.fixed = join("g", s.Units, t.Period)
	case store.WarmUp:
		r.set = lua.WarmUp
		r.fixed = join("w", t.Token, t.Scale.PerTick, tick(t.Scale), t.Numbers.Unit, t.Warm, t.Largest, t.Longest)
	case store.Concurrency:
		r.set = lua.Concurrency
		r.fixed = join("c", s.Units)
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
	var b strings.Builder
	b.WriteString(r.fixed)
	before, after := boundsBefore, boundsAfter
	if t.many {
		before, after = boundsMany, boundsMany
	}
	bounds := r.spec.Window.Around(t.wall, before, after)
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

// plain reports whether the charge can go the shortest way.
func (r *record) plain(c *store.Charge) bool {
	return r.fast && c.Cost > 0 && c.Cost <= r.terms.Largest && c.MaxWait <= 0 && !c.DryRun
}

// tagOf is the four digits that stand for a rate behind the instant that is its
// whole state, or nothing: see tokenbucket.lua. The instant has to leave room
// for them below 2^63.
func tagOf(t *store.Terms) string {
	const twoYears = 2 * 366 * 24 * 3600 * 1_000_000
	if t.Scale != (store.Scale{PerTick: 1}) || t.Capacity > twoYears {
		return ""
	}
	m, k := t.Token, 0
	for m%10 == 0 && k < 9 {
		m /= 10
		k++
	}
	if m > 999 {
		return ""
	}
	for m < 100 && k > 0 {
		m *= 10
		k--
	}
	return string([]byte{byte('0' + m/100), byte('0' + m/10%10), byte('0' + m%10), byte('0' + k)})
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
