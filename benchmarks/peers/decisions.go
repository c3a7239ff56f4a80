package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tollbooth "github.com/didip/tollbooth/v7"
	tollboothlimiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/labstack/echo/v4/middleware"
	golimiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

const (
	stintName  = "stint"
	stintTake  = "stint, Take"
	stintAllow = "stint, Allow"
)

func isStint(name string) bool { return strings.HasPrefix(name, stintName) }

// rule is the limit of all subjects of a group: a million a second with so large a
// burst that nothing is denied, or one an hour, which is used up.
type rule struct {
	units  int64
	period time.Duration
	burst  int64
}

var (
	ample = rule{1_000_000, time.Second, 1_000_000_000}
	tight = rule{1, time.Hour, 1}
)

// decider decides a call of one key.
type decider struct {
	name string
	// start makes the call of one goroutine.
	start func() func(key string) (ok bool)
}

// same is for deciders whose goroutines need nothing of their own.
func same(decide func(key string) bool) func() func(string) bool {
	return func() func(string) bool { return decide }
}

// perKey is limiters without keys behind a map, as their documents show it.
func perKey[L any](fresh func() L, allow func(L) bool) func(key string) bool {
	var mu sync.RWMutex
	all := map[string]L{}
	return func(key string) bool {
		mu.RLock()
		l, ok := all[key]
		mu.RUnlock()
		if !ok {
			mu.Lock()
			if l, ok = all[key]; !ok {
				l = fresh()
				all[key] = l
			}
			mu.Unlock()
		}
		return allow(l)
	}
}

// perKeyShared is perKey with a sync.Map, which takes no lock for a key that it has.
func perKeyShared[L any](fresh func() L, allow func(L) bool) func(key string) bool {
	var all sync.Map
	return func(key string) bool {
		l, ok := all.Load(key)
		if !ok {
			l, _ = all.LoadOrStore(key, fresh())
		}
		return allow(l.(L))
	}
}

func xtime(r rule) func(key string) bool {
	perSecond := rate.Limit(float64(r.units) / r.period.Seconds())
	return perKey(func() *rate.Limiter { return rate.NewLimiter(perSecond, int(r.burst)) }, (*rate.Limiter).Allow)
}

func goLimiter(r rule) (golimiter.Store, error) {
	return memorystore.New(&memorystore.Config{Tokens: uint64(r.burst), Interval: time.Duration(r.burst) * r.period / time.Duration(r.units)})
}

func throttledLimiter(r rule) (*throttled.GCRARateLimiterCtx, error) {
	keys, err := throttledstore.NewCtx(1 << 20)
	if err != nil {
		return nil, err
	}
	return throttled.NewGCRARateLimiterCtx(keys, throttled.RateQuota{
		MaxRate: throttled.PerDuration(int(r.units), r.period), MaxBurst: int(r.burst - 1),
	})
}

func ululeLimiter(r rule) *ulule.Limiter {
	return ulule.New(ululestore.NewStore(), ulule.Rate{Period: time.Duration(r.burst) * r.period / time.Duration(r.units), Limit: r.burst})
}

func tollboothLimiter(r rule) *tollboothlimiter.Limiter {
	l := tollbooth.NewLimiter(float64(r.units)/r.period.Seconds(), nil)
	return l.SetBurst(int(r.burst)).SetIPLookups([]string{"RemoteAddr"})
}

func echoStore(r rule) *middleware.RateLimiterMemoryStore {
	return middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(float64(r.units) / r.period.Seconds()), Burst: int(r.burst), ExpiresIn: time.Hour,
	})
}

func stintRate(r rule) stint.Limit {
	return stint.Rate(r.units, r.period, stint.WithBurst(r.burst))
}

// stintStore is a Take of stint's store, its arguments made once as stint does.
func stintStore(r rule) (func() func(key string) bool, error) {
	l, err := store.NewLimit(store.Spec{Name: "rate", Units: r.units, Period: r.period, Burst: r.burst})
	if err != nil {
		return nil, err
	}
	s, ctx := memstore.New(), context.Background()
	return func() func(string) bool {
		// Apart from those of other goroutines, or they would share cache lines.
		var of struct {
			_       [128]byte
			charges [1]store.Charge
			results [1]store.Result
			_       [128]byte
		}
		charges, results := of.charges[:], of.results[:]
		charges[0] = store.Charge{Limit: l, Cost: 1}
		return func(key string) bool {
			charges[0].Key = key
			return s.Take(ctx, charges, results) == nil && results[0].OK
		}
	}, nil
}

