package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// Lua has room for 8000 values in a call of its own, and a script that runs keeps
// everybody waiting. So many charges, settlements and leases are either several
// calls or an error that says what to write.
const many = 10_000

func manyStore(t *testing.T, rdb redis.UniversalClient, opts ...Option) *Store {
	t.Helper()
	s := New(rdb, append([]Option{WithPrefix(redistest.Prefix(t)), WithTimeout(time.Minute)}, opts...)...)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestManyCharges(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	ctx := context.Background()
	for name, l := range map[string]*store.Limit{
		"the short way":   denyLimit(t, store.Spec{Name: "n", Units: 9, Period: 24 * time.Hour}),
		"the general way": denyLimit(t, store.Spec{Name: "n", Units: 9, Period: 24 * time.Hour, Algorithm: store.SlidingLog}),
	} {
		t.Run(name, func(t *testing.T) {
			s := manyStore(t, rdb)
			left := func(i int, want int64) {
				t.Helper()
				var r [1]store.Result
				if err := s.Take(ctx, []store.Charge{{Key: fmt.Sprint(i), Limit: l}}, r[:]); err != nil || r[0].Remaining != want {
					t.Fatalf("key %d: %+v, %v; want %d left", i, r[0], err, want)
				}
			}
			charges, results := make([]store.Charge, many), make([]store.Result, many)
			for i := range charges {
				charges[i] = store.Charge{Key: fmt.Sprint(i), Limit: l, Cost: 5}
			}
			if err := s.Take(ctx, charges, results); !errors.Is(err, ErrConfiguration) || !strings.Contains(err.Error(), "10000 charges") {
				t.Errorf("%v", err)
			}
			left(0, 9)
			left(many-1, 9)
			for at := 0; at < many; at += mostCharges {
				end := min(at+mostCharges, many)
				if err := s.Take(ctx, charges[at:end], results[at:end]); err != nil {
					t.Fatal(err)
				}
			}
			twice := charges[mostCharges-1]
			if err := s.Take(ctx, append(charges[:200:200], twice, twice), results[:202]); !errors.Is(err, store.ErrDuplicate) {
				t.Errorf("one charge twice among many: %v", err)
			}
			// Each key twice, and far apart: down to 1, and then to what it costs
			// already, which moves nothing.
			back := make([]store.Charge, 0, 2*many)
			for _, cost := range []int64{1, 3} {
				for i, c := range charges {
					c.Cost, c.Receipt = cost, results[i].Receipt
					if cost == 3 {
						c.Receipt.Cost = 3
					}
					back = append(back, c)
				}
			}
			settled := make([]store.Result, len(back))
			if err := s.Settle(ctx, back, settled); err != nil {
				t.Fatal(err)
			}
			for i, r := range settled {
				if r.Remaining != 8 || r.Receipt.Cost != back[i].Cost {
					t.Fatalf("settlement %d to %d: %+v", i, back[i].Cost, r)
				}
			}
			left(0, 8)
			left(many-1, 8)
		})
	}
}

// Decisions none of which is large are many charges together.
func TestManyChargesOfABatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := manyStore(t, server.Client())
	l := denyLimit(t, store.Spec{Name: "n", Units: 9, Period: 24 * time.Hour})
	const callers, each = 300, 100
	server.Pause() // so that they gather
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			charges, results := make([]store.Charge, each), make([]store.Result, each)
			for i := range charges {
				charges[i] = store.Charge{Key: fmt.Sprint(n, " ", i), Limit: l, Cost: 1}
			}
			if err := s.Take(context.Background(), charges, results); err != nil {
				t.Error(err)
			}
			for i := range results {
				if !results[i].OK || results[i].Remaining != 8 {
					t.Errorf("%d of %d: %+v", i, n, results[i])
					return
				}
				charges[i].Cost, charges[i].Receipt = 0, results[i].Receipt
			}
			if err := s.Settle(context.Background(), charges, results); err != nil || results[each-1].Remaining != 9 {
				t.Errorf("%v, %+v", err, results[each-1])
			}
		})
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // a real server, which is paused
		if _, pending := s.takes.Load(); pending >= callers/2 {
			break
		}
	}
	server.Resume()
	wg.Wait()
}

