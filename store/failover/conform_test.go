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

// broken fails every decision and ban, and forgets.
type broken struct{ side }

func (*broken) Reset(context.Context, string, ...*store.Limit) (bool, error) { return false, nil }

func (*broken) Ban(context.Context, string, time.Duration, ...*store.Limit) ([]store.Result, error) {
	return nil, errDown
}

func down() store.Store { return &broken{side{err: errDown}} }

// Whichever side decides, a failover is a correct store.
func TestConformance(t *testing.T) {
	const never = time.Hour * 24 * 365 * 50
	const threshold = 1 << 30
	for _, tt := range []struct {
		name     string
		newStore func() *failover.Store
		decided  func(failover.Stats) bool // whether it was decided where it was meant to be
	}{
		{"primary", func() *failover.Store { return failover.New(memstore.New(), down()) },
			func(got failover.Stats) bool { return got == failover.Stats{} }},
		{"open", func() *failover.Store {
			return failover.New(down(), memstore.New(), failover.WithProbe(never, 250*time.Millisecond))
		},
			func(got failover.Stats) bool {
				return got.Probes == 0 && (got.State == failover.Open || got.Failures < 5)
			}},
		{"secondary", func() *failover.Store { return failover.New(down(), memstore.New(), failover.WithThreshold(threshold)) },
			func(got failover.Stats) bool { return got.State == failover.Closed && got.Fallbacks <= got.Failures }},
		{"of two", func() *failover.Store {
			return failover.New(failover.New(down(), memstore.New(), failover.WithThreshold(threshold)), nil)
		}, func(got failover.Stats) bool { return got == failover.Stats{} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var opened, fallbacks uint64
			storetest.Run(t, func(t *testing.T) store.Store {
				s := tt.newStore()
				t.Cleanup(func() {
					s.Close()
					got := s.Stats()
					if !tt.decided(got) {
						t.Errorf("%+v", got)
					}
					opened, fallbacks = opened+got.Opened, fallbacks+got.Fallbacks
				})
				if tt.name == "open" { // an open breaker lets no Reset through
					return only{s}
				}
				return s
			})
			if (opened > 0) != (tt.name == "open") || (fallbacks > 0) != (tt.name == "open" || tt.name == "secondary") {
				t.Errorf("opened %d times, %d fallbacks", opened, fallbacks)
			}
		})
	}
}
