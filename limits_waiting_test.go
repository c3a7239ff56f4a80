package stint_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// passed runs n requests at once and returns when those admitted went on, in
// order, and how many were denied.
func passed(l *stint.Limiter, n int) (at []time.Duration, denials int) {
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
				denials++
			}
		})
	}
	wg.Wait()
	slices.Sort(at)
	return at, denials
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
		denials int
	}{
		{"no wait", []stint.Option{stint.Rate(2, second)}, 4, millis(0, 0), 2},
		{"max wait", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(second))}, 6, millis(0, 0, 500, 1000), 2},
		{"leaky bucket", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(3))}, 6, millis(0, 500, 1000, 1500), 2},
		{"nginx burst=3 delay=2", []stint.Option{stint.Rate(10, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithBurst(2), stint.WithQueue(1))},
			6, millis(0, 0, 0, 100), 2},
		{"leaky bucket, bounded", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(9), stint.WithMaxWait(600*time.Millisecond))},
			4, millis(0, 500), 2},
		{"leaky bucket, no queue", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(0), stint.WithMaxWait(9*second))},
			3, millis(0), 2},
		{"window", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.FixedWindow), stint.WithMaxWait(second))}, 6, millis(0, 0, 1000, 1000), 2},
		{"log", []stint.Option{stint.Rate(2, second, stint.WithAlgorithm(stint.SlidingLog), stint.WithMaxWait(second))}, 6, millis(0, 0, 1000, 1000), 2},
		{"warm-up", []stint.Option{stint.Rate(5, second, stint.WithWarmUp(4*second), stint.WithMaxWait(1700*time.Millisecond))}, 6, millis(0, 580, 1120, 1620), 2},
		{"the longest of two", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(9*second)), stint.Rate(1, second, stint.WithMaxWait(9*second))},
			3, millis(0, 1000, 2000), 0},
		{"one waits, one denies", []stint.Option{stint.Rate(2, second, stint.WithMaxWait(9*second)), stint.Rate(3, time.Hour)}, 5, millis(0, 0, 500), 2},
		{"a dry run delays nobody", []stint.Option{stint.Rate(1, second, stint.WithMaxWait(9*second), stint.WithDryRun(true)), stint.Rate(9, second)}, 3, millis(0, 0, 0), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, denials := passed(limiter(t, append(tt.opts, theKey)...), tt.n)
				if !slices.Equal(at, tt.at) || denials != tt.denials {
					t.Errorf("passed at %v, %d denied; want %v, %d", at, denials, tt.at, tt.denials)
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
				_, err := l.Open(httptest.NewRecorder(), get("/"))
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
				defer cancel()
				_, err = l.Open(httptest.NewRecorder(), get("/").WithContext(ctx))
				waited := time.Since(start)
				if tt.name == "slot" { // it can't be known when one is released
					if denied(t, err); waited != 700*time.Millisecond {
						t.Errorf("denied after %v, want 700ms", waited)
					}
					return
				}
				denied(t, err)
				if waited != 0 {
					t.Errorf("denied after %v, want at once", waited)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				// Its turn comes at the very instant at which its time ends.
				if _, err = l.Open(httptest.NewRecorder(), get("/").WithContext(ctx)); err != nil && !errors.As(err, new(*stint.DeniedError)) {
					t.Error(err)
				}
				cancel()
				if _, err := l.Open(httptest.NewRecorder(), get("/").WithContext(ctx)); err == nil {
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
				l := limiter(t, append(opts(), theKey, seen.Option())...)
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
				if got := strings.Count(seen.Kinds(), "Canceled"); got != 2 {
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

// noLines fails if a request is left in a line, or a line when the turns that it holds have passed.
func noLines(t *testing.T, l *stint.Limiter) {
	t.Helper()
	waiting, lines := l.Lines()
	if waiting == 0 && lines > 0 { // they hold turns, which pass unused
		time.Sleep(3 * time.Minute)
		waiting, lines = l.Lines()
	}
	if waiting != 0 || lines != 0 {
		t.Errorf("%d wait in %d lines, want none", waiting, lines)
	}
}

// How many may wait for a slot, and for how long.
func TestQueueOfSlots(t *testing.T) {
	second := time.Second
	tests := []struct {
		name   string
		opts   []stint.Option
		slots  int64           // what the holder has; 1 if 0
		wait   bool            // by Limiter.Wait
		within time.Duration   // the context's deadline, if any
		want   []time.Duration // when each of four that come after the holder is denied
		queued []int64         // what their decisions say
	}{
		{name: "none by default", opts: []stint.Option{stint.Concurrency(1)},
			want: millis(0, 0, 0, 0), queued: []int64{0, 0, 0, 0}},
		{name: "two, for five seconds", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2))},
			want: millis(5000, 5000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "two, for a second", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2), stint.WithMaxWait(second))},
			want: millis(1000, 1000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "the limiter's bound", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2)), stint.WithMaxWait(second)},
			want: millis(1000, 1000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "as many as there are slots, for a second", opts: []stint.Option{stint.Concurrency(1, stint.WithMaxWait(second))},
			want: millis(1000, 0, 0, 0), queued: []int64{1, 1, 1, 1}},
		{name: "three of three", opts: []stint.Option{stint.Concurrency(3, stint.WithMaxWait(second))}, slots: 3,
			want: millis(1000, 1000, 1000, 0), queued: []int64{1, 2, 3, 3}},
		{name: "by the limiter's bound", opts: []stint.Option{stint.Concurrency(2), stint.WithMaxWait(second)}, slots: 2,
			want: millis(1000, 1000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "by the limit of the moment", opts: []stint.Option{stint.AdaptiveConcurrency(1, 9, stint.WithInitialLimit(2), stint.WithMaxWait(second))}, slots: 2,
			want: millis(1000, 1000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "Wait, all of them", opts: []stint.Option{stint.AdaptiveConcurrency(1, 1)}, wait: true, within: 7 * second,
			want: millis(7000, 7000, 7000, 7000), queued: []int64{1, 2, 3, 4}},
		{name: "nobody, whatever the others may", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(0)), stint.WithMaxWait(second)},
			want: millis(0, 0, 0, 0), queued: []int64{0, 0, 0, 0}},
		{name: "until the deadline", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2))}, within: 700 * time.Millisecond,
			want: millis(700, 700, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "a limit that adapts", opts: []stint.Option{stint.AdaptiveConcurrency(1, 1, stint.WithQueue(2))},
			want: millis(5000, 5000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "Wait, in the queue", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2), stint.WithMaxWait(second))}, wait: true, within: 7 * second,
			want: millis(7000, 7000, 0, 0), queued: []int64{1, 2, 2, 2}},
		{name: "Wait, until the deadline", opts: []stint.Option{stint.Concurrency(1)}, wait: true, within: 7 * second,
			want: millis(7000, 7000, 7000, 7000), queued: []int64{1, 2, 3, 4}},
		{name: "Wait, where nobody does", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(0))}, wait: true,
			want: millis(0, 0, 0, 0), queued: []int64{0, 0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, append(tt.opts, theKey)...)
				holder := take(t, l, max(tt.slots, 1))
				start := time.Now()
				enter := l.Take
				if tt.wait {
					enter = l.Wait
				}
				var wg sync.WaitGroup
				for i := range tt.want {
					ctx := t.Context()
					if tt.within > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.within)
						defer cancel()
					}
					wg.Go(func() {
						_, err := enter(ctx, "k", 1)
						var de *stint.DeniedError
						if !errors.As(err, &de) {
							t.Errorf("%d: %v, want a denial", i+1, err)
							return
						}
						d, after := de.Decision, time.Since(start)
						if after != tt.want[i] || d.Delay != after || d.Limits[0].Delay != after || d.Allowed {
							t.Errorf("%d: denied after %v and says %v, %v; want %v", i+1, after, d.Delay, d.Limits[0].Delay, tt.want[i])
						}
						if d.Queued != tt.queued[i] {
							t.Errorf("%d: says that %d waited, want %d", i+1, d.Queued, tt.queued[i])
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				noLines(t, l)
				holder.Done()
				take(t, l, 1).Done()
			})
		})
	}
}

