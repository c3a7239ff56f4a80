package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func noPlans(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
	return nil, nil
}

func TestNewSaysWhatToWrite(t *testing.T) {
	rate := stint.Rate(1, time.Second)
	tests := []struct {
		name string
		opts []stint.Option
		want []string // one for each error, in order; each a part of its text
	}{
		{"no key", []stint.Option{rate}, []string{`limit "rate": the limit has no key, and no default would be safe: add stint.WithKey(stint.RemoteIP())`}},
		{"no key on each", []stint.Option{rate, stint.Concurrency(1)}, []string{`stint: the limits "rate" and "concurrency" have no key, and no default would be safe: add stint.WithKey(stint.RemoteIP())`}},
		{"no key on a route", []stint.Option{stint.Rate(1, time.Second, everybody), stint.WithRoute("/a", stint.Rate(2, time.Second))},
			[]string{`limit "rate-2": the limit has no key`}},
		{"wrong, and no key", []stint.Option{stint.Rate(0, time.Second), stint.Rate(1, time.Hour), stint.WithRoute("/a", stint.Concurrency(0))},
			[]string{`"rate": 0 units`, `"concurrency": 0 slots`, `the limits "rate", "rate-2" and "concurrency" of WithRoute("/a") have no key`}},
		{"a wrong key is no missing one", []stint.Option{rate, stint.WithKey(stint.Key{})}, []string{"WithKey(Key{}): use a key"}},
		{"wrong, and what it stands beside", []stint.Option{stint.Rate(0, time.Second), stint.Ban(1, time.Hour, stint.WithBanFor(0)), stint.WithRoute("x", stint.Rate(1, time.Second))},
			[]string{`"rate": 0 units`, `"ban": WithBanFor(0s): use 1ms to 8760h`, `the limits "rate", "ban" and "rate-2" of WithRoute("x") have no key`, `WithRoute("x"): the path is missing: use "/x"`}},
		{"wrong beside a ban", []stint.Option{everybody, stint.Rate(0, time.Second), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour))}, []string{"0 units"}},
		{"wrong in several ways", []stint.Option{everybody,
			stint.Bandwidth(5, stint.WithBurst(6), stint.WithName("a b")),
			stint.Rate(0, 0, stint.WithAlgorithm(99)),
			stint.Rate(1, time.Hour, stint.WithBurst(1<<40), stint.WithName(" "))},
			[]string{`WithName("a b")`, "Bandwidth(5)", "WithBurst(6)", "0 units", "WithAlgorithm(99): use a constant", "a period of 0s", `WithName(" ")`, "would take more than 100 years to refill"}},
		{"durations without a unit", []stint.Option{everybody, stint.WithMaxWait(100),
			stint.Rate(5, 60, stint.WithWarmUp(4)), stint.Quota(1, stint.Every(7)),
			stint.Ban(3, 10, stint.WithBanFor(5)),
			stint.AdaptiveConcurrency(1, 9, stint.WithAdaptation(stint.AIMD(150)), stint.WithSampleWindow(500))},
			[]string{"WithMaxWait(100ns): use 100*time.Second or 100*time.Millisecond, since a number without a unit is in nanoseconds", "WithWarmUp(4ns): use 4*time.Second or 4*time.Millisecond, since a number without a unit is in nanoseconds", "a period of 60ns: use 60*time.Second or 60*time.Millisecond, since",
				"a window of 7ns: use 7*time.Second or 7*time.Millisecond, since", "WithBanFor(5ns): use 5*time.Second or 5*time.Millisecond, since a number without a unit is in nanoseconds", "a period of 10ns: use 10*time.Second or 10*time.Millisecond, since",
				"AIMD(150ns): use 150*time.Second or 150*time.Millisecond, since a number without a unit is in nanoseconds", "WithSampleWindow(500ns): use 500*time.Second or 500*time.Millisecond, since a number without a unit is in nanoseconds"}},
		{"nothing", nil, []string{"no limits: add at least one"}},
		{"no limits", []stint.Option{everybody}, []string{"no limits"}},
		{"nil option", []stint.Option{rate, nil, everybody}, []string{"option 2 is nil"}},
		{"zero limit", []stint.Option{rate, stint.Limit{}, everybody}, []string{"Limit{}: use a limit, such as stint.Rate(10, time.Second)"}},
		{"nil functions", []stint.Option{rate, everybody,
			stint.WithCost(nil), stint.WithSettle(nil), stint.WithStore(nil), stint.WithLimitFunc(nil), stint.WithSkip(nil),
			stint.WithBlock(nil), stint.WithDenyHandler(nil), stint.WithErrorHandler(nil), stint.WithObserver(nil), stint.WithLogger(nil)},
			[]string{"WithStore(nil)", "WithLimitFunc(nil)", "WithBlock(nil)", "WithDenyHandler(nil)",
				"WithErrorHandler(nil)", "WithObserver(nil)", "WithLogger(nil)", "WithCost(nil)", "WithSettle(nil)", "WithSkip(nil)"}},
		{"percentages of near limits", []stint.Option{everybody, stint.Rate(10, time.Second, stint.WithNearLimit(80, 0)), stint.Quota(10, stint.Daily, stint.WithNearLimit(101, 80)),
			stint.Rate(10, time.Second, stint.WithNearLimit(), stint.WithName("none")), stint.Concurrency(5, stint.WithNearLimit(80)), stint.AdaptiveConcurrency(1, 5, stint.WithNearLimit(80)),
			stint.Rate(10, time.Minute, stint.WithDebt(), stint.WithNearLimit(80), stint.WithName("debt")), stint.Rate(10, time.Second, stint.WithWarmUp(time.Second), stint.WithNearLimit(80), stint.WithName("warm"))},
			[]string{`"rate": WithNearLimit(80, 0): use percentages from 1 to 100, such as 80, 95`, `"daily": WithNearLimit(101, 80): use percentages`, `"none": WithNearLimit(): use percentages`,
				`"concurrency": WithNearLimit: this option doesn't apply to a Concurrency: leave it out, or use it in a Rate or Quota`, `"adaptive": WithNearLimit: this option doesn't apply to an AdaptiveConcurrency`,
				`"debt": WithNearLimit: its percentages are of the burst, and the limit has no burst: leave it out, or use stint.WithBurst with 1 or more`,
				`"warm": WithNearLimit: its percentages are of the burst, and the limit has no burst: leave it out, or use stint.WithBurst in place of WithWarmUp`}},
		{"a near limit of no limit", []stint.Option{everybody, stint.WithNearLimit(80), stint.Concurrency(5), stint.WithRoute("/a", stint.WithNearLimit(80), stint.Concurrency(2, stint.WithName("a")))},
			[]string{`WithRoute("/a"): WithNearLimit: no limit of the route uses this option: leave it out, or add a Rate or a Quota to the route`, `WithNearLimit: no limit of the limiter uses this option: leave it out, or add a Rate or a Quota to the limiter`}},
		{"fixed costs", []stint.Option{everybody, stint.WithFixedCost(20), stint.Rate(10, time.Second), stint.Rate(10, time.Second, stint.WithBurst(30)),
			stint.Concurrency(5), stint.Concurrency(5, stint.WithName("own"), stint.WithFixedCost(6)),
			stint.WithRoute("/a", stint.WithFixedCost(31)), stint.WithRoute("/a/b", stint.Rate(40, time.Second)), stint.Quota(1, stint.Daily, stint.WithFixedCost(0))},
			[]string{`"daily": WithFixedCost(0): use 1 to 2^40`, `limit "rate": WithFixedCost(20): a request costs 20, but the limit never admits more than 10: use a lower cost, or raise the limit`, `"own": WithFixedCost(6)`,
				`WithRoute("/a"): limit "rate": WithFixedCost(31)`, `WithRoute("/a"): limit "rate-2": WithFixedCost(31)`}},
		{"fixed costs that no request waits for", []stint.Option{everybody, stint.WithMaxWait(300 * time.Millisecond),
			stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithFixedCost(5), stint.WithName("leaky")),
			stint.Rate(10, time.Second, stint.WithBurst(2), stint.WithQueue(10), stint.WithFixedCost(6), stint.WithName("queue")),
			stint.WithRoute("/a", stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithMaxWait(time.Second), stint.WithName("route")), stint.WithFixedCost(12))},
			[]string{`limit "leaky": WithFixedCost(5): a request costs 5, but the limit admits at most 4 within the longest wait of 300ms: use a lower cost, or a longer wait`,
				`limit "queue": WithFixedCost(6): a request costs 6, but the limit admits at most 5 within`, `WithRoute("/a"): limit "route": WithFixedCost(12): a request costs 12, but the limit never admits more than 11`}},
		{"a source by wrong keys", []stint.Option{rate, everybody, stint.WithLimitSource(stint.Key{}, nil), stint.WithLimitSource(stint.Header("a b"), noPlans)},
			[]string{"WithLimitSource(Key{}): use a key", "WithLimitSource: the function is nil", `WithLimitSource(Header("a b")): this isn't a valid name of a header field: use letters`}},
		{"no source by a right key", []stint.Option{everybody, stint.WithLimitSource(stint.ForwardedIP(), noPlans)}, []string{"WithLimitSource(ForwardedIP): no proxy is trusted"}},
		{"no function", []stint.Option{everybody, stint.WithLimitFunc(nil)}, []string{"WithLimitFunc(nil): pass a function"}},
		{"shared options", []stint.Option{rate, everybody, stint.WithMaxWait(-1), stint.WithFailurePolicy(7), stint.WithEmptyKey(9)},
			[]string{"WithMaxWait(-1ns)", "WithFailurePolicy(7)", "WithEmptyKey(9)"}},
		{"headers", []stint.Option{rate, everybody, stint.WithHeaders(), stint.WithHeaders(9), stint.WithHeaders(stint.NoHeaders, stint.XRateLimitHeaders), stint.WithHeaders(stint.XRateLimitHeaders, stint.XRateLimitUnixHeaders)},
			[]string{"WithHeaders()", "unknown style 9", "NoHeaders beside another", "can't be both seconds and a Unix time"}},
		{"numbers", []stint.Option{everybody, stint.Rate(0, time.Second), stint.Rate(1, 0), stint.Concurrency(-1), stint.Quota(1, stint.Window{})},
			[]string{`limit "rate": 0 units`, `limit "rate-2": a period of 0s: use 1ms or more`, `limit "concurrency": -1 slots`, `limit "quota": the quota has no window: use a window such as stint.Daily`}},
		{"limit options", []stint.Option{everybody,
			stint.Rate(1, time.Second, nil),
			stint.Rate(1, time.Second, stint.WithBurst(-1), stint.WithQueue(-2), stint.WithBuckets(0)),
			stint.Rate(1, time.Second, stint.WithWarmUp(time.Second), stint.WithAlgorithm(stint.SlidingLog)),
			stint.Rate(1, time.Second, stint.WithAlgorithm(store.Concurrency), stint.WithAlgorithm(store.Ban), stint.WithAlgorithm(store.WarmUp)),
			stint.Rate(1, time.Second, stint.WithKey(stint.KeyFunc(nil))),
			stint.Rate(1, time.Second, stint.WithName("a b"))},
			[]string{`limit "rate": option 1 is nil`, `"rate-2": WithBurst(-1)`, `"rate-2": WithQueue(-2)`, `"rate-2": WithBuckets(0)`,
				`"rate-3": WithWarmUp: SlidingLog doesn't warm up: leave WithAlgorithm or WithWarmUp out`, `"rate-4": WithAlgorithm(Concurrency): use stint.Concurrency`, `"rate-4": WithAlgorithm(Ban): use stint.Ban`, `"rate-4": WithAlgorithm(WarmUp): use stint.WithWarmUp`, `"rate-5": WithKey(KeyFunc(nil))`, `stint: WithName("a b"): use a letter`}},
		{"names", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.Quota(1, stint.Daily, stint.WithName("x"))},
			[]string{`limit "x": another limit has that name`}},
		{"names across routes", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")),
			stint.WithRoute("/a", stint.Rate(1, time.Second, stint.WithName("x")))},
			[]string{`WithRoute("/a"): limit "x": another limit has that name: give one of them another name with stint.WithName, or, in routes that don't overlap, use one value in both: login := stint.Rate(…)`}},
		{"one limit twice", []stint.Option{everybody, rate, rate}, []string{`limit "rate": given twice`}},
		{"bad pattern", []stint.Option{everybody, rate, stint.WithRoute("POST login", rate)}, []string{`WithRoute("POST login"): the path is missing: use "POST /login"`}},
		{"patterns of other routers", []stint.Option{everybody, rate, stint.WithRoute("GET /users/:id/posts", rate), stint.WithRoute("example.com/files/*", rate), stint.WithRoute("/*path", rate), stint.WithRoute("/a/*/b", rate)},
			[]string{`WithRoute("GET /users/:id/posts"): segments such as :id or * aren't wildcards here, but plain text: use "GET /users/{id}/posts"`,
				`use "example.com/files/{rest...}"`, `use "/{path...}"`, `use "/a/{rest}/b"`}},
		{"parts of URLs that no pattern has", []stint.Option{everybody, rate, stint.WithRoute("GET /search?q=1", rate), stint.WithRoute("/a#b", rate), stint.WithRoute("GET example.com:8080/x", rate), stint.WithRoute("https://example.com/y", rate)},
			[]string{`WithRoute("GET /search?q=1"): a pattern is compared with the path alone, without a query or a fragment: use "GET /search"`, `use "/a"`,
				`a pattern's host can't contain a port: use "GET example.com/x"`, `a pattern can't contain a scheme: use "example.com/y"`}},
		{"methods in lower case", []stint.Option{everybody, rate, stint.WithRoute("get /x", rate), stint.WithRoute("Post  example.com/:x", rate)},
			[]string{`WithRoute("get /x"): the method must be in upper case: use "GET /x"`, `use "POST example.com/{x}"`}},
		{"patterns that no request matches", []stint.Option{everybody, rate, stint.WithRoute("POST/login", rate), stint.WithRoute("^/api/.*", rate), stint.WithRoute("API.example.com/", rate), stint.WithRoute("/x y", rate)},
			[]string{`WithRoute("POST/login"): there is no space between the method and the path: use "POST /login"`, `WithRoute("^/api/.*"): a pattern isn't a regular expression: use "/api/{rest...}"`,
				`hosts are compared in lower case: use "api.example.com/"`, `use "/x%20y"`}},
		{"no client", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.WithStore(redisstore.New(nil))},
			[]string{"WithStore: the Redis client is nil: pass a client, such as redis.NewClient"}},
		{"no client of a type, in a failover", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")),
			stint.WithStore(failover.New(redisstore.New((*redis.ClusterClient)(nil), redisstore.WithPrefix("{a}")), memstore.New()))},
			[]string{"WithStore: the Redis client is nil: ", `WithStore: prefix "{a}": use a prefix without braces`}},
		{"a nil store of a type", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.WithStore((*memstore.Store)(nil))},
			[]string{"WithStore: a nil *memstore.Store: pass a store that memstore.New, redisstore.New or the like has returned"}},
		{"zero stores", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.WithStore(failover.New(new(redisstore.Store), new(memstore.Store)))},
			[]string{"WithStore: the zero redisstore.Store: use redisstore.New(client)", "WithStore: the zero memstore.Store: use memstore.New()"}},
		{"wrong options of stores", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")),
			stint.WithStore(failover.New(memstore.New(memstore.WithMaxKeys(0)), nil, failover.WithThreshold(0)))},
			[]string{"WithStore: WithThreshold(0): use 1 or more", "WithStore: WithMaxKeys(0): use 1 to 2147483647"}},
		{"no time zone", []stint.Option{everybody, stint.Quota(1, stint.Daily.In(nil))},
			[]string{`limit "daily": the time zone is nil: check the error of time.LoadLocation; where the system has no zones, import _ "time/tzdata"`}},
		{"a header of proxies", []stint.Option{rate, stint.WithKey(stint.Header("X-Forwarded-For"))},
			[]string{`WithKey(Header("X-Forwarded-For")): a client can write anything into this field: use stint.ForwardedIP`}},
		{"a route with nothing", []stint.Option{everybody, rate, stint.WithRoute("/a")},
			[]string{`WithRoute("/a"): the route has no limits and no options: add limits, a stint.WithCost, or stint.Exempt() if its requests have no limits`}},
		{"a route of settings", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.WithDryRun(true), everybody), stint.WithRoute("/b", stint.WithFixedCost(1), stint.WithMaxWait(time.Second))},
			[]string{`WithRoute("/a"): WithKey: no limit of the route uses this option: leave it out, or add a limit to the route`, `WithRoute("/a"): WithDryRun: no limit of the route uses this option`,
				`WithRoute("/b"): WithMaxWait: no limit of the route uses this option: leave it out, or add a Rate, a Quota or a Concurrency to the route`}},
		{"settings of other kinds of limit", []stint.Option{everybody, stint.Concurrency(1), stint.WithFixedCost(2), stint.WithSettle(stint.FailedOnly),
			stint.WithRoute("/a", stint.Bandwidth(1<<20), stint.WithMaxWait(time.Second)), stint.WithRoute("/b", stint.WithCost(func(*http.Request) int64 { return 2 }))},
			[]string{`WithRoute("/a"): WithMaxWait: no limit of the route uses this option: leave it out, or add a Rate, a Quota or a Concurrency to the route`, `WithRoute("/b"): WithCost: no rate or quota of the route uses this cost: leave it out`,
				`WithFixedCost(2): no limit of the limiter uses this option: leave it out, or add a Rate or a Quota to the limiter`, `WithSettle: no limit of the limiter uses this option`}},
		{"a cost beside limits that have one", []stint.Option{everybody, stint.Rate(9, time.Second, stint.WithFixedCost(3)), stint.WithRoute("/a", stint.WithFixedCost(2))},
			[]string{`WithRoute("/a"): WithFixedCost(2): no rate or quota of the route uses this cost`}},
		{"Only without limits", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.Only()), stint.WithRoute("/b", stint.Only([]stint.Limit{}...))},
			[]string{`WithRoute("/a"): Only: no limits: add limits, or use stint.Exempt() in place of stint.Only if the route has none`, `WithRoute("/b"): Only: no limits`}},
		{"Only twice", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.Only(rate), stint.Only(stint.Concurrency(1)))},
			[]string{`WithRoute("/a"): Only: given twice: put the limits of both into one`}},
		{"Only beside limits", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.Only(rate), stint.Concurrency(1))},
			[]string{`WithRoute("/a"): Only: combined with other limits: put them into stint.Only`}},
		{"Only outside a route", []stint.Option{everybody, rate, stint.Only(stint.Concurrency(1))}, []string{"Only: it has no effect outside a route: pass the limits without it, or put it in a stint.WithRoute"}},
		{"Exempt beside something", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.Exempt(), stint.Concurrency(1)), stint.WithRoute("/b", stint.WithFixedCost(1), stint.Exempt()),
			stint.WithRoute("/c", stint.Exempt(), stint.Only(stint.Quota(1, stint.Daily))), stint.WithRoute("/d", stint.Exempt(), stint.Exempt()), stint.WithRoute("/e", stint.Only(stint.Exempt()))},
			[]string{`WithRoute("/c"): Exempt(): combined with stint.Only: leave Exempt out, or stint.Only`, `WithRoute("/d"): Exempt(): given twice`, `WithRoute("/e"): Only(Exempt()): use stint.Exempt() alone`,
				`WithRoute("/a"): Exempt(): combined with other options: leave Exempt out, or the other options: an exempt route has no limits`, `WithRoute("/b"): Exempt(): combined with other`}},
		{"Exempt in New", []stint.Option{everybody, rate, stint.Exempt()}, []string{"Exempt(): it has no effect outside a route or a limit function: put it in a stint.WithRoute"}},
		{"routes without limits", []stint.Option{stint.WithRoute("/a", stint.Exempt())}, []string{"no limits"}},
		{"a limit that holds already", []stint.Option{everybody, rate, stint.WithRoute("/a", rate), stint.WithRoute("/b/", stint.Only(rate)), stint.WithRoute("/b/c", rate)},
			[]string{`WithRoute("/a"): limit "rate": it applies to the route already, from the limiter or a less specific route: leave it out, or use stint.Only`, `WithRoute("/b/c"): limit "rate": it applies to the route already`}},
		{"one name with two sets of numbers", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.WithRoute("/a", stint.Only(stint.Rate(2, time.Second, stint.WithName("x"))))},
			[]string{`WithRoute("/a"): limit "x": another limit has that name`}},
		{"two keys", []stint.Option{rate, stint.WithKey(stint.Header("X-API-Key")), everybody}, []string{"WithKey: given twice: pass one key: stint.FirstOf(a, b)"}},
		{"two keys of a limit", []stint.Option{everybody, stint.Rate(1, time.Second, everybody, everybody)}, []string{`limit "rate": WithKey: given twice`}},
		{"two keys of a route", []stint.Option{everybody, stint.WithRoute("/a", rate, everybody, everybody)}, []string{`WithRoute("/a"): WithKey: given twice`}},
		{"pattern twice", []stint.Option{everybody, rate, stint.WithRoute("/a", stint.Exempt()), stint.WithRoute("/a", stint.Exempt())}, []string{`WithRoute("/a"): given twice`}},
		{"patterns that conflict", []stint.Option{everybody, rate, stint.WithRoute("/a/{x}", stint.Exempt()), stint.WithRoute("/{y}/b", stint.Exempt())},
			[]string{`WithRoute("/{y}/b"): pattern "/{y}/b" conflicts with pattern "/a/{x}": make one of them more specific`}},
		{"route options", []stint.Option{everybody, rate, stint.WithRoute("/a", nil, stint.Limit{}, stint.WithMaxWait(0))},
			[]string{`WithRoute("/a"): option 1 is nil`, `WithRoute("/a"): Limit{}: use a limit`, `WithRoute("/a"): WithMaxWait(0s)`}},
		{"limit func without a key", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })},
			[]string{"WithLimitFunc: the function's limits need a default key"}},
		{"limit source without a key", []stint.Option{stint.WithLimitSource(stint.RemoteIP(), noPlans)},
			[]string{"WithLimitSource: the function's limits need a default key"}},
		{"made wrongly", []stint.Option{rate, stint.WithKey(stint.Header(""))},
			[]string{`WithKey(Header("")): `}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := stint.New(tt.opts...)
			if err == nil {
				t.Fatal("no error")
			}
			if l != nil {
				t.Error("a limiter beside the error")
			}
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok {
				t.Fatalf("%T is not joined", err)
			}
			got := joined.Unwrap()
			for i, e := range got {
				if !strings.HasPrefix(e.Error(), "stint: ") || strings.Count(e.Error(), "stint: ") > 1 {
					t.Errorf("%q does not say once where it comes from", e)
				}
				if i < len(tt.want) && !strings.Contains(e.Error(), tt.want[i]) {
					t.Errorf("error %d is %q, want %q in it", i, e, tt.want[i])
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%d errors, want %d:\n%v", len(got), len(tt.want), err)
			}
		})
	}
}

