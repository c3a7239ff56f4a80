// Command policy takes its limits from a file and follows it: change
// policy.yaml while it runs. A change with a mistake is refused, with what to
// write instead in the log and on /healthz, and the last good limits stay.
//
//	go run ./examples/policy
//	curl -si -H 'X-Tenant: small' http://127.0.0.1:8080/items | grep -i ratelimit
//	sed -i 's/10\/1s/5\/1s/' examples/policy/policy.yaml    # takes effect
//	sed -i 's/burst/brust/' examples/policy/policy.yaml     # is refused
//	curl -s http://127.0.0.1:8080/healthz
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	_ "time/tzdata" // zones are known on machines without a zone database too

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/policy"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	file := flag.String("policy", "examples/policy/policy.yaml", "file with the limits")
	flag.Parse()

	server, _, err := api(context.Background(), *file)
	if err != nil {
		log.Fatal(err) // every mistake in the file, a line for each
	}
	log.Printf("listening on http://%s", *addr)
	log.Fatal(http.ListenAndServe(*addr, server))
}

// What the file calls by its name.
var registered = []policy.Option{
	policy.WithKeyFunc("tenant", stint.Header("X-Tenant")),
	policy.WithPlanFunc(func(r *http.Request) (string, error) { return planOf[r.Header.Get("X-Tenant")], nil }),
}

// planOf stands for a table of a database.
var planOf = map[string]string{"small": "free", "large": "pro", "": "none"}

// api serves until ctx ends, with the limits of a file.
func api(ctx context.Context, file string, opts ...policy.Option) (http.Handler, *policy.Watcher, error) {
	opts = append(opts, registered...)
	p, err := policy.Load(file, opts...)
	if err != nil {
		return nil, nil, err
	}
	limits, err := stint.New(p.Options()...)
	if err != nil {
		return nil, nil, err
	}
	watcher, err := policy.Watch(ctx, file, limits, opts...)
	if err != nil {
		return nil, nil, err
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "items") })
	mux.HandleFunc("POST /reports", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a report") })
	mux.HandleFunc("POST /signup", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := watcher.Err(); err != nil {
			fmt.Fprintf(w, "up, with earlier limits than the file's:\n%v\n", err)
			return
		}
		fmt.Fprintln(w, "up")
	})
	return stinthttp.Middleware(limits)(mux), watcher, nil
}
