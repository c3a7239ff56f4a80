package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// TestVersions runs the scripts on a server, by the traces' clock.
func TestVersions(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(redistest.ByToldClock())
	versionstest.Run(t, 3, func(t *testing.T, trace func(*testing.T, versionstest.Bench)) {
		c := newClock()
		s := redisstore.New(rdb, redisstore.WithClock(c.now), redisstore.WithPrefix(redistest.Prefix(t)), patient,
			redisstore.WithLeaseTTL(20*365*24*time.Hour))
		defer s.Close()
		now := func() int64 { return c.now().UnixMicro() - store.Epoch*1_000_000 }
		trace(t, versionstest.Bench{Store: s, Now: now, Sleep: c.sleep})
	})
}
