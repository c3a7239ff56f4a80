// Command tenants gives each tenant what its plan allows, across all processes that
// share a Redis. The Redis also says who has which plan, as any database might. Each
// process caches a tenant's plan for a while, and a tenant that changes plans keeps
// what it has used. Start a Redis, and this program, as often as you like with another
// -addr:
//
//	go run ./examples/tenants
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

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/tenants"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	server := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	ttl := flag.Duration("ttl", 2*time.Second, "how long a tenant's plan is current")
	timeout := flag.Duration("timeout", 100*time.Millisecond, "how long a request waits for the Redis")
	flag.Parse()

	rdb := redis.NewClient(&redis.Options{Addr: *server, DialerRetries: 1})
	shared := redisstore.New(rdb, redisstore.WithTimeout(*timeout))
	defer shared.Close()
	for rdb.Ping(context.Background()).Err() != nil {
		log.Printf("waiting for the Redis at %s: start one with redis-server", *server)
		time.Sleep(time.Second)
	}

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(*server)
	fmt.Printf(usage, listener.Addr(), host, port, *ttl, ttl.Seconds())
	log.Print(http.Serve(listener, api(shared, plansIn(rdb), *ttl)))
}

const usage = `tenants listens on http://%[1]v. The hash "plans" of the Redis at %[2]s:%[3]s says who has which plan.
Try, in another terminal: 403 without a plan, a second later 10 calls with "free", and at most %[4]v later more with "scale".

  curl -s -H 'X-Tenant: acme' http://%[1]v/; echo
  redis-cli -h %[2]s -p %[3]s hset plans acme free; sleep 1
  for i in $(seq 11); do curl -s -w '%%{http_code}\n' -H 'X-Tenant: acme' http://%[1]v/; done
  redis-cli -h %[2]s -p %[3]s hset plans acme scale; for i in 1 2; do sleep %[5]v; curl -s -H 'X-Tenant: acme' http://%[1]v/; done

`

// The plans differ in numbers, not in names: a tenant's use is counted under the name,
// whatever its plan.
var offers = map[string][]stint.Limit{
	"free": {
		stint.Rate(10, time.Minute, stint.WithName("calls")),
		stint.Quota(100, stint.Daily, stint.WithName("daily")),
	},
	"scale": {
		stint.Rate(600, time.Minute, stint.WithName("calls"), stint.WithBurst(50)),
		stint.Quota(100_000, stint.Daily, stint.WithName("daily")),
	},
}

// plansIn loads plans from the hash "plans", which has each tenant's plan name.
func plansIn(rdb redis.UniversalClient) func(context.Context, string) ([]stint.Limit, error) {
	return func(ctx context.Context, tenant string) ([]stint.Limit, error) {
		name, err := rdb.HGet(ctx, "plans", tenant).Result()
		if errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("tenant %q: %w", tenant, tenants.ErrNoPlan) // 403
		}
		if err != nil {
			return nil, err
		}
		limits, offered := offers[name]
		if !offered { // an operator's mistake, not the tenant's
			return nil, fmt.Errorf("tenant %q has the plan %q, which isn't offered", tenant, name)
		}
		return limits, nil
	}
}

func api(shared store.Store,
	load func(context.Context, string) ([]stint.Limit, error), ttl time.Duration) http.Handler {
	// While plans can't be loaded, known ones stay in force, and other tenants have the free one.
	cache, err := tenants.New(load, tenants.WithTTL(ttl), tenants.WithDefault(offers["free"]...))
	if err != nil {
		log.Fatal(err)
	}
	return stinthttp.New(
		// Mount this behind the authentication that sets the field: a client that
		// writes the field itself chooses whose limits it uses. Without the field
		// there is no plan, and the answer is 403.
		stint.WithKey(stint.Header("X-Tenant")),
		cache.Limits(stint.Header("X-Tenant")),
		stint.Concurrency(8, stint.WithName("in-flight")), // of any plan
		stint.WithStore(shared),
	)(http.HandlerFunc(left))
}

// left shows what is left of the plan.
func left(w http.ResponseWriter, r *http.Request) {
	for _, l := range stint.FromContext(r.Context()).Decision().Limits {
		fmt.Fprintf(w, "%s: %d of %d left\n", l.Name, l.Remaining, l.Capacity)
	}
}
