package wire

import (
	"slices"
	"sync"

	"github.com/stint-go/stint/store"
)

// Decision is the charges that are decided together: those of a call, or the part of
// them that one place has. Args reads the first fields, and Answer sets the others.
type Decision struct {
	Charges []store.Charge
	Keys    []string        // of the charges, in the server
	Leases  []store.LeaseID // of the charges; zero but on Concurrency

	Results []store.Result // as many as charges
	Granted bool
}

// TakeCall arranges decisions in one call of the script: by shape, with equal ones merged
// into one that is decided several times. The decisions of a call come from different
// callers at the same time, so only the order of equal ones means anything.
type TakeCall struct {
	Keys []string

	shapes []shape
	// strings is how many of the first keys may hold strings. The others don't.
	strings int
	// shared: a key is in more than one entry, so entries refer to keys by number.
	shared bool
}

// shape is the part that decisions have in common: everything but their keys.
type shape struct {
	limits   []*limitArgs // of the charges
	leases   bool         // some charges are leases
	alone    bool         // each is decided by itself
	repeated bool         // some entries are decided more than once
	entries  []entry
	runs     []int // where runs of entries end in which no key is twice, but the last
}

// entry is one set of keys in a shape.
type entry struct {
	keys      []int // numbers in the call, from 1; only if the call is shared
	decisions []*Decision
}

func (s *shape) model() *Decision { return s.entries[0].decisions[0] }

// sameShape reports whether decisions have everything but their keys in common.
func sameShape(a, b *Decision) bool {
	if len(a.Charges) != len(b.Charges) {
		return false
	}
	for i := range b.Charges {
		c, d := &a.Charges[i], &b.Charges[i]
		if c.Limit != d.Limit || c.Cost != d.Cost || c.MaxWait != d.MaxWait || c.DryRun != d.DryRun {
			return false
		}
		if TraitsOf(c.Limit).CountsDenied && countedBy(a.Charges, i) != countedBy(b.Charges, i) {
			return false
		}
	}
	return true
}

// newShape returns the shape of d, without an entry. The limits are appended to room.
func newShape(d *Decision, room []*limitArgs) shape {
	s := shape{limits: room}
	for i := range d.Charges {
		c := &d.Charges[i]
		l := argsOf(c.Limit)
		s.limits = append(s.limits, l)
		s.leases = s.leases || l.Leases
		s.alone = s.alone || l.alone || l.aloneWaiting && c.MaxWait > 0
	}
	return s
}

// endRun ends the run of entries before the next one, which has a key that was last seen
// at a place. An entry of another shape may have been in this one before.
func (s *shape) endRun(anotherShape bool, seen place) {
	begins := 0
	if len(s.runs) > 0 {
		begins = s.runs[len(s.runs)-1]
	}
	if n := len(s.entries); n > begins && (anotherShape || seen.entry >= begins) {
		s.runs = append(s.runs, n)
	}
}

// place is an entry of a shape, by their numbers.
type place struct{ shape, entry int }

// NewTakeCall arranges decisions.
func NewTakeCall(ds []*Decision) TakeCall {
	// Where each key was last seen. Most batches contain each key once, so this is most
	// of the cost of a batch: one map, reused.
	seen := placeMaps.Get().(map[string]place)
	defer func() {
		clear(seen)
		placeMaps.Put(seen)
	}()
	var p TakeCall
	// The entry of the previous decision: on a hot key, this one goes there too.
	var last *entry
	lastShape := 0
	lastBegins := 0 // where its decisions begin in ds, if they are in a row
	for i, d := range ds {
		if last != nil && slices.Equal(ds[i-1].Keys, d.Keys) && sameShape(ds[i-1], d) {
			if inARow := i-lastBegins == len(last.decisions); inARow {
				last.decisions = ds[lastBegins : i+1 : i+1]
			} else {
				last.decisions = append(last.decisions, d)
			}
			p.shapes[lastShape].repeated = true
			continue
		}
		last = nil
		n := p.shapeOf(d)
		s := &p.shapes[n]
		at, ok := seen[d.Keys[0]]
		if ok && at.shape == n && !s.alone && slices.Equal(s.entries[at.entry].decisions[0].Keys, d.Keys) {
			e := &s.entries[at.entry]
			e.decisions = append(e.decisions, d)
			s.repeated = true
			last, lastShape, lastBegins = e, n, len(ds)
			continue
		}
		for _, key := range d.Keys {
			if at, ok := seen[key]; ok {
				p.shared = true
				s.endRun(at.shape != n, at)
			}
			seen[key] = place{n, len(s.entries)}
		}
		s.entries = append(s.entries, entry{decisions: ds[i : i+1 : i+1]})
		if !s.alone {
			last, lastShape, lastBegins = &s.entries[len(s.entries)-1], n, i
		}
	}
	if p.shared {
		p.numberKeys()
	} else {
		p.listKeys()
	}
	return p
}

