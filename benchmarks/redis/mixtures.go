package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

const oneRate = "one rate"

// newMixtures are decisions of several limits, and decisions of different kinds
// side by side.
func newMixtures(s *server) (subjects []subject, end func()) {
	client := s.client()
	mine := redisstore.New(client, redisstore.WithTimeout(5*time.Second))
	bucket := func(name string, per time.Duration) *store.Limit {
		return limit(store.Spec{Name: name, Units: 100, Period: per, Burst: 1_000_000})
	}
	rate := bucket("rate", time.Second)
	five := []*store.Limit{rate, bucket("minute", time.Minute), bucket("five", 5*time.Minute),
		bucket("ten", 10*time.Minute), bucket("hour", time.Hour)}
	quota := limit(store.Spec{Name: "daily", Algorithm: store.FixedWindow, Units: burst, Window: store.Daily})
	sliding := limit(store.Spec{Name: "sliding", Algorithm: store.SlidingWindow, Units: burst, Period: time.Minute})
	slots := limit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 10_000})

	one, two := taking{mine, five[:1]}, taking{mine, []*store.Limit{rate, quota}}
	slot := taking{mine, []*store.Limit{slots}}
	calls := func(name string, charges int, limits ...*store.Limit) subject {
		return subject{name: name, call: taking{mine, limits}.call, charges: charges}
	}
	// Slots that are given back between the stretches measured: a server's figures
	// don't tell a Settle from a Take.
	held := func(name string, charges int, limits ...*store.Limit) subject {
		h := &holding{taking: taking{mine, limits}}
		return subject{name: name, call: h.call, rest: h.giveBack, charges: charges}
	}
	turns := func(name string, parts []string, kinds ...func(context.Context, string) error) subject {
		return subject{name: name, parts: parts, call: func(ctx context.Context, key string) error {
			n := int(key[len(key)-1]-'0') + int(key[len(key)-2]-'0')*10
			return kinds[n%len(kinds)](ctx, key)
		}}
	}
	const rateQuota, slotBack = "a rate and a daily quota", "a slot, taken and given back"
	return []subject{
			calls(oneRate, 1, rate),
			calls("two rates", 2, five[:2]...),
			calls("three rates", 3, five[:3]...),
			calls("five rates", 5, five...),
			calls("a daily quota", 0, quota),
			calls(rateQuota, 2, rate, quota),
			held("a slot", 0, slots),
			held("a rate and a slot", 2, rate, slots),
			held("a rate, a daily quota and a slot", 3, rate, quota, slots),
			calls("a sliding window", 0, sliding),
			calls("a rate and a sliding window", 2, rate, sliding),
			calls("a rate, a daily quota and a sliding window", 3, rate, quota, sliding),
			{name: slotBack, call: slot.both},
			turns("rates beside rates with quotas", []string{oneRate, rateQuota}, one.call, two.call),
			turns("rates, rates with quotas, and slots given back", []string{oneRate, rateQuota, slotBack},
				one.call, two.call, slot.both),
		}, func() {
			mine.Close()
			client.Close()
		}
}

// taking is a decision on limits, all for one key.
type taking struct {
	store  store.Store
	limits []*store.Limit
}

func (t taking) call(ctx context.Context, key string) error {
	_, _, err := t.decide(ctx, key)
	return err
}

// both takes a slot, on the last of the limits, and gives it back.
func (t taking) both(ctx context.Context, key string) error {
	charges, results, err := t.decide(ctx, key)
	if err != nil {
		return err
	}
	return t.free(ctx, charges, results)
}

func (t taking) free(ctx context.Context, charges []store.Charge, results []store.Result) error {
	last := len(charges) - 1
	charges[last].Cost, charges[last].Receipt = 0, results[last].Receipt
	return t.store.Settle(ctx, charges[last:], results[last:])
}

func (t taking) decide(ctx context.Context, key string) ([]store.Charge, []store.Result, error) {
	charges, results := make([]store.Charge, len(t.limits)), make([]store.Result, len(t.limits))
	for i, l := range t.limits {
		charges[i] = store.Charge{Key: key, Limit: l, Cost: 1}
	}
	if err := t.store.Take(ctx, charges, results); err != nil {
		return charges, results, err
	}
	for i := range results {
		if !results[i].OK {
			return charges, results, errDenied
		}
	}
	return charges, results, nil
}

// holding is a taking that holds its slots for a while.
type holding struct {
	taking
	mu   sync.Mutex
	held []decided
}

type decided struct {
	charges []store.Charge
	results []store.Result
}

func (h *holding) call(ctx context.Context, key string) error {
	charges, results, err := h.decide(ctx, key)
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.held = append(h.held, decided{charges, results})
	h.mu.Unlock()
	return nil
}

// giveBack gives all slots back, many at a time, as their batches make it quick.
func (h *holding) giveBack(ctx context.Context) error {
	const callers = 64
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < len(h.held) && errs[c] == nil; i += callers {
				errs[c] = h.free(ctx, h.held[i].charges, h.held[i].results)
			}
		})
	}
	all.Wait()
	clear(h.held)
	h.held = h.held[:0]
	return errors.Join(errs...)
}
