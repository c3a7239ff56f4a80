package memstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

func newLimit(tb testing.TB, spec store.Spec) *store.Limit {
	tb.Helper()
	l, err := store.NewLimit(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// A store remembers wrong options: none is clamped, and no call is decided.
func TestMisconfigured(t *testing.T) {
	ctx, l := context.Background(), newLimit(t, store.Spec{Name: "l", Units: 1, Period: time.Hour})
	for want, s := range map[string]*memstore.Store{
		"WithMaxKeys(0): use 1 to 2147483647":         memstore.New(memstore.WithMaxKeys(0)),
		"WithMaxKeys(-5): use 1 to 2147483647":        memstore.New(memstore.WithMaxKeys(9), memstore.WithMaxKeys(-5)),
		"memstore.New: option 1 is nil: leave it out": memstore.New(nil),
		"the zero memstore.Store: use memstore.New()": new(memstore.Store),
		"": memstore.New(memstore.WithMaxKeys(1)),
	} {
		charges, results := []store.Charge{{Key: "k", Limit: l, Cost: 1}}, make([]store.Result, 1)
		errs := []error{s.Take(ctx, charges, results), s.Take(ctx, append(charges, store.Charge{Key: "j", Limit: l}), make([]store.Result, 2)),
			s.Settle(ctx, charges, results)}
		_, err := s.Reset(ctx, "k", l)
		errs = append(errs, err)
		for i, err := range errs {
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("call %d: %v, want %q", i, err, want)
			}
		}
		if wrong := s.Misconfigured(); (want != "") != (len(wrong) == 1) || want != "" && wrong[0].Error() != want {
			t.Errorf("%v, want %q", wrong, want)
		}
	}
	if got := memstore.New().Stats().MaxKeys; got != memstore.DefaultMaxKeys {
		t.Errorf("holds %d by default", got)
	}
}

// A charge that is made for one call stays on the caller's stack, as its result does.
func TestTakeOnTheStackAllocatesNothing(t *testing.T) {
	s := memstore.New()
	limits := map[string]*store.Limit{
		"TokenBucket": newLimit(t, store.Spec{Name: "bucket", Units: 1000, Period: time.Second, Burst: store.MaxCost}),
		"FixedWindow": newLimit(t, store.Spec{Name: "window", Algorithm: store.FixedWindow, Units: store.MaxCost, Period: time.Hour}),
	}
	for name, l := range limits {
		granted := 0
		take := func() {
			charges, results := [...]store.Charge{{Key: "k", Limit: l, Cost: 1}}, [1]store.Result{}
			if err := s.Take(context.Background(), charges[:], results[:]); err == nil && results[0].OK {
				granted++
			}
		}
		if a := testing.AllocsPerRun(1000, take); a != 0 || granted != 1001 {
			t.Errorf("%s: a call allocates %v times; %d granted", name, a, granted)
		}
	}
}

// BenchmarkTakeOnTheStack is a charge that is made for one call.
func BenchmarkTakeOnTheStack(b *testing.B) {
	s, l := memstore.New(), newLimit(b, store.Spec{Name: "stack", Units: 1000, Period: time.Second, Burst: store.MaxCost})
	b.ReportAllocs()
	for b.Loop() {
		charges, results := [...]store.Charge{{Key: "k", Limit: l, Cost: 1}}, [1]store.Result{}
		if err := s.Take(context.Background(), charges[:], results[:]); err != nil || !results[0].OK {
			b.Fatal(err, results)
		}
	}
}
