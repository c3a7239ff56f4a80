package plans_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/plans"
)

// edited is a source whose plan is edited while it is in use.
type edited struct{ plan []stint.Limit }

func (e *edited) load(context.Context, string) ([]stint.Limit, error) { return e.plan, nil }

func requests(n int64, name string) stint.Limit {
	return stint.Rate(n, time.Second, stint.WithName(name))
}

// A plan replaces a good one only if all of it can be used together.
func TestAPlanIsCheckedAsAWhole(t *testing.T) {
	for _, tt := range []struct {
		name string
		next []stint.Limit
		bad  bool
	}{
		{"another good one", []stint.Limit{requests(2, "a"), requests(3, "b")}, false},
		{"two limits of one name", []stint.Limit{requests(2, "a"), requests(3, "a")}, true},
		{"one limit twice", func() []stint.Limit { l := requests(2, "a"); return []stint.Limit{l, l} }(), true},
		{"wrong numbers in its last", []stint.Limit{requests(2, "a"), requests(0, "b")}, true},
		{"one without a name", []stint.Limit{requests(2, "a"), stint.Rate(3, time.Second)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good := []stint.Limit{requests(1, "a")}
				source := &edited{good}
				p := plans.Must(plans.New(source.load, plans.WithTTL(time.Minute)))
				if _, err := p.Get(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				source.plan = tt.next
				want := tt.next
				if tt.bad {
					want = good
				}
				for range 3 {
					time.Sleep(time.Hour)
					got, err := p.Get(t.Context(), "k")
					if err != nil || len(got) != len(want) || got[0] != want[0] {
						t.Errorf("got %v, %v; want %v", got, err, want)
					}
				}
				p.Forget("k")
				if _, err := p.Get(t.Context(), "k"); (err != nil) != tt.bad {
					t.Errorf("with no plan before: %v", err)
				}
			})
		})
	}
}

// A plan that the limiter can't take doesn't replace one that it has taken, however the
// limiter got its limits.
func TestAPlanIsCheckedAgainstItsLimiter(t *testing.T) {
	for _, taken := range []string{"slots", "login", "added", "inner"} {
		t.Run(taken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &edited{[]stint.Limit{requests(100, "calls")}}
				tenants := plans.Must(plans.New(source.load, plans.WithTTL(time.Minute)))
				opts := []stint.Option{
					stint.WithKey(stint.Header("X-Tenant")),
					tenants.Limits(stint.Header("X-Tenant")),
					stint.Concurrency(8, stint.WithName("slots")),
					stint.WithRoute("POST /login", requests(5, "login")),
				}
				lim := stint.Must(stint.New(opts...))
				stint.Must(lim.With(requests(7, "inner")))
				if err := lim.Update(append(opts, requests(9, "added"))...); err != nil {
					t.Fatal(err)
				}
				h := stinthttp.Middleware(lim)(http.NotFoundHandler())
				status := func(tenant string) int {
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-Tenant", tenant)
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Code
				}
				const served = http.StatusNotFound
				if got := status("acme"); got != served {
					t.Fatalf("status %d", got)
				}
				source.plan = []stint.Limit{requests(100, "calls"), requests(100, taken)}
				for range 3 {
					time.Sleep(time.Hour)
					if got := status("acme"); got != served {
						t.Errorf("status %d beside a plan that can't be used, want %d by the old one", got, served)
					}
				}
				if got := status("another"); got != http.StatusInternalServerError {
					t.Errorf("status %d for a tenant whose only plan can't be used", got)
				}
				if got := status(""); got != http.StatusForbidden {
					t.Errorf("status %d without a tenant", got)
				}
			})
		})
	}
}

func TestLimitsWithoutAKey(t *testing.T) {
	tenants := plans.Must(plans.New((&edited{}).load))
	if _, err := stint.New(stint.WithKey(stint.Global()), tenants.Limits(stint.Key{})); err == nil {
		t.Error("a nil function is accepted")
	}
}
