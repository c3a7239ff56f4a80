package failover_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

var (
	errDown     = errors.New("connection refused")
	errReadOnly = errors.New("READONLY you can't write against a read only replica")
)

// side is a store that grants everything, with a receipt of its own, and fails
// or hangs when told to.
type side struct {
	mu      sync.Mutex
	err     error
	lost    map[string]error // by key: of the part of the store that is down
	written error            // of calls that charge: what is read is answered
	path    uint8            // of its receipts
	takes   []store.Charge
	settles []store.Charge
	resets  int
	hang    time.Duration
	deaf    bool // hangs on when the context has ended
	panics  bool
	denies  bool

	probing, most int // probes at a time
}

func (s *side) set(f func(*side)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *side) fail(err error) { s.set(func(s *side) { s.err = err }) }

func (s *side) answer(ctx context.Context, log *[]store.Charge, charges []store.Charge) (uint8, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if log != nil {
		*log = append(*log, charges...)
	}
	err := s.err
	for _, c := range charges {
		if err == nil {
			err = s.lost[c.Key]
		}
		if err == nil && c.Cost > 0 {
			err = s.written
		}
	}
	path, hang, deaf, panics := s.path, s.hang, s.deaf, s.panics
	if hang > 0 {
		done := ctx.Done()
		if deaf {
			done = nil
		}
		s.mu.Unlock()
		select {
		case <-time.After(hang):
		case <-done:
			err = ctx.Err()
		}
		s.mu.Lock()
	}
	if panics {
		panic("side")
	}
	return path, err
}

func (s *side) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if isProbe(charges) {
		s.set(func(s *side) { s.probing++; s.most = max(s.most, s.probing) })
		defer s.set(func(s *side) { s.probing-- })
	}
	path, err := s.answer(ctx, &s.takes, charges)
	if err != nil {
		return err
	}
	for i := range results {
		results[i] = store.Result{OK: !s.denies}
		if charges[i].Cost > 0 && !s.denies {
			results[i].Receipt = store.Receipt{Instant: 1, Cost: charges[i].Cost, Path: path}
		}
	}
	return nil
}

func (s *side) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	_, err := s.answer(ctx, &s.settles, charges)
	if err != nil {
		return err
	}
	for i := range results {
		results[i] = store.Result{OK: true, Receipt: charges[i].Receipt}
		results[i].Receipt.Cost = charges[i].Cost
	}
	return nil
}

func (s *side) Reset(ctx context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	s.set(func(s *side) { s.resets++ })
	_, err = s.answer(ctx, nil, nil)
	return err == nil, err
}

func isProbe(charges []store.Charge) bool {
	return len(charges) > 0 && charges[0].Limit.Name() == failover.ProbeLimit
}

// counted returns how many charges callers made and how many probes did.
func (s *side) counted() (charges, probes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.takes {
		if isProbe(s.takes[i:]) {
			probes++
		} else {
			charges++
		}
	}
	return charges, probes
}

// only hides Reset.
type only struct{ store.Store }

var limit = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: "rate", Units: 10, Period: time.Second})
	if err != nil {
		panic(err)
	}
	return l
}()

func charge() []store.Charge { return []store.Charge{{Key: "k", Limit: limit, Cost: 1}} }

func take(s store.Store) (store.Receipt, error) { return takeFor(context.Background(), s, "k") }

func takeFor(ctx context.Context, s store.Store, key string) (store.Receipt, error) {
	r := make([]store.Result, 1)
	err := s.Take(ctx, []store.Charge{{Key: key, Limit: limit, Cost: 1}}, r)
	return r[0].Receipt, err
}

func settle(s store.Store, receipts ...store.Receipt) ([]store.Receipt, error) {
	charges := make([]store.Charge, len(receipts))
	for i, r := range receipts {
		charges[i] = store.Charge{Key: "k", Limit: limit, Receipt: r}
	}
	before := slices.Clone(charges)
	results := make([]store.Result, len(charges))
	err := s.Settle(context.Background(), charges, results)
	if !slices.Equal(before, charges) {
		panic("the caller's charges were changed")
	}
	out := make([]store.Receipt, len(results))
	for i := range results {
		out[i] = results[i].Receipt
	}
	return out, err
}

func trip(t *testing.T, s *failover.Store, n int) {
	t.Helper()
	for range n {
		take(s)
	}
	if s.State() != failover.Open {
		t.Fatalf("closed after %d failures", n)
	}
}

// gate is a store that can be shut: it then fails what it is asked for, but lets
// in a Settle, so that what was made is known.
type gate struct {
	storefake.Store
	shut    atomic.Bool
	settled atomic.Int64
	meet    func(context.Context) error // what a Settle meets first, or nil
}

func newGate(before store.Store) *gate {
	g := &gate{Store: storefake.Store{Store: before}}
	g.OnTake = func(c *storefake.Call) error {
		if g.shut.Load() {
			return errDown
		}
		return c.Pass()
	}
	g.OnSettle = func(c *storefake.Call) error {
		if isProbe(c.Charges) {
			return c.Pass()
		}
		if g.meet != nil {
			if err := g.meet(c.Ctx); err != nil {
				return err
			}
		}
		g.settled.Add(int64(len(c.Charges)))
		return c.Pass()
	}
	return g
}
