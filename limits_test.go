package stint_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// The numbers that other limiters are known by, through this one's front door.

// polls makes each of the callers ask n times, every so often, and returns how
// many passed.
func polls(l *stint.Limiter, callers, n int, every time.Duration) (passed int) {
	for range n {
		for range callers {
			if _, err := l.Take(context.Background(), "k", 1); err == nil {
				passed++
			}
		}
		time.Sleep(every)
	}
	return passed
}

func TestNumbersOfTheSources(t *testing.T) {
	second := time.Second
	type round struct {
		callers, n int
		every      time.Duration
	}
	tests := []struct {
		name   string
		limits []stint.Option
		rounds []round
		want   []int // passed in each round
	}{
		{"a rate that prepays beside a larger one: charged is what was served",
			[]stint.Option{stint.Rate(10, second, stint.WithDebt()), stint.Rate(80, 60*second, stint.WithAlgorithm(stint.FixedWindow))},
			slices.Repeat([]round{{100, 1, 5 * second}}, 9), []int{11, 11, 11, 11, 11, 11, 11, 3, 0}},
		{"no refill is lost to polling", []stint.Option{stint.Rate(2, second)},
			[]round{{2, 20, 200 * time.Millisecond}}, []int{9}},
		{"greedy: one every 12 s", []stint.Option{stint.Rate(5, time.Minute)},
			[]round{{5, 1, 11 * second}, {1, 1, second}, {3, 1, 12 * second}, {3, 1, 48 * second}}, []int{5, 0, 1, 1}},
		{"interval: five at 60 s", []stint.Option{stint.Rate(5, time.Minute, stint.WithAlgorithm(stint.IntervalBucket))},
			[]round{{6, 1, 59 * second}, {6, 1, second}, {6, 1, 0}}, []int{5, 0, 5}},
		{"across the edge of a fixed window", []stint.Option{stint.Rate(10, time.Minute, stint.WithAlgorithm(stint.FixedWindow))},
			[]round{{1, 1, 59 * second}, {10, 1, second}, {20, 1, 0}}, []int{1, 9, 10}},
		{"across the edge of a sliding one", []stint.Option{stint.Rate(10, time.Minute, stint.WithAlgorithm(stint.SlidingWindow))},
			[]round{{1, 1, 59 * second}, {10, 1, second}, {20, 1, 0}}, []int{1, 9, 1}},
		{"nginx: 6r/m and 10r/s, nodelay", []stint.Option{stint.Rate(6, time.Minute, stint.WithBurst(6)), stint.Rate(10, second, stint.WithBurst(1))},
			[]round{{2, 1, 100 * time.Millisecond}, {2, 10, 100 * time.Millisecond}, {1, 1, 0}}, []int{1, 5, 0}},
		{"a second rate charges nothing the first denies",
			[]stint.Option{stint.Rate(10, second), stint.Rate(100, time.Minute, stint.WithAlgorithm(stint.FixedWindow))},
			[]round{{15, 60, second}}, []int{100}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, append(tt.limits, theKey)...)
				var got []int
				for _, r := range tt.rounds {
					got = append(got, polls(l, r.callers, r.n, r.every))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("passed %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWarmUpCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(5, time.Second, stint.WithWarmUp(4*time.Second)))
		var got []time.Duration
		for range 12 {
			start := time.Now()
			if _, err := l.Wait(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			got = append(got, time.Since(start))
		}
		if want := millis(0, 580, 540, 500, 460, 420, 380, 340, 300, 260, 220, 200); !slices.Equal(got, want) {
			t.Errorf("waited %v, want %v", got, want)
		}
	})
}

// However many goroutines ask, exactly what the rule allows passes.
func TestConcurrentUse(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(100, 24*time.Hour), stint.Concurrency(3, stint.WithQueue(8), stint.WithMaxWait(time.Minute)))
	var wg sync.WaitGroup
	var passed, inside, most atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				p, err := l.Take(context.Background(), "k", 1)
				if err != nil {
					if !errors.As(err, new(*stint.DeniedError)) {
						t.Error(err)
					}
					continue
				}
				passed.Add(1)
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				inside.Add(-1)
				p.Done()
			}
		})
	}
	wg.Wait()
	if passed.Load() != 100 || most.Load() > 3 {
		t.Errorf("%d passed, want 100; %d at once, want 3 at the most", passed.Load(), most.Load())
	}
	if d, _ := l.Peek(t.Context(), "k"); d.Limits[1].Remaining != 3 {
		t.Errorf("%d slots free at the end, want 3", d.Limits[1].Remaining)
	}
}

