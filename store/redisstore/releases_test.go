package redisstore

import (
	"context"
	"embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
)

// The scripts of a release, as it composed them for all algorithms. Whoever changes
// what is kept at a key adds those of the release before, and changes the format's
// number (algorithms.go) unless both can read what the other has written.
//
//go:embed testdata/release1/*.lua
var releases embed.FS

// release1 is a store as it was before formats had numbers, one charge a call.
type release1 struct {
	rdb          *redis.Client
	take, settle *redis.Script
	prefix       string
	leases       uint64
}

// The instant at which both releases decide, whatever a busy machine makes of the time
// between two calls.
var deployed = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (o *release1) clock() string {
	return fmt.Sprint(deployed.UnixMicro()-store.Epoch*1_000_000, ",0")
}

func newRelease1(t *testing.T, rdb *redis.Client, prefix string) *release1 {
	script := func(name string) *redis.Script {
		text, err := releases.ReadFile("testdata/release1/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return redis.NewScript(string(text))
	}
	return &release1{rdb: rdb, take: script("take.lua"), settle: script("settle.lua"), prefix: prefix}
}

// limit is how that release told its scripts of a limit.
func (o *release1) limit(l *store.Limit) string {
	t, s := l.Engine(engine.Access{}).Terms(), l.Spec()
	period, kind := t.Period, 0
	if length, ok := s.Window.Engine(engine.Access{}).Fixed(); ok {
		period, kind = length, 1
	}
	switch s.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		tag := tagOf(&t)
		if tag == "" {
			tag = "-"
		}
		return fmt.Sprintf("b,%d,%d,%d,%d,%d,%d,%d,%d,%d,%s,%d", t.Token, t.Scale.PerTick, t.Scale.Tick(), t.Numbers.Unit,
			t.Capacity, t.Queue, t.Largest, boolean(s.Debt), t.Longest, tag, gridOf(&t))
	case store.IntervalBucket:
		return fmt.Sprintf("i,%d,%d,%d,%d,%d", s.Units, t.Numbers.Unit, s.Burst, period, kind)
	case store.FixedWindow:
		return fmt.Sprintf("f,%d,%d,%d,%d", s.Units, t.Numbers.Unit, period, kind)
	case store.SlidingWindow:
		return fmt.Sprintf("s,%d,%s,%d", s.Units, brief(t.Numbers.Token), t.Numbers.Unit)
	case store.SlidingLog:
		return fmt.Sprintf("g,%d,%s,%d", s.Units, brief(t.Numbers.Token), t.Numbers.Unit)
	case store.WarmUp:
		return fmt.Sprintf("w,%d,%d,%d,%d,%d,%d,%d", t.Token, t.Scale.PerTick, t.Scale.Tick(), t.Numbers.Unit, t.Warm, t.Largest, t.Longest)
	case store.Ban:
		return fmt.Sprintf("n,%d,%d,%d", s.Units, t.Period, s.Ban.Microseconds())
	default:
		return fmt.Sprintf("c,%d,%d", s.Units, defaultLease.Microseconds())
	}
}

func (o *release1) key(identity string, l *store.Limit) string {
	key := o.prefix + "{" + identity + "}:" + l.Name()
	if x := [...]byte{
		store.IntervalBucket: 'i', store.LeakyBucket: 'l', store.FixedWindow: 'f', store.SlidingWindow: 's',
		store.SlidingCounter: 'k', store.SlidingLog: 'g', store.WarmUp: 'w', store.Concurrency: 'c', store.Ban: 'n',
	}[l.Algorithm()]; x != 0 {
		key += "/" + string(x)
	}
	return key
}

// Take decides charges of cost 1, and the receipt says the lease.
func (o *release1) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	c := &charges[0]
	o.leases++
	id := store.Lease(o.leases | 1<<63)
	limit := o.limit(c.Limit)
	reply, err := o.take.Run(ctx, o.rdb, []string{o.key(c.Key, c.Limit)},
		o.clock(), 1, "G"+limit[:1], limit, c.Cost, 0, "0", 1, "", "", string(id[:])).Slice()
	if err != nil {
		return err
	}
	results[0] = store.Result{OK: reply[1] == int64(1), Receipt: store.Receipt{Cost: c.Cost, Lease: id, Mark: reply[0].(int64)}}
	return nil
}

// Settle cancels, what it can without working receipts out: leases.
func (o *release1) Settle(ctx context.Context, charges []store.Charge, _ []store.Result) error {
	c := &charges[0]
	return o.settle.Run(ctx, o.rdb, []string{o.key(c.Key, c.Limit)},
		o.clock(), 1, "-", o.limit(c.Limit), 1, c.Cost, c.Receipt.Cost, 0, 0, string(c.Receipt.Lease[:]), "", "", "", "", "").Err()
}

