package failover_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

// odd is a context with a deadline and an end of its own making.
type odd struct {
	context.Context
	deadline time.Time
	err      error
}

func (o odd) Deadline() (time.Time, bool) { return o.deadline, !o.deadline.IsZero() }
func (o odd) Err() error                  { return o.err }

// hangs says how a primary hangs: for a day if not told.
type hangs struct {
	long time.Duration
	deaf bool
	err  error
}

// What happens to a call that its caller's context ends.
func TestPatience(t *testing.T) {
	const ms = time.Millisecond
	timeout := func(d time.Duration) func() (context.Context, func()) {
		return func() (context.Context, func()) {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			return ctx, cancel
		}
	}
	cancelAfter := func(d, deadline time.Duration) func() (context.Context, func()) {
		return func() (context.Context, func()) {
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			time.AfterFunc(d, cancel)
			return ctx, cancel
		}
	}
	errOwn := fmt.Errorf("no permission")
	for _, tt := range []struct {
		name   string
		opts   []failover.Option
		ctx    func() (context.Context, func())
		side   hangs
		err    error
		counts bool
	}{
		{name: "just long enough", ctx: timeout(100 * ms), counts: true},
		{name: "a little short", ctx: timeout(100*ms - 1)},
		{name: "long", ctx: timeout(time.Minute), counts: true},
		{name: "WithPatience", opts: []failover.Option{failover.WithPatience(20 * ms)}, ctx: timeout(20 * ms), counts: true},
		{name: "more patience", opts: []failover.Option{failover.WithPatience(time.Second)}, ctx: timeout(999 * ms)},
		{name: "cancelled", ctx: cancelAfter(500*ms, time.Second), err: context.Canceled},
		{name: "cancelled without a deadline", err: context.Canceled, ctx: func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}},
		{name: "its parent's deadline", counts: true, ctx: func() (context.Context, func()) {
			parent, end := context.WithTimeout(context.Background(), 150*ms)
			ctx, cancel := context.WithTimeout(parent, time.Hour)
			return ctx, func() { cancel(); end() }
		}},
		{name: "its parent cancelled", err: context.Canceled, ctx: func() (context.Context, func()) {
			parent, end := context.WithCancel(context.Background())
			time.AfterFunc(150*ms, end)
			ctx, cancel := context.WithTimeout(parent, time.Hour)
			return ctx, cancel
		}},
		{name: "a deadline with a cause", counts: true, ctx: func() (context.Context, func()) {
			ctx, cancel := context.WithTimeoutCause(context.Background(), 150*ms, errOwn)
			return ctx, cancel
		}},
		{name: "a deadline with a long past", ctx: timeout(-time.Hour)},
		// The primary takes its time to notice, or has an error of its own.
		{name: "deaf", ctx: timeout(50 * ms), side: hangs{long: 100 * ms, deaf: true, err: os.ErrDeadlineExceeded}, err: os.ErrDeadlineExceeded, counts: true},
		{name: "deaf, not for long", ctx: timeout(50 * ms), side: hangs{long: 100*ms - 1, deaf: true, err: errDown}, err: errDown},
		{name: "deaf, and cancelled", ctx: cancelAfter(50*ms, time.Second), side: hangs{long: 200 * ms, deaf: true, err: errDown}, err: errDown},
		// The network was given the deadline and is ahead of the context.
		{name: "ahead", side: hangs{long: 100 * ms, err: os.ErrDeadlineExceeded}, err: os.ErrDeadlineExceeded, counts: true, ctx: func() (context.Context, func()) {
			return odd{context.Background(), time.Now().Add(100 * ms), nil}, func() {}
		}},
		{name: "ahead and short", side: hangs{long: 99 * ms, err: os.ErrDeadlineExceeded}, err: os.ErrDeadlineExceeded, ctx: func() (context.Context, func()) {
			return odd{context.Background(), time.Now().Add(99 * ms), nil}, func() {}
		}},
		// How long it took is known only of callers with a deadline.
		{name: "a deadline that nobody knew of", side: hangs{long: time.Second, err: errDown}, err: errDown, ctx: func() (context.Context, func()) {
			return odd{Context: context.Background(), err: context.DeadlineExceeded}, func() {}
		}},
		{name: "malformed", ctx: timeout(50 * ms), side: hangs{long: time.Second, deaf: true, err: store.ErrCost}, err: store.ErrCost},
		{name: "WithFailure", ctx: timeout(50 * ms), side: hangs{long: time.Second, deaf: true, err: errOwn}, err: errOwn,
			opts: []failover.Option{failover.WithFailure(func(err error) bool { return err != errOwn })}},
		{name: "WithFailure of others", ctx: timeout(150 * ms), counts: true,
			opts: []failover.Option{failover.WithFailure(func(err error) bool { return err != errOwn })}},
	} {
		verbs := map[string]func(ctx context.Context, s *failover.Store) error{
			"take":  func(ctx context.Context, s *failover.Store) error { _, err := takeFor(ctx, s, "k"); return err },
			"reset": func(ctx context.Context, s *failover.Store) error { return s.Reset(ctx, "k", limit) },
			"settle": func(ctx context.Context, s *failover.Store) error {
				return s.Settle(ctx, charge(), make([]store.Result, 1))
			},
			"settle what was charged": func(ctx context.Context, s *failover.Store) error {
				c := charge()
				c[0].Receipt.Cost = 1
				return s.Settle(ctx, c, make([]store.Result, 1))
			},
		}
		for verb, call := range verbs {
			t.Run(tt.name+"/"+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, q := &side{hang: tt.side.long, deaf: tt.side.deaf, err: tt.side.err}, &side{}
					if p.hang == 0 {
						p.hang = 24 * time.Hour
					}
					if tt.err == nil {
						tt.err = context.DeadlineExceeded
					}
					s := failover.New(p, q, append(tt.opts, failover.WithThreshold(2))...)
					defer s.Close()
					for i := range 2 {
						if s.State() != failover.Closed {
							t.Fatalf("open after %d calls", i)
						}
						ctx, cancel := tt.ctx()
						if err := call(ctx, s); !errors.Is(err, tt.err) {
							t.Errorf("%v, want %v", err, tt.err)
						}
						cancel()
					}
					want := failover.Stats{}
					if tt.counts {
						want = failover.Stats{State: failover.Open, Failures: 2, Opened: 1}
					}
					if got := s.Stats(); got != want || len(q.takes)+len(q.settles) != 0 {
						t.Errorf("%+v, want %+v; the secondary was asked for %d, %d", got, want, len(q.takes), len(q.settles))
					}
				})
			})
		}
	}
}

