package wire

import (
	"strconv"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// concurrencyArgs returns the arguments of lua/concurrency.lua: cost, units, lasts, lifetime.
func concurrencyArgs(l *limit) []any { return []any{"1", text(l.spec.Units), "", ""} }

func varyConcurrency(_ *limit, args []any, c *store.Charge, t *Times) {
	args[2], args[3] = t.Lease.lasts, t.Lease.lifetime
	if c != nil && c.Cost != 1 {
		args[0] = text(c.Cost)
	}
}

// concurrencyState decodes the number of slots held.
func concurrencyState(found string, s *algorithm.State) bool {
	n, err := strconv.ParseInt(found, 10, 64)
	s.W[algorithm.Held] = n
	return err == nil && n > 0
}
