package stintotel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/observe/otel"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/tenants"
)

// watched is a limiter that is observed, and the reader of its metrics.
type watched struct {
	*stint.Limiter
	t      *testing.T
	reader *metric.ManualReader
	stop   func()

	provider *metric.MeterProvider
}

func watch(t *testing.T, memory *memstore.Store, opts ...stint.Option) *watched {
	t.Helper()
	w := &watched{t: t, reader: metric.NewManualReader()}
	lim, err := stint.New(append(opts, stint.WithKey(stint.Header("Key")), stint.WithLimiterName("api"))...)
	if err != nil {
		t.Fatal(err)
	}
	w.Limiter = lim
	w.provider = metric.NewMeterProvider(metric.WithReader(w.reader))
	given := []stintotel.Option{stintotel.WithMeterProvider(w.provider)}
	if memory != nil {
		given = append(given, stintotel.WithMemory("local", memory))
	}
	if w.stop, err = stintotel.Observe(lim, given...); err != nil {
		t.Fatal(err)
	}
	return w
}

func request(key string) *http.Request {
	r := httptest.NewRequest("GET", "/users/42", nil)
	r.Header.Set("Key", key)
	return r
}

// open is a request that has been admitted and holds what it was given until Done.
type open struct {
	*stint.Permit
	release func()
}

func (o open) Done() { o.release() }

// admit asks n times for key, and returns what was admitted.
func (w *watched) admit(n int, key string) (admitted []open) {
	for range n {
		_ = w.Admit(httptest.NewRecorder(), request(key), func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			admitted = append(admitted, open{p, p.Detach()})
		})
	}
	return admitted
}

func done(permits []open) {
	for _, p := range permits {
		p.Done()
	}
}

// short leaves out the prefix of the project's own attributes.
func short(set attribute.Set) string {
	return strings.ReplaceAll(set.Encoded(attribute.DefaultEncoder()), "stint.", "")
}

