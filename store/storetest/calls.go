package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stint-go/stint/store"
)

var callRows = []row{
	{"malformed", malformed},
	{"nothing", func(s *suite) {
		if err := s.store.Take(context.Background(), nil, nil); err != nil {
			s.Errorf("Take of no charges: %v", err)
		}
		if err := s.store.Settle(context.Background(), nil, nil); err != nil {
			s.Errorf("Settle of no charges: %v", err)
		}
	}},
	{"the largest cost", func(s *suite) {
		for _, k := range kinds {
			l := s.limit(k.spec)
			if spec := l.Spec(); spec.Debt || spec.Algorithm == store.WarmUp {
				continue // any cost passes and is paid for afterwards
			}
			s.denied(s.take(k.name, l, store.MaxCost), store.Never)
			s.denied(s.reserve(k.name, l, store.MaxCost, math.MaxInt64), store.Never)
			if r := s.peek(k.name, l); r.ResetAfter != 0 {
				s.Errorf("%s: denied, but charged: %s", k.name, show(r))
			}
		}
	}},
	{"a queue's largest cost", func(s *suite) {
		// One at its turn, the burst, and the queue: a larger cost never fits, however
		// long the caller waits.
		for i, spec := range []store.Spec{
			{Queue: 3}, {Burst: 2, Queue: 3}, {Burst: 2, Queue: store.None}, {Queue: store.None}, {},
		} {
			spec.Name, spec.Algorithm, spec.Units, spec.Period = fmt.Sprintf("st-%d", i), store.LeakyBucket, 7, time.Minute
			l := s.limit(spec)
			most := 1 + max(l.Spec().Burst, 0) + max(l.Spec().Queue, 0)
			s.denied(s.take("k", l, most+1), store.Never)
			s.denied(s.reserve("k", l, most+1, 24*time.Hour), store.Never)
			if r := s.take("k", l, most); !r.OK {
				s.Errorf("%+v, %d: %s", spec, most, show(r))
			}
			s.denied(s.take("k", l, most+1), store.Never)
		}
	}},
	{"a wait of any length", func(s *suite) {
		l := s.limit(store.Spec{Units: 1, Period: time.Hour})
		s.must(s.take("k", l, 1))
		if r := s.reserve("k", l, 1, math.MaxInt64); !r.OK || r.Delay != time.Hour {
			s.Error(show(r))
		}
		// A negative MaxWait means none.
		s.denied(s.reserve("k", l, 1, -time.Hour), 2*time.Hour)
		s.denied(s.reserve("k", l, 1, math.MinInt64), 2*time.Hour)
	}},
	{"receipts are of no use to Take", func(s *suite) {
		l := s.limit(store.Spec{Units: 9, Period: time.Hour})
		r := s.must(s.take("k", l, 5))
		again, _ := s.decide(store.Charge{Key: "k", Limit: l, Cost: 1, Receipt: r.Receipt})
		if !again[0].OK || again[0].Remaining != 3 {
			s.Error(show(again[0]))
		}
	}},
	{"the caller's slices", func(s *suite) {
		// A store must not keep the slices or change what they hold.
		l := s.limit(store.Spec{Units: 9, Period: time.Hour})
		charges := []store.Charge{{Key: "k", Limit: l, Cost: 5, MaxWait: time.Second}}
		results := make([]store.Result, 1)
		before := charges[0]
		if err := s.store.Take(context.Background(), charges, results); err != nil {
			s.Fatal(err)
		}
		if charges[0] != before {
			s.Errorf("Take changed the charge: %+v, was %+v", charges[0], before)
		}
		charges[0] = store.Charge{Key: "k", Limit: l, Receipt: results[0].Receipt}
		before = charges[0]
		if err := s.store.Settle(context.Background(), charges, results); err != nil {
			s.Fatal(err)
		}
		if charges[0] != before {
			s.Errorf("Settle changed the charge: %+v, was %+v", charges[0], before)
		}
		charges[0], results[0] = store.Charge{}, store.Result{}
		s.left("k", l, 9)
	}},
	{"distinct keys", distinctKeys},
}

