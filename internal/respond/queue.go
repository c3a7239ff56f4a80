package respond

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Queues holds the streams of one process that wait for their bytes' turn. The zero
// value is ready to use. It is safe for concurrent use.
//
// A store gives nothing back for a turn while others have turns behind it. If each
// stream kept to the turn that it has reserved, clients that ask and leave would use up
// the rate without using it. But bytes are interchangeable. So a queue keeps the demands
// of its streams and the turns that they have reserved as two sequences side by side: a
// demand is met once turns for as many bytes as it and those before it need have come.
// A stream that leaves only takes its demand out, and the streams behind it move up.
// What no stream needs any more is then at the end of the turns. The next stream to come
// has it, or the store takes it back whole, because nothing stands behind it.
//
// Package waiting does the same for requests. Their reservations are handed on as a
// whole, to requests of the same cost; these are divided.
type Queues struct {
	n   atomic.Int64 // how many there are
	mu  sync.Mutex
	all map[queueKey]*queue
}

// queueKey is a limit, by what it says, and a key.
type queueKey struct {
	spec store.Spec
	key  string
}

// queue is the streams that wait for bytes of one limit and key. Bytes are in the
// limit's blocks.
type queue struct {
	of       *Queues
	key      queueKey
	charge   store.Charge // what a turn is given back by
	demands  []*demand    // not met yet, in the order in which they came
	turns    []turn       // in the order in which the store has made them
	wanted   int64        // by the demands
	reserved int64        // by the turns
	giveBack GiveBack     // that of the last to come
	timer    *time.Timer
	settling bool // turns are on their way back to the store
	stuck    bool // behind the last turn stands another process's
}

// turn is blocks reserved at an instant. The receipt's cost is how many are left.
type turn struct {
	at      time.Time
	receipt store.Receipt
}

// demand is the number of blocks that one stream needs of one limit.
type demand struct {
	queue  *queue
	blocks int64
	stay   *stay
	got    []store.Receipt // once it is met
}

// stay is a stream in the queues of its limits.
type stay struct {
	demands []*demand     // one for each toll; nil for a toll that isn't paid
	missing int           // how many aren't met yet
	met     chan struct{} // closed when all are
}

func (t *toll) queue() queueKey { return queueKey{t.Limit.Spec(), t.Key} }