// read are all metrics as lines: name{attributes} value, which is the count of a
// histogram and the sum of what it has. Their types and units are noted in kinds.
func (w *watched) read(kinds map[string]string) (lines []string) {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(context.Background(), &all); err != nil {
		w.t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != stintotel.Scope || scope.Scope.Version != "" { // tests have no released version
			w.t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			add := func(kind string, set attribute.Set, value any) {
				if kinds != nil {
					kinds[m.Name] = kind + " | " + m.Unit
				}
				lines = append(lines, fmt.Sprintf("%s{%s} %v", strings.TrimPrefix(m.Name, "stint."), short(set), value))
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(map[bool]string{true: "counter", false: "updowncounter"}[d.IsMonotonic], p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add("gauge", p.Attributes, p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add("gauge", p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add("histogram", p.Attributes, fmt.Sprintf("%d of %.4g", p.Count, p.Sum))
				}
			default:
				w.t.Fatalf("%s: %T", m.Name, d)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// broken is a store that fails from some call on. Its calls take a millisecond.
type broken struct {
	store.Store
	left, settles int
}

func (s *broken) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	time.Sleep(time.Millisecond)
	if s.left--; s.left < 0 {
		return errors.New("gone")
	}
	return s.Store.Take(ctx, charges, results)
}

func (s *broken) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	time.Sleep(time.Millisecond)
	if s.settles--; s.settles < 0 {
		return errors.New("gone")
	}
	return s.Store.Settle(ctx, charges, results)
}

// notifying is a store whose notices are the test's.
type notifying struct {
	store.Store
	to *store.Observer
}

func (s *notifying) Observe(o *store.Observer) { s.to = o }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What the limiter does, and what is to be read of it then: the lines of the metrics
// named, and no others of these.
var scenarios = []struct {
	name   string
	opts   []stint.Option
	do     func(t *testing.T, w *watched)
	memory int // keys
	fails  int // the store does, after so many
	settle int // that it settles before it fails to
	want   []string
}{
	{name: "admitted and denied, by route and limit",
		opts: []stint.Option{stint.WithRoute("GET /users/{id}", stint.Rate(2, time.Hour, stint.WithName("users")), stint.Rate(10, time.Hour, stint.WithName("all")))},
		do:   func(_ *testing.T, w *watched) { w.admit(3, "a") },
		want: []string{
			"decisions{limit=users,limiter=api,outcome=admitted,route=GET /users/{id}} 2",
			"decisions{limit=users,limiter=api,outcome=denied,route=GET /users/{id}} 1",
			"limit.decisions{limit=all,limiter=api,outcome=allowed,route=GET /users/{id}} 3",
			"limit.decisions{limit=users,limiter=api,outcome=allowed,route=GET /users/{id}} 2",
			"limit.decisions{limit=users,limiter=api,outcome=denied,route=GET /users/{id}} 1",
			"limit.utilization{limit=all,limiter=api,route=GET /users/{id}} 3 of 0.5",
			"limit.utilization{limit=users,limiter=api,route=GET /users/{id}} 3 of 2.5",
			"limit.cost.charged{limit=all,limiter=api,route=GET /users/{id}} 2",
			"limit.cost.charged{limit=users,limiter=api,route=GET /users/{id}} 2",
		}},
	{name: "a dry run, outside HTTP too",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("trial"), stint.WithDryRun(true), stint.WithKey(stint.GivenKey()))},
		do: func(t *testing.T, w *watched) {
			for range 2 {
				if err := w.Allow(t.Context(), "a", 1); err != nil {
					t.Error(err)
				}
			}
		},
		want: []string{
			"decisions{limiter=api,outcome=admitted} 2",
			"limit.decisions{limit=trial,limiter=api,outcome=allowed} 1",
			"limit.decisions{limit=trial,limiter=api,outcome=dry_run_denied} 1",
			"limit.cost.charged{limit=trial,limiter=api} 1",
			"limit.cost.settled{limit=trial,limiter=api} 1",
		}},
	{name: "blocked, and without a key",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithBlock(func(r *http.Request) bool { return r.Header.Get("Key") == "bad" })},
		do: func(_ *testing.T, w *watched) {
			w.admit(2, "bad")
			w.admit(1, "")
		},
		want: []string{"decisions{limiter=api,outcome=blocked} 2", "decisions{limit=x,limiter=api,outcome=empty_key} 1"}},
	{name: "without a key, in a dry run, beside a limit of all",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("x"), stint.WithDryRun(true)), stint.Rate(5, time.Hour, stint.WithName("all"), stint.WithKey(stint.Global()))},
		do:   func(_ *testing.T, w *watched) { w.admit(1, "") },
		want: []string{
			"decisions{limit=all,limiter=api,outcome=admitted} 1",
			"limit.decisions{limit=all,limiter=api,outcome=allowed} 1",
			"limit.cost.charged{limit=all,limiter=api} 1",
		}},
	{name: "slots up and down, and who waits for them",
		opts: []stint.Option{stint.Concurrency(2, stint.WithName("slots"), stint.WithQueue(5), stint.WithMaxWait(time.Minute))},
		do: func(t *testing.T, w *watched) {
			first := w.admit(2, "a")
			for range 3 {
				go func() { done(w.admit(1, "a")) }()
			}
			synctest.Wait()
			is(t, w.read(nil),
				"limit.held_slots{limit=slots,limiter=api} 2",
				"waiting_requests{limiter=api} 3")
			time.Sleep(2 * time.Second)
			first[0].Done()
			synctest.Wait()
			is(t, w.read(nil),
				"limit.held_slots{limit=slots,limiter=api} 1",
				"waiting_requests{limiter=api} 0",
				"wait.duration{limiter=api,outcome=admitted} 3 of 6")
			first[1].Done()
		},
		want: []string{"limit.held_slots{limit=slots,limiter=api} 0"}},
	{name: "a wait that ends in a denial",
		opts: []stint.Option{stint.Concurrency(1, stint.WithName("slots"), stint.WithQueue(5), stint.WithMaxWait(time.Second))},
		do: func(_ *testing.T, w *watched) {
			first := w.admit(1, "a")
			w.admit(1, "a")
			done(first)
		},
		want: []string{
			"waiting_requests{limiter=api} 0",
			"wait.duration{limiter=api,outcome=denied} 1 of 1",
			"limit.held_slots{limit=slots,limiter=api} 0",
		}},
	{name: "bans",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("rate")), stint.Ban(2, time.Hour, stint.WithBanFor(24*time.Hour), stint.WithName("jail"))},
		do:   func(_ *testing.T, w *watched) { w.admit(5, "a") },
		want: []string{
			"bans{limit=jail,limiter=api} 1",
			"decisions{limit=jail,limiter=api,outcome=denied} 3",
			"decisions{limit=rate,limiter=api,outcome=admitted} 1",
			"decisions{limit=rate,limiter=api,outcome=denied} 1",
		}},
	{name: "a ban by hand",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("rate")), stint.Ban(2, time.Hour, stint.WithBanFor(24*time.Hour), stint.WithName("jail"))},
		do: func(t *testing.T, w *watched) {
			if err := w.Ban(t.Context(), "a", time.Hour); err != nil {
				t.Error(err)
			}
		},
		want: []string{"bans{by_hand=true,limit=jail,limiter=api} 1"}},
	{name: "near limits",
		opts: []stint.Option{stint.WithNearLimit(50, 90), stint.Rate(10, time.Hour, stint.WithName("rate")), stint.Rate(10, time.Hour, stint.WithName("trial"), stint.WithDryRun(true))},
		do:   func(_ *testing.T, w *watched) { w.admit(7, "a"); w.admit(5, "b"); w.admit(9, "c") },
		want: []string{
			"near_limits{dry_run=true,limit=trial,limiter=api,percent=50} 3",
			"near_limits{dry_run=true,limit=trial,limiter=api,percent=90} 1",
			"near_limits{limit=rate,limiter=api,percent=50} 3",
			"near_limits{limit=rate,limiter=api,percent=90} 1",
		}},
	{name: "a store that fails, and is passed", fails: 1,
		opts: []stint.Option{stint.Rate(5, time.Hour, stint.WithName("x"))},
		do:   func(_ *testing.T, w *watched) { w.admit(3, "a") },
		want: []string{
			"decisions{limit=x,limiter=api,outcome=admitted} 1",
			"store.failures{limiter=api,outcome=passed,store.operation=take} 2",
			"store.duration{error.type=_OTHER,limiter=api,outcome=error,store.operation=take} 2 of 0.002",
			"store.duration{limiter=api,outcome=ok,store.operation=take} 1 of 0.001",
		}},
	{name: "a store that settles for a while", fails: 9, settle: 3,
		opts: []stint.Option{
			stint.Concurrency(5, stint.WithName("slots")),
			stint.Rate(99, time.Hour, stint.WithName("rate")),
		},
		do: func(t *testing.T, w *watched) {
			p := w.admit(3, "a")
			if err := p[0].Settle(t.Context(), 3); err != nil {
				t.Error(err)
			}
			done(p) // the last of them in vain
			w.admit(1, "a")
		},
		want: []string{
			"store.duration{limiter=api,outcome=ok,store.operation=take} 4 of 0.004",
			"store.duration{limiter=api,outcome=ok,store.operation=settle} 3 of 0.003",
			"store.duration{error.type=_OTHER,limiter=api,outcome=error,store.operation=settle} 1 of 0.001",
			"store.failures{limiter=api,outcome=lost,store.operation=settle} 1",
		}},
	{name: "a store that fails closed, and keeps slots", fails: 1,
		opts: []stint.Option{stint.Concurrency(5, stint.WithName("x"), stint.WithFailurePolicy(stint.FailClosed))},
		do:   func(_ *testing.T, w *watched) { done(w.admit(3, "a")) },
		want: []string{
			"store.failures{limiter=api,outcome=denied,store.operation=take} 2",
			"store.failures{limiter=api,outcome=lost,store.operation=settle} 1",
			"limit.held_slots{limit=x,limiter=api} 0",
		}},
	{name: "costs",
		opts: []stint.Option{stint.Quota(100, stint.Daily, stint.WithName("tokens"), stint.WithCost(func(*http.Request) int64 { return 10 }))},
		do: func(t *testing.T, w *watched) {
			p := w.admit(2, "a")
			if err := p[0].Settle(t.Context(), 3); err != nil {
				t.Error(err)
			}
			done(p)
		},
		want: []string{
			"limit.cost.charged{limit=tokens,limiter=api} 20",
			"limit.cost.settled{limit=tokens,limiter=api} 13",
		}},
	{name: "bytes",
		opts: []stint.Option{stint.Bandwidth(4096, stint.WithName("bytes"), stint.WithDirection(stint.Both))},
		do: func(t *testing.T, w *watched) {
			h := stinthttp.Middleware(w.Limiter)(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				_, _ = rw.Write(bytes.Repeat([]byte("x"), 20_000))
			}))
			r := httptest.NewRequest("POST", "/", strings.NewReader("a body of 20 bytes.."))
			r.Header.Set("Key", "a")
			h.ServeHTTP(httptest.NewRecorder(), r)
		},
		want: []string{
			"bandwidth.io{network.io.direction=receive,limit=bytes,limiter=api} 20",
			"bandwidth.io{network.io.direction=transmit,limit=bytes,limiter=api} 20000",
			"bandwidth.wait.duration{limit=bytes,limiter=api} 1 of 1.005",
		}},
	{name: "who leaves while the store is asked", fails: 9,
		opts: []stint.Option{stint.Rate(5, time.Hour, stint.WithName("x"), stint.WithMaxWait(time.Minute))},
		do: func(t *testing.T, w *watched) {
			ctx, leave := context.WithTimeout(t.Context(), time.Hour)
			time.AfterFunc(time.Microsecond, leave)
			_ = w.Admit(httptest.NewRecorder(), request("a").WithContext(ctx), func(http.ResponseWriter, *http.Request) { t.Error("admitted") })
		},
		want: []string{
			"decisions{limit=x,limiter=api,outcome=canceled} 1",
			"store.duration{limiter=api,outcome=canceled,store.operation=take} 1 of 0.001",
			"store.duration{error.type=_OTHER,limiter=api,outcome=error,store.operation=settle} 1 of 0.001",
			"store.failures{limiter=api,outcome=lost,store.operation=settle} 1",
		}},
	{name: "raises",
		opts: []stint.Option{stint.Rate(10, time.Hour, stint.WithName("x"))},
		do: func(t *testing.T, w *watched) {
			p := w.admit(1, "a")[0]
			for _, cost := range []int64{4, 6, 12} {
				_ = p.Extend(t.Context(), cost)
			}
			p.Done()
		},
		want: []string{
			"extensions{limit=x,limiter=api,outcome=denied} 1",
			"extensions{limit=x,limiter=api,outcome=granted} 2",
			"limit.cost.charged{limit=x,limiter=api} 6",
			"limit.utilization{limit=x,limiter=api} 4 of 1.7",
			"limit.decisions{limit=x,limiter=api,outcome=allowed} 1",
		}},
	{name: "an adaptive limit",
		opts: []stint.Option{stint.AdaptiveConcurrency(1, 50, stint.WithName("backend"))},
		do: func(t *testing.T, w *watched) {
			p := w.admit(1, "a")
			is(t, w.read(nil), fmt.Sprintf("adaptive.limit{limit=backend,limiter=api} %d", p[0].Decision().Limits[0].Capacity))
			p[0].Done()
			var changed atomic.Bool
			defer w.Observe(func(e stint.Event) {
				if e.Change != nil {
					changed.Store(true)
				}
			})()
			for !changed.Load() { // it is used to the full until it grows
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						w.Serve(httptest.NewRecorder(), request("a"), func(http.ResponseWriter, *http.Request) { time.Sleep(30 * time.Millisecond) })
					})
				}
				all.Wait()
			}
		},
		want: []string{
			"adaptive.limit{limit=backend,limiter=api} 21",
			"adaptive.latency{limit=backend,limiter=api} 0.03",
			"adaptive.baseline{limit=backend,limiter=api} 0.03",
			"adaptive.changes{adaptive.reason=growing,limit=backend,limiter=api} 1",
			"limit.held_slots{limit=backend,limiter=api} 0",
		}},
	{name: "the store's side of two, and a policy file",
		opts: []stint.Option{stint.Rate(5, time.Hour, stint.WithName("x")), stint.WithStore(&notifying{Store: memstore.New()})},
		do: func(t *testing.T, w *watched) {
			notify := w.Describe().Store.(*notifying).to.Tell
			w.ReportPolicy("limits.yaml", nil)
			w.ReportPolicy("limits.yaml", io.ErrUnexpectedEOF)
			is(t, w.read(nil), "store.degraded{limiter=api} 0")
			notify(store.Notice{Kind: store.Degraded, Err: io.ErrUnexpectedEOF})
			is(t, w.read(nil), "store.degraded{limiter=api} 0")
			notify(store.Notice{Kind: store.Degraded, Err: failover.ErrOpen})
			is(t, w.read(nil), "store.degraded{limiter=api} 1")
			notify(store.Notice{Kind: store.LeaseLost, Key: "a", Limit: must(store.NewLimit(store.Spec{Name: "x", Algorithm: store.Concurrency, Units: 1}))})
			notify(store.Notice{Kind: store.Restored})
		},
		want: []string{
			"store.degraded{limiter=api} 0",
			"store.primary_failures{limiter=api} 1",
			"store.lost_leases{limit=x,limiter=api} 1",
			"policy.reloads{limiter=api,outcome=accepted} 1",
			"policy.reloads{limiter=api,outcome=rejected} 1",
		}},
	{name: "a source of limits that fails, and a key without a plan",
		opts: []stint.Option{source(stint.Rate(5, time.Hour, stint.WithName("before")))},
		do: func(_ *testing.T, w *watched) {
			w.admit(2, "kept")
			w.admit(3, "down")
			w.admit(4, "unknown")
			w.admit(1, "again")
		},
		want: []string{
			"source.failures{limiter=api,outcome=passed} 5",
			"decisions{limit=before,limiter=api,outcome=admitted} 3",
			"decisions{limiter=api,outcome=limits_denied} 4",
		}},
	{name: "a source of limits that fails closed",
		opts: []stint.Option{source(), stint.WithFailurePolicy(stint.FailClosed)},
		do:   func(_ *testing.T, w *watched) { w.admit(3, "down") },
		want: []string{
			"source.failures{limiter=api,outcome=denied} 3",
			"decisions{limiter=api,outcome=limits_failed} 3",
		}},
	{name: "likely mistakes, found by New and later",
		opts: []stint.Option{
			stint.Rate(5, time.Hour, stint.WithName("x"), stint.WithKey(stint.Header("X-Real-IP"))),
			stint.Quota(5, stint.Daily, stint.WithName("y"), stint.WithCost(func(*http.Request) int64 { return 6 }), stint.WithKey(stint.Global())),
		},
		do: func(_ *testing.T, w *watched) {
			for range 2 {
				r := request("a")
				r.Header.Set("X-Real-IP", "192.0.2.1")
				w.Serve(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {})
			}
		},
		want: []string{
			"warnings{limiter=api,warning=forwarding-header} 1",
			"warnings{limiter=api,warning=cost-too-high} 1",
		}},
	{name: "its own store in memory",
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("x")), stint.WithStore(memstore.New(memstore.WithMaxKeys(10)))},
		do:   func(_ *testing.T, w *watched) { w.admit(2, "a") },
		want: []string{"memory.key.usage{store.name=api} 1", "memory.key.limit{store.name=api} 10"}},
	{name: "a full store in memory", memory: 1,
		opts: []stint.Option{stint.Rate(1, time.Hour, stint.WithName("x"))},
		do: func(_ *testing.T, w *watched) {
			for i := range 100 {
				w.admit(1, fmt.Sprint(i))
			}
		},
		want: []string{
			"memory.key.usage{store.name=local} 1",
			"memory.key.limit{store.name=local} 1",
			"memory.key.expired{store.name=local} 0",
			"memory.overflow{outcome=allowed,store.name=local} 1",
			"memory.overflow{outcome=denied,store.name=local} 98",
		}},
}

