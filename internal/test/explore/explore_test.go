package explore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/test/explore"
)

// counter is read and written in two steps, as what loses an update is.
func counter(lost bool, known bool) func(*explore.Scheduler) {
	return func(s *explore.Scheduler) {
		n := 0
		for _, actor := range []string{"a", "b", "c"} {
			s.Go(actor, func(ctx context.Context) {
				for range 2 {
					s.Step(ctx, "reads")
					was := n
					if lost {
						s.Step(ctx, "writes")
					}
					n = was + 1
				}
			})
		}
		if known {
			s.State(func() string { return string(rune('0' + n)) })
		}
		s.End(func() {
			if n != 6 {
				s.Broken("counted %d of 6", n)
			}
		})
	}
}

func TestEveryOrder(t *testing.T) {
	if runs, trace := explore.Find(t, counter(false, false)); runs != 90 || trace != "" { // 6!/(2!2!2!)
		t.Errorf("%d runs, want 90; %s", runs, trace)
	}
	if runs, trace := explore.Find(t, counter(false, true)); runs >= 90 || trace != "" {
		t.Errorf("%d runs, want fewer where states are known; %s", runs, trace)
	}
	_, trace := explore.Find(t, counter(true, false))
	if !strings.Contains(trace, "a          reads") || !strings.HasSuffix(trace, "of 6") {
		t.Errorf("no trace of the lost update: %q", trace)
	}
}

// Time stands still for an actor at a step, and passes when no actor is at one.
func TestTime(t *testing.T) {
	runs, trace := explore.Find(t, func(s *explore.Scheduler) {
		start := time.Now()
		woken := time.Duration(0)
		s.Go("sleeper", func(context.Context) {
			time.Sleep(30 * time.Millisecond)
			woken = time.Since(start)
		})
		s.Go("clock", func(ctx context.Context) { s.Pass(ctx, 50*time.Millisecond) })
		s.Go("other", func(ctx context.Context) {
			s.Step(ctx, "acts")
			s.Note(ctx, "at %v", time.Since(start))
		})
		s.End(func() {
			if woken != 30*time.Millisecond {
				s.Broken("woken at %v", woken)
			}
		})
	})
	if runs != 2 || trace != "" {
		t.Errorf("%d runs, want 2: %s", runs, trace)
	}
}
