package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// fuse has the functions of an application panic at one moment: when one of them
// is called for the at-th time, counted over all of them.
type fuse struct {
	mu    sync.Mutex
	calls int
	at    int
	where string
}

func (f *fuse) burn(format string, args ...any) {
	f.mu.Lock()
	f.calls++
	blown := f.calls == f.at
	if blown {
		f.where = fmt.Sprintf(format, args...)
	}
	f.mu.Unlock()
	if blown {
		panic(f)
	}
}

// functions are options with every function that an application can give.
func (f *fuse) functions() []stint.Option {
	return []stint.Option{
		stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { f.burn("key"); return "k", nil })),
		stint.WithSkip(func(*http.Request) bool { f.burn("skip"); return false }),
		stint.WithBlock(func(*http.Request) bool { f.burn("block"); return false }),
		stint.WithCost(func(*http.Request) int64 { f.burn("cost"); return 1 }),
		stint.WithPriority(func(*http.Request) int { f.burn("priority"); return 1 }),
		stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			f.burn("limits")
			return []stint.Limit{manyMore}, nil
		}),
		stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.burn("deny") })),
		stint.WithObserver(func(e stint.Event) { f.burn("%v", e.Kind) }),
	}
}

var manyMore = stint.Rate(1000, time.Second, stint.WithName("more"))

func (f *fuse) settle(cost int64) stint.ChargeOption {
	return stint.WithSettle(func(*http.Request, int, int64) int64 { f.burn("settle"); return cost })
}

// A function of the application may panic whenever it is called: the request is lost,
// and nothing else. Each scenario runs once for each call of such a function, which
// panics then.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	second, wait := time.Second, stint.WithMaxWait(1500*time.Millisecond)
	scenarios := []struct {
		name   string
		limits func(*fuse) []stint.Option
		inner  func(*fuse) []stint.Option // of a limiter further in
		down   bool                       // the store is
		fail   int                        // so many requests come one after the other, and fail
		turn   time.Duration              // the next may have to wait for so long
	}{
		{name: "turns", turn: second, limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Rate(1, second, wait, f.settle(1))}
		}},
		{name: "a queue of turns", turn: second, limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Rate(1, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(2))}
		}},
		{name: "slots", limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait), stint.Rate(100, second, f.settle(0))}
		}},
		{name: "shares", limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait, stint.WithShare(1, 50))}
		}},
		{name: "an adaptive limit", limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait), stint.Rate(100, second, f.settle(-7))}
		}},
		{name: "an adaptive limit with shares", limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait, stint.WithShare(1, 50))}
		}},
		{name: "all of them", turn: second, limits: func(f *fuse) []stint.Option {
			return []stint.Option{
				stint.Concurrency(1, stint.WithQueue(2), wait, stint.WithShare(0, 50)), stint.Rate(1, second, wait, f.settle(1)),
				stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait), stint.Concurrency(2, stint.WithName("others"), wait),
			}
		}},
		{name: "reports", limits: func(f *fuse) []stint.Option {
			return []stint.Option{
				stint.Concurrency(1), stint.Rate(1, time.Hour, stint.WithDryRun(true)), stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour), stint.WithDryRun(true)),
				stint.Rate(100, second, f.settle(0)),
			}
		}},
		{name: "bytes", limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait), stint.Bandwidth(2048, stint.WithBurst(4096), stint.WithDirection(stint.Both))}
		}},
		{name: "limits that change", fail: 21, limits: func(f *fuse) []stint.Option {
			window := stint.WithSampleWindow(100 * time.Millisecond)
			return []stint.Option{
				stint.Concurrency(1), stint.Rate(100, second, f.settle(0)), stint.AdaptiveConcurrency(1, 50, window),
				stint.AdaptiveConcurrency(1, 50, window, stint.WithName("others"), stint.WithShare(1, 50)),
			}
		}},
		{name: "nested", turn: second, limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Concurrency(2, stint.WithQueue(2), wait), stint.AdaptiveConcurrency(3, 3)}
		}, inner: func(f *fuse) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithName("in"), stint.WithQueue(1), wait), stint.Rate(1, second, wait)}
		}},
		{name: "without a store", down: true, limits: func(f *fuse) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithName("adaptive"), stint.WithQueue(2), wait), stint.Rate(100, second, stint.WithName("rate"))}
		}},
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			play := func(t *testing.T, at int) (calls int) {
				f := &fuse{}
				opts := append(sc.limits(f), f.functions()...)
				if sc.down {
					s := newSpy()
					s.FailWith(errDown)
					opts = append(opts, stint.WithStore(s))
				}
				l := limiter(t, opts...)
				serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if sc.fail > 0 {
						w.WriteHeader(http.StatusInternalServerError)
						time.Sleep(20 * time.Millisecond)
						return
					}
					_, _ = w.Write(make([]byte, 4096))
					time.Sleep(time.Second)
				})
				site := mount(l, serve)
				if sc.inner != nil {
					in, err := l.With(sc.inner(f)...)
					if err != nil {
						t.Fatal(err)
					}
					site, l = mount(l, mount(in, serve).ServeHTTP), in
				}
				f.calls, f.at = 0, at
				for range sc.fail {
					attempt(site, get("/"))
				}
				if sc.fail == 0 {
					crowd(t, site)
				}
				f.at = 0
				calls = f.calls

				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("%s panics: shares of %d keys are still counted", f.where, n)
				}
				if !sc.down {
					d, err := l.Peek(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range d.Limits {
						if s.InFlight != 0 {
							t.Errorf("%s panics: %d slots of %s are held", f.where, s.InFlight, s.Name)
						}
					}
				}
				start := time.Now()
				p, err := l.Take(t.Context(), "k", 1)
				if waited := time.Since(start); err != nil || waited > sc.turn {
					t.Errorf("%s panics: %v after %v for the next", f.where, err, waited)
				}
				p.Done()
				return calls
			}
			synctest.Test(t, func(t *testing.T) {
				calls := play(t, 0)
				if calls < 10 {
					t.Fatalf("%d calls: the scenario asks nobody", calls)
				}
				for at := 1; at <= calls; at++ {
					play(t, at)
				}
			})
		})
	}
}

