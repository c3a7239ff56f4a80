package tenants_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/tenants"
)

var byTenant = stint.Header("X-Tenant")

// client sends requests to a limiter that asks a cache.
type client struct {
	h      http.Handler
	lim    *stint.Limiter
	failed []error // of the events that say so
	// restored counts the events that say that the source answers again.
	restored int
}

func newClient(cache *tenants.Cache, opts ...stint.Option) *client {
	c := new(client)
	c.lim = stint.Must(stint.New(append(opts, stint.WithKey(byTenant), cache.Limits(byTenant), stint.WithObserver(func(e stint.Event) {
		switch {
		case e.Kind == stint.EventSourceFailed && e.Err == nil:
			c.restored++
		case e.Kind == stint.EventLimitsFailed || e.Kind == stint.EventSourceFailed:
			c.failed = append(c.failed, e.Err)
		}
	}))...))
	c.h = stinthttp.Middleware(c.lim)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return c
}

// send sends a request of a tenant. It returns the status, and the limits that a response says.
func (c *client) send(tenant string) (status int, policy string) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Tenant", tenant)
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	return w.Code, w.Header().Get("RateLimit-Policy")
}

// A limiter that can't take a plan goes on with the last one that it has taken, however it got
// the limits that are in the way, and the other limiters of the cache take the plan.
func TestEachLimiterChecksPlans(t *testing.T) {
	for _, taken := range []string{"slots", "login", "added", "inner"} {
		t.Run(taken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{sold: []stint.Limit{requests(100, "calls")}}
				cache := must(tenants.New(s.load))
				opts := []stint.Option{
					stint.WithKey(byTenant), cache.Limits(byTenant), stint.WithFailurePolicy(stint.FailClosed),
					stint.Concurrency(8, stint.WithName("slots")),
					stint.WithRoute("POST /login", requests(5, "login")),
				}
				lim := stint.Must(stint.New(opts...))
				stint.Must(lim.With(requests(7, "inner")))
				picky, free := &client{h: stinthttp.Middleware(lim)(http.NotFoundHandler())}, newClient(cache)
				if err := lim.Update(append(opts, requests(9, "added"))...); err != nil {
					t.Fatal(err)
				}
				if got, _ := picky.send("acme"); got != http.StatusNotFound {
					t.Fatalf("status %d", got)
				}
				s.sell(requests(50, "calls"), requests(100, taken))
				for i := range 3 {
					if time.Sleep(time.Hour); i == 2 { // the good one isn't forgotten
						if err := lim.Update(append(opts, requests(9, "added"))...); err != nil {
							t.Fatal(err)
						}
					}
					if got, policy := free.send("acme"); got != 200 || policy != `"calls";q=50;w=1, "`+taken+`";q=100;w=1` {
						t.Errorf("status %d, %s beside another limiter", got, policy)
					}
					if got, policy := picky.send("acme"); got != http.StatusNotFound || !strings.Contains(policy, `"calls";q=100;w=1`) {
						t.Errorf("status %d, %s beside a plan that can't be used, want the old one", got, policy)
					}
				}
				if got, _ := picky.send("another"); got != http.StatusServiceUnavailable {
					t.Errorf("status %d for a tenant whose only plan can't be used", got)
				}
				if got, _ := free.send("another"); got != http.StatusOK {
					t.Errorf("status %d where that plan can be used", got)
				}
				if got, _ := free.send(""); got != http.StatusForbidden {
					t.Errorf("status %d without a tenant", got)
				}
				if n := s.count(); n != 5 {
					t.Errorf("%d loads for two limiters, want one for both at a time", n)
				}
			})
		})
	}
}

