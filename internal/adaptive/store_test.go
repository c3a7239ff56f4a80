package adaptive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/storetest"
)

var errDown = errors.New("down")

// below is a store in memory that notes its calls.
type below struct {
	storefake.Store
	store.Resetter
	mu     sync.Mutex
	calls  []string
	fails  error
	panics bool
}

func newBelow() *below {
	mem := memstore.New()
	b := &below{Store: storefake.Store{Store: mem, AtOnce: true}, Resetter: mem}
	b.OnTake, b.OnSettle = b.noted("Take"), b.noted("Settle")
	return b
}

func (b *below) noted(verb string) func(*storefake.Call) error {
	return func(c *storefake.Call) error {
		call := verb
		for _, c := range c.Charges {
			call += fmt.Sprintf(" %s:%s:%d", c.Limit.Name(), c.Key, c.Cost)
		}
		b.mu.Lock()
		b.calls = append(b.calls, call)
		b.mu.Unlock()
		if b.panics {
			panic("boom")
		}
		if b.fails != nil {
			return b.fails
		}
		return c.Pass()
	}
}

// over is a Store with a limit of its own, of 2 slots, and one of the store below, of
// 3 an hour.
type over struct {
	*Store
	below     *below
	keys      *Keys
	own, rate *store.Limit
	freed     []string
}

func newOver(t testing.TB) *over {
	o := &over{below: newBelow()}
	o.keys = NewKeys(func(limit, key string) {
		o.below.mu.Lock()
		defer o.below.mu.Unlock()
		o.freed = append(o.freed, limit+":"+key)
	})
	o.Store = &Store{o.keys, o.below}
	o.limited(t, 2, 4)
	o.rate = mustLimit(t, store.Spec{Name: "rate", Units: 3, Period: time.Hour})
	return o
}

// limited gives the store a limit of its own that begins with start slots.
func (o *over) limited(t testing.TB, start, most int64) {
	t.Helper()
	o.own = o.keys.Limit(mustLimit(t, store.Spec{Name: "own", Algorithm: store.Concurrency, Units: most}),
		Config{Algorithm: Gradient2, Min: 1, Max: most, Start: start, Tolerance: DefaultTolerance, Window: DefaultWindow})
}

func mustLimit(t testing.TB, s store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask takes own at the one cost and rate at the other; below 0, not at all.
func (o *over) ask(own, rate int64) (charges []store.Charge, results []store.Result, err error) {
	if own >= 0 {
		charges = append(charges, store.Charge{Key: "k", Limit: o.own, Cost: own})
	}
	if rate >= 0 {
		charges = append(charges, store.Charge{Key: "k", Limit: o.rate, Cost: rate})
	}
	results = make([]store.Result, len(charges))
	err = o.Take(context.Background(), charges, results)
	return charges, results, err
}

// inUse is how many slots of the store's own limit are.
func (o *over) inUse(t *testing.T) int64 {
	t.Helper()
	_, results, err := o.ask(0, -1)
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Held
}

func (o *over) settle(charges []store.Charge, results []store.Result) error {
	again := append([]store.Charge(nil), charges...)
	for i := range again {
		again[i].Cost, again[i].Receipt = 0, results[i].Receipt
	}
	return o.Settle(context.Background(), again, make([]store.Result, len(again)))
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store {
		return NewKeys(func(string, string) {}).Over(memstore.New())
	})
}

// between puts a charge of the store's own into every call, before, between and
// behind the others: what these say is the same.
type between struct {
	*over
	n atomic.Int64
}

func (b *between) call(charges []store.Charge, results []store.Result, do func([]store.Charge, []store.Result) error) error {
	if len(charges) != len(results) || len(charges) == 0 {
		return do(charges, results)
	}
	at := int(b.n.Add(1)) % (len(charges) + 1)
	more := append(append(append([]store.Charge(nil), charges[:at]...), store.Charge{Key: "between", Limit: b.own, Cost: 1}), charges[at:]...)
	answers := append([]store.Result(nil), results...)
	answers = append(answers, store.Result{})
	if err := do(more, answers); err != nil {
		return err
	}
	copy(results, answers[:at])
	copy(results[at:], answers[at+1:])
	b.keys.end(answers[at].Receipt.Lease, nil)
	return nil
}

