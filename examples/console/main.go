// Command console is a server with a page about its limits, and with its own traffic.
// Run it, and open the link that it prints in a browser:
//
//	go run ./examples/console
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	token := rand.Text()
	h, err := server(token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr(), token)
	go traffic("http://" + listener.Addr().String())
	log.Fatal(http.Serve(listener, h))
}

// server limits a small shop and has the page beside it. The page shows keys in clear,
// because they belong to no one. Whoever has the token may see it.
func server(token string) (http.Handler, error) {
	limiter, err := stint.New(
		stint.WithLimiterName("shop"),
		stint.WithKey(stint.Header("X-Api-Key")),
		stint.Rate(20, time.Second, stint.WithName("caller"), stint.WithBurst(40)),
		stint.AdaptiveConcurrency(4, 100, stint.WithName("workers"), stint.WithKey(stint.Global()),
			stint.WithAdaptation(stint.Vegas()), stint.WithSampleWindow(time.Second)),
		stint.WithRoute("GET /login",
			stint.Rate(5, 10*time.Second, stint.WithName("login")),
			stint.Ban(20, 30*time.Second, stint.WithBanFor(20*time.Second))),
		stint.WithRoute("GET /reports",
			stint.Concurrency(2, stint.WithName("reports"), stint.WithKey(stint.Global()), stint.WithQueue(4))),
	)
	if err != nil {
		return nil, err
	}
	page, err := console.New(
		console.Limiters(limiter),
		console.WithToken(token),
		console.WithActions(),
		console.WithProcessName("shop-1"),
		console.WithKeysInClear())
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", stinthttp.Middleware(limiter)(http.HandlerFunc(shop)))
	mux.Handle("/console/", page)
	return mux, nil
}

const usage = `console limits a small shop, which has customers already. The page about it:

  http://%[1]v/console/?token=%[2]s

Look up the key "bob", or a key of yours; without a browser:

  curl -s -o /dev/null -w '%%{http_code}\n' -H 'X-Api-Key: me' http://%[1]v/items
  curl -s -H 'Authorization: Bearer %[2]s' -d 'key=me' http://%[1]v/console/key | grep -o '[0-9]* of 40 left' | tail -1

`
