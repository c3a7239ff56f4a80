package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

func TestAdaptiveMisuse(t *testing.T) {
	for _, tt := range []struct {
		limit stint.Limit
		want  string
	}{
		{stint.AdaptiveConcurrency(0, 10), "AdaptiveConcurrency(0, 10): use a min of 1 or more"},
		{stint.AdaptiveConcurrency(5, 4), "AdaptiveConcurrency(5, 4): use"},
		{stint.AdaptiveConcurrency(1, 1_000_001), "a max from min to 1000000"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(11)), "WithInitialLimit(11): use 1 to 10"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(-1)), "WithInitialLimit(-1): use 1 to 10, the range of the limit"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithAdaptation(stint.Gradient2(0.9))), "Gradient2(0.9): use 1 to 100"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithAdaptation(stint.Gradient2(math.NaN()))), "Gradient2(NaN): use 1 to 100"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithSampleWindow(time.Millisecond)), "WithSampleWindow(1ms): use 100ms"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithAdaptation(stint.Adaptation{})), "WithAdaptation(Adaptation{}): use stint.Gradient2, stint.Vegas or stint.AIMD"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithAdaptation(stint.AIMD(0))), "AIMD(0s): use 1ms or more"},
		{stint.AdaptiveConcurrency(1, 10, stint.WithAdaptation(stint.AIMD(99*time.Microsecond))), "AIMD(99µs): use 1ms or more"},
		{stint.AdaptiveConcurrency(1, 10, nil), "option 1 is nil"},
	} {
		_, err := stint.New(tt.limit, theKey)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one error with %q", err, tt.want)
		}
	}
}

// status is where the limiter's adaptive limit stands.
func status(t testing.TB, l *stint.Limiter) stint.LimitStatus {
	t.Helper()
	d, err := l.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return d.Limits[len(d.Limits)-1]
}

// window lets n requests pass at once, each doing what it is told, and then
// what is needed for their window to end.
func window(t testing.TB, l *stint.Limiter, n int, do func(*stint.Permit)) {
	t.Helper()
	for range 2 {
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				p, err := l.Take(context.Background(), "k", 1)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = recover() }()
				defer p.Done()
				do(p)
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
	}
}

func lasts(d time.Duration) func(*stint.Permit) {
	return func(*stint.Permit) { time.Sleep(d) }
}

