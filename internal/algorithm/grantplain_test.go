package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"
)

// GrantPlain grants what StepPlain lets pass at once, and nothing else.
func TestGrantPlain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(45, 1))
	granted, left := 0, 0
	for range 200_000 {
		s := Spec{Name: "a", Units: 1 + rnd.Int64N(9), Period: time.Second, Burst: 1 + rnd.Int64N(20)}
		switch rnd.IntN(4) {
		case 0:
			s.Queue = rnd.Int64N(5)
		case 1:
			s.Debt = true
		case 2:
			s.Algorithm = LeakyBucket
		}
		l, problems := New(s)
		if problems != nil {
			t.Fatal(problems[0])
		}
		n := l.Terms().Numbers
		if rnd.IntN(10) == 0 {
			n.Burst++
		}
		now := rnd.Int64N(1e9)
		tat := l.scale.At(now) + rnd.Int64N(30*l.token+1) - 5*l.token
		cost := min(rnd.Int64N(12)+1, l.Largest())
		var r Result
		next, ok := l.StepPlain(&n, now, tat, Charge{Cost: cost}, &r)
		got, grants := l.GrantPlain(&n, now, tat, cost)
		if want := ok && r.OK && r.Delay == 0; grants != want || want && got != next {
			t.Fatalf("%+v at %d, tat %d, cost %d: %d %v, StepPlain: %d %v %+v", s, now, tat, cost, got, grants, next, ok, r)
		}
		if grants {
			granted++
		} else {
			left++
		}
	}
	if granted < 10_000 || left < 10_000 {
		t.Errorf("%d granted, %d not", granted, left)
	}
}
