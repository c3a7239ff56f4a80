package replay_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// tap is a server's log in JSON, with microseconds, and what its clients got.
type tap struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	end  time.Time
	text string
}

func (l *tap) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		h.ServeHTTP(w, r)
		end := time.Now()
		text, _ := json.Marshal(map[string]any{
			"end": end.Format("2006-01-02T15:04:05.000000Z07:00"), "took": end.Sub(start).Microseconds(), "key": r.Header.Get("X-Api-Key"),
			"method": r.Method, "target": r.RequestURI, "status": 200, // as the handler would have answered
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line{end, string(text)})
	})
}

// The numbers of a plan are those of a real server that enforces the limits, for clients that
// send one request after the other: its own log is replayed. The rates are so slow that the
// time of a request on its way to the decision makes no difference.
func TestRunEqualsAServer(t *testing.T) {
	newLimiter := func() (*stint.Limiter, error) {
		return stint.New(
			stint.Rate(30, 24*time.Hour, stint.WithBurst(7), stint.WithName("rate")),
			stint.Concurrency(1, stint.WithName("slots")),
			stint.Quota(6, stint.Monthly, stint.WithName("month")),
			stint.WithRoute("POST /login", stint.Rate(4, 24*time.Hour, stint.WithSettle(stint.RefundOn(404)), stint.WithName("login"))),
			stint.WithKey(stint.Header("X-Api-Key")))
	}
	var log tap
	lim := stint.Must(newLimiter())
	s := httptest.NewServer(log.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lim.Serve(w, r, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	})))
	defer s.Close()

	var mu sync.Mutex
	want := map[string]replay.Count{} // by key
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rnd, key := rand.New(rand.NewPCG(uint64(c), 1)), fmt.Sprint("client-", c)
			var count replay.Count
			for range 5 + c*2 {
				method, path := "GET", "/items"
				if rnd.IntN(3) == 0 {
					method, path = "POST", "/login"
				}
				r, _ := http.NewRequest(method, s.URL+path, nil)
				r.Header.Set("X-Api-Key", key)
				res, err := s.Client().Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if count.Requests++; res.StatusCode == http.StatusTooManyRequests {
					count.Denied++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			want[key] = count
		})
	}
	clients.Wait()
	s.Close() // which waits for the last lines

	slices.SortStableFunc(log.lines, func(a, b line) int { return a.end.Compare(b.end) })
	var file bytes.Buffer
	for _, l := range log.lines {
		fmt.Fprintln(&file, l.text)
	}
	parsed, err := replay.Read("server.json", &file, replay.WithField("end", "end"), replay.WithField("took", "took us"), replay.WithField("method", "method"),
		replay.WithField("target", "target"), replay.WithField("status", "status"), replay.WithField("header.X-Api-Key", "key"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := replay.Run(newLimiter, parsed, replay.WithTop(1000))
	if err != nil {
		t.Fatal(err)
	}
	total, denied := replay.Count{}, map[string]int64{}
	for key, c := range want {
		total.Requests += c.Requests
		total.Denied += c.Denied
		if c.Denied > 0 {
			denied[key] = c.Denied
		}
	}
	scenario := r.Scenarios[0]
	if len(r.NotJudged) > 0 || scenario.Count != total || total.Denied < 10 {
		t.Errorf("%+v, and the server denied %+v; not judged: %v", scenario.Count, total, r.NotJudged)
	}
	// A request that two limits deny counts for both: the quota denies all that the rate does.
	got := map[string]int64{}
	for _, k := range scenario.Top {
		if k.Limit == "month" || k.Limit == "login" {
			got[k.Key] += k.Denied
		}
	}
	if !reflect.DeepEqual(got, denied) {
		t.Errorf("denied by key: %v, by the server %v (keys %v)", got, denied, slices.Sorted(maps.Keys(want)))
	}
}