// Keys have queues of their own.
func TestQueueOfSlotsIsPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(1)))
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			for range 2 {
				wg.Go(func() {
					p, err := l.Take(t.Context(), key, 1)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					p.Done()
				})
			}
		}
		wg.Wait()
		noLines(t, l)
	})
}

// A request that comes from another line finds a full queue as full as anybody.
func TestQueueOfTheSecondLimitIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := stint.Concurrency(1, stint.WithName("a"), stint.WithMaxWait(time.Minute))
		b := stint.Concurrency(1, stint.WithName("b"), stint.WithQueue(1))
		root := limiter(t, theKey, stint.Rate(1000, time.Second))
		with := func(limits ...stint.Option) *stint.Limiter {
			t.Helper()
			l, err := root.With(limits...)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		onlyA, onlyB, both := with(a), with(b), with(a, b)
		start := time.Now()
		time.AfterFunc(time.Second, take(t, onlyA, 1).Done)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := both.Take(t.Context(), "k", 1) // in the line of a
			if d := denied(t, err).Decision; d.Limit != "b" || time.Since(start) != time.Second {
				t.Errorf("%+v after %v, want b's denial after 1s", d, time.Since(start))
			}
		})
		synctest.Wait()
		p := take(t, onlyB, 1)
		wg.Go(func() {
			p, err := onlyB.Take(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			p.Done()
		})
		time.Sleep(2 * time.Second)
		p.Done()
		wg.Wait()
		noLines(t, root)
		take(t, both, 1).Done()
	})
}

// A request doesn't wait if its deadline has passed or would pass before its turn.
func TestDeadlineThatCantBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(5)), seen.Option())
		defer take(t, l, 1).Done()
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		start := time.Now()
		w := through(l, get("/").WithContext(ctx), nil)
		if w.Code != http.StatusServiceUnavailable || time.Since(start) != 0 {
			t.Errorf("%d after %v", w.Code, time.Since(start))
		}
		if strings.Contains(seen.Kinds(), "Waiting") {
			t.Error(seen.Kinds())
		}
		noLines(t, l)
	})
	// A turn that was in time when the call came is not when it has its slot.
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, 2*time.Second, stint.WithMaxWait(time.Minute)))
		slow, err := l.With(stint.Concurrency(1, stint.WithMaxWait(time.Minute)))
		if err != nil {
			t.Fatal(err)
		}
		p := take(t, slow, 1)
		time.AfterFunc(3*time.Second, p.Done)
		time.AfterFunc(2900*time.Millisecond, func() { take(t, l, 1) })
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		_, err = slow.Take(ctx, "k", 1)
		if d := denied(t, err).Decision; d.Limit != "rate" || time.Since(start) > 3*time.Second {
			t.Errorf("%+v after %v, want the rate's denial by 3s", d, time.Since(start))
		}
	})
}

// Observers learn of every wait: its beginning and its outcome.
func TestWaitsAreObserved(t *testing.T) {
	tests := []struct {
		name  string
		opts  []stint.Option
		cost  int64
		leave time.Duration // the third gives up
		want  string        // "kind queued delay waited ends"
	}{
		{"slots", []stint.Option{stint.Concurrency(1, stint.WithQueue(2))}, 1, 1500 * time.Millisecond,
			"Admitted 0 0s 0s false; Waiting 1 0s 0s false; Waiting 2 0s 0s false; Denied 2 0s 0s false; " +
				"Admitted 1 1s 1s true; Canceled 2 1.5s 1.5s true"},
		{"turns", []stint.Option{stint.Rate(1, time.Second, stint.WithMaxWait(2*time.Second))}, 1, 1500 * time.Millisecond,
			"Admitted 0 0s 0s false; Waiting 1 1s 0s false; Waiting 2 2s 0s false; Denied 2 0s 0s false; " +
				"Admitted 1 1s 1s true; Canceled 2 1.5s 1.5s true"},
		// The turn comes later than a slot, so all wait for it.
		{"a turn and a slot", []stint.Option{stint.Concurrency(1, stint.WithQueue(2)), stint.Rate(1, 2*time.Second, stint.WithMaxWait(5*time.Second))}, 1, 500 * time.Millisecond,
			"Admitted 0 0s 0s false; Waiting 1 2s 0s false; Waiting 2 4s 0s false; Denied 2 0s 0s false; " +
				"Canceled 2 500ms 500ms true; Admitted 1 2s 2s true"},
		{"nobody", []stint.Option{stint.Rate(9, time.Second)}, 1, 0,
			"Admitted 0 0s 0s false; Admitted 0 0s 0s false; Admitted 0 0s 0s false; Admitted 0 0s 0s false"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var log []string
				l := limiter(t, append(tt.opts, theKey, stint.WithObserver(func(e stint.Event) {
					if e.Kind == stint.EventEnded {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					log = append(log, fmt.Sprint(e.Kind, e.Decision.Queued, " ", e.Decision.Delay, e.Waited, e.EndsWait))
					if e.Request == nil {
						t.Error("no request")
					}
					if e.Kind == stint.EventWaiting && e.Decision.Limit == "" {
						t.Error("waits for no limit")
					}
				}))...)
				var wg sync.WaitGroup
				for i := range 4 {
					ctx, cancel := context.WithCancel(t.Context())
					if i == 2 && tt.leave > 0 {
						time.AfterFunc(tt.leave, cancel)
					}
					wg.Go(func() {
						defer cancel()
						through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
							d := stint.FromContext(r.Context()).Decision()
							mu.Lock()
							last := log[len(log)-1]
							mu.Unlock()
							if got := fmt.Sprint(stint.EventAdmitted, d.Queued, " ", d.Delay); !strings.HasPrefix(last, got) {
								t.Errorf("the permit says %s, the event %s", got, last)
							}
							if i < 2 {
								time.Sleep(time.Second)
							}
						})
					})
					synctest.Wait()
				}
				wg.Wait()
				if got := strings.Join(log, "; "); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				noLines(t, l)
			})
		})
	}
}

// A request that is denied a slot asks again in its line. If a slot has come meanwhile, it hasn't begun to wait.
func TestSlotOfTheSecondAskEndsNoWait(t *testing.T) {
	s, seen := newSpy(), &events{}
	l := limiter(t, theKey, stint.WithStore(s), seen.Option(), stint.Concurrency(1, stint.WithQueue(3), stint.WithName("concurrency")))
	held := take(t, l, 1)
	n := 0
	s.OnTake = func(c *asks) error {
		if n++; n == 2 {
			s.OnTake = nil
			held.Done()
		}
		return c.Pass()
	}
	take(t, l, 1).Done()
	if got, want := seen.Kinds(), "Admitted Admitted"; got != want || n != 2 {
		t.Errorf("%s after %d asks, want %s after 2", got, n, want)
	}
	for _, e := range seen.All() {
		if e.EndsWait {
			t.Errorf("%v ends a wait", e.Kind)
		}
	}
	noLines(t, l)
}

// A wait that ends because the store fails is also reported as over.
func TestStoreFailsUnderAWait(t *testing.T) {
	for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			s, seen := newSpy(), &events{}
			l := limiter(t, theKey, stint.WithStore(s), stint.WithFailurePolicy(policy), seen.Option(), stint.Concurrency(1, stint.WithQueue(3), stint.WithName("concurrency")))
			p := take(t, l, 1)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					q, err := l.Take(t.Context(), "k", 1)
					if failed := errors.As(err, new(*stint.StoreError)); failed != (policy == stint.FailClosed) {
						t.Errorf("%v: %v", policy, err)
					}
					q.Done()
				})
			}
			synctest.Wait()
			s.FailWith(errDown)
			wg.Wait()
			if got, want := seen.Kinds(), "Admitted Waiting Waiting Waiting StoreFailed StoreFailed StoreFailed"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if e := seen.Last(); !e.EndsWait || e.Waited == 0 {
				t.Errorf("%+v", e)
			}
			s.FailWith(nil)
			p.Done()
			noLines(t, l)
		})
	}
}