// A plan is checked again after an Update, whenever it was loaded.
func TestPlansAreCheckedAfterUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{sold: []stint.Limit{requests(100, "calls"), requests(30, "login")}}
		cache := must(tenants.New(s.load, tenants.WithTTL(time.Hour), tenants.WithDefault(requests(20, "free"))))
		c := newClient(cache, requests(9, "other"))
		failed := 0
		send := func(tenant, want string, failures int) {
			t.Helper()
			for range 3 {
				if status, policy := c.send(tenant); status != 200 || policy != want {
					t.Errorf("status %d, %s; want %s", status, policy, want)
				}
			}
			if failed += failures; len(c.failed) != failed {
				t.Errorf("told %d times, want %d", len(c.failed), failed)
			}
			time.Sleep(time.Second)
		}
		update := func(names ...string) {
			t.Helper()
			var opts []stint.Option
			for _, name := range names {
				opts = append(opts, requests(9, name))
			}
			if err := c.lim.Update(opts...); err != nil {
				t.Fatal(err)
			}
		}
		const other, login, plan, free = `"other";q=9;w=1`, `"login";q=9;w=1`, `, "calls";q=100;w=1, "login";q=30;w=1`, `, "free";q=20;w=1`
		send("acme", other+plan, 0)
		update("other", "login")
		send("acme", other+", "+login+free, 3) // as for a plan that is loaded later
		send("globex", other+", "+login+free, 3)
		update("other")
		send("acme", other+plan, 0)
		send("globex", other+plan, 0)

		s.sell(requests(50, "calls"), requests(50, "new"))
		time.Sleep(time.Hour)
		update("other", "new")
		c.send("acme") // begins a load
		synctest.Wait()
		failed++
		send("acme", other+`, "new";q=9;w=1`+plan, 0) // the plan before is still valid
		update("new", "calls")
		send("acme", `"new";q=9;w=1, "calls";q=9;w=1`+free, 3)
		if n := s.count(); n != 3 {
			t.Errorf("%d loads, want 3", n)
		}
	})
}

// What holds for a tenant whose plan can't be loaded.
func TestFailurePolicies(t *testing.T) {
	closed, other := stint.WithFailurePolicy(stint.FailClosed), requests(7, "other")
	free := tenants.WithDefault(requests(3, "free"))
	for _, tt := range []struct {
		name   string
		err    error
		cache  []tenants.Option
		opts   []stint.Option
		status int
		policy string
		retry  bool
	}{
		{name: "open", err: errDown, status: 200},
		{name: "open, beside another limit", err: errDown, opts: []stint.Option{other}, status: 200, policy: `"other";q=7;w=1`},
		{name: "closed", err: errDown, opts: []stint.Option{closed, other}, status: 503, retry: true},
		{name: "a default", err: errDown, cache: []tenants.Option{free}, opts: []stint.Option{closed}, status: 200, policy: `"free";q=3;w=1`},
		{name: "no limits as a default", err: errDown, cache: []tenants.Option{tenants.WithDefault(stint.Exempt())}, opts: []stint.Option{closed, other}, status: 200, policy: `"other";q=7;w=1`},
		{name: "a default that can't be used", err: errDown, cache: []tenants.Option{tenants.WithDefault(requests(3, "other"))}, opts: []stint.Option{closed, other}, status: 503, retry: true},
		{name: "no plan", err: tenants.ErrNoPlan, cache: []tenants.Option{free}, status: 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{err: tt.err}
				c := newClient(must(tenants.New(s.load, tt.cache...)), tt.opts...)
				for i := range 2 {
					if status, policy := c.send("acme"); status != tt.status || policy != tt.policy {
						t.Errorf("status %d, %s", status, policy)
					}
					if len(c.failed) <= i || !errors.Is(c.failed[0], tt.err) {
						t.Errorf("told %v, want %v", c.failed, tt.err)
					}
				}
				if n := s.count(); n != 1 {
					t.Errorf("%d loads, want 1", n)
				}
			})
		})
	}
}

// An operator comes to know, once for each load, that plans can't be replaced.
func TestOldPlansAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{sold: []stint.Limit{requests(1, "plan")}}
		c := newClient(must(tenants.New(s.load)), requests(9, "other"))
		send := func(told int) {
			t.Helper()
			time.Sleep(time.Hour)
			for range 5 {
				if status, policy := c.send("acme"); status == 503 || !strings.Contains(policy, `"plan";q=1`) {
					t.Errorf("status %d, %s", status, policy)
				}
			}
			if len(c.failed) != told {
				t.Errorf("told %d times %v, want %d", len(c.failed), c.failed, told)
			}
		}
		send(0)
		s.fail(errDown)
		send(1)
		send(2)
		s.sell(requests(2, "other"))
		send(3)
		s.sell(requests(1, "plan"))
		send(3)
	})
}

