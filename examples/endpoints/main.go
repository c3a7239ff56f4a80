// Command endpoints gives each endpoint its own limits, and each tenant those of its
// plan. Plans come from a database and are cached: one query per tenant a minute, and
// the last known plan while the database is down.
//
//	go run ./examples/endpoints
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/tenants"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, api(planOf)))
}

const usage = `endpoints listens on http://%[1]v; the tenant "small" has 3 requests a minute, "large" 600.
Try, in another terminal: small's plan is used up by its items, sign-ups count by address.

  for i in $(seq 4); do curl -s -o /dev/null -w '/items %%{http_code} %%header{ratelimit}\n' -H 'X-Tenant: small' http://%[1]v/items; done
  curl -s -o /dev/null -w '/reports %%{http_code} %%header{ratelimit}\n' -H 'X-Tenant: large' http://%[1]v/reports
  for i in $(seq 4); do curl -s -o /dev/null -w '/signup %%{http_code} %%header{ratelimit}\n' -X POST http://%[1]v/signup; done
  curl -s -o /dev/null -w '/healthz %%{http_code}, exempt\n' http://%[1]v/healthz

`

// The plans. A Limit is compiled once, however many tenants have it. The shared name
// keeps a tenant's count when it changes plans.
var (
	free = []stint.Limit{stint.Rate(3, time.Minute, stint.WithName("plan"))}
	paid = []stint.Limit{stint.Rate(600, time.Minute, stint.WithName("plan"), stint.WithBurst(50))}
)

// planOf stands for a database query.
func planOf(_ context.Context, tenant string) ([]stint.Limit, error) {
	switch tenant {
	case "small":
		return free, nil
	case "large":
		return paid, nil
	}
	return nil, fmt.Errorf("%w: %q", tenants.ErrNoPlan, tenant)
}

// whichTenant answers requests without a tenant. It writes nothing for other denials, so
// the limiter answers them.
func whichTenant(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, stint.ErrEmptyKey) || errors.Is(err, tenants.ErrNoPlan) {
		http.Error(w, "which tenant?", http.StatusForbidden)
	}
}

func api(load func(ctx context.Context, tenant string) ([]stint.Limit, error)) http.Handler {
	cache, err := tenants.New(load, tenants.WithTTL(time.Minute), tenants.WithSize(10_000))
	if err != nil {
		log.Fatal(err)
	}

	limits := stint.Must(stint.New(
		// All other routes: eight requests at a time for each tenant, and what its
		// plan allows. Without a tenant there is no key.
		stint.Concurrency(8),
		stint.WithKey(stint.Header("X-Tenant")),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			tenant := r.Header.Get("X-Tenant")
			if tenant == "" {
				return nil, nil
			}
			return cache.Get(r.Context(), tenant)
		}),
		// Reports are expensive: two at a time, and the plan.
		stint.WithRoute("GET /reports", stint.Concurrency(2, stint.WithName("reports"))),
		// A client that signs up is not a tenant yet, so its address is the key.
		stint.WithRoute("POST /signup",
			stint.Only(stint.Rate(3, time.Hour, stint.WithName("signup"))), stint.WithKey(stint.RemoteIP())),
		stint.WithRoute("GET /healthz", stint.Exempt()),
		stint.WithErrorHandler(whichTenant),
	))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a report") })
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "items") })
	mux.HandleFunc("POST /signup", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return stinthttp.Middleware(limits)(mux)
}
