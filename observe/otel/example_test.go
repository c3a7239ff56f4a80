package stintotel_test

import (
	"log"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/observe/otel"
)

func ExampleObserve() {
	lim, err := stint.New(
		stint.Rate(100, time.Minute, stint.WithName("per-client")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithLimiterName("api"),
	)
	if err != nil {
		log.Fatal(err)
	}
	stop, err := stintotel.Observe(lim)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	_ = stinthttp.Middleware(lim)(http.NotFoundHandler())
	// Output:
}
