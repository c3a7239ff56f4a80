package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// guest is a request of a test: when it comes, its class, how long its handler
// works, and when it leaves.
type guest struct {
	at     time.Duration
	class  int
	works  time.Duration
	leaves time.Duration // after it has come; 0 for never
}

// guests come faster than most limits of these tests let it.
func guests() (all []guest) {
	const ms = time.Millisecond
	for i := range 18 {
		g := guest{at: time.Duration(i)*37*ms + time.Duration(i/9)*500*ms, class: i * 7 % 10, works: time.Duration(i%5) * 31 * ms}
		if i%6 == 5 {
			g.leaves = 53 * ms
		}
		all = append(all, g)
	}
	return all
}

// scene is a set of limits that are enforced, and which events are about them.
type scene struct {
	name   string
	stored bool // some are decided in the store
	paces  bool // one is a Bandwidth
	limits func() []stint.Option
}

// diary is everything that the limits of a scene have made of its guests.
type diary struct {
	scene
	mu      sync.Mutex
	start   time.Time
	lines   []string
	running map[string]bool
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%12v ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

func (d *diary) decision(dec stint.Decision) string {
	dec.Limits = slices.DeleteFunc(slices.Clone(dec.Limits), func(s stint.LimitStatus) bool { return s.DryRun })
	return fmt.Sprintf("%+v", dec)
}

// others reports whether an event is about limits other than the scene's.
func (d *diary) others(e stint.Event, id string) bool {
	switch e.Kind {
	case stint.EventDryRunDenied, stint.EventBanned, stint.EventSettled, stint.EventSettleFailed:
		return true
	case stint.EventPaced:
		return e.Pacing.DryRun
	case stint.EventLimitChanged:
		return strings.HasPrefix(e.Change.Limit, "dry")
	case stint.EventStoreFailed:
		if d.running[id] {
			return !d.paces
		}
		return !d.stored
	}
	return false
}

func (d *diary) observe(e stint.Event) {
	id := ""
	if e.Request != nil {
		id = e.Request.Header.Get("X-Id")
	}
	d.mu.Lock()
	others := d.others(e, id)
	d.mu.Unlock()
	if !others {
		d.note("%s: %v %v waited %v ends %v %+v %+v, %s", id, e.Kind, e.Err, e.Waited, e.EndsWait, e.Change, e.Pacing, d.decision(e.Decision))
	}
}

// receive runs guests through a limiter and returns what has come of it, in
// order. The store fails from down on, for half a second; 0 for never.
func receive(t *testing.T, sc scene, down time.Duration, opts ...stint.Option) []string {
	d, s := &diary{scene: sc, running: map[string]bool{}}, newSpy()
	opts = append(opts, stint.WithStore(s), stint.WithObserver(d.observe), stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders),
		stint.WithPriority(func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("X-Class")); return n }), theKey,
		stint.WithRoute("/slots", stint.Concurrency(1, stint.WithName("elsewhere"))), // or New rejects the classes
		stint.WithoutWarnings("nothing-waits"))                                       // which the limit that a dry run is beside may do
	l := limiter(t, opts...)
	d.start = time.Now().Truncate(time.Minute).Add(time.Minute) // windows are of the clock
	time.Sleep(time.Until(d.start))
	if down > 0 {
		time.AfterFunc(down, func() { s.FailWith(errDown) })
		time.AfterFunc(down+500*time.Millisecond, func() { s.FailWith(nil) })
	}
	var all sync.WaitGroup
	for i, g := range guests() {
		all.Go(func() {
			time.Sleep(g.at)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if g.leaves > 0 {
				time.AfterFunc(g.leaves, stop)
			}
			r := httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", 100))).WithContext(ctx)
			r.Header.Set("X-Id", fmt.Sprintf("%02d", i))
			r.Header.Set("X-Class", strconv.Itoa(g.class))
			far := newFarEnd()
			mount(l, func(w http.ResponseWriter, r *http.Request) {
				d.note("%02d: runs, %s", i, d.decision(stint.FromContext(r.Context()).Decision()))
				d.mu.Lock()
				d.running[r.Header.Get("X-Id")] = true
				d.mu.Unlock()
				time.Sleep(g.works)
				_, err := w.Write(make([]byte, 3000))
				d.note("%02d: wrote, %v", i, err)
			}).ServeHTTP(far, r)
			d.note("%02d: %d %v, arrived %v", i, far.Code, far.Header(), far.log)
		})
	}
	all.Wait()
	if sc.stored {
		dec, err := l.Peek(t.Context(), "k")
		d.note("peek: %s, %v", d.decision(dec), err)
	}
	time.Sleep(time.Hour)
	slices.Sort(d.lines) // what happens at one instant has no order
	return d.lines
}