func TestParted(t *testing.T) {
	of := func(sizes ...int) (calls []*batch.Call[takeRequest]) {
		for _, n := range sizes {
			calls = append(calls, &batch.Call[takeRequest]{Body: takeRequest{Decision: wire.Decision{Keys: make([]string, n)}}})
		}
		return calls
	}
	for _, tt := range []struct {
		groups [][]*batch.Call[takeRequest]
		want   string
	}{
		{[][]*batch.Call[takeRequest]{of(1, 2, 3)}, "[[1 2 3]]"},
		{[][]*batch.Call[takeRequest]{of(400, 600), of(1)}, "[[400 600] [1]]"},
		{[][]*batch.Call[takeRequest]{of(400, 601, 399, 1), of(1)}, "[[400] [601 399] [1] [1]]"},
		{[][]*batch.Call[takeRequest]{of(7000, 7000, 1)}, "[[7000] [7000] [1]]"},
	} {
		var got [][]int
		for _, g := range splitLarge(tt.groups) {
			var sizes []int
			for _, t := range g {
				sizes = append(sizes, len(t.Body.Keys))
			}
			got = append(got, sizes)
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%v, want %s", got, tt.want)
		}
	}
}

// All leases are renewed, in calls that delay no other.
func TestManyLeases(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	lost := 0
	s := manyStore(t, rdb).WithLost(func(string, *store.Limit) { lost++ })
	l := denyLimit(t, store.Spec{Name: "n", Units: many, Algorithm: store.Concurrency})
	const onOne, keys = 2300, 900
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			var r [1]store.Result
			for i := g; i < onOne+keys; i += 16 {
				key := "one"
				if i >= onOne {
					key = fmt.Sprint(i)
				}
				if err := s.Take(context.Background(), []store.Charge{{Key: key, Limit: l, Cost: 1}}, r[:]); err != nil || !r[0].OK {
					t.Error(r[0], err)
					return
				}
			}
		})
	}
	wg.Wait()
	first := func(key string) float64 {
		t.Helper()
		z, err := rdb.ZRangeWithScores(context.Background(), wire.StorageKey(s.prefix, key, l), 1, 1).Result() // before it is '#'
		if err != nil || len(z) != 1 {
			t.Fatal(z, err)
		}
		return z[0].Score
	}
	// One of them is lost.
	gone := wire.StorageKey(s.prefix, fmt.Sprint(onOne), l)
	if err := rdb.Del(context.Background(), gone).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := rdb.ZCard(context.Background(), wire.StorageKey(s.prefix, "one", l)).Result(); n != 1+onOne || err != nil {
		t.Fatal(n, err)
	}
	z, err := rdb.ZRangeWithScores(context.Background(), wire.StorageKey(s.prefix, "one", l), -1, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	latest := z[0].Score
	before, _ := server.CommandStats("evalsha")
	again, _ := server.CommandStats("eval")
	if !s.renewals.renew(0) {
		t.Fatal("some were not answered")
	}
	calls, _ := server.CommandStats("evalsha")
	evals, _ := server.CommandStats("eval")
	// The first time around, the server doesn't know the script.
	if n := max(calls-before, evals-again); n != (onOne+keys+mostRenewed-1)/mostRenewed {
		t.Errorf("%d calls renew %d leases, want one for each %d", n, onOne+keys, mostRenewed)
	}
	if first("one") <= latest || first(fmt.Sprint(onOne+keys-1)) <= latest {
		t.Error("a lease was not renewed")
	}
	if lost != 1 {
		t.Errorf("%d reported lost, want 1", lost)
	}
	if n, err := rdb.ZCard(context.Background(), gone).Result(); n != 2 || err != nil {
		t.Errorf("the lost one isn't entered again: %d members, %v", n, err)
	}
}

