package wire

import (
	"context"
	"crypto/sha1"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
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
	for _, a := range append(slices.Clone(charged), mixed, banned) {
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
	ds := []*Decision{w.decision()}
	if w.roll(2) == 0 {
		ds = append(ds, w.decision())
	}
	var want [][]store.Result
	for _, d := range ds {
		for i, c := range d.Charges {
			w.note("in vain %s %v cost %d wait %v dry %v", d.Keys[i], c.Limit.Spec(), c.Cost, c.MaxWait, c.DryRun)
		}
		now, results := make([]store.State, len(d.Charges)), make([]store.Result, len(d.Charges))
		for i, key := range d.Keys {
			now[i] = *w.state(key)
		}
		store.Decide(store.Now{Steady: w.now, Wall: w.now, Lease: store.Lease(1 << 60)}, d.Charges, now, results)
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
		p := NewTakeCall(ds)
		script, args := p.Args(w.times(asked), 0)
		reply, err := w.run(script, p.Keys, args)
		if after, err := w.dump(); err != nil || !maps.Equal(before, after) {
			return made, fmt.Errorf("out of memory, and the server keeps\n%v\nafter\n%v %v", after, before, err)
		}
		if made && (err == nil || !strings.Contains(err.Error(), "OOM") || strings.Contains(err.Error(), "PARTIAL")) {
			if _, left, _ := p.Answer(reply); len(left.Items) == 0 {
				return made, fmt.Errorf("out of memory, and charged: %v %v", reply, err)
			}
		}
		if err != nil {
			if !made {
				return made, fmt.Errorf("out of memory, and nothing to charge: %w", err)
			}
			return made, nil
		}
		_, left, err := p.Answer(reply)
		if err != nil {
			return made, err
		}
		if len(left.Items) == 0 {
			break
		}
		asked = append(asked, left.Asked...)
	}
	if !made && len(ds) == 1 {
		for i := range want[0] {
			if ds[0].Results[i] != want[0][i] {
				return made, fmt.Errorf("out of memory: charge %d: got %+v, want %+v", i, ds[0].Results[i], want[0][i])
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
		d := &Decision{
			Charges: []store.Charge{{Key: "k", Limit: l, Cost: cost}}, Keys: []string{"k"},
			Results: make([]store.Result, 1), Leases: []store.LeaseID{store.Lease(w.leases)},
		}
		p := NewTakeCall([]*Decision{d})
		script, args := p.Args(Times{Clock: fmt.Sprintf("%d,0", at), Wall: at, Lease: NewLeaseTime(lease * time.Microsecond)}, 0)
		reply, err := redis.NewScript(script.Source).Run(context.Background(), w.rdb, p.Keys, args...).Result()
		if err == nil {
			_, _, err = p.Answer(reply)
		}
		return d.Results[0], err
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
