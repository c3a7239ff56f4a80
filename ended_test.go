package stint_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// counted is a store that counts the calls.
type counted struct {
	store.Store
	takes int
}

func (s *counted) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	s.takes++
	return s.Store.Take(ctx, charges, results)
}

// endedContexts are the ways in which a context may have ended before the
// limiter sees it.
func endedContexts(t *testing.T) map[string]context.Context {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(cancel)
	return map[string]context.Context{"canceled": canceled, "past its deadline": late}
}

// If the context has ended before the decision, nothing is charged, on any store.
func TestContextThatHasEnded(t *testing.T) {
	name, second := stint.WithName("x"), time.Second
	limits := map[string]stint.Limit{
		"rate":          stint.Rate(5, time.Hour, name),
		"rate, waiting": stint.Rate(5, time.Hour, name, stint.WithMaxWait(second)),
		"queue":         stint.Rate(5, second, name, stint.WithAlgorithm(stint.LeakyBucket)),
		"slots":         stint.Concurrency(5, name),
		"line of slots": stint.Concurrency(5, name, stint.WithQueue(3)),
		"adaptive":      stint.AdaptiveConcurrency(5, 5, name),
		"dry run":       stint.Rate(5, time.Hour, name, stint.WithDryRun()),
	}
	overStores(t, func(t *testing.T, s store.Store) {
		for which, ctx := range endedContexts(t) {
			for kind, limit := range limits {
				spy, seen := &counted{Store: s}, &events{}
				l := limiter(t, theKey, limit, stint.WithStore(spy), seen.option())
				ways := map[string]func() error{
					"Take": func() error { _, err := l.Take(ctx, "k", 1); return err },
					"Wait": func() error { _, err := l.Wait(ctx, "k", 1); return err },
					"Admit": func() error {
						_, err := l.Admit(httptest.NewRecorder(), get("/").WithContext(ctx))
						return err
					},
				}
				for way, try := range ways {
					seen.all = nil
					err := try()
					if !errors.Is(err, ctx.Err()) || errors.As(err, new(*stint.DeniedError)) || seen.kinds() != "Canceled" || spy.takes != 0 {
						t.Errorf("%s, %s, %s: error %v, events %q, the store asked %d times", which, kind, way, err, seen.kinds(), spy.takes)
					}
					spy.takes = 0
				}
			}
		}
	})
}

// Its handler doesn't run, through any adapter, even if only bytes are limited.
func TestHandlerOfContextThatHasEnded(t *testing.T) {
	for _, a := range routings {
		for which, ctx := range endedContexts(t) {
			for kind, limit := range map[string]stint.Limit{
				"rate": stint.Rate(5, time.Hour), "slots": stint.Concurrency(5, stint.WithQueue(1)), "bytes": stint.Bandwidth(4096),
			} {
				seen := &events{}
				l := compiled(t, limit, byAll, seen.option())
				h := a.build(one(l, func(http.ResponseWriter, *http.Request) { t.Errorf("%s, %s, %s: the handler ran", a.name, which, kind) }))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, get("/").WithContext(ctx))
				if w.Code != http.StatusServiceUnavailable || seen.kinds() != "Canceled" {
					t.Errorf("%s, %s, %s: %d, events %q", a.name, which, kind, w.Code, seen.kinds())
				}
			}
		}
	}
}