// Turns given up latest first give back everything, also if they are more than go into
// one call, and if the server knows the script of the later calls only.
func TestManySettlementsKeepTheirOrder(t *testing.T) {
	ctx := context.Background()
	s := manyStore(t, redistest.Start(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
	rate := denyLimit(t, store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: 1})
	log := denyLimit(t, store.Spec{Name: "log", Units: 1, Period: time.Hour, Algorithm: store.SlidingLog})
	take := func(key string, l *store.Limit, cost int64) store.Charge {
		c, r := store.Charge{Key: key, Limit: l, Cost: cost, MaxWait: 365 * 24 * time.Hour}, make([]store.Result, 1)
		if err := s.Take(ctx, []store.Charge{c}, r); err != nil || !r[0].OK {
			t.Fatalf("%+v, %v", r[0], err)
		}
		c.Cost, c.Receipt = 0, r[0].Receipt
		return c
	}
	if err := s.Settle(ctx, []store.Charge{take("another", rate, 1)}, make([]store.Result, 1)); err != nil {
		t.Fatal(err)
	}
	var back []store.Charge
	for range mostKeys + mostKeys/2 {
		back = append(back, take("k", rate, 1))
	}
	back = append(back, take("k", log, 1))
	slices.Reverse(back)
	results := make([]store.Result, len(back))
	if err := s.Settle(ctx, back, results); err != nil {
		t.Fatal(err)
	}
	if last := results[len(back)-1]; last.Remaining != 1 || last.ResetAfter > 0 {
		t.Errorf("reserved for another %v", last.ResetAfter)
	}
}

// If one of several calls that a Settle needs fails, later ones aren't made.
func TestManySettlementsEndWithAFailure(t *testing.T) {
	ctx := context.Background()
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	sent := 0
	rdb.AddHook(failing(func(cmd redis.Cmder) error {
		if !isOurs(cmd) {
			return nil
		}
		if sent++; sent == 2 {
			return errors.New("no route")
		}
		return nil
	}))
	s := manyStore(t, rdb)
	l := denyLimit(t, store.Spec{Name: "n", Units: 9, Period: time.Hour})
	charges := make([]store.Charge, 3*mostKeys)
	for i := range charges {
		charges[i] = store.Charge{Key: fmt.Sprint(i), Limit: l, Receipt: store.Receipt{Instant: 1, Cost: 1}}
	}
	// The first one is sent with its text: the server doesn't know the script.
	if err := s.Settle(ctx, charges, make([]store.Result, len(charges))); !errors.Is(err, ErrIndeterminate) || sent != 2 {
		t.Errorf("%v after %d commands", err, sent)
	}
}

// failing fails commands before they are sent.
type failing func(redis.Cmder) error

func (f failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A Reset may have any number of limits.
func TestManyLimitsAreReset(t *testing.T) {
	ctx := context.Background()
	s := manyStore(t, redistest.Start(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }))
	limits := make([]*store.Limit, 8001)
	for i := range limits {
		limits[i] = denyLimit(t, store.Spec{Name: fmt.Sprint("n", i), Units: 9, Period: 24 * time.Hour})
	}
	take := func(cost, want int64) {
		t.Helper()
		for at := 0; at < len(limits); at += mostCharges {
			part := limits[at:min(at+mostCharges, len(limits))]
			charges, results := make([]store.Charge, len(part)), make([]store.Result, len(part))
			for i, l := range part {
				charges[i] = store.Charge{Key: "k", Limit: l, Cost: cost}
			}
			if err := s.Take(ctx, charges, results); err != nil {
				t.Fatal(err)
			}
			for i, r := range results {
				if r.Remaining != want {
					t.Fatalf("limit %d: %d left, want %d", at+i, r.Remaining, want)
				}
			}
		}
	}
	take(5, 4)
	if _, err := s.Reset(ctx, "k", limits...); err != nil {
		t.Fatal(err)
	}
	take(0, 9)
}