// The log says once when a source begins to fail, and what holds, and once when it answers again.
func TestLogOfOutages(t *testing.T) {
	const fails, answers = "stint: limits can't be loaded, and ", "stint: limits can be loaded again"
	const ofKey = "stint: limits can't be loaded for one key, and requests pass without them"
	closed, other := stint.WithFailurePolicy(stint.FailClosed), requests(9000, "other")
	free := tenants.WithDefault(requests(9000, "free"))
	type step struct {
		does   func(*source, *client)
		passes time.Duration // before the next step, with a request each second
		tenant string
		want   []string
	}
	down := func(s *source, _ *client) { s.fail(errDown) }
	up := func(s *source, _ *client) { s.fail(nil) }
	nothing := func(*source, *client) {}
	for name, tt := range map[string]struct {
		cache []tenants.Option
		opts  []stint.Option
		steps []step
	}{
		"earlier limits": {[]tenants.Option{free, tenants.WithTTL(time.Second)}, nil, []step{
			{nothing, 2 * time.Second, "acme", nil},
			{down, 100 * time.Second, "acme", []string{fails + "requests get their earlier limits", fails + "requests get their earlier limits"}},
			{up, 5 * time.Minute, "acme", []string{answers}},
			{down, 30 * time.Second, "acme", []string{fails + "requests get their earlier limits"}},
			{up, 5 * time.Minute, "acme", []string{answers}},
		}},
		"a default": {[]tenants.Option{free}, nil, []step{
			{down, 5 * time.Second, "acme", []string{fails + "requests get the default limits"}},
			{up, 5 * time.Minute, "acme", []string{answers}},
		}},
		"none": {nil, nil, []step{
			{down, 5 * time.Second, "acme", []string{fails + "requests pass without them"}},
			{up, 5 * time.Minute, "acme", []string{answers}},
		}},
		"closed": {nil, []stint.Option{closed}, []step{
			{down, 5 * time.Second, "acme", []string{fails + "requests are denied"}},
			{up, 5 * time.Minute, "acme", []string{answers}},
		}},
		"another tenant": {nil, nil, []step{
			{down, 500 * time.Millisecond, "acme", []string{fails + "requests pass without them"}},
			{up, 500 * time.Millisecond, "globex", []string{answers}},
			{nothing, 5 * time.Minute, "acme", nil},
		}},
		"another tenant, before the failure is over": {nil, nil, []step{
			{down, 500 * time.Millisecond, "acme", []string{fails + "requests pass without them"}},
			{func(s *source, c *client) { up(s, c); c.send("globex"); c.send("acme") }, time.Hour, "acme", []string{answers}},
		}},
		"one tenant whose plan is broken": {nil, nil, []step{
			{func(s *source, _ *client) { s.set(func(s *source) { s.broken = "acme" }) }, 5 * time.Second, "acme", []string{fails + "requests pass without them"}},
			{nothing, 10 * time.Second, "globex", []string{answers}},
			{nothing, 100 * time.Second, "acme", []string{ofKey, ofKey}},
			{nothing, 100 * time.Second, "initech", []string{ofKey}}, // the last one that was suppressed
			{down, 5 * time.Second, "umbrella", []string{fails + "requests pass without them"}},
			{up, 5 * time.Second, "umbrella", []string{answers}},
		}},
		"an Update that takes a name": {[]tenants.Option{free}, nil, []step{
			{nothing, time.Second, "acme", nil},
			{func(_ *source, c *client) { _ = c.lim.Update(other, requests(9000, "plan")) }, 5 * time.Second, "acme", []string{
				"stint: limits that were loaded are invalid, and requests get the default limits", "stint: the limits have changed"}},
			{func(_ *source, c *client) { _ = c.lim.Update(other) }, 5 * time.Second, "acme", []string{answers}},
		}},
		"an invalid plan": {nil, nil, []step{
			{func(s *source, _ *client) { s.sell(requests(0, "plan")) }, 5 * time.Second, "acme", []string{
				"stint: limits that were loaded are invalid, and requests pass without them"}},
			{func(s *source, _ *client) { s.sell(requests(9000, "plan")) }, 5 * time.Minute, "acme", []string{answers}},
		}},
		"a look": {nil, nil, []step{
			{down, 5 * time.Second, "acme", []string{fails + "requests pass without them"}},
			{func(s *source, c *client) {
				up(s, c)
				time.Sleep(time.Second)
				_, _ = c.lim.Peek(context.Background(), "acme")
			}, 0, "", []string{answers}},
		}},
		"a tenant without a plan": {nil, nil, []step{
			{func(s *source, _ *client) { s.fail(tenants.ErrNoPlan) }, 5 * time.Second, "acme", nil},
			{down, 5 * time.Second, "acme", nil},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{sold: []stint.Limit{requests(9000, "plan")}}
				out := new(bytes.Buffer)
				log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.MessageKey {
						return a
					}
					return slog.Attr{}
				}}))
				c := newClient(must(tenants.New(s.load, tt.cache...)), append(tt.opts, other, stint.WithLogger(log))...)
				for i, step := range tt.steps {
					out.Reset()
					step.does(s, c)
					for end := time.Now().Add(step.passes); time.Now().Before(end); time.Sleep(time.Second) {
						c.send(step.tenant)
					}
					synctest.Wait()
					got := strings.Split(strings.TrimSpace(strings.NewReplacer("msg=", "", `"`, "").Replace(out.String())), "\n")
					if got[0] == "" {
						got = nil
					}
					if slices.Sort(got); !slices.Equal(got, step.want) {
						t.Errorf("step %d: logged %q, want %q", i+1, got, step.want)
					}
				}
			})
		})
	}
}

