package project

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/tenants"
)

// Each error of construction says once where it comes from, names no option twice, and ends with a correction. With -v
// the test prints the errors whole.
func TestMessagesWhole(t *testing.T) {
	twice := regexp.MustCompile(`\bWith([A-Z]\w+): (?i:\x00 -?\d)|stint: .*stint: |tenants: .*tenants: `)
	for _, err := range wrongSetups() {
		for _, line := range strings.Split(err.Error(), "\n") {
			t.Log(line)
			if twice.MatchString(line) || !strings.Contains(line, ": ") {
				t.Errorf("%q says something twice, or has no correction", line)
			}
			problem := line[strings.LastIndex(line, ": ")+2:]
			if m := riddles.FindString(line); m != "" || problem == "" {
				t.Errorf("%q has %q", line, m)
			}
		}
	}
}

// wrongSetups returns an error for each of nearly all problems.
func wrongSetups() (all []error) {
	const s = time.Second
	key, named := stint.WithKey(stint.RemoteIP()), stint.WithName
	rate := stint.Rate(5, time.Hour)
	check := func(opts ...stint.Option) { all = append(all, stint.Check(opts...)) }
	with := func(opts ...stint.Option) { check(append(opts, key)...) } // beside a key
	one := func(limits ...stint.Limit) {
		for _, l := range limits {
			with(l, stint.Rate(5, time.Hour, named("other")))
		}
	}
	keyed := func(keys ...stint.Key) {
		for _, k := range keys {
			check(rate, stint.WithKey(k))
		}
	}
	beside := func(opts ...stint.Option) {
		for _, o := range opts {
			with(rate, o)
		}
	}
	panicked := func(f func()) {
		defer func() { all = append(all, recover().(error)) }()
		f()
	}
	ip := netip.MustParsePrefix
	noLimits := func(*http.Request) ([]stint.Limit, error) { return nil, nil }
	noPlans := func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) { return nil, nil }

	check()
	check(rate)
	check(rate, key, key)
	keyed(stint.Key{}, stint.KeyFunc(nil), stint.Header("a b"), stint.Header("X-Forwarded-For"), stint.Header("Forwarded"), stint.Header("Host"), stint.Cookie("user[id]"),
		stint.HeaderIP("a b"), stint.HeaderIP("X-Forwarded-For"), stint.MuxPattern(nil), stint.Join(), stint.FirstOf(), stint.FirstOf(stint.RemoteIP(), stint.Header("X")),
		stint.Join(stint.Key{}), stint.Join(stint.GivenKey()), stint.FirstOf(stint.GivenKey()), stint.Hash([]byte("short"), stint.RemoteIP()), stint.Hash(make([]byte, 16), stint.Key{}),
		stint.Hash(make([]byte, 16), stint.GivenKey()), stint.ForwardedIP(), stint.ForwardedIP(netip.Prefix{}), stint.ForwardedIP(ip("0.0.0.0/0")), stint.ForwardedIP(ip("::ffff:10.0.0.0/90")),
		stint.IP{Trusted: []netip.Prefix{ip("10.0.0.0/8")}}.Key(), stint.IP{IPv6Bits: 7}.Key(), stint.IP{Header: "a b", Trusted: []netip.Prefix{ip("10.0.0.0/8")}}.Key())
	one(stint.Limit{}, stint.Exempt(), stint.Rate(0, s), stint.Rate(1<<41, s), stint.Rate(1<<39, s), stint.Rate(10, 60), stint.Rate(10, 0), stint.Rate(10, 500*time.Microsecond), stint.Rate(10, 30000*time.Hour),
		stint.Rate(10, s+1), stint.Quota(10, stint.Window{}), stint.Quota(10, stint.Every(60)), stint.Quota(10, stint.Every(500*time.Microsecond)), stint.Quota(10, stint.Every(s+1)),
		stint.Quota(10, stint.Every(30000*time.Hour)), stint.Quota(10, stint.Every(6*time.Hour).In(time.Local)), stint.Quota(10, stint.Daily.In(nil)), stint.Quota(10, stint.Daily.From(time.Time{})),
		stint.Concurrency(0), stint.Ban(0, s, stint.WithBanFor(s)), stint.Ban(1<<41, s, stint.WithBanFor(s)), stint.Ban(5, s), stint.Ban(5, s, stint.WithBanFor(7)), stint.Ban(5, s, stint.WithBanFor(-s)),
		stint.Ban(5, s, stint.WithBanFor(s+1)), stint.Ban(5, s, stint.WithBanFor(9000*time.Hour)), stint.Rate(10, s, named("9x")), stint.Rate(10, s, nil),
		stint.Rate(10, s, stint.WithAlgorithm(99)), stint.Rate(10, s, stint.WithAlgorithm(store.Ban)), stint.Rate(10, s, stint.WithAlgorithm(store.WarmUp)),
		stint.Quota(10, stint.Daily, stint.WithAlgorithm(stint.SlidingLog)), stint.Rate(10, s, stint.WithBurst(-1)), stint.Rate(10, s, stint.WithBurst(1<<41)), stint.Rate(10, s, stint.WithBurst(0)),
		stint.Rate(1, s, stint.WithAlgorithm(stint.IntervalBucket), stint.WithBurst(0)), stint.Quota(10, stint.Daily, stint.WithBurst(5)), stint.Rate(10, s, stint.WithAlgorithm(stint.SlidingLog), stint.WithBurst(5)),
		stint.Rate(10, s, stint.WithWarmUp(s), stint.WithBurst(5)), stint.Rate(1, time.Hour, stint.WithBurst(1<<40)), stint.Rate(10, s, stint.WithQueue(-1)), stint.Rate(10, s, stint.WithQueue(1<<41)),
		stint.Rate(10, s, stint.WithAlgorithm(stint.FixedWindow), stint.WithQueue(5)), stint.Rate(10, s, stint.WithWarmUp(s), stint.WithQueue(5)), stint.Quota(10, stint.Daily, stint.WithQueue(5)),
		stint.Rate(10, s, stint.WithWarmUp(s), stint.WithDebt()), stint.Rate(10, s, stint.WithAlgorithm(stint.SlidingLog), stint.WithDebt()), stint.Quota(10, stint.Daily, stint.WithDebt()),
		stint.Rate(10, s, stint.WithWarmUp(-s)), stint.Rate(10, s, stint.WithWarmUp(5)), stint.Rate(10, s, stint.WithWarmUp(s+1)), stint.Rate(10, s, stint.WithWarmUp(30000*time.Hour)),
		stint.Rate(13_999_999, s, stint.WithWarmUp(s+7*time.Microsecond)), stint.Rate(10, s, stint.WithWarmUp(s), stint.WithAlgorithm(stint.SlidingLog)), stint.Rate(10, s, stint.WithBuckets(0)),
		stint.Rate(10, s, stint.WithBuckets(5)), stint.Rate(10, s, stint.WithAlgorithm(stint.SlidingWindow), stint.WithBuckets(5000)),
		stint.Rate(10, 7*time.Millisecond+time.Microsecond, stint.WithAlgorithm(stint.SlidingWindow), stint.WithBuckets(999)),
		stint.Rate(10, s, stint.WithMaxWait(-s)), stint.Rate(10, s, stint.WithMaxWait(5)), stint.Rate(10, s, stint.WithNearLimit(0)), stint.Rate(10, s, stint.WithWarmUp(s), stint.WithNearLimit(80)),
		stint.Rate(10, time.Minute, stint.WithDebt(), stint.WithNearLimit(80)), stint.Concurrency(5, stint.WithNearLimit(80)), stint.Concurrency(5, stint.WithBurst(1)),
		stint.Concurrency(5, stint.WithShare(10, 50), stint.WithMaxWait(s)), stint.Concurrency(5, stint.WithShare(1, 0), stint.WithMaxWait(s)), stint.Concurrency(5, stint.WithShare(1, 50), stint.WithShare(1, 40), stint.WithMaxWait(s)),
		stint.Concurrency(5, stint.WithShare(1, 60), stint.WithShare(2, 50), stint.WithMaxWait(s)), stint.Concurrency(5, stint.WithShare(1, 60), stint.WithQueue(0)),
		stint.Concurrency(5, stint.WithFairQueue(stint.Header("X"))), stint.Concurrency(5, stint.WithFairQueue(stint.Header("X")), stint.WithShare(1, 5), stint.WithMaxWait(s)), stint.Concurrency(5, stint.WithFairQueue(stint.Key{}), stint.WithMaxWait(s)),
		stint.AdaptiveConcurrency(0, 5), stint.AdaptiveConcurrency(5, 10, stint.WithInitialLimit(0)), stint.AdaptiveConcurrency(5, 10, stint.WithInitialLimit(50)), stint.AdaptiveConcurrency(5, 10, stint.WithSampleWindow(500)),
		stint.AdaptiveConcurrency(5, 10, stint.WithSampleWindow(time.Millisecond)), stint.AdaptiveConcurrency(5, 10, stint.WithAdaptation(stint.Gradient2(0))), stint.AdaptiveConcurrency(5, 10, stint.WithAdaptation(stint.AIMD(150))),
		stint.AdaptiveConcurrency(5, 10, stint.WithAdaptation(stint.Adaptation{})), stint.Concurrency(5, stint.WithInitialLimit(3)), stint.Bandwidth(5), stint.Bandwidth(1<<20, stint.WithBurst(5)), stint.Bandwidth(1<<20, stint.WithBurst(1<<41)),
		stint.Bandwidth(1<<20, stint.WithDirection(9)), stint.Bandwidth(1<<20, stint.WithHidden()), stint.Rate(10, s, stint.WithFixedCost(0)), stint.Rate(10, s, stint.WithFixedCost(50)),
		stint.Rate(10, s, stint.WithMaxWait(time.Millisecond*300), stint.WithAlgorithm(stint.LeakyBucket), stint.WithFixedCost(9)), stint.Ban(5, s, stint.WithBanFor(s), stint.WithKey(stint.Header("X"))))
	with(stint.Ban(5, s, stint.WithBanFor(s)))
	with(rate, rate)
	with(stint.Rate(1, s, named("x")), stint.Rate(2, s, named("x")))
	with(stint.Rate(1, s, named("x")), stint.WithRoute("/a", stint.Rate(2, s, named("x"))))
	with(rate, stint.WithStore(memstore.New()))
	beside(nil, stint.WithHeaders(), stint.WithHeaders(9), stint.WithHeaders(stint.NoHeaders, stint.XRateLimitHeaders), stint.WithHeaders(stint.XRateLimitHeaders, stint.XRateLimitUnixHeaders),
		stint.WithRetryJitter(-5*s), stint.WithRetryJitter(5), stint.WithStore(nil), stint.WithStore((*memstore.Store)(nil)), stint.WithLimiterName("9"), stint.WithFailurePolicy(9), stint.WithEmptyKey(9),
		stint.WithObserver(nil), stint.WithLogger(nil), stint.WithSkip(nil), stint.WithBlock(nil), stint.WithCost(nil), stint.WithSettle(nil), stint.WithPriority(nil), stint.WithDenyHandler(nil), stint.WithErrorHandler(nil),
		stint.WithLimitFunc(nil), stint.WithLimitSource(stint.GivenKey(), noPlans), stint.WithLimitSource(stint.RemoteIP(), nil), stint.WithoutWarnings("x"), stint.WithoutRoutes(), stint.WithMaxWait(0),
		stint.Only(rate), stint.WithRoute("/a"), stint.WithRoute("/a", stint.Only()), stint.WithRoute("/a", stint.Only(stint.Exempt())), stint.WithRoute("/a", stint.Only(rate), stint.Only(rate)),
		stint.WithRoute("/a", stint.Only(rate), stint.Concurrency(1)), stint.WithRoute("/a", stint.Exempt(), stint.Exempt()), stint.WithRoute("/a", stint.Exempt(), stint.Only(rate)), stint.WithRoute("/a", stint.Exempt(), stint.Concurrency(1)),
		stint.WithRoute("/a", rate), stint.WithRoute("/a", nil, stint.Concurrency(2)), stint.WithRoute("/a", stint.WithFixedCost(9)), stint.WithRoute("/a", stint.WithDryRun(true)), stint.WithRoute("/a", stint.WithSettle(stint.FailedOnly), stint.Concurrency(2)),
		stint.WithRoute("POST login", stint.Exempt()), stint.WithRoute("get /x", stint.Exempt()), stint.WithRoute("/a/:id", stint.Exempt()))
	with(stint.Concurrency(1), stint.WithFixedCost(2))
	with(stint.Concurrency(1), stint.WithRoute("/a", stint.WithFixedCost(2)))
	check(stint.WithLimitFunc(noLimits))
	check(stint.WithLimitFunc(noLimits), stint.WithKey(stint.GivenKey()))
	all = append(all, stint.LimitUser{}.Check(rate), stint.LimitUser{}.Check(stint.Exempt(), stint.Rate(1, s, named("x"))), stint.LimitUser{}.Check(stint.Limit{}))
	base := stint.Must(stint.New(key, rate, stint.WithLogger(slog.New(slog.DiscardHandler))))
	_, err := base.With(stint.WithStore(memstore.New()))
	all = append(all, err, base.Update(key, rate, stint.WithStore(memstore.New())))
	_, err = base.With(rate)
	all = append(all, err)
	for _, l := range []stint.Limit{stint.Rate(1, s, named("x"), stint.WithKey(stint.GivenKey())), stint.Concurrency(1, named("x"), stint.WithMaxWait(s), stint.WithFairQueue(stint.GivenKey()))} {
		all = append(all, admitError(stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{l}, nil }), key))
	}
	panicked(func() { stint.Global().In(ip("10.0.0.0/8")) })
	panicked(func() { stint.RemoteIP().In() })

	shared := func(stores ...store.Store) {
		for _, st := range stores {
			with(stint.Rate(1, s, named("x")), stint.WithStore(st))
		}
	}
	mem := memstore.New()
	shared(new(memstore.Store), new(failover.Store), new(redisstore.Store), memstore.New(nil), memstore.New(memstore.WithMaxKeys(0)), failover.New(nil, mem), failover.New(mem, (*memstore.Store)(nil)), failover.New(mem, nil, nil),
		failover.New(mem, nil, failover.WithThreshold(0)), failover.New(mem, mem, failover.WithProbe(250, s)), failover.New(mem, mem, failover.WithProbe(0, s)), failover.New(mem, mem, failover.WithProcesses(0)), failover.New(mem, nil, failover.WithProcesses(3)),
		redisstore.New(nil), redisstore.New(nil, redisstore.WithTimeout(500*time.Microsecond)), redisstore.New(nil, redisstore.WithTimeout(50)), redisstore.New(nil, redisstore.WithLeaseTTL(s/20)), redisstore.New(nil, redisstore.WithPrefix("{a}")),
		redisstore.New(nil, redisstore.WithDenyCache(0)), redisstore.New(nil, redisstore.WithPrefetch(1, s)), redisstore.New(nil, redisstore.WithClock(nil)))
	load := func(context.Context, string) ([]stint.Limit, error) { return nil, nil }
	for _, o := range []tenants.Option{nil, tenants.WithTTL(0), tenants.WithTTL(60), tenants.WithSize(0), tenants.WithLoadTimeout(0), tenants.WithDefault(), tenants.WithDefault(stint.Limit{}), tenants.WithDefault(rate),
		tenants.WithDefault(stint.Exempt(), stint.Rate(1, s, named("x")))} {
		_, err := tenants.New(load, o)
		all = append(all, err)
	}
	_, err = tenants.New(nil)
	all = append(all, err)
	for _, o := range []stinthttp.TransportOption{nil, stinthttp.WithMaxPause(-s), stinthttp.WithMaxPause(500 * time.Microsecond), stinthttp.WithMaxPause(7), stinthttp.WithRetries(-1), stinthttp.WithRetryable(nil),
		stinthttp.WithDestination(stint.Key{}), stinthttp.WithDestination(stint.Header("a b")), stinthttp.WithDestination(stint.GivenKey())} {
		panicked(func() { stinthttp.NewTransport(base, nil, o) })
	}
	other := stint.Must(stint.New(key, stint.Rate(1, s, named("x")), stint.WithStore(plainStore{mem}), stint.WithLogger(slog.New(slog.DiscardHandler))))
	panicked(func() { stinthttp.NewTransport(other, nil, stinthttp.WithSharedPause()) })
	for _, spec := range []store.Spec{{}, {Name: "x", Algorithm: 99, Units: 1}, {Name: "x", Units: 1}, {Name: "x", Units: 1, Period: 60}, {Name: "x", Units: 1, Period: s, Window: store.Daily}, {Name: "x", Units: 1, Algorithm: store.Concurrency, Period: s},
		{Name: "x", Units: 1, Algorithm: store.WarmUp, Period: s}, {Name: "x", Units: 1, Period: s, WarmUp: s}, {Name: "x", Units: 1, Period: s, Ban: s}, {Name: "x", Units: 1, Algorithm: store.Ban, Period: s},
		{Name: "x", Units: 1, Period: s, Buckets: 5}, {Name: "x", Units: 1, Window: store.Daily}, {Name: "x", Units: 1, Window: store.Daily, Algorithm: store.FixedWindow, Burst: 5, Queue: 5, Debt: true, Buckets: 5}} {
		_, err := store.NewLimit(spec)
		all = append(all, err)
	}
	return all
}