// How the outcome of a request changes the limit, which is 20 at first with 20 in use.
func TestAdaptiveSamples(t *testing.T) {
	slow := func(l *stint.Limiter, t *testing.T) {
		window(t, l, 20, lasts(100*time.Millisecond))
		window(t, l, 20, lasts(100*time.Millisecond))
	}
	aimd := func(timeout time.Duration) []stint.SlotOption {
		return []stint.SlotOption{stint.WithAdaptation(stint.AIMD(timeout))}
	}
	for _, tt := range []struct {
		name string
		do   func(*stint.Limiter, *testing.T)
		want int64
		why  stint.AdaptiveReason
		opts []stint.SlotOption
	}{
		{"within the timeout, for AIMD", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, lasts(5*time.Second))
			window(t, l, 20, lasts(5*time.Second))
		}, 23, stint.AdaptiveGrowing, aimd(5 * time.Second)},
		{"slower than the timeout, for AIMD", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, lasts(101*time.Millisecond))
		}, 18, stint.AdaptiveQueueing, aimd(100 * time.Millisecond)},
		{"dropped, for AIMD", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		}, 18, stint.AdaptiveDrops, aimd(5 * time.Second)},
		{"as usual", slow, 22, stint.AdaptiveGrowing, nil}, // three windows of a fifth of four
		{"slower", func(l *stint.Limiter, t *testing.T) {
			slow(l, t)
			window(t, l, 20, lasts(time.Second))
			window(t, l, 18, lasts(2*time.Second))
		}, 19, stint.AdaptiveQueueing, nil},
		{"less than half in use", func(l *stint.Limiter, t *testing.T) {
			slow(l, t)
			window(t, l, 10, lasts(100*time.Millisecond))
		}, 23, stint.AdaptiveUnused, nil},
		{"dropped", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		}, 10, stint.AdaptiveDrops, nil},
		{"panicking", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(*stint.Permit) { time.Sleep(time.Millisecond); panic("boom") })
		}, 10, stint.AdaptiveDrops, nil},
		{"panicking at once", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(*stint.Permit) { panic("boom") })
		}, 20, stint.AdaptiveStart, nil},
		{"dropped at once, as the handler says", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		}, 10, stint.AdaptiveDrops, nil},
		{"panicking, which the handler says is nothing", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) { p.Ignore(); panic("boom") })
		}, 20, stint.AdaptiveStart, nil},
		{"aborting", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(*stint.Permit) { panic(http.ErrAbortHandler) })
		}, 20, stint.AdaptiveStart, nil},
		{"ignored", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) { p.Ignore(); time.Sleep(time.Second) })
		}, 20, stint.AdaptiveStart, nil},
		{"detached", func(l *stint.Limiter, t *testing.T) {
			window(t, l, 20, func(p *stint.Permit) {
				release := p.Detach()
				time.Sleep(time.Second)
				release()
			})
		}, 20, stint.AdaptiveStart, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 100, tt.opts...), seen.Option())
				tt.do(l, t)
				s := status(t, l)
				if s.Capacity != tt.want || s.Reason != tt.why || s.InFlight != 0 || s.Remaining != s.Capacity {
					t.Errorf("%+v, want %d for %v", s, tt.want, tt.why)
				}
				last := int64(20)
				for _, e := range seen.All() {
					if e.Kind != stint.EventLimitChanged {
						continue
					}
					if e.Change.Limit != "adaptive" || e.Change.From != last || e.Change.To == last {
						t.Errorf("told of %+v after %d", e.Change, last)
					}
					last = e.Change.To
				}
				if last != tt.want {
					t.Errorf("told of a limit of %d last, want %d", last, tt.want)
				}
			})
		})
	}
}

// What a response shows about a request that took long enough to have waited for
// anything.
func TestAdaptiveResponses(t *testing.T) {
	for _, tt := range []struct {
		status int
		took   time.Duration
		why    stint.AdaptiveReason
	}{
		{500, time.Millisecond, stint.AdaptiveDrops},
		{503, 100 * time.Microsecond, stint.AdaptiveDrops},
		{500, 99 * time.Microsecond, stint.AdaptiveStart},
		{500, 0, stint.AdaptiveStart},
		{499, time.Millisecond, stint.AdaptiveUnused},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 100))
			for range 30 {
				through(l, get("/"), func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(tt.took)
					w.WriteHeader(tt.status)
				})
				time.Sleep(time.Second / 10)
			}
			if s := status(t, l); s.Reason != tt.why {
				t.Errorf("%d after %v: %v, want %v", tt.status, tt.took, s.Reason, tt.why)
			}
		})
	}
}

// What the end of a request's context shows. Outside HTTP it shows nothing: the context
// may only have bounded the wait.
func TestAdaptiveContexts(t *testing.T) {
	inTime := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), time.Minute)
	}
	late := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), time.Millisecond)
	}
	left := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		return ctx, cancel
	}
	for _, tt := range []struct {
		name    string
		ctx     func() (context.Context, context.CancelFunc)
		job     bool
		dropped bool
	}{
		{"in time", inTime, false, false},
		{"past its deadline", late, false, true},
		{"left early", left, false, false},
		{"a job in time", inTime, true, false},
		{"a job whose wait was bounded", late, true, false},
		{"a job whose wait was cut short", left, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 100), seen.Option())
				window(t, l, 20, lasts(100*time.Millisecond))
				for range 60 {
					ctx, cancel := tt.ctx()
					if tt.job {
						p, err := l.Take(ctx, "k", 1)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(100 * time.Millisecond)
						p.Done()
					} else {
						through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
							select {
							case <-r.Context().Done():
							case <-time.After(100 * time.Millisecond):
							}
						})
					}
					cancel()
				}
				dropped := false
				for _, e := range seen.All() {
					if e.Kind == stint.EventLimitChanged {
						dropped = dropped || e.Change.Reason == stint.AdaptiveDrops
						if c := e.Change; c.Reason == stint.AdaptiveGrowing && c.Latency != 100*time.Millisecond {
							t.Errorf("latency %v: what was cut short is in it", c.Latency)
						}
					}
				}
				if dropped != tt.dropped {
					t.Errorf("dropped %v: %v", dropped, seen.Kinds())
				}
			})
		})
	}
}

