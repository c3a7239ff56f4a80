//go:build unix

package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
)

// What the page costs a loaded server, in CPU time per request of the whole process,
// clients included. Compare the three in one run: the machine is never quiet.
//
//	go test -run '^$' -bench Cost -benchtime 2s -count 8 ./console
func BenchmarkCost(b *testing.B) {
	for _, tc := range []struct {
		name           string
		attached, seen bool
	}{{"without", false, false}, {"attached", true, false}, {"viewed", true, true}} {
		b.Run(tc.name, func(b *testing.B) { cost(b, tc.attached, tc.seen) })
	}
}

func cost(b *testing.B, attached, seen bool) {
	l, err := stint.New(stint.Rate(1_000_000, time.Second), stint.WithKey(stint.Header("X-Api-Key")))
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", stinthttp.Middleware(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })))
	if attached {
		h, err := console.New(console.Limiters(l), console.WithAuthorizer(console.Loopback))
		if err != nil {
			b.Fatal(err)
		}
		mux.Handle("/console/", h)
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	if seen {
		ctx, leave := context.WithCancel(context.Background())
		var left sync.WaitGroup
		defer left.Wait()
		defer leave()
		left.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/console/events", nil)
				if resp, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	var turn atomic.Int64
	b.ResetTimer()
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequest("GET", server.URL+"/", nil)
			n := turn.Add(1)
			r.Header.Set("X-Api-Key", strconv.FormatInt(n*n%997, 10))
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// cpu is what the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
