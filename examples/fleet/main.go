// Command fleet is one of several processes that share their limits in Redis: a
// rate, a quota for the day and a number of requests in flight for each address,
// decided together in one call. Start a Redis, and this program twice:
//
//	go run ./examples/fleet -addr 127.0.0.1:8081 &
//	go run ./examples/fleet -addr 127.0.0.1:8082 &
//	for i in $(seq 6); do curl -si http://127.0.0.1:8081/ http://127.0.0.1:8082/ | grep -iE '^(HTTP|ratelimit:)'; done
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	server := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	flag.Parse()

	// ContextTimeoutEnabled lets a call end when its time is up, and saves the
	// store a goroutine for each.
	rdb := redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
	shared := redisstore.New(rdb)
	defer shared.Close()

	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, limited(shared, http.HandlerFunc(hello))))
}

func limited(shared store.Store, next http.Handler) http.Handler {
	return stinthttp.New(
		stint.Rate(10, 10*time.Second, stint.WithName("calls")),
		stint.Quota(1000, stint.Daily, stint.WithName("daily")),
		stint.Concurrency(4, stint.WithName("slots")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(shared),
	)(next)
}

func hello(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, stint.FromContext(r.Context()).Decision().Remaining, "left")
}
