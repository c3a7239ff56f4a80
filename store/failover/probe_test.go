package failover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

// change is a change of a breaker, as observers of the store are told.
type change struct {
	To  failover.State
	At  time.Time // of the notice
	Err error     // the primary's
}

// observed has each change of a store's breaker told to f.
func observed(t *testing.T, s *failover.Store, f func(change)) *failover.Store {
	state := failover.Closed
	o := &store.Observer{Tell: func(n store.Notice) {
		to := failover.Closed
		switch n.Kind {
		case store.CallFailed:
			return
		case store.Degraded:
			to = failover.Open
		}
		if to != state { // a probe that fails is reported, too
			state = to
			var err error
			if n.Err != nil {
				if !errors.Is(n.Err, failover.ErrOpen) {
					t.Errorf("%v isn't ErrOpen", n.Err)
				}
				err = n.Err.(interface{ Unwrap() []error }).Unwrap()[1]
			}
			f(change{to, time.Now(), err})
		}
	}}
	s.Observe(o)
	t.Cleanup(func() { runtime.KeepAlive(o) }) // the store doesn't keep it
	return s
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{}, &side{}
		var events []change
		s := observed(t, failover.New(p, q, failover.WithThreshold(2)), func(e change) { events = append(events, e) })
		start := time.Now()
		take(s)
		p.fail(errDown)
		trip(t, s, 2)
		opened := time.Now()
		time.Sleep(249 * time.Millisecond)
		synctest.Wait()
		if _, probes := p.counted(); probes != 0 {
			t.Fatal("probed too early")
		}
		time.Sleep(600 * time.Millisecond) // 250, 500, 750
		synctest.Wait()
		if _, probes := p.counted(); probes != 3 || s.State() != failover.Open {
			t.Fatalf("%d probes, %v", probes, s.State())
		}
		probe := p.takes[len(p.takes)-1]
		if want := (store.Charge{Key: "k", Limit: probe.Limit, Cost: 1}); probe != want || probe.Limit.Algorithm() != store.TokenBucket {
			t.Errorf("probed with %+v", probe)
		}
		p.fail(nil)
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		if r, err := take(s); s.State() != failover.Open || err != nil || r.Path != 1 {
			t.Fatal("closed without a probe")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if r, err := take(s); s.State() != failover.Closed || err != nil || r.Path != 0 {
			t.Fatal("open although the primary answers")
		}
		want := []change{
			{failover.Open, opened, errDown},
			{failover.Closed, start.Add(time.Second), nil},
		}
		if !slices.Equal(events, want) {
			t.Errorf("events %+v, want %+v", events, want)
		}
		// The goroutine has ended: a bubble can't be left before. And nothing
		// is asked of a primary that is well.
		before, _ := p.counted()
		time.Sleep(time.Hour)
		if after, probes := p.counted(); after != before || probes != 4 {
			t.Errorf("%d probes of a healthy primary", probes-4)
		}
	})
}

func TestProbeHasItsOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		s := failover.New(p, nil, failover.WithThreshold(1), failover.WithProbe(time.Second, 10*time.Millisecond))
		trip(t, s, 1)
		p.set(func(p *side) { p.err, p.hang = nil, time.Hour })
		if _, err := take(s); !errors.Is(err, failover.ErrOpen) || !errors.Is(err, errDown) {
			t.Errorf("%v, want the last failure, of a call", err)
		}
		time.Sleep(2*time.Second + 21*time.Millisecond)
		synctest.Wait()
		if got := s.Stats(); got.Probes != 2 || got.State != failover.Open {
			t.Errorf("%+v", got)
		}
		_, err := take(s)
		if !errors.Is(err, failover.ErrOpen) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the last failure, of the probe", err)
		}
		p.set(func(p *side) { p.hang = 0 })
		time.Sleep(time.Second)
		synctest.Wait()
		if s.State() != failover.Closed {
			t.Error("open")
		}
	})
}

func TestProbeSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		s := failover.New(p, nil, failover.WithThreshold(1))
		trip(t, s, 1)
		p.set(func(p *side) { p.err, p.panics = nil, true })
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if got := s.Stats(); got.State != failover.Open || got.Probes != 1 {
			t.Errorf("%+v after a panic", got)
		}
		if _, err := take(s); !errors.Is(err, failover.ErrOpen) || !strings.Contains(err.Error(), "panic: side") {
			t.Error(err)
		}
		p.set(func(p *side) { p.panics = false })
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if got := s.Stats(); got.State != failover.Closed || got.Probes != 2 {
			t.Errorf("%+v", got)
		}
	})
}

// A caller's panic goes through, and is a failure as any other.
func TestPanicOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{panics: true}
		var opened error
		s := observed(t, failover.New(p, &side{}, failover.WithThreshold(1)), func(e change) { opened = e.Err })
		defer s.Close()
		func() {
			defer func() {
				if recover() != "side" {
					t.Error("the panic was lost")
				}
			}()
			take(s)
		}()
		if s.State() != failover.Open {
			t.Error("closed")
		}
		synctest.Wait()
		if _, err := s.Degraded(); opened == nil || !errors.Is(err, opened) || s.Stats().Failures != 1 {
			t.Errorf("%v, observed: %v, %+v", err, opened, s.Stats())
		}
		p.set(func(p *side) { p.panics, p.written = false, errReadOnly })
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if _, probes := p.counted(); probes != 1 || s.State() != failover.Open {
			t.Errorf("%d probes, %v", probes, s.State())
		}
	})
}

