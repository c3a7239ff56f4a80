package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func TestStoreFailure(t *testing.T) {
	rate := func(o ...stint.RateOption) stint.Limit {
		return stint.Rate(9, time.Second, append(o, stint.WithName("rate"))...)
	}
	daily := stint.Quota(9, stint.Daily, stint.WithName("daily"))
	closed, open := stint.WithFailurePolicy(stint.FailClosed), stint.WithFailurePolicy(stint.FailOpen)
	tests := []struct {
		name string
		opts []stint.Option
		path string
		want int
	}{
		{"default", []stint.Option{rate()}, "/", 200},
		{"open", []stint.Option{rate(), open}, "/", 200},
		{"closed", []stint.Option{rate(), closed}, "/", 503},
		{"the strictest counts", []stint.Option{rate(closed), daily}, "/", 503},
		{"a limit's own counts", []stint.Option{rate(open), closed}, "/", 200},
		{"a route's counts", []stint.Option{rate(), stint.WithRoute("/a", closed, daily)}, "/a", 503},
		{"not beside the route", []stint.Option{rate(), stint.WithRoute("/a", closed, daily)}, "/", 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := &events{}
			l := limiter(t, append(tt.opts, theKey, stint.WithStore(&spy{fail: errDown}), seen.option())...)
			w := through(l, get(tt.path), nil)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d", w.Code, tt.want)
			}
			if len(w.Header().Values("RateLimit")) > 0 {
				t.Errorf("fields of nothing: %v", w.Header())
			}
			if tt.want == 503 && (w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), errDown.Error())) {
				t.Errorf("%v %s", w.Header(), w.Body)
			}
			e := seen.last()
			var se *stint.StoreError
			if e.Kind != stint.EventStoreFailed || !errors.Is(e.Err, errDown) || errors.As(e.Err, &se) != (tt.want == 503) || e.Request == nil {
				t.Errorf("event %v %v", e.Kind, e.Err)
			}
			if tt.path == "/" {
				p, err := l.Take(t.Context(), "k", 1)
				if tt.want == 503 && !errors.As(err, &se) || tt.want == 200 && (err != nil || p == nil) {
					t.Errorf("Take: %v, %v", p, err)
				}
				p.Done()
				if err := p.Settle(t.Context(), 3); err != nil {
					t.Errorf("Settle on an empty permit: %v", err)
				}
				if !p.Decision().Allowed {
					t.Error("the empty permit does not allow")
				}
			}
		})
	}
}

// A malformed cost of a client must never count as a failure of the store, which would
// let the request pass.
func TestBadCallsFailBeforeTheStore(t *testing.T) {
	s := newSpy()
	l := limiter(t, theKey, stint.WithStore(s), stint.Rate(9, time.Second, stint.WithName("rate")), stint.WithCost(func(r *http.Request) int64 { return r.ContentLength }))
	for _, n := range []int64{-1, 1 << 62} {
		r := get("/")
		r.ContentLength = n
		if w := through(l, r, nil); w.Code == 200 {
			t.Errorf("a cost of %d passed", n)
		}
	}
}

func TestCanceledStoreCall(t *testing.T) {
	seen := &events{}
	l := limiter(t, theKey, stint.Rate(9, time.Second, stint.WithName("rate")), stint.WithStore(&spy{fail: context.Canceled}), seen.option())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reached := false
	w := through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) { reached = true })
	if reached || w.Code != 503 || seen.kinds() != "Canceled" {
		t.Errorf("reached %v, got %d %q, events %s", reached, w.Code, w.Body, seen.kinds())
	}
}