// The cost of asking without being woken, in calls per second, with many lines.
func TestPollsAreBounded(t *testing.T) {
	for lines, most := range map[int]int{1: 12, 5: 60, 10: 120, 50: 120, 100: 120, 300: 350} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithMaxWait(time.Minute), stint.WithName("concurrency")))
			ctx, cancel := context.WithCancel(t.Context())
			var held []*stint.Permit
			for i := range lines {
				p, err := l.Take(ctx, fmt.Sprint(i), 1)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, p)
				for range 2 {
					go func() { _, _ = l.Take(ctx, fmt.Sprint(i), 1) }()
				}
			}
			synctest.Wait()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			before, _ := s.Counts()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			after, _ := s.Counts()
			if n := (after - before) / 10; n > most || n < min(lines*9, 80) {
				t.Errorf("%d lines ask %d times a second, want %d at the most", lines, n, most)
			}
			cancel()
			synctest.Wait()
			for _, p := range held {
				p.Done()
			}
			noLines(t, l)
		})
	}
}

// However seldom it polls, the head asks once more before it gives up.
func TestHeadAsksAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		here := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithMaxWait(80*time.Millisecond), stint.WithName("concurrency")))
		there := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithName("concurrency")))
		p := take(t, there, 1)
		time.AfterFunc(79*time.Millisecond, p.Done)
		start := time.Now()
		take(t, here, 1).Done()
		if after := time.Since(start); after != 80*time.Millisecond {
			t.Errorf("got the slot after %v, want 80ms", after)
		}
	})
}

// A call that waits for two limits in turn waits for each as long as that limit's
// WithMaxWait says, and asks the store as often as in one line.
func TestPatienceIsTheLinesOwn(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	tests := []struct {
		name         string
		a, b         time.Duration // until when others hold them
		again        time.Duration // when a is taken once more, if it is, for a second
		ahead        bool          // another heads the line of b, and has its slot for 100ms
		admitted     bool
		after        time.Duration
		most         int // takes of the store
		aWait, bWait time.Duration
	}{
		{name: "a, then heads the line of b", a: ms(100), b: ms(3000), admitted: true, after: ms(3000), most: 40, aWait: ms(100), bWait: ms(2900)},
		{name: "a, then second in the line of b", a: ms(100), b: ms(3000), ahead: true, admitted: true, after: ms(3100), most: 45, aWait: ms(100), bWait: ms(3000)},
		{name: "a's patience ends in a's line", a: ms(1000), b: ms(40), after: ms(200), most: 10, aWait: ms(200)},
		{name: "b's patience ends in b's line", a: ms(100), b: ms(9000), after: ms(5100), most: 65, aWait: ms(100), bWait: ms(5000)},
		{name: "b's patience ends behind another", a: ms(100), b: ms(9000), ahead: true, after: ms(5100), most: 75, aWait: ms(100), bWait: ms(5000)},
		{name: "back in a's line, what is left of a's patience", a: ms(160), b: ms(1000), again: ms(500), after: ms(1040), most: 25, aWait: ms(200), bWait: ms(840)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := stint.Concurrency(1, stint.WithName("a"), stint.WithMaxWait(ms(200)))
				b := stint.Concurrency(1, stint.WithName("b"), stint.WithQueue(2), stint.WithMaxWait(ms(5000)))
				s := slow(time.Millisecond, 0) // or in fake time, whoever asks it without pause does so for ever
				root := limiter(t, theKey, stint.WithStore(s), stint.Rate(1000, time.Second, stint.WithName("rate")))
				with := func(limits ...stint.Option) *stint.Limiter {
					l, err := root.With(limits...)
					if err != nil {
						t.Fatal(err)
					}
					return l
				}
				onlyA, onlyB, both := with(a), with(b), with(a, b)
				heldA, heldB := take(t, onlyA, 1), take(t, onlyB, 1)
				start := time.Now()
				time.AfterFunc(tt.a, heldA.Done)
				time.AfterFunc(tt.b, heldB.Done)
				if tt.again > 0 {
					time.AfterFunc(tt.again, func() { time.AfterFunc(time.Second, take(t, onlyA, 1).Done) })
				}
				var wg sync.WaitGroup
				if tt.ahead {
					wg.Go(func() {
						if p, err := onlyB.Take(t.Context(), "k", 1); err == nil {
							time.Sleep(ms(100))
							p.Done()
						}
					})
					synctest.Wait()
				}
				p, err := both.Take(t.Context(), "k", 1)
				takes, _ := s.Counts()
				near := func(d time.Duration) time.Duration { return d.Round(20 * time.Millisecond) }
				if after := near(time.Since(start)); (err == nil) != tt.admitted || after != tt.after {
					t.Errorf("%v after %v, want admitted: %v after %v", err, after, tt.admitted, tt.after)
				}
				if takes > tt.most {
					t.Errorf("%d takes, want %d at the most", takes, tt.most)
				}
				d := p.Decision()
				if de := (*stint.DeniedError)(nil); errors.As(err, &de) {
					d = de.Decision
				}
				waits := map[string]time.Duration{}
				for _, l := range d.Limits {
					waits[l.Name] = l.Delay
				}
				if near(waits["a"]) != tt.aWait || near(waits["b"]) != tt.bWait || near(d.Delay) != tt.after {
					t.Errorf("waited %v for a and %v for b, %v in all; want %v, %v, %v", waits["a"], waits["b"], d.Delay, tt.aWait, tt.bWait, tt.after)
				}
				p.Done()
				wg.Wait()
				time.Sleep(10 * time.Second)
				noLines(t, root)
				take(t, both, 1).Done()
			})
		})
	}
}

// lined is a limiter that tells when a wait has begun.
func lined(t *testing.T, s store.Store, opts ...stint.SlotOption) (l *stint.Limiter, begun chan struct{}) {
	begun = make(chan struct{}, 1000)
	return limiter(t, theKey, stint.WithStore(s), stint.Concurrency(3, append(opts, stint.WithName("concurrency"))...),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				begun <- struct{}{}
			}
		})), begun
}

// The order is kept by the process, so it is the same on every store.
func TestLineOverStores(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var answered atomic.Int64
		l, begun := lined(t, &spy{Store: s, OnTake: func(c *asks) error {
			defer answered.Add(1)
			return c.Pass()
		}}, stint.WithQueue(4), stint.WithMaxWait(time.Minute), stint.WithShare(1, 30))
		var held []*stint.Permit
		for range 3 {
			held = append(held, take(t, l, 1))
		}
		served := make(chan string, 4)
		var wg sync.WaitGroup
		for _, class := range []int{0, 5, 1, 5} {
			wg.Go(func() {
				p, err := l.Take(stint.ContextWithPriority(context.Background(), class), "k", 1)
				if err != nil {
					t.Error(err)
					return
				}
				served <- fmt.Sprint(class, " of ", p.Decision().Queued)
				p.Done()
			})
			<-begun
		}
		_, err := l.Take(context.Background(), "k", 1)
		if d := denied(t, err).Decision; d.Queued != 4 || d.Delay > 10*time.Second {
			t.Errorf("%+v, want to be denied at once", d)
		}
		// A call that was about to ask before it was overtaken still asks. The call that asks after it is the first.
		for overtaken := answered.Load() + 1; answered.Load() <= overtaken; {
			time.Sleep(time.Millisecond)
		}
		held[0].Done()
		wg.Wait()
		close(served)
		got := ""
		for s := range served {
			got += s + ", "
		}
		if want := "1 of 3, 5 of 2, 5 of 4, 0 of 1, "; got != want {
			t.Errorf("%s want %s", got, want)
		}
		held[1].Done()
		held[2].Done()
		noLines(t, l)
	})
}