// While a deployment replaces one release by another, both decide for the same keys:
// together they let through no more than twice the rule, in any order, and no more than
// the rule where both keep the same.
func TestTwoReleases(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(ByToldClock())
	const day = 24 * time.Hour
	for _, spec := range []store.Spec{
		{Units: 10, Period: day},
		{Units: 7, Period: day, Burst: 12},
		{Units: 999, Period: time.Hour, Burst: 13}, // no whole microseconds
		{Units: 10, Period: day, Queue: 5, Debt: true},
		{Algorithm: store.LeakyBucket, Units: 10, Period: day, Burst: 9},
		{Algorithm: store.IntervalBucket, Units: 10, Period: day, Burst: 10},
		{Algorithm: store.IntervalBucket, Units: 10, Window: store.Every(500 * day), Burst: 25},
		{Algorithm: store.FixedWindow, Units: 10, Period: day},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Every(500 * day)},
		{Algorithm: store.SlidingWindow, Units: 10, Period: day},
		{Algorithm: store.SlidingLog, Units: 10, Period: day},
		{Algorithm: store.WarmUp, Units: 1, Period: time.Minute, WarmUp: 4 * time.Minute},
		{Algorithm: store.Concurrency, Units: 10},
	} {
		spec.Name = "l"
		l := denyLimit(t, spec)
		t.Run(fmt.Sprint(spec.Algorithm, " ", spec.Units), func(t *testing.T) {
			for seed := range uint64(6) {
				twoReleases(t, rdb, l, l, seed)
			}
		})
	}
}

// The deployment may bring numbers that the release before could not count: an instant
// of theirs is two integers, which its scripts don't know.
func TestTwoReleasesOfNewNumbers(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(ByToldClock())
	const day = 24 * time.Hour
	for _, specs := range [][2]store.Spec{
		{{Units: 10, Period: day}, {Units: 999_983, Period: 700 * day, Burst: 10}},
		{{Units: 7, Period: day, Queue: 5, Debt: true}, {Units: 999_983, Period: 700 * day, Burst: 7, Queue: 5, Debt: true}},
		{{Algorithm: store.LeakyBucket, Units: 10, Period: day, Burst: 9, Queue: 1}, {Algorithm: store.LeakyBucket, Units: 999_983, Period: 700 * day, Burst: 9, Queue: 1}},
		{{Algorithm: store.WarmUp, Units: 1, Period: time.Minute, WarmUp: 4 * time.Minute},
			{Algorithm: store.WarmUp, Units: 999_983, Period: 700 * day, WarmUp: 4 * time.Minute}},
	} {
		specs[0].Name, specs[1].Name = "l", "l"
		before, now := denyLimit(t, specs[0]), denyLimit(t, specs[1])
		if before.Engine(engine.Access{}).Terms().Scale.Wide || !now.Engine(engine.Access{}).Terms().Scale.Wide {
			t.Fatal(specs, before.Engine(engine.Access{}).Terms().Scale, now.Engine(engine.Access{}).Terms().Scale)
		}
		t.Run(fmt.Sprint(specs[0].Algorithm, " ", specs[0].Units), func(t *testing.T) {
			for seed := range uint64(6) {
				twoReleases(t, rdb, before, now, seed)
			}
		})
	}
}

// twoReleases has the release before decide for the limit was, and this one for l.
func twoReleases(t *testing.T, rdb *redis.Client, was, l *store.Limit, seed uint64) {
	prefix, rnd := redistest.Prefix(t), rand.New(rand.NewPCG(seed, 1))
	still := WithClock(func() time.Time { return deployed })
	now, alone := New(rdb, WithPrefix(prefix), WithTimeout(time.Minute), still), New(rdb, WithPrefix(prefix+"alone"), WithTimeout(time.Minute), still)
	defer now.Close()
	defer alone.Close()
	before := newRelease1(t, rdb, prefix)
	rule := int64(0)
	for range 40 {
		if mustTake(t, alone, "k", l, 1).OK {
			rule++
		}
	}
	most := 2 * rule
	if before.key("k", l) == storageKey(prefix, "k", l) {
		most = rule
	}
	granted, standing := int64(0), map[store.LeaseID]store.Charge{}
	at := map[store.LeaseID]store.Store{}
	for i := range 4 * int(rule) {
		var s store.Store = now
		charges := []store.Charge{{Key: "k", Limit: l, Cost: 1}}
		if rnd.IntN(2) == 0 && !(i > 2*int(rule) && seed%2 == 0) { // then it has gone
			s, charges[0].Limit = before, was
		}
		var results [1]store.Result
		if err := s.Take(context.Background(), charges, results[:]); err != nil {
			t.Fatal(strconv.Itoa(i), err)
		}
		if !results[0].OK {
			continue
		}
		granted++
		if l.Algorithm() == store.Concurrency {
			charges[0].Receipt, charges[0].Cost = results[0].Receipt, 0
			id := results[0].Receipt.Lease
			standing[id], at[id] = charges[0], s
			if rnd.IntN(3) == 0 { // some slot comes free, by whoever it was taken
				for id, c := range standing {
					if err := at[id].Settle(context.Background(), []store.Charge{c}, results[:]); err != nil {
						t.Fatal(err)
					}
					delete(standing, id)
					granted--
					break
				}
			}
		}
		if granted > most {
			t.Fatalf("seed %d: %d let through, the rule is %d", seed, granted, rule)
		}
	}
	if granted < rule {
		t.Errorf("seed %d: %d let through, the rule is %d", seed, granted, rule)
	}
}
