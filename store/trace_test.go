package store_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// dice makes the choices of a trace: a seeded generator, or a fuzzer's bytes.
type dice interface {
	roll(n int64) int64 // in [0, n)
	done() bool
}

type seeded struct{ *rand.Rand }

func seed(n uint64) seeded          { return seeded{rand.New(rand.NewPCG(n, 0x5717))} }
func (s seeded) roll(n int64) int64 { return s.Int64N(n) }
func (s seeded) done() bool         { return false }

type bytesDice struct{ b []byte }

func (d *bytesDice) done() bool { return len(d.b) == 0 }

func (d *bytesDice) roll(n int64) int64 {
	var v uint64
	for m := uint64(n - 1); m > 0; m >>= 8 {
		if len(d.b) == 0 {
			break
		}
		v = v<<8 | uint64(d.b[0])
		d.b = d.b[1:]
	}
	return int64(v % uint64(n))
}

func oneOf[T any](d dice, choices ...T) T { return choices[d.roll(int64(len(choices)))] }

// op is one call in a trace: a decision, or the settling of an earlier one.
type op struct {
	id      int
	step    int64 // microseconds since the one before
	forget  bool  // drop first what the limits say may be dropped
	charges []opCharge
	settle  *opSettle
}

type opCharge struct {
	limit   int
	cost    int64
	maxWait time.Duration
	dry     bool
}

type opSettle struct {
	op, limit int
	cost      int64
}

func (o op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d +%d", o.id, o.step)
	if o.forget {
		b.WriteString(" forget")
	}
	if s := o.settle; s != nil {
		fmt.Fprintf(&b, " settle #%d limit %d to %d", s.op, s.limit, s.cost)
	}
	for _, c := range o.charges {
		fmt.Fprintf(&b, " [limit %d cost %d", c.limit, c.cost)
		if c.maxWait != 0 {
			fmt.Fprintf(&b, " wait %v", c.maxWait)
		}
		if c.dry {
			b.WriteString(" dry")
		}
		b.WriteString("]")
	}
	return b.String()
}

// bench runs steps and models side by side.
type bench struct {
	rules   []rule
	models  []model
	states  []store.State
	expires []int64 // when a state may be forgotten, on the steady clock
	now     store.Now
	wall    int64 // what the wall clock shows when the steady clock is at 0
	last    []store.Result
	made    map[[2]int]made
	leases  uint64
}

// made is a charge that was made.
type made struct {
	now     store.Now
	cost    int64
	delay   time.Duration
	receipt store.Receipt
	ticket  ticket
}

func newBench(rules []rule, start, wall int64) *bench {
	b := &bench{rules: rules, made: map[[2]int]made{}, wall: wall}
	b.now.Steady = start
	for _, r := range rules {
		b.models = append(b.models, newModel(r))
	}
	b.states = make([]store.State, len(rules))
	b.expires = make([]int64, len(rules))
	b.last = make([]store.Result, len(rules))
	return b
}

func clone(s []store.State) []store.State {
	s = slices.Clone(s)
	for i := range s {
		inside.State(&s[i]).Log = slices.Clone(inside.State(&s[i]).Log)
	}
	return s
}

// same tells whether two states are equal in all that counts.
func same(a, b store.State) bool {
	la, lb := inside.State(&a).Log, inside.State(&b).Log
	inside.State(&a).Log, inside.State(&b).Log = nil, nil
	return reflect.DeepEqual(a, b) && slices.Equal(la, lb)
}

// present is a state as a denied decision leaves it: what has expired is gone.
func present(now store.Now, l *store.Limit, s store.State) store.State {
	states := []store.State{clone([]store.State{s})[0], {}}
	store.Decide(now, []store.Charge{{Limit: l}, {Limit: slot, Cost: 2}}, states, make([]store.Result, 2))
	return states[0]
}

// slot is a limit that denies a cost of 2.
var slot = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "slot", Algorithm: store.Concurrency, Units: 1})
	if err != nil {
		panic(err)
	}
	return l
}()