// join has a lane stand in the queues that there are already, and takes the blocks that no
// stream needs there off its charges. It returns nil if there are none.
func (qs *Queues) join(l *lane) *stay {
	if qs.n.Load() == 0 {
		return nil
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	var s *stay
	for i := range l.tolls {
		if q := qs.all[l.tolls[i].queue()]; q != nil && l.reserves(i) {
			if s == nil {
				s = l.stay()
			}
			cost := &l.charges[i].Cost
			free := min(max(q.reserved-q.wanted, 0), *cost)
			q.add(s, i, *cost)
			*cost -= free
		}
	}
	return s
}

// enter records what the store has answered a lane: its turns and, for limits that it
// doesn't stand in the queue of, its demands. s may be nil. It returns how long until
// the demands will be met, and whether they are.
func (qs *Queues) enter(l *lane, s *stay) (_ *stay, wait time.Duration, met bool) {
	now := time.Now()
	if s == nil {
		s = l.stay()
	}
	qs.mu.Lock()
	var rounds []*round
	for i := range l.tolls {
		d := s.demands[i]
		if d == nil && !l.reserves(i) {
			continue
		}
		if d == nil {
			d = qs.queue(&l.tolls[i]).add(s, i, l.charges[i].Cost)
		} else if len(d.got) > 0 { // by turns of others
			d.queue = qs.keep(d.queue)
		}
		q := d.queue
		if q.giveBack = l.GiveBack; l.charges[i].Cost > 0 {
			q.insert(turn{now.Add(l.results[i].Delay), l.results[i].Receipt})
			l.results[i].Receipt, q.stuck = store.Receipt{}, false
		}
		rounds = q.tend(now, rounds)
		wait = max(wait, q.when(d).Sub(now))
	}
	met = s.missing == 0
	qs.mu.Unlock()
	for _, r := range rounds {
		go r.background()
	}
	return s, wait, met
}

// leave takes a lane out of its queues, with what it has got there.
func (qs *Queues) leave(ctx context.Context, s *stay) {
	qs.mu.Lock()
	now := time.Now()
	var rounds []*round
	for _, d := range s.demands {
		if d == nil {
			continue
		}
		q := d.queue
		if len(d.got) > 0 {
			q = qs.keep(q)
			q.unuse(d.got)
		} else {
			i := slices.Index(q.demands, d)
			q.demands = slices.Delete(q.demands, i, i+1)
			q.wanted -= d.blocks
		}
		rounds = q.tend(now, rounds)
	}
	qs.mu.Unlock()
	for _, r := range rounds {
		r.run(ctx)
	}
}

// handOn gives what a stream has paid for and not used to those who wait, and reports
// whether there are any.
func (qs *Queues) handOn(t *toll, unused []store.Receipt) bool {
	if qs.n.Load() == 0 {
		return false
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.all[t.queue()]
	if q == nil {
		return false
	}
	q.unuse(unused)
	for _, r := range q.tend(time.Now(), nil) {
		go r.background()
	}
	return true
}

func (qs *Queues) queue(t *toll) *queue {
	key := t.queue()
	if q := qs.all[key]; q != nil {
		return q
	}
	q := &queue{of: qs, key: key, charge: store.Charge{Key: t.Key, Limit: t.Limit}}
	q.timer = time.AfterFunc(time.Hour, q.due)
	return qs.keep(q)
}

// keep returns the queue of q's limit and key: q, which may have been dropped since it
// was last used, or the one that has replaced it.
func (qs *Queues) keep(q *queue) *queue {
	if now := qs.all[q.key]; now != nil {
		return now
	}
	if qs.all == nil {
		qs.all = map[queueKey]*queue{}
	}
	qs.all[q.key] = q
	qs.n.Add(1)
	return q
}

// add has a lane demand blocks for its i-th toll.
func (q *queue) add(s *stay, i int, blocks int64) *demand {
	d := &demand{queue: q, blocks: blocks, stay: s}
	s.demands[i] = d
	q.demands = append(q.demands, d)
	q.wanted += blocks
	return d
}

// insert puts a turn where the store has made it: answers may arrive in another order. It
// reports whether the turn is the last.
func (q *queue) insert(t turn) (last bool) {
	i := len(q.turns)
	for i > 0 && q.charge.Limit.Engine(engine.Access{}).Behind(q.turns[i-1].receipt, t.receipt) {
		i--
	}
	q.turns = slices.Insert(q.turns, i, t)
	q.reserved += t.receipt.Cost
	return i == len(q.turns)-1
}

// unuse puts blocks whose turn has come before all others.
func (q *queue) unuse(got []store.Receipt) {
	for _, r := range slices.Backward(got) {
		q.turns = slices.Insert(q.turns, 0, turn{receipt: r})
		q.reserved += r.Cost
	}
}

// covers returns how many of the turns make up so many blocks, or -1 if all don't.
func (q *queue) covers(blocks int64) (n int) {
	for n = range q.turns {
		if blocks -= q.turns[n].receipt.Cost; blocks <= 0 {
			return n + 1
		}
	}
	return -1
}

// latest returns when the first n turns have come.
func (q *queue) latest(n int) (at time.Time) {
	for i := range q.turns[:max(n, 0)] {
		if q.turns[i].at.After(at) {
			at = q.turns[i].at
		}
	}
	return at
}

// when returns when a demand will be met, or an instant that has passed.
func (q *queue) when(d *demand) time.Time {
	blocks := int64(0)
	for _, before := range q.demands {
		if blocks += before.blocks; before == d {
			return q.latest(q.covers(blocks))
		}
	}
	return time.Time{}
}

// tend meets the demands whose turns have come, appends to rounds what is to go back to
// the store, and sets the timer. It drops a queue that has nothing left.
func (q *queue) tend(now time.Time, rounds []*round) []*round {
	next := time.Time{}
	for len(q.demands) > 0 {
		n := q.covers(q.demands[0].blocks)
		if at := q.latest(n); n < 0 || at.After(now) {
			next = at // none, if the answer with the turns isn't here yet
			break
		}
		q.meet()
	}
	if r := q.collect(now); r != nil {
		rounds = append(rounds, r)
	}
	if len(q.demands) == 0 && len(q.turns) > 0 {
		next = q.latest(len(q.turns))
	}
	switch {
	case !next.IsZero():
		q.timer.Reset(next.Sub(now))
	default:
		q.timer.Stop()
	}
	if len(q.demands)+len(q.turns) == 0 && !q.settling && q.of.all[q.key] == q {
		delete(q.of.all, q.key)
		q.of.n.Add(-1)
	}
	return rounds
}

// meet gives the first demand the first turns. A turn is divided if it has more.
func (q *queue) meet() {
	d := q.demands[0]
	q.demands = slices.Delete(q.demands, 0, 1)
	q.wanted -= d.blocks
	q.reserved -= d.blocks
	for need := d.blocks; need > 0; {
		t := &q.turns[0]
		got := t.receipt
		if got.Cost <= need {
			q.turns = slices.Delete(q.turns, 0, 1)
		} else {
			got = q.charge.Limit.Engine(engine.Access{}).Without(got, got.Cost-need)
			t.receipt.Cost -= need
		}
		d.got = append(d.got, got)
		need -= got.Cost
	}
	if d.stay.missing--; d.stay.missing == 0 {
		close(d.stay.met)
	}
}

// round is turns on their way back to the store, the last first.
type round struct {
	of       *queue
	turns    []turn
	giveBack GiveBack
}

// collect takes what no demand needs off the end of the turns. Only one settlement is
// under way at a time, so that turns reach the store in their order.
func (q *queue) collect(now time.Time) *round {
	if q.settling {
		return nil
	}
	r := &round{of: q, giveBack: q.giveBack}
	for free := q.reserved - q.wanted; free > 0; {
		last := &q.turns[len(q.turns)-1]
		if q.stuck && last.at.After(now) {
			break
		}
		back := *last
		if back.receipt.Cost <= free {
			q.turns = q.turns[:len(q.turns)-1]
		} else {
			back.receipt.Cost = free
			last.receipt = q.charge.Limit.Engine(engine.Access{}).Without(last.receipt, free)
		}
		r.turns = append(r.turns, back)
		free -= back.receipt.Cost
		q.reserved -= back.receipt.Cost
	}
	if len(r.turns) == 0 {
		return nil
	}
	q.settling = true
	return r
}

// run gives the turns back. What has become free meanwhile goes back in the background,
// since the caller has somewhere to go. A panic is the caller's.
func (r *round) run(ctx context.Context) {
	q := r.of
	charges := make([]store.Charge, len(r.turns))
	for i, t := range r.turns {
		charges[i] = q.charge
		charges[i].Receipt = t.receipt
	}
	var results []store.Result
	defer func() {
		if next := r.finish(results); next != nil {
			go next.background()
		}
	}()
	results = r.giveBack(ctx, charges)
}

func (r *round) background() {
	background.Do("giving back bytes", func() { r.run(context.Background()) })
}

// finish puts back the turns that the store hasn't taken, because others stand behind
// them: of this process, whose answer is on its way, or of another one. Without results
// the outcome is unknown. Then all turns are written off: none is used twice.
func (r *round) finish(results []store.Result) *round {
	q := r.of
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	now := time.Now()
	q.settling, q.stuck = false, false
	came := false
	for i := range results {
		left := q.charge.Limit.Engine(engine.Access{}).Standing(r.turns[i].receipt, results[i].Receipt)
		came = came || left.Cost < r.turns[i].receipt.Cost
		if left.Cost > 0 && (r.turns[i].at.After(now) || len(q.demands) > 0) {
			q.stuck = q.insert(turn{r.turns[i].at, left}) || q.stuck
		}
	}
	q.stuck = q.stuck && !came // what has come back stood behind the rest
	if next := q.tend(now, nil); len(next) > 0 {
		return next[0]
	}
	return nil
}

// due is called by the timer.
func (q *queue) due() {
	q.of.mu.Lock()
	rounds := q.tend(time.Now(), nil)
	q.of.mu.Unlock()
	for _, r := range rounds {
		r.background()
	}
}
