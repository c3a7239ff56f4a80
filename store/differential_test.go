package store_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// TestStepsEqualModels runs random traces of random limits through the steps
// and the models. STINT_LONG=1 runs many more of them, STINT_SEED=n only one.
func TestStepsEqualModels(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			for n := range traces(t, 1500) {
				runTrace(t, seed(n), n, a)
			}
		})
	}
}

// TestSeveralLimitsEqualModels decides several limits at once.
func TestSeveralLimitsEqualModels(t *testing.T) {
	t.Parallel()
	for n := range traces(t, 3000) {
		d := seed(n)
		as := make([]store.Algorithm, 2+d.roll(3))
		for i := range as {
			as[i] = oneOf(d, algorithms...)
		}
		runTrace(t, d, n, as...)
	}
}

// algorithms are those that have a model, and rates those whose units come back by time.
var (
	algorithms = without(versionstest.Algorithms(), store.Ban)
	rates      = without(algorithms, store.Concurrency)
)

func without(all []store.Algorithm, one store.Algorithm) []store.Algorithm {
	return slices.DeleteFunc(slices.Clone(all), func(a store.Algorithm) bool { return a == one })
}

// traces yields the seeds to run.
func traces(t *testing.T, n uint64) func(func(uint64) bool) {
	from, long := uint64(0), n*50
	n /= 8
	if s := os.Getenv("STINT_SEED"); s != "" {
		var err error
		if from, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		n = 1
	} else if os.Getenv("STINT_LONG") != "" {
		n = long
	}
	return func(yield func(uint64) bool) {
		for i := range n {
			if !yield(from + i) {
				return
			}
		}
	}
}

// anyNumber is a number up to most, of any length.
func anyNumber(d dice, most int64) int64 { return 1 + d.roll(most)>>d.roll(44) }

const years = 365 * 24 * int64(time.Hour/time.Microsecond)

// runTrace draws limits and a trace and runs it.
func runTrace(t *testing.T, d dice, seed uint64, as ...store.Algorithm) {
	t.Helper()
	rules := make([]rule, len(as))
	for i, a := range as {
		rules[i] = drawRule(d, a)
	}
	start := oneOf(d, 0, 0, 1, d.roll(1_000_000), d.roll(5*years), -d.roll(26*years))
	wall := oneOf(d, 0, d.roll(years), d.roll(20*years), -26*years)
	b := newBench(rules, start, wall)
	var ops []op
	for id := range int(4 + d.roll(60)) {
		if d.done() || b.now.Steady > 15*years {
			break
		}
		o := drawOp(d, b, id)
		ops = append(ops, o)
		if err := b.run(o); err != nil {
			t.Logf("seed %d", seed)
			report(t, rules, start, wall, ops, err)
		}
	}
}

