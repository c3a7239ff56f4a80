package failover_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// A store remembers wrong arguments: nothing panics, no default takes their place, and the
// secondary doesn't stand in for a primary that was made wrongly.
func TestMisconfigured(t *testing.T) {
	p, ctx := memstore.New(), context.Background()
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 1, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]*failover.Store{
		"failover.New: the primary is nil: pass a store, such as":                                                                       failover.New(nil, p),
		"failover.New: the primary is a nil *memstore.Store: pass a store that memstore.New, redisstore.New or the like has returned":   failover.New((*memstore.Store)(nil), p),
		"failover.New: the secondary is a nil *memstore.Store: pass a store that memstore.New, redisstore.New or the like has returned": failover.New(p, (*memstore.Store)(nil)),
		"WithMaxKeys(0): use 1 to 2147483647":                               failover.New(memstore.New(memstore.WithMaxKeys(0)), p),
		"the zero memstore.Store: use memstore.New()":                       failover.New(p, new(memstore.Store)),
		"the zero failover.Store: use failover.New(primary, secondary)":     new(failover.Store),
		"failover.New: option 1 is nil: leave it out":                       failover.New(p, nil, nil),
		"WithThreshold(0): use 1 or more":                                   failover.New(p, nil, failover.WithThreshold(0)),
		"WithProbe(1s, 0s): use 1ms or more for both":                       failover.New(p, nil, failover.WithProbe(time.Second, 0)),
		"WithProbe(100ns, 1s): use 100*time.Second or 100*time.Millisecond": failover.New(p, nil, failover.WithProbe(100, time.Second)),
		"WithProbe(-1ns, 1s): use 1ms or more for both":                     failover.New(p, nil, failover.WithProbe(-1, time.Second)),
	} {
		charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
		_, resetErr := s.Reset(ctx, "k", l)
		for i, err := range []error{s.Take(ctx, charges, results), s.Settle(ctx, charges, results), resetErr} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("call %d: %v, want %q", i, err, want)
			}
		}
		if wrong := s.Misconfigured(); len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), want) {
			t.Errorf("%v, want %q", wrong, want)
		}
	}
}
