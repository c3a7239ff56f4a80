package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

func median[T any](all []sample, of func(sample) T, less func(a, b T) int) T {
	values := make([]T, len(all))
	for i, s := range all {
		values[i] = of(s)
	}
	slices.SortFunc(values, less)
	return values[len(values)/2]
}

func compare[T float64 | time.Duration](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func middle(all []sample) sample {
	return sample{
		perSecond: median(all, func(s sample) float64 { return s.perSecond }, compare),
		p99:       median(all, func(s sample) time.Duration { return s.p99 }, compare),
		cpu:       median(all, func(s sample) time.Duration { return s.cpu }, compare),
	}
}

func report(w io.Writer, subjects []subject, results map[load]map[string][]sample, bytes map[string]float64) {
	for _, l := range loads {
		fmt.Fprintf(w, "| %v | calls/s | p99 | server CPU a call |\n| --- | --- | --- | --- |\n", l)
		for _, s := range subjects {
			m := middle(results[l][s.name])
			fmt.Fprintf(w, "| %s | %.0f | %v | %.2f µs |\n", s.name, m.perSecond, m.p99.Round(10*time.Microsecond), float64(m.cpu)/1000)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "| bytes a key | |\n| --- | --- |\n")
	for _, s := range subjects {
		if s.limits {
			fmt.Fprintf(w, "| %s | %.0f |\n", s.name, bytes[s.name])
		}
	}
	fmt.Fprintf(w, "\n| against redis_rate | calls/s | server CPU | p99 |\n| --- | --- | --- | --- |\n")
	for _, l := range loads {
		mine, theirs := middle(results[l]["stint"]), middle(results[l]["redis_rate"])
		fmt.Fprintf(w, "| %v | %.1f × | 1/%.1f | 1/%.1f |\n", l, mine.perSecond/theirs.perSecond,
			float64(theirs.cpu)/float64(mine.cpu), float64(theirs.p99)/float64(mine.p99))
	}
	fmt.Fprintf(w, "| bytes a key | %.2f × | | |\n\n", bytes["stint"]/bytes["redis_rate"])
}

// mixtures measures decisions of several limits, alone and in batches, and
// batches in which decisions differ.
func mixtures(ctx context.Context, w io.Writer, s *server, rounds int, each time.Duration) error {
	client := redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, PoolSize: 128})
	defer client.Close()
	mine := redisstore.New(client, redisstore.WithTimeout(5*time.Second))
	defer mine.Close()
	bucket := func(name string, per time.Duration) *store.Limit {
		return limit(store.Spec{Name: name, Units: 100, Period: per, Burst: 10_000_000})
	}
	rate, minute, hour := bucket("rate", time.Second), bucket("minute", time.Minute), bucket("hour", 5*time.Minute)
	quota := limit(store.Spec{Name: "daily", Algorithm: store.FixedWindow, Units: burst, Window: store.Daily})
	sliding := limit(store.Spec{Name: "sliding", Algorithm: store.SlidingWindow, Units: burst, Period: time.Minute})

	take := func(limits ...*store.Limit) func(context.Context, string) error {
		return func(ctx context.Context, key string) error {
			charges := make([]store.Charge, len(limits))
			for i, l := range limits {
				charges[i] = store.Charge{Key: key, Limit: l, Cost: 1}
			}
			return mine.Take(ctx, charges, make([]store.Result, len(limits)))
		}
	}
	one, two := take(rate), take(rate, quota)
	mixed := func(ctx context.Context, key string) error {
		if key[len(key)-1]%2 == 0 {
			return one(ctx, key)
		}
		return two(ctx, key)
	}
	subjects := []subject{
		{name: "one rate", call: one},
		{name: "two rates", call: take(rate, minute)},
		{name: "three rates", call: take(rate, minute, hour)},
		{name: "a daily quota", call: take(quota)},
		{name: "a rate and a daily quota", call: two},
		{name: "a rate, a quota and a sliding window", call: take(rate, quota, sliding)},
		{name: "one rate or a rate and a quota", call: mixed},
	}
	for _, l := range []load{{1, 1000}, {128, 1000}} {
		results := map[string][]sample{}
		for range rounds {
			for _, what := range subjects {
				m, err := measure(s, what, l, each)
				if err != nil {
					return fmt.Errorf("%s: %w", what.name, err)
				}
				results[what.name] = append(results[what.name], m)
			}
		}
		fmt.Fprintf(w, "| stint, %v | calls/s | p99 | server CPU a call |\n| --- | --- | --- | --- |\n", l)
		for _, what := range subjects {
			m := middle(results[what.name])
			fmt.Fprintf(w, "| %s | %.0f | %v | %.2f µs |\n", what.name, m.perSecond, m.p99.Round(10*time.Microsecond), float64(m.cpu)/1000)
		}
		fmt.Fprintln(w)
	}
	return ctx.Err()
}