// isFailure isn't called for a malformed call, nor for a caller that has left.
func TestWithFailureIsNotAsked(t *testing.T) {
	left, cancel := context.WithCancel(t.Context())
	cancel()
	for ctx, err := range map[context.Context]error{left: context.Canceled, t.Context(): store.ErrLimit} {
		s := failover.New(&side{err: err}, nil, failover.WithFailure(func(err error) bool { t.Error(err); return true }))
		if _, got := takeFor(ctx, s, "k"); got != err {
			t.Error(got)
		}
	}
}

// A primary that hangs delays only the callers that came before it had failed a few of
// them.
func TestHangingPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{}, &side{}
		var events []failover.Event
		s := failover.New(p, q, failover.WithObserver(func(e failover.Event) { events = append(events, e) }))
		call := func(deadline time.Duration) (store.Receipt, error) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			return takeFor(ctx, s, "k")
		}
		hang := func(d time.Duration) { p.set(func(p *side) { p.hang = d }) }
		for range 4 {
			hang(time.Hour)
			if _, err := call(time.Second); err != context.DeadlineExceeded {
				t.Fatal(err)
			}
		}
		hang(0)
		if _, err := call(time.Second); err != nil { // not in a row
			t.Fatal(err)
		}
		hang(time.Hour)
		for i := range 5 {
			if s.State() != failover.Closed {
				t.Fatalf("open after %d calls", i)
			}
			if _, err := call(10 * time.Millisecond); err != context.DeadlineExceeded { // says nothing
				t.Fatal(err)
			}
			if _, err := call(time.Second); err != context.DeadlineExceeded {
				t.Fatal(err)
			}
		}
		start := time.Now()
		for range 100 {
			if r, err := call(time.Second); err != nil || r.Path != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("an open breaker held its callers up for %v", waited)
		}
		time.Sleep(10 * time.Second) // probes hang as well: 250 ms between two, 250 ms each
		if got, want := s.Stats(), (failover.Stats{State: failover.Open, Failures: 9, Fallbacks: 100, Opened: 1, Probes: 20}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		hang(0)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if r, err := call(time.Second); err != nil || r.Path != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if len(events) != 2 || !errors.Is(events[0].Err, context.DeadlineExceeded) || !strings.Contains(events[0].Err.Error(), "no answer within 1s") {
			t.Errorf("%+v", events)
		}
		if p.most != 1 {
			t.Errorf("%d probes at a time", p.most)
		}
	})
}
