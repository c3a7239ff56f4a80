package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/store"
)

// A ban counts the denials of its key by other limits in the same decision.
var banRows = []row{
	{"begins with the n-th denial", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: 10 * time.Second, Ban: time.Minute})
		b.pass(3)
		b.strike(2)
		s.sleep(400 * time.Millisecond)
		b.strike(1)
		s.sleep(400 * time.Millisecond)
		b.begin(time.Minute)
		s.sleep(time.Minute - time.Microsecond)
		b.deny(time.Microsecond)
		s.sleep(time.Microsecond)
		b.pass(3)
	}},
	{"a denial as old as the span is out", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: 900 * time.Millisecond, Ban: time.Minute})
		b.pass(3)
		b.strike(2)
		s.sleep(300 * time.Millisecond)
		b.strike(1)
		s.sleep(600*time.Millisecond - time.Microsecond)
		b.left(1)
		s.sleep(time.Microsecond)
		b.left(2)
		b.strike(1)
		s.sleep(299 * time.Millisecond)
		b.pass(1)
		b.begin(time.Minute)
	}},
	{"any span, not only one that a denial opened", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: 500 * time.Millisecond, Ban: time.Second})
		b.pass(3)
		b.strike(2)
		s.sleep(400 * time.Millisecond)
		b.strike(1)
		s.sleep(200 * time.Millisecond)
		b.strike(1)
		s.sleep(200 * time.Millisecond)
		b.begin(time.Second)
	}},
	{"touches no other limit", func(s *suite) {
		b := s.banned(store.Spec{Units: 1, Period: time.Second, Ban: 10 * time.Second})
		b.pass(0)
		b.begin(10 * time.Second)
		s.sleep(3 * time.Second)
		for range 5 {
			b.deny(7 * time.Second)
		}
		if r := s.peek("k", b.rate); r.Remaining != 1 || r.ResetAfter != 0 {
			s.Errorf("the rate of a banned key was charged: %s", show(r))
		}
	}},
	{"denies without counting", func(s *suite) {
		b := s.banned(store.Spec{Units: 2, Period: time.Hour, Ban: 300 * time.Millisecond})
		b.pass(2)
		b.strike(1)
		b.begin(300 * time.Millisecond)
		for range 3 {
			b.deny(300 * time.Millisecond)
		}
		s.sleep(300 * time.Millisecond)
		b.left(2)
		b.strike(1)
		b.begin(300 * time.Millisecond)
	}},
	{"counts denials by its own key", func(s *suite) {
		b := s.banned(store.Spec{Units: 2, Period: time.Hour, Ban: time.Hour})
		shared := s.limit(store.Spec{Name: "st-shared", Units: 1, Period: time.Hour})
		charges := []store.Charge{{Key: "k", Limit: b.ban, Cost: 1, Final: true}, {Key: "everybody", Limit: shared, Cost: 1}}
		s.decide(charges...)
		for range 3 {
			if r, granted := s.decide(charges...); granted || !r[0].OK || r[0].Remaining != 2 {
				s.Fatalf("the ban counts a denial of another key: %s", show(r[0]))
			}
		}
		b.left(2)
	}},
	{"each of several", func(s *suite) {
		short := s.limit(store.Spec{Name: "st-short", Algorithm: store.Ban, Units: 1, Period: time.Hour, Ban: time.Second})
		long := s.limit(store.Spec{Name: "st-long", Algorithm: store.Ban, Units: 2, Period: time.Hour, Ban: time.Hour})
		rate := s.limit(store.Spec{Name: "st-rate", Units: 1, Period: 24 * time.Hour})
		charges := []store.Charge{{Key: "k", Limit: short, Cost: 1, Final: true}, {Key: "k", Limit: rate, Cost: 1},
			{Key: "k", Limit: long, Cost: 1, Final: true}}
		s.decide(charges...)
		r, _ := s.decide(charges...)
		s.denied(r[0], time.Second)
		if !r[2].OK || r[2].Remaining != 1 {
			s.Errorf("the long ban did not count the denial: %s", show(r[2]))
		}
		r, _ = s.decide(charges...) // denied by the short ban: not counted
		if !r[2].OK || r[2].Remaining != 1 {
			s.Errorf("the long ban counts a denial by the short one: %s", show(r[2]))
		}
		s.sleep(time.Second)
		r, _ = s.decide(charges...)
		s.denied(r[0], time.Second)
		s.denied(r[2], time.Hour)
	}},
	{"dry runs", func(s *suite) {
		b := s.banned(store.Spec{Units: 2, Period: time.Hour, Ban: time.Hour})
		charges := []store.Charge{{Key: "k", Limit: b.rate, Cost: 1, DryRun: true},
			{Key: "k", Limit: b.ban, Cost: 1, Final: true}}
		for range 5 {
			if _, granted := s.decide(charges...); !granted {
				s.Fatal("a dry run counts")
			}
		}
		charges[0].DryRun, charges[1].DryRun = false, true
		s.decide(charges...)
		r, _ := s.decide(charges...)
		s.denied(r[1], time.Hour)
		s.sleep(time.Second)
		if r, granted := s.decide(charges...); !granted || r[1].OK {
			s.Errorf("a ban in dry run: granted %v, %s", granted, show(r[1]))
		}
	}},
	{"peeks", func(s *suite) {
		b := s.banned(store.Spec{Units: 1, Period: time.Hour, Ban: time.Hour})
		b.pass(0)
		charges := []store.Charge{{Key: "k", Limit: b.rate, Cost: 1}, {Key: "k", Limit: b.ban}}
		for range 3 {
			if r, granted := s.decide(charges...); granted || !r[1].OK || r[1].Remaining != 1 {
				s.Fatalf("a denied peek was counted: %s", show(r[1]))
			}
		}
		b.begin(time.Hour)
		if r := s.peek("k", b.ban); r.Remaining != 0 || r.ResetAfter != time.Hour {
			s.Errorf("a peek at a ban: %s", show(r))
		}
	}},
	{"a banned key gets no slot", func(s *suite) {
		b := s.banned(store.Spec{Units: 1, Period: time.Hour, Ban: time.Hour})
		b.pass(0)
		b.begin(time.Hour)
		slots := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 1})
		if _, granted := s.decide(store.Charge{Key: "k", Limit: slots, Cost: 1},
			store.Charge{Key: "k", Limit: b.ban, Cost: 1, Final: true}); granted {
			s.Error("a banned key got a slot")
		}
		s.left("k", slots, 1)
	}},
	{"a denied slot doesn't count", func(s *suite) {
		b := s.banned(store.Spec{Units: 1, Period: time.Hour, Ban: time.Hour})
		slots := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 1})
		charges := []store.Charge{{Key: "k", Limit: slots, Cost: 1}, {Key: "k", Limit: b.ban, Cost: 1, Final: true}}
		s.decide(charges...)
		for range 3 {
			if r, granted := s.decide(charges...); granted || !r[1].OK || r[1].Remaining != 1 {
				s.Fatalf("a denied slot was counted: %s", show(r[1]))
			}
		}
		charges = append(charges, store.Charge{Key: "k", Limit: b.rate, Cost: 1})
		s.must(s.take("k", b.rate, 1))
		if r, _ := s.decide(charges...); r[1].OK || !r[1].Begun {
			s.Errorf("a rate's denial beside a denied slot wasn't counted: %s", show(r[1]))
		}
	}},
	{"a denial that isn't final", func(s *suite) {
		b := s.banned(store.Spec{Units: 2, Period: time.Hour, Ban: time.Hour})
		b.pass(2)
		charges := []store.Charge{{Key: "k", Limit: b.rate, Cost: 1}, {Key: "k", Limit: b.ban, Cost: 1}}
		for range 3 {
			if r, granted := s.decide(charges...); granted || !r[1].OK || r[1].Remaining != 2 {
				s.Fatalf("a denial that isn't final was counted: %s", show(r[1]))
			}
		}
		b.strike(1)
		b.begin(time.Hour)
	}},
	{"a denial counted by Settle", func(s *suite) {
		b := s.banned(store.Spec{Units: 3, Period: time.Hour, Ban: time.Minute})
		r := b.count()
		if !r.OK || r.Remaining != 2 || r.Begun {
			s.Fatalf("the first denial of a new key: %s", show(r))
		}
		for _, cost := range []int64{1, 0} {
			if r = s.settle("k", b.ban, r.Receipt, cost); !r.OK || r.Remaining != 2 {
				s.Errorf("a cost that isn't raised was counted, or taken back: %s", show(r))
			}
		}
		s.sleep(time.Second)
		b.pass(2)
		b.strike(1)
		if r := b.count(); !r.Begun || r.Remaining != 0 {
			s.Fatalf("the denial that starts the ban: %s", show(r))
		} else {
			s.denied(r, time.Minute)
		}
		s.sleep(time.Second)
		if r := b.count(); r.Begun {
			s.Errorf("a banned key's denial began a ban: %s", show(r))
		} else {
			s.denied(r, time.Minute-time.Second)
		}
		s.sleep(time.Minute - time.Second)
		b.left(3)
	}},
	{"forgotten", func(s *suite) {
		forget := s.resetter()
		b := s.banned(store.Spec{Units: 2, Period: time.Hour, Ban: time.Hour})
		b.pass(2)
		b.strike(1)
		b.begin(time.Hour)
		s.sleep(time.Second)
		forget("k", b.ban)
		b.left(2)
		b.pass(2)
		b.strike(1)
	}},
	{"by hand", func(s *suite) {
		ban := s.banner()
		b := s.banned(store.Spec{Units: 3, Period: time.Hour, Ban: time.Minute})
		b.pass(3)
		b.strike(2)
		begun := func(want bool, left, d time.Duration) {
			s.Helper()
			r := ban("k", d, b.ban)
			if r.Begun != want || r.Remaining != 0 {
				s.Fatalf("a ban for %v: begun %v, want %v: %s", d, r.Begun, want, show(r))
			}
			s.denied(r, left)
		}
		begun(true, time.Second, time.Second)
		s.left("another", b.ban, 3)
		b.deny(time.Second)
		begun(false, time.Second, time.Second) // as long as the one in force
		begun(false, time.Second, time.Millisecond)
		begun(true, 2*time.Second, 2*time.Second)
		s.sleep(2*time.Second - time.Microsecond)
		b.deny(time.Microsecond)
		s.sleep(time.Microsecond)
		b.pass(2) // the denial before it still counts
		b.strike(1)
		b.begin(time.Minute)
		begun(false, time.Minute, 30*time.Second)
		s.sleep(20 * time.Second)
		begun(true, time.Minute, time.Minute)
		begun(true, 365*24*time.Hour, 365*24*time.Hour)
	}},
	{"by hand on a new key, by each limit", func(s *suite) {
		ban := s.banner()
		b := s.banned(store.Spec{Units: 3, Period: time.Second, Ban: time.Minute})
		other := s.limit(store.Spec{Name: "st-other", Algorithm: store.Ban, Units: 1, Period: time.Second, Ban: time.Second})
		ban("k", 1500*time.Microsecond+time.Nanosecond, b.ban, other)
		b.deny(1501 * time.Microsecond)
		r, granted := s.decide(store.Charge{Key: "k", Limit: other, Cost: 1})
		if granted {
			s.Fatal("only the first of the limits bans the key")
		}
		s.denied(r[0], 1501*time.Microsecond)
		s.sleep(1501 * time.Microsecond)
		b.pass(3)
		if forget, can := s.store.(store.Resetter); can {
			ban("k", time.Hour, b.ban)
			if found, err := forget.Reset(context.Background(), "k", b.ban); !found || err != nil {
				s.Fatalf("a Reset of a key that is banned by hand: found %v, %v", found, err)
			}
			b.left(3)
		}
	}},
	{"by hand, malformed", func(s *suite) {
		s.banner()
		b := s.banned(store.Spec{Units: 3, Period: time.Second, Ban: time.Minute})
		hand := s.store.(store.Banner)
		for _, tc := range []struct {
			d     time.Duration
			limit *store.Limit
			want  error
		}{
			{time.Millisecond - 1, b.ban, store.ErrBan},
			{0, b.ban, store.ErrBan},
			{-time.Hour, b.ban, store.ErrBan},
			{365*24*time.Hour + 1, b.ban, store.ErrBan},
			{time.Hour, b.rate, store.ErrLimit},
			{time.Hour, nil, store.ErrLimit},
			{time.Hour, new(store.Limit), store.ErrLimit},
		} {
			if r, err := hand.Ban(context.Background(), "k", tc.d, b.ban, tc.limit); !errors.Is(err, tc.want) || r != nil {
				s.Errorf("a ban for %v: %v, error %v, want %v", tc.d, r, err, tc.want)
			}
		}
		b.left(3)
		if r, err := hand.Ban(context.Background(), "k", time.Hour); len(r) > 0 || err != nil {
			s.Errorf("a ban by no limit: %v, error %v", r, err)
		}
	}},
	{"changed", func(s *suite) {
		b := s.banned(store.Spec{Units: 5, Period: time.Hour, Ban: time.Hour})
		b.pass(5)
		for left := int64(4); left > 1; left-- {
			b.strike(left)
		}
		b.ban = s.limit(store.Spec{Name: "st-ban", Algorithm: store.Ban, Units: 2, Period: time.Hour, Ban: time.Minute})
		b.left(1) // the next ban takes another denial
		s.sleep(time.Second)
		b.pass(0)
		b.begin(time.Minute)
		b.ban = s.limit(store.Spec{Name: "st-ban", Algorithm: store.Ban, Units: 100, Period: time.Second, Ban: time.Second})
		b.deny(time.Minute) // the ban that was announced
	}},
}

