package store_test

import (
	"encoding"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/engine"
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
	for a := store.TokenBucket; a <= store.Ban; a++ {
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
				case store.Ban:
					spec.Ban = time.Second
				}
				var err error
				if limits[i], err = store.NewLimit(spec); err != nil {
					t.Fatal(err)
				}
			}
			denies, err := store.NewLimit(store.Spec{Name: "full", Algorithm: store.Concurrency, Units: 1})
			if err != nil {
				t.Fatal(err)
			}
			var state store.State
			var now store.Now
			var made []store.Charge
			for n := range uint64(60) {
				now.Steady += rnd.Int64N(2e5)
				now.Wall, now.Lease = now.Steady, store.Lease(n+1)
				if i := len(made) - 1; i >= 0 && rnd.IntN(3) == 0 {
					var r store.Result
					made[i].Cost = rnd.Int64N(made[i].Receipt.Cost + 2)
					store.Amend(now, &made[i], &state, &r)
					made = made[:i]
				} else {
					c := store.Charge{Key: "k", Limit: limits[rnd.IntN(3)], Cost: 1 + rnd.Int64N(3), MaxWait: time.Duration(rnd.IntN(2)) * time.Second}
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
				want := *state.Engine(engine.Access{})
				if len(want.Log) == 0 {
					want.Log = nil
				}
				if !want.Live {
					want = engine.State{}
				}
				var got store.State
				if err := reread(&got, &state); err != nil {
					t.Fatal(err)
				}
				if is := *got.Engine(engine.Access{}); !reflect.DeepEqual(is, want) {
					t.Fatalf("%v, seed %d: %+v came back as %+v", a, seed, want, is)
				}
				data, _ := state.MarshalBinary()
				var cut store.State
				if len(data) > 0 && cut.UnmarshalBinary(data[:len(data)-1]) == nil {
					t.Fatalf("%v, seed %d: %x without its last byte is %+v", a, seed, data, cut)
				}
				words["log"] = words["log"] || want.Log != nil
				words["versions"] = words["versions"] || want.Rest != nil
				words["live"] = words["live"] || want.Live
				state = got
			}
		}
		recorded := a == store.SlidingWindow || a == store.SlidingLog || a == store.Ban
		if !words["live"] || recorded != words["versions"] || !words["log"] && a != store.FixedWindow && a != store.WarmUp {
			t.Errorf("%v: only met states with %v", a, words)
		}
	}
}

// What isn't a state is an error and leaves the zero State, never a panic, and what is one
// is written as it was read.
func FuzzStateOfBytes(f *testing.F) {
	for _, is := range []engine.State{
		{},
		{Live: true},
		{Live: true, A: 1 << 50, Numbers: engine.Numbers{Token: 1_000_000, Unit: 8}},
		{Live: true, Low: math.MaxUint32, A: math.MinInt64, E: math.MaxInt64, Log: []engine.Entry{{At: -1, Units: 3}},
			Rest: &engine.Rest{Versions: []engine.Version{{At: 1}, {At: 2}}}},
	} {
		var s store.State
		*s.Engine(engine.Access{}) = is
		data, _ := s.MarshalBinary()
		f.Add(data)
	}
	f.Add([]byte{2})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		var s store.State
		s.Engine(engine.Access{}).A = 1
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
	})
}