// Two processes share one store and have a line each. Whoever leaves, and when: the
// limit holds, all others are served, and nothing is left behind.
func TestLinesOfTwoProcesses(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		opts := []stint.SlotOption{stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithShare(1, 30)}
		here, _ := lined(t, s, opts...)
		there, _ := lined(t, s, opts...)
		var mu sync.Mutex
		inside, most, served := 0, 0, 0
		var wg sync.WaitGroup
		for i := range 120 {
			l := []*stint.Limiter{here, there}[i%2]
			ctx, cancel := context.WithCancel(stint.ContextWithPriority(context.Background(), rand.IntN(3)))
			leaves := rand.IntN(3) == 0
			if leaves {
				time.AfterFunc(time.Duration(rand.IntN(50))*time.Millisecond, cancel)
			}
			work := time.Duration(rand.IntN(4000)) * time.Microsecond
			wg.Go(func() {
				defer cancel()
				p, err := l.Take(ctx, "k", 1)
				if err != nil {
					if !leaves || !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				inside++
				served++
				most = max(most, inside)
				mu.Unlock()
				time.Sleep(work) // in real time: one of the stores is a server
				mu.Lock()
				inside--
				mu.Unlock()
				p.Done()
			})
		}
		wg.Wait()
		if most > 3 || served == 0 {
			t.Errorf("%d at once, want 3 at the most; %d served", most, served)
		}
		for _, l := range []*stint.Limiter{here, there} {
			noLines(t, l)
			if n := l.Held(); n != 0 {
				t.Errorf("shares of %d keys are still counted", n)
			}
			if got := remaining(t, l); got != 3 {
				t.Errorf("%d slots free at the end", got)
			}
		}
	})
}

// A server doesn't notice that the client of an unread body has left: its place is free
// when the wait's bound is over.
func TestWaitEndsThoughNobodyNotices(t *testing.T) {
	var noticed atomic.Bool
	begun, ended := make(chan struct{}, 1), make(chan stint.Event, 1)
	l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(1), stint.WithMaxWait(300*time.Millisecond)),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				begun <- struct{}{}
			}
			if e.EndsWait {
				noticed.Store(e.Request.Context().Err() != nil)
				ended <- e
			}
		}))
	defer take(t, l, 1).Done()
	server := httptest.NewServer(mount(l, nil))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 10\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	conn.Close()
	if e := <-ended; noticed.Load() || e.Kind != stint.EventDenied || e.Waited < 300*time.Millisecond {
		t.Errorf("%v after %v, noticed %v; want it to be denied", e.Kind, e.Waited, noticed.Load())
	}
	for waiting := 1; waiting > 0; waiting, _ = l.Lines() {
		time.Sleep(time.Millisecond) // the server's goroutine, after a real connection
	}
}

// A limiter made by With may have a store of its own. Who waits for something of one
// store delays no caller in the other, and what they leave goes back where it is from.
func TestLinesOfTwoStores(t *testing.T) {
	soon := 10 * time.Millisecond
	for name, limit := range map[string]stint.Limit{
		"slots": stint.Concurrency(1, stint.WithQueue(5), stint.WithMaxWait(time.Minute), stint.WithName("x")),
		"turns": stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute), stint.WithName("x")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent := limiter(t, theKey, limit)
				child := derive(t, parent, stint.WithStore(memstore.New()))
				start := time.Now()
				// The parent's only unit is taken. Of two that wait for the next, the
				// second leaves.
				first := take(t, parent, 1)
				time.AfterFunc(5*time.Second, first.Done)
				waiting := make(chan time.Duration)
				go func() {
					take(t, parent, 1).Done()
					waiting <- time.Since(start)
				}()
				synctest.Wait()
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(soon, leave)
				if _, err := parent.Take(ctx, "k", 1); err == nil {
					t.Error("there was no unit for the second")
				}
				take(t, child, 1).Done()
				if d := time.Since(start); d != soon {
					t.Errorf("in the other store a unit was free, and came after %v", d)
				}
				was := <-waiting
				if want := map[string]time.Duration{"slots": 5 * time.Second, "turns": time.Second}[name]; was != want {
					t.Errorf("the first had to wait for %v, want %v", was, want)
				}
				start = time.Now()
				take(t, parent, 1).Done()
				if d := time.Since(start); d > time.Second {
					t.Errorf("what was left is lost: the next waits for %v", d)
				}
			})
		})
	}
}

// Limits of this process are the same for both stores, and a slot that is released wakes
// who waits beside either.
func TestLinesOfTwoStoresForOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := limiter(t, theKey, stint.AdaptiveConcurrency(1, 1, stint.WithQueue(5), stint.WithName("adaptive")))
		child := derive(t, parent, stint.WithStore(memstore.New()))
		start := time.Now()
		for _, l := range []*stint.Limiter{parent, child, parent} {
			p := take(t, l, 1)
			time.AfterFunc(time.Second, p.Done)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("the third came after %v, want 2s", d)
		}
		time.Sleep(time.Second)
	})
}

// byHeader takes the class from a field.
var byHeader = stint.WithPriority(func(r *http.Request) int {
	n, _ := strconv.Atoi(r.Header.Get("Class"))
	return n
})

// arrival is a request that comes at some time with a class and leaves, if
// ever, unserved after some time.
type arrival struct {
	name     string
	at       time.Duration
	class    int
	deadline time.Duration
	leave    time.Duration
}

// visits lets the arrivals come, each to work for as long as it is let in, and
// returns who went in when, in order.
func visits(t *testing.T, l *stint.Limiter, work time.Duration, all []arrival) string {
	t.Helper()
	start := time.Now()
	type entry struct {
		at   time.Duration
		text string
	}
	var mu sync.Mutex
	var log []entry
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, entry{time.Since(start), fmt.Sprintf(format, args...)})
	}
	var wg sync.WaitGroup
	for _, a := range all {
		time.Sleep(a.at - time.Since(start))
		r := get("/")
		r.Header.Set("Class", strconv.Itoa(a.class))
		ctx, cancel := context.WithCancel(t.Context())
		if a.deadline > 0 {
			ctx, cancel = context.WithTimeout(t.Context(), a.deadline)
		}
		if a.leave > 0 {
			time.AfterFunc(a.leave, cancel)
		}
		wg.Go(func() {
			defer cancel()
			w := through(l, r.WithContext(ctx), func(http.ResponseWriter, *http.Request) {
				note("%s %v", a.name, time.Since(start))
				time.Sleep(work)
			})
			if w.Code != 200 {
				note("%s denied %v", a.name, time.Since(start))
			}
		})
		synctest.Wait()
	}
	wg.Wait()
	noLines(t, l)
	slices.SortStableFunc(log, func(a, b entry) int { return int(a.at - b.at) })
	var text []string
	for _, e := range log {
		text = append(text, e.text)
	}
	return strings.Join(text, ", ")
}

