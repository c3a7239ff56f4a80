package store

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/stint-go/stint/internal/engine"
)

// TokenBucket and LeakyBucket share one step. State.A is the theoretical arrival time
// (tat): the instant at which the bucket is full again or, seen as a queue, at which it
// has run dry. A charge moves it by its cost. It may run ahead of the present by the
// capacity at once, and further by the queue or the maximum wait if the charge waits
// for the difference. For most states that is all, and the other words are 0.
//
// If the tat is ahead of the capacity, by turns reserved and debts, State.B is by how
// much it was when it was last written, and State.C the capacity in tokens. A tat further
// ahead was written before the clock was set back, and is clamped, or a key would be
// denied for as long as the difference.
//
// What only some states need is in the Log, and State.C is then the capacity too: the
// views of two versions of a limit (views.go), and what bounds refunds (levels.go).
//
// The rules are written in units of 128 bits, which hold any rate. For scales that
// aren't wide the step of a state without a Log is written a second time in one word
// (stepBucket), since it is most of what most programs decide. With a wide scale, A is as
// Scale.Join makes it, with State.Low, and B is in ticks, rounded up.

// workOutBucket computes the numbers of both. A LeakyBucket is a TokenBucket that
// passes at once its Burst and the charge whose turn it is, and queues by default.
func (l *Limit) workOutBucket(bad wrong) {
	s := &l.spec
	queue := max(s.Queue, 0)
	if l.burst = max(s.Burst, 0); s.Algorithm == LeakyBucket {
		l.burst++
	}
	l.room = l.burst + queue
	room, years := l.room, 100
	if s.Debt {
		room, years = 2*room, 50 // a full bucket owed, and a charge as large on top of it
	}
	if float64(room)*float64(l.period)/float64(s.Units) > far/2 {
		bad("Units", fmt.Sprintf("burst %d and queue %d take more than %d years at %d per %v", l.burst, queue, years, s.Units, s.Period),
			"write a smaller burst, a smaller queue or more units")
		return
	}
	l.scale, l.token = fit(l.period, s.Units, room, nil)
	l.numbers, l.tokens = engine.Numbers{Token: l.token, Unit: l.scale.Code()}, divisorOf(l.token)
	l.version = versionOf(l.numbers, l.burst)
	l.most = l.scale.within(longest)
	l.full = product(l.burst, l.token)
	if l.capacity, l.queue = l.burst, queue; !l.scale.Wide {
		l.capacity, l.queue = l.burst*l.token, queue*l.token
	}
	l.largest = l.room
	if s.Debt {
		l.largest = max(l.affordable(), l.largest)
	}
}

// affordable returns the largest cost that can be prepaid: a year's worth, at least 1.
func (l *Limit) affordable() int64 {
	n, _ := l.most.over(l.token)
	return min(MaxCost, max(1, n.int()))
}

// owed returns how many tokens of a debt are added to a limit that is taken until the
// instant until. The token that reaches top is the last. Tokens are whole, so refunding
// them leaves no trace. A queue may be longer than a debt can get.
func owed(debt int64, until, top units, token int64) int64 {
	if !until.less(top) {
		return 0
	}
	return min(debt, top.minus(until).upOver(token))
}

// worth returns the units of so many tokens, at most most: a refund never looks at more
// than there is.
func (l *Limit) worth(tokens int64, most units) units {
	return lesser(product(tokens, l.token), most)
}

// endless returns more than any limit can hold.
func (l *Limit) endless() units {
	if l.scale.Wide {
		return l.scale.length(exact)
	}
	return whole(exact)
}

// fillBucket: without a Burst a bucket has room for its Units, with debt for a second's.
// A LeakyBucket has no burst, and a queue for its Units.
func (l *Limit) fillBucket() {
	s := &l.spec
	switch {
	case s.Algorithm == LeakyBucket:
		s.Burst = cmp.Or(s.Burst, None)
		s.Queue = cmp.Or(s.Queue, s.Units)
	case s.Debt:
		s.Burst = cmp.Or(s.Burst, oneSecond(s.Units, s.Period))
	default:
		s.Burst = cmp.Or(s.Burst, s.Units)
	}
}

// oneSecond returns the number of whole units a rate gives in a second, or None.
func oneSecond(units int64, period time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(units), uint64(time.Second))
	if hi >= uint64(period) {
		return MaxCost
	}
	if n, _ := bits.Div64(hi, lo, uint64(period)); n > 0 {
		return int64(min(n, MaxCost))
	}
	return None
}

