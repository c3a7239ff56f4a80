package stint_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// A request that can be read in several ways is held to the limits of all readings,
// each once.
func TestUnionOfRoutes(t *testing.T) {
	rate := func(name string) stint.Limit { return stint.Rate(100, time.Minute, stint.WithName(name)) }
	key := func(k string) stint.SharedOption {
		return stint.WithKey(func(*http.Request) (string, error) { return k, nil })
	}
	cost := func(n int64) stint.ChargeOption {
		return stint.WithCost(func(*http.Request) int64 { return n })
	}
	shared := rate("shared")
	slots := stint.Concurrency(3, stint.WithName("slots"))
	tests := []struct {
		name    string
		opts    []stint.Option
		request string
		policy  string // names
		left    string
	}{
		{"two routes", []stint.Option{rate("base"), stint.WithRoute("/a", rate("a"))},
			"GET //a x", "base a", `"base";r=99, "a";r=99`},
		{"one that is exempt", []stint.Option{rate("base"), stint.WithRoute("/a")},
			"GET //a x", "base", `"base";r=99`},
		{"both exempt", []stint.Option{rate("base"), stint.WithRoute("/a"), stint.WithRoute("/")},
			"GET //a x", "", ""},
		{"a limit of both", []stint.Option{shared, rate("base"), stint.WithRoute("/a", shared, rate("a"))},
			"GET //a x", "shared base a", `"shared";r=99, "base";r=99, "a";r=99`},
		{"a limit of both, by equal keys", []stint.Option{shared, stint.WithRoute("/a", shared, key("default"))},
			"GET //a x", "shared", `"shared";r=99`},
		{"a limit of both, at the higher cost", []stint.Option{shared, cost(7), stint.WithRoute("/a", shared, cost(3))},
			"GET //a x", "shared", `"shared";r=93`},
		{"the other way round", []stint.Option{shared, cost(3), stint.WithRoute("/a", shared, cost(7))},
			"GET //a x", "shared", `"shared";r=93`},
		{"slots of both", []stint.Option{slots, stint.WithRoute("/a", slots)},
			"GET //a x", "slots", `"slots";r=2`},
		{"three", []stint.Option{rate("base"), stint.WithRoute("GET /a%2Fb", rate("one")), stint.WithRoute("GET /a/b", rate("two"))},
			"GET /x/../a%2fb x", "base two one", `"base";r=99, "two";r=99, "one";r=99`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(t, append([]stint.Option{key("default")}, tt.opts...)...)
			h := through(l, requested(t, tt.request), nil).Header()
			if got := strings.ReplaceAll(strip(h.Get("RateLimit-Policy")), `"`, ""); got != tt.policy {
				t.Errorf("policies %q, want %q", got, tt.policy)
			}
			left := []string{}
			for item := range strings.SplitSeq(h.Get("RateLimit"), ", ") {
				item, _, _ = strings.Cut(item, ";t=")
				left = append(left, item)
			}
			if got := strings.Join(left, ", "); got != tt.left {
				t.Errorf("left %s, want %s", got, tt.left)
			}
		})
	}
}

// Two routes that have one limit for different keys make two charges of it. The
// fields show the one with less left.
func TestUnionOfKeys(t *testing.T) {
	shared := stint.Rate(9, time.Minute, stint.WithName("shared"))
	key := func(k string) stint.SharedOption {
		return stint.WithKey(func(*http.Request) (string, error) { return k, nil })
	}
	l := limiter(t, shared, key("base"), stint.WithRoute("/a", shared, key("a")))
	for _, step := range []struct{ request, left string }{
		{"GET /a x", `"shared";r=8`},
		{"GET //a x", `"shared";r=7`},
		{"GET / x", `"shared";r=7`},
		{"GET / x", `"shared";r=6`},
		{"GET //a x", `"shared";r=5`},
	} {
		h := through(l, requested(t, step.request), nil).Header()
		left, more, _ := strings.Cut(h.Get("RateLimit"), ";t=")
		if left != step.left || strings.Contains(more, "shared") || h.Get("RateLimit-Policy") != `"shared";q=9;w=60` {
			t.Errorf("%s: %s by %s, want %s once", step.request, h.Get("RateLimit"), h.Get("RateLimit-Policy"), step.left)
		}
	}
	for k, want := range map[string]int64{"base": 5, "a": 6} {
		if d, err := l.Peek(t.Context(), k); err != nil || d.Remaining != want {
			t.Errorf("%s: %d left, %v, want %d", k, d.Remaining, err, want)
		}
	}
}

