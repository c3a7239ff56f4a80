package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// noLines fails if anybody is left in a line.
func noLines(t *testing.T, l *stint.Limiter) {
	t.Helper()
	if waiting, slots, turns := l.Lines(); waiting != 0 || slots != 0 || turns != 0 {
		t.Errorf("%d wait in %d lines for slots and %d for turns, want none", waiting, slots, turns)
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
		want   []time.Duration // when each of four that come after the holder is refused
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
		{name: "Wait, in the queue", opts: []stint.Option{stint.Concurrency(1, stint.WithQueue(2), stint.WithMaxWait(second))}, wait: true,
			want: millis(3600_000, 3600_000, 0, 0), queued: []int64{1, 2, 2, 2}},
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
							t.Errorf("%d: %v, want a refusal", i+1, err)
							return
						}
						d, after := de.Decision, time.Since(start)
						if after != tt.want[i] || d.Delay != after || d.Limits[0].Delay != after || d.Allowed {
							t.Errorf("%d: refused after %v and says %v, %v; want %v", i+1, after, d.Delay, d.Limits[0].Delay, tt.want[i])
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
				t.Errorf("%+v after %v, want b's refusal after 1s", d, time.Since(start))
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
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithQueue(5)), seen.option())
		defer take(t, l, 1).Done()
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		start := time.Now()
		w := through(l, get("/").WithContext(ctx), nil)
		if w.Code != http.StatusServiceUnavailable || time.Since(start) != 0 {
			t.Errorf("%d after %v", w.Code, time.Since(start))
		}
		if strings.Contains(seen.kinds(), "Waiting") {
			t.Error(seen.kinds())
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
			t.Errorf("%+v after %v, want the rate's refusal by 3s", d, time.Since(start))
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
				"Admitted 1 1s 1s true; Canceled 2 2s 1.5s true"},
		{"a slot, then a turn", []stint.Option{stint.Concurrency(1, stint.WithQueue(2)), stint.Rate(1, 2*time.Second, stint.WithMaxWait(3*time.Second))}, 1, 500 * time.Millisecond,
			"Admitted 0 0s 0s false; Waiting 1 0s 0s false; Waiting 2 0s 0s false; Denied 2 0s 0s false; " +
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

// A wait that ends because the store fails is also reported as over.
func TestStoreFailsUnderAWait(t *testing.T) {
	for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			s, seen := newSpy(), &events{}
			l := limiter(t, theKey, stint.WithStore(s), stint.WithFailurePolicy(policy), seen.option(), stint.Concurrency(1, stint.WithQueue(3), stint.WithName("concurrency")))
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
			s.failWith(errDown)
			wg.Wait()
			if got, want := seen.kinds(), "Admitted Waiting Waiting Waiting StoreFailed StoreFailed StoreFailed"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if e := seen.last(); !e.EndsWait || e.Waited == 0 {
				t.Errorf("%+v", e)
			}
			s.failWith(nil)
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
			before, _ := s.counts()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			after, _ := s.counts()
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