// plainStore is a store without optional methods.
type plainStore struct{ store.Store }

// admitError returns the error of a request that a limiter denies.
func admitError(opts ...stint.Option) error {
	l := stint.Must(stint.New(append(opts, stint.WithLogger(slog.New(slog.DiscardHandler)))...))
	return l.Admit(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) {})
}

// A line of the log says that a request was denied if and only if it was. With -v the test prints the lines whole.
func TestLogLinesWhole(t *testing.T) {
	const h = time.Hour
	key, named, broken := stint.WithKey(stint.RemoteIP()), stint.WithName("x"), errors.New("the database is down")
	rate, dry, closed := stint.Rate(9, h, named), stint.WithDryRun(true), stint.WithFailurePolicy(stint.FailClosed)
	down := stint.WithStore(storefake.Down())
	source := func(err error, limits ...stint.Limit) stint.Option {
		return stint.WithLimitSource(stint.RemoteIP(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) { return limits, err })
	}
	load := func(context.Context, string) ([]stint.Limit, error) { return nil, tenants.ErrNoPlan }
	cache, err := tenants.New(load)
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(key string, err error) stint.Option {
		return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return key, err }))
	}
	for _, opts := range [][]stint.Option{
		{stint.Rate(1, h), key}, {stint.Rate(1, h, dry), key}, {rate, key, stint.WithBlock(func(*http.Request) bool { return true })},
		{rate, keyed("", nil)}, {rate, keyed("", nil), dry}, {rate, keyed("", broken)}, {rate, keyed(strings.Repeat("x", 5000), nil)}, {rate, keyed("", tenants.ErrNoPlan)},
		{source(broken), key}, {source(broken), key, dry}, {source(broken, rate), key}, {source(&stint.SourceError{Err: broken}), key}, {source(&stint.SourceError{Err: broken}), key, closed},
		{source(&stint.SourceError{Err: broken}, rate), key}, {source(nil, stint.Rate(0, h, named)), key}, {source(nil, stint.Rate(0, h, named)), key, closed}, {cache.Limits(stint.RemoteIP()), key}, {cache.Limits(stint.RemoteIP()), key, dry},
		{rate, key, stint.WithCost(func(*http.Request) int64 { return -1 })}, {rate, key, dry, stint.WithCost(func(*http.Request) int64 { return -1 })},
		{rate, key, stint.WithSettle(func(*http.Request, int, int64) int64 { return -7 })}, {rate, key, down}, {rate, key, down, closed},
		{stint.Rate(1, h), stint.Ban(1, h, stint.WithBanFor(h)), key}, {stint.Rate(1, h), stint.Ban(1, h, stint.WithBanFor(h), dry), key}, {rate, key, stint.WithCost(func(*http.Request) int64 { return 50 })},
	} {
		var log strings.Builder
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "store_took" {
				return slog.Attr{}
			}
			return a
		}})
		l := stint.Must(stint.New(append(opts, stint.WithLogger(slog.New(handler)))...))
		for range 2 {
			before := log.Len()
			w := httptest.NewRecorder()
			l.Serve(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) {})
			for line := range strings.Lines(log.String()[before:]) {
				says := strings.Contains(line, "was denied") || strings.Contains(line, "are denied") || strings.Contains(line, "request=denied")
				passes := strings.Contains(line, "without the dry run") || strings.Contains(line, "goes on") || strings.Contains(line, "requests pass") ||
					strings.Contains(line, "request=passed") || strings.Contains(line, "requests get")
				if strings.Contains(line, "out of range") && !strings.Contains(line, "return 0 to 2^40") {
					t.Errorf("no correction: %s", line)
				}
				if denied := w.Code != 200; says && !denied || passes && denied {
					t.Errorf("status %d, and logged: %s", w.Code, line)
				}
			}
		}
		t.Log(log.String())
	}
}
