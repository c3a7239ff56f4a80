package wire

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

// A key that holds what no store has written counts as never seen, and is overwritten
// by what is charged. No other charge of the call notices.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	ctx, rdb := context.Background(), redistest.Start(t).Client()
	contents := map[string]func(key string) error{
		"list":   func(key string) error { return rdb.RPush(ctx, key, "hello", "you").Err() },
		"hash":   func(key string) error { return rdb.HSet(ctx, key, "hello", "you").Err() },
		"set":    func(key string) error { return rdb.SAdd(ctx, key, "hello").Err() },
		"sorted": func(key string) error { return rdb.ZAdd(ctx, key, redis.Z{Member: "#", Score: -7}).Err() },
	}
	for _, text := range []string{"", "hello", "1", "-5", "1.5", "1e3", "0000000000000000000", "12345678901234567890", ":::", "0:0", "0:0:0", "1:0:0:0:0:0:0", "1:x:8:3:4:5", "a:b:c:d:e"} {
		contents["text "+text] = func(key string) error { return rdb.Set(ctx, key, text, 0).Err() }
	}
	specs := append(versionstest.Kinds(t),
		store.Spec{Units: 1_000_003, Period: 999_999_999 * time.Microsecond},
		store.Spec{Algorithm: store.WarmUp, Units: 1_000_003, Period: 999_999_999 * time.Microsecond, WarmUp: time.Hour})
	for i, spec := range specs {
		spec.Name = "l"
		l := mustLimit(t, spec)
		for name, write := range contents {
			rdb.FlushDB(ctx)
			w := newTwins(rdb, 1)
			w.limits, w.keys, w.now = [][]*store.Limit{{l}}, []string{"theirs", "ours"}, 1_000_000_000
			for _, cost := range []int64{0, 1, 1 << 40, 1} {
				key := "theirs:l" + l.Algorithm().String()
				rdb.Del(ctx, key)
				delete(w.states, key)
				if err := write(key); err != nil {
					t.Fatal(err)
				}
				if err := w.besideOthers(l, cost); err != nil {
					t.Fatalf("limit %d, %+v: %s, cost %d: %v", i, spec, name, cost, err)
				}
			}
		}
	}
}

func (w *twins) besideOthers(l *store.Limit, cost int64) error {
	var ds []*Decision
	for _, key := range w.keys {
		w.leases++
		ds = append(ds, &Decision{
			Charges: []store.Charge{{Key: key, Limit: l, Cost: cost}}, Results: make([]store.Result, 1),
			Keys: []string{key + ":l" + l.Algorithm().String()}, Leases: []store.LeaseID{store.Lease(w.leases)},
		})
	}
	p := NewTakeCall(ds)
	script, args := p.Args(Times{Clock: fmt.Sprint(w.now, ",0"), Wall: w.now, Lease: longLease}, 0)
	reply, err := w.run(script, p.Keys, args)
	if err != nil {
		return err
	}
	if _, _, err := p.Answer(reply); err != nil {
		return fmt.Errorf("%w: %v", err, reply)
	}
	for _, d := range ds {
		if err := w.decide(d); err != nil {
			return fmt.Errorf("%w\nanswer %v", err, reply)
		}
	}
	return nil
}
