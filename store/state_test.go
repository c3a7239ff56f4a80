package store_test

import (
	"encoding"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
)

var _ interface {
	encoding.BinaryMarshaler
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
} = (*store.State)(nil)

// reread makes got the state s as another process reads it.
func reread(got, s *store.State) error {
	data, err := s.AppendBinary([]byte("before"))
	if err != nil || string(data[:6]) != "before" {
		return fmt.Errorf("%+v as bytes: %q, %v", s, data, err)
	}
	if err := got.UnmarshalBinary(data[6:]); err != nil {
		return fmt.Errorf("%+v as bytes %x: %v", s, data[6:], err)
	}
	return nil
}

// Every state that three versions of a limit leave behind, with waits, debts, refunds and
// leases, is read as it was written, and to the end: no state that has lost its last byte
// is taken for another.
func TestStateAsBytes(t *testing.T) {
	for _, a := range versionstest.Algorithms() {
		words := map[string]bool{}
		for seed := range uint64(40) {
			rnd := rand.New(rand.NewPCG(seed, uint64(a)))
			limits := make([]*store.Limit, 3)
			for i := range limits {
				spec := store.Spec{Name: "l", Algorithm: a, Units: 1 + rnd.Int64N(40), Period: time.Duration(1+rnd.Int64N(1e6)) * time.Microsecond}
				switch a {
				case store.Concurrency:
					spec.Period = 0
				case store.WarmUp:
					spec.WarmUp = time.Second
				case store.LeakyBucket:
					spec.Burst = 40 // refunds while none waits
				case store.Ban:
					spec.Ban = time.Second
				}
				var err error
				if limits[i], err = store.NewLimit(spec); err != nil {
					t.Fatal(err)
				}
			}
			denies, err := store.NewLimit(store.Spec{Name: "full", Units: 1, Period: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			var state store.State
			var now store.Now
			var made []store.Charge
			for n := range uint64(60) {
				now.Steady += rnd.Int64N(2e5)
				now.Wall, now.Lease = now.Steady, store.Lease(n+1)
				if len(made) > 0 && rnd.IntN(3) == 0 {
					var r store.Result
					i := rnd.IntN(len(made))
					made[i].Cost = rnd.Int64N(made[i].Receipt.Cost + 2)
					store.Amend(now, &made[i], &state, &r)
					made = slices.Delete(made, i, i+1)
				} else {
					c := store.Charge{Key: "k", Limit: limits[rnd.IntN(int(1+seed%3))], Cost: 1 + rnd.Int64N(3), MaxWait: time.Duration(rnd.IntN(2)) * time.Second, Final: true}
					charges, states, results := []store.Charge{c}, []store.State{state}, make([]store.Result, 1)
					if a == store.Ban { // counts what another limit denies
						charges, states, results = append(charges, store.Charge{Key: "k", Limit: denies, Cost: 2}), append(states, store.State{}), make([]store.Result, 2)
					}
					store.Decide(now, charges, states, results)
					if state = states[0]; results[0].Receipt.Cost > 0 {
						c.Receipt = results[0].Receipt
						made = append(made, c)
					}
				}
				want := *inside.State(&state)
				if len(want.Log) == 0 {
					want.Log = nil
				}
				if !want.Live {
					want = algorithm.State{}
				}
				var got store.State
				if err := reread(&got, &state); err != nil {
					t.Fatal(err)
				}
				inside.State(&got).Read = false
				if is := *inside.State(&got); !reflect.DeepEqual(is, want) {
					t.Fatalf("%v, seed %d: %+v came back as %+v", a, seed, want, is)
				}
				data, _ := state.MarshalBinary()
				var cut store.State
				if len(data) > 0 && cut.UnmarshalBinary(data[:len(data)-1]) == nil {
					t.Fatalf("%v, seed %d: %x without its last byte is %+v", a, seed, data, cut)
				}
				words["log"] = words["log"] || want.Log != nil
				words["live"] = words["live"] || want.Live
				state = got
			}
		}
		counts := a == store.FixedWindow || a == store.SlidingCounter || a == store.WarmUp // and keeps no log
		if !words["live"] || words["log"] == counts {
			t.Errorf("%v: only met states with %v", a, words)
		}
	}
}

// readers are limits of every algorithm, whose numbers differ.
var readers = func() (limits []*store.Limit) {
	for _, a := range versionstest.Algorithms() {
		before := len(limits)
		for i, s := range []store.Spec{
			{Units: 3, Period: time.Second, Burst: 5},
			{Units: 1, Period: 2 * year, Burst: 7, Queue: 9},
			{Units: 14, Period: time.Microsecond, Burst: 1 << 30, Debt: true},
			{Units: 4, Window: store.Daily, Burst: 1000},
			{Units: 4, Window: store.Every(time.Microsecond)},
		} {
			s.Name, s.Algorithm = "x", a
			switch a {
			case store.WarmUp:
				s.WarmUp = time.Duration(i+1) * time.Second
			case store.Concurrency:
				s.Period = 0
			case store.Ban:
				s.Ban = time.Hour
			}
			if a != store.TokenBucket && a != store.LeakyBucket {
				s.Queue = 0
				if a != store.IntervalBucket {
					s.Burst = 0
				}
			}
			s.Debt = s.Debt && a == store.TokenBucket
			if l, err := store.NewLimit(s); err == nil {
				limits = append(limits, l)
			}
		}
		if len(limits) == before {
			panic("no limit of " + a.String())
		}
	}
	return limits
}()

// playState hands a state that was read to limits of every algorithm, at several instants, and
// reports an answer that can't be, or more granted at once than to a key never seen.
func playState(read store.State) error {
	for _, l := range readers {
		for _, at := range []int64{-26 * years, 0, 1, years, 19 * years} {
			states := clone([]store.State{read})
			m := &meter{limit: l, state: states[0], now: store.Now{Steady: at, Wall: at}}
			fresh := (&meter{limit: l, now: m.now}).take(0, 0).Remaining
			var passed int64
			for i, cost := range []int64{0, 1, fresh, 1, store.MaxCost, 1} {
				cost = min(cost, store.MaxCost)
				if i > 2 {
					m.sleep(time.Microsecond)
					passed = -1 << 62
				}
				r := m.take(cost, time.Duration(i%2)*2*year)
				if r.OK && r.Delay == 0 {
					passed += cost
				}
				// One that is on credit passes beside.
				credit := l.Spec().Debt || l.Algorithm() == store.WarmUp || l.Algorithm() == store.Ban
				if r.Remaining < 0 || r.Remaining > fresh || r.Held < 0 || min(r.Delay, r.RetryAfter, r.ResetAfter, r.MoreAfter, l.Lifetime(m.now, &m.state, &r)) < 0 ||
					passed > fresh && !credit || !r.OK && cost == 0 {
					return fmt.Errorf("%+v at %d, cost %d, %d passed of %d: %+v, %+v", l.Spec(), at, cost, passed, fresh, r, *inside.State(&m.state))
				}
				is := inside.State(&m.state)
				for _, receipt := range []store.Receipt{r.Receipt, {Instant: is.W[0], Mark: is.W[0], Cost: 3}, {Instant: at, Mark: is.W[1], Cost: store.MaxCost}} {
					for _, to := range []int64{0, 5, store.MaxCost} {
						then := &meter{limit: l, state: clone([]store.State{m.state})[0], now: m.now}
						receipt.Lease = m.now.Lease
						then.settle(then.settle(receipt, to), 1)
						if r := then.take(1, 0); r.Remaining < 0 || r.Remaining > fresh || min(r.Delay, r.RetryAfter, r.ResetAfter, r.MoreAfter) < 0 {
							return fmt.Errorf("%+v at %d, settled %+v to %d: %+v, %+v", l.Spec(), at, receipt, to, r, *inside.State(&then.state))
						}
					}
				}
			}
		}
	}
	return nil
}

// Words of a state are changed one or two at a time to numbers that no limit writes. Either
// they are rejected, or every limit can handle them.
func TestStatesThatNoLimitWrites(t *testing.T) {
	t.Parallel()
	accepted, rejected := 0, 0
	for n := range traces(t, 400) {
		d := seed(n)
		v := drawVersions(d, oneOf(d, rates...))
		for range 1 + d.roll(20) {
			if err := v.step(d); err != nil {
				t.Fatalf("seed %d: %v", n, err)
			}
		}
		s := clone([]store.State{v.state})[0]
		is := inside.State(&s)
		words := []*int64{&is.Numbers.Token, &is.Numbers.Unit, &is.Numbers.Burst, &is.W[0], &is.W[1], &is.W[2], &is.W[3], &is.W[4]}
		for i := range is.Log {
			words = append(words, &is.Log[i].At, &is.Log[i].Units)
		}
		is.Live = true
		for range d.roll(3) {
			*oneOf(d, words...) = oneOf(d, 0, 1, -1, 7, 8, -8, 13, 1000, 1<<40, 1<<46, 1<<52, 1<<53, -1<<52, -1<<53, 1<<63-1, -1<<63, d.roll(1<<53))
		}
		data, _ := s.MarshalBinary()
		var read store.State
		if read.UnmarshalBinary(data) != nil {
			rejected++
			continue
		}
		accepted++
		if err := playState(read); err != nil {
			t.Fatalf("seed %d: %+v: %v", n, *is, err)
		}
	}
	if enough(t, rejected*4); accepted == 0 {
		t.Error("no state is accepted")
	}
}

func TestStatesThatAreRejected(t *testing.T) {
	var nineLevels []algorithm.Entry
	for i := range int64(9) {
		nineLevels = append(nineLevels, algorithm.Entry{At: i, Units: i})
	}
	rate := algorithm.Numbers{Token: 1_000_000, Unit: 8, Burst: 5}
	for name, is := range map[string]algorithm.State{
		"no token":           {Numbers: algorithm.Numbers{Unit: 8, Burst: 5}, W: algorithm.Words{0: 1}},
		"a token below zero": {Numbers: algorithm.Numbers{Token: -1, Unit: 8, Burst: 5}, W: algorithm.Words{0: 1}},
		"no unit a tick":     {Numbers: algorithm.Numbers{Token: 5, Burst: 5}, W: algorithm.Words{0: 1}},
		"no length":          {Numbers: algorithm.Numbers{Token: 5, Unit: -1, Burst: 5}, W: algorithm.Words{0: 1, 1: 1}}, // of intervals
		"half of an instant": {Numbers: rate, W: algorithm.Words{0: 1 << 53}},
		"an endless burst":   {Numbers: algorithm.Numbers{Token: 1 << 42, Unit: 8, Burst: 1 << 41}, W: algorithm.Words{0: 1}},
		"levels that sink":   {Numbers: rate, W: algorithm.Words{0: 10, 3: 20}, Log: []algorithm.Entry{{At: 1, Units: 5}, {At: 2, Units: 4}}},
		"levels of no order": {Numbers: rate, W: algorithm.Words{0: 10, 3: 20}, Log: []algorithm.Entry{{At: 2, Units: 5}, {At: 1, Units: 6}}},
		"levels for ever":    {Numbers: rate, W: algorithm.Words{0: 10}, Log: []algorithm.Entry{{At: 1, Units: 5}}},
		"nine levels":        {Numbers: rate, W: algorithm.Words{0: 10, 3: 20}, Log: nineLevels},
		"a count below zero": {W: algorithm.Words{0: 10, 1: -1}},
		"a sum that isn't":   {W: algorithm.Words{0: 10, 1: 1, 2: 3}, Log: []algorithm.Entry{{At: 1, Units: 1}}},
		"an empty entry":     {W: algorithm.Words{0: 10, 1: 1, 2: 1}, Log: []algorithm.Entry{{At: 1, Units: 0}}},
		"a negative entry":   {W: algorithm.Words{0: 10, 1: 3, 2: 2}, Log: []algorithm.Entry{{At: 1, Units: -1}}},
		"a log of no order":  {W: algorithm.Words{0: 10, 1: 1, 2: 3}, Log: []algorithm.Entry{{At: 2, Units: 1}, {At: 1, Units: 1}}},
	} {
		var s store.State
		is.Live = true
		*inside.State(&s) = is
		data, _ := s.MarshalBinary()
		if err := s.UnmarshalBinary(data); err == nil || !reflect.DeepEqual(s, store.State{}) {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
}

// What isn't a state is an error and leaves the zero State, never a panic, and what is one
// is written as it was read.
func FuzzStateOfBytes(f *testing.F) {
	for _, is := range []algorithm.State{
		{},
		{Live: true},
		{Live: true, W: algorithm.Words{0: 1 << 50}, Numbers: algorithm.Numbers{Token: 1_000_000, Unit: 8}},
		{Live: true, W: algorithm.Words{0: math.MinInt64, 4: math.MaxInt64}, Log: []algorithm.Entry{{At: -1, Units: 3}}},
	} {
		var s store.State
		*inside.State(&s) = is
		data, _ := s.MarshalBinary()
		f.Add(data)
	}
	f.Add([]byte{2})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var s store.State
		inside.State(&s).W[0] = 1
		if err := s.UnmarshalBinary(data); err != nil {
			if !reflect.DeepEqual(s, store.State{}) {
				t.Fatalf("%x: %v, and %+v", data, err, s)
			}
			return
		}
		var again store.State
		if err := reread(&again, &s); err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%x: %+v, and then %+v: %v", data, s, again, err)
		}
		if err := playState(s); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}