// Limits are decided together: all are charged or none.
func TestAdaptiveBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey,
			stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(2)), stint.Rate(4, time.Hour))
		a, b := take(t, l, 1), take(t, l, 1)
		d := b.Decision()
		if got := fmt.Sprintf("%s %d, %s %d of %d, %d in flight, %v", d.Limits[0].Name, d.Limits[0].Remaining,
			d.Limits[1].Name, d.Limits[1].Remaining, d.Limits[1].Capacity, d.Limits[1].InFlight, d.Limits[1].Reason); got !=
			"rate 2, adaptive 0 of 2, 2 in flight, start" {
			t.Error(got)
		}
		// The adaptive limit denies: the rate keeps its two.
		_, err := l.Take(t.Context(), "k", 1)
		if d := denied(t, err).Decision; d.Limit != "adaptive" || d.Limits[1].Allowed || !d.Limits[0].Allowed || d.Limits[0].Remaining != 2 || d.RetryAfter != time.Second {
			t.Errorf("%+v", d)
		}
		// Both deny, and both say so.
		_, err = l.Take(t.Context(), "k", 3)
		if d := denied(t, err).Decision; d.Limits[0].Allowed || d.Limits[1].Allowed || d.Limit != "rate" || d.RetryAfter != 15*time.Minute {
			t.Errorf("%+v", d)
		}
		a.Done()
		b.Done()
		// The rate denies: no slot stays.
		if _, err = l.Take(t.Context(), "k", 2); err != nil {
			t.Fatal("more than the limit of the moment, but alone: ", err)
		}
		if _, err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		take(t, l, 4).Done()
		for range 5 {
			_, err = l.Take(t.Context(), "k", 1)
			if d := denied(t, err).Decision; d.Limit != "rate" || !d.Limits[1].Allowed {
				t.Errorf("%+v", d)
			}
		}
		if s := status(t, l); s.InFlight != 0 || s.Remaining != 2 {
			t.Errorf("%+v: a request that was denied holds a slot", s)
		}
	})
}

func TestAdaptiveAloneAsksNoStore(t *testing.T) {
	sp := newSpy()
	sp.FailWith(errDown)
	l := limiter(t, theKey, stint.WithStore(sp), stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithName("adaptive")))
	p := take(t, l, 1)
	_, err := l.Take(t.Context(), "k", 1)
	denied(t, err)
	_, err = l.Take(t.Context(), "k", 11)
	if d := denied(t, err).Decision; d.RetryAfter != stint.Never {
		t.Errorf("%+v: more than max can never pass", d)
	}
	p.Done()
	p.Done()
	if _, err := l.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if s := status(t, l); s.Remaining != 1 {
		t.Errorf("%+v", s)
	}
	if takes, settles := sp.Counts(); takes+settles != 0 {
		t.Errorf("the store was asked %d times, settled %d times", takes, settles)
	}
}

