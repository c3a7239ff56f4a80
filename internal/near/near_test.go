package near

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

func limitOf(t *testing.T, s store.Spec, marks ...int) *limit.Limit {
	s.Name = "x"
	l, err := store.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return &limit.Limit{StoreLimit: l, Marks: marks}
}

// reach has a key reach a use of a limit of 100 units, by a charge of added units.
func (t *Table) reach(l *limit.Limit, key string, used, added int64, r store.Result) int {
	r.OK, r.Remaining = true, 100-used
	percent, _ := t.Reached(l, &store.Charge{Key: key, Limit: l.StoreLimit, Cost: added}, &r, added)
	return percent
}

// The end of a window is as the store says. Its answers take a time that varies, and its clock isn't this process's.
func TestWindowsByTheClockOfTheStore(t *testing.T) {
	for _, spec := range []store.Spec{
		{Algorithm: store.FixedWindow, Units: 100, Period: 24 * time.Hour},
		{Algorithm: store.FixedWindow, Units: 100, Window: store.Every(24 * time.Hour)},
		{Algorithm: store.FixedWindow, Units: 100, Window: store.Daily},
	} {
		synctest.Test(t, func(t *testing.T) {
			var table Table
			l := limitOf(t, spec, 80)
			began := time.Now()
			for day := range 6 {
				for i, left := range []time.Duration{24 * time.Hour, 18 * time.Hour, 6 * time.Hour, 5 * time.Millisecond} { // when the store decides
					late := 90 * time.Millisecond // the answer; that of the first charge of every second day isn't
					if i == 0 && day%2 == 1 || i == 1 {
						late = 0
					}
					time.Sleep(time.Duration(day+1)*24*time.Hour - left + late - time.Since(began))
					got, want := table.reach(l, "k", 81+int64(i), 1, store.Result{MoreAfter: left}), 0
					if i == 0 {
						want = 80
					}
					if got != want {
						t.Errorf("%v, day %d, with %v left: %d, want %d", l.StoreLimit.Spec().Window, day, left, got, want)
					}
				}
			}
			time.Sleep(50 * time.Hour)
			// A later window than the next one.
			if got := table.reach(l, "k", 85, 1, store.Result{MoreAfter: 23 * time.Hour}); got != 80 {
				t.Errorf("after a pause: %d", got)
			}
		})
	}
}

// In a later period, a bucket reaches a mark once its use has been below it.
func TestBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		l := limitOf(t, store.Spec{Algorithm: store.TokenBucket, Units: 100, Period: time.Minute}, 50, 80, 95)
		for _, added := range []int64{0, -1} { // a request of cost 0, a refund
			if got := table.reach(l, "k", 90, added, store.Result{}); got != 0 {
				t.Errorf("by %d units: %d", added, got)
			}
		}
		for i, step := range []struct {
			after       time.Duration
			used, added int64
			want        int
		}{
			{0, 49, 1, 0}, {0, 50, 1, 50}, {0, 50, 1, 0}, {0, 96, 46, 95}, {0, 81, 5, 0},
			{59 * time.Second, 96, 20, 0}, // in the period
			{time.Second, 97, 1, 0},       // in the next, and not below before
			{time.Minute, 97, 3, 95},      // from 94
			{time.Minute, 97, 2, 0},       // from 95
			{time.Minute, 82, 3, 80},      // from 79: below 80, and thereby below 95
			{0, 95, 1, 95}, {0, 100, 5, 0},
			{time.Minute, 60, 30, 50},                                // from 30
			{time.Minute, 130, 100, 95}, {time.Minute, 100, 200, 95}, // with debts, the use before isn't known
		} {
			time.Sleep(step.after)
			if got := table.reach(l, "k", step.used, step.added, store.Result{}); got != step.want {
				t.Errorf("step %d, to %d: %d, want %d", i, step.used, got, step.want)
			}
		}
	})
}

// A full table is swept at most once a second, and drops only keys whose period is over.
func TestFullTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := Table{Room: 2}
		short := limitOf(t, store.Spec{Algorithm: store.SlidingLog, Units: 100, Period: time.Second}, 80)
		long := limitOf(t, store.Spec{Algorithm: store.SlidingLog, Units: 100, Period: time.Hour}, 80)
		reached := func(l *limit.Limit, key string) string {
			c := store.Charge{Key: key, Limit: l.StoreLimit, Cost: 90}
			return fmt.Sprint(table.Reached(l, &c, &store.Result{OK: true, Remaining: 10}, 90))
		}
		for i, step := range []struct {
			after time.Duration
			l     *limit.Limit
			key   string
			want  string
		}{
			{0, short, "a", "80 false"}, {0, long, "b", "80 false"}, {time.Second / 2, long, "c", "80 true"}, {0, long, "b", "0 false"},
			{900 * time.Millisecond, long, "c", "80 true"}, {100 * time.Millisecond, long, "c", "80 false"},
			{time.Minute, short, "d", "80 true"}, {time.Hour, short, "d", "80 false"}, {0, short, "e", "80 false"}, {0, short, "f", "80 true"},
		} {
			time.Sleep(step.after)
			if got := reached(step.l, step.key); got != step.want {
				t.Errorf("step %d, key %s: %s, want %s", i, step.key, got, step.want)
			}
		}
		if n := len(table.reached); n != 2 {
			t.Errorf("%d keys", n)
		}
	})
}