// A Limiter that New hasn't made says what to write, whatever is asked of it, and never
// lets a request pass.
func TestLimiterThatNewHasNotMade(t *testing.T) {
	next := func(http.ResponseWriter, *http.Request) { t.Error("a request passed") }
	uses := map[string]func(l *stint.Limiter){
		"Admit":      func(l *stint.Limiter) { _ = l.Admit(httptest.NewRecorder(), get("/"), next) },
		"Serve":      func(l *stint.Limiter) { l.Serve(httptest.NewRecorder(), get("/"), next) },
		"Deny":       func(l *stint.Limiter) { l.Deny(httptest.NewRecorder(), get("/"), stint.ErrDenied) },
		"Allow":      func(l *stint.Limiter) { _ = l.Allow(t.Context(), "k", 1) },
		"Take":       func(l *stint.Limiter) { _, _ = l.Take(t.Context(), "k", 1) },
		"Wait":       func(l *stint.Limiter) { _, _ = l.Wait(t.Context(), "k", 1) },
		"Peek":       func(l *stint.Limiter) { _, _ = l.Peek(t.Context(), "k") },
		"PeekAll":    func(l *stint.Limiter) { _, _ = l.PeekAll(t.Context(), "k") },
		"Reset":      func(l *stint.Limiter) { _, _ = l.Reset(t.Context(), "k") },
		"ResetLimit": func(l *stint.Limiter) { _ = l.ResetLimit(t.Context(), "rate") },
		"With":       func(l *stint.Limiter) { _, _ = l.With() },
		"Update":     func(l *stint.Limiter) { _ = l.Update() },
		"Observe":    func(l *stint.Limiter) { l.Observe(func(stint.Event) {}) },
		"Describe":   func(l *stint.Limiter) { l.Describe() },
	}
	for name, use := range uses {
		for _, l := range []*stint.Limiter{nil, {}} {
			func() {
				defer func() {
					if got := fmt.Sprint(recover()); !strings.Contains(got, "make one with stint.New") {
						t.Errorf("%s of %+v: %s", name, l, got)
					}
				}()
				use(l)
			}()
		}
	}
}

