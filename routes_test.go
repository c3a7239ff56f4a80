package stint_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
)

// requested makes a request of "METHOD target host", as a server does.
func requested(t *testing.T, request string) *http.Request {
	t.Helper()
	f := strings.Fields(request)
	if f[1][0] == '%' {
		f[1] = "/" + f[1]
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(f[0] + " " + f[1] + " HTTP/1.1\r\nHost: " + f[2] + "\r\n\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRouteDefaults(t *testing.T) {
	var called []string
	key := func(name string) stint.SharedOption {
		return stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			if r.Method == "POST" {
				called = append(called, name)
			}
			return name, nil
		}))
	}
	l := limiter(t, key("limiter"), stint.Rate(1, time.Second),
		stint.WithRoute("/a", key("route"), stint.Rate(1, time.Second), stint.Quota(9, stint.Daily), stint.Concurrency(1, key("limit"))),
		stint.WithRoute("/b", stint.Rate(1, time.Second), stint.Quota(9, stint.Daily)),
	)
	for path, want := range map[string]string{"/": "limiter", "/a": "limiter route limit", "/b": "limiter"} {
		called = nil
		codes(l, "POST", path, 1)
		if got := strings.Join(called, " "); got != want {
			t.Errorf("%s: key functions called: %q, want %q", path, got, want)
		}
	}
}

// strip leaves only the names of a RateLimit field.
func strip(field string) string {
	var names []string
	for item := range strings.SplitSeq(field, ", ") {
		name, _, _ := strings.Cut(item, ";")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// Events name the route, also of a limiter that has inherited it.
func TestWithKeepsRoutesNames(t *testing.T) {
	base := limiter(t, everybody, stint.Rate(9, time.Minute), stint.WithRoute("/a", stint.Rate(9, time.Minute)))
	seen := &events{}
	l := stint.Must(base.With(stint.Rate(9, time.Minute, stint.WithName("more")), seen.Option()))
	codes(l, "GET", "/a", 1)
	for _, e := range seen.All() {
		if e.Route != "/a" {
			t.Errorf("%v of route %q, want /a", e.Kind, e.Route)
		}
	}
	if len(seen.All()) == 0 {
		t.Error("no events")
	}
}

// Each row of the table in docs/routes.md, and of that in testdata, is what a request is held to.
func TestRoutesAddUp(t *testing.T) {
	text, err := os.ReadFile("docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := os.ReadFile("testdata/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	_, table, _ := strings.Cut(string(text), "\n| New | With | request |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table + "\n" + string(more)) {
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "| | ", "|  | "), "| \n"), " | ")
		if len(cells) != 4 || cells[0] == "New" || cells[0] == "---" {
			continue
		}
		rows++
		t.Run(strings.Join(cells, " | "), func(t *testing.T) {
			limits := map[string]stint.Limit{}
			seen := &events{}
			l := limiter(t, append(written(limits, cells[0]), everybody, seen.Option())...)
			if cells[1] != "" {
				l = derive(t, l, append(written(limits, cells[1]), everybody)...)
			}
			method, target, found := strings.Cut(strings.Trim(cells[2], "`"), " ")
			if !found {
				method, target = "GET", method
			}
			host, path, _ := strings.Cut(target, "/")
			through(l, requested(t, method+" /"+path+" "+cmp.Or(host, "x")), nil)
			held := []string{}
			if all := seen.All(); len(all) > 0 {
				for _, s := range all[0].Decision.Limits {
					held = append(held, costing(s.Name, s.Cost))
				}
			}
			if got := cmp.Or(strings.Join(held, ", "), "none"); got != cells[3] {
				t.Errorf("held to %s", got)
			}
		})
	}
	if rows < 30 {
		t.Errorf("found %d rows", rows)
	}
}

