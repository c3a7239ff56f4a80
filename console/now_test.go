package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"github.com/stint-go/stint/tenants"
)

// wrong returns what the page says is wrong, a second from now, as what is shown is up to a second old.
func wrong(h http.Handler) string {
	time.Sleep(time.Second)
	return regexp.MustCompile(`(Wrong now|Nothing is wrong)(.*?) (shared store|this process’s memory)`).FindString(text(ask(h, "GET", "/", nil).Body.String()))
}

// A single failed call, which the secondary has decided, isn't wrong. An outage is, for as long as it lasts.
func TestWrongEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := storefake.New()
		both := failover.New(primary, memstore.New(), failover.WithThreshold(2))
		defer both.Close()
		l := limiter(t, stint.WithStore(both), stint.Rate(1000, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")), silent)
		h := page(t, console.Limiters(l))
		is := func(want string) {
			t.Helper()
			if got := wrong(h); !strings.HasPrefix(got, want) {
				t.Errorf("the page says %q, want %q", got, want)
			}
		}
		primary.FailWith(errAway)
		traffic(l, "/", "k", 1)
		primary.FailWith(nil)
		traffic(l, "/", "k", 3)
		is("Nothing is wrong")
		time.Sleep(57 * time.Second)
		primary.FailWith(errAway)
		traffic(l, "/", "k", 5)
		is("Wrong now limiter 1 : the primary store is down")
		time.Sleep(time.Hour)
		is("Wrong now limiter 1 : the primary store is down , 2000-01-01 00:00:58")
		primary.FailWith(nil)
		is("Nothing is wrong")
	})
}

var silent = stint.WithLogger(slog.New(slog.DiscardHandler))

// A key without a plan is an answer, and a database that is down is wrong, also while plans known
// before stay in force.
func TestAMissingPlanIsNotWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down error
		cache, err := tenants.New(func(_ context.Context, key string) ([]stint.Limit, error) {
			switch {
			case down != nil:
				return nil, down
			case key == "old":
				return nil, tenants.ErrNoPlan
			}
			return []stint.Limit{stint.Rate(9, time.Hour, stint.WithName("plan"))}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		key := stint.Header("X-Api-Key")
		l := limiter(t, stint.WithKey(key), cache.Limits(key), silent)
		h := page(t, console.Limiters(l))
		traffic(l, "/", "old", 5)
		traffic(l, "/", "acme", 1)
		if got := wrong(h); got != "Nothing is wrong limiter 1 this process’s memory" {
			t.Errorf("the page says %q", got)
		}
		says(t, h, "allowed 1 denied 5", "denied by a limit function, as for no plan 5")
		down = errors.New("no route to the database")
		time.Sleep(time.Hour)
		traffic(l, "/", "acme", 1)
		if got := wrong(h); !strings.Contains(got, "limits could not be loaded: requests get earlier or default limits, or what the failure policy says") || !strings.Contains(got, "no route to the database") {
			t.Errorf("the page says %q", got)
		}
		time.Sleep(time.Minute)
		if got := wrong(h); !strings.HasPrefix(got, "Nothing") {
			t.Errorf("a minute later the page says %q", got)
		}
		time.Sleep(2 * time.Second)
		traffic(l, "/", "acme", 1)
		failures := wrong(h)
		down = nil
		time.Sleep(2 * time.Second)
		traffic(l, "/", "acme", 1)
		if got := wrong(h); !strings.Contains(failures, "no route to the database") || !strings.HasPrefix(got, "Nothing") {
			t.Errorf("the page says %q, and when the database answers again %q", failures, got)
		}
		says(t, h, "limits not read 2")
	})
}

// The page shows whom a dry run would deny, and how often.
func TestWhomADryRunWouldDeny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.Header("X-Api-Key")), stint.Rate(2, 24*time.Hour, stint.WithName("tried"), stint.WithDryRun(true)),
			stint.Rate(1000, time.Hour, stint.WithName("api")))
		h := page(t, console.Limiters(l), console.WithKeysInClear())
		traffic(l, "/", "greedy", 12)
		traffic(l, "/", "modest", 1)
		time.Sleep(2 * time.Second)
		for target, wants := range map[string][]string{
			"/": {"allowed 13 denied 0", "would deny 76.9 % would deny 10 of 13 greedy 100 % of what it would deny 2 0 −5 min now 100 % 2 of 2 units"},
			"/?limiter=0&limit=tried": {"would be denied most greedy 10 most admitted greedy 2 modest 1", "would be denied 10 share 76.9 %",
				"greedy tried dry run: would be denied 10 00:00:00 — 12h0m0s 0 of 2 left, 1 needed"},
			"/?limiter=0": {"greedy tried dry run: would be denied 10"},
		} {
			got := text(ask(h, "GET", target, nil).Body.String())
			for _, want := range wants {
				if !strings.Contains(got, want) {
					t.Errorf("%s doesn't say %q but %s", target, want, got)
				}
			}
		}
	})
}

