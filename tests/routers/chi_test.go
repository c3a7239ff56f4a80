package routers

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/tests/doctest"
)

func site(search http.HandlerFunc) http.Handler {
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Minute),
		stint.WithRoute("POST /login", stint.Rate(5, time.Minute, stint.WithName("login"))),
		stint.WithRoute("/healthz", stint.Exempt()), // exempt
		stint.WithKey(stint.RemoteIP())))
	searches := stint.Must(lim.With(stint.Rate(2, time.Second, stint.WithName("search"))))

	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Use(stinthttp.Middleware(lim))
	r.Post("/login", func(http.ResponseWriter, *http.Request) {})
	r.Get("/healthz", func(http.ResponseWriter, *http.Request) {})
	r.With(stinthttp.Middleware(searches)).Get("/search", search)
	r.Route("/tenants/{tenant}", func(r chi.Router) {
		r.With(stinthttp.New(stint.Rate(3, time.Minute), stint.WithKey(stint.KeyFunc(tenant)))).Get("/report", search)
	})
	return r
}

// tenant is the key of requests under /tenants/{tenant}.
func tenant(r *http.Request) (string, error) { return chi.URLParam(r, "tenant"), nil }

// The code for routers in the documents is the code of these files.
func TestDocumentIsThisCode(t *testing.T) {
	document, err := os.ReadFile("../../docs/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	code := ""
	for _, name := range []string{"chi_test.go", "httprouter_test.go", "gorilla_test.go", "bunrouter_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code += string(text)
	}
	blocks := doctest.Blocks(string(document), "tests/routers")
	if len(blocks) < 4 {
		t.Error("no code for chi, or for another router")
	}
	for _, b := range blocks {
		if !strings.Contains(code, b) {
			t.Errorf("docs/routers.md has code that isn't here:\n%s", b)
		}
	}
}

// passing is how many of n requests no limiter denies.
func passing(h http.Handler, n int, method, target string, change ...func(*http.Request, int)) (passed int) {
	for i := range n {
		r := httptest.NewRequest(method, target, nil)
		for _, f := range change {
			f(r, i)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests && w.Code != http.StatusForbidden && w.Code != http.StatusServiceUnavailable {
			passed++
		}
	}
	return passed
}

func TestChi(t *testing.T) {
	for _, test := range []struct {
		name, method, target string
		want                 int // of 200
	}{
		{"the limiter's limit", "GET", "/nowhere", 100},
		{"a route's", "POST", "/login", 5},
		{"another spelling", "POST", "/%6cogin", 5},
		{"exempt", "GET", "/healthz", 200},
		{"a limiter on the route", "GET", "/search", 2},
		{"a URL parameter", "GET", "/tenants/t7/report", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := site(func(http.ResponseWriter, *http.Request) {})
				if got := passing(h, 200, test.method, test.target); got != test.want {
					t.Errorf("%d of 200 pass, want %d", got, test.want)
				}
			})
		})
	}
}

// URLFormat routes /login.json to /login: no suffix gets another bucket, and none is charged twice.
func TestChiURLFormat(t *testing.T) {
	limit := stinthttp.New(
		stint.WithRoute("POST /login", stint.Rate(5, time.Hour, stint.WithName("login"))),
		stint.Rate(20, time.Hour, stint.WithName("calls")),
		stint.WithKey(stint.RemoteIP()))
	ran := 0
	r := chi.NewRouter()
	r.Use(limit, middleware.URLFormat)
	r.Post("/login", func(http.ResponseWriter, *http.Request) { ran++ })
	r.Get("/{page}", func(http.ResponseWriter, *http.Request) {})
	for _, suffix := range []string{"", ".json", ".xml", ".", ".json"} {
		if got := passing(r, 1, "POST", "/login"+suffix); got != 1 {
			t.Errorf("/login%s is denied", suffix)
		}
	}
	if got := passing(r, 50, "POST", "/login.json"); got != 0 || ran != 5 {
		t.Errorf("%d of 50 pass a limit of 5 that is used up, %d have run", got, ran)
	}
	if got := passing(r, 50, "GET", "/page.json"); got != 15 {
		t.Errorf("%d others pass, want 15", got)
	}
}

// Tenants don't share a bucket, and a limiter in front charges for all of them
// together.
func TestChiTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := site(func(http.ResponseWriter, *http.Request) {})
		for _, tenant := range []string{"a", "b", "c"} {
			if got := passing(h, 10, "GET", "/tenants/"+tenant+"/report"); got != 3 {
				t.Errorf("%d of tenant %s pass, want 3", got, tenant)
			}
		}
		h = chi.Chain(stinthttp.New(stint.Rate(3, time.Minute), stint.WithKey(stint.KeyFunc(tenant)))).Handler(h)
		if got := passing(h, 1, "GET", "/tenants/a/report"); got != 0 {
			t.Error("a URL parameter is a key before the routing")
		}
	})
}

// A handler's panic releases its slot on the way through chi's Recoverer.
func TestChiPanic(t *testing.T) {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer, stinthttp.New(stint.Concurrency(1), stint.WithKey(stint.Global())))
	r.Get("/", func(http.ResponseWriter, *http.Request) { panic("out of order") })
	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusInternalServerError {
			t.Fatalf("%d, want the panic's 500 and no denial", w.Code)
		}
	}
}

