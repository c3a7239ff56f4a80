package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// discard is a ResponseWriter that costs nothing, with a header that is kept
// between requests as a server's is allocated anew: what is measured is ours.
type discard struct {
	h    http.Header
	next *http.Request

	status int
}

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

func (d *discard) reset() {
	for k := range d.h {
		delete(d.h, k)
	}
}

// request runs one request as an adapter does.
func (d *discard) request(l *stint.Limiter, r *http.Request) bool {
	d.reset()
	passed := false
	l.Serve(d, r, func(_ http.ResponseWriter, r *http.Request) { d.next, passed = r, true })
	return passed
}

// ample never denies in a benchmark.
func ample(opts ...stint.RateOption) stint.Limit {
	return stint.Rate(1_000_000, time.Second, append(opts, stint.WithBurst(1_000_000_000))...)
}

// The paths of a request, and how many allocations they may take; what is cut off larger
// pieces isn't one.
var paths = []struct {
	name    string
	opts    []stint.Option
	allowed bool
	allocs  float64
}{
	{"Allowed", []stint.Option{ample()}, true, 1},
	{"AllowedWithoutPermit", []stint.Option{ample(), stint.WithoutPermit()}, true, 0},
	{"AllowedRouted", []stint.Option{
		ample(), stint.WithoutPermit(), stint.WithRoute("POST /login", ample()), stint.WithRoute("api.example.com/", ample()),
	}, true, 0},
	{"AllowedNoHeaders", []stint.Option{ample(), stint.WithoutPermit(), stint.WithHeaders(stint.NoHeaders)}, true, 0},
	{"AllowedTwoLimits", []stint.Option{ample(), stint.Quota(1<<30, stint.Daily)}, true, 2},
	{"AllowedThreeLimits", []stint.Option{ample(), stint.Quota(1<<30, stint.Daily), stint.Rate(1_000_000, time.Minute, stint.WithBurst(1_000_000_000))}, true, 3},
	{"AllowedRateAndSlot", []stint.Option{ample(), stint.Concurrency(4)}, true, 2},
	{"AllowedRateQuotaAndSlot", []stint.Option{ample(), stint.Quota(1<<30, stint.Daily), stint.Concurrency(4)}, true, 3},
	{"AllowedThatMayWait", []stint.Option{ample(stint.WithMaxWait(time.Second))}, true, 1},
	{"AllowedSlotThatMayWait", []stint.Option{stint.Concurrency(4, stint.WithQueue(10))}, true, 1},
	{"AllowedLegacy", []stint.Option{ample(), stint.WithHeaders(stint.XRateLimitHeaders), stint.WithoutPermit()}, true, 0},
	{"AllowedBan", []stint.Option{ample(), stint.Ban(10, time.Minute, stint.WithBanFor(time.Hour))}, true, 2},
	{"AllowedConcurrency", []stint.Option{stint.Concurrency(4)}, true, 1},
	{"AllowedConcurrencyFairQueue", []stint.Option{stint.Concurrency(4, stint.WithQueue(10), stint.WithFairQueue(stint.Header("X-Tenant")))}, true, 1},
	{"AllowedAdaptive", []stint.Option{stint.AdaptiveConcurrency(1, 100)}, true, 6},
	{"Banned", []stint.Option{stint.Rate(1, 700*24*time.Hour), stint.Ban(1, time.Hour, stint.WithBanFor(365*24*time.Hour))}, false, 0},
	{"Denied", []stint.Option{stint.Rate(1, 700*24*time.Hour)}, false, 0},
	{"DeniedTwoLimits", []stint.Option{stint.Rate(1, 700*24*time.Hour), ample()}, false, 0},
}

