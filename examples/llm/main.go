// Command llm stands in front of a language model that streams its answers. Each API
// key has requests per minute, tokens per minute and per month, and a number of streams
// at a time, all decided at once. The cost of an answer is unknown at first. So what an
// answer usually costs is reserved, and the charge is raised while it streams. If the
// tokens of the minute are used up, the stream waits for more. If those of the month
// are, it ends with an event that says so. When the stream has ended, the charge is
// settled: by the model's own count, or, if the stream was cut, by what was sent.
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
	perMonth := flag.Int64("month", 100, "tokens per month")
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
	fmt.Printf(toTry, listener.Addr(), *perMonth)
	log.Fatal(http.Serve(listener, gateway(to, http.DefaultTransport, *perMonth)))
}

const toTry = `llm listens on http://%[1]v: for each key 60 requests and 10,000 tokens a minute, %[2]d tokens a month,
and 2 streams at once. Try, in another terminal: 68 tokens are reserved, and more while the story streams. The story has
115 tokens, so it is cut, and its last event says so. Of three streams at once the third is denied.

  curl -siN -m 1 -H 'X-API-Key: k1' -d '{"prompt":"tell me a story","max_tokens":4000}' http://%[1]v/v1/completions | grep -iE '^(HTTP|ratelimit:|data)'
  curl -sN -H 'X-API-Key: k2' -d '{"prompt":"tell me a story","max_tokens":4000}' http://%[1]v/v1/completions | tail -n 5
  for i in 1 2 3; do curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' -H 'X-API-Key: k3' -d '{"prompt":"hello","max_tokens":20}' http://%[1]v/v1/completions & done; wait

`

const perMinute = 10_000 // tokens

// gateway puts limits in front of the model at to.
func gateway(to *url.URL, transport http.RoundTripper, perMonth int64) http.Handler {
	cost := stint.WithCost(func(r *http.Request) int64 { return completionOf(r).charged })
	// This runs however the request ends, so no path forgets to settle.
	settle := stint.WithSettle(func(r *http.Request, _ int, _ int64) int64 { return completionOf(r).used() })
	limits := stint.Must(stint.New(
		stint.Rate(60, time.Minute, stint.WithName("requests")),
		stint.Rate(perMinute, time.Minute, stint.WithName("tokens"), cost, settle, stint.WithMaxWait(10*time.Second)),
		stint.Quota(perMonth, stint.Monthly, stint.WithName("month"), cost, settle),
		stint.Concurrency(2, stint.WithName("streams")),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	return readCompletion(stinthttp.Middleware(limits)(proxy(to, transport)), min(perMinute, perMonth))
}