// Whatever a dry run says and costs, and whether or not its store works, enforced
// limits beside it answer as if it weren't there.
func TestDryRunsTakeNoPart(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	name, dry := stint.WithName, stint.WithDryRun(true)
	closed := stint.WithFailurePolicy(stint.FailClosed)
	own := stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { return r.Header.Get("X-Id"), nil }))
	some := stint.WithCost(func(r *http.Request) int64 { n, _ := strconv.ParseInt(r.Header.Get("X-Id"), 10, 64); return 1 + n%3 })

	one := func(l func() stint.Limit) func() []stint.Option {
		return func() []stint.Option { return []stint.Option{l()} }
	}
	scenes := []scene{
		{"a queue", true, false, one(func() stint.Limit {
			return stint.Rate(10, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(6), name("a"))
		})},
		{"turns", true, false, one(func() stint.Limit {
			return stint.Rate(10, second, stint.WithBurst(1), stint.WithMaxWait(700*ms), name("a"))
		})},
		{"a rate", true, false, one(func() stint.Limit { return stint.Rate(5, second, name("a")) })},
		{"a quota", true, false, one(func() stint.Limit {
			return stint.Quota(9, stint.Every(second), stint.WithMaxWait(250*ms), name("a"))
		})},
		{"slots", true, false, one(func() stint.Limit { // for less than a poll, which comes by chance
			return stint.Concurrency(1, stint.WithQueue(4), stint.WithMaxWait(80*ms), stint.WithShare(7, 50), name("a"))
		})},
		{"an adaptive limit", false, false, one(func() stint.Limit {
			return stint.AdaptiveConcurrency(1, 2, stint.WithQueue(4), stint.WithMaxWait(80*ms), name("a"))
		})},
		{"a bandwidth", false, true, one(func() stint.Limit { return stint.Bandwidth(20_000, stint.WithBurst(4096), name("a")) })},
		{"a ban", true, false, func() []stint.Option {
			return []stint.Option{stint.Rate(3, second, name("a")), stint.Ban(3, second, stint.WithBanFor(250*ms), name("b"))}
		}},
		{"several", true, true, func() []stint.Option {
			return []stint.Option{
				stint.Rate(20, second, stint.WithMaxWait(second), stint.WithBurst(2), name("a")),
				// The queue has room for all: a request that is replaced is answered at the instant at which another comes.
				stint.Concurrency(2, stint.WithQueue(20), stint.WithMaxWait(80*ms), name("b")),
				stint.AdaptiveConcurrency(2, 4, name("c")), stint.Quota(30, stint.Every(time.Minute), name("d")), stint.Bandwidth(100_000, stint.WithBurst(4096), name("e")),
			}
		}},
	}
	dries := []struct {
		name   string
		limits func() []stint.Option
	}{
		{"a rate", one(func() stint.Limit { return stint.Rate(1, second, dry, closed, name("dry")) })},
		{"a rate of its own key", one(func() stint.Limit { return stint.Rate(1, second, dry, closed, own, name("dry")) })},
		{"a rate of its own cost", one(func() stint.Limit { return stint.Rate(100, second, dry, closed, some, name("dry")) })},
		{"a cost below 0", one(func() stint.Limit {
			return stint.Rate(100, second, dry, closed, cost(-1), name("dry"))
		})},
		{"turns", one(func() stint.Limit {
			return stint.Rate(1, second, dry, closed, some, stint.WithMaxWait(9*second), name("dry"))
		})},
		{"a queue", one(func() stint.Limit {
			return stint.Rate(2, second, dry, closed, own, stint.WithAlgorithm(stint.LeakyBucket), name("dry"))
		})},
		{"debt", one(func() stint.Limit {
			return stint.Rate(1, second, dry, closed, stint.WithDebt(), some, name("dry"))
		})},
		{"a warm-up", one(func() stint.Limit {
			return stint.Rate(9, second, dry, closed, stint.WithWarmUp(second), name("dry"))
		})},
		{"a log", one(func() stint.Limit {
			return stint.Rate(3, second, dry, closed, stint.WithAlgorithm(stint.SlidingLog), some, name("dry"))
		})},
		{"a quota", one(func() stint.Limit {
			return stint.Quota(3, stint.Every(second), dry, closed, own, name("dry"))
		})},
		{"settled", one(func() stint.Limit {
			return stint.Rate(9, second, dry, closed, settleTo(4), name("dry"))
		})},
		{"slots", one(func() stint.Limit { return stint.Concurrency(1, dry, closed, name("dry")) })},
		{"slots with a line and shares", one(func() stint.Limit {
			return stint.Concurrency(1, dry, closed, some, stint.WithQueue(1), stint.WithMaxWait(9*second), stint.WithShare(3, 50), name("dry"))
		})},
		{"an adaptive limit", one(func() stint.Limit {
			return stint.AdaptiveConcurrency(1, 1, dry, closed, stint.WithMaxWait(9*second), name("dry"))
		})},
		{"a bandwidth", one(func() stint.Limit {
			return stint.Bandwidth(1024, dry, closed, stint.WithDirection(stint.Both), stint.WithBurst(4096), name("dry"))
		})},
		{"a ban", func() []stint.Option {
			return []stint.Option{stint.Ban(1, second, stint.WithBanFor(time.Hour), dry, closed, name("dry")), stint.Rate(1, second, dry, closed, name("dry2"))}
		}},
		{"of a function", func() []stint.Option {
			l := stint.Rate(1, second, dry, closed, own, name("dry"))
			return []stint.Option{stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
				if strings.ContainsAny(r.Header.Get("X-Id"), "2468") {
					return nil, nil
				}
				return []stint.Limit{l}, nil
			})}
		}},
		{"six", func() (all []stint.Option) {
			for i := range 6 {
				all = append(all, stint.Rate(int64(i+1), second, dry, closed, some, stint.WithMaxWait(second), name(fmt.Sprint("dry", i))))
			}
			return all
		}},
	}
	for _, sc := range scenes {
		for _, down := range []time.Duration{0, 333*ms + 1} {
			for _, policy := range []stint.FailurePolicy{stint.FailOpen, stint.FailClosed} {
				if down == 0 && policy == stint.FailClosed {
					continue
				}
				t.Run(fmt.Sprintf("%s, down at %v, policy %d", sc.name, down, policy), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						with := stint.WithFailurePolicy(policy)
						want := receive(t, sc, down, append(sc.limits(), with)...)
						for i, dr := range dries {
							opts, where := append(append(dr.limits(), sc.limits()...), with), "before"
							if (i+len(sc.name)+int(policy))%2 == 0 {
								opts, where = append(append(sc.limits(), with), dr.limits()...), "behind"
							}
							compare(t, dr.name+" "+where+" it", receive(t, sc, down, opts...), want)
						}
					})
				})
			}
		}
	}
}

