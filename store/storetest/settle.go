package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

var settleRows = append(slices.Concat(each("mints nothing/", mintsNothing), each("in parts/", inParts), each("turns given up/", turnsGivenUp),
	each("debts taken back/", debtsTakenBack)), []row{
	{"several at once", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 9, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Algorithm: store.FixedWindow, Units: 9, Period: time.Hour})
		c := s.limit(store.Spec{Name: "st-c", Algorithm: store.Concurrency, Units: 9})
		charges := []store.Charge{{Key: "k", Limit: a, Cost: 5}, {Key: "l", Limit: b, Cost: 5}, {Key: "m", Limit: c, Cost: 5}}
		r, _ := s.decide(charges...)
		for i := range charges {
			charges[i].Receipt = r[i].Receipt
		}
		charges[0].Cost, charges[1].Cost, charges[2].Cost = 2, 7, 0
		if err := s.store.Settle(context.Background(), charges, r); err != nil {
			s.Fatal(err)
		}
		if r[0].Remaining != 7 || r[1].Remaining != 2 || r[2].Remaining != 9 {
			s.Errorf("left %d %d %d, want 7 2 9", r[0].Remaining, r[1].Remaining, r[2].Remaining)
		}
		s.left("k", a, 7)
		s.left("l", b, 2)
		s.left("m", c, 9)
	}},
	{"two charges of one key in a call", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 20, Period: time.Hour})
		w := s.limit(store.Spec{Name: "st-w", Algorithm: store.FixedWindow, Units: 20, Period: time.Hour})
		for _, l := range []*store.Limit{a, w} {
			var charges [3]store.Charge
			for i, cost := range []int64{5, 3, 6} {
				r := s.must(s.take("k", l, cost))
				charges[i] = store.Charge{Key: "k", Limit: l, Cost: int64(i), Receipt: r.Receipt}
			}
			if err := s.store.Settle(context.Background(), charges[:], make([]store.Result, len(charges))); err != nil {
				s.Fatal(err)
			}
			s.left("k", l, 17)
		}
	}},
	{"a charge that was not made", func(s *suite) {
		for _, k := range kinds {
			l := s.limit(k.spec)
			s.must(s.take("k"+k.name, l, 1))
			before := s.peek("k"+k.name, l)
			s.settle("k"+k.name, l, store.Receipt{}, 0)
			if after := s.peek("k"+k.name, l); after != before {
				s.Errorf("%s: %s, was %s", k.name, show(after), show(before))
			}
			s.settle("never seen"+k.name, l, store.Receipt{}, 0)
			if r := s.peek("never seen"+k.name, l); r.ResetAfter != 0 {
				s.Errorf("%s: settling a charge that was not made left %s on a key never seen", k.name, show(r))
			}
		}
	}},
	{"to what it cost already", func(s *suite) {
		for _, k := range kinds {
			l := s.limit(k.spec)
			r := s.must(s.take(k.name, l, 1))
			before := s.peek(k.name, l)
			s.settle(k.name, l, r.Receipt, 1)
			if after := s.peek(k.name, l); after != before {
				s.Errorf("%s: %s, was %s", k.name, show(after), show(before))
			}
		}
	}},
	{"up and down again", func(s *suite) {
		for _, k := range kinds {
			l := s.limit(k.spec)
			r := s.must(s.take(k.name, l, 1))
			before := s.peek(k.name, l)
			receipt := s.settle(k.name, l, r.Receipt, 4).Receipt
			s.settle(k.name, l, receipt, 1)
			if after := s.peek(k.name, l); after != before {
				s.Errorf("%s: %s, was %s", k.name, show(after), show(before))
			}
		}
	}},
	{"into a window long past", func(s *suite) {
		for _, spec := range []store.Spec{
			{Algorithm: store.FixedWindow, Units: 9, Period: time.Minute},
			{Algorithm: store.FixedWindow, Units: 9, Window: store.Hourly},
			{Algorithm: store.FixedWindow, Units: 9, Window: store.Every(time.Minute)},
			{Algorithm: store.IntervalBucket, Units: 9, Window: store.Hourly},
			{Algorithm: store.IntervalBucket, Units: 9, Period: time.Minute},
			{Algorithm: store.SlidingWindow, Units: 9, Period: time.Minute},
			{Algorithm: store.SlidingLog, Units: 9, Period: time.Minute},
			{Units: 9, Period: time.Minute},
		} {
			spec.Name = fmt.Sprintf("st-%v-%d", spec.Algorithm, spec.Window.Length(s.now()))
			l := s.limit(spec)
			r := s.must(s.take("k", l, 5))
			s.sleep(1000 * time.Hour)
			if after := s.settle("k", l, r.Receipt, 0); after.Remaining != 9 || after.ResetAfter != 0 {
				s.Errorf("%v %v, nobody since: %s", spec.Algorithm, spec.Window, show(after))
			}
			s.must(s.take("k", l, 4))
			before := s.peek("k", l)
			if after := s.settle("k", l, r.Receipt, 0); after.Remaining != 5 || after.ResetAfter != before.ResetAfter {
				s.Errorf("%v %v: %s, was %s", spec.Algorithm, spec.Window, show(after), show(before))
			}
		}
	}},
	{"other keys and limits", func(s *suite) {
		a := s.limit(store.Spec{Name: "st-a", Units: 9, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Units: 9, Period: time.Hour})
		for _, l := range []*store.Limit{a, b} {
			s.must(s.take("l", l, 4))
		}
		r := s.must(s.take("k", a, 4))
		s.must(s.take("k", b, 4))
		s.settle("k", a, r.Receipt, 0)
		s.left("k", a, 9)
		s.left("k", b, 5)
		s.left("l", a, 5)
		s.left("l", b, 5)
	}},
}...)