// While the store is down, the limits of this process continue to decide.
func TestAdaptiveWithoutItsStore(t *testing.T) {
	sp := newSpy()
	sp.FailWith(errDown)
	seen := &events{}
	l := limiter(t, theKey, stint.WithStore(sp), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithName("adaptive")), seen.Option())
	p := take(t, l, 1)
	if d := p.Decision(); len(d.Limits) != 1 || d.Limits[0].InFlight != 1 {
		t.Errorf("%+v", d)
	}
	_, err := l.Take(t.Context(), "k", 1)
	if d := denied(t, err).Decision; len(d.Limits) != 1 || d.Limit != "adaptive" {
		t.Errorf("%+v", d)
	}
	p.Done()
	if got := codes(l, "GET", "/", 2); got != "200 200" {
		t.Error(got)
	}
	if got := seen.Kinds(); got != "StoreFailed Admitted StoreFailed Denied StoreFailed Admitted StoreFailed Admitted" {
		t.Error(got)
	}
	closed := limiter(t, theKey, stint.WithStore(sp), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithName("adaptive")), stint.WithFailurePolicy(stint.FailClosed))
	if got := codes(closed, "GET", "/", 2); got != "503 503" {
		t.Error(got)
	}
	sp.FailWith(nil)
	if got := codes(closed, "GET", "/", 1); got != "200" {
		t.Errorf("%s: the store's failure has kept the slot", got)
	}
}

func TestAdaptiveWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(100, time.Second),
			stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(2), stint.WithQueue(5), stint.WithMaxWait(3*time.Second)))
		start := time.Now()
		var mu sync.Mutex
		var log []string
		var wg sync.WaitGroup
		for i := range 7 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i == 3 {
				time.AfterFunc(time.Second, cancel)
			}
			wg.Go(func() {
				p, err := l.Take(ctx, "k", 1)
				mu.Lock()
				log = append(log, fmt.Sprintf("%v %d %v", time.Since(start), i, err == nil))
				mu.Unlock()
				if err == nil {
					time.Sleep(2 * time.Second)
					p.Done()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		slices.Sort(log) // goroutines that go on at one instant do so in any order
		if got, want := strings.Join(log, "|"), "0s 0 true|0s 1 true|1s 3 false|2s 2 true|2s 4 true|3s 5 false|3s 6 false"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s := status(t, l); s.InFlight != 0 {
			t.Errorf("%+v: who waited in vain holds a slot", s)
		}
	})
}

// WithQueue bounds its line as that of Concurrency.
func TestAdaptiveQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithQueue(2)))
		var mu sync.Mutex
		var log []string
		var wg sync.WaitGroup
		for range 4 {
			start := time.Now()
			wg.Go(func() {
				p, err := l.Take(t.Context(), "k", 1)
				mu.Lock()
				log = append(log, fmt.Sprint(time.Since(start), err == nil))
				mu.Unlock()
				if err == nil {
					time.Sleep(time.Second)
					p.Done()
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if got, want := strings.Join(log, "|"), "0s true|0s false|1s true|2s true"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// A request that stands in line while the store goes down still gets its slot, and
// keeps the time it has waited.
func TestAdaptiveWaitsWhileTheStoreGoesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sp := newSpy()
		l := limiter(t, theKey, stint.WithStore(sp), stint.Rate(100, time.Second, stint.WithName("rate")),
			stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithMaxWait(time.Minute), stint.WithName("adaptive")))
		p := take(t, l, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			p := take(t, l, 1)
			defer p.Done()
			if d := p.Decision(); len(d.Limits) != 1 || d.Limits[0].Name != "adaptive" || d.Delay != time.Second || d.Queued != 1 {
				t.Errorf("%+v", d)
			}
		})
		synctest.Wait()
		time.Sleep(time.Second)
		sp.FailWith(errDown)
		p.Done()
		wg.Wait()
		sp.FailWith(nil)
		if s := status(t, l); s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// No slot is held while a request waits for a rate's turn.
func TestAdaptiveGivesUpItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithMaxWait(time.Hour)), stint.AdaptiveConcurrency(1, 10))
		take(t, l, 1).Done()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.Take(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if s := status(t, l); s.InFlight != 0 || s.Reason != stint.AdaptiveStart {
			t.Errorf("%+v", s)
		}
	})
}

