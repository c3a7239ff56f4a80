package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

func parse(t testing.TB, text string, opts ...policy.Option) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text), append(opts, registered...)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// recorder notes what a store is asked.
type recorder struct {
	store.Store
	asked []string
}

func (s *recorder) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	for _, c := range charges {
		s.asked = append(s.asked, fmt.Sprint(c.Limit.Spec(), c.Key, c.Cost, c.MaxWait))
	}
	return s.Store.Take(ctx, charges, results)
}

// The same requests go through a limiter made from a file and one made in Go: all
// answers must be equal, field for field, and so must the calls of their stores.
func TestSameAsGo(t *testing.T) {
	for _, doc := range documents {
		t.Run(doc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var took time.Duration
				var stores [2]recorder
				var sites [2]http.Handler
				for i, opts := range [2][]stint.Option{parse(t, doc.text).Options(), doc.same} {
					stores[i].Store = memstore.New()
					if doc.name != unnamed.name {
						opts = append(opts, stint.WithStore(&stores[i]))
					}
					lim, err := stint.New(opts...)
					if err != nil {
						t.Fatal(err)
					}
					lim.Observe(func(e stint.Event) {
						if e.Kind == stint.EventNearLimit {
							stores[i].asked = append(stores[i].asked, fmt.Sprint(e))
						}
					})
					sites[i] = stinthttp.Middleware(lim)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						time.Sleep(took)
						_, _ = io.Copy(io.Discard, r.Body)
						switch { // for costs that are settled by it
						case r.URL.Path == "/export":
							w.WriteHeader(http.StatusServiceUnavailable)
						case r.Header.Get("Cookie") == "session=s2":
							w.WriteHeader(http.StatusUnauthorized)
						}
						fmt.Fprintf(w, "%+v", stint.FromContext(r.Context()).Decision())
					}))
				}
				random := rand.New(rand.NewPCG(1, 2))
				passed := false
				for i := range 300 {
					r := anyRequest(random)
					took = time.Duration(10+i/100*8) * time.Millisecond // ever longer, for limits that learn
					var answers [2]chan string
					for j := range sites {
						answers[j] = make(chan string)
						go func() { // at one instant, however long each waits
							w, r := httptest.NewRecorder(), r.Clone(context.Background())
							if r.Method == "POST" { // for bandwidths
								r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 9000))), 9000
							}
							sites[j].ServeHTTP(w, r)
							answers[j] <- fmt.Sprint(w.Code, w.Header(), w.Body, stores[j].asked)
						}()
					}
					file, code := <-answers[0], <-answers[1]
					if file != code {
						t.Fatalf("request %d, %s %s %v:\nfile %s\ncode %s", i, r.Method, r.URL, r.Header, file, code)
					}
					passed = passed || strings.HasPrefix(file, "200")
					stores[0].asked, stores[1].asked = nil, nil
					if random.IntN(3) == 0 {
						time.Sleep(time.Duration(random.Int64N(int64(20 * time.Second))))
					}
				}
				if !passed {
					t.Error("nothing passed")
				}
			})
		})
	}
}

// anyRequest is one of few clients, so that limits are met.
func anyRequest(random *rand.Rand) *http.Request {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	target := pick("/", "POST /login", "POST /reset", "/healthz", "/export", "POST /", "OPTIONS /")
	method, path, found := strings.Cut(target, " ")
	if !found {
		method, path = "GET", target
	}
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = pick("192.0.2.1:1", "192.0.2.1:2", "198.51.100.7:1", "203.0.113.9:1", "[2001:db8::1]:1", "[2001:db9:1:2::1]:1", "[2001:db9:1:3::1]:1")
	set := func(name string, values ...string) {
		if v := pick(values...); v != "" {
			r.Header.Set(name, v)
		}
	}
	set("X-Tenant", "t1", "t1", "t2", "")
	set("X-Plan", "free", "pro", "pro", "none", "broken", "")
	set("X-Internal", "", "", "", "yes")
	set("X-Api-Key", "k1", "k1", "k2")
	set("X-Forwarded-For", "198.51.100.1", "198.51.100.2, 10.1.2.3")
	set("Forwarded", "for=198.51.100.1", "")
	set("X-Real-Ip", "198.51.100.5", "")
	set("Cookie", "session=s1", "session=s2")
	set("Origin", "", "https://example.com")
	set("Access-Control-Request-Method", "", "GET")
	return r
}

// brokenStore decides nothing.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []store.Charge, []store.Result) error {
	return errors.New("down")
}
func (brokenStore) Settle(context.Context, []store.Charge, []store.Result) error { return nil }

