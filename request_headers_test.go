package stint_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/stint-go/stint"
)

// The fields' grammar: a list of items of RFC 9651, with the draft's parameters. Module
// tests has it checked by an implementation of that RFC which is not ours.
var (
	policyField = regexp.MustCompile(`^"[\w.-]+";q=\d+(?:;qu="[a-z-]+")?(?:;w=[1-9]\d*)?(?:, "[\w.-]+";q=\d+(?:;qu="[a-z-]+")?(?:;w=[1-9]\d*)?)*$`)
	limitField  = regexp.MustCompile(`^"[\w.-]+";r=\d+(?:;t=\d+)?(?:, "[\w.-]+";r=\d+(?:;t=\d+)?)*$`)
)

// fields returns what a request left in the fields, and checks their grammar.
func fields(t *testing.T, h http.Header) (policy, limits string) {
	t.Helper()
	for _, f := range []struct {
		field   string
		grammar *regexp.Regexp
	}{{"RateLimit-Policy", policyField}, {"RateLimit", limitField}} {
		for _, line := range h.Values(f.field) {
			if !f.grammar.MatchString(line) {
				t.Errorf("%s: %q isn't what the draft has", f.field, line)
			}
		}
	}
	return strings.Join(h.Values("RateLimit-Policy"), " | "), strings.Join(h.Values("RateLimit"), " | ")
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestFields(t *testing.T) {
	second := time.Second
	berlin, lordHowe := location(t, "Europe/Berlin"), location(t, "Australia/Lord_Howe")
	tests := []struct {
		limit  stint.Limit
		policy string
		// One for each request, made after the pause: RateLimit and Retry-After.
		pause time.Duration
		want  []string
	}{
		{stint.Rate(2, second), `"rate";q=2;w=1`, 0,
			[]string{`r=1;t=1`, `r=0;t=1`, `r=0;t=1 !1`}},
		{stint.Rate(1, 10*second, stint.WithBurst(3)), `"rate";q=1;w=10`, 4 * second,
			// Full again at 10, 20, 30 s after the first, second, third.
			[]string{`r=2;t=10`, `r=1;t=6`, `r=0;t=2`, `r=0;t=8`, `r=0;t=4 !4`, `r=0;t=10`, `r=0;t=6 !6`}},
		{stint.Rate(10, second), `"rate";q=10;w=1`, 10 * time.Millisecond,
			[]string{`r=9;t=1`}},
		{stint.Rate(7, 1500*time.Millisecond), `"rate";q=7;w=2`, 0,
			[]string{`r=6;t=1`}},
		{stint.Rate(6, time.Minute, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(0), stint.WithBurst(1)), `"rate";q=6;w=60`, 0,
			[]string{`r=1;t=10`, `r=0;t=10`, `r=0;t=10 !10`}},
		{stint.Rate(2, 10*second, stint.WithAlgorithm(stint.IntervalBucket), stint.WithBurst(5)), `"rate";q=2;w=10`, 3 * second,
			[]string{`r=4;t=10`, `r=3;t=7`, `r=2;t=4`, `r=1;t=1`, `r=2;t=8`}},
		{stint.Rate(2, 10*second, stint.WithAlgorithm(stint.FixedWindow)), `"rate";q=2;w=10`, 3 * second,
			[]string{`r=1;t=10`, `r=0;t=7`, `r=0;t=4 !4`, `r=0;t=1 !1`, `r=1;t=10`}},
		{stint.Rate(2, 10*second, stint.WithAlgorithm(stint.SlidingLog)), `"rate";q=2;w=10`, 4 * second,
			[]string{`r=1;t=10`, `r=0;t=6`, `r=0;t=2 !2`, `r=0;t=2`}},
		{stint.Rate(5, second, stint.WithWarmUp(4*second)), `"rate";q=5;w=1`, 0,
			[]string{`r=0;t=1`, `r=0;t=1 !1`}},
		// A second's worth at the cold end of the curve takes 2.5.
		{stint.Rate(5, second, stint.WithWarmUp(4*second), stint.WithCost(func(*http.Request) int64 { return 5 })), `"rate";q=5;w=1`, 0,
			[]string{`r=0;t=3`, `r=0;t=3 !3`}},
		// The bubble begins at midnight of 2000-01-01, a Saturday.
		{stint.Quota(1, stint.Hourly), `"hourly";q=1;w=3600`, 600 * second, []string{`r=0;t=3600`, `r=0;t=3000 !3000`}},
		{stint.Quota(1, stint.Daily), `"daily";q=1;w=86400`, 0, []string{`r=0;t=86400`, `r=0;t=86400 !86400`}},
		{stint.Quota(1, stint.Weekly), `"weekly";q=1;w=604800`, 0, []string{`r=0;t=172800`}},
		{stint.Quota(1, stint.Monthly), `"monthly";q=1;w=2678400`, 0, []string{`r=0;t=2678400`}},
		// w is the longest that a window can be: where the clocks are set back
		// by an hour, or by half of one.
		{stint.Quota(1, stint.Hourly.In(lordHowe)), `"hourly";q=1;w=5400`, 0, []string{`r=0;t=3600`}},
		{stint.Quota(1, stint.Daily.In(berlin)), `"daily";q=1;w=90000`, 0, []string{`r=0;t=82800`}},
		{stint.Quota(1, stint.Weekly.In(berlin)), `"weekly";q=1;w=608400`, 0, []string{`r=0;t=169200`}},
		{stint.Quota(1, stint.Monthly.In(berlin)), `"monthly";q=1;w=2682000`, 0, []string{`r=0;t=2674800`}},
		{stint.Quota(1, stint.Every(90*second)), `"quota";q=1;w=90`, 0, []string{`r=0;t=90`}},
		{stint.Concurrency(2), `"concurrency";q=2;qu="concurrent-requests"`, 0, []string{`r=1`, `r=0`, `r=0 !1`}},
		// A cost that can never fit: waiting doesn't help.
		{stint.Rate(2, second, stint.WithCost(func(*http.Request) int64 { return 3 })), `"rate";q=2;w=1`, 0, []string{`r=2;t=1 !`}},
		{stint.Rate(2, second, stint.WithCost(func(*http.Request) int64 { return 1 << 62 })), `"rate";q=2;w=1`, 0, []string{`r=2;t=1 !`}},
		{stint.Rate(1<<40, second, stint.WithAlgorithm(stint.FixedWindow)), `"rate";q=1099511627776;w=1`, 0, []string{`r=1099511627775;t=1`}},
	}
	for _, tt := range tests {
		t.Run(tt.policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, everybody, tt.limit)
				for i, want := range tt.want {
					w := httptest.NewRecorder()
					_, err := l.Open(w, get("/")) // never Done: slots stay held
					policy, got := fields(t, w.Header())
					if policy != tt.policy {
						t.Errorf("policy %s, want %s", policy, tt.policy)
					}
					_, got, _ = strings.Cut(got, ";")
					if err != nil {
						got += " !" + w.Header().Get("Retry-After")
					}
					if got != want {
						t.Errorf("request %d: %s, want %s", i+1, got, want)
					}
					time.Sleep(tt.pause)
				}
			})
		})
	}
}