// Each row of the table of ways to add a limit in docs/routes.md is what two requests are charged, the
// second of which b denies.
func TestWaysToAddALimit(t *testing.T) {
	text, err := os.ReadFile("docs/routes.md")
	if err != nil {
		t.Fatal(err)
	}
	a, b := stint.Rate(10, time.Hour, stint.WithName("a")), stint.Rate(1, time.Hour, stint.WithName("b"))
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		if len(cells) != 5 || cells[0] == "mounted in front" || cells[0] == "---" {
			continue
		}
		rows++
		t.Run(cells[0]+" "+cells[1], func(t *testing.T) {
			shared, names, decisions := newSpy(), []string{}, 0
			shared.OnTake = func(c *asks) error {
				decisions++
				for _, charge := range c.Charges {
					names = append(names, charge.Limit.Name())
				}
				return c.Pass()
			}
			with := func(opts ...stint.Option) *stint.Limiter {
				return limiter(t, append(opts, theKey, stint.WithStore(shared))...)
			}
			lim := with(a)
			var next http.HandlerFunc
			for _, cell := range []string{cells[1], cells[0]} {
				switch cell {
				case "":
				case "`New(a, WithRoute(route, b))`":
					next = mount(with(a, stint.WithRoute("/", b)), next).ServeHTTP
				case "`New(a, WithRoute(route, Only(b)))`":
					next = mount(with(a, stint.WithRoute("/", stint.Only(b))), next).ServeHTTP
				case "`New(b)`":
					next = mount(with(b), next).ServeHTTP
				case "`lim.With(b)`":
					next = mount(derive(t, lim, b), next).ServeHTTP
				case "`lim`":
					next = mount(lim, next).ServeHTTP
				default:
					t.Fatalf("%s isn't known", cell)
				}
			}
			next(httptest.NewRecorder(), get("/"))
			if got := strings.Join(names, ", "); got != cells[2] {
				t.Errorf("limits %s, want %s", got, cells[2])
			}
			if got := []string{"none", "one", "two"}[decisions]; got != cells[3] {
				t.Errorf("%s decisions, want %s", got, cells[3])
			}
			held := 10 - remaining(t, lim)
			next(httptest.NewRecorder(), get("/"))
			if charged := 10-remaining(t, lim) > held; cells[4] != "" && charged != (cells[4] == "a is charged") {
				t.Errorf("a is charged for what b denies: %v, want %s", charged, cells[4])
			}
		})
	}
	if rows != 6 {
		t.Errorf("found %d rows", rows)
	}
}

func costing(name string, cost int64) string {
	if cost == 1 {
		return name
	}
	return fmt.Sprintf("%s×%d", name, cost)
}

// written are the options that a cell of the table stands for.
func written(limits map[string]stint.Limit, cell string) (all []stint.Option) {
	limit := func(word string) stint.Limit {
		name, cost, found := strings.Cut(word, "×")
		if _, is := limits[name]; !is {
			opts := []stint.RateOption{stint.WithName(name)}
			if n, _ := strconv.ParseInt(cost, 10, 64); found {
				opts = append(opts, stint.WithFixedCost(n))
			}
			limits[name] = stint.Rate(1000, time.Hour, opts...)
		}
		return limits[name]
	}
	for part := range strings.SplitSeq(cell, "; ") {
		switch pattern, rest, route := strings.Cut(strings.TrimPrefix(part, "`"), "` "); {
		case route:
			all = append(all, stint.WithRoute(pattern, inRoute(limit, rest)...))
		case part == "func Exempt":
			all = append(all, returning(stint.Exempt()))
		case strings.HasPrefix(part, "func "):
			all = append(all, returning(limit(part[5:])))
		default:
			all = append(all, limit(part))
		}
	}
	return all
}

func returning(l stint.Limit) stint.Option {
	return stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{l}, nil })
}

// inRoute are the options of a route of the table.
func inRoute(limit func(string) stint.Limit, text string) (opts []stint.RouteOption) {
	if inner, only := strings.CutPrefix(text, "Only("); only {
		var limits []stint.Limit
		for word := range strings.SplitSeq(strings.TrimSuffix(inner, ")"), ", ") {
			limits = append(limits, limit(word))
		}
		return []stint.RouteOption{stint.Only(limits...)}
	}
	for word := range strings.SplitSeq(text, ", ") {
		switch cost, is := strings.CutPrefix(word, "×"); {
		case is:
			n, _ := strconv.ParseInt(cost, 10, 64)
			opts = append(opts, stint.WithFixedCost(n))
		case word == "Exempt":
			opts = append(opts, stint.Exempt())
		default:
			opts = append(opts, limit(word))
		}
	}
	return opts
}

