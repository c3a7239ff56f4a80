package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// passed runs n requests at once and returns when those admitted went on, in
// order, and how many were refused.
func passed(l *stint.Limiter, n int) (at []time.Duration, refused int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range n {
		wg.Go(func() {
			w := through(l, get("/"), func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
			})
			if w.Code == 429 {
				mu.Lock()
				defer mu.Unlock()
				refused++
			}
		})
	}
	wg.Wait()
	slices.Sort(at)
	return at, refused
}

func millis(ms ...int) (d []time.Duration) {
	for _, n := range ms {
		d = append(d, time.Duration(n)*time.Millisecond)
	}
	return d
}

func TestWaitingInAdmit(t *testing.T) {
	second := time.Second
	tests := []struct {
		name    string
		opts    []stint.Option
		n       int
		at      []time.Duration
		refused int
	}{
		{"no wait", []stint.Option{stint.Rate(2, second)}, 4, millis(0, 0), 2},
		{"max wait", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(second))}, 6, millis(0, 0, 500, 1000), 2},
		{"leaky bucket", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(3))}, 6, millis(0, 500, 1000, 1500), 2},
		{"nginx burst=3 delay=2", []stint.Option{stint.Rate(10, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithBurst(2), stint.WithQueue(1))},
			6, millis(0, 0, 0, 100), 2},
		{"leaky bucket, bounded", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(9), stint.WithMaxWait(600*time.Millisecond))},
			4, millis(0, 500), 2},
		{"window", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.FixedWindow), stint.WithMaxWait(second))}, 6, millis(0, 0, 1000, 1000), 2},
		{"log", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.SlidingLog), stint.WithMaxWait(second))}, 6, millis(0, 0, 1000, 1000), 2},
		{"warm-up", []stint.Option{stint.Rate(5, second, stint.WithWarmUp(4*second), stint.WithMaxWait(1700*time.Millisecond))}, 6, millis(0, 580, 1120, 1620), 2},
		{"the longest of two", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(9*second)), stint.Rate(1, second, stint.WithMaxWait(9*second))},
			3, millis(0, 1000, 2000), 0},
		{"one waits, one refuses", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(9*second)), stint.Rate(3, time.Hour)}, 5, millis(0, 0, 500), 2},
		{"a dry run delays nobody", []stint.Option{stint.Rate(1, second, stint.WithMaxWait(9*second), stint.WithDryRun()), stint.Rate(9, second)}, 3, millis(0, 0, 0), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, refused := passed(limiter(t, append(tt.opts, theKey)...), tt.n)
				if !slices.Equal(at, tt.at) || refused != tt.refused {
					t.Errorf("passed at %v, %d refused; want %v, %d", at, refused, tt.at, tt.refused)
				}
			})
		})
	}
}

func TestDeadline(t *testing.T) {
	tests := []struct {
		name  string
		limit stint.Limit
	}{
		{"max wait", stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute))},
		{"queue", stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(50))},
		{"slot", stint.Concurrency(1, stint.WithMaxWait(time.Minute))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, tt.limit)
				_, err := l.Admit(httptest.NewRecorder(), get("/"))
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
				defer cancel()
				_, err = l.Admit(httptest.NewRecorder(), get("/").WithContext(ctx))
				waited := time.Since(start)
				if tt.name == "slot" { // nobody knows when one is released
					if denied(t, err); waited != 700*time.Millisecond {
						t.Errorf("refused after %v, want 700ms", waited)
					}
					return
				}
				denied(t, err)
				if waited != 0 {
					t.Errorf("refused after %v, want at once", waited)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err = l.Admit(httptest.NewRecorder(), get("/").WithContext(ctx)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				cancel()
				if _, err := l.Admit(httptest.NewRecorder(), get("/").WithContext(ctx)); err == nil {
					t.Error("admitted after its deadline")
				}
			})
		})
	}
}

