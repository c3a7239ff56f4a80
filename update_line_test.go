package stint_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Waiting requests ask the limit of that name as it now is, and are admitted when a
// newcomer would be. If it has become another kind of limit, the one that they wait for
// decides, and newcomers don't wait behind them.
func TestUpdateChangesWhatTheLineWaitsFor(t *testing.T) {
	name, second := stint.WithName("x"), time.Second
	wait, crowd := stint.WithMaxWait(2*time.Minute), stint.WithQueue(100)
	slots := func(n int64) stint.Limit { return stint.Concurrency(n, name, wait, crowd) }
	adaptive := func(min, max, start int64) stint.Limit {
		return stint.AdaptiveConcurrency(min, max, stint.WithInitialLimit(start), name, wait, crowd)
	}
	other := stint.Rate(1000, 1000*time.Hour, stint.WithName("other"))
	all := func(limits ...stint.Option) []stint.Option { return append(limits, theKey) }
	tests := []struct {
		name     string
		from, to []stint.Option
		want     string // how many go in when: eight come, one more with the update after 1 s; each works for 10 s
		charged  int64  // of the other limit
	}{
		{"a larger adaptive limit", all(adaptive(1, 1, 1)), all(adaptive(10, 10, 10)), "1 at 0s, 8 at 1s", 0},
		{"a smaller one", all(adaptive(3, 3, 3)), all(adaptive(1, 1, 1)), "3 at 0s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s", 0},
		{"slots that become adaptive", all(slots(1)), all(adaptive(1, 50, 2)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"adaptive ones that become slots", all(adaptive(1, 1, 1)), all(slots(4)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"before another limit", all(slots(1), other), all(slots(3), other), "1 at 0s, 2 at 1s, 1 at 10s, 2 at 11s, 1 at 20s, 2 at 21s", 9},
		{"behind another limit", all(other, adaptive(1, 1, 1)), all(other, adaptive(4, 4, 4)), "1 at 0s, 3 at 1s, 1 at 10s, 3 at 11s, 1 at 20s", 9},
		{"a rate that refuses", all(slots(1), other), all(stint.Rate(3, time.Hour, name), other), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 9},
		{"a rate that makes them wait", all(slots(1)), all(stint.Rate(1, second, name, wait)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"a queue", all(adaptive(1, 1, 1)), all(stint.Rate(2, second, name, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20))),
			"1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"what refuses nobody by itself", all(slots(2)), all(stint.Bandwidth(1<<20, name)), "2 at 0s, 1 at 1s, 2 at 10s, 2 at 20s, 2 at 30s", 0},
		{"nothing", all(slots(2)), all(other), "2 at 0s, 1 at 1s, 2 at 10s, 2 at 20s, 2 at 30s", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.from...)
				start := time.Now()
				var mu sync.Mutex
				in := map[time.Duration]int{}
				var wg sync.WaitGroup
				enter := func() {
					wg.Go(func() {
						through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
							mu.Lock()
							in[time.Since(start)]++
							mu.Unlock()
							time.Sleep(10 * time.Second)
						})
					})
					synctest.Wait()
				}
				for range 8 {
					enter()
				}
				time.Sleep(time.Second)
				update(t, l, tt.to...)
				synctest.Wait()
				enter()
				wg.Wait()
				var at []time.Duration
				for d := range in {
					at = append(at, d)
				}
				slices.Sort(at)
				var got []string
				for _, d := range at {
					got = append(got, fmt.Sprintf("%d at %v", in[d], d))
				}
				if s := strings.Join(got, ", "); s != tt.want {
					t.Errorf("got %s\nwant %s", s, tt.want)
				}
				noLines(t, l)
				update(t, l, all(slots(50), other)...)
				d, err := l.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if s := d.Limits[0]; s.InFlight != 0 {
					t.Errorf("%d slots are still held", s.InFlight)
				}
				if s := d.Limits[1]; s.Quota-s.Remaining != tt.charged {
					t.Errorf("the other limit was charged %d, want %d", s.Quota-s.Remaining, tt.charged)
				}
			})
		})
	}
}

// The same when a plan is loaded again: a request with the new limit stands behind
// those that came before, and those follow the new limit too.
func TestPlanChangesWhatTheLineWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := int64(1)
		l := limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{stint.AdaptiveConcurrency(most, most, stint.WithName("x"), stint.WithQueue(9), stint.WithMaxWait(time.Minute))}, nil
		}))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			if i == 9 {
				time.Sleep(time.Second)
				most = 20
			}
			wg.Go(func() {
				through(l, get("/"), func(http.ResponseWriter, *http.Request) {
					if after := time.Since(start); i > 0 && after != time.Second {
						t.Errorf("%d went in after %v, want 1s", i, after)
					}
					time.Sleep(10 * time.Second)
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		noLines(t, l)
	})
}

// A request may be charged for a limit twice, for two keys.
func TestUpdateOfALineOfTwoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, wait := stint.WithName("x"), stint.WithMaxWait(time.Minute)
		key := func(k string) stint.SharedOption {
			return stint.WithKey(func(*http.Request) (string, error) { return k, nil })
		}
		both := func(x stint.Limit) []stint.Option {
			return []stint.Option{x, key("base"), stint.WithRoute("/a", x, key("a"))}
		}
		l := limiter(t, both(stint.Concurrency(1, name, wait))...)
		for _, held := range []string{"base", "a"} {
			p, err := l.Take(t.Context(), held, 1)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				through(l, requested(t, "GET //a x"), func(_ http.ResponseWriter, r *http.Request) {
					for i, s := range stint.FromContext(r.Context()).Decision().Limits {
						waited := []string{"base", "a"}[i] == held
						if s.Name != "x" || s.InFlight != map[bool]int64{true: 2, false: 1}[waited] || (s.Delay == time.Second) != waited {
							t.Errorf("%s was held: %+v of %d", held, s, i)
						}
					}
				})
			})
			synctest.Wait()
			time.Sleep(time.Second)
			update(t, l, both(stint.Concurrency(2, name, wait))...)
			wg.Wait()
			p.Done()
			update(t, l, both(stint.Concurrency(1, name, wait))...)
		}
		noLines(t, l)
	})
}

// An inner limiter knows what was charged outside, even if the limit was replaced while
// the request waited for it.
func TestUpdateOfALineOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, wait := stint.WithName("x"), stint.WithMaxWait(time.Minute)
		l := limiter(t, theKey, stint.Concurrency(1, name, wait))
		inner, err := l.With(stint.Rate(9, time.Hour, stint.WithName("in")))
		if err != nil {
			t.Fatal(err)
		}
		first := take(t, l, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			w := through(l, get("/"), mount(inner, func(_ http.ResponseWriter, r *http.Request) {
				d := stint.FromContext(r.Context()).Decision()
				if len(d.Limits) != 2 || d.Limits[0].Name != "x" || d.Limits[0].InFlight != 2 || d.Limits[1].Name != "in" {
					t.Errorf("charged %+v, want each limit once", d.Limits)
				}
			}).ServeHTTP)
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
		synctest.Wait()
		update(t, l, theKey, stint.Concurrency(2, name, wait))
		wg.Wait()
		first.Done()
		noLines(t, l)
	})
}
