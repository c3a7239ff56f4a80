// Package versionstest tests that a store keeps its promises while several versions of one
// limit are in use at once, as in a rolling deploy. It draws versions with very different
// numbers, and charges, looks, waits and settlements at irregular instants. It judges the
// answers by its own list of the charges that passed, from which nothing is dropped:
//
//   - No span of time holds more than the rule allows (bounds.go).
//   - A denied cost passes at RetryAfter and not a tick earlier, and more than Remaining units
//     are left at MoreAfter and not a tick earlier, if no other caller comes.
//   - Looks and denials change nothing: a second key, which has neither, gets the same answers.
package versionstest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Kinds returns a limit of each kind, of 9 a day where it has a rate.
func Kinds(t testing.TB) []store.Spec {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	return []store.Spec{
		{Units: 9, Period: 24 * time.Hour},
		{Units: 7, Period: 24 * time.Hour, Queue: 2},
		{Algorithm: store.LeakyBucket, Units: 9, Period: 24 * time.Hour, Burst: 8},
		{Algorithm: store.WarmUp, Units: 9, Period: 24 * time.Hour, WarmUp: time.Hour},
		{Algorithm: store.IntervalBucket, Units: 9, Period: 24 * time.Hour},
		{Algorithm: store.FixedWindow, Units: 9, Period: 24 * time.Hour},
		{Algorithm: store.FixedWindow, Units: 9, Window: store.Monthly.In(zone)},
		{Algorithm: store.SlidingWindow, Units: 9, Period: 24 * time.Hour},
		{Algorithm: store.SlidingLog, Units: 9, Period: 24 * time.Hour},
		{Algorithm: store.SlidingCounter, Units: 9, Period: 24 * time.Hour},
		{Algorithm: store.Concurrency, Units: 9},
		{Algorithm: store.Ban, Units: 2, Period: 24 * time.Hour, Ban: time.Hour},
	}
}

// Bench is where one trace is played. Its store has been used by no other trace.
type Bench struct {
	Store store.Store
	Now   func() int64        // the clock of limits without a calendar, in microseconds
	Sleep func(time.Duration) // advances it by exactly that, which may be years
}

// Seeds returns the first of so many seeds. They are the same in every run, so a test fails
// because of a change and not because of the seeds. There are fewer with -short.
// STINT_LONG=1 draws others, 100 times as many; STINT_SEED=n is one of them.
func Seeds(many uint64) (first, traces uint64) {
	if s, err := strconv.ParseUint(os.Getenv("STINT_SEED"), 10, 64); err == nil {
		return s, 1
	}
	if os.Getenv("STINT_LONG") != "" {
		return rand.Uint64() >> 1, many * 100
	}
	if testing.Short() {
		many = max(many/8, 1)
	}
	return 1, many
}

// Algorithms returns all algorithms of package store.
func Algorithms() (all []store.Algorithm) {
	for a := store.Algorithm(0); !strings.HasPrefix(a.String(), "Algorithm("); a++ {
		all = append(all, a)
	}
	return all
}

// Run plays so many traces of each algorithm but Concurrency, from Seeds. play makes a Bench and passes it
// to trace.
func Run(t *testing.T, traces uint64, play func(t *testing.T, trace func(*testing.T, Bench))) {
	first, traces := Seeds(traces)
	for _, a := range Algorithms() {
		if a == store.Concurrency { // it has no rate
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			passed := 0
			for seed := first; seed < first+traces && !t.Failed(); seed++ {
				play(t, func(t *testing.T, b Bench) {
					p := draw(t, a, dice{rand.New(rand.NewPCG(seed, uint64(a)))}, b)
					defer func() {
						if t.Failed() {
							t.Logf("STINT_SEED=%d: %s", seed, &p.log)
						}
					}()
					p.play()
					passed += len(p.passed) + p.bans
				})
			}
			if !t.Failed() && traces > 1 && passed < int(traces) {
				t.Errorf("%d charges have passed in %d traces", passed, traces)
			}
		})
	}
}

type dice struct{ *rand.Rand }

func (d dice) roll(n int64) int64 { return d.Int64N(n) }

func oneOf[T any](d dice, choices ...T) T { return choices[d.roll(int64(len(choices)))] }

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// request is a charge that a version makes.
type request struct {
	by       int
	at, cost int64
	wait     time.Duration
}

// passed is a request that passed.
type passed struct {
	request
	run int64 // when it may go
	// counts is the lowest cost that the charge has had. A debt passes in no span.
	counts   int64
	receipts [2]store.Receipt // of key and of twin
}

// trace is a random history, and what became of its requests.
type trace struct {
	dice
	Bench
	t       *testing.T
	of      store.Algorithm
	specs   []store.Spec
	limits  []*store.Limit
	beside  *store.Limit // one that denies each charge, for bans to count
	tick    time.Duration
	periods []int64 // of the versions, in microseconds
	waits   bool
	settles bool
	passed  []passed
	bans    int
	log     strings.Builder
}

