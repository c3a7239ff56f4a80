package console_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/console"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

var opener = regexp.MustCompile(`href="key\?open=([^"]+)">([^<]*)<`)

// A key of which the page shows only a fingerprint is opened by it, in all limiters, and acted
// on; the page and the log still show the fingerprint only. What another process has shown, or
// nobody, opens nothing.
func TestKeysAreOpenedByFingerprint(t *testing.T) {
	const key = "a-credential\x00 of " + hostile
	front := limiter(t, stint.WithLimiterName("front"), stint.Rate(2, time.Hour, stint.WithName("api")), stint.WithKey(stint.GivenKey()))
	jobs := limiter(t, stint.WithLimiterName("jobs"), stint.Rate(9, time.Hour, stint.WithName("job")), stint.WithKey(stint.GivenKey()))
	for range 3 {
		_ = front.Allow(t.Context(), key, 1)
	}
	var logged strings.Builder
	opts := []console.Option{console.Limiters(front, jobs), console.WithActions(), console.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))}
	h, other := page(t, opts...), page(t, opts...)
	for range 3 {
		_ = front.Allow(t.Context(), key, 1)
	}
	m := opener.FindStringSubmatch(ask(h, "GET", "/?limiter=front&limit=api", nil).Body.String())
	if m == nil || !strings.HasPrefix(m[2], "a-c… #") {
		t.Fatalf("the page has no key to open: %q", m)
	}
	w := ask(h, "POST", "/key", url.Values{"open": {m[1]}})
	got := text(w.Body.String())
	for _, want := range []string{m[2], "front this process api", "0 of 2 left", "Last denials seen by this process",
		"api , 0 of 2 left, 1 needed: TokenBucket: 2 per 1h0m0s, burst 2; retry after 30m0s", "jobs this process Never seen", "9 of 9 left"} {
		if !strings.Contains(got, want) {
			t.Errorf("%d: the page doesn't say %q, but %s", w.Code, want, got)
		}
	}
	if n := strings.Count(got, "0 of 2 left, 1 needed"); n != 3 {
		t.Errorf("%d denials are shown, want each of 3 once", n)
	}
	reset := ask(h, "POST", "/key", url.Values{"open": {m[1]}, "limiter": {"front"}, "do": {"reset"}})
	if got := text(reset.Body.String()); !strings.Contains(got, "This key was reset") || !strings.Contains(got, "2 of 2 left") {
		t.Errorf("%d %s", reset.Code, got)
	}
	for _, out := range []string{w.Body.String(), reset.Body.String(), logged.String()} {
		if strings.Contains(out, "credential") {
			t.Errorf("a whole key is shown: %s", out)
		}
	}
	if !strings.Contains(logged.String(), "limiter=front") {
		t.Errorf("logged %q", logged.String())
	}
	for _, open := range []string{m[1][1:], "A" + m[1], "…", "AAAA"} {
		if w := ask(h, "POST", "/key", url.Values{"open": {open}}); w.Code != 400 || !strings.Contains(w.Body.String(), "this link to a key isn't valid here") {
			t.Errorf("%q opens a key: %d %s", open, w.Code, w.Body)
		}
	}
	if w := ask(other, "POST", "/key", url.Values{"open": {m[1]}}); w.Code != 400 {
		t.Errorf("another process's opens a key: %d %s", w.Code, w.Body)
	}
}

