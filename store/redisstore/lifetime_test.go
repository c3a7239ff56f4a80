package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A key that is used up lives until its limit is full again, and hardly longer: ten
// seconds for buckets, and twice the time for windows far ahead.
func TestLifetimes(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(redistest.ByToldClock())
	c := newClock()
	for _, spec := range []store.Spec{
		{Units: 10, Period: time.Second},
		{Units: 1, Period: time.Hour},
		{Units: 7, Period: time.Second, Burst: 100},
		{Algorithm: store.IntervalBucket, Units: 1, Burst: 6, Window: store.Hourly},
		{Algorithm: store.IntervalBucket, Units: 1, Burst: 24, Window: store.Hourly},
		{Algorithm: store.IntervalBucket, Units: 1, Burst: 1000, Window: store.Hourly},
		{Algorithm: store.IntervalBucket, Units: 1, Burst: 30, Window: store.Monthly},
		{Algorithm: store.IntervalBucket, Units: 1, Burst: 24, Period: time.Hour},
		{Algorithm: store.FixedWindow, Units: 10, Window: store.Daily},
		{Algorithm: store.SlidingWindow, Units: 10, Period: time.Minute},
		{Algorithm: store.SlidingLog, Units: 10, Period: time.Minute},
		{Algorithm: store.SlidingCounter, Units: 10, Period: time.Minute},
		{Algorithm: store.WarmUp, Units: 10, Period: time.Second, WarmUp: time.Minute},
	} {
		prefix := redistest.Prefix(t)
		s := redisstore.New(rdb, redisstore.WithPrefix(prefix), redisstore.WithClock(c.now), patient)
		l := limit(t, spec)
		if r, err := take(s, "k", l, max(spec.Burst, spec.Units)); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		r, err := take(s, "k", l, 0)
		if err != nil {
			t.Fatal(err)
		}
		keys := rdb.Keys(context.Background(), redistest.ExpiryOf(prefix+"{*")).Val()
		if len(keys) != 1 {
			t.Fatal(keys)
		}
		until, err := rdb.Get(context.Background(), keys[0]).Int64()
		if err != nil {
			t.Fatal(err)
		}
		left := time.Duration(until-c.now().UnixMicro()+store.Epoch*1_000_000) * time.Microsecond
		if most := r.ResetAfter + 10*time.Second; left < r.ResetAfter || left > most && left > 2*r.ResetAfter {
			t.Errorf("%+v lives for %v, and is full in %v", spec, left, r.ResetAfter)
		}
	}
}

// A slot that is taken and released again and again finds its set in the server, with a
// lifetime: making the set anew each time would take three commands more.
func TestReleasedSlotsLeaveTheirSet(t *testing.T) {
	server := redistest.Start(t)
	rdb, prefix := server.Client(), redistest.Prefix(t)
	s := redisstore.New(rdb, redisstore.WithPrefix(prefix), redisstore.WithLeaseTTL(time.Hour), patient)
	defer s.Close()
	l := limit(t, store.Spec{Algorithm: store.Concurrency, Units: 1})
	for range 10 {
		r, err := take(s, "k", l, 1)
		if err != nil || !r.OK {
			t.Fatal(r, err)
		}
		back := []store.Charge{{Key: "k", Limit: l, Receipt: r.Receipt}}
		if err := s.Settle(t.Context(), back, make([]store.Result, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// A second time if an hour has ended: the instant that the set remembers is rounded to a lease.
	if calls, _ := server.CommandStats("pexpire"); calls > 2 {
		t.Errorf("ten slots, one after the other, gave their set a lifetime %d times", calls)
	}
	keys := rdb.Keys(t.Context(), prefix+"*").Val()
	if len(keys) != 1 {
		t.Fatal(keys)
	}
	if left := rdb.PTTL(t.Context(), keys[0]).Val(); left <= 0 || left > 3*time.Hour {
		t.Errorf("a set without slots lives for %v", left)
	}
}
