package adaptertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
)

// setting is what a route says of the limit that another route has, too.
type setting struct {
	name string
	with []stint.RouteOption
}

var (
	plainly   = setting{"nothing", nil}
	byAnother = setting{"another key",
		[]stint.RouteOption{stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "l", nil }))}}
	reporting = setting{"a dry run", []stint.RouteOption{stint.WithDryRun(true)}}
	failing   = setting{"FailClosed", []stint.RouteOption{stint.WithFailurePolicy(stint.FailClosed)}}
	waiting   = setting{"a wait", []stint.RouteOption{stint.WithMaxWait(90 * time.Minute)}}
	ofBytes   = []setting{plainly, byAnother, reporting, failing}
	ofSlots   = append(ofBytes, waiting)
	// settledBy are those of one charge, which its handler settles.
	settledBy = []setting{plainly, reporting, failing, waiting,
		{"a cost", []stint.RouteOption{stint.WithCost(func(*http.Request) int64 { return 3 })}},
		{"a fixed cost", []stint.RouteOption{stint.WithFixedCost(4)}},
		{"failed only", []stint.RouteOption{stint.WithSettle(stint.FailedOnly)}},
		{"settled to 2", []stint.RouteOption{stint.WithSettle(func(*http.Request, int, int64) int64 { return 2 })}},
		{"settled to 6", []stint.RouteOption{stint.WithSettle(func(*http.Request, int, int64) int64 { return 6 })}},
		{"a cost, and settled to 0", []stint.RouteOption{stint.WithFixedCost(5),
			stint.WithSettle(func(*http.Request, int, int64) int64 { return 0 })}},
	}
	ofRequests = append(settledBy, byAnother,
		setting{"beside one with a cost", []stint.RouteOption{stint.Rate(20, time.Hour, stint.WithName("beside"),
			stint.WithCost(func(*http.Request) int64 { return 2 }))}})
)

// Two readings of a path, each alone and both.
const (
	oneReading  = "/sessions/7"
	theOther    = "/others/7"
	eitherOfTwo = "/%73essions/7" // is /sessions/7 to routers that decode it
)

// twoRoutes is a site with a limit on two routes, with a setting on each.
func twoRoutes(t *testing.T, limit stint.Limit, one, other setting,
	do http.HandlerFunc) (Site, *stint.Limiter, *storefake.Store) {
	t.Helper()
	s := storefake.New()
	l := compiled(t, byK, stint.WithStore(s), stint.Rate(1000, time.Second, stint.WithName("rest")),
		stint.WithRoute("POST /sessions/{id}", only(limit, one.with)...),
		stint.WithRoute("POST /{page}/{id}", only(limit, other.with)...))
	return Site{Limits: []*stint.Limiter{l},
		Routes: []Route{{Path: "/sessions/{id}", Do: do}, {Path: "/{page}/{id}", Do: do}}}, l, s
}

// only are the options of a route that has only a limit, and those of a setting.
func only(limit stint.Limit, with []stint.RouteOption) (opts []stint.RouteOption) {
	limits := []stint.Limit{limit}
	for _, o := range with {
		if l, is := o.(stint.Limit); is {
			limits = append(limits, l)
		} else {
			opts = append(opts, o)
		}
	}
	return append(opts, stint.Only(limits...))
}

// pairs calls measure with each pair of settings, for a request that has the first, the second and
// both. Of the figures that it returns, those of the last must not exceed the others.
func pairs(t *testing.T, settings []setting, measure func(t *testing.T, one, other setting, path string) []int64) {
	for _, one := range settings {
		for _, other := range settings {
			synctest.Test(t, func(t *testing.T) {
				both := measure(t, one, other, eitherOfTwo)
				for _, path := range []string{oneReading, theOther} {
					for i, most := range measure(t, one, other, path) {
						if both[i] > most {
							t.Errorf("%s, and %s: figures %v by both readings, more than %d of figure %d by %s", one.name, other.name, both,
								most, i+1, path)
						}
					}
				}
			})
		}
	}
}