// crowd sends five requests at once: of those that have to wait the second gives
// up.
func crowd(t *testing.T, site http.Handler) {
	var wg sync.WaitGroup
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		if i == 2 {
			time.AfterFunc(300*time.Millisecond, cancel)
		}
		wg.Go(func() {
			defer cancel()
			attempt(site, get("/").WithContext(ctx))
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
}

// attempt sends a request, and takes a fuse's panic for what a server would.
func attempt(site http.Handler, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(*fuse); !ok {
				panic(v)
			}
		}
	}()
	site.ServeHTTP(httptest.NewRecorder(), r)
}

// burst is what panics in place of a call.
func burst(*asks) error { panic("the store") }

// A panic that goes through a request that waits ends the wait for its observers, and gives
// back what it has got: of a store that is asked again, or after the wait, before the
// request's outcome is told.
func TestPanicEndsTheWait(t *testing.T) {
	for _, test := range []struct {
		name, panics string
		wait         func(t *testing.T, l *stint.Limiter, b *spy)
	}{
		{"in the wait", "the store", func(t *testing.T, l *stint.Limiter, b *spy) {
			b.OnTake = func(c *asks) error {
				b.OnTake = func(c *asks) error {
					b.OnTake = nil
					return burst(c)
				}
				return c.Pass()
			}
			_, _ = l.Wait(t.Context(), "k", 1)
		}},
		{"after it", "no header", func(t *testing.T, l *stint.Limiter, b *spy) {
			l.Serve(headless{httptest.NewRecorder()}, get("/"), func(http.ResponseWriter, *http.Request) { t.Error("admitted") })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSpy()
				l := limiter(t, stint.Concurrency(1, stint.WithName("slots"), stint.WithQueue(1)), theKey, stint.WithStore(b))
				var told []string
				l.Observe(func(e stint.Event) {
					if e.Kind == stint.EventWaiting || e.EndsWait {
						told = append(told, e.Kind.String())
					}
				})
				held := take(t, l, 1)
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() {
						if got := recover(); got != test.panics {
							t.Errorf("recovered %v, want %s", got, test.panics)
						}
					}()
					test.wait(t, l, b)
				})
				synctest.Wait()
				held.Done()
				wg.Wait()
				if want := []string{"Waiting", "Canceled"}; !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
				take(t, l, 1).Done() // or the slot isn't given back
			})
		})
	}
}

