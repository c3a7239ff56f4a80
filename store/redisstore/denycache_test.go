package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

func denyLimit(t *testing.T, spec store.Spec) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDenyCache(t *testing.T) {
	rate := denyLimit(t, store.Spec{Name: "rate", Units: 10, Period: time.Second})
	quota := denyLimit(t, store.Spec{Name: "quota", Algorithm: store.FixedWindow, Units: 10, Period: time.Hour})
	slots := denyLimit(t, store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 1})
	ban := denyLimit(t, store.Spec{Name: "ban", Algorithm: store.Ban, Units: 5, Period: time.Minute, Ban: time.Hour})
	one := []store.Charge{{Key: "k", Limit: rate, Cost: 1}}
	no := func(retry, reset time.Duration) []store.Result {
		return []store.Result{{RetryAfter: retry, ResetAfter: reset}}
	}
	const ms = time.Millisecond
	for _, tt := range []struct {
		name    string
		charges []store.Charge
		results []store.Result
		after   time.Duration
		ask     []store.Charge
		want    string // answers; empty: the server is asked
	}{
		{"at once", one, no(100*ms, 900*ms), 0, one, "[{false 0 0s 100ms 900ms}]"},
		{"counts down", one, no(100*ms, 900*ms), 60*ms + 300, one, "[{false 0 0s 40ms 840ms}]"},
		{"a tick before", one, no(100*ms, 900*ms), 100*ms - time.Microsecond, one, "[{false 0 0s 1µs 800.001ms}]"},
		{"it may pass", one, no(100*ms, 900*ms), 100 * ms, one, ""},
		{"never, for a second", one, no(store.Never, 0), 999 * ms, one, "[{false 0 0s 2562047h47m16.854775807s 0s}]"},
		{"never, a second later", one, no(store.Never, 0), time.Second, one, ""},
		{"long, for a second", one, no(time.Hour, time.Hour), time.Second, one, ""},
		{"another cost", one, no(100*ms, 0), 0, []store.Charge{{Key: "k", Limit: rate, Cost: 2}}, ""},
		{"another key", one, no(100*ms, 0), 0, []store.Charge{{Key: "l", Limit: rate, Cost: 1}}, ""},
		{"another limit", one, no(100*ms, 0), 0, []store.Charge{{Key: "k", Limit: quota, Cost: 1}}, ""},
		{"it would wait", one, no(100*ms, 0), 0, []store.Charge{{Key: "k", Limit: rate, Cost: 1, MaxWait: ms}}, ""},
		{"more limits", one, no(100*ms, 0), 0, append([]store.Charge{{Key: "k", Limit: quota, Cost: 1}}, one...), ""},
		{"slots", []store.Charge{{Key: "k", Limit: slots, Cost: 1}}, no(0, 0), 0, []store.Charge{{Key: "k", Limit: slots, Cost: 1}}, ""},
		{
			"two limits, until the first of them passes",
			[]store.Charge{one[0], {Key: "k", Limit: quota, Cost: 1}},
			[]store.Result{{RetryAfter: 100 * ms}, {RetryAfter: 50 * ms}}, 49 * ms,
			[]store.Charge{one[0], {Key: "k", Limit: quota, Cost: 1}}, "[{false 0 0s 51ms 0s} {false 0 0s 1ms 0s}]",
		},
		{
			"two limits, one with room",
			[]store.Charge{one[0], {Key: "k", Limit: quota, Cost: 1}},
			[]store.Result{{OK: true, Remaining: 7}, {RetryAfter: 50 * ms}}, 49 * ms,
			[]store.Charge{one[0], {Key: "k", Limit: quota, Cost: 1}}, "[{true 7 0s 0s 0s} {false 0 0s 1ms 0s}]",
		},
		{
			"a ban that counts the next denial",
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}},
			[]store.Result{{RetryAfter: 100 * ms}, {OK: true, Remaining: 4}}, 0,
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}}, "",
		},
		{
			"a ban that only reports and has begun",
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true, DryRun: true}},
			[]store.Result{{RetryAfter: 100 * ms}, {RetryAfter: time.Hour}}, 0,
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true, DryRun: true}}, "",
		},
		{
			"a ban that has begun, for a second",
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}},
			[]store.Result{{OK: true, Remaining: 7}, {RetryAfter: time.Hour, Begun: true}}, 999 * ms,
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}}, "[{true 7 0s 0s 0s} {false 0 0s 59m59.001s 0s}]",
		},
		{
			"a ban, a second later",
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}},
			[]store.Result{{OK: true, Remaining: 7}, {RetryAfter: time.Hour}}, time.Second,
			[]store.Charge{one[0], {Key: "k", Limit: ban, Cost: 1, Final: true}}, "",
		},
		{
			"two keys",
			[]store.Charge{one[0], {Key: "l", Limit: quota, Cost: 1}}, []store.Result{{RetryAfter: ms}, {}}, 0,
			[]store.Charge{one[0], {Key: "l", Limit: quota, Cost: 1}}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newDenyCache(100)
				c.remember(tt.charges, tt.results, time.Now())
				time.Sleep(tt.after)
				results := make([]store.Result, len(tt.ask))
				got := ""
				if c.deny(tt.ask, results) {
					var words []string
					for _, r := range results {
						words = append(words, fmt.Sprint("{", r.OK, " ", r.Remaining, " ", r.Delay, " ", r.RetryAfter, " ", r.ResetAfter, "}"))
					}
					got = "[" + strings.Join(words, " ") + "]"
				}
				if got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A denial that was under way when its key got room is not remembered, whichever
// comes in first.
func TestDenyCacheForgetsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := denyLimit(t, store.Spec{Name: "rate", Units: 10, Period: time.Second})
		charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, []store.Result{{RetryAfter: time.Second}}
		c := newDenyCache(100)
		sent := c.instant()
		time.Sleep(time.Millisecond)
		c.forget("k")
		time.Sleep(time.Millisecond)
		c.remember(charges, results, sent)
		if c.deny(charges, make([]store.Result, 1)) {
			t.Error("denied by an answer from before there was room")
		}
		c.remember(charges, results, c.instant())
		if !c.deny(charges, make([]store.Result, 1)) {
			t.Error("an answer from after it is not remembered")
		}
	})
}

