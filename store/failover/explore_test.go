package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	orders "github.com/stint-go/stint/internal/test/explore/steps"
	ending "github.com/stint-go/stint/internal/test/explore/steps/context"
	"github.com/stint-go/stint/internal/test/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/test/explore/steps/time"
	"github.com/stint-go/stint/store"
)

// explored is a failover.Store that is explored.
type explored interface {
	store.Store
	Close() error
	// Period is how often the breaker has changed, and Left what there is still to do.
	Period() int
	Left() (pendingRelease, events int, probing bool)
}

// one is a store of which a failover.Store is made.
type one = store.Store

type newStore func(primary, secondary one, threshold int, observe func(opens bool)) explored

var variants = map[string]newStore{}

const exploredFile = `package failover

import "github.com/stint-go/stint/store"

type Explored struct {
	*Store
	told *store.Observer
}

func Explore(primary, secondary store.Store, threshold int, observe func(opens bool)) Explored {
	open := false
	x := Explored{New(primary, secondary, WithThreshold(threshold)), &store.Observer{Tell: func(n store.Notice) {
		if opens := n.Kind == store.Degraded; n.Kind != store.CallFailed && opens != open {
			open = opens
			observe(opens)
		}
	}}}
	x.Observe(x.told)
	return x
}

func (x Explored) Period() int { now, _ := x.circuit.state(); return int(now) }

func (x Explored) Left() (kept, events int, probing bool) { return len(x.pending), len(x.events), x.probing }
`

// half is one of the two stores. It decides each call in a step.
type half struct {
	*orders.Run
	name   string
	is     string // up, down, failing (calls after a while), hanging (until their deadlines), or late (after these)
	stands map[store.Receipt]bool
	heard  map[store.Receipt]bool // to be settled, but was down
	made   byte                   // leases
	// failed is how many calls have failed in a way that counts, by the period that it was
	// when they got here: the breaker may have counted them in the one before.
	// If one actor charges and nothing is released in the background, a charge ends the row.
	failed map[int]int
	alone  bool
	period func() int
}

func newHalf(r *orders.Run, name string) *half {
	return &half{Run: r, name: name, is: "up", stands: map[store.Receipt]bool{}, heard: map[store.Receipt]bool{}, failed: map[int]int{}}
}

var errHalf = errors.New("down")

// asked is the way to the half, and says whether it decides.
func (h *half) asked(ctx context.Context, since int) error {
	orders.At(orders.Store, unsafe.Pointer(h))
	orders.Note("the %s is asked, and is %s", h.name, h.is)
	switch is := h.is; is {
	case "down":
		h.failed[since]++
		return errHalf
	case "failing":
		lang.Receive(twin.After(900 * time.Millisecond)) // longer than an outage that a probe ends
		h.failed[since]++
		return errHalf
	case "hanging", "late":
		began := orders.Now()
		lang.Receive(ctx.Done())
		if is == "late" {
			lang.Receive(twin.After(lateness))
			orders.At(orders.Store, unsafe.Pointer(h))
			break
		}
		if orders.Now().Sub(began) >= 250*time.Millisecond {
			h.failed[since]++ // asked in the background: no caller waits as long
		}
		return ctx.Err()
	}
	return nil
}

func (h *half) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	since := h.period()
	if err := h.asked(ctx, since); err != nil {
		return err
	}
	if h.alone && charges[0].Limit == rateLimit {
		h.failed[since] = 0
	}
	h.made++
	results[0] = store.Result{OK: true, Receipt: store.Receipt{Instant: int64(h.made), Cost: 1}}
	if charges[0].Limit == slotLimit {
		results[0].Receipt.Lease = store.LeaseID{h.made, h.name[0]}
		h.stands[results[0].Receipt] = true
	}
	return nil
}

func (h *half) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := h.asked(ctx, h.period()); err != nil {
		return err
	}
	if charges[0].Receipt.Lease[1] != h.name[0] {
		h.Broken("the %s settles what it hasn't charged", h.name)
	}
	delete(h.stands, charges[0].Receipt)
	results[0] = store.Result{OK: true}
	return nil
}

