package waiting

import (
	"slices"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// bucket is the unit in which a store counts, one limit and key, whatever the cost and the
// other limits of a call. Lines of several kinds may reserve in it.
type bucket struct {
	key      bucketKey
	lines    int           // that have a column in it
	parts    []*part       // of all lines, in the order in which the store has made them
	settling chan struct{} // closed when the settlement under way has ended; nil without one
	retry    time.Time     // after a failure, when the next settlement may begin
}

type bucketKey struct {
	name, key string
	algorithm store.Algorithm
}

func keyOf(c *store.Charge) bucketKey {
	return bucketKey{c.Limit.Name(), c.Key, c.Limit.Algorithm()}
}

func (ts *Turns) bucket(c *store.Charge) *bucket {
	key := keyOf(c)
	b := ts.buckets[key]
	if b == nil {
		if ts.buckets == nil {
			ts.buckets = map[bucketKey]*bucket{}
		}
		b = &bucket{key: key}
		ts.buckets[key] = b
	}
	b.lines++
	return b
}

// forgetBucket drops a bucket that no line uses.
func (ts *Turns) forgetBucket(b *bucket) {
	if b.lines--; b.lines == 0 && b.settling == nil {
		delete(ts.buckets, b.key)
	}
}

// insert puts a part where the store has made it. Receipts under other numbers, from
// before an update, can't be compared: the later one goes behind.
func (b *bucket) insert(p *part) {
	limit := p.column.charge.Limit
	i := len(b.parts)
	for i > 0 && says(b.parts[i-1].column.charge.Limit, limit) && limit.Engine(engine.Access{}).Behind(b.parts[i-1].receipt, p.receipt) {
		i--
	}
	b.parts = slices.Insert(b.parts, i, p)
}

func says(a, b *store.Limit) bool { return a == b || a.Spec() == b.Spec() }

// last returns the part that nothing stands behind, if it is vacant and may go back to
// the store, or else nil. If forced, it need not be ripe.
func (b *bucket) last(now time.Time, forced bool) *part {
	if len(b.parts) == 0 {
		return nil
	}
	p := b.parts[len(b.parts)-1]
	c := p.column
	if p.stuck || c.vacancies() == 0 || c.parts[len(c.parts)-1] != p || !forced && !c.line.ripe(now) {
		return nil
	}
	return p
}

// loosen marks everything stuck to be tried again, all of it at once: one by one, it would
// cost as many calls of the store. What still has something behind it, which another
// process has reserved, costs one try more.
func (b *bucket) loosen() {
	for _, p := range b.parts {
		p.stuck = false
	}
}
