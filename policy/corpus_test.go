package policy_test

import (
	"errors"
	"net/http"
	"time"

	"net/netip"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// secret is long enough for stint.Hash.
var secret = []byte("0123456789abcdef0123456789abcdef")

func tenant(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }

func rows(r *http.Request) int64 {
	if r.URL.Path == "/export" {
		return 5
	}
	return 1
}

func tokens(_ *http.Request, _ int, written int64) int64 { return written / 100 }

func class(r *http.Request) int { return len(r.Header.Get("X-Class")) }

func internal(r *http.Request) bool { return r.Header.Get("X-Internal") != "" }

var errNoSession = errors.New("no session")

func planOf(r *http.Request) (string, error) {
	if p := r.Header.Get("X-Plan"); p != "broken" {
		return p, nil
	}
	return "", errNoSession
}

// registered are the functions that the documents of the tests may name.
var registered = []policy.Option{
	policy.WithKey("tenant", stint.KeyFunc(tenant)),
	policy.WithCostFunc("rows", rows),
	policy.WithSettleFunc("tokens", tokens),
	policy.WithPriorityFunc("class", class),
	policy.WithPredicate("internal", internal),
	policy.WithDenyHandler("sorry", stint.PlainText("sorry")),
	policy.WithPlanFunc(planOf),
	policy.WithSecret(secret),
}

// document is a file without mistakes, and the same in Go.
type document struct {
	name string
	text string
	same []stint.Option
}

var remote = stint.WithKey(stint.RemoteIP())

var berlin = func() *time.Location {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return loc
}()

// plansOf is the limit function of a file with plans, in Go.
func plansOf(plans map[string][]stint.Limit, otherwise string) stint.Option {
	return stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
		name, err := planOf(r)
		if err != nil {
			return nil, err
		}
		if _, found := plans[name]; !found {
			if otherwise == "" {
				return nil, errors.New("unknown plan")
			}
			name = otherwise
		}
		return plans[name], nil
	})
}

func limits(list string) string { return "version: 1\nkey: remote-ip\nlimits: " + list + "\n" }

// perTenant is one limit of tenants, shared by two routes.
var perTenant = stint.Rate(2, time.Minute, stint.WithName("t"), stint.WithKey(stint.KeyFunc(tenant)))

// unnamed is for a store that the limiter has for itself.
var unnamed = document{"names by default",
	limits("[{rate: 3/1m}, {quota: 5/daily}, {quota: 9/30m}, {concurrency: 8}, {adaptive-concurrency: 2-9}, {ban: 2/h, for: 90m}, {bandwidth: 1MB/s}]"),
	[]stint.Option{remote, stint.Rate(3, time.Minute), stint.Quota(5, stint.Daily), stint.Quota(9, stint.Every(30*time.Minute)), stint.Concurrency(8),
		stint.AdaptiveConcurrency(2, 9), stint.Ban(2, time.Hour, stint.WithBanFor(90*time.Minute)), stint.Bandwidth(1_000_000)}}