func TestMust(t *testing.T) {
	defer func() {
		if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "no limits") {
			t.Errorf("panic with %v", err)
		}
	}()
	stint.Must(stint.New())
}

// names returns the names of a limiter's limits by a peek.
func names(t *testing.T, l *stint.Limiter) string {
	t.Helper()
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range d.Limits {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}

func TestDefaultNames(t *testing.T) {
	second := time.Second
	tests := []struct {
		opts []stint.Option
		want string
	}{
		{[]stint.Option{stint.Rate(1, second), stint.Rate(2, second), stint.Rate(3, second)}, "rate rate-2 rate-3"},
		{[]stint.Option{stint.Quota(1, stint.Hourly), stint.Quota(1, stint.Daily), stint.Quota(1, stint.Weekly), stint.Quota(1, stint.Monthly),
			stint.Quota(1, stint.Every(time.Minute))}, "hourly daily weekly monthly quota"},
		{[]stint.Option{stint.Quota(1, stint.Daily.In(time.Local)), stint.Concurrency(1), stint.Concurrency(2)}, "daily concurrency concurrency-2"},
		// The arguments stay as written, wherever they stand.
		{[]stint.Option{stint.Rate(1, second), stint.Rate(2, second, stint.WithName("rate"))}, "rate-2 rate"},
		{[]stint.Option{stint.Rate(1, second), stint.Rate(1, second), stint.Rate(2, second, stint.WithName("rate-2"))}, "rate rate-3 rate-2"},
	}
	for _, tt := range tests {
		l := limiter(t, append(tt.opts, everybody)...)
		if got := names(t, l); got != tt.want {
			t.Errorf("names %q, want %q", got, tt.want)
		}
	}
}

func TestWithNames(t *testing.T) {
	base := limiter(t, everybody, stint.Rate(1, time.Second))
	one, err := base.With(stint.Rate(2, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := base.With(stint.Rate(0, time.Second)); err == nil {
		t.Fatal("With takes a bad limit")
	}
	two, err := base.With(stint.Rate(3, time.Second)) // the one that failed left no name behind
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, one) + ", " + names(t, two); got != "rate rate-2, rate rate-3" {
		t.Errorf("names %q", got)
	}
	if _, err := base.With(stint.Rate(2, time.Second, stint.WithName("rate-2"))); err == nil || !strings.Contains(err.Error(), `limit "rate-2": another limit has that name`) {
		t.Errorf("error %v", err)
	}
	shared := stint.Rate(4, time.Second)
	three, err := two.With(shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := three.With(shared); err == nil || !strings.Contains(err.Error(), "a limiter that this one is derived from has this limit already") {
		t.Errorf("error %v", err)
	}
}

// New calls none of the application's functions, and looks at no invented request.
func TestNewCallsNothing(t *testing.T) {
	key := stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { panic("a key is read") }))
	is := func(*http.Request) bool { panic("a predicate is asked") }
	l := limiter(t, key, stint.Rate(1, time.Second), stint.Concurrency(1, stint.WithName("slots")), stint.WithSkip(is), stint.WithBlock(is),
		stint.WithCost(func(*http.Request) int64 { panic("a cost is asked") }),
		stint.WithPriority(func(*http.Request) int { panic("a priority is asked") }),
		stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { panic("limits are asked") }))
	update(t, l, key, stint.Rate(2, time.Second), stint.WithSkip(is))
	derive(t, l, stint.Rate(3, time.Second))
}

