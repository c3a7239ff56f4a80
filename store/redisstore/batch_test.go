package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const patience = 100 * time.Millisecond

// numbers is a line of calls that are numbers, in front of a server which takes
// trip for each batch and remembers what came.
type numbers struct {
	line[int]
	mu      sync.Mutex
	batches [][]int
	gone    []int
	most    int // under way at a time
	now     int
}

func newNumbers(ways, most int, trip func(ctx context.Context)) *numbers {
	n := &numbers{}
	n.line = line[int]{ways: ways, most: most, timeout: patience,
		send: func(ctx context.Context, batch []*ticket[int]) {
			var values []int
			for _, t := range batch {
				values = append(values, t.what)
			}
			n.mu.Lock()
			n.batches = append(n.batches, values)
			n.now++
			n.most = max(n.most, n.now)
			n.mu.Unlock()
			trip(ctx)
			n.mu.Lock()
			n.now--
			n.mu.Unlock()
		},
		gone: func(t *ticket[int]) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.gone = append(n.gone, t.what)
		},
	}
	return n
}

func (n *numbers) call(ctx context.Context, what int) error {
	t := newTicket[int]()
	t.what = what
	_, err := n.do(ctx, t)
	return err
}

func TestLineIsInOrder(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(1, 128, func(context.Context) { time.Sleep(time.Millisecond) })
			n.direct = direct
			for i := range 300 {
				go func() {
					if err := n.call(t.Context(), i); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			var sizes, all []int
			for _, b := range n.batches {
				sizes = append(sizes, len(b))
				all = append(all, b...)
			}
			if !slices.Equal(sizes, []int{1, 128, 128, 43}) || !slices.IsSorted(all) {
				t.Errorf("batches of %d: %v", sizes, all)
			}
		})
	}
}

// A way that is free is taken at once, and no further than there are any.
func TestLineTakesFreeWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers(8, 128, func(context.Context) { time.Sleep(time.Millisecond) })
		start := time.Now()
		for i := range 20 {
			go n.call(t.Context(), i)
			synctest.Wait()
		}
		n.mu.Lock()
		if len(n.batches) != 8 {
			t.Errorf("%d batches under way", len(n.batches))
		}
		n.mu.Unlock()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		n.mu.Lock()
		if len(n.batches) != 9 || len(n.batches[8]) != 12 || time.Since(start) != time.Millisecond {
			t.Errorf("batches %v", n.batches)
		}
		n.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if n.busy != 0 || n.most != 8 {
			t.Errorf("%d ways still taken, %d at a time", n.busy, n.most)
		}
	})
}

// Where batches take no time, few ways are taken and the batches are larger;
// where they take long, all are; and ways that hang count for nothing.
func TestLineTakesAsManyWaysAsItIsFar(t *testing.T) {
	for _, tt := range []struct {
		trip  time.Duration
		taken int
	}{{100 * time.Microsecond, 2}, {3 * time.Millisecond, 8}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(8, 128, func(context.Context) { time.Sleep(tt.trip) })
			n.few = 2
			for i := range 20 { // until it is known what is usual
				n.call(t.Context(), i)
			}
			for i := range 20 {
				go n.call(t.Context(), i)
				synctest.Wait()
			}
			n.mu.Lock()
			if n.most != tt.taken {
				t.Errorf("%v: %d ways taken, want %d", tt.trip, n.most, tt.taken)
			}
			n.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
			if n.busy != 0 || len(n.pending) != 0 {
				t.Errorf("%d ways still taken, %d calls pending", n.busy, len(n.pending))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int32
		n := newNumbers(8, 128, func(context.Context) {
			if hung.Add(1) <= 2 {
				time.Sleep(time.Minute)
			}
		})
		n.few = 2
		var failed atomic.Int32
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if n.call(t.Context(), i) != nil {
					failed.Add(1)
				}
			})
			time.Sleep(patience / 10)
		}
		wg.Wait()
		if n := failed.Load(); n != 2 {
			t.Errorf("%d of 5 calls failed with two ways that hang, want those two", n)
		}
		time.Sleep(time.Minute)
	})
}

// Nothing is lost, nothing sent twice, and no goroutine stays: a bubble doesn't
// end before its goroutines have.
func TestLineLosesNothing(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(8, 128, func(context.Context) { time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond) })
			n.direct = direct
			var wg sync.WaitGroup
			const callers, calls = 200, 50
			for c := range callers {
				wg.Go(func() {
					for i := range calls {
						if err := n.call(t.Context(), c*calls+i); err != nil {
							t.Error(err)
						}
						if rand.IntN(4) == 0 {
							time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
						}
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			seen := map[int]int{}
			for _, b := range n.batches {
				if len(b) > 128 {
					t.Errorf("a batch of %d", len(b))
				}
				for _, v := range b {
					seen[v]++
				}
			}
			if len(seen) != callers*calls || n.most > 8 {
				t.Errorf("%d calls of %d were sent, %d batches at a time", len(seen), callers*calls, n.most)
			}
			for v, times := range seen {
				if times != 1 {
					t.Errorf("%d was sent %d times", v, times)
				}
			}
		})
	}
}

