package storetest

import (
	"time"

	"github.com/stint-go/stint/store"
)

var calendarRows = []row{
	{"a day of 23 hours", func(s *suite) { changeOfClocks(s, time.March) }},
	{"a day of 25 hours", func(s *suite) { changeOfClocks(s, time.October) }},
	{"months", func(s *suite) {
		l := s.limit(store.Spec{Algorithm: store.FixedWindow, Units: 2, Window: store.Monthly})
		for range 14 {
			at := s.now().UTC()
			end := time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
			s.ends(l, end)
		}
	}},
	{"weeks", func(s *suite) {
		l := s.limit(store.Spec{Algorithm: store.FixedWindow, Units: 2, Window: store.Weekly})
		for range 3 {
			at := s.now().UTC()
			days := (int(time.Monday)-int(at.Weekday())+6)%7 + 1
			s.ends(l, time.Date(at.Year(), at.Month(), at.Day()+days, 0, 0, 0, 0, time.UTC))
		}
	}},
	{"hours where they are half", func(s *suite) {
		l := s.limit(store.Spec{Algorithm: store.FixedWindow, Units: 2,
			Window: store.Hourly.In(time.FixedZone("+5:30", 19800))})
		for range 3 {
			s.ends(l, s.now().Add(30*time.Minute).Truncate(time.Hour).Add(30*time.Minute))
		}
	}},
	{"a thousand windows", func(s *suite) {
		// Any number of windows is counted: those gone by, those that a debt takes up,
		// and those until a turn.
		bucket := s.limit(store.Spec{Name: "st-bucket", Algorithm: store.IntervalBucket, Units: 1, Burst: 1000,
			Window: store.Hourly})
		s.must(s.take("k", bucket, 1000))
		s.sleep(450 * time.Hour)
		s.left("k", bucket, 450)
		r := s.must(s.take("k", bucket, 1))
		s.settle("k", bucket, r.Receipt, 451)
		s.left("k", bucket, 0)
		s.sleep(550 * time.Hour)
		s.left("k", bucket, 549)
		s.sleep(3 * 365 * 24 * time.Hour)
		s.left("k", bucket, 1000)

		window := s.limit(store.Spec{Name: "st-window", Algorithm: store.FixedWindow, Units: 1, Window: store.Hourly})
		hour := s.now().Truncate(time.Hour)
		for n := range 500 {
			r := s.reserve("k", window, 1, 365*24*time.Hour)
			if at := hour.Add(time.Duration(n) * time.Hour); !r.OK || n > 0 && r.Delay != at.Sub(s.now()) {
				s.Fatalf("turn %d: %s, want a delay of %v", n, show(r), at.Sub(s.now()))
			}
		}
		s.denied(s.take("k", window, 1), hour.Add(500*time.Hour).Sub(s.now()))
		s.sleep(hour.Add(499*time.Hour + time.Minute).Sub(s.now()))
		s.left("k", window, 0)
		s.sleep(time.Hour)
		s.left("k", window, 1)
	}},
	{"windows from a date", func(s *suite) {
		kolkata := time.FixedZone("+5:30", 19800)
		from := time.Date(2024, 2, 29, 9, 15, 30, 0, kolkata)
		clock := func(year int, month time.Month, day, hour int) time.Time {
			return time.Date(year, month, day, hour, 15, 30, 0, kolkata)
		}
		after := func(at time.Time, next func(n int) time.Time) time.Time { // the first that is later
			for n := 0; ; n++ {
				if t := next(n); t.After(at) {
					return t
				}
			}
		}
		lastDay := func(year int, month time.Month) int { return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day() }
		for _, w := range []struct {
			window store.Window
			name   string
			next   func(year int, month time.Month, day, n int) time.Time
		}{
			{store.Hourly, "hours", func(y int, m time.Month, d, n int) time.Time { return clock(y, m, d, n) }},
			{store.Daily, "days", func(y int, m time.Month, d, n int) time.Time { return clock(y, m, d+n, 9) }},
			{store.Weekly, "weeks", func(y int, m time.Month, d, n int) time.Time {
				at := clock(y, m, d, 9)
				return at.AddDate(0, 0, (int(time.Thursday)-int(at.Weekday())+7)%7+7*n)
			}},
			{store.Monthly, "months", func(y int, m time.Month, _, n int) time.Time {
				first := time.Date(y, m+time.Month(n), 1, 0, 0, 0, 0, time.UTC)
				return clock(first.Year(), first.Month(), min(29, lastDay(first.Year(), first.Month())), 9)
			}},
			{store.Yearly, "years", func(y int, _ time.Month, _, n int) time.Time {
				return clock(y+n, time.February, lastDay(y+n, time.February), 9)
			}},
			{store.Every(100 * time.Minute), "every", func(y int, m time.Month, d, n int) time.Time {
				return from.Add((clock(y, m, d, 0).Sub(from)/(100*time.Minute) + time.Duration(n)) * 100 * time.Minute)
			}},
		} {
			window := w.window.From(from)
			if w.name != "every" {
				window = window.In(kolkata)
			}
			fixed := s.limit(store.Spec{Name: "st-from-" + w.name, Algorithm: store.FixedWindow, Units: 2, Window: window})
			interval := s.limit(store.Spec{Name: "st-refill-" + w.name, Algorithm: store.IntervalBucket, Units: 2,
				Window: window})
			for range 4 {
				at := s.now().In(kolkata)
				end := after(at, func(n int) time.Time { return w.next(at.Year(), at.Month(), at.Day(), n) })
				s.ends(fixed, end)
				at = s.now().In(kolkata)
				end = after(at, func(n int) time.Time { return w.next(at.Year(), at.Month(), at.Day(), n) })
				s.must(s.take("i", interval, 2))
				s.sleep(end.Sub(at) - time.Microsecond)
				s.left("i", interval, 0)
				s.sleep(time.Microsecond)
				s.left("i", interval, 2)
			}
		}
	}},
	{"zones apart", func(s *suite) {
		// One name, two locations: the day of each key is that of the limit it is
		// charged under.
		east := s.limit(store.Spec{Name: "st-east", Algorithm: store.FixedWindow, Units: 2,
			Window: store.Daily.In(time.FixedZone("+10", 36000))})
		west := s.limit(store.Spec{Name: "st-west", Algorithm: store.FixedWindow, Units: 2,
			Window: store.Daily.In(time.FixedZone("-8", -28800))})
		s.must(s.take("k", east, 2))
		s.must(s.take("k", west, 2))
		apart := s.peek("k", west).ResetAfter - s.peek("k", east).ResetAfter
		if apart != 18*time.Hour && apart != -6*time.Hour {
			s.Errorf("days in the two locations end %v apart", apart)
		}
	}},
}

