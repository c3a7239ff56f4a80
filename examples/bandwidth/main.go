// Command bandwidth serves files at a number of bytes per second for each API key, over
// all of the key's connections. The first quarter of a second's worth is free, so small
// files are as fast as before. Uploads count too.
//
//	go run ./examples/bandwidth
//
// With -redis, several of these servers share each key's bandwidth.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	rate := flag.Int64("rate", 1_000_000, "bytes per second for each key")
	dir := flag.String("dir", ".", "files to serve")
	server := flag.String("redis", "", "address of a Redis; by default each server counts for itself")
	flag.Parse()

	var counts store.Store = memstore.New()
	if *server != "" {
		shared := redisstore.New(redis.NewClient(&redis.Options{Addr: *server, DialerRetries: 1}))
		defer shared.Close()
		counts = shared
	}
	limits, err := limits(*rate, counts)
	if err != nil {
		log.Print(err)
		return
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Printf(usage, listener.Addr(), *rate, 2**rate)
	// No WriteTimeout: it would count the pauses.
	log.Print(http.Serve(listener, stinthttp.Middleware(limits)(files(*dir))))
}

const usage = `bandwidth listens on http://%[1]v and sends each API key %[2]d bytes a second.
Try, in another terminal: 2 s worth of bytes takes nearly 2 s, and 4 s if the key asks for it twice at once.

  curl -s -o /dev/null -w '%%{http_code} %%{time_total} s\n' -H 'X-API-Key: k1' 'http://%[1]v/zeros?bytes=%[3]d'
  for i in 1 2; do curl -s -o /dev/null -w '%%{http_code} %%{time_total} s\n' -H 'X-API-Key: k1' 'http://%[1]v/zeros?bytes=%[3]d' & done; wait

`

func limits(rate int64, counts store.Store) (*stint.Limiter, error) {
	return stint.New(
		stint.Bandwidth(rate, stint.WithName("bytes"), stint.WithDirection(stint.Both)),
		// Slow responses last longer, so bound how many each key has at a time.
		stint.Concurrency(16, stint.WithName("open")),
		stint.WithKey(stint.Header("X-API-Key")),
		stint.WithStore(counts),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventPaced {
				log.Printf("%s: %d bytes, held up for %v", e.Request.URL.Path, e.Pacing.Bytes+e.Pacing.RequestBytes,
					e.Pacing.Waited)
			}
		}),
	)
}

func files(dir string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("GET /zeros", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
		if err != nil || n < 0 {
			http.Error(w, "write ?bytes=1000000", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, zeros{}, n)
	})
	mux.HandleFunc("POST /count", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, "the body broke off", http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, n)
	})
	return mux
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
