package stint_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// attributes returns one attribute of each line with a message.
func attributes(lines []map[string]any, message, name string) (all []string) {
	for _, line := range lines {
		if line["msg"] == "stint: "+message {
			all = append(all, fmt.Sprint(line[name]))
		}
	}
	return all
}

// A limiter that is made says at debug level what it has, and where that is counted.
func TestNewLimitersAreLogged(t *testing.T) {
	h := newLogged(slog.LevelDebug)
	l := limiter(t, stint.Rate(100, time.Minute, stint.WithName("api"), stint.WithBurst(20)), stint.WithKey(stint.RemoteIP()),
		stint.Quota(1000, stint.Daily, stint.WithName("daily"), stint.WithDryRun(true)),
		stint.WithRoute("POST /login", stint.Rate(5, time.Hour, stint.WithName("login"), stint.WithMaxWait(2*time.Second))),
		stint.WithLimiterName("front"), h.with(), stint.WithStore(newSpy()))
	derive(t, l, stint.Concurrency(3, stint.WithName("slots"), stint.WithKey(stint.Global()), stint.WithFailurePolicy(stint.FailClosed)), stint.WithStore(memstore.New()))
	lines := h.lines(t)
	want := []string{`limit api: TokenBucket: 100 per minute, burst 20, by RemoteIP(); limit daily: FixedWindow: 1000 daily, by RemoteIP(), in a dry run; ` +
		`limit login of POST /login: TokenBucket: 5 per hour, burst 5, by RemoteIP(), waits up to 2s`}
	want = append(want, want[0]+"; limit slots: Concurrency: 3, by Global(), closed if the store fails")
	got := attributes(lines, "a limiter is made", "limits")
	if len(got) != 2 || got[0] != want[0] || !strings.Contains(got[1], "slots") {
		t.Fatalf("logged\n%q\nwant\n%q", got, want)
	}
	if lines[0]["level"] != "DEBUG" || lines[0]["store"] != "storefake.Store" || lines[1]["store"] != "memory of this process" || lines[0]["limiter"] != "front" {
		t.Errorf("%v", lines)
	}
	h = newLogged(slog.LevelInfo)
	through(limiter(t, stint.Rate(1, time.Hour), theKey, h.with()), get("/"), nil)
	if lines := h.lines(t); len(lines) > 0 {
		t.Errorf("without debug: %v", lines)
	}
}

// An Update says what it has changed of the limits, and one that has changed none says nothing.
func TestUpdatesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLogged(slog.LevelInfo)
		key := stint.WithKey(stint.RemoteIP())
		api := func(n int64, opts ...stint.RateOption) stint.Limit {
			return stint.Rate(n, time.Minute, append(opts, stint.WithName("api"))...)
		}
		other := func(n int64) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName("other")) }
		login := func(opts ...stint.RouteOption) stint.Option { return stint.WithRoute("POST /login", opts...) }
		l := limiter(t, api(60), key, h.with(), login(other(5)))
		daily := stint.Quota(1000, stint.Daily, stint.WithName("daily"))
		for _, step := range []struct {
			opts []stint.Option
			want []string
		}{
			{[]stint.Option{api(60), key, login(other(5))}, nil},
			{[]stint.Option{api(100), key, login(other(5), stint.WithFixedCost(2)), daily}, []string{
				"limit api: TokenBucket: 100 per minute, burst 100, was 60 per minute, burst 60; limit daily added: FixedWindow: 1000 daily, by RemoteIP()"}},
			{[]stint.Option{api(100, stint.WithKey(stint.Global()), stint.WithDryRun(true)), stint.WithoutRoutes()}, []string{
				"limit api: by Global(), was by RemoteIP(); limit api: in a dry run, was enforced; limit daily removed; limit other of POST /login removed"}},
			{[]stint.Option{stint.Quota(7, stint.Hourly, stint.WithName("api")), key}, []string{
				"limit api: FixedWindow: 7 hourly, was TokenBucket: 100 per minute, burst 100; limit api: by RemoteIP(), was by Global(); limit api: enforced, was in a dry run"}},
		} {
			update(t, l, step.opts...)
			synctest.Wait()
			if got := attributes(h.lines(t), "the limits have changed", "changes"); fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("logged\n%q\nwant\n%q", got, step.want)
			}
			if step.want != nil {
				time.Sleep(61 * time.Second)
			}
		}
		update(t, l, stint.Quota(8, stint.Hourly, stint.WithName("api")), key)
		h.lines(t)
		// What comes within a minute waits for its end, and the line says what all have changed.
		for n := range int64(4) {
			update(t, l, api(100+n), key)
		}
		if lines := h.lines(t); len(lines) > 0 {
			t.Errorf("a second line in the minute: %v", lines)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "limit api: TokenBucket: 103 per minute, burst 103, was FixedWindow: 8 hourly"
		if got := attributes(h.lines(t), "the limits have changed", "changes"); len(got) != 1 || got[0] != want {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// What dry runs would have denied is logged at debug level, with or without observers.
func TestDryRunsAreLogged(t *testing.T) {
	h := newLogged(slog.LevelDebug)
	l := limiter(t, theKey, h.with(), stint.Rate(10, 24*time.Hour, stint.WithName("small"), stint.WithDryRun(true)),
		stint.Rate(30, 24*time.Hour, stint.WithName("large"), stint.WithDryRun(true)), stint.Rate(1000, time.Second, stint.WithName("enforced")))
	for range 40 {
		through(l, get("/"), nil)
	}
	got := strings.Join(attributes(h.lines(t), "a limit in a dry run would have denied a request", "limit"), " ")
	if small, large := strings.Count(got, "small"), strings.Count(got, "large"); small != 30 || large != 10 {
		t.Errorf("logged %d of small and %d of large: %s", small, large, got)
	}
}
