package stint_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// nears collects the events of near limits, as "rate of k at 80".
type nears struct {
	mu  sync.Mutex
	all []stint.Event
}

func (n *nears) observe(e stint.Event) {
	if e.Kind == stint.EventNearLimit {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, e)
	}
}

func (n *nears) option() stint.Option { return stint.WithObserver(n.observe) }

// take returns the events since the last call, and forgets them.
func (n *nears) take() (texts []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.all {
		texts = append(texts, fmt.Sprintf("%s of %s at %d", e.Decision.Limit, e.Key(0), e.Percent))
	}
	n.all = nil
	return texts
}

// want compares the events since the last call with texts.
func (n *nears) want(t testing.TB, when string, texts ...string) {
	t.Helper()
	if got := n.take(); fmt.Sprint(got) != fmt.Sprint(texts) {
		t.Errorf("%s: events %q, want %q", when, got, texts)
	}
}

// longTime is a period in which no unit comes back while a test runs.
const longTime = 1000 * time.Hour

// near is a limit of 10 units for each algorithm, whose units don't come back while a test runs.
func nearLimits(opts ...stint.RateOption) map[string]stint.Limit {
	with := func(more ...stint.RateOption) []stint.RateOption {
		return append(append(more, stint.WithName("x")), opts...)
	}
	rate := func(a stint.Algorithm, more ...stint.RateOption) stint.Limit {
		return stint.Rate(10, longTime, with(append(more, stint.WithAlgorithm(a))...)...)
	}
	return map[string]stint.Limit{
		"TokenBucket":            rate(stint.TokenBucket),
		"TokenBucket, burst":     stint.Rate(1, longTime, with(stint.WithBurst(10))...),
		"TokenBucket, queue":     stint.Rate(10, longTime, with(stint.WithBurst(10), stint.WithQueue(20))...),
		"TokenBucket, debt":      stint.Rate(1, longTime, with(stint.WithBurst(10), stint.WithDebt())...),
		"IntervalBucket":         rate(stint.IntervalBucket),
		"LeakyBucket":            rate(stint.LeakyBucket, stint.WithBurst(9), stint.WithQueue(0)),
		"FixedWindow":            rate(stint.FixedWindow),
		"SlidingWindow":          rate(stint.SlidingWindow),
		"SlidingCounter":         rate(stint.SlidingCounter),
		"SlidingLog":             rate(stint.SlidingLog),
		"Quota":                  stint.Quota(10, stint.Every(longTime), with()...),
		"Quota, IntervalBucket":  stint.Quota(10, stint.Every(longTime), with(stint.WithAlgorithm(stint.IntervalBucket))...),
		"Quota, yearly in zones": stint.Quota(10, stint.Yearly.From(time.Now().Add(-longTime)), with()...),
	}
}

func TestNearLimitByDecisions(t *testing.T) {
	for name, limit := range nearLimits(stint.WithNearLimit(80, 50)) {
		t.Run(name, func(t *testing.T) {
			overStores(t, func(t *testing.T, s store.Store) {
				var seen nears
				l := limiter(t, theKey, stint.WithStore(s), limit, seen.option())
				for _, step := range []struct {
					cost int64
					want []string
				}{
					{4, nil}, {1, []string{"x of k at 50"}}, {2, nil}, {1, []string{"x of k at 80"}}, {1, nil}, {1, nil},
				} {
					take(t, l, step.cost)
					seen.want(t, fmt.Sprintf("after a cost of %d", step.cost), step.want...)
				}
				if !strings.Contains(name, "debt") && !strings.Contains(name, "queue") { // they let more pass
					denied(t, l.Allow(t.Context(), "k", 1))
				}
				seen.want(t, "after a denial")
				_ = l.Allow(t.Context(), "other", 8)
				seen.want(t, "of another key, which jumps over a percentage", "x of other at 80")
			})
		})
	}
}