// A raise of a request's cost counts where its limits' answers do, and isn't another request.
func TestRaises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithKey(stint.Header("X-Api-Key")), stint.Quota(100, stint.Daily, stint.WithName("tokens"), stint.WithFixedCost(10)))
		h := page(t, console.Limiters(l), console.WithKeysInClear())
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Api-Key", "stream")
		l.Serve(httptest.NewRecorder(), r, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			for _, cost := range []int64{40, 70, 130} {
				if err := p.Extend(r.Context(), cost); (err == nil) != (cost < 100) {
					t.Error(err)
				}
			}
		}))
		time.Sleep(2 * time.Second)
		for target, wants := range map[string][]string{
			"/": {"allowed 1 denied 0", "25.0 % 1 of 4 stream"},
			"/?limiter=0&limit=tokens": {"most denied stream 1 most admitted stream 3", "allowed 3 denied 1",
				"stream tokens 1 00:00:00 — 24h0m0s 30 of 100 left, 60 needed"},
		} {
			got := text(ask(h, "GET", target, nil).Body.String())
			for _, want := range wants {
				if !strings.Contains(got, want) {
					t.Errorf("%s doesn't say %q but %s", target, want, got)
				}
			}
		}
	})
}

// Denials are grouped by key: a limit with few of them isn't hidden by one with many.
func TestDenialsAreGrouped(t *testing.T) {
	l := limiter(t, stint.WithKey(stint.Header("X-Api-Key")), stint.Rate(1, time.Hour, stint.WithName("api")),
		stint.WithRoute("/login", stint.Only(stint.Rate(1, time.Hour, stint.WithName("login")))))
	h := page(t, console.Limiters(l), console.WithKeysInClear())
	traffic(l, "/login", "bob", 2)
	traffic(l, "/", "mallory", 3666)
	for target, want := range map[string]string{"/?limiter=0&limit=login": "bob login 1 ", "/?limiter=0&limit=api": "mallory api 3665 "} {
		if got := text(ask(h, "GET", target, nil).Body.String()); !strings.Contains(got, want) {
			t.Errorf("%s doesn't say %q but %s", target, want, got)
		}
	}
}

