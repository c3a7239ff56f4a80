package stinthttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store/memstore"
)

func ExampleNew() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {})

	limit := stinthttp.New(
		stint.Rate(2, time.Hour),
		stint.WithKey(stint.RemoteIP()),
	)
	srv := httptest.NewServer(limit(mux))
	defer srv.Close()

	for range 3 {
		resp, err := http.Get(srv.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Printf("%s %s %q\n", resp.Status, resp.Header.Get("RateLimit"), resp.Header.Get("Retry-After"))
	}
	// Output:
	// 200 OK "rate";r=1;t=1800 ""
	// 200 OK "rate";r=0;t=1800 ""
	// 429 Too Many Requests "rate";r=0;t=1800 "1800"
}

// One limiter in front of everything, and one route with a limit more.
func ExampleMiddleware() {
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Hour),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	search := stint.Must(lim.With(stint.Rate(1, time.Hour, stint.WithName("search"))))

	mux := http.NewServeMux()
	mux.Handle("GET /search", stinthttp.Middleware(search)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(stint.FromContext(r.Context()).Decision().Limit)
		})))
	h := stinthttp.Middleware(lim)(mux)

	for range 2 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/search", nil)
		r.Header.Set("X-API-Key", "k")
		h.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Values("RateLimit"))
	}
	// Output:
	// search
	// 200 ["rate";r=99;t=36 "search";r=0;t=3600]
	// 429 ["rate";r=98;t=36 "search";r=0;t=3600]
}

func ExampleTransport() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer api.Close()

	// At most one request an hour to each host; who can't wait is told.
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey())))
	client := &http.Client{
		Transport: stinthttp.NewTransport(lim, http.DefaultTransport),
		Timeout:   time.Minute,
	}
	for range 2 {
		resp, err := client.Get(api.URL)
		if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
			fmt.Println("not sent:", denied.Decision.Limit, denied.Decision.RetryAfter.Round(time.Hour))
			continue
		} else if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// not sent: rate 1h0m0s
}

// An API that limits each account: what one account is told to wait is not
// waited for by the others.
func ExampleWithDestination() {
	secret := []byte("a secret of this process")
	lim := stint.Must(stint.New(stint.Rate(10, time.Second), stint.WithKey(stint.GivenKey())))
	client := &http.Client{Transport: stinthttp.NewTransport(lim, nil,
		stinthttp.WithDestination(stint.Hash(secret, stint.Header("Authorization"))),
		stinthttp.WithMaxPause(10*time.Second),
		stinthttp.WithRetries(1),
	)}
	_ = client
	// Output:
}

// Two processes call one API. When it denies a request of one process, the other waits, too.
func ExampleWithSharedPause() {
	var denied time.Time
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if denied.IsZero() {
			denied = time.Now()
			w.Header().Set("Retry-After-Ms", "200")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Println("200 ms later:", time.Since(denied) >= 200*time.Millisecond)
	}))
	defer api.Close()

	shared := memstore.New() // a redisstore, if the processes aren't in one example
	process := func() *http.Client {
		lim := stint.Must(stint.New(
			stint.Rate(50, time.Second, stint.WithName("api-calls")),
			stint.WithStore(shared),
			stint.WithKey(stint.GivenKey()),
		))
		return &http.Client{Transport: stinthttp.NewTransport(lim, nil, stinthttp.WithSharedPause(), stinthttp.WithRetries(0))}
	}
	for _, client := range []*http.Client{process(), process()} {
		resp, err := client.Get(api.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 429 Too Many Requests
	// 200 ms later: true
	// 200 OK
}

// A page of an account: what the caller has used of each limit. The page itself costs nothing.
func ExampleUsage() {
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Hour, stint.WithName("calls")),
		stint.WithRoute("GET /search", stint.Rate(10, time.Hour, stint.WithName("search"))),
		stint.WithRoute("GET /account/usage", stint.Exempt()),
		stint.WithKey(stint.Header("X-API-Key")),
	))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /account/usage", stinthttp.Usage(lim))
	h := stinthttp.Middleware(lim)(mux)

	for _, path := range []string{"/search", "/account/usage"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-API-Key", "ada's")
		h.ServeHTTP(w, r)
		fmt.Print(w.Body)
	}
	// Output:
	// {"limits":[{"limit":"calls","capacity":100,"used":1,"remaining":99,"reset_after":36},{"limit":"search","route":"GET /search","capacity":10,"used":1,"remaining":9,"reset_after":360}]}
}
