//go:build unix

package console_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
)

// loaded is a server with one limit, and a connection to it.
type loaded struct {
	conn net.Conn
	page http.Handler
}

func newLoaded(b *testing.B, attached bool) loaded {
	l, err := stint.New(stint.Rate(1_000_000, time.Second), stint.WithKey(stint.Header("X-Api-Key")))
	if err != nil {
		b.Fatal(err)
	}
	var s loaded
	if attached {
		if s.page, err = console.New(console.Limiters(l), console.WithAuthorizer(console.Loopback)); err != nil {
			b.Fatal(err)
		}
	}
	server := httptest.NewServer(stinthttp.Middleware(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })))
	b.Cleanup(server.Close)
	if s.conn, err = net.Dial("tcp", server.Listener.Addr().String()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// ask sends n requests with keys of which some come often, and returns what CPU time
// that took. The client does as little as it can: it is measured along.
func (s loaded) ask(b *testing.B, n int) time.Duration {
	var answer [4096]byte
	before := cpu()
	for i := range n {
		if _, err := fmt.Fprintf(s.conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %d\r\n\r\n", i*i%997); err != nil {
			b.Fatal(err)
		}
		if _, err := s.conn.Read(answer[:]); err != nil {
			b.Fatal(err)
		}
	}
	return cpu() - before
}

// What the page costs a server that does nothing but be limited, in CPU time: more of
// it per request where the page is attached and nobody looks, and for each second in
// which somebody does, however many. Both servers are asked in turn, and the medians
// compared, as the machine is never quiet.
//
//	go test -run '^$' -bench Cost ./console
func BenchmarkCost(b *testing.B) {
	servers := [2]loaded{newLoaded(b, false), newLoaded(b, true)}
	var took [2][]float64
	const chunk = 500
	for i := range servers {
		servers[i].ask(b, chunk)
	}
	for b.Loop() {
		for i := range servers {
			took[i] = append(took[i], float64(servers[i].ask(b, chunk))/chunk)
		}
	}
	median := func(all []float64) float64 {
		slices.Sort(all)
		return all[len(all)/2]
	}
	without, with := median(took[0]), median(took[1])
	b.ReportMetric(without, "ns/request")
	b.ReportMetric(100*(with/without-1), "%more")

	before := cpu()
	const views = 10
	for range views {
		ask(servers[1].page, "GET", "/", nil)
		time.Sleep(600 * time.Millisecond) // or it would be the picture of before
	}
	b.ReportMetric(float64(cpu()-before)/views/1e6, "ms/view")
}

// cpu is what the process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
