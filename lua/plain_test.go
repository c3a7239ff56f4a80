package lua_test

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// plain is the text of a state that is one value, and the state of a text.
var plain = map[store.Algorithm]struct {
	text  func(*engine.State) string
	state func(words []int64) engine.State
}{
	store.IntervalBucket: {
		func(s *engine.State) string {
			w := fmt.Sprintf("%d:%d:%d:%d:%d", s.A, s.Numbers.Token, s.Numbers.Unit, s.B, s.Numbers.Burst)
			if s.D != 0 {
				w += fmt.Sprintf(":%d:%d", s.D, s.E)
			}
			for _, e := range s.Log {
				w += fmt.Sprintf(":%d:%d", e.At, e.Units)
			}
			return w
		},
		func(w []int64) engine.State {
			s := engine.State{Live: true, A: w[0], Numbers: engine.Numbers{Token: w[1], Unit: w[2], Burst: w[4]}, B: w[3]}
			if len(w) > 5 {
				s.D, s.E = w[5], w[6]
				for w = w[7:]; len(w) > 1; w = w[2:] {
					s.Log = append(s.Log, engine.Entry{At: w[0], Units: w[1]})
				}
			}
			return s
		},
	},
	store.FixedWindow: {
		func(s *engine.State) string {
			if s.C == 0 {
				return fmt.Sprintf("%d:%d", s.A, s.B)
			}
			return fmt.Sprintf("%d:%d:%d", s.A, s.B, s.C)
		},
		func(w []int64) engine.State {
			if len(w) == 1 {
				return engine.State{Live: true, A: w[0] / 1e10 % 1e8 * 60_000_000, B: w[0] % 1e10}
			}
			w = append(w, 0)
			return engine.State{Live: true, A: w[0], B: w[1], C: w[2]}
		},
	},
	store.SlidingCounter: {
		func(s *engine.State) string { return fmt.Sprintf("%d:%d:%d:%d", s.A, s.B, s.C, s.D) },
		func(w []int64) engine.State { return engine.State{Live: true, A: w[0], B: w[1], C: w[2], D: w[3]} },
	},
	store.WarmUp: {
		func(s *engine.State) string {
			words := fmt.Sprintf("%d:%d:%d:%d", s.A, s.Numbers.Token, s.Numbers.Unit, s.B)
			if s.C != 0 || s.E != 0 {
				words += fmt.Sprintf(":%d", s.C)
			}
			if s.E != 0 {
				words += fmt.Sprintf(":%d", s.E)
			}
			return words
		},
		func(w []int64) engine.State {
			w = append(w, 0, 0)
			return engine.State{Live: true, A: w[0], Numbers: engine.Numbers{Token: w[1], Unit: w[2]}, B: w[3], C: w[4], E: w[5]}
		},
	},
}

// TestPlainTwins compares the algorithms whose state is one value with their
// steps, word by word.
func TestPlainTwins(t *testing.T) {
	for a := range plain {
		t.Run(a.String(), func(t *testing.T) {
			ran := map[string]int{}
			p := newPair(t, a)
			for seed := range traces(300) {
				p.begin(uint64(seed))
				p.tracePlain(a, ran)
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Log(ran)
		})
	}
}

func (p *pair) tracePlain(a store.Algorithm, ran map[string]int) {
	t, r := p.t, p.rnd
	limits := drawLimits(r, a)
	var last store.Result
	var made []store.Receipt
	for range 4 + r.IntN(50) {
		l := limits[0]
		if r.IntN(4) == 0 {
			l = oneOf(r, limits...)
		}
		p.step(l, last)
		c := p.draw(l, last, made)

		var before engine.State
		stored := p.dump()
		if stored != "" {
			before = plain[a].state(numbers(t, stored))
		}
		after, result := p.oracle(l, c, before)
		if a == store.IntervalBucket && after.D == 0 && after.E != 0 { // E counts until the first instant of 2026: until none
			return
		}
		want := ""
		if lifetime(l, p.now, after, &result) > 0 {
			want = plain[a].text(&after)
		}
		got := p.ask(l, c)
		if got.after != "" { // one state may have two texts
			s := plain[a].state(numbers(t, got.after))
			got.after = plain[a].text(&s)
		}
		written := got.after
		if written != "" && written != want { // what has not been written is the same by now
			present, seen := p.oracle(l, call{op: "take"}, plain[a].state(numbers(t, written)))
			if got.after = ""; lifetime(l, p.now, present, &seen) > 0 {
				got.after = plain[a].text(&present)
			}
		}
		if got.after != want || c.op == "take" && got.ok != result.OK {
			t.Errorf("%+v at %d: %v\nstate %s\ngot  %v %s\nwant %v %s", l.Spec(), p.now, c, stored, got.ok, got.after, result.OK, want)
			return
		}
		ran[fmt.Sprintf("%s %v", c.op, result.OK)]++
		if written != want && c.op == "take" && c.cost > 0 && result.OK {
			t.Errorf("%v: stored %s, want %s", c, written, want)
		}
		if got.ttl >= 0 && want != "" && got.ttl < 100*365*24*3600*1000 {
			lives := func(ms int64) bool {
				later := *p
				later.now += ms * 1000
				if a == store.WarmUp {
					later.now += 100_000 // a tick at most
				}
				s, r := later.oracle(l, call{op: "take"}, after)
				return lifetime(l, later.now, s, &r) > 0
			}
			tight := len(limits) == 1 && !zoned(l) && a != store.WarmUp
			if lives(got.ttl) || tight && got.ttl > 2 && !lives(got.ttl-2) {
				t.Errorf("%+v at %d: %v\nstate %s\nexpires after %d ms", l.Spec(), p.now, c, want, got.ttl)
				return
			}
		}
		last = result
		if result.Receipt.Cost > 0 || c.op == "settle" {
			made = append(made, result.Receipt)
		}
	}
}