const (
	key  = "key"
	twin = "twin" // gets only the charges that pass, and the settlements
)

// draw draws the versions of a trace, and its beginning.
func draw(t *testing.T, a store.Algorithm, d dice, b Bench) *trace {
	p := &trace{dice: d, Bench: b, t: t, of: a, waits: d.roll(3) == 0, settles: d.roll(2) == 0}
	common := p.version(store.Spec{})
	for range 2 + d.roll(3) {
		l := p.limit(p.version(common))
		s := l.Spec()
		fmt.Fprintf(&p.log, "\n  version %d: %+v", len(p.specs), s)
		p.specs, p.limits = append(p.specs, s), append(p.limits, l)
		p.periods = append(p.periods, s.Period.Microseconds())
		p.tick = max(p.tick, l.Tick())
	}
	if a == store.Ban {
		p.beside = p.limit(store.Spec{Name: "beside", Units: 1, Period: time.Hour})
	}
	p.Sleep(micros(d.roll(int64(365 * 24 * time.Hour / time.Microsecond))))
	return p
}

// version draws a version of a limit at random. It copies about half of its numbers from common,
// if common has any: bounds are tightest where versions differ little, and windows count
// together only if their periods are equal.
func (p *trace) version(common store.Spec) store.Spec {
	const ms = time.Millisecond
	units := func(common int64, of ...int64) int64 {
		if common != 0 && p.roll(2) == 0 {
			return common
		}
		return oneOf(p.dice, of...)
	}
	period := func(common time.Duration, of ...time.Duration) time.Duration {
		return time.Duration(units(int64(common), oneOf(p.dice, of...).Nanoseconds()))
	}
	s := store.Spec{Name: "limit", Algorithm: p.of}
	s.Units = units(common.Units, 1, 3, 10, 100, 1000)
	s.Period = period(common.Period, time.Second, 7*ms, 100*ms, 7*time.Second, time.Minute, time.Hour)
	switch p.of {
	case store.TokenBucket, store.LeakyBucket, store.IntervalBucket:
		s.Burst = units(common.Burst, 1, 2, 10, 300)
		s.Debt = p.of == store.TokenBucket && p.roll(4) == 0
		if p.of == store.LeakyBucket {
			s.Queue = store.None
		}
		if p.of != store.IntervalBucket && p.waits && p.roll(3) == 0 {
			s.Queue = 3
		}
	case store.SlidingWindow:
		s.Buckets = units(common.Buckets, 1, 2, 5, 10)
	case store.WarmUp:
		s.WarmUp = period(common.WarmUp, 100*ms, time.Second, 10*time.Second)
	case store.Ban:
		s.Units, s.Ban = units(common.Units, 1, 2, 3, 5, 10), period(common.Ban, time.Second, time.Hour)
	case store.FixedWindow, store.SlidingCounter, store.SlidingLog:
	default:
		panic("no numbers of " + p.of.String())
	}
	return s
}

