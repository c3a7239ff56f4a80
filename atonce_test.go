package stint_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

// quick is a store that says whether it answers at once, and notes whether its
// Settle had a deadline.
type quick struct {
	store.Store
	atOnce  bool
	bounded bool
}

func (q *quick) AnswersAtOnce() bool { return q.atOnce }

func (q *quick) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	_, q.bounded = ctx.Deadline()
	return q.Store.Settle(ctx, charges, results)
}

// For a store that answers at once, no deadline is set when a permit ends, and the
// response isn't flushed before it, whatever wraps the store.
func TestSettleWithAStoreThatAnswersAtOnce(t *testing.T) {
	tests := []struct {
		name   string
		atOnce bool
		wrap   func(q *quick) store.Store
		want   bool
	}{
		{"memory, wrapped", true, func(q *quick) store.Store { return q }, true},
		{"another", false, func(q *quick) store.Store { return q }, false},
		{"failover of two", true, func(q *quick) store.Store { return failover.New(q, memstore.New()) }, true},
		{"failover of one", true, func(q *quick) store.Store { return failover.New(q, nil) }, true},
		{"failover to another", true, func(q *quick) store.Store { return failover.New(q, newSpy()) }, false},
		{"failover from another", false, func(q *quick) store.Store { return failover.New(q, memstore.New()) }, false},
	}
	for _, tt := range tests {
		q := &quick{Store: memstore.New(), atOnce: tt.atOnce}
		l := limiter(t, theKey, stint.Rate(10, time.Hour, stint.WithName("rate")), settleTo(4), stint.WithStore(tt.wrap(q)))
		w := httptest.NewRecorder()
		mount(l, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "6")
			_, _ = io.WriteString(w, "served")
		}).ServeHTTP(w, get("/"))
		if w.Flushed == tt.want || q.bounded == tt.want {
			t.Errorf("%s: flushed %v, with a deadline %v", tt.name, w.Flushed, q.bounded)
		}
	}
}