// drawRule draws a limit that can be made.
func drawRule(d dice, a store.Algorithm) rule {
	for range 100 {
		s := store.Spec{Name: "limit", Algorithm: a}
		s.Units = oneOf(d, 1, 1, 2, 3, 5, 7, 10, 60, 100, 365, 999, 1000, 7000, 1_000_000, 1+d.roll(20), 1+d.roll(2000), 1+d.roll(store.MaxCost))
		s.Period = oneOf(d, time.Second, time.Second, time.Minute, time.Hour, 24*time.Hour, 100*time.Millisecond,
			7*time.Second, time.Microsecond, 13*time.Microsecond, 7*24*time.Hour, 365*24*time.Hour, 730*24*time.Hour,
			micros(1+d.roll(10_000_000)), micros(1+d.roll(2*years)), time.Duration(1+d.roll(5000))*100*time.Millisecond)
		// Where the models count time: those of other algorithms walk through windows.
		anything := d.roll(4) == 0 && (a == store.TokenBucket || a == store.LeakyBucket || a == store.WarmUp)
		if anything {
			s.Units, s.Period = anyNumber(d, store.MaxCost), micros(anyNumber(d, 2*years))
		}
		size := func() int64 {
			if anything {
				return anyNumber(d, store.MaxCost)
			}
			return oneOf(d, 1, 2, 3, 5, 10, s.Units, 2*s.Units, 1+d.roll(30), 1+d.roll(5000))
		}
		var w drawn
		switch a {
		case store.TokenBucket:
			s.Debt = d.roll(4) == 0
			s.Burst = oneOf(d, 0, size())
			s.Queue = oneOf(d, 0, 0, store.None, size())
			if s.Debt && d.roll(3) == 0 {
				s.Burst = store.None
			}
		case store.LeakyBucket:
			s.Burst = oneOf(d, 0, store.None, size())
			s.Queue = oneOf(d, 0, store.None, size())
		case store.IntervalBucket:
			s.Burst = oneOf(d, 0, size())
			w = drawWindow(d)
			if full := s.Burst / s.Units; full > 50*years/s.Period.Microseconds() || w.bounds != nil && full > 100 {
				continue // full again later than a time.Duration can say
			}
		case store.FixedWindow:
			w = drawWindow(d)
		case store.SlidingWindow:
			s.Buckets = oneOf(d, 0, 1, 2, 3, 7, 10, 60, 1+d.roll(100))
		case store.WarmUp:
			s.WarmUp = oneOf(d, s.Period, 4*s.Period, s.Period/2, 10*time.Second, time.Minute, micros(1+d.roll(10_000_000)), micros(anyNumber(d, 2*years)))
		case store.Concurrency:
			s.Period = 0
		case store.SlidingCounter, store.SlidingLog:
		default:
			panic("no numbers of " + a.String())
		}
		if w.bounds != nil {
			s.Period, s.Window = 0, w.window
		}
		l, err := store.NewLimit(s)
		if err == nil {
			return rule{limit: l, bounds: w.bounds, window: w.name}
		}
	}
	l, err := store.NewLimit(store.Spec{Name: "limit", Algorithm: a, Units: 3, Period: time.Second, WarmUp: pick(a == store.WarmUp, time.Second, 0)})
	if err != nil {
		l, _ = store.NewLimit(store.Spec{Name: "limit", Algorithm: a, Units: 3})
	}
	return rule{limit: l}
}

type drawn struct {
	window store.Window
	name   string
	bounds func(int64) (int64, int64)
}

var zones = []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Cairo", "Pacific/Apia"}

func drawWindow(d dice) drawn {
	if d.roll(2) == 0 {
		return drawn{}
	}
	if d.roll(3) == 0 {
		p := oneOf(d, time.Second, time.Minute, 5*time.Minute, time.Hour, 7*time.Microsecond, micros(1+d.roll(100_000_000)))
		return drawn{store.Every(p), "every " + p.String(), every(p)}
	}
	zone := oneOf(d, zones...)
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	if d.roll(3) == 0 {
		return drawFrom(d, loc)
	}
	switch d.roll(4) {
	case 0:
		return drawn{store.Hourly.In(loc), "hourly " + zone, sameLabel(loc, 15*time.Minute, hourLabel)}
	case 1:
		return drawn{store.Daily.In(loc), "daily " + zone, sameLabel(loc, time.Hour, dayLabel)}
	case 2:
		return drawn{store.Weekly.In(loc), "weekly " + zone, sameLabel(loc, 12*time.Hour, weekLabel)}
	default:
		return drawn{store.Monthly.In(loc), "monthly " + zone, sameLabel(loc, 24*time.Hour, monthLabel)}
	}
}

// drawFrom draws windows that begin at a quarter of an hour in the daytime, when no clocks change.
func drawFrom(d dice, loc *time.Location) drawn {
	day := oneOf(d, 1, 28, 29, 30, 31, 1+int(d.roll(31)))
	from := time.Date(2024, time.January, day, 9+int(d.roll(12)), 15*int(d.roll(4)), 0, 0, loc)
	since := func(begin func(shown time.Time) time.Time) func(time.Time) [4]int {
		return func(t time.Time) [4]int { // of the latest beginning that clocks have shown
			shown := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
			b := begin(shown)
			return [4]int{b.Year(), b.YearDay()}
		}
	}
	at := func(year int, month time.Month, day int) time.Time {
		last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return time.Date(year, month, min(day, last), from.Hour(), from.Minute(), 0, 0, time.UTC)
	}
	var window store.Window
	var begin func(shown time.Time) time.Time
	switch d.roll(4) {
	case 0:
		window, begin = store.Daily, func(t time.Time) time.Time {
			b := at(t.Year(), t.Month(), t.Day())
			return b.AddDate(0, 0, -pick(b.After(t), 1, 0))
		}
	case 1:
		window, begin = store.Weekly, func(t time.Time) time.Time {
			b := at(t.Year(), t.Month(), t.Day())
			b = b.AddDate(0, 0, -(int(b.Weekday()-from.Weekday())+7)%7)
			return b.AddDate(0, 0, -pick(b.After(t), 7, 0))
		}
	case 2:
		window, begin = store.Monthly, func(t time.Time) time.Time {
			b := at(t.Year(), t.Month(), day)
			if b.After(t) {
				b = at(t.Year(), t.Month()-1, day)
			}
			return b
		}
	default:
		window, begin = store.Yearly, func(t time.Time) time.Time {
			b := at(t.Year(), time.January, day)
			return b.AddDate(-pick(b.After(t), 1, 0), 0, 0)
		}
	}
	window = window.In(loc).From(from)
	return drawn{window, window.String(), sameLabel(loc, 24*time.Hour, since(begin))}
}

