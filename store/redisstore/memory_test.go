package redisstore

import (
	"context"
	"crypto/sha1"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/internal/versionstest"
	"github.com/stint-go/stint/store"
)

// TestOutOfMemory: a server that is out of memory answers looks and denies what it would
// deny anyway, and fails every call that would charge something. In neither case
// anything changes. Traces are those of TestTwins; what is asked while the server is out of
// memory is asked in vain.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first, traces := versionstest.Seeds(3)
	failed, answered := 0, 0
	for _, a := range []store.Algorithm{
		store.TokenBucket, store.LeakyBucket, store.IntervalBucket, store.FixedWindow,
		store.SlidingWindow, store.SlidingCounter, store.SlidingLog, store.WarmUp, store.Concurrency, mixed, banned,
	} {
		for seed := first; seed < first+traces; seed++ {
			w := drawTwins(server.Client(), seed, a)
			w.rdb.FlushDB(context.Background())
			for range 20 {
				w.pass()
				err := w.expire()
				if err == nil {
					err = w.take()
				}
				w.pass()
				if err == nil {
					err = w.expire()
				}
				if err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.log, "\n"))
				}
				server.Do("CONFIG", "SET", "maxmemory", "1")
				w.bare = true
				made, err := w.inVain()
				w.bare = false
				server.Do("CONFIG", "SET", "maxmemory", "0")
				if err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, strings.Join(w.log[max(0, len(w.log)-10):], "\n"))
					break
				}
				if made {
					failed++
				} else {
					answered++
				}
			}
		}
	}
	if uint64(failed) < traces || uint64(answered) < traces {
		t.Errorf("%d calls failed, %d were answered", failed, answered)
	}
}

// inVain asks a server that is out of memory, and reports whether there was something to
// charge.
func (w *twins) inVain() (made bool, err error) {
	ds := []*decision{w.decision()}
	if w.roll(2) == 0 {
		ds = append(ds, w.decision())
	}
	var want [][]store.Result
	for _, d := range ds {
		for i, c := range d.charges {
			w.note("in vain %s %v cost %d wait %v dry %v", d.keys[i], c.Limit.Spec(), c.Cost, c.MaxWait, c.DryRun)
		}
		now, results := make([]store.State, len(d.charges)), make([]store.Result, len(d.charges))
		for i, key := range d.keys {
			now[i] = *w.state(key)
		}
		store.Decide(store.Now{Steady: w.now, Wall: w.now, Lease: store.Lease(1 << 60)}, d.charges, now, results)
		for i := range results {
			made = made || results[i].Receipt.Cost > 0
		}
		want = append(want, results)
	}
	before, err := w.dump()
	if err != nil {
		return made, err
	}
	asked := w.foreseen(ds)
	for range tries {
		p := newPlan(ds)
		script, args := takeArgs(&p, w.timeArgs(asked), 0)
		reply, err := w.run(script, p.keys, args)
		if after, err := w.dump(); err != nil || !maps.Equal(before, after) {
			return made, fmt.Errorf("out of memory, and the server keeps\n%v\nafter\n%v %v", after, before, err)
		}
		if made && (err == nil || !strings.Contains(err.Error(), "OOM") || strings.Contains(err.Error(), "PARTIAL")) {
			if _, left, _ := takeAnswer(&p, reply); len(left.what) == 0 {
				return made, fmt.Errorf("out of memory, and charged: %v %v", reply, err)
			}
		}
		if err != nil {
			if !made {
				return made, fmt.Errorf("out of memory, and nothing to charge: %w", err)
			}
			return made, nil
		}
		_, left, err := takeAnswer(&p, reply)
		if err != nil {
			return made, err
		}
		if len(left.what) == 0 {
			break
		}
		asked = append(asked, left.asked...)
	}
	if !made && len(ds) == 1 {
		for i := range want[0] {
			if ds[0].results[i] != want[0][i] {
				return made, fmt.Errorf("out of memory: charge %d: got %+v, want %+v", i, ds[0].results[i], want[0][i])
			}
		}
	}
	return made, nil
}

// dump is all that the server keeps.
func (w *twins) dump() (map[string]string, error) {
	ctx := context.Background()
	all := map[string]string{}
	keys, err := w.rdb.Keys(ctx, "*").Result()
	for _, key := range keys {
		text, dumpErr := w.rdb.Dump(ctx, key).Result()
		if dumpErr == redis.Nil {
			continue
		} else if dumpErr != nil {
			err = dumpErr
		}
		all[key] = fmt.Sprintf("%x", sha1.Sum([]byte(text)))
	}
	return all, err
}

// TestDeadSlotsOutOfMemory: a server that is out of memory doesn't drop leases that have
// run out, counts without them, and gives no one their slots.
func TestDeadSlotsOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	w := newTwins(server.Client(), 1)
	l, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 3})
	if err != nil {
		t.Fatal(err)
	}
	const lease, start = 1_000_000, int64(1e12)
	take := func(at, cost int64) (store.Result, error) {
		w.leases++
		d := &decision{
			charges: []store.Charge{{Key: "k", Limit: l, Cost: cost}}, keys: []string{"k"},
			results: make([]store.Result, 1), leases: []store.LeaseID{store.Lease(w.leases)},
		}
		p := newPlan([]*decision{d})
		script, args := takeArgs(&p, timeArgs{clock: fmt.Sprintf("%d,0", at), wall: at, lease: lease}, 0)
		reply, err := redis.NewScript(script.Source).Run(context.Background(), w.rdb, p.keys, args...).Result()
		if err == nil {
			_, _, err = takeAnswer(&p, reply)
		}
		return d.results[0], err
	}
	for _, cost := range []int64{1, 3} { // also of a lease with several slots
		w.rdb.FlushDB(context.Background())
		for range 3 / cost {
			if r, err := take(start, cost); err != nil || !r.OK {
				t.Fatal(r, err)
			}
		}
		before, err := w.dump()
		if err != nil {
			t.Fatal(err)
		}
		server.Do("CONFIG", "SET", "maxmemory", "1")
		for _, at := range []int64{start, start + lease/2, start + 2*lease - 1, start + 3*lease, start - 3*lease} {
			held := int64(3)
			if at > start+lease {
				held = 0
			}
			if r, err := take(at, 0); err != nil || r.Held != held || r.Remaining != 3-held {
				t.Errorf("at %d: a look: %+v, %v, want %d held", at-start, r, err, held)
			}
			if r, err := take(at, 4); err != nil || r.OK {
				t.Errorf("at %d: more than there is: %+v, %v", at-start, r, err)
			}
			if r, err := take(at, 1); (err == nil) != (held == 3) || r.OK && err == nil {
				t.Errorf("at %d: %+v, %v", at-start, r, err)
			}
			if after, err := w.dump(); err != nil || !maps.Equal(after, before) {
				t.Errorf("at %d: the server keeps %v, kept %v: %v", at-start, after, before, err)
			}
		}
		server.Do("CONFIG", "SET", "maxmemory", "0")
		if r, err := take(start+3*lease, 1); err != nil || !r.OK {
			t.Errorf("with memory again: %+v, %v", r, err)
		}
	}
}