// debtsTakenBack: while no charge waits, a Settle that takes back the debt of the one before leaves what was
// there before both, whoever has charged since the charge that they settle, except on a WarmUp.
func debtsTakenBack(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(6, 6))
	l := s.limit(k.spec)
	for n := range 60 {
		key := fmt.Sprint("k", n)
		var receipts []store.Receipt
		for range 6 { // a bucket remembers few lows exactly
			if r := s.take(key, l, 1+rnd.Int64N(2)); r.OK {
				receipts = append(receipts, r.Receipt)
				s.sleep(r.Delay)
			}
			s.sleep(k.pause(rnd) / 2 / k.tick * k.tick)
			i := rnd.IntN(len(receipts))
			if l.Algorithm() == store.WarmUp { // its later charges keep their turns
				i = len(receipts) - 1
			}
			if rnd.IntN(3) == 0 {
				receipts[i] = s.settle(key, l, receipts[i], rnd.Int64N(receipts[i].Cost+1)).Receipt
			}
			before, cost := s.peek(key, l), receipts[i].Cost
			raised := s.settle(key, l, receipts[i], cost+1+rnd.Int64N(3*before.Remaining+20)).Receipt
			if rnd.IntN(3) == 0 { // in two parts
				raised = s.settle(key, l, raised, cost+rnd.Int64N(raised.Cost-cost+1)).Receipt
			}
			receipts[i] = s.settle(key, l, raised, cost).Receipt
			if after := s.peek(key, l); after != before {
				s.Fatalf("raised from %d to %d and taken back: %s, was %s", cost, raised.Cost, show(after), show(before))
			}
		}
	}
}