// source is a source of limits that is down. It has limits for the key kept, a key unknown has none, and
// for the key again it answers again.
func source(known ...stint.Limit) stint.Option {
	return stint.WithLimitSource(stint.Header("Key"), func(_ context.Context, key string, _ stint.LimitUser) ([]stint.Limit, error) {
		err := &stint.SourceError{Err: errors.New("no route to the database")}
		switch key {
		case "kept":
			return known, err
		case "again":
			return known, &stint.SourceError{}
		case "unknown":
			return nil, tenants.ErrNoPlan
		}
		return nil, err
	})
}

// is checks the lines of the metrics that want names. Of those that are 0 only the wanted ones
// matter: TestCountersBeginAtZero checks them.
func is(t *testing.T, got []string, want ...string) {
	t.Helper()
	name := func(line string) string { return line[:strings.Index(line, "{")] }
	named := map[string]bool{}
	for _, line := range want {
		named[name(line)] = true
	}
	got = slices.DeleteFunc(got, func(line string) bool {
		return !named[name(line)] || strings.HasSuffix(line, "} 0") && !slices.Contains(want, line)
	})
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The metrics reported are exactly those that happen, and README.md lists them all.
func TestMetrics(t *testing.T) {
	kinds := map[string]string{}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var memory *memstore.Store
				if s.memory > 0 {
					memory = memstore.New(memstore.WithMaxKeys(int64(s.memory)))
					s.opts = append(s.opts, stint.WithStore(memory))
				}
				if s.fails > 0 {
					s.opts = append(s.opts, stint.WithStore(&broken{Store: memstore.New(), left: s.fails, settles: s.settle}))
				}
				w := watch(t, memory, s.opts...)
				s.do(t, w)
				synctest.Wait()
				is(t, w.read(kinds), s.want...)
			})
		})
	}

	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(stint\\.[a-z_.]+)` \\| (\\w+) \\| `?([^`|]+)`? \\|").FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = strings.ToLower(m[2]) + " | " + m[3]
	}
	for name, kind := range kinds {
		if listed[name] != kind {
			t.Errorf("README.md says of %s %q, want %q", name, listed[name], kind)
		}
	}
	for name := range listed {
		if kinds[name] == "" {
			t.Errorf("README.md lists %s, which is never reported", name)
		}
	}
}

