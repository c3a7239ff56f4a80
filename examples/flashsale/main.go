// Command flashsale opens a shop at noon: everybody comes at once, to servers
// whose caches are cold. A warm-up lets through a third of the full rate at
// first and all of it after ten seconds; whoever would wait longer than three
// seconds for a turn sees the waiting room instead, and nobody buys twice in a
// hurry.
//
//	go run ./examples/flashsale
//	time (for i in $(seq 100); do curl -s -o /dev/null -w '%{http_code}\n' -X POST -H "X-User: u$i" http://127.0.0.1:8080/buy & done; wait) | sort | uniq -c
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, shop()))
}

func shop() http.Handler {
	gate := stinthttp.New(
		// One limit for the whole shop: 20 purchases a second once warm.
		stint.Rate(20, time.Second,
			stint.WithName("shop"),
			stint.WithKey(stint.Global()),
			stint.WithWarmUp(10*time.Second),
			stint.WithMaxWait(3*time.Second)),
		// One for each buyer, so that no script empties the shelf. It does not
		// wait: a second click is refused, and takes no turn from the shop.
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

// waitingRoom tells buyers apart: too eager, or too many at once.
func waitingRoom(w http.ResponseWriter, r *http.Request) {
	denied := stint.DeniedFromContext(r.Context())
	if denied.Decision.Limit == "buyer" {
		http.Error(w, "one at a time, please", http.StatusTooManyRequests)
		return
	}
	http.Error(w, "the shop is full: you are in the waiting room", http.StatusServiceUnavailable)
}