var (
	slotLimit = exploredLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 9})
	rateLimit = exploredLimit(store.Spec{Name: "rate", Units: 9, Period: time.Second})
)

func exploredLimit(spec store.Spec) *store.Limit {
	l, err := store.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	return l
}

// outage is a set of concurrent actions while a primary may fail.
type outage struct {
	threshold int
	actors    []string
}

func (x outage) String() string {
	return fmt.Sprintf("threshold %d: %s", x.threshold, strings.Join(x.actors, " | "))
}

func (x outage) scenario(newStore newStore) func(*orders.Run) {
	return func(r *orders.Run) {
		r.Freeze()
		w := &pair{Run: r, threshold: x.threshold, late: strings.Contains(x.String(), "late"), primary: newHalf(r, "primary"), secondary: newHalf(r, "secondary")}
		w.store = newStore(w.primary, w.secondary, x.threshold, w.observe)
		w.primary.period, w.secondary.period = w.store.Period, func() int { return 0 }
		w.primary.alone = len(x.actors) == 1 && !strings.Contains(x.String(), "take")
		for i, does := range x.actors {
			r.Go(string(rune('A'+i)), func() {
				var held store.Receipt
				for what := range strings.SplitSeq(does, "; ") {
					w.do(what, &held)
				}
			})
		}
		r.End(w.look)
	}
}

// pair are the two stores of one run.
type pair struct {
	*orders.Run
	store              explored
	primary, secondary *half
	threshold          int
	late               bool // the primary is at times
	changes            int  // as the observer was told
	closed             bool
}

func (w *pair) observe(opens bool) {
	if orders.Note("observed: opens: %t", opens); opens != (w.changes%2 == 0) {
		w.Broken("the breaker is told to be what it is: open: %t", opens)
	}
	// The first period is 0, and the breaker opens at the ends of the even ones.
	if opens && w.primary.failed[w.changes] < w.threshold {
		w.Broken("the breaker opens after %d failures in its period", w.primary.failed[w.changes])
	}
	w.changes++
}

func (w *pair) do(what string, held *store.Receipt) {
	ctx, most := context.Background(), forever
	what, within, bounded := strings.Cut(what, " in ")
	if bounded {
		most, _ = time.ParseDuration(within)
		within, end := ending.WithTimeout(ctx, most)
		defer end()
		ctx = within
	}
	what, atOnce := strings.CutSuffix(what, " at once")
	if atOnce {
		most = 0
	}
	began := orders.Now()
	switch what {
	case "up", "down", "failing", "hanging", "late":
		orders.At(orders.Store, unsafe.Pointer(w.primary))
		w.primary.is = what
		orders.Note("the primary is %s", what)
	case "wait":
		lang.Receive(twin.After(250 * time.Millisecond)) // as long as the next probe
	case "close":
		w.closed = true
		_ = w.store.Close()
	case "charge":
		w.take(ctx, rateLimit)
		if period := w.store.Period(); w.primary.alone && period%2 == 0 && w.primary.failed[period] >= w.threshold {
			w.Broken("%d failures in a row, and the breaker is closed", w.primary.failed[period])
		}
	case "take":
		*held = w.take(ctx, slotLimit)
	case "release":
		if *held == (store.Receipt{}) {
			return
		}
		var result [1]store.Result
		err := w.store.Settle(ctx, []store.Charge{{Key: "k", Limit: slotLimit, Receipt: *held}}, result[:])
		orders.Note("released: %v", err)
		// Only what the open breaker keeps from the primary is made later.
		w.primary.heard[*held] = err != nil && !strings.Contains(err.Error(), "the breaker is open")
	default:
		panic(what)
	}
	if w.late {
		most += lateness
	}
	if took := orders.Now().Sub(began); took > most {
		w.Broken("%s takes %v", what, took)
	}
}

const (
	forever  = time.Hour
	lateness = 50 * time.Millisecond // of an answer, after the caller's deadline
)

