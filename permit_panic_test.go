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

// panicker makes the functions of an application panic once: at the call with the number at, counted over
// all of them.
type panicker struct {
	mu    sync.Mutex
	calls int
	at    int
	where string
}

func (f *panicker) call(format string, args ...any) {
	f.mu.Lock()
	f.calls++
	panics := f.calls == f.at
	if panics {
		f.where = fmt.Sprintf(format, args...)
	}
	f.mu.Unlock()
	if panics {
		panic(f)
	}
}

// options returns options with every function that an application can give.
func (f *panicker) options() []stint.Option {
	return []stint.Option{
		stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { f.call("key"); return "k", nil })),
		stint.WithSkip(func(*http.Request) bool { f.call("skip"); return false }),
		stint.WithBlock(func(*http.Request) bool { f.call("block"); return false }),
		stint.WithCost(func(*http.Request) int64 { f.call("cost"); return 1 }),
		stint.WithPriority(func(*http.Request) int { f.call("priority"); return 1 }),
		stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			f.call("limits")
			return []stint.Limit{manyMore}, nil
		}),
		stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.call("deny") })),
		stint.WithObserver(func(e stint.Event) { f.call("%v", e.Kind) }),
	}
}

var manyMore = stint.Rate(1000, time.Second, stint.WithName("more"))

func (f *panicker) settle(cost int64) stint.ChargeOption {
	return stint.WithSettle(func(*http.Request, int, int64) int64 { f.call("settle"); return cost })
}

// If a function of the application panics, only its request is lost. Each scenario runs once for each call of such a
// function, which panics then.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	second, wait := time.Second, stint.WithMaxWait(1500*time.Millisecond)
	scenarios := []struct {
		name   string
		limits func(*panicker) []stint.Option
		inner  func(*panicker) []stint.Option // of a limiter further in
		down   bool                           // the store is
		fail   int                            // so many requests come one after the other, and fail
		raise  bool                           // handlers raise the cost to 3
		turn   time.Duration                  // the next may have to wait for so long
	}{
		{name: "turns", turn: second, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Rate(1, second, wait, f.settle(1))}
		}},
		{name: "a queue of turns", turn: second, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Rate(1, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(2))}
		}},
		{name: "slots", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait), stint.Rate(100, second, f.settle(0))}
		}},
		{name: "shares", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait, stint.WithShare(1, 50))}
		}},
		{name: "an adaptive limit", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait), stint.Rate(100, second, f.settle(-7))}
		}},
		{name: "an adaptive limit with shares", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait, stint.WithShare(1, 50))}
		}},
		{name: "all of them", turn: second, limits: func(f *panicker) []stint.Option {
			return []stint.Option{
				stint.Concurrency(1, stint.WithQueue(2), wait, stint.WithShare(0, 50)), stint.Rate(1, second, wait, f.settle(1)),
				stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2), wait), stint.Concurrency(2, stint.WithName("others"), wait),
			}
		}},
		{name: "reports", limits: func(f *panicker) []stint.Option {
			return []stint.Option{
				stint.Concurrency(1), stint.Rate(1, time.Hour, stint.WithDryRun(true)), stint.Ban(1, time.Minute, stint.WithBanFor(time.Hour), stint.WithDryRun(true)),
				stint.Rate(100, second, f.settle(0)),
			}
		}},
		{name: "tenants", limits: func(f *panicker) []stint.Option {
			tenant := stint.KeyFunc(func(r *http.Request) (string, error) { f.call("tenant"); return r.Header.Get("X-Tenant"), nil })
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait, stint.WithFairQueue(tenant)), stint.Rate(100, second, f.settle(0))}
		}},
		{name: "limits that are near", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait), stint.Rate(100, second, stint.WithNearLimit(1, 2, 3), f.settle(3))}
		}},
		{name: "raises", raise: true, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(2, stint.WithQueue(2), wait), stint.Rate(100, second, wait, stint.WithNearLimit(1, 2, 3))}
		}},
		{name: "raises that wait", raise: true, turn: 3 * second, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Rate(3, 3*second, wait, stint.WithNearLimit(50, 100), f.settle(1))}
		}},
		{name: "bytes", limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithQueue(2), wait), stint.Bandwidth(2048, stint.WithBurst(4096), stint.WithDirection(stint.Both))}
		}},
		{name: "limits that change", fail: 21, limits: func(f *panicker) []stint.Option {
			window := stint.WithSampleWindow(100 * time.Millisecond)
			return []stint.Option{
				stint.Concurrency(1), stint.Rate(100, second, f.settle(0)), stint.AdaptiveConcurrency(1, 50, window),
				stint.AdaptiveConcurrency(1, 50, window, stint.WithName("others"), stint.WithShare(1, 50)),
			}
		}},
		{name: "nested", turn: second, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(2, stint.WithQueue(2), wait), stint.AdaptiveConcurrency(3, 3)}
		}, inner: func(f *panicker) []stint.Option {
			return []stint.Option{stint.Concurrency(1, stint.WithName("in"), stint.WithQueue(1), wait), stint.Rate(1, second, wait)}
		}},
		{name: "without a store", down: true, limits: func(f *panicker) []stint.Option {
			return []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithName("adaptive"), stint.WithQueue(2), wait), stint.Rate(100, second, stint.WithName("rate"))}
		}},
	}
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			play := func(t *testing.T, at int) (calls int) {
				f := &panicker{}
				opts := append(sc.limits(f), f.options()...)
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
					if sc.raise {
						_ = stint.FromContext(r.Context()).Extend(r.Context(), 3)
					}
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
					sendRecovering(site, get("/"))
				}
				if sc.fail == 0 {
					sendFive(t, site)
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
					t.Fatalf("%d calls: the scenario calls too few functions", calls)
				}
				for at := 1; at <= calls; at++ {
					play(t, at)
				}
			})
		})
	}
}

