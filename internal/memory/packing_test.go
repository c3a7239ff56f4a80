package memory

import (
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

func TestPack(t *testing.T) {
	const most = 1<<53 - 1
	second := algorithm.Numbers{Token: 1_000_000, Unit: algorithm.Scale{PerTick: 1}.Code()}
	bucket := func(a int64, n algorithm.Numbers) algorithm.State {
		return algorithm.State{Live: true, Numbers: n, W: algorithm.Words{0: a}}
	}
	for _, tc := range []struct {
		name string
		st   algorithm.State
		fits bool
	}{
		{"zero instant", bucket(0, second), true},
		{"latest", bucket(most, second), true},
		{"earliest", bucket(-most-1, second), true},
		{"negative", bucket(-1, algorithm.Numbers{Token: 7, Unit: algorithm.Scale{Exponent: 3, PerTick: 3}.Code()}), true},
		{"fine scale", bucket(1, algorithm.Numbers{Token: 7, Unit: algorithm.Scale{Exponent: 2, PerTick: 997}.Code()}), true},
		{"a burst", bucket(1, algorithm.Numbers{Token: 1_000_000, Unit: second.Unit, Burst: 7}), true},
		{"another burst", bucket(1, algorithm.Numbers{Token: 1_000_000, Unit: second.Unit, Burst: 8}), true},
		{"too late", bucket(most+1, second), false},
		{"too early", bucket(-most-2, second), false},
		{"turns reserved", algorithm.State{Live: true, Numbers: second, W: algorithm.Words{0: 1, 1: 1}}, false},
		{"third word", algorithm.State{Live: true, Numbers: second, W: algorithm.Words{0: 1, 2: -1}}, false},
		{"fourth word", algorithm.State{Live: true, Numbers: second, W: algorithm.Words{0: 1, 3: 1}}, false},
		{"fifth word", algorithm.State{Live: true, Numbers: second, W: algorithm.Words{0: 1, 4: 1}}, false},
		{"log", algorithm.State{Live: true, Numbers: second, W: algorithm.Words{0: 1}, Log: make([]algorithm.Entry, 1)}, false},
		{"never seen", algorithm.State{}, false},
	} {
		word, fits := pack(&tc.st, 0)
		if fits != tc.fits {
			t.Errorf("%s: fits = %v", tc.name, fits)
			continue
		}
		if !fits {
			continue
		}
		var got algorithm.State
		unpack(word, &got)
		if !packed(word) || got.W[0] != tc.st.W[0] || got.Numbers != tc.st.Numbers || !got.Live {
			t.Errorf("%s: came back as %+v", tc.name, got)
		}
	}
}

// full has to say of a word what the step says of the state: a microsecond too
// early and a bucket would be handed out full.
func TestFullAgreesWithTheStep(t *testing.T) {
	for _, spec := range []store.Spec{
		{Units: 1, Period: time.Second},
		{Units: 3, Period: time.Second},
		{Units: 7, Period: time.Minute},
		{Units: 13, Period: time.Second},
		{Units: 97, Period: time.Second},
		{Units: 111, Period: 300 * time.Millisecond},
		{Algorithm: store.LeakyBucket, Units: 17, Period: time.Second, Burst: 3},
		{Units: 365, Period: 24 * time.Hour},
	} {
		l := mustLimit(t, spec)
		for _, start := range []int64{0, 1, 999_999, 123_456_789_012, -1, -99_999, -123_456_789_013} {
			charges := []store.Charge{{Limit: l, Cost: 1}}
			results := make([]store.Result, 1)
			states := make([]store.State, 1)
			if !store.Decide(store.Now{Steady: start}, charges, states, results) {
				t.Fatalf("%+v denies its first charge", spec)
			}
			word, fits := pack(inside.State(&states[0]), 0)
			if !fits {
				t.Fatalf("%+v does not fit a word: %+v", spec, states[0])
			}
			at := start + results[0].ResetAfter.Microseconds()
			charges[0].Cost = 0
			for _, now := range []int64{start, at - 100_000, at - 2, at - 1, at, at + 1, at + 100_000} {
				if now < start {
					continue
				}
				store.Decide(store.Now{Steady: now}, charges, []store.State{states[0]}, results)
				if got, want := bucketFull(word, now), results[0].ResetAfter == 0; got != want {
					t.Errorf("%d per %v from %d: full at %d = %v, the step says %v",
						spec.Units, spec.Period, start, now-at, got, want)
				}
			}
		}
	}
}
