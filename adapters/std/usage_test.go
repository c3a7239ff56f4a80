package stinthttp_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/tenants"
)

func TestUsage(t *testing.T) {
	plans, err := tenants.New(func(_ context.Context, tenant string) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(int64(len(tenant)), time.Minute, stint.WithName("plan"))}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byTenant := stint.Header("X-Tenant")
	for name, tt := range map[string]struct {
		tenant string
		opts   []stint.Option
		status int
		body   string
	}{
		"all limits": {"acme", []stint.Option{stint.Rate(2, time.Hour), stint.WithRoute("/search", stint.Quota(5, stint.Every(time.Hour))), plans.Limits(byTenant)}, 200,
			`{"limits":[{"limit":"rate","capacity":2,"used":0,"remaining":2,"reset_after":0},` +
				`{"limit":"quota","route":"/search","capacity":5,"used":0,"remaining":5,"reset_after":0},` +
				`{"limit":"plan","capacity":4,"used":0,"remaining":4,"reset_after":0}]}` + "\n"},
		"no key": {"", []stint.Option{stint.Rate(2, time.Hour)}, 200, `{"limits":[]}` + "\n"},
		"a store that is down": {"acme", []stint.Option{stint.Rate(2, time.Hour, stint.WithName("rate")), stint.WithStore(storefake.Down())}, 503,
			"Service Unavailable\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := stint.New(append(tt.opts, stint.WithKey(byTenant))...)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/usage", nil)
				r.Header.Set("X-Tenant", tt.tenant)
				stinthttp.Usage(l).ServeHTTP(w, r)
				if w.Code != tt.status || w.Body.String() != tt.body || w.Header().Get("Cache-Control") != "no-store" {
					t.Errorf("got %d %v %s, want %d %s", w.Code, w.Header(), w.Body, tt.status, tt.body)
				}
			}
		})
	}
}