func TestPriority(t *testing.T) {
	ms := time.Millisecond
	slot := stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))
	turn := stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute))
	three := []arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"mid", 200 * ms, 2, 0, 0}, {"mid2", 300 * ms, 2, 0, 0}, {"high", 400 * ms, 5, 0, 0}}
	late := []arrival{{"a", 0, 0, 0, 0}, {"low", 10 * ms, 0, 0, 0}, {"h1", 500 * ms, 1, 0, 0}, {"h2", 1500 * ms, 1, 0, 0}, {"h3", 2500 * ms, 1, 0, 0}}
	tests := []struct {
		name  string
		opts  []stint.Option
		comes []arrival
		want  string
	}{
		{"slots", []stint.Option{slot, byHeader}, three, "a 0s, high 1s, mid 2s, mid2 3s, low 4s"},
		{"slots, all equal", []stint.Option{slot}, three, "a 0s, low 1s, mid 2s, mid2 3s, high 4s"},
		{"turns, all equal", []stint.Option{turn}, three, "a 0s, low 1s, mid 2s, mid2 3s, high 4s"},
		{"however long it waits", []stint.Option{slot, byHeader}, late, "a 0s, h1 1s, h2 2s, h3 3s, low 4s"},
		{"classes beyond the last are the last", []stint.Option{slot, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"nine", 100 * ms, 9, 0, 0}, {"more", 200 * ms, 99, 0, 0}, {"none", 300 * ms, -99, 0, 0}, {"zero", 400 * ms, 0, 0, 0}},
			"a 0s, nine 1s, more 2s, none 3s, zero 4s"},
		{"who leaves holds up nobody", []stint.Option{slot, byHeader},
			[]arrival{{"a", 0, 0, 0, 0}, {"low", 100 * ms, 0, 0, 0}, {"high", 200 * ms, 5, 0, 500 * ms}, {"low2", 300 * ms, 0, 0, 0}}, "a 0s, high denied 700ms, low 1s, low2 2s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := visits(t, limiter(t, append(tt.opts, theKey)...), time.Second, tt.comes); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// A full queue is for those of the highest rank: a request replaces the last waiter of the
// lowest, if that is below its own.
func TestFullQueue(t *testing.T) {
	slot := func(opts ...stint.SlotOption) stint.Option {
		return stint.Concurrency(1, append(opts, stint.WithQueue(2), stint.WithMaxWait(time.Minute))...)
	}
	come := func(classes ...int) (all []arrival) { // a is the first, and holds the slot
		for i, class := range classes {
			all = append(all, arrival{name: string(rune('a' + i)), at: time.Duration(i) * 100 * time.Millisecond, class: class})
		}
		return all
	}
	tests := []struct {
		name  string
		limit stint.Option
		comes []arrival
		want  string
	}{
		{"a higher class replaces the last of the lowest", slot(), come(0, 0, 0, 1, 5), "a 0s, c denied 300ms, b denied 400ms, e 1s, d 2s"},
		{"the lowest of several", slot(), come(0, 3, 1, 5, 5), "a 0s, c denied 300ms, b denied 400ms, d 1s, e 2s"},
		{"nobody of its own class", slot(), come(0, 5, 5, 5), "a 0s, d denied 300ms, b 1s, c 2s"},
		{"nor of a higher one", slot(), come(0, 5, 5, 4), "a 0s, d denied 300ms, b 1s, c 2s"},
		{"a class below its share replaces a higher one", slot(stint.WithShare(0, 50)), come(9, 9, 9, 0, 0), "a 0s, c denied 300ms, b denied 400ms, d 1s, e 2s"},
		{"but not with its share", slot(stint.WithShare(0, 50)), come(0, 9, 9, 0), "a 0s, d denied 300ms, b 1s, c 2s"},
		{"of two below their shares, the higher class", slot(stint.WithShare(0, 50), stint.WithShare(1, 50)), come(9, 0, 0, 1, 5), "a 0s, c denied 300ms, e denied 400ms, d 1s, b 2s"},
		{"nobody where nobody waits", stint.Concurrency(1, stint.WithQueue(0)), come(0, 9), "a 0s, b denied 100ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := visits(t, limiter(t, theKey, byHeader, tt.limit), time.Second, tt.comes); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// Who is replaced in a queue is denied like one that finds it full: nothing is charged, and
// its wait ends. Limiter.Wait is never denied for others, unless WithQueue sets a bound.
func TestReplaced(t *testing.T) {
	for _, queue := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var told []string
			opts := []stint.SlotOption{stint.WithName("slots")}
			if queue {
				opts = append(opts, stint.WithQueue(1))
			}
			l := limiter(t, theKey, stint.Concurrency(1, opts...), stint.WithMaxWait(time.Minute), stint.Quota(9, stint.Every(time.Hour)), stint.WithObserver(func(e stint.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == stint.EventWaiting || e.EndsWait {
					told = append(told, e.Kind.String())
				}
			}))
			holder := take(t, l, 1)
			var wg sync.WaitGroup
			wg.Go(func() {
				start := time.Now()
				p, err := l.Wait(t.Context(), "k", 1)
				if !queue {
					p.Done()
					return
				}
				d := denied(t, err).Decision
				slots := d.Limits[0]
				if after := time.Since(start); after != 300*time.Millisecond || d.Limit != "slots" || d.Delay != after || d.Queued != 1 || d.RetryAfter <= 0 || slots.Allowed || slots.Remaining != 0 || d.Limits[1].Remaining != 8 {
					t.Errorf("replaced after %v: %+v", after, d)
				}
			})
			time.Sleep(300 * time.Millisecond)
			wg.Go(func() {
				p, err := l.Take(stint.ContextWithPriority(t.Context(), 5), "k", 1)
				if (err == nil) != queue {
					t.Errorf("the higher class: %v", err)
				}
				p.Done()
			})
			synctest.Wait()
			holder.Done()
			wg.Wait()
			if d, err := l.Peek(t.Context(), "k"); err != nil || d.Limits[0].Remaining != 1 || d.Limits[1].Remaining != 7 {
				t.Errorf("left at the end: %+v, %v", d.Limits, err)
			}
			// That one is replaced and another waits in its place are two goroutines' events.
			want := []string{"Waiting Waiting Denied Admitted", "Waiting Denied Waiting Admitted"}
			if !queue {
				want = []string{"Waiting Admitted"}
			}
			if got := strings.Join(told, " "); !slices.Contains(want, got) {
				t.Errorf("observers were told: %s, want one of %q", got, want)
			}
			noLines(t, l)
		})
	}
}

// rush sends requests at a multiple of what ten slots carry, if each takes one for a second
// on average, of that length; and returns how many of each class came and were denied. A
// quarter of the capacity is of class 9: half of a share of 50 %. The others are of class 0.
// It ends with the 274th of class 9. Requests go to ls in turn. If equal, they have no class.
// It sleeps by the clock of its caller: a bubble's, or the real one if the store is a server.
func rush(rnd *rand.Rand, times float64, second time.Duration, equal bool, ls ...*stint.Limiter) (came, denied [10]int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	due := time.Now()
	for i := 0; came[9] < 274; i++ {
		due = due.Add(time.Duration(rnd.ExpFloat64() * float64(second) / (10 * times)))
		time.Sleep(time.Until(due))
		class, ctx := 0, context.Background()
		if rnd.Float64() < 0.25/times {
			class = 9
		}
		if came[class]++; !equal {
			ctx = stint.ContextWithPriority(ctx, class)
		}
		work := time.Duration((0.5 + rnd.Float64()) * float64(second))
		wg.Go(func() {
			p, err := ls[i%len(ls)].Take(ctx, "k", 1)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				denied[class]++
				return
			}
			defer p.Done()
			time.Sleep(work)
		})
	}
	wg.Wait()
	return came, denied
}

// rushed are limiters for a rush on one store.
func rushed(t *testing.T, s store.Store, processes int, shares ...stint.SlotOption) (ls []*stint.Limiter) {
	opts := append(shares, stint.WithName("slots"), stint.WithQueue(20), stint.WithMaxWait(3*time.Second))
	for range processes {
		ls = append(ls, limiter(t, theKey, stint.WithStore(s), stint.Concurrency(10, opts...)))
	}
	return ls
}

var (
	loads = []float64{1.2, 1.5, 2, 3}
	half  = stint.WithShare(9, 50)
	table = flag.String("table", "", "the document in which TestRush writes its table anew")
)