// compare shows where two diaries begin to differ.
func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("with %s:\n got %s\nwant %s", what, g, w)
			return
		}
	}
}

// Each limit that would have denied gets its own event, with what it would have said.
func TestDryRunDeniedNamesTheLimit(t *testing.T) {
	named := func(n int64, per time.Duration, name string, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, per, append(opts, stint.WithName(name))...)
	}
	dry := stint.WithDryRun(true)
	tests := []struct {
		name   string
		limits []stint.Option
		want   []string // of each request
	}{
		{"one of three", []stint.Option{named(9, time.Hour, "a"), named(1, time.Hour, "b", dry), named(5, time.Hour, "c", dry)},
			[]string{"", "b in 1h0m0s", "b in 1h0m0s"}},
		{"two of three", []stint.Option{named(1, time.Hour, "a", dry), named(9, time.Hour, "b"), named(2, 2*time.Hour, "c", dry)},
			[]string{"", "a in 1h0m0s", "a in 1h0m0s, c in 1h0m0s"}},
		{"beside a denial", []stint.Option{named(1, time.Minute, "a"), named(1, time.Hour, "b", dry), named(1, 2*time.Hour, "c", dry)},
			[]string{"", "b in 1h0m0s, c in 2h0m0s"}},
		{"all", []stint.Option{named(1, time.Hour, "a"), named(1, time.Minute, "b"), dry},
			[]string{"", "a in 1h0m0s, b in 1m0s"}},
		{"of this process", []stint.Option{stint.AdaptiveConcurrency(1, 1, dry), named(9, time.Hour, "b")},
			[]string{"", "adaptive in 1s"}},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			seen := &events{}
			l := limiter(t, append(tt.limits, theKey, seen.Option())...)
			var permits []*stint.Permit
			for i, want := range tt.want {
				seen.Clear()
				p, err := l.Take(context.Background(), "k", 1)
				permits = append(permits, p)
				var got []string
				for _, e := range seen.All()[1:] {
					d := e.Decision
					if e.Kind != stint.EventDryRunDenied || d.Allowed || e.Err != nil || e.EndsWait || len(d.Limits) != len(seen.All()[0].Decision.Limits) {
						t.Errorf("%s, request %d: %+v", tt.name, i, e)
					}
					got = append(got, fmt.Sprint(d.Limit, " in ", d.RetryAfter))
					for _, s := range d.Limits {
						if s.Name == d.Limit && (!s.DryRun || s.Allowed || s.Remaining != d.Remaining || s.ResetAfter != d.ResetAfter) {
							t.Errorf("%s, request %d: %+v of %+v", tt.name, i, d, s)
						}
					}
				}
				if strings.Join(got, ", ") != want {
					t.Errorf("%s, request %d (%v): would have been denied by %q, want %q", tt.name, i, err, got, want)
				}
			}
			for _, p := range permits {
				p.Done()
			}
		})
	}
}