// A key that one replica shows opens on another with the same token, whatever else it limits; a
// stranger's doesn't. Each replica says which it is.
func TestReplicas(t *testing.T) {
	made := func(name, token string, more ...*stint.Limiter) http.Handler {
		l := limiter(t, stint.WithLimiterName("front"), stint.Rate(2, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")))
		traffic(l, "/", "a-credential", 3)
		h, err := console.New(console.Limiters(append(more, l)...), console.WithToken(token), console.WithProcessName(name), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		traffic(l, "/", "a-credential", 1)
		return h
	}
	other := limiter(t, stint.Rate(9, time.Hour), stint.WithKey(stint.Global()))
	const token = "sixteen bytes of a token"
	one, two, three := made("web-1", token), made("web-2", token, other), made("web-3", "another token of bytes")
	bearer := []string{"Authorization", "Bearer " + token}
	shown := ask(one, "GET", "/?limiter=front&limit=api", nil, bearer...).Body.String()
	m := opener.FindStringSubmatch(shown)
	if m == nil || !strings.Contains(text(shown), "web-1") {
		t.Fatalf("the page shows no key, or isn't web-1: %s", text(shown))
	}
	got := text(ask(two, "GET", "/key?open="+m[1], nil, bearer...).Body.String())
	for _, want := range []string{"web-2", m[2], "0 of 2 left"} { // the fingerprint is the same
		if !strings.Contains(got, want) {
			t.Errorf("the other replica doesn't say %q but %s", want, got)
		}
	}
	reset := ask(two, "POST", "/key", url.Values{"open": {m[1]}, "limiter": {"front"}, "do": {"reset"}}, bearer...)
	if got := text(reset.Body.String()); !strings.Contains(got, "This key was reset") || !strings.Contains(got, "2 of 2 left") {
		t.Errorf("%d %s", reset.Code, got)
	}
	if w := ask(three, "GET", "/key?open="+m[1], nil, "Authorization", "Bearer another token of bytes"); w.Code != 400 {
		t.Errorf("with another token: %d", w.Code)
	}
	l := limiter(t, stint.Rate(9, time.Hour), stint.WithKey(stint.Global()))
	if got := text(ask(page(t, console.Limiters(l)), "GET", "/", nil).Body.String()); !regexp.MustCompile(`\S+, process \d+`).MatchString(got) {
		t.Errorf("a page without a name says %s", got)
	}
}

// An address is looked up as the network that is limited, a pasted name without the space at its end; and
// a key that was never seen isn't taken for one that has used nothing lately.
func TestLookingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ip := limiter(t, stint.WithLimiterName("ip"), stint.Rate(5, time.Hour, stint.WithName("api")), stint.WithKey(stint.RemoteIP()))
		wide := limiter(t, stint.WithLimiterName("wide"), stint.Rate(7, time.Hour, stint.WithName("api")), stint.WithKey(stint.IP{IPv6Bits: 56}.Key()))
		names := limiter(t, stint.WithLimiterName("names"), stint.Rate(9, time.Minute, stint.WithName("api")), stint.WithKey(stint.Header("X-Api-Key")))
		h := page(t, console.Limiters(ip, wide, names), console.WithKeysInClear(), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler)))
		for _, l := range []*stint.Limiter{ip, wide} {
			for range 2 {
				r := httptest.NewRequest("GET", "/", nil)
				r.RemoteAddr = "[2001:db8:1:2:3::4]:5"
				stinthttp.Middleware(l)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		traffic(names, "/", "Ada Lovelace", 2)
		find := func(key string, wants ...string) {
			t.Helper()
			got := text(ask(h, "POST", "/key", url.Values{"key": {key}, "do": {"look"}}).Body.String())
			for _, want := range wants {
				if !strings.Contains(got, want) {
					t.Errorf("%q: the page doesn't say %q but %s", key, want, got)
				}
			}
		}
		find("2001:db8:1:2:ffff::1", "ip this process The key here is 2001:db8:1:2::/64 .", "3 of 5 left",
			"wide this process The key here is 2001:db8:1::/56 .", "5 of 7 left", "names this process Never seen")
		find("2001:db8:1:2::/64", "3 of 5 left", "7 of 7 left")
		find(" Ada Lovelace\t", "7 of 9 left")
		const never, idle = "Never seen : nothing is counted for this key, and this process has seen no request of it since 2000-01-01 00:00:00.",
			"names this process Nothing is counted for this key now. This process has seen requests of it."
		find("Ada Lovelaec", "names this process "+never)
		time.Sleep(time.Hour)
		find("Ada Lovelace", idle)
		for key, want := range map[string]string{"2001:db8:1:2::9": "This key was reset", "192.0.2.1": "There was nothing to reset: no limit has counted anything for this key."} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = "[2001:db8:1:2:3::4]:5"
			stinthttp.Middleware(ip)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
			if got := text(ask(h, "POST", "/key", url.Values{"key": {key}, "limiter": {"ip"}, "do": {"reset"}}).Body.String()); !strings.Contains(got, want) {
				t.Errorf("reset of %s: the page doesn't say %q but %s", key, want, got)
			}
		}
	})
}

// Limits that a source has for each key are shown with the numbers of the key that they name.
func TestLimitsOfTenantsHaveTheirNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plans := map[string]int64{"acme": 10, "globex": 400}
		cache, err := tenants.New(func(_ context.Context, key string) ([]stint.Limit, error) {
			if plans == nil {
				time.Sleep(time.Hour) // it hangs
			}
			return []stint.Limit{stint.Quota(plans[key], stint.Daily, stint.WithName("daily"))}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		key := stint.Header("X-Api-Key")
		l := limiter(t, stint.WithKey(key), cache.Limits(key))
		h := page(t, console.Limiters(l), console.WithKeysInClear())
		traffic(l, "/", "globex", 100)
		time.Sleep(2 * time.Second)
		row := func(want string) {
			t.Helper()
			if got := text(ask(h, "GET", "/", nil).Body.String()); !strings.Contains(got, want) {
				t.Errorf("the page doesn't say %q but %s", want, got)
			}
		}
		row("daily globex has FixedWindow: 400 daily denied 0.0 % 0 of 100 globex 100 % of admitted; none denied 400 0 −5 min now 25 % 100 of 400 units")
		traffic(l, "/", "acme", 12)
		time.Sleep(2 * time.Second)
		row("daily acme has FixedWindow: 10 daily denied 1.8 % 2 of 112 acme 100 % of denied 10 0 −5 min now 100 % 10 of 10 units")
		got := text(ask(h, "GET", "/?limiter=0&limit=daily", nil).Body.String())
		for _, want := range []string{"Each key has its own numbers: acme has FixedWindow: 10 daily", "acme daily 2 00:00:02 — ", "0 of 10 left, 1 needed", "Its key is from the request: Header(\"X-Api-Key\")"} {
			if !strings.Contains(got, want) {
				t.Errorf("the limit doesn't say %q but %s", want, got)
			}
		}
		// If the source hangs, the page waits for it at most 100 ms in 10 s.
		plans = nil
		time.Sleep(3 * time.Minute)
		began := time.Now()
		for range 10 {
			row("daily acme has FixedWindow: 10 daily")
			time.Sleep(time.Second)
		}
		if late := time.Since(began) - 10*time.Second; late > 200*time.Millisecond {
			t.Errorf("the page waited %v for a source that hangs", late)
		}
		time.Sleep(2 * time.Hour)
	})
}

