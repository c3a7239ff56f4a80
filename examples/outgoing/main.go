// Command outgoing is a client that keeps to another service's limit. It sends at most
// two requests a second, and fewer if the service's RateLimit and Retry-After fields
// say so. It starts that service itself.
//
//	go run ./examples/outgoing
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	upstream := httptest.NewServer(strict())
	defer upstream.Close()

	fmt.Println("outgoing asks twice a second, and waits for longer where the other side's fields say so: from request 4 on")
	client := &http.Client{Transport: polite(http.DefaultTransport), Timeout: 10 * time.Second}
	start := time.Now()
	for i := range 6 {
		res, err := client.Get(upstream.URL)
		if err != nil {
			log.Fatal(err)
		}
		res.Body.Close()
		fmt.Printf("%.1fs  request %d: %s\n", time.Since(start).Seconds(), i+1, res.Status)
	}
}

// polite waits for its turn before each request goes out through next.
func polite(next http.RoundTripper) http.RoundTripper {
	return stinthttp.NewTransport(stint.Must(stint.New(
		stint.Rate(2, time.Second, stint.WithBurst(1)),
		stint.WithKey(stint.GivenKey()), // the destination
	)), next)
}

// strict is the other service. It allows three requests, then one every two seconds:
// less than the client was told.
func strict() http.Handler {
	return stinthttp.New(
		stint.Rate(1, 2*time.Second, stint.WithBurst(3)),
		stint.WithKey(stint.Global()),
	)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
}
