package redisstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/versionstest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// As many charges as a call has room for, on limits of every algorithm together and
// on each alone: granted, denied by the last of them, settled and looked at, they
// are answered as memory answers them.
func TestManyChargesOfEveryKind(t *testing.T) { manyCharges(t, versionstest.Kinds(t)...) }

func TestServersManyChargesOfOneKind(t *testing.T) {
	redistest.Suite(t, "servers")
	for i, spec := range versionstest.Kinds(t) {
		t.Run(fmt.Sprint(spec.Algorithm, i), func(t *testing.T) { manyCharges(t, spec) })
	}
}

func manyCharges(t *testing.T, specs ...store.Spec) {
	var limits []*store.Limit
	for i, spec := range specs {
		spec.Name = fmt.Sprint("l", i)
		limits = append(limits, denyLimit(t, spec))
	}
	p := &manyPair{t: t, stores: [2]store.Store{manyStore(t, redistest.Shared(t).Client()), memstore.New()}}
	for i := range mostCharges {
		l := limits[i%len(limits)]
		cost := int64(1 + i%2)
		if l.Algorithm() == store.Concurrency {
			cost = 1 // of which more are kept in another way: they are many enough
		}
		p.charges = append(p.charges, store.Charge{Key: fmt.Sprint(i / len(limits)), Limit: l, Cost: cost})
	}
	p.both("granted", p.take)
	p.both("settled", p.settle)
	p.charges[mostCharges-1].Cost = 100
	p.both("denied", p.take)
	for i := range p.charges {
		p.charges[i].Cost = 0
	}
	p.both("looked at", p.take)
}

// manyPair asks two stores the same.
type manyPair struct {
	t        *testing.T
	stores   [2]store.Store
	charges  []store.Charge
	receipts [2][]store.Receipt
}

func (p *manyPair) both(what string, call func(i int) []store.Result) {
	p.t.Helper()
	a, b := call(0), call(1)
	for i := range a {
		if a[i].OK != b[i].OK || a[i].Remaining != b[i].Remaining || a[i].Receipt.Cost != b[i].Receipt.Cost ||
			(a[i].RetryAfter == store.Never) != (b[i].RetryAfter == store.Never) {
			p.t.Fatalf("%s: charge %d on %v: %+v, memory %+v", what, i, p.charges[i].Limit.Algorithm(), a[i], b[i])
		}
	}
}

func (p *manyPair) take(i int) []store.Result {
	results := make([]store.Result, len(p.charges))
	if err := p.stores[i].Take(context.Background(), p.charges, results); err != nil {
		p.t.Fatal(err)
	}
	p.receipts[i] = p.receipts[i][:0]
	for _, r := range results {
		p.receipts[i] = append(p.receipts[i], r.Receipt)
	}
	return results
}

func (p *manyPair) settle(i int) []store.Result {
	results := make([]store.Result, len(p.charges))
	back := make([]store.Charge, len(p.charges))
	for j, c := range p.charges {
		if c.Limit.Algorithm() == store.Concurrency {
			c.Cost = 1
		}
		c.Receipt, c.Cost = p.receipts[i][j], c.Cost-1
		back[j] = c
	}
	if err := p.stores[i].Settle(context.Background(), back, results); err != nil {
		p.t.Fatal(err)
	}
	for j, c := range back {
		if c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) {
			results[j].Held, results[j].Remaining = 0, 0 // which a release may leave out; the look that follows has them
		}
	}
	return results
}
