// Command bolt keeps a quota in a file, in a store of its own: package boltstore, beside it.
// Stop the program and start it with the same file: what was used is still used.
//
//	go run ./examples/bolt
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/examples/bolt/boltstore"
	bolt "go.etcd.io/bbolt"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	file := flag.String("db", "", "file of the database; by default one in a new directory")
	flag.Parse()
	if err := run(*addr, *file); err != nil {
		log.Fatal(err)
	}
}

func run(addr, file string) error {
	if file == "" {
		dir, err := os.MkdirTemp("", "stint")
		if err != nil {
			return err
		}
		file = filepath.Join(dir, "limits.db")
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{Timeout: time.Second}) // another process may have it
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer func() { _ = db.Close() }() // every call has been synced: nothing is lost
	server, err := api(db)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf(usage, listener.Addr(), file)
	return http.Serve(listener, server)
}

const usage = `bolt listens on http://%[1]v and counts in %[2]s.
Try, in another terminal, and again after a restart with -db %[2]s:

  for i in 1 2 3 4; do curl -si http://%[1]v/items | grep -iE '^HTTP|^ratelimit:'; done

`

// api allows each address three requests a day, counted in db.
func api(db *bolt.DB) (http.Handler, error) {
	states, err := boltstore.New(db)
	if err != nil {
		return nil, err
	}
	limits, err := stint.New(
		stint.Quota(3, stint.Daily, stint.WithName("daily")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(states),
	)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "items") })
	return stinthttp.Middleware(limits)(mux), nil
}