func TestFieldsOfSeveralLimits(t *testing.T) {
	l := limiter(t, everybody, stint.Rate(2, time.Second), stint.Quota(1, stint.Daily, stint.WithDryRun(true)), stint.Concurrency(3))
	w := through(l, get("/"), nil)
	policy, got := fields(t, w.Header())
	if want := `"rate";q=2;w=1, "concurrency";q=3;qu="concurrent-requests"`; policy != want {
		t.Errorf("policy %s, want %s", policy, want)
	}
	if want := `"rate";r=1;t=1, "concurrency";r=2`; got != want {
		t.Errorf("limits %s, want %s", got, want)
	}
	if _, ok := w.Header()["Ratelimit"]; !ok {
		t.Errorf("keys are not canonical: %v", w.Header())
	}
}

func TestFieldsOfDryRun(t *testing.T) {
	l := limiter(t, everybody, stint.Rate(1, time.Hour, stint.WithDryRun(true)))
	for range 2 {
		if w := through(l, get("/"), nil); w.Code != 200 || len(w.Header()) > 0 {
			t.Errorf("%d %v, want 200 without fields", w.Code, w.Header())
		}
	}
}

func TestNestedFields(t *testing.T) {
	styles := stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders)
	for _, tt := range []struct {
		inner  int64
		legacy string
	}{{9, "5 4 720"}, {2, "2 1 1800"}} {
		outer := limiter(t, everybody, styles, stint.Rate(5, time.Hour, stint.WithName("outer")))
		inner := limiter(t, everybody, styles, stint.Rate(tt.inner, time.Hour, stint.WithName("inner")))
		w := httptest.NewRecorder()
		mount(outer, mount(inner, nil).ServeHTTP).ServeHTTP(w, get("/"))
		_, limits := fields(t, w.Header())
		if strip(limits) != `"outer"` || len(w.Header().Values("RateLimit")) != 2 {
			t.Errorf("RateLimit %q, want a line of each limiter", w.Header().Values("RateLimit"))
		}
		h := w.Header()
		if got := strings.Join(append(append(h.Values("X-RateLimit-Limit"), h.Values("X-RateLimit-Remaining")...), h.Values("X-RateLimit-Reset")...), " "); got != tt.legacy {
			t.Errorf("legacy fields %s, want those of the limit with the least left: %s", got, tt.legacy)
		}
	}
}

