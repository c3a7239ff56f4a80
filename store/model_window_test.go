package store_test

import (
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/store"
)

// windows tells one window from the next, from a key's first charge or on the
// calendar.
type windows struct {
	calendar bool
	at       func(store.Now) int64
	start    func(at int64) int64    // of a window opened at that instant
	end      func(start int64) int64 // of the window that starts there
	longest  int64                   // at least the length of each
}

func windowsOf(r rule) windows {
	if r.bounds == nil {
		p := r.limit.Spec().Period.Microseconds()
		return windows{
			at:    func(now store.Now) int64 { return now.Steady },
			start: func(at int64) int64 { return at },
			end:   func(start int64) int64 { return start + p },

			longest: p,
		}
	}
	return windows{
		calendar: true,
		at:       func(now store.Now) int64 { return now.Wall },
		start:    func(at int64) int64 { s, _ := r.bounds(at); return s },
		end:      func(start int64) int64 { _, e := r.bounds(start); return e },
		longest:  longestWindow(r.window),
	}
}

// longestWindow returns how long a window with a name of drawWindow is at most, if its zone changes sides of the
// date line, and in days in which daylight saving time ends.
func longestWindow(name string) int64 {
	kind, of, _ := strings.Cut(name, " ")
	if every, err := time.ParseDuration(of); err == nil {
		return every.Microseconds()
	}
	hours := map[string]time.Duration{"hourly": 2, "daily": 50, "weekly": 9 * 24, "monthly": 33 * 24, "yearly": 368 * 24}
	return (hours[kind] * time.Hour).Microseconds()
}

// every are the bounds of a window of length d aligned to the Unix epoch.
func every(d time.Duration) func(int64) (int64, int64) {
	p := d.Microseconds()
	return func(wall int64) (int64, int64) {
		unix := wall + store.Epoch*1_000_000
		start := floorTo(unix, p) - store.Epoch*1_000_000
		return start, start + p
	}
}

// sameLabel are the bounds of the stretch of time around an instant in which
// the calendar shows the same label. It walks in strides, then in quarters of
// an hour: clocks in use change at no other times.
func sameLabel(loc *time.Location, stride time.Duration, label func(time.Time) [4]int) func(int64) (int64, int64) {
	const quarter = 15 * 60 * 1_000_000
	long := stride.Microseconds()
	of := func(wall int64) [4]int {
		return label(time.Unix(store.Epoch, 0).Add(micros(wall)).In(loc))
	}
	var start, end int64 // of the last answer
	return func(wall int64) (int64, int64) {
		if start <= wall && wall < end {
			return start, end
		}
		here := of(wall)
		start = floorTo(wall, quarter)
		end = start + quarter
		for _, step := range []int64{long, quarter} {
			for of(start-step) == here {
				start -= step
			}
			for of(end-quarter+step) == here {
				end += step
			}
		}
		return start, end
	}
}

func hourLabel(t time.Time) [4]int {
	_, offset := t.Zone() // the hour that comes twice is two hours
	return [4]int{t.YearDay(), t.Hour(), offset}
}

func dayLabel(t time.Time) [4]int { return [4]int{t.Year(), t.YearDay()} }

func weekLabel(t time.Time) [4]int {
	year, week := t.ISOWeek()
	return [4]int{year, week}
}

func monthLabel(t time.Time) [4]int { return [4]int{t.Year(), int(t.Month())} }

// fixedModel counts in windows that follow on one another for as long as
// anything is counted or reserved; after that the next charge opens a new one.
// Reserved windows fill up in order: what a charge that goes into the next one
// leaves free behind it stays free.
type fixedModel struct {
	n int64
	windows

	spans []span
}

type span struct{ start, end, count int64 }

// flow forgets what has ended.
func (m *fixedModel) flow(now store.Now) {
	for len(m.spans) > 0 && m.spans[0].end <= m.at(now) {
		m.spans = m.spans[1:]
	}
}

func (m *fixedModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	m.flow(now)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.n {
		return verdict{retry: store.Never}
	}
	if len(m.spans) == 0 || m.spans[0].count+cost <= m.n {
		return verdict{ok: true}
	}
	turn := m.turn(cost) - m.at(now)
	if wait := maxWait.Microseconds(); turn > wait {
		return verdict{retry: micros(turn - wait)}
	}
	return verdict{ok: true, delay: micros(turn)}
}

// turn is the start of the later window that takes a cost the first has no
// room for: the last one in use, else the one after it.
func (m *fixedModel) turn(cost int64) int64 {
	last := m.spans[len(m.spans)-1]
	if len(m.spans) > 1 && last.count+cost <= m.n {
		return last.start
	}
	return last.end
}

func (m *fixedModel) charge(now store.Now, cost int64, delay time.Duration) ticket {
	m.flow(now)
	at := m.at(now) + delay.Microseconds()
	for i := range m.spans {
		if w := &m.spans[i]; w.start <= at && at < w.end {
			w.count += cost
			return ticket{cost: cost, at: w.start, holds: cost}
		}
	}
	start := m.start(at)
	if i := len(m.spans) - 1; i > 0 {
		m.spans[i].count = m.n // passed over
	}
	m.spans = append(m.spans, span{start, m.end(start), cost})
	return ticket{cost: cost, at: start, holds: cost}
}