// sendFive sends five requests at once. The third cancels its context after 300 ms.
func sendFive(t *testing.T, site http.Handler) {
	var wg sync.WaitGroup
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		if i == 2 {
			time.AfterFunc(300*time.Millisecond, cancel)
		}
		wg.Go(func() {
			defer cancel()
			sendRecovering(site, get("/").WithContext(ctx))
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
}

// sendRecovering sends a request, and recovers from a panicker's panic as a server would.
func sendRecovering(site http.Handler, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(*panicker); !ok {
				panic(v)
			}
		}
	}()
	site.ServeHTTP(httptest.NewRecorder(), r)
}

// panicInStore panics in place of a call.
func panicInStore(*asks) error { panic("the store") }

// If a waiting request panics, its slot is given back, and observers are notified that the wait has ended. The panic
// comes from the store when it is called again, or after the wait, before the event of the outcome.
func TestPanicEndsTheWait(t *testing.T) {
	for _, test := range []struct {
		name, panics string
		wait         func(t *testing.T, l *stint.Limiter, b *spy)
	}{
		{"in the wait", "the store", func(t *testing.T, l *stint.Limiter, b *spy) {
			n := 0
			b.OnTake = func(c *asks) error {
				if n++; n <= 2 { // on arrival, and in the line before the wait begins
					return c.Pass()
				}
				b.OnTake = nil
				return panicInStore(c)
			}
			_, _ = l.Wait(t.Context(), "k", 1)
		}},
		{"after it", "no header", func(t *testing.T, l *stint.Limiter, b *spy) {
			l.Serve(noHeader{httptest.NewRecorder()}, get("/"), func(http.ResponseWriter, *http.Request) { t.Error("admitted") })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSpy()
				l := limiter(t, stint.Concurrency(1, stint.WithName("slots"), stint.WithQueue(1)), theKey, stint.WithStore(b))
				var sent []string
				l.Observe(func(e stint.Event) {
					if e.Kind == stint.EventWaiting || e.EndsWait {
						sent = append(sent, e.Kind.String())
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
				if want := []string{"Waiting", "Canceled"}; !slices.Equal(sent, want) {
					t.Errorf("sent %q, want %q", sent, want)
				}
				take(t, l, 1).Done() // or the slot isn't given back
			})
		})
	}
}

// noHeader is a writer whose Header panics.
type noHeader struct{ http.ResponseWriter }

func (noHeader) Header() http.Header { panic("no header") }

// inFlight counts requests by their events.
type inFlight struct{ begun, now int }

func (g *inFlight) observe(e stint.Event) {
	switch e.Kind {
	case stint.EventAdmitted:
		g.begun++
		g.now++
	case stint.EventEnded:
		g.now--
	}
}

// If an observer panics, or the store while it settles, every observer still gets the EventEnded of each request whose
// EventAdmitted it got.
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
				for at := 1; at <= 4; at++ {
					s := newSpy()
					l := limiter(t, append([]stint.Option{theKey, stint.WithStore(s)}, kind.opts...)...)
					var counters [2]inFlight
					l.Observe(counters[0].observe)
					if at == 4 { // instead of an observer
						s.OnSettle = panicInStore
					}
					left := at
					l.Observe(func(stint.Event) {
						if left--; left == 0 && at < 4 {
							panic("an observer")
						}
					})
					l.Observe(counters[1].observe)
					func() {
						defer func() { _ = recover() }()
						way.run(l)
					}()
					s.OnSettle = nil
					for i, g := range counters {
						if g.now != 0 || g.begun != counters[0].begun {
							t.Errorf("panic %d: observer %d has counted %d, and has %d in flight", at, i, g.begun, g.now)
						}
					}
					noLines(t, l)
					if n := l.Held(); n != 0 {
						t.Errorf("panic %d: shares of %d keys are still counted", at, n)
					}
				}
			})
		}
	}
}
