package redisstore

import (
	"slices"
	"sync"

	"github.com/stint-go/stint/store"
)

// decision is the charges that are decided together: those of a call, or the part of
// them that lives in one place.
type decision struct {
	charges []store.Charge
	results []store.Result
	keys    []string        // of the charges, in the server
	leases  []store.LeaseID // of the charges; zero but on Concurrency
	granted bool            // the answer
}

// plan arranges decisions in one call of the script: by shape, with equal ones merged
// into one that is asked several times. The decisions of a call come from different
// callers at the same time, so only the order of equal ones means anything.
type plan struct {
	shapes []shape
	keys   []string
	// strings is how many of the first keys may hold strings. The others don't.
	strings int
	// shared: a key is in more than one entry, so entries refer to keys by number.
	shared bool
}

// shape is the part that decisions have in common: everything but their keys.
type shape struct {
	records []*record // of the charges' limits
	leases  bool      // some charges are leases
	alone   bool      // each is asked by itself
	times   bool      // some entries are asked more than once
	entries []entry
	runs    []int // where runs of entries end in which no key is twice, but the last
}

// entry is one set of keys in a shape.
type entry struct {
	keys      []int // numbers in the call, from 1; only if the plan is shared
	decisions []*decision
}

func (s *shape) model() *decision { return s.entries[0].decisions[0] }

// sameShape reports whether decisions have everything but their keys in common.
func sameShape(m, d *decision) bool {
	if len(m.charges) != len(d.charges) {
		return false
	}
	for i := range d.charges {
		a, b := &m.charges[i], &d.charges[i]
		if a.Limit != b.Limit || a.Cost != b.Cost || a.MaxWait != b.MaxWait || a.DryRun != b.DryRun {
			return false
		}
		if algorithms[a.Limit.Algorithm()].counts && countedBy(m.charges, i) != countedBy(d.charges, i) {
			return false
		}
	}
	return true
}

// newShape returns the shape of d, without an entry. The records are appended to those
// given.
func newShape(d *decision, records []*record) shape {
	s := shape{records: records}
	for i := range d.charges {
		c := &d.charges[i]
		r := recordOf(c.Limit)
		s.records = append(s.records, r)
		s.leases = s.leases || r.leases
		s.alone = s.alone || r.alone || r.aloneWaiting && c.MaxWait > 0
	}
	return s
}

// cut ends the run of entries before the next one, which has a key that was last seen
// in the entry at. An entry of another shape may have been in this one before.
func (s *shape) cut(another bool, at int) {
	begins := 0
	if len(s.runs) > 0 {
		begins = s.runs[len(s.runs)-1]
	}
	if n := len(s.entries); n > begins && (another || at >= begins) {
		s.runs = append(s.runs, n)
	}
}

func newPlan(ds []*decision) plan {
	// Where each key was last seen. Most batches contain each key once, so this is most
	// of the cost of a batch: one map, reused.
	seen := places.Get().(map[string][2]int)
	defer func() {
		clear(seen)
		places.Put(seen)
	}()
	var p plan
	// The entry of the previous decision: on a hot key, this one goes there too.
	var last *entry
	of := 0   // which shape that is in
	from := 0 // where its decisions begin, if they are a run in ds
	for i, d := range ds {
		if last != nil && slices.Equal(ds[i-1].keys, d.keys) && sameShape(ds[i-1], d) {
			if i-from == len(last.decisions) {
				last.decisions = ds[from : i+1 : i+1]
			} else {
				last.decisions = append(last.decisions, d)
			}
			p.shapes[of].times = true
			continue
		}
		last, from = nil, i
		n := slices.IndexFunc(p.shapes, func(s shape) bool { return sameShape(s.model(), d) })
		if n < 0 {
			n = len(p.shapes)
			p.shapes = append(p.shapes, newShape(d, nil))
		}
		s := &p.shapes[n]
		if at, ok := seen[d.keys[0]]; ok {
			if at[0] == n && !s.alone && slices.Equal(s.entries[at[1]].decisions[0].keys, d.keys) {
				e := &s.entries[at[1]]
				e.decisions = append(e.decisions, d)
				s.times = true
				last, of, from = e, n, len(ds)
				continue
			}
		}
		for _, key := range d.keys {
			if at, ok := seen[key]; ok {
				p.shared = true
				s.cut(at[0] != n, at[1])
			}
			seen[key] = [2]int{n, len(s.entries)}
		}
		s.entries = append(s.entries, entry{decisions: ds[i : i+1 : i+1]})
		if !s.alone {
			last, of = &s.entries[len(s.entries)-1], n
		}
	}
	p.number()
	return p
}

var places = sync.Pool{New: func() any { return make(map[string][2]int) }}

// number lists the keys, in the order of the shapes' columns if that is sufficient.
func (p *plan) number() {
	if !p.shared {
		n := 0
		for i := range p.shapes {
			n += len(p.shapes[i].entries) * len(p.shapes[i].records)
		}
		p.keys = make([]string, 0, n)
		for i := range p.shapes {
			s := &p.shapes[i]
			for column := range s.records {
				for j := range s.entries {
					p.keys = append(p.keys, s.entries[j].decisions[0].keys[column])
				}
			}
		}
		p.strings = stringsIn(p.shapes, len(p.keys))
		return
	}
	numbers := make(map[string]int)
	for _, listed := range []bool{false, true} {
		for i := range p.shapes {
			s := &p.shapes[i]
			for j := range s.entries {
				e := &s.entries[j]
				if e.keys == nil {
					e.keys = make([]int, len(s.records))
				}
				for column, r := range s.records {
					if r.listed != listed {
						continue
					}
					key := e.decisions[0].keys[column]
					n, ok := numbers[key]
					if !ok {
						p.keys = append(p.keys, key)
						n = len(p.keys)
						numbers[key] = n
					}
					e.keys[column] = n
				}
			}
		}
		if !listed {
			p.strings = len(p.keys)
		}
	}
}

// stringsIn returns how many of so many keys, in the order of the shapes' columns, come
// before those at the end that hold no strings.
func stringsIn(shapes []shape, keys int) int {
	for i := len(shapes) - 1; i >= 0; i-- {
		s := &shapes[i]
		for column := len(s.records) - 1; column >= 0; column-- {
			if !s.records[column].listed {
				return keys
			}
			keys -= len(s.entries)
		}
	}
	return keys
}
