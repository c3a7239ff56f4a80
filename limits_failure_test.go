package stint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
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
			l := limiter(t, append(tt.opts, theKey, stint.WithStore(failing(errDown)), seen.Option())...)
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
			e := seen.Last()
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
	l := limiter(t, theKey, stint.Rate(9, time.Second, stint.WithName("rate")), stint.WithStore(failing(context.Canceled)), seen.Option())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reached := false
	w := through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) { reached = true })
	if reached || w.Code != 503 || seen.Kinds() != "Canceled" {
		t.Errorf("reached %v, got %d %q, events %s", reached, w.Code, w.Body, seen.Kinds())
	}
}

func TestSkipAndBlock(t *testing.T) {
	seen, s := &events{}, newSpy()
	header := func(name string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Header.Get(name) != "" }
	}
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(s), seen.Option(),
		stint.WithSkip(header("S1")), stint.WithSkip(header("S2")), stint.WithBlock(header("B1")), stint.WithBlock(header("B2")))
	for _, tt := range []struct {
		headers string
		want    int
		events  string
	}{
		{"S1", 200, ""}, {"S2", 200, ""}, {"B1", 403, "Blocked"}, {"B2", 403, "Blocked"}, {"S1 B1", 200, ""},
	} {
		seen.Clear()
		r := get("/")
		for h := range strings.FieldsSeq(tt.headers) {
			r.Header.Set(h, "1")
		}
		if w := through(l, r, nil); w.Code != tt.want || seen.Kinds() != tt.events {
			t.Errorf("%s: %d, events %q", tt.headers, w.Code, seen.Kinds())
		}
	}
	if e := seen.Last(); e.Kind == stint.EventBlocked && !errors.Is(e.Err, stint.ErrBlocked) {
		t.Error(e.Err)
	}
	if takes, _ := s.Counts(); takes != 0 {
		t.Errorf("%d decisions for requests that are not decided", takes)
	}
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, second := &events{}, &events{}
		l := limiter(t, theKey, stint.Rate(1, time.Minute, stint.WithMaxWait(time.Minute)), stint.Quota(2, stint.Monthly),
			stint.Rate(1, time.Hour, stint.WithDryRun(true)), seen.Option(), second.Option())
		codes(l, "GET", "/", 3)
		if got, want := seen.Kinds(), "Admitted Waiting Admitted DryRunDenied Denied DryRunDenied"; got != want {
			t.Fatalf("events %s, want %s", got, want)
		}
		if second.Kinds() != seen.Kinds() {
			t.Error("the second observer sees something else")
		}
		e := seen.All()[2]
		if e.Waited != time.Minute || e.Request == nil || !e.Decision.Allowed || e.Decision.Delay != time.Minute || len(e.Decision.Limits) != 3 {
			t.Errorf("%+v", e)
		}
		if e := seen.All()[3]; e.EndsWait {
			t.Error("a dry run's event ends the wait once more")
		}
		if e := seen.All()[4]; e.Decision.Allowed || e.Decision.Limit != "monthly" || e.Err != nil {
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
		l := limiter(t, stint.Rate(1, time.Hour, stint.WithName("login")), seen.Option(),
			stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return tt.key, tt.err })))
		_, err := l.Open(httptest.NewRecorder(), get("/"))
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), "limit login") || len(err.Error()) > 200 {
			t.Errorf("error %.300v", err)
		}
		if e := seen.Last(); seen.Kinds() != tt.want || !errors.Is(e.Err, tt.is) {
			t.Errorf("events %s: %.300v, want %s", seen.Kinds(), e.Err, tt.want)
		}
	}
}

func TestKeysAreAskedOnce(t *testing.T) {
	counts := map[string]int{}
	count := func(name string) stint.Key {
		return stint.KeyFunc(func(*http.Request) (string, error) { counts[name]++; return name, nil })
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
	l := limiter(t, stint.WithKey(stint.Header("X-Tenant")), stint.Rate(100, time.Hour), seen.Option(),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) { return plans[r.Header.Get("X-Plan")], nil }),
		stint.WithRoute("/free", stint.Exempt()), stint.WithRoute("/login", stint.Rate(50, time.Hour, stint.WithName("login"))))
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
		{"/login", "c", "bronze", 200, `"rate" "login" "plan"`},
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
		if tt.want == 500 && (seen.Last().Kind != stint.EventLimitsFailed || seen.Last().Err == nil) {
			t.Errorf("event %v", seen.Last().Kind)
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
	l := limiter(t, theKey, stint.WithRoute("/{$}", shared), stint.WithRoute("/a", shared, stint.Concurrency(1)),
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

func (a asked) Error() string { return "secret" }

func (a asked) StatusCode() int { return int(a) }

func TestFunctionsAskForTheirStatus(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{asked(401), 401},
		{fmt.Errorf("no session: %w", asked(401)), 401},
		{asked(503), 503},
		{asked(200), 500}, // would not deny
		{asked(302), 500},
		{errors.New("secret"), 500},
	} {
		key := stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			if r.URL.Path == "/key" {
				return "", tt.err
			}
			return "k", nil
		}))
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