func BenchmarkHTTP(b *testing.B) {
	for _, path := range paths {
		b.Run(path.name, func(b *testing.B) {
			l := limiter(b, append(path.opts, theKey)...)
			w, r := &discard{h: http.Header{}}, get("/")
			w.request(l, r)
			b.ReportAllocs()
			for b.Loop() {
				if w.request(l, r) != path.allowed {
					b.Fatal("the other path")
				}
			}
		})
	}
	b.Run("AllowedConcurrencyShares", func(b *testing.B) {
		l := limiter(b, theKey, stint.Concurrency(4, stint.WithQueue(10), stint.WithShare(1, 25)))
		w, r := &discard{h: http.Header{}}, get("/")
		b.ReportAllocs()
		for b.Loop() {
			w.request(l, r)
		}
	})
	b.Run("AllowedWhileOthersWait", func(b *testing.B) {
		l := limiter(b, theKey, stint.Concurrency(4, stint.WithQueue(1000), stint.WithMaxWait(time.Hour)))
		ctx, cancel := context.WithCancel(b.Context())
		for range 8 {
			go func() {
				if p, err := l.Take(ctx, "others", 1); err == nil {
					<-ctx.Done()
					p.Done()
				}
			}()
		}
		for waiting := 0; waiting < 4; waiting, _ = l.Lines() {
			time.Sleep(time.Millisecond) // in real time, which a benchmark measures
		}
		w, r := &discard{h: http.Header{}}, get("/")
		b.ReportAllocs()
		for b.Loop() {
			w.request(l, r)
		}
		cancel()
		for waiting := 1; waiting > 0; waiting, _ = l.Lines() {
			time.Sleep(time.Millisecond) // in real time, which a benchmark measures
		}
	})
	b.Run("Routed", func(b *testing.B) {
		l := limiter(b, theKey, ample(), stint.WithoutPermit(), stint.WithRoute("POST /login", ample()), stint.WithRoute("GET /a/{id}", ample()))
		w, r := &discard{h: http.Header{}}, get("/")
		b.ReportAllocs()
		for b.Loop() {
			w.request(l, r)
		}
	})
	b.Run("AllowedParallel", func(b *testing.B) {
		l := limiter(b, theKey, ample())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			w, r := &discard{h: http.Header{}}, get("/")
			for pb.Next() {
				w.request(l, r)
			}
		})
	})
}

// An observer that does nothing.
func BenchmarkObserved(b *testing.B) {
	for _, path := range paths {
		b.Run(path.name, func(b *testing.B) {
			l := limiter(b, append(path.opts, theKey, stint.WithObserver(func(stint.Event) {}))...)
			w, r := &discard{h: http.Header{}}, get("/")
			w.request(l, r)
			b.ReportAllocs()
			for b.Loop() {
				if w.request(l, r) != path.allowed {
					b.Fatal("the other path")
				}
			}
		})
	}
}

// A limit costs as much among ten thousand as among ten.
func BenchmarkManyLimits(b *testing.B) {
	for _, keys := range []string{"one key", "many keys"} {
		for _, n := range []int{10, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s, %d limits", keys, n), func(b *testing.B) {
				opts := []stint.Option{theKey, stint.WithHeaders(stint.NoHeaders)}
				for i := range n {
					of := []stint.RateOption{stint.WithName("limit" + strconv.Itoa(i))}
					if keys == "many keys" {
						of = append(of, stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return strconv.Itoa(i), nil })))
					}
					opts = append(opts, stint.Rate(1_000_000, time.Second, of...))
				}
				l := limiter(b, opts...)
				w, r := &discard{h: http.Header{}}, get("/")
				w.request(l, r)
				for b.Loop() {
					w.request(l, r)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/limit")
			})
		}
	}
}