// mintsNothing: a caller that settles its charges in any order, late or twice never
// gets more through than one that settles nothing, counting what was given back.
func mintsNothing(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(5, 5))
	l := s.limit(k.spec)
	full := s.peek("other", l).Remaining
	type open struct {
		receipt store.Receipt
		cost    int64
	}
	var charged []open
	for range 200 {
		switch rnd.IntN(4) {
		case 0, 1:
			cost := 1 + rnd.Int64N(3)
			if r := s.reserve("k", l, cost, time.Duration(rnd.IntN(2))*k.span()/4); r.OK {
				charged = append(charged, open{r.Receipt, cost})
			}
		case 2:
			if len(charged) == 0 {
				continue
			}
			i := rnd.IntN(len(charged))
			before := s.peek("k", l).Remaining
			c := charged[i]
			cost := rnd.Int64N(c.cost + 1)
			r := s.settle("k", l, c.receipt, cost)
			if gain := r.Remaining - before; gain > c.cost-cost {
				s.Fatalf("a refund of %d gave %d back", c.cost-cost, gain)
			}
			charged[i] = open{r.Receipt, cost}
			if again := s.settle("k", l, r.Receipt, cost); again.Remaining != r.Remaining || again.ResetAfter != r.ResetAfter {
				s.Fatalf("settled twice: %s, then %s", show(r), show(again))
			}
		case 3:
			s.sleep(k.pause(rnd))
		}
		if r := s.peek("k", l); r.Remaining > full {
			s.Fatalf("%d left of %d", r.Remaining, full)
		}
	}
	// However late, and however often with a receipt that is already spent.
	s.sleep(s.peek("k", l).ResetAfter)
	for _, c := range charged {
		s.settle("k", l, c.receipt, 0)
	}
	if r := s.peek("k", l); r.Remaining != full || r.ResetAfter != 0 {
		s.Errorf("settled after everything was over: %s", show(r))
	}
}

// inParts: a charge that is raised and lowered step by step, in any order, ends where a single
// settlement would. This doesn't hold while others wait behind the charge: only the last is
// refunded then, and only as a whole.
func inParts(s *suite, k kind) {
	rnd := rand.New(rand.NewPCG(8, 8))
	l := s.limit(k.spec)
	if l.Algorithm() == store.WarmUp {
		return // others always wait behind the charge
	}
	settled := 0
	for round := 0; round < 100 && settled < 25; round++ {
		keys := []string{fmt.Sprint("at once", round), fmt.Sprint("in parts", round)}
		var receipts [2]store.Receipt
		delayed := false
		others := rnd.IntN(3)
		for charge := range 1 + others {
			for i, key := range keys {
				r := s.take(key, l, int64(2-min(charge, 1)))
				if charge == 0 {
					receipts[i] = r.Receipt
				}
				delayed = delayed || r.Delay > 0
			}
			s.sleep(k.pause(rnd) / 4 / k.tick * k.tick)
		}
		left := s.peek(keys[0], l).Remaining - max(l.Spec().Queue, 0)
		last, most := rnd.Int64N(3), 2+left
		if l.Algorithm() != store.IntervalBucket { // it takes a debt beyond its burst for turns
			most += rnd.Int64N(4)
		}
		if delayed || left < 0 {
			continue
		}
		settled++
		s.settle(keys[0], l, receipts[0], last)
		var costs []int64
		for range 1 + rnd.IntN(6) {
			costs = append(costs, max(1, last)+rnd.Int64N(most-max(1, last)+1))
		}
		for _, cost := range append(costs, last, last) {
			receipts[1] = s.settle(keys[1], l, receipts[1], cost).Receipt
			if receipts[1].Cost != cost {
				s.Fatalf("settled to %d, receipt %+v", cost, receipts[1])
			}
		}
		for range 3 {
			if a, b := s.peek(keys[0], l), s.peek(keys[1], l); a != b {
				s.Fatalf("round %d: 2 settled to %d at once, %s; by way of %d, %s", round, last, show(a), costs, show(b))
			}
			s.sleep(k.pause(rnd))
		}
	}
	if settled < 5 && l.Algorithm() != store.LeakyBucket {
		s.Fatalf("settled only %d: the suite is at fault", settled)
	}
}
