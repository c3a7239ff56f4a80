package redisstore

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// request is a script call being built; the scripts document its layout. Arguments are
// text: the client would turn numbers into text anyway.
type request struct {
	set  scripts.Set
	args []any
	// listed: some keys hold no strings.
	listed bool
	timeArgs
}

// timeArgs are the arguments of a script besides the charges.
type timeArgs struct {
	// clock is empty, or the caller's instant and the number of keys that guard it.
	clock string
	// wall is about the server's instant in microseconds since store.Epoch;
	// asked are those around which the script has asked for windows of the
	// calendar.
	wall  int64
	asked []int64
	// lease is the duration of leases, in microseconds. leaseArgs are leaseArgsOf it, if they are
	// known.
	lease     int64
	leaseArgs *[2]any
	// counted lists the charges whose denial counts for the present one, by number.
	counted string
}

func (q *request) add(args ...any) { q.args = append(q.args, args...) }
func (q *request) number(n int64)  { q.args = append(q.args, text(n)) }

// charge adds the arguments of c on the limit, or of a charge of one.
func (q *request) charge(r *record, c *store.Charge) {
	q.set |= r.set
	q.listed = q.listed || r.listed
	at := len(q.args)
	q.args = append(q.args, r.args...)
	r.vary(r, q.args[at:], c, &q.timeArgs)
}

// takeArgs returns the script that decides p and its arguments, preceded by room for
// the beginning of the command.
func takeArgs(p *plan, t timeArgs, room int) (*scripts.Script, []any) {
	n := room + 3
	for i := range p.shapes {
		n += 6
		for _, r := range p.shapes[i].records {
			n += len(r.args)
		}
	}
	q := request{args: make([]any, room, n), timeArgs: t}
	q.args = append(q.args, t.clock)
	q.number(int64(len(p.shapes)))
	for i := range p.shapes {
		q.shape(&p.shapes[i], p.shared)
	}
	q.strings(p.strings)
	return scripts.Take(q.set), q.args
}

// strings says how many of the first keys may hold strings, if a script may be asked for
// others.
func (q *request) strings(n int) {
	if q.listed {
		q.number(int64(n))
	}
}

func (q *request) shape(s *shape, shared bool) {
	more := shared || s.times || s.leases
	charges := s.model().charges
	if len(charges) > 1 {
		q.set |= scripts.Several
	}
	q.add(s.kind(more))
	q.number(int64(len(s.entries)))
	if more {
		q.more(s, shared)
	}
	for i, r := range s.records {
		if r.counts {
			q.counted = countedBy(charges, i)
		}
		q.charge(r, &charges[i])
	}
}

// countedBy returns the numbers of the charges whose denial counts for the ban of
// charge i.
func countedBy(charges []store.Charge, i int) string {
	var b []byte
	for j := range charges {
		if charges[i].Limit.Engine(engine.Access{}).Counts(&charges[j], &charges[i]) {
			b = append(strconv.AppendInt(b, int64(j+1), 10), ',')
		}
	}
	return string(b)
}

// kind says whether there is more, followed by a letter for each charge.
func (s *shape) kind(more bool) any {
	if !more && len(s.records) == 1 && s.records[0].letter == 'b' && !s.model().charges[0].DryRun {
		return "-b"
	}
	kind := make([]byte, 1, 8)
	kind[0] = '-'
	if more {
		kind[0] = '+'
	}
	for i, r := range s.records {
		letter := r.letter
		if s.model().charges[i].DryRun {
			letter -= 'a' - 'A'
		}
		kind = append(kind, letter)
	}
	return string(kind)
}

// more adds what only some shapes have.
func (q *request) more(s *shape, shared bool) {
	var keys, runs, times, leases []byte
	for column := range s.records {
		for i := range s.entries {
			if shared {
				keys = binary.BigEndian.AppendUint16(keys, uint16(s.entries[i].keys[column]))
			}
		}
	}
	for i := range s.entries {
		e := &s.entries[i]
		if s.times {
			times = binary.BigEndian.AppendUint16(times, uint16(len(e.decisions)))
		}
		if s.leases {
			for _, d := range e.decisions {
				for j := range d.charges {
					if s.records[j].leases {
						leases = append(leases, d.leases[j][:]...)
					}
				}
			}
		}
	}
	for _, end := range s.runs {
		runs = binary.BigEndian.AppendUint16(runs, uint16(end))
	}
	if len(s.runs) > 0 {
		runs = binary.BigEndian.AppendUint16(runs, uint16(len(s.entries)))
	}
	q.add(keys)
	q.add(runs)
	q.add(times)
	q.add(leases)
}