// Equal keys are read once per request, wherever they were written.
func TestEqualKeysAreReadOnce(t *testing.T) {
	calls := 0
	counted := stint.KeyFunc(func(r *http.Request) (string, error) { calls++; return r.Header.Get("X-Tenant"), nil })
	joined := func() stint.SharedOption { return stint.WithKey(stint.Join(counted, stint.Header("X-Key"))) }
	dynamic := stint.Rate(9, time.Hour, stint.WithName("dynamic"), joined())
	l := limiter(t, joined(), stint.Rate(9, time.Hour), stint.Rate(9, time.Minute, joined()),
		stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{dynamic}, nil }))
	if got := through(l, from("192.0.2.1:1", "X-Tenant", "a", "X-Key", "k"), nil); got.Code != 200 || calls != 1 {
		t.Errorf("%v after %d calls, want 200 after 1", got, calls)
	}
}

// optionErrors takes the error of New apart. Each of its elements is about an option.
func optionErrors(t *testing.T, err error) (all []stint.OptionError) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	for _, e := range joined.Unwrap() {
		var o *stint.OptionError
		if !errors.As(e, &o) {
			t.Errorf("%v holds no OptionError", e)
			continue
		}
		if o.Write == "" || o.Option+o.Problem == "" {
			t.Errorf("%+v doesn't say what is wrong, or what to write", *o)
		}
		all = append(all, stint.OptionError{Limit: o.Limit, Route: o.Route, Option: o.Option, Problem: o.Problem, Write: o.Write})
	}
	return all
}

