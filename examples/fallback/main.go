// Command fallback keeps limiting while its Redis is down: each process then counts by
// itself in memory, and together again when Redis is back. Start a Redis and this
// program, and stop the Redis while you send requests:
//
//	go run ./examples/fallback
package main

import (
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
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	server := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	timeout := flag.Duration("timeout", 100*time.Millisecond, "how long a request waits for the Redis")
	flag.Parse()

	rdb := redis.NewClient(&redis.Options{Addr: *server, DialerRetries: 1})
	limits := degrading(rdb, *timeout)
	defer limits.Close()

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(*server)
	fmt.Printf(usage, listener.Addr(), host, port)
	log.Print(http.Serve(listener, limited(limits, http.HandlerFunc(hello))))
}

const usage = `fallback listens on http://%[1]v and allows each address 5 requests in 10 s, counted in the Redis at %[2]s:%[3]s.
Try, in another terminal: the sixth is denied. Stop the Redis while you ask again (redis-cli -h %[2]s -p %[3]s shutdown):
memory starts with a count of its own and goes on denying. The log here has when it takes over, and when the Redis is back.

  for i in $(seq 7); do curl -s -o /dev/null -w '%%{http_code} ' http://%[1]v/; done; echo
  for i in $(seq 20); do curl -s -o /dev/null -w '%%{http_code} ' http://%[1]v/; sleep 0.5; done; echo

`

// degrading uses the Redis, and memory while the Redis is down. No request waits for a
// Redis that is known to be down: a background probe finds out when it is back.
func degrading(rdb redis.UniversalClient, timeout time.Duration) *failover.Store {
	return failover.New(
		redisstore.New(rdb, redisstore.WithTimeout(timeout)),
		memstore.New(memstore.WithMaxKeys(100_000)),
	)
}

// limited has a stricter login: to stop guessing, no answer is better than an uncounted
// one.
func limited(limits store.Store, next http.Handler) http.Handler {
	return stinthttp.New(
		stint.Rate(5, 10*time.Second, stint.WithName("requests")),
		stint.WithRoute("POST /login",
			stint.Only(stint.Rate(5, time.Minute, stint.WithName("login"), stint.WithFailurePolicy(stint.FailClosed)))),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(limits),
	)(next)
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }
