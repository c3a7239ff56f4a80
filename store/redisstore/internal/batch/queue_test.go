package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store/redisstore/internal/fault"
)

const patience = 100 * time.Millisecond

// numbers is a queue of calls that are numbers, in front of a server which takes
// roundTrip for each batch and remembers what came.
type numbers struct {
	Queue[int]
	mu      sync.Mutex
	batches [][]int
	gone    []int
	most    int // under way at a time
	now     int
}

func newNumbers(inFlight, size int, roundTrip func(ctx context.Context)) *numbers {
	n := &numbers{}
	n.Queue = Queue[int]{MaxInFlight: inFlight, MaxSize: size, Timeout: patience,
		Send: func(ctx context.Context, batch []*Call[int]) {
			var values []int
			for _, t := range batch {
				values = append(values, t.Body)
			}
			n.mu.Lock()
			n.batches = append(n.batches, values)
			n.now++
			n.most = max(n.most, n.now)
			n.mu.Unlock()
			roundTrip(ctx)
			n.mu.Lock()
			n.now--
			n.mu.Unlock()
		},
		Abandoned: func(t *Call[int]) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.gone = append(n.gone, t.Body)
		},
	}
	return n
}

func (n *numbers) call(ctx context.Context, what int) error {
	t := NewCall[int]()
	t.Body = what
	_, err := n.Do(ctx, t)
	return err
}

func TestQueueIsInOrder(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(1, 128, func(context.Context) { time.Sleep(time.Millisecond) })
			n.Direct = direct
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

// Batches are sent at once, up to as many as may be in flight.
func TestQueueSendsAtOnce(t *testing.T) {
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
		if n.inFlight != 0 || n.most != 8 {
			t.Errorf("%d batches still in flight, %d at a time", n.inFlight, n.most)
		}
	})
}

// Where batches take no time, few are in flight and they are larger;
// where they take long, more are; and those that hang count for nothing.
func TestQueueSendsMoreBatchesWhereTheyTakeLong(t *testing.T) {
	for _, tt := range []struct {
		took  time.Duration
		taken int
	}{{100 * time.Microsecond, 2}, {3 * time.Millisecond, 8}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(8, 128, func(context.Context) { time.Sleep(tt.took) })
			n.MaxInFlightShort = 2
			for i := range 20 { // until it is known what is usual
				n.call(t.Context(), i)
			}
			for i := range 20 {
				go n.call(t.Context(), i)
				synctest.Wait()
			}
			n.mu.Lock()
			if n.most != tt.taken {
				t.Errorf("%v: %d batches in flight, want %d", tt.took, n.most, tt.taken)
			}
			n.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
			if n.inFlight != 0 || len(n.pending) != 0 {
				t.Errorf("%d batches still in flight, %d calls pending", n.inFlight, len(n.pending))
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
		n.MaxInFlightShort = 2
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
			t.Errorf("%d of 5 calls failed with two batches that hang, want those two", n)
		}
		time.Sleep(time.Minute)
	})
}

// Nothing is lost, nothing sent twice, and no goroutine stays: a bubble doesn't
// end before its goroutines have.
func TestQueueLosesNothing(t *testing.T) {
	for _, direct := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(8, 128, func(context.Context) { time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond) })
			n.Direct = direct
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

// The same on all cores, with callers that leave and calls that are used again, for the race
// detector.
func TestQueueUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, gone, ok atomic.Int64
		q := &Queue[int]{MaxInFlight: 3, MaxSize: 16, Timeout: time.Minute,
			Send:      func(_ context.Context, batch []*Call[int]) { sent.Add(int64(len(batch))) },
			Abandoned: func(*Call[int]) { gone.Add(1) },
		}
		for range 16 {
			go func() {
				mine := NewCall[int]()
				for i := range 500 {
					ctx, cancel := context.WithCancel(t.Context())
					if i%3 == 0 {
						go cancel()
					}
					mine.Body = i
					reusable, err := q.Do(ctx, mine)
					if err == nil {
						ok.Add(1)
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					if reusable {
						mine.Renew()
					} else {
						mine = NewCall[int]()
					}
					cancel()
				}
			}()
		}
		synctest.Wait()
		if q.inFlight != 0 || len(q.pending) != 0 {
			t.Errorf("%d batches in flight and %d calls pending, with nobody left", q.inFlight, len(q.pending))
		}
		if sent.Load() != ok.Load()+gone.Load() {
			t.Errorf("%d sent, %d answered, %d whose caller had gone", sent.Load(), ok.Load(), gone.Load())
		}
	})
}

