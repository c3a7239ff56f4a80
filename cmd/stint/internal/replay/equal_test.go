package replay_test

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// sliceLog is a log in memory.
type sliceLog struct {
	says replay.Says
	rest []replay.Request
}

func (l *sliceLog) Says() replay.Says { return l.says }

func (l *sliceLog) Next(r *replay.Request) error {
	if len(l.rest) == 0 {
		return io.EOF
	}
	*r, l.rest = l.rest[0], l.rest[1:]
	return nil
}

var everything = replay.Says{Resolution: time.Microsecond, Took: true, Peer: true, Host: true, Status: true, Fields: []string{"X-Api-Key"}}

// outcome counts what became of requests with one key under one limit.
type outcome struct{ requests, denied int64 }

// A run says what a limiter would have done that served the same requests at the same times:
// for rates with bursts and turns, quotas of the calendar, slots, costs that are settled by the
// status, routes, dry runs and bans, one beside the other.
func TestRunEqualsALimiter(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compare(t, seed) })
		})
	}
}

func compare(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 23))
	key := stint.WithKey(stint.FirstOf(stint.Header("X-Api-Key"), stint.RemoteIP()))
	options := []stint.Option{
		stint.Rate(4, time.Second, stint.WithBurst(6), stint.WithName("rate")),
		stint.Quota(70, stint.Hourly, stint.WithName("quota")),
		stint.Rate(45, time.Second, stint.WithAlgorithm(stint.SlidingWindow), stint.WithKey(stint.Global()), stint.WithName("all")),
		stint.Concurrency(3, stint.WithName("slots")),
		stint.Rate(2, time.Second, stint.WithName("tighter"), stint.WithDryRun(true)),
		stint.Ban(12, time.Minute, stint.WithBanFor(20*time.Second), stint.WithName("ban")),
		stint.WithRoute("POST /login", stint.Rate(6, time.Minute, stint.WithSettle(stint.FailedOnly), stint.WithName("login"))),
		stint.WithRoute("/slow/", stint.Only(stint.Rate(2, time.Second, stint.WithMaxWait(3*time.Second), stint.WithName("turns")))),
		stint.WithRoute("/healthz", stint.Exempt()),
		stint.WithLogger(slog.New(slog.DiscardHandler)),
		key,
	}
	newLimiter := func() (*stint.Limiter, error) { return stint.New(options...) }

	// Arrivals are at even microseconds, ends at odd ones.
	begin := time.Now()
	var requests []replay.Request
	at := time.Duration(0)
	targets := []struct{ method, target string }{
		{"GET", "/items/7?page=2"}, {"POST", "/login"}, {"GET", "/slow/report"}, {"GET", "/healthz"}, {"GET", "/a%20b"},
	}
	for range 4000 {
		at += time.Duration(rnd.ExpFloat64()*4_000) * 2 * time.Microsecond
		r := replay.Request{Took: time.Duration(rnd.ExpFloat64()*60_000)*2*time.Microsecond + time.Microsecond, Status: 200, Host: "api.test"}
		to := targets[min(rnd.IntN(10)/2, 4)]
		r.Method, r.Target = to.method, to.target
		r.Peer = fmt.Sprintf("192.0.2.%d", 1+min(rnd.IntN(12), rnd.IntN(12)))
		r.Fields = []string{""}
		if rnd.IntN(3) == 0 {
			r.Fields[0] = fmt.Sprintf("key-%d", rnd.IntN(3))
		}
		if rnd.IntN(3) == 0 {
			r.Status = 403
		}
		r.End = begin.Add(at + r.Took)
		requests = append(requests, r)
	}

	var mu sync.Mutex
	want, denied, waited := map[string]outcome{}, 0, 0
	lim := stint.Must(newLimiter())
	lim.Observe(func(e stint.Event) {
		if e.Kind != stint.EventAdmitted && e.Kind != stint.EventDenied {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == stint.EventDenied {
			denied++
		} else if e.Waited > 0 {
			waited++
		}
		for i, l := range e.Decision.Limits {
			o := want[l.Name+" "+e.Key(i)]
			if o.requests++; !l.Allowed {
				o.denied++
			}
			want[l.Name+" "+e.Key(i)] = o
		}
	})
	var served sync.WaitGroup
	for _, r := range requests {
		served.Go(func() {
			time.Sleep(r.End.Add(-r.Took).Sub(begin))
			req := httptest.NewRequest(r.Method, "http://"+r.Host+r.Target, nil)
			req.RemoteAddr = r.Peer + ":1234"
			if r.Fields[0] != "" {
				req.Header.Set("X-Api-Key", r.Fields[0])
			}
			lim.Serve(httptest.NewRecorder(), req, func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(r.Took)
				w.WriteHeader(r.Status)
			})
		})
	}
	served.Wait()

	slices.SortStableFunc(requests, func(a, b replay.Request) int { return cmp.Or(a.End.Compare(b.End), 0) })
	got, err := replay.Run(newLimiter, &sliceLog{everything, requests}, replay.WithTop(1000))
	if err != nil {
		t.Fatal(err)
	}
	s := got.Scenarios[0]
	if s.Name != replay.AsLogged || len(got.Scenarios) != 1 || len(got.NotJudged) > 0 || len(s.Unjudged) > 0 {
		t.Fatalf("%d scenarios, the first %s; not judged: %v, %v", len(got.Scenarios), s.Name, got.NotJudged, s.Unjudged)
	}
	if s.Denied != int64(denied) || s.Waited != int64(waited) {
		t.Errorf("%d denied and %d waited, of a limiter %d and %d", s.Denied, s.Waited, denied, waited)
	}
	if denied == 0 || waited == 0 {
		t.Errorf("%d denied, %d waited: nothing is compared", denied, waited)
	}
	sums := map[string]outcome{}
	for name, o := range want {
		var limit, key string
		if _, err := fmt.Sscan(name, &limit, &key); err != nil {
			t.Fatal(err)
		}
		sum := sums[limit]
		sum.requests += o.requests
		sum.denied += o.denied
		sums[limit] = sum
		if o.denied > 0 && !slices.ContainsFunc(s.Top, func(k replay.KeyReport) bool {
			return k.Limit == limit && k.Key == key && k.Requests == o.requests && k.Denied == o.denied
		}) {
			t.Errorf("%s: %+v, and not in the report", name, o)
		}
	}
	for _, l := range s.Limits {
		if l.Denied == 0 {
			t.Errorf("limit %s denies nothing: nothing is compared", l.Limit)
		}
		if sum := sums[l.Limit]; l.Requests != sum.requests || l.Denied != sum.denied {
			t.Errorf("limit %s: %d of %d denied, by a limiter %d of %d", l.Limit, l.Denied, l.Requests, sum.denied, sum.requests)
		}
		delete(sums, l.Limit)
	}
	if len(sums) > 0 {
		t.Errorf("not in the report: %v", sums)
	}
}
