package waiting

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// A store gives nothing back for a reservation while another stands behind it, because
// that one's turn was computed behind it. So a bucket has one settlement under way at a
// time. It returns what was reserved last, latest first, all of it in one call; those
// who leave meanwhile add to the next.
//
// A newcomer's Take may have landed in between, from this process (it was under way
// when the others left) or from another. The receipts show it. What still stands is put
// back into its column, the newcomer moves up into it, and what the newcomer has
// reserved goes back instead. If a settlement fails, its outcome is unknown, so its
// reservations are written off: returned twice, they would be handed out twice.

const (
	// linger is how long a turn is kept for a newcomer while others wait in its line.
	// In a crowd newcomers take over what the impatient leave, and the store need not
	// be called for either.
	linger = 10 * time.Millisecond
	// retry is how long after a failure nothing is settled in a bucket.
	retry = time.Second
	// most is how many charges are settled in one call.
	most = 500
)

// round is the reservations that one call of the store gives back.
type round struct {
	spent   []*part // in any order
	turns   []*part // latest first in their buckets
	buckets []*bucket
	settle  Settle
}

// take removes from the lines a part that is to be given back whatever stands behind
// it.
func (r *round) take(p *part) {
	p.column.remove(p)
	r.spent = append(r.spent, p)
}

// collect begins a settlement in a bucket that has none, if something can go back.
func (r *round) collect(b *bucket, now time.Time, forced bool) {
	if b.settling != nil || b.retry.After(now) || len(r.turns) >= most {
		return
	}
	first := len(r.turns)
	for p := b.last(now, forced); p != nil && len(r.turns) < most; p = b.last(now, forced) {
		p.column.remove(p)
		r.turns = append(r.turns, p)
	}
	if len(r.turns) > first {
		b.settling = make(chan struct{})
		r.buckets = append(r.buckets, b)
	}
}

func (r *round) add(o *round) {
	r.spent = append(r.spent, o.spent...)
	r.turns = append(r.turns, o.turns...)
	r.buckets = append(r.buckets, o.buckets...)
}

func (r *round) empty() bool { return len(r.spent)+len(r.turns) == 0 }

// run settles a round. What has become vacant meanwhile is settled in the background,
// since the caller has somewhere to go. A panic is the caller's.
func (ts *Turns) run(ctx context.Context, r *round) {
	if r.empty() {
		return
	}
	next := new(round)
	defer func() {
		if !next.empty() {
			go ts.runAll(context.WithoutCancel(ctx), next)
		}
	}()
	ts.once(ctx, r, next)
}

// runAll settles everything there is, on a goroutine of its own.
func (ts *Turns) runAll(ctx context.Context, r *round) {
	for !r.empty() {
		next := new(round)
		background.Do("giving back turns", func() { ts.once(ctx, r, next) })
		r = next
	}
}

// once settles a round and leaves the next in next, even if it panics.
func (ts *Turns) once(ctx context.Context, r, next *round) {
	charges := make([]store.Charge, 0, len(r.turns)+len(r.spent))
	for _, parts := range [][]*part{r.turns, r.spent} {
		for _, p := range parts {
			charge := p.column.charge
			charge.Receipt = p.receipt
			charges = append(charges, charge)
		}
	}
	var results []store.Result
	defer func() { *next = *ts.finish(r, results) }()
	results = r.settle(ctx, charges)
}

// finish puts back what could not be returned, and begins the next round.
func (ts *Turns) finish(r *round, results []store.Result) *round {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	ts.vacant.Add(int64(-len(r.spent)))
	again := map[*line]bool{}
	for _, p := range r.spent {
		again[p.column.line] = true
	}
	for i, p := range r.turns {
		again[p.column.line] = true
		if results != nil {
			left := p.column.charge.Limit.Engine(engine.Access{}).Standing(p.receipt, results[i].Receipt)
			if left != p.receipt { // something came back, so nothing stands behind the last
				p.column.bucket.loosen()
			}
			if left.Cost > 0 && !p.at.Before(now) {
				again[ts.putBack(p, left, r.settle)] = true
				continue
			}
		}
		ts.vacant.Add(-1)
	}
	for _, b := range r.buckets {
		close(b.settling)
		b.settling = nil
		if results == nil {
			b.retry = now.Add(retry)
		}
		if n := len(b.parts); n > 0 {
			again[b.parts[n-1].column.line] = true
		}
	}
	next := &round{settle: r.settle}
	for l := range again {
		next.add(ts.tend(l, now))
	}
	for _, b := range r.buckets {
		if b.lines == 0 && b.settling == nil {
			delete(ts.buckets, b.key)
		}
	}
	return next
}

// putBack puts what is left of a part where calls of its cost find it.
func (ts *Turns) putBack(p *part, left store.Receipt, settle Settle) *line {
	l, index := p.column.line, p.column.index
	if left.Cost == p.receipt.Cost {
		l = ts.keep(l)
	} else {
		charge := p.column.charge
		charge.Cost = left.Cost
		parts := []Part{{Charge: charge}}
		l, index = ts.line(kindOf(parts), parts), 0
		l.settle = settle
	}
	p.receipt, p.stuck = left, true
	l.columns[index].insert(p)
	return l
}

// Flush waits until what has been left in the buckets of charges has gone back, but at
// most for bound, for a call that is about to ask the store. It returns how long it has
// waited.
func (ts *Turns) Flush(ctx context.Context, charges []store.Charge, bound time.Duration) time.Duration {
	under, rounds := ts.flush(ctx, charges)
	if len(under) == 0 {
		return 0
	}
	start := time.Now()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	for ; len(under) > 0 && rounds > 0; rounds-- {
		for _, settled := range under {
			select {
			case <-settled:
			case <-timer.C:
				return time.Since(start)
			case <-ctx.Done():
				return time.Since(start)
			}
		}
		under, _ = ts.flush(ctx, charges)
	}
	return time.Since(start)
}

// flush begins to settle the vacancies in the buckets. It returns the settlements under
// way, and the most there can be until the present vacancies have gone back: the one
// under way, and those needed for the rest.
func (ts *Turns) flush(ctx context.Context, charges []store.Charge) (under []chan struct{}, rounds int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	r := new(round)
	for i := range charges {
		b := ts.buckets[keyOf(&charges[i])]
		if b == nil {
			continue
		}
		rounds = max(rounds, 2+len(b.parts)/most)
		r.collect(b, now, true)
		if b.settling != nil {
			under = append(under, b.settling)
		}
	}
	if !r.empty() {
		r.settle = r.turns[0].column.line.settle
		go ts.runAll(context.WithoutCancel(ctx), r)
	}
	return under, rounds
}
