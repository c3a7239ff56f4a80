// Command llm stands in front of a language model that streams its answers.
// Each API key has requests per minute, tokens per minute, and so many streams
// at a time, all decided at once. Nobody knows what an answer will cost, so the
// most it can is reserved (prompt and max_tokens), and settled to the truth when
// the stream ends: by the model's own count, or, if the client hangs up, by what
// it was sent.
//
//	go run ./examples/llm
//	curl -N -H 'X-API-Key: k1' -d '{"prompt":"tell me a story","max_tokens":50}' http://127.0.0.1:8080/v1/completions
package main

import (
	"flag"
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
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, gateway(to, http.DefaultTransport)))
}

// gateway is the model at to, with limits.
func gateway(to *url.URL, transport http.RoundTripper) http.Handler {
	limits := stint.Must(stint.New(
		stint.Rate(60, time.Minute, stint.WithName("requests")),
		stint.Rate(10_000, time.Minute, stint.WithName("tokens"),
			stint.WithCost(func(r *http.Request) int64 { return completionOf(r).most() }),
			// It is asked however the request ends, so no path forgets to.
			stint.WithSettle(func(r *http.Request, _ int, _ int64) int64 { return completionOf(r).used() })),
		stint.Concurrency(2, stint.WithName("streams")),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	return readCompletion(stinthttp.Middleware(limits)(proxy(to, transport)))
}
