package redisstore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// Two processes with clocks of their own, one ahead of the other. Whatever is asked
// by which of them, and however long the one ahead is silent: over any span t no more
// passes than the limit allows in t and what the one is ahead, and a quota more for
// each boundary of the calendar within that.
func TestClockAhead(t *testing.T) {
	rdb := redistest.Shared(t).Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	rdb.AddHook(redistest.ByToldClock())
	real := newClock()
	for i, spec := range []store.Spec{
		{Units: 10, Period: time.Second},
		{Algorithm: store.FixedWindow, Units: 10, Period: time.Second},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily},
		{Algorithm: store.IntervalBucket, Units: 10, Window: store.Every(time.Minute)},
		{Algorithm: store.SlidingLog, Units: 10, Period: time.Second},
		{Algorithm: store.SlidingWindow, Units: 10, Period: time.Second},
		{Algorithm: store.SlidingCounter, Units: 10, Period: time.Second},
	} {
		for _, lead := range []time.Duration{3 * time.Millisecond, time.Second, time.Hour} {
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(lead)))
			l := limit(t, spec)
			prefix := redistest.Prefix(t)
			process := func(ahead time.Duration) *redisstore.Store {
				s := redisstore.New(rdb, redisstore.WithPrefix(prefix), patient,
					redisstore.WithClock(func() time.Time { return real.now().Add(ahead) }))
				t.Cleanup(func() { s.Close() })
				return s
			}
			fast, slow := process(lead), process(0)
			// The one that is ahead sees the day end in 2 ms.
			midnight := real.now().Truncate(24 * time.Hour).Add(24 * time.Hour)
			real.us.Store(midnight.Add(-lead - 2*time.Millisecond).UnixMicro())

			var passed []time.Time
			ask := func(s *redisstore.Store) {
				rdb.Set(context.Background(), redistest.ServerClockOf(prefix+"%clock"), real.us.Load()-store.Epoch*1_000_000, 0)
				r, err := take(s, "k", l, 1)
				if err != nil {
					t.Fatal(err)
				}
				if r.OK {
					passed = append(passed, real.now())
				}
			}
			ask(fast)
			for range 400 {
				real.sleep(time.Duration(rnd.Int64N(10_000)) * time.Microsecond)
				s := slow
				if rnd.IntN(100) == 0 {
					s = fast
				}
				ask(s)
			}
			for from := range passed {
				for to := from; to < len(passed); to++ {
					most := allowed(spec, passed[from], passed[to].Add(lead+time.Microsecond))
					if n := int64(to - from + 1); n > most {
						t.Fatalf("%+v, a clock %v ahead: %d pass in %v, at most %d may",
							spec, lead, n, passed[to].Sub(passed[from]), most)
					}
				}
			}
			if len(passed) < 10 {
				t.Errorf("%+v, a clock %v ahead: only %d pass", spec, lead, len(passed))
			}
		}
	}
}

// allowed is the most that a limit of 10 lets pass from one instant to another.
func allowed(spec store.Spec, from, to time.Time) int64 {
	span := int64(to.Sub(from))
	switch spec.Window {
	case store.Window{}:
		if spec.Algorithm == store.TokenBucket {
			return 10 + 10*span/int64(spec.Period)
		}
		return 10 * (span/int64(spec.Period) + 2)
	case store.Daily:
		return 10 + 10*(to.Unix()/86400-from.Unix()/86400)
	default:
		return 10 + 10*(to.Unix()/60-from.Unix()/60)
	}
}
