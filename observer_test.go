package stint_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// unsettled is a store that settles nothing, and calls cut, if there is one, when it
// is asked for the second time.
type unsettled struct {
	*spy
	takes int
	cut   func()
}

func (s *unsettled) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	err := s.spy.Take(ctx, charges, results)
	if s.takes++; s.cut != nil && s.takes > 1 {
		s.cut()
	}
	return err
}

func (s *unsettled) Settle(context.Context, []store.Charge, []store.Result) error { return errDown }

// An observer may use the request's permit in any event: no lock is held then.
func TestObserversUseThePermit(t *testing.T) {
	name := stint.WithName("x")
	write := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) }
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	settle := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	tests := []struct {
		name   string
		limits []stint.Option
		store  func(cancel func()) store.Store // by default one that works
		do     http.HandlerFunc
		n      int
		told   stint.EventKind
	}{
		{"settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)}, nil, nothing, 1, stint.EventSettled},
		{"not settled at the end", []stint.Option{stint.Rate(9, time.Second, settle, name)},
			func(func()) store.Store { return &unsettled{spy: newSpy()} }, nothing, 1, stint.EventSettleFailed},
		{"not released", []stint.Option{stint.Concurrency(9, name)},
			func(func()) store.Store { return &unsettled{spy: newSpy()} }, nothing, 1, stint.EventSettleFailed},
		{"not settled by hand", []stint.Option{stint.Rate(9, time.Second, name)},
			func(func()) store.Store { return &unsettled{spy: newSpy()} },
			func(_ http.ResponseWriter, r *http.Request) {
				_ = stint.FromContext(r.Context()).Settle(r.Context(), 2)
			}, 1, stint.EventSettleFailed},
		{"paced", []stint.Option{stint.Bandwidth(1<<20, name)}, nil, write(10), 1, stint.EventPaced},
		{"a store that fails under a response", []stint.Option{stint.Bandwidth(1<<20, name)},
			func(func()) store.Store { s := newSpy(); s.failWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"a store that fails under a response, closed", []stint.Option{stint.Bandwidth(1<<20, name, stint.WithFailurePolicy(stint.FailClosed))},
			func(func()) store.Store { s := newSpy(); s.failWith(errDown); return s }, write(10), 1, stint.EventStoreFailed},
		{"bytes not given back", []stint.Option{stint.Bandwidth(4096, name, stint.WithBurst(4096))},
			func(cancel func()) store.Store { return &unsettled{spy: newSpy(), cut: cancel} }, write(20_000), 1, stint.EventSettleFailed},
		{"a limit that changes", []stint.Option{stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name)}, nil,
			func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond)
			}, 12, stint.EventLimitChanged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var permit *stint.Permit
			told := map[stint.EventKind]bool{}
			opts := append(tt.limits, theKey, stint.WithObserver(func(e stint.Event) {
				told[e.Kind] = true
				_ = permit.Decision()
				if e.Kind != stint.EventSettleFailed && e.Kind != stint.EventSettled { // or it would be told of its own
					_ = permit.Settle(ctx, 1)
				}
				if e.Kind == tt.told {
					permit.Done()
				}
			}))
			if tt.store != nil {
				opts = append(opts, stint.WithStore(tt.store(cancel)))
			}
			l := limiter(t, opts...)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				// A window of a slow machine may have too few requests to say anything.
				for i := 0; i < tt.n || tt.n > 1 && !told[tt.told]; i++ {
					through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, r *http.Request) {
						permit = stint.FromContext(r.Context())
						tt.do(w, r)
					})
				}
			}()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the observer waits for a lock")
			}
			if !told[tt.told] {
				t.Errorf("not told of %v", tt.told)
			}
		})
	}
}