// Waits aren't part of the latency.
func TestAdaptiveLatencyIsTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, theKey, seen.Option(),
			stint.Rate(100, time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Hour)), stint.AdaptiveConcurrency(1, 100, stint.WithInitialLimit(5)))
		// One comes after another: a request has a slot while the store decides, so of 20 at
		// one instant those beyond the fifth may be denied.
		for range 4 {
			for range 20 {
				go func() {
					p, err := l.Take(t.Context(), "k", 1)
					if err != nil {
						t.Error(err)
						return
					}
					defer p.Done()
					time.Sleep(35 * time.Millisecond)
				}()
				time.Sleep(100 * time.Microsecond)
			}
			time.Sleep(2 * time.Second)
		}
		if !strings.Contains(seen.Kinds(), "LimitChanged") {
			t.Error(seen.Kinds())
		}
		for _, e := range seen.All() {
			if e.Kind == stint.EventLimitChanged && e.Change.Latency != 35*time.Millisecond {
				t.Errorf("%+v", e.Change)
			}
		}
	})
}

func TestAdaptiveKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(8)))
		window(t, l, 8, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		held := take(t, l, 1)
		learnt := status(t, l).Capacity
		if learnt != 4 {
			t.Fatalf("%d after drops, want 4", learnt)
		}
		others := func() {
			for i := range 10_001 {
				p, err := l.Take(t.Context(), fmt.Sprint("other ", i), 1)
				if err != nil {
					t.Fatal(err)
				}
				p.Done()
			}
		}
		if others(); status(t, l).Capacity != learnt || status(t, l).InFlight != 1 {
			t.Errorf("%+v: a key in use was forgotten", status(t, l))
		}
		held.Done()
		if s := status(t, l); s.Capacity != learnt {
			t.Errorf("%+v: the key used last was forgotten", s)
		}
		if others(); status(t, l).Capacity != 8 {
			t.Errorf("%+v: more keys are kept than said", status(t, l))
		}
	})
}

// Limits that are gone are forgotten: those of tenants that no longer come, gradually;
// those that an Update removes, at once.
func TestAdaptiveForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kept, tenants = 10_000, 15_000
		opts := func(limits ...stint.Option) []stint.Option {
			return append(limits, theKey, stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
				return []stint.Limit{stint.AdaptiveConcurrency(1, 10, stint.WithName(r.URL.Path[1:]))}, nil
			}))
		}
		own := stint.AdaptiveConcurrency(1, 100, stint.WithInitialLimit(40))
		l := limiter(t, opts(own)...)
		window(t, l, 40, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		held := take(t, l, 1)
		for i := range tenants {
			through(l, get(fmt.Sprint("/t", i)), nil)
		}
		if n := l.Adaptive(); n > kept+1 {
			t.Errorf("%d limits of %d tenants are remembered, want %d", n, tenants, kept)
		}
		if s := status(t, l); s.Capacity != 20 || s.InFlight != 1 {
			t.Errorf("%+v: the limit in use is forgotten, too", s)
		}
		before := l.Adaptive()
		update(t, l, opts(stint.Rate(1, time.Second))...)
		held.Done()
		if n := l.Adaptive(); n != before-1 {
			t.Errorf("%d are remembered after an Update without one of %d", n, before)
		}
		update(t, l, opts(own)...)
		if s := status(t, l); s.Capacity != 40 || s.InFlight != 0 || s.Reason != stint.AdaptiveStart {
			t.Errorf("%+v: want what is new again to start anew", s)
		}
	})
}

func TestAdaptiveReset(t *testing.T) {
	l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(2)))
	old := take(t, l, 2)
	if _, err := l.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	now := take(t, l, 1)
	old.Done()
	if s := status(t, l); s.InFlight != 1 {
		t.Errorf("%+v: what was forgotten has freed something", s)
	}
	now.Done()
}

// When a plan is loaded again, its limits continue where they stood, under their new
// numbers.
func TestAdaptiveByRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		max := int64(16)
		l := limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{
				stint.AdaptiveConcurrency(1, max, stint.WithInitialLimit(min(max, 12)), stint.WithName("mine")),
				stint.Rate(1000, time.Second),
			}, nil
		}))
		var d stint.Decision
		ask := func(n int) {
			for range n {
				through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
					d = stint.FromContext(r.Context()).Decision()
					stint.FromContext(r.Context()).Drop()
				})
			}
		}
		ask(20)
		time.Sleep(time.Second)
		ask(2)
		if s := d.Limits[1]; s.Name != "mine" || s.Capacity != 6 || s.Reason != stint.AdaptiveDrops {
			t.Errorf("%+v, want 6: half of 12", s)
		}
		max = 4
		ask(1)
		if s := d.Limits[1]; s.Capacity != 4 || s.InFlight != 1 {
			t.Errorf("%+v, want the 4 of the plan now", s)
		}
	})
}