// deciders are the limiters' stores, or what decides a key where there is no store.
func deciders(r rule) ([]decider, error) {
	ctx := context.Background()
	mine, err := stintStore(r)
	if err != nil {
		return nil, err
	}
	others, err := goLimiter(r)
	if err != nil {
		return nil, err
	}
	gcra, err := throttledLimiter(r)
	if err != nil {
		return nil, err
	}
	ul, tb := ululeLimiter(r), tollboothLimiter(r)
	newBursty := func() ratelimiter.RateLimiter[any] {
		return ratelimiter.NewBursty[any](uint(r.burst), time.Duration(r.burst)*r.period/time.Duration(r.units))
	}
	bursty := perKey(newBursty, ratelimiter.RateLimiter[any].TryAcquirePermit)
	burstyShared := perKeyShared(newBursty, ratelimiter.RateLimiter[any].TryAcquirePermit)
	echoes := echoStore(r)
	return []decider{
		{stintName, mine},
		{"go-limiter", same(func(key string) bool {
			_, _, _, ok, err := others.Take(ctx, key)
			return ok && err == nil
		})},
		{"throttled", same(func(key string) bool {
			limited, _, err := gcra.RateLimitCtx(ctx, key, 1)
			return !limited && err == nil
		})},
		{"x/time/rate behind a map", same(xtime(r))},
		{"failsafe-go behind a map", same(bursty)},
		{"failsafe-go behind a sync.Map", same(burstyShared)},
		{"ulule/limiter", same(func(key string) bool {
			c, err := ul.Get(ctx, key)
			return !c.Reached && err == nil
		})},
		{"tollbooth", same(func(key string) bool { return !tb.LimitReached(key) })},
		{"echo's", same(func(key string) bool {
			ok, err := echoes.Allow(key)
			return ok && err == nil
		})},
	}, nil
}

// outside is deciding a key as a job queue does, through the limiter's front.
func outside(r rule) ([]decider, error) {
	all, err := deciders(r)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	lim, err := stint.New(stintRate(r), stint.WithKey(stint.RemoteIP()))
	if err != nil {
		return nil, err
	}
	all[0] = decider{stintAllow, same(func(key string) bool { return lim.Allow(ctx, key, 1) == nil })}
	take := decider{stintTake, same(func(key string) bool {
		p, err := lim.Take(ctx, key, 1)
		p.Done()
		return err == nil
	})}
	return slices.Insert(all, 1, take), nil
}

// decisions are the groups of decisions outside HTTP.
func decisions(c config) ([]*group, error) {
	var groups []*group
	add := func(g *group, make func(rule) ([]decider, error), r rule, pick func(worker int) func(i int) string) error {
		all, err := make(r)
		if err != nil {
			return err
		}
		for _, d := range all {
			call := d.start()
			call(pick(0)(0))
			if got := call(pick(0)(0)); got != (r != tight) {
				return fmt.Errorf("%s: %s decides %v", g.name, d.name, got)
			}
			g.subjects = append(g.subjects, subject{d.name, func(worker int) func(int) {
				call, key := d.start(), pick(worker)
				return func(i int) { call(key(i)) }
			}})
		}
		groups = append(groups, g)
		return nil
	}
	hot := func(int) func(int) string { return func(int) string { return "203.0.113.7" } }
	names := make([]string, c.keys)
	for i := range names {
		names[i] = "caller-" + strconv.Itoa(i)
	}
	return groups, errors.Join(
		add(&group{name: "a decision, one key, 1 goroutine", goroutines: 1, aims: []aim{{stintName, 0.8}}}, deciders, ample, hot),
		add(&group{name: "a decision, one key, 2 goroutines", goroutines: 2, aims: []aim{{stintName, 1}}}, deciders, ample, hot),
		add(&group{name: "a decision, one key, 8 goroutines", goroutines: 8, aims: []aim{{stintName, 0.8}}}, deciders, ample, hot),
		add(&group{name: fmt.Sprintf("a decision, %d equally frequent keys, 2 goroutines", c.keys), goroutines: 2, aims: []aim{{stintName, 0.5}}}, deciders, ample, uniform(names)),
		add(&group{name: fmt.Sprintf("a decision, %d keys by Zipf's law, 2 goroutines", c.keys), goroutines: 2, aims: []aim{{stintName, 0.6}}}, deciders, ample, zipf(names)),
		add(&group{name: "a denial, one key", goroutines: 1, aims: []aim{{stintName, 0.8}}}, deciders, tight, hot),
		add(&group{name: "outside HTTP, one key", goroutines: 1, aims: []aim{{stintAllow, 1}}}, outside, ample, hot),
		add(&group{name: "outside HTTP, one key, 2 goroutines", goroutines: 2, aims: []aim{{stintAllow, 1}}}, outside, ample, hot),
	)
}

// uniform and zipf draw keys beforehand, so that drawing isn't measured.
func uniform(names []string) func(int) func(int) string {
	return drawn(names, func(r *rand.Rand) uint64 { return r.Uint64N(uint64(len(names))) })
}

func zipf(names []string) func(int) func(int) string {
	return drawn(names, func(r *rand.Rand) uint64 {
		return rand.NewZipf(r, 1.1, 1, uint64(len(names)-1)).Uint64()
	})
}

func drawn(names []string, draw func(*rand.Rand) uint64) func(int) func(int) string {
	const length = 1 << 16
	var lists [2][]string
	for w := range lists {
		r := rand.New(rand.NewPCG(uint64(w), 1))
		for range length {
			lists[w] = append(lists[w], names[draw(r)])
		}
	}
	return func(worker int) func(int) string {
		list := lists[worker%len(lists)]
		return func(i int) string { return list[i%length] }
	}
}
