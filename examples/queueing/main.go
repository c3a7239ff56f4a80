// Command queueing delays requests instead of denying them: its backend gets one
// request every 200 ms, however they arrive. Ten may wait for their turn, for two
// seconds at most; others are denied at once.
//
//	go run ./examples/queueing
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, paced()))
}

const usage = `queueing listens on http://%[1]v and passes a request each 200 ms, however they come.
Try, in another terminal: five at once are served in a second; of twenty the queue takes ten or eleven.

  (for i in $(seq 5); do curl -s http://%[1]v/ & done; wait)
  (for i in $(seq 20); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]v/ & done; wait) | sort | uniq -c

`

func paced() http.Handler {
	queue := stinthttp.New(
		stint.Rate(5, time.Second,
			stint.WithAlgorithm(stint.LeakyBucket),
			stint.WithQueue(10),
			// An HTTP/1.1 server doesn't notice that a client has left while the
			// request's body is unread: a wait needs a bound.
			stint.WithMaxWait(2*time.Second)),
		stint.WithKey(stint.Global()), // one queue in this process for everybody
	)
	return queue(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "served after %v in the queue\n", stint.FromContext(r.Context()).Decision().Delay)
	}))
}
