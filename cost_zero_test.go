package stint_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// A request of cost 0 is never refused and never waits: neither if a limit is used up,
// nor behind those who wait.
func TestCostsNothing(t *testing.T) {
	const second = time.Second
	wait := stint.WithMaxWait(time.Minute)
	limits := map[string]stint.Limit{
		"token bucket":   stint.Rate(1, second, wait),
		"at once":        stint.Rate(1, second),
		"debt":           stint.Rate(1, second, stint.WithBurst(0), stint.WithDebt(), wait),
		"leaky bucket":   stint.Rate(1, second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(3)),
		"interval":       stint.Rate(1, second, stint.WithAlgorithm(stint.IntervalBucket), wait),
		"fixed window":   stint.Rate(1, second, stint.WithAlgorithm(stint.FixedWindow), wait),
		"sliding window": stint.Rate(1, second, stint.WithAlgorithm(stint.SlidingWindow), wait),
		"sliding log":    stint.Rate(1, second, stint.WithAlgorithm(stint.SlidingLog), wait),
		"warm-up":        stint.Rate(1, second, stint.WithWarmUp(4*second), wait),
		"quota":          stint.Quota(1, stint.Daily),
		"slots":          stint.Concurrency(1, wait, stint.WithQueue(3)),
		"slots at once":  stint.Concurrency(1),
		"adaptive":       stint.AdaptiveConcurrency(1, 1, wait, stint.WithQueue(3)),
	}
	byHeader := stint.WithCost(func(r *http.Request) int64 {
		if r.Header.Get("Free") != "" {
			return 0
		}
		return 1
	})
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, theKey, byHeader, limit)
				ctx, cancel := context.WithCancel(t.Context())
				enter := func(ctx context.Context) {
					go through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
					synctest.Wait()
				}
				free := func(when string) {
					t.Helper()
					r, start := get("/"), time.Now()
					r.Header.Set("Free", "1")
					if w := through(l, r, nil); w.Code != 200 || time.Since(start) > 0 {
						t.Errorf("%s: %d after %v, want 200 at once", when, w.Code, time.Since(start))
					}
				}
				enter(ctx)
				free("all used up")
				enter(ctx)
				enter(ctx)
				free("behind others")
				cancel()
				synctest.Wait()
				free("behind what others have left")
				noLines(t, l)
			})
		})
	}
}