// However much class 0 asks for, nothing is denied of class 9 while it needs half of its
// share.
func TestRush(t *testing.T) {
	for _, tt := range []struct {
		name      string
		processes int
		shares    []stint.SlotOption
	}{
		{"one process", 1, []stint.SlotOption{half}},
		{"class 0 has a share too", 1, []stint.SlotOption{half, stint.WithShare(0, 20)}},
		{"two processes", 2, []stint.SlotOption{half}},
	} {
		for _, times := range loads {
			synctest.Test(t, func(t *testing.T) {
				came, denied := rush(newRand(1), times, time.Second, false, rushed(t, memstore.New(), tt.processes, tt.shares...)...)
				if denied[9] > 0 || denied[0] == 0 {
					t.Errorf("%s, %v times the capacity: %d of %d denied of class 9, %d of %d of class 0", tt.name, times, denied[9], came[9], denied[0], came[0])
				}
			})
		}
	}
}

// Nor is it if two processes share the slots on a real server. A machine that is busy with
// something else may keep the server from answering until a queue is full of class 9: of three
// tries, one is undisturbed.
func TestServersRush(t *testing.T) {
	redistest.Suite(t, "servers")
	server := redistest.Shared(t)
	var wg sync.WaitGroup
	for i, times := range loads {
		wg.Go(func() {
			var tries []string
			for try := range 3 {
				s := redisstore.New(server.Client(), patient, redisstore.WithPrefix(fmt.Sprint(redistest.Prefix(t), i, try)))
				defer s.Close()
				came, denied := rush(newRand(1), times, 100*time.Millisecond, false, rushed(t, s, 2, half)...)
				if denied[9] == 0 && denied[0] > 0 {
					return
				}
				tries = append(tries, fmt.Sprintf("%d of %d of class 9, %d of %d of class 0", denied[9], came[9], denied[0], came[0]))
			}
			t.Errorf("%v times the capacity: denied are %q", times, tries)
		})
	}
	wg.Wait()
}

// TestRushTable draws the table of docs/waiting.md if it is told to ("make plots").
func TestRushTable(t *testing.T) {
	if *table == "" {
		t.Skip("make plots runs it")
	}
	doc, err := os.ReadFile(*table)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| load | important requests, without classes | other requests, without classes | " +
		"important requests, class 9 | other requests, class 0 |\n"
	const line = "| --- | --- | --- | --- | --- |\n"
	before, after, found := strings.Cut(string(doc), head)
	_, after, ends := strings.Cut(after, "\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table that begins with %s", *table, head)
	}
	rows := head + line
	for _, times := range loads {
		rows += fmt.Sprintf("| %v |", times)
		for _, equal := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				came, denied := rush(newRand(1), times, time.Second, equal, rushed(t, memstore.New(), 1, half)...)
				rows += fmt.Sprintf(" %d of %d | %d of %d |", denied[9], came[9], denied[0], came[0])
			})
		}
		rows += "\n"
	}
	if err := os.WriteFile(*table, []byte(before+rows+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Outside HTTP, and in it without WithPriority, the class comes from the context.
func TestPriorityOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute)))
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		enter := func(name string, do func() *stint.Permit) {
			wg.Go(func() {
				p := do()
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				time.Sleep(time.Second)
				p.Done()
			})
			synctest.Wait()
		}
		in := func(class int) context.Context { return stint.ContextWithPriority(t.Context(), class) }
		must := func(p *stint.Permit, err error) *stint.Permit {
			if err != nil {
				t.Error(err)
			}
			return p
		}
		enter("first", func() *stint.Permit { return must(l.Take(t.Context(), "k", 1)) })
		enter("take 0", func() *stint.Permit { return must(l.Take(t.Context(), "k", 1)) })
		enter("take 1", func() *stint.Permit { return must(l.Take(in(1), "k", 1)) })
		enter("wait 3", func() *stint.Permit { return must(l.Wait(in(3), "k", 1)) })
		enter("admit 2", func() *stint.Permit { return must(l.Open(discardResponse(), get("/").WithContext(in(2)))) })
		wg.Wait()
		if got, want := strings.Join(order, ", "), "first, wait 3, admit 2, take 1, take 0"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		noLines(t, l)
	})
}

func discardResponse() http.ResponseWriter { return &discard{h: http.Header{}} }

// The class of a request that needs no slot and doesn't wait isn't asked for; that of
// all others once.
func TestPriorityIsAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := limiter(t, theKey, stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute)),
			stint.WithRoute("/slots", stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))),
			stint.WithPriority(func(*http.Request) int { asked++; return 1 }))
		for i, tt := range []struct {
			path string
			want int
		}{{"/", 0}, {"/", 0}, {"/", 1}, {"/slots", 1}, {"/slots", 1}} {
			if asked = 0; i == 4 {
				p, err := l.Open(discardResponse(), get("/slots"))
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Second, p.Done)
				asked = 0
			}
			if through(l, get(tt.path), nil); asked != tt.want {
				t.Errorf("%d: asked %d times, want %d", i, asked, tt.want)
			}
		}
	})
	// A function that panics takes nothing with it.
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(2, stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithShare(1, 50)),
			stint.WithPriority(func(*http.Request) int { panic("no class") }))
		func() {
			defer func() { _ = recover() }()
			through(l, get("/"), nil)
			t.Error("no panic")
		}()
		if got := remaining(t, l); got != 2 {
			t.Errorf("%d slots free, want 2", got)
		}
		noLines(t, l)
	})
}

// Priorities are inherited like other options, and replaced by an Update.
func TestPriorityIsInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comes := []arrival{{"a", 0, 0, 0, 0}, {"low", 1, 0, 0, 0}, {"high", 2, 5, 0, 0}}
		root := limiter(t, theKey, byHeader, stint.Rate(1000, time.Second))
		slot := stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute))
		l, err := root.With(slot)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := visits(t, l, time.Second, comes), "a 0s, high 1s, low 2s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		backwards := stint.WithPriority(func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("Class")); return 9 - n })
		if err := l.Update(slot, backwards); err != nil {
			t.Fatal(err)
		}
		if got, want := visits(t, l, time.Second, comes), "a 0s, low 1s, high 2s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Whoever waits and leaves, and when: no waiter is overtaken by a lower rank, no place is
// lost, and no more pass than may.
func TestPriorityUnderStress(t *testing.T) {
	limits := map[string]stint.Limit{
		"slots":    stint.Concurrency(3, stint.WithQueue(1000), stint.WithMaxWait(20*time.Second)),
		"adaptive": stint.AdaptiveConcurrency(3, 3, stint.WithQueue(1000), stint.WithMaxWait(20*time.Second)),
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				synctest.Test(t, func(t *testing.T) {
					rnd := newRand(seed)
					l := limiter(t, theKey, limit)
					type waiter struct {
						class    int
						came     time.Time
						in, left time.Time
					}
					var mu sync.Mutex
					var all []*waiter
					inside, most := 0, 0
					var wg sync.WaitGroup
					for range 150 {
						w := &waiter{class: rnd.IntN(4), came: time.Now()}
						all = append(all, w)
						ctx, cancel := context.WithCancel(stint.ContextWithPriority(t.Context(), w.class))
						if rnd.IntN(3) == 0 {
							time.AfterFunc(time.Duration(rnd.IntN(3_000_000))*time.Microsecond, cancel)
						}
						work := time.Duration(1+rnd.IntN(150_000)) * time.Microsecond
						wg.Go(func() {
							defer cancel()
							p, err := l.Take(ctx, "k", 1)
							mu.Lock()
							defer mu.Unlock()
							if err != nil {
								if !errors.Is(err, context.Canceled) {
									t.Errorf("seed %d: %v", seed, err)
								}
								w.left = time.Now()
								return
							}
							w.in = time.Now()
							inside++
							most = max(most, inside)
							mu.Unlock()
							time.Sleep(work)
							mu.Lock()
							inside--
							p.Done()
						})
						synctest.Wait()
						time.Sleep(time.Duration(1+rnd.IntN(40_000)) * time.Microsecond)
					}
					wg.Wait()
					for _, a := range all {
						for _, b := range all {
							// a waited when b went in, and ranks before it.
							before := a.class > b.class || a.class == b.class && a.came.Before(b.came)
							waited := !b.in.IsZero() && a.came.Before(b.in) && b.came.Before(b.in) && (a.in.After(b.in) || a.in.IsZero() && a.left.After(b.in))
							if waited && before {
								t.Fatalf("seed %d: class %d of %v went in at %v, before class %d of %v", seed,
									b.class, b.came.Sub(all[0].came), b.in.Sub(all[0].came), a.class, a.came.Sub(all[0].came))
							}
						}
					}
					if most > 3 {
						t.Errorf("seed %d: %d at once, want 3 at the most", seed, most)
					}
					noLines(t, l)
					if got := remaining(t, l); name == "slots" && got != 3 {
						t.Errorf("seed %d: %d slots free at the end", seed, got)
					}
				})
			}
		})
	}
}

