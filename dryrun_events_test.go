package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Each limit that would have refused gets its own event, with what it would have said.
func TestDryRunDeniedNamesTheLimit(t *testing.T) {
	named := func(n int64, per time.Duration, name string, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, per, append(opts, stint.WithName(name))...)
	}
	dry := stint.WithDryRun()
	tests := []struct {
		name   string
		limits []stint.Option
		want   []string // of each request
	}{
		{"one of three", []stint.Option{named(9, time.Hour, "a"), named(1, time.Hour, "b", dry), named(5, time.Hour, "c", dry)},
			[]string{"", "b in 1h0m0s", "b in 1h0m0s"}},
		{"two of three", []stint.Option{named(1, time.Hour, "a", dry), named(9, time.Hour, "b"), named(2, 2*time.Hour, "c", dry)},
			[]string{"", "a in 1h0m0s", "a in 1h0m0s, c in 1h0m0s"}},
		{"beside a refusal", []stint.Option{named(1, time.Minute, "a"), named(1, time.Hour, "b", dry), named(1, 2*time.Hour, "c", dry)},
			[]string{"", "b in 1h0m0s, c in 2h0m0s"}},
		{"all", []stint.Option{named(1, time.Hour, "a"), named(1, time.Minute, "b"), dry},
			[]string{"", "a in 1h0m0s, b in 1m0s"}},
		{"of this process", []stint.Option{stint.AdaptiveConcurrency(1, 1, dry), named(9, time.Hour, "b")},
			[]string{"", "adaptive in 0s"}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			seen := &events{}
			l := limiter(t, append(tt.limits, theKey, seen.option())...)
			var permits []*stint.Permit
			for i, want := range tt.want {
				seen.all = nil
				p, err := l.Take(context.Background(), "k", 1)
				permits = append(permits, p)
				var got []string
				for _, e := range seen.all[1:] {
					d := e.Decision
					if e.Kind != stint.EventDryRunDenied || d.Allowed || e.Err != nil || e.EndsWait || len(d.Limits) != len(seen.all[0].Decision.Limits) {
						t.Errorf("%s, request %d: %+v", tt.name, i, e)
					}
					got = append(got, fmt.Sprint(d.Limit, " in ", d.RetryAfter))
					for _, s := range d.Limits {
						if s.Name == d.Limit && (!s.DryRun || s.Allowed || s.Remaining != d.Remaining || s.ResetAfter != d.ResetAfter) {
							t.Errorf("%s, request %d: %+v of %+v", tt.name, i, d, s)
						}
					}
				}
				if strings.Join(got, ", ") != want {
					t.Errorf("%s, request %d (%v): would have been refused by %q, want %q", tt.name, i, err, got, want)
				}
			}
			for _, p := range permits {
				p.Done()
			}
		})
	}
}

// Of all problems with a dry run, only a key that can't be determined refuses the
// request.
func TestDryRunRefusesForItsKeyOnly(t *testing.T) {
	dry, closed := stint.WithDryRun(), stint.WithFailurePolicy(stint.FailClosed)
	rate := func(opts ...stint.RateOption) stint.Limit {
		return stint.Rate(9, time.Hour, append(opts, dry, closed, stint.WithName("dry"))...)
	}
	from := func(err error, limits ...stint.Limit) stint.Option {
		return stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return limits, err })
	}
	noKey := stint.WithKey(func(*http.Request) (string, error) { return "", errors.New("no session") })
	noClass := stint.WithPriority(func(*http.Request) int { panic("nobody waits") })
	tests := []struct {
		name   string
		opts   []stint.Option
		status int
		events string
	}{
		{"a key", []stint.Option{rate(noKey)}, 500, "KeyFailed"},
		{"an empty key", []stint.Option{rate(stint.WithKey(stint.Header("X-Nobody")))}, 403, "EmptyKey"},
		{"an empty key that is skipped", []stint.Option{rate(stint.WithKey(stint.Header("X-Nobody"))), stint.WithEmptyKey(stint.SkipEmptyKey)}, 200, ""},
		{"the store", []stint.Option{rate()}, 200, "StoreFailed Admitted"},
		{"a cost", []stint.Option{rate(cost(-1))}, 200, "DryRunDenied StoreFailed Admitted"},
		{"a cost that nothing holds", []stint.Option{stint.AdaptiveConcurrency(1, 1, dry, cost(9), stint.WithName("dry"))}, 200, "Admitted DryRunDenied"},
		{"the class of a request", []stint.Option{stint.Concurrency(1, dry, stint.WithName("dry"), stint.WithShare(1, 50)), noClass}, 200, "StoreFailed Admitted"},
		{"a function for dry runs", []stint.Option{from(errDown), dry}, 200, "LimitsFailed"},
		{"a limit of a function", []stint.Option{from(nil, stint.Rate(0, time.Hour, dry, stint.WithName("bad")), rate())}, 200, "LimitsFailed StoreFailed Admitted"},
		{"an enforced limit of a function", []stint.Option{from(nil, stint.Rate(0, time.Hour, stint.WithName("bad")))}, 500, "LimitsFailed"},
	}
	for _, tt := range tests {
		s, seen := newSpy(), &events{}
		s.failWith(errDown)
		l := limiter(t, append(tt.opts, theKey, stint.WithStore(s), seen.option())...)
		if w := through(l, get("/"), nil); w.Code != tt.status || seen.kinds() != tt.events {
			t.Errorf("%s: %d and %s, want %d and %s", tt.name, w.Code, seen.kinds(), tt.status, tt.events)
		}
	}
}

