package stint

import (
	"time"

	"github.com/stint-go/stint/store"
)

// toll is what one limit is paid for a lane's bytes, in blocks of its own: a fast
// limit counts in blocks that a slow one couldn't ever pay for.
type toll struct {
	paced
	credit  int64         // bytes paid for that have not moved
	receipt store.Receipt // of the last payment
	would   time.Duration // that a dry run would have held the bytes up for
}

// blocks is how many more have to be paid for a credit of n bytes.
func (t *toll) blocks(n int64) int64 {
	block := t.entry.bandwidth.block
	return max(n-t.credit+block-1, 0) / block
}

// cost is what to ask the store for a credit of n bytes. Nothing is enforced that
// exceeds a burst; of what a dry run doesn't shape, it is as much as can be asked.
func (t *toll) cost(n int64) int64 { return min(t.blocks(n), t.entry.limit.Spec().Burst) }

// pay notes the payment of cost, by the answer r, for a credit of n bytes. Where
// they have moved already, took is how long that took.
func (t *toll) pay(n, cost int64, r *store.Result, took time.Duration) {
	blocks := t.blocks(n)
	t.credit += blocks * t.entry.bandwidth.block
	if cost > 0 {
		t.receipt = r.Receipt
	}
	if !t.entry.dryRun {
		return
	}
	if over := t.span(blocks - cost); over > took {
		t.would += over - took
	}
	if !r.OK { // what it can't have now it would wait for
		t.would += t.span(cost)
	}
}

// span is how long the limit takes for so many blocks.
func (t *toll) span(blocks int64) time.Duration {
	spec := t.entry.limit.Spec()
	return time.Duration(float64(blocks) / float64(spec.Units) * float64(spec.Period))
}

// change is the charge that gives back whole blocks that haven't been used up, if
// there are any.
func (t *toll) change() (store.Charge, bool) {
	unused := min(t.credit/t.entry.bandwidth.block, t.receipt.Cost)
	t.credit = 0
	return store.Charge{
		Key: t.key, Limit: t.entry.limit, DryRun: t.entry.dryRun,
		Cost: t.receipt.Cost - unused, Receipt: t.receipt,
	}, unused > 0
}