func (w *pair) take(ctx context.Context, l *store.Limit) store.Receipt {
	var result [1]store.Result
	err := w.store.Take(ctx, []store.Charge{{Key: "k", Limit: l, Cost: 1}}, result[:])
	orders.Note("charged: %v", err)
	if _, bounded := ctx.Deadline(); bounded && errors.Is(err, context.DeadlineExceeded) {
		return store.Receipt{}
	}
	if err != nil || !result[0].OK {
		w.Broken("a Take with a secondary fails: %v", err)
	}
	return result[0].Receipt
}

// look says whether everything is as it was, but for what a primary heard of and failed.
func (w *pair) look() {
	for _, h := range []*half{w.primary, w.secondary} {
		for receipt := range h.stands {
			if !h.heard[receipt] && !(h == w.primary && w.closed) {
				w.Broken("a slot of the %s that has been released stands", h.name)
			}
		}
	}
	if w.closed {
		return
	}
	if period := w.store.Period(); period%2 == 1 || period != w.changes {
		w.Broken("the primary is up, after %d changes; observed: %d", period, w.changes)
	}
	if kept, events, probing := w.store.Left(); kept > 0 || events > 0 || probing {
		w.Broken("%d releases and %d events are left, probing: %t", kept, events, probing)
	}
}

// Whatever callers do while a primary fails, hangs, or answers too late, and comes back:
// each charge is made on one side and settled there, a slot that is released is free in
// the end, callers wait no longer than their deadlines, the breaker opens for failures
// that count, and closes, the observer is told of each change once and in order, and no
// probing goes on.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&orders.Elsewhere{
			Path:    "github.com/stint-go/stint/store/failover",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry: "func(primary, secondary one, threshold int, observe func(bool)) explored " +
				"{ return V.Explore(primary, secondary, threshold, observe) }",
		}).Run(t)
		return
	}
	var outages []outage
	during := func(threshold int, actors ...string) { outages = append(outages, outage{threshold, actors}) }
	during(2, "down; charge; up; charge; down; charge; up; charge")
	during(2, "down; charge; charge; up; wait; down; charge; charge; up; wait")
	during(2, "down; charge; charge; up; wait; down; charge; up; charge; wait")
	during(1, "charge in 900ms", "hanging; down; charge; up; wait; wait; wait; wait")
	during(1, "charge", "failing; down; charge; up; wait; wait; wait; wait")
	during(2, "take; down; charge; charge; release; up", "wait; down; wait; up")
	during(1, "take; release", "down; up")
	during(1, "take; release", "charge", "down; up")
	during(1, "take; release", "charge", "down; wait; up")
	during(1, "take; wait; release", "charge", "down; wait; up")
	during(1, "take; down; charge; release; up; wait; down; charge; up")
	during(1, "take; down; charge; release; up; wait; down; up", "wait; charge")
	during(1, "take; release", "charge", "down; up", "close")
	during(2, "take; release", "take; release", "down; up")
	during(1, "hanging; charge in 200ms; charge in 50ms; up; charge")
	during(2, "hanging; charge in 50ms; charge in 50ms; charge in 50ms; up")
	during(2, "hanging; charge in 200ms; charge in 50ms; charge in 200ms; up; charge")
	during(1, "charge in 200ms; charge in 200ms", "hanging; wait; up")
	during(1, "take in 200ms; release in 200ms", "hanging; wait; wait; up")
	during(2, "take in 200ms; release in 200ms", "take in 200ms; release in 200ms", "hanging; up")
	during(2, "charge in 200ms; charge in 200ms", "charge in 50ms; charge in 200ms", "hanging; up")
	during(1, "late; take in 200ms; release in 200ms", "wait; down; charge; up")
	during(1, "take in 200ms; release in 200ms", "late; wait; up")
	during(1, "down; charge; late; wait; wait; wait; up", "charge in 200ms; wait; charge in 200ms")
	during(1, "take; hanging; charge in 200ms; release in 200ms; up; wait", "charge in 200ms")
	during(1, "take; hanging; release in 200ms; up; charge")
	during(1, "take; down; charge in 200ms; release in 200ms; up; wait", "wait; hanging; wait; wait; wait; up")
	during(1, "take in 200ms; release in 200ms", "hanging; wait; wait; up", "wait; wait; close")
	orders.Explore(t, mutants, outages, func(variant string, x outage) func(*orders.Run) {
		return x.scenario(variants[variant])
	})
}