// What requests see of a Redis that is broken, from one end to the other: a real
// server, the store, the limiter and each router. What the store makes of each
// fault is in its own tests.

const outageTimeout = 200 * time.Millisecond

var byUser = stint.WithKey(stint.Header("X-User"))

func outageStore(server *redistest.Server, timeout redisstore.Option) *redisstore.Store {
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	return redisstore.New(rdb, timeout)
}

// while is a store that gives up after outageTimeout while it is told that the server
// hangs. At other times a busy machine may take as long as it needs.
type while struct {
	spy
	hangs atomic.Bool
}

func newWhile(server *redistest.Server) *while {
	w := &while{spy: spy{Store: outageStore(server, patient)}}
	hasty := outageStore(server, redisstore.WithTimeout(outageTimeout))
	w.OnTake = func(c *asks) error {
		if w.hangs.Load() {
			return hasty.Take(c.Ctx, c.Charges, c.Results)
		}
		return c.Pass()
	}
	w.OnSettle = func(c *asks) error {
		if w.hangs.Load() {
			return hasty.Settle(c.Ctx, c.Charges, c.Results)
		}
		return c.Pass()
	}
	return w
}

// answer is a response and how long it took.
type answer struct {
	*httptest.ResponseRecorder
	held time.Duration
}

// asking sends requests, and measures by the pulse how long they are held.
type asking struct{ *redistest.Pulse }

func (p asking) ask(app http.Handler, user string) answer {
	r, w := get("/"), httptest.NewRecorder()
	r.Header.Set("X-User", user)
	start := p.Elapsed()
	app.ServeHTTP(w, r)
	return answer{w, p.Elapsed() - start}
}

// atOnce asks n times at once, and app by app in turn.
func (p asking) atOnce(n int, apps []http.Handler, user string) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = p.ask(apps[i%len(apps)], user) })
	}
	wg.Wait()
	return answers
}

// onAll serves the limits in each way that an adapter may.
func onAll(l *stint.Limiter) []http.Handler {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	return []http.Handler{stinthttp.Middleware(l)(served), mount(l, served)}
}