func (b *between) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return b.call(charges, results, func(c []store.Charge, r []store.Result) error { return b.over.Take(ctx, c, r) })
}

func (b *between) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return b.call(charges, results, func(c []store.Charge, r []store.Result) error { return b.over.Settle(ctx, c, r) })
}

func TestConformanceBesideItsOwn(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		o := newOver(t)
		o.limited(t, 1000, 1000) // as many as ever come together: it never denies
		return &between{over: o}
	})
}

// All charges are made or none, whoever denies or fails.
func TestTakeAllOrNone(t *testing.T) {
	for _, tt := range []struct {
		name      string
		own, rate int64
		fails     error
		panics    bool
		want      string // own, rate, what is left of both, the store's call
	}{
		{"granted", 2, 3, nil, false, "true true 0 0, Take rate:k:3"},
		{"its own denies", 5, 3, nil, false, "false true 2 3, Take rate:k:3 -veto:k:2"},
		{"below denies", 2, 4, nil, false, "true false 2 3, Take rate:k:4"},
		{"both deny", 5, 4, nil, false, "false false 2 3, Take rate:k:4 -veto:k:2"},
		{"below fails", 2, 3, errDown, false, "down, Take rate:k:3"},
		{"below panics", 2, 3, nil, true, "boom, Take rate:k:3"},
		{"none below", 2, -1, errDown, false, "true 0, "},
		{"none below, denied", 5, -1, errDown, false, "false 2, "},
		{"none of its own", -1, 4, nil, false, "false 3, Take rate:k:4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOver(t)
			o.below.fails, o.below.panics = tt.fails, tt.panics
			got := func() (got string) {
				defer func() {
					if v := recover(); v != nil {
						got = fmt.Sprint(v)
					}
				}()
				_, results, err := o.ask(tt.own, tt.rate)
				if err != nil {
					return err.Error()
				}
				for i := range results {
					got += fmt.Sprint(results[i].OK, " ")
				}
				for i := range results {
					got += fmt.Sprint(results[i].Remaining, " ")
				}
				return strings.TrimSpace(got)
			}()
			if got += ", " + strings.Join(o.below.calls, "|"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			o.below.fails, o.below.panics = nil, false
			granted := strings.HasPrefix(tt.want, "true true") || tt.name == "none below"
			held, woken := int64(0), tt.own == 2 && !granted
			if granted {
				held = 2
			}
			if n := o.inUse(t); n != held || woken != (len(o.freed) == 1) {
				t.Errorf("%d slots are in use, want %d; freed %v", n, held, o.freed)
			}
		})
	}
}

// A dry run that is denied denies nothing, and holds nothing.
func TestTakeDryRun(t *testing.T) {
	o := newOver(t)
	charges := []store.Charge{{Key: "k", Limit: o.own, Cost: 5, DryRun: true}, {Key: "k", Limit: o.rate, Cost: 1}}
	results := make([]store.Result, 2)
	if err := o.Take(t.Context(), charges, results); err != nil || results[0].OK || !results[1].OK || o.inUse(t) != 0 {
		t.Errorf("%+v, %v", results, err)
	}
	if got := strings.Join(o.below.calls, "|"); got != "Take rate:k:1" {
		t.Error(got)
	}
}

func TestTakeTwice(t *testing.T) {
	o := newOver(t)
	charges := []store.Charge{{Key: "k", Limit: o.own, Cost: 1}, {Key: "k", Limit: o.rate, Cost: 1}, {Key: "k", Limit: o.own, Cost: 1}}
	if err := o.Take(t.Context(), charges, make([]store.Result, 3)); !errors.Is(err, store.ErrDuplicate) || len(o.below.calls) > 0 || o.inUse(t) != 0 {
		t.Errorf("%v, below was asked %v", err, o.below.calls)
	}
}

func TestSettleReleasesOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails error
	}{{"below answers", nil}, {"below fails", errDown}} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOver(t)
			charges, results, err := o.ask(1, 1)
			_, _, other := o.ask(1, 1)
			if err != nil || other != nil {
				t.Fatal(err, other)
			}
			o.below.fails = tt.fails
			for range 2 {
				if err := o.settle(charges, results); !errors.Is(err, tt.fails) {
					t.Errorf("%v, want %v", err, tt.fails)
				}
				if n := o.inUse(t); n != 1 {
					t.Errorf("%d slots are in use, want the other's", n)
				}
			}
			if got := strings.Join(o.below.calls, "|"); got != "Take rate:k:1|Take rate:k:1|Settle rate:k:0|Settle rate:k:0" {
				t.Error(got)
			}
		})
	}
}