// While the breaker is open no call waits, however long the probes hang.
func TestOpenNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{err: errDown, hang: 50 * time.Millisecond}, &side{}
		s := failover.New(p, q, failover.WithThreshold(5), failover.WithProbe(100*time.Millisecond, time.Hour))
		var slow atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for i := range 1000 {
					start := time.Now()
					if _, err := take(s); err != nil {
						t.Error(err)
					}
					switch time.Since(start) {
					case 0:
					case 50 * time.Millisecond:
						slow.Add(1)
					default:
						t.Errorf("waited %v", time.Since(start))
					}
					if i == 0 {
						p.set(func(p *side) { p.hang = time.Minute })
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		// Only those that were under way when it opened.
		if slow.Load() != 20 {
			t.Errorf("%d calls waited", slow.Load())
		}
		if n, probes := p.counted(); n != 20 || probes != 1 {
			t.Errorf("primary: %d charges, %d probes", n, probes)
		}
		want := failover.Stats{State: failover.Open, Failures: 20, Fallbacks: 20_000, Opened: 1, Probes: 1}
		if got := s.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		s.Close()
	})
}

// A call that began before an outage and fails after it says nothing about the present.
func TestLateFailuresDoNotReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{err: errDown}, &side{}
		s := failover.New(p, q, failover.WithThreshold(3))
		var wg sync.WaitGroup
		p.set(func(p *side) { p.hang = time.Second })
		for range 10 {
			wg.Go(func() { take(s) })
		}
		synctest.Wait()
		p.set(func(p *side) { p.hang = 0 })
		trip(t, s, 3)
		p.fail(nil)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if s.State() != failover.Closed {
			t.Fatal("open")
		}
		wg.Wait()
		if got, want := s.Stats(), (failover.Stats{Failures: 13, Fallbacks: 13, Opened: 1, Probes: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestCloseEndsTheProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events atomic.Int64
		p := &side{err: errDown}
		s := observed(t, failover.New(p, &side{}, failover.WithThreshold(1)), func(change) { events.Add(1) })
		trip(t, s, 1)
		p.set(func(p *side) { p.hang = time.Hour })
		time.Sleep(300 * time.Millisecond) // a probe is under way
		s.Close()
		s.Close()
		p.set(func(p *side) { p.hang, p.err = 0, nil })
		time.Sleep(time.Minute)
		if _, probes := p.counted(); probes != 1 || s.State() != failover.Open || events.Load() != 1 {
			t.Errorf("%d probes, %v, %d events", probes, s.State(), events.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) { // closed before it opens
		p := &side{err: errDown}
		s := observed(t, failover.New(p, &side{}, failover.WithThreshold(1)), func(e change) { t.Error(e) })
		s.Close()
		trip(t, s, 1)
		time.Sleep(time.Minute)
		if _, probes := p.counted(); probes != 0 {
			t.Error("probed after Close")
		}
	})
}

// An event that occurs while another is being observed isn't delivered after Close.
func TestCloseEndsTheEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		var events []change
		var s *failover.Store
		s = observed(t, failover.New(p, &side{}, failover.WithThreshold(1)), func(e change) {
			if events = append(events, e); e.To == failover.Closed {
				p.fail(errDown)
				trip(t, s, 1)
				s.Close()
			}
		})
		trip(t, s, 1)
		p.fail(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(events) != 2 || s.Stats().Opened != 2 {
			t.Errorf("%+v, %+v", events, s.Stats())
		}
	})
}

// The defaults: 5 failures, 250 ms, 250 ms.
func TestDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		s := failover.New(p, nil)
		defer s.Close()
		for range 4 {
			take(s)
		}
		if s.State() != failover.Closed {
			t.Fatal("open after 4 failures")
		}
		trip(t, s, 1)
		p.set(func(p *side) { p.err, p.hang = nil, 249*time.Millisecond })
		time.Sleep(498 * time.Millisecond)
		if _, probes := p.counted(); probes != 1 || s.State() != failover.Open {
			t.Fatalf("%d probes, %v", probes, s.State())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if s.State() != failover.Closed {
			t.Error("a probe that took 249 ms was not waited for")
		}
	})
}

func TestEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := &side{}, &side{}
		var events []change
		var s *failover.Store
		s = observed(t, failover.New(p, q, failover.WithThreshold(1)), func(e change) {
			events = append(events, e)
			take(s) // may use the store, and be slow
			time.Sleep(400 * time.Millisecond)
		})
		for i := range 20 {
			p.fail(fmt.Errorf("outage %d", i))
			trip(t, s, 1)
			time.Sleep(time.Duration(i*40) * time.Millisecond)
			p.fail(nil)
			for s.State() == failover.Open {
				time.Sleep(10 * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(events) != 40 {
			t.Fatalf("%d events, want 40", len(events))
		}
		if got := s.Stats(); got.Opened != 20 {
			t.Errorf("%+v", got)
		}
		for i, e := range events {
			opened := i%2 == 0
			if (e.To == failover.Open) != opened || i > 0 && e.At.Before(events[i-1].At) {
				t.Errorf("event %d: %+v", i, e)
			}
			if opened && e.Err.Error() != fmt.Sprintf("outage %d", i/2) {
				t.Errorf("event %d: %v", i, e.Err)
			}
		}
	})
}

// An observer that panics ends neither the process nor the probing.
func TestObserverPanics(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	synctest.Test(t, func(t *testing.T) {
		p := &side{err: errDown}
		s := observed(t, failover.New(p, nil, failover.WithThreshold(1)), func(change) { panic("observer") })
		trip(t, s, 1)
		synctest.Wait()
		p.fail(nil)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if s.State() != failover.Closed || strings.Count(log.String(), "level=ERROR") != 2 {
			t.Errorf("%v\n%s", s.State(), log.String())
		}
	})
}