var placeMaps = sync.Pool{New: func() any { return make(map[string]place) }}

// shapeOf returns the number of the shape of d, which is added if there is none.
func (p *TakeCall) shapeOf(d *Decision) int {
	n := slices.IndexFunc(p.shapes, func(s shape) bool { return sameShape(s.model(), d) })
	if n < 0 {
		n = len(p.shapes)
		p.shapes = append(p.shapes, newShape(d, nil))
	}
	return n
}

// listKeys lists the keys in the order of the shapes' columns.
func (p *TakeCall) listKeys() {
	n := 0
	for i := range p.shapes {
		n += len(p.shapes[i].entries) * len(p.shapes[i].limits)
	}
	p.Keys = make([]string, 0, n)
	for i := range p.shapes {
		s := &p.shapes[i]
		for column := range s.limits {
			for j := range s.entries {
				p.Keys = append(p.Keys, s.entries[j].decisions[0].Keys[column])
			}
		}
	}
	p.strings = leadingStrings(p.shapes, len(p.Keys))
}

// leadingStrings returns how many of so many keys, in the order of the shapes' columns, come
// before those at the end that hold no strings.
func leadingStrings(shapes []shape, keys int) int {
	for i := len(shapes) - 1; i >= 0; i-- {
		s := &shapes[i]
		for column := len(s.limits) - 1; column >= 0; column-- {
			if !s.limits[column].listed {
				return keys
			}
			keys -= len(s.entries)
		}
	}
	return keys
}

// numberKeys lists each key once, those that may hold strings first, and has the entries refer to
// them by number.
func (p *TakeCall) numberKeys() {
	numbers := make(map[string]int)
	for _, listed := range []bool{false, true} {
		for i := range p.shapes {
			s := &p.shapes[i]
			for j := range s.entries {
				e := &s.entries[j]
				if e.keys == nil {
					e.keys = make([]int, len(s.limits))
				}
				for column, l := range s.limits {
					if l.listed != listed {
						continue
					}
					key := e.decisions[0].Keys[column]
					n, ok := numbers[key]
					if !ok {
						p.Keys = append(p.Keys, key)
						n = len(p.Keys)
						numbers[key] = n
					}
					e.keys[column] = n
				}
			}
		}
		if !listed {
			p.strings = len(p.Keys)
		}
	}
}

// Single holds the allocations of a call of one decision, to be reused.
type Single struct {
	decisions [1]*Decision
	shapes    [1]shape
	entries   [1]entry
	limits    [4]*limitArgs
}

// TakeCall returns the call of d alone. It is valid until the next call of TakeCall.
func (s *Single) TakeCall(d *Decision) TakeCall {
	s.decisions[0] = d
	s.entries[0] = entry{decisions: s.decisions[:]}
	s.shapes[0] = newShape(d, s.limits[:0])
	s.shapes[0].entries = s.entries[:]
	return TakeCall{Keys: d.Keys, shapes: s.shapes[:], strings: leadingStrings(s.shapes[:], len(d.Keys))}
}
