package replay_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// pipes is a network of one server, in a bubble's time.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.calls <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// arrived is a request that a server has decided.
type arrived struct {
	key    string
	at     time.Time
	denied bool
}

// concurrently has a server serve clients that send at once, and near the instants at which a token
// comes. It returns what it has decided, in the order in which it logs: requests that arrive at one
// instant are logged in another order than they were decided in.
func concurrently(t *testing.T, lim *stint.Limiter, seed uint64, jitter time.Duration) (all []arrived) {
	var mu sync.Mutex
	network := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := arrived{r.Header.Get("X-Api-Key"), time.Now(), true}
			lim.Serve(w, r, func(http.ResponseWriter, *http.Request) { a.denied = false })
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		}),
	}
	var serving, clients sync.WaitGroup
	serving.Go(func() { _ = server.Serve(network) })
	transport := &http.Transport{DialContext: network.dial}
	client := &http.Client{Transport: transport}
	rnd := rand.New(rand.NewPCG(seed, 41))
	for key := range 150 {
		after := time.Duration(rnd.IntN(1000)) * time.Millisecond
		for range 12 {
			after += time.Duration(rnd.IntN(4)) * tokenEvery / 2
			at := after + jitter + time.Duration(rnd.Int64N(int64(3*jitter))) - time.Duration(rnd.Int64N(int64(2*jitter)))
			clients.Go(func() {
				time.Sleep(at)
				r, _ := http.NewRequest("GET", "http://api.test/", nil)
				r.Header.Set("X-Api-Key", fmt.Sprint("key-", key))
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				res.Body.Close()
			})
		}
	}
	clients.Wait()
	transport.CloseIdleConnections()
	_ = server.Close()
	serving.Wait()
	return all
}

const tokenEvery, bucketHolds = 20_300 * time.Microsecond, 3

// differs follows the decisions of a server on a key by the times of its log, and returns how many the
// rule would decide otherwise at these times. Each of them must lie within the log's resolution of
// the instant from which it would be decided as it was. Of requests with one logged time, those that
// were allowed count as the first.
func differs(t *testing.T, key []arrived, resolution time.Duration) (n int64) {
	t.Helper()
	slices.SortStableFunc(key, func(a, b arrived) int {
		if c := a.at.Compare(b.at); c != 0 || a.denied == b.denied {
			return c
		} else if a.denied {
			return 1
		}
		return -1
	})
	var full time.Time // when the bucket is full again
	for _, a := range key {
		after := a.at
		if full.After(after) {
			after = full
		}
		after = after.Add(tokenEvery)
		short := after.Sub(a.at) - bucketHolds*tokenEvery
		if denied := short > 0; denied != a.denied {
			n++
			if short.Abs() > resolution {
				t.Errorf("%s at %v: denied: %v, though it is %v from the boundary, at a resolution of %v", a.key, a.at, a.denied, short, resolution)
			}
		}
		if !a.denied {
			full = after
		}
	}
	return n
}

// The plan of a log whose clients sent concurrently differs from what the server has decided only
// where a decision lies within the log's resolution of a boundary: each such decision changes what a
// key is denied by one at most, and a key without one is denied the same. At the resolution of the
// decisions there are none.
func TestDifferencesLieWithinTheResolution(t *testing.T) {
	newLimiter := made(stint.Rate(1, tokenEvery, stint.WithBurst(bucketHolds)), stint.WithKey(stint.Header("X-Api-Key")), stint.WithoutWarnings())
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			decided := concurrently(t, stint.Must(newLimiter()), seed, time.Millisecond)
			for _, resolution := range []time.Duration{time.Millisecond, time.Microsecond} {
				says := everything
				says.Took, says.Resolution = false, resolution
				keys, denied := map[string][]arrived{}, map[string]int64{}
				var requests []replay.Request
				for _, a := range decided {
					a.at = a.at.Truncate(resolution)
					keys[a.key] = append(keys[a.key], a)
					if a.denied {
						denied[a.key]++
					}
					requests = append(requests, replay.Request{End: a.at, Method: "GET", Target: "/", Status: 200, Fields: []string{a.key}})
				}
				planned := map[string]int64{}
				for _, k := range run(t, newLimiter, says, requests, replay.WithTop(1000)).Scenarios[0].Top {
					planned[k.Key] = k.Denied
				}
				near, others, equal := int64(0), 0, 0
				for key, all := range keys {
					n := differs(t, all, resolution)
					near += n
					if d := planned[key] - denied[key]; max(d, -d) > n {
						t.Errorf("%s: %d denied, by the server %d, with %d decisions near a boundary", key, planned[key], denied[key], n)
					} else if d != 0 {
						others++
					} else if n == 0 && denied[key] > 0 {
						equal++
					}
				}
				if coarse := resolution == time.Millisecond; coarse != (near > 0) || coarse != (others > 0) || equal < 10 {
					t.Errorf("seed %d, at %v: %d decisions near a boundary, %d keys that differ, %d that don't", seed, resolution, near, others, equal)
				}
			}
		})
	}
}
