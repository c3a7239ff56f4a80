package console_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// reads is the page with its first limiter opened.
func reads(h http.Handler) string { return text(ask(h, "GET", "/?limiter=0", nil).Body.String()) }

func says(t *testing.T, h http.Handler, wants ...string) {
	t.Helper()
	got := reads(h)
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("the page doesn't say %q, but %s", want, got)
		}
	}
}

var errAway = errors.New("no route to the store")

// The page says whose the counts and figures are, how long the store takes, and whether
// it is there.
func TestPageTellsOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary, takes := storefake.New(), 10*time.Millisecond
		primary.OnTake = func(c *storefake.Call) error {
			time.Sleep(takes)
			return c.Pass()
		}
		both := failover.New(primary, memstore.New(), failover.WithThreshold(2))
		defer both.Close()
		l := limiter(t, stint.WithStore(both), stint.Rate(1000, time.Hour, stint.WithName("api")),
			stint.AdaptiveConcurrency(1, 9, stint.WithName("workers")), stint.WithKey(stint.Header("X-Api-Key")))
		h := page(t, console.Limiters(l))
		says(t, h, "Primary store: the breaker is closed")
		traffic(l, "/", "k", 98)
		takes = 100 * time.Millisecond
		traffic(l, "/", "k", 2)
		says(t, h,
			"Counts are in a failover.Store, shared by all processes that use it. The figures on this page are this process's own; what a key has left counts all processes.",
			"shared store",
			"workers this process AdaptiveConcurrency: 1 to 9",
			"store, p50 10ms store, p99 100ms")
		for limit, want := range map[string]string{"api": "burst 1000, counted in the store, for all its processes", "workers": "1 to 9, counted in this process"} {
			if got := text(ask(h, "GET", "/?limiter=0&limit="+limit, nil).Body.String()); !strings.Contains(got, want) {
				t.Errorf("%s: the page doesn't say %q, but %s", limit, want, got)
			}
		}
		primary.FailWith(errAway)
		traffic(l, "/", "k", 4)
		time.Sleep(1313 * time.Millisecond) // between two probes
		says(t, h, "Wrong now limiter 1 : the primary store is down , 2000-01-01 00:00:01: failover: the breaker is open", "Primary store: down since 2000-01-01 00:00:01: failover: the breaker is open", "no route to the store")
		says(t, page(t, console.Limiters(l)), "Primary store: down: failover: the breaker is open", "no route to the store")
		primary.FailWith(nil)
		time.Sleep(1313 * time.Millisecond) // between two probes
		says(t, h, "Nothing is wrong", "Primary store: the breaker is closed")
	})
}

func TestPageTellsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := storefake.New()
		l := limiter(t, stint.WithStore(down), stint.Rate(1000, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")))
		h := page(t, console.Limiters(l))
		traffic(l, "/", "k", 1)
		if got := reads(h); strings.Contains(got, "error") {
			t.Errorf("without an error: %s", got)
		}
		down.FailWith(errAway)
		traffic(l, "/", "k", 3)
		time.Sleep(time.Second)
		says(t, h, "Wrong now limiter 1 : the store failed to decide , 2000-01-01 00:00:00, api : no route to the store", "Last error, 2000-01-01 00:00:00: the store failed to decide: no route to the store", "store failed 3", "allowed 1 denied 0")
	})
}

