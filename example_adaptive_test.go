package stint_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
)

// A service finds out by itself how many requests it can work on at a time,
// and each caller has a rate beside that. Who finds it full gets 503.
func ExampleAdaptiveConcurrency() {
	lim := stint.Must(stint.New(
		stint.AdaptiveConcurrency(8, 400, stint.WithKey(stint.Global())),
		stint.Rate(100, time.Minute, stint.WithKey(stint.RemoteIP())),
		stint.WithObserver(func(e stint.Event) {
			if c := e.Change; c != nil {
				fmt.Printf("%s: from %d to %d, %v\n", c.Limit, c.From, c.To, c.Reason)
			}
		}),
	))
	w := httptest.NewRecorder()
	p, err := lim.Admit(w, httptest.NewRequest("GET", "/", nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Done()
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	status := p.Decision().Limits[1]
	fmt.Println(status.InFlight, "of", status.Quota, "in flight:", status.Reason)
	// Output:
	// "rate";q=100;w=60, "adaptive";q=20;qu="concurrent-requests"
	// 1 of 20 in flight: start
}

// Requests of one kind, whose latency tells little by chance: follow it
// closely, and quickly.
func ExampleWithAdaptation() {
	lim, err := stint.New(
		stint.AdaptiveConcurrency(4, 64,
			stint.WithAdaptation(stint.Vegas),
			stint.WithInitialLimit(16),
			stint.WithSampleWindow(200*time.Millisecond)),
		stint.WithKey(stint.Global()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Peek(context.Background(), "everybody")
	fmt.Println(d.Remaining, err)
	// Output: 16 <nil>
}

// With Gradient2: latency may be no more than a tenth above the usual.
func ExampleWithTolerance() {
	_, err := stint.New(
		stint.AdaptiveConcurrency(20, 200, stint.WithTolerance(1.1)),
		stint.WithKey(stint.Global()),
	)
	fmt.Println(err)
	// Output: <nil>
}

// With AIMD: requests should take no longer than 300 ms. The limit starts where
// the service is known to be fine, as it climbs by one a second.
func ExampleWithLatencyTimeout() {
	lim, err := stint.New(
		stint.AdaptiveConcurrency(20, 200,
			stint.WithAdaptation(stint.AIMD),
			stint.WithLatencyTimeout(300*time.Millisecond),
			stint.WithInitialLimit(60)),
		stint.WithKey(stint.Global()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Peek(context.Background(), "everybody")
	fmt.Println(d.Remaining, err)
	// Output: 60 <nil>
}

// A handler that knows better what its duration says.
func ExamplePermit_Drop() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Get("http://backend.internal" + r.URL.Path)
		if err != nil {
			stint.FromContext(r.Context()).Drop() // the backend is overloaded
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = resp.Body.Close()
	}
	_ = handler
	// Output:
}

// Long polls take as long as there is no news.
func ExamplePermit_Ignore() {
	news := make(chan string)
	handler := func(w http.ResponseWriter, r *http.Request) {
		stint.FromContext(r.Context()).Ignore()
		select {
		case text := <-news:
			_, _ = fmt.Fprintln(w, text)
		case <-r.Context().Done():
		}
	}
	_ = handler
	// Output:
}
