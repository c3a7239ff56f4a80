package plans_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/plans"
)

var errDown = errors.New("source is down")

// source is a database of plans: slow, and down on demand.
type source struct {
	loads atomic.Int64
	slow  time.Duration
	down  atomic.Bool
}

func (s *source) load(ctx context.Context, key string) ([]stint.Limit, error) {
	n := s.loads.Add(1)
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case s.down.Load():
		return nil, errDown
	case strings.HasPrefix(key, "bad"):
		return []stint.Limit{stint.Rate(0, time.Second)}, nil
	case strings.HasPrefix(key, "unnamed"):
		return []stint.Limit{stint.Rate(n, time.Second)}, nil
	case strings.HasPrefix(key, "zero"):
		return []stint.Limit{{}}, nil
	case strings.HasPrefix(key, "panic"):
		panic("in the database")
	}
	return []stint.Limit{stint.Rate(n, time.Second, stint.WithName("plan"))}, nil
}

func TestLoadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{slow: time.Second}
		p := plans.Must(plans.New(s.load))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if limits, err := p.Get(t.Context(), fmt.Sprint("k", i%2)); err != nil || len(limits) != 1 {
					t.Error(limits, err)
				}
			})
		}
		wg.Wait()
		if got := s.loads.Load(); got != 2 {
			t.Errorf("%d loads for 2 keys", got)
		}
	})
}

func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{slow: time.Second}
		p := plans.Must(plans.New(s.load, plans.WithTTL(10*time.Second)))
		last := stint.Limit{}
		get := func(wantLoads int64, wantNew bool, wantWait time.Duration) {
			t.Helper()
			start := time.Now()
			limits, err := p.Get(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != wantWait {
				t.Errorf("waited %v, want %v", got, wantWait)
			}
			synctest.Wait()
			if got := s.loads.Load(); got != wantLoads {
				t.Errorf("%d loads, want %d", got, wantLoads)
			}
			if got := limits[0] != last; got != wantNew {
				t.Errorf("a new plan: %v, want %v", got, wantNew)
			}
			last = limits[0]
		}
		get(1, true, time.Second)
		get(1, false, 0)
		time.Sleep(9 * time.Second)
		get(1, false, 0)
		time.Sleep(2 * time.Second)
		get(2, false, 0) // old, and loaded behind
		get(2, false, 0)
		time.Sleep(2 * time.Second)
		get(2, true, 0)
		time.Sleep(time.Hour)
		get(3, true, time.Second) // too old to be served before it is known
		s.down.Store(true)
		time.Sleep(time.Hour)
		get(4, false, time.Second) // the source is down: better old than none
		get(4, false, 0)           // and it isn't asked by every request
		time.Sleep(2 * time.Second)
		get(5, false, time.Second)
		s.down.Store(false)
		time.Sleep(2 * time.Second)
		get(6, true, time.Second)
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	s := &source{}
	s.down.Store(true)
	p := plans.Must(plans.New(s.load))
	for i := range 3 {
		if _, err := p.Get(t.Context(), "k"); !errors.Is(err, errDown) {
			t.Errorf("error %v", err)
		}
		if got := s.loads.Load(); got != int64(i+1) {
			t.Errorf("%d loads", got)
		}
	}
	s.down.Store(false)
	if _, err := p.Get(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	for key, want := range map[string]string{
		"bad": "0 units: write a number", "unnamed": "write stint.WithName", "zero": "zero Limit", "panic": "panicked: in the database",
	} {
		if _, err := p.Get(t.Context(), key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", key, err, want)
		}
	}
}

func TestSurviveTheFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{slow: 2 * time.Second}
		p := plans.Must(plans.New(s.load))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		start := time.Now()
		if _, err := p.Get(t.Context(), "k"); err != nil || time.Since(start) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		if got := s.loads.Load(); got != 1 {
			t.Errorf("%d loads", got)
		}
		slow := &source{slow: time.Hour}
		p = plans.Must(plans.New(slow.load, plans.WithLoadTimeout(3*time.Second)))
		start = time.Now()
		if _, err := p.Get(t.Context(), "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
	})
}

