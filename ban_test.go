package stint_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func TestBanOptions(t *testing.T) {
	rate := stint.Rate(1, time.Minute)
	for want, opts := range map[string][]stint.Option{
		": no limit beside it": {stint.Ban(1, time.Minute, time.Hour)},
		`"b": no limit beside`: {rate, stint.WithRoute("/x", stint.Ban(1, time.Minute, time.Hour, stint.WithName("b")))},
		"write at most 1000":   {rate, stint.Ban(1001, time.Minute, time.Hour)},
		"0 units":              {rate, stint.Ban(0, time.Minute, time.Hour)},
		"period 0s":            {rate, stint.Ban(1, 0, time.Hour)},
		"a ban of -1s":         {rate, stint.Ban(1, time.Minute, -time.Second)},
		`limit "ban": another limit has that name`: {rate, stint.Ban(1, time.Minute, time.Hour, stint.WithName("ban")), stint.Ban(2, time.Minute, time.Hour, stint.WithName("ban"))},
	} {
		if _, err := stint.New(append(opts, theKey)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// banner is a limiter of one request an hour, which bans after two refusals.
func banner(t *testing.T, opts ...stint.Option) *stint.Limiter {
	return limiter(t, append([]stint.Option{theKey, stint.Rate(1, time.Hour), stint.Ban(2, time.Hour, 10*time.Hour)}, opts...)...)
}

func TestBanDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		l := banner(t, stint.WithObserver(func(e stint.Event) {
			if e.Kind != stint.EventEnded {
				kinds = append(kinds, e.Kind.String())
			}
		}))
		ask := func() stint.Decision {
			p, err := l.Take(t.Context(), "k", 1)
			var denied *stint.DeniedError
			if errors.As(err, &denied) {
				return denied.Decision
			}
			if err != nil {
				t.Fatal(err)
			}
			return p.Decision()
		}
		if d := ask(); !d.Allowed || d.Limit != "rate" || d.Limits[1].Remaining != 2 || d.Limits[1].Name != "ban" {
			t.Errorf("granted: %+v", d)
		}
		if d := ask(); d.Limit != "rate" || d.RetryAfter != time.Hour || !d.Limits[1].Allowed || d.Limits[1].Remaining != 1 {
			t.Errorf("refused once: %+v", d)
		}
		if d := ask(); d.Limit != "ban" || d.RetryAfter != 10*time.Hour || d.Limits[1].Allowed || d.Limits[1].Remaining != 0 {
			t.Errorf("refused twice: %+v", d)
		}
		time.Sleep(2 * time.Hour)
		if d := ask(); d.Limit != "ban" || d.RetryAfter != 8*time.Hour || !d.Limits[0].Allowed {
			t.Errorf("banned: %+v", d)
		}
		if d, err := l.Peek(t.Context(), "k"); err != nil || d.Allowed || d.RetryAfter != 8*time.Hour || !d.Limits[0].Allowed {
			t.Errorf("a peek at a ban: %+v, %v", d, err)
		}
		if got := strings.Join(kinds, " "); got != "Admitted Denied Denied Banned Denied" {
			t.Error(got)
		}
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if d := ask(); !d.Allowed {
			t.Errorf("Reset lifts no ban: %+v", d)
		}
	})
}

func TestBanReportsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := 0
		l := limiter(t, theKey, stint.Rate(1, time.Minute), stint.Ban(1, time.Hour, time.Hour, stint.WithDryRun()),
			stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventBanned {
					began++
				}
			}))
		take := func() error { _, err := l.Take(t.Context(), "k", 1); return err }
		if take() != nil || take() == nil {
			t.Error("the rate doesn't hold")
		}
		time.Sleep(time.Minute)
		if err := take(); err != nil {
			t.Errorf("a ban that reports only refuses: %v", err)
		}
		if began != 1 {
			t.Errorf("%d bans told of", began)
		}
	})
}

// A request that waits for a slot is refused by the store again and again, which must
// not count.
func TestBanAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Minute)), stint.Rate(3, time.Hour), stint.Ban(2, time.Hour, time.Hour))
		first, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *stint.Permit)
		go func() {
			p, err := l.Take(context.Background(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			granted <- p
		}()
		time.Sleep(30 * time.Second)
		first.Done()
		(<-granted).Done()
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Limits[2].Remaining != 2 {
			t.Errorf("waiting was counted: %+v, %v", d.Limits, err)
		}
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		for range 2 {
			if _, err := l.Take(t.Context(), "k", 1); err == nil {
				t.Fatal("the rate doesn't hold")
			}
		}
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[2].Remaining != 0 || d.RetryAfter != time.Hour {
			t.Errorf("what the rate refuses isn't counted beside a limit that waits: %+v", d.Limits)
		}
	})
}

// Refusals by an inner limiter count for the outer limiter's ban.
func TestBanNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outer := limiter(t, theKey, stint.Rate(100, time.Hour), stint.Ban(2, time.Hour, time.Hour))
		inner, err := outer.With(stint.Rate(1, time.Hour, stint.WithName("inner")))
		if err != nil {
			t.Fatal(err)
		}
		h := mount(outer, mount(inner, nil).ServeHTTP)
		var got []int
		for range 5 {
			got = append(got, answerOf(h))
		}
		if d, err := outer.Peek(t.Context(), "k"); err != nil || len(d.Limits) != 2 {
			t.Fatal(d, err)
		} else if d.Limits[1].Allowed {
			t.Errorf("answered %v, and not banned: %+v", got, d.Limits)
		}
	})
}

func answerOf(h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	return w.Code
}
