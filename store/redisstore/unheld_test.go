package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// A slot that was taken by a call without an answer is nobody's. It comes free when the
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
	if _, err := settle(s, "k", l, held.Receipt, 0); !redisstore.IsFailure(err) {
		t.Fatal(err)
	}
	server.Do("CLIENT", "UNPAUSE")
	eventually(t, "the slot again", func() bool {
		r, err := take(s, "k", l, 1)
		return err == nil && r.OK
	})
}
