package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/storefake"
)

// used is what Usage returns, in short.
func used(t *testing.T, l *stint.Limiter, r *http.Request) string {
	t.Helper()
	all, err := l.Usage(r)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, u := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d/%d left %d in %v %s", u.Limit, u.Used, u.Capacity, u.Left, u.Reset, u.Route)))
	}
	return strings.Join(lines, "\n")
}

// Usage has every limit under the request's own keys, whatever the path, and charges nothing.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		byUser, calls := stint.WithKey(stint.Header("X-User")), 0
		session := stint.KeyFunc(func(r *http.Request) (string, error) {
			if calls++; r.Header.Get("X-Session") == "" {
				return "", errors.New("no session")
			}
			return r.Header.Get("X-Session"), nil
		})
		both := stint.Rate(6, time.Hour, stint.WithName("both"))
		l := limiter(t, byUser, stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/usage" }),
			stint.Rate(10, time.Hour, stint.WithName("calls")),
			stint.Rate(5, time.Hour, stint.WithName("session"), stint.WithKey(session)),
			stint.Quota(8, stint.Daily, stint.WithName("session-day"), stint.WithKey(session)),
			stint.Concurrency(3, stint.WithName("slots"), stint.WithKey(stint.Global())),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("adaptive"), stint.WithKey(stint.Global())),
			stint.Rate(7, time.Hour, stint.WithName("guests"), stint.WithKey(stint.RemoteIP()), stint.WithSkip(func(r *http.Request) bool { return r.Header.Get("X-User") != "" })),
			stint.Rate(7, time.Hour, stint.WithName("tried"), stint.WithDryRun(true)),
			stint.Rate(7, time.Hour, stint.WithName("hidden"), stint.WithHidden()),
			stint.Bandwidth(1<<20, stint.WithName("bytes")),
			stint.WithRoute("POST /orders", stint.Rate(4, time.Hour, stint.WithName("orders")), both),
			stint.WithRoute("GET /reports", stint.Only(stint.Rate(2, time.Hour, stint.WithName("reports")), both)),
			stint.WithRoute("GET /free", stint.Exempt()))
		ask := func(method, path string, fields ...string) *http.Request {
			r := from("192.0.2.1:1", fields...)
			r.Method, r.URL.Path = method, path
			return r
		}
		through(l, ask("POST", "/orders", "X-User", "ada", "X-Session", "s"), nil)
		through(l, ask("GET", "/", "X-User", "ada", "X-Session", "s"), func(http.ResponseWriter, *http.Request) {
			const want = "calls 2/10 left 8 in 12m0s\nsession 2/5 left 3 in 24m0s\nsession-day 2/8 left 6 in 24h0m0s\nslots 1/3 left 2 in 0s\n" +
				"orders 1/4 left 3 in 15m0s POST /orders\nboth 1/6 left 5 in 10m0s POST /orders, GET /reports\n" +
				"reports 0/2 left 2 in 0s GET /reports\nadaptive 1/9 left 8 in 0s"
			for range 2 { // nothing is charged
				calls = 0
				if got := used(t, l, ask("GET", "/usage", "X-User", "ada", "X-Session", "s")); got != want || calls != 1 {
					t.Errorf("got\n%s\nafter %d calls of the key, want\n%s", got, calls, want)
				}
			}
		})
		const bob = "calls 0/10 left 10 in 0s\nslots 0/3 left 3 in 0s\norders 0/4 left 4 in 0s POST /orders\n" +
			"both 0/6 left 6 in 0s POST /orders, GET /reports\nreports 0/2 left 2 in 0s GET /reports\nadaptive 0/9 left 9 in 0s"
		calls = 0
		if got := used(t, l, ask("GET", "/usage", "X-User", "bob")); got != bob || calls != 1 {
			t.Errorf("without a session, after %d calls of the key:\n%s\nwant\n%s", calls, got, bob)
		}
		const guest = "slots 0/3 left 3 in 0s\nguests 0/7 left 7 in 0s\nadaptive 0/9 left 9 in 0s"
		if got := used(t, l, ask("GET", "/usage")); got != guest {
			t.Errorf("without a user:\n%s\nwant\n%s", got, guest)
		}
		if got := used(t, limiter(t, byUser, stint.Rate(1, time.Hour)), ask("GET", "/")); got != "" {
			t.Errorf("a limiter none of whose keys the request has: %s", got)
		}
	})
}

// Limits of functions and sources are those of the request's tenant.
func TestUsageOfTenants(t *testing.T) {
	byTenant := stint.Header("X-Tenant")
	source := func(_ context.Context, tenant string, _ stint.LimitUser) ([]stint.Limit, error) {
		plan := func(n int64) []stint.Limit { return []stint.Limit{stint.Rate(n, time.Hour, stint.WithName("plan"))} }
		switch tenant {
		case "paid":
			return plan(100), nil
		case "free":
			return plan(2), nil
		case "stale":
			return plan(7), &stint.SourceError{Err: errors.New("down")}
		case "down":
			return nil, &stint.SourceError{Err: errors.New("down")}
		}
		return nil, errors.New("no such tenant")
	}
	extra := stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
		if r.Header.Get("X-Tenant") != "paid" {
			return []stint.Limit{stint.Exempt()}, nil
		}
		return []stint.Limit{stint.Quota(9, stint.Monthly, stint.WithName("exports"), stint.WithKey(stint.Global()))}, nil
	})
	l := limiter(t, stint.WithKey(byTenant), stint.Rate(50, time.Hour, stint.WithName("own")), stint.WithLimitSource(byTenant, source), extra)
	ask := func(tenant string) *http.Request { return from("192.0.2.1:1", "X-Tenant", tenant) }
	for range 2 {
		through(l, ask("free"), nil)
	}
	for tenant, want := range map[string]string{
		"free":  "own 2/50 plan 2/2",
		"paid":  "own 0/50 plan 0/100 exports 0/9",
		"stale": "own 0/50 plan 0/7",
		"else":  "own 0/50",
		"down":  "stint: limits could not be read: down",
	} {
		all, err := l.Usage(ask(tenant))
		var got []string
		for _, u := range all {
			got = append(got, fmt.Sprintf("%s %d/%d", u.Limit, u.Used, u.Capacity))
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != want || err != nil && !errors.As(err, new(*stint.SourceError)) {
			t.Errorf("%s: %q, %v; want %s", tenant, got, err, want)
		}
	}
}

func TestUsageWithoutStore(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(storefake.Down()))
	if all, err := l.Usage(get("/")); all != nil || !errors.As(err, new(*stint.StoreError)) {
		t.Errorf("%v, %v", all, err)
	}
}