var documents = []document{
	{"one rate", limits("[{name: rate, rate: 3/1m}]"), []stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate"))}},
	unnamed,
	{"a unit alone is one of it", limits("[{name: rate, rate: 3/m}]"), []stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate"))}},
	{"grouped digits, a long period", limits("[{name: rate, rate: 1_0/1w2d1h1m1s1.5ms, burst: 2}]"),
		[]stint.Option{remote, stint.Rate(10, 9*24*time.Hour+time.Hour+time.Minute+time.Second+1500*time.Microsecond, stint.WithBurst(2), stint.WithName("rate"))}},
	{"a name and a burst", limits("[{name: per-client, rate: 60/1m, burst: 2}]"),
		[]stint.Option{remote, stint.Rate(60, time.Minute, stint.WithName("per-client"), stint.WithBurst(2))}},
	{"interval bucket", limits("[{name: rate, rate: 3/1m, algorithm: interval-bucket}]"),
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithAlgorithm(stint.IntervalBucket), stint.WithName("rate"))}},
	{"leaky bucket", limits("[{name: rate, rate: 60/1m, algorithm: leaky-bucket, burst: 0, queue: 2}]"),
		[]stint.Option{remote, stint.Rate(60, time.Minute, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(2), stint.WithName("rate"))}},
	{"fixed window", limits("[{name: rate, rate: 3/1m, algorithm: fixed-window}]"),
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithAlgorithm(stint.FixedWindow), stint.WithName("rate"))}},
	{"sliding window", limits("[{name: rate, rate: 3/1m, algorithm: sliding-window, buckets: 6}]"),
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithAlgorithm(stint.SlidingWindow), stint.WithBuckets(6), stint.WithName("rate"))}},
	{"sliding log", limits("[{name: rate, rate: 3/1m, algorithm: sliding-log}]"),
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithAlgorithm(stint.SlidingLog), stint.WithName("rate"))}},
	{"warm-up implies its algorithm", limits("[{name: rate, rate: 5/1s, warm-up: 4s, max-wait: 300ms}]"),
		[]stint.Option{remote, stint.Rate(5, time.Second, stint.WithWarmUp(4*time.Second), stint.WithMaxWait(300*time.Millisecond), stint.WithName("rate"))}},
	{"token bucket with a queue and debt", limits("[{name: rate, rate: 1/1s, algorithm: token-bucket, queue: 2, debt: true}]"),
		[]stint.Option{remote, stint.Rate(1, time.Second, stint.WithQueue(2), stint.WithDebt(), stint.WithName("rate"))}},
	{"no debt said", limits("[{name: rate, rate: 3/1s, debt: false}]"), []stint.Option{remote, stint.Rate(3, time.Second, stint.WithName("rate"))}},
	{"quotas from a date", limits("[{name: month, quota: 5/monthly, from: 2026-01-31T08:00:00Z, in: Europe/Berlin}, {name: day, from: '09:00', quota: 4/daily, in: Europe/Berlin}, {name: hour, quota: 3/hourly, from: '00:30:15'}, {name: week, quota: 6/weekly, from: tuesday 09:00}, {name: other, quota: 7/weekly, from: Sunday}, {name: year, quota: 8/yearly, from: 2024-02-29T00:00:00+01:00}, {name: quota, quota: 3/30m, from: 2026-01-01T00:10:00Z}]"),
		[]stint.Option{
			remote,
			stint.Quota(5, stint.Monthly.In(berlin).From(time.Date(2026, 1, 31, 9, 0, 0, 0, berlin)), stint.WithName("month")),
			stint.Quota(4, stint.Daily.In(berlin).From(time.Date(2026, 7, 1, 9, 0, 0, 0, berlin)), stint.WithName("day")),
			stint.Quota(3, stint.Hourly.From(time.Date(2026, 7, 1, 9, 30, 15, 0, time.UTC)), stint.WithName("hour")),
			stint.Quota(6, stint.Weekly.From(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)), stint.WithName("week")),
			stint.Quota(7, stint.Weekly.From(time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)), stint.WithName("other")),
			stint.Quota(8, stint.Yearly.From(time.Date(2024, 2, 28, 23, 0, 0, 0, time.UTC)), stint.WithName("year")),
			stint.Quota(3, stint.Every(30*time.Minute).From(time.Unix(600, 0)), stint.WithName("quota")),
		}},
	{"quotas of the calendar", limits("[{name: daily, quota: 5/daily, in: Europe/Berlin}, {name: hourly, quota: 4/hourly}, {name: weekly, quota: 6/weekly}, {name: monthly, quota: 7/monthly}, {name: quota, quota: 3/30m}]"),
		[]stint.Option{remote, stint.Quota(5, stint.Daily.In(berlin), stint.WithName("daily")), stint.Quota(4, stint.Hourly, stint.WithName("hourly")), stint.Quota(6, stint.Weekly, stint.WithName("weekly")), stint.Quota(7, stint.Monthly, stint.WithName("monthly")), stint.Quota(3, stint.Every(30*time.Minute), stint.WithName("quota"))}},
	{"quota that saves up", limits("[{name: hourly, quota: 3/hourly, algorithm: interval-bucket, burst: 5}]"),
		[]stint.Option{remote, stint.Quota(3, stint.Hourly, stint.WithAlgorithm(stint.IntervalBucket), stint.WithBurst(5), stint.WithName("hourly"))}},
	{"concurrency", limits("[{name: concurrency, concurrency: 8}]"), []stint.Option{remote, stint.Concurrency(8, stint.WithName("concurrency"))}},
	{"concurrency with a line", limits("[{name: concurrency, concurrency: 8, queue: 16, max-wait: 2s}]"), []stint.Option{remote, stint.Concurrency(8, stint.WithQueue(16), stint.WithMaxWait(2*time.Second), stint.WithName("concurrency"))}},
	{"handlers of denials", limits("[{name: calls, rate: 2/1m}]") + "deny-handler: sorry\nroutes:\n  /a: {deny-handler: sorry}\n  /b: {only: [{name: b, rate: 1/1m}], deny-handler: sorry}\n",
		[]stint.Option{stint.Rate(2, time.Minute, stint.WithName("calls")), remote, stint.WithDenyHandler(stint.PlainText("sorry")),
			stint.WithRoute("/a", stint.WithDenyHandler(stint.PlainText("sorry"))),
			stint.WithRoute("/b", stint.Only(stint.Rate(1, time.Minute, stint.WithName("b"))), stint.WithDenyHandler(stint.PlainText("sorry")))}},
	{"classes, and their shares", limits("[{name: concurrency, concurrency: 8, queue: 4, shares: [{class: 9, percent: 30}, {class: '0', percent: \"7_0\"}]}, {name: adaptive, adaptive-concurrency: 2-20, max-wait: 1s, shares: [{class: 5, percent: 100}]}]") + "priority: class\n",
		[]stint.Option{remote, stint.WithPriority(class),
			stint.Concurrency(8, stint.WithQueue(4), stint.WithShare(9, 30), stint.WithShare(0, 70), stint.WithName("concurrency")),
			stint.AdaptiveConcurrency(2, 20, stint.WithMaxWait(time.Second), stint.WithShare(5, 100), stint.WithName("adaptive"))}},
	{"a fair queue", limits("[{name: concurrency, concurrency: 8, queue: 4, fair-queue: {header: X-Tenant}, key: global}, {name: waits, concurrency: 9, fair-queue: remote-ip}]") + "max-wait: 2s\n",
		[]stint.Option{remote, stint.WithMaxWait(2 * time.Second),
			stint.Concurrency(8, stint.WithQueue(4), stint.WithFairQueue(stint.Header("X-Tenant")), stint.WithKey(stint.Global()), stint.WithName("concurrency")),
			stint.Concurrency(9, stint.WithFairQueue(stint.RemoteIP()), stint.WithName("waits"))}},
	{"adaptive concurrency", limits("[{name: adaptive, adaptive-concurrency: 1_0-200}]"), []stint.Option{remote, stint.AdaptiveConcurrency(10, 200, stint.WithName("adaptive"))}},
	{"adaptive concurrency with all there is", limits("[{name: adaptive, adaptive-concurrency: 1-20, adaptation: vegas, initial-limit: 3, sample-window: 200ms, queue: 4, key: global}, {name: other, adaptive-concurrency: 2-20, adaptation: {gradient2: 1.25}}, {name: third, adaptive-concurrency: 3-20, adaptation: {aimd: 150ms}}]"),
		[]stint.Option{remote,
			stint.AdaptiveConcurrency(1, 20, stint.WithAdaptation(stint.Vegas()), stint.WithInitialLimit(3),
				stint.WithSampleWindow(200*time.Millisecond), stint.WithQueue(4), stint.WithKey(stint.Global()), stint.WithName("adaptive")),
			stint.AdaptiveConcurrency(2, 20, stint.WithName("other"), stint.WithAdaptation(stint.Gradient2(1.25))),
			stint.AdaptiveConcurrency(3, 20, stint.WithName("third"), stint.WithAdaptation(stint.AIMD(150*time.Millisecond)))}},
	{"a ban", "version: 1\nkey: remote-ip\ncost: 1\nlimits: [{name: rate, rate: 1/1m}, {name: ban, ban: 2/h, for: 90m}]\nroutes: {/login: {only: [{name: probe, rate: 1/1m}, ban]}}\n",
		func() []stint.Option {
			ban := stint.Ban(2, time.Hour, stint.WithBanFor(90*time.Minute), stint.WithName("ban"))
			return []stint.Option{remote, stint.Rate(1, time.Minute, stint.WithName("rate")), ban, stint.WithRoute("/login", stint.Only(stint.Rate(1, time.Minute, stint.WithName("probe")), ban))}
		}()},
	{"bandwidths", "version: 1\nkey: remote-ip\nlimits: [{name: bandwidth, bandwidth: 1_0KiB/s, burst: 4KiB}, {name: both, bandwidth: 20kB/s, burst: 4096B, direction: both, key: global}, {name: shown, bandwidth: 1GB/s, dry-run: true, direction: responses}]\n",
		[]stint.Option{remote,
			stint.Bandwidth(10240, stint.WithBurst(4096), stint.WithName("bandwidth")),
			stint.Bandwidth(20_000, stint.WithName("both"), stint.WithBurst(4096), stint.WithDirection(stint.Both), stint.WithKey(stint.Global())),
			stint.Bandwidth(1_000_000_000, stint.WithName("shown"), stint.WithDryRun(true))}},
	{"several limits, dry runs among them", limits("[{name: rate, rate: 5/1m, dry-run: true}, {name: hourly, quota: 3/hourly, dry-run: false}]"),
		[]stint.Option{remote, stint.Rate(5, time.Minute, stint.WithDryRun(true), stint.WithName("rate")), stint.Quota(3, stint.Hourly, stint.WithName("hourly"))}},
	{"routes with costs", "version: 1\nkey: remote-ip\nlimits: [{name: rate, rate: 5/1m}]\nroutes: {/a: {cost: 2, limits: [{name: own, rate: 3/1m}]}, /b: {cost: 3}}\n",
		[]stint.Option{remote, stint.Rate(5, time.Minute, stint.WithName("rate")),
			stint.WithRoute("/a", stint.WithCost(func(*http.Request) int64 { return 2 }), stint.Rate(3, time.Minute, stint.WithName("own"))),
			stint.WithRoute("/b", stint.WithFixedCost(3))}},
	{"everything is a dry run but one", "version: 1\nkey: remote-ip\nlimits: [{name: rate, rate: 1/1m}, {name: hourly, quota: 3/hourly, dry-run: false}]\ndry-run: true\n",
		[]stint.Option{remote, stint.Rate(1, time.Minute, stint.WithDryRun(true), stint.WithName("rate")), stint.Quota(3, stint.Hourly, stint.WithName("hourly"))}},
	{"keys of every form", `
version: 1
keys:
  client: {forwarded-ip: {trusted: [10.0.0.0/8, 192.0.2.1], trust-unix: true, ipv6-bits: 56}}
  both: {join: [tenant, client, {header: X-API-Key}]}
limits:
  - {name: a, rate: 3/1m, key: global}
  - {name: b, rate: 3/1m, key: method}
  - {name: c, rate: 3/1m, key: pattern}
  - {name: d, rate: 3/1m, key: {remote-ip: {ipv6-bits: 48}}}
  - {name: e, rate: 3/1m, key: client}
  - {name: f, rate: 3/1m, key: {forwarded-header-ip: {trusted: [192.0.2.0/24]}}}
  - {name: g, rate: 3/1m, key: {single-ip-header: {name: X-Real-IP, trusted: ["192.0.2.0/24", "2001:db8::1"]}}}
  - {name: h, rate: 3/1m, key: {header: X-API-Key}}
  - {name: i, rate: 3/1m, key: {cookie: session}}
  - {name: j, rate: 3/1m, key: both}
  - {name: k, rate: 3/1m, key: {hash: both}}
  - {name: l, rate: 3/1m, key: tenant}
`, func() (all []stint.Option) {
		client := stint.IP{Header: "X-Forwarded-For", TrustUnix: true, IPv6Bits: 56,
			Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")}}.Key()
		both := stint.Join(stint.KeyFunc(tenant), client, stint.Header("X-API-Key"))
		doc := netip.MustParsePrefix("192.0.2.0/24")
		for i, k := range []stint.Key{
			stint.Global(), stint.Method(), stint.Pattern(), stint.IP{IPv6Bits: 48}.Key(), client,
			stint.HeaderIP("Forwarded", doc), stint.HeaderIP("X-Real-IP", doc, netip.MustParsePrefix("2001:db8::1/128")),
			stint.Header("X-API-Key"), stint.Cookie("session"), both, stint.Hash(secret, both), stint.KeyFunc(tenant),
		} {
			all = append(all, stint.Rate(3, time.Minute, stint.WithName(string(rune('a'+i))), stint.WithKey(k)))
		}
		return all
	}()},
	{"routes, and limits by name", `
version: 1
key: remote-ip
limits:
  - {name: client, rate: 9/1m}
routes:
  POST /login: {only: [client, {name: login, rate: 2/1m}]}
  POST /reset: {only: [login, t], max-wait: 1s}
  GET /healthz: {exempt: true}
  /export:
    key: tenant
    cost: 2
    failure: closed
    only: [client, {name: t, rate: 2/1m, key: tenant}, {name: exports, rate: 5/1m}]
`, func() []stint.Option {
		client, login := stint.Rate(9, time.Minute, stint.WithName("client")), stint.Rate(2, time.Minute, stint.WithName("login"))
		return []stint.Option{remote, client,
			stint.WithRoute("POST /login", stint.Only(client, login)),
			stint.WithRoute("POST /reset", stint.Only(login, perTenant), stint.WithMaxWait(time.Second)),
			stint.WithRoute("GET /healthz", stint.Exempt()),
			stint.WithRoute("/export", stint.WithKey(stint.KeyFunc(tenant)), stint.WithCost(func(*http.Request) int64 { return 2 }),
				stint.WithFailurePolicy(stint.FailClosed), stint.Only(client, perTenant, stint.Rate(5, time.Minute, stint.WithName("exports")))),
		}
	}()},
	{"settings for all", `
version: 1
key: tenant
cost: rows
max-wait: 2s
failure: closed
empty-key: skip
headers: [ratelimit, x-ratelimit]
skip: [preflight, internal]
block: [{cidr: [203.0.113.0/24, "2001:db8::/32"]}, {key: {forwarded-ip: {trusted: [10.0.0.0/8]}}, cidr: [198.51.100.0/24]}]
limits: [{name: rate, rate: 60/1m, burst: 4, failure: open}, {name: once, rate: 30/1m, cost: 1}]
`, []stint.Option{stint.WithKey(stint.KeyFunc(tenant)), stint.WithCost(rows), stint.WithMaxWait(2 * time.Second), stint.WithFailurePolicy(stint.FailClosed),
		stint.WithEmptyKey(stint.SkipEmptyKey), stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders),
		stint.WithSkip(stint.Preflight), stint.WithSkip(internal),
		stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"))),
		stint.WithBlock(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8")).In(netip.MustParsePrefix("198.51.100.0/24"))),
		stint.Rate(60, time.Minute, stint.WithBurst(4), stint.WithFailurePolicy(stint.FailOpen), stint.WithName("rate")),
		stint.Rate(30, time.Minute, stint.WithName("once"), stint.WithCost(func(*http.Request) int64 { return 1 }))}},
	{"limits for some requests", `
version: 1
key: remote-ip
limits: [{name: key, rate: 100/1m, key: {header: X-API-Key}, empty-key: skip}, {name: anonymous, rate: 5/1m, skip: [internal]}]
routes: {POST /a: {limits: [{name: a, rate: 3/1m}], skip: [preflight, internal], empty-key: deny}}
`, []stint.Option{stint.WithKey(stint.RemoteIP()),
		stint.Rate(100, time.Minute, stint.WithName("key"), stint.WithKey(stint.Header("X-API-Key")), stint.WithEmptyKey(stint.SkipEmptyKey)),
		stint.Rate(5, time.Minute, stint.WithName("anonymous"), stint.WithSkip(internal)),
		stint.WithRoute("POST /a", stint.Rate(3, time.Minute, stint.WithName("a")), stint.WithSkip(stint.Preflight), stint.WithSkip(internal), stint.WithEmptyKey(stint.DenyEmptyKey))}},
	{"settled by the response", `
version: 1
key: remote-ip
settle: tokens
limits: [{name: bytes, rate: 60/1m}, {name: bytes-too, rate: 90/1m, settle: tokens}, {name: shown, rate: 20/1m, settle: {refund-on: [503, "401"]}}]
routes:
  POST /login: {settle: failed-only, limits: [{name: login, rate: 2/1m}]}
`, []stint.Option{remote, stint.WithSettle(tokens),
		stint.Rate(60, time.Minute, stint.WithName("bytes")), stint.Rate(90, time.Minute, stint.WithName("bytes-too")),
		stint.Rate(20, time.Minute, stint.WithName("shown"), stint.WithSettle(stint.RefundOn(503, 401))),
		stint.WithRoute("POST /login", stint.WithSettle(stint.FailedOnly), stint.Rate(2, time.Minute, stint.WithName("login")))}},
	{"a Unix time", "version: 1\nkey: remote-ip\nheaders: [x-ratelimit-unix, ratelimit]\nempty-key: deny\nlimits: [{name: rate, rate: 3/1m}]\n",
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate")), stint.WithHeaders(stint.XRateLimitUnixHeaders, stint.RateLimitHeaders)}},
	{"X-RateLimit fields", "version: 1\nkey: remote-ip\nheaders: x-ratelimit\nempty-key: deny\nlimits: [{name: rate, rate: 3/1m}]\n",
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate")), stint.WithHeaders(stint.XRateLimitHeaders)}},
	{"near limits", "version: 1\nkey: remote-ip\nnear-limit: [50]\nlimits: [{name: rate, rate: 3/1m}, {name: other, rate: 4/1m, near-limit: ['7_0', 95]}]\nroutes: {/a: {near-limit: [100], limits: [{name: a, rate: 2/1m}]}}\n",
		[]stint.Option{remote, stint.WithNearLimit(50), stint.Rate(3, time.Minute, stint.WithName("rate")), stint.Rate(4, time.Minute, stint.WithName("other"), stint.WithNearLimit(70, 95)),
			stint.WithRoute("/a", stint.WithNearLimit(100), stint.Rate(2, time.Minute, stint.WithName("a")))}},
	{"a hidden limit", "version: 1\nkey: remote-ip\nlimits: [{name: rate, rate: 3/1m, hidden: true}, {name: slots, concurrency: 2, hidden: false}]\n",
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate"), stint.WithHidden()), stint.Concurrency(2, stint.WithName("slots"))}},
	{"no fields", "version: 1\nkey: {header: X-API-Key}\nheaders: [none]\nlimits: [{name: rate, rate: 3/1m}]\n",
		[]stint.Option{stint.WithKey(stint.Header("X-API-Key")), stint.Rate(3, time.Minute, stint.WithName("rate")), stint.WithHeaders(stint.NoHeaders)}},
	{"plans", `
version: 1
key: tenant
limits: [{name: tenant, rate: 20/1m}]
plans:
  free: {limits: [{name: requests, quota: 2/hourly}]}
  pro: {limits: [{name: requests, quota: 4/hourly}, {name: flow, rate: 2/1s}]}
default-plan: free
routes: {GET /healthz: {exempt: true}}
`, []stint.Option{stint.WithKey(stint.KeyFunc(tenant)), stint.Rate(20, time.Minute, stint.WithName("tenant")), stint.WithRoute("GET /healthz", stint.Exempt()),
		plansOf(map[string][]stint.Limit{
			"free": {stint.Quota(2, stint.Hourly, stint.WithName("requests"))},
			"pro":  {stint.Quota(4, stint.Hourly, stint.WithName("requests")), stint.Rate(2, time.Second, stint.WithName("flow"))},
		}, "free")}},
	{"plans without a default", "version: 1\nkey: tenant\nplans: {pro: {limits: [{name: rate, rate: 2/1m}]}, free: {limits: []}}\n",
		[]stint.Option{stint.WithKey(stint.KeyFunc(tenant)), plansOf(map[string][]stint.Limit{"pro": {stint.Rate(2, time.Minute, stint.WithName("rate"))}, "free": {stint.Exempt()}}, "")}},
	{"JSON, with tabs, and escapes that YAML has too", "{\n\t\"version\": 1,\n\t\"key\": \"remote-ip\",\n\t\"limits\": [\n\t\t{\"rate\": \"1_000\\/1h\", \"burst\": \"1_0\", \"name\": \"\\u0061\"},\r\n\t\t{\"concurrency\":8, \"name\": \"concurrency\"}\n\t]\n}",
		[]stint.Option{remote, stint.Rate(1000, time.Hour, stint.WithBurst(10), stint.WithName("a")), stint.Concurrency(8, stint.WithName("concurrency"))}},
	{"JSON in one line", `{"version":1,"key":{"header":"X-API-Key"},"limits":[{"name":"daily","quota":"5/daily"}],"routes":{"GET /{$}":{"exempt":true}}}`,
		[]stint.Option{stint.WithKey(stint.Header("X-API-Key")), stint.Quota(5, stint.Daily, stint.WithName("daily")), stint.WithRoute("GET /{$}", stint.Exempt())}},
	{"comments, a mark of byte order, a start of document, and other line ends", "\ufeff# limits\r\n---\r\nversion: 1 # the first\r\nkey: remote-ip\r\nlimits:\r\n- name: rate\r\n  rate: 3/1m\r\n...\r\n",
		[]stint.Option{remote, stint.Rate(3, time.Minute, stint.WithName("rate"))}},
}
