package respond

import (
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// ByteLimit is a limit on bytes, with the key that pays.
type ByteLimit struct {
	Limit               *store.Limit // a bucket of blocks
	Key                 string
	Block               int64 // bytes of one of its units: a power of two
	Piece               int64 // the most bytes paid for at once: a multiple of Block
	Responses, Requests bool  // whose bodies it counts
	DryRun              bool  // it only reports
	Closed              bool  // bodies are cut off if the store fails
}

// toll is one limit's account of a lane's bytes, in blocks of its own: a fast limit
// counts in blocks too large for a slow one.
type toll struct {
	ByteLimit
	credit   int64           // bytes paid for that haven't moved
	receipts []store.Receipt // of the last payment
	would    time.Duration   // how long a dry run would have delayed the bytes
}

// blocks returns how many more blocks have to be paid for a credit of n bytes.
func (t *toll) blocks(n int64) int64 {
	return max(n-t.credit+t.Block-1, 0) / t.Block
}

// cost returns what to ask the store for a credit of n bytes. An enforced limit never
// needs more than its burst; a dry run that doesn't influence the pieces asks for as
// much as it can.
func (t *toll) cost(n int64) int64 { return min(t.blocks(n), t.Limit.Spec().Burst) }

// pay records the payment of cost, with the answer r, for a credit of n bytes. If they
// have already moved, took is how long that took.
func (t *toll) pay(n, cost int64, r *store.Result, took time.Duration) {
	blocks := t.blocks(n)
	t.credit += blocks * t.Block
	if cost > 0 {
		t.receipts = append(t.receipts[:0], r.Receipt)
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

// span returns how long the limit takes for so many blocks.
func (t *toll) span(blocks int64) time.Duration {
	spec := t.Limit.Spec()
	return time.Duration(float64(blocks) / float64(spec.Units) * float64(spec.Period))
}

// change returns the receipts of whole unused blocks, the last first.
func (t *toll) change() (unused []store.Receipt) {
	free := t.credit / t.Block
	t.credit = 0
	for _, r := range slices.Backward(t.receipts) {
		if r.Cost = min(r.Cost, free); r.Cost > 0 {
			unused = append(unused, r)
			free -= r.Cost
		}
	}
	return unused
}
