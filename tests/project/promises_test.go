package project

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
	"github.com/stint-go/stint/tenants"
)

// promise has the calls of which sentences of a doc comment say that they return an error, and calls beside
// them that must not.
type promise struct {
	sentences    int // of the comment, that have the form
	fails, works []error
}

// Each sentence of the form "returns an error if" or "for" in the documentation of the package is true, of the
// calls that it names and of no others. A sentence without a row here fails the test.
func TestErrorsThatAreDocumented(t *testing.T) {
	all := promises(t)
	found := map[string]int{}
	var files []string
	for _, dir := range []string{".", "store", "store/failover", "store/memstore", "store/redisstore", "tenants", "adapters/std", "adapters/gin", "adapters/echo"} {
		more, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	comment := regexp.MustCompile(`(?m)((?:^[ \t]*//.*\n)+)[ \t]*(?:func (?:\([^)]*\) )?|type )?(\w+)`)
	sentence := regexp.MustCompile(`(?:returns? an error (?:if|for)\b|and returns an error if one|also returns an error)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range comment.FindAllStringSubmatch(string(text), -1) {
			doc := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "//", " ")), " ")
			if n := len(sentence.FindAllString(doc, -1)); n > 0 {
				found[filepath.Join(filepath.Dir(file), m[2])] += n
			}
		}
	}
	for name, n := range found {
		if all[name].sentences != n {
			t.Errorf("%s: the documentation says %d times when an error is returned, and the table has %d: write a call that fails and one that doesn't", name, n, all[name].sentences)
		}
	}
	for name, p := range all {
		if found[name] == 0 {
			t.Errorf("%s: its documentation says nothing of an error", name)
		}
		if len(p.fails) < p.sentences || len(p.works) == 0 {
			t.Errorf("%s: %d calls that fail for %d sentences, %d that don't", name, len(p.fails), p.sentences, len(p.works))
		}
		for i, err := range p.fails {
			if err == nil {
				t.Errorf("%s: failing call %d returns no error", name, i+1)
			}
		}
		for i, err := range p.works {
			if err != nil {
				t.Errorf("%s: valid call %d: %v", name, i+1, err)
			}
		}
	}
}

func promises(t *testing.T) map[string]promise {
	s, ms := time.Second, time.Millisecond
	made := func(opts ...stint.Option) error { _, err := stint.New(opts...); return err }
	key, rate := stint.WithKey(stint.Header("K")), stint.Rate(9, s)
	with := func(opts ...stint.Option) error { return made(append([]stint.Option{key, rate}, opts...)...) }
	limits := func(l ...stint.Option) error { return made(append([]stint.Option{key}, l...)...) }
	keyed := func(k stint.Key) error { return made(stint.WithKey(k), rate) }
	of := func(o ...stint.RateOption) error { return limits(stint.Rate(9, s, o...)) }
	slots := func(o ...stint.SlotOption) error { return limits(stint.Concurrency(9, o...)) }
	adaptive := func(o ...stint.SlotOption) error { return limits(stint.AdaptiveConcurrency(1, 9, o...)) }
	route := func(o ...stint.RouteOption) error { return with(stint.WithRoute("/a", o...)) }
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is never called
	t.Cleanup(func() { _ = rdb.Close() })
	prefixed := func(prefix string) error {
		return limits(stint.Rate(9, s, stint.WithName("a")), stint.WithStore(redisstore.New(rdb, redisstore.WithPrefix(prefix))))
	}
	cidr := netip.MustParsePrefix("10.0.0.0/8")
	everyone := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1")}
	handler := http.NotFoundHandler()
	fair := stint.WithFairQueue(stint.GivenKey())
	class := func(*http.Request) int { return 1 }
	cost := func(*http.Request) int64 { return 1 }
	yes := func(*http.Request) bool { return true }
	ctx := context.Background()
	l := limiter(t, key, rate, stint.Rate(9, s, stint.WithKey(stint.Global()), stint.WithName("all")))
	plain := limiter(t, key, stint.Rate(9, s, stint.WithName("x")), stint.WithStore(storefake.New()))
	reset := func(l *stint.Limiter, names ...string) error { _, err := l.Reset(ctx, "k", names...); return err }
	parts := func(secondary store.Store, n int) error {
		s := failover.New(memstore.New(), secondary, failover.WithProcesses(n))
		defer s.Close()
		return s.Take(ctx, nil, nil)
	}
	settle := func(cost int64, names ...string) error {
		p, err := limiter(t, key, rate, stint.Concurrency(9)).Take(ctx, "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		return p.Settle(ctx, cost, names...)
	}
	source := func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) { return []stint.Limit{rate}, nil }
	named := stint.WithName("x")
	plan := func(context.Context, string) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(9, s, named)}, nil
	}
	cache := func(o ...tenants.Option) error { _, err := tenants.New(plan, o...); return err }
	plans, err := tenants.New(plan)
	if err != nil {
		t.Fatal(err)
	}
	failingKey := stint.KeyFunc(func(*http.Request) (string, error) { return "", storefake.ErrDown })
	denied := limiter(t, key, rate, plans.Limits(failingKey)).Admit(httptest.NewRecorder(), withKey(httptest.NewRequest("GET", "/", nil)), func(http.ResponseWriter, *http.Request) {})
	window := func(w store.Window) error {
		_, err := store.NewLimit(store.Spec{Name: "x", Algorithm: store.FixedWindow, Units: 9, Window: w})
		return err
	}
	one, err := store.NewLimit(store.Spec{Name: "x", Units: 1, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	charge, results := []store.Charge{{Key: "k", Limit: one, Cost: 1}}, make([]store.Result, 1)
	mem, failing := memstore.New(), storefake.New() // the second Take on mem is denied
	failing.FailWith(storefake.ErrDown)
	return map[string]promise{
		"adapters/gin/WithDenyHandler":  {1, []error{with(stintgin.WithDenyHandler(nil))}, []error{with(stintgin.WithDenyHandler(func(*gin.Context) {}))}},
		"adapters/echo/WithDenyHandler": {1, []error{with(stintecho.WithDenyHandler(nil))}, []error{with(stintecho.WithDenyHandler(func(echo.Context) error { return nil }))}},
		"store/Check": {1, []error{store.Check(charge, nil), store.Check([]store.Charge{{}}, results), store.Check([]store.Charge{{Limit: charge[0].Limit, Cost: -1}}, results)},
			[]error{store.Check(charge, results)}},
		"store/Take":              {1, []error{memstore.New().Take(ctx, charge, nil), failing.Take(ctx, charge, results)}, []error{mem.Take(ctx, charge, results), mem.Take(ctx, charge, results)}},
		"store/Checked":           {1, []error{limits(stint.Rate(9, s, named), stint.WithStore(redisstore.New(nil)))}, []error{limits(stint.Rate(9, s, named), stint.WithStore(memstore.New()))}},
		"store/Every":             {1, []error{window(store.Every(s + 1)), window(store.Every(3 * 365 * 24 * time.Hour))}, []error{window(store.Every(s))}},
		"store/In":                {2, []error{window(store.Daily.In(nil)), window(store.Every(s).In(time.UTC))}, []error{window(store.Daily.In(time.UTC))}},
		"store/From":              {1, []error{window(store.Daily.From(time.Time{}))}, []error{window(store.Daily.From(time.Unix(1, 0)))}},
		"tenants/WithTTL":         {1, []error{cache(tenants.WithTTL(ms - 1))}, []error{cache(tenants.WithTTL(ms))}},
		"tenants/WithSize":        {1, []error{cache(tenants.WithSize(0))}, []error{cache(tenants.WithSize(1))}},
		"tenants/WithLoadTimeout": {1, []error{cache(tenants.WithLoadTimeout(ms - 1))}, []error{cache(tenants.WithLoadTimeout(ms))}},
		"tenants/WithDefault":     {1, []error{cache(tenants.WithDefault()), cache(tenants.WithDefault(stint.Rate(0, s, named)))}, []error{cache(tenants.WithDefault(stint.Rate(9, s, named)))}},
		"tenants/Limits":          {2, []error{with(plans.Limits(stint.Key{})), denied}, []error{with(plans.Limits(stint.Header("A")))}},
		"WithDenyHandler": {1, []error{with(stint.WithDenyHandler(nil))},
			[]error{with(stint.WithDenyHandler(handler))}},
		"WithErrorHandler": {1, []error{with(stint.WithErrorHandler(nil))},
			[]error{with(stint.WithErrorHandler(func(http.ResponseWriter, *http.Request, error) {}))}},
		"Reset": {2, []error{reset(l, "all"), reset(plain)}, []error{reset(l), reset(l, "rate")}},
		"Key": {2, []error{keyed(stint.Key{}), keyed(stint.Header("a b")), keyed(stint.IP{Header: "a b", Trusted: []netip.Prefix{cidr}}.Key())},
			[]error{keyed(stint.Header("A")), keyed(stint.IP{Header: "X-Real-IP", Trusted: []netip.Prefix{cidr}}.Key())}},
		"KeyFunc": {1, []error{keyed(stint.KeyFunc(nil))},
			[]error{keyed(stint.KeyFunc(func(*http.Request) (string, error) { return "k", nil }))}},
		"WithKey": {1, []error{made(rate), keyed(stint.Key{}), with(key)}, []error{with()}},
		"WithEmptyKey": {1, []error{with(stint.WithEmptyKey(99))},
			[]error{with(stint.WithEmptyKey(stint.SkipEmptyKey))}},
		"Trusted": {1, []error{keyed(stint.IP{Header: "X-Real-IP", Trusted: everyone}.Key()), keyed(stint.IP{Header: "X-Real-IP", Trusted: []netip.Prefix{netip.MustParsePrefix("2000::/3")}}.Key())},
			[]error{keyed(stint.IP{Header: "X-Real-IP", Trusted: everyone[:1]}.Key())}},
		"ForwardedIP": {1, []error{keyed(stint.ForwardedIP())}, []error{keyed(stint.ForwardedIP(cidr))}},
		"HeaderIP": {1, []error{keyed(stint.HeaderIP("a b", cidr)), keyed(stint.HeaderIP("X-Forwarded-For", cidr)), keyed(stint.HeaderIP("X-Real-IP"))},
			[]error{keyed(stint.HeaderIP("X-Real-IP", cidr))}},
		"Header": {1, []error{keyed(stint.Header("a b")), keyed(stint.Header("X-Forwarded-For")), keyed(stint.Header("Forwarded")), keyed(stint.Header("Host"))},
			[]error{keyed(stint.Header("A"))}},
		"Cookie": {1, []error{keyed(stint.Cookie("a b"))}, []error{keyed(stint.Cookie("a"))}},
		"MuxPattern": {1, []error{keyed(stint.MuxPattern(nil))},
			[]error{keyed(stint.MuxPattern(http.NewServeMux()))}},
		"GivenKey": {1, []error{keyed(stint.Join(stint.GivenKey(), stint.RemoteIP())), keyed(stint.FirstOf(stint.GivenKey())), keyed(stint.Hash(make([]byte, 16), stint.GivenKey()))},
			[]error{keyed(stint.GivenKey())}},
		"Join": {1, []error{keyed(stint.Join()), keyed(stint.Join(stint.Key{})), keyed(stint.Join(stint.GivenKey()))},
			[]error{keyed(stint.Join(stint.RemoteIP(), stint.Method()))}},
		"FirstOf": {1, []error{keyed(stint.FirstOf()), keyed(stint.FirstOf(stint.Key{})), keyed(stint.FirstOf(stint.RemoteIP(), stint.Header("A")))},
			[]error{keyed(stint.FirstOf(stint.Header("A"), stint.RemoteIP()))}},
		"Hash": {1, []error{keyed(stint.Hash(make([]byte, 15), stint.Header("A"))), keyed(stint.Hash(make([]byte, 16), stint.Key{}))},
			[]error{keyed(stint.Hash([]byte("0123456789abcdef"), stint.Header("A")))}},
		"WithLimitFunc": {1, []error{with(stint.WithLimitFunc(nil))},
			[]error{with(stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{rate}, nil }))}},
		"WithLimitSource": {1, []error{with(stint.WithLimitSource(stint.Header("A"), nil)), with(stint.WithLimitSource(stint.GivenKey(), source)), with(stint.WithLimitSource(stint.Key{}, source))},
			[]error{with(stint.WithLimitSource(stint.Header("A"), source))}},
		"Check": {1, []error{stint.LimitUser{}.Check(stint.Rate(9, s, named), stint.Rate(8, s, named)), stint.LimitUser{}.Check(stint.Rate(0, s, named))},
			[]error{stint.LimitUser{}.Check(stint.Rate(9, s, named))}},
		"Limit": {1, []error{limits(stint.Limit{}), limits(stint.Rate(0, s))}, []error{limits(rate)}},
		"Every": {1, []error{limits(stint.Quota(9, stint.Every(ms/2))), limits(stint.Quota(9, stint.Every(s+1))), limits(stint.Quota(9, stint.Every(3*365*24*time.Hour)))},
			[]error{limits(stint.Quota(9, stint.Every(ms))), limits(stint.Quota(9, stint.Every(2*365*24*time.Hour)))}},
		"Rate": {2, []error{limits(stint.Rate(0, s)), limits(stint.Rate(1<<40+1, s)), limits(stint.Rate(9, ms/2)), limits(stint.Rate(9, s+1)), limits(stint.Rate(9, 3*365*24*time.Hour)), of(stint.WithBuckets(5)), limits(stint.Rate(15_000_000, s))},
			[]error{limits(stint.Rate(1, ms)), limits(stint.Rate(14_000_000, s))}},
		"Quota": {1, []error{limits(stint.Quota(0, stint.Daily)), limits(stint.Quota(9, stint.Window{})), limits(stint.Quota(9, stint.Every(s).In(time.UTC))), limits(stint.Quota(9, stint.Daily, stint.WithAlgorithm(stint.TokenBucket)))},
			[]error{limits(stint.Quota(9, stint.Daily.In(time.UTC)))}},
		"WithBurst": {2, []error{of(stint.WithBurst(-1)), of(stint.WithBurst(1<<40 + 1)), of(stint.WithBurst(5), stint.WithAlgorithm(stint.SlidingLog)), of(stint.WithBurst(0))},
			[]error{of(stint.WithBurst(1)), of(stint.WithBurst(0), stint.WithDebt())}},
		"WithAlgorithm": {1, []error{of(stint.WithAlgorithm(99)), limits(stint.Quota(9, stint.Daily, stint.WithAlgorithm(stint.SlidingLog)))},
			[]error{of(stint.WithAlgorithm(stint.SlidingLog)), limits(stint.Quota(9, stint.Daily, stint.WithAlgorithm(stint.IntervalBucket)))}},
		"WithName": {1, []error{of(stint.WithName("")), of(stint.WithName("1a")), of(stint.WithName(strings.Repeat("a", 65)))},
			[]error{of(stint.WithName("a1_.-")), of(stint.WithName(strings.Repeat("a", 64)))}},
		"WithWarmUp": {1, []error{of(stint.WithWarmUp(0)), of(stint.WithWarmUp(10*s), stint.WithAlgorithm(stint.TokenBucket))},
			[]error{of(stint.WithWarmUp(10 * s))}},
		"WithDebt": {1, []error{of(stint.WithDebt(), stint.WithAlgorithm(stint.SlidingLog))},
			[]error{of(stint.WithDebt())}},
		"WithBuckets": {2, []error{of(stint.WithBuckets(0), stint.WithAlgorithm(stint.SlidingWindow)), limits(stint.Rate(9, ms, stint.WithBuckets(1001), stint.WithAlgorithm(stint.SlidingWindow))), of(stint.WithBuckets(5)), limits(stint.Rate(9, 1009*time.Microsecond, stint.WithBuckets(15), stint.WithAlgorithm(stint.SlidingWindow)))},
			[]error{of(stint.WithBuckets(5), stint.WithAlgorithm(stint.SlidingWindow))}},
		"WithMaxWait": {1, []error{of(stint.WithMaxWait(0)), of(stint.WithMaxWait(ms - 1))},
			[]error{of(stint.WithMaxWait(ms))}},
		"WithNearLimit": {1, []error{of(stint.WithNearLimit(0)), of(stint.WithNearLimit(101)), of(stint.WithNearLimit()), slots(stint.WithNearLimit(80)),
			adaptive(stint.WithNearLimit(80)), of(stint.WithNearLimit(80), stint.WithWarmUp(s)), of(stint.WithNearLimit(80), stint.WithDebt(), stint.WithBurst(0))},
			[]error{of(stint.WithNearLimit(100, 1)), of(stint.WithNearLimit(80), stint.WithDebt(), stint.WithBurst(1)), with(stint.WithNearLimit(80))}},
		"WithQueue": {1, []error{of(stint.WithQueue(5), stint.WithAlgorithm(stint.SlidingLog))},
			[]error{of(stint.WithQueue(5)), slots(stint.WithQueue(5))}},
		"WithPriority": {1, []error{slotsWith(made, key, stint.WithPriority(nil))},
			[]error{slotsWith(made, key, stint.WithPriority(class)), with(stint.WithPriority(class)), made(key, stint.Rate(9, s, stint.WithMaxWait(s)), stint.WithPriority(class))}},
		"WithShare": {1, []error{slots(stint.WithQueue(9), stint.WithShare(10, 50)), slots(stint.WithQueue(9), stint.WithShare(1, 0)), slots(stint.WithQueue(9), stint.WithShare(1, 50), stint.WithShare(1, 10)), slots(stint.WithQueue(9), stint.WithShare(1, 60), stint.WithShare(2, 60)), slots(stint.WithQueue(0), stint.WithShare(1, 50))},
			[]error{slots(stint.WithQueue(9), stint.WithShare(1, 60), stint.WithShare(2, 40)), slots(stint.WithShare(1, 50))}},
		"WithFairQueue": {1, []error{slots(stint.WithQueue(9), stint.WithFairQueue(stint.Key{})), slots(stint.WithQueue(9), stint.WithFairQueue(stint.Global())), slots(stint.WithQueue(9), fair, stint.WithShare(1, 50)), slots(fair), slots(stint.WithQueue(0), fair), adaptive(stint.WithQueue(9), fair)},
			[]error{slots(stint.WithQueue(9), fair), slots(stint.WithMaxWait(s), fair)}},
		"Concurrency": {1, []error{limits(stint.Concurrency(0)), limits(stint.Concurrency(1<<40 + 1))},
			[]error{limits(stint.Concurrency(1))}},
		"AdaptiveConcurrency": {1, []error{limits(stint.AdaptiveConcurrency(0, 9)), limits(stint.AdaptiveConcurrency(9, 8)), limits(stint.AdaptiveConcurrency(1, 1_000_001))},
			[]error{limits(stint.AdaptiveConcurrency(1, 1_000_000))}},
		"Gradient2": {1, []error{adaptive(stint.WithAdaptation(stint.Gradient2(0.9))), adaptive(stint.WithAdaptation(stint.Gradient2(101))), adaptive(stint.WithAdaptation(stint.Gradient2(math.NaN())))},
			[]error{adaptive(stint.WithAdaptation(stint.Gradient2(1)))}},
		"AIMD": {1, []error{adaptive(stint.WithAdaptation(stint.AIMD(0))), adaptive(stint.WithAdaptation(stint.AIMD(ms - 1)))},
			[]error{adaptive(stint.WithAdaptation(stint.AIMD(ms)))}},
		"WithAdaptation": {1, []error{adaptive(stint.WithAdaptation(stint.Adaptation{})), adaptive(stint.WithAdaptation(stint.Gradient2(0)))},
			[]error{adaptive(stint.WithAdaptation(stint.Vegas()))}},
		"WithInitialLimit": {1, []error{adaptive(stint.WithInitialLimit(0)), adaptive(stint.WithInitialLimit(10))},
			[]error{adaptive(stint.WithInitialLimit(9))}},
		"WithSampleWindow": {1, []error{adaptive(stint.WithSampleWindow(99 * ms))},
			[]error{adaptive(stint.WithSampleWindow(100 * ms))}},
		"Bandwidth": {1, []error{limits(stint.Bandwidth(1023)), limits(stint.Bandwidth(1<<36 + 1)), limits(stint.Bandwidth(4096, stint.WithBurst(4095)))},
			[]error{limits(stint.Bandwidth(1024)), limits(stint.Bandwidth(4096, stint.WithBurst(4096)))}},
		"WithDirection": {1, []error{limits(stint.Bandwidth(4096, stint.WithDirection(99)))},
			[]error{limits(stint.Bandwidth(4096, stint.WithDirection(stint.Both)))}},
		"Ban": {2, []error{with(stint.Ban(0, s, stint.WithBanFor(s))), with(stint.Ban(9, ms/2, stint.WithBanFor(s))), with(stint.Ban(9, s)), limits(stint.Ban(9, s, stint.WithBanFor(s))), with(stint.Ban(9, s, stint.WithBanFor(s), stint.WithKey(stint.RemoteIP())))},
			[]error{with(stint.Ban(9, s, stint.WithBanFor(s)))}},
		"store/failover/WithProcesses": {1, []error{parts(nil, 2), parts(memstore.New(), 0), parts(memstore.New(), 1_000_001)}, []error{parts(memstore.New(), 1), parts(memstore.New(), 1_000_000)}},
		"store/redisstore/WithPrefix":  {1, []error{prefixed("{a}:"), prefixed("a}"), prefixed("{a")}, []error{prefixed("a:"), prefixed("")}},
		"store/CheckBan":               {1, []error{store.CheckBan(ms - 1), store.CheckBan(365*24*time.Hour + 1), store.CheckBan(s, nil)}, []error{store.CheckBan(ms), store.CheckBan(365 * 24 * time.Hour)}},
		"WithBanFor": {1, []error{with(stint.Ban(9, s, stint.WithBanFor(0))), with(stint.Ban(9, s, stint.WithBanFor(s+1))), with(stint.Ban(9, s, stint.WithBanFor(2*365*24*time.Hour)))},
			[]error{with(stint.Ban(9, s, stint.WithBanFor(ms)))}},
		"Mount": {1, []error{limiter(t, rate, stint.WithKey(stint.GivenKey())).Mount("stinthttp")},
			[]error{l.Mount("stinthttp")}},
		"WithObserver": {1, []error{with(stint.WithObserver(nil))},
			[]error{with(stint.WithObserver(func(stint.Event) {}))}},
		"WithLogger": {1, []error{with(stint.WithLogger(nil))},
			[]error{with(stint.WithLogger(slog.New(slog.DiscardHandler)))}},
		"Option": {1, []error{with(nil)}, []error{with()}},
		"RouteOption": {1, []error{route(stint.Concurrency(9), stint.WithFixedCost(2), stint.Only(stint.Concurrency(8, named)))},
			[]error{route(stint.Rate(8, s, named), stint.WithFixedCost(2))}},
		"WithHeaders": {1, []error{with(stint.WithHeaders()), with(stint.WithHeaders(99)), with(stint.WithHeaders(stint.NoHeaders, stint.XRateLimitHeaders)), with(stint.WithHeaders(stint.XRateLimitHeaders, stint.XRateLimitUnixHeaders))},
			[]error{with(stint.WithHeaders(stint.NoHeaders))}},
		"WithHidden": {1, []error{with(stint.Ban(9, s, stint.WithBanFor(s), stint.WithHidden())), limits(stint.Bandwidth(4096, stint.WithHidden()))},
			[]error{of(stint.WithHidden())}},
		"WithRetryJitter": {1, []error{with(stint.WithRetryJitter(-1)), with(stint.WithRetryJitter(ms - 1)), with(stint.WithRetryJitter(25 * time.Hour))},
			[]error{with(stint.WithRetryJitter(0)), with(stint.WithRetryJitter(24 * time.Hour))}},
		"WithStore": {2, []error{with(stint.WithStore(nil)), limits(stint.Rate(9, s, named), stint.WithStore(memstore.New(memstore.WithMaxKeys(0)))), with(stint.WithStore(memstore.New()))},
			[]error{limits(stint.Rate(9, s, named), stint.WithStore(memstore.New()))}},
		"WithLimiterName": {1, []error{with(stint.WithLimiterName("1")), with(stint.WithLimiterName(strings.Repeat("a", 65)))},
			[]error{with(stint.WithLimiterName("a"))}},
		"WithFailurePolicy": {1, []error{with(stint.WithFailurePolicy(99))},
			[]error{with(stint.WithFailurePolicy(stint.FailClosed))}},
		"WithSkip": {1, []error{with(stint.WithSkip(nil))},
			[]error{with(stint.WithSkip(yes)), l.Update(stint.WithSkip(nil))}},
		"WithBlock": {1, []error{with(stint.WithBlock(nil))},
			[]error{with(stint.WithBlock(yes)), l.Update(stint.WithBlock(nil))}},
		"WithRoute": {2, []error{with(stint.WithRoute("/{", stint.Exempt())), with(stint.WithRoute("/a/{x}", stint.Exempt()), stint.WithRoute("/{y}/b", stint.Exempt())), route(), route(stint.Exempt(), stint.WithMaxWait(s)), route(rate), with(stint.WithRoute("POST/login", stint.Exempt())), with(stint.WithRoute("^/api/.*", stint.Exempt()))},
			[]error{route(stint.Rate(8, s, named))}},
		"Only": {1, []error{route(stint.Only()), route(stint.Only(stint.Rate(8, s, named)), stint.Only(stint.Rate(7, s, stint.WithName("y")))), route(stint.Only(stint.Rate(8, s, named)), stint.Rate(7, s, stint.WithName("y"))), with(stint.Only(stint.Rate(8, s, named)))},
			[]error{route(stint.Only(stint.Rate(8, s, named)))}},
		"Exempt": {1, []error{with(stint.Exempt()), route(stint.Exempt(), stint.Rate(8, s, named))},
			[]error{route(stint.Exempt())}},
		"WithCost": {1, []error{of(stint.WithCost(nil))}, []error{of(stint.WithCost(cost))}},
		"WithFixedCost": {1, []error{of(stint.WithFixedCost(0)), of(stint.WithFixedCost(1<<40 + 1)), of(stint.WithFixedCost(10)), of(stint.WithFixedCost(9), stint.WithBurst(3), stint.WithDebt(), stint.WithMaxWait(ms), stint.WithAlgorithm(stint.LeakyBucket))},
			[]error{of(stint.WithFixedCost(9))}},
		"WithSettle": {1, []error{of(stint.WithSettle(nil))},
			[]error{of(stint.WithSettle(func(*http.Request, int, int64) int64 { return 0 }))}},
		"Settle": {1, []error{settle(-1), settle(1<<53, "rate"), settle(1, "gone"), settle(1, "concurrency")},
			[]error{settle(0), settle(2, "rate")}},
		"Update":        {1, []error{l.Update(stint.WithStore(memstore.New()))}, []error{l.Update()}},
		"WithoutRoutes": {1, []error{with(stint.WithoutRoutes())}, []error{l.Update(stint.WithoutRoutes())}},
		"WithoutLimitFuncs": {1, []error{with(stint.WithoutLimitFuncs())},
			[]error{l.Update(stint.WithoutLimitFuncs())}},
		"WithoutWarnings": {1, []error{with(stint.WithoutWarnings("gone"))},
			[]error{with(stint.WithoutWarnings("one-key"))}},
	}
}

// withKey gives a request the key of the limiter.
func withKey(r *http.Request) *http.Request {
	r.Header.Set("K", "k")
	return r
}

// slotsWith makes a limiter whose requests wait for slots.
func slotsWith(made func(...stint.Option) error, key stint.Option, o stint.Option) error {
	return made(key, stint.Concurrency(9, stint.WithQueue(9)), o)
}