// Without a second store, the failure policy decides: the strictest of the limits'.
func TestPoliciesOnBrokenRedis(t *testing.T) {
	server, p := redistest.Start(t), asking{redistest.StartPulse(t)}
	open, closed := stint.WithFailurePolicy(stint.FailOpen), stint.WithFailurePolicy(stint.FailClosed)
	rate := func(o ...stint.RateOption) stint.Limit {
		return stint.Rate(1_000_000, time.Hour, append(o, stint.WithName("rate"))...)
	}
	gone := []error{redisstore.ErrUnavailable, redisstore.ErrIndeterminate}
	for _, fault := range []struct {
		name    string
		do      func()
		undo    func()
		timeout redisstore.Option // of a server that answers, none is needed
		classes []error
	}{
		{"out of memory", func() { server.Do("CONFIG", "SET", "maxmemory", "1") }, func() { server.Do("CONFIG", "SET", "maxmemory", "0") },
			patient, []error{redisstore.ErrServer}},
		{"no rights", func() { server.Do("ACL", "SETUSER", "default", "-evalsha") }, func() { server.Do("ACL", "SETUSER", "default", "+evalsha") },
			patient, []error{redisstore.ErrConfiguration}},
		{"paused", server.Pause, server.Resume, redisstore.WithTimeout(outageTimeout), gone},
		{"killed", server.Kill, func() { server.Restart() }, redisstore.WithTimeout(outageTimeout), gone},
	} {
		t.Run(fault.name, func(t *testing.T) {
			policies := []struct {
				name string
				opts []stint.Option
				want int
				seen *events
				apps []http.Handler
			}{
				{name: "default", opts: []stint.Option{rate()}, want: 200},
				{name: "closed", opts: []stint.Option{rate(), closed}, want: 503},
				{name: "strictest", opts: []stint.Option{rate(open), stint.Quota(1_000_000, stint.Daily, stint.WithName("daily"), closed)}, want: 503},
				{name: "own", opts: []stint.Option{rate(open), closed}, want: 200},
			}
			s := outageStore(server, fault.timeout)
			for i := range policies {
				of := &policies[i]
				of.seen = &events{}
				of.apps = onAll(limiter(t, append(of.opts, byUser, stint.WithStore(s), of.seen.Option())...))
			}
			decides := func(t *testing.T) {
				t.Helper()
				for _, of := range policies {
					for _, app := range of.apps {
						end := time.Now().Add(time.Minute)
						for len(p.ask(app, of.name).Header().Values("RateLimit")) == 0 {
							if time.Now().After(end) {
								t.Fatalf("%s: still not decided", of.name)
							}
							time.Sleep(5 * time.Millisecond) // a real server, which may have just come back
						}
					}
				}
			}
			decides(t)
			for _, of := range policies {
				of.seen.Clear()
			}
			fault.do()
			answers := make([][]answer, len(policies))
			var wg sync.WaitGroup
			for i, of := range policies {
				wg.Go(func() { answers[i] = p.atOnce(8*len(of.apps), of.apps, of.name) })
			}
			wg.Wait()
			fault.undo()
			for i, of := range policies {
				for _, a := range answers[i] {
					after, err := strconv.Atoi(a.Header().Get("Retry-After"))
					switch {
					case a.Code != of.want:
						t.Errorf("%s: %d, want %d", of.name, a.Code, of.want)
					case a.held > 3*outageTimeout:
						t.Errorf("%s: held for %v of %v", of.name, a.held, outageTimeout)
					case len(a.Header().Values("RateLimit")) > 0:
						t.Errorf("%s: fields of nothing: %v", of.name, a.Header())
					case of.want == 503 && (err != nil || after < 1):
						t.Errorf("%s: Retry-After %q", of.name, a.Header().Get("Retry-After"))
					case of.want == 200 && a.Body.String() != "served":
						t.Errorf("%s: %q", of.name, a.Body)
					case strings.Contains(a.Body.String(), "redis"):
						t.Errorf("%s: the client reads what is inside: %s", of.name, a.Body)
					}
				}
				if len(of.seen.All()) != len(answers[i]) {
					t.Errorf("%s: %d events of %d requests", of.name, len(of.seen.All()), len(answers[i]))
				}
				for _, e := range of.seen.All() {
					known := slices.ContainsFunc(fault.classes, func(class error) bool { return errors.Is(e.Err, class) })
					var failed *stint.StoreError
					if e.Kind != stint.EventStoreFailed || !known || errors.As(e.Err, &failed) != (of.want == 503) {
						t.Errorf("%s: %v %v", of.name, e.Kind, e.Err)
					}
				}
			}
			decides(t)
		})
	}
}

// breaker has the states that the breaker of a store changes to.
func breaker(t *testing.T, s *failover.Store) (changes chan failover.State) {
	changes, state := make(chan failover.State, 10), failover.Closed
	o := &store.Observer{Tell: func(n store.Notice) {
		if now := map[store.NoticeKind]failover.State{store.Degraded: failover.Open}[n.Kind]; n.Kind != store.CallFailed && now != state {
			state = now
			changes <- now
		}
	}}
	s.Observe(o)
	t.Cleanup(func() { runtime.KeepAlive(o) }) // the store doesn't keep it
	return changes
}

func await(t *testing.T, changes chan failover.State, to failover.State) {
	t.Helper()
	select {
	case now := <-changes:
		if now != to {
			t.Fatalf("%v, want %v", now, to)
		}
	case <-time.After(time.Minute):
		t.Fatalf("never %v", to)
	}
}