// Counters are there before anything happens, for what the limiter has, also after an Update: a
// rate or an increase would miss the first event of one that begins with it.
func TestCountersBeginAtZero(t *testing.T) {
	w := watch(t, nil,
		stint.Rate(5, time.Hour, stint.WithName("x")), stint.Ban(9, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("jail")),
		stint.WithRoute("GET /trial", stint.Rate(5, time.Hour, stint.WithName("trial"), stint.WithDryRun(true))),
		stint.WithRoute("GET /file", stint.Bandwidth(1<<20, stint.WithName("bytes"))))
	begun := []string{
		"bans{limit=jail,limiter=api} 0",
		"decisions{limit=jail,limiter=api,outcome=admitted} 0",
		"decisions{limit=jail,limiter=api,outcome=denied} 0",
		"decisions{limit=x,limiter=api,outcome=admitted} 0",
		"decisions{limit=x,limiter=api,outcome=denied} 0",
		"limit.decisions{limit=jail,limiter=api,outcome=allowed} 0",
		"limit.decisions{limit=jail,limiter=api,outcome=denied} 0",
		"limit.decisions{limit=trial,limiter=api,outcome=allowed,route=GET /trial} 0",
		"limit.decisions{limit=trial,limiter=api,outcome=dry_run_denied,route=GET /trial} 0",
		"limit.decisions{limit=x,limiter=api,outcome=allowed} 0",
		"limit.decisions{limit=x,limiter=api,outcome=denied} 0",
		"policy.reloads{limiter=api,outcome=accepted} 0",
		"policy.reloads{limiter=api,outcome=rejected} 0",
		"source.failures{limiter=api,outcome=denied} 0",
		"source.failures{limiter=api,outcome=passed} 0",
		"store.failures{limiter=api,outcome=denied,store.operation=take} 0",
		"store.failures{limiter=api,outcome=lost,store.operation=settle} 0",
		"store.failures{limiter=api,outcome=passed,store.operation=take} 0",
		"store.primary_failures{limiter=api} 0",
	}
	other := regexp.MustCompile(`^(memory|store\.degraded|warnings)`)
	counters := func() []string {
		return slices.DeleteFunc(w.read(nil), func(line string) bool { return other.MatchString(line) })
	}
	if got := counters(); !slices.Equal(got, begun) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(begun, "\n"))
	}
	warnings := 0
	for _, line := range w.read(nil) {
		if strings.HasPrefix(line, "warnings{limiter=api,warning=") && strings.HasSuffix(line, "} 0") {
			warnings++
		}
	}
	if warnings < 9 {
		t.Errorf("%d kinds of warnings begin at 0", warnings)
	}
	if err := w.Update(stint.Concurrency(5, stint.WithName("slots")), stint.WithKey(stint.Header("Key")), stint.WithLimiterName("api")); err != nil {
		t.Fatal(err)
	}
	is(t, w.read(nil), "store.lost_leases{limit=slots,limiter=api} 0")
}