// A request that can be read in several ways is held to the limits of all interpretations,
// each once.
func TestUnionOfRoutes(t *testing.T) {
	rate := func(name string) stint.Limit { return stint.Rate(100, time.Minute, stint.WithName(name)) }
	key := func(k string) stint.SharedOption {
		return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return k, nil }))
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
		{"one that is exempt", []stint.Option{rate("base"), stint.WithRoute("/a", stint.Exempt())},
			"GET //a x", "base", `"base";r=99`},
		{"both exempt", []stint.Option{rate("base"), stint.WithRoute("/a", stint.Exempt()), stint.WithRoute("/", stint.Exempt())},
			"GET //a x", "", ""},
		{"a limit of both", []stint.Option{shared, rate("base"), stint.WithRoute("/a", stint.Only(shared, rate("a")))},
			"GET //a x", "shared base a", `"shared";r=99, "base";r=99, "a";r=99`},
		{"a limit of both, by equal keys", []stint.Option{shared, stint.WithRoute("/a", stint.Only(shared), key("default"))},
			"GET //a x", "shared", `"shared";r=99`},
		{"a limit of both, at the higher cost", []stint.Option{shared, cost(7), stint.WithRoute("/a", stint.Only(shared), cost(3))},
			"GET //a x", "shared", `"shared";r=93`},
		{"the other way round", []stint.Option{shared, cost(3), stint.WithRoute("/a", stint.Only(shared), cost(7))},
			"GET //a x", "shared", `"shared";r=93`},
		{"slots of both", []stint.Option{slots, stint.WithRoute("/a", stint.Only(slots))},
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
		return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return k, nil }))
	}
	l := limiter(t, shared, key("base"), stint.WithRoute("/a", stint.Only(shared), key("a")))
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
		return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return k, nil }))
	}
	l := limiter(t, shared, key("base"), stint.WithRoute("/a", stint.Only(shared), key("a")))
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

// A limiter inside another charges nothing again, whatever the interpretations.
func TestUnionNested(t *testing.T) {
	shared := stint.Rate(9, time.Minute, stint.WithName("shared"))
	page := stint.Bandwidth(1<<30, stint.WithName("page"))
	outer := limiter(t, everybody, shared, page, stint.WithRoute("/a", stint.Only(shared, page), everybody),
		stint.WithRoute("/free", stint.Exempt()), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
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
		"the route reports":  {shared, stint.WithRoute("/a", stint.Only(shared), stint.WithDryRun(true))},
		"the route enforces": {stint.WithRoute("/", stint.Only(shared), stint.WithDryRun(true)), stint.WithRoute("/a", stint.Only(shared))},
	} {
		l := limiter(t, append(opts, everybody)...)
		if got := codes(l, "GET", "//a", 2); got != "200 429" {
			t.Errorf("%s: got %s, want 200 429", name, got)
		}
	}
}

