// Command degradation answers denied requests as well as it can. Above the rate, a
// caller gets the last page from a cache, marked as stale. The expensive export
// redirects its overflow.
//
//	go run ./examples/degradation
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr())
	log.Fatal(http.Serve(listener, site()))
}

const usage = `degradation listens on http://%[1]v: a page 5 times in 10 s, an export once a minute.
Try, in another terminal: a denied page comes from a cache, a denied export is mailed.

  for i in $(seq 7); do curl -s http://%[1]v/; done
  for i in 1 2; do curl -si http://%[1]v/export | grep -iE '^(HTTP|location)'; done

`

func site() http.Handler {
	var last page
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", last.serveFresh)
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the whole export") })
	mux.HandleFunc("GET /export/queued", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "your export will be mailed to you")
	})
	// Each route has its own limit, and its own answer to requests above it.
	limit := stinthttp.New(
		stint.WithRoute("GET /{$}", stint.Rate(5, 10*time.Second, stint.WithName("page")),
			stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(last.serveStale)))),
		stint.WithRoute("GET /export", stint.Rate(1, time.Minute, stint.WithName("export")),
			stint.WithDenyHandler(stint.Redirect("/export/queued"))),
		stint.WithKey(stint.RemoteIP()))
	return limit(mux)
}

// page is slow to make, and good enough for a while.
type page struct {
	made    atomic.Int64
	current atomic.Pointer[string]
}

func (p *page) serveFresh(w http.ResponseWriter, _ *http.Request) {
	text := fmt.Sprintf("page, version %d\n", p.made.Add(1))
	p.current.Store(&text)
	fmt.Fprint(w, text)
}

// serveStale serves what a limit denies. DeniedFromContext returns which limit that was.
func (p *page) serveStale(w http.ResponseWriter, r *http.Request) {
	text := p.current.Load()
	if text == nil {
		http.Error(w, "come back later", stint.DeniedFromContext(r.Context()).StatusCode())
		return
	}
	fmt.Fprintf(w, "stale %s", *text)
}