// banned is a key with a ban and a rate of one per second, which is used up after the
// first charge.
type banned struct {
	*suite
	ban, rate *store.Limit
}

func (s *suite) banned(spec store.Spec) *banned {
	spec.Name, spec.Algorithm = "st-ban", store.Ban
	return &banned{s, s.limit(spec), s.limit(store.Spec{Name: "st-rate", Units: 1, Period: time.Second})}
}

func (b *banned) decide() (ban store.Result, granted bool) {
	b.Helper()
	r, granted := b.suite.decide(store.Charge{Key: "k", Limit: b.rate, Cost: 1},
		store.Charge{Key: "k", Limit: b.ban, Cost: 1, Final: true})
	return r[1], granted
}

// pass checks that a decision is granted, and that left denials remain before a ban; a
// left below 1 skips that check.
func (b *banned) pass(left int64) {
	b.Helper()
	if r, granted := b.decide(); !granted || left > 0 && r.Remaining != left {
		b.Fatalf("granted %v: %s, want %d left", granted, show(r), left)
	}
}

// strike checks that the rate denies, and how many more denials start a ban.
func (b *banned) strike(left int64) {
	b.Helper()
	if r, granted := b.decide(); granted || !r.OK || r.Remaining != left || r.Begun {
		b.Fatalf("granted %v, begun %v: %s, want %d left", granted, r.Begun, show(r), left)
	}
}

