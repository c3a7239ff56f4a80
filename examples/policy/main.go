// Command policy reads its limits from a file and follows it: change policy.yaml while
// it runs. A change with a mistake is rejected and the last good limits stay. The log
// and /healthz say what to write instead.
//
//	go run ./examples/policy
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	_ "time/tzdata" // for machines without a zone database

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/policy"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	file := flag.String("policy", "", "file with the limits; by default a copy of policy.yaml to try things with")
	flag.Parse()

	if *file == "" {
		*file = filepath.Join(os.TempDir(), "policy.yaml")
		if err := os.WriteFile(*file, shipped, 0o600); err != nil {
			log.Fatal(err)
		}
	}
	server, _, err := api(context.Background(), *file)
	if err != nil {
		log.Fatal(err) // every mistake in the file, a line for each
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(usage, listener.Addr(), *file)
	log.Fatal(http.Serve(listener, server))
}

//go:embed policy.yaml
var shipped []byte

const usage = `policy listens on http://%[1]v with the limits of %[2]s.
Try, in another terminal: a change takes effect, and one with a mistake is rejected.

  curl -si -H 'X-Tenant: small' http://%[1]v/items | grep -i ratelimit
  sed -i.old 's/10\/1s/5\/1s/' %[2]s; sleep 1; curl -si -H 'X-Tenant: small' http://%[1]v/items | grep -i ratelimit
  sed -i.old 's/burst/brust/' %[2]s; sleep 1; curl -s http://%[1]v/healthz

`

// Functions that the file names.
var registered = []policy.Option{
	policy.WithKey("tenant", stint.Header("X-Tenant")),
	policy.WithPlanFunc(func(r *http.Request) (string, error) { return planOf[r.Header.Get("X-Tenant")], nil }),
}

// planOf stands for a database table.
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