func TestFailurePolicy(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int
	}{
		{limits("[{name: a, rate: 3/1m}]"), http.StatusOK},
		{limits("[{name: a, rate: 3/1m}]") + "failure: open\n", http.StatusOK},
		{limits("[{name: a, rate: 3/1m}]") + "failure: closed\n", http.StatusServiceUnavailable},
		{limits("[{name: a, rate: 3/1m, failure: closed}]"), http.StatusServiceUnavailable},
		{limits("[{name: a, rate: 3/1m, failure: open}]") + "failure: closed\n", http.StatusOK},
		{limits("[]") + "routes: {/: {limits: [{name: a, rate: 3/1m}], failure: closed}}\n", http.StatusServiceUnavailable},
	} {
		p := parse(t, tt.text, policy.WithOptions(stint.WithStore(brokenStore{})))
		lim, err := stint.New(p.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		stinthttp.Middleware(lim)(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if passed := w.Code == http.StatusNotFound; passed != (tt.want == http.StatusOK) || !passed && w.Code != tt.want {
			t.Errorf("%s: status %d, want %d", tt.text, w.Code, tt.want)
		}
	}
}

// If the Go options contain a store that others may use, every limit needs a name; a
// plan's limits always do. Each missing name is reported with its position, also beside
// other mistakes.
func TestNamesInAFile(t *testing.T) {
	text := "version: 1\nkey: global\nlimits: [{rate: 3/1m}, {name: a, quota: 4/daily}]\nroutes: {/r: {limits: [{quota: 5/daily}]}}\n"
	const unnamed = "a limit without a name gets the name %q, which other limits in the store may have too: write a name"
	shared := policy.WithOptions(stint.WithStore(memstore.New()))
	rate, daily := "p.yaml:3:10: "+fmt.Sprintf(unnamed, "rate"), "p.yaml:4:24: "+fmt.Sprintf(unnamed, "daily")
	plan := "p.yaml:5:25: a plan's limit needs a name, because its counts are kept under the name: write one"
	for _, tt := range []struct {
		name, text string
		opts       []policy.Option
		want       string
	}{
		{"a shared store", text, []policy.Option{shared}, rate + "\n" + daily},
		{"and a mistake", text + "cost: -1\n", []policy.Option{shared}, rate + "\n" + daily + "\np.yaml:5:7: cost"},
		{"a store of its own", text, nil, ""},
		{"a plan", text + "plans: {free: {limits: [{rate: 1/1m}]}}\n", []policy.Option{policy.WithPlanFunc(planOf)}, plan},
		{"a plan in a shared store", text + "plans: {free: {limits: [{rate: 1/1m}]}}\n", []policy.Option{policy.WithPlanFunc(planOf), shared}, rate + "\n" + daily + "\n" + plan},
	} {
		_, err := policy.Parse("p.yaml", []byte(tt.text), tt.opts...)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.HasPrefix(got, tt.want) || strings.Count(got, "\n") != strings.Count(tt.want, "\n") {
			t.Errorf("%s:\n%v\nwant\n%s", tt.name, err, tt.want)
		}
	}
	// A store that New is given beside the file's options is New's to object to.
	p := parse(t, text)
	if _, err := stint.New(append(p.Options(), stint.WithStore(memstore.New()))...); err == nil || !strings.Contains(err.Error(), "give it a name with stint.WithName") {
		t.Errorf("beside the file: %v", err)
	}
}

// A function that is referred to twice is called once per request.
func TestAskedOnce(t *testing.T) {
	keys, settles := 0, 0
	p, err := policy.Parse("p.yaml", []byte(`
version: 1
keys: {who: session}
key: who
settle: count
limits: [{name: a, rate: 1/s}, {name: b, rate: 2/s, key: who}, {name: c, rate: 3/s, key: session, settle: count}, {name: d, rate: 4/s, key: session}]
`),
		policy.WithKey("session", stint.KeyFunc(func(*http.Request) (string, error) { keys++; return "s", nil })),
		policy.WithSettleFunc("count", func(*http.Request, int, int64) int64 { settles++; return 1 }))
	if err != nil {
		t.Fatal(err)
	}
	site := stinthttp.New(p.Options()...)(http.NotFoundHandler())
	keys, settles = 0, 0
	site.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if keys != 1 || settles != 1 {
		t.Errorf("the key was asked for %d times and the cost %d times, want once each", keys, settles)
	}
}

// A key given in Go applies, and mistakes in Go options are reported without a position
// in the file.
func TestOptionsOfGo(t *testing.T) {
	text := []byte("version: 1\nlimits: [{rate: 3/1m}]\nplans: {free: {limits: []}}\n")
	key := policy.WithOptions(stint.WithKey(stint.Global()))
	p, err := policy.Parse("p.yaml", text, key, policy.WithPlanFunc(planOf))
	if err != nil {
		t.Fatal(err)
	}
	if lim, err := stint.New(p.Options()...); err != nil {
		t.Error(err)
	} else if d, err := lim.Peek(t.Context(), "k"); err != nil || d.Limits[0].Capacity != 3 {
		t.Errorf("limits %+v, %v", d.Limits, err)
	}

	short := []byte("short")
	f := func(*http.Request) (string, error) { return "", nil }
	for _, tt := range []struct {
		want string
		opts []policy.Option
	}{
		{"policy: option 1 is nil: leave it out", []policy.Option{nil}},
		{"policy: WithOptions: WithStore(nil): pass a store, or leave it out for one in memory", []policy.Option{policy.WithOptions(stint.WithStore(nil))}},
		{"policy: WithOptions: WithMaxWait(0s): use 1ms or more, or leave it out for the default", []policy.Option{key, policy.WithOptions(stint.WithMaxWait(0))}},
		{`policy: WithKey("global"): the name has a meaning in a file already: use another`, []policy.Option{policy.WithKey("global", stint.KeyFunc(f))}},
		{`policy: WithKey("join"): the name has a meaning in a file already: use another`, []policy.Option{policy.WithKey("join", stint.KeyFunc(f))}},
		{`policy: WithKey("t") is given twice: leave one out`, []policy.Option{policy.WithKey("t", stint.KeyFunc(f)), policy.WithKey("t", stint.KeyFunc(f))}},
		{`policy: WithKey("t"): WithKey(KeyFunc(nil)): pass a function, or use another key, such as stint.RemoteIP()`, []policy.Option{policy.WithKey("t", stint.KeyFunc(nil))}},
		{`policy: WithKey("t"): WithKey(Header("a b")): this isn't a valid name of a header field: use letters, digits and hyphens, such as "X-API-Key"`, []policy.Option{policy.WithKey("t", stint.Header("a b"))}},
		{`policy: WithKey(""): use a name that a file can call it by, such as "tenant"`, []policy.Option{policy.WithKey("", stint.KeyFunc(f))}},
		{`policy: WithCostFunc("10"): use a name that a file can call it by, such as "tenant"`, []policy.Option{policy.WithCostFunc("10", rows)}},
		{`policy: WithSettleFunc("failed-only"): the name has a meaning in a file already: use another`, []policy.Option{policy.WithSettleFunc("failed-only", tokens)}},
		{`policy: WithPredicate("preflight"): the name has a meaning in a file already: use another`, []policy.Option{policy.WithPredicate("preflight", internal)}},
		{`policy: WithDenyHandler("h", nil): pass a function`, []policy.Option{policy.WithDenyHandler("h", nil)}},
		{`policy: WithPriorityFunc("c", nil): pass a function`, []policy.Option{policy.WithPriorityFunc("c", nil)}},
		{`policy: WithPriorityFunc("c") is given twice: leave one out`, []policy.Option{policy.WithPriorityFunc("c", class), policy.WithPriorityFunc("c", class)}},
		{"policy: WithPlanFunc(nil): pass a function, or leave it out", []policy.Option{policy.WithPlanFunc(nil)}},
		{"policy: WithPlanFunc is given twice: leave one out", []policy.Option{policy.WithPlanFunc(f), policy.WithPlanFunc(f)}},
		{"policy: WithSecret: a secret of 5 bytes can be guessed: use at least 16 random bytes, the same on every instance\n" +
			"policy: WithCostFunc(\"c\", nil): pass a function", []policy.Option{policy.WithSecret(short), policy.WithCostFunc("c", nil)}},
	} {
		if _, err := policy.Parse("p.yaml", text, tt.opts...); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
		if _, err := policy.Load("no-such-file", tt.opts...); err == nil || err.Error() != tt.want {
			t.Errorf("Load: got  %v\nwant %s", err, tt.want)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	if _, err := policy.Load(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"version":1,"key":"global","limits":[{"rate":"1/s"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Load(path)
	if err != nil || len(p.Options()) != 3 { // stint.Complete among them
		t.Errorf("%d options, %v", len(p.Options()), err)
	}
	clear(p.Options()) // a copy
	if slices.Contains(p.Options(), nil) {
		t.Error("Options gave its own slice away")
	}
	if err := os.WriteFile(path, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var first *policy.Error
	if _, err := policy.Load(path); !errors.As(err, &first) || first.File != path || first.Line != 1 || first.Column != 1 {
		t.Errorf("a mistake: %v", err)
	}
}

func TestRetryJitter(t *testing.T) {
	p, err := policy.Parse("limits.yaml", []byte("version: 1\nkey: global\nretry-jitter: 1h\nlimits: [{name: rate, rate: 1/1h}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	lim, err := stint.New(p.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	later := false
	for range 50 {
		w := httptest.NewRecorder()
		lim.Serve(w, httptest.NewRequest("GET", "/", nil), http.NotFound)
		later = later || w.Code == 429 && w.Header().Get("Retry-After") > "3600"
	}
	if !later {
		t.Error("no Retry-After is later than the limit says")
	}
}