// headless is a writer whose Header panics.
type headless struct{ http.ResponseWriter }

func (headless) Header() http.Header { panic("no header") }

// gauge counts requests in flight.
type gauge struct{ begun, flying int }

func (g *gauge) observe(e stint.Event) {
	switch e.Kind {
	case stint.EventAdmitted:
		g.begun++
		g.flying++
	case stint.EventEnded:
		g.flying--
	}
}

// An observer, or the store as it settles, may panic: those who count the requests in flight are
// told of the end of each whose beginning they were told of.
func TestPanicLeavesNoneInFlight(t *testing.T) {
	kinds := []struct {
		name string
		opts []stint.Option
	}{
		{"plain", []stint.Option{ample(stint.WithName("rate"))}},
		{"with a dry run", []stint.Option{ample(stint.WithName("rate")), stint.Rate(1, time.Hour, stint.WithName("dry"), stint.WithDryRun(true))}},
		{"slots", []stint.Option{stint.Concurrency(10, stint.WithName("slots"))}},
		{"an adaptive limit", []stint.Option{stint.AdaptiveConcurrency(1, 10, stint.WithName("adaptive"))}},
		{"bytes", []stint.Option{stint.Bandwidth(2048, stint.WithName("bytes"))}},
		{"settled by the response", []stint.Option{ample(stint.WithName("rate")), stint.WithSettle(stint.FailedOnly)}},
	}
	ways := []struct {
		name string
		run  func(l *stint.Limiter)
	}{
		{"Serve", func(l *stint.Limiter) {
			l.Serve(httptest.NewRecorder(), get("/"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
		}},
		{"Take", func(l *stint.Limiter) {
			if p, err := l.Take(context.Background(), "k", 1); err == nil {
				p.Done()
			}
		}},
		{"Allow", func(l *stint.Limiter) { _ = l.Allow(context.Background(), "k", 1) }},
	}
	for _, kind := range kinds {
		for _, way := range ways {
			t.Run(kind.name+" by "+way.name, func(t *testing.T) {
				for told := 1; told <= 4; told++ {
					s := newSpy()
					l := limiter(t, append([]stint.Option{theKey, stint.WithStore(s)}, kind.opts...)...)
					var gauges [2]gauge
					l.Observe(gauges[0].observe)
					if told == 4 { // instead of an observer
						s.OnSettle = burst
					}
					left := told
					l.Observe(func(stint.Event) {
						if left--; left == 0 && told < 4 {
							panic("an observer")
						}
					})
					l.Observe(gauges[1].observe)
					func() {
						defer func() { _ = recover() }()
						way.run(l)
					}()
					s.OnSettle = nil
					for i, g := range gauges {
						if g.flying != 0 || g.begun != gauges[0].begun {
							t.Errorf("trips at %d: observer %d has counted %d, and has %d in flight", told, i, g.begun, g.flying)
						}
					}
					noLines(t, l)
					if n := l.Held(); n != 0 {
						t.Errorf("trips at %d: shares of %d keys are still counted", told, n)
					}
				}
			})
		}
	}
}