// A limit charged for two keys is settled for both by its name.
func TestUnionSettlesAllOfAName(t *testing.T) {
	shared := stint.Rate(9, time.Minute, stint.WithName("shared"))
	key := func(k string) stint.SharedOption {
		return stint.WithKey(func(*http.Request) (string, error) { return k, nil })
	}
	l := limiter(t, shared, key("base"), stint.WithRoute("/a", shared, key("a")))
	through(l, requested(t, "GET //a x"), func(_ http.ResponseWriter, r *http.Request) {
		if err := stint.FromContext(r.Context()).Settle(r.Context(), 4, "shared"); err != nil {
			t.Error(err)
		}
	})
	for _, k := range []string{"base", "a"} {
		if d, err := l.Peek(t.Context(), k); err != nil || d.Remaining != 5 {
			t.Errorf("%s: %d left, %v, want 5", k, d.Remaining, err)
		}
	}
}

// A limiter inside another charges nothing again, whatever the readings.
func TestUnionNested(t *testing.T) {
	shared := stint.Rate(9, time.Minute, stint.WithName("shared"))
	page := stint.Bandwidth(1<<30, stint.WithName("page"))
	outer := limiter(t, everybody, shared, page, stint.WithRoute("/a", shared, page, everybody),
		stint.WithRoute("/free"), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{tenantLimit}, nil
		}))
	inner, err := outer.With(stint.Rate(9, time.Minute, stint.WithName("more")))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ request, want string }{
		{"GET //a x", `"shared";r=8 "tenant";r=8 "more";r=8`},
		{"GET //free x", `"shared";r=7 "tenant";r=7 "more";r=7`},
		{"GET /free x", `"more";r=6`},
	} {
		w := httptest.NewRecorder()
		mount(outer, mount(inner, nil).ServeHTTP).ServeHTTP(w, requested(t, step.request))
		var got []string
		for item := range strings.SplitSeq(strings.Join(w.Header().Values("RateLimit"), ", "), ", ") {
			item, _, _ = strings.Cut(item, ";t=")
			got = append(got, item)
		}
		if got := strings.Join(got, " "); got != step.want {
			t.Errorf("%s: %s, want %s", step.request, got, step.want)
		}
	}
}

var tenantLimit = stint.Rate(9, time.Minute, stint.WithName("tenant"))

// A limit that one route enforces is enforced, though another only reports it.
func TestUnionEnforces(t *testing.T) {
	shared := stint.Rate(1, time.Minute, stint.WithName("shared"))
	for name, opts := range map[string][]stint.Option{
		"the route reports":  {shared, stint.WithRoute("/a", shared, stint.WithDryRun())},
		"the route enforces": {stint.WithRoute("/", shared, stint.WithDryRun()), stint.WithRoute("/a", shared)},
	} {
		l := limiter(t, append(opts, everybody)...)
		if got := codes(l, "GET", "//a", 2); got != "200 429" {
			t.Errorf("%s: got %s, want 200 429", name, got)
		}
	}
}

// Bytes are paced once by a Bandwidth that several readings have.
func TestUnionPacesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := stint.Bandwidth(1<<20, stint.WithName("page"))
		l := limiter(t, everybody, page, stint.WithRoute("/a", page))
		start := time.Now()
		through(l, requested(t, "GET //a x"), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
		})
		once := time.Since(start)
		time.Sleep(time.Hour)
		start = time.Now()
		through(l, requested(t, "GET /a x"), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
		})
		if usual := time.Since(start); once != usual {
			t.Errorf("took %v, and %v by the usual spelling", once, usual)
		}
	})
}
