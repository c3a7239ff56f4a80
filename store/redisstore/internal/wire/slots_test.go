package wire

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// slotsServer decides and settles by the scripts, at an instant that a test says.
type slotsServer struct {
	t   *testing.T
	rdb *redis.Client
	now int64 // in microseconds
}

const slotsLease = 1_000_000

func (w *slotsServer) run(s *scripts.Script, keys []string, args []any) any {
	w.t.Helper()
	reply, err := asIs(s).Run(context.Background(), w.rdb, keys, args...).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

func (w *slotsServer) times() Times {
	return Times{Clock: strconv.FormatInt(w.now, 10) + ",0", Wall: w.now, Lease: NewLeaseTime(slotsLease * time.Microsecond)}
}

// take decides ds in one call.
func (w *slotsServer) take(ds ...*Decision) {
	w.t.Helper()
	p := NewTakeCall(ds)
	script, args := p.Args(w.times(), 0)
	if _, left, err := p.Answer(w.run(script, p.Keys, args)); err != nil || len(left.Items) > 0 {
		w.t.Fatal(err, left)
	}
}

// settle makes settlements in one call.
func (w *slotsServer) settle(ss ...*Settlement) {
	w.t.Helper()
	groups := Group(ss)
	script, keys, args := SettleArgs(groups, w.times(), 0)
	if _, left, err := SettleAnswer(groups, w.run(script, keys, args)); err != nil || len(left.Items) > 0 {
		w.t.Fatal(err, left)
	}
}

// one returns a decision on limits at keys that begin with prefix. Its leases are numbered n.
func (w *slotsServer) one(prefix string, n uint64, dry bool, cost int64, limits ...*store.Limit) *Decision {
	d := &Decision{Results: make([]store.Result, len(limits))}
	for i, l := range limits {
		d.Charges = append(d.Charges, store.Charge{Key: "k", Limit: l, Cost: cost, DryRun: dry && i == 0})
		d.Keys = append(d.Keys, prefix+l.Name())
		id := store.Lease(n)
		id[15] = byte(i)
		d.Leases = append(d.Leases, id)
	}
	return d
}

// stored returns what the server keeps for limits.
func (w *slotsServer) stored(prefix string, limits ...*store.Limit) (all []any) {
	ctx := context.Background()
	for _, l := range limits {
		if l.Algorithm() == store.Concurrency {
			all = append(all, w.rdb.ZRangeWithScores(ctx, prefix+l.Name(), 0, -1).Val())
		} else {
			all = append(all, w.rdb.Get(ctx, prefix+l.Name()).Val())
		}
	}
	return all
}

func slotsOf(t *testing.T, name string, units int64) *store.Limit {
	return mustLimit(t, store.Spec{Name: name, Algorithm: store.Concurrency, Units: units})
}

// Equal decisions on slots that come together are one entry of a call, and releases of one
// key one settlement. They are answered as calls one by one would be, in their order, and
// leave the same leases: whatever is held before, leases that have run out among it, and
// whatever else a decision charges.
func TestSlotsTogether(t *testing.T) {
	t.Parallel()
	w := &slotsServer{t: t, rdb: redistest.Shared(t).Client()}
	hour := mustLimit(t, store.Spec{Name: "hour", Units: 3, Period: time.Hour})
	others, ample := slotsOf(t, "others", 2), slotsOf(t, "slots", 100)
	cases, groups := 0, 0
	numbers := []int64{2}
	if os.Getenv("STINT_LONG") != "" {
		numbers = []int64{1, 2, 4}
	}
	for _, units := range numbers {
		slots := slotsOf(t, "slots", units)
		for k, kind := range []struct {
			dry    bool
			limits []*store.Limit
		}{
			{false, []*store.Limit{slots}}, {true, []*store.Limit{slots}}, {false, []*store.Limit{hour, slots}},
			{true, []*store.Limit{slots, hour}}, {false, []*store.Limit{slots, others, hour}},
		} {
			for x := range 3 * 3 * 3 * 2 * 2 {
				next := func(n int) int {
					r := x % n
					x /= n
					return r
				}
				old, young, passed, cost, many := next(3), next(3), next(3), int64(1+next(2)), 2+2*next(2)
				cases++
				name := fmt.Sprintf("%d slots, kind %d, %d old and %d young leases, time %d, %d of cost %d", units, k, old, young, passed, many, cost)
				var got, want []store.Result
				var kept [2][]any
				for i, together := range []bool{true, false} {
					prefix := redistest.Prefix(t)
					w.now = 1_000_000_000
					for n := range old {
						w.take(w.one(prefix, uint64(100+n), false, 1, ample))
					}
					w.now += slotsLease * 6 / 10
					for n := range young {
						w.take(w.one(prefix, uint64(200+n), false, cost, ample))
					}
					w.now += []int64{1, slotsLease / 2, slotsLease * 7 / 5}[passed] // none has run out; the old have; all have
					var ds []*Decision
					for n := range many {
						ds = append(ds, w.one(prefix, uint64(300+n), kind.dry, cost, kind.limits...))
					}
					if together {
						if p := NewTakeCall(ds); len(p.shapes) == 1 && len(p.shapes[0].entries) == 1 {
							groups++
						}
						w.take(ds...)
					} else {
						for _, d := range ds {
							w.take(d)
						}
					}
					var ss []*Settlement
					for _, n := range []uint64{300, 100, 300, 999, 302, 301, 200} { // some twice, some that none has
						id := store.Lease(n)
						id[15] = byte(slices.Index(kind.limits, slots))
						if n < 300 {
							id[15] = 0
						}
						ss = append(ss, &Settlement{
							Charge: &store.Charge{Key: "k", Limit: slots, Receipt: store.Receipt{Cost: cost, Lease: id}},
							Result: new(store.Result), Key: prefix + "slots",
						})
					}
					kept[i] = append(kept[i], w.stored(prefix, kind.limits...)...)
					if together {
						w.settle(ss...)
					} else {
						for _, s := range ss {
							w.settle(s)
						}
					}
					kept[i] = append(kept[i], w.stored(prefix, kind.limits...)...)
					all := &got
					if !together {
						all = &want
					}
					for _, d := range ds {
						*all = append(*all, d.Results...)
					}
					for _, s := range ss {
						*all = append(*all, *s.Result)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s:\n%+v\none by one:\n%+v", name, got, want)
				}
				// A group drops leases that have run out if it asks for their slots, though
				// some of it may be denied for other reasons.
				if ranOut := passed > 0 && old > 0 || passed > 1 && young > 0; ranOut && len(kind.limits) > 1 {
					continue
				}
				if !reflect.DeepEqual(kept[0], kept[1]) {
					t.Fatalf("%s: the server keeps\n%v\none by one:\n%v", name, kept[0], kept[1])
				}
			}
		}
	}
	if groups != cases {
		t.Errorf("%d groups in %d cases", groups, cases)
	}
}

// Releases are grouped by key, past those of other keys, but not past another settlement of
// their own.
func TestReleasesTogether(t *testing.T) {
	slots, other := slotsOf(t, "slots", 9), slotsOf(t, "slots", 8)
	settlementOf := func(key string, l *store.Limit, cost int64) *Settlement {
		return &Settlement{Charge: &store.Charge{Limit: l, Cost: cost}, Result: new(store.Result), Key: key}
	}
	ss := []*Settlement{
		settlementOf("a", slots, 0), settlementOf("b", slots, 0), settlementOf("a", slots, 0),
		settlementOf("a", slots, 2), settlementOf("a", slots, 0), settlementOf("a", other, 0), settlementOf("b", slots, 0),
	}
	var got [][]int
	for _, group := range Group(ss) {
		var numbers []int
		for _, s := range group {
			numbers = append(numbers, slices.Index(ss, s))
		}
		got = append(got, numbers)
	}
	if want := [][]int{{0, 2}, {1, 6}, {3}, {4}, {5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
