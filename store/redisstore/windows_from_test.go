package redisstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// Windows from a date follow each other without gap or overlap, in memory and on Redis: a window that is used up denies
// to its last microsecond, and the next one has everything. It begins when clocks show what they showed at the date, or
// when they change.
func TestWindowsFromOnBothStores(t *testing.T) {
	t.Parallel()
	if redisstore.UnderRace {
		t.Skip("one call after the other: make test runs it without the race detector")
	}
	c := newClock()
	c.us.Store(time.Date(2024, 1, 31, 22, 47, 11, 345_678_000, time.UTC).UnixMicro())
	rdb := redistest.Shared(t).Client()
	rdb.AddHook(redistest.ByToldClock())
	remote := redisstore.New(rdb, redisstore.WithClock(c.now), redisstore.WithPrefix(redistest.Prefix(t)),
		redisstore.WithTimeout(time.Minute))
	t.Cleanup(func() { remote.Close() })
	stores := []store.Store{memory.New(memory.Config{Clock: c.now}), remote}

	type window struct {
		key   string // of its own, as equal windows have equal names
		limit *store.Limit
		from  time.Time
		hours bool
		end   time.Time
	}
	var windows []*window
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu", "Africa/Casablanca",
		"Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut",
	} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []store.Window{store.Hourly, store.Daily, store.Weekly, store.Monthly} {
			for _, anchor := range []string{
				"2024-02-29 23:59:59", "2026-01-31 00:00:00", "2025-03-30 01:30:00", "2026-10-25 02:30:00",
				"2019-12-30 12:34:56", "2026-11-29 09:00:00",
			} {
				from, err := time.ParseInLocation(time.DateTime, anchor, loc)
				if err != nil {
					t.Fatal(err)
				}
				spec := store.Spec{Name: "quota", Algorithm: store.FixedWindow, Units: 2, Window: kind.In(loc).From(from)}
				l, err := store.NewLimit(spec)
				if err != nil {
					t.Fatal(err)
				}
				windows = append(windows, &window{key: zone + anchor, limit: l, from: from, hours: kind == store.Hourly})
			}
		}
	}
	// take charges a window on both stores, which agree.
	take := func(w *window, cost int64) store.Result {
		t.Helper()
		var results [2]store.Result
		for i, s := range stores {
			ch := []store.Charge{{Key: w.key, Limit: w.limit, Cost: cost}}
			if err := s.Take(t.Context(), ch, results[i:i+1]); err != nil {
				t.Fatal(err)
			}
		}
		m, r := results[0], results[1]
		if m.OK != r.OK || m.Remaining != r.Remaining || m.RetryAfter != r.RetryAfter || m.ResetAfter != r.ResetAfter {
			t.Fatalf("%v at %v: %+v in memory, %+v on Redis", w.limit.Spec().Window, c.now().UTC(), m, r)
		}
		return m
	}
	setClock := func(at time.Time) { c.us.Store(at.UnixMicro()) }

	for range 13 {
		for _, w := range windows {
			r := take(w, 2)
			if !r.OK || r.Remaining != 0 {
				t.Fatalf("%v at %v: %+v", w.limit.Spec().Window, c.now().UTC(), r)
			}
			w.end = c.now().Add(r.ResetAfter)
		}
		slices.SortFunc(windows, func(v, w *window) int { return v.end.Compare(w.end) })
		for rest := windows; len(rest) > 0; {
			end, n := rest[0].end, 0
			setClock(end.Add(-time.Microsecond))
			for ; n < len(rest) && rest[n].end.Equal(end); n++ {
				if r := take(rest[n], 1); r.OK || r.RetryAfter != time.Microsecond {
					t.Errorf("%v ends before %v: %+v", rest[n].limit.Spec().Window, end, r)
				}
			}
			setClock(end)
			for _, w := range rest[:n] {
				if r := take(w, 0); r.Remaining != 2 {
					t.Errorf("%v doesn't end at %v: %+v", w.limit.Spec().Window, end, r)
				}
				shown := w.from.Format(time.TimeOnly)
				local := end.In(w.from.Location())
				if w.hours {
					shown = local.Format("15") + shown[2:]
				}
				if changed, _ := local.ZoneBounds(); local.Format(time.TimeOnly) != shown && !changed.Equal(local) &&
					!(w.hours && local.Location().String() == "Australia/Lord_Howe") { // an hour of 30 or 90 minutes
					t.Errorf("%v begins at %v", w.limit.Spec().Window, local)
				}
			}
			rest = rest[n:]
		}
		setClock(c.now().Add(59*24*time.Hour + 13*time.Hour + 7*time.Minute)) // on, through three years
	}
	if at := c.now(); at.Year() < 2027 {
		t.Errorf("it ends at %v", at)
	}
}