// Updates don't change who observes. stop ends it, and removes the gauges.
func TestObserveUntilStop(t *testing.T) {
	w := watch(t, nil, stint.Rate(5, time.Hour, stint.WithName("x")))
	w.admit(1, "a")
	key, name := stint.WithKey(stint.Header("Key")), stint.WithLimiterName("api")
	if err := w.Update(stint.Concurrency(5, stint.WithName("y")), key, name); err != nil {
		t.Fatal(err)
	}
	w.admit(1, "a")
	is(t, w.read(nil), "decisions{limit=x,limiter=api,outcome=admitted} 1", "decisions{limit=y,limiter=api,outcome=admitted} 1",
		"limit.held_slots{limit=y,limiter=api} 1")
	w.stop()
	w.admit(1, "a")
	got := w.read(nil)
	is(t, got, "decisions{limit=x,limiter=api,outcome=admitted} 1", "decisions{limit=y,limiter=api,outcome=admitted} 1")
	if text := strings.Join(got, "\n"); strings.Contains(text, "held_slots") {
		t.Errorf("slots are reported after stop:\n%s", text)
	}
}

// What was counted before stop is there for whoever collects afterwards.
func TestStopLosesNothing(t *testing.T) {
	w := watch(t, nil, stint.Rate(2, time.Hour, stint.WithName("x")))
	done(w.admit(3, "a"))
	w.stop()
	is(t, w.read(nil), "decisions{limit=x,limiter=api,outcome=admitted} 2", "decisions{limit=x,limiter=api,outcome=denied} 1",
		"limit.decisions{limit=x,limiter=api,outcome=allowed} 2", "limit.cost.charged{limit=x,limiter=api} 2",
		"limit.cost.settled{limit=x,limiter=api} 2", "limit.decisions{limit=x,limiter=api,outcome=denied} 1")
}

