package wire

import (
	"strconv"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// concurrencyArgs returns the arguments of lua/concurrency.lua: cost, units, lasts, lifetime.
func concurrencyArgs(l *limitArgs) []any { return []any{"1", text(l.spec.Units), "", ""} }

func varyConcurrency(_ *limitArgs, args []any, c *store.Charge, t *Times) {
	args[2], args[3] = t.Lease.lasts, t.Lease.lifetime
	if c != nil && c.Cost != 1 {
		args[0] = text(c.Cost)
	}
}

// LeaseTime is how long leases last, as arguments.
type LeaseTime struct {
	lasts    any // in microseconds
	lifetime any // of a set of leases, in milliseconds
}

// NewLeaseTime returns the arguments of leases that last for d.
func NewLeaseTime(d time.Duration) *LeaseTime {
	us := d.Microseconds()
	return &LeaseTime{text(us), text(2 * (us/1000 + 1))}
}

// concurrencyState decodes the number of slots held.
func concurrencyState(found string, s *engine.State) bool {
	n, err := strconv.ParseInt(found, 10, 64)
	s.A = n
	return err == nil && n > 0
}