// A limit that two interpretations settle differently is never settled below its charge.
func TestUnionRefunds(t *testing.T) {
	calls := stint.Rate(10, time.Hour, stint.WithName("calls"))
	failedOnly := stint.WithSettle(stint.FailedOnly)
	settles := func(to int64) func(http.ResponseWriter, *http.Request) {
		return func(_ http.ResponseWriter, r *http.Request) {
			if err := stint.FromContext(r.Context()).Settle(r.Context(), to); err != nil {
				t.Error(err)
			}
		}
	}
	for _, tt := range []struct {
		name          string
		login, export []stint.RouteOption
		do            func(http.ResponseWriter, *http.Request)
		passes        int
	}{
		{"a refund of one", []stint.RouteOption{stint.WithSettle(stint.FailedOnly)}, []stint.RouteOption{stint.WithFixedCost(10)}, nil, 1},
		{"a refund of one, and the handler's", []stint.RouteOption{stint.WithSettle(stint.FailedOnly)}, nil, settles(0), 10},
		{"an alike refund of both", []stint.RouteOption{stint.WithSettle(stint.FailedOnly)}, []stint.RouteOption{stint.WithSettle(stint.RefundOn(200))}, nil, 10},
		{"the same refund of both", []stint.RouteOption{failedOnly}, []stint.RouteOption{failedOnly}, nil, 50},
		{"what one adds", []stint.RouteOption{stint.WithSettle(stint.FailedOnly)}, []stint.RouteOption{settleTo(5)}, nil, 2},
		{"the handler, of both", nil, nil, settles(0), 50},
		{"the handler, of a limit with a cost", []stint.RouteOption{stint.Rate(1000, time.Hour, stint.WithName("tokens"), cost(2))}, nil, settles(0), 10},
		{"the handler, of a cost that one gives", []stint.RouteOption{stint.WithFixedCost(10)}, nil, settles(0), 50},
		{"the handler, to more", nil, nil, settles(5), 2},
		{"the handler, and a refund of both", []stint.RouteOption{settleTo(0)}, []stint.RouteOption{settleTo(0)}, settles(5), 2},
		{"the handler, of a limit with a cost, and what both add", []stint.RouteOption{stint.Rate(1000, time.Hour, stint.WithName("tokens"), cost(2)), settleTo(5)}, []stint.RouteOption{settleTo(5)}, settles(0), 2},
	} {
		l := limiter(t, theKey,
			stint.WithRoute("POST /login", append(tt.login, calls)...), stint.WithRoute("POST /export/{id}", append(tt.export, calls)...))
		passed := 0
		for range 50 {
			if through(l, requested(t, "POST /export/..%2flogin x"), tt.do).Code == 200 {
				passed++
			}
		}
		if passed != tt.passes {
			t.Errorf("%s: %d of 50 passed, want %d", tt.name, passed, tt.passes)
		}
	}
}

// Interpretations that don't select a limit have no say in its refunds: unusual spellings of ordinary
// requests keep theirs.
func TestUnionKeepsRefunds(t *testing.T) {
	l := limiter(t, theKey,
		stint.WithRoute("POST /login", stint.Rate(3, time.Hour, stint.WithName("login")), stint.WithSettle(stint.FailedOnly)),
		stint.WithRoute("GET /users/{id}", stint.Rate(3, time.Hour, stint.WithName("users")), stint.WithSettle(stint.FailedOnly)),
		stint.WithRoute("GET /users/{id}/{page}", stint.Rate(3, time.Hour, stint.WithName("pages"), cost(2))))
	settle := func(_ http.ResponseWriter, r *http.Request) {
		if err := stint.FromContext(r.Context()).Settle(r.Context(), 0, "pages"); err != nil {
			t.Error(err)
		}
	}
	for _, tt := range []struct {
		request string
		do      func(http.ResponseWriter, *http.Request)
	}{
		{"POST /login/ x", nil}, {"POST //login x", nil}, {"POST /%6cogin x", nil},
		{"GET /users/a%2Fb x", settle},
	} {
		for i := range 10 {
			if w := through(l, requested(t, tt.request), tt.do); w.Code != 200 {
				t.Errorf("%s, for the %d. time: %d", tt.request, i+1, w.Code)
				break
			}
		}
	}
	for i := range 10 {
		w := through(l, requested(t, "POST /login/ x"), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
		if denied := w.Code == 429; denied != (i >= 3) {
			t.Errorf("failed login %d: %d", i+1, w.Code)
		}
	}
}

// Settle without names chooses among the limits of every limiter passed.
func TestUnionSettlesNested(t *testing.T) {
	rate := func(name string, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(100, time.Hour, append(opts, stint.WithName(name))...)
	}
	outer := limiter(t, theKey, rate("outer", cost(20)))
	inner := limiter(t, theKey, rate("inner"), stint.WithRoute("POST /login", stint.Only(rate("login", cost(10)))))
	for _, tt := range []struct {
		request string
		to      int64
		left    string
	}{
		{"POST /login x", 5, "outer:80 login:95"},
		{"POST / x", 5, "outer:95 inner:99"},
		{"POST /%6cogin x", 5, "outer:80 login:95 inner:99"},
		{"POST /%6cogin x", 30, "outer:80 login:70 inner:99"},
	} {
		outer, inner := derive(t, outer, stint.WithStore(memstore.New())), derive(t, inner, stint.WithStore(memstore.New()))
		var got []string
		mount(outer, mount(inner, func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			if err := p.Settle(r.Context(), tt.to); err != nil {
				t.Error(err)
			}
			for _, s := range p.Decision().Limits {
				got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Remaining))
			}
		}).ServeHTTP).ServeHTTP(httptest.NewRecorder(), requested(t, tt.request))
		if got := strings.Join(got, " "); got != tt.left {
			t.Errorf("%s to %d: left %s, want %s", tt.request, tt.to, got, tt.left)
		}
	}
}

