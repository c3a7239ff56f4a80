// Package storetest holds a store to the rules that all stores share. A store
// is complete when it passes:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New() })
//	}
//
// What the suite asks for is exact: which charge passes, what is left, how long
// to wait, to the microsecond. Part of it are traces, text files of calls and
// answers in testdata, whose format is described at the top of trace.go; the
// rest are rules that hold for every trace.
//
// The limits of the suite have names that begin with "st". It uses up to ten
// thousand keys in one store, one of them a megabyte long.
package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// Option changes how Run treats a store.
type Option func(*config)

type config struct {
	newStore func(*testing.T) store.Store
	sleep    func(time.Duration)
	now      func() time.Time
}

// WithSleep lets time pass by sleep instead of in a bubble of testing/synctest.
// It is for stores with a clock elsewhere, or that do what a bubble can't have
// (network calls): sleep advances the store's clock by exactly its argument, a
// multiple of a microsecond and up to months at a time. The clock must stand
// still otherwise.
func WithSleep(sleep func(time.Duration)) Option {
	return func(c *config) { c.sleep = sleep }
}

// WithNow reads the clock that the store's calendar windows follow; by default
// time.Now. It goes together with WithSleep.
func WithNow(now func() time.Time) Option {
	return func(c *config) { c.now = now }
}

// Run holds the stores made by newStore to the rules, each in a subtest with a
// store of its own. No two stores may share state; what has to be closed
// belongs into t.Cleanup. By default each subtest is a bubble of
// testing/synctest, in which the store is made and time.Sleep costs nothing: the
// store has to read time through package time, and what it starts must end with
// the test.
func Run(t *testing.T, newStore func(*testing.T) store.Store, opts ...Option) {
	c := &config{newStore: newStore, now: time.Now}
	for _, opt := range opts {
		opt(c)
	}
	for _, row := range traceRows() {
		c.run(t, "Trace/"+row.name, row.rule)
	}
	for _, group := range []struct {
		name string
		rows []row
	}{
		{"Retry", retryRows()},
		{"Exact", exactRows},
		{"Several", severalRows},
		{"Settle", settleRows},
		{"Change", changeRows},
		{"Raise", raiseRows},
		{"Expiry", expiryRows()},
		{"Calendar", calendarRows},
		{"Concurrency", leaseRows},
		{"Concurrent", concurrentRows},
		{"Call", callRows},
		{"Reset", resetRows},
		{"Ban", banRows},
	} {
		for _, row := range group.rows {
			c.run(t, group.name+"/"+row.name, row.rule)
		}
	}
}

// row is one rule.
type row struct {
	name string
	rule func(*suite)
}

func (c *config) run(t *testing.T, name string, rule func(*suite)) {
	t.Run(name, func(t *testing.T) {
		if c.sleep != nil {
			rule(&suite{T: t, store: c.newStore(t), sleep: c.sleep, now: c.now})
			return
		}
		synctest.Test(t, func(t *testing.T) {
			rule(&suite{T: t, store: c.newStore(t), sleep: time.Sleep, now: c.now})
		})
	})
}

// suite is one rule's view of a store.
type suite struct {
	*testing.T
	store store.Store
	sleep func(time.Duration)
	now   func() time.Time
}

func (s *suite) limit(spec store.Spec) *store.Limit {
	s.Helper()
	if spec.Name == "" {
		spec.Name = "st"
	}
	l, err := store.NewLimit(spec)
	if err != nil {
		s.Fatalf("the suite's own limit: %v", err)
	}
	return l
}

