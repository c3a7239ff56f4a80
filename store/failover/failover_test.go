package failover_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

func TestPrimaryWhileClosed(t *testing.T) {
	p, q := &side{}, &side{}
	s := failover.New(p, q)
	r, err := take(s)
	if err != nil || r.Path != 0 || r.Cost != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := settle(s, r); err != nil {
		t.Fatal(err)
	}
	if len(p.takes) != 1 || len(p.settles) != 1 || len(q.takes)+len(q.settles) != 0 {
		t.Errorf("primary %d %d, secondary %d %d", len(p.takes), len(p.settles), len(q.takes), len(q.settles))
	}
	if got := s.Stats(); got != (failover.Stats{}) {
		t.Errorf("%+v", got)
	}
}

func TestSecondaryDecidesWhatPrimaryFails(t *testing.T) {
	p, q := &side{err: errDown}, &side{}
	s := failover.New(p, q, failover.WithThreshold(3))
	defer s.Close()
	for range 2 {
		if r, err := take(s); err != nil || r.Path != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	p.fail(nil) // a success in between: not in a row
	take(s)
	p.fail(errDown)
	take(s)
	take(s)
	if s.State() != failover.Closed {
		t.Fatal("open after two failures in a row")
	}
	take(s)
	if s.State() != failover.Open {
		t.Fatal("closed after three failures in a row")
	}
	for range 10 {
		if r, err := take(s); err != nil || r.Path != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if n, _ := p.counted(); n != 6 {
		t.Errorf("primary was asked %d times, want 6", n)
	}
	got := s.Stats()
	if want := (failover.Stats{State: failover.Open, Failures: 5, Fallbacks: 15, Opened: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWithoutSecondary(t *testing.T) {
	p := &side{err: errDown}
	s := failover.New(p, nil, failover.WithThreshold(2))
	defer s.Close()
	for range 2 {
		if _, err := take(s); err != errDown {
			t.Fatalf("%v, want the primary's error as it is", err)
		}
	}
	for range 3 {
		if _, err := take(s); !errors.Is(err, failover.ErrOpen) || !errors.Is(err, errDown) {
			t.Fatalf("%v, want ErrOpen and the reason", err)
		}
	}
	if got := s.Stats(); got.Denials != 3 || got.Failures != 2 {
		t.Errorf("%+v", got)
	}
	if n, _ := p.counted(); n != 2 {
		t.Errorf("primary was asked %d times", n)
	}
	if n := testing.AllocsPerRun(100, func() { take(s) }); n > 2 { // take's own slices
		t.Errorf("failing fast allocates %v times", n)
	}
}

// early is a context whose deadline has passed and that hasn't noticed it.
type early struct{ context.Context }

func (early) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

func TestNotTheFaultOfPrimary(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
	}{
		{"caller gave up", ended, context.Canceled},
		{"caller gave up, told by the network", ended, net.ErrClosed},
		{"caller's deadline", late, context.DeadlineExceeded},
		{"cost", context.Background(), fmt.Errorf("store: %w", store.ErrCost)},
		{"limit", context.Background(), fmt.Errorf("store: %w", store.ErrLimit)},
		{"results", context.Background(), fmt.Errorf("store: %w", store.ErrResults)},
		{"duplicate", context.Background(), fmt.Errorf("store: %w", store.ErrDuplicate)},
		{"caller's deadline, which the network noticed first", early{context.Background()}, os.ErrDeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, q := &side{err: tt.err}, &side{}
			s := failover.New(p, q, failover.WithThreshold(1))
			for range 3 {
				if err := s.Take(tt.ctx, charge(), make([]store.Result, 1)); err != tt.err {
					t.Fatalf("%v, want the primary's %v", err, tt.err)
				}
			}
			if len(q.takes) != 0 || s.Stats() != (failover.Stats{}) {
				t.Errorf("secondary decided %d, %+v", len(q.takes), s.Stats())
			}
		})
	}
	t.Run("the primary's own deadline", func(t *testing.T) {
		s := failover.New(&side{err: context.DeadlineExceeded}, &side{}, failover.WithThreshold(1))
		defer s.Close()
		if r, err := take(s); err != nil || r.Path != 1 || s.State() != failover.Open {
			t.Errorf("%+v, %v, %v", r, err, s.State())
		}
	})
}

func TestReset(t *testing.T) {
	p, q := &side{}, &side{}
	s := failover.New(p, q, failover.WithThreshold(1))
	defer s.Close()
	if found, err := s.Reset(t.Context(), "k", limit); err != nil || !found || p.resets != 1 || q.resets != 1 {
		t.Fatalf("%v, primary %d, secondary %d", err, p.resets, q.resets)
	}
	p.fail(errDown)
	if found, err := s.Reset(t.Context(), "k", limit); !errors.Is(err, errDown) || !found || q.resets != 2 {
		t.Errorf("%v, %d", err, q.resets)
	}
	if _, err := s.Reset(t.Context(), "k", limit); !errors.Is(err, failover.ErrOpen) || p.resets != 2 || q.resets != 3 {
		t.Errorf("%v, %d, %d", err, p.resets, q.resets)
	}
	// The one that can, does.
	for i, able := range []*side{{}, {}} {
		of := []store.Store{able, only{&side{}}}
		if _, err := failover.New(of[i], of[1-i]).Reset(t.Context(), "k", limit); !errors.Is(err, errors.ErrUnsupported) || able.resets != 1 {
			t.Errorf("%v, %d", err, able.resets)
		}
	}
	alone := &side{}
	if _, err := failover.New(alone, nil).Reset(t.Context(), "k"); err != nil || alone.resets != 1 {
		t.Errorf("%v, %d", err, alone.resets)
	}
}

// A key is banned in the store that decides. A ban that a store can't have is no failure of it.
func TestBan(t *testing.T) {
	ban, err := store.NewLimit(store.Spec{Name: "ban", Algorithm: store.Ban, Units: 3, Period: time.Hour, Ban: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	banned := func(in store.Store) bool {
		results := make([]store.Result, 1)
		if err := in.Take(t.Context(), []store.Charge{{Key: "k", Limit: ban, Cost: 1}}, results); err != nil {
			t.Fatal(err)
		}
		return !results[0].OK
	}
	for _, tc := range []struct {
		name               string
		primary            store.Store
		secondary          *memstore.Store
		threshold          int
		want               error
		inPrimary, instead bool
		state              failover.State
	}{
		{"on the primary", memstore.New(), memstore.New(), 1, nil, true, false, failover.Closed},
		{"on the secondary", down(), memstore.New(), 1, nil, false, true, failover.Open},
		{"on the secondary, breaker closed", down(), memstore.New(), 9, nil, false, true, failover.Closed},
		{"without a secondary", down(), nil, 9, errDown, false, false, failover.Closed},
		{"without a secondary, open", down(), nil, 1, errDown, false, false, failover.Open},
		{"no Banner", only{memstore.New()}, memstore.New(), 1, errors.ErrUnsupported, false, false, failover.Closed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var secondary store.Store
			if tc.secondary != nil {
				secondary = tc.secondary
			}
			s := failover.New(tc.primary, secondary, failover.WithThreshold(tc.threshold))
			defer s.Close()
			r, err := s.Ban(t.Context(), "k", time.Hour, ban)
			if !errors.Is(err, tc.want) || err == nil && (len(r) != 1 || !r[0].Begun) {
				t.Errorf("%v, error %v", r, err)
			}
			if p, ok := tc.primary.(*memstore.Store); ok && banned(p) != tc.inPrimary || secondary != nil && banned(secondary) != tc.instead {
				t.Error("banned in the other store")
			}
			if s.State() != tc.state {
				t.Errorf("the breaker is %v", s.State())
			}
			if _, err = s.Ban(t.Context(), "k", 0, ban); !errors.Is(err, store.ErrBan) || s.State() != tc.state {
				t.Errorf("for 0s: %v, %v", err, s.State())
			}
		})
	}
	s := failover.New(down(), only{memstore.New()}, failover.WithThreshold(1))
	defer s.Close()
	for range 2 {
		if _, err := s.Ban(t.Context(), "k", time.Hour, ban); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("by a secondary that can't: %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s = failover.New(down(), memstore.New(), failover.WithThreshold(1))
	defer s.Close()
	if _, err := s.Ban(ended, "k", time.Hour, ban); !errors.Is(err, errDown) || s.State() != failover.Closed {
		t.Errorf("by a caller who is gone: %v, %v", err, s.State())
	}
	if _, err := new(failover.Store).Ban(t.Context(), "k", time.Hour, ban); !errors.Is(err, store.ErrNotMade) {
		t.Errorf("by the zero Store: %v", err)
	}
}

func TestHealthyPathDoesNotAllocate(t *testing.T) {
	s := failover.New(storefake.New(), storefake.New())
	charges, results := charge(), make([]store.Result, 1)
	late, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{t.Context(), late} {
		if n := testing.AllocsPerRun(100, func() {
			s.Take(ctx, charges, results)
			s.Settle(ctx, charges, results)
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// Callers, occasional outages, and everything that reads: for -race.
func TestConcurrently(t *testing.T) {
	p, q := &side{}, &side{}
	var events, opened atomic.Uint64
	s := observed(t, failover.New(p, q, failover.WithThreshold(3), failover.WithProbe(time.Millisecond, 250*time.Millisecond)), func(e change) {
		if e.To == failover.Open {
			opened.Add(1)
		}
		events.Add(1)
	})
	var wg sync.WaitGroup
	var primary, secondary, denied atomic.Uint64
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				if g == 0 && i%50 == 0 {
					p.fail([]error{errDown, nil}[i/50%2])
				}
				r, err := take(s)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Path == 0 {
					primary.Add(1)
				} else {
					secondary.Add(1)
				}
				switch _, err := settle(s, r); {
				case errors.Is(err, failover.ErrOpen):
					denied.Add(1)
					fallthrough
				case err == errDown:
					if r.Path != 0 {
						t.Error("the secondary's charge was taken to the primary")
					}
				case err != nil:
					t.Error(err)
				}
				s.Stats()
			}
		})
	}
	wg.Wait()
	p.fail(nil)
	got := s.Stats()
	for deadline := time.Now().Add(time.Minute); events.Load() < 2*got.Opened; time.Sleep(time.Millisecond) { // in real time: a bubble runs no goroutines in parallel
		if time.Now().After(deadline) {
			t.Fatalf("%d events, opened %d times", events.Load(), got.Opened)
		}
	}
	s.Close()
	if primary.Load() == 0 || secondary.Load() == 0 || primary.Load()+secondary.Load() != 8*2000 {
		t.Errorf("primary decided %d, secondary %d", primary.Load(), secondary.Load())
	}
	if got.Fallbacks != secondary.Load() || got.Denials != denied.Load() || got.Opened == 0 || got.Opened != opened.Load() {
		t.Errorf("%+v; the secondary decided %d, %d were denied, opened %d times", got, secondary.Load(), denied.Load(), opened.Load())
	}
	if p.most != 1 {
		t.Errorf("%d probes at a time", p.most)
	}
}

func BenchmarkTake(b *testing.B) {
	p := &side{err: errDown}
	open := failover.New(p, storefake.New(), failover.WithThreshold(1), failover.WithProbe(time.Hour, 250*time.Millisecond))
	defer open.Close()
	take(open)
	closed := failover.New(storefake.New(), storefake.New())
	bounded, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, bb := range []struct {
		name string
		s    *failover.Store
		ctx  context.Context
		want failover.State
	}{
		{"closed", closed, context.Background(), failover.Closed},
		{"closed/deadline", closed, bounded, failover.Closed},
		{"open", open, context.Background(), failover.Open},
	} {
		b.Run(bb.name, func(b *testing.B) {
			charges, results := charge(), make([]store.Result, 1)
			b.ReportAllocs()
			for b.Loop() {
				bb.s.Take(bb.ctx, charges, results)
			}
			if bb.s.State() != bb.want {
				b.Fatal(bb.s.State())
			}
		})
	}
}