// A request that waits is charged for the window in which its turn comes. When it is told its turn, all units of the
// window before are used.
func TestNearLimitAfterWaiting(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"FixedWindow": stint.Quota(10, stint.Every(time.Minute), stint.WithName("x"), stint.WithMaxWait(2*time.Minute)),
		"IntervalBucket": stint.Quota(10, stint.Every(time.Minute), stint.WithName("x"), stint.WithMaxWait(2*time.Minute),
			stint.WithAlgorithm(stint.IntervalBucket)),
		"SlidingLog": stint.Rate(10, time.Minute, stint.WithName("x"), stint.WithMaxWait(2*time.Minute),
			stint.WithAlgorithm(stint.SlidingLog)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen nears
				l := limiter(t, theKey, seen.option(), stint.WithNearLimit(80), limit)
				time.Sleep(30 * time.Second)
				take(t, l, 10)
				seen.want(t, "10 of 10", "x of k at 80")
				take(t, l, 7) // a minute later, or less
				seen.want(t, "7 of 10 in the next window")
				take(t, l, 1)
				seen.want(t, "8 of 10 in the next window", "x of k at 80")
			})
		})
	}
}

// While a request waits for its turn in the next window, the present one goes on.
func TestNearLimitBesideAWaitingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		l := limiter(t, theKey, seen.option(), stint.WithNearLimit(80),
			stint.Quota(100, stint.Every(time.Minute), stint.WithName("x"), stint.WithMaxWait(2*time.Minute)))
		time.Sleep(30 * time.Second)
		p := take(t, l, 90)
		seen.want(t, "90 of 100", "x of k at 80")
		waited := make(chan error, 1)
		go func() { waited <- l.Allow(t.Context(), "k", 20) }()
		synctest.Wait()
		settle(t, p, 91)
		seen.want(t, "91 of 100")
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		take(t, l, 59)
		seen.want(t, "79 of 100 in the next window")
		take(t, l, 1)
		seen.want(t, "80 of 100 in the next window", "x of k at 80")
	})
}

// A turn that a request hasn't used goes to the next one, for which no dry run is charged.
func TestNearLimitOfUnchargedDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		l := limiter(t, theKey, seen.option(),
			stint.Rate(1, time.Second, stint.WithName("rate"), stint.WithMaxWait(time.Minute)),
			stint.Quota(1000, stint.Daily, stint.WithName("x"), stint.WithDryRun(true), stint.WithNearLimit(80)))
		take(t, l, 1)
		leaving, leave := context.WithCancel(t.Context())
		passed := make(chan int64, 1)
		go func() { _, _ = l.Take(leaving, "k", 1) }()
		synctest.Wait()
		go func() { passed <- take(t, l, 1).Decision().Limits[1].Remaining }()
		synctest.Wait()
		leave()
		if left := <-passed; left != 1000 {
			t.Errorf("%d left of a dry run that wasn't charged", left)
		}
		seen.want(t, "2 of 1000")
	})
}

// A denied request charges nothing, so it takes no use to a percentage.
func TestNearLimitNotByDenials(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var seen nears
		l := limiter(t, theKey, stint.WithStore(s), seen.option(), stint.WithNearLimit(50),
			stint.Rate(10, longTime, stint.WithName("x")), stint.Rate(5, longTime, stint.WithName("y"), stint.WithNearLimit(100)))
		denied(t, l.Allow(t.Context(), "k", 6))
		seen.want(t, "after a denial")
		take(t, l, 5)
		seen.want(t, "after both", "x of k at 50", "y of k at 100")
	})
}

func TestNearLimitByExtendAndSettle(t *testing.T) {
	for name, limit := range nearLimits(stint.WithNearLimit(50, 80, 100)) {
		if strings.Contains(name, "queue") {
			continue // a raise above the burst waits
		}
		t.Run(name, func(t *testing.T) {
			overStores(t, func(t *testing.T, s store.Store) {
				var seen nears
				l := limiter(t, theKey, stint.WithStore(s), limit, seen.option())
				p := take(t, l, 1)
				extend(t, p, 4)
				seen.want(t, "below")
				extend(t, p, 6)
				seen.want(t, "by Extend", "x of k at 50")
				settle(t, p, 7)
				seen.want(t, "by Settle, between")
				settle(t, p, 8)
				seen.want(t, "by Settle", "x of k at 80")
				settle(t, p, 7)
				settle(t, p, 9)
				seen.want(t, "again in a period")
				settle(t, p, 30)
				seen.want(t, "by a debt", "x of k at 100")
				p.Done()
			})
		})
	}
}

