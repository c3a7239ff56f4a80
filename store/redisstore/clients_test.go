package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// The same calls through clients of every kind: the answers are those of the steps,
// also while two versions of each limit take turns, and where the keys of a call are
// in several slots, of which some are settled back when another denies.
func TestEveryClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	another := redistest.Start(t)
	for name, rdb := range map[string]redis.UniversalClient{
		"RESP2": server.Client(func(o *redis.Options) { o.Protocol, o.ContextTimeoutEnabled = 2, true }),
		"RESP3": server.Client(func(o *redis.Options) { o.Protocol = 3 }),
		"ring, RESP2": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": server.Addr(), "b": another.Addr()}, Protocol: 2}),
		"ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": server.Addr(), "b": another.Addr()}}),
	} {
		t.Run(name, func(t *testing.T) { everyCall(t, rdb) })
	}
}

func TestServersEveryClientOfACluster(t *testing.T) {
	redistest.Suite(t, "servers")
	cluster := redistest.StartCluster(t, 3, 0)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			everyCall(t, cluster.Client(func(o *redis.ClusterOptions) { o.Protocol = protocol }))
		})
	}
}

// versioned are limits of every algorithm, each in two versions. None is full again
// in the server's time that a test takes.
func versioned(t *testing.T) (all [][2]*store.Limit) {
	for i, pair := range [][2]store.Spec{
		{{Units: 10, Period: time.Hour, Burst: 20}, {Units: 7, Period: 3 * time.Hour, Burst: 30}},
		{{Units: 3, Period: time.Hour, Queue: 5}, {Units: 999, Period: 700 * time.Hour, Burst: 9}},
		{{Algorithm: store.LeakyBucket, Units: 10, Period: time.Hour, Burst: 4}, {Algorithm: store.LeakyBucket, Units: 20, Period: time.Hour, Burst: 9}},
		{{Algorithm: store.WarmUp, Units: 10, Period: time.Hour, WarmUp: time.Hour}, {Algorithm: store.WarmUp, Units: 20, Period: time.Hour, WarmUp: 30 * time.Minute}},
		{{Algorithm: store.IntervalBucket, Units: 5, Period: time.Hour, Burst: 20}, {Algorithm: store.IntervalBucket, Units: 9, Period: 90 * time.Minute, Burst: 11}},
		{{Algorithm: store.FixedWindow, Units: 10, Period: time.Hour}, {Algorithm: store.FixedWindow, Units: 13, Period: 2 * time.Hour}},
		{{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily}, {Algorithm: store.FixedWindow, Units: 20, Window: store.Weekly}},
		{{Algorithm: store.SlidingWindow, Units: 10, Period: time.Hour}, {Algorithm: store.SlidingWindow, Units: 14, Period: 2 * time.Hour, Buckets: 7}},
		{{Algorithm: store.SlidingLog, Units: 10, Period: time.Hour}, {Algorithm: store.SlidingLog, Units: 15, Period: 30 * time.Minute}},
		{{Algorithm: store.SlidingCounter, Units: 10, Period: time.Hour}, {Algorithm: store.SlidingCounter, Units: 15, Period: 30 * time.Minute}},
		{{Algorithm: store.Concurrency, Units: 8}, {Algorithm: store.Concurrency, Units: 12}},
		{{Algorithm: store.Ban, Units: 3, Period: time.Hour, Ban: time.Hour}, {Algorithm: store.Ban, Units: 5, Period: 2 * time.Hour, Ban: 20 * time.Minute}},
	} {
		var versions [2]*store.Limit
		for v := range versions {
			spec := pair[v]
			spec.Name = fmt.Sprint("l", i)
			versions[v] = limit(t, spec)
		}
		all = append(all, versions)
	}
	return all
}

// steps keeps states and decides by the steps.
type steps struct {
	states map[string]*store.State
	leases uint64
}

func (m *steps) state(c *store.Charge) *store.State {
	key := c.Key + " " + c.Limit.StateName()
	if m.states[key] == nil {
		m.states[key] = new(store.State)
	}
	return m.states[key]
}