// A cost above the present limit passes alone, and a lease may be resized.
func TestSettleResizes(t *testing.T) {
	o := newOver(t)
	charges, results, _ := o.ask(4, -1)
	charges[0].Cost, charges[0].Receipt = 1, results[0].Receipt
	if err := o.Settle(t.Context(), charges, results); err != nil || results[0].Held != 1 || results[0].Remaining != 1 {
		t.Errorf("%+v, %v", results[0], err)
	}
	if err := o.settle(charges, results); err != nil || o.inUse(t) != 0 {
		t.Errorf("%v, %d in use", err, o.inUse(t))
	}
}

// End learns from a request and returns what has changed; results continue to say where
// the limit stood.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOver(t)
		var moved []Change
		for range minSamples + 1 {
			charges, results, err := o.ask(1, -1)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(DefaultWindow / minSamples)
			moved = append(moved, o.keys.End(charges, results, &Sample{RTT: time.Second, Dropped: true})...)
			if again := o.keys.End(charges, results, &Sample{RTT: time.Second, Dropped: true}); again != nil {
				t.Errorf("a request has ended twice: %+v", again)
			}
			limit, why := RuleOf(o.own).DecidedCapacity(&charges[0], &results[0])
			if limit != 2 || why != Start {
				t.Errorf("stood at %d for %d", limit, why)
			}
		}
		if len(moved) != 1 || moved[0].Charge.Limit != o.own || moved[0].From != 2 || moved[0].To != 1 || moved[0].Reason != Drops {
			t.Errorf("%+v", moved)
		}
		charges, results, _ := o.ask(0, -1)
		if limit, why := RuleOf(o.own).DecidedCapacity(&charges[0], &results[0]); limit != 1 || why != Drops || results[0].Remaining != 1 {
			t.Errorf("stands at %d for %d: %+v", limit, why, results[0])
		}
		if limit, why := RuleOf(o.own).DecidedCapacity(&charges[0], new(store.Result)); limit != 1 || why != Drops {
			t.Errorf("without a decision it stands at %d for %d", limit, why)
		}
	})
}

// Reset forgets the keys of both, or of neither if the store below can't.
func TestReset(t *testing.T) {
	o := newOver(t)
	charges, results, err := o.ask(2, 3)
	if err != nil {
		t.Fatal(err)
	}
	var bare Store
	bare.keys, bare.below = o.keys, struct{ store.Store }{o.below}
	if _, err := bare.Reset(t.Context(), "k", o.own, o.rate); err == nil || o.inUse(t) != 2 {
		t.Errorf("%v: half a reset", err)
	}
	if _, err := bare.Reset(t.Context(), "other", o.own); err != nil {
		t.Error(err)
	}
	if _, err := o.Reset(t.Context(), "k", o.own, o.rate); err != nil {
		t.Fatal(err)
	}
	if _, results, err := o.ask(1, 3); err != nil || !results[1].OK {
		t.Errorf("%+v, %v", results, err)
	}
	if err := o.settle(charges[:1], results[:1]); err != nil || o.inUse(t) != 1 {
		t.Errorf("%v, %d in use: what was forgotten has freed something", err, o.inUse(t))
	}
}

// Waiting callers learn when a key follows another rule.
func TestMeet(t *testing.T) {
	o := newOver(t)
	if _, _, err := o.ask(2, -1); err != nil {
		t.Fatal(err)
	}
	cfg := RuleOf(o.own).Config()
	cfg.Min = 3
	newer := RuleOf(o.keys.Limit(o.own, cfg))
	for _, r := range []*Rule{RuleOf(o.own), newer, newer, RuleOf(o.own)} {
		r.SlotsFor("k")
	}
	if got := fmt.Sprint(o.freed, newer.SlotsFor("k"), RuleOf(o.own).SlotsFor("k"), newer.SlotsFor("unseen")); got != "[own:k] 3 3 2" {
		t.Error(got)
	}
}
