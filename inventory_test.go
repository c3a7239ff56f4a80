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

// introduced lets the limiters of a test have their line about the first decision.
func introduced(t *testing.T) {
	stint.Introduced(0)
	t.Cleanup(func() { stint.Introduced(1 << 20) })
}

// attributes returns one attribute of each line with a message.
func attributes(lines []map[string]any, message, name string) (all []string) {
	for _, line := range lines {
		if line["msg"] == "stint: "+message {
			all = append(all, fmt.Sprint(line[name]))
		}
	}
	return all
}

// A family says once what it has, when the first of its limiters decides the first request or
// job. The limiter that another extends isn't said twice.
func TestIntroduction(t *testing.T) {
	for _, how := range []string{"Serve", "Allow", "Take"} {
		introduced(t)
		h := newLogged(slog.LevelInfo)
		l := limiter(t, stint.Rate(100, time.Minute, stint.WithName("api"), stint.WithBurst(20)), stint.WithKey(stint.RemoteIP()),
			stint.Quota(1000, stint.Daily, stint.WithName("daily"), stint.WithDryRun()),
			stint.WithRoute("POST /login", stint.Rate(5, time.Hour, stint.WithName("login"), stint.WithMaxWait(2*time.Second))),
			stint.WithLimiterName("front"), h.with(), stint.WithStore(newSpy()))
		d := derive(t, l, stint.Concurrency(3, stint.WithName("slots"), stint.WithKey(stint.Global()), stint.WithFailurePolicy(stint.FailClosed)), stint.WithStore(memstore.New()))
		_ = l.Describe()
		if lines := h.lines(t); len(lines) > 0 {
			t.Fatalf("before the first decision: %v", lines)
		}
		for range 3 {
			switch how {
			case "Serve":
				through(d, get("/"), nil)
			case "Allow":
				if err := l.Allow(t.Context(), "k", 1); err != nil {
					t.Fatal(err)
				}
			case "Take":
				p, err := d.Take(t.Context(), "k", 1)
				if err != nil {
					t.Fatal(err)
				}
				p.Done()
			}
		}
		update(t, l, stint.Rate(100, time.Minute, stint.WithName("api"), stint.WithBurst(20)), stint.WithKey(stint.RemoteIP()))
		through(l, get("/"), nil)
		lines := h.lines(t)
		want := `limit api: TokenBucket: 100 per minute, burst 20, by RemoteIP(); limit daily: FixedWindow: 1000 daily, by RemoteIP(), in a dry run; ` +
			`limit login of POST /login: TokenBucket: 5 per hour, burst 5, by RemoteIP(), waits up to 2s; ` +
			`limit slots: Concurrency: 3, by Global(), closed if the store fails`
		if got := attributes(lines, "the limiter decides its first request", "limits"); len(got) != 1 || got[0] != want {
			t.Errorf("%s: limits\n%q\nwant\n%s", how, got, want)
		}
		if len(lines) > 0 && (lines[0]["store"] != "limitertest.Spy, memory of this process" || lines[0]["limiter"] != "front") {
			t.Errorf("%s: %v", how, lines[0])
		}
	}
}

// A program that makes limiters without end has lines about some.
func TestIntroductionsEnd(t *testing.T) {
	introduced(t)
	h := newLogged(slog.LevelInfo)
	for range 150 {
		through(limiter(t, stint.Rate(1, time.Hour), theKey, h.with()), get("/"), nil)
	}
	if n := len(h.lines(t)); n != 100 {
		t.Errorf("%d lines of 150 limiters, want 100", n)
	}
}

// A logger may use a limiter that has none but that logger: its line is written later.
func TestIntroductionOfALoggersLimiter(t *testing.T) {
	introduced(t)
	var l *stint.Limiter
	lines := make(chan string, 9)
	logger := slog.New(slog.NewTextHandler(writing(func(p []byte) {
		_ = l.Allow(t.Context(), "k", 1)
		lines <- string(p)
	}), nil))
	l = limiter(t, stint.Rate(1, time.Hour), theKey, stint.WithLogger(logger))
	logger.Info("hello")
	for _, want := range []string{"hello", "the limiter decides its first request"} {
		if line := <-lines; !strings.Contains(line, want) {
			t.Errorf("line %s, want %s", line, want)
		}
	}
}

type writing func([]byte)

func (w writing) Write(p []byte) (int, error) { w(p); return len(p), nil }

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
			{[]stint.Option{api(100), key, login(other(5), stint.Inherit()), daily}, []string{
				"limit api: TokenBucket: 100 per minute, burst 100, was 60 per minute, burst 60; limit daily added: FixedWindow: 1000 daily, by RemoteIP()"}},
			{[]stint.Option{api(100, stint.WithKey(stint.Global()), stint.WithDryRun()), key}, []string{
				"limit api: by Global(), was by RemoteIP(); limit api: in a dry run, was enforced; limit daily removed; limit other of POST /login removed"}},
			{[]stint.Option{stint.Quota(7, stint.Hourly, stint.WithName("api")), key}, []string{
				"limit api: FixedWindow: 7 hourly, was TokenBucket: 100 per minute, burst 100; limit api: by RemoteIP(), was by Global(); limit api: enforced, was in a dry run"}},
		} {
			update(t, l, step.opts...)
			if got := attributes(h.lines(t), "the limits have changed", "changes"); fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("logged\n%q\nwant\n%q", got, step.want)
			}
		}
		// Three were written. The next waits for the minute to end, and says what all have changed.
		for n := range int64(4) {
			update(t, l, api(100+n), key)
		}
		if lines := h.lines(t); len(lines) > 0 {
			t.Errorf("a fourth line in the minute: %v", lines)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "limit api: TokenBucket: 103 per minute, burst 103, was FixedWindow: 7 hourly"
		if got := attributes(h.lines(t), "the limits have changed", "changes"); len(got) != 1 || got[0] != want {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// What dry runs would have denied is logged once a minute, if anything.
func TestDryRunsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLogged(slog.LevelInfo)
		l := limiter(t, theKey, h.with(), stint.Rate(10, 24*time.Hour, stint.WithName("small"), stint.WithDryRun()),
			stint.Rate(30, 24*time.Hour, stint.WithName("large"), stint.WithDryRun()), stint.Rate(1000, time.Second, stint.WithName("enforced")))
		told := func() []string {
			synctest.Wait()
			return attributes(h.lines(t), "limits in a dry run would have denied requests", "would_deny")
		}
		for range 40 {
			through(l, get("/"), nil)
			time.Sleep(time.Second)
		}
		if got := told(); got != nil {
			t.Errorf("before the minute has ended: %q", got)
		}
		time.Sleep(time.Minute)
		if got := told(); len(got) != 1 || got[0] != "limit large: 10; limit small: 30" {
			t.Errorf("logged %q", got)
		}
		time.Sleep(time.Hour)
		if got := told(); got != nil {
			t.Errorf("of nothing: %q", got)
		}
		_ = l.Allow(t.Context(), "k", 1)
		time.Sleep(time.Minute)
		if got := told(); got != nil && len(got) != 1 {
			t.Errorf("of another minute: %q", got)
		}
	})
}
