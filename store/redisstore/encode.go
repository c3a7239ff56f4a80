package redisstore

import (
	"slices"
	"strconv"

	"github.com/stint-go/stint/lua"
	"github.com/stint-go/stint/store"
)

// request is a call of a script in the making; the scripts say how it is laid
// out. Arguments are text: the client would make text of numbers anyway.
type request struct {
	set  lua.Set
	args []any
	told
}

// told is what a script has to be told beside the charges.
type told struct {
	// clock is empty, or the caller's instant and how many keys guard it.
	clock string
	// wall is about the server's instant in microseconds since store.Epoch;
	// asked are those around which the script has asked for windows of the
	// calendar.
	wall  int64
	asked []int64
	// lease is how long leases last, in microseconds.
	lease int64
}

func (q *request) add(args ...any) { q.args = append(q.args, args...) }
func (q *request) number(n int64)  { q.args = append(q.args, text(n)) }

func (q *request) limit(r *record) {
	q.set |= r.set
	q.args = append(q.args, r.text(&q.told))
}

// takeArgs are the script and its arguments that decide p, behind room for what
// the command begins with.
func takeArgs(p *plan, t told, room int) (*lua.Script, []any) {
	n := room + 2
	for i := range p.shapes {
		n += 5 + 7*len(p.shapes[i].records)
	}
	q := request{args: make([]any, room, n), told: t}
	q.args = append(q.args, t.clock)
	q.number(int64(len(p.shapes)))
	for i := range p.shapes {
		q.shape(&p.shapes[i], p.shared)
	}
	return lua.Take(q.set), q.args
}

func (q *request) shape(s *shape, shared bool) {
	more := shared || s.times || s.leases
	charges := s.model().charges
	q.add(s.kind(more))
	for i, r := range s.records {
		c := &charges[i]
		q.limit(r)
		q.number(c.Cost)
		if r.spec.Algorithm == store.Ban {
			counted := countedBy(charges, i)
			if q.args = append(q.args, counted); s.short {
				q.args = append(q.args, "", "", "", "")
			} else {
				q.args = append(q.args, flag(c.DryRun))
			}
			continue
		}
		if s.short {
			short := r.shortArgs(c, &q.told)
			q.args = append(q.args, short[:]...)
			continue
		}
		q.add(maxWait(c, r.terms.Patience))
		q.add(flag(c.DryRun))
	}
	q.number(int64(len(s.entries)))
	if more {
		q.more(s, shared)
	}
}

// countedBy are the numbers of the charges whose refusal counts for the ban of
// charge i.
func countedBy(charges []store.Charge, i int) string {
	var b []byte
	for j := range charges {
		if charges[j].CountsFor(&charges[i]) {
			b = append(strconv.AppendInt(b, int64(j+1), 10), ',')
		}
	}
	return string(b)
}

// kind is the way that the shape goes through the script, and a letter for each
// charge.
func (s *shape) kind(more bool) any {
	if s.short && !more && len(s.records) == 1 && s.records[0].letter == 'b' {
		return "fb"
	}
	kind := make([]byte, 1, 8)
	switch {
	case s.short && more:
		kind[0] = 'F'
	case s.short:
		kind[0] = 'f'
	case more:
		kind[0] = 'G'
	default:
		kind[0] = 'g'
	}
	for _, r := range s.records {
		kind = append(kind, max(r.letter, '-'))
	}
	return string(kind)
}

// more adds what only some shapes have.
func (q *request) more(s *shape, shared bool) {
	var keys, times, leases []byte
	for i := range s.entries {
		e := &s.entries[i]
		if shared {
			for _, n := range e.keys {
				keys = append(strconv.AppendInt(keys, int64(n), 10), ',')
			}
		}
		if s.times {
			times = append(strconv.AppendInt(times, int64(len(e.decisions)), 10), ',')
		}
		if s.leases {
			for _, d := range e.decisions {
				for j := range d.charges {
					if d.charges[j].Limit.Algorithm() == store.Concurrency {
						leases = append(leases, d.leases[j][:]...)
					}
				}
			}
		}
	}
	q.add(keys)
	q.add(times)
	q.add(leases)
}

// settlement is an earlier charge, its result to be, and its key.
type settlement struct {
	charge *store.Charge
	result *store.Result
	key    string
	// unlessReset: only if the key has not been reset since it was charged.
	unlessReset bool
}

// chargedAt is the server's instant, in microseconds, of a charge on a rate, or up to a
// tick before it.
func chargedAt(c *store.Charge) int64 {
	s := c.Limit.Terms().Scale
	return c.Receipt.Instant / s.PerTick * tick(s)
}

// settleArgs are the script, its keys and its arguments that settle.
func settleArgs(ss []*settlement, t told) (script *lua.Script, keys []string, args []any) {
	q := request{args: make([]any, 0, 2+13*len(ss)), told: t}
	q.add(t.clock)
	q.number(int64(len(ss)))
	for _, s := range ss {
		i := slices.Index(keys, s.key)
		if i < 0 {
			i = len(keys)
			keys = append(keys, s.key)
		}
		c := s.charge
		r := recordOf(c.Limit)
		short := [5]any{"", "", "", "", ""}
		switch {
		case s.unlessReset:
			q.add("-")
			keys = append(keys, resetKey(s.key))
			short[0], short[1] = len(keys), chargedAt(c)
		case r.letter == 0 || r.letter == 'n' || r.letter == 'c' && c.Cost > 0:
			q.add("-")
		case r.letter == 'w':
			q.add("w")
			short = r.around(t.wall).short
		default:
			q.add(string(r.letter))
			short = r.short
		}
		q.limit(r)
		q.number(int64(i + 1))
		q.number(c.Cost)
		q.number(c.Receipt.Cost)
		q.number(c.Receipt.Instant)
		q.number(c.Receipt.Mark)
		q.add(c.Receipt.Lease[:])
		q.args = append(q.args, short[:]...)
	}
	return lua.Settle(q.set), keys, q.args
}

// small are the numbers that most calls have, as text: what is put into an
// argument anew is allocated.
var small = func() (a [256]any) {
	for i := range a {
		a[i] = strconv.Itoa(i)
	}
	return a
}()

func text(n int64) any {
	if n >= 0 && n < int64(len(small)) {
		return small[n]
	}
	return strconv.FormatInt(n, 10)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// maxWait is the longest a charge may wait, in microseconds, as store counts it:
// less than one is no time, but it is not nothing, which leaves a queue its own.
func maxWait(c *store.Charge, patience int64) string {
	if us := c.MaxWait.Microseconds(); us > 0 || c.MaxWait <= 0 {
		return strconv.FormatInt(min(max(us, 0), patience), 10)
	}
	return "0.5"
}