// One search looks a key up in all limiters.
func TestOneSearch(t *testing.T) {
	var all []*stint.Limiter
	for i := range 3 {
		all = append(all, limiter(t, stint.WithLimiterName(fmt.Sprint("l", i)), stint.Rate(int64(5+i), time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key"))))
	}
	h := page(t, console.Limiters(all...))
	traffic(all[1], "/", "bob", 2)
	got := text(ask(h, "POST", "/key", url.Values{"key": {"bob"}, "do": {"look"}}).Body.String())
	if !regexp.MustCompile(`l0 this process Never seen .* 5 of 5 left .*l1 this process api .* 4 of 6 left.*l2 this process Never seen .* 7 of 7 left`).MatchString(got) {
		t.Error(got)
	}
}

// The denials of a key are known in a flood of others' too.
func TestDenialsInAFlood(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")))
	h := page(t, console.Limiters(l))
	traffic(l, "/", "attacker", 500)
	traffic(l, "/", "victim", 2)
	traffic(l, "/", "attacker", 500)
	got := text(ask(h, "POST", "/key", url.Values{"key": {"victim"}}).Body.String())
	if strings.Count(got, "0 of 1 left, 1 needed") != 1 {
		t.Error(got)
	}
}

// The chart of a limit shows how near the key that came nearest was, second for second, and
// where it was denied.
func TestHowNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.Quota(10, stint.Daily, stint.WithName("daily")), stint.WithKey(stint.Header("X-Api-Key")))
		h := page(t, console.Limiters(l))
		traffic(l, "/", "far", 2)
		traffic(l, "/", "near", 5)
		time.Sleep(2 * time.Second)
		for _, step := range []struct {
			n              int
			now, path, bar string
		}{
			{0, "50 % 5 of 10 units", "used", "M177.0 22V11.0h2.4V22z"},
			{5, "100 % 10 of 10 units", "used", "V0.0h2.4V22z"},
			{1, "100 % 10 of 10 units", "full", "V0.0h2.4V22z"},
		} {
			traffic(l, "/", "near", step.n)
			time.Sleep(5 * time.Second)
			html := ask(h, "GET", "/", nil).Body.String()
			drawn := regexp.MustCompile(`<path class="` + step.path + `" d="([^"]*)"`).FindStringSubmatch(html)
			if !strings.Contains(text(html), step.now) || drawn == nil || !strings.Contains(drawn[1], step.bar[strings.Index(step.bar, "V"):]) {
				t.Errorf("after %d more: %s, drawn %q; want %s", step.n, text(html), drawn, step.now)
			}
		}
	})
}

// What is wrong is listed first, and only as long as it is.
func TestWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &storefake.Telling{Store: storefake.Store{Store: memstore.New()}}
		l := limiter(t, stint.WithLimiterName("front"), stint.WithStore(shared), stint.WithLogger(slog.New(slog.DiscardHandler)),
			stint.Concurrency(2, stint.WithName("slots")), stint.WithKey(stint.Header("X-Api-Key")))
		full := limiter(t, stint.WithLimiterName("full"), stint.WithStore(memstore.New(memstore.WithMaxKeys(1))), stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithKey(stint.Header("X-Api-Key")))
		if err := l.Mount("stinthttp"); err != nil { // it has no requests here
			t.Fatal(err)
		}
		h := page(t, console.Limiters(l, full))
		wrong := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			got := text(ask(h, "GET", "/", nil).Body.String())
			if is := regexp.MustCompile(`(Wrong now|Nothing is wrong)(.*?) front shared store`).FindString(got); !regexp.MustCompile("^" + want + " front shared store$").MatchString(is) {
				t.Errorf("the page says %q, want %q", is, want)
			}
		}
		wrong("Nothing is wrong")
		slots, err := store.NewLimit(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 2})
		if err != nil {
			t.Fatal(err)
		}
		shared.Tell(store.Notice{Kind: store.LeaseLost, Key: "k", Limit: slots})
		lost := "front : leases lost: 1 , 2000-01-01 00:00:01, slots : leases of slots that are still held were lost, so more requests than the limit may run"
		wrong("Wrong now " + lost)
		for i := range 5 {
			traffic(full, "/", fmt.Sprint("k", i), 1)
		}
		wrong("Wrong now " + lost + " full : the store in memory is full : 1 of 1 keys; 4 charges of new keys shared counts, and 3 of these were denied")
		l.ReportPolicy("limits.yaml", errors.New("limits.yaml:3:1: no rate"))
		wrong("Wrong now " + lost + " front : policy file rejected , .*limits.yaml:3:1: no rate. The policy from the start stays in force. full .*")
		l.ReportPolicy("limits.yaml", nil)
		time.Sleep(2 * time.Hour)
		if _, err := full.Reset(context.Background(), "k0"); err != nil {
			t.Fatal(err)
		}
		traffic(full, "/", "gone", 0)
		wrong("(Nothing is wrong|Wrong now full : the store .*)")
	})
}

// Only a POST looks a key up, so that no key is in an address, a history or a log of requests.
func TestGetLooksNothingUp(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey()))
	h := page(t, console.Limiters(l))
	if w := ask(h, "GET", "/key?key=bob&do=look", nil); w.Code != 200 || strings.Contains(w.Body.String(), "of 1 left") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