// A quota that is charged when the response is known has all its use from settlements.
func TestNearLimitByWithSettle(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var seen nears
		l := limiter(t, theKey, stint.WithStore(s), seen.option(), stint.WithRoute("GET /{file}",
			stint.Quota(1000, stint.Every(longTime), stint.WithName("bytes"), stint.WithNearLimit(80),
				stint.WithSettle(func(_ *http.Request, _ int, written int64) int64 { return written }))))
		var events []stint.Event
		l.Observe(func(e stint.Event) { events = append(events, e) })
		for i := range 10 {
			through(l, get("/file"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) })
			want := []string{"bytes of k at 80"}[:0]
			if i == 7 {
				want = want[:1]
				e := events[len(events)-2]
				s := e.Decision.Limits[0]
				if e.Kind != stint.EventNearLimit || e.Route != "GET /{file}" || e.Request == nil || e.Request.URL.Path != "/file" ||
					s.Remaining != 200 || s.Capacity != 1000 || s.Cost != 100 || !e.Decision.Allowed || e.Decision.Remaining != 200 {
					t.Errorf("event %v with %+v", e, e.Decision)
				}
			}
			seen.want(t, fmt.Sprintf("after response %d", i), want...)
		}
	})
}

// A bucket in which a key takes more than the rate gives would cross a percentage at each charge.
func TestNearLimitOncePerPeriodOfBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		crossings := 0
		l := limiter(t, theKey, stint.Rate(10, time.Minute, stint.WithNearLimit(80, 95)))
		l.Observe(func(e stint.Event) {
			switch e.Kind {
			case stint.EventAdmitted:
				if s := e.Decision.Limits[0]; s.Remaining == 0 { // below 95 % before, and not after
					crossings++
				}
			case stint.EventNearLimit:
				if e.Percent == 95 {
					at = append(at, time.Now())
				}
			}
		})
		for range 720 { // in an hour, 1.2 times the rate
			_ = l.Allow(t.Context(), "k", 1)
			time.Sleep(5 * time.Second)
		}
		if crossings < 200 || len(at) < 40 || len(at) > 60 {
			t.Errorf("%d events for %d crossings in an hour, want one in nearly each minute", len(at), crossings)
		}
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < time.Minute {
				t.Errorf("an event %v after the one before", d)
			}
		}
	})
}

// The use of a bucket that stays above a percentage reaches it once.
func TestNearLimitOfBucketThatStaysFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		l := limiter(t, theKey, stint.Rate(100, time.Minute, stint.WithNearLimit(80, 95), stint.WithName("x")), seen.option())
		for range 7200 {
			_ = l.Allow(t.Context(), "k", 1)
			time.Sleep(time.Second / 2)
		}
		seen.want(t, "in an hour", "x of k at 80", "x of k at 95")
		time.Sleep(30 * time.Second)
		for range 100 {
			_ = l.Allow(t.Context(), "k", 1)
		}
		seen.want(t, "after half a minute of rest", "x of k at 80", "x of k at 95")
	})
}