// Who leaves gets no answer, and what was done for it is undone; what wasn't
// sent yet isn't.
func TestQueueCallersThatLeave(t *testing.T) {
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
// all batches in flight hang, no call waits; and afterwards all is well.
func TestQueueTimeout(t *testing.T) {
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
			n.Direct = heeds
			send := n.Send
			n.Send = func(ctx context.Context, batch []*Call[int]) {
				send(ctx, batch)
				for _, b := range batch {
					if b.Failed = nil; ctx.Err() != nil {
						b.Failed = fault.ErrTimeout
					}
				}
			}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					start := time.Now()
					err := n.call(t.Context(), i)
					if held := time.Since(start); held > patience || !fault.Temporary(err) {
						t.Errorf("call %d: held %v, %v", i, held, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
			if !heeds {
				start := time.Now()
				if err := n.call(t.Context(), 99); !errors.Is(err, fault.ErrUnavailable) || time.Since(start) != 0 {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			}
			hangs.Store(false)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if err := n.call(t.Context(), 100); err != nil || n.overdue != 0 {
				t.Errorf("%v, %d batches overdue", err, n.overdue)
			}
		})
	}
}

// A batch that the client hasn't begun to send at the timeout is never sent, and its callers are told so.
// Of a batch that it has begun to send, the outcome isn't known.
func TestQueueUnsent(t *testing.T) {
	noConnection := errors.New("no connection")
	for _, begins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNumbers(1, 4, func(context.Context) {})
			n.Unsent = func(error) error { return noConnection }
			n.Send = func(ctx context.Context, batch []*Call[int]) {
				out := ctx.(interface {
					Hold()
					Begin() error
				})
				out.Hold()
				if begins && out.Begin() != nil {
					t.Error("a batch in time isn't sent")
				}
				<-ctx.Done()
				out.Hold()
				time.Sleep(time.Nanosecond)
				if sends := out.Begin() == nil; sends != begins {
					t.Errorf("begun in time: %t, and after the timeout: %t", begins, sends)
				}
			}
			want := noConnection
			if begins {
				want = fault.ErrIndeterminate
			}
			for range 2 { // the second reuses the batch
				if err := n.call(t.Context(), 1); !errors.Is(err, want) {
					t.Errorf("begun: %t: %v", begins, err)
				}
				time.Sleep(time.Second)
			}
		})
	}
}

// An answer that comes after its callers were told there is none, is undone.
func TestQueueLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNumbers(1, 4, func(context.Context) { time.Sleep(patience + 1) })
		if err := n.call(t.Context(), 7); !errors.Is(err, fault.ErrIndeterminate) {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !slices.Equal(n.gone, []int{7}) || n.inFlight != 0 || n.overdue != 0 {
			t.Errorf("undone %v, %d batches in flight, %d overdue", n.gone, n.inFlight, n.overdue)
		}
	})
}

// What a call allocates for the queue when it goes alone.
func TestQueueAllocates(t *testing.T) {
	q := &Queue[int]{MaxInFlight: 8, MaxSize: 128, Timeout: time.Minute, Direct: true,
		Send: func(context.Context, []*Call[int]) {}, Abandoned: func(*Call[int]) {}}
	mine := NewCall[int]()
	ctx := context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		mine.Renew()
		if _, err := q.Do(ctx, mine); err != nil {
			t.Error(err)
		}
	})
	if allocs > 0.1 && !underRace {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, direct := range []bool{true, false} {
		name := "goroutine"
		if direct {
			name = "direct"
		}
		b.Run(name, func(b *testing.B) {
			q := &Queue[int]{MaxInFlight: 8, MaxSize: 128, Timeout: time.Minute, Direct: direct,
				Send: func(context.Context, []*Call[int]) {}, Abandoned: func(*Call[int]) {}}
			mine := NewCall[int]()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				mine.Renew()
				q.Do(ctx, mine)
			}
		})
	}
}

