package memory_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/store"
)

var (
	ctx  = context.Background()
	sink atomic.Int64
)

func newLimit(tb testing.TB, spec store.Spec) *store.Limit {
	tb.Helper()
	if spec.Name == "" {
		spec.Name = "test"
	}
	l, err := store.NewLimit(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// rate never runs dry in a benchmark.
func rate(tb testing.TB, name string) *store.Limit {
	return newLimit(tb, store.Spec{Name: name, Units: 1000, Period: time.Second, Burst: store.MaxCost})
}

// addresses are n different keys of the usual length.
func addresses(tb testing.TB, n int) []string {
	tb.Helper()
	keys, seen := make([]string, n), make(map[string]bool, n)
	for i := range keys {
		b := []byte("10.")
		b = strconv.AppendInt(b, int64(i>>16), 10)
		b = strconv.AppendInt(append(b, '.'), int64(i>>8&255), 10)
		b = strconv.AppendInt(append(b, '.'), int64(i&255), 10)
		keys[i] = string(b)
		seen[keys[i]] = true
	}
	if len(seen) != n {
		tb.Fatalf("%d keys of %d differ", len(seen), n)
	}
	return keys
}

// BenchmarkClock measures reading the time, which every decision has to.
func BenchmarkClock(b *testing.B) {
	base := time.Now()
	var last time.Duration
	for b.Loop() {
		last = time.Since(base)
	}
	sink.Add(int64(last))
}

// alone is a charge and its result in cache lines of their own, or goroutines would slow
// each other down where they write them.
func alone(c store.Charge) ([]store.Charge, []store.Result) {
	of := new(struct {
		_       [128]byte
		charges [1]store.Charge
		results [1]store.Result
		_       [128]byte
	})
	of.charges[0] = c
	return of.charges[:], of.results[:]
}

func BenchmarkHotKey(b *testing.B) {
	s, l := memory.New(memory.Config{}), rate(b, "hot")
	charges, results := alone(store.Charge{Key: "203.0.113.7", Limit: l, Cost: 1})
	b.ReportAllocs()
	for b.Loop() {
		s.Take(ctx, charges, results)
	}
	if !results[0].OK {
		b.Fatal("denied")
	}
}

func BenchmarkHotKeyParallel(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	s, l := memory.New(memory.Config{}), rate(b, "hot")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		charges, results := alone(store.Charge{Key: "203.0.113.7", Limit: l, Cost: 1})
		for pb.Next() {
			s.Take(ctx, charges, results)
			if !results[0].OK {
				b.Error("denied")
			}
		}
	})
}

// A state that doesn't fit a word is decided with a lock held.
func BenchmarkWindow(b *testing.B) {
	s, l := memory.New(memory.Config{}), newLimit(b, store.Spec{Algorithm: store.FixedWindow, Units: store.MaxCost, Period: time.Hour})
	for _, goroutines := range []int{1, 2, 8} {
		b.Run(strconv.Itoa(goroutines), func(b *testing.B) {
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					charges, results := alone(store.Charge{Key: "203.0.113.7", Limit: l, Cost: 1})
					for range b.N / goroutines {
						s.Take(ctx, charges, results)
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkDenied(b *testing.B) {
	s := memory.New(memory.Config{})
	l := newLimit(b, store.Spec{Units: 1, Period: 24 * time.Hour})
	charges, results := alone(store.Charge{Key: "203.0.113.7", Limit: l, Cost: 1})
	s.Take(ctx, charges, results)
	b.ReportAllocs()
	for b.Loop() {
		s.Take(ctx, charges, results)
	}
	if results[0].OK {
		b.Fatal("admitted")
	}
}

// uniform and zipf are orders in which 100,000 keys are asked for.
func uniform(n int) func() int { return func() int { return rand.IntN(n) } }

func zipf(n int) func() int {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(n-1))
	return func() int { return int(z.Uint64()) }
}

func BenchmarkManyKeys(b *testing.B) {
	for _, order := range []struct {
		name string
		of   func(int) func() int
	}{{"uniform", uniform}, {"zipf", zipf}} {
		for _, goroutines := range []int{1, 2} {
			b.Run(order.name+"/"+strconv.Itoa(goroutines), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
				keys := addresses(b, 100_000)
				s := memory.New(memory.Config{})
				l := newLimit(b, store.Spec{Units: 1000, Period: 24 * time.Hour, Burst: 1_000_000})
				next := order.of(len(keys))
				picks := make([]int, 1<<20)
				asked := make(map[int]bool)
				for i := range picks {
					picks[i] = next()
					asked[picks[i]] = true
				}
				charges, results := alone(store.Charge{Limit: l, Cost: 1})
				for i := range asked {
					charges[0].Key = keys[i]
					s.Take(ctx, charges, results)
				}
				if n := s.Stats().Keys; n != int64(len(asked)) || n < 10_000 {
					b.Fatalf("%d keys in the store, %d asked for", n, len(asked))
				}
				b.ReportAllocs()
				b.ResetTimer()
				var start atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					charges, results := alone(store.Charge{Limit: l, Cost: 1})
					for i := int(start.Add(1)) * 77777; pb.Next(); i++ {
						charges[0].Key = keys[picks[i&(len(picks)-1)]]
						s.Take(ctx, charges, results)
					}
				})
			})
		}
	}
}

// BenchmarkInsert charges a key never seen each time, up to a million, and
// begins again with an empty store.
func BenchmarkInsert(b *testing.B) {
	keys := addresses(b, 1_000_000)
	l := newLimit(b, store.Spec{Units: 1, Period: 24 * time.Hour})
	charges, results := alone(store.Charge{Limit: l, Cost: 1})
	s, i := memory.New(memory.Config{}), 0
	b.ReportAllocs()
	for b.Loop() {
		if i == len(keys) {
			b.StopTimer()
			s, i = memory.New(memory.Config{}), 0
			b.StartTimer()
		}
		charges[0].Key = keys[i]
		i++
		s.Take(ctx, charges, results)
	}
}

func BenchmarkLimits(b *testing.B) {
	for _, n := range []int{2, 3, 8} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := memory.New(memory.Config{})
			charges, results := make([]store.Charge, n), make([]store.Result, n)
			for i := range charges {
				charges[i] = store.Charge{Key: "203.0.113.7", Limit: rate(b, "limit"+strconv.Itoa(i)), Cost: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Take(ctx, charges, results)
			}
		})
	}
}

