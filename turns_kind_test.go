package stint_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Calls whose limits say the same, for the same key and at the same cost, stand in one
// line, wherever the limits come from: when the first leaves, all behind it move up.
func TestKindsOfLines(t *testing.T) {
	rate := func() stint.Limit {
		return stint.Rate(1, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Minute))
	}
	quota := func() stint.Limit {
		return stint.Quota(100, stint.Daily.In(time.FixedZone("z", 3600)), stint.WithName("q"))
	}
	fresh := func(limits ...func() stint.Limit) []stint.Option {
		return []stint.Option{theKey, stint.WithLimitFunc(func(*http.Request) (all []stint.Limit, err error) {
			for _, l := range limits {
				all = append(all, l())
			}
			return all, nil
		})}
	}
	turned := func() []stint.Option {
		n := 0
		return []stint.Option{theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			if n++; n%2 == 0 {
				return []stint.Limit{rate(), quota()}, nil
			}
			return []stint.Limit{quota(), rate()}, nil
		})}
	}
	tests := []struct {
		name   string
		opts   []stint.Option
		update []stint.Option // before each of them
		queued int64
	}{
		{"one limit", []stint.Option{theKey, rate()}, nil, 3},
		{"a limit function's, fresh for each", fresh(rate), nil, 3},
		{"two of a limit function", fresh(rate, quota), nil, 3},
		{"two, in either order", turned(), nil, 3},
		{"updates that say the same", []stint.Option{theKey, rate()}, []stint.Option{theKey, rate()}, 3},
		{"updates between a limit and a function's", []stint.Option{theKey, rate()}, fresh(rate), 3},
		{"updates to another rate", []stint.Option{theKey, rate()},
			[]stint.Option{theKey, stint.Rate(2, time.Second, stint.WithName("r"), stint.WithMaxWait(time.Minute))}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.opts...)
				through(l, get("/"), nil)
				var mu sync.Mutex
				var queued int64
				var waited time.Duration
				first, leave := context.WithCancel(t.Context())
				for i := range 3 {
					ctx := t.Context()
					if i == 0 {
						ctx = first
					} else if tt.update != nil {
						update(t, l, tt.update...)
					}
					start := time.Now()
					go through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
						mu.Lock()
						defer mu.Unlock()
						queued = max(queued, stint.FromContext(r.Context()).Decision().Queued)
						waited = time.Since(start)
					})
					synctest.Wait()
				}
				leave()
				time.Sleep(time.Minute)
				synctest.Wait()
				if queued != tt.queued {
					t.Errorf("the last was %d. in line, want %d", queued, tt.queued)
				}
				if one := tt.queued == 3; one && waited != 2*time.Second {
					t.Errorf("the last waited %v, want 2s: one has left", waited)
				}
				noLines(t, l)
			})
		})
	}
}