// The page, a limit and a key are there as JSON, too.
func TestJSON(t *testing.T) {
	l := limiter(t, stint.WithLimiterName("front"), stint.Rate(2, time.Hour, stint.WithName("api")), stint.WithKey(stint.Header("X-Real-IP")), silent)
	h := page(t, console.Limiters(l), console.WithProcessName("web-1"))
	for range 5 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Real-IP", "a-credential")
		stinthttp.Middleware(l)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	}
	read := func(method, target string, form url.Values) (got console.Page) {
		t.Helper()
		w := ask(h, method, target, form, "Accept", "application/json")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Header().Get("Content-Type") != "application/json" || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		if strings.Contains(w.Body.String(), "credential") {
			t.Errorf("it has a whole key: %s", w.Body)
		}
		return got
	}
	got := read("GET", "/", nil)
	if got.Process != "web-1" || len(got.Wrong) != 1 || got.Wrong[0].Warning != "forwarding-header" || got.Key != nil || len(got.Limiters) != 1 {
		t.Fatalf("%+v", got)
	}
	front := got.Limiters[0]
	if front.Name != "front" || front.Allowed != 2 || front.Denied != 3 || len(front.Denials) != 1 || front.Denials[0].AtLeast != 3 || len(front.Limits) != 1 {
		t.Fatalf("%+v", front)
	}
	api := front.Limits[0]
	if api.Name != "api" || !strings.Contains(api.Rule, "2 per") || api.RecentDenied != 3 || api.MostDenied[0].AtMost != 3 || !strings.HasPrefix(api.MostDenied[0].Key, "a-c… #") {
		t.Errorf("%+v", api)
	}
	key := read("GET", "/"+api.MostDenied[0].Link, nil).Key
	if key == nil || key.Key != api.MostDenied[0].Key || len(key.In) != 1 || !key.In[0].Used || !key.In[0].Seen || key.In[0].Limits[0].Remaining != 0 || key.In[0].Limits[0].Passes {
		t.Errorf("%+v", key)
	}
	if key := read("POST", "/key", url.Values{"key": {"nobody"}}).Key; key == nil || key.In[0].Used || key.In[0].Seen || key.In[0].Limits[0].Remaining != 2 {
		t.Errorf("%+v", key)
	}
	if w := ask(h, "GET", "/", nil, "Accept", "text/html,application/json"); !strings.HasPrefix(w.Body.String(), "<!doctype html>") {
		t.Error("a browser gets JSON")
	}
}

// Up to 50,000 keys are remembered for certain; few others are taken for them.
func TestKeysAreRemembered(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Second, stint.WithName("api")), stint.WithKey(stint.GivenKey()))
	h := page(t, console.Limiters(l))
	const n = 40_000
	for i := range n {
		_ = l.Allow(t.Context(), fmt.Sprint("seen-", i), 1)
	}
	seen := func(key string) bool {
		var got console.Page
		if err := json.Unmarshal(ask(h, "POST", "/key", url.Values{"key": {key}}, "Accept", "application/json").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		return got.Key.In[0].Seen
	}
	wrong := 0
	for i := range 200 {
		if !seen(fmt.Sprint("seen-", i*(n/200))) {
			t.Errorf("key %d isn't remembered", i*(n/200))
		}
		if seen(fmt.Sprint("other-", i)) {
			wrong++
		}
	}
	if wrong > 20 {
		t.Errorf("%d of 200 other keys are taken for ones that were seen", wrong)
	}
}