// It holds no more than it was told, and no keys of a megabyte.
func TestDenyCacheIsBounded(t *testing.T) {
	c := newDenyCache(100)
	l := denyLimit(t, store.Spec{Name: "rate", Units: 10, Period: time.Second})
	results := []store.Result{{RetryAfter: time.Second}}
	for i := range 10_000 {
		c.remember([]store.Charge{{Key: fmt.Sprint(i), Limit: l, Cost: 1}}, results, time.Now())
	}
	c.remember([]store.Charge{{Key: strings.Repeat("x", 1<<20), Limit: l, Cost: 1}}, results, time.Now())
	held := 0
	for i := range c.shards {
		for key := range c.shards[i].calls {
			held++
			if len(key) > 512 {
				t.Errorf("a key of %d bytes", len(key))
			}
		}
	}
	if held < 90 || held > 112 {
		t.Errorf("%d keys held, want about 100", held)
	}
}

// Against a server: hammering asks a few times, nothing passes that the server
// has not granted, and a settlement or a Reset makes room at once.
func TestDenyCacheAsksLittle(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	s := New(rdb, WithDenyCache(1000), WithTimeout(time.Minute))
	defer s.Close()
	l := denyLimit(t, store.Spec{Name: "rate", Units: 1, Period: time.Hour, Burst: 3})
	ctx := context.Background()
	charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
	take := func() bool {
		t.Helper()
		if err := s.Take(ctx, charges, results); err != nil {
			t.Fatal(err)
		}
		return results[0].OK
	}
	passed := 0
	var last store.Receipt
	for range 10_000 {
		if take() {
			passed++
			last = results[0].Receipt
		}
	}
	if calls, _ := server.CommandStats("evalsha"); passed != 3 || calls > 1000 {
		t.Errorf("%d of 10,000 passed with %d calls, want 3 with a few", passed, calls)
	}
	back := charges[0]
	back.Cost, back.Receipt = 0, last
	if err := s.Settle(ctx, []store.Charge{back}, results); err != nil {
		t.Fatal(err)
	}
	if !take() || take() {
		t.Error("after a refund one should pass")
	}
	if _, err := s.Reset(ctx, "k", l); err != nil {
		t.Fatal(err)
	}
	if !take() {
		t.Error("after Reset none passes")
	}
}

// Settlements that fail together may all have been made: none of their keys stays denied.
func TestFailedSettlementsForgetDenials(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(dumb{func(int) (any, error) { return nil, replied("PARTIAL") }})
	s := New(rdb, WithDenyCache(8))
	l := denyLimit(t, store.Spec{Name: "n", Units: 1, Period: time.Hour})
	var calls []*batch.Call[settleRequest]
	for _, key := range []string{"a", "b"} {
		c := store.Charge{Key: key, Limit: l, Cost: 1}
		s.denies.remember([]store.Charge{c}, []store.Result{{RetryAfter: time.Hour}}, s.denies.instant())
		call := batch.NewCall[settleRequest]()
		call.Body.add(store.Charge{Key: key, Limit: l, Receipt: store.Receipt{Cost: 1}}, s.keyOf(&c), 0)
		calls = append(calls, call)
	}
	settleSender{&s.server, s.denies}.send(t.Context(), calls)
	for i, key := range []string{"a", "b"} {
		if !errors.Is(calls[i].Failed, ErrIndeterminate) {
			t.Errorf("%s: %v", key, calls[i].Failed)
		}
		if s.denies.deny([]store.Charge{{Key: key, Limit: l, Cost: 1}}, make([]store.Result, 1)) {
			t.Errorf("%s is denied from memory", key)
		}
	}
}