// BenchmarkQuota is a quota of the calendar, alone and beside a rate.
func BenchmarkQuota(b *testing.B) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		window store.Window
	}{{"Daily", store.Daily}, {"Monthly", store.Monthly}, {"DailyInBerlin", store.Daily.In(berlin)}} {
		quota := store.Charge{Key: "203.0.113.7", Cost: 1, Limit: newLimit(b, store.Spec{
			Name: "quota", Algorithm: store.FixedWindow, Units: store.MaxCost, Window: tc.window,
		})}
		for name, charges := range map[string][]store.Charge{
			"": {quota}, "AndRate": {{Key: "203.0.113.7", Limit: rate(b, "rate"), Cost: 1}, quota},
		} {
			b.Run(tc.name+name, func(b *testing.B) {
				s, results := memory.New(memory.Config{}), make([]store.Result, len(charges))
				b.ReportAllocs()
				for b.Loop() {
					s.Take(ctx, charges, results)
				}
			})
		}
	}
}

// BenchmarkHeap reports the bytes of heap for each of a million keys, and the
// most there were on the way, from 100,000 on.
func BenchmarkHeap(b *testing.B) {
	keys := addresses(b, 1_000_000)
	for _, algorithm := range []store.Algorithm{store.TokenBucket, store.FixedWindow, store.SlidingLog} {
		b.Run(algorithm.String(), func(b *testing.B) {
			l := newLimit(b, store.Spec{Algorithm: algorithm, Units: 1, Period: 24 * time.Hour})
			var last, most float64
			for b.Loop() {
				last, most = heapPerKey(b, keys, l)
			}
			b.ReportMetric(last, "B/key")
			b.ReportMetric(most, "B/key-most")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func heapPerKey(tb testing.TB, keys []string, l *store.Limit) (last, most float64) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	charges, results := alone(store.Charge{Limit: l, Cost: 1})
	before := heap()
	s := memory.New(memory.Config{})
	for i, key := range keys {
		charges[0].Key = key
		s.Take(ctx, charges, results)
		if n := i + 1; n >= 100_000 && n%50_000 == 0 {
			last = float64(heap()-before) / float64(n)
			most = math.Max(most, last)
		}
	}
	if n := s.Stats().Keys; n != int64(len(keys)) {
		tb.Fatalf("%d keys in the store, not %d", n, len(keys))
	}
	runtime.KeepAlive(s)
	return last, most
}

// BenchmarkUpdate reports how much memory a key takes before and after its limit gets new
// numbers, and how long its charges take.
func BenchmarkUpdate(b *testing.B) {
	keys := addresses(b, 1_000_000)
	old := newLimit(b, store.Spec{Units: 1000, Period: time.Minute})
	updated := newLimit(b, store.Spec{Units: 2000, Period: time.Minute})
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		s := memory.New(memory.Config{})
		charge := func(l *store.Limit, cost int64) time.Duration {
			charges, results := alone(store.Charge{Limit: l, Cost: cost})
			began := time.Now()
			for _, key := range keys {
				charges[0].Key = key
				s.Take(ctx, charges, results)
			}
			return time.Since(began)
		}
		perKey := func(name string, took time.Duration) {
			b.ReportMetric((heap()-before)/float64(len(keys)), "B/key-"+name)
			b.ReportMetric(float64(took)/float64(len(keys)), "ns-"+name)
		}
		perKey("old", charge(old, 900))
		perKey("updated", charge(updated, 1))
		runtime.KeepAlive(s)
	}
	b.ReportMetric(0, "ns/op")
}
