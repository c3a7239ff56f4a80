// Command priority serves checkouts before reports. Four requests are served at a time,
// and twenty may wait for up to three seconds. Waiting requests go by class: checkouts
// before pages before reports. A checkout that finds the queue full takes the place of the
// last report, which is denied. Half of the slots are promised to checkouts: other requests
// borrow them while they are idle, and return them as they finish.
//
//	go run ./examples/priority
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// The classes of requests, from 0 to 9.
const (
	reports = iota
	pages
	checkouts
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, shop(time.Second)))
}

const usage = `priority listens on http://%[1]v, serves four requests at a time and takes a second for each.
Try, in another terminal: thirty reports fill the slots and the queue. The five checkouts come
last, and are served first.

  (for i in $(seq 30); do curl -s http://%[1]v/reports & done; sleep 0.5; for i in $(seq 5); do curl -s http://%[1]v/checkout & done; wait)

`

// shop answers every request after some work.
func shop(work time.Duration) http.Handler {
	limit := stinthttp.New(
		stint.Concurrency(4,
			stint.WithQueue(20),
			stint.WithMaxWait(3*time.Second),
			stint.WithShare(checkouts, 50)),
		stint.WithKey(stint.Global()), // the slots are shared by everybody
		stint.WithPriority(class),
		stint.WithObserver(func(e stint.Event) {
			if e.EndsWait {
				log.Printf("%s: %v after %v, of %d who waited", e.Request.URL.Path, e.Kind, e.Waited, e.Decision.Queued)
			}
		}))
	return limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(work)
		fmt.Fprintf(w, "%s: waited %v\n", r.URL.Path, stint.FromContext(r.Context()).Decision().Delay)
	}))
}

func class(r *http.Request) int {
	switch {
	case strings.HasPrefix(r.URL.Path, "/checkout"):
		return checkouts
	case strings.HasPrefix(r.URL.Path, "/reports"):
		return reports
	}
	return pages
}
