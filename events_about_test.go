package stint_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// An event without a decision still says what it is about: the limiter, the route, and
// each limit with its key.
func TestEventsKnowWhatTheyAreAbout(t *testing.T) {
	name := stint.WithName("x")
	fails := func() store.Store { s := newSpy(); s.failWith(errDown); return s }
	settles := func() store.Store { return &unsettled{spy: newSpy()} }
	write := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }
	rate := stint.Rate(9, time.Hour, name)
	tests := []struct {
		kind  stint.EventKind
		limit stint.RouteOption
		more  []stint.Option
		store store.Store
		do    http.HandlerFunc
		n     int
		want  string
	}{
		{kind: stint.EventBlocked, limit: rate, more: []stint.Option{stint.WithBlock(func(*http.Request) bool { return true })}, want: ""},
		{kind: stint.EventEmptyKey, limit: stint.Rate(9, time.Hour, name, stint.WithKey(stint.Header("X-None"))), want: "x"},
		{kind: stint.EventKeyFailed, limit: stint.Rate(9, time.Hour, name, stint.WithKey(func(*http.Request) (string, error) { return "", errDown })), want: "x"},
		{kind: stint.EventStoreFailed, limit: rate, store: fails(), want: "x, x of k cost 1"},
		{kind: stint.EventSettleFailed, limit: rate, store: settles(), do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "x, x of k cost 4"},
		{kind: stint.EventSettleFailed, limit: stint.Concurrency(9, name), store: settles(), want: "x, x of k cost 0"},
		{kind: stint.EventSettleFailed, limit: stint.Rate(9, time.Hour, name, stint.WithSettle(func(*http.Request, int, int64) int64 { return 7 })),
			store: settles(), want: "x, x of k cost 7"},
		{kind: stint.EventWaiting, limit: stint.Rate(1, time.Second, name, stint.WithMaxWait(time.Minute)), n: 2, want: "x, x of k cost 1"},
		{kind: stint.EventPaced, limit: stint.Bandwidth(4096, name), do: write, want: "x, x of k cost 0"},
		{kind: stint.EventLimitChanged, limit: stint.AdaptiveConcurrency(1, 30, stint.WithSampleWindow(100*time.Millisecond), name),
			do: func(_ http.ResponseWriter, r *http.Request) {
				stint.FromContext(r.Context()).Drop()
				time.Sleep(11 * time.Millisecond)
			}, n: 12, want: "x, x of k cost 1"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.kind, " ", tt.want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				opts := append(tt.more, stint.WithRoute("GET /users/{id}", tt.limit), theKey, stint.WithLimiterName("front"),
					stint.WithObserver(func(e stint.Event) {
						if e.Kind != tt.kind {
							return
						}
						about := []string{e.Decision.Limit}
						for i, l := range e.Decision.Limits {
							about = append(about, fmt.Sprintf("%s of %s cost %d", l.Name, e.Key(i), l.Cost))
						}
						told = append(told, e.Limiter+" "+e.Route+": "+strings.Join(about, ", "))
					}))
				if tt.store != nil {
					opts = append(opts, stint.WithStore(tt.store))
				}
				l := limiter(t, opts...)
				for range max(tt.n, 1) {
					through(l, get("/users/42"), func(w http.ResponseWriter, r *http.Request) {
						if tt.do != nil {
							tt.do(w, r)
						}
					})
				}
				if want := "front GET /users/{id}: " + tt.want; len(told) == 0 || slices.ContainsFunc(told, func(got string) bool { return got != want }) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		})
	}
}

// The time of each store call is reported by exactly one event: the outcome of the
// decision, the settlement, or the end.
func TestEventsTellWhatSettlingTook(t *testing.T) {
	name := stint.WithName("x")
	two := stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })
	tests := []struct {
		name  string
		limit stint.Option
		fails int64
		do    http.HandlerFunc
		want  string
	}{
		{name: "nothing settled", limit: stint.Rate(9, time.Hour, name), want: "Admitted 30ms, Ended 0s"},
		{name: "slots", limit: stint.Concurrency(9, name), want: "Admitted 30ms, Ended 7ms"},
		{name: "at the end", limit: stint.Rate(9, time.Hour, name, two), want: "Admitted 30ms, Settled 7ms, Ended 0s"},
		{name: "by hand", limit: stint.Rate(9, time.Hour, name), do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "Admitted 30ms, Settled 7ms, Ended 0s"},
		{name: "in vain", limit: stint.Concurrency(9, name), fails: 1, want: "Admitted 30ms, SettleFailed 7ms, Ended 0s"},
		{name: "by hand in vain", limit: stint.Rate(9, time.Hour, name), fails: 1, do: func(_ http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 4)
		}, want: "Admitted 30ms, SettleFailed 7ms, Ended 0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				s := &slow{Store: memstore.New(), take: 30 * time.Millisecond, settle: 7 * time.Millisecond, fails: tt.fails}
				l := limiter(t, tt.limit, theKey, stint.WithStore(s), stint.WithObserver(func(e stint.Event) {
					told = append(told, fmt.Sprint(e.Kind, " ", e.StoreTook))
				}))
				through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
					if tt.do != nil {
						tt.do(w, r)
					}
				})
				if got := strings.Join(told, ", "); got != tt.want {
					t.Errorf("told %s, want %s", got, tt.want)
				}
			})
		})
	}
}