// A load that fails behind a request is reported with the next one: no request has to wait for a load
// until the source is known to be down.
func TestLoadsBehindRequestsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{sold: []stint.Limit{requests(1, "plan")}}
		c := newClient(must(tenants.New(s.load, tenants.WithTTL(time.Minute))))
		c.send("acme")
		s.fail(errDown)
		for i, told := range []int{0, 1, 2} {
			time.Sleep(map[bool]time.Duration{true: time.Minute, false: 10 * time.Second}[i == 0])
			c.send("acme")
			synctest.Wait()
			if len(c.failed) != told {
				t.Errorf("request %d: told %d times, want %d", i, len(c.failed), told)
			}
		}
	})
}

// A key that can't work is reported when the limiter is made or mounted, not by its requests.
func TestWrongKeys(t *testing.T) {
	cache := must(tenants.New((&source{}).load))
	for key, want := range map[stint.Key]string{
		{}:                            "Key{}): use a key",
		stint.Header("a b"):           `Header("a b")): this isn't a valid name of a header field`,
		stint.Join(stint.Cookie(" ")): `Cookie(" ")`,
		stint.GivenKey():              "WithLimitSource(GivenKey()): requests have no such key, only calls of Take have one",
	} {
		_, err := stint.New(stint.WithKey(stint.Global()), cache.Limits(key))
		var wrong *stint.OptionError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an *OptionError with %q", key, err, want)
		}
	}
	key := stint.KeyFunc(func(*http.Request) (string, error) { return "", nil }).ForAdapter("stintgin")
	l, err := stint.New(stint.WithKey(stint.Global()), cache.Limits(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Mount("stinthttp"); err == nil || !strings.Contains(err.Error(), "WithLimitSource") {
		t.Errorf("%v: mounted: %v", key, err)
	}
}

// A plan that the limiter's own settings make impossible can't be loaded.
func TestPlanThatTheLimiterMakesWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		opt  stint.RateOption
		want string
	}{
		"its cost":     {stint.WithName("plan"), "a request costs 20, but the limit never admits more than 10"},
		"nobody's key": {stint.WithKey(stint.GivenKey()), "WithKey(GivenKey()): requests have no such key, only calls of Take have one"},
	} {
		s := &source{sold: []stint.Limit{stint.Rate(10, time.Second, stint.WithName("plan"), tt.opt)}}
		c := newClient(must(tenants.New(s.load)), stint.WithFixedCost(20), stint.WithFailurePolicy(stint.FailClosed))
		for range 2 {
			if status, _ := c.send("acme"); status != 503 || !strings.Contains(c.failed[len(c.failed)-1].Error(), tt.want) || s.count() != 1 {
				t.Errorf("%s: %d, %v after %d loads", name, status, c.failed, s.count())
			}
		}
	}
}

