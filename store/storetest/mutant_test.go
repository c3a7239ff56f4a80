//go:build !race

package storetest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/storetest"
)

// mutant is a store with a mistake in it, of the sort that stores have had. The
// suite has to find every one.
type mutant struct {
	*plain
	one    sync.Locker // of a call
	take   func(p *plain, charges []store.Charge, results []store.Result) error
	settle func(p *plain, charges []store.Charge, results []store.Result) error
	reset  func(p *plain, key string, limits []*store.Limit)
	ban    func(p *plain, key string, d time.Duration, limits []*store.Limit) ([]store.Result, error)
}

func (m *mutant) Take(_ context.Context, charges []store.Charge, results []store.Result) error {
	m.one.Lock()
	defer m.one.Unlock()
	return m.take(m.plain, charges, results)
}

func (m *mutant) Settle(_ context.Context, charges []store.Charge, results []store.Result) error {
	m.one.Lock()
	defer m.one.Unlock()
	return m.settle(m.plain, charges, results)
}

func (m *mutant) Reset(_ context.Context, key string, limits ...*store.Limit) (found bool, err error) {
	m.one.Lock()
	defer m.one.Unlock()
	found = m.plain.has(key, limits)
	m.reset(m.plain, key, limits)
	return found, nil
}

func (m *mutant) Ban(_ context.Context, key string, d time.Duration, limits ...*store.Limit) ([]store.Result, error) {
	m.one.Lock()
	defer m.one.Unlock()
	return m.ban(m.plain, key, d, limits)
}

// whole fills in what a mutant leaves as it is. All calls of one take turns, also
// those it leaves alone: mutants look at the states without the store's lock.
func (m mutant) whole(turns bool) *mutant {
	if m.plain == nil {
		m.plain = newPlain()
	}
	if m.take == nil {
		m.take = take
	}
	if m.settle == nil {
		m.settle = settle
	}
	if m.reset == nil {
		m.reset = func(p *plain, key string, limits []*store.Limit) {
			_, _ = p.Reset(context.Background(), key, limits...)
		}
	}
	if m.ban == nil {
		m.ban = func(p *plain, key string, d time.Duration, limits []*store.Limit) ([]store.Result, error) {
			return p.Ban(context.Background(), key, d, limits...)
		}
	}
	if m.one = new(sync.Mutex); !turns {
		m.one = unlocked{}
	}
	return &m
}

// unlocked lets several calls run at a time.
type unlocked struct{}

func (unlocked) Lock()   {}
func (unlocked) Unlock() {}

// numbered has limits with other numbers.
func numbered(change func(*store.Spec)) mutant {
	return replaced(func(s *store.Spec, _ *string) { change(s) })
}

// keyed stores everything under another key.
func keyed(rename func(limit, key string) (string, string)) mutant {
	return replaced(func(s *store.Spec, key *string) { s.Name, *key = rename(s.Name, *key) })
}

// replaced has charges on other limits and keys.
func replaced(change func(s *store.Spec, key *string)) mutant {
	calls := func(call func(*plain, []store.Charge, []store.Result) error) func(*plain, []store.Charge, []store.Result) error {
		return func(p *plain, charges []store.Charge, results []store.Result) error {
			charges = slices.Clone(charges)
			for i, c := range charges {
				if c.Limit == nil {
					continue
				}
				spec := c.Limit.Spec()
				change(&spec, &charges[i].Key)
				if l, err := store.NewLimit(spec); err == nil {
					charges[i].Limit = l
				}
			}
			return call(p, charges, results)
		}
	}
	return mutant{take: calls(take), settle: calls(settle)}
}

func take(p *plain, c []store.Charge, r []store.Result) error {
	return p.Take(context.Background(), c, r)
}

func settle(p *plain, c []store.Charge, r []store.Result) error {
	return p.Settle(context.Background(), c, r)
}

// charged changes the charges that Take sees.
func charged(change func(*store.Charge)) mutant {
	return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
		charges = slices.Clone(charges)
		for i := range charges {
			change(&charges[i])
		}
		return take(p, charges, results)
	}}
}

// answered changes what Take answers.
func answered(change func(*store.Charge, *store.Result)) mutant {
	return mutant{take: func(p *plain, charges []store.Charge, results []store.Result) error {
		err := take(p, charges, results)
		if err == nil {
			for i := range results {
				change(&charges[i], &results[i])
			}
		}
		return err
	}}
}

// The suite runs on each mutant in a process of its own, and has to fail.
func TestMutants(t *testing.T) {
	const variable = "STINT_MUTANT"
	name := os.Getenv(variable)
	if m := mutants[name]; m != nil {
		storetest.Run(t, func(*testing.T) store.Store {
			return m().whole(name != racy)
		})
		return
	}
	if os.Getenv("STINT_MUTANTS") == "" {
		t.Skip("a process for each of many mutants: make test-mutants")
	}
	for _, m := range slices.Sorted(maps.Keys(mutants)) {
		t.Run(m, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestMutants$", "-test.timeout=60s", "-test.failfast")
			cmd.Env = append(os.Environ(), variable+"="+m)
			out, err := cmd.CombinedOutput()
			_, rule, found := strings.Cut(string(out), "--- FAIL: TestMutants/")
			if err == nil || !found {
				t.Fatalf("passes the suite: %v\n%s", err, out)
			}
			rule, _, _ = strings.Cut(rule, " ")
			t.Logf("found by %s", rule)
		})
	}
}
