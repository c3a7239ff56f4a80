package stint_test

import (
	"cmp"
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

// A line of waiters in which some give up.
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
						if leave > 0 && (w.Code != 503 || w.Header().Get("RateLimit") != "") {
							t.Errorf("%d left and was answered %v %v, want 503", i, w.Code, w.Header())
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

// However many leave, and when, what passes stays within the rate.
func TestLeavingNeverOverAdmits(t *testing.T) {
	wait := stint.WithMaxWait(5 * time.Second)
	type pass struct {
		at   time.Duration
		cost int64
	}
	tests := []struct {
		name  string
		limit stint.Limit
		most  func(time.Duration) int64 // what may pass within a time, its ends included
	}{
		{"token bucket", stint.Rate(10, time.Second, stint.WithBurst(3), wait),
			func(d time.Duration) int64 { return 3 + int64(d/(100*time.Millisecond)) }},
		{"leaky bucket", stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithBurst(2), stint.WithQueue(50)),
			func(d time.Duration) int64 { return 3 + int64(d/(100*time.Millisecond)) }},
		{"log", stint.Rate(10, time.Second, stint.WithAlgorithm(stint.SlidingLog), wait),
			func(d time.Duration) int64 { return 10 * (1 + int64(d/time.Second)) }},
		{"window", stint.Rate(10, time.Second, stint.WithAlgorithm(stint.FixedWindow), wait),
			func(d time.Duration) int64 { return 10 * (2 + int64(d/time.Second)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					rnd := newRand(seed)
					l := limiter(t, theKey, tt.limit)
					costs := 1 + rnd.Int64N(3) // of one kind, or mixed
					var mu sync.Mutex
					var passed []pass
					var wg sync.WaitGroup
					start := time.Now()
					stayed, answered := 0, 0
					for range 60 {
						ctx, cancel := context.WithCancel(t.Context())
						leaves := rnd.IntN(2) == 0
						if leaves {
							time.AfterFunc(time.Duration(rnd.IntN(4000))*time.Millisecond, cancel)
						} else {
							stayed++
						}
						cost := 1 + rnd.Int64N(costs)
						wg.Go(func() {
							defer cancel()
							_, err := l.Take(ctx, "k", cost)
							mu.Lock()
							defer mu.Unlock()
							if err == nil {
								passed = append(passed, pass{time.Since(start), cost})
							}
							if !leaves && (err == nil || errors.As(err, new(*stint.DeniedError))) {
								answered++
							}
						})
						time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
					}
					wg.Wait()
					slices.SortFunc(passed, func(a, b pass) int { return cmp.Compare(a.at, b.at) })
					for i := range passed {
						sum := int64(0)
						for _, p := range passed[i:] {
							sum += p.cost
							if d := p.at - passed[i].at; sum > tt.most(d) {
								t.Fatalf("seed %d: %d units passed within %v, want %d at the most", seed, sum, d, tt.most(d))
							}
						}
					}
					if stayed != answered {
						t.Errorf("seed %d: %d of %d who stayed were answered", seed, answered, stayed)
					}
				})
			}
		})
	}
}
