package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// leases are the leases that a sorted set stands for.
type leases map[store.LeaseID]*lease

type lease struct{ until, slots int64 }

// held is how many slots leases hold that haven't run out by now.
func (ls leases) held(now int64) (n int64) {
	for _, x := range ls {
		if x.until > now {
			n += x.slots
		}
	}
	return n
}

// stands is the same with those that have run out and can still be renewed.
func (ls leases) stands() int64 { return ls.held(-1 << 62) }

func (ls leases) purge(now int64) {
	for id, x := range ls {
		if x.until <= now {
			delete(ls, id)
		}
	}
}

// mend does what a look does first: it drops leases that ran out as long ago as they last.
func (ls leases) mend(p *pair) { ls.purge(p.now - leaseTime) }

// TestConcurrencyTwin compares the script with the step, and its leases with a
// map of them.
func TestConcurrencyTwin(t *testing.T) {
	ran := map[string]int{}
	p := newPair(t, store.Concurrency)
	for seed := range traces(300) {
		p.begin(uint64(seed))
		p.traceLeases(ran)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(ran)
}

func (p *pair) traceLeases(ran map[string]int) {
	r := p.rnd
	limits := []*store.Limit{
		limitOf(p.t, store.Spec{Name: "limit", Algorithm: store.Concurrency, Units: 1 + r.Int64N(50)>>r.IntN(5)}),
		limitOf(p.t, store.Spec{Name: "limit", Algorithm: store.Concurrency, Units: 1 + r.Int64N(50)>>r.IntN(5)}),
	}
	weights := r.IntN(2) == 0
	held := leases{}
	var made []store.Receipt
	for n := range 10 + r.IntN(120) {
		l := limits[0]
		if r.IntN(6) == 0 {
			l = oneOf(r, limits...)
		}
		p.now += oneOf(r, 0, 0, 1, r.Int64N(leaseTime/4), r.Int64N(leaseTime/4), r.Int64N(2*leaseTime))
		c := call{op: "take", cost: oneOf[int64](r, 0, 1, 1, 1, 1)}
		if weights && r.IntN(2) == 0 {
			c.cost = oneOf(r, 2, 3, 1+r.Int64N(l.Spec().Units+1))
		}
		c.lease[0], c.lease[5], c.lease[15] = byte(n), byte(r.IntN(256)), 'w'
		if len(made) > 0 && r.IntN(3) == 0 {
			c = call{op: "settle", receipt: oneOf(r, made...)}
			if weights {
				c.cost = oneOf[int64](r, 0, 0, 1, 2, 5)
			}
			c.lease = c.receipt.Lease
		}
		if !p.leases(l, c, held, &made) {
			return
		}
		ran[c.op+" "+strconv.FormatInt(min(c.cost, 2), 10)]++
	}
}

// leases makes one call of the script, of the step and of the model.
func (p *pair) leases(l *store.Limit, c call, held leases, made *[]store.Receipt) bool {
	p.t.Helper()
	held.mend(p)
	got := p.send(l, c)
	fail := func(format string, args ...any) bool {
		p.t.Errorf("%+v at %d: %v\n%s", l.Spec(), p.now, c, fmt.Sprintf(format, args...))
		return false
	}
	if c.op == "settle" {
		switch x := held[c.lease]; {
		case x == nil:
		case c.cost == 0 || x.until <= p.now:
			delete(held, c.lease)
		default:
			x.slots = c.cost
		}
		if want := strconv.FormatInt(held.held(p.now), 10); got.raw != want {
			return fail("%s held, want %s", got.raw, want)
		}
		return p.agrees(held)
	}
	if held.stands()+max(c.cost, 1) > l.Spec().Units {
		held.purge(p.now)
	}
	if want := strconv.FormatInt(held.held(p.now), 10); got.raw != want {
		return fail("%s held, want %s", got.raw, want)
	}
	result := p.oracle(l, c, algorithm.State{Live: held.held(p.now) > 0, W: algorithm.Words{0: held.held(p.now)}})
	if got.ok != result.OK {
		return fail("got %v, want %v", got.ok, result.OK)
	}
	if result.Receipt.Cost > 0 {
		held[c.lease] = &lease{p.now + leaseTime, c.cost}
		*made = append(*made, result.Receipt)
		until, _ := p.rdb.Get(context.Background(), p.key+"!until").Int64()
		if until-p.now < leaseTime || until-p.now > 2*leaseTime+2000 {
			return fail("expires after %d us", until-p.now)
		}
	}
	return p.agrees(held)
}

// agrees compares the members of the sorted set with the leases.
func (p *pair) agrees(held leases) bool {
	p.t.Helper()
	var want, got []string
	more := int64(0)
	for id, x := range held {
		want = append(want, fmt.Sprintf("%q %d", id[:], x.until+store.Epoch*1_000_000))
		if x.slots > 1 {
			want = append(want, fmt.Sprintf("%q %d", string(id[:])+"w", 1-x.slots))
			more += x.slots - 1
		}
	}
	if more > 0 {
		want = append(want, fmt.Sprintf("%q %d", "##", -more))
	}
	for _, z := range p.rdb.ZRangeWithScores(context.Background(), p.key, 0, -1).Val() {
		if z.Member == "#" && more == 0 || z.Member == "###" && more > 0 {
			continue
		}
		got = append(got, fmt.Sprintf("%q %.0f", z.Member, z.Score))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		p.t.Errorf("members\n%s\nwant\n%s", got, want)
		return false
	}
	return true
}

// TestRenew renews more leases than fit in one chunk. Leases that were lost are entered again,
// and the answer says so. Leases of a set that was reset since are not entered, and a key of
// another type is not written.
func TestRenew(t *testing.T) {
	ctx, rdb := context.Background(), client(t)
	prefix := redistest.Prefix(t)
	keys := []string{prefix + "a", prefix + "b", prefix + "none", prefix + "string"}
	var all []string // with those that say when they were last reset
	for i, key := range keys {
		if all = append(all, key, key+"%reset"); i > 1 {
			rdb.Set(ctx, key+"%reset", 5_000_000, 0)
		}
	}
	const epoch = store.Epoch * 1_000_000
	rdb.Set(ctx, keys[3], "something else", 0)
	args := []any{"5000000,0", leaseTime, 5_000_000}
	var want []any
	for k, key := range keys {
		n := 1200
		if k > 1 {
			n = 2
		}
		args = append(args, n)
		more := ""
		for i := range n {
			more += "1:4000000 "
			id := fmt.Sprintf("%08d%08d", k, i)
			args = append(args, id)
			lost := k > 1 || k == 1 && i%500 == 7
			if lost {
				what := "entered"
				if k > 1 {
					what = "reset"
				}
				want = append(want, int64(k+1), id, what)
				continue
			}
			until := float64(epoch+1000) + float64(i)
			if i == 3 {
				until = epoch + 5_000_000 + leaseTime // renewed in this very microsecond
			}
			rdb.ZAdd(ctx, key, redis.Z{Score: until, Member: id})
		}
		args = append(args, more)
	}
	rdb.ZAdd(ctx, keys[0], redis.Z{Score: epoch + 9, Member: "not among them"})
	rdb.PExpire(ctx, keys[1], 1e12)

	reply, err := rdb.Eval(ctx, scripts.Renew().Source, all, args...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if want = append([]any{int64(5_000_000)}, want...); !slices.Equal(reply, want) {
		t.Errorf("lost %v, want %v", reply, want)
	}
	for _, z := range rdb.ZRangeWithScores(ctx, keys[0], 0, -1).Val() {
		until := float64(epoch + 5_000_000 + leaseTime)
		if z.Member == "not among them" {
			until = epoch + 9
		}
		if z.Score != until {
			t.Errorf("%v until %.0f, want %.0f", z.Member, z.Score, until)
		}
	}
	if n := rdb.ZCount(ctx, keys[1], "1", "+inf").Val(); n != 1200 {
		t.Errorf("%d leases, want 1200", n)
	}
	if ttl := rdb.PTTL(ctx, keys[0]).Val().Microseconds(); ttl <= 0 || ttl > leaseTime+2000 {
		t.Errorf("the key expires after %d us", ttl)
	}
	if ttl := rdb.PTTL(ctx, keys[1]).Val().Microseconds(); ttl < leaseTime+2000 {
		t.Errorf("the key expires after %d us: sooner than it was to", ttl)
	}
	if rdb.Exists(ctx, keys[2]).Val() != 0 || rdb.Get(ctx, keys[3]).Val() != "something else" {
		t.Error("keys without leases have changed")
	}
}
