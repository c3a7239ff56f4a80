package stint_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// What requests see of a Redis that is broken, from one end to the other: a real
// server, the store, the limiter and each router. What the store makes of each
// fault is in its own tests.

const outageTimeout = 200 * time.Millisecond

var byUser = stint.WithKey(stint.Header("X-User"))

func outageStore(server *redistest.Server) *redisstore.Store {
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	return redisstore.New(rdb, redisstore.WithTimeout(outageTimeout))
}

// answer is a response and how long it took.
type answer struct {
	*httptest.ResponseRecorder
	held time.Duration
}

func ask(app http.Handler, user string) answer {
	r, w := get("/"), httptest.NewRecorder()
	r.Header.Set("X-User", user)
	start := time.Now()
	app.ServeHTTP(w, r)
	return answer{w, time.Since(start)}
}

// asAtOnce asks n times at once, and app by app in turn.
func asAtOnce(n int, apps []http.Handler, user string) []answer {
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = ask(apps[i%len(apps)], user) })
	}
	wg.Wait()
	return answers
}

// punctual measures meanwhile what the machine adds to a wait, and says four
// times the worst of it when asked: by up to four goroutines, each of which may
// be late, a call comes back.
func punctual(t *testing.T) (late func() time.Duration) {
	ctx, cancel := context.WithCancel(t.Context())
	worst := make(chan time.Duration)
	go func() {
		var most time.Duration
		for ctx.Err() == nil {
			const wait = 2 * time.Millisecond
			start := time.Now()
			time.Sleep(wait)
			most = max(most, time.Since(start)-wait)
		}
		worst <- 4 * most
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}

// onAll builds the limits on every router.
func onAll(l *stint.Limiter) []http.Handler {
	var apps []http.Handler
	for _, r := range routings {
		apps = append(apps, r.build(site{limits: []*stint.Limiter{l}, routes: []siteRoute{{path: "/"}}}))
	}
	return apps
}

// Without a second store, the failure policy decides: the strictest of the limits'.
func TestPoliciesOnBrokenRedis(t *testing.T) {
	server := redistest.Start(t)
	s := outageStore(server)
	open, closed := stint.WithFailurePolicy(stint.FailOpen), stint.WithFailurePolicy(stint.FailClosed)
	rate := func(o ...stint.RateOption) stint.Limit {
		return stint.Rate(1_000_000, time.Hour, append(o, stint.WithName("rate"))...)
	}
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
	for i := range policies {
		p := &policies[i]
		p.seen = &events{}
		p.apps = onAll(limiter(t, append(p.opts, byUser, stint.WithStore(s), p.seen.option())...))
	}
	decides := func(t *testing.T) {
		t.Helper()
		for _, p := range policies {
			for _, app := range p.apps {
				end := time.Now().Add(20 * time.Second)
				for len(ask(app, p.name).Header().Values("RateLimit")) == 0 {
					if time.Now().After(end) {
						t.Fatalf("%s: still not decided", p.name)
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
	}
	decides(t)
	gone := []error{redisstore.ErrUnavailable, redisstore.ErrIndeterminate}
	for _, fault := range []struct {
		name    string
		do      func()
		undo    func()
		classes []error
	}{
		{"out of memory", func() { server.Do("CONFIG", "SET", "maxmemory", "1") }, func() { server.Do("CONFIG", "SET", "maxmemory", "0") },
			[]error{redisstore.ErrServer}},
		{"no rights", func() { server.Do("ACL", "SETUSER", "default", "-evalsha") }, func() { server.Do("ACL", "SETUSER", "default", "+evalsha") },
			[]error{redisstore.ErrConfiguration}},
		{"paused", server.Pause, server.Resume, gone},
		{"killed", server.Kill, func() { server.Restart() }, gone},
	} {
		t.Run(fault.name, func(t *testing.T) {
			for _, p := range policies {
				p.seen.mu.Lock()
				p.seen.all = nil
				p.seen.mu.Unlock()
			}
			fault.do()
			late := punctual(t)
			answers := make([][]answer, len(policies))
			var wg sync.WaitGroup
			for i, p := range policies {
				wg.Go(func() { answers[i] = asAtOnce(8*len(p.apps), p.apps, p.name) })
			}
			wg.Wait()
			most := outageTimeout + outageTimeout/4 + late()
			fault.undo()
			for i, p := range policies {
				for _, a := range answers[i] {
					after, err := strconv.Atoi(a.Header().Get("Retry-After"))
					switch {
					case a.Code != p.want:
						t.Errorf("%s: %d, want %d", p.name, a.Code, p.want)
					case a.held > most:
						t.Errorf("%s: held for %v of %v", p.name, a.held, outageTimeout)
					case len(a.Header().Values("RateLimit")) > 0:
						t.Errorf("%s: fields of nothing: %v", p.name, a.Header())
					case p.want == 503 && (err != nil || after < 1):
						t.Errorf("%s: Retry-After %q", p.name, a.Header().Get("Retry-After"))
					case p.want == 200 && a.Body.String() != "served":
						t.Errorf("%s: %q", p.name, a.Body)
					case strings.Contains(a.Body.String(), "redis"):
						t.Errorf("%s: the client reads what is inside: %s", p.name, a.Body)
					}
				}
				if len(p.seen.all) != len(answers[i]) {
					t.Errorf("%s: %d events of %d requests", p.name, len(p.seen.all), len(answers[i]))
				}
				for _, e := range p.seen.all {
					known := slices.ContainsFunc(fault.classes, func(class error) bool { return errors.Is(e.Err, class) })
					var failed *stint.StoreError
					if e.Kind != stint.EventStoreFailed || !known || errors.As(e.Err, &failed) != (p.want == 503) {
						t.Errorf("%s: %v %v", p.name, e.Kind, e.Err)
					}
				}
			}
			decides(t)
		})
	}
}

// transitions is what the observer of a breaker is told.
type transitions chan failover.Event

func (c transitions) await(t *testing.T, to failover.State) failover.Event {
	t.Helper()
	select {
	case e := <-c:
		if e.To != to || e.From == to {
			t.Fatalf("%v to %v (%v), want to %v", e.From, e.To, e.Err, to)
		}
		return e
	case <-time.After(20 * time.Second):
		t.Fatalf("never %v", to)
		return failover.Event{}
	}
}

// With a memory store as the secondary, limits hold while Redis is stopped. Once that
// is known, requests don't wait for it, and its return is detected in the background.
func TestMemoryBesideStoppedRedis(t *testing.T) {
	server := redistest.Start(t)
	changes, seen := make(transitions, 10), &events{}
	s := failover.New(outageStore(server), memstore.New(), failover.WithFailure(redisstore.IsFailure),
		failover.WithObserver(func(e failover.Event) { changes <- e }))
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.option()))
	// passed says how many of n requests passed that came at once; the others
	// were refused by the limit.
	passed := func(user string, n int) (passed int, longest time.Duration) {
		t.Helper()
		for _, a := range asAtOnce(n, apps, user) {
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

	server.Pause()
	late := punctual(t)
	n, longest := passed("during", 20)
	if most := outageTimeout + outageTimeout/4 + late(); n != 5 || longest > most {
		t.Errorf("%d of 5 passed, held for %v of %v", n, longest, outageTimeout)
	}
	if e := changes.await(t, failover.Open); !redisstore.IsFailure(e.Err) {
		t.Errorf("opened for %v", e.Err)
	}
	failures := s.Stats().Failures
	for i := range 10 {
		late := punctual(t)
		n, longest := passed(fmt.Sprint("open ", i), 20)
		if most := outageTimeout/4 + late(); n != 5 || longest > most {
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
	// Nobody asks for anything meanwhile.
	if e := changes.await(t, failover.Closed); e.Probes == 0 {
		t.Errorf("closed without a probe: %+v", e)
	}
	if n, _ := passed("before", 20); n != 0 {
		t.Errorf("Redis let %d more pass of a key that had had all", n)
	}
	if n, _ := passed("after", 20); n != 5 {
		t.Errorf("%d of 5 passed", n)
	}
	if stats := s.Stats(); stats.Opened != 1 || stats.State != failover.Closed || len(changes) > 0 {
		t.Errorf("%+v, and %d more changes", stats, len(changes))
	}
	if kinds := seen.kinds(); strings.Contains(kinds, "StoreFailed") {
		t.Errorf("requests were not decided: %s", kinds)
	}
}

// Without a secondary, a store behind a breaker fails at once, and the failure policy
// decides.
func TestBreakerWithoutMemory(t *testing.T) {
	server := redistest.Start(t)
	changes, seen := make(transitions, 10), &events{}
	var nobody store.Store
	s := failover.New(outageStore(server), nobody, failover.WithFailure(redisstore.IsFailure),
		failover.WithObserver(func(e failover.Event) { changes <- e }))
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.option(), stint.WithFailurePolicy(stint.FailClosed)))
	server.Pause()
	asAtOnce(20, apps, "u")
	changes.await(t, failover.Open)
	late := punctual(t)
	answers := asAtOnce(20, apps, "u")
	most := outageTimeout/4 + late()
	for _, a := range answers {
		if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || a.held > most {
			t.Errorf("%d after %v, %v", a.Code, a.held, a.Header())
		}
	}
	if e := seen.last(); e.Kind != stint.EventStoreFailed || !errors.Is(e.Err, failover.ErrOpen) {
		t.Errorf("%v %v", e.Kind, e.Err)
	}
	server.Resume()
	changes.await(t, failover.Closed)
	if a := ask(apps[0], "v"); a.Code != http.StatusOK || len(a.Header().Values("RateLimit")) == 0 {
		t.Errorf("%d %v", a.Code, a.Header())
	}
}
