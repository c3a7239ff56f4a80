package clock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clock"
	"github.com/stint-go/stint/plans"
)

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// A day of requests, one every second, is decided in a moment, by a rate and by a quota
// that follows the calendar.
func TestADay(t *testing.T) {
	d := clock.Drive(noon)
	defer d.End()
	lim := stint.Must(stint.New(
		stint.Rate(10, time.Minute, stint.WithName("rate")),
		stint.Quota(6000, stint.Daily, stint.WithName("quota")),
		stint.WithKey(stint.GivenKey()),
	))
	passed := map[int]int{} // by the day of the month
	for second := range 24 * 60 * 60 {
		if second == 3600 && passed[10] != 10+3599/6 {
			t.Errorf("%d passed in the first hour, not the burst and one every 6 s", passed[10])
		}
		err := lim.Allow(context.Background(), "k", 1)
		if denied := (*stint.DeniedError)(nil); err == nil {
			passed[d.Now().Day()]++
		} else if !errors.As(err, &denied) {
			t.Fatal(err)
		}
		d.Advance(time.Second)
	}
	if passed[10] != 6000 || passed[11] != 6000 {
		t.Errorf("%v passed, not the quota on each of the two days", passed)
	}
}

// Waits for a turn or a slot take driven time.
func TestWaits(t *testing.T) {
	d := clock.Drive(noon)
	defer d.End()
	ctx := context.Background()
	turns := stint.Must(stint.New(stint.Rate(1, time.Hour, stint.WithMaxWait(24*time.Hour)), stint.WithKey(stint.GivenKey())))
	slots := stint.Must(stint.New(stint.Concurrency(1, stint.WithMaxWait(24*time.Hour)), stint.WithKey(stint.GivenKey())))
	for name, lim := range map[string]*stint.Limiter{"turn": turns, "slot": slots} {
		held, err := lim.Take(ctx, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		start, done := d.Now(), make(chan error)
		clock.AfterFunc(time.Hour, held.Done)
		waiting := make(chan struct{})
		stop := lim.Observe(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				close(waiting)
			}
		})
		go func() {
			_, err := lim.Take(ctx, "k", 1)
			done <- err
		}()
		<-waiting
		stop()
		for waits := true; waits; runtime.Gosched() {
			select {
			case err = <-done:
				waits = false
			default:
				if d.Now().Sub(start) < 23*time.Hour { // and not past anybody's patience
					d.Advance(time.Minute)
				}
			}
		}
		if waited := d.Now().Sub(start); err != nil || waited < time.Hour {
			t.Errorf("%s: %v after %v", name, err, waited)
		}
	}
}

// A plan is loaded again when it is old in driven time.
func TestPlansGrowOld(t *testing.T) {
	d := clock.Drive(noon)
	defer d.End()
	loads := 0
	cache := plans.Must(plans.New(func(context.Context, string) ([]stint.Limit, error) {
		loads++
		return nil, nil
	}, plans.WithTTL(time.Hour)))
	for range 8 {
		for range 2 {
			if _, err := cache.Get(context.Background(), "tenant"); err != nil {
				t.Fatal(err)
			}
			d.Advance(30 * time.Minute)
		}
		d.Advance(2 * time.Hour) // so old that Get waits for the next
	}
	if loads != 8 {
		t.Errorf("%d loads in a day, not one every three hours", loads)
	}
}
