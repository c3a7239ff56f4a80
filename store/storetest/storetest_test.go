package storetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/storetest"
)

// plain is the least a store can be: a map, a lock around it, and the steps.
// It forgets nothing by itself.
type plain struct {
	mu     sync.Mutex
	states map[place]store.State
	clock  func() time.Time
	origin time.Time
	leases uint64
	change func(store.Now) store.Now // of a mutant
	name   func(*store.Limit) string // of a mutant
}

type place struct{ limit, key string }

func (p *plain) placeOf(c store.Charge) place { return place{p.name(c.Limit), c.Key} }

func newPlain() *plain { return newPlainAt(time.Now) }

func newPlainAt(clock func() time.Time) *plain {
	return &plain{states: map[place]store.State{}, clock: clock, origin: clock(), name: (*store.Limit).StateName}
}

func (p *plain) now() store.Now {
	now := p.clock()
	p.leases++
	n := store.Now{
		Steady: now.Sub(p.origin).Microseconds(),
		Wall:   now.UnixMicro() - store.Epoch*1_000_000,
		Lease:  store.Lease(p.leases),
	}
	if p.change != nil {
		n = p.change(n)
	}
	return n
}

func (p *plain) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	states := make([]store.State, len(charges))
	seen := map[place]bool{}
	for i, c := range charges {
		at := p.placeOf(c)
		if seen[at] {
			return store.ErrDuplicate
		}
		seen[at] = true
		states[i] = p.states[at]
	}
	store.Decide(p.now(), charges, states, results)
	for i, c := range charges {
		p.keep(p.placeOf(c), states[i])
	}
	return nil
}

func (p *plain) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	if err := store.Check(charges, results); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range charges {
		at := p.placeOf(c)
		state := p.states[at]
		store.Amend(p.now(), &c, &state, &results[i])
		p.keep(at, state)
	}
	return nil
}

func (p *plain) keep(at place, s store.State) {
	if inside.State(&s).Live {
		p.states[at] = s
	} else {
		delete(p.states, at)
	}
}

func (p *plain) Reset(_ context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	found = p.has(key, limits)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range limits {
		delete(p.states, place{p.name(l), key})
	}
	return found, nil
}

func (p *plain) Ban(_ context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	if err := store.CheckBan(d, limits...); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make([]store.Result, len(limits))
	for i, l := range limits {
		at := place{p.name(l), key}
		state := p.states[at]
		store.BanFor(p.now(), l, d, &state, &results[i])
		p.keep(at, state)
	}
	return results, nil
}

// has reports whether the store has a state of key for one of the limits.
func (p *plain) has(key string, limits []*store.Limit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(limits, func(l *store.Limit) bool {
		_, found := p.states[place{p.name(l), key}]
		return found
	})
}

func TestRun(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return newPlain() })
}

// A store that counts from a date later than the present, as one from store.Epoch does in a bubble.
func TestRunBeforeOrigin(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store {
		p := newPlain()
		p.origin = time.Unix(store.Epoch, 0)
		return p
	})
}

// A store whose clock is set from outside, and not at a round time.
func TestRunWithSleep(t *testing.T) {
	var mu sync.Mutex
	at := time.Date(2026, 2, 27, 21, 43, 17, 123_457_000, time.UTC)
	now := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	sleep := func(d time.Duration) {
		if d%time.Microsecond != 0 || d < 0 {
			t.Errorf("sleep(%v)", d)
		}
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(d)
	}
	newStore := func(*testing.T) store.Store {
		p := newPlainAt(now)
		p.origin = p.origin.Add(-12_345_678_901 * time.Microsecond) // as a server's clock has it
		return p
	}
	storetest.Run(t, newStore, storetest.WithSleep(sleep), storetest.WithNow(now))
}
