package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A slot that was taken by a call without an answer has no owner. It comes free when the
// server answers again, not only when its lease runs out: here, after an hour.
func TestSlotWithoutAnAnswer(t *testing.T) {
	for _, heeds := range []bool{true, false} { // whether the client ends calls in time
		server := redistest.Start(t)
		s := redisstore.New(server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = heeds }),
			redisstore.WithTimeout(200*time.Millisecond), redisstore.WithLeaseTTL(time.Hour))
		defer s.Close()
		l := limit(t, store.Spec{Units: 2, Algorithm: store.Concurrency})
		var held store.Result
		eventually(t, "a slot", func() (ok bool) { // with a connection, and scripts that are known
			var err error
			held, err = take(s, "k", l, 1)
			return err == nil && held.OK
		})
		server.Pause()
		if _, err := take(s, "k", l, 1); !errors.Is(err, redisstore.ErrIndeterminate) {
			t.Fatal(err)
		}
		server.Resume()
		eventually(t, "the other slot", func() bool {
			r, err := take(s, "k", l, 1)
			return err == nil && r.OK
		})
		if r, err := take(s, "k", l, 1); err == nil && r.OK {
			t.Error("the slot that is held was released")
		}
	}
}

// A slot whose release had no answer comes free, too.
func TestReleaseWithoutAnAnswer(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true }),
		redisstore.WithTimeout(200*time.Millisecond), redisstore.WithLeaseTTL(time.Hour))
	defer s.Close()
	l := limit(t, store.Spec{Units: 1, Algorithm: store.Concurrency})
	var held store.Result
	eventually(t, "the slot", func() bool {
		var err error
		held, err = take(s, "k", l, 1)
		return err == nil && held.OK
	})
	server.Do("CLIENT", "PAUSE", 3_600_000, "WRITE") // what is closed meanwhile isn't executed
	if _, err := settle(s, "k", l, held.Receipt, 0); !redisstore.Unusable(err) {
		t.Fatal(err)
	}
	server.Do("CLIENT", "UNPAUSE")
	eventually(t, "the slot again", func() bool {
		r, err := take(s, "k", l, 1)
		return err == nil && r.OK
	})
}

// A Settle that is denied as malformed leaves nothing behind that is in the way of others.
func TestMalformedReleaseIsNotRepeated(t *testing.T) {
	server := redistest.Start(t)
	s := redisstore.New(server.Client(), patient, redisstore.WithLeaseTTL(time.Hour))
	defer s.Close()
	l := limit(t, store.Spec{Units: 1, Algorithm: store.Concurrency})
	held, err := take(s, "k", l, 1)
	if err != nil || !held.OK {
		t.Fatal(held, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	settle := func(l *store.Limit) error {
		return s.Settle(ctx, []store.Charge{{Key: "k", Limit: l, Receipt: held.Receipt}}, make([]store.Result, 1))
	}
	if err := settle(new(store.Limit)); !errors.Is(err, store.ErrLimit) {
		t.Fatal(err)
	}
	if err := settle(l); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	eventually(t, "the slot is free", func() bool {
		r, err := take(s, "k", l, 1)
		return err == nil && r.OK
	})
}