// do runs one op on both sides and reports the first difference.
func (b *bench) do(o op) error {
	b.now.Steady += o.step
	b.now.Wall = b.wall + b.now.Steady
	b.leases++
	b.now.Lease = store.Lease(b.leases)
	if o.forget {
		for i := range b.states {
			// A lease is not forgotten by time.
			if b.now.Steady >= b.expires[i] && (b.rules[i].limit.Algorithm() != store.Concurrency || len(inside.State(&b.states[i]).Log) == 0) {
				b.states[i] = store.State{}
			}
		}
	}
	if o.settle != nil {
		return b.doSettle(o)
	}
	n := len(o.charges)
	charges, results := make([]store.Charge, n), make([]store.Result, n)
	states := make([]store.State, n)
	want := make([]verdict, n)
	granted := true
	for i, c := range o.charges {
		charges[i] = store.Charge{Key: "k", Limit: b.rules[c.limit].limit, Cost: c.cost, MaxWait: c.maxWait, DryRun: c.dry}
		states[i] = b.states[c.limit]
		results[i] = store.Result{OK: true, Remaining: 99, Delay: 98, RetryAfter: 97, ResetAfter: 96, MoreAfter: 95} // of an earlier use
		want[i] = b.models[c.limit].look(b.now, c.cost, c.maxWait)
	}
	before := clone(states)
	got := store.Decide(b.now, charges, states, results)
	for i, c := range o.charges {
		if want[i].near && results[i].OK != want[i].ok {
			want[i] = verdict{ok: results[i].OK, delay: results[i].Delay, retry: results[i].RetryAfter}
		}
		granted = granted && (want[i].ok || c.dry)
	}
	if got != granted {
		return fmt.Errorf("granted %v, want %v (results %+v)", got, granted, results)
	}
	for i, c := range o.charges {
		m, r := b.models[c.limit], results[i]
		charge := granted && want[i].ok && c.cost > 0
		if !charge && !same(present(b.now, charges[i].Limit, before[i]), present(b.now, charges[i].Limit, states[i])) {
			return fmt.Errorf("limit %d: state changed without a charge: %+v, was %+v", c.limit, states[i], before[i])
		}
		if charge {
			t := m.charge(b.now, c.cost, want[i].delay)
			if r.Receipt.Cost != c.cost {
				return fmt.Errorf("limit %d: receipt %+v for a cost of %d", c.limit, r.Receipt, c.cost)
			}
			b.made[[2]int{o.id, c.limit}] = made{b.now, c.cost, want[i].delay, r.Receipt, t}
		} else if r.Receipt != (store.Receipt{}) {
			return fmt.Errorf("limit %d: receipt %+v though nothing was charged", c.limit, r.Receipt)
		}
		w := store.Result{OK: want[i].ok, RetryAfter: want[i].retry, Receipt: r.Receipt}
		if charge {
			w.Delay = want[i].delay // otherwise it has no turn to wait for
		}
		w.Remaining, w.MoreAfter, w.ResetAfter = m.left(b.now, c.maxWait)
		if err := b.compare(c.limit, w, r); err != nil {
			return err
		}
		if m, ok := m.(*warmUpModel); ok {
			m.follow(states[i])
		}
		if err := reread(&b.states[c.limit], &states[i]); err != nil {
			return err
		}
		b.expires[c.limit] = b.now.Steady + b.rules[c.limit].limit.Lifetime(b.now, &b.states[c.limit], &r).Microseconds()
		b.last[c.limit] = r
	}
	return nil
}

func (b *bench) compare(limit int, want, got store.Result) error {
	if m, ok := b.models[limit].(*leaseModel); ok {
		want.Held = m.sum()
	}
	near := got
	if m, ok := b.models[limit].(*warmUpModel); ok {
		off := micros(ceilTo(m.unit(m.off), m.tick))
		for _, d := range []struct{ got, want *time.Duration }{
			{&near.Delay, &want.Delay}, {&near.RetryAfter, &want.RetryAfter},
			{&near.ResetAfter, &want.ResetAfter}, {&near.MoreAfter, &want.MoreAfter},
		} {
			if diff := *d.got - *d.want; -off <= diff && diff <= off {
				*d.got = *d.want
			}
		}
		if minus(m.free, rat(b.now.Steady)).Cmp(m.unit(m.off)) <= 0 {
			near.Remaining, near.MoreAfter = want.Remaining, want.MoreAfter
		}
	}
	if near != want {
		return fmt.Errorf("limit %d (%v) at %d\n got %s\nwant %s", limit, b.rules[limit], b.now.Steady, show(got), show(want))
	}
	return nil
}

func show(r store.Result) string {
	retry := r.RetryAfter.String()
	if r.RetryAfter == store.Never {
		retry = "never"
	}
	return fmt.Sprintf("ok %v, %d remaining, %d held, delay %v, retry %s, more %v, reset %v", r.OK, r.Remaining, r.Held, r.Delay, retry, r.MoreAfter, r.ResetAfter)
}