// settlement is an earlier charge, its result to be filled in, and its key.
type settlement struct {
	charge *store.Charge
	result *store.Result
	key    string
	// unlessReset: settle only if the key hasn't been reset since it was charged.
	unlessReset bool
	// To work out the result.
	found [1]store.State
	look  [1]store.Charge
	seen  [1]store.Result
}

// chargedAt returns the server's instant of a charge on a rate, in microseconds.
func chargedAt(c *store.Charge) int64 { return c.Receipt.Instant }

// together groups settlements that the script makes as one: releases of slots of one key,
// unless something else is settled there in between. Those of a group, and the groups of a
// key, keep their order.
func together(ss []*settlement) (groups [][]*settlement) {
	if len(ss) == 1 {
		return [][]*settlement{ss}
	}
	last := make(map[string]int, len(ss)) // the group of a key
	for i, s := range ss {
		at, known := last[s.key]
		if known && s.releases() && groups[at][0].releases() && s.charge.Limit == groups[at][0].charge.Limit {
			groups[at] = append(groups[at], s)
			continue
		}
		last[s.key] = len(groups)
		groups = append(groups, ss[i:i+1:i+1])
	}
	return groups
}

// releases reports whether s releases a slot.
func (s *settlement) releases() bool {
	return s.charge.Cost == 0 && !s.unlessReset && recordOf(s.charge.Limit).leases
}

// settleArgs returns the script that settles groups made by together, its keys and its
// arguments, preceded by room for the beginning of the command.
func settleArgs(groups [][]*settlement, t timeArgs, room int) (script *scripts.Script, keys []string, args []any) {
	q := request{args: make([]any, room, room+3+15*len(groups)), timeArgs: t}
	strings := 0
	keys = make([]string, 0, len(groups))
	q.add(t.clock)
	q.number(int64(len(groups)))
	for _, group := range groups {
		s := group[0]
		i := slices.Index(keys, s.key)
		if i < 0 {
			i = len(keys)
			keys = append(keys, s.key)
		}
		c := s.charge
		r := recordOf(c.Limit)
		q.add(letters[r.letter])
		q.number(int64(i + 1))
		q.number(c.Cost)
		q.number(c.Receipt.Cost)
		q.number(c.Receipt.Instant)
		q.number(c.Receipt.Mark)
		ids := c.Receipt.Lease[:]
		for _, s := range group[1:] {
			ids = append(ids, s.charge.Receipt.Lease[:]...)
		}
		q.add(ids)
		if s.unlessReset {
			keys = append(keys, resetKey(s.key))
			q.add(strconv.Itoa(len(keys)) + "," + strconv.FormatInt(chargedAt(c), 10))
		} else {
			q.add("")
		}
		q.charge(r, nil)
		if !r.listed || s.unlessReset {
			strings = len(keys)
		}
	}
	q.strings(strings)
	return scripts.Settle(q.set), keys, q.args
}

// letters holds the letters of algorithms, as arguments.
var letters = func() (a ['z' + 1]any) {
	for i := range a {
		a[i] = string(rune(i))
	}
	return a
}()

// small holds the numbers that most calls contain, as text: converting a value to an
// argument allocates.
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

// maxWait returns the longest a charge may wait, in microseconds, as store counts it.
// Less than one microsecond is no wait, but differs from none, with which a queue keeps
// its own.
func maxWait(c *store.Charge, patience int64) string {
	if us := c.MaxWait.Microseconds(); us > 0 || c.MaxWait <= 0 {
		return strconv.FormatInt(min(max(us, 0), patience), 10)
	}
	return "0.5"
}
