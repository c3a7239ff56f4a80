package stint_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Each limit that would have refused is named, in an event of its own that says
// what it would have said.
func TestDryRunDeniedNamesTheLimit(t *testing.T) {
	named := func(n int64, per time.Duration, name string, opts ...stint.LimitOption) stint.Limit {
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
					if e.Kind != stint.DryRunDenied || d.Allowed || e.Err != nil || e.EndsWait || len(d.Limits) != len(seen.all[0].Decision.Limits) {
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