// drawOp draws what happens next, mostly where something changes.
func drawOp(d dice, b *bench, id int) op {
	o := op{id: id, forget: d.roll(3) == 0}
	i := int(d.roll(int64(len(b.rules))))
	last, s := b.last[i], b.rules[i].limit.Spec()
	period := s.Period.Microseconds()
	if b.rules[i].bounds != nil {
		start, end := b.rules[i].bounds(b.wall + b.now.Steady)
		period = end - start
	}
	period = max(period, 1)
	tick := max(1, b.tick(i))
	us := func(d time.Duration) int64 {
		if d == store.Never {
			return 0
		}
		return d.Microseconds()
	}
	o.step = oneOf(d, 0, 0, 0, 1, tick, d.roll(period), d.roll(period/max(s.Units, 1)+2), period, period-tick, period+tick,
		us(last.RetryAfter), us(last.RetryAfter), us(last.RetryAfter)-tick,
		us(last.ResetAfter), us(last.ResetAfter)-tick, us(last.ResetAfter)+1, us(last.Delay), us(last.Delay)+tick, us(last.Delay)-1,
		d.roll(20)*period, d.roll(years/10))
	o.step = max(0, min(o.step, 2*years))
	if settles(s.Algorithm) && len(b.made) > 0 && d.roll(4) == 0 {
		if made := b.open(i); len(made) > 0 {
			key := oneOf(d, made...)
			c := b.made[key].cost
			o.settle = &opSettle{key[0], key[1], oneOf(d, 0, 0, d.roll(c+1), c, c+d.roll(3))}
			if s.Algorithm == store.Concurrency {
				o.settle.cost = 0
			}
			return o
		}
	}
	for j := range b.rules {
		if j != i && d.roll(3) == 0 {
			continue
		}
		o.charges = append(o.charges, drawCharge(d, b, j, period, tick))
	}
	return o
}

func drawCharge(d dice, b *bench, i int, period, tick int64) opCharge {
	last, s := b.last[i], b.rules[i].limit.Spec()
	all := max(s.Burst, 0) + max(s.Queue, 0)
	if all == 0 {
		all = s.Units
	}
	c := opCharge{limit: i}
	c.cost = oneOf(d, 0, 1, 1, 1, 1, 2, 3, last.Remaining, last.Remaining+1, max(s.Burst, 1), max(s.Burst, 1)+d.roll(3),
		all+d.roll(3), s.Units, s.Units+1, d.roll(all+3), d.roll(all/3+2))
	c.cost = min(c.cost, store.MaxCost)
	if s.Debt || s.Algorithm == store.WarmUp {
		c.cost = min(c.cost, all+2, 1<<20)
	}
	if d.roll(3) == 0 {
		retry := last.RetryAfter
		if retry == store.Never {
			retry = 0
		}
		wait := oneOf(d, 1, time.Microsecond, micros(tick), micros(tick-1), retry, retry-1, retry-micros(tick),
			micros(d.roll(period)), micros(3*period), micros(d.roll(period/max(s.Units, 1)+2)))
		c.maxWait = max(0, min(wait, 365*24*time.Hour))
	}
	c.dry = d.roll(12) == 0
	return c
}

// settles tells which models know what settling does to the integer.
func settles(a store.Algorithm) bool {
	switch a {
	case store.WarmUp:
		return false
	}
	return true
}