// The same with real threads, cancelled callers and tickets used again, for the
// race detector.
func TestLineUnderLoad(t *testing.T) {
	var sent, gone, ok atomic.Int64
	l := &line[int]{ways: 3, most: 16, timeout: time.Minute,
		send: func(_ context.Context, batch []*ticket[int]) { sent.Add(int64(len(batch))) },
		gone: func(*ticket[int]) { gone.Add(1) },
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			mine := newTicket[int]()
			for i := range 500 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					go cancel()
				}
				mine.what = i
				reusable, err := l.do(ctx, mine)
				if err == nil {
					ok.Add(1)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if reusable {
					mine.state.Store(waiting)
				} else {
					mine = newTicket[int]()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // in real time: callers cross in parallel
		l.mu.Lock()
		idle := l.busy == 0 && len(l.pending) == 0
		l.mu.Unlock()
		if idle {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the line is not idle")
		}
	}
	if sent.Load() != ok.Load()+gone.Load() {
		t.Errorf("%d sent, %d answered, %d whose caller had gone", sent.Load(), ok.Load(), gone.Load())
	}
}

// Who leaves gets no answer, and what was done for it is undone; what wasn't
// sent yet isn't.
func TestLineCallersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers(1, 128, func(context.Context) { time.Sleep(10 * time.Millisecond) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		errs := make(chan error, 3)
		for i := range 3 {
			caller := ctx
			if i == 2 {
				caller = t.Context()
			}
			go func() { errs <- n.call(caller, i) }()
			synctest.Wait()
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(n.batches) != 2 || n.batches[1][0] != 2 || len(n.gone) != 1 || n.gone[0] != 0 {
			t.Errorf("sent %v, undone %v", n.batches, n.gone)
		}
	})
}

// A client that ignores deadlines holds no call longer than the timeout; while
// all ways hang, no call waits; and afterwards all is well.
func TestLineTimeout(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var hangs atomic.Bool
			hangs.Store(true)
			n := newNumbers(2, 4, func(ctx context.Context) {
				switch {
				case !hangs.Load():
				case heeds:
					<-ctx.Done()
				default:
					time.Sleep(5 * time.Second)
				}
			})
			n.direct = heeds
			send := n.send
			n.send = func(ctx context.Context, batch []*ticket[int]) {
				send(ctx, batch)
				for _, b := range batch {
					b.failed = classify(ctx.Err())
				}
			}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					start := time.Now()
					err := n.call(t.Context(), i)
					if held := time.Since(start); held > patience || !unusable(err) {
						t.Errorf("call %d: held %v, %v", i, held, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
			if !heeds {
				start := time.Now()
				if err := n.call(t.Context(), 99); !errors.Is(err, ErrUnavailable) || time.Since(start) != 0 {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			}
			hangs.Store(false)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if err := n.call(t.Context(), 100); err != nil || n.stuck != 0 {
				t.Errorf("%v, %d ways stuck", err, n.stuck)
			}
		})
	}
}

// An answer that comes after its callers were told there is none, is undone.
func TestLineLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers(1, 4, func(context.Context) { time.Sleep(patience + 1) })
		if err := n.call(t.Context(), 7); !errors.Is(err, ErrIndeterminate) {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !slices.Equal(n.gone, []int{7}) || n.busy != 0 || n.stuck != 0 {
			t.Errorf("undone %v, %d ways taken, %d stuck", n.gone, n.busy, n.stuck)
		}
	})
}

// What a call allocates for the line when it goes alone.
func TestLineAllocates(t *testing.T) {
	l := &line[int]{ways: 8, most: 128, timeout: time.Minute, direct: true,
		send: func(context.Context, []*ticket[int]) {}, gone: func(*ticket[int]) {}}
	mine := newTicket[int]()
	ctx := context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		mine.state.Store(waiting)
		if _, err := l.do(ctx, mine); err != nil {
			t.Error(err)
		}
	})
	if allocs > 0.1 && !underRace {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkLine(b *testing.B) {
	for _, direct := range []bool{true, false} {
		name := "goroutine"
		if direct {
			name = "direct"
		}
		b.Run(name, func(b *testing.B) {
			l := &line[int]{ways: 8, most: 128, timeout: time.Minute, direct: direct,
				send: func(context.Context, []*ticket[int]) {}, gone: func(*ticket[int]) {}}
			mine := newTicket[int]()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				mine.state.Store(waiting)
				l.do(ctx, mine)
			}
		})
	}
}
