package stint_test

import (
	"errors"
	"net/http"
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

func TestNewSaysWhatToWrite(t *testing.T) {
	rate := stint.Rate(1, time.Second)
	tests := []struct {
		name string
		opts []stint.Option
		want []string // one for each error, in order; each a part of its text
	}{
		{"no key", []stint.Option{rate}, []string{`limit "rate": no key, and no default is safe: write stint.WithKey(stint.RemoteIP())`}},
		{"no key on each", []stint.Option{rate, stint.Concurrency(1)}, []string{`"rate": no key`, `"concurrency": no key`}},
		{"no key on a route", []stint.Option{stint.Rate(1, time.Second, everybody), stint.WithRoute("/a", stint.Rate(2, time.Second))},
			[]string{`limit "rate-2": no key`}},
		{"wrong, and no key", []stint.Option{stint.Rate(0, time.Second), stint.Rate(1, time.Hour), stint.WithRoute("/a", stint.Concurrency(0))},
			[]string{`"rate": 0 units`, `"concurrency": 0 units`, `"rate": no key`, `"rate-2": no key`, `"concurrency": no key`}},
		{"a wrong key is no missing one", []stint.Option{rate, stint.WithKey(nil)}, []string{"WithKey(nil)"}},
		{"wrong, and what it stands beside", []stint.Option{stint.Rate(0, time.Second), stint.Ban(1, time.Hour, 0), stint.WithRoute("x", stint.Rate(1, time.Second))},
			[]string{`"rate": 0 units`, `"ban": a ban of 0s`, `"rate": no key`, `"ban": no key`, `"rate-2": no key`, `WithRoute("x"): parsing`}},
		{"wrong beside a ban", []stint.Option{everybody, stint.Rate(0, time.Second), stint.Ban(1, time.Hour, time.Hour)}, []string{"0 units"}},
		{"wrong in several ways", []stint.Option{everybody,
			stint.Bandwidth(5, stint.WithBurst(6), stint.WithName("a b")),
			stint.Rate(0, 0, stint.WithAlgorithm(99)),
			stint.Rate(1, time.Hour, stint.WithBurst(1<<40), stint.WithName(" "))},
			[]string{`name "a b"`, "Bandwidth(5)", "WithBurst(6)", "0 units", "unknown algorithm 99", `name " "`, "take more than 100 years"}},
		{"nothing", nil, []string{"no limits: write at least one"}},
		{"no limits", []stint.Option{everybody}, []string{"no limits"}},
		{"nil option", []stint.Option{rate, nil, everybody}, []string{"option 2 is nil"}},
		{"zero limit", []stint.Option{rate, stint.Limit{}, everybody}, []string{"zero Limit: write stint.Rate"}},
		{"nil functions", []stint.Option{rate, everybody,
			stint.WithKey(nil), stint.WithCost(nil), stint.WithSettle(nil), stint.WithStore(nil), stint.WithLimitFunc(nil), stint.WithSkip(nil),
			stint.WithBlock(nil), stint.WithDenyHandler(nil), stint.WithErrorHandler(nil), stint.WithObserver(nil), stint.WithLogger(nil)},
			[]string{"WithStore(nil)", "WithLimitFunc(nil)", "WithSkip(nil)", "WithBlock(nil)", "WithDenyHandler(nil)",
				"WithErrorHandler(nil)", "WithObserver(nil)", "WithLogger(nil)", "WithKey(nil)", "WithCost(nil)", "WithSettle(nil)"}},
		{"shared options", []stint.Option{rate, everybody, stint.WithMaxWait(-1), stint.WithFailurePolicy(7), stint.WithEmptyKey(9)},
			[]string{"WithEmptyKey(9)", "WithMaxWait(-1ns)", "WithFailurePolicy(7)"}},
		{"headers", []stint.Option{rate, everybody, stint.WithHeaders(), stint.WithHeaders(9), stint.WithHeaders(stint.NoHeaders, stint.LegacyHeaders)},
			[]string{"WithHeaders()", "unknown style 9", "NoHeaders beside another"}},
		{"numbers", []stint.Option{everybody, stint.Rate(0, time.Second), stint.Rate(1, 0), stint.Concurrency(-1), stint.Quota(1, stint.Window{})},
			[]string{`limit "rate": 0 units`, `limit "rate-2": period 0s`, `limit "concurrency": -1 units`, `limit "quota": no window: write stint.Daily`}},
		{"limit options", []stint.Option{everybody,
			stint.Rate(1, time.Second, nil),
			stint.Rate(1, time.Second, stint.WithBurst(-1), stint.WithQueue(-2), stint.WithBuckets(0)),
			stint.Rate(1, time.Second, stint.WithWarmUp(time.Second), stint.WithAlgorithm(stint.SlidingLog)),
			stint.Rate(1, time.Second, stint.WithAlgorithm(store.Concurrency), stint.WithAlgorithm(store.Ban)),
			stint.Rate(1, time.Second, stint.WithKey(nil)),
			stint.Rate(1, time.Second, stint.WithName("a b"))},
			[]string{`limit "rate": option 1 is nil`, `"rate-2": WithBurst(-1)`, `"rate-2": WithQueue(-2)`, `"rate-2": WithBuckets(0)`,
				`"rate-3": WithWarmUp: SlidingLog does not warm up`, `"rate-4": WithAlgorithm(Concurrency): write stint.Concurrency`, `"rate-4": WithAlgorithm(Ban): write stint.Ban`, `"rate-5": WithKey(nil)`, `name "a b"`}},
		{"names", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.Quota(1, stint.Daily, stint.WithName("x"))},
			[]string{`limit "x": another limit has that name`}},
		{"names across routes", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")),
			stint.WithRoute("/a", stint.Rate(1, time.Second, stint.WithName("x")))},
			[]string{`WithRoute("/a"): limit "x": another limit has that name`}},
		{"one limit twice", []stint.Option{everybody, rate, rate}, []string{`limit "rate": given twice`}},
		{"bad pattern", []stint.Option{everybody, rate, stint.WithRoute("POST login", rate)}, []string{`WithRoute("POST login"): parsing`}},
		{"patterns of other routers", []stint.Option{everybody, rate, stint.WithRoute("GET /users/:id/posts", rate), stint.WithRoute("example.com/files/*", rate), stint.WithRoute("/*path", rate), stint.WithRoute("/a/*/b", rate)},
			[]string{`WithRoute("GET /users/:id/posts"): segments that begin with : or * mean those characters here: write "GET /users/{id}/posts"`,
				`write "example.com/files/{rest...}"`, `write "/{path...}"`, `write "/a/{rest}/b"`}},
		{"methods in lower case", []stint.Option{everybody, rate, stint.WithRoute("get /x", rate), stint.WithRoute("Post  example.com/:x", rate)},
			[]string{`WithRoute("get /x"): a method in lower case, which no request has: write "GET /x"`, `write "POST  example.com/:x"`}},
		{"no client", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")), stint.WithStore(redisstore.New(nil))},
			[]string{"WithStore: the Redis client is nil: write one, such as redis.NewClient"}},
		{"no client of a type, in a failover", []stint.Option{everybody, stint.Rate(1, time.Second, stint.WithName("x")),
			stint.WithStore(failover.New(redisstore.New((*redis.ClusterClient)(nil), redisstore.WithPrefix("{a}")), memstore.New()))},
			[]string{"WithStore: the Redis client is nil: ", `WithStore: prefix "{a}": write one without braces`}},
		{"a header of proxies", []stint.Option{rate, stint.WithKey(stint.Header("X-Forwarded-For"))},
			[]string{`WithKey(Header("X-Forwarded-For")): a client can write anything into this field: write stint.ForwardedIP`}},
		{"pattern twice", []stint.Option{everybody, rate, stint.WithRoute("/a"), stint.WithRoute("/a")}, []string{`WithRoute("/a"): given twice`}},
		{"patterns that conflict", []stint.Option{everybody, rate, stint.WithRoute("/a/{x}"), stint.WithRoute("/{y}/b")},
			[]string{`WithRoute("/{y}/b"): pattern "/{y}/b" conflicts with pattern "/a/{x}": write one that is more specific or less`}},
		{"route options", []stint.Option{everybody, rate, stint.WithRoute("/a", nil, stint.Limit{}, stint.WithMaxWait(0))},
			[]string{`WithRoute("/a"): option 1 is nil`, `WithRoute("/a"): zero Limit`, `WithRoute("/a"): WithMaxWait(0s)`}},
		{"limit func without a key", []stint.Option{stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })},
			[]string{"WithLimitFunc: no default key"}},
		{"made wrongly", []stint.Option{rate, stint.WithKey(stint.Header("")), stint.WithSkip(stint.FromCIDR()), stint.WithBlock(stint.FromCIDR())},
			[]string{`WithKey(Header("")): `, "WithSkip(FromCIDR): no network", "WithBlock(FromCIDR)"}},
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
				if !strings.HasPrefix(e.Error(), "stint: ") {
					t.Errorf("%q does not say where it comes from", e)
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
		// What somebody wrote stays as it is, wherever it stands.
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
	if _, err := three.With(shared); err == nil || !strings.Contains(err.Error(), "inherited already") {
		t.Errorf("error %v", err)
	}
}

func TestProbe(t *testing.T) {
	calls := 0
	counting := stint.WithKey(func(r *http.Request) (string, error) {
		calls++
		if !strings.HasPrefix(r.RemoteAddr, "192.0.2.1:") || r.URL.Path != "/" || r.Method != "GET" {
			t.Errorf("probed with %v %v from %v", r.Method, r.URL, r.RemoteAddr)
		}
		return "", errors.New("no session")
	})
	panicking := stint.WithKey(func(r *http.Request) (string, error) { return r.Context().Value("user").(string), nil })
	limiter(t, counting, stint.Rate(1, time.Second), stint.Rate(1, time.Minute, counting), stint.Concurrency(1, panicking))
	if calls != 1 {
		t.Errorf("a key function was called %d times for one WithKey", calls)
	}
}
