// Command flashsale opens a shop at noon, when everybody comes at once to servers with
// cold caches. A warm-up lets through a third of the full rate at first, and all of it
// after ten seconds. A request that would wait longer than three seconds gets the
// waiting room instead, and no client buys twice in a hurry.
//
//	go run ./examples/flashsale
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
	log.Fatal(http.Serve(listener, shop()))
}

const usage = `flashsale listens on http://%[1]v and sells a third of 20 a second at first.
Try, in another terminal: a second click is denied, and in a rush whoever would wait for more than 3 s.

  for i in 1 2; do curl -s -o /dev/null -w '%%{http_code} ' -X POST -H 'X-User: ada' http://%[1]v/buy; done; echo
  (for i in $(seq 60); do curl -s -o /dev/null -w '%%{http_code}\n' -X POST -H "X-User: u$i" http://%[1]v/buy & done; wait) | sort | uniq -c

`

func shop() http.Handler {
	gate := stinthttp.New(
		// One limit for the whole shop: 20 purchases a second once warm.
		stint.Rate(20, time.Second,
			stint.WithName("shop"),
			stint.WithKey(stint.Global()),
			stint.WithWarmUp(10*time.Second),
			stint.WithMaxWait(3*time.Second)),
		// One for each buyer, so that no script empties the shelf. It doesn't wait: a
		// second click is denied, and takes no turn from the shop.
		stint.Rate(1, 10*time.Second,
			stint.WithName("buyer"),
			stint.WithKey(stint.Header("X-User"))),
		stint.WithDenyHandler(http.HandlerFunc(waitingRoom)),
	)
	mux := http.NewServeMux()
	mux.Handle("POST /buy", gate(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "sold")
	})))
	return mux
}

// waitingRoom distinguishes a buyer who is too eager from a shop that is full.
func waitingRoom(w http.ResponseWriter, r *http.Request) {
	denied := stint.DeniedFromContext(r.Context())
	if denied.Decision.Limit == "buyer" {
		http.Error(w, "one at a time, please", http.StatusTooManyRequests)
		return
	}
	http.Error(w, "the shop is full: you are in the waiting room", http.StatusServiceUnavailable)
}