// decide makes one call and returns its answers and whether it was granted.
func (s *suite) decide(charges ...store.Charge) ([]store.Result, bool) {
	s.Helper()
	results := make([]store.Result, len(charges))
	for i := range results { // what an answer leaves out shows
		results[i] = store.Result{Held: -99, Remaining: -99, Delay: -99, RetryAfter: -99, ResetAfter: -99, Receipt: store.Receipt{Cost: -99}}
	}
	if err := s.store.Take(context.Background(), charges, results); err != nil {
		s.Fatalf("Take: %v", err)
	}
	granted := true
	for i, r := range results {
		if !r.OK && !charges[i].DryRun {
			granted = false
		}
	}
	for i, r := range results {
		made := granted && r.OK && charges[i].Cost > 0 && charges[i].Limit.Algorithm() != store.Ban
		if made && r.Receipt.Cost != charges[i].Cost {
			s.Errorf("charge of %d made, receipt %+v", charges[i].Cost, r.Receipt)
		}
		if !made && r.Receipt != (store.Receipt{}) {
			s.Errorf("charge not made, receipt %+v", r.Receipt)
		}
		if r.OK != (r.RetryAfter == 0) && charges[i].Limit.Algorithm() != store.Concurrency || r.Remaining < 0 || r.Delay < 0 || r.RetryAfter < 0 || r.ResetAfter < 0 {
			s.Errorf("impossible answer %v", show(r))
		}
		s.slots(charges[i].Limit, r)
	}
	return results, granted
}

// slots checks what an answer says is held, which only a Concurrency has. Held also
// counts what is above a number that has been lowered.
func (s *suite) slots(l *store.Limit, r store.Result) {
	s.Helper()
	if l.Algorithm() != store.Concurrency {
		if r.Held != 0 {
			s.Errorf("a %v holds %d", l.Algorithm(), r.Held)
		}
	} else if slots := l.Spec().Units; r.Remaining != max(0, slots-r.Held) {
		s.Errorf("%d held and %d left of %d slots", r.Held, r.Remaining, slots)
	}
}

// take makes one charge.
func (s *suite) take(key string, l *store.Limit, cost int64) store.Result {
	s.Helper()
	r, _ := s.decide(store.Charge{Key: key, Limit: l, Cost: cost})
	return r[0]
}

// reserve makes one charge that may wait.
func (s *suite) reserve(key string, l *store.Limit, cost int64, wait time.Duration) store.Result {
	s.Helper()
	r, _ := s.decide(store.Charge{Key: key, Limit: l, Cost: cost, MaxWait: wait})
	return r[0]
}

func (s *suite) peek(key string, l *store.Limit) store.Result {
	s.Helper()
	r := s.take(key, l, 0)
	if !r.OK || r.Delay != 0 {
		s.Errorf("a peek was answered %v", show(r))
	}
	return r
}

// settle makes the charge of receipt cost something else.
func (s *suite) settle(key string, l *store.Limit, receipt store.Receipt, cost int64) store.Result {
	s.Helper()
	results := []store.Result{{Held: -99, Remaining: -99, ResetAfter: -99}}
	charges := []store.Charge{{Key: key, Limit: l, Cost: cost, Receipt: receipt}}
	if err := s.store.Settle(context.Background(), charges, results); err != nil {
		s.Fatalf("Settle: %v", err)
	}
	r := results[0]
	s.slots(l, r)
	if now := s.peek(key, l); r.Remaining != now.Remaining || r.ResetAfter != now.ResetAfter {
		s.Errorf("Settle answered %v, and then stood %v", show(r), show(now))
	}
	return r
}

// left checks what a key has left of a limit.
func (s *suite) left(key string, l *store.Limit, want int64) {
	s.Helper()
	if got := s.peek(key, l).Remaining; got != want {
		s.Errorf("%d left of %q, want %d", got, key, want)
	}
}

// must checks that a charge passed at once.
func (s *suite) must(r store.Result) store.Result {
	s.Helper()
	if !r.OK || r.Delay != 0 {
		s.Fatalf("refused or delayed: %v", show(r))
	}
	return r
}

// refused checks that a charge did not pass, and when it would.
func (s *suite) refused(r store.Result, retry time.Duration) {
	s.Helper()
	if r.OK || r.RetryAfter != retry {
		s.Errorf("%v, want no retry=%v", show(r), wait(retry))
	}
}