// A name appears once in each field, with the limit that has less left, whichever
// limiter of the chain has it.
func TestNestedNames(t *testing.T) {
	limit := func(n int64, name string, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, time.Hour, append(opts, stint.WithName(name))...)
	}
	for _, tt := range []struct {
		name           string
		chain          [][]stint.Option // from the outermost
		status         int
		limits, policy string // all lines
	}{
		{"the outer has less", [][]stint.Option{{limit(5, "a")}, {limit(9, "a")}}, 200, `"a";r=4`, `"a";q=5`},
		{"the inner has less", [][]stint.Option{{limit(9, "a")}, {limit(5, "a")}}, 200, `"a";r=4`, `"a";q=5`},
		{"the same is left", [][]stint.Option{{limit(5, "a")}, {stint.Rate(6, time.Hour, stint.WithBurst(5), stint.WithName("a"))}}, 200, `"a";r=4`, `"a";q=5`},
		{"the outer among others", [][]stint.Option{{limit(3, "x"), limit(9, "a"), limit(4, "ab")}, {limit(6, "b"), limit(5, "a")}}, 200,
			`"x";r=2 "ab";r=3 "b";r=5 "a";r=4`, `"x";q=3 "ab";q=4 "b";q=6 "a";q=5`},
		{"the inner among others", [][]stint.Option{{limit(5, "a"), limit(4, "b")}, {limit(9, "a"), limit(3, "c"), limit(9, "b")}}, 200,
			`"a";r=4 "b";r=3 "c";r=2`, `"a";q=5 "b";q=4 "c";q=3`},
		{"one of each", [][]stint.Option{{limit(5, "a"), limit(9, "b")}, {limit(9, "a"), limit(4, "b")}}, 200, `"a";r=4 "b";r=3`, `"a";q=5 "b";q=4`},
		{"three limiters", [][]stint.Option{{limit(9, "a")}, {limit(5, "a")}, {limit(7, "a"), limit(7, "b")}}, 200, `"a";r=4 "b";r=6`, `"a";q=5 "b";q=7`},
		{"slots", [][]stint.Option{{stint.Concurrency(3, stint.WithName("a"))}, {limit(9, "a")}}, 200, `"a";r=2`, `"a";q=3`},
		{"a dry run has no item", [][]stint.Option{{limit(5, "a")}, {limit(2, "a", stint.WithDryRun(true))}}, 200, `"a";r=4`, `"a";q=5`},
		{"a denial", [][]stint.Option{{limit(5, "a"), limit(2, "b")}, {limit(1, "a")}}, 429, `"b";r=0 "a";r=0`, `"b";q=2 "a";q=1`},
		{"default names", [][]stint.Option{{stint.Rate(5, time.Hour)}, {stint.Rate(9, time.Hour)}}, 200, `"rate";r=4`, `"rate";q=5`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			for _, opts := range slices.Backward(tt.chain) {
				h = mount(limiter(t, append(opts, everybody)...), h.ServeHTTP)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/"))
			if tt.status == 429 {
				w = httptest.NewRecorder()
				h.ServeHTTP(w, get("/"))
			}
			all := func(field string) string {
				items := strings.Split(strings.Join(w.Header().Values(field), ", "), ", ")
				for i, item := range items {
					items[i] = strings.Join(strings.Split(item, ";")[:2], ";")
				}
				return strings.Join(items, " ")
			}
			if w.Code != tt.status || all("RateLimit") != tt.limits || all("RateLimit-Policy") != tt.policy {
				t.Errorf("%d, %s, %s\nwant %d, %s, %s", w.Code, all("RateLimit"), all("RateLimit-Policy"), tt.status, tt.limits, tt.policy)
			}
		})
	}
}