func TestAreBounded(t *testing.T) {
	s := &source{}
	p := plans.Must(plans.New(s.load, plans.WithSize(3)))
	for _, step := range []struct {
		key   string
		loads int64
	}{{"a", 1}, {"b", 2}, {"c", 3}, {"a", 3}, {"d", 4}, {"a", 4}, {"c", 4}, {"b", 5}, {"d", 6}} {
		if _, err := p.Get(t.Context(), step.key); err != nil {
			t.Fatal(err)
		}
		if got := s.loads.Load(); got != step.loads {
			t.Errorf("%s: %d loads, want %d", step.key, got, step.loads)
		}
	}
}

func TestOptions(t *testing.T) {
	load := (&source{}).load
	for _, tc := range []struct {
		load func(context.Context, string) ([]stint.Limit, error)
		opt  plans.Option
		want string
	}{
		{nil, plans.WithTTL(time.Minute), "New(nil): write a function"},
		{load, plans.WithTTL(0), "TTL 0s"},
		{load, plans.WithSize(0), "size 0"},
		{load, plans.WithLoadTimeout(-1), "timeout -1ns"},
		{load, nil, "option 1 is nil"},
	} {
		if c, err := plans.New(tc.load, tc.opt); c != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, %v, want an error with %q", c, err, tc.want)
		}
	}
}

// A key that can't work is reported when the limiter is made or mounted, not by its requests.
func TestWrongKeys(t *testing.T) {
	cache := plans.Must(plans.New((&source{}).load))
	for key, want := range map[stint.Key]string{
		{}:                            "Key{}): write a key",
		stint.Header("a b"):           `Header("a b")): write the name of a header field`,
		stint.Join(stint.Cookie(" ")): `Cookie(" ")`,
		stint.GivenKey():              "WithLimitSource(GivenKey()): requests don't have it",
	} {
		_, err := stint.New(stint.WithKey(stint.Global()), cache.Limits(key))
		var wrong *stint.OptionError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an *OptionError with %q", key, err, want)
		}
	}
	key := stint.AdapterKey("stintgin", func(*http.Request) (string, error) { return "", nil })
	l, err := stint.New(stint.WithKey(stint.Global()), cache.Limits(key))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Mount("stinthttp"); err == nil || !strings.Contains(err.Error(), "WithLimitSource") {
		t.Errorf("%v: mounted: %v", key, err)
	}
}

// A plan that the limiter's own settings make impossible counts as a failed load.
func TestPlanThatTheLimiterMakesWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		opt  stint.RateOption
		want string
	}{
		"its cost":     {nil, "a request costs 20, and no more than 10 ever pass"},
		"nobody's key": {stint.WithKey(stint.GivenKey()), "WithKey(GivenKey()): requests don't have it"},
	} {
		var opts []stint.RateOption
		if tt.opt != nil {
			opts = append(opts, tt.opt)
		}
		loads := 0
		cache := plans.Must(plans.New(func(context.Context, string) ([]stint.Limit, error) {
			loads++
			return []stint.Limit{stint.Rate(10, time.Second, append(opts, stint.WithName("plan"))...)}, nil
		}))
		var failed error
		l := stint.Must(stint.New(stint.WithKey(stint.Global()), cache.Limits(stint.Global()), stint.WithFixedCost(20),
			stint.WithObserver(func(e stint.Event) { failed = e.Err })))
		for i := range 2 { // the second loads again: what has failed isn't kept
			w := httptest.NewRecorder()
			l.Serve(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) { t.Error("it passed") })
			if w.Code != 500 || failed == nil || !strings.Contains(failed.Error(), tt.want) || loads != i+1 {
				t.Errorf("%s: %d, %v after %d loads", name, w.Code, failed, loads)
			}
		}
	}
}