func TestSkipAndBlock(t *testing.T) {
	seen, s := &events{}, newSpy()
	header := func(name string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Header.Get(name) != "" }
	}
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(s), seen.option(),
		stint.WithSkip(header("S1")), stint.WithSkip(header("S2")), stint.WithBlock(header("B1")), stint.WithBlock(header("B2")))
	for _, tt := range []struct {
		headers string
		want    int
		events  string
	}{
		{"S1", 200, ""}, {"S2", 200, ""}, {"B1", 403, "Blocked"}, {"B2", 403, "Blocked"}, {"S1 B1", 200, ""},
	} {
		seen.all = nil
		r := get("/")
		for h := range strings.FieldsSeq(tt.headers) {
			r.Header.Set(h, "1")
		}
		if w := through(l, r, nil); w.Code != tt.want || seen.kinds() != tt.events {
			t.Errorf("%s: %d, events %q", tt.headers, w.Code, seen.kinds())
		}
	}
	if e := seen.last(); e.Kind == stint.EventBlocked && !errors.Is(e.Err, stint.ErrBlocked) {
		t.Error(e.Err)
	}
	if takes, _ := s.counts(); takes != 0 {
		t.Errorf("%d decisions for requests that are not decided", takes)
	}
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, second := &events{}, &events{}
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithMaxWait(time.Minute)), stint.Quota(2, stint.Monthly),
			stint.Rate(1, time.Hour, stint.WithDryRun()), seen.option(), second.option())
		codes(l, "GET", "/", 3)
		if got, want := seen.kinds(), "Admitted Waiting Admitted DryRunDenied Denied DryRunDenied"; got != want {
			t.Fatalf("events %s, want %s", got, want)
		}
		if second.kinds() != seen.kinds() {
			t.Error("the second observer sees something else")
		}
		e := seen.all[2]
		if e.Waited != time.Minute || e.Request == nil || !e.Decision.Allowed || e.Decision.Delay != time.Minute || len(e.Decision.Limits) != 3 {
			t.Errorf("%+v", e)
		}
		if e := seen.all[3]; e.EndsWait {
			t.Error("a dry run's event ends the wait once more")
		}
		if e := seen.all[4]; e.Decision.Allowed || e.Decision.Limit != "monthly" || e.Err != nil {
			t.Errorf("%+v", e)
		}
		if got, want := stint.EventDryRunDenied.String()+stint.EventKind(99).String(), "DryRunDeniedEventKind(99)"; got != want {
			t.Error(got)
		}
	})
}

func TestKeyEvents(t *testing.T) {
	fails := errors.New("no database")
	for _, tt := range []struct {
		key  string
		err  error
		want string
		is   error
	}{
		{"", nil, "EmptyKey", stint.ErrEmptyKey},
		{strings.Repeat("k", 1<<20), nil, "KeyFailed", stint.ErrKeyTooLong},
		{"", fails, "KeyFailed", fails},
	} {
		seen := &events{}
		l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("login")), seen.option(),
			stint.WithKey(func(*http.Request) (string, error) { return tt.key, tt.err }))
		_, err := l.Admit(httptest.NewRecorder(), get("/"))
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), "limit login") || len(err.Error()) > 200 {
			t.Errorf("error %.300v", err)
		}
		if e := seen.last(); seen.kinds() != tt.want || !errors.Is(e.Err, tt.is) {
			t.Errorf("events %s: %.300v, want %s", seen.kinds(), e.Err, tt.want)
		}
	}
}

func TestKeysAreAskedOnce(t *testing.T) {
	counts := map[string]int{}
	count := func(name string) stint.KeyFunc {
		return func(*http.Request) (string, error) { counts[name]++; return name, nil }
	}
	shared := stint.WithKey(count("shared"))
	l := limiter(t, stint.WithKey(count("default")),
		stint.Rate(9, time.Second), stint.Rate(9, time.Minute), stint.Quota(9, stint.Daily, shared), stint.Concurrency(9, shared),
		stint.Rate(9, time.Hour, stint.WithKey(count("own"))))
	clear(counts)
	codes(l, "GET", "/", 1)
	if counts["default"] != 1 || counts["shared"] != 1 || counts["own"] != 1 {
		t.Errorf("calls %v, want one each", counts)
	}
}