// Whoever sends a batch, and whatever panics: all its calls have an answer, another may be sent, the
// panic is in the log once, and the next calls are made.
func TestQueuePanics(t *testing.T) {
	const panics = 20
	// Calls of -1 don't panic: theirs is the only batch in flight, so that those after them travel together.
	oops := func(batch []*Call[int]) {
		if batch[0].Body >= 0 {
			panic("oops")
		}
	}
	for _, tt := range []struct {
		name   string
		direct bool
		calls  int // that travel together
		inject func(*Queue[int])
		want   error
		leaves time.Duration // when the callers leave, of the round trip
	}{
		{"Send, by the caller", true, 1, sendPanics(oops), fault.ErrIndeterminate, 0},
		{"Send, by a goroutine", false, 1, sendPanics(oops), fault.ErrIndeterminate, 0},
		{"Send, of several", false, 5, sendPanics(oops), fault.ErrIndeterminate, 0},
		{"Send, of several after a direct one", true, 5, sendPanics(oops), fault.ErrIndeterminate, 0},
		{"AfterSend, by the caller", true, 1, func(q *Queue[int]) { q.AfterSend = oops }, nil, 0},
		{"AfterSend, of several", false, 5, func(q *Queue[int]) { q.AfterSend = oops }, nil, 0},
		{"Abandoned, by a goroutine", false, 1, func(q *Queue[int]) { q.Abandoned = func(*Call[int]) { panic("oops") } }, context.Canceled, roundTripTakes / 2},
		{"Abandoned, of several", false, 5, func(q *Queue[int]) { q.Abandoned = func(*Call[int]) { panic("oops") } }, context.Canceled, roundTripTakes / 2},
		{"Send, of callers that leave", false, 5, sendPanics(oops), context.Canceled, roundTripTakes / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			logged := logs(t)
			synctest.Test(t, func(t *testing.T) {
				n := newNumbers(8, 128, func(context.Context) { time.Sleep(roundTripTakes) })
				if n.Direct = tt.direct; tt.calls > 1 {
					n.MaxInFlight = 1
				}
				tt.inject(&n.Queue)
				for range panics {
					ctx, leave := context.WithCancel(t.Context())
					if tt.calls > 1 {
						go n.call(t.Context(), -1)
						synctest.Wait()
					}
					var calls sync.WaitGroup
					for i := range tt.calls {
						calls.Go(func() {
							if err := n.call(ctx, i); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
								t.Errorf("call %d: %v, want %v", i, err, tt.want)
							}
						})
					}
					if tt.leaves > 0 {
						time.Sleep(time.Duration(min(tt.calls-1, 1))*roundTripTakes + tt.leaves)
						leave()
					}
					calls.Wait()
					time.Sleep(roundTripTakes)
					leave()
					synctest.Wait()
				}
				if left := fmt.Sprint(n.inFlight, n.overdue, len(n.watched), len(n.pending)); left != "0 0 0 0" {
					t.Errorf("batches in flight, overdue and watched, and calls pending: %v", left)
				}
				if err := n.call(t.Context(), -1); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
			want := panics
			if strings.HasPrefix(tt.name, "Abandoned") {
				want *= tt.calls // it is called for each
			}
			if lines := strings.Count(logged.String(), "panic=oops"); lines != want {
				t.Errorf("%d panics in the log, want %d", lines, want)
			}
		})
	}
}

// roundTripTakes is how long a server takes that panics are tried with.
const roundTripTakes = time.Millisecond

// sendPanics has f called when a batch is back.
func sendPanics(f func([]*Call[int])) func(*Queue[int]) {
	return func(q *Queue[int]) {
		send := q.Send
		q.Send = func(ctx context.Context, batch []*Call[int]) {
			send(ctx, batch)
			f(batch)
		}
	}
}

// logs has slog.Default write to what it returns.
func logs(t *testing.T) *bytes.Buffer {
	t.Helper()
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	return &logged
}