// Jobs, and whoever looks a key up or resets it, have the limits of the key's plan.
func TestPlansOfGivenKeys(t *testing.T) {
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &source{sold: []stint.Limit{requests(3, "plan"), stint.Quota(9, stint.Daily, stint.WithName("day"))}}
			opts := []stint.Option{stint.WithKey(byTenant), must(tenants.New(s.load, tenants.WithTTL(time.Hour))).Limits(byTenant)}
			if own {
				opts = append(opts, stint.Concurrency(5, stint.WithName("slots")), stint.WithRoute("POST /", requests(8, "route")))
			}
			l := stint.Must(stint.New(opts...))
			left := func(want map[string]int64) {
				t.Helper()
				r := httptest.NewRequest("GET", "/", nil)
				r.Header.Set("X-Tenant", "acme")
				for name, ask := range map[string]func() (stint.Decision, error){
					"Peek":        func() (stint.Decision, error) { return l.Peek(t.Context(), "acme") },
					"PeekAll":     func() (stint.Decision, error) { return l.PeekAll(t.Context(), "acme") },
					"PeekRequest": func() (stint.Decision, error) { return l.PeekRequest(r) },
				} {
					d, err := ask()
					got := map[string]int64{}
					for _, s := range d.Limits {
						got[s.Name] = s.Remaining
					}
					for limit, n := range want {
						if got[limit] != n {
							t.Errorf("%s: %d of %s are left, %v; want %d", name, got[limit], limit, err, n)
						}
					}
					if _, known := got["route"]; known != (own && name == "PeekAll") {
						t.Errorf("%s: limits %v", name, got)
					}
				}
			}
			left(map[string]int64{"plan": 3, "day": 9})
			p, err := l.Take(t.Context(), "acme", 2)
			if err != nil {
				t.Fatal(err)
			}
			p.Done()
			left(map[string]int64{"plan": 1, "day": 7})
			if _, err := l.Take(t.Context(), "acme", 2); !errors.Is(err, stint.ErrDenied) {
				t.Errorf("above the plan: %v", err)
			}
			if err := l.Allow(t.Context(), "acme", 1); own && !errors.Is(err, stint.ErrHolds) || !own && err != nil {
				t.Errorf("Allow: %v", err)
			}
			if _, err := l.Reset(t.Context(), "acme", "day"); err != nil {
				t.Error(err)
			}
			left(map[string]int64{"day": 9})
			if _, err := l.Reset(t.Context(), "acme"); err != nil {
				t.Error(err)
			}
			left(map[string]int64{"plan": 3})
			if _, err := l.Reset(t.Context(), "acme", "gone"); err == nil || !strings.Contains(err.Error(), `no limit "gone"`) {
				t.Errorf("Reset of another limit: %v", err)
			}
			rules, err := l.DescribeKey(t.Context(), "acme")
			if err != nil || len(rules) != 2 || rules[0].Limit != "plan" || rules[1].Spec.Units != 9 {
				t.Errorf("rules %v, %v", rules, err)
			}
			s.sell(stint.Concurrency(2, stint.WithName("plan-slots")))
			if err := l.Allow(t.Context(), "globex", 1); !errors.Is(err, stint.ErrHolds) {
				t.Errorf("Allow of slots: %v", err)
			}
			if n := s.count(); n != 2 {
				t.Errorf("%d loads", n)
			}
		})
	}
}

