// Package topkeys finds the most frequent keys of a stream in bounded memory, with
// the space-saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient
// computation of frequent and top-k elements in data streams", 2005). Where that
// replaces the least counter, a sketch here drops the lesser half of its counters at
// once, so that a key costs a look into a table and an addition.
package topkeys

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// Count says how often a key has come: at least AtLeast times, and at most AtMost
// times.
type Count struct {
	Key             string
	AtLeast, AtMost uint64
}

// Sketch counts the keys of one stream, with 2k counters for a size of k. After n
// keys, a sketch of size k holds every key that has come more than n/k times, and
// AtMost−AtLeast is at most n/k. While the stream has at most 2k different keys, all
// counts are exact.
//
// A Sketch isn't safe for concurrent use.
type Sketch struct {
	counters []counter
	table    []uint16 // by hash: 1 + the place of a counter, or 0
	over     uint64   // how often a key may have come that has no counter
	n        uint64
	counts   []uint64 // scratch of makeRoom
}

// counter counts one key since it has the counter. Before that, the key may have come
// as often as over says.
type counter struct {
	hash, count, over uint64
	key               []byte // the counter's own, for the next key too
}

func (c *counter) atMost() uint64 { return c.count + c.over }

// mostSize keeps places within 16 bits.
const mostSize = 1 << 14

// New returns a Sketch of a size, of 1 to 16,384.
func New(size int) *Sketch {
	size = max(1, min(size, mostSize))
	room := 1
	for room < 4*size {
		room *= 2
	}
	return &Sketch{counters: make([]counter, 0, 2*size), table: make([]uint16, room)}
}

// seed is one for all sketches, so that a key has the same hash in each. It is made
// anew by each process: no caller can choose keys that collide.
var seed = maphash.MakeSeed()

// Add counts a key once. It allocates only for a key that is longer than those that its
// counter has had.
func (s *Sketch) Add(key []byte) {
	s.n++
	hash := maphash.Bytes(seed, key)
	at, c := s.find(hash, key)
	if c != nil {
		c.count++
		return
	}
	if len(s.counters) == cap(s.counters) {
		s.makeRoom()
		at, _ = s.find(hash, key)
	}
	last := len(s.counters)
	s.counters = s.counters[:last+1]
	c = &s.counters[last]
	c.hash, c.count, c.over, c.key = hash, 1, s.over, append(c.key[:0], key...)
	s.table[at] = uint16(last + 1)
}

// find returns the counter of a key, or nil and the place in the table where the
// counter is to stand.
func (s *Sketch) find(hash uint64, key []byte) (at uint64, c *counter) {
	last := uint64(len(s.table) - 1)
	for at = hash & last; s.table[at] != 0; at = (at + 1) & last {
		if c := &s.counters[s.table[at]-1]; c.hash == hash && string(c.key) == string(key) {
			return at, c
		}
	}
	return at, nil
}

// makeRoom drops the counters that are not above the median. A key without a counter
// may have come as often as the largest of them then.
//
// Let a counter's weight be atMost()-over. Add makes the sum of all weights larger by
// 1. When over becomes larger by d, more than half of the 2k counters have a weight of
// at least d, and all of them lose d or more with their place. So over is at most n/k.
func (s *Sketch) makeRoom() {
	s.counts = s.counts[:0]
	for i := range s.counters {
		s.counts = append(s.counts, s.counters[i].atMost())
	}
	s.over = nthSmallest(s.counts, len(s.counts)/2)
	clear(s.table)
	last, left := uint64(len(s.table)-1), 0
	for i := range s.counters {
		c := &s.counters[i]
		if c.atMost() <= s.over {
			continue
		}
		at := c.hash & last
		for s.table[at] != 0 {
			at = (at + 1) & last
		}
		s.counters[left], *c = *c, s.counters[left]
		left++
		s.table[at] = uint16(left)
	}
	s.counters = s.counters[:left]
}

// nthSmallest returns the nth smallest of counts, from 1, by quickselect. It reorders counts.
func nthSmallest(counts []uint64, n int) uint64 {
	for {
		pivot, less, same := counts[len(counts)/2], 0, 0
		for i, c := range counts { // those below the pivot, those equal to it, those above
			if c > pivot {
				continue
			}
			counts[i] = counts[less+same]
			counts[less+same] = c
			same++
			if c < pivot {
				counts[less+same-1], counts[less] = pivot, c
				less, same = less+1, same-1
			}
		}
		switch {
		case n <= less:
			counts = counts[:less]
		case n <= less+same:
			return pivot
		default:
			counts, n = counts[less+same:], n-less-same
		}
	}
}

// Len is how many keys have been added.
func (s *Sketch) Len() uint64 { return s.n }

// Reset forgets everything.
func (s *Sketch) Reset() {
	clear(s.table)
	s.counters, s.over, s.n = s.counters[:0], 0, 0
}

// bounds returns the bounds of a key's count.
func (s *Sketch) bounds(hash uint64, key string) (atLeast, atMost uint64) {
	if _, c := s.find(hash, []byte(key)); c != nil {
		return c.count, c.atMost()
	}
	return 0, s.over
}

// Top returns the n keys that several sketches of one stream hold with the highest
// AtLeast, the highest first. Each sketch has counted a part of the stream of its
// own.
func Top(n int, sketches ...*Sketch) []Count {
	added := map[string]bool{}
	var all []Count
	for _, s := range sketches {
		for i := range s.counters {
			counter := &s.counters[i]
			if added[string(counter.key)] {
				continue
			}
			c := Count{Key: string(counter.key)}
			added[c.Key] = true
			for _, o := range sketches {
				atLeast, atMost := o.bounds(counter.hash, c.Key)
				c.AtLeast, c.AtMost = c.AtLeast+atLeast, c.AtMost+atMost
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.AtLeast, a.AtLeast), cmp.Compare(b.AtMost, a.AtMost), cmp.Compare(a.Key, b.Key))
	})
	return all[:min(n, len(all))]
}