// Of all problems with a dry run, only a key that can't be determined denies the
// request.
func TestDryRunDeniesForItsKeyOnly(t *testing.T) {
	dry, closed := stint.WithDryRun(true), stint.WithFailurePolicy(stint.FailClosed)
	rate := func(opts ...stint.RateOption) stint.Limit {
		return stint.Rate(9, time.Hour, append(opts, dry, closed, stint.WithName("dry"))...)
	}
	from := func(err error, limits ...stint.Limit) stint.Option {
		return stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return limits, err })
	}
	noKey := stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", errors.New("no session") }))
	noClass := stint.WithPriority(func(*http.Request) int { panic("nobody waits") })
	tests := []struct {
		name   string
		opts   []stint.Option
		status int
		events string
	}{
		{"a key", []stint.Option{rate(noKey)}, 500, "KeyFailed"},
		{"an empty key", []stint.Option{rate(stint.WithKey(stint.Header("X-Nobody")))}, 200, "EmptyKey"},
		{"an empty key, and an enforced limit with it", []stint.Option{rate(stint.WithKey(stint.Header("X-Nobody"))),
			stint.Rate(9, time.Hour, stint.WithName("enforced"), stint.WithKey(stint.Header("X-Nobody")))}, 403, "EmptyKey EmptyKey"},
		{"an empty key that is skipped", []stint.Option{rate(stint.WithKey(stint.Header("X-Nobody"))), stint.WithEmptyKey(stint.SkipEmptyKey)}, 200, ""},
		{"the store", []stint.Option{rate()}, 200, "StoreFailed Admitted"},
		{"a cost", []stint.Option{rate(cost(-1))}, 200, "DryRunDenied StoreFailed Admitted"},
		{"a cost that nothing holds", []stint.Option{stint.AdaptiveConcurrency(1, 1, dry, cost(9), stint.WithName("dry"))}, 200, "Admitted DryRunDenied"},
		{"the class of a request", []stint.Option{stint.Concurrency(1, dry, stint.WithName("dry"), stint.WithShare(1, 50)), noClass}, 200, "StoreFailed Admitted"},
		{"a function for dry runs", []stint.Option{from(errDown), dry}, 200, "LimitsFailed"},
		{"a limit of a function", []stint.Option{from(nil, stint.Rate(0, time.Hour, dry, stint.WithName("bad")), rate())}, 200, "LimitsFailed StoreFailed Admitted"},
		{"an enforced limit of a function", []stint.Option{from(nil, stint.Rate(0, time.Hour, stint.WithName("bad")))}, 500, "LimitsFailed"},
	}
	for _, tt := range tests {
		s, seen := newSpy(), &events{}
		s.FailWith(errDown)
		l := limiter(t, append(tt.opts, theKey, stint.WithStore(s), seen.Option(), stint.WithoutWarnings("nothing-waits"))...)
		if w := through(l, get("/"), nil); w.Code != tt.status || seen.Kinds() != tt.events {
			t.Errorf("%s: %d and %s, want %d and %s", tt.name, w.Code, seen.Kinds(), tt.status, tt.events)
		}
	}
}

