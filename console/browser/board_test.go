package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// remote is a store that isn't this process's memory, and fails when told to.
type remote struct {
	*memstore.Store
	down atomic.Bool
}

func (r *remote) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if r.down.Load() {
		return errors.New("dial tcp 10.0.0.7:6379: no route to the store")
	}
	return r.Store.Take(ctx, charges, results)
}

// newFleet is a server with twelve limits in two limiters, one of them on a store that is shared,
// whose page shows fingerprints. It has a warning, and requests that are denied.
func newFleet(t *testing.T) (site, *remote) {
	t.Helper()
	key := stint.WithKey(stint.Header("X-Api-Key"))
	shared := &remote{Store: memstore.New()}
	rate := func(n int64, name string) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName(name)) }
	front := stint.Must(stint.New(stint.WithLimiterName("front"), key, stint.WithStore(shared),
		rate(300, "per-caller"), stint.Quota(100_000, stint.Daily, stint.WithName("daily-quota-of-the-plan")),
		stint.AdaptiveConcurrency(4, 100, stint.WithName("workers"), stint.WithKey(stint.Global())),
		stint.WithRoute("GET /login", rate(5, "login"), stint.Ban(20, time.Minute, stint.WithBanFor(time.Minute), stint.WithName("login-ban"))),
		stint.WithRoute("GET /search", rate(60, "search"), stint.Rate(20, time.Minute, stint.WithName("search-stricter"), stint.WithDryRun(true))),
		stint.WithRoute("GET /reports", stint.Concurrency(2, stint.WithName("reports"), stint.WithKey(stint.Global())))))
	inner := stint.Must(stint.New(stint.WithLimiterName("payments"), stint.WithKey(stint.Header("X-Real-IP")),
		rate(30, "pay"), rate(1000, "pay-all"), rate(10, "refund"), rate(2, "export")))
	page, err := console.New(console.Limiters(front, inner), console.WithToken(secret), console.WithActions())
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("/console/", page)
	mux.Handle("/pay", stinthttp.Middleware(inner)(ok))
	mux.Handle("/", stinthttp.Middleware(front)(ok))
	s := site{httptest.NewServer(mux), front}
	t.Cleanup(s.Close)
	return s, shared
}

// load sends requests of a few keys to every limit.
func (s site) load(t *testing.T, rounds int) {
	t.Helper()
	for i := range rounds {
		for _, path := range []string{"/", "/search", "/login", "/reports"} {
			s.ask(t, path, []string{"alice-of-accounts", "bob-of-billing", "carol-of-claims"}[i%3])
		}
		s.ask(t, "/login", "mallory-of-nowhere")
		s.ask(t, "/search", "mallory-of-nowhere")
	}
}