func malformed(s *suite) {
	l := s.limit(store.Spec{Units: 9, Period: time.Hour})
	good := store.Charge{Key: "k", Limit: l, Cost: 1}
	with := func(change func(*store.Charge)) store.Charge {
		c := good
		c.Key = "other"
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name    string
		want    error
		charges []store.Charge
		results int
		settles bool // it is malformed in Settle too
	}{
		{"negative cost", store.ErrCost, []store.Charge{good, with(func(c *store.Charge) { c.Cost = -1 })}, 2, true},
		{"the most negative cost", store.ErrCost, []store.Charge{good, with(func(c *store.Charge) { c.Cost = math.MinInt64 })}, 2, true},
		{"too large a cost", store.ErrCost, []store.Charge{good, with(func(c *store.Charge) { c.Cost = store.MaxCost + 1 })}, 2, true},
		{"the largest number", store.ErrCost, []store.Charge{good, with(func(c *store.Charge) { c.Cost = math.MaxInt64 })}, 2, true},
		{"no limit", store.ErrLimit, []store.Charge{good, with(func(c *store.Charge) { c.Limit = nil })}, 2, true},
		{"fewer results", store.ErrResults, []store.Charge{good, good}, 1, true},
		{"more results", store.ErrResults, []store.Charge{good}, 2, true},
		{"no results", store.ErrResults, []store.Charge{good}, 0, true},
		{"one limit and key twice", store.ErrDuplicate, []store.Charge{good, good}, 2, false},
	} {
		untouched := store.Result{Remaining: 12345, Receipt: store.Receipt{Cost: 6}}
		calls := map[string]func(context.Context, []store.Charge, []store.Result) error{"Take": s.store.Take}
		if tt.settles {
			calls["Settle"] = s.store.Settle
		}
		for verb, call := range calls {
			results := make([]store.Result, tt.results)
			for i := range results {
				results[i] = untouched
			}
			if err := call(context.Background(), tt.charges, results); !errors.Is(err, tt.want) {
				s.Errorf("%s, %s: %v, want %v", verb, tt.name, err, tt.want)
			}
			for _, r := range results {
				if r != untouched {
					s.Errorf("%s, %s: the results were written to", verb, tt.name)
				}
			}
			s.left("k", l, 9)
			s.left("other", l, 9)
		}
	}
}

// distinctKeys: keys that would look alike as part of a larger string must stay
// distinct.
func distinctKeys(s *suite) {
	long := strings.Repeat("x", 1<<20)
	keys := []string{
		"k", "K", " k", "k ", "k\n", "\nk", "k\r\nk", "k\x00", "\x00k", "k\x00k", "\x00", "\x7f", "\xff\xfe", "k\u00a0",
		"{k}", "{}", "{", "}", "}{", "k{k}k", "{k}{l}", "k:k", ":k", "k:", "::", "k/k", "k|k", "k,k", "k;k", "k%k", "%00",
		"%s", "*", "?", "[k]", "\\", "'", `"`,
		"st", "st:k", "st\x00k", "stint:", "1", "01", "1.0", "é", "e\u0301", "K\u200b", "世界", "EVAL", "$-1\r\n",
		long, long + "x", long[1:], "y" + long[1:],
	}
	names := []string{"st", "st.k", "st-k", "st_k", "st.", "stk", "ST"}
	limits := make([]*store.Limit, len(names))
	for i, name := range names {
		limits[i] = s.limit(store.Spec{Name: name, Units: 1 << 20, Period: 24 * time.Hour})
	}
	for round := range 2 {
		used := int64(0)
		for i, l := range limits {
			for _, k := range keys {
				used++
				if len(k) > 1000 && i > 0 {
					continue // a megabyte each
				}
				want := int64(1<<20) - used
				if round == 0 {
					if r := s.must(s.take(k, l, used)); r.Remaining != want {
						s.Fatalf("%d left of %q, %.40q: another key's charge was counted", r.Remaining, l.Name(), k)
					}
				} else if got := s.peek(k, l).Remaining; got != want {
					s.Fatalf("%d left of %q, %.40q, want %d", got, l.Name(), k, want)
				}
			}
		}
	}
	// Where the limit's name ends and the key begins.
	a := s.limit(store.Spec{Name: "sta", Units: 9, Period: time.Hour})
	b := s.limit(store.Spec{Name: "sta-b", Units: 9, Period: time.Hour})
	for i, c := range []store.Charge{{Limit: a, Key: "b:c"}, {Limit: b, Key: "c"}, {Limit: a, Key: "-b:c"},
		{Limit: a, Key: ":b:c"}, {Limit: a, Key: "c"}, {Limit: b, Key: ":c"}} {
		if r := s.take(c.Key, c.Limit, int64(i+1)); r.Remaining != int64(8-i) {
			s.Errorf("%q, %q: %s", c.Limit.Name(), c.Key, show(r))
		}
	}
	// A key made of bytes that are overwritten afterwards.
	buf := []byte("volatile")
	key := string(buf)
	s.must(s.take(key, a, 4))
	copy(buf, "XXXXXXXX")
	s.left(fmt.Sprint("vola", "tile"), a, 5)
}