// An Update keeps what has been learnt, within the new numbers, and requests that began
// before it don't bring the old numbers back.
func TestAdaptiveUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 100, stint.WithInitialLimit(40)))
		window(t, l, 40, func(p *stint.Permit) { p.Drop(); time.Sleep(time.Millisecond) })
		if s := status(t, l); s.Capacity != 20 {
			t.Fatalf("%+v, want 20", s)
		}
		held := take(t, l, 1)
		for _, tt := range []struct{ min, max, want int64 }{{1, 100, 20}, {1, 60, 20}, {1, 12, 12}, {16, 100, 16}} {
			if err := l.Update(theKey, stint.AdaptiveConcurrency(tt.min, tt.max)); err != nil {
				t.Fatal(err)
			}
			p := take(t, l, 1)
			if s := status(t, l); s.Capacity != tt.want || s.InFlight != 2 {
				t.Errorf("%+v after an Update to %d..%d, want %d", s, tt.min, tt.max, tt.want)
			}
			p.Done()
		}
		held.Done()
		if s := status(t, l); s.Capacity != 16 || s.InFlight != 0 {
			t.Errorf("%+v: who began before the Update turned it back", s)
		}
	})
}

func TestAdaptiveDryRun(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(9, time.Hour), stint.AdaptiveConcurrency(1, 10, stint.WithInitialLimit(1), stint.WithDryRun(true)))
	p := take(t, l, 1)
	q := take(t, l, 1)
	if s := q.Decision().Limits[1]; s.Allowed || !s.DryRun || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
	w := through(l, get("/"), nil)
	if got := w.Header().Get("RateLimit-Policy"); got != `"rate";q=9;w=3600` {
		t.Error(got)
	}
	p.Done()
	q.Done()
	if s := status(t, l); s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}

// Nested limiters: a handler that sees the inner permit speaks to both.
func TestAdaptiveNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limiter(t, theKey, stint.AdaptiveConcurrency(1, 10, stint.WithName("outer")))
		inner := limiter(t, theKey, stint.Rate(1000, time.Second), stint.AdaptiveConcurrency(1, 10, stint.WithName("inner")))
		var d stint.Decision
		h := mount(outer, func(w http.ResponseWriter, r *http.Request) {
			mount(inner, func(_ http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				d = p.Decision()
				p.Drop()
			}).ServeHTTP(w, r)
		})
		ask := func(n int) {
			for range n {
				h.ServeHTTP(&discard{h: http.Header{}}, get("/"))
			}
		}
		ask(20)
		time.Sleep(time.Second)
		ask(2)
		if got := fmt.Sprintln(d.Limits[0].Name, d.Limits[0].Capacity, d.Limits[1].Name, d.Limits[2].Name, d.Limits[2].Capacity, d.Limits[2].InFlight); got !=
			"outer 5 rate inner 5 1\n" {
			t.Error(got)
		}
	})
}

// Whatever an inner limiter denies for, its answer says nothing about the work.
func TestAdaptiveIgnoresInnerDenials(t *testing.T) {
	late := func() { time.Sleep(time.Second) }
	for name, opts := range map[string][]stint.Option{
		"no key": {stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { late(); return "", errors.New("no session") }))},
		"blocked": {theKey, stint.WithBlock(func(*http.Request) bool { late(); return true }),
			stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := limiter(t, append(opts, stint.Rate(1, time.Hour))...)
				l := limiter(t, theKey, stint.AdaptiveConcurrency(1, 100))
				for range 30 {
					through(l, get("/"), mount(inner, nil).ServeHTTP)
				}
				if s := status(t, l); s.Capacity != 20 || s.Reason != stint.AdaptiveStart {
					t.Errorf("%d for %v, want 20 for start", s.Capacity, s.Reason)
				}
			})
		})
	}
}