// Each window begins with no use. What other processes charge counts, so each process announces what it sees.
func TestNearLimitOncePerWindow(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, limit := range map[string]func(opts ...stint.RateOption) stint.Limit{
		"FixedWindow": func(opts ...stint.RateOption) stint.Limit {
			return stint.Rate(10, 24*time.Hour, append(opts, stint.WithAlgorithm(stint.FixedWindow))...)
		},
		"Hourly": func(opts ...stint.RateOption) stint.Limit { return stint.Quota(10, stint.Hourly, opts...) },
		"Daily":  func(opts ...stint.RateOption) stint.Limit { return stint.Quota(10, stint.Daily.In(berlin), opts...) },
		"Monthly": func(opts ...stint.RateOption) stint.Limit {
			return stint.Quota(10, stint.Monthly.From(time.Date(2000, 1, 31, 9, 0, 0, 0, berlin)).In(berlin), opts...)
		},
		"Every": func(opts ...stint.RateOption) stint.Limit {
			return stint.Quota(10, stint.Every(10*24*time.Hour), opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.New()
				var seen [2]nears
				var process [2]*stint.Limiter
				for i := range process {
					process[i] = limiter(t, theKey, stint.WithStore(s), seen[i].option(), limit(stint.WithNearLimit(50, 90), stint.WithName("x")))
				}
				allow := func(i int, n int) {
					for range n {
						_ = process[i].Allow(t.Context(), "k", 1)
						time.Sleep(time.Second)
					}
				}
				for range 5 {
					allow(0, 4)
					seen[0].want(t, "below")
					allow(0, 1)
					seen[0].want(t, "by the first process", "x of k at 50")
					seen[1].want(t, "nothing charged by the second")
					allow(1, 1)
					seen[1].want(t, "charged by the second", "x of k at 50")
					allow(0, 2)
					allow(1, 1)
					seen[0].want(t, "the others' share")
					seen[1].want(t, "the second takes it to 90", "x of k at 90")
					allow(0, 1)
					seen[0].want(t, "the first sees 90", "x of k at 90")
					allow(0, 1) // denied
					allow(1, 1)
					seen[0].want(t, "denied")
					seen[1].want(t, "denied")
					d, err := process[0].Peek(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(d.ResetAfter)
				}
			})
		})
	}
}

// The units of an IntervalBucket come all at once.
func TestNearLimitOfIntervalBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		l := limiter(t, theKey, seen.option(), stint.Quota(10, stint.Daily, stint.WithAlgorithm(stint.IntervalBucket), stint.WithBurst(20),
			stint.WithNearLimit(50), stint.WithName("x")))
		day := func(n int64, want ...string) {
			t.Helper()
			take(t, l, n)
			seen.want(t, fmt.Sprintf("with %d units", n), want...)
			time.Sleep(24 * time.Hour)
		}
		day(9)
		day(5)
		day(15, "x of k at 50") // 10 are left
		time.Sleep(24 * time.Hour)
		day(15, "x of k at 50")
	})
}

// The windows of Redis are those of its clock.
func TestNearLimitInWindowsOnRedis(t *testing.T) {
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	var seen nears
	l := limiter(t, theKey, stint.WithStore(s), seen.option(), stint.Quota(10, stint.Every(2*time.Second), stint.WithNearLimit(50), stint.WithName("x")))
	for range 3 {
		for remaining(t, l) < 10 { // until the next window
			time.Sleep(10 * time.Millisecond) // Redis has a clock of its own
		}
		take(t, l, 5)
		seen.want(t, "half of a window", "x of k at 50")
	}
}

// Several charges at one instant announce a percentage once.
func TestNearLimitOnceForManyAtOnce(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		var seen nears
		l := limiter(t, theKey, stint.WithStore(s), seen.option(), stint.Rate(100, longTime, stint.WithNearLimit(50, 100), stint.WithName("x")))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					_ = l.Allow(context.Background(), "k", 1)
				}
			})
		}
		all.Wait()
		got := map[string]int{}
		for _, text := range seen.take() {
			got[text]++
		}
		if got["x of k at 100"] != 1 || got["x of k at 50"] > 1 || len(got) > 2 {
			t.Errorf("events %v", got)
		}
	})
}