// A waiter that has been overtaken doesn't ask, even if it would be the first to notice
// a slot released elsewhere.
func TestOvertakenHeadDoesNotAsk(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy()
			there := limiter(t, theKey, stint.WithStore(s), stint.Concurrency(1, stint.WithName("concurrency")))
			l := limiter(t, theKey, stint.WithStore(s), byHeader, stint.Concurrency(1, stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithName("concurrency")))
			time.AfterFunc(85*time.Millisecond, take(t, there, 1).Done)
			got := visits(t, l, time.Second, []arrival{{"low", 0, 0, 0, 0}, {"high", 50 * time.Millisecond, 5, 0, 0}})
			if !strings.HasPrefix(got, "high") {
				t.Fatal(got)
			}
		})
	}
}

// One turn goes to one waiter, even if its waiter leaves, and others come, at the instant it comes.
func TestTurnTakenAtTheLastMoment(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute)))
			through(l, get("/"), nil)
			start := time.Now()
			var mu sync.Mutex
			var at []time.Duration
			var wg sync.WaitGroup
			for i := range 4 {
				r := get("/")
				if i == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					r = r.WithContext(ctx)
				}
				wg.Go(func() {
					if i > 1 {
						time.Sleep(time.Second)
					}
					through(l, r, func(http.ResponseWriter, *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, time.Since(start))
					})
				})
			}
			wg.Wait()
			slices.Sort(at)
			if all := millis(1000, 2000, 3000, 4000); !slices.Equal(at, all) && !slices.Equal(at, all[:3]) {
				t.Fatalf("passed at %v, want %v, or one less", at, all)
			}
			noLines(t, l)
		})
	}
}

// workers hold slots in a class until they are told to go.
type workers struct {
	l    *stint.Limiter
	wg   sync.WaitGroup
	mu   sync.Mutex
	in   []int // classes that hold a slot, in the order in which they got it
	ends map[int][]func()
}

func crew(l *stint.Limiter) *workers { return &workers{l: l, ends: map[int][]func(){}} }

// come has n more of a class ask for a slot.
func (w *workers) come(t *testing.T, class, n int) {
	for range n {
		w.wg.Go(func() {
			p, err := w.l.Take(stint.ContextWithPriority(t.Context(), class), "k", 1)
			if err != nil {
				return
			}
			done := make(chan struct{})
			w.mu.Lock()
			w.in = append(w.in, class)
			w.ends[class] = append(w.ends[class], func() { close(done) })
			w.mu.Unlock()
			<-done
			p.Done()
		})
		synctest.Wait()
		time.Sleep(time.Millisecond)
	}
}

// leave has n of a class that hold a slot leave, one after the other.
func (w *workers) leave(class, n int) {
	for range n {
		w.mu.Lock()
		end := w.ends[class][0]
		w.ends[class] = w.ends[class][1:]
		w.in = slices.Delete(w.in, slices.Index(w.in, class), slices.Index(w.in, class)+1)
		w.mu.Unlock()
		end()
		synctest.Wait()
	}
}

// held says how many slots each class holds, as "0:7 1:3".
func (w *workers) held() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[int]int{}
	for _, c := range w.in {
		count[c]++
	}
	var parts []string
	for c := range 10 {
		if count[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d:%d", c, count[c]))
		}
	}
	return strings.Join(parts, " ")
}

// TestShare plays what comes and goes: "+1x20" is twenty of class 1 that come,
// "-0x3" are three of class 0 that leave, "=" is followed by who holds slots.
func TestShare(t *testing.T) {
	share := stint.WithShare
	wait, queue := stint.WithMaxWait(50*time.Second), stint.WithQueue(100)
	ten := func(opts ...stint.SlotOption) stint.Limit {
		return stint.Concurrency(10, append(opts, wait, queue)...)
	}
	tests := []struct {
		name  string
		limit stint.Limit
		play  string
	}{
		{"none", ten(), "+0x20 +0x1 =0:10 -0x4 =0:10"},
		{"an idle share is borrowed", ten(share(1, 30)), "+0x20 =0:10 -0x5 =0:10"},
		{"and comes back as slots are released, though the others are of a higher class", ten(share(1, 30)),
			"+9x20 +1x20 =9:10 -9x1 =1:1|9:9 -9x1 =1:2|9:8 -9x1 =1:3|9:7 -9x3 =1:3|9:7 -1x2 =1:3|9:7"},
		{"beyond its share a class ranks like all others", ten(share(5, 30)),
			"+0x20 +5x20 -0x3 =0:7|5:3 -0x7 =5:10"},
		{"an idle limit is anybody's", ten(share(1, 30)), "+1x20 =1:10 +0x20 -1x2 =1:10"},
		{"two shares", ten(share(0, 40), share(1, 30)), "+5x20 +0x20 +1x20 -5x3 =1:3|5:7 -5x7 =0:4|1:3|5:3"},
		{"all of it shared", ten(share(0, 40), share(1, 60)), "+1x12 +0x12 -1x5 =0:4|1:6 -0x2 =0:4|1:6 -1x2 =0:5|1:5"},
		{"a small share is one slot", stint.Concurrency(3, wait, queue, share(1, 10)), "+9x9 +1x9 -9x1 =1:1|9:2 -9x1 =1:1|9:2 -1x1 =1:1|9:2"},
		{"who leaves the line leaves the share idle", ten(share(1, 50)), "+0x12 +1x1 -0x1 =0:9|1:1 -0x1 =0:9|1:1"},
		{"of a limit that adapts", stint.AdaptiveConcurrency(10, 10, wait, queue, share(1, 30)), "+9x20 +1x20 -9x3 =1:3|9:7 -9x3 =1:3|9:7"},
		{"a dry run", stint.Concurrency(1, wait, share(1, 50), stint.WithDryRun(true)), "+0x3 +1x3 =0:3|1:3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, tt.limit)
				w := crew(l)
				for step := range strings.FieldsSeq(tt.play) {
					var class, n int
					switch step[0] {
					case '+':
						_, _ = fmt.Sscanf(step, "+%dx%d", &class, &n)
						w.come(t, class, n)
					case '-':
						_, _ = fmt.Sscanf(step, "-%dx%d", &class, &n)
						w.leave(class, n)
					case '=':
						if got, want := w.held(), strings.ReplaceAll(step[1:], "|", " "); got != want {
							t.Errorf("at %s: %s", step, got)
						}
					}
				}
				for w.held() != "" {
					w.leave(w.in[0], 1)
				}
				w.wg.Wait()
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("shares of %d keys are still counted", n)
				}
			})
		})
	}
}