// The release of a slot that was taken before Observe isn't counted.
func TestObserveLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := stint.New(stint.Concurrency(5, stint.WithName("x")), stint.WithKey(stint.Global()), stint.WithObserver(func(stint.Event) {}))
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{Limiter: lim, t: t, reader: metric.NewManualReader()}
		early := w.admit(2, "a")
		time.Sleep(time.Second)
		if _, err := stintotel.Observe(lim, stintotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(w.reader)))); err != nil {
			t.Fatal(err)
		}
		late := w.admit(1, "a")
		done(early)
		is(t, w.read(nil), "limit.held_slots{limit=x} 1")
		done(late)
		is(t, w.read(nil), "limit.held_slots{limit=x} 0")
	})
}

// Who has begun to wait before anybody counted isn't counted.
func TestObserveLateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim, err := stint.New(stint.Concurrency(1, stint.WithName("x"), stint.WithQueue(5), stint.WithMaxWait(time.Minute)),
			stint.WithKey(stint.Global()), stint.WithObserver(func(stint.Event) {}))
		if err != nil {
			t.Fatal(err)
		}
		w := &watched{Limiter: lim, t: t, reader: metric.NewManualReader()}
		first := w.admit(1, "a")
		wait := func() {
			go func() { done(w.admit(1, "a")) }()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		wait()
		if _, err := stintotel.Observe(lim, stintotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(w.reader)))); err != nil {
			t.Fatal(err)
		}
		wait()
		is(t, w.read(nil), "waiting_requests{} 1")
		done(first)
		synctest.Wait()
		is(t, w.read(nil), "waiting_requests{} 0", "wait.duration{outcome=admitted} 1 of 1")
	})
}