func (m *steps) take(now int64, charges []store.Charge) []store.Result {
	states, results := make([]store.State, len(charges)), make([]store.Result, len(charges))
	for i := range charges {
		states[i] = *m.state(&charges[i])
		inside.State(&states[i]).Log = slices.Clone(inside.State(&states[i]).Log)
	}
	m.leases++
	store.Decide(store.Now{Steady: now, Wall: now, Lease: store.Lease(m.leases)}, charges, states, results)
	for i := range charges {
		*m.state(&charges[i]) = states[i]
	}
	return results
}

func (m *steps) settle(now int64, c store.Charge) (r store.Result) {
	store.Amend(store.Now{Steady: now, Wall: now}, &c, m.state(&c), &r)
	return r
}

func everyCall(t *testing.T, rdb redis.UniversalClient) {
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(redistest.ByToldClock())
	began := time.Now().Truncate(time.Microsecond)
	now := began
	s := redisstore.New(rdb, patient, redisstore.WithPrefix(redistest.Prefix(t)),
		redisstore.WithClock(func() time.Time { return now }), redisstore.WithLeaseTTL(1000*time.Hour))
	defer s.Close()
	m := &steps{states: map[string]*store.State{}}
	limits := versioned(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	type open struct{ theirs, mine store.Charge }
	var made []open
	var log []string
	instant := func() int64 { return now.UnixMicro() - store.Epoch*1_000_000 }
	differ := func(c store.Charge, got, want store.Result) {
		if got.Receipt, want.Receipt = (store.Receipt{}), (store.Receipt{}); got != want {
			t.Fatalf("%s of %+v: got %+v, want %+v\n%s", c.Key, c.Limit.Spec(), got, want, strings.Join(log[max(0, len(log)-25):], "\n"))
		}
	}
	denied, granted := 0, 0
	for range 400 {
		now = now.Add(time.Duration(rnd.Int64N(3)*rnd.Int64N(600_000_000)) * time.Microsecond)
		if len(made) > 0 && rnd.IntN(4) == 0 {
			i := rnd.IntN(len(made))
			o := &made[i]
			cost := rnd.Int64N(o.theirs.Receipt.Cost + 2)
			o.theirs.Cost, o.mine.Cost = cost, cost
			log = append(log, fmt.Sprintf("%v settle %s %s from %d to %d", now.Sub(began), o.mine.Key, o.mine.Limit.Name(), o.mine.Receipt.Cost, cost))
			r, err := settle(s, o.theirs.Key, o.theirs.Limit, o.theirs.Receipt, cost)
			if err != nil {
				t.Fatal(err)
			}
			want := m.settle(instant(), o.mine)
			if o.mine.Limit.Algorithm() == store.Concurrency && cost == 0 { // a release may leave these out
				r.Held, r.Remaining = want.Held, want.Remaining
			}
			differ(o.mine, r, want)
			o.theirs.Receipt, o.mine.Receipt = r.Receipt, want.Receipt
			continue
		}
		var charges []store.Charge
		// Of several slots, one may grant and have it canceled: then a limit of other numbers has
		// converted the state, which a denial of the steps doesn't.
		key := fmt.Sprint("k", rnd.IntN(3))
		for _, i := range rnd.Perm(len(limits))[:1+rnd.IntN(4)] {
			c := store.Charge{Key: key, Limit: limits[i][rnd.IntN(2)], Cost: rnd.Int64N(5), Final: true}
			charges = append(charges, c)
			log = append(log, fmt.Sprintf("%v take %s %s %d", now.Sub(began), c.Key, c.Limit.Name(), c.Cost))
		}
		results := make([]store.Result, len(charges))
		if err := s.Take(context.Background(), charges, results); err != nil {
			t.Fatal(err)
		}
		want := m.take(instant(), charges)
		for i, c := range charges {
			if results[i].Receipt.Cost != want[i].Receipt.Cost {
				t.Fatalf("charged %d, want %d", results[i].Receipt.Cost, want[i].Receipt.Cost)
			}
			if want[i].Receipt.Cost > 0 {
				granted++
				theirs, mine := c, c
				theirs.Receipt, mine.Receipt = results[i].Receipt, want[i].Receipt
				made = append(made, open{theirs, mine})
			} else if !want[i].OK {
				denied++
			}
			differ(c, results[i], want[i])
		}
	}
	if denied < 20 || granted < 50 {
		t.Errorf("%d granted, %d denied: the test is at fault", granted, denied)
	}
}
