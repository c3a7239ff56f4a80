// Command quickstart is a server with one limit: 10 requests in 10 seconds
// for each client address. Run it and try the lines it prints.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
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
	log.Fatal(http.Serve(listener, limited(http.HandlerFunc(hello))))
}

// limited adds the limit in one line: a bucket of 10 for each address, which gets a
// token back every second.
func limited(next http.Handler) http.Handler {
	return stinthttp.New(stint.Rate(10, 10*time.Second), stint.WithKey(stint.RemoteIP()))(next)
}

func hello(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "hello")
}

const usage = `quickstart listens on http://%[1]v and allows each address 10 requests in 10 s.
Try, in another terminal:

  curl -s -o /dev/null -w '%%{http_code} %%header{ratelimit}\n' 'http://%[1]v/?[1-12]'
  curl -i http://%[1]v/

`
