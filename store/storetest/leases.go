package storetest

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/store"
)

var leaseRows = []row{
	{"as many as there are slots", func(s *suite) {
		rnd := rand.New(rand.NewPCG(7, 7))
		const slots = 20
		l := s.limit(store.Spec{Algorithm: store.Concurrency, Units: slots})
		type lease struct {
			receipt store.Receipt
			cost    int64
		}
		var held, gone []lease
		free := int64(slots)
		seen := map[store.LeaseID]bool{}
		for range 2000 {
			switch {
			case rnd.IntN(2) == 0:
				cost := 1 + rnd.Int64N(4)
				r := s.take("k", l, cost)
				if r.OK != (cost <= free) {
					s.Fatalf("%d slots asked for, %d free: %s", cost, free, show(r))
				}
				if r.OK {
					if seen[r.Receipt.Lease] || r.Receipt.Lease == (store.LeaseID{}) {
						s.Fatalf("lease %x was given twice", r.Receipt.Lease)
					}
					seen[r.Receipt.Lease] = true
					held = append(held, lease{r.Receipt, cost})
					free -= cost
				} else if r.RetryAfter != 0 {
					s.Fatalf("denied, but with a RetryAfter, which nobody can know: %s", show(r))
				}
			case len(held) > 0 && rnd.IntN(2) == 0:
				i := rnd.IntN(len(held))
				s.settle("k", l, held[i].receipt, 0)
				free += held[i].cost
				gone = append(gone, held[i])
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
			case len(gone) > 0:
				s.settle("k", l, gone[rnd.IntN(len(gone))].receipt, 0)
			}
			s.left("k", l, free)
			s.sleep(time.Duration(rnd.IntN(1000)) * time.Microsecond)
		}
	}},
	{"more than the number", func(s *suite) {
		four := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 4})
		two := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 2})
		a, b := s.must(s.take("k", four, 3)), s.must(s.take("k", four, 1))
		held := func(r store.Result, want int64) {
			s.Helper()
			if r.Held != want {
				s.Errorf("%d held, want %d", r.Held, want)
			}
		}
		held(a, 3)
		held(b, 4)
		held(s.take("k", two, 1), 4)
		held(s.settle("k", two, b.Receipt, 0), 3)
		held(s.peek("k", two), 3)
		held(s.settle("k", two, a.Receipt, 2), 2)
		held(s.settle("k", two, a.Receipt, 0), 0)
		held(s.must(s.take("k", two, 1)), 1)
	}},
	{"unknown leases", func(s *suite) {
		l := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 2})
		other := s.limit(store.Spec{Name: "st-other", Algorithm: store.Concurrency, Units: 2})
		r := s.must(s.take("k", l, 2))
		unknown := r.Receipt
		binary.BigEndian.PutUint64(unknown.Lease[:], 1<<40)
		s.settle("k", l, unknown, 0)
		unknown.Lease[15] ^= 0x80
		s.settle("k", l, unknown, 0)
		unknown.Lease = store.LeaseID{}
		s.settle("k", l, unknown, 0)
		s.left("k", l, 0)
		// A lease of another key or limit frees nothing.
		s.must(s.take("l", l, 2))
		s.must(s.take("k", other, 2))
		s.settle("l", l, r.Receipt, 0)
		s.settle("k", other, r.Receipt, 0)
		s.settle("never seen", l, r.Receipt, 0)
		s.left("k", l, 0)
		s.left("l", l, 0)
		s.left("k", other, 0)
		s.left("never seen", l, 2)
		s.settle("k", l, r.Receipt, 0)
		s.left("k", l, 2)
	}},
	{"dry", func(s *suite) {
		l := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 1})
		rate := s.limit(store.Spec{Name: "st-rate", Units: 9, Period: time.Hour})
		both := []store.Charge{{Key: "k", Limit: l, Cost: 1, DryRun: true}, {Key: "k", Limit: rate, Cost: 1}}
		r, _ := s.decide(both...)
		if _, granted := s.decide(both...); !granted {
			s.Error("a dry run denied")
		}
		s.settle("k", l, r[0].Receipt, 0)
		s.left("k", l, 1)
		s.left("k", rate, 7)
	}},
	{"beside the rates of one call", func(s *suite) {
		l := s.limit(store.Spec{Name: "st-slots", Algorithm: store.Concurrency, Units: 3})
		rate := s.limit(store.Spec{Name: "st-rate", Units: 2, Period: time.Second})
		both := []store.Charge{{Key: "k", Limit: l, Cost: 1}, {Key: "k", Limit: rate, Cost: 1}}
		a, _ := s.decide(both...)
		b, _ := s.decide(both...)
		if a[0].Receipt.Lease == b[0].Receipt.Lease || a[1].Receipt.Lease != (store.LeaseID{}) {
			s.Errorf("%+v, %+v", a, b)
		}
		s.settle("k", l, a[0].Receipt, 0)
		s.left("k", l, 2)
		s.left("k", rate, 0) // what is used up stays used
	}},
}