// While the store fails nothing is charged. The secondary of a failover counts in parts.
func TestNearLimitWhileStoreFails(t *testing.T) {
	var seen nears
	s := newSpy()
	l := limiter(t, theKey, stint.WithStore(s), seen.option(), stint.Rate(10, longTime, stint.WithNearLimit(50), stint.WithName("x")))
	s.FailWith(errDown)
	for range 20 {
		if err := l.Allow(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}
	seen.want(t, "while the store fails")
	s.FailWith(nil)
	take(t, l, 5)
	seen.want(t, "when it answers", "x of k at 50")

	parts := failover.New(storefake.Down(), memstore.New(), failover.WithProcesses(4))
	for name, limit := range map[string]stint.Limit{
		"window": stint.Rate(40, longTime, stint.WithAlgorithm(stint.FixedWindow), stint.WithNearLimit(50), stint.WithName("x")),
		"bucket": stint.Rate(40, longTime, stint.WithNearLimit(50), stint.WithName("y")),
	} {
		var seen nears
		l := limiter(t, theKey, stint.WithStore(parts), seen.option(), limit)
		take(t, l, 4)
		seen.want(t, name+": below half of a fourth")
		take(t, l, 1)
		if got := seen.take(); len(got) != 1 {
			t.Errorf("%s: half of a fourth: events %q", name, got)
		}
	}
}

func TestNearLimitOfDryRun(t *testing.T) {
	var seen nears
	l := limiter(t, theKey, seen.option(), stint.Rate(4, longTime, stint.WithName("x"), stint.WithDryRun(true), stint.WithNearLimit(50)),
		stint.Rate(100, longTime, stint.WithName("y")))
	for range 10 {
		take(t, l, 1)
	}
	if len(seen.all) != 1 || !seen.all[0].Decision.Limits[0].DryRun || seen.all[0].Percent != 50 {
		t.Errorf("events %+v", seen.all)
	}
}

// A WithNearLimit is a default of a limiter and of a route for their rates and quotas.
func TestNearLimitAsDefault(t *testing.T) {
	var seen nears
	l := limiter(t, theKey, seen.option(), stint.WithNearLimit(50),
		stint.Rate(10, longTime, stint.WithName("own"), stint.WithNearLimit(100)), stint.Rate(10, longTime, stint.WithName("limiter")),
		stint.Concurrency(1), stint.Rate(100, time.Hour, stint.WithWarmUp(time.Hour), stint.WithName("warm"), stint.WithMaxWait(longTime)),
		stint.WithRoute("GET /route", stint.WithNearLimit(30), stint.Rate(10, longTime, stint.WithName("route"))))
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			through(l, get("/route"), nil)
		}
	})
	seen.want(t, "after 10", "route of k at 30", "limiter of k at 50", "own of k at 100")
}