// A request that can be read in two ways gets no more than by either reading alone, whichever the
// router follows, and whatever the limit that both select has been told by each.
func flowReadings(t *testing.T, a Adapter) {
	settled := func(to int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := stint.FromContext(r.Context()).Settle(r.Context(), to); err != nil &&
				!strings.Contains(err.Error(), "down") {
				t.Error(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		do       http.HandlerFunc
		settings []setting
	}{
		"served": {nil, ofRequests},
		"failed": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, ofRequests},
		// Settle without names chooses among the charges of both readings: one with a cost keeps it from
		// one without.
		"settled to 0": {settled(0), settledBy}, "settled to 5": {settled(5), settledBy}, "settled to 8": {settled(8),
			settledBy},
	} {
		t.Run("requests "+name, func(t *testing.T) {
			pairs(t, tt.settings, func(t *testing.T, one, other setting, path string) []int64 {
				site, l, _ := twoRoutes(t, stint.Rate(10, time.Hour, stint.WithName("calls")), one, other, tt.do)
				h := a.Build(site)
				passes := func() (n int64) {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, httptest.NewRequest("POST", path, nil)); w.Code < 400 || w.Code == 500 {
						n = 1
					}
					return n
				}
				figures := []int64{passes()}
				figures = append(figures, leftOf(t, l, "k", "calls", "beside"), leftOf(t, l, "l", "calls"))
				n := int64(0)
				for range 15 {
					n += passes()
				}
				return append(figures, n)
			})
		})
	}
	t.Run("requests without a store", func(t *testing.T) {
		pairs(t, ofRequests, func(t *testing.T, one, other setting, path string) []int64 {
			site, _, s := twoRoutes(t, stint.Rate(10, time.Hour, stint.WithName("calls")), one, other, nil)
			s.FailWith(storefake.ErrDown)
			w := httptest.NewRecorder()
			a.Build(site).ServeHTTP(w, httptest.NewRequest("POST", path, nil))
			return []int64{int64(-w.Code)}
		})
	})
	t.Run("slots", func(t *testing.T) {
		pairs(t, ofSlots, func(t *testing.T, one, other setting, path string) []int64 {
			inside, leave := int64(0), make(chan struct{})
			var mu sync.Mutex
			site, l, _ := twoRoutes(t, stint.Concurrency(3, stint.WithName("slots")), one, other,
				func(http.ResponseWriter, *http.Request) {
					mu.Lock()
					inside++
					mu.Unlock()
					<-leave
				})
			h := a.Build(site)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", path, nil)) })
			}
			synctest.Wait()
			mu.Lock()
			at := inside
			mu.Unlock()
			close(leave)
			all.Wait()
			for _, key := range []string{"k", "l"} {
				if n := leftOf(t, l, key, "slots"); n != 3 {
					t.Errorf("%s, and %s, %s: %d slots of %s free, want 3", one.name, other.name, path, n, key)
				}
			}
			return []int64{at, inside}
		})
	})
	for name, fails := range map[string]error{"bytes": nil, "bytes without a store": storefake.ErrDown} {
		t.Run(name, func(t *testing.T) {
			pairs(t, ofBytes, func(t *testing.T, one, other setting, path string) []int64 {
				site, _, s := twoRoutes(t, stint.Bandwidth(1<<20, stint.WithName("bytes")), one, other,
					func(w http.ResponseWriter, _ *http.Request) {
						_, _ = io.WriteString(w, strings.Repeat("x", 3<<20))
					})
				h := a.Build(site)
				start := time.Now()
				w := httptest.NewRecorder()
				s.FailWith(fails)
				func() {
					defer func() { _ = recover() }() // of what was cut off
					h.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
				}()
				return []int64{int64(-time.Since(start)), int64(w.Body.Len())}
			})
		})
	}
	t.Run("one route has the limit", func(t *testing.T) {
		for name, tt := range map[string]struct {
			settle stint.ChargeOption
			do     http.HandlerFunc
			left   int64
		}{
			"by its own function": {stint.WithSettle(stint.FailedOnly), nil, 10},
			"by the handler":      {nil, settled(2), 8},
		} {
			opts := []stint.RouteOption{stint.Rate(10, time.Hour, stint.WithName("tokens"), stint.WithFixedCost(5))}
			if tt.settle != nil {
				opts = append(opts, tt.settle)
			}
			l := compiled(t, byK, stint.Rate(10, time.Hour, stint.WithName("calls")),
				stint.WithRoute("GET /models/{id}", opts...))
			// gin reads it as /models/a/b.
			h := a.Build(Site{Limits: []*stint.Limiter{l},
				Routes: []Route{{Path: "/models/{id}", Do: tt.do}, {Path: "/models/{id}/{more}", Do: tt.do}}})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get("/models/a%2Fb"))
			if n := leftOf(t, l, "k", "tokens"); w.Code != 200 || n != tt.left {
				t.Errorf("%s: %d, %d tokens left, want %d", name, w.Code, n, tt.left)
			}
		}
	})
}

// leftOf is what some limits have left for a key, in all.
func leftOf(t *testing.T, l *stint.Limiter, key string, limits ...string) (left int64) {
	t.Helper()
	d, err := l.PeekAll(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Limits {
		if slices.Contains(limits, s.Name) {
			left += s.Remaining
		}
	}
	return left
}
