package adaptertest

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
// meanwhile, a bucket that never fills up again has let exactly
// burst + floor(rate × elapsed) through: no more in the time of the whole run,
// and no less in that from the answer of the first denial to the start of the
// last, between which it was empty, used and empty again.
//
// It runs for 300 ms, in which the bucket is emptied and 15 more become due, and for five
// seconds with STINT_SOAK set; on a slow machine until the bucket is empty.
func flowLoad(t *testing.T, a Adapter) {
	if testing.Short() {
		t.Skip("full load for each adapter")
	}
	const (
		connections = 64
		rate        = 50  // a second
		burst       = 250 // what a machine that stands still for five seconds gathers
	)
	length := 300 * time.Millisecond
	if os.Getenv("STINT_SOAK") != "" {
		length = 5 * time.Second
	}
	var admitted atomic.Int64
	l := compiled(t, stint.Rate(rate, time.Second, stint.WithBurst(burst)), stint.WithKey(stint.RemoteIP()))
	srv := httptest.NewServer(a.Build(one(l, func(http.ResponseWriter, *http.Request) { admitted.Add(1) })))
	defer srv.Close()
	client := srv.Client()
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = connections

	start := time.Now()
	var firstDenial, lastDenial, granted, denials atomic.Int64
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			for {
				began := time.Since(start)
				if began > length && denials.Load() > connections {
					return
				}
				resp, err := client.Get(srv.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case 200:
					granted.Add(1)
				case 429:
					denials.Add(1)
					firstDenial.CompareAndSwap(0, int64(time.Since(start)))
					for {
						last := lastDenial.Load()
						if int64(began) <= last || lastDenial.CompareAndSwap(last, int64(began)) {
							break
						}
					}
				default:
					t.Errorf("got status %d", resp.StatusCode)
				}
			}
		})
	}
	all.Wait()
	whole := time.Since(start)
	inner := time.Duration(lastDenial.Load() - firstDenial.Load())

	due := func(d time.Duration) int64 { return burst + int64(d)*rate/int64(time.Second) }
	got := admitted.Load()
	t.Logf("%d of %d requests admitted in %v", got, granted.Load()+denials.Load(), whole)
	if got != granted.Load() {
		t.Errorf("the handler ran %d times, %d answers were 200", got, granted.Load())
	}
	if most := due(whole); got > most {
		t.Errorf("%d admitted in %v, want at most %d", got, whole, most)
	}
	if least := due(inner); got < least {
		t.Errorf("%d admitted in %v, want at least %d", got, inner, least)
	}
}