// ends checks that a charged window denies until end and is a new one from then on.
func (s *suite) ends(l *store.Limit, end time.Time) {
	s.Helper()
	left := end.Sub(s.now())
	s.must(s.take("k", l, 2))
	if r := s.peek("k", l); r.ResetAfter != left {
		s.Fatalf("%v at %v: ends in %v, want %v", l.Spec().Window, s.now().UTC(), r.ResetAfter, left)
	}
	s.denied(s.take("k", l, 1), left)
	s.sleep(left - time.Microsecond)
	s.denied(s.take("k", l, 1), time.Microsecond)
	s.sleep(time.Microsecond)
	s.left("k", l, 2)
	s.sleep(10 * time.Minute)
}

// changeOfClocks checks a daily quota across a change of the clocks, from two days
// before to two days after, in a zone that changes them.
func changeOfClocks(s *suite, month time.Month) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		s.Skipf("no time zones on this machine: %v", err)
	}
	fixed := s.limit(store.Spec{Name: "st-fixed", Algorithm: store.FixedWindow, Units: 2, Window: store.Daily.In(berlin)})
	interval := s.limit(store.Spec{Name: "st-interval", Algorithm: store.IntervalBucket, Units: 3, Burst: 7,
		Window: store.Daily.In(berlin)})
	at := s.now().In(berlin)
	year := at.Year()
	last := func() time.Time { // the last Sunday of the month
		d := time.Date(year, month+1, 0, 12, 0, 0, 0, berlin)
		return d.AddDate(0, 0, -int(d.Weekday()))
	}
	if last().AddDate(0, 0, -3).Before(at) {
		year++
	}
	sunday := last()
	s.sleep(sunday.AddDate(0, 0, -2).Sub(at))
	s.must(s.take("i", interval, 7))
	lengths := map[time.Duration]int{}
	for day := -2; day < 2; day++ {
		noon := sunday.AddDate(0, 0, day)
		start := time.Date(noon.Year(), noon.Month(), noon.Day(), 0, 0, 0, 0, berlin)
		end := time.Date(noon.Year(), noon.Month(), noon.Day()+1, 0, 0, 0, 0, berlin)
		lengths[end.Sub(start)]++
		s.ends(fixed, end)
		if want := []int64{3, 6, 7, 7}[day+2]; day < 1 {
			s.left("i", interval, want)
		}
		// Ten minutes into the next day, from where the loop counts on.
	}
	if lengths[24*time.Hour] != 3 || len(lengths) != 2 {
		s.Errorf("days of %v: the suite is at fault", lengths)
	}
}
