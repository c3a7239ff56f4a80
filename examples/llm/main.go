// Command llm stands in front of a language model that streams its answers. Each API
// key has requests per minute, tokens per minute, and a number of streams at a time,
// all decided at once. The cost of an answer is unknown at first. So the most it can
// cost (prompt and max_tokens) is reserved, and settled when the stream ends: by the
// model's own count, or, if the client hangs up, by what was sent.
//
//	go run ./examples/llm
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	upstream := flag.String("upstream", "", "URL of the model; by default one that makes words up")
	flag.Parse()

	if *upstream == "" {
		own, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		go func() { log.Fatal(http.Serve(own, model(50*time.Millisecond))) }()
		*upstream = "http://" + own.Addr().String()
	}
	to, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(toTry, listener.Addr())
	log.Fatal(http.Serve(listener, gateway(to, http.DefaultTransport)))
}

const toTry = `llm listens on http://%[1]v: 60 requests, 10,000 tokens and 2 streams at a time for each key.
Try, in another terminal: 4000 tokens are reserved; after a second curl hangs up, and only what it
was sent is charged. Of three streams at once the third is denied.

  curl -siN -m 1 -H 'X-API-Key: k1' -d '{"prompt":"tell me a story","max_tokens":4000}' http://%[1]v/v1/completions | grep -iE '^(HTTP|ratelimit:|data)'
  for i in 1 2 3; do curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' -H 'X-API-Key: k1' -d '{"prompt":"hello","max_tokens":20}' http://%[1]v/v1/completions & done; wait

`

// gateway puts limits in front of the model at to.
func gateway(to *url.URL, transport http.RoundTripper) http.Handler {
	limits := stint.Must(stint.New(
		stint.Rate(60, time.Minute, stint.WithName("requests")),
		stint.Rate(10_000, time.Minute, stint.WithName("tokens"),
			stint.WithCost(func(r *http.Request) int64 { return completionOf(r).most() }),
			// This runs however the request ends, so no path forgets to settle.
			stint.WithSettle(func(r *http.Request, _ int, _ int64) int64 { return completionOf(r).used() })),
		stint.Concurrency(2, stint.WithName("streams")),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	return readCompletion(stinthttp.Middleware(limits)(proxy(to, transport)))
}