// One limit is on two routes, on one of them as a dry run. A request that may match
// either is charged as the other says.
func TestDryRunOfAnotherReading(t *testing.T) {
	dry := stint.WithDryRun()
	for _, tt := range []struct {
		name         string
		files, login []stint.RouteOption
		left         int64
	}{
		{"enforced first", []stint.RouteOption{cost(1)}, []stint.RouteOption{cost(5), dry}, 9},
		{"a dry run first", []stint.RouteOption{cost(5), dry}, []stint.RouteOption{cost(1)}, 9},
		{"both enforced", []stint.RouteOption{cost(1)}, []stint.RouteOption{cost(5)}, 5},
		{"both dry runs", []stint.RouteOption{cost(5), dry}, []stint.RouteOption{cost(1), dry}, 5},
	} {
		limit := stint.Rate(10, time.Hour)
		seen := &events{}
		l := limiter(t, theKey, seen.option(), limit,
			stint.WithRoute("/api/", append(tt.files, limit)...), stint.WithRoute("POST /api/auth/login", append(tt.login, limit)...))
		through(l, httptest.NewRequest("POST", "/api/auth%2flogin", nil), nil)
		if s := seen.last().Decision.Limits; len(s) != 1 || s[0].DryRun != (tt.name == "both dry runs") || remaining(t, l) != tt.left {
			t.Errorf("%s: %+v, %d left, want %d", tt.name, s, remaining(t, l), tt.left)
		}
	}
}

// Settle without a name applies to the same limits as without the dry run.
func TestDryRunChoosesNothingToSettle(t *testing.T) {
	dry, costs := stint.WithDryRun(), cost(1)
	tests := []struct {
		name         string
		outer, inner []stint.Option
		want         string // what is left of 9
	}{
		{"beside one without a cost", nil, []stint.Option{rateOf("a"), rateOf("b", dry, costs)}, "a:4 b:4"},
		{"beside one with a cost", nil, []stint.Option{rateOf("a", costs), rateOf("b", dry), rateOf("c")}, "a:4 b:8 c:8"},
		{"beside another dry run", nil, []stint.Option{rateOf("a", dry), rateOf("b", dry, costs)}, "a:8 b:4"},
		{"inside one with a cost", []stint.Option{rateOf("a", costs)}, []stint.Option{rateOf("b", dry, costs)}, "a:4 b:8"},
		{"inside one without", []stint.Option{rateOf("a")}, []stint.Option{rateOf("b", dry, costs)}, "a:4 b:8"},
	}
	for _, tt := range tests {
		var got []string
		settle := func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			if err := p.Settle(r.Context(), 5); err != nil {
				t.Error(err)
			}
			for _, s := range p.Decision().Limits {
				got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Remaining))
			}
		}
		h := mount(limiter(t, append(tt.inner, theKey)...), settle)
		if tt.outer != nil {
			h = mount(limiter(t, append(tt.outer, theKey)...), h.ServeHTTP)
		}
		h.ServeHTTP(httptest.NewRecorder(), get("/"))
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s left, want %s", tt.name, got, tt.want)
		}
	}
}

func rateOf(name string, opts ...stint.RateOption) stint.Limit {
	return stint.Rate(9, time.Hour, append(opts, stint.WithName(name))...)
}
