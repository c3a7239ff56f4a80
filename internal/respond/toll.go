package respond

import (
	"time"

	"github.com/stint-go/stint/store"
)

// Entry is a limit on bytes, and the key that pays.
type Entry struct {
	Limit    *store.Limit // a bucket of blocks
	Key      string
	Block    int64 // bytes of one of its units: a power of two
	Piece    int64 // bytes that are paid for at once, at the most: a multiple of Block
	Requests bool  // it counts the request's body as well
	DryRun   bool  // it only reports
	Closed   bool  // bodies are cut off if the store fails
}

// toll is what one limit is paid for a lane's bytes, in blocks of its own: a fast
// limit counts in blocks that a slow one couldn't ever pay for.
type toll struct {
	Entry
	credit  int64         // bytes paid for that have not moved
	receipt store.Receipt // of the last payment
	would   time.Duration // that a dry run would have held the bytes up for
}

// blocks is how many more have to be paid for a credit of n bytes.
func (t *toll) blocks(n int64) int64 {
	return max(n-t.credit+t.Block-1, 0) / t.Block
}

// cost is what to ask the store for a credit of n bytes. Nothing is enforced that
// exceeds a burst; of what a dry run doesn't shape, it is as much as can be asked.
func (t *toll) cost(n int64) int64 { return min(t.blocks(n), t.Limit.Spec().Burst) }

// pay notes the payment of cost, by the answer r, for a credit of n bytes. Where
// they have moved already, took is how long that took.
func (t *toll) pay(n, cost int64, r *store.Result, took time.Duration) {
	blocks := t.blocks(n)
	t.credit += blocks * t.Block
	if cost > 0 {
		t.receipt = r.Receipt
	}
	if !t.DryRun {
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
	spec := t.Limit.Spec()
	return time.Duration(float64(blocks) / float64(spec.Units) * float64(spec.Period))
}

// change is the charge that gives back whole blocks that haven't been used up, if
// there are any.
func (t *toll) change() (store.Charge, bool) {
	unused := min(t.credit/t.Block, t.receipt.Cost)
	t.credit = 0
	return store.Charge{
		Key: t.Key, Limit: t.Limit, DryRun: t.DryRun,
		Cost: t.receipt.Cost - unused, Receipt: t.receipt,
	}, unused > 0
}