var ten = netip.MustParsePrefix("10.0.0.0/8")

// What the document says about RealIP and ProxyHeaders, and what to write instead.
func TestRealIP(t *testing.T) {
	forged := func(r *http.Request, i int) { r.Header.Set("X-Forwarded-For", "198.51.100."+string(rune('0'+i))) }
	limit := stinthttp.New(stint.Rate(2, time.Hour), stint.WithKey(stint.RemoteIP()))
	for _, test := range []struct {
		name   string
		before []func(http.Handler) http.Handler
		want   int // of 9
	}{
		//lint:ignore SA1019 what it lets through is the point
		{"RealIP before RemoteIP", []func(http.Handler) http.Handler{middleware.RealIP, limit}, 9},
		{"ProxyHeaders before RemoteIP", []func(http.Handler) http.Handler{handlers.ProxyHeaders, stinthttp.New(stint.Rate(2, time.Hour), stint.WithKey(stint.RemoteIP()))}, 9},
		{"RemoteIP", []func(http.Handler) http.Handler{stinthttp.New(stint.Rate(2, time.Hour), stint.WithKey(stint.RemoteIP()))}, 2},
		{"ForwardedIP without a proxy in front", []func(http.Handler) http.Handler{
			stinthttp.New(stint.Rate(2, time.Hour), stint.WithKey(stint.ForwardedIP(ten)))}, 2},
	} {
		r := chi.NewRouter()
		r.Use(test.before...)
		r.Get("/", func(http.ResponseWriter, *http.Request) {})
		if got := passing(r, 9, "GET", "/", forged); got != test.want {
			t.Errorf("%s: %d of 9 pass, want %d", test.name, got, test.want)
		}
	}
}

// chi's Timeout bounds a wait.
func TestChiTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := chi.NewRouter()
		r.Use(middleware.Timeout(time.Second), stinthttp.New(
			stint.Rate(1, time.Minute, stint.WithMaxWait(time.Minute)), stint.WithKey(stint.Global())))
		r.Get("/", func(http.ResponseWriter, *http.Request) {})
		start := time.Now()
		if got := passing(r, 2, "GET", "/"); got != 1 || time.Since(start) > time.Second {
			t.Errorf("%d pass after %v", got, time.Since(start))
		}
	})
}

// only returns the options of a route that has only a limit, and those of the options that are limits.
func only(l stint.Limit, with []stint.RouteOption) (opts []stint.RouteOption) {
	limits := []stint.Limit{l}
	for _, o := range with {
		if l, ok := o.(stint.Limit); ok {
			limits = append(limits, l)
		} else {
			opts = append(opts, o)
		}
	}
	return append(opts, stint.Only(limits...))
}

// chi routes a path as it is sent. No spelling of it gets more than the others, whatever two routes
// say of one limit. The table of internal/test/adaptertest does this for the adapters, at more length.
func TestReadings(t *testing.T) {
	settings := [][]stint.RouteOption{
		nil,
		{stint.WithFixedCost(4)},
		{stint.WithDryRun(true)},
		{stint.WithFailurePolicy(stint.FailClosed)},
		{stint.WithSettle(stint.FailedOnly)},
		{stint.WithSettle(func(*http.Request, int, int64) int64 { return 6 })},
		{stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "another", nil }))},
		{stint.Rate(1000, time.Hour, stint.WithName("tokens"), stint.WithCost(func(*http.Request) int64 { return 2 }))},
	}
	settles := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Settle") == "" {
			return
		}
		if err := stint.FromContext(r.Context()).Settle(r.Context(), 5); err != nil {
			t.Error(err)
		}
	}
	for i, one := range settings {
		for j, other := range settings {
			for _, settle := range []string{"", "5"} {
				if beside := len(settings) - 1; settle != "" && (i == beside) != (j == beside) {
					continue // Settle without names chooses the limit with a cost, which one reading has
				}
				passes := func(path string) (n int) {
					calls := stint.Rate(10, time.Hour, stint.WithName("calls"))
					m := chi.NewRouter()
					m.Use(stinthttp.New(stint.WithKey(stint.Global()), stint.Rate(1000, time.Hour, stint.WithName("rest")),
						stint.WithRoute("POST /sessions/{id}", only(calls, one)...),
						stint.WithRoute("POST /{page}/{id}", only(calls, other)...),
						stint.WithLogger(slog.New(slog.DiscardHandler))))
					m.Post("/sessions/{id}", settles)
					m.Post("/{page}/{id}", settles)
					for range 12 {
						r, w := httptest.NewRequest("POST", path, nil), httptest.NewRecorder()
						r.Header.Set("Settle", settle)
						if m.ServeHTTP(w, r); w.Code == 200 {
							n++
						}
					}
					return n
				}
				both, most := passes("/%73essions/7"), min(passes("/sessions/7"), passes("/others/7"))
				if both > most {
					t.Errorf("settings %d and %d, settled to %q: %d of 12 passed, want at most %d", i, j, settle, both, most)
				}
			}
		}
	}
}