// Another limit's numbers have percentages of their own, also if they come by an Update.
func TestNearLimitAfterUpdate(t *testing.T) {
	var seen nears
	plan := func(n int64, percent ...int) stint.Option {
		return stint.Quota(n, stint.Every(longTime), stint.WithName("x"), stint.WithNearLimit(percent...))
	}
	update := func(l *stint.Limiter, o stint.Option) {
		t.Helper()
		if err := l.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	l := limiter(t, theKey, seen.option(), plan(10, 80))
	take(t, l, 8)
	seen.want(t, "of the first plan", "x of k at 80")
	update(l, plan(10, 80, 90))
	take(t, l, 1)
	seen.want(t, "with a further percentage", "x of k at 90")
	update(l, plan(100, 80))
	p := take(t, l, 1)
	seen.want(t, "of a larger plan, with a tenth used")
	settle(t, p, 71)
	seen.want(t, "of a larger plan", "x of k at 80")
	update(l, plan(10, 80, 90))
	settle(t, p, 72)
	seen.want(t, "of the larger plan again")
}

// A limiter derived by With and its parent remember the same.
func TestNearLimitOfDerived(t *testing.T) {
	var seen, own nears
	parent := limiter(t, theKey, seen.option(), stint.Rate(10, longTime, stint.WithName("x"), stint.WithNearLimit(50, 80)))
	derived, err := parent.With(own.option())
	if err != nil {
		t.Fatal(err)
	}
	take(t, parent, 5)
	take(t, derived, 1)
	seen.want(t, "by both", "x of k at 50")
	take(t, derived, 3)
	seen.want(t, "by the derived", "x of k at 80")
	own.want(t, "by the derived", "x of k at 80")
}

// A request that is held to two routes has the percentages of the first that sets some.
func TestNearLimitOfAmbiguousRequest(t *testing.T) {
	var seen nears
	shared := stint.Rate(10, longTime, stint.WithName("x"))
	l := limiter(t, theKey, seen.option(), stint.WithRoute("GET /a/", shared),
		stint.WithRoute("GET /b/", shared, stint.WithNearLimit(50)))
	for range 10 {
		through(l, get("/a/..%2fb/c"), nil)
	}
	if got := seen.take(); len(got) != 1 || got[0] != "x of k at 50" {
		t.Errorf("events %q", got)
	}
}

// Limits of tenants have many keys. A full table leaves events out, says so in the log, and has room again when
// periods are over.
func TestNearLimitOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		var log bytes.Buffer
		l := limiter(t, byKey, seen.option(), stint.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			stint.WithLimitSource(stint.Header("X-Key"), func(_ context.Context, key string, _ stint.LimitUser) ([]stint.Limit, error) {
				return []stint.Limit{stint.Quota(int64(10*len(key)), stint.Daily, stint.WithName("plan"), stint.WithNearLimit(50))}, nil
			}))
		l.SetNearRoom(3)
		use := func(keys ...string) {
			for _, key := range keys {
				for range 5 * len(key) {
					_ = l.Allow(t.Context(), key, 1)
				}
			}
		}
		use("a", "bb", "ccc")
		seen.want(t, "with room", "plan of a at 50", "plan of bb at 50", "plan of ccc at 50")
		use("d", "e", "a")
		seen.want(t, "without")
		_ = l.Allow(t.Context(), "d", 1)
		time.Sleep(90 * time.Second)
		synctest.Wait() // for the goroutine that logs
		if text := log.String(); strings.Count(text, "EventNearLimit wasn't sent") != 2 || !strings.Contains(text, "limit=plan") ||
			!strings.Contains(text, "suppressed=1") || strings.Contains(text, "key=") {
			t.Errorf("the log says %s", text)
		}
		time.Sleep(24 * time.Hour)
		use("d", "e", "a", "bb")
		seen.want(t, "on the next day", "plan of d at 50", "plan of e at 50", "plan of a at 50")
	})
}

// Without observers nothing is remembered as announced.
func TestNearLimitWithoutObservers(t *testing.T) {
	var seen nears
	l := limiter(t, theKey, stint.Rate(10, longTime, stint.WithName("x"), stint.WithNearLimit(50)))
	take(t, l, 6)
	stop := l.Observe(seen.observe)
	take(t, l, 1)
	seen.want(t, "to an observer that comes later", "x of k at 50")
	stop()
}

// A request that waits for its turn has used the bucket up when it has its turn.
func TestNearLimitOfRequestsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen nears
		l := limiter(t, theKey, seen.option(), stint.Rate(2, time.Second, stint.WithMaxWait(time.Minute), stint.WithName("x"),
			stint.WithNearLimit(50, 100)), stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithName("leaky"),
			stint.WithNearLimit(90)))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { take(t, l, 1) })
		}
		all.Wait()
		got := map[string]int{}
		for _, text := range seen.take() {
			got[text]++
		}
		if got["x of k at 100"] < 1 || got["x of k at 100"] > 5 || got["x of k at 50"] > 1 || got["leaky of k at 90"] != 0 {
			t.Errorf("events %v", got)
		}
	})
}

// Requests that wait in the queue of a LeakyBucket use it up, as the next decision sees.
func TestNearLimitOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		l := limiter(t, theKey, stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(9),
			stint.WithNearLimit(80)), stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventNearLimit {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(began))
			}
		}))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { take(t, l, 1) })
		}
		all.Wait()
		if len(at) == 0 || at[0] > 2*time.Second || at[len(at)-1] > 4*time.Second {
			t.Errorf("events after %v, want some of the first turns", at)
		}
	})
}