// leaving is a line of waiters of whom some give up.
func TestWhoLeavesLetsTheNextIn(t *testing.T) {
	limits := map[string]func() []stint.Option{
		"token bucket": func() []stint.Option {
			return []stint.Option{stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute))}
		},
		"leaky bucket": func() []stint.Option {
			return []stint.Option{stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(60))}
		},
		"with a quota": func() []stint.Option {
			return []stint.Option{stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute)), stint.Quota(100, stint.Daily)}
		},
		"log": func() []stint.Option {
			return []stint.Option{stint.Rate(1, time.Second, stint.WithAlgorithm(stint.SlidingLog), stint.WithMaxWait(time.Minute))}
		},
	}
	for name, opts := range limits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				l := limiter(t, append(opts(), theKey, seen.option())...)
				start := time.Now()
				var mu sync.Mutex
				at := map[int]time.Duration{}
				var wg sync.WaitGroup
				enter := func(i int, leave time.Duration) {
					ctx, cancel := context.WithCancel(t.Context())
					if leave > 0 {
						time.AfterFunc(leave, cancel)
					}
					wg.Go(func() {
						defer cancel()
						w := through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) {
							mu.Lock()
							defer mu.Unlock()
							at[i] = time.Since(start)
						})
						if leave > 0 && (w.Body.Len() > 0 || len(w.Header()) > 0) {
							t.Errorf("%d left and was answered %v %v", i, w.Code, w.Header())
						}
					})
					synctest.Wait()
				}
				enter(0, 0)                    // 0 s
				enter(1, 0)                    // 1 s
				enter(2, 500*time.Millisecond) // leaves the turn at 2 s
				enter(3, 0)                    // gets it
				enter(4, 1500*time.Millisecond)
				enter(5, 0)
				time.Sleep(1600 * time.Millisecond)
				synctest.Wait()
				enter(6, 0) // the turn that came free last
				wg.Wait()
				want := map[int]time.Duration{0: 0, 1: time.Second, 3: 2 * time.Second, 5: 3 * time.Second, 6: 4 * time.Second}
				if fmt.Sprint(at) != fmt.Sprint(want) {
					t.Errorf("passed at %v, want %v", at, want)
				}
				if got := strings.Count(seen.kinds(), "Canceled"); got != 2 {
					t.Errorf("%d cancellations observed, want 2", got)
				}
			})
		})
	}
}

// However many leave and whenever, what passes stays within the rate.
func TestLeavingNeverOverAdmits(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newRand(seed)
			l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithBurst(2), stint.WithMaxWait(5*time.Second)))
			var mu sync.Mutex
			var at []time.Duration
			var wg sync.WaitGroup
			start := time.Now()
			stayed, passedOn := 0, 0
			for range 60 {
				ctx, cancel := context.WithCancel(t.Context())
				leaves := rnd.IntN(2) == 0
				if leaves {
					time.AfterFunc(time.Duration(rnd.IntN(4000))*time.Millisecond, cancel)
				} else {
					stayed++
				}
				wg.Go(func() {
					defer cancel()
					if _, err := l.Take(ctx, "k", 1); err == nil {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, time.Since(start))
						if !leaves {
							passedOn++
						}
					} else if de := (*stint.DeniedError)(nil); errors.As(err, &de) && !leaves {
						mu.Lock()
						defer mu.Unlock()
						passedOn++ // its answer, too
					}
				})
				time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
			}
			wg.Wait()
			slices.Sort(at)
			for i := range at {
				for j := i + 2; j < len(at); j++ {
					// j-i+1 within at[j]-at[i]: at most the burst and what flows in.
					if most := 2 + int((at[j]-at[i])/(100*time.Millisecond)); j-i+1 > most {
						t.Fatalf("seed %d: %d passed within %v", seed, j-i+1, at[j]-at[i])
					}
				}
			}
			if stayed != passedOn {
				t.Errorf("seed %d: %d of %d who stayed were answered", seed, passedOn, stayed)
			}
		})
	}
}

func TestSlotsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(2, stint.WithMaxWait(10*time.Second)), stint.Rate(100, time.Second))
		start := time.Now()
		var mu sync.Mutex
		var log []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf("%v ", time.Since(start))+fmt.Sprintf(format, args...))
		}
		var wg sync.WaitGroup
		enter := func(name string, leave time.Duration, work time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			if leave > 0 {
				time.AfterFunc(leave, cancel)
			}
			wg.Go(func() {
				defer cancel()
				through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) {
					note("%s", name)
					time.Sleep(work)
				})
			})
			synctest.Wait()
		}
		enter("a", 0, 2*time.Second)
		enter("b", 0, 3*time.Second)
		enter("c", 0, 4*time.Second)
		enter("d", time.Second, time.Second) // gives up as the second in line
		enter("e", 0, time.Second)
		enter("f", 0, time.Second)
		wg.Wait()
		want := "0s a|0s b|2s c|3s e|4s f"
		if got := strings.Join(log, "|"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := remaining(t, l); got != 2 {
			t.Errorf("%d slots free at the end, want 2", got)
		}
	})
}

func TestWaitForSlotEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Second)), seen.option())
		p := take(t, l, 1)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := l.Take(t.Context(), "k", 1)
				if d := denied(t, err).Decision; d.Limit != "concurrency" || d.RetryAfter != 0 {
					t.Errorf("%+v", d)
				}
				if got := time.Since(start); got != time.Second {
					t.Errorf("refused after %v, want 1s", got)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if got := seen.last(); got.Kind != stint.Denied || got.Waited != time.Second {
			t.Errorf("%v after %v", got.Kind, got.Waited)
		}
		// Who waited in vain left nothing behind.
		p.Done()
		for range 2 {
			take(t, l, 1).Done()
		}
	})
}

func TestNobodyOvertakesWhoWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1))
		p := take(t, l, 1)
		var order []string
		var wg sync.WaitGroup
		wg.Go(func() {
			q, err := l.Wait(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			order = append(order, "waiter")
			time.Sleep(time.Second)
			q.Done()
		})
		synctest.Wait()
		// Before the waiter's goroutine runs, the slot looks free.
		p.Done()
		_, err := l.Take(t.Context(), "k", 1)
		if d := denied(t, err).Decision; d.Limit != "concurrency" || d.Allowed {
			t.Errorf("%+v", d)
		}
		if q, err := l.Take(t.Context(), "other", 1); err != nil {
			t.Errorf("another key is refused: %v", err)
		} else {
			q.Done()
		}
		wg.Wait()
		if !slices.Equal(order, []string{"waiter"}) {
			t.Error(order)
		}
	})
}

// A slot is waited for only where nothing else refuses, and what else there is
// is asked again once there is a slot.
func TestSlotAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Minute)), stint.Rate(2, time.Hour))
		p := take(t, l, 1)
		time.AfterFunc(3*time.Second, p.Done)
		start := time.Now()
		at, refused := passed(l, 2)
		if !slices.Equal(at, millis(3000)) || refused != 1 || time.Since(start) != 3*time.Second {
			t.Errorf("passed at %v, %d refused after %v", at, refused, time.Since(start))
		}
		p2, err := l.Take(t.Context(), "k", 1) // the rate refuses: no wait
		if denied(t, err).Decision.Limit != "rate" || p2 != nil || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// Slots of two limits: who waits for one must not block those who don't.
func TestTwoConcurrencyLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := stint.WithMaxWait(time.Minute)
		l := limiter(t, wait,
			stint.Concurrency(2, stint.WithName("all"), everybody),
			stint.Concurrency(1, stint.WithName("each"), stint.WithKey(stint.Header("X-User"))))
		start := time.Now()
		var mu sync.Mutex
		var log []string
		var wg sync.WaitGroup
		enter := func(user string, work time.Duration) {
			r := get("/")
			r.Header.Set("X-User", user)
			wg.Go(func() {
				through(l, r, func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					log = append(log, fmt.Sprint(time.Since(start), " ", user))
					mu.Unlock()
					time.Sleep(work)
				})
			})
			synctest.Wait()
		}
		enter("a", 3*time.Second)
		enter("a", time.Second) // waits for a's slot
		enter("b", time.Second) // goes on at once
		enter("b", time.Second)
		enter("c", time.Second) // waits for a slot of all
		wg.Wait()
		if got, want := strings.Join(log, ", "), "0s a, 0s b, 1s b, 2s c, 3s a"; got != want && got != "0s a, 0s b, 1s c, 2s b, 3s a" {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Slots are released elsewhere, too: the store has other users.
func TestSlotReleasedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		here := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithMaxWait(time.Minute)))
		there := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1))
		p := take(t, there, 1)
		time.AfterFunc(1050*time.Millisecond, p.Done)
		start := time.Now()
		q := take(t, here, 1)
		if got := time.Since(start); got < 1050*time.Millisecond || got > 1200*time.Millisecond {
			t.Errorf("got the slot after %v", got)
		}
		q.Done()
	})
}

func TestManyWaitForSlots(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newRand(seed)
			l := limiter(t, theKey, stint.Concurrency(3, stint.WithMaxWait(20*time.Second)))
			var mu sync.Mutex
			inside, most := 0, 0
			var wg sync.WaitGroup
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(3000))*time.Millisecond, cancel)
				}
				cost, work := 1+rnd.Int64N(3), time.Duration(rnd.IntN(300))*time.Millisecond
				wg.Go(func() {
					defer cancel()
					p, err := l.Take(ctx, "k", cost)
					if err != nil {
						return
					}
					defer p.Done()
					mu.Lock()
					inside += int(cost)
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(work)
					mu.Lock()
					inside -= int(cost)
					mu.Unlock()
				})
				time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
			}
			wg.Wait()
			if got := remaining(t, l); most > 3 || got != 3 {
				t.Errorf("seed %d: %d slots taken at once, %d free at the end", seed, most, got)
			}
		})
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Guava's SmoothBursty: costs 1, 6, 2 wait 0, 2, 12 s.
		l := limiter(t, theKey, stint.Rate(1, 2*time.Second, stint.WithDebt(), stint.WithBurst(0)))
		for _, step := range []struct {
			cost int64
			wait time.Duration
		}{{1, 0}, {6, 2 * time.Second}, {2, 12 * time.Second}} {
			start := time.Now()
			p, err := l.Wait(t.Context(), "k", step.cost)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != step.wait || p.Decision().Delay != step.wait {
				t.Errorf("cost %d waited %v, and says %v; want %v", step.cost, got, p.Decision().Delay, step.wait)
			}
			p.Done()
		}
	})
}

func TestWaitRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithBurst(2)))
		start := time.Now()
		take(t, l, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		_, err := l.Wait(ctx, "k", 1)
		if d := denied(t, err).Decision; d.RetryAfter != time.Second {
			t.Errorf("retry after %v: with the same deadline the same call passes in 1s", d.RetryAfter)
		}
		if _, err = l.Wait(t.Context(), "k", 3); denied(t, err).Decision.RetryAfter != stint.Never {
			t.Errorf("%v, want never", err)
		}
		hours := limiter(t, theKey, stint.Quota(1, stint.Monthly))
		take(t, hours, 1)
		_, err = hours.Wait(t.Context(), "k", 1)
		denied(t, err)
		if time.Since(start) != 0 {
			t.Errorf("took %v, want nothing", time.Since(start))
		}
	})
}

func TestWaitCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute), stint.Concurrency(5))
		take(t, l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		start := time.Now()
		_, err := l.Wait(ctx, "k", 1)
		if !errors.Is(err, context.Canceled) || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		d, _ := l.Peek(t.Context(), "k")
		if free := d.Limits[1].Remaining; free != 4 || d.Limits[0].ResetAfter != 50*time.Second {
			t.Errorf("%d slots free, full in %v; want 4, 50s: the canceled call left a trace", free, d.Limits[0].ResetAfter)
		}
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v from a context that has ended", err)
		}
	})
}

func TestTake(t *testing.T) {
	l := limiter(t, stint.Rate(5, time.Hour, everybody, cost(9)), stint.Quota(9, stint.Monthly, stint.WithKey(stint.Header("X-None"))),
		stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	p, err := l.Take(t.Context(), "tenant-7", 3) // neither the keys nor the costs of requests count
	if err != nil {
		t.Fatal(err)
	}
	d := p.Decision()
	if !d.Allowed || d.Limit != "rate" || d.Remaining != 2 || d.Limits[1].Remaining != 6 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []int64{0, -1, store.MaxCost + 1} {
		if _, err := l.Take(t.Context(), "tenant-7", bad); !errors.Is(err, store.ErrCost) {
			t.Errorf("cost %d: %v", bad, err)
		}
	}
	if _, err := l.Take(t.Context(), "", 1); !errors.Is(err, stint.ErrEmptyKey) {
		t.Errorf("empty key: %v", err)
	}
	if _, err := l.Take(t.Context(), strings.Repeat("k", 1<<20), 1); !errors.Is(err, stint.ErrKeyTooLong) {
		t.Errorf("1 MB key: %v", err)
	}
	routes := limiter(t, stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	if _, err := routes.Take(t.Context(), "k", 1); err == nil {
		t.Error("a limiter with routes only takes")
	}
}

func TestPeekAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(2, time.Hour), stint.Concurrency(3), stint.WithRoute("/a", stint.Rate(1, time.Hour)))
		codes(l, "GET", "/a", 2)
		take(t, l, 2)
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Allowed || d.Limit != "rate" || d.Limits[1].Remaining != 1 || d.ResetAfter != time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		if d.RetryAfter != 30*time.Minute {
			t.Errorf("one unit in %v, want 30m", d.RetryAfter)
		}
		if other, _ := l.Peek(t.Context(), "other"); !other.Allowed || other.Remaining != 2 {
			t.Errorf("another key: %+v", other)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d, _ = l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 2 || d.Limits[1].Remaining != 3 {
			t.Errorf("after Reset: %+v", d)
		}
		if got := codes(l, "GET", "/a", 1); got != "200" {
			t.Errorf("a route's limit after Reset: %s", got)
		}
		if _, err := l.Peek(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		if err := l.Reset(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		plain := limiter(t, theKey, stint.Rate(1, time.Hour), stint.WithStore(newSpy()))
		if err := plain.Reset(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "store.Resetter") {
			t.Errorf("a store without Reset: %v", err)
		}
	})
}
