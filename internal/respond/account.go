package respond

import (
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

// account counts a pacer's bytes for one limit, in blocks of its size: a fast limit
// counts in blocks too large for a slow one.
type account struct {
	ByteLimit
	credit      int64         // bytes paid for that haven't moved
	receipt     store.Receipt // of the last payment
	dryRunDelay time.Duration // how long a dry run would have delayed the bytes
}

// blocks returns how many more blocks have to be paid for a credit of n bytes.
func (a *account) blocks(n int64) int64 {
	return max(n-a.credit+a.Block-1, 0) / a.Block
}

// cost returns what to ask the store for a credit of n bytes. An enforced limit never
// needs more than its burst; a dry run that doesn't influence the pieces asks for as
// much as it can.
func (a *account) cost(n int64) int64 { return min(a.blocks(n), a.Limit.Spec().Burst) }

// pay records the payment of cost, with the answer r, for a credit of n bytes. If they
// have already moved, took is how long that took.
func (a *account) pay(n, cost int64, r *store.Result, took time.Duration) {
	blocks := a.blocks(n)
	a.credit += blocks * a.Block
	if cost > 0 {
		a.receipt = r.Receipt
	}
	if !a.DryRun {
		return
	}
	if over := a.duration(blocks - cost); over > took {
		a.dryRunDelay += over - took
	}
	if !r.OK { // an enforced limit would have delayed these blocks
		a.dryRunDelay += a.duration(cost)
	}
}

// duration returns how long the limit takes for so many blocks.
func (a *account) duration(blocks int64) time.Duration {
	spec := a.Limit.Spec()
	return time.Duration(float64(blocks) / float64(spec.Units) * float64(spec.Period))
}

// takeUnused returns the receipt of the whole blocks of the last payment that are unused.
func (a *account) takeUnused() (unused store.Receipt) {
	unused = a.receipt
	unused.Cost = max(min(unused.Cost, a.credit/a.Block), 0) // after a dry run, more may have moved than was paid for
	a.credit, a.receipt = 0, store.Receipt{}
	return unused
}
