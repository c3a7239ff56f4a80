package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A charge of an unused bucket passes with a MaxWait of Alone, and with no shorter one.
func TestAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	waits := 0
	for range 3000 {
		spec := Spec{
			Name: "x", Algorithm: TokenBucket, Units: 1 + r.Int64N(100_000),
			Period: time.Duration(1+r.Int64N(1_000_000)) * time.Millisecond,
			Burst:  1 + r.Int64N(20), Queue: 1 + r.Int64N(1000),
		}
		if r.IntN(2) == 0 {
			spec.Algorithm = LeakyBucket
		}
		queued, problems := New(spec)
		if problems != nil {
			continue
		}
		l, cost := queued.Unqueued(), 1+r.Int64N(queued.Largest())
		passes := func(wait time.Duration) bool {
			var s State
			var result Result
			l.Step(&Now{Steady: 1e15}, Charge{Cost: cost, MaxWait: wait}, &s, &result)
			return result.OK
		}
		alone := l.Alone(cost)
		if !passes(alone) {
			t.Errorf("%+v: a cost of %d doesn't pass with a MaxWait of %v", spec, cost, alone)
		}
		if alone > 0 {
			waits++
			if passes(alone - time.Microsecond) {
				t.Errorf("%+v: a cost of %d passes with a MaxWait shorter than %v", spec, cost, alone)
			}
		}
	}
	if waits < 1000 {
		t.Errorf("only %d charges wait", waits)
	}
}
