// Package topkeys finds the most frequent keys of a stream in bounded memory, with
// the space-saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient
// computation of frequent and top-k elements in data streams", 2005).
package topkeys

import (
	"cmp"
	"slices"
	"strings"
)

// Count says how often a key has come: at least AtLeast times, and at most AtMost
// times.
type Count struct {
	Key             string
	AtLeast, AtMost uint64
}

// Sketch counts the keys of one stream. After n keys, a sketch of size k holds every
// key that has come more than n/k times, and AtMost−AtLeast is at most n/k. While the
// stream has at most k different keys, all counts are exact.
//
// A Sketch isn't safe for concurrent use.
type Sketch struct {
	size  int
	heap  []*counter // the least count first
	byKey map[string]*counter
	n     uint64
}

type counter struct {
	key   string
	count uint64
	over  uint64 // how much of count may be other keys'
	place int    // in the heap
}

// New returns a Sketch of at most size keys.
func New(size int) *Sketch {
	return &Sketch{size: max(size, 1), byKey: make(map[string]*counter)}
}

// Add counts a key once. It allocates only for a key that it doesn't hold.
func (s *Sketch) Add(key string) {
	s.n++
	if c := s.byKey[key]; c != nil {
		c.count++
		s.sink(c)
		return
	}
	// The caller's string may be a part of a much longer one.
	key = strings.Clone(key)
	if len(s.heap) < s.size {
		c := &counter{key: key, count: 1, place: len(s.heap)}
		s.heap = append(s.heap, c)
		s.byKey[key] = c
		s.rise(c)
		return
	}
	c := s.heap[0]
	delete(s.byKey, c.key)
	c.key, c.over, c.count = key, c.count, c.count+1
	s.byKey[key] = c
	s.sink(c)
}

// Len is how many keys have been added.
func (s *Sketch) Len() uint64 { return s.n }

// Reset forgets everything.
func (s *Sketch) Reset() {
	clear(s.byKey)
	clear(s.heap)
	s.heap, s.n = s.heap[:0], 0
}

// bounds returns the bounds of a key's count. A key that a full sketch doesn't hold
// may have come as often as the least that it does.
func (s *Sketch) bounds(key string) (atLeast, atMost uint64) {
	if c := s.byKey[key]; c != nil {
		return c.count - c.over, c.count
	}
	if len(s.heap) < s.size {
		return 0, 0
	}
	return 0, s.heap[0].count
}

func (s *Sketch) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.heap[i].place, s.heap[j].place = i, j
}

func (s *Sketch) rise(c *counter) {
	for c.place > 0 {
		above := (c.place - 1) / 2
		if s.heap[above].count <= c.count {
			return
		}
		s.swap(above, c.place)
	}
}

func (s *Sketch) sink(c *counter) {
	for {
		below := 2*c.place + 1
		if below >= len(s.heap) {
			return
		}
		if right := below + 1; right < len(s.heap) && s.heap[right].count < s.heap[below].count {
			below = right
		}
		if s.heap[below].count >= c.count {
			return
		}
		s.swap(below, c.place)
	}
}

// Top returns the n keys that several sketches of one stream hold with the highest
// AtLeast, the highest first. Each sketch has counted a part of the stream of its
// own.
func Top(n int, sketches ...*Sketch) []Count {
	known := map[string]bool{}
	var all []Count
	for _, s := range sketches {
		for key := range s.byKey {
			if known[key] {
				continue
			}
			known[key] = true
			c := Count{Key: key}
			for _, o := range sketches {
				atLeast, atMost := o.bounds(key)
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