// What given keys get whose plan isn't there.
func TestGivenKeysWithoutPlans(t *testing.T) {
	closed, other, asked := stint.WithFailurePolicy(stint.FailClosed), requests(7, "other"), new(stint.SourceError)
	failed := func(err error) bool { return errors.As(err, &asked) && errors.Is(err, errDown) }
	fine := func(err error) bool { return err == nil }
	none := func(err error) bool { return errors.Is(err, tenants.ErrNoPlan) }
	for _, tt := range []struct {
		name        string
		sold        []stint.Limit
		err         error
		opts        []stint.Option
		take, looks func(error) bool
	}{
		{name: "down, open", err: errDown, take: fine, looks: failed},
		{name: "down, open, beside another limit", err: errDown, opts: []stint.Option{other}, take: fine, looks: failed},
		{name: "down, closed", err: errDown, opts: []stint.Option{closed, other}, take: failed, looks: failed},
		{name: "no plan", err: tenants.ErrNoPlan, take: none, looks: none},
		{name: "no plan, beside another limit", err: tenants.ErrNoPlan, opts: []stint.Option{other}, take: none, looks: fine},
		{name: "exempt", sold: []stint.Limit{stint.Exempt()}, take: fine, looks: fine},
		{name: "nothing", take: func(err error) bool { return errors.Is(err, stint.ErrNoLimits) }, looks: func(err error) bool { return errors.Is(err, stint.ErrNoLimits) }},
	} {
		s := &source{sold: tt.sold, err: tt.err}
		l := stint.Must(stint.New(append(tt.opts, stint.WithKey(byTenant), must(tenants.New(s.load)).Limits(byTenant))...))
		p, err := l.Take(t.Context(), "acme", 1)
		if !tt.take(err) || err == nil && p == nil {
			t.Errorf("%s: Take: %v, %v", tt.name, p, err)
		}
		if err := l.Allow(t.Context(), "acme", 1); !tt.take(err) {
			t.Errorf("%s: Allow: %v", tt.name, err)
		}
		if d, err := l.Peek(t.Context(), "acme"); !tt.looks(err) || err == nil && !d.Allowed {
			t.Errorf("%s: Peek: %v, %v", tt.name, d, err)
		}
		if _, err := l.Reset(t.Context(), "acme"); !tt.looks(err) {
			t.Errorf("%s: Reset: %v", tt.name, err)
		}
	}
}

