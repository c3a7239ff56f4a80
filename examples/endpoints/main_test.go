package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func do(server http.Handler, method, path, tenant string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if tenant != "" {
		r.Header.Set("X-Tenant", tenant)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

func TestPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := api(planOf)
		for i := range 3 {
			if w := do(server, "GET", "/items", "small"); w.Code != http.StatusOK {
				t.Fatalf("small, request %d: %d %s", i+1, w.Code, w.Body)
			}
		}
		// The plan counts on every endpoint, the report's slot beside it.
		w := do(server, "GET", "/reports", "small")
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), `"plan"`) {
			t.Fatalf("small, request 4: %d %s", w.Code, w.Body)
		}
		for i := range 50 {
			if w := do(server, "GET", "/items", "large"); w.Code != http.StatusOK {
				t.Fatalf("large, request %d: %d %s", i+1, w.Code, w.Body)
			}
		}
	})
}

func TestWhoIsNoTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := api(planOf)
		for _, tenant := range []string{"", "nobody"} {
			if w := do(server, "GET", "/items", tenant); w.Code != http.StatusForbidden {
				t.Errorf("tenant %q: %d %s", tenant, w.Code, w.Body)
			}
		}
		for i, want := range []int{200, 200, 200, 429} {
			if w := do(server, "POST", "/signup", ""); w.Code != want {
				t.Errorf("signup %d: %d, want %d", i+1, w.Code, want)
			}
		}
		for range 100 {
			if w := do(server, "GET", "/healthz", ""); w.Code != http.StatusOK {
				t.Fatalf("health check: %d", w.Code)
			}
		}
	})
}

// TestDatabaseDown: the last known plan holds while the plans can't be loaded.
func TestDatabaseDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queries atomic.Int64
		server := api(func(ctx context.Context, tenant string) ([]stint.Limit, error) {
			if queries.Add(1) > 1 {
				return nil, errors.New("database is down")
			}
			return planOf(ctx, tenant)
		})
		for i := range 6 {
			if w := do(server, "GET", "/items", "large"); w.Code != http.StatusOK {
				t.Fatalf("after %d minutes: %d %s", i, w.Code, w.Body)
			}
			time.Sleep(time.Minute)
		}
		if n := queries.Load(); n < 2 || n > 7 {
			t.Errorf("%d queries in six minutes, want about one each", n)
		}
	})
}