// An operator's screen has all of twelve limits on it, with something wrong above them, under
// load; nothing is wider than it either.
func TestBoardFitsOneScreen(t *testing.T) {
	s, shared := newFleet(t)
	ctx := browse(t)
	s.load(t, 30)
	shared.down.Store(true)
	s.ask(t, "/", "alice-of-accounts")
	shared.down.Store(false)
	for range 3 {
		r, err := http.NewRequest("GET", s.URL+"/pay", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Real-IP", "192.0.2.1")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	run(t, ctx, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(link(s.URL)))
	says(t, ctx, "#state", "Live")
	says(t, ctx, "#wrong", "the store failed to decide")
	says(t, ctx, "#wrong", "forwarding-header")
	says(t, ctx, "#board0", "shared store")
	says(t, ctx, "#board0", "of what it would deny") // whom a dry run would
	says(t, ctx, "header", fmt.Sprint("process ", os.Getpid()))
	says(t, ctx, "#board1", "this process’s memory")
	if n := get(t, ctx, chromedp.Evaluate[int](`document.querySelectorAll(".board tbody tr").length`)); n != 12 {
		t.Fatalf("%d limits are on the board, want 12", n)
	}
	size := get(t, ctx, chromedp.Evaluate[[]int](`[document.documentElement.scrollWidth, document.documentElement.scrollHeight]`))
	if size[0] > 1440 || size[1] > 900 {
		t.Errorf("the page is %d by %d on a screen of 1440 by 900", size[0], size[1])
	}
	if over := get(t, ctx, chromedp.Evaluate[string](`[...document.querySelectorAll(".board td, .board th")].filter(e => e.scrollHeight > e.clientHeight + 1).map(e => e.innerText).join("; ")`)); over != "" {
		t.Errorf("cells cut off what they have: %s", over)
	}
	first := get(t, ctx, chromedp.Evaluate[bool](`document.querySelector("#wrong").getBoundingClientRect().top < document.querySelector(".board").getBoundingClientRect().top`))
	if !first {
		t.Error("what is wrong isn't first")
	}
}

// The link of a key opens on another replica, whose page has the same token: there the fingerprint is
// the same, and the key has its own counts.
func TestKeyOpensOnAnotherReplica(t *testing.T) {
	one, _ := newFleet(t)
	two, _ := newFleet(t)
	ctx := browse(t)
	one.load(t, 10)
	two.ask(t, "/login", "mallory-of-nowhere")
	run(t, ctx, chromedp.Navigate(link(one.URL)))
	says(t, ctx, "#state", "Live")
	run(t, ctx, chromedp.Navigate(one.URL+"/console/?limiter=front&limit=login"))
	says(t, ctx, "#open", "mal…")
	const first = `document.querySelector("#open .pair a.link")`
	key := get(t, ctx, chromedp.Evaluate[string](first+`.innerText`))
	path := get(t, ctx, chromedp.Evaluate[string](first+`.getAttribute("href")`))
	run(t, ctx, chromedp.Click(chromedp.CSS("#open .pair a.link")))
	says(t, ctx, ".found", "0 of 5 left")
	run(t, ctx, chromedp.Navigate(link(two.URL)))
	says(t, ctx, "#state", "Live")
	run(t, ctx, chromedp.Navigate(two.URL+"/console/"+path))
	says(t, ctx, ".found h2", key)
	says(t, ctx, ".found", "4 of 5 left")
	says(t, ctx, ".found", "Never seen") // by payments
	says(t, ctx, "#state", "Live")
}

// Without scripts, a limit opens to its keys, and a key of which only the fingerprint is shown
// to all about it, in every limiter, with its last denials; it is reset, and what was opened
// stays open when the page is loaded anew.
func TestFromLimitToKeyWithoutScripts(t *testing.T) {
	s, _ := newFleet(t)
	ctx := browse(t)
	s.load(t, 10)
	run(t, ctx, chromedp.Navigate("about:blank"))
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	reads := func(want ...string) (html string) {
		t.Helper()
		html = get(t, ctx, chromedp.OuterHTML(chromedp.CSS("body"), chromedp.NodeReady))
		for _, w := range want {
			if !strings.Contains(html, w) {
				t.Errorf("the page doesn't say %q", w)
			}
		}
		if strings.Contains(html, "mallory-of") || strings.Contains(html, "bob-of") {
			t.Error("the page shows a whole key")
		}
		return html
	}
	// To ask whether something is visible takes a script.
	click := func(what, leadsTo string) {
		t.Helper()
		run(t, ctx, chromedp.Click(chromedp.CSS(what), chromedp.NodeReady))
		get(t, ctx, chromedp.OuterHTML(chromedp.CSS(leadsTo), chromedp.NodeReady))
	}
	run(t, ctx, chromedp.Navigate(link(s.URL)))
	reads("forwarding-header")
	open := `a[href="./?limiter=front&limit=login#open"]`
	click(open, "#open .pair")
	reads("most denied", "mal… #")
	run(t, ctx, chromedp.Reload())
	click("#open .pair a.link", ".found")
	reads("mal… #", "front <span", "payments <span", "0 of 5 left", "Last denials", "0 of 5 left, 1 needed: TokenBucket: 5 per 1m0s")
	click(".found button[value=reset]", ".found .good")
	reads("This key was reset", "5 of 5 left")
}