// Bytes are paced once by a Bandwidth that several interpretations have.
func TestUnionPacesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := stint.Bandwidth(1<<20, stint.WithName("page"))
		l := limiter(t, everybody, page, stint.WithRoute("/a", stint.Only(page)))
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

// A function that makes keys runs once for each limiter that a request passes, whatever becomes of
// its key: charged by several limits, left out, paid for in bytes, charged further out, or one of
// two for a limit.
func TestKeyFunctionsRunOnce(t *testing.T) {
	runs := map[string]int{}
	key := func(name, k string) stint.SharedOption {
		return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { runs[name]++; return k, nil }))
	}
	rate := func(name string) stint.Limit { return stint.Rate(9, time.Minute, stint.WithName(name)) }
	shared, made := rate("shared"), rate("made")
	for _, tt := range []struct {
		name, request string
		opts          []stint.Option
		inner         []stint.Option
		want          map[string]int
	}{
		{"two limits", "GET / x", []stint.Option{key("a", "k"), rate("one"), rate("two")}, nil, map[string]int{"a": 1}},
		{"an empty key", "GET / x", []stint.Option{key("a", ""), stint.WithEmptyKey(stint.SkipEmptyKey), rate("one"), rate("two")}, nil, map[string]int{"a": 1}},
		{"bytes", "GET / x", []stint.Option{key("a", "k"), stint.Bandwidth(1 << 20), rate("two"), rate("three")}, nil, map[string]int{"a": 1}},
		{"a limiter further out", "GET / x", []stint.Option{key("a", "k"), rate("one")}, []stint.Option{rate("two")}, map[string]int{"a": 2}},
		{"two routes, one key", "GET //a x", []stint.Option{shared, rate("one"), key("a", "k"), stint.WithRoute("/a", stint.Only(shared, rate("two")), key("b", "k"))}, nil, map[string]int{"a": 1, "b": 1}},
		{"two routes, two keys", "GET //a x", []stint.Option{shared, rate("one"), key("a", "k"), stint.WithRoute("/a", stint.Only(shared, rate("two")), key("b", "l"))}, nil, map[string]int{"a": 1, "b": 1}},
		{"two routes, and nothing else", "GET //a x", []stint.Option{shared, key("a", "k"), stint.WithRoute("/a", stint.Only(shared), key("b", "l"))}, nil, map[string]int{"a": 1, "b": 1}},
		{"two routes, and a function's limits", "GET //a x", []stint.Option{
			shared, key("a", "k"), stint.WithRoute("/a", stint.Only(shared), key("b", "k"), stint.WithFailurePolicy(stint.FailClosed)), // the route is the stricter
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{made}, nil }),
		}, nil, map[string]int{"a": 1, "b": 1}},
		{"two routes, no key", "GET //a x", []stint.Option{
			stint.WithEmptyKey(stint.SkipEmptyKey), shared, rate("one"), key("a", ""), stint.WithRoute("/a", stint.Only(shared, rate("two")), key("b", "")),
		}, nil, map[string]int{"a": 1, "b": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(t, tt.opts...)
			var next func(http.ResponseWriter, *http.Request)
			if tt.inner != nil {
				inner, err := l.With(tt.inner...)
				if err != nil {
					t.Fatal(err)
				}
				next = func(w http.ResponseWriter, r *http.Request) {
					inner.Serve(w, r, func(http.ResponseWriter, *http.Request) {})
				}
			}
			clear(runs)
			through(l, requested(t, tt.request), next)
			if !maps.Equal(runs, tt.want) {
				t.Errorf("%v, want %v", runs, tt.want)
			}
		})
	}
}

