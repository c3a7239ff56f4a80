// Package versionstest holds a store to what it promises while versions of one limit are in
// use at once, as in a rolling deploy or where plans disagree. It draws versions with very
// different numbers, which charge, look, reserve turns and refund at irregular instants.
// What passes is judged by the version that let it pass, over everything that has passed:
// the trace's own list, from which nothing is dropped.
package versionstest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Bench is where one trace is played. Its store has been used by no other trace.
type Bench struct {
	Store store.Store
	Now   func() int64        // the clock of limits without a calendar, in microseconds
	Sleep func(time.Duration) // advances it by exactly that, which may be years
}

// Seeds returns the first of so many seeds. They are the same in every run, so that a change
// fails by what it does and not by what is drawn, and fewer with -short. STINT_LONG=1 draws
// others, 100 times as many; STINT_SEED=n is one of them.
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

// Run plays so many traces of each algorithm, from Seeds. play makes a Bench and passes it
// to trace.
func Run(t *testing.T, traces uint64, play func(t *testing.T, trace func(*testing.T, Bench))) {
	first, traces := Seeds(traces)
	for _, k := range kinds {
		t.Run(k.of.String(), func(t *testing.T) {
			t.Parallel()
			passed := 0
			for seed := first; seed < first+traces && !t.Failed(); seed++ {
				play(t, func(t *testing.T, b Bench) {
					p := draw(t, k, dice{rand.New(rand.NewPCG(seed, uint64(k.of)))}, b)
					if err := p.play(k.judge(p)); err != nil {
						t.Errorf("STINT_SEED=%d: %v: %v", seed, p.show(), err)
					}
					passed += p.counted
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

// kind is an algorithm: how its versions are drawn, and what judges them.
type kind struct {
	of    store.Algorithm
	most  int64 // versions
	spec  func(p *trace) store.Spec
	judge func(p *trace) judge
	// oneOrOther: a trace has turns or refunds. With both, a refund goes by another rule.
	oneOrOther bool
}

// judge says what is wrong with an answer, which is in p.passed by then if it passed.
type judge interface {
	answered(q request, r store.Result) error
	// settled is called when a charge has been settled to cost. It changes what is in
	// p.passed.
	settled(a *passed, cost int64)
}

// request is a charge that version by makes.
type request struct {
	by       int
	at, cost int64
	wait     time.Duration
}

// passed is a charge that has passed.
type passed struct {
	by        int
	made, run int64 // when it was made, and its turn
	cost      int64
	came      bool // its version had gone, by a judge's rule
	receipt   store.Receipt
}

// trace is a random history, and what became of its requests.
type trace struct {
	dice
	Bench
	t        *testing.T
	kind     kind
	specs    []store.Spec
	limits   []*store.Limit
	beside   *store.Limit  // one that denies each charge, for what counts denials
	common   time.Duration // a period that some versions may share
	shortest int64
	turns    bool
	refunds  bool
	raises   bool // some charges turn out to cost more
	looks    bool // versions but the first only look
	passed   []passed
	counted  int // passes, or what the judge counts instead
	log      strings.Builder
}

const years = int64(365 * 24 * time.Hour / time.Microsecond)

// draw draws the versions of a trace, and its beginning.
func draw(t *testing.T, k kind, d dice, b Bench) *trace {
	p := &trace{dice: d, Bench: b, t: t, kind: k, shortest: years}
	p.turns, p.refunds, p.looks = d.roll(3) == 0, d.roll(2) == 0, d.roll(4) == 0
	if k.oneOrOther {
		p.refunds = !p.turns
	}
	p.raises = p.refunds && isBucket(k.of) && d.roll(3) == 0
	p.common = oneOf(d, time.Second, time.Minute)
	for range 2 + d.roll(k.most-1) {
		s := k.spec(p)
		s.Name, s.Algorithm = "limit", k.of
		l := p.limit(s)
		p.limits, p.specs = append(p.limits, l), append(p.specs, l.Spec())
	}
	for v := range p.specs {
		p.shortest = min(p.shortest, p.period(v))
	}
	if k.of == store.Ban {
		p.beside = p.limit(store.Spec{Name: "beside", Units: 1, Period: time.Hour})
	}
	p.Sleep(micros(d.roll(years)))
	return p
}

func (p *trace) limit(s store.Spec) *store.Limit {
	l, err := store.NewLimit(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// period is a version's period in microseconds, of slots any.
func (p *trace) period(v int) int64 {
	if d := p.specs[v].Period; d > 0 {
		return d.Microseconds()
	}
	return 1_000_000
}

func (p *trace) show() (out []string) {
	for _, s := range p.specs {
		text := fmt.Sprintf("%d per %v", s.Units, s.Period)
		for name, n := range map[string]int64{"burst": s.Burst, "queue": s.Queue, "buckets": s.Buckets} {
			if n != 0 {
				text += fmt.Sprintf(" %s %d", name, n)
			}
		}
		out = append(out, text)
	}
	return out
}

// play plays the trace, and reports the first answer that j finds wrong.
func (p *trace) play(j judge) error {
	for range 60 + p.roll(200) {
		v := int(p.roll(int64(len(p.specs))))
		n, period := p.specs[v].Units, p.period(v)
		least := int64(0)
		if p.turns && p.refunds {
			least = 1 // charges of one instant are refunded as one
		}
		p.Sleep(micros(least + oneOf(p.dice, 0, 0, 1, p.roll(p.shortest), p.roll(p.shortest/8+1), p.roll(period/n+1), period/n, p.shortest, period, period-1, p.roll(period))))
		if p.refunds && len(p.passed) > 0 && p.roll(4) == 0 {
			j.settled(p.settle())
			continue
		}
		most := n
		if isBucket(p.kind.of) { // more than that goes at its last unit's turn
			most = atOnce(p.specs[v])
		}
		q := request{by: v, at: p.Now(), cost: oneOf(p.dice, 0, 1, 1, 1, min(2, most), 1+p.roll(most), most)}
		if p.looks && v > 0 {
			q.cost = 0
		}
		if p.turns && p.roll(3) == 0 {
			q.wait = micros(p.roll(2 * period))
		}
		r := p.take(q)
		if r.Receipt.Cost > 0 {
			p.passed = append(p.passed, passed{by: v, made: q.at, run: q.at + r.Delay.Microseconds(), cost: q.cost, receipt: r.Receipt})
			p.counted++
		}
		if err := j.answered(q, r); err != nil {
			return fmt.Errorf("%w:%s", err, &p.log)
		}
	}
	return nil
}

func (p *trace) take(q request) store.Result {
	charges := []store.Charge{{Key: "k", Limit: p.limits[q.by], Cost: q.cost, MaxWait: q.wait}}
	if p.beside != nil {
		charges = append(charges, store.Charge{Key: "k", Limit: p.beside, Cost: store.MaxCost})
	}
	results := make([]store.Result, len(charges))
	if err := p.Store.Take(context.Background(), charges, results); err != nil {
		p.t.Fatal(err)
	}
	r := results[0]
	retry := r.RetryAfter.String()
	if r.RetryAfter == store.Never {
		retry = "never"
	}
	fmt.Fprintf(&p.log, "\n  at %d version %d takes %d, waits %v: ok %v, %d remaining, delay %v, retry %s, reset %v",
		q.at, q.by, q.cost, q.wait, r.OK, r.Remaining, r.Delay, retry, r.ResetAfter)
	return r
}

// settle refunds part or all of a charge, mostly of a late one.
func (p *trace) settle() (a *passed, cost int64) {
	of := int64(len(p.passed))
	if p.roll(2) == 0 {
		of = min(of, 4)
	}
	a = &p.passed[int64(len(p.passed))-1-p.roll(of)]
	if cost = oneOf(p.dice, 0, p.roll(a.receipt.Cost+1)); p.raises && p.roll(2) == 0 {
		cost = a.receipt.Cost + 1 + p.roll(5)
	}
	results := make([]store.Result, 1)
	charge := store.Charge{Key: "k", Limit: p.limits[a.by], Cost: cost, Receipt: a.receipt}
	if err := p.Store.Settle(context.Background(), []store.Charge{charge}, results); err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(&p.log, "\n  at %d version %d settles %d of what ran at %d to %d", p.Now(), a.by, a.receipt.Cost, a.run, cost)
	a.receipt = results[0].Receipt
	return a, cost
}

// refunding is a judge to whom a charge has had the cost that it is settled to, or before
// if that was less: what is owed afterwards passes in no span.
type refunding struct{ *trace }

func (refunding) settled(a *passed, cost int64) { a.cost = min(a.cost, cost) }

func (p *trace) latest() *passed { return &p.passed[len(p.passed)-1] }

// span returns how much passes from one charge to the latest, both included.
type span struct {
	from, to int64
	passed   []int64 // units, by version
	came     []int64 // charges behind the first of a version that had gone, by version
}

func (s *span) length() int64 { return s.to - s.from }

func (s *span) tooMany(most int64, format string, of ...any) error {
	return fmt.Errorf("%s: %d pass in [%d, %d], of all, where %d may", fmt.Sprintf(format, of...), s.passed, s.from, s.to, most)
}

func sum(ns []int64) (sum int64) {
	for _, n := range ns {
		sum += n
	}
	return sum
}

// spans calls over with each span that ends with the latest charge to have passed, until
// that returns an error.
func (p *trace) spans(over func(span) error) error {
	s := span{to: p.latest().run, passed: make([]int64, len(p.specs)), came: make([]int64, len(p.specs))}
	byTurn := make([]passed, 0, len(p.passed))
	for _, a := range p.passed {
		if a.run <= s.to {
			byTurn = append(byTurn, a)
		} else if a.came { // and what it waited for may have been refunded
			s.came[a.by]++
		}
	}
	slices.SortStableFunc(byTurn, func(a, b passed) int { return cmp.Compare(a.run, b.run) })
	for _, a := range slices.Backward(byTurn) {
		s.from = a.run
		s.passed[a.by] += a.cost
		if err := over(s); err != nil {
			return err
		}
		if a.came {
			s.came[a.by]++
		}
	}
	return nil
}
