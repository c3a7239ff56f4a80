package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

func ExampleWithQueue() {
	// One at a time; another may wait for it, for up to 20 ms.
	printer := stint.Must(stint.New(
		stint.Concurrency(1, stint.WithQueue(1), stint.WithMaxWait(20*time.Millisecond)),
		stint.WithKey(stint.GivenKey())))
	ctx := context.Background()
	p, _ := printer.Take(ctx, "first floor", 1)
	_, err := printer.Take(ctx, "first floor", 1)

	var denied *stint.DeniedError
	if errors.As(err, &denied) {
		d := denied.Decision
		fmt.Println("waited in place", d.Queued, d.Delay >= 20*time.Millisecond)
	}
	p.Done()
	// Output: waited in place 1 true
}

func ExampleWithPriority() {
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(1, stint.WithQueue(10)),
		stint.WithKey(func(*http.Request) (string, error) { return "shop", nil }),
		stint.WithPriority(func(r *http.Request) int {
			if r.URL.Path == "/checkout" {
				return 5
			}
			return 0
		}),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	h := limit(lim, func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.URL.Path) })

	busy, _ := lim.Take(context.Background(), "shop", 1)
	var clients sync.WaitGroup
	for _, path := range []string{"/report", "/checkout", "/search"} {
		clients.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)) })
		<-waiting
	}
	busy.Done()
	clients.Wait()
	// Output:
	// /checkout
	// /report
	// /search
}

func ExampleWithShare() {
	// Half of four workers are interactive's if it needs them; batch may use
	// them while it doesn't.
	const batch, interactive = 0, 1
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(4, stint.WithQueue(10), stint.WithShare(interactive, 50)),
		stint.WithKey(stint.Global()),
		stint.WithAging(time.Minute),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	batches := stint.ContextWithPriority(context.Background(), batch)
	clicks := stint.ContextWithPriority(context.Background(), interactive)

	var running *stint.Permit
	for range 4 { // borrows what is idle
		running, _ = lim.Take(batches, "workers", 1)
	}
	var more sync.WaitGroup
	more.Go(func() {
		p, _ := lim.Take(batches, "workers", 1)
		fmt.Println("batch")
		p.Done()
	})
	<-waiting
	more.Go(func() {
		p, _ := lim.Take(clicks, "workers", 1)
		fmt.Println("interactive")
		p.Done()
	})
	<-waiting
	running.Done()
	more.Wait()
	// Output:
	// interactive
	// batch
}

func ExampleContextWithPriority() {
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(1),
		stint.WithKey(stint.Global()),
		stint.WithAging(10*time.Second), // a class is worth ten seconds
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	ctx := context.Background()
	busy, _ := lim.Take(ctx, "mailer", 1)
	var jobs sync.WaitGroup
	for class, name := range []string{"newsletter", "receipt", "password reset"} {
		jobs.Go(func() {
			p, _ := lim.Wait(stint.ContextWithPriority(ctx, class), "mailer", 1)
			fmt.Println(name)
			p.Done()
		})
		<-waiting
	}
	busy.Done()
	jobs.Wait()
	// Output:
	// password reset
	// receipt
	// newsletter
}
