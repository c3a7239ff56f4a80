// Package storetest tests whether a store fulfills the contract of package store:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New() })
//	}
//
// The suite checks exact results: whether a charge passes, the number of units left, and all
// durations to the microsecond. One part replays traces: files in testdata with calls and their
// results, in the format described at the top of trace.go. The other part checks rules that
// hold for every trace.
//
// The names of the suite's limits begin with "st". The suite uses up to ten thousand keys in
// one store. One key is a megabyte long.
package storetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
)

// Option changes how Run tests a store.
type Option interface{ apply(*config) }

type option func(*config)

func (set option) apply(c *config) { set(c) }

type config struct {
	newStore func(*testing.T) store.Store
	sleep    func(time.Duration)
	now      func() time.Time
}

// WithSleep makes the suite pass time by calling sleep instead of running in a bubble of
// testing/synctest. Use it for a store with a clock of its own, or for a store that can't run
// in a bubble, for instance because it makes network calls. sleep must advance the store's
// clock by exactly its argument, which is a multiple of a microsecond and may be months. The
// clock must not advance otherwise.
func WithSleep(sleep func(time.Duration)) Option {
	return option(func(c *config) { c.sleep = sleep })
}

// WithNow sets the clock that the store's calendar windows follow. The default is
// time.Now. Use it together with WithSleep.
func WithNow(now func() time.Time) Option {
	return option(func(c *config) { c.now = now })
}

// Run tests the stores made by newStore. Each rule is a subtest with a store of its own. The
// stores must not share state. newStore releases resources by t.Cleanup. If the store doesn't
// implement store.Resetter or store.Banner, the rules about Reset or Ban are skipped.
//
// By default each subtest runs in a bubble of testing/synctest, where time.Sleep takes no real
// time. newStore is called inside the bubble. The store must read time through package time,
// and its goroutines must end with the test.
func Run(t *testing.T, newStore func(*testing.T) store.Store, opts ...Option) {
	c := &config{newStore: newStore, now: time.Now}
	for _, opt := range opts {
		opt.apply(c)
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
		{"AtLeast", atLeastRows},
		{"Several", severalRows},
		{"Settle", settleRows},
		{"Versions", versionRows},
		{"Expiry", expiryRows()},
		{"Calendar", calendarRows},
		{"Concurrency", leaseRows},
		{"Concurrent", concurrentRows},
		{"Call", callRows},
		{"Reset", append(resetRows, resetReceiptRows...)},
		{"Ban", banRows},
	} {
		for _, row := range group.rows {
			c.run(t, group.name+"/"+row.name, row.rule)
		}
	}
}

// row is one rule of the suite.
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

// suite is one rule's view of a store under test.
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

// decide makes one call, and returns its answers and whether it was granted.
func (s *suite) decide(charges ...store.Charge) ([]store.Result, bool) {
	s.Helper()
	results := make([]store.Result, len(charges))
	for i := range results { // so that a field the store doesn't write is noticed
		results[i] = store.Result{Held: -99, Remaining: -99, Delay: -99, RetryAfter: -99, ResetAfter: -99, MoreAfter: -99,
			Receipt: store.Receipt{Cost: -99}}
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
			s.Errorf("a charge of %d was made, but its receipt is %+v", charges[i].Cost, r.Receipt)
		}
		if !made && r.Receipt != (store.Receipt{}) {
			s.Errorf("no charge was made, but its receipt is %+v", r.Receipt)
		}
		if r.OK != (r.RetryAfter == 0) && charges[i].Limit.Algorithm() != store.Concurrency || r.Remaining < 0 ||
			r.Delay < 0 || r.RetryAfter < 0 || r.ResetAfter < 0 || r.MoreAfter < 0 {
			s.Errorf("impossible answer %v", show(r))
		}
		s.slots(charges[i].Limit, r)
	}
	return results, granted
}

// slots checks the Held of an answer, which only a Concurrency sets. It may exceed the
// limit's number after that was lowered.
func (s *suite) slots(l *store.Limit, r store.Result) {
	s.Helper()
	if l.Algorithm() != store.Concurrency {
		if r.Held != 0 {
			s.Errorf("a %v reports %d slots held", l.Algorithm(), r.Held)
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
		s.Errorf("impossible answer to a peek: %v", show(r))
	}
	return r
}

// settle replaces the cost of the charge with that receipt.
func (s *suite) settle(key string, l *store.Limit, receipt store.Receipt, cost int64) store.Result {
	s.Helper()
	results := []store.Result{{Held: -99, Remaining: -99, ResetAfter: -99, MoreAfter: -99}}
	charges := []store.Charge{{Key: key, Limit: l, Cost: cost, Receipt: receipt}}
	if err := s.store.Settle(context.Background(), charges, results); err != nil {
		s.Fatalf("Settle: %v", err)
	}
	r, now := results[0], s.peek(key, l)
	if cost == 0 && receipt.Lease != (store.LeaseID{}) { // the rest may be left out
		now.Receipt = r.Receipt
		return now
	}
	s.slots(l, r)
	if r.Remaining != now.Remaining || r.ResetAfter != now.ResetAfter || r.MoreAfter != now.MoreAfter {
		s.Errorf("Settle answered %v, but a peek at the same instant %v", show(r), show(now))
	}
	return r
}

// left checks how much of a limit a key has left.
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
		s.Fatalf("denied or delayed: %v", show(r))
	}
	return r
}

// denied checks that a charge was denied, and its RetryAfter.
func (s *suite) denied(r store.Result, retry time.Duration) {
	s.Helper()
	if r.OK || r.RetryAfter != retry {
		s.Errorf("%v, want no retry=%v", show(r), wait(retry))
	}
}