func (b *bench) doSettle(o op) error {
	s := *o.settle
	m, found := b.made[[2]int{s.op, s.limit}]
	if !found {
		return nil // a charge that was cut from the trace
	}
	r := store.Result{OK: false, Remaining: 99, Delay: 98, RetryAfter: 97, ResetAfter: 96, MoreAfter: 95}
	c := store.Charge{Key: "k", Limit: b.rules[s.limit].limit, Cost: s.cost, Receipt: m.receipt}
	store.Amend(b.now, &c, &b.states[s.limit], &r)
	t := b.models[s.limit].settle(b.now, m.ticket, s.cost)
	if want := (store.Receipt{Cost: t.cost, Lease: m.receipt.Lease}); r.Receipt.Cost != want.Cost || r.Receipt.Lease != want.Lease {
		return fmt.Errorf("receipt %+v after settling at %d", r.Receipt, s.cost)
	}
	if m.cost, m.receipt, m.ticket = t.cost, r.Receipt, t; t.lease != (store.LeaseID{}) {
		delete(b.made, [2]int{s.op, s.limit}) // a lease is released once
	} else {
		b.made[[2]int{s.op, s.limit}] = m
	}
	w := store.Result{OK: true, Receipt: r.Receipt}
	w.Remaining, w.MoreAfter, w.ResetAfter = b.models[s.limit].left(b.now, 0)
	if err := b.compare(s.limit, w, r); err != nil {
		return err
	}
	b.expires[s.limit] = b.now.Steady + b.rules[s.limit].limit.Lifetime(b.now, &b.states[s.limit], &r).Microseconds()
	return nil
}

// open lists the charges on a limit that can still be settled, oldest first.
func (b *bench) open(limit int) (keys [][2]int) {
	for k := range b.made {
		if k[1] == limit {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y [2]int) int { return x[0] - y[0] })
	return keys
}

// tick is the length of a limit's tick in microseconds.
func (b *bench) tick(limit int) int64 {
	switch m := b.models[limit].(type) {
	case *bucketModel:
		return m.tick
	case *warmUpModel:
		return m.tick
	case *slidingModel:
		return m.tick
	}
	return 1
}

// run runs ops up to the first difference.
func (b *bench) run(ops ...op) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	for _, o := range ops {
		if err := b.do(o); err != nil {
			return fmt.Errorf("%v\n%w", o, err)
		}
	}
	return nil
}

// replay runs a whole trace from the start.
func replay(rules []rule, start, wall int64, ops []op) error {
	return newBench(rules, start, wall).run(ops...)
}

// shrink takes out of a failing trace what it fails without.
func shrink(rules []rule, start, wall int64, ops []op) []op {
	for again := true; again; {
		again = false
		for i := len(ops) - 1; i >= 0; i-- {
			less := slices.Delete(slices.Clone(ops), i, i+1)
			if i < len(less) {
				less[i].step += ops[i].step
			}
			if replay(rules, start, wall, less) != nil {
				ops, again = less, true
				continue
			}
			for _, simpler := range simpler(ops[i]) {
				less := slices.Clone(ops)
				less[i] = simpler
				if replay(rules, start, wall, less) != nil {
					ops, again = less, true
					break
				}
			}
		}
	}
	return ops
}

func simpler(o op) (out []op) {
	add := func(change func(*op)) {
		c := o
		c.charges = slices.Clone(o.charges)
		change(&c)
		out = append(out, c)
	}
	if o.forget {
		add(func(c *op) { c.forget = false })
	}
	for i, ch := range o.charges {
		if len(o.charges) > 1 {
			add(func(c *op) { c.charges = slices.Delete(c.charges, i, i+1) })
		}
		if ch.cost > 1 {
			add(func(c *op) { c.charges[i].cost = 1 })
		}
		if ch.maxWait != 0 {
			add(func(c *op) { c.charges[i].maxWait = 0 })
		}
		if ch.dry {
			add(func(c *op) { c.charges[i].dry = false })
		}
	}
	return out
}

// report replays a trace that failed, cut down, and reports it.
func report(t *testing.T, rules []rule, start, wall int64, ops []op, err error) {
	t.Helper()
	short := shrink(rules, start, wall, ops)
	if e := replay(rules, start, wall, short); e != nil {
		err = e
	}
	var b strings.Builder
	for i, r := range rules {
		fmt.Fprintf(&b, "limit %d: %v\n", i, r)
	}
	fmt.Fprintf(&b, "start %d, wall %d\n", start, wall)
	for _, o := range short {
		fmt.Fprintln(&b, o)
	}
	t.Fatalf("\n%s%v", b.String(), err)
}
