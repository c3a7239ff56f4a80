package stint

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/logs"
)

// dryRuns counts what dry runs would have denied, until it is logged.
type dryRuns struct {
	mu     sync.Mutex
	denied map[string]int64 // by limit; nil if none is counted
}

// add counts a denial by a limit, and reports whether it is the first since the last take.
func (d *dryRuns) add(limit string) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if first = d.denied == nil; first {
		d.denied = map[string]int64{}
	}
	d.denied[limit]++
	return first
}

// take returns what is counted, and begins to count anew.
func (d *dryRuns) take() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	denied := d.denied
	d.denied = nil
	return denied
}

// countDryRun counts a denial that a limit in a dry run would have made. The first has a line
// written a minute later.
func (s *sender) countDryRun(limit string) {
	if s.to.dryRuns.add(limit) {
		time.AfterFunc(logs.Interval, func() { background.Do("logging", s.writeDryRuns) })
	}
}

func (s *sender) writeDryRuns() {
	denied := s.to.dryRuns.take()
	s.to.log.Load().Write(context.Background(), logs.DryRun, func(bool) []slog.Attr {
		var all []string
		for name, n := range denied {
			all = append(all, fmt.Sprintf("limit %s: %d", name, n))
		}
		slices.Sort(all)
		return s.attrs(slog.String("would_deny", enumerate(all)))
	})
}
