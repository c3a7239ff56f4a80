package tenants_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/tenants"
)

func Example() {
	fromDatabase := func(ctx context.Context, tenant string) ([]stint.Limit, error) {
		fmt.Println("loading the plan of", tenant)
		return []stint.Limit{stint.Rate(100, time.Minute, stint.WithName("plan"))}, nil
	}
	cache, err := tenants.New(fromDatabase, tenants.WithTTL(5*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	limit := stinthttp.New(
		stint.WithKey(stint.Header("X-Tenant")),
		cache.Limits(stint.Header("X-Tenant")))
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("hello", r.Header.Get("X-Tenant"))
	}))
	for range 2 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Tenant", "t7")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	// Output:
	// loading the plan of t7
	// hello t7
	// hello t7
}