func (p *trace) limit(s store.Spec) *store.Limit {
	l, err := store.NewLimit(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// most returns how many units a version lets pass at once when its key has used none. A leaky bucket sends one
// off at once, beside its burst; a WarmUp sells one permit, and then waits.
func (p *trace) most(by int) int64 {
	switch s := p.specs[by]; p.of {
	case store.TokenBucket, store.IntervalBucket:
		return s.Burst
	case store.LeakyBucket:
		return s.Burst + 1
	case store.WarmUp:
		return 1
	case store.FixedWindow, store.SlidingWindow, store.SlidingCounter, store.SlidingLog, store.Ban:
		return s.Units
	default:
		panic("no numbers of " + p.of.String())
	}
}

// play plays the trace until an answer is wrong.
func (p *trace) play() {
	for range 40 + p.roll(120) {
		if p.t.Failed() {
			return
		}
		by := int(p.roll(int64(len(p.specs))))
		period := p.periods[by]
		each := period / p.specs[by].Units
		p.Sleep(micros(oneOf(p.dice, 0, 0, 1, each, p.roll(each+1), period, period-1, p.roll(period), p.roll(period/8+1))))
		switch {
		case p.settles && len(p.passed) > 0 && p.roll(4) == 0:
			if by, left := p.settle(); p.roll(2) == 0 { // is all that is left there?
				p.charge(by, left)
			}
		case p.roll(4) == 0:
			p.look(by)
		default:
			p.charge(by, 0)
		}
	}
}

// charge makes a charge, of cost if that isn't 0. If it is denied, it may be made again at
// RetryAfter.
func (p *trace) charge(by int, cost int64) {
	most := p.most(by)
	if p.of == store.WarmUp {
		most = 10
	}
	q := request{by: by, cost: cmp.Or(cost, oneOf(p.dice, 1, 1, 1, min(2, most), 1+p.roll(most), most))}
	if p.waits && p.roll(3) == 0 {
		q.wait = micros(p.roll(2 * p.periods[by]))
	}
	r := p.take(q)
	if r.OK || r.RetryAfter == store.Never || p.roll(2) == 0 || p.waitsTooShort(q) {
		return
	}
	wait := r.RetryAfter
	if early := wait - p.tick; early > 0 {
		p.Sleep(early)
		if wait = p.tick; p.take(q).OK {
			p.t.Errorf("the charge passes a tick before RetryAfter")
		}
	}
	p.Sleep(wait)
	if r := p.take(q); !r.OK && !r.Begun {
		p.t.Errorf("the charge is denied at RetryAfter")
	}
}

// waitsTooShort reports whether the charge isn't granted within its wait, not even on an unused key.
func (p *trace) waitsTooShort(q request) bool {
	var state [1]store.State
	var result [1]store.Result
	charge := [1]store.Charge{{Limit: p.limits[q.by], Cost: q.cost, MaxWait: q.wait}}
	return p.specs[q.by].Queue > 0 && !store.Decide(store.Now{}, charge[:], state[:], result[:])
}

// look looks at what a version has left, and perhaps again at MoreAfter.
func (p *trace) look(by int) {
	q := request{by: by}
	r := p.take(q)
	most := p.most(by) + max(p.specs[by].Queue, 0)
	if r.Remaining >= most || p.roll(2) == 0 {
		return
	}
	wait := r.MoreAfter
	if early := wait - p.tick; early > 0 {
		p.Sleep(early)
		if wait = p.tick; p.take(q).Remaining > r.Remaining {
			p.t.Errorf("more are left a tick before MoreAfter")
		}
	}
	p.Sleep(wait)
	if p.take(q).Remaining <= r.Remaining {
		p.t.Errorf("no more are left at MoreAfter")
	}
}

// take makes a request, for both keys if it passes, and judges what has passed.
func (p *trace) take(q request) store.Result {
	q.at = p.Now()
	r := p.ask(key, q)
	retry := r.RetryAfter.String()
	if r.RetryAfter == store.Never {
		retry = "never"
	}
	fmt.Fprintf(&p.log,
		"\n  at %d version %d takes %d, waits %v: ok %v, %d remaining, delay %v, retry %s, more %v, reset %v",
		q.at, q.by, q.cost, q.wait, r.OK, r.Remaining, r.Delay, retry, r.MoreAfter, r.ResetAfter)
	if r.Begun {
		p.bans++
	}
	made := r.Receipt.Cost > 0
	if made || p.changes(q) {
		other := p.ask(twin, q)
		p.same(r, other)
		if made {
			p.passed = append(p.passed,
				passed{q, q.at + r.Delay.Microseconds(), q.cost, [2]store.Receipt{r.Receipt, other.Receipt}})
			if err := p.judge(q); err != nil {
				p.t.Error(err)
			}
		}
	}
	return r
}

// changes reports whether a request changes something even if it doesn't pass.
func (p *trace) changes(q request) bool {
	switch p.of {
	case store.Ban:
		return q.cost > 0
	case store.FixedWindow: // how long turns are kept depends on the Units of who looks last
		return p.waits
	}
	return false
}

// ask makes a request for a key, whatever the answer. A Ban counts denials of other limits, so a charge that is
// always denied goes with its requests.
func (p *trace) ask(key string, q request) store.Result {
	charges := []store.Charge{{Key: key, Limit: p.limits[q.by], Cost: q.cost, MaxWait: q.wait, Final: true}}
	if p.beside != nil {
		charges = append(charges, store.Charge{Key: key, Limit: p.beside, Cost: store.MaxCost})
	}
	results := make([]store.Result, len(charges))
	if err := p.Store.Take(context.Background(), charges, results); err != nil {
		p.t.Fatal(err)
	}
	return results[0]
}

func (p *trace) same(a, b store.Result) {
	if a != b {
		p.t.Errorf("%+v, and without looks and denials %+v", a, b)
	}
}

// settle changes the cost of a charge, mostly of a late one. It returns the charge's version,
// and what that has left.
func (p *trace) settle() (by int, left int64) {
	of := int64(len(p.passed))
	if p.roll(2) == 0 {
		of = min(of, 4)
	}
	a := &p.passed[int64(len(p.passed))-1-p.roll(of)]
	was := a.receipts[0].Cost
	cost := oneOf(p.dice, 0, p.roll(was+1), p.roll(was+1), was+1+p.roll(5))
	var charges [2]store.Charge
	var results [2]store.Result
	for i, key := range []string{key, twin} {
		charges[i] = store.Charge{Key: key, Limit: p.limits[a.by], Cost: cost, Receipt: a.receipts[i]}
	}
	if err := p.Store.Settle(context.Background(), charges[:], results[:]); err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(&p.log, "\n  at %d version %d settles its charge of %d at %d from %d to %d: %d remaining",
		p.Now(), a.by, a.cost, a.at, was, cost, results[0].Remaining)
	p.same(results[0], results[1])
	for i := range results {
		a.receipts[i] = results[i].Receipt
	}
	a.counts = min(a.counts, cost)
	return a.by, results[0].Remaining
}