// An error says once that it is stint's, and names the package that the application uses.
func TestErrorTexts(t *testing.T) {
	for _, tt := range []struct {
		tenant string
		source *source
		want   string
	}{
		{"acme", &source{err: errDown}, "stint: limits could not be loaded: tenants: the plan could not be loaded: source is down"},
		{"acme", &source{slow: time.Hour}, "stint: limits could not be loaded: tenants: the load takes longer than its timeout: context deadline exceeded"},
		{"acme", &source{panics: true}, "stint: limits could not be loaded: tenants: the load panicked: in the database"},
		{"acme", &source{err: tenants.ErrNoPlan}, "stint: WithLimitSource: tenants: no plan"},
		{"", &source{}, "stint: WithLimitSource: tenants: no plan: an empty key"},
		{strings.Repeat("k", 5000), &source{}, "stint: WithLimitSource: the key is longer than 4096 bytes"},
		{"acme", &source{sold: []stint.Limit{{}, requests(0, "a")}}, "stint: limits could not be loaded: tenants: the plan is invalid: " +
			"Limit{}: use a limit, such as stint.Rate(10, time.Second)\nlimit \"a\": 0 units: use 1 to"},
		{"acme", &source{sold: []stint.Limit{requests(1, "other")}}, "stint: limits could not be loaded: tenants: the plan is invalid: limit \"other\": another limit has that name"},
		{"acme", &source{}, "stint: a limit function returned no limits: return stint.Exempt()"},
	} {
		synctest.Test(t, func(t *testing.T) {
			cache := must(tenants.New(tt.source.load))
			other := stint.Rate(9, time.Second, stint.WithName("other"), stint.WithDryRun(true), stint.WithKey(stint.Global()))
			lim := stint.Must(stint.New(other, cache.Limits(byTenant), stint.WithKey(byTenant), stint.WithFailurePolicy(stint.FailClosed)))
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Tenant", tt.tenant)
			err := lim.Admit(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Count(err.Error(), "stint: ") != 1 {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// A request without a tenant is denied for its empty key, and the limiter warns if most requests are.
func TestRequestsWithoutATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := &source{sold: []stint.Limit{requests(5, "plan")}}, new(bytes.Buffer)
		lim := stint.Must(stint.New(must(tenants.New(s.load)).Limits(byTenant), stint.WithKey(byTenant),
			stint.WithLogger(slog.New(slog.NewTextHandler(log, nil)))))
		for range 100 {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil)
			err := lim.Admit(w, r, func(http.ResponseWriter, *http.Request) { t.Error("it is admitted") })
			if !errors.Is(err, tenants.ErrNoPlan) || !errors.Is(err, stint.ErrEmptyKey) {
				t.Fatal(err)
			}
			if lim.Deny(w, r, err); w.Code != 403 || !strings.Contains(w.Body.String(), `"detail":"the request has no key"`) {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		synctest.Wait()
		if text := log.String(); s.count() != 0 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "warning=no-key") {
			t.Errorf("%d loads, and the log is %s", s.count(), text)
		}
	})
}

// A key that is too long for a limit is too long for a source: it isn't loaded. A key keeps no other
// bytes of its request.
func TestLongKeys(t *testing.T) {
	s := &source{sold: []stint.Limit{requests(5, "plan")}}
	cache := must(tenants.New(s.load))
	all := stint.Rate(100, time.Second, stint.WithName("all"))
	lim := stint.Must(stint.New(all, stint.WithKey(stint.Global()), cache.Limits(byTenant)))
	c := newClient(cache)
	for n, want := range map[int]int{4 << 10: 200, 4<<10 + 1: 403, 900_000: 403} {
		key, before := strings.Repeat("k", n), s.count()
		_, getErr := cache.Get(t.Context(), key)
		_, takeErr := lim.Take(t.Context(), key, 1)
		status, _ := c.send(key)
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Tenant", key)
		w := httptest.NewRecorder()
		lim.Serve(w, r, func(http.ResponseWriter, *http.Request) {})
		tooLong := want == 403
		if status != want || w.Code != want || errors.Is(getErr, stint.ErrKeyTooLong) != tooLong || errors.Is(takeErr, stint.ErrKeyTooLong) != tooLong || (s.count() == before) != tooLong {
			t.Errorf("%d bytes: status %d and %d, Get: %v, Take: %v, %d loads", n, status, w.Code, getErr, takeErr, s.count()-before)
		}
	}
	byCookie := stint.Cookie("tenant")
	lim = stint.Must(stint.New(stint.WithKey(byCookie), cache.Limits(byCookie)))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 20 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", "other="+strings.Repeat("x", 900_000)+"; tenant=k"+strconv.Itoa(i))
		w := httptest.NewRecorder()
		if lim.Serve(w, r, func(http.ResponseWriter, *http.Request) {}); w.Code != 200 {
			t.Fatalf("status %d", w.Code)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 9_000_000 {
		t.Errorf("20 tenants keep %d bytes", grown)
	}
	runtime.KeepAlive(cache)
}

// Each tenant's month begins on its own billing day, in its own zone. Another day is another window.
func TestBillingDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // from 1 January 2000
		tokyo := time.FixedZone("Tokyo", 9*3600)
		since := map[string]time.Time{
			"acme": time.Date(1999, 5, 15, 9, 0, 0, 0, time.UTC),
			"zoo":  time.Date(1999, 8, 31, 0, 0, 0, 0, tokyo),
		}
		cache, err := tenants.New(func(_ context.Context, tenant string) ([]stint.Limit, error) {
			from := since[tenant]
			return []stint.Limit{stint.Quota(1, stint.Monthly.In(from.Location()).From(from), stint.WithName("month"))}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(cache)
		for _, step := range []struct {
			at        string
			acme, zoo int
		}{
			{"2000-01-01 00:00:00", 200, 200}, {"2000-01-15 08:59:59", 429, 429}, {"2000-01-15 09:00:00", 200, 429},
			{"2000-01-30 14:59:59", 429, 429}, {"2000-01-30 15:00:00", 429, 200}, // in Tokyo the 31st
			{"2000-02-28 14:59:59", 200, 429}, {"2000-02-28 15:00:00", 429, 200}, // the month's last day
		} {
			at, err := time.Parse(time.DateTime, step.at)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(at))
			for tenant, want := range map[string]int{"acme": step.acme, "zoo": step.zoo} {
				if got, _ := c.send(tenant); got != want {
					t.Errorf("%s at %s: %d, want %d", tenant, step.at, got, want)
				}
			}
		}
		since["acme"] = since["acme"].Add(time.Hour)
		cache.Forget("acme")
		if got, _ := c.send("acme"); got != 200 {
			t.Errorf("with another billing day: %d, want 200", got)
		}
	})
}
