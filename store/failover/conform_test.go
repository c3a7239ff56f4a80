package failover_test

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/storetest"
)

// broken fails every decision, and forgets.
type broken struct{ side }

func (*broken) Reset(context.Context, string, ...*store.Limit) error { return nil }

func down() store.Store { return &broken{side{err: errDown}} }

// Whichever of the two decides, it is a store.
func TestConformance(t *testing.T) {
	const never = time.Hour * 24 * 365 * 50
	for name, newStore := range map[string]func() *failover.Store{
		"primary":   func() *failover.Store { return failover.New(memstore.New(), down()) },
		"open":      func() *failover.Store { return failover.New(down(), memstore.New(), failover.WithProbe(never, 0)) },
		"secondary": func() *failover.Store { return failover.New(down(), memstore.New(), failover.WithThreshold(1<<30)) },
		"of two": func() *failover.Store {
			return failover.New(failover.New(down(), memstore.New(), failover.WithThreshold(1<<30)), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store {
				s := newStore()
				t.Cleanup(func() { s.Close() })
				if name == "open" { // an open breaker lets no Reset through
					return only{s}
				}
				return s
			})
		})
	}
}
