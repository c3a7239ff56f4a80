package stint_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// besides runs n clients until stop ends, each of which asks again as soon as it has its
// answer, and returns when all have gone.
func besides(n int, stop context.Context, ask func(client int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for stop.Err() == nil {
				ask(i)
			}
		})
	}
	all.Wait()
}

// leavers are clients that ask for something and leave long before their turn.
var leavers = []struct {
	name string
	n    int
	do   func(client int) http.HandlerFunc
}{
	{"four", 4, func(int) http.HandlerFunc { return send(megabyte, megabyte) }},
	{"sixteen", 16, func(int) http.HandlerFunc { return send(megabyte, megabyte) }},
	{"of small answers", 16, func(int) http.HandlerFunc { return send(100, 100) }},
	{"of answers that differ", 16, func(i int) http.HandlerFunc { return send(1+3000*i, 1+3000*i) }},
	{"of declared answers", 16, func(i int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1+10_000*i))
			send(1+10_000*i, 1000)(w, r)
		}
	}},
}

// stay is how long a leaver waits.
const stay = 30 * time.Millisecond

// leave asks through l and leaves after a while.
func leave(l *stint.Limiter, do http.HandlerFunc) (got int) {
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	time.AfterFunc(stay, gone)
	return through(l, get("/").WithContext(ctx), do).Body.Len()
}

// However many clients ask and leave before their turn, whoever stays gets the rate.
func TestBandwidthBesideLeavers(t *testing.T) {
	for _, tt := range leavers {
		for _, stayers := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				const span = 5 * time.Second
				l := limiter(t, theKey, stint.Bandwidth(megabyte))
				through(l, get("/"), send(250_000, 250_000)) // what passes at once
				stop, end := context.WithCancel(t.Context())
				time.AfterFunc(span, end)
				var sent, taken atomic.Int64
				go besides(stayers, stop, func(int) {
					through(l, get("/").WithContext(stop), func(w http.ResponseWriter, _ *http.Request) {
						for stop.Err() == nil {
							n, err := w.Write(make([]byte, 10_000))
							if sent.Add(int64(n)); err != nil {
								return
							}
						}
					})
				})
				time.Sleep(100 * time.Millisecond)
				besides(tt.n, stop, func(i int) { taken.Add(int64(leave(l, tt.do(i)))) })
				synctest.Wait()
				got, all := sent.Load(), sent.Load()+taken.Load()
				if all < 48*megabyte/10 || got < all/2 || all > 5*megabyte+125_000 {
					t.Errorf("%s, %d stay: %d bytes in %v, %d with those of leavers", tt.name, stayers, got, span, all)
				}
			})
		}
	}
}

// stalled is a request's body of which one byte comes, and the rest much later.
type stalled struct {
	first bool
	till  context.Context
}

func (s *stalled) Read(p []byte) (int, error) {
	if !s.first {
		s.first = true
		return copy(p, "x"), nil
	}
	<-s.till.Done()
	return 0, io.ErrUnexpectedEOF
}

// Uploads that stall hold nothing of what others wait for.
func TestBandwidthBesideStalledUploads(t *testing.T) {
	took := func(stalls int) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Bandwidth(megabyte, stint.WithRequestBytes()))
			stop, end := context.WithCancel(t.Context())
			upload := func(ctx context.Context, body io.Reader) {
				r := httptest.NewRequest("POST", "/", body).WithContext(ctx)
				r.ContentLength = megabyte
				through(l, r, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			}
			for range stalls {
				go upload(stop, &stalled{till: stop})
			}
			synctest.Wait()
			start := time.Now()
			upload(t.Context(), io.LimitReader(zeros{}, megabyte))
			took = time.Since(start)
			end()
			synctest.Wait()
		})
		return took
	}
	alone, beside := took(0), took(300)
	if more := beside - alone; alone < 700*time.Millisecond || more > time.Millisecond {
		t.Errorf("an upload takes %v alone, and %v beside 300 that stall", alone, beside)
	}
}

// The same over connections, on Redis: by its clock what stays gets of a second, beside what
// could pass. Only the ratio counts.
func TestBandwidthBesideLeaversOnRedis(t *testing.T) {
	const rate = 1_000_000
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	l := limiter(t, theKey, stint.Bandwidth(rate, stint.WithName("bandwidth")), stint.WithStore(s))
	srv := httptest.NewServer(mount(l, func(w http.ResponseWriter, r *http.Request) { send(2*rate, 10_000)(w, r) }))
	defer srv.Close()
	ask := func(ctx context.Context) (n int64) {
		r, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		n, _ = io.Copy(io.Discard, resp.Body)
		return n
	}
	stop, end := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		besides(16, stop, func(int) {
			ctx, leave := context.WithTimeout(stop, stay)
			defer leave()
			ask(ctx)
		})
	}()
	start := time.Now()
	got := ask(t.Context())
	took := time.Since(start)
	end()
	<-gone
	if got != 2*rate || took > 6*time.Second { // 2 s alone; never, if leavers keep their turns
		t.Errorf("%d bytes of %d in %v", got, 2*rate, took)
	}
}