func TestPageTellsOfMemory(t *testing.T) {
	l := limiter(t, stint.WithStore(memstore.New(memstore.WithMaxKeys(100))), stint.Rate(1000, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")))
	h := page(t, console.Limiters(l))
	for _, key := range []string{"a", "b", "c"} {
		traffic(l, "/", key, 1)
	}
	says(t, h, "Counts are in this process's memory. Each process limits by itself.", "keys in memory 3 of 1", "this process’s memory")
}

// Of a policy file the page shows when it was read last, or what is wrong in which line,
// and what is in force meanwhile. The limiter learns of the file as from package policy.
func TestPageTellsOfThePolicyFile(t *testing.T) {
	const file = "/etc/limits.yaml"
	l := limiter(t, stint.Rate(1, time.Second), stint.WithKey(stint.Header("X-Api-Key")))
	update := func(n int64) {
		if err := l.Update(stint.Rate(n, time.Minute, stint.WithName("api")), stint.WithKey(stint.Global())); err != nil {
			t.Fatal(err)
		}
	}
	read := func(wrong string) {
		var err error
		if wrong != "" {
			err = errors.New(file + wrong)
		}
		l.ReportPolicy(file, err)
	}
	update(5)
	// A page is drawn at most twice a second: each step has its own, that began before.
	steps := []struct {
		change func()
		want   string
	}{
		{func() {}, "api TokenBucket: 5 per 1m0s"},
		{func() { read(":5:11: a rate is") }, ": rejected; the policy from the start stays in force: .*limits.yaml:5:11: a rate is"},
		{func() { update(7); read("") }, ": in force Limits last changed at "},
		{func() { read(":2:6: no key") }, ": rejected; the policy of [-0-9]{10} [:0-9]{8} stays in force: .*limits.yaml:2:6: no key"},
	}
	var pages []http.Handler
	for range steps {
		pages = append(pages, page(t, console.Limiters(l)))
	}
	for i, step := range steps {
		step.change()
		want := step.want
		if i > 0 {
			want = fmt.Sprintf("api TokenBucket: %d per 1m0s.*", map[bool]int{true: 5, false: 7}[i == 1]) + "Policy file " + regexp.QuoteMeta(file) + " , [-0-9]{10} [:0-9]{8}" + want
		}
		if got := reads(pages[i]); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("the page doesn't say %s, but %s", want, got)
		}
	}
}

const workers = "/?limiter=0&limit=workers"

func opened(h http.Handler) string { return text(ask(h, "GET", workers, nil).Body.String()) }

func opens(t *testing.T, h http.Handler, want string) {
	t.Helper()
	if got := opened(h); !strings.Contains(got, want) {
		t.Errorf("the page doesn't say %q, but %s", want, got)
	}
}

// An adaptive limit is drawn with the latency that it follows.
func TestPageTellsOfAdaptiveLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.Global()), stint.AdaptiveConcurrency(1, 50, stint.WithName("workers"), stint.WithInitialLimit(10),
			stint.WithAdaptation(stint.AIMD(100*time.Millisecond)), stint.WithSampleWindow(time.Second)))
		h := page(t, console.Limiters(l))
		took := 20 * time.Millisecond
		served := stinthttp.Middleware(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(took) }))
		serve := func(n int) {
			for range n {
				for range 8 {
					go served.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}
				time.Sleep(500 * time.Millisecond)
			}
			synctest.Wait()
		}
		serve(1)
		opens(t, h, "workers follows latency: 10 now It has not changed since the console was made.")
		serve(10)
		got := opened(h)
		up := regexp.MustCompile(`workers follows latency: (1[1-9]) now`).FindStringSubmatch(got)
		if up == nil || !strings.Contains(got, "latency 20 compared with 100") {
			t.Fatalf("with short requests: %s", got)
		}
		took = 300 * time.Millisecond
		serve(10)
		opens(t, h, "latency 300 compared with 100")
		html := ask(h, "GET", workers, nil).Body.String()
		if !regexp.MustCompile(`aria-label="workers, slots over five minutes: workers now [0-9]+, at most ` + up[1] + `"`).MatchString(html) {
			t.Errorf("the limit that was %s isn't drawn: %s", up[1], text(html))
		}
	})
}

// The page counts how often a limit was announced as nearly used up.
func TestPageTellsOfNearLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.Header("X-Api-Key")), stint.Rate(10, 24*time.Hour, stint.WithName("workers"), stint.WithNearLimit(50, 90)))
		h := page(t, console.Limiters(l))
		traffic(l, "/", "a", 4)
		if got := opened(h); strings.Contains(got, "announced as near") {
			t.Errorf("before a key is near: %s", got)
		}
		traffic(l, "/", "a", 6)
		traffic(l, "/", "b", 5)
		time.Sleep(2 * time.Second) // the page is made once a second
		opens(t, h, "announced as near 3")
		if got := text(ask(h, "GET", "/?limiter=0", nil).Body.String()); !strings.Contains(got, "keys near a limit 3") {
			t.Errorf("the limiter's page says %s", got)
		}
	})
}

// The page says which routes nothing has matched, which limits never bind, and how long a dry run
// has reported.
func TestPageTellsWhatDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithLimiterName("front"), stint.WithKey(stint.Header("X-Api-Key")),
			stint.Rate(3, 24*time.Hour, stint.WithName("api")), stint.Rate(1000, time.Hour, stint.WithName("large")),
			stint.Rate(2, 24*time.Hour, stint.WithName("tried"), stint.WithDryRun(true)),
			stint.WithRoute("GET /login", stint.Only(stint.Rate(1, time.Hour, stint.WithName("login")))),
			stint.WithRoute("GET /lost", stint.WithFixedCost(2)))
		h := page(t, console.Limiters(l))
		time.Sleep(time.Hour)
		traffic(l, "/", "a", 5)
		traffic(l, "/login", "a", 1)
		for query, want := range map[string]string{
			"limiter=front":             "No request of this process has matched GET /lost .",
			"limiter=front&limit=large": "It has denied no request of this process, and made none wait, since 2000-01-01 00:00:00.",
			"limiter=front&limit=tried": "It has been in a dry run since 2000-01-01 00:00:00, and would have denied 3 requests of this process.",
			"limiter=front&limit=api":   "",
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/?"+query, nil))
			got := text(w.Body.String())
			if !strings.Contains(got, want) || want == "" && strings.Contains(got, "It has denied no request") {
				t.Errorf("%s: want %q, got\n%s", query, want, got)
			}
		}
	})
}
