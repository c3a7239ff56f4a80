package stint_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// briefs writes down what a BriefObserver gets.
type briefs struct {
	got   []string
	nears map[uint8]int // requests in flight
}

func (b *briefs) Observe(e stint.Event) { b.got = append(b.got, e.Kind.String()) }

func (b *briefs) Passed(near uint8, route string, charges []store.Charge, results []store.Result, storeTook time.Duration) {
	line := fmt.Sprint("passed ", route, " ", storeTook)
	for i, c := range charges {
		line += fmt.Sprintf(", %s of %s cost %d left %d", c.Limit.Name(), c.Key, c.Cost, results[i].Remaining)
	}
	b.got = append(b.got, line)
	if b.nears == nil {
		b.nears = map[uint8]int{}
	}
	b.nears[near]++
}

func (b *briefs) Ended(near uint8) {
	b.got = append(b.got, "ended")
	b.nears[near]--
}

// Plain requests that pass are told in brief, everything else by events; and other
// observers get events of everything.
func TestBriefObserver(t *testing.T) {
	name := stint.WithName("x")
	rate := stint.Rate(1, time.Hour, name)
	const passed = "passed GET /a/{id} 30ms, x of k cost 1 left 0; ended"
	tests := []struct {
		name   string
		limits []stint.RouteOption
		n      int
		brief  string
		whole  string // what an observer beside it gets
	}{
		{"a rate", []stint.RouteOption{rate}, 1, passed, "Admitted Ended"},
		{"two", []stint.RouteOption{rate, stint.Quota(9, stint.Daily, stint.WithName("daily"))}, 1, "passed GET /a/{id} 30ms, x of k cost 1 left 0, daily of k cost 1 left 8; ended", "Admitted Ended"},
		{"a refusal", []stint.RouteOption{rate}, 2, passed + "; Denied", "Admitted Ended Denied"},
		{"a ban", []stint.RouteOption{rate, stint.Ban(1, time.Hour, time.Hour, stint.WithName("ban"))}, 2,
			"passed GET /a/{id} 30ms, x of k cost 1 left 0, ban of k cost 1 left 1; ended; Denied; Banned", "Admitted Ended Denied Banned"},
		{"a dry run", []stint.RouteOption{stint.Rate(1, time.Hour, name, stint.WithDryRun())}, 2,
			passed + "; Admitted; DryRunDenied; Ended", "Admitted Ended Admitted DryRunDenied Ended"},
		{"slots", []stint.RouteOption{stint.Concurrency(1, name)}, 1, "Admitted; Ended", "Admitted Ended"},
		{"a turn", []stint.RouteOption{stint.Rate(9, time.Second, name, stint.WithMaxWait(time.Second))}, 1, "Admitted; Ended", "Admitted Ended"},
		{"settled by the response", []stint.RouteOption{stint.Rate(9, time.Hour, name, stint.WithSettle(stint.FailedOnly))}, 1,
			"Admitted; Settled; Ended", "Admitted Settled Ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, beside := range []bool{false, true} {
					var brief briefs
					var whole []string
					s := &slow{Store: memstore.New(), take: 30 * time.Millisecond}
					l := limiter(t, theKey, stint.WithStore(s), stint.Rate(99, time.Hour, stint.WithName("other")), stint.WithRoute("GET /a/{id}", tt.limits...))
					if beside {
						l.Observe(func(e stint.Event) { whole = append(whole, e.Kind.String()) })
					}
					stop := l.ObserveBriefly(&brief)
					ask := func() {
						through(l, get("/a/1"), func(_ http.ResponseWriter, r *http.Request) { stint.FromContext(r.Context()).Done() })
					}
					for range tt.n {
						ask()
					}
					if got := strings.Join(brief.got, "; "); got != tt.brief {
						t.Errorf("told in brief\n%s\nwant\n%s", got, tt.brief)
					}
					for near, n := range brief.nears {
						if n != 0 || near > 63 {
							t.Errorf("%d requests of near %d haven't ended", n, near)
						}
					}
					if got := strings.Join(whole, " "); beside && got != tt.whole {
						t.Errorf("another observer got %s, want %s", got, tt.whole)
					}
					stop()
					brief.got = nil
					ask()
					if len(brief.got) > 0 {
						t.Errorf("told after stop: %q", brief.got)
					}
				}
			})
		})
	}
}

// Outside HTTP, and by a limiter that is derived.
func TestBriefObserverOfCalls(t *testing.T) {
	var brief briefs
	parent := limiter(t, stint.WithKey(stint.GivenKey()), stint.Rate(9, time.Hour, stint.WithName("x")))
	parent.ObserveBriefly(&brief)
	parent.ObserveBriefly(nil)
	l := stint.Must(parent.With())
	if err := l.Allow(t.Context(), "k", 2); err != nil {
		t.Fatal(err)
	}
	p := take(t, l, 3)
	release := p.Detach()
	p.Done()
	release()
	for i, want := range []string{"passed  ", "ended", "passed  ", "ended"} {
		if len(brief.got) != 4 || !strings.HasPrefix(brief.got[i], want) {
			t.Fatalf("told %q", brief.got)
		}
	}
}

// nothing is a BriefObserver that only counts.
type nothing struct{ passed int }

func (n *nothing) Observe(stint.Event) {}
func (n *nothing) Passed(uint8, string, []store.Charge, []store.Result, time.Duration) {
	n.passed++
}
func (n *nothing) Ended(uint8) {}

func TestBriefObserversAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and pools lose things on purpose")
	}
	w, r := &discard{h: http.Header{}}, get("/")
	allocs := func(l *stint.Limiter) float64 {
		w.request(l, r)
		return testing.AllocsPerRun(1000, func() { w.request(l, r) })
	}
	l, n := limiter(t, theKey, ample()), nothing{}
	without := allocs(l)
	l.ObserveBriefly(&n)
	if got := allocs(l); got > without || n.passed < 1000 {
		t.Errorf("%v allocations a request, %v without it; %d passed", got, without, n.passed)
	}
}

// However many end a permit at once, it ends once.
func TestBriefObserverIsToldOnceOfAnEnd(t *testing.T) {
	var brief briefs
	l := limiter(t, theKey, ample())
	l.ObserveBriefly(&brief)
	p := take(t, l, 1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(p.Done)
	}
	all.Wait()
	if got := strings.Count(strings.Join(brief.got, " "), "ended"); got != 1 {
		t.Errorf("ended %d times", got)
	}
}