func TestRetryAfterIsTheLatest(t *testing.T) {
	l := limiter(t, everybody, stint.Rate(1, time.Minute), stint.Rate(1, time.Hour), stint.Concurrency(9))
	codes(l, "GET", "/", 1)
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", "7")
	_, err := l.Open(w, get("/"))
	if got := w.Header().Get("Retry-After"); got != "3600" {
		t.Errorf("Retry-After %s, want 3600", got)
	}
	if d := denied(t, err).Decision; d.Limit != "rate-2" || d.RetryAfter.Round(time.Minute) != time.Hour {
		t.Errorf("denied by %s for %v, want rate-2 for an hour", d.Limit, d.RetryAfter)
	}
	w.Header().Set("Retry-After", "7200")
	_, _ = l.Open(w, get("/"))
	if got := w.Header().Get("Retry-After"); got != "7200" {
		t.Errorf("Retry-After %s, want the later one of the outer limiter", got)
	}
}

// A hidden limit is in no field, whatever its kind, and its denials have a Retry-After.
func TestHidden(t *testing.T) {
	hidden := stint.WithHidden()
	for _, tt := range []struct {
		limit stint.Limit
		retry string
	}{
		{stint.Rate(1, time.Hour, hidden), "3600"},
		{stint.Quota(1, stint.Every(time.Hour), hidden), ""},
		{stint.Concurrency(1, hidden), "1"},
		{stint.AdaptiveConcurrency(1, 1, hidden), "1"},
	} {
		l := limiter(t, everybody, stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders), tt.limit, stint.Rate(9, time.Minute, stint.WithName("shown")))
		for i := range 2 {
			w := httptest.NewRecorder()
			_, err := l.Open(w, get("/"))
			if policy, limits := fields(t, w.Header()); policy != `"shown";q=9;w=60` || strip(limits) != `"shown"` || w.Header().Get("X-RateLimit-Limit") != "9" {
				t.Errorf("%s and %s, X-RateLimit-Limit %s: want those of the other limit", policy, limits, w.Header().Get("X-RateLimit-Limit"))
			}
			if i == 1 && (err == nil || tt.retry != "" && w.Header().Get("Retry-After") != tt.retry || w.Header().Get("Retry-After") == "") {
				t.Errorf("%v, Retry-After %q, want %s", err, w.Header().Get("Retry-After"), tt.retry)
			}
		}
	}
	for _, wrong := range []stint.Option{stint.Bandwidth(1<<20, hidden), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), hidden)} {
		if _, err := stint.New(everybody, stint.Rate(1, time.Hour), wrong); err == nil || !strings.Contains(err.Error(), "WithHidden: the response's header fields never show this kind of limit, so nothing can be hidden: leave it out") {
			t.Error(err)
		}
	}
}

