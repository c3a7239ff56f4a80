package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// The windows around an instant follow each other without a gap, even if the clocks
// change.
func TestAround(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	at := func(s string) int64 {
		when, err := time.ParseInLocation("2006-01-02 15:04", s, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixMicro() - store.Epoch*1_000_000
	}
	got := inside.Around(store.Daily.In(berlin), at("2026-03-29 12:00"), 1, 1)
	n := got[0].Number
	want := []algorithm.Span{
		{Number: n, Start: at("2026-03-28 00:00"), End: at("2026-03-29 00:00")},
		{Number: n + 1, Start: at("2026-03-29 00:00"), End: at("2026-03-30 00:00")},
		{Number: n + 2, Start: at("2026-03-30 00:00"), End: at("2026-03-31 00:00")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("days around %v, want %v", got, want)
	}
	if day := time.Duration(got[1].End-got[1].Start) * time.Microsecond; day != 23*time.Hour {
		t.Errorf("the day on which summer time begins has %v", day)
	}
	got = inside.Around(store.Every(7*time.Second), 0, 2, 0)
	if len(got) != 3 || got[2].Start > 0 || got[2].End <= 0 || got[2].End-got[2].Start != 7_000_000 {
		t.Errorf("seven seconds around the epoch: %v", got)
	}
}

func TestTerms(t *testing.T) {
	l, err := store.NewLimit(store.Spec{Name: "x", Algorithm: store.LeakyBucket, Units: 3, Period: time.Second, Burst: 2, Queue: 4})
	if err != nil {
		t.Fatal(err)
	}
	want := algorithm.Terms{
		Numbers: algorithm.Numbers{Token: 1_000_000, Unit: 24, Burst: 3}, Scale: algorithm.Scale{PerTick: 3}, Token: 1_000_000,
		Capacity: 3_000_000, Queue: 4_000_000, Largest: 7, Period: 1_000_000, Longest: 3 * 365 * 24 * 3600 * 1_000_000,
		Patience: 365 * 24 * 3600 * 1_000_000,
	}
	if got := inside.Terms(l); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if algorithm.ScaleOf(want.Numbers.Unit) != want.Scale {
		t.Errorf("unit %d is %+v", want.Numbers.Unit, algorithm.ScaleOf(want.Numbers.Unit))
	}
}