var mutants = []orders.Variant{
	{Name: "what is the caller's own counts", Edits: []orders.Edit{{File: "breaker.go",
		Was: "		return callerError{err}\n	}\n	s.recordFailure", Is: "		defer s.recordFailure(now, err, charges)\n		return callerError{err}\n	}\n	s.recordFailure"}}},
	{Name: "a success doesn't reset the count of failures", Edits: []orders.Edit{{File: "circuit.go",
		Was: "	if current, _ := s.circuit.state(); current == since {\n		s.circuit.failures.Store(0)\n	}\n", Is: ""}}},
	{Name: "the count goes on after an outage", Edits: []orders.Edit{{File: "circuit.go",
		Was: "	s.circuit.failures.Store(0)\n	s.circuit.period.Add(1)\n", Is: "	s.circuit.period.Add(1)\n"}}},
	{Name: "one failure too many is needed", Edits: []orders.Edit{{File: "circuit.go",
		Was: ">= int64(s.threshold)", Is: "> int64(s.threshold)"}}},
	{Name: "a failure from before the outage counts after it", Edits: []orders.Edit{{File: "circuit.go",
		Was: "	if current, _ := s.circuit.state(); current != since {\n", Is: "	if _, open := s.circuit.state(); open {\n"}}},
	{Name: "a failure counts in two steps", Edits: []orders.Edit{{File: "circuit.go",
		Was: "	if s.circuit.failures.Add(1) >= int64(s.threshold) {\n",
		Is:  "	failures := s.circuit.failures.Add(1)\n	s.mu.Unlock()\n	s.mu.Lock()\n	if failures >= int64(s.threshold) {\n"}}},
	{Name: "a probe may take for ever", Edits: []orders.Edit{{File: "probe.go",
		Was: "context.WithTimeout(s.life, s.timeout)", Is: "context.WithCancel(s.life)"}}},
	{Name: "a release that is made later may take for ever", Edits: []orders.Edit{{File: "release.go",
		Was: "context.WithTimeout(s.life, s.timeout)", Is: "context.WithCancel(s.life)"}}},
	{Name: "a release that isn't made is forgotten", Edits: []orders.Edit{{File: "failover.go",
		Was: "	if err == errNotAsked {\n		s.keepReleases(charges)\n	}\n", Is: ""}}},
	{Name: "a release that is kept waits for the next outage", Edits: []orders.Edit{{File: "release.go",
		Was: "	s.startProbing() // the breaker may have closed meanwhile\n", Is: ""}}},
	{Name: "the probing ends in two steps", Edits: []orders.Edit{{File: "probe.go",
		Was: "			done = !s.probing\n			s.mu.Unlock()\n",
		Is:  "			done = !s.probing\n			s.probing = true\n			s.mu.Unlock()\n			s.mu.Lock()\n			s.probing = !done\n			s.mu.Unlock()\n"}}},
	{Name: "a closed breaker is probed", Edits: []orders.Edit{{File: "probe.go",
		Was: "		if s.State() == Open {\n			s.probeOnce()\n		}\n", Is: "		s.probeOnce()\n"}}},
	{Name: "a release that the probing goroutine isn't let make is forgotten", Edits: []orders.Edit{{File: "release.go",
		Was: "		if err == nil {\n			continue\n", Is: "		if err == nil || err == errNotAsked {\n			continue\n"}}},
	{Name: "a release that fails in the background is forgotten", Edits: []orders.Edit{{File: "release.go",
		Was: "time.Since(k.tried) >= keepFor", Is: "true"}}},
	{Name: "events are told in two steps", Edits: []orders.Edit{{File: "probe.go",
		Was: "			e := s.events[0]\n			s.events = s.events[1:]\n			s.mu.Unlock()\n",
		Is:  "			e := s.events[0]\n			s.mu.Unlock()\n			s.mu.Lock()\n			s.events = nil\n			s.mu.Unlock()\n"}}},
	{Name: "what the secondary has charged is settled on the primary", Edits: []orders.Edit{{File: "receipt.go",
		Was: "r.Path = r.Path<<1 | side", Is: "r.Path = r.Path << 1"}}},
}