// One limit is on two routes, on one of them as a dry run. A request that may match
// either is held to the other, at the higher cost.
func TestDryRunOfAnotherReading(t *testing.T) {
	dry := stint.WithDryRun(true)
	for _, tt := range []struct {
		name         string
		files, login []stint.RouteOption
	}{
		{"enforced first", []stint.RouteOption{cost(1)}, []stint.RouteOption{cost(5), dry}},
		{"a dry run first", []stint.RouteOption{cost(5), dry}, []stint.RouteOption{cost(1)}},
		{"both enforced", []stint.RouteOption{cost(1)}, []stint.RouteOption{cost(5)}},
		{"both dry runs", []stint.RouteOption{cost(5), dry}, []stint.RouteOption{cost(1), dry}},
	} {
		limit := stint.Rate(10, time.Hour)
		seen := &events{}
		l := limiter(t, theKey, seen.Option(), limit,
			stint.WithRoute("/api/", append(tt.files, stint.Only(limit))...), stint.WithRoute("POST /api/auth/login", append(tt.login, stint.Only(limit))...))
		through(l, httptest.NewRequest("POST", "/api/auth%2flogin", nil), nil)
		if s := seen.Last().Decision.Limits; len(s) != 1 || s[0].DryRun != (tt.name == "both dry runs") || remaining(t, l) != 5 {
			t.Errorf("%s: %+v, %d left, want 5", tt.name, s, remaining(t, l))
		}
	}
}

// Settle without a name applies to the same limits as without the dry run.
func TestDryRunChoosesNothingToSettle(t *testing.T) {
	dry, costs := stint.WithDryRun(true), cost(1)
	tests := []struct {
		name         string
		outer, inner []stint.Option
		want         string // what is left of 9
	}{
		{"beside one without a cost", nil, []stint.Option{rateOf("a"), rateOf("b", dry, costs)}, "a:4 b:4"},
		{"beside one with a cost", nil, []stint.Option{rateOf("a", costs), rateOf("b", dry), rateOf("c")}, "a:4 b:8 c:8"},
		{"beside another dry run", nil, []stint.Option{rateOf("a", dry), rateOf("b", dry, costs)}, "a:8 b:4"},
		{"inside one with a cost", []stint.Option{rateOf("a", costs)}, []stint.Option{rateOf("b", dry, costs)}, "a:4 b:8"},
		{"inside one without", []stint.Option{rateOf("a")}, []stint.Option{rateOf("b", dry, costs)}, "a:4 b:8"},
	}
	for _, tt := range tests {
		var got []string
		settle := func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			if err := p.Settle(r.Context(), 5); err != nil {
				t.Error(err)
			}
			for _, s := range p.Decision().Limits {
				got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Remaining))
			}
		}
		h := mount(limiter(t, append(tt.inner, theKey)...), settle)
		if tt.outer != nil {
			h = mount(limiter(t, append(tt.outer, theKey)...), h.ServeHTTP)
		}
		h.ServeHTTP(httptest.NewRecorder(), get("/"))
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %s left, want %s", tt.name, got, tt.want)
		}
	}
}

func rateOf(name string, opts ...stint.RateOption) stint.Limit {
	return stint.Rate(9, time.Hour, append(opts, stint.WithName(name))...)
}
