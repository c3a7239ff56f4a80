package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestFaultsSentinelFailover(t *testing.T) {
	Suite(t, "faults")
	t.Parallel()
	s := StartSentinel(t, 1)
	rdb := s.Client()
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old := s.Master()
	if old != s.Nodes[0] {
		t.Fatalf("the master is %s, not %s", old.Addr(), s.Nodes[0].Addr())
	}
	next := s.Failover()
	if next != s.Nodes[1] || s.Master() != next {
		t.Fatalf("the new master is %s", next.Addr())
	}
	await(t, "the client to follow", func() error { return rdb.Set(t.Context(), "k", "w", 0).Err() })
	if got := next.Do("GET", "k"); got != "w" {
		t.Errorf("written to the new master: %v", got)
	}
	old.Restart()
	s.AwaitOK()
	if role := old.Info("replication", "role"); role != "slave" {
		t.Errorf("who comes back is %s", role)
	}
}

func TestFaultsSentinelSwitch(t *testing.T) {
	Suite(t, "faults")
	t.Parallel()
	s := StartSentinel(t, 2, "--requirepass", "secret")
	old := s.Master()
	direct, rdb := old.Client(func(o *redis.Options) { o.MaxRetries = -1 }), s.Client()
	if err := direct.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	next := s.Switch()
	if next == old {
		t.Fatal("nobody was promoted")
	}
	// The old master hangs up on its clients once, so the first error may be
	// that.
	await(t, "the old master to say what it is", func() error {
		err := direct.Set(t.Context(), "k", "x", 0).Err()
		if redis.HasErrorPrefix(err, "READONLY") {
			return nil
		}
		return fmt.Errorf("it says %v", err)
	})
	await(t, "the client to follow", func() error { return rdb.Set(t.Context(), "k", "w", 0).Err() })
	if got := next.Do("GET", "k"); got != "w" {
		t.Errorf("written to the new master: %v", got)
	}
}
