package store_test

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// lost returns by which part of itself a rate is rounded down. It is less than 0 if more
// passes than was given.
func lost(l *store.Limit) float64 {
	s, terms := l.Spec(), inside.Terms(l)
	given := big.NewRat(s.Units, s.Period.Microseconds())
	counted := over(rat(terms.Scale.PerTick), times(rat(terms.Token), rat(terms.Scale.Tick())))
	part, _ := over(minus(given, counted), given).Float64()
	return part
}

// No rate up to 14,272 per second, minute, hour or day is rounded, nor any round number
// below ten million per second.
func TestRatesThatAreExact(t *testing.T) {
	t.Parallel()
	check := func(n int64, period time.Duration) {
		l, err := store.NewLimit(store.Spec{Name: "x", Units: n, Period: period})
		if err != nil {
			t.Fatal(err)
		}
		if part := lost(l); part != 0 {
			t.Fatalf("%d per %v is rounded by %v", n, period, part)
		}
	}
	for _, period := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		step := pick[int64](testing.Short(), 13, 1)
		for n := int64(14_272); n > 0; n -= step {
			check(n, period)
		}
		for power := int64(1); power <= 1_000_000; power *= 10 {
			for digits := range int64(99) {
				if n := (digits + 1) * power; n < 10_000_000 {
					check(n, period)
				}
			}
		}
	}
}

// Any other rate loses less than one part in 10,000, and none admits more than was given.
// A limit shows the number that was given.
func TestRatesThatAreRounded(t *testing.T) {
	t.Parallel()
	d, rounded, rejected := seed(1), 0, 0
	for range 700 {
		s := store.Spec{Name: "x", Units: anyNumber(d, store.MaxCost), Period: micros(anyNumber(d, 2*years))}
		if s.Burst = oneOf(d, 0, 1, 1, anyNumber(d, 1_000_000)); d.roll(3) == 0 {
			s.Units, s.Period = 10_000+d.roll(14_000_000), oneOf(d, time.Second, time.Minute, time.Hour)
		}
		l, err := store.NewLimit(s)
		second := float64(s.Units) / s.Period.Seconds()
		if err != nil {
			if rejected++; second < 14e6 && strings.Contains(err.Error(), "2^53") && s.Burst < 1_000_000 && s.Burst > 0 {
				t.Errorf("%d per %v, burst %d: %v", s.Units, s.Period, s.Burst, err)
			}
			continue
		}
		part := lost(l)
		if part < 0 || part >= 1e-4 || l.Spec().Units != s.Units || l.Spec().Period != s.Period || l.Tick() > 10*time.Millisecond {
			t.Fatalf("%d per %v, burst %d: loses %v, in ticks of %v, and says %+v", s.Units, s.Period, s.Burst, part, l.Tick(), l.Spec())
		}
		if part == 0 {
			continue
		}
		rounded++
		// Nor do more pass in a second than the burst and what was given, up to a tick's.
		m := &meter{limit: l, now: store.Now{Steady: d.roll(10 * years)}}
		passed, start := int64(0), m.now.Steady
		for range 20 {
			if left := m.take(0, 0).Remaining; left > 0 {
				m.take(left, 0)
				passed += left
			}
			given := new(big.Rat).Mul(big.NewRat(s.Units, s.Period.Microseconds()), rat(m.now.Steady-start+l.Tick().Microseconds()))
			if most := l.Spec().Burst + floor(given); passed > most {
				t.Fatalf("%d per %v: %d pass in %v, %d may", s.Units, s.Period, passed, micros(m.now.Steady-start), most)
			}
			m.sleep(micros(d.roll(100_000)))
		}
	}
	enough(t, rounded)
	enough(t, rejected)
}

// A rate that one integer doesn't hold is rejected, and the error says what to write.
func TestRatesThatAreRejected(t *testing.T) {
	for _, s := range []store.Spec{
		{Units: 20_000_000, Period: time.Second},
		{Units: store.MaxCost, Period: time.Microsecond},
		{Algorithm: store.LeakyBucket, Units: 15, Period: time.Microsecond},
		{Algorithm: store.WarmUp, Units: 20_000_000, Period: time.Second, WarmUp: time.Second},
	} {
		s.Name = "x"
		if _, err := store.NewLimit(s); err == nil || !strings.Contains(err.Error(), "use at most 14 million a second") {
			t.Errorf("%v %d per %v: %v", s.Algorithm, s.Units, s.Period, err)
		}
	}
}

// The corrections of rates and warm-ups that can't be counted can be, at any rate that is accepted.
func TestCorrectionsOfRates(t *testing.T) {
	d := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		period := micros(1 + d.Int64N(1<<d.IntN(37)))
		most := min(14*period.Microseconds(), store.MaxCost)
		s := store.Spec{Name: "x", Units: 1 + d.Int64N(most), Period: period}
		if _, err := store.NewLimit(s); err != nil {
			t.Fatalf("%d per %v: %v", s.Units, period, err)
		}
		s.Algorithm, s.WarmUp = store.WarmUp, 10*time.Millisecond*time.Duration(1+d.Int64N(360_000_000))
		if _, err := store.NewLimit(s); err != nil {
			t.Fatalf("a warm-up of %v: %v", s.WarmUp, err)
		}
	}
}
