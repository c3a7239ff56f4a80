package stint_test

import (
	"errors"
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// What Allow returns, how often it calls the store, and what it leaves behind.
func TestAllow(t *testing.T) {
	rate := stint.Rate(3, time.Hour, stint.WithName("rate"))
	free := stint.WithSettle(func(*http.Request, int, int64) int64 { return 0 })
	named := stint.WithName("other")
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	passes := is(nil)
	refused := func(err error) bool { return errors.As(err, new(*stint.DeniedError)) }
	failed := func(err error) bool { return errors.As(err, new(*stint.StoreError)) && errors.Is(err, errDown) }
	for _, tt := range []struct {
		name  string
		opts  []stint.Option
		cost  int64
		fails bool // the store
		want  func(error) bool
		takes int
		left  int64 // of the rate
	}{
		{"passes", []stint.Option{rate}, 1, false, passes, 1, 2},
		{"is charged what it costs", []stint.Option{rate}, 3, false, passes, 1, 0},
		{"costs more than there can be", []stint.Option{rate}, 4, false, refused, 1, 3},
		{"costs nothing", []stint.Option{rate}, 0, false, is(store.ErrCost), 0, 3},
		{"costs less than nothing", []stint.Option{rate}, -1, false, is(store.ErrCost), 0, 3},
		{"slots", []stint.Option{rate, stint.Concurrency(2, named)}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots that only report", []stint.Option{rate, stint.Concurrency(2, named, stint.WithDryRun())}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots of this process", []stint.Option{rate, stint.AdaptiveConcurrency(1, 2, named)}, 1, false, is(stint.ErrHolds), 0, 3},
		{"slots of a route", []stint.Option{rate, stint.WithRoute("/", stint.Concurrency(1, named))}, 1, false, passes, 1, 2},
		{"settled by responses", []stint.Option{rate, free}, 1, false, passes, 1, 2},
		{"bytes", []stint.Option{rate, stint.Bandwidth(4096, named)}, 1, false, passes, 1, 2},
		{"the store fails", []stint.Option{rate}, 1, true, passes, 1, 3},
		{"the store fails, closed", []stint.Option{rate, stint.WithFailurePolicy(stint.FailClosed)}, 1, true, failed, 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, append(tt.opts, theKey, stint.WithStore(s))...)
			if tt.fails {
				s.failWith(errDown)
			}
			if err := l.Allow(t.Context(), "k", tt.cost); !tt.want(err) {
				t.Errorf("got %v", err)
			}
			s.failWith(nil)
			if takes, settles := s.counts(); takes != tt.takes || settles != 0 {
				t.Errorf("%d Takes and %d Settles, want %d and none", takes, settles, tt.takes)
			}
			d, err := l.Peek(t.Context(), "k")
			if err != nil || d.Limits[0].Remaining != tt.left {
				t.Errorf("%d left, %v; want %d", d.Limits[0].Remaining, err, tt.left)
			}
		})
	}
}

// Allow blocks where Take would. When its context ends, it leaves the line and has
// charged nothing.
func TestAllowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Second, stint.WithMaxWait(2*time.Second)))
		start := time.Now()
		for want := range 3 {
			if err := l.Allow(t.Context(), "k", 1); err != nil || time.Since(start) != time.Duration(want)*time.Second {
				t.Fatalf("%v after %v, want nil after %ds", err, time.Since(start), want)
			}
		}
		ctx, cancel := contextFor(t, 500*time.Millisecond)
		defer cancel()
		if err := l.Allow(ctx, "k", 1); !errors.As(err, new(*stint.DeniedError)) {
			t.Errorf("a turn behind the deadline: %v, want a refusal", err)
		}
		ctx, leave := contextFor(t, time.Hour)
		time.AfterFunc(time.Second/2, leave)
		if err := l.Allow(ctx, "k", 1); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
			t.Errorf("who has left: %v", err)
		}
		time.Sleep(time.Second) // a token after the last one that was used
		if left := remaining(t, l); left != 1 {
			t.Errorf("%d left, want 1: who left was charged", left)
		}
	})
}

// Observers get an Allow like a Take; a panic of theirs costs nothing.
func TestAllowObserved(t *testing.T) {
	var e events
	l := limiter(t, theKey, stint.Rate(1, time.Hour), e.option())
	_ = l.Allow(t.Context(), "k", 1)
	_ = l.Allow(t.Context(), "k", 1)
	if got := e.kinds(); got != "Admitted Denied" {
		t.Errorf("events %q", got)
	}
	l = limiter(t, theKey, stint.Rate(2, time.Hour), stint.WithObserver(func(stint.Event) { panic("observer") }))
	func() {
		defer func() { _ = recover() }()
		_ = l.Allow(t.Context(), "k", 1)
	}()
	if left := remaining(t, l); left != 2 {
		t.Errorf("%d left, want 2: the caller never heard that it may go on", left)
	}
}

// The decision of an Allow has taken the store's time; its end takes none.
func TestAllowEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := map[stint.EventKind]time.Duration{}
		l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithStore(&slow{Store: memstore.New(), take: 30 * time.Millisecond}),
			stint.WithObserver(func(e stint.Event) { took[e.Kind] = e.StoreTook }))
		if err := l.Allow(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		want := map[stint.EventKind]time.Duration{stint.EventAdmitted: 30 * time.Millisecond, stint.EventEnded: 0}
		if !maps.Equal(took, want) {
			t.Errorf("took %v, want %v", took, want)
		}
	})
}
