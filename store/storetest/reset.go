package storetest

import (
	"context"
	"time"

	"github.com/stint-go/stint/store"
)

// A store that can forget keys forgets exactly what it is told to, and says whether there was anything.
var resetRows = append(each("", func(s *suite, k kind) {
	forget := s.resetter()
	l := s.limit(k.spec)
	full := s.peek("k", l)
	for range 4 {
		s.reserve("k", l, 1, k.span())
		s.reserve("l", l, 1, k.span())
	}
	charged := s.peek("l", l)
	if !forget("k", l) {
		s.Errorf("a Reset of a key that was charged finds nothing")
	}
	if r := s.peek("k", l); r != full {
		s.Errorf("%s, want %s", show(r), show(full))
	}
	if r := s.peek("l", l); r != charged {
		s.Errorf("another key: %s, was %s", show(r), show(charged))
	}
	if forget("k", l) || forget("never seen", l) {
		s.Errorf("a Reset of a new key finds something")
	}
}), []row{
	{"the limits named", func(s *suite) {
		forget := s.resetter()
		a := s.limit(store.Spec{Name: "st-a", Units: 9, Period: time.Hour})
		b := s.limit(store.Spec{Name: "st-b", Units: 9, Period: time.Hour})
		c := s.limit(store.Spec{Name: "st-c", Units: 9, Period: time.Hour})
		for _, l := range []*store.Limit{a, b, c} {
			s.must(s.take("k", l, 4))
		}
		forget("k", a, c)
		s.left("k", a, 9)
		s.left("k", b, 5)
		s.left("k", c, 9)
		forget("k")
		s.left("k", b, 5)
	}},
	{"leases", func(s *suite) {
		forget := s.resetter()
		l := s.limit(store.Spec{Algorithm: store.Concurrency, Units: 3})
		before := s.must(s.take("k", l, 3))
		forget("k", l)
		s.left("k", l, 3)
		s.must(s.take("k", l, 2))
		s.settle("k", l, before.Receipt, 0) // a late release frees nothing that isn't held
		s.left("k", l, 1)
	}},
}...)

// Refunds of what was charged before a Reset give back what has been charged since, but
// no more than they refund, and nothing if nothing has.
var resetReceiptRows = each("receipts from before/", func(s *suite, k kind) {
	forget := s.resetter()
	l := s.limit(k.spec)
	full := s.peek("k", l)
	use := func() (receipts []store.Receipt) {
		for {
			r := s.take("k", l, 1)
			if !r.OK {
				return receipts
			}
			receipts = append(receipts, r.Receipt)
		}
	}
	refund := func(receipts []store.Receipt) {
		for _, r := range receipts {
			s.settle("k", l, r, 0)
		}
	}
	before := use()
	forget("k", l)
	refund(before)
	if r := s.peek("k", l); r != full {
		s.Errorf("nothing was charged since: %s, want %s", show(r), show(full))
	}
	before = use()
	forget("k", l)
	since := use()
	some := before[:(len(before)+1)/2]
	refund(some)
	if again := use(); len(again) > len(some) {
		s.Errorf("%d passed after a Reset, and %d more when %d from before it were refunded", len(since),
			len(again), len(some))
	}
})

// resetter skips the test if the store can't forget keys.
func (s *suite) resetter() func(key string, limits ...*store.Limit) (found bool) {
	r, ok := s.store.(store.Resetter)
	if !ok {
		s.Skip("the store is no store.Resetter")
	}
	return func(key string, limits ...*store.Limit) bool {
		s.Helper()
		found, err := r.Reset(context.Background(), key, limits...)
		if err != nil {
			s.Fatalf("Reset: %v", err)
		}
		return found
	}
}
