package redisstore_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// A handler settles what a request costs after its client has left.
func TestSettleAfterTheClientHasLeft(t *testing.T) {
	s := redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t)))
	defer s.Close()
	l := stint.Must(stint.New(stint.Quota(10, stint.Monthly, stint.WithName("tokens"), stint.WithFixedCost(5)), stint.WithKey(stint.Global()), stint.WithStore(s)))
	ctx, leave := context.WithCancel(t.Context())
	h := stinthttp.Middleware(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leave()
		p := stint.FromContext(r.Context())
		if err := p.Settle(r.Context(), 2); err != nil {
			t.Error(err)
		}
		if left := p.Decision().Remaining; left != 8 {
			t.Errorf("%d left, want 8", left)
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
}
