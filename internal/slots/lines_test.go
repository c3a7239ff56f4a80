package slots_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/slots"
)

// wait waits for slots that never come free. It returns how often they were asked for.
func wait(ctx context.Context, ls *slots.Lines, w *slots.Waiter) (asked int, err error) {
	defer ls.Leave(w)
	if joined, _ := ls.Join(w); !joined {
		return 0, slots.ErrFull
	}
	for {
		if err := ls.Wait(ctx, w); err != nil {
			return asked, err
		}
		asked++
	}
}

func waiter(patience time.Duration) *slots.Waiter {
	now := time.Now()
	return &slots.Waiter{
		Key: slots.Key{Limit: "x", Key: "k"}, Cost: 1, Arrived: now,
		Shares: func() *slots.Shares { return nil }, Room: 2, Until: now.Add(patience),
	}
}

// However a wait ends, the waiter leaves the line, and not before its time.
func TestWaitEnds(t *testing.T) {
	tests := []struct {
		name   string
		others int // in line before
		bound  time.Duration
		want   error
		asks   int // at the least
		lasts  time.Duration
	}{
		{name: "there is no room", others: 2, want: slots.ErrFull},
		{name: "late as the head", want: slots.ErrLate, asks: 2, lasts: time.Second},
		{name: "late behind another", others: 1, want: slots.ErrLate, lasts: time.Second},
		{name: "the context ends", bound: 300 * time.Millisecond, want: context.DeadlineExceeded, asks: 1, lasts: 300 * time.Millisecond},
		{name: "behind another", others: 1, bound: 300 * time.Millisecond, want: context.DeadlineExceeded, lasts: 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ls slots.Lines
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				for range tt.others {
					go func() { _, _ = wait(ctx, &ls, waiter(time.Hour)) }()
					synctest.Wait()
				}
				bound := ctx
				if tt.bound > 0 {
					within, stop := context.WithTimeout(ctx, tt.bound)
					defer stop()
					bound = within
				}
				start := time.Now()
				asked, err := wait(bound, &ls, waiter(time.Second))
				if err != tt.want {
					t.Errorf("%v, want %v", err, tt.want)
				}
				if asked < tt.asks || tt.asks == 0 && asked > 0 {
					t.Errorf("asked %d times, want %d", asked, tt.asks)
				}
				if d := time.Since(start); d != tt.lasts {
					t.Errorf("over after %v, want %v", d, tt.lasts)
				}
				if n, _, _ := ls.Counts(); n != tt.others {
					t.Errorf("%d wait, want the %d others", n, tt.others)
				}
				stop()
				synctest.Wait()
				if n, lines, _ := ls.Counts(); n+lines > 0 {
					t.Errorf("%d wait in %d lines at the end", n, lines)
				}
			})
		})
	}
}

// The heads of all lines together ask a hundred times a second, and each at least once.
func TestPoll(t *testing.T) {
	for _, lines := range []int{1, 5, 20, 500} {
		synctest.Test(t, func(t *testing.T) {
			var ls slots.Lines
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			asked := make([]int, lines)
			for i := range asked {
				w := waiter(time.Hour)
				w.Key.Key = string(rune('a' + i))
				go func() { asked[i], _ = wait(ctx, &ls, w) }()
			}
			<-ctx.Done()
			synctest.Wait()
			sum := 0
			for _, n := range asked {
				polls := n - 1 // the first is at once
				if polls < 9 {
					t.Errorf("of %d heads one has asked again %d times in 10s, want 9 at the least", lines, polls)
				}
				sum += polls
			}
			if most := max(1200, 12*lines); sum > most {
				t.Errorf("%d heads have asked %d times in 10s, want %d at the most", lines, sum, most)
			}
		})
	}
}
