package redisstore

import (
	"strconv"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Concurrency.

func concurrency(r *record) []any { return []any{"1", text(r.spec.Units), "", ""} }

func varyConcurrency(r *record, args []any, c *store.Charge, t *timeArgs) {
	lasts := t.leaseArgs
	if lasts == nil {
		lasts = leaseArgsOf(t.lease)
	}
	args[2], args[3] = lasts[0], lasts[1]
	if c != nil && c.Cost != 1 {
		args[0] = text(c.Cost)
	}
}

// leaseArgsOf returns how long leases of so many microseconds last, and the lifetime of their
// set in milliseconds.
func leaseArgsOf(us int64) *[2]any { return &[2]any{text(us), text(2 * (us/1000 + 1))} }

func held(found string, s *engine.State) bool {
	n, err := strconv.ParseInt(found, 10, 64)
	s.A = n
	return err == nil && n > 0
}
