package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// BenchmarkDecide is the cost of the steps alone: no clock, no lock, no table.
func BenchmarkDecide(b *testing.B) {
	for _, tc := range []struct {
		name string
		spec store.Spec
	}{
		{"TokenBucket", store.Spec{Units: 1000, Period: time.Second}},
		{"IntervalBucket", store.Spec{Algorithm: store.IntervalBucket, Units: 1000, Period: time.Second}},
		{"LeakyBucket", store.Spec{Algorithm: store.LeakyBucket, Units: 1000, Period: time.Second}},
		{"FixedWindow", store.Spec{Algorithm: store.FixedWindow, Units: 1000, Period: time.Second}},
		{"Daily", store.Spec{Algorithm: store.FixedWindow, Units: 1000, Window: store.Daily}},
		{"SlidingWindow", store.Spec{Algorithm: store.SlidingWindow, Units: 1000, Period: time.Second}},
		{"SlidingLog", store.Spec{Algorithm: store.SlidingLog, Units: 1000, Period: time.Second}},
		{"SlidingCounter", store.Spec{Algorithm: store.SlidingCounter, Units: 1000, Period: time.Second}},
		{"WarmUp", store.Spec{Algorithm: store.WarmUp, Units: 1000, Period: time.Second, WarmUp: time.Second}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			tc.spec.Name = "bench"
			l, err := store.NewLimit(tc.spec)
			if err != nil {
				b.Fatal(err)
			}
			charges := []store.Charge{{Key: "k", Limit: l, Cost: 1}}
			states, results := make([]store.State, 1), make([]store.Result, 1)
			var now store.Now
			admitted := 0
			b.ReportAllocs()
			for b.Loop() {
				now.Steady += 900 // a little above the rate: both answers occur
				now.Wall += 900
				if store.Decide(now, charges, states, results) {
					admitted++
				}
			}
			if admitted == 0 {
				b.Fatal("nothing was admitted")
			}
		})
	}
}
