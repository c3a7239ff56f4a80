package stint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// lined is a limiter that tells when a wait has begun.
func lined(t *testing.T, s store.Store, opts ...stint.ConcurrencyOption) (l *stint.Limiter, begun chan struct{}) {
	begun = make(chan struct{}, 1000)
	return limiter(t, theKey, stint.WithStore(s), stint.WithAging(time.Hour), stint.Concurrency(3, append(opts, stint.WithName("concurrency"))...),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				begun <- struct{}{}
			}
		})), begun
}

// underWay counts the calls under way.
type underWay struct {
	store.Store
	n atomic.Int64
}

func (a *underWay) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	a.n.Add(1)
	defer a.n.Add(-1)
	return a.Store.Take(ctx, charges, results)
}

// The order is kept by the process, so it is the same on every store.
func TestLineOverStores(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		asks := &underWay{Store: s}
		l, begun := lined(t, asks, stint.WithQueue(4), stint.WithMaxWait(time.Minute), stint.WithShare(1, 30))
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
			t.Errorf("%+v, want to be refused at once", d)
		}
		// Who has asked before it was overtaken is not called back.
		for end := time.Now().Add(time.Minute); asks.n.Load() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
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
		opts := []stint.ConcurrencyOption{stint.WithQueue(1000), stint.WithMaxWait(time.Minute), stint.WithShare(1, 30)}
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
				time.Sleep(work)
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
		t.Errorf("%v after %v, noticed %v; want it to be refused", e.Kind, e.Waited, noticed.Load())
	}
	for waiting := 1; waiting > 0; waiting, _, _ = l.Lines() {
		time.Sleep(time.Millisecond)
	}
}

// A limiter made by With may have a store of its own. Who waits for something of one
// store is in nobody's way in the other, and what they leave goes back where it is from.
func TestLinesOfTwoStores(t *testing.T) {
	soon := 10 * time.Millisecond
	for name, limit := range map[string]stint.Limit{
		"slots": stint.Concurrency(1, stint.WithQueue(5), stint.WithMaxWait(time.Minute)),
		"turns": stint.Rate(1, time.Second, stint.WithMaxWait(time.Minute)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent := limiter(t, theKey, limit)
				child := derive(t, parent, stint.WithMemory())
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
		parent := limiter(t, theKey, stint.AdaptiveConcurrency(1, 1, stint.WithQueue(5)))
		child := derive(t, parent, stint.WithMemory())
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
