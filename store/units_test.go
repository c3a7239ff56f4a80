package store

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func (u units) big() *big.Int {
	n := new(big.Int).Lsh(big.NewInt(u.hi), 64)
	return n.Add(n, new(big.Int).SetUint64(u.lo))
}

// The arithmetic agrees with math/big.
func TestUnits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	draw := func() units { return units{int64(rnd.Uint64()) >> (28 + rnd.IntN(36)), rnd.Uint64() >> rnd.IntN(64)} }
	for range 20_000 {
		u, v, n, m := draw(), draw(), 1+rnd.Int64()>>(16+rnd.IntN(47)), int64(rnd.Uint64())>>rnd.IntN(64)
		q, rest := u.over(n)
		floor, mod := new(big.Int).DivMod(u.big(), big.NewInt(n), new(big.Int))
		up := new(big.Int).Set(floor)
		if mod.Sign() > 0 {
			up.Add(up, big.NewInt(1))
		}
		for name, pair := range map[string][2]*big.Int{
			"plus":    {u.plus(v).big(), new(big.Int).Add(u.big(), v.big())},
			"minus":   {u.minus(v).big(), new(big.Int).Sub(u.big(), v.big())},
			"product": {product(m, n).big(), new(big.Int).Mul(big.NewInt(m), big.NewInt(n))},
			"over":    {q.big(), floor},
			"rest":    {big.NewInt(rest), mod},
			"whole":   {whole(m).big(), big.NewInt(m)},
			"int":     {big.NewInt(whole(m).int()), big.NewInt(m)},
			"divisor": {big.NewInt(divisorOf(n).of(m & math.MaxInt64)), big.NewInt(m & math.MaxInt64 / n)},
			"lesser":  {lesser(u, v).big(), slices.MinFunc([]*big.Int{u.big(), v.big()}, (*big.Int).Cmp)},
			"greater": {greater(u, v).big(), slices.MaxFunc([]*big.Int{u.big(), v.big()}, (*big.Int).Cmp)},
		} {
			if pair[0].Cmp(pair[1]) != 0 {
				t.Fatalf("%s of %v, %v, %d, %d: %v, want %v", name, u, v, n, m, pair[0], pair[1])
			}
		}
		if up.IsInt64() && u.upOver(n) != up.Int64() || u.less(v) != (u.big().Cmp(v.big()) < 0) || u.positive() != (u.big().Sign() > 0) {
			t.Fatalf("%v, %v, %d", u, v, n)
		}
	}
}

// A State keeps an instant exactly.
func TestScaleKeepsInstants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		s, _ := fit(1+rnd.Int64N(horizon/10)>>rnd.IntN(46), 1+rnd.Int64N(MaxCost)>>rnd.IntN(40), 1, nil)
		if got := scaleOf(s.Code()); got != s {
			t.Fatalf("%+v is told as %+v", s, got)
		}
		ticks, beyond := int64(rnd.Uint64()>>14)/s.Tick()-int64(rnd.Uint64()>>15)/s.Tick(), rnd.Int64N(s.PerTick)
		word, low := s.Join(ticks, beyond)
		if x, y := s.Split(word, low); x != ticks || y != beyond {
			t.Fatalf("%+v: %d and %d come back as %d and %d", s, ticks, beyond, x, y)
		}
		want := product(ticks, s.PerTick).plus(whole(beyond))
		if got := s.read(word, low); got != want {
			t.Fatalf("%+v: %d and %d are %v, want %v", s, ticks, beyond, got, want)
		}
		if w, l := s.write(want); w != word || l != low {
			t.Fatalf("%+v: %v is written as %d and %d, want %d and %d", s, want, w, l, word, low)
		}
	}
}

// The steps in one word agree with those in units, and the step of a bucket's instant
// alone agrees with both.
func TestOneWordStepsAsUnits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	any := func(most int64) int64 { return 1 + rnd.Int64N(most)>>rnd.IntN(44) }
	passed, denied, waited, alone := 0, 0, 0, 0
	for range 3000 {
		s := Spec{Name: "l", Algorithm: []Algorithm{TokenBucket, LeakyBucket, WarmUp}[rnd.IntN(3)], Units: any(100_000), Period: time.Duration(any(1e9)) * time.Microsecond}
		inUnits := (*Limit).stepWarmUpUnits
		if s.Algorithm == WarmUp {
			s.WarmUp = time.Duration(any(1e8)) * time.Microsecond
		} else {
			inUnits = (*Limit).stepViews
			s.Burst, s.Queue = any(1000), []int64{0, None, any(1000)}[rnd.IntN(3)]
			s.Debt = s.Algorithm == TokenBucket && rnd.IntN(3) == 0
		}
		l, err := NewLimit(s)
		if err != nil || l.scale.Wide {
			continue
		}
		var state state
		now := Now{Steady: rnd.Int64N(1e12) - 1e11}
		for range 30 {
			now.Steady += rnd.Int64N(2*l.period/s.Units + 3)
			c := Charge{Limit: l, Cost: []int64{0, 1, 1, any(2*l.room + 10)}[rnd.IntN(4)], MaxWait: time.Duration(rnd.Int64N(3)*rnd.Int64N(5*l.period)) * time.Microsecond / 2}
			same, one, two := state, Result{}, Result{}
			l.step(&now, &c, &state, &one)
			if l.scale.At(now.Steady)+l.capacity >= same.A && s.Algorithm != WarmUp && plain(l, same) {
				a, ok := l.stepInstant(now.Steady, same.A, &c, &two)
				if ok != plain(l, state) || ok && (one != two || a != state.A) {
					t.Fatalf("%+v at %d, cost %d, wait %v:\n%+v %+v\n%+v %d %v", s, now.Steady, c.Cost, c.MaxWait, one, state, two, a, ok)
				}
				alone++
			}
			inUnits(l, &now, &c, &same, &two)
			if one != two || !equal(state, same) {
				t.Fatalf("%+v at %d, cost %d, wait %v:\n%+v %+v\n%+v %+v", s, now.Steady, c.Cost, c.MaxWait, one, state, two, same)
			}
			switch {
			case !one.OK:
				denied++
			case one.Delay > 0:
				waited++
			default:
				passed++
			}
			if one.Receipt.Cost > 1 && rnd.IntN(4) == 0 {
				c.Receipt, c.Cost = one.Receipt, rnd.Int64N(2*c.Cost)
				l.rebase(&now, &state)
				l.amend(&now, &c, &state)
			}
		}
	}
	if min(passed, denied, waited, alone) < 1000 {
		t.Errorf("%d passed, %d denied, %d waited; %d of an instant alone", passed, denied, waited, alone)
	}
}

// plain reports whether a bucket's state is an instant alone.
func plain(l *Limit, s state) bool {
	return s.Live && s.Numbers == l.numbers && s.B|s.C|s.D|s.E|int64(s.Low) == 0
}

func equal(a, b state) bool {
	return a.Live == b.Live && a.Low == b.Low && a.Numbers == b.Numbers && [5]int64{a.A, a.B, a.C, a.D, a.E} == [5]int64{b.A, b.B, b.C, b.D, b.E} && slices.Equal(a.Log, b.Log)
}
