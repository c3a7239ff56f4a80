// Command fleet is one of several processes that share their limits in Redis: a rate, a
// daily quota and a number of requests in flight for each address, decided together in
// one call. Start a Redis, and this program twice:
//
//	go run ./examples/fleet
package main

import (
	"context"
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
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	server := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
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
	fmt.Printf(usage, listener.Addr(), next(listener), *server)
	log.Print(http.Serve(listener, limited(shared, http.HandlerFunc(hello))))
}

const usage = `fleet listens on http://%[1]v and counts in the Redis at %[3]s: 10 requests in 10 s for each address.
Start another process in a second terminal, and ask both in a third: of twelve requests ten pass.

  go run ./examples/fleet -addr %[2]v -redis %[3]s
  for i in $(seq 6); do curl -s -o /dev/null -o /dev/null -w '%%{http_code} ' http://%[1]v/ http://%[2]v/; done; echo

`

// next returns the address of another process: the next port.
func next(l net.Listener) net.Addr {
	addr := *l.Addr().(*net.TCPAddr)
	addr.Port++
	return &addr
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
	calls, _ := stint.FromContext(r.Context()).Decision().Status("calls")
	fmt.Fprintln(w, calls.Remaining, "left")
}