// plainBucket reports whether the limit's own step in one word does for the state at the
// instant at: it is of no other version, and nothing about it has to be written down anew.
func (l *Limit) plainBucket(at int64, s *state) bool {
	return !l.scale.Wide && (!s.Live || s.Numbers == l.numbers && s.A <= at+l.capacity+s.B && (s.B == 0 || s.C == l.burst) && s.Log == nil)
}

func (l *Limit) stepBucket(now *Now, c *Charge, s *state, r *Result) {
	at := l.scale.At(now.Steady)
	if !l.plainBucket(at, s) {
		l.stepViews(now, c, s, r)
		return
	}
	tat := at
	if s.Live {
		tat = max(tat, s.A)
	}
	after, _ := l.stepInstant(now.Steady, tat, c, r)
	if after == tat {
		return
	}
	// Written field by field: writing the whole State, with the Log that a bucket rarely
	// has, would be most of the cost of a decision.
	s.Live, s.Numbers, s.A = true, l.numbers, after
	if ahead := after - at - l.capacity; ahead > 0 {
		s.B, s.C = ahead, l.burst
	} else if s.B != 0 {
		s.B, s.C = 0, 0
	}
}

// stepInstant is stepBucket for a state that consists of A alone: see
// limitEngine.StepInstant. It is the whole rule, and one function, because most programs
// decide little else.
func (l *Limit) stepInstant(now, a int64, c *Charge, r *Result) (next int64, ok bool) {
	at := l.scale.At(now)
	tat := max(at, a)
	next = a
	*r = Result{}
	r.OK = true
	// With debt, a charge waits only for those before it; without, its own cost has to
	// be there as well.
	inc := c.Cost * l.token
	own := inc
	if l.spec.Debt {
		own = 0
	}
	short, allowed := tat+own-at-l.capacity, l.queue
	if short > 0 && c.MaxWait > 0 {
		within := l.maxWait(c) / l.scale.Tick() * l.scale.PerTick
		if l.queue == 0 || within < allowed {
			allowed = within
		}
	}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest, short > allowed && own-l.capacity > allowed: // it could not pass even if it were the first
		r.OK, r.RetryAfter = false, Never
	case short > allowed:
		r.OK, r.RetryAfter = false, l.scale.waitOne(short-allowed)
	default:
		if short > 0 {
			r.Delay = l.scale.waitOne(short)
		}
		tat += inc
		next = tat
		r.Receipt.Instant, r.Receipt.Mark, r.Receipt.Cost, r.Receipt.Version = now, tat, c.Cost, l.version
	}
	if room := at + l.capacity + l.queue - tat; room > 0 {
		r.Remaining = l.tokens.of(room)
	}
	r.ResetAfter = l.scale.waitOne(tat - at)
	return next, max(a, next) <= at+l.capacity && !l.scale.Wide
}

// divisor divides by the same number many times. A multiplication and a correction take
// a third of the time of a division, which would be a tenth of a decision's.
type divisor struct{ by, inverse uint64 }

func divisorOf(by int64) divisor { return divisor{uint64(by), math.MaxUint64 / uint64(by)} }

// of returns n divided by the divisor, rounded down, for n >= 0. The inverse is too
// small by less than one part in 2^64/by, so the quotient is at most one too small
// before the correction.
func (d divisor) of(n int64) int64 {
	quotient, _ := bits.Mul64(uint64(n), d.inverse)
	if uint64(n)-quotient*d.by >= d.by {
		quotient++
	}
	return int64(quotient)
}

// moreInBucket: the bucket is full at ResetAfter. The tokens that come after the next
// one, rounded down, come before that. A period longer than a Duration holds belongs to
// tokens that no limit has room for.
func (l *Limit) moreInBucket(r *Result) time.Duration {
	after, later := r.ResetAfter, l.room-r.Remaining-1
	if later < 0 { // full: when the token would come that doesn't fit
		return after + l.spec.Period/time.Duration(l.spec.Units)
	}
	if hi, lo := bits.Mul64(uint64(later), uint64(l.spec.Period)); hi < uint64(l.spec.Units) {
		d, _ := bits.Div64(hi, lo, uint64(l.spec.Units))
		after -= time.Duration(d)
	}
	return after
}

func (l *Limit) backInBucket(was, is Receipt) int64 {
	return l.scale.read(was.Mark, was.Low).minus(l.scale.read(is.Mark, is.Low)).upOver(l.token)
}