// Whoever comes and goes: no class gets a slot while one of a higher rank waits.
func TestShareUnderStress(t *testing.T) {
	shares := map[int]int{0: 20, 1: 50}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := newRand(seed)
			slots := 2 + rnd.IntN(12)
			l := limiter(t, theKey, stint.Concurrency(int64(slots), stint.WithQueue(1000), stint.WithMaxWait(30*time.Second), stint.WithShare(0, shares[0]), stint.WithShare(1, shares[1])))
			var mu sync.Mutex
			var total int
			held, waiting := map[int]int{}, map[int]int{}
			rank := func(class int) int {
				if shares[class] > 0 && (held[class] == 0 || (held[class]+1)*100 <= shares[class]*(total+1)) {
					return class + 10
				}
				return class
			}
			served := 0
			var wg sync.WaitGroup
			for range 200 {
				class := rnd.IntN(3)
				ctx, cancel := context.WithCancel(stint.ContextWithPriority(t.Context(), class))
				if rnd.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(2_000_000))*time.Microsecond, cancel)
				}
				work := time.Duration(1+rnd.IntN(400_000)) * time.Microsecond
				wg.Go(func() {
					defer cancel()
					mu.Lock()
					waiting[class]++
					mu.Unlock()
					p, err := l.Take(ctx, "k", 1)
					mu.Lock()
					defer mu.Unlock()
					waiting[class]--
					if err != nil {
						return
					}
					served++
					for other := range 3 {
						if waiting[other] > 0 && rank(other) > rank(class) {
							t.Errorf("seed %d: class %d got a slot while class %d waited: %v held of %d, %v waiting", seed, class, other, held, slots, waiting)
						}
					}
					held[class]++
					if total++; total > slots {
						t.Errorf("seed %d: %d of %d slots held", seed, total, slots)
					}
					mu.Unlock()
					time.Sleep(work)
					mu.Lock()
					held[class]--
					total--
					p.Done()
				})
				synctest.Wait()
				time.Sleep(time.Duration(1+rnd.IntN(20_000)) * time.Microsecond)
			}
			wg.Wait()
			if got := remaining(t, l); got != int64(slots) || served < 60 {
				t.Errorf("seed %d: %d of %d slots free at the end, %d served", seed, got, slots, served)
			}
			noLines(t, l)
			if n := l.Held(); n != 0 {
				t.Errorf("shares of %d keys are still counted", n)
			}
		})
	}
}

// What is held is counted once, however the request ends, and across updates.
func TestShareIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := func(opts ...stint.SlotOption) stint.Limit {
			return stint.Concurrency(3, append(opts, stint.WithMaxWait(time.Minute))...)
		}
		l := limiter(t, theKey, slots(), stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute)))
		before := take(t, l, 1)
		if err := l.Update(theKey, slots(stint.WithShare(0, 50)), stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute))); err != nil {
			t.Fatal(err)
		}
		p := take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := l.Take(ctx, "k", 1); err == nil { // leaves while it waits for its turn
			t.Error("no cancellation")
		}
		if err := l.Update(theKey, slots()); err != nil {
			t.Fatal(err)
		}
		if n := l.Held(); n != 1 {
			t.Errorf("%d keys counted, want that of the permit", n)
		}
		p.Detach()()
		p.Done()
		before.Done()
		if n := l.Held(); n != 0 {
			t.Errorf("%d keys counted at the end", n)
		}
	})
}

// An Update that adds a share applies to those who already hold slots or wait for them,
// as if the share had always been there.
func TestSharesOfThoseWhoCameBefore(t *testing.T) {
	tests := []struct {
		name   string
		adapts bool
		share  stint.SlotOption
		play   string // as in TestShare; "update" adds the share
	}{
		{"who has its share is owed nothing", false, stint.WithShare(1, 50), "+2x2 +1x2 update +2x1 +1x1 -2x1 =1:2|2:2"},
		{"who has less than its share is", false, stint.WithShare(1, 50), "+0x3 +1x1 update +0x1 +1x1 -0x1 =0:2|1:2"},
		{"others count in the whole", false, stint.WithShare(1, 40), "+0x2 +1x1 +2x1 update +2x1 +1x1 -0x1 =0:1|1:1|2:2"},
		{"who waits is owed it", false, stint.WithShare(1, 50), "+0x4 +0x1 +1x2 update -0x1 =0:3|1:1 -0x1 =0:2|1:2"},
		{"of a limit that adapts", true, stint.WithShare(1, 50), "+2x2 +1x2 update +2x1 +1x1 -2x1 =1:2|2:2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wait, queue := stint.WithMaxWait(50*time.Second), stint.WithQueue(100)
				before, after := stint.Concurrency(4, wait, queue), stint.Concurrency(4, wait, queue, tt.share)
				if tt.adapts {
					before, after = stint.AdaptiveConcurrency(4, 4, wait, queue), stint.AdaptiveConcurrency(4, 4, wait, queue, tt.share)
				}
				l := limiter(t, theKey, before)
				w := crew(l)
				for step := range strings.FieldsSeq(tt.play) {
					var class, n int
					_, _ = fmt.Sscanf(step[1:], "%dx%d", &class, &n)
					switch step[0] {
					case '+':
						w.come(t, class, n)
					case '-':
						w.leave(class, n)
					case 'u':
						update(t, l, theKey, after)
					case '=':
						if got, want := w.held(), strings.ReplaceAll(step[1:], "|", " "); got != want {
							t.Errorf("%s, want %s", got, want)
						}
					}
				}
				for w.held() != "" {
					w.leave(w.in[0], 1)
				}
				w.wg.Wait()
				noLines(t, l)
				if n := l.Held(); n != 0 {
					t.Errorf("what is held of %d keys is still counted", n)
				}
			})
		})
	}
}

func TestShareOptions(t *testing.T) {
	tests := []struct {
		name string
		opt  stint.Option
		want string
	}{
		{"no class", stint.Concurrency(1, stint.WithShare(10, 10)), "a class from 0 to 9"},
		{"less than no class", stint.Concurrency(1, stint.WithShare(-1, 10)), "a class from 0 to 9"},
		{"nothing", stint.Concurrency(1, stint.WithShare(1, 0)), "1 to 100 percent"},
		{"too much", stint.Concurrency(1, stint.WithShare(1, 101)), "1 to 100 percent"},
		{"too much in all", stint.Concurrency(1, stint.WithShare(1, 60), stint.WithShare(2, 41)), "add up to 101 percent"},
		{"twice", stint.Concurrency(1, stint.WithShare(1, 10), stint.WithShare(1, 10)), "has a share already"},
		{"a queue of less than nothing", stint.Concurrency(1, stint.WithQueue(-1)), "WithQueue(-1): use 0 or more"},
		{"nobody waits", stint.Concurrency(1, stint.WithShare(1, 10), stint.WithQueue(0)), `limit "concurrency": WithShare: no request may wait with WithQueue(0), and shares only order waiting requests: raise the queue's length, or leave the shares out`},
		{"nobody waits on a route", stint.WithRoute("/a", stint.Concurrency(1, stint.WithShare(1, 10))), `WithRoute("/a"): limit "concurrency": WithShare: no request may wait for a slot, and shares only order waiting requests: use stint.WithQueue or stint.WithMaxWait, or leave the shares out`},
		{"no function", stint.WithPriority(nil), "WithPriority(nil)"},
	}
	for _, tt := range tests {
		_, err := stint.New(theKey, stint.Rate(9, time.Second, stint.WithName("other")), tt.opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	shared := stint.Concurrency(1, stint.WithShare(1, 10))
	for name, opts := range map[string][]stint.Option{
		"Limiter.Wait waits":           {shared},
		"a route's requests wait":      {stint.WithRoute("/a", shared, stint.WithMaxWait(time.Second))},
		"those of another route do":    {stint.WithRoute("/a", shared), stint.WithRoute("/b", shared, stint.WithMaxWait(time.Second))},
		"it is the limiter's, as well": {shared, stint.WithRoute("/a", stint.Only(shared))},
	} {
		if err := stint.Check(append(opts, theKey)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
