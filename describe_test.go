package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
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
		stint.WithRoute("GET /healthz"))
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
"POST /login" ban (Ban: 5 per 1m0s for 1h0m0s) key "Header(\"X-Api-Key\")" dry false local false
"POST /login" login (TokenBucket: 1 per 1m0s, burst 1) key "Header(\"X-Api-Key\")" dry false local false`
	if got := told(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := l.Update(stint.Quota(7, stint.Daily, stint.WithDryRun()), stint.WithKey(stint.GivenKey())); err != nil {
		t.Fatal(err)
	}
	want = `
"" daily (FixedWindow: 7 daily) key "GivenKey()" dry true local false`
	if got := told(); got != want {
		t.Errorf("after Update got\n%s\nwant\n%s", got, want)
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