// No plan is not no limit: a function that returns nothing lets nothing pass, unless another
// limit of the request holds, or it says that the request is exempt.
func TestNoLimits(t *testing.T) {
	returns := func(limits ...stint.Limit) stint.Option {
		return stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return limits, nil })
	}
	plan := stint.Rate(9, time.Hour, stint.WithName("plan"))
	rate := stint.Rate(9, time.Hour, stint.WithName("rate"))
	for _, tt := range []struct {
		name string
		opts []stint.Option
		want int
	}{
		{"nothing", []stint.Option{returns()}, 500},
		{"a plan", []stint.Option{returns(plan)}, 200},
		{"exempt", []stint.Option{returns(stint.Exempt())}, 200},
		{"exempt beside a limit", []stint.Option{returns(stint.Exempt(), plan)}, 500},
		{"nothing, beside a limit", []stint.Option{returns(), rate}, 200},
		{"nothing, beside a dry run", []stint.Option{returns(), stint.Rate(9, time.Hour, stint.WithName("dry"), stint.WithDryRun(true))}, 500},
		{"nothing, beside a limit that is left out", []stint.Option{returns(), stint.WithEmptyKey(stint.SkipEmptyKey),
			stint.Rate(9, time.Hour, stint.WithName("left"), stint.WithKey(stint.Header("X-None")))}, 500},
		{"nothing, beside a Bandwidth", []stint.Option{returns(), stint.Bandwidth(1 << 20)}, 200},
		{"nothing, in a dry run", []stint.Option{returns(), stint.WithDryRun(true)}, 200},
		{"a plan that can't be used, in a dry run", []stint.Option{returns(stint.Rate(0, time.Hour)), stint.WithDryRun(true)}, 200},
		{"one that is enforced, in a dry run", []stint.Option{returns(stint.Rate(0, time.Hour, stint.WithDryRun(false))), stint.WithDryRun(true)}, 500},
		{"nothing, beside another's plan", []stint.Option{returns(), returns(plan)}, 200},
		{"nothing, beside another's exemption", []stint.Option{returns(), returns(stint.Exempt())}, 500},
		{"on a route that is exempt", []stint.Option{returns(), stint.WithRoute("/", stint.Exempt())}, 200},
	} {
		seen := &events{}
		l := limiter(t, append(tt.opts, everybody, seen.Option())...)
		if got := through(l, get("/"), nil).Code; got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		if tt.want == 500 && seen.Last().Kind != stint.EventLimitsFailed {
			t.Errorf("%s: told %v", tt.name, seen.Kinds())
		}
	}
	if err := limiter(t, everybody, returns()).Admit(httptest.NewRecorder(), get("/"), nil); !errors.Is(err, stint.ErrNoLimits) {
		t.Errorf("error %v", err)
	}

	// Inside a limiter that has charged the request already, its limits hold.
	outer := limiter(t, everybody, rate)
	inner := derive(t, outer, returns())
	w := through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(through(inner, r, nil).Code) })
	if w.Code != 200 {
		t.Errorf("inside the limiter that it extends: %d", w.Code)
	}

	if err := (stint.LimitUser{}).Check(stint.Exempt()); err != nil {
		t.Error(err)
	}
	if err := (stint.LimitUser{}).Check(stint.Exempt(), plan); err == nil {
		t.Error("Exempt beside a limit is no mistake")
	}
}

