// Command quota sells an API by the day. Each API key has a short rate, so that no client
// spends the day in a second, and a quota that starts again at midnight in the
// customers' time zone. Both are decided at once: a request denied by one isn't
// charged by the other.
//
//	go run ./examples/quota
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"
	_ "time/tzdata" // for machines without a zone database

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	zone := flag.String("zone", "Europe/Berlin", "time zone of the day")
	daily := flag.Int64("daily", 1000, "requests per key and day")
	flag.Parse()

	loc, err := time.LoadLocation(*zone)
	if err != nil {
		log.Fatal(err)
	}
	handler, err := api(*daily, loc)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr(), *daily)
	log.Fatal(http.Serve(listener, handler))
}

const usage = `quota listens on http://%[1]v: %[2]d requests a day for each API key, 10 in a second.
Try, in another terminal: without a key a request is denied, and a rush by the rate, at no cost to the quota.

  curl -si -H 'X-API-Key: k1' http://%[1]v/
  curl -si http://%[1]v/
  for i in $(seq 25); do curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' -H 'X-API-Key: k2' http://%[1]v/; done

`

func api(daily int64, loc *time.Location) (http.Handler, error) {
	limits, err := stint.New(
		stint.Rate(10, time.Second),
		stint.Quota(daily, stint.Daily.In(loc)), // named "daily"
		// A request without a key is denied with 403: anonymous callers never share
		// a bucket.
		stint.WithKey(stint.Header("X-API-Key")),
	)
	if err != nil {
		return nil, err
	}
	return stinthttp.Middleware(limits)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, limit := range stint.FromContext(r.Context()).Decision().Limits {
			fmt.Fprintf(w, "%s: %d of %d left\n", limit.Name, limit.Remaining, limit.Capacity)
		}
	})), nil
}
