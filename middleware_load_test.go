package stint_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// 64 connections ask for as much as they can get. Whatever the machine does
// meanwhile, a bucket that is never full again has let exactly
// burst + floor(rate × elapsed) through; elapsed is somewhere between the time
// from the first answer to the last request and that of the whole run.
//
// It runs for a second, and for five with STINT_SOAK set.
func TestMiddlewareLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a second of full load for each adapter")
	}
	const (
		connections = 64
		rate        = 200 // a second
		burst       = 50
	)
	length := time.Second
	if os.Getenv("STINT_SOAK") != "" {
		length = 5 * time.Second
	}
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			var admitted atomic.Int64
			l := compiled(t, stint.Rate(rate, time.Second, stint.WithBurst(burst)), stint.WithKey(stint.RemoteIP()))
			srv := httptest.NewServer(a.build(one(l, func(http.ResponseWriter, *http.Request) { admitted.Add(1) })))
			defer srv.Close()
			client := srv.Client()
			client.Transport.(*http.Transport).MaxIdleConnsPerHost = connections

			start := time.Now()
			var firstAnswer, lastRequest, granted, refused atomic.Int64
			var all sync.WaitGroup
			for range connections {
				all.Go(func() {
					for {
						began := time.Since(start)
						if began > length {
							return
						}
						resp, err := client.Get(srv.URL)
						if err != nil {
							t.Error(err)
							return
						}
						firstAnswer.CompareAndSwap(0, int64(time.Since(start)))
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						switch resp.StatusCode {
						case 200:
							granted.Add(1)
						case 429:
							refused.Add(1)
						default:
							t.Errorf("got status %d", resp.StatusCode)
						}
						for {
							last := lastRequest.Load()
							if int64(began) <= last || lastRequest.CompareAndSwap(last, int64(began)) {
								break
							}
						}
					}
				})
			}
			all.Wait()
			whole := time.Since(start)
			inner := time.Duration(lastRequest.Load() - firstAnswer.Load())

			due := func(d time.Duration) int64 { return burst + int64(d)*rate/int64(time.Second) }
			got := admitted.Load()
			t.Logf("%d of %d requests admitted in %v", got, granted.Load()+refused.Load(), whole)
			if got != granted.Load() {
				t.Errorf("the handler ran %d times, %d answers were 200", got, granted.Load())
			}
			if most := due(whole); got > most {
				t.Errorf("%d admitted in %v, want at most %d", got, whole, most)
			}
			if least := due(inner); got < least {
				t.Errorf("%d admitted in %v, want at least %d", got, inner, least)
			}
		})
	}
}
