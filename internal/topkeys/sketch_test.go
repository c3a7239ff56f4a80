package topkeys

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// streams are sequences of keys: what is usual, and what makes it hard.
func streams(n int) map[string]func(yield func(string)) {
	rng := func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
	key := func(i uint64) string { return fmt.Sprint("k", i) }
	return map[string]func(func(string)){
		"zipf": func(yield func(string)) {
			z := rand.NewZipf(rng(), 1.1, 1, 100_000)
			for range n {
				yield(key(z.Uint64()))
			}
		},
		"few keys": func(yield func(string)) {
			r := rng()
			for range n {
				yield(key(r.Uint64N(10)))
			}
		},
		"never twice": func(yield func(string)) {
			for i := range n {
				yield(key(uint64(i)))
			}
		},
		"one between those that never come twice": func(yield func(string)) {
			for i := range n / 5 {
				yield("heavy")
				for j := range 4 {
					yield(key(uint64(4*i + j)))
				}
			}
		},
		"heavy first, then a flood": func(yield func(string)) {
			for range n / 10 {
				yield("heavy")
			}
			for i := range n - n/10 {
				yield(key(uint64(i)))
			}
		},
		"a flood, then heavy": func(yield func(string)) {
			for i := range n - n/10 {
				yield(key(uint64(i)))
			}
			for range n / 10 {
				yield("heavy")
			}
		},
		// Each key comes as soon as it has been pushed out.
		"in turn, one more than there is room for": func(yield func(string)) {
			for i := range n {
				yield(key(uint64(i % 129)))
			}
		},
	}
}

// The bounds hold of every key that is held, are no further apart than promised, and
// every key that has come more often than that is held.
func TestBounds(t *testing.T) {
	const n, size = 50_000, 64
	for name, stream := range streams(n) {
		t.Run(name, func(t *testing.T) {
			s, exact := New(size), map[string]uint64{}
			stream(func(key string) {
				s.Add([]byte(key))
				exact[key]++
			})
			most := s.Len() / size
			check(t, Top(2*size+1, s), exact, most, 2*size)
			for key, count := range exact {
				hash := maphash.String(seed, key)
				if _, atMost := s.bounds(hash, key); atMost < count {
					t.Fatalf("%s has come %d times, and its bound is %d", key, count, atMost)
				}
				if _, c := s.find(hash, []byte(key)); count > most && c == nil {
					t.Fatalf("%s has come %d times of %d and isn't held", key, count, s.Len())
				}
			}
		})
	}
}

// A stream that is cut in parts, by key or by time, has the bounds of its parts
// together.
func TestBoundsOfParts(t *testing.T) {
	const n, size, parts = 50_000, 64, 4
	for name, stream := range streams(n) {
		t.Run(name, func(t *testing.T) {
			var all []*Sketch
			for range parts {
				all = append(all, New(size))
			}
			exact, i := map[string]uint64{}, 0
			stream(func(key string) {
				all[i*parts/n].Add([]byte(key))
				exact[key]++
				i++
			})
			check(t, Top(2*parts*size+1, all...), exact, n/size, 2*parts*size)
		})
	}
}

func check(t *testing.T, top []Count, exact map[string]uint64, apart uint64, size int) {
	t.Helper()
	if len(top) > size {
		t.Fatalf("%d keys are held, of at most %d", len(top), size)
	}
	for i, c := range top {
		if have := exact[c.Key]; c.AtLeast > have || have > c.AtMost {
			t.Fatalf("%s has come %d times, and the bounds are %d and %d", c.Key, have, c.AtLeast, c.AtMost)
		}
		if c.AtMost-c.AtLeast > apart {
			t.Fatalf("the bounds of %s are %d and %d, more than %d apart", c.Key, c.AtLeast, c.AtMost, apart)
		}
		if i > 0 && top[i-1].AtLeast < c.AtLeast {
			t.Fatalf("%v comes before %v", top[i-1], c)
		}
	}
}

func TestRecentForgets(t *testing.T) {
	r := NewRecent(8, 10*time.Second)
	top := func(at time.Duration) string { return fmt.Sprint(Top(9, r.Sketches(at)...)) }
	r.Add([]byte("a"), 1*time.Second)
	r.Add([]byte("a"), 4*time.Second)
	r.Add([]byte("b"), 6*time.Second)
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{6 * time.Second, "[{a 2 2} {b 1 1}]"},
		{9 * time.Second, "[{a 2 2} {b 1 1}]"},
		{10 * time.Second, "[{b 1 1}]"},
		{14 * time.Second, "[{b 1 1}]"},
		{15 * time.Second, "[]"},
	} {
		if got := top(step.at); got != step.want {
			t.Errorf("after %v: %s, want %s", step.at, got, step.want)
		}
	}
	r.Add([]byte("c"), time.Minute)
	r.Add([]byte("d"), 3*time.Minute)
	if got, want := top(3*time.Minute), "[{d 1 1}]"; got != want {
		t.Errorf("after a pause: %s, want %s", got, want)
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	s, key := New(4), []byte("k0000")
	add := func() {
		binary.BigEndian.PutUint32(key[1:], rand.Uint32N(100))
		s.Add(key)
	}
	for range 1000 { // until each counter has had a key
		add()
	}
	if n := testing.AllocsPerRun(1000, add); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSmallest(t *testing.T) {
	for range 1000 {
		counts := make([]uint64, 1+rand.IntN(20))
		for i := range counts {
			counts[i] = rand.Uint64N(8)
		}
		sorted := slices.Sorted(slices.Values(counts))
		for n := range counts {
			if got := nthSmallest(slices.Clone(counts), n+1); got != sorted[n] {
				t.Fatalf("number %d of %v is %d", n+1, counts, got)
			}
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	keys := make([][]byte, 1<<12)
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 100_000)
	for i := range keys {
		keys[i] = fmt.Append(nil, "k", z.Uint64())
	}
	s := New(64)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Add(keys[i%len(keys)])
	}
}