// Who is being admitted when Observe is called isn't counted, and isn't taken off the count.
func TestObserveDuringAnAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, reader: metric.NewManualReader()}
		provider := metric.NewMeterProvider(metric.WithReader(w.reader))
		begin := sync.OnceFunc(func() {
			if _, err := stintotel.Observe(w.Limiter, stintotel.WithMeterProvider(provider)); err != nil {
				t.Error(err)
			}
		})
		lim, err := stint.New(stint.Concurrency(5, stint.WithName("x")), stint.WithKey(stint.Global()), stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventAdmitted {
				begin()
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		w.Limiter = lim
		first, second := w.admit(1, "a"), w.admit(1, "a")
		done(first)
		is(t, w.read(nil), "limit.held_slots{limit=x} 1")
		done(second)
		is(t, w.read(nil), "limit.held_slots{limit=x} 0", "decisions{limit=x,outcome=admitted} 1")
	})
}

// A store that limiters share is reported once, as long as one of them is observed.
func TestSharedMemory(t *testing.T) {
	local := memstore.New()
	w := watch(t, local, stint.Rate(5, time.Hour, stint.WithName("x")), stint.WithStore(local))
	keys := func() (lines []string) {
		for _, line := range w.read(nil) {
			if strings.HasPrefix(line, "memory.key.usage") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	var stops []func()
	for range 2 {
		lim, err := stint.New(stint.Rate(5, time.Hour, stint.WithName("x")), stint.WithKey(stint.Header("Key")), stint.WithStore(local), stint.WithLimiterName("other"))
		if err != nil {
			t.Fatal(err)
		}
		stop, err := stintotel.Observe(lim, stintotel.WithMeterProvider(w.provider))
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	w.admit(1, "a")
	for _, step := range []struct {
		stop func()
		want []string
	}{
		{func() {}, []string{"memory.key.usage{store.name=local} 1"}},
		{w.stop, []string{"memory.key.usage{store.name=other} 1"}},
		{stops[0], []string{"memory.key.usage{store.name=other} 1"}},
		{stops[1], nil},
	} {
		step.stop()
		if got := keys(); !slices.Equal(got, step.want) {
			t.Errorf("reported %q, want %q", got, step.want)
		}
	}
	elsewhere := &watched{t: t, reader: metric.NewManualReader()}
	for _, to := range []*metric.ManualReader{w.reader, elsewhere.reader} {
		p := w.provider
		if to != w.reader {
			p = metric.NewMeterProvider(metric.WithReader(to))
		}
		if _, err := stintotel.Observe(w.Limiter, stintotel.WithMeterProvider(p)); err != nil {
			t.Fatal(err)
		}
	}
	is(t, elsewhere.read(nil), "memory.key.usage{store.name=api} 1")
	is(t, w.read(nil), "memory.key.usage{store.name=api} 1")
}

func TestObserveDenies(t *testing.T) {
	lim, err := stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.Global()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stintotel.Observe(lim, stintotel.WithMemory("local", nil)); err == nil || !strings.Contains(err.Error(), "memstore.New()") {
		t.Errorf("a nil store: %v", err)
	}
}