func (m *fixedModel) settle(now store.Now, t ticket, cost int64) ticket {
	m.flow(now)
	if cost > t.cost { // counts where it becomes known
		if len(m.spans) == 0 {
			start := m.start(m.at(now))
			m.spans = []span{{start, m.end(start), 0}}
		}
		w := &m.spans[0]
		debt := min(cost-t.cost, store.MaxCost-w.count)
		w.count += debt
		if t.at != w.start { // what was charged elsewhere stays charged
			t.at, t.holds = w.start, 0
		}
		return ticket{cost: t.cost + debt, at: t.at, holds: t.holds + debt}
	}
	back := min(t.cost-cost, t.holds)
	for i := range m.spans {
		// Out of the middle of the reserved windows nothing is taken: it
		// would be filled from behind.
		if w := &m.spans[i]; w.start == t.at && (i == 0 || i == len(m.spans)-1) {
			w.count -= back
			t.holds -= back
		}
	}
	for i := len(m.spans) - 1; i >= 0 && m.spans[i].count == 0; i-- {
		m.spans = m.spans[:i]
	}
	return ticket{cost: cost, at: t.at, holds: t.holds}
}

func (m *fixedModel) left(now store.Now, _ time.Duration) (int64, time.Duration, time.Duration) {
	m.flow(now)
	if len(m.spans) == 0 {
		return m.n, 0, 0
	}
	last := m.spans[len(m.spans)-1]
	left := max(0, m.n-m.spans[0].count)
	var more time.Duration
	if left < m.n {
		more = micros(m.turn(left+1) - m.at(now))
	}
	return left, more, micros(last.end - m.at(now))
}

// slidingModel remembers every charge until it leaves the window: after a
// Period in a log, and when its bucket is Buckets old in a window of buckets.
type slidingModel struct {
	n      int64
	tick   int64
	leaves func(at int64) int64 // the first tick at which a charge at at is out

	charges []charged
	ids     int64
}

type charged struct{ at, out, cost, id int64 }

// bucketTick is the tick in which the buckets of a sliding window begin.
func bucketTick(s store.Spec) int64 {
	tick, exact := tickOf(s.Period, s.Buckets, 2*s.Buckets, func(tick, _ int64) bool {
		return s.Period.Microseconds()/tick >= s.Buckets
	})
	if !exact {
		panic("buckets that aren't exact")
	}
	return tick
}

func newSlidingModel(s store.Spec) *slidingModel {
	k, p := s.Buckets, s.Period.Microseconds()
	tick := bucketTick(s)
	return &slidingModel{n: s.Units, tick: tick, leaves: func(at int64) int64 {
		bucket := floor(times(rat(floorTo(at, tick)), over(rat(k), rat(p))))
		return ceilTo(times(rat(bucket+k), over(rat(p), rat(k))), tick)
	}}
}

// counted is the number of units in the window at an instant, turns to come included.
func (m *slidingModel) counted(at int64) (sum int64) {
	for _, c := range m.charges {
		if c.out > at {
			sum += c.cost
		}
	}
	return sum
}

func (m *slidingModel) look(now store.Now, cost int64, maxWait time.Duration) verdict {
	at := floorTo(now.Steady, m.tick)
	if cost == 0 {
		return verdict{ok: true}
	}
	if cost > m.n {
		return verdict{retry: store.Never}
	}
	turn := at
	if m.counted(at)+cost > m.n {
		turn = 1 << 62
		for _, c := range m.charges {
			if c.out > at && m.counted(c.out)+cost <= m.n {
				turn = min(turn, c.out)
			}
		}
	}
	wait := floorTo(maxWait.Microseconds(), m.tick)
	if turn-at > wait {
		return verdict{retry: micros(turn - at - wait)}
	}
	return verdict{ok: true, delay: micros(turn - at)}
}

func (m *slidingModel) charge(now store.Now, cost int64, delay time.Duration) ticket {
	return m.enter(floorTo(now.Steady, m.tick)+delay.Microseconds(), cost)
}

// enter remembers a charge as of at, but not before one that is still to come:
// the list stays in order.
func (m *slidingModel) enter(at, cost int64) ticket {
	if n := len(m.charges); n > 0 {
		at = max(at, m.charges[n-1].at)
	}
	m.ids++
	m.charges = append(m.charges, charged{at, m.leaves(at), cost, m.ids})
	return ticket{cost: cost, at: m.ids}
}

func (m *slidingModel) settle(now store.Now, t ticket, cost int64) ticket {
	own := slices.IndexFunc(m.charges, func(c charged) bool { return c.id == t.at && c.out > now.Steady })
	if cost > t.cost { // counts as if it had from the start, up to what is counted at all
		debt := min(cost-t.cost, max(0, store.MaxCost-m.counted(now.Steady)))
		switch {
		case debt == 0:
		case own >= 0:
			m.charges[own].cost += debt
		default: // from when it becomes known
			t.at = m.enter(now.Steady, debt).at
		}
		return ticket{cost: t.cost + debt, at: t.at}
	}
	if own >= 0 {
		c := &m.charges[own]
		if c.cost -= min(c.cost, t.cost-cost); c.cost == 0 {
			m.charges = slices.Delete(m.charges, own, own+1)
		}
	}
	return ticket{cost: cost, at: t.at}
}

// more is when more is left than now.
func (m *slidingModel) more(at int64) int64 {
	left, first := max(0, m.n-m.counted(at)), int64(1<<62)
	for _, c := range m.charges {
		if c.out > at && m.n-m.counted(c.out) > left {
			first = min(first, c.out)
		}
	}
	return pick(first == 1<<62, at, first)
}

func (m *slidingModel) left(now store.Now, _ time.Duration) (int64, time.Duration, time.Duration) {
	at := floorTo(now.Steady, m.tick)
	out := at
	for _, c := range m.charges {
		out = max(out, c.out)
	}
	return max(0, m.n-m.counted(at)), micros(m.more(at) - at), micros(out - at)
}
