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
	"sync/atomic"
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

func outageStore(server *redistest.Server, timeout redisstore.Option) *redisstore.Store {
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	return redisstore.New(rdb, timeout)
}

// while is a store that gives up after outageTimeout while it is told that the server
// hangs. At other times a busy machine may take as long as it needs.
type while struct {
	hangs          atomic.Bool
	patient, hasty store.Store
}

func newWhile(server *redistest.Server) *while {
	return &while{patient: outageStore(server, patient), hasty: outageStore(server, redisstore.WithTimeout(outageTimeout))}
}

func (w *while) now() store.Store {
	if w.hangs.Load() {
		return w.hasty
	}
	return w.patient
}

func (w *while) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return w.now().Take(ctx, charges, results)
}

func (w *while) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	return w.now().Settle(ctx, charges, results)
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
				of.apps = onAll(limiter(t, append(of.opts, byUser, stint.WithStore(s), of.seen.option())...))
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
							time.Sleep(5 * time.Millisecond)
						}
					}
				}
			}
			decides(t)
			for _, of := range policies {
				of.seen.mu.Lock()
				of.seen.all = nil
				of.seen.mu.Unlock()
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
				if len(of.seen.all) != len(answers[i]) {
					t.Errorf("%s: %d events of %d requests", of.name, len(of.seen.all), len(answers[i]))
				}
				for _, e := range of.seen.all {
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
	case <-time.After(time.Minute):
		t.Fatalf("never %v", to)
		return failover.Event{}
	}
}

// With a memory store as the secondary, limits hold while Redis is stopped. Once that
// is known, requests don't wait for it, and its return is detected in the background.
func TestMemoryBesideStoppedRedis(t *testing.T) {
	server, p := redistest.Start(t), asking{redistest.StartPulse(t)}
	changes, seen, primary := make(transitions, 10), &events{}, newWhile(server)
	s := failover.New(primary, memstore.New(), failover.WithFailure(redisstore.IsFailure),
		failover.WithObserver(func(e failover.Event) { changes <- e }))
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.option()))
	// passed says how many of n requests passed that came at once; the others
	// were refused by the limit.
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
	if e := changes.await(t, failover.Open); !redisstore.IsFailure(e.Err) {
		t.Errorf("opened for %v", e.Err)
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
	server, p := redistest.Start(t), asking{redistest.StartPulse(t)}
	changes, seen, primary := make(transitions, 10), &events{}, newWhile(server)
	var nobody store.Store
	s := failover.New(primary, nobody, failover.WithFailure(redisstore.IsFailure),
		failover.WithObserver(func(e failover.Event) { changes <- e }))
	defer s.Close()
	apps := onAll(limiter(t, stint.Rate(5, time.Hour, stint.WithName("rate")), byUser, stint.WithStore(s), seen.option(), stint.WithFailurePolicy(stint.FailClosed)))
	primary.hangs.Store(true)
	server.Pause()
	p.atOnce(20, apps, "u")
	changes.await(t, failover.Open)
	answers := p.atOnce(20, apps, "u")
	for _, a := range answers {
		if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || a.held > outageTimeout/2 {
			t.Errorf("%d after %v, %v", a.Code, a.held, a.Header())
		}
	}
	if e := seen.last(); e.Kind != stint.EventStoreFailed || !errors.Is(e.Err, failover.ErrOpen) {
		t.Errorf("%v %v", e.Kind, e.Err)
	}
	server.Resume()
	primary.hangs.Store(false)
	changes.await(t, failover.Closed)
	if a := p.ask(apps[0], "v"); a.Code != http.StatusOK || len(a.Header().Values("RateLimit")) == 0 {
		t.Errorf("%d %v", a.Code, a.Header())
	}
}