// begin checks that the rate's denial starts a ban.
func (b *banned) begin(d time.Duration) {
	b.Helper()
	r, granted := b.decide()
	if granted || r.Remaining != 0 || r.ResetAfter != d || !r.Begun {
		b.Fatalf("granted %v, begun %v: %s, want a ban for %v", granted, r.Begun, show(r), d)
	}
	b.denied(r, d)
}

// deny checks that the ban denies.
func (b *banned) deny(d time.Duration) {
	b.Helper()
	r, granted := b.decide()
	if granted || r.Begun {
		b.Fatalf("a banned key passed (%v), or another ban began (%v)", granted, r.Begun)
	}
	b.denied(r, d)
}

// banner returns how the store bans by hand, and how the first limit then stands. It skips the test if the store
// can't.
func (s *suite) banner() func(key string, d time.Duration, limits ...*store.Limit) store.Result {
	b, ok := s.store.(store.Banner)
	if !ok {
		s.Skip("the store is no store.Banner")
	}
	return func(key string, d time.Duration, limits ...*store.Limit) store.Result {
		s.Helper()
		r, err := b.Ban(context.Background(), key, d, limits...)
		if err != nil || len(r) != len(limits) {
			s.Fatalf("Ban: %d results, error %v", len(r), err)
		}
		return r[0]
	}
}

// count counts a denial by Settle.
func (b *banned) count() store.Result {
	b.Helper()
	return b.settle("k", b.ban, store.Receipt{}, 1)
}

func (b *banned) left(n int64) {
	b.Helper()
	b.suite.left("k", b.ban, n)
}
