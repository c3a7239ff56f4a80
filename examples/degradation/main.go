// Command degradation answers what it has to refuse as well as it can: a
// caller above the rate gets the last page from a cache, marked as such, and
// the expensive export sends its overflow elsewhere.
//
//	go run ./examples/degradation
//	for i in $(seq 7); do curl -s http://127.0.0.1:8080/; done
//	for i in 1 2; do curl -si http://127.0.0.1:8080/export | grep -iE '^(HTTP|location)'; done
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, site()))
}

func site() http.Handler {
	var last page
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", stinthttp.New(
		stint.Rate(5, 10*time.Second),
		stint.WithKey(stint.RemoteIP()),
		stint.WithDenyHandler(http.HandlerFunc(last.serveStale)),
	)(http.HandlerFunc(last.serveFresh)))

	mux.Handle("GET /export", stinthttp.New(
		stint.Rate(1, time.Minute),
		stint.WithKey(stint.RemoteIP()),
		stint.WithDenyHandler(stint.Redirect("/export/queued")),
	)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the whole export") })))

	mux.HandleFunc("GET /export/queued", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "your export will be mailed to you")
	})
	return mux
}

// page is something slow to make and good enough for a while.
type page struct {
	made    atomic.Int64
	current atomic.Pointer[string]
}

func (p *page) serveFresh(w http.ResponseWriter, _ *http.Request) {
	text := fmt.Sprintf("page, version %d\n", p.made.Add(1))
	p.current.Store(&text)
	fmt.Fprint(w, text)
}

// serveStale is the deny handler. The fields that say what was refused, and
// until when, are already set; DeniedFromContext has them for the program.
func (p *page) serveStale(w http.ResponseWriter, r *http.Request) {
	denied := stint.DeniedFromContext(r.Context())
	text := p.current.Load()
	if text == nil {
		http.Error(w, "come back later", denied.StatusCode())
		return
	}
	fmt.Fprintf(w, "stale %s", *text)
}
