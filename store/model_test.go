package store_test

import (
	"fmt"
	"math/big"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// The models say what the rules of the algorithms mean, in the plainest exact
// way: fractions of tokens, whole lists of charges, a search where a step has a
// formula. They share no code with the steps, so that agreement means something.

// rule is a limit and what a model has to know of it that a Spec hides.
type rule struct {
	limit  *store.Limit
	bounds func(wall int64) (start, end int64) // of a calendar window
	window string                              // its name, for messages
}

func (r rule) String() string {
	s := r.limit.Spec()
	out := fmt.Sprintf("%v %d", s.Algorithm, s.Units)
	if s.Period > 0 {
		out += fmt.Sprintf(" per %v", s.Period)
	}
	if r.window != "" {
		out += " " + r.window
	}
	if s.Burst != 0 {
		out += fmt.Sprintf(" burst %d", s.Burst)
	}
	if s.Queue != 0 {
		out += fmt.Sprintf(" queue %d", s.Queue)
	}
	if s.Debt {
		out += " debt"
	}
	if s.WarmUp > 0 {
		out += fmt.Sprintf(" warm-up %v", s.WarmUp)
	}
	if s.Buckets > 0 {
		out += fmt.Sprintf(" buckets %d", s.Buckets)
	}
	return out
}

// verdict is a model's answer to one charge.
type verdict struct {
	ok           bool
	delay, retry time.Duration
	near         bool // a step that may round may see it the other way
}

// ticket is a model's record of a charge, for settling it.
type ticket struct {
	cost  int64
	at    int64    // where it landed: an instant, a window, a bucket
	mark  *big.Rat // buckets: when the charge alone would be worked off
	holds int64    // windows: how much of it is counted at at
	lease store.LeaseID
}

// model is one limit applied to one key.
type model interface {
	// look answers a charge without making it.
	look(now store.Now, cost int64, maxWait time.Duration) verdict
	// charge makes a charge that look has just answered with ok.
	charge(now store.Now, cost int64, delay time.Duration) ticket
	// settle makes an earlier charge cost something else after all.
	settle(now store.Now, t ticket, cost int64) ticket
	// left returns what remains for charges with a maxWait, the time until more does, and the time until
	// the limit is as never used.
	left(now store.Now, maxWait time.Duration) (remaining int64, more, reset time.Duration)
}

func newModel(r rule) model {
	s := r.limit.Spec()
	switch s.Algorithm {
	case store.TokenBucket, store.LeakyBucket:
		return newBucketModel(r.limit)
	case store.IntervalBucket:
		return &intervalModel{n: s.Units, capacity: s.Burst, windows: windowsOf(r), tokens: s.Burst}
	case store.FixedWindow:
		return &fixedModel{n: s.Units, windows: windowsOf(r)}
	case store.SlidingWindow:
		return newSlidingModel(s)
	case store.SlidingCounter:
		return newCounterModel(s)
	case store.SlidingLog:
		p := s.Period.Microseconds()
		return &slidingModel{n: s.Units, tick: 1, leaves: func(at int64) int64 { return at + p }}
	case store.WarmUp:
		return newWarmUpModel(r.limit)
	case store.Concurrency:
		return &leaseModel{n: s.Units, held: map[store.LeaseID]int64{}}
	}
	panic("no model")
}

// tickOf is the length in microseconds of the finest tick, up to a millisecond, in
// which n per period comes out exact in one integer: all instants of 20 years, and
// room tokens on top, counted in the largest unit that divides both a tick and a
// token, stay below 2^53, and a thousand tokens do. exact is false if there is none.
func tickOf(period time.Duration, n, room int64, also func(tick, perTick int64) bool) (tick int64, exact bool) {
	instants, most := big.NewRat(20*365.25*24*3600*1e6, 1), big.NewRat(1<<53, 1)
	for _, r := range []int64{1, 10, 100, 1000} {
		p := period.Microseconds()
		if p%r != 0 {
			break
		}
		// A token every p/r/n ticks, in lowest terms: a units a token, b a tick.
		every := big.NewRat(p/r, n)
		a, b := every.Num(), every.Denom()
		sum := new(big.Rat).Mul(instants, big.NewRat(1, r))
		sum.Mul(sum, new(big.Rat).SetInt(b))
		sum.Add(sum, new(big.Rat).SetInt(new(big.Int).Mul(a, big.NewInt(room))))
		thousand := new(big.Rat).SetInt(new(big.Int).Mul(a, big.NewInt(1000)))
		if sum.Cmp(most) >= 0 || thousand.Cmp(most) >= 0 {
			continue
		}
		if also == nil || also(r, b.Int64()) {
			return r, true
		}
	}
	return 0, false
}

// rateOf is the rate that a limit goes by, in units a microsecond, and its tick: the one
// that is given if one integer holds it, else one that is lower by less than 1/10,000.
func rateOf(l *store.Limit, room int64, also func(tick, perTick int64) bool) (rate *big.Rat, tick int64) {
	s, terms := l.Spec(), inside.Terms(l)
	given := big.NewRat(s.Units, s.Period.Microseconds())
	rate = over(rat(terms.Scale.PerTick), times(rat(terms.Token), rat(terms.Scale.Tick())))
	if tick, exact := tickOf(s.Period, s.Units, room, also); exact {
		if rate.Cmp(given) != 0 || terms.Scale.Tick() != tick {
			panic(fmt.Sprintf("%+v: %v a microsecond in ticks of %d, want %v in ticks of %d", s, rate, terms.Scale.Tick(), given, tick))
		}
	} else if lost := over(minus(given, rate), given); lost.Sign() < 0 || lost.Cmp(big.NewRat(1, 10_000)) >= 0 {
		panic(fmt.Sprintf("%+v: %v a microsecond, want %v", s, rate, given))
	}
	return rate, terms.Scale.Tick()
}

func rat(n int64) *big.Rat         { return new(big.Rat).SetInt64(n) }
func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func over(a, b *big.Rat) *big.Rat  { return new(big.Rat).Quo(a, b) }
func least(a, b *big.Rat) *big.Rat { return pick(a.Cmp(b) <= 0, a, b) }
func most(a, b *big.Rat) *big.Rat  { return pick(a.Cmp(b) >= 0, a, b) }
func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// floor and ceil are the whole numbers next to x, or next to what is as good as
// endless.
func floor(x *big.Rat) int64 {
	q := new(big.Int)
	q.Div(x.Num(), x.Denom()) // Euclidean; the denominator is positive
	if !q.IsInt64() {
		return int64(q.Sign()) << 61
	}
	return q.Int64()
}

func ceil(x *big.Rat) int64 { return -floor(new(big.Rat).Neg(x)) }

// floorTo and ceilTo round an instant or a span to whole ticks.
func floorTo(us, tick int64) int64 { return floor(big.NewRat(us, tick)) * tick }

func ceilTo(us *big.Rat, tick int64) int64 { return ceil(over(us, rat(tick))) * tick }
