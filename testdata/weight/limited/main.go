// Limited is the bare server with one Rate.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(".")))
	limit := stinthttp.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()))
	log.Fatal(http.ListenAndServe("localhost:8080", limit(mux)))
}