// With a memory store as the secondary, limits hold while Redis is stopped. Once that
// is known, requests don't wait for it, and its return is detected in the background.
func TestMemoryBesideStoppedRedis(t *testing.T) {
	server, p := redistest.Start(t), asking{redistest.StartPulse(t)}
	seen, primary := &events{}, newWhile(server)
	s := failover.New(primary, memstore.New())
	changes := breaker(t, s)
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.Option()))
	// passed says how many of n requests passed that came at once; the others
	// were denied by the limit.
	passed := func(user string, n int) (passed int, longest time.Duration) {
		t.Helper()
		for _, a := range p.atOnce(n, apps, user) {
			longest = max(longest, a.held)
			switch {
			case a.Code == http.StatusOK:
				passed++
			case a.Code != http.StatusTooManyRequests:
				t.Errorf("%s: status %d", user, a.Code)
			}
			if len(a.Header().Values("RateLimit")) == 0 {
				t.Errorf("%s: not decided", user)
			}
		}
		return passed, longest
	}
	if n, _ := passed("before", 20); n != 5 {
		t.Errorf("%d of 5 passed", n)
	}

	primary.hangs.Store(true)
	server.Pause()
	if n, longest := passed("during", 20); n != 5 || longest > 3*outageTimeout {
		t.Errorf("%d of 5 passed, held for %v of %v", n, longest, outageTimeout)
	}
	await(t, changes, failover.Open)
	if _, err := s.Degraded(); errors.Is(err, store.ErrMisconfigured) {
		t.Errorf("opened for %v", err)
	}
	failures := s.Stats().Failures
	for i := range 10 {
		if n, longest := passed(fmt.Sprint("open ", i), 20); n != 5 || longest > outageTimeout/2 {
			t.Errorf("open: %d of 5 passed, held for %v", n, longest)
		}
	}
	if n, _ := passed("before", 20); n != 5 {
		t.Errorf("%d of the 5 passed that a key may have on each side", n)
	}
	if more := s.Stats().Failures - failures; more != 0 {
		t.Errorf("%d requests asked the primary while the breaker was open", more)
	}

	server.Resume()
	primary.hangs.Store(false)
	// No request comes meanwhile.
	await(t, changes, failover.Closed)
	if n, _ := passed("before", 20); n != 0 {
		t.Errorf("Redis let %d more pass of a key that had had all", n)
	}
	if n, _ := passed("after", 20); n != 5 {
		t.Errorf("%d of 5 passed", n)
	}
	if stats := s.Stats(); stats.Opened != 1 || stats.Probes == 0 || stats.State != failover.Closed || len(changes) > 0 {
		t.Errorf("%+v, and %d more changes", stats, len(changes))
	}
	if kinds := seen.Kinds(); strings.Contains(kinds, "StoreFailed") {
		t.Errorf("requests were not decided: %s", kinds)
	}
}

// Without a secondary, a store behind a breaker fails at once, and the failure policy
// decides.
func TestBreakerWithoutMemory(t *testing.T) {
	server, p := redistest.Start(t), asking{redistest.StartPulse(t)}
	seen, primary := &events{}, newWhile(server)
	var nobody store.Store
	s := failover.New(primary, nobody)
	changes := breaker(t, s)
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.Option(), stint.WithFailurePolicy(stint.FailClosed)))
	primary.hangs.Store(true)
	server.Pause()
	p.atOnce(20, apps, "u")
	await(t, changes, failover.Open)
	answers := p.atOnce(20, apps, "u")
	for _, a := range answers {
		if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || a.held > outageTimeout/2 {
			t.Errorf("%d after %v, %v", a.Code, a.held, a.Header())
		}
	}
	if e := seen.Last(); e.Kind != stint.EventStoreFailed || !errors.Is(e.Err, failover.ErrOpen) {
		t.Errorf("%v %v", e.Kind, e.Err)
	}
	server.Resume()
	primary.hangs.Store(false)
	await(t, changes, failover.Closed)
	if a := p.ask(apps[0], "v"); a.Code != http.StatusOK || len(a.Header().Values("RateLimit")) == 0 {
		t.Errorf("%d %v", a.Code, a.Header())
	}
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
		"dry run":       stint.Rate(5, time.Hour, name, stint.WithDryRun(true)),
	}
	overStores(t, func(t *testing.T, s store.Store) {
		for which, ctx := range endedContexts(t) {
			for kind, limit := range limits {
				spy, seen := &spy{Store: s}, &events{}
				l := limiter(t, theKey, limit, stint.WithStore(spy), seen.Option())
				ways := map[string]func() error{
					"Take": func() error { _, err := l.Take(ctx, "k", 1); return err },
					"Wait": func() error { _, err := l.Wait(ctx, "k", 1); return err },
					"Admit": func() error {
						_, err := l.Open(httptest.NewRecorder(), get("/").WithContext(ctx))
						return err
					},
				}
				for way, try := range ways {
					seen.Clear()
					err := try()
					takes, _ := spy.Counts()
					if !errors.Is(err, ctx.Err()) || errors.As(err, new(*stint.DeniedError)) || seen.Kinds() != "Canceled" || takes != 0 {
						t.Errorf("%s, %s, %s: error %v, events %q, the store asked %d times", which, kind, way, err, seen.Kinds(), takes)
					}
				}
			}
		}
	})
}
