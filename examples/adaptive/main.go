// Command adaptive loads a real HTTP server with half more requests than it can serve,
// while its capacity changes. Its backend has 40 workers, then 20, then 60, and each
// takes 100 ms for a request. The limiter isn't told. The program writes the limit and
// its effect as CSV:
//
//	go run ./examples/adaptive -algorithm vegas
//
// Without -algorithm it runs each for two minutes, which docs/plots draws:
//
//	go run ./examples/adaptive > docs/plots/adaptive.csv && make plots
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

func main() {
	algorithm := flag.String("algorithm", "all", "gradient2, gradient2-1, vegas, aimd, or all in turn")
	phase := flag.Duration("phase", 40*time.Second, "how long the workers stay as many")
	flag.Parse()
	fmt.Fprintf(os.Stderr, usage, *phase)
	fmt.Println(header)
	for _, a := range algorithms {
		if *algorithm == "all" || *algorithm == a.name {
			if err := serve(os.Stdout, a, *phase); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// usage is printed beside the rows, which may go to a file.
const usage = `adaptive runs by itself: half more load than a backend with 40 workers, then 20, then 60 can bear, for %v each.
Watch the limit follow the workers, and latency_ms stay near the 100 that the work takes
(aimd: below its timeout, 150; gradient2: its tolerance lets requests queue). Two rows a second:

`

type algorithm struct {
	name       string
	adaptation stint.Adaptation
}

// The work is uniform, so the limits follow the latency closely. AIMD's timeout allows
// a queue half as long as the work.
var algorithms = []algorithm{
	{"gradient2", stint.Gradient2(1.5)}, // the default
	{"gradient2-1", stint.Gradient2(1)},
	{"vegas", stint.Vegas()},
	{"aimd", stint.AIMD(150 * time.Millisecond)},
}

// limiter has one limit for the whole service. It adapts twice a second, since there
// are enough requests for that.
func limiter(a algorithm) *stint.Limiter {
	return stint.Must(stint.New(
		stint.AdaptiveConcurrency(4, 200, stint.WithAdaptation(a.adaptation), stint.WithSampleWindow(500*time.Millisecond)),
		stint.WithKey(stint.Global()),
	))
}

// service is the server's handler: it only waits for the backend.
func service(l *stint.Limiter, b *backend) http.Handler {
	return stinthttp.Middleware(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := b.work(r.Context()); err != nil {
			return // the client has left
		}
		fmt.Fprintln(w, "done")
	}))
}

// serve runs the server and its clients on this machine.
func serve(out io.Writer, a algorithm, phase time.Duration) error {
	l, b := limiter(a), newBackend()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: service(l, b), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	url := "http://" + listener.Addr().String()
	return simulate(out, a.name, l, b, phase, func() int {
		resp, err := client.Get(url)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	})
}

// backend is a pool of workers. A request that finds no free worker waits in line. So
// latency is the work alone while there are no more requests than workers, and rises
// from there.
type backend struct{ free chan struct{} }

const workTime = 100 * time.Millisecond

func newBackend() *backend { return &backend{free: make(chan struct{}, 1000)} }

func (b *backend) work(ctx context.Context) error {
	select {
	case <-b.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(workTime)
	b.free <- struct{}{}
	return nil
}

// hire changes the number of workers; those that leave finish their work.
func (b *backend) hire(from, to int) {
	for ; from < to; from++ {
		b.free <- struct{}{}
	}
	for ; from > to; from-- {
		<-b.free
	}
}
