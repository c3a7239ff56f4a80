package store_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// Any number of buckets can be counted exactly if the period is a multiple of 100 ms.
func TestBucketsOfAPeriod(t *testing.T) {
	cut := func(p time.Duration, k int64) error {
		_, err := store.NewLimit(store.Spec{Name: "x", Algorithm: store.SlidingWindow, Units: 5, Period: p, Buckets: k})
		return err
	}
	for _, p := range []time.Duration{
		100 * time.Millisecond, 700 * time.Millisecond, time.Second, time.Hour, 365*24*time.Hour + 1700*time.Millisecond,
	} {
		for k := int64(1); k <= 1000; k++ {
			if err := cut(p, k); err != nil {
				t.Errorf("%v in %d buckets: %v", p, k, err)
			}
		}
	}
	if cut(1009*time.Microsecond, 14) != nil || cut(1009*time.Microsecond, 15) == nil {
		t.Error("another number of buckets of 1.009 ms can be counted than 14")
	}
}
