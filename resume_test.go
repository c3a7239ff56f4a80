package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
)

// travel keeps a permit and resumes it by a limiter.
func travel(t testing.TB, p *stint.Permit, l *stint.Limiter, key string) *stint.Permit {
	t.Helper()
	resumed, err := permit.Travel.Resume(context.Background(), l, key, permit.Travel.Keep(p))
	if err != nil {
		t.Fatal(err)
	}
	return resumed.(*stint.Permit)
}

// slowLimits have a limit of each algorithm, whose units don't come back while a test runs.
func slowLimits(units int64) map[string]stint.Limit {
	const period = 1000 * time.Hour
	name := stint.WithName("a")
	all := map[string]stint.Limit{
		"LeakyBucket": stint.Rate(units, period, name, stint.WithAlgorithm(stint.LeakyBucket),
			stint.WithBurst(units), stint.WithQueue(2)),
		"FixedWindow":    stint.Quota(units, stint.Every(period), name),
		"IntervalBucket": stint.Quota(units, stint.Every(period), name, stint.WithAlgorithm(stint.IntervalBucket)),
		"WarmUp":         stint.Rate(units, period, name, stint.WithWarmUp(time.Hour)),
	}
	for _, a := range []store.Algorithm{stint.TokenBucket, stint.SlidingCounter, stint.SlidingWindow,
		stint.SlidingLog} {
		all[a.String()] = stint.Rate(units, period, name, stint.WithAlgorithm(a))
	}
	return all
}

// script does operations on a permit, and returns what it and its key have after each. move returns the permit that the
// next operation is on.
func script(t testing.TB, l *stint.Limiter, key, operations string, limits func(units int64) stint.Limit,
	move func(*stint.Permit) *stint.Permit) string {
	t.Helper()
	var b strings.Builder
	p, err := l.Take(t.Context(), key, 10)
	if err != nil {
		t.Fatal(err)
	}
	for operation := range strings.SplitSeq(operations, "; ") {
		p = move(p)
		verb, number, _ := strings.Cut(operation, " ")
		n, _ := strconv.ParseInt(number, 10, 64)
		switch verb {
		case "extend":
			err = p.Extend(t.Context(), n)
		case "settle":
			err = p.Settle(t.Context(), n)
		case "update":
			err = l.Update(limits(n))
		}
		d, peekErr := l.Peek(t.Context(), key)
		if peekErr != nil {
			t.Fatal(peekErr)
		}
		fmt.Fprintf(&b, "%s: costs %d, %d left, %t\n", operation, p.Decision().Limits[0].Cost, d.Remaining, err == nil)
	}
	return b.String()
}

// A permit that leaves and comes back before each operation is raised and settled as one that stays, by each algorithm,
// and across an Update that only one of the processes has seen.
func TestResumedPermit(t *testing.T) {
	const operations = "extend 20; settle 5; settle 30; extend 40; extend 1000; settle 1; settle 0; " +
		"update 200; settle 50; extend 60; settle 1; extend 190; settle 1"
	overStores(t, func(t *testing.T, s store.Store) {
		for name := range slowLimits(100) {
			t.Run(name, func(t *testing.T) {
				limits := func(units int64) stint.Limit { return slowLimits(units)[name] }
				make := func() *stint.Limiter { return limiter(t, theKey, stint.WithStore(s), limits(100)) }
				stays := script(t, make(), "stays", operations, limits,
					func(p *stint.Permit) *stint.Permit { return p })
				l, other := make(), make()
				travels := script(t, l, "travels", operations, limits, func(p *stint.Permit) *stint.Permit {
					return travel(t, travel(t, p, other, "travels"), l, "travels")
				})
				if travels != stays {
					t.Errorf("a permit that stays has\n%s\none that travels has\n%s", stays, travels)
				}
			})
		}
	})
}

// What an Update has removed, or given another window, keeps what it was charged. What is added is charged by the
// limits that are in force.
func TestResumedAfterAnotherLimit(t *testing.T) {
	quota := func(units int64, days int, name string) stint.Limit {
		return stint.Quota(units, stint.Every(time.Duration(days)*24*time.Hour), stint.WithName(name))
	}
	l := limiter(t, theKey, quota(100, 1, "a"), quota(100, 1, "b"), slowly(100),
		stint.Ban(5, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
	p := take(t, l, 10)
	extend(t, p, 20)
	if err := l.Update(quota(100, 2, "a"), slowly(50), stint.Ban(5, time.Hour, stint.WithBanFor(time.Hour),
		stint.WithName("ban"))); err != nil {
		t.Fatal(err)
	}
	p = travel(t, p, l, "k")
	unitsLeft(t, l, "after the Update", 100, 30, 5)
	settle(t, p, 5)
	unitsLeft(t, l, "after a refund", 100, 40, 5) // of the last raise
	extend(t, p, 25)
	unitsLeft(t, l, "after a raise", 95, 25, 5)
	p = travel(t, p, l, "k")
	settle(t, p, 20)
	unitsLeft(t, l, "after the refund of the raise", 100, 30, 5)
	if err := l.Ban(t.Context(), "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	if de := denied(t, travel(t, p, l, "k").Extend(t.Context(), 40)); de.Decision.Limit != "ban" {
		t.Errorf("while the key is banned, a raise is denied by %q", de.Decision.Limit)
	}
	if err := p.Settle(t.Context(), 1, "b"); err == nil || !strings.Contains(err.Error(), `no limit "b"`) {
		t.Errorf("a limit that is gone: %v", err)
	}
	if _, err := permit.Travel.Resume(t.Context(), l, "", permit.Travel.Keep(p)); !errors.Is(err, stint.ErrEmptyKey) {
		t.Errorf("an empty key: %v", err)
	}
}

// Where it isn't known whether a permit was settled, it isn't settled again, in any process.
func TestResumedUnknown(t *testing.T) {
	s := storefake.New()
	l := limiter(t, theKey, stint.WithStore(s), slowly(100))
	p := take(t, l, 10)
	s.OnSettle = func(c *storefake.Call) error { _ = c.Pass(); return errors.New("the answer is lost") }
	if err := p.Settle(t.Context(), 1); err == nil {
		t.Fatal("the settlement passes")
	}
	s.OnSettle = nil
	p = travel(t, travel(t, p, l, "k"), l, "k")
	for what, err := range map[string]error{"Settle": p.Settle(t.Context(), 5), "Extend": p.Extend(t.Context(), 20)} {
		if err == nil || !strings.Contains(err.Error(), "isn't known") {
			t.Errorf("%s: %v", what, err)
		}
	}
	unitsLeft(t, l, "after it", 99)
}