func TestLimitFunc(t *testing.T) {
	plans := map[string][]stint.Limit{
		"gold":   {stint.Rate(3, time.Hour, stint.WithName("plan")), stint.Concurrency(5)},
		"bronze": {stint.Rate(1, time.Hour, stint.WithName("plan"))},
		"clash":  {stint.Rate(1, time.Hour)},
		"twice":  {stint.Concurrency(1), stint.Concurrency(2)},
		"zero":   {{}},
		"bad":    {stint.Rate(0, time.Hour, stint.WithName("bad"))},
		"route":  {stint.Rate(1, time.Hour, stint.WithName("login"))},
		"keyed":  {stint.Rate(1, time.Hour, stint.WithName("keyed"), stint.WithKey(stint.Header("X-None")))},
	}
	seen := &events{}
	l := limiter(t, stint.WithKey(stint.Header("X-Tenant")), stint.Rate(100, time.Hour), seen.option(),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) { return plans[r.Header.Get("X-Plan")], nil }),
		stint.WithRoute("/free"), stint.WithRoute("/login", stint.Rate(50, time.Hour, stint.WithName("login"))))
	ask := func(path, tenant, plan string) *httptest.ResponseRecorder {
		r := get(path)
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-Plan", plan)
		return through(l, r, nil)
	}
	for _, tt := range []struct {
		path, tenant, plan string
		want               int
		limits             string
	}{
		{"/", "a", "gold", 200, `"rate" "plan" "concurrency"`},
		{"/", "b", "bronze", 200, `"rate" "plan"`},
		{"/", "b", "bronze", 429, `"rate" "plan"`},
		{"/login", "c", "bronze", 200, `"login" "plan"`},
		{"/free", "b", "bronze", 200, ``},
		{"/", "d", "none", 200, `"rate"`},
		// Who changes plans keeps what has been consumed: one of three.
		{"/", "b", "gold", 200, `"rate" "plan" "concurrency"`},
		{"/", "b", "gold", 200, `"rate" "plan" "concurrency"`},
		{"/", "b", "gold", 429, `"rate" "plan" "concurrency"`},
		{"/", "e", "clash", 500, ``},
		{"/", "e", "twice", 500, ``},
		{"/", "e", "zero", 500, ``},
		{"/", "e", "bad", 500, ``},
		{"/", "e", "route", 500, ``},
		{"/", "e", "keyed", 403, ``},
	} {
		w := ask(tt.path, tt.tenant, tt.plan)
		policy, limits := fields(t, w.Header())
		if w.Code != tt.want || strip(limits) != tt.limits || strip(policy) != tt.limits {
			t.Errorf("%s %s %s: %d, %s, %s; want %d, %s", tt.path, tt.tenant, tt.plan, w.Code, limits, policy, tt.want, tt.limits)
		}
		if tt.want == 500 && (seen.last().Kind != stint.EventLimitsFailed || seen.last().Err == nil) {
			t.Errorf("event %v", seen.last().Kind)
		}
	}
	// Nested, and with Limits made anew each time, they are charged once.
	fresh := limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{stint.Rate(5, time.Hour)}, nil
	}))
	w := httptest.NewRecorder()
	mount(fresh, mount(fresh, nil).ServeHTTP).ServeHTTP(w, get("/"))
	if got := w.Header().Values("RateLimit"); len(got) != 1 || !strings.Contains(got[0], "r=4") {
		t.Errorf("charged twice: %q", got)
	}
}

// Limits of the same rule are one limit, wherever they are used.
func TestOneLimitInSeveralPlaces(t *testing.T) {
	shared := stint.Rate(3, time.Hour, stint.WithName("shared"))
	l := limiter(t, theKey, shared, stint.WithRoute("/a", shared, stint.Concurrency(1)),
		stint.WithRoute("/b", stint.Rate(9, time.Hour)),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			if r.URL.Path == "/b" {
				return []stint.Limit{shared}, nil
			}
			return nil, nil
		}))
	got := codes(l, "GET", "/", 1) + " " + codes(l, "GET", "/a", 1) + " " + codes(l, "GET", "/b", 2)
	if got != "200 200 200 429" {
		t.Errorf("%s, want 3 of 4", got)
	}
}

// asked is an application's error that asks for a status.
type asked int

func (a asked) Error() string   { return "secret" }
func (a asked) StatusCode() int { return int(a) }

func TestFunctionsAskForTheirStatus(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{asked(401), 401},
		{fmt.Errorf("no session: %w", asked(401)), 401},
		{asked(503), 503},
		{asked(200), 500}, // would not refuse
		{asked(302), 500},
		{errors.New("secret"), 500},
	} {
		key := stint.WithKey(func(r *http.Request) (string, error) {
			if r.URL.Path == "/key" {
				return "", tt.err
			}
			return "k", nil
		})
		plan := stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) { return nil, tt.err })
		l := limiter(t, stint.Rate(9, time.Second), key, plan)
		for _, path := range []string{"/key", "/plan"} {
			w := through(l, get(path), nil)
			if w.Code != tt.want || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s failing with %#v: %d %s, want %d", path, tt.err, w.Code, w.Body, tt.want)
			}
		}
	}
}
