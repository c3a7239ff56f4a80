package stint_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// shaky is a store in memory whose settlements fail or panic while it is told so.
type shaky struct {
	*memstore.Store
	settle func() error
	made   int
}

func (s *shaky) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if s.settle != nil {
		return s.settle()
	}
	s.made++
	return s.Store.Settle(ctx, charges, results)
}

// Turns are given back in the background, where no request could take a panic: it is
// logged once, the turn is written off as after any failure, and turns left later go
// back.
func TestPanicBehindWaiters(t *testing.T) {
	for name, tt := range map[string]struct {
		settle   func() error
		observer func(stint.Event)
	}{
		"an observer": {func() error { return errDown }, func(e stint.Event) {
			if e.Kind == stint.EventSettleFailed {
				panic("oops")
			}
		}},
		"a store": {func() error { panic("oops") }, func(stint.Event) {}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logTo(t, &log)
			synctest.Test(t, func(t *testing.T) {
				s := &shaky{Store: memstore.New(), settle: tt.settle}
				l := limiter(t, theKey, stint.WithStore(s), stint.WithObserver(tt.observer),
					stint.Rate(1, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Hour)))
				start := time.Now()
				enter := func() (leave func(), turn <-chan time.Duration) {
					ctx, cancel := context.WithCancel(t.Context())
					came := make(chan time.Duration, 1)
					go func() {
						if _, err := l.Take(ctx, "k", 1); err == nil {
							came <- time.Since(start)
						} else if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					}()
					synctest.Wait()
					return cancel, came
				}
				take(t, l, 1)
				_, first := enter() // at 1s
				leave, _ := enter()
				leave()
				time.Sleep(100 * time.Millisecond) // settled behind the first, and failed
				synctest.Wait()
				if n := strings.Count(log.String(), "panic=oops"); n != 1 || !strings.Contains(log.String(), "level=ERROR") ||
					!strings.Contains(log.String(), "turns_panic_test.go") {
					t.Errorf("%d times in the log: %s", n, log.String())
				}
				s.settle = nil
				time.Sleep(2 * time.Second) // nothing is tried for a while after a failure
				_, second := enter()
				leave, _ = enter()
				leave()
				time.Sleep(100 * time.Millisecond)
				_, third := enter()
				for i, want := range []time.Duration{time.Second, 3 * time.Second, 4 * time.Second} {
					if got := <-[]<-chan time.Duration{first, second, third}[i]; got != want {
						t.Errorf("turn %d at %v, want %v", i, got, want)
					}
				}
				synctest.Wait()
				if s.made != 1 {
					t.Errorf("%d settlements, want that of the second to leave", s.made)
				}
			})
		})
	}
}

// A class is needed only when a turn has been reserved. If its function panics, the turn
// goes back.
func TestPanicOfAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithMaxWait(time.Hour)),
			stint.WithPriority(func(*http.Request) int { panic("class") }))
		take(t, l, 1)
		start := time.Now()
		func() {
			defer func() {
				if v := recover(); v != "class" {
					t.Errorf("recovered %v", v)
				}
			}()
			through(l, get("/"), nil)
		}()
		if take(t, l, 1); time.Since(start) != time.Minute {
			t.Errorf("the next waited for %v, want a minute", time.Since(start))
		}
	})
}