// If what limits are read from fails, the limiter's failure policy decides, as for its store.
func TestSourceErrors(t *testing.T) {
	source := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return nil, &stint.SourceError{Err: errDown}
	})
	function := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return nil, fmt.Errorf("tenant: %w", &stint.SourceError{Err: errDown})
	})
	instead := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(1, time.Hour, stint.WithName("default"))}, &stint.SourceError{Err: errDown}
	})
	unfit := stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(1, time.Hour, stint.WithName("default")), {}}, nil
	})
	closed := stint.WithFailurePolicy(stint.FailClosed)
	for _, tt := range []struct {
		name  string
		opts  []stint.Option
		want  [2]int
		retry bool
	}{
		{"open", []stint.Option{source}, [2]int{200, 200}, false},
		{"open, of a function", []stint.Option{function}, [2]int{200, 200}, false},
		{"open, beside another limit", []stint.Option{source, stint.Rate(1, time.Hour)}, [2]int{200, 429}, true},
		{"open, beside a function without limits", []stint.Option{source, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })}, [2]int{500, 500}, false},
		{"closed", []stint.Option{source, closed}, [2]int{503, 503}, true},
		{"closed, of a function", []stint.Option{function, closed}, [2]int{503, 503}, true},
		{"closed, in a dry run", []stint.Option{source, closed, stint.WithDryRun(true)}, [2]int{200, 200}, false},
		{"others instead", []stint.Option{instead, closed}, [2]int{200, 429}, true},
		{"open, and some can't be used", []stint.Option{unfit}, [2]int{200, 429}, true},
		{"closed, and some can't be used", []stint.Option{unfit, closed}, [2]int{503, 503}, true},
	} {
		seen := &events{}
		l := limiter(t, append(tt.opts, everybody, seen.Option())...)
		for i, want := range tt.want {
			if w := through(l, get("/"), nil); w.Code != want || i == 1 && (w.Header().Get("Retry-After") != "") != tt.retry {
				t.Errorf("%s: request %d: %d %v, want %d", tt.name, i, w.Code, w.Header(), want)
			}
			told := map[bool]string{true: "SourceFailed", false: "LimitsFailed"}[want != 503 && want != 500]
			if !strings.Contains(seen.Kinds(), told) {
				t.Errorf("%s: told %v", tt.name, seen.Kinds())
			}
		}
	}
}

// What a limiter says of limits is about the limiter as it is now.
func TestLimitUser(t *testing.T) {
	var by stint.LimitUser
	source := stint.WithLimitSource(stint.Global(), func(_ context.Context, _ string, asks stint.LimitUser) ([]stint.Limit, error) {
		by = asks
		return []stint.Limit{stint.Exempt()}, nil
	})
	plan := stint.Rate(5, time.Hour, stint.WithName("plan"))
	l := limiter(t, everybody, source, stint.Rate(100, time.Hour, stint.WithName("own")))
	check := func(want string, limits ...stint.Limit) {
		t.Helper()
		through(l, get("/"), nil)
		err := by.Check(limits...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	check("", plan)
	id := by.ID()
	check("", stint.Exempt())
	check("Limit{}", stint.Limit{})
	check(`limit "own": another limit has that name`, plan, stint.Rate(5, time.Hour, stint.WithName("own")))
	if err := l.Update(stint.Complete(), everybody, source, stint.WithFixedCost(6)); err != nil {
		t.Fatal(err)
	}
	check("a request costs 6, but the limit never admits more than 5", plan)
	check("", stint.Rate(6, time.Hour, stint.WithName("own")))
	derive(t, l, stint.Rate(9, time.Hour, stint.WithName("inner")))
	check(`limit "inner": another limit has that name`, stint.Rate(9, time.Hour, stint.WithName("inner")))
	if by.ID() != id {
		t.Error("the same limiter is another one after an Update")
	}
	if l = limiter(t, everybody, source); through(l, get("/"), nil).Code != 200 || by.ID() == id {
		t.Error("two limiters are one")
	}
	if none := (stint.LimitUser{}); none.ID() != nil || none.Check(plan) != nil {
		t.Error("the zero LimitUser is a limiter")
	}
}

// A limit that a function returns and that can't hold any request is an error, and names what
// to write.
func TestLimitsThatNoRequestHas(t *testing.T) {
	for _, tt := range []struct {
		limit stint.Limit
		want  string
	}{
		{stint.Rate(9, time.Hour, stint.WithKey(stint.GivenKey())), `limit "rate": WithKey(GivenKey()): requests have no such key, only calls of Take have one: use another key`},
		{stint.Concurrency(9, stint.WithShare(1, 50)), `limit "concurrency": WithShare: no request may wait for a slot, and shares only order waiting requests: use stint.WithQueue or stint.WithMaxWait`},
	} {
		seen := &events{}
		l := limiter(t, everybody, seen.Option(), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{tt.limit}, nil }))
		if got := through(l, get("/"), nil).Code; got != 500 || !strings.Contains(seen.Last().Err.Error(), tt.want) {
			t.Errorf("%d %v, want %s", got, seen.Last().Err, tt.want)
		}
	}
	_, err := stint.New(stint.WithKey(stint.GivenKey()), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil }))
	if want := "WithLimitFunc: the default key is GivenKey(), which requests don't have: use another key in stint.WithKey, such as stint.RemoteIP()"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
