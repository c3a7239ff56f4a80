package plans_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/plans"
)

var byTenant = stint.Header("X-Tenant")

// client sends requests to a limiter that asks a cache.
type client struct {
	h      http.Handler
	failed []error // of the events that say so
}

func newClient(cache *plans.Cache, opts ...stint.Option) *client {
	c := new(client)
	l := stint.Must(stint.New(append(opts, stint.WithKey(byTenant), cache.Limits(byTenant), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventLimitsFailed {
			c.failed = append(c.failed, e.Err)
		}
	}))...))
	c.h = stinthttp.Middleware(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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
				cache := plans.Must(plans.New(s.load))
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

// What holds for a tenant whose plan can't be loaded.
func TestFailurePolicies(t *testing.T) {
	closed, other := stint.WithFailurePolicy(stint.FailClosed), requests(7, "other")
	free := plans.WithDefault(requests(3, "free"))
	for _, tt := range []struct {
		name   string
		err    error
		cache  []plans.Option
		opts   []stint.Option
		status int
		policy string
		retry  bool
	}{
		{name: "open", err: errDown, status: 200},
		{name: "open, beside another limit", err: errDown, opts: []stint.Option{other}, status: 200, policy: `"other";q=7;w=1`},
		{name: "closed", err: errDown, opts: []stint.Option{closed, other}, status: 503, retry: true},
		{name: "a default", err: errDown, cache: []plans.Option{free}, opts: []stint.Option{closed}, status: 200, policy: `"free";q=3;w=1`},
		{name: "no limits as a default", err: errDown, cache: []plans.Option{plans.WithDefault(stint.Exempt())}, opts: []stint.Option{closed, other}, status: 200, policy: `"other";q=7;w=1`},
		{name: "a default that can't be used", err: errDown, cache: []plans.Option{plans.WithDefault(requests(3, "other"))}, opts: []stint.Option{closed, other}, status: 503, retry: true},
		{name: "no plan", err: plans.ErrNoPlan, cache: []plans.Option{free}, status: 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{err: tt.err}
				c := newClient(plans.Must(plans.New(s.load, tt.cache...)), tt.opts...)
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
		c := newClient(plans.Must(plans.New(s.load)), requests(9, "other"))
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

// A key that can't work is reported when the limiter is made or mounted, not by its requests.
func TestWrongKeys(t *testing.T) {
	cache := plans.Must(plans.New((&source{}).load))
	for key, want := range map[stint.Key]string{
		{}:                            "Key{}): write a key",
		stint.Header("a b"):           `Header("a b")): write the name of a header field`,
		stint.Join(stint.Cookie(" ")): `Cookie(" ")`,
		stint.GivenKey():              "WithLimitSource(GivenKey()): requests don't have it",
	} {
		_, err := stint.New(stint.WithKey(stint.Global()), cache.Limits(key))
		var wrong *stint.OptionError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an *OptionError with %q", key, err, want)
		}
	}
	key := stint.AdapterKey("stintgin", func(*http.Request) (string, error) { return "", nil })
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
		"its cost":     {stint.WithName("plan"), "a request costs 20, and no more than 10 ever pass"},
		"nobody's key": {stint.WithKey(stint.GivenKey()), "WithKey(GivenKey()): requests don't have it"},
	} {
		s := &source{sold: []stint.Limit{stint.Rate(10, time.Second, stint.WithName("plan"), tt.opt)}}
		c := newClient(plans.Must(plans.New(s.load)), stint.WithFixedCost(20), stint.WithFailurePolicy(stint.FailClosed))
		for range 2 {
			if status, _ := c.send("acme"); status != 503 || !strings.Contains(c.failed[len(c.failed)-1].Error(), tt.want) || s.count() != 1 {
				t.Errorf("%s: %d, %v after %d loads", name, status, c.failed, s.count())
			}
		}
	}
}