// Retry-After has up to the jitter on top, and the decision the earliest instant.
func TestRetryJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, everybody, stint.Rate(1, time.Minute), stint.WithRetryJitter(30*time.Second))
		codes(l, "GET", "/", 1)
		seen := map[string]bool{}
		for range 200 {
			w := httptest.NewRecorder()
			_, err := l.Open(w, get("/"))
			retry := w.Header().Get("Retry-After")
			var n int
			if _, _ = fmt.Sscan(retry, &n); n < 60 || n > 90 || denied(t, err).Decision.RetryAfter != time.Minute {
				t.Fatalf("Retry-After %s, the decision's %v: want 60 to 90, and 1m", retry, denied(t, err).Decision.RetryAfter)
			}
			seen[retry] = true
		}
		if len(seen) < 10 {
			t.Errorf("%d values of Retry-After among 200 denials", len(seen))
		}
	})
	for _, d := range []time.Duration{-time.Second, 100, 24*time.Hour + 1, math.MaxInt64} {
		if _, err := stint.New(everybody, stint.Rate(1, time.Hour), stint.WithRetryJitter(d)); err == nil || !strings.Contains(err.Error(), "WithRetryJitter") {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// X-RateLimit-Limit is what Remaining is for a key that has used nothing, whatever the algorithm.
func TestCapacity(t *testing.T) {
	for _, tt := range []struct {
		limit stint.Limit
		want  int64
	}{
		{stint.Rate(20, time.Minute), 20},
		{stint.Rate(20, time.Minute, stint.WithBurst(60)), 60},
		{stint.Rate(20, time.Minute, stint.WithBurst(5)), 5},
		{stint.Rate(20, time.Minute, stint.WithBurst(5), stint.WithQueue(7)), 12},
		{stint.Rate(20, time.Minute, stint.WithBurst(60), stint.WithAlgorithm(stint.IntervalBucket)), 60},
		{stint.Rate(20, time.Minute, stint.WithBurst(2), stint.WithQueue(3), stint.WithAlgorithm(stint.LeakyBucket)), 6},
		{stint.Rate(20, time.Minute, stint.WithAlgorithm(stint.SlidingCounter)), 20},
		{stint.Rate(20, time.Minute, stint.WithAlgorithm(stint.SlidingLog)), 20},
		{stint.Quota(9, stint.Monthly), 9},
		{stint.Quota(9, stint.Daily, stint.WithBurst(18), stint.WithAlgorithm(stint.IntervalBucket)), 18},
		{stint.Concurrency(4), 4},
		{stint.AdaptiveConcurrency(1, 50, stint.WithInitialLimit(8)), 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, everybody, stint.WithHeaders(stint.XRateLimitHeaders), tt.limit)
			w := httptest.NewRecorder()
			p, err := l.Open(w, get("/"))
			if err != nil {
				t.Fatal(err)
			}
			s := p.Decision().Limits[0]
			if got, left := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); got != fmt.Sprint(tt.want) ||
				left != fmt.Sprint(tt.want-1) || s.Capacity != tt.want || s.Remaining != tt.want-1 {
				t.Errorf("want a capacity of %d: fields %s of %s, %+v", tt.want, left, got, s)
			}
			p.Done()
		})
	}
}

func TestHeaderStyles(t *testing.T) {
	tests := []struct {
		styles []stint.HeaderStyle
		want   string
	}{
		{[]stint.HeaderStyle{stint.RateLimitHeaders}, "Ratelimit Ratelimit-Policy"},
		{[]stint.HeaderStyle{stint.XRateLimitHeaders}, "X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset"},
		{[]stint.HeaderStyle{stint.RateLimitHeaders, stint.XRateLimitHeaders}, "Ratelimit Ratelimit-Policy X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset"},
		{[]stint.HeaderStyle{stint.XRateLimitUnixHeaders, stint.RateLimitHeaders}, "Ratelimit Ratelimit-Policy X-Ratelimit-Limit X-Ratelimit-Remaining X-Ratelimit-Reset"},
		{[]stint.HeaderStyle{stint.NoHeaders}, ""},
	}
	for _, tt := range tests {
		l := limiter(t, everybody, stint.WithHeaders(tt.styles...), stint.Rate(1, time.Hour))
		for i, extra := range []string{"", "Cache-Control Content-Type Retry-After"} {
			w := through(l, get("/"), nil)
			var got []string
			for _, key := range []string{"Cache-Control", "Content-Type", "Ratelimit", "Ratelimit-Policy", "Retry-After",
				"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
				if len(w.Header()[key]) > 0 && (i == 0 || !strings.Contains(extra, key)) {
					got = append(got, key)
				}
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("%v, request %d: fields %q, want %q", tt.styles, i+1, g, tt.want)
			}
			if i == 1 && w.Header().Get("Retry-After") == "" {
				t.Errorf("%v: no Retry-After in a denial", tt.styles)
			}
		}
	}
}