// What New and the like reject can be read from the fields of the error.
func TestOptionErrors(t *testing.T) {
	second := time.Second
	base := stint.Must(stint.New(theKey, stint.Rate(1, second, stint.WithName("base")), stint.WithStore(memstore.New())))
	family := limiter(t, theKey, stint.Rate(1, second, stint.WithName("old")))
	added := stint.Rate(1, second, stint.WithName("added"))
	derive(t, family, added)
	with := func(l *stint.Limiter, opts ...stint.Option) error { _, err := l.With(opts...); return err }
	unnamed := stint.Rate(1, second)

	type wrong = stint.OptionError
	tests := []struct {
		name string
		err  error
		want []wrong // but for Write, as far as it isn't given
	}{
		{"limits", stint.Check(theKey, stint.Rate(0, second, stint.WithName("a b")), stint.Rate(1, second, stint.WithBurst(-1), stint.WithAlgorithm(stint.SlidingLog), stint.WithDebt())), []wrong{
			{Limit: "a b", Option: `WithName("a b")`},
			{Limit: "a b", Problem: "0 units", Write: "use 1 to 1099511627776"},
			{Limit: "rate", Option: "WithDebt", Problem: "SlidingLog can't go into debt"},
			{Limit: "rate", Option: "WithBurst(-1)", Write: "use 0 or more"},
		}},
		{"routes", stint.Check(theKey, stint.WithMaxWait(-1), stint.WithRoute("/a", nil, stint.WithCost(nil), stint.Concurrency(0)), stint.WithRoute("b", stint.Exempt())), []wrong{
			{Option: "WithMaxWait(-1ns)"},
			{Route: "/a", Limit: "concurrency", Problem: "0 slots"},
			{Route: "/a", Problem: "option 1 is nil", Write: "leave it out"},
			{Route: "/a", Option: "WithCost(nil)"},
			{Route: "b", Problem: `the path is missing`, Write: `use "/b"`},
		}},
		{"limits of no key", stint.Check(unnamed, stint.WithRoute("/a", stint.Quota(1, stint.Daily))), []wrong{
			{Problem: `the limits "rate" and "daily" of WithRoute("/a") have no key, and no default would be safe`},
		}},
		{"a limit of no key", stint.Check(stint.WithRoute("/a", stint.Quota(1, stint.Daily))), []wrong{
			{Route: "/a", Limit: "daily", Problem: "the limit has no key, and no default would be safe"},
		}},
		{"keys and predicates", stint.Check(unnamed, stint.WithKey(stint.Join(stint.Header("a b"), stint.Hash(nil, stint.Cookie("")))),
			stint.WithSkip(nil)), []wrong{
			{Option: `WithKey(Header("a b"))`, Problem: "this isn't a valid name of a header field", Write: `use letters, digits and hyphens, such as "X-API-Key"`},
			{Option: "WithKey(Hash)", Problem: "a secret of 0 bytes can be guessed"},
			{Option: `WithKey(Cookie(""))`, Problem: "this isn't a valid name of a cookie", Write: `use letters, digits, - and _, such as "session"`},
			{Option: "WithSkip(nil)", Write: "pass a function, such as stint.Preflight"},
		}},
		{"New", func() error { _, err := stint.New(); return err }(), []wrong{{Problem: "no limits"}}},
		{"With", with(base, unnamed, stint.Rate(1, second, stint.WithName("base"))), []wrong{
			{Limit: "base", Problem: "another limit has that name", Write: "give one of them another name with stint.WithName"},
			{Limit: "rate", Problem: "the limit has only its default name, and another limit in the store may have the same name", Write: "give it a name with stint.WithName"},
		}},
		{"Update", family.Update(theKey, unnamed, stint.WithStore(memstore.New())), []wrong{
			{Option: "WithStore", Problem: "Update can't change the store, because it has the counts"},
		}},
		{"Update, in a limiter derived", family.Update(theKey, added), []wrong{{Limit: "added", Problem: "a limiter that this one is derived from has this limit already", Write: "leave it out"}}},
		{"a plan's limits", stint.LimitUser{}.Check(stint.Rate(0, second, stint.WithName("plan"))), []wrong{{Limit: "plan", Problem: "0 units"}}},
		{"a plan's limit without a name", stint.LimitUser{}.Check(unnamed), []wrong{{Limit: "rate", Problem: "the limit has only its default name, and another limit in the store may have the same name"}}},
		{"no limit", stint.LimitUser{}.Check(stint.Limit{}), []wrong{{Option: "Limit{}"}}},
	}
	for _, tt := range tests {
		got := optionErrors(t, tt.err)
		for i := range got {
			if i < len(tt.want) && tt.want[i].Write == "" {
				got[i].Write = ""
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got\n\t%+v\nwant\n\t%+v", tt.name, got, tt.want)
		}
	}
}

func TestOptionErrorText(t *testing.T) {
	for want, e := range map[string]stint.OptionError{
		"leave it out": {Write: "leave it out"},
		`WithRoute("/a"): limit "b": WithBurst: no burst: leave it out`: {Route: "/a", Limit: "b", Option: "WithBurst", Problem: "no burst", Write: "leave it out"},
		"WithBurst(-1): use 0 or more":                                  {Option: "WithBurst(-1)", Write: "use 0 or more"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Whoever has other words for Go's names gets the texts with those.
func TestOptionErrorIn(t *testing.T) {
	key := stint.WithKey(stint.IP{Header: "100%v"}.Key())
	for _, tt := range []struct {
		opts []stint.Option
		want string
	}{
		{[]stint.Option{theKey, stint.Quota(1, stint.Daily, stint.WithBurst(5))}, "<FixedWindow> has no burst: leave it out, or use the algorithm <IntervalBucket>"},
		{[]stint.Option{theKey, stint.Rate(1, 0)}, "a period of 0s: use 1ms or more"},
		{[]stint.Option{key, stint.Rate(1, time.Second)}, "no proxy is trusted, so 100%v would never be read: " +
			`pass the addresses that your proxies connect from, such as <netip.MustParsePrefix("10.0.0.0/8")>, or use <stint.RemoteIP()> if there is no proxy`},
		{[]stint.Option{theKey, stint.Rate(1, time.Second, stint.WithName("50%v"))}, `: use a letter, followed by up to 63 of A-Z a-z 0-9 _ . -`},
	} {
		var e *stint.OptionError
		if err := stint.Check(tt.opts...); !errors.As(err, &e) {
			t.Errorf("%v, want %s", err, tt.want)
			continue
		}
		got, rest := "", e.Problem+": "+e.Write
		for _, name := range e.Names() {
			before, after, found := strings.Cut(rest, name)
			if !found {
				t.Errorf("%s isn't in %s", name, rest)
			}
			got, rest = got+before+"<"+name+">", after
		}
		if got += rest; got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if got, want := e.Problem+": "+e.Write, strings.NewReplacer("<", "", ">", "").Replace(tt.want); got != want {
			t.Errorf("in Go %s\nwant %s", got, want)
		}
	}
}

// If a function returns a wrong limit, the request is denied with the same kind of
// error.
func TestOptionErrorOfALimitFunc(t *testing.T) {
	for want, l := range map[string]stint.Limit{
		"0 units":                     stint.Rate(0, time.Second),
		"Limit{}":                     {},
		"another limit has that name": stint.Rate(1, time.Second, stint.WithName("taken")),
	} {
		seen := &events{}
		lim := limiter(t, theKey, seen.Option(), stint.Rate(9, time.Second, stint.WithName("taken")),
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{l}, nil }))
		through(lim, get("/"), nil)
		var e *stint.OptionError
		if err := seen.Last().Err; !errors.As(err, &e) || e.Option+e.Problem != want {
			t.Errorf("%v, want an OptionError with %q", err, want)
		}
	}
}

// A duration without a unit gets corrections that New accepts, and one with a unit the bounds of the option.
func TestCorrectionsOfDurations(t *testing.T) {
	of := func(d time.Duration) map[string]stint.Option {
		adaptive := func(o stint.SlotOption) stint.Option { return stint.AdaptiveConcurrency(1, 9, o) }
		return map[string]stint.Option{
			"Rate": stint.Rate(10, d), "Quota": stint.Quota(10, stint.Every(d)), "WithMaxWait": stint.WithMaxWait(d), "WithRetryJitter": stint.WithRetryJitter(d),
			"Ban": stint.Ban(2, d, stint.WithBanFor(time.Hour)), "WithBanFor": stint.Ban(2, time.Hour, stint.WithBanFor(d)),
			"WithWarmUp": stint.Rate(10, time.Second, stint.WithWarmUp(d)), "AIMD": adaptive(stint.WithAdaptation(stint.AIMD(d))), "WithSampleWindow": adaptive(stint.WithSampleWindow(d)),
		}
	}
	check := func(o stint.Option) error { return stint.Check(theKey, stint.Rate(5, time.Hour), o) }
	correction := regexp.MustCompile(`(\d+)\*time\.(Second|Millisecond)`)
	for _, n := range []time.Duration{1, 7, 60, 250, 999_999} {
		for option, o := range of(n) {
			err := check(o)
			if err == nil || !strings.Contains(err.Error(), "since a number without a unit is in nanoseconds") {
				t.Errorf("%s of %d: %v", option, n, err)
				continue
			}
			all := correction.FindAllStringSubmatch(err.Error(), -1)
			if len(all) == 0 {
				t.Errorf("%s of %d: no correction: %v", option, n, err)
			}
			for _, c := range all {
				unit := map[string]time.Duration{"Second": time.Second, "Millisecond": time.Millisecond}[c[2]]
				if err := check(of(n * unit)[option]); c[1] != fmt.Sprint(int(n)) || err != nil {
					t.Errorf("%s of %d: the correction %s: %v", option, n, c[0], err)
				}
			}
		}
	}
	for option, o := range of(500 * time.Microsecond) {
		if err := check(o); err == nil || !strings.Contains(err.Error(), "1ms ") && !strings.Contains(err.Error(), "100ms ") {
			t.Errorf("%s of 500µs: %v", option, err)
		}
	}
}