// WithSkip and WithEmptyKey of one limit, or of a route's, leave out that limit alone.
func TestSkipOneLimit(t *testing.T) {
	hasKey := func(r *http.Request) bool { return r.Header.Get("X-Key") != "" }
	isPost := func(r *http.Request) bool { return r.Method == http.MethodPost }
	skip, empty := stint.WithSkip(hasKey), stint.WithEmptyKey(stint.SkipEmptyKey)
	rate := func(name string, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(5, time.Hour, append(opts, stint.WithName(name))...)
	}
	for _, tt := range []struct {
		name    string
		opts    []stint.Option
		method  string
		with    string // the limits of a request with a key, or its status
		without string
	}{
		{"a key, else an address", []stint.Option{rate("key", byKey, empty), rate("anonymous", everybody, skip)}, "GET / x", "key", "anonymous"},
		{"several, and one for all", []stint.Option{rate("a", skip), rate("all"), rate("b", skip), everybody}, "GET / x", "all", "a all b"},
		{"any of two on one limit", []stint.Option{rate("a", skip, stint.WithSkip(isPost)), everybody}, "POST / x", "", ""},
		{"every limit", []stint.Option{rate("a", skip), everybody}, "GET / x", "", "a"},
		{"a request", []stint.Option{rate("a"), everybody, skip}, "GET / x", "", "a"},
		{"a default", []stint.Option{rate("a", byKey), rate("all", everybody), empty}, "GET / x", "a all", "all"},
		{"one key, left out and denied", []stint.Option{rate("a", empty), rate("b"), byKey}, "GET / x", "a b", "403"},
		{"one key, denied and left out", []stint.Option{rate("a"), rate("b", empty), byKey}, "GET / x", "a b", "403"},
		{"a default and another", []stint.Option{rate("a", stint.WithEmptyKey(stint.DenyEmptyKey)), byKey, empty}, "GET / x", "a", "403"},
		{"of a route", []stint.Option{stint.WithRoute("/a", rate("a"), rate("b", stint.WithSkip(isPost)), skip), everybody}, "GET /a x", "b", "a b"},
		{"of a route, each limit's own", []stint.Option{stint.WithRoute("/a", rate("a"), rate("b", stint.WithSkip(isPost)), skip), everybody}, "POST /a x", "", "a"},
		{"of a route with empty keys", []stint.Option{stint.WithRoute("/a", rate("a"), empty), byKey}, "GET /a x", "a", ""},
		{"beside another reading", []stint.Option{rate("a", skip), stint.WithRoute("/a", rate("b")), everybody}, "GET //a x", "b", "a b"},
		{"of a function", []stint.Option{everybody, rate("all"), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{rate("f", skip)}, nil
		})}, "GET / x", "all", "all f"},
	} {
		l := limiter(t, tt.opts...)
		for key, want := range map[string]string{"k": tt.with, "": tt.without} {
			r := requested(t, tt.method)
			if key != "" {
				r.Header.Set("X-Key", key)
			}
			w := through(l, r, nil)
			var got []string
			for _, item := range strings.FieldsFunc(w.Header().Get("RateLimit-Policy"), func(c rune) bool { return c == ',' || c == ' ' }) {
				name, _, _ := strings.Cut(strings.Trim(item, `"`), `"`)
				got = append(got, name)
			}
			said := strings.Join(got, " ")
			if w.Code != http.StatusOK {
				said = strconv.Itoa(w.Code)
			}
			if said != want {
				t.Errorf("%s, key %q: %s, want %s", tt.name, key, said, want)
			}
		}
	}
	l := limiter(t, rate("a", stint.WithSkip(func(*http.Request) bool { return true })), everybody)
	if take(t, l, 2); l.Allow(t.Context(), "k", 4) == nil {
		t.Error("a limit is skipped without a request")
	}
}