func BenchmarkAllow(b *testing.B) {
	l := limiter(b, theKey, ample())
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Allow(ctx, "tenant-7", 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllowDenied(b *testing.B) {
	l := limiter(b, theKey, stint.Rate(1, 700*24*time.Hour))
	ctx := context.Background()
	_ = l.Allow(ctx, "tenant-7", 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Allow(ctx, "tenant-7", 1); err == nil {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkTake(b *testing.B) {
	for name, limit := range map[string]stint.Limit{"Rate": ample(), "Slot": stint.Concurrency(4)} {
		b.Run(name, func(b *testing.B) {
			l := limiter(b, theKey, limit)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				p, err := l.Take(ctx, "tenant-7", 1)
				if err != nil {
					b.Fatal(err)
				}
				p.Done()
			}
		})
	}
}

func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and pools lose things on purpose")
	}
	for _, path := range paths {
		t.Run(path.name, func(t *testing.T) {
			l := limiter(t, append(path.opts, theKey)...)
			w, r := &discard{h: http.Header{}}, get("/")
			for range 100 { // fill pools and maps
				w.request(l, r)
			}
			if got := testing.AllocsPerRun(1000, func() { w.request(l, r) }); got > path.allocs {
				t.Errorf("%v allocations, want %v at the most", got, path.allocs)
			}
		})
	}
	t.Run("Allow", func(t *testing.T) {
		for _, opts := range [][]stint.Option{
			{theKey, ample()},
			{theKey, ample(), stint.Quota(1<<30, stint.Daily)},
			{stint.WithKey(stint.Global()), ample(), stint.Quota(1<<30, stint.Daily)},
		} {
			l := limiter(t, opts...)
			if got := testing.AllocsPerRun(1000, func() { _ = l.Allow(t.Context(), "k", 1) }); got > 0 {
				t.Errorf("%v allocations, want none", got)
			}
		}
	})
	t.Run("Take", func(t *testing.T) {
		l := limiter(t, theKey, ample())
		if got := testing.AllocsPerRun(1000, func() { _, _ = l.Take(t.Context(), "k", 1) }); got > 1 {
			t.Errorf("%v allocations, want 1 at the most", got)
		}
	})
}

// New and Update of a limiter with many routes: their time is linear in the number of routes.
func BenchmarkRoutes(b *testing.B) {
	const n = 10_000
	named := func(i int) stint.LimitOption { return stint.WithName("r" + strconv.Itoa(i)) }
	rate := func(i int) stint.RouteOption { return stint.Rate(10, time.Second, named(i)) }
	for _, shape := range []struct {
		name, pattern string
		option        func(i int) stint.RouteOption
		more          []stint.Option
	}{
		{"text", "GET /api/r%d", rate, nil},
		{"wildcard", "GET /api/r%d/{id}", rate, nil},
		{"tenant", "POST /{tenant}/r%d/{id}", rate, nil},
		{"below", "/r%d/", rate, nil},
		{"rest", "/{tenant}/r%d/{path...}", rate, nil},
		{"host", "h%d.example.com/", rate, nil},
		{"unnamed", "/r%d", func(int) stint.RouteOption { return stint.Rate(10, time.Second) }, nil},
		{"cost", "/r%d/", func(i int) stint.RouteOption { return stint.WithFixedCost(2) }, nil},
		{"only", "/r%d/", func(i int) stint.RouteOption { return stint.Only(stint.Rate(10, time.Second, named(i))) }, nil},
		{"slots", "/r%d/", func(i int) stint.RouteOption { return stint.Concurrency(10, stint.WithQueue(5), named(i)) }, nil},
		{"store", "/r%d/", rate, []stint.Option{stint.WithStore(memstore.New())}},
	} {
		opts := append([]stint.Option{stint.Rate(100, time.Second, stint.WithName("all")), stint.WithKey(stint.Global())}, shape.more...)
		for i := range n {
			opts = append(opts, stint.WithRoute(fmt.Sprintf(shape.pattern, i), shape.option(i)))
		}
		b.Run(shape.name+"/new", func(b *testing.B) {
			for b.Loop() {
				if _, err := stint.New(opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(shape.name+"/update", func(b *testing.B) {
			l := limiter(b, opts...)
			for b.Loop() {
				if err := l.Update(opts[2+len(shape.more):]...); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(shape.name+"/remove", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l := limiter(b, opts...)
				b.StartTimer()
				if err := l.Update(stint.WithoutRoutes()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