// However requests end, the slots come back.
func TestAdaptiveConcurrentUse(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1_000_000, time.Second, stint.WithBurst(300)),
		stint.AdaptiveConcurrency(1, 4, stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithSampleWindow(100*time.Millisecond)))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if n%7 == i%7 {
					cancel()
				}
				if p, err := l.Take(ctx, "k", 1+int64(n%3)); err == nil {
					if n%5 == 0 {
						p.Drop()
					}
					p.Decision()
					p.Done()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s := status(t, l); s.InFlight != 0 || s.Capacity < 1 || s.Capacity > 4 {
		t.Errorf("%+v", s)
	}
}

// Reset without a store that can.
func TestAdaptiveResetNeedsTheOthersStore(t *testing.T) {
	l := limiter(t, theKey, stint.WithStore(struct{ store.Store }{newSpy()}), stint.Rate(1, time.Hour, stint.WithName("rate")), stint.AdaptiveConcurrency(1, 10, stint.WithName("adaptive")))
	if _, err := l.Reset(t.Context(), "k"); err == nil {
		t.Error("half a reset was made")
	}
}

// The names of limits are the user's: none disturbs what decides an adaptive limit, and
// the others say what they would have said.
func TestAdaptiveBesideAnyName(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		for _, name := range []string{"veto", "adaptive", "never"} {
			for kind, beside := range map[string]stint.Option{
				"rate":  stint.Rate(5, 1000*time.Hour, stint.WithName(name)),
				"log":   stint.Rate(5, 1000*time.Hour, stint.WithName(name), stint.WithAlgorithm(stint.SlidingLog)),
				"slots": stint.Concurrency(5, stint.WithName(name)),
			} {
				l := limiter(t, stint.WithStore(s), stint.WithKey(stint.GivenKey()), stint.WithFailurePolicy(stint.FailClosed),
					stint.AdaptiveConcurrency(1, 1, stint.WithName("slot")), beside)
				key := name + kind
				p, err := l.Take(t.Context(), key, 1)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					_, err = l.Take(t.Context(), key, 1)
					beside := func(l stint.LimitStatus) bool { return l.Name == name && l.Allowed && l.Remaining == 4 }
					if d := (*stint.DeniedError)(nil); !errors.As(err, &d) || d.Decision.Limit != "slot" || !slices.ContainsFunc(d.Decision.Limits, beside) {
						t.Errorf("beside a limit %q (%s), while the slot is taken: %v", name, kind, err)
					}
				}
				p.Done()
				if p, err = l.Take(t.Context(), key, 1); err != nil {
					t.Errorf("beside a limit %q (%s), when the slot is free again: %v", name, kind, err)
				}
				p.Done()
			}
		}
	})
}

// If a wait in an inner limiter ends, an outer AdaptiveConcurrency learns nothing from
// it, whatever the status of the answer.
func TestAWaitThatEndsIsNoDrop(t *testing.T) {
	for name, opts := range map[string][]stint.Option{
		"queue": {stint.Rate(1, time.Hour), stint.WithMaxWait(2 * time.Hour)},
		"store": {stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(failing(errDown)), stint.WithFailurePolicy(stint.FailClosed)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outer := limiter(t, stint.AdaptiveConcurrency(1, 20), everybody)
				inner := limiter(t, append(opts, everybody)...)
				_, _ = inner.Take(t.Context(), globalKey(t), 1)
				for range 20 {
					w := through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) {
						ctx, cancel := context.WithCancel(r.Context())
						time.AfterFunc(100*time.Millisecond, cancel)
						mount(inner, nil).ServeHTTP(w, r.WithContext(ctx))
					})
					if w.Code != 503 {
						t.Fatalf("got %d, want 503", w.Code)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n := free(t, outer); n != 20 {
					t.Errorf("the limit further out is %d, want 20", n)
				}
			})
		})
	}
}
