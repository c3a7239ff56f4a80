package stint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// A server lets each address send two requests a minute. The third gets 429, with the
// seconds after which the next one would pass.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

	limit := stinthttp.New(stint.Rate(2, time.Minute), stint.WithKey(stint.RemoteIP()))
	server := httptest.NewServer(limit(mux)) // http.ListenAndServe(":8080", limit(mux))
	defer server.Close()

	for range 3 {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		if fmt.Println(resp.Status); resp.StatusCode == http.StatusTooManyRequests {
			after, _ := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
			fmt.Println("again in about", after.Round(10*time.Second))
		}
	}
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
	// again in about 30s
}
