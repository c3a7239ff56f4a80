package waiting_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/waiting"
)

var noShares = func() *waiting.Shares { return nil }

// asker is one that never gets anything.
type asker struct {
	want  *waiting.Want
	asked int
	when  func(asked int)
	came  func()
}

func (a *asker) Came(int64, bool) {
	if a.came != nil {
		a.came()
	}
}

func (a *asker) Ask(context.Context) *waiting.Want {
	a.asked++
	if a.when != nil {
		a.when(a.asked)
	}
	return a.want
}

func wanting(patience time.Duration) *waiting.Want {
	now := time.Now()
	return &waiting.Want{
		Key: waiting.Key{Limit: "x", Key: "k"}, Cost: 1, Rank: waiting.Rank{Came: now},
		Shares: noShares, Room: 2, Until: now.Add(patience),
	}
}

// However a wait ends, the waiter leaves the line, and not before its time.
func TestSlotsWaitEnds(t *testing.T) {
	tests := []struct {
		name   string
		others int // in line before
		bound  time.Duration
		when   func(int)
		came   func()
		want   error
		asks   int // at the least
		lasts  time.Duration
		panics bool
	}{
		{name: "there is no room", others: 2, want: waiting.ErrFull},
		{name: "late as the head", want: waiting.ErrLate, asks: 2, lasts: time.Second},
		{name: "late behind another", others: 1, want: waiting.ErrLate, lasts: time.Second},
		{name: "the context ends", bound: 300 * time.Millisecond, want: context.DeadlineExceeded, asks: 1, lasts: 300 * time.Millisecond},
		{name: "behind another", others: 1, bound: 300 * time.Millisecond, want: context.DeadlineExceeded, lasts: 300 * time.Millisecond},
		{name: "what is asked panics", when: func(n int) {
			if n == 2 {
				panic("down")
			}
		}, asks: 2, lasts: 110 * time.Millisecond, panics: true},
		{name: "who is told panics", came: func() { panic("told") }, panics: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s waiting.Slots
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				for range tt.others {
					go func() {
						w := wanting(time.Hour)
						_ = s.Wait(ctx, w, &asker{want: w})
					}()
					synctest.Wait()
				}
				own := ctx
				if tt.bound > 0 {
					bound, stop := context.WithTimeout(ctx, tt.bound)
					defer stop()
					own = bound
				}
				start := time.Now()
				a := &asker{want: wanting(time.Second), when: tt.when, came: tt.came}
				err, panicked := wait(own, &s, a)
				d := time.Since(start)
				if err != tt.want || panicked != tt.panics {
					t.Errorf("%v, panicked: %v, want %v, %v", err, panicked, tt.want, tt.panics)
				}
				if a.asked < tt.asks || tt.asks == 0 && a.asked > 0 {
					t.Errorf("asked %d times, want %d", a.asked, tt.asks)
				}
				if d > tt.lasts || !tt.panics && d < tt.lasts {
					t.Errorf("over after %v, want %v", d, tt.lasts)
				}
				if n, _, _ := s.Counts(); n != tt.others {
					t.Errorf("%d wait, want the %d others", n, tt.others)
				}
				stop()
				synctest.Wait()
				if n, lines, _ := s.Counts(); n+lines > 0 {
					t.Errorf("%d wait in %d lines at the end", n, lines)
				}
			})
		})
	}
}

func wait(ctx context.Context, s *waiting.Slots, a *asker) (err error, panicked bool) {
	defer func() { panicked = recover() != nil }()
	return s.Wait(ctx, a.want, a), false
}

// The heads of all lines together ask a hundred times a second, and each at least once.
func TestSlotsPoll(t *testing.T) {
	for _, lines := range []int{1, 5, 20, 500} {
		synctest.Test(t, func(t *testing.T) {
			var s waiting.Slots
			ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
			defer stop()
			askers := make([]asker, lines)
			for i := range askers {
				w := wanting(time.Hour)
				w.Key.Key = string(rune('a' + i))
				askers[i].want = w
				go func() { _ = s.Wait(ctx, w, &askers[i]) }()
			}
			<-ctx.Done()
			synctest.Wait()
			sum := 0
			for i := range askers {
				polls := askers[i].asked - 1 // the first is at once
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
