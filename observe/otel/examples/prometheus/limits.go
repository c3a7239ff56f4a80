package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
)

// limiter has a limit of each kind, each on a route of its own.
func limiter(shared, local store.Store) (*stint.Limiter, error) {
	client, everybody := stint.WithKey(stint.Header("X-Client")), stint.WithKey(stint.Global())
	return stint.New(
		stint.WithLimiterName("api"), stint.WithStore(failover.New(shared, local)), client,
		stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/metrics" }),
		stint.WithRoute("GET /search",
			stint.Rate(5, time.Second, stint.WithName("search"), stint.WithNearLimit(50, 90)),
			stint.Rate(3, time.Second, stint.WithName("search-stricter"), stint.WithDryRun(true)),
			stint.Ban(50, 10*time.Second, stint.WithBanFor(2*time.Second), stint.WithName("search-ban")),
		),
		stint.WithRoute("POST /jobs", stint.Concurrency(2, stint.WithName("jobs"), stint.WithQueue(20),
			stint.WithMaxWait(3*time.Second), everybody)),
		stint.WithRoute("POST /tokens", stint.Quota(100_000, stint.Hourly, stint.WithName("tokens"),
			stint.WithCost(func(*http.Request) int64 { return 10 }),
			stint.WithSettle(func(_ *http.Request, _ int, written int64) int64 { return written }))),
		stint.WithRoute("GET /file", stint.Bandwidth(64<<10, stint.WithName("download"))),
		stint.WithRoute("GET /backend", stint.AdaptiveConcurrency(1, 100, stint.WithName("backend"),
			stint.WithSampleWindow(500*time.Millisecond), everybody)),
	)
}

// mistaken is a limiter with a likely mistake: clients write its key themselves.
func mistaken() *stint.Limiter {
	return stint.Must(stint.New(stint.WithLimiterName("mistaken"), stint.Rate(5, time.Second),
		stint.WithKey(stint.Header("X-Real-IP"))))
}

// planned is a limiter whose limits are read from a source that is down.
func planned() *stint.Limiter {
	key := stint.Header("X-Client")
	return stint.Must(stint.New(stint.WithLimiterName("planned"), stint.WithKey(key), stint.WithLimitSource(key,
		func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
			return nil, &stint.SourceError{Err: errGone}
		})))
}

// work is the handler that the limits protect.
func work(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/jobs":
		time.Sleep(400 * time.Millisecond)
	case "/backend":
		time.Sleep(time.Duration(50+100*(time.Now().Unix()/5%2)) * time.Millisecond) // it is slower at times
	case "/file":
		_, _ = w.Write(make([]byte, 200<<10))
		return
	}
	fmt.Fprintln(w, strings.Repeat("done ", 4))
}
