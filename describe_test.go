package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Describe returns the limiter as the last Update has left it.
func TestDescribe(t *testing.T) {
	byHeader := stint.WithKey(stint.Header("X-Api-Key"))
	l := limiter(t, byHeader, stint.WithLimiterName("front"),
		stint.Rate(10, time.Second, stint.WithName("api"), stint.WithBurst(20)),
		stint.AdaptiveConcurrency(1, 9, stint.WithKey(stint.Global())),
		stint.WithRoute("POST /login", stint.Ban(5, time.Minute, stint.WithBanFor(time.Hour)), stint.Rate(1, time.Minute, stint.WithName("login"))),
		stint.WithRoute("GET /healthz", stint.Exempt()))
	told := func() string {
		d := l.Describe()
		lines := []string{d.Name}
		for _, r := range d.Rules {
			lines = append(lines, fmt.Sprintf("%q %s (%s) key %q dry %v local %v", r.Route, r.Limit, r.Text, r.Key, r.DryRun, r.Local))
		}
		return strings.Join(lines, "\n")
	}
	want := `front
"" api (TokenBucket: 10 per 1s, burst 20) key "Header(\"X-Api-Key\")" dry false local false
"" adaptive (AdaptiveConcurrency: 1 to 9) key "Global()" dry false local true
"POST /login" ban (Ban: 5 denials per 1m0s, banned for 1h0m0s) key "Header(\"X-Api-Key\")" dry false local false
"POST /login" login (TokenBucket: 1 per 1m0s, burst 1) key "Header(\"X-Api-Key\")" dry false local false`
	if got := told(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := l.Update(stint.Complete(), stint.Quota(7, stint.Daily, stint.WithDryRun(true)), stint.WithKey(stint.GivenKey())); err != nil {
		t.Fatal(err)
	}
	want = `
"" daily (FixedWindow: 7 daily) key "GivenKey()" dry true local false`
	if got := told(); got != want {
		t.Errorf("after Update got\n%s\nwant\n%s", got, want)
	}
}

// A rule says in which order its requests wait.
func TestDescribeOrder(t *testing.T) {
	slots := func(opts ...stint.SlotOption) string {
		return limiter(t, theKey, stint.Concurrency(8, append(opts, stint.WithQueue(4))...)).Describe().Rules[0].Text
	}
	for want, got := range map[string]string{
		"Concurrency: 8": slots(),
		`Concurrency: 8, fair queue by Header("X-Tenant")`: slots(stint.WithFairQueue(stint.Header("X-Tenant"))),
		"Concurrency: 8, 50% for class 9, 25% for class 3": slots(stint.WithShare(3, 25), stint.WithShare(9, 50)),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A rule says whose key it is, as far as a page needs to know.
func TestDescribeKeys(t *testing.T) {
	for _, tt := range []struct {
		key               stint.Key
		shared, byAddress bool
	}{
		{stint.Global(), true, false},
		{stint.Join(stint.Global(), stint.Hash([]byte("a secret of 32 bytes, or longer."), stint.Global())), true, false},
		{stint.Join(stint.Global(), stint.Method()), false, false},
		{stint.RemoteIP(), false, true},
		{stint.HeaderIP("X-Real-IP", netip.MustParsePrefix("10.0.0.0/8")), false, true},
		{stint.Header("X-Real-IP"), false, false},
	} {
		r := limiter(t, stint.WithKey(tt.key), stint.Rate(1, time.Second)).Describe().Rules[0]
		if r.Shared != tt.shared || r.ByAddress != tt.byAddress {
			t.Errorf("%v: shared %v, by address %v", tt.key, r.Shared, r.ByAddress)
		}
	}
}

// Counts of requests inside a limiter come down again, however the requests came in.
func TestAdmittedEnds(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(2, time.Hour))
	in, times := 0, 0
	l.Observe(func(e stint.Event) {
		switch e.Kind {
		case stint.EventAdmitted:
			in++
			times++
		case stint.EventEnded:
			in--
		}
	})
	if err := l.Allow(context.Background(), "k", 1); err != nil {
		t.Fatal(err)
	}
	through(l, get("/"), func(http.ResponseWriter, *http.Request) {
		if in != 1 {
			t.Errorf("%d are in while one is", in)
		}
	})
	if in != 0 || times != 2 {
		t.Errorf("%d of %d are still in", in, times)
	}
}

// Describe says which routes nothing has matched, which limits have bound, and how often a dry run
// would have denied. An Update that leaves a limit as it is keeps that.
func TestDescribeWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		opts := func(api int64, others ...stint.Option) []stint.Option {
			return append(others, theKey, stint.Rate(api, 24*time.Hour, stint.WithName("api")),
				stint.Rate(2, 24*time.Hour, stint.WithName("tried"), stint.WithDryRun(true)),
				stint.Concurrency(1, stint.WithName("slots"), stint.WithMaxWait(time.Minute)),
				stint.WithRoute("/login", stint.Rate(1000, time.Hour, stint.WithName("login"))),
				stint.WithRoute("/lost", stint.WithFixedCost(2)), stint.WithRoute("/l/", stint.WithFixedCost(2)))
		}
		l := limiter(t, opts(3)...)
		told := func() string {
			d, lines := l.Describe(), []string{}
			for _, r := range d.Rules {
				if r.Route == "" || r.Limit == "login" {
					lines = append(lines, fmt.Sprint(r.Limit, " ", r.Since.Sub(begin), " ", r.Bound, " ", r.WouldDeny))
				}
			}
			return strings.Join(lines, ", ") + ", " + strings.Join(d.Unmatched, " ")
		}
		want := func(want string) {
			t.Helper()
			if got := told(); got != want {
				t.Errorf("described\n%s\nwant\n%s", got, want)
			}
		}
		want("api 0s false 0, tried 0s false 0, slots 0s false 0, login 0s false 0, /login /lost /l/")
		time.Sleep(time.Hour)
		for range 5 {
			through(l, get("/"), nil)
		}
		through(l, get("/login"), nil)
		want("api 0s true 0, tried 0s true 4, slots 0s false 0, login 0s false 0, /lost /l/")
		held, err := derive(t, l).Take(t.Context(), "other", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, held.Done)
		if p, err := l.Take(t.Context(), "other", 1); err != nil {
			t.Fatal(err)
		} else {
			p.Done()
		}
		want("api 0s true 0, tried 0s true 4, slots 0s true 0, login 0s false 0, /lost /l/")
		update(t, l, opts(4)...)
		want("api 1h0m1s false 0, tried 0s true 4, slots 0s true 0, login 0s false 0, /lost /l/")
	})
}

// A Rule has the percentages of its limit, which the caller may change.
func TestDescribeNearLimit(t *testing.T) {
	l := limiter(t, everybody, stint.WithNearLimit(80, 50), stint.Rate(9, time.Hour), stint.Rate(9, time.Hour, stint.WithNearLimit(95)), stint.Concurrency(9))
	for range 2 {
		var all []string
		for _, r := range l.Describe().Rules {
			all = append(all, fmt.Sprint(r.NearLimit))
			if r.NearLimit != nil {
				r.NearLimit[0] = 1
			}
		}
		if got := strings.Join(all, " "); got != "[50 80] [95] []" {
			t.Errorf("percentages %s", got)
		}
	}
}
