package stint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Guava's SmoothBursty: costs 1, 6, 2 wait 0, 2, 12 s.
		l := limiter(t, theKey, stint.Rate(1, 2*time.Second, stint.WithDebt(), stint.WithBurst(0)))
		for _, step := range []struct {
			cost int64
			wait time.Duration
		}{{1, 0}, {6, 2 * time.Second}, {2, 12 * time.Second}} {
			start := time.Now()
			p, err := l.Wait(t.Context(), "k", step.cost)
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != step.wait || p.Decision().Delay != step.wait {
				t.Errorf("cost %d waited %v, and says %v; want %v", step.cost, got, p.Decision().Delay, step.wait)
			}
			p.Done()
		}
	})
}

func TestWaitRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithBurst(2)))
		start := time.Now()
		take(t, l, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		_, err := l.Wait(ctx, "k", 1)
		if d := denied(t, err).Decision; d.RetryAfter != time.Second {
			t.Errorf("retry after %v: with the same deadline the same call passes in 1s", d.RetryAfter)
		}
		if _, err = l.Wait(t.Context(), "k", 3); denied(t, err).Decision.RetryAfter != stint.Never {
			t.Errorf("%v, want never", err)
		}
		hours := limiter(t, theKey, stint.Quota(1, stint.Monthly))
		take(t, hours, 1)
		_, err = hours.Wait(t.Context(), "k", 1)
		denied(t, err)
		if time.Since(start) != 0 {
			t.Errorf("took %v, want nothing", time.Since(start))
		}
	})
}

func TestWaitCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(1, time.Minute), stint.Concurrency(5))
		take(t, l, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		start := time.Now()
		_, err := l.Wait(ctx, "k", 1)
		if !errors.Is(err, context.Canceled) || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		d, _ := l.Peek(t.Context(), "k")
		if free := d.Limits[1].Remaining; free != 4 || d.Limits[0].ResetAfter != 50*time.Second {
			t.Errorf("%d slots free, full in %v; want 4, 50s: the canceled call left a trace", free, d.Limits[0].ResetAfter)
		}
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v from a context that has ended", err)
		}
	})
}

func TestTake(t *testing.T) {
	l := limiter(t, stint.Rate(5, time.Hour, everybody, cost(9)), stint.Quota(9, stint.Monthly, stint.WithKey(stint.Header("X-None"))),
		stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	p, err := l.Take(t.Context(), "tenant-7", 3) // neither the keys nor the costs of requests count
	if err != nil {
		t.Fatal(err)
	}
	d := p.Decision()
	if !d.Allowed || d.Limit != "rate" || d.Remaining != 2 || d.Limits[1].Remaining != 6 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []int64{0, -1, store.MaxCost + 1} {
		if _, err := l.Take(t.Context(), "tenant-7", bad); !errors.Is(err, store.ErrCost) {
			t.Errorf("cost %d: %v", bad, err)
		}
	}
	if _, err := l.Take(t.Context(), "", 1); !errors.Is(err, stint.ErrEmptyKey) {
		t.Errorf("empty key: %v", err)
	}
	if _, err := l.Take(t.Context(), strings.Repeat("k", 1<<20), 1); !errors.Is(err, stint.ErrKeyTooLong) {
		t.Errorf("1 MB key: %v", err)
	}
	routes := limiter(t, stint.WithRoute("/", stint.Rate(1, time.Hour, everybody)))
	if _, err := routes.Take(t.Context(), "k", 1); err == nil {
		t.Error("a limiter with routes only takes")
	}
}

func TestPeekAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(2, time.Hour), stint.Concurrency(3), stint.WithRoute("/a", stint.Rate(1, time.Hour)))
		codes(l, "GET", "/a", 2)
		take(t, l, 2)
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Allowed || d.Limit != "rate" || d.Limits[1].Remaining != 1 || d.ResetAfter != time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
		if d.RetryAfter != 30*time.Minute {
			t.Errorf("one unit in %v, want 30m", d.RetryAfter)
		}
		if other, _ := l.Peek(t.Context(), "other"); !other.Allowed || other.Remaining != 2 {
			t.Errorf("another key: %+v", other)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d, _ = l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 2 || d.Limits[1].Remaining != 3 {
			t.Errorf("after Reset: %+v", d)
		}
		if got := codes(l, "GET", "/a", 1); got != "200" {
			t.Errorf("a route's limit after Reset: %s", got)
		}
		if _, err := l.Peek(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		if err := l.Reset(t.Context(), ""); !errors.Is(err, stint.ErrEmptyKey) {
			t.Error(err)
		}
		plain := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(newSpy()))
		if err := plain.Reset(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "store.Resetter") {
			t.Errorf("a store without Reset: %v", err)
		}
	})
}