// X-RateLimit-Reset is seconds from now or the second at which the units are back,
// whichever style was chosen; a part of a second counts as one.
func TestResetAsUnixTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, into := range []time.Duration{0, 400 * time.Millisecond} {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + into)))
			const reset = 90*time.Second + 500*time.Millisecond
			for style, want := range map[stint.HeaderStyle]int64{
				stint.XRateLimitHeaders:     91,
				stint.XRateLimitUnixHeaders: time.Now().Truncate(time.Second).Unix() + 91,
			} {
				l := limiter(t, everybody, stint.Rate(1, reset), stint.WithHeaders(style))
				if got := through(l, get("/"), nil).Header().Get("X-RateLimit-Reset"); got != fmt.Sprint(want) {
					t.Errorf("%v into a second, style %d: reset %s, want %d", into, style, got, want)
				}
			}
		}
	})
}

func TestFieldsOfSkippedKeys(t *testing.T) {
	l := limiter(t, everybody, stint.WithEmptyKey(stint.SkipEmptyKey),
		stint.Rate(9, time.Minute), stint.Quota(9, stint.Daily, stint.WithKey(stint.Header("X-API-Key"))))
	policy, limits := fields(t, through(l, get("/"), nil).Header())
	if policy != `"rate";q=9;w=60` || strip(limits) != `"rate"` {
		t.Errorf("%s and %s, want those of the limits that apply", policy, limits)
	}
	r := get("/")
	r.Header.Set("X-API-Key", "a")
	policy, limits = fields(t, through(l, r, nil).Header())
	if policy != `"rate";q=9;w=60, "daily";q=9;w=86400` || strip(limits) != `"rate" "daily"` {
		t.Errorf("%s and %s", policy, limits)
	}
}

// What t promises: no more than r units before it has passed, and more after it.
func TestEffectiveWindow(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n, per := 1+rnd.Int64N(20), time.Duration(1+rnd.Int64N(90))*time.Second
		burst := 1 + rnd.Int64N(2*n)
		alg := []stint.Algorithm{stint.TokenBucket, stint.IntervalBucket}[rnd.IntN(2)]
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Rate(n, per, stint.WithBurst(burst), stint.WithAlgorithm(alg)))
			for range 1 + rnd.IntN(20) {
				_, _ = l.Open(httptest.NewRecorder(), get("/"))
				time.Sleep(time.Duration(rnd.Int64N(int64(per))) / 4)
			}
			w := httptest.NewRecorder()
			_, err := l.Open(w, get("/"))
			var r, after int64
			if _, err := fmt.Sscanf(w.Header().Get("RateLimit"), `"rate";r=%d;t=%d`, &r, &after); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(after)*time.Second - time.Second)
			if got := remaining(t, l); got > r && after > 1 {
				t.Errorf("%d per %v, burst %d (%v), denied: %v: r=%d;t=%d, and %d a second before", n, per, burst, alg, err != nil, r, after, got)
			}
			time.Sleep(time.Second)
			if got := remaining(t, l); got <= r {
				t.Errorf("%d per %v, burst %d (%v), denied: %v: r=%d;t=%d, and %d then", n, per, burst, alg, err != nil, r, after, got)
			}
		})
	}
}
