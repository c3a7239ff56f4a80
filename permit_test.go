package stint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

func cost(n int64) stint.ChargeOption {
	return stint.WithCost(func(*http.Request) int64 { return n })
}

func TestSettle(t *testing.T) {
	// The rate has 10, the quota 100 left at first; a request costs 1.
	rate := func(o ...stint.RateOption) stint.Limit { return stint.Rate(10, time.Hour, o...) }
	quota := func(o ...stint.RateOption) stint.Limit { return stint.Quota(100, stint.Monthly, o...) }
	tests := []struct {
		name   string
		opts   []stint.Option
		cost   int64
		limits []string
		want   [2]int64 // left of rate and quota
		err    string
	}{
		{"all", []stint.Option{rate(), quota()}, 4, nil, [2]int64{6, 96}, ""},
		{"all but concurrency", []stint.Option{rate(), quota(), stint.Concurrency(3)}, 4, nil, [2]int64{6, 96}, ""},
		{"those with a cost", []stint.Option{rate(), quota(cost(7))}, 9, nil, [2]int64{9, 91}, ""},
		{"named", []stint.Option{rate(), quota(cost(7))}, 3, []string{"rate"}, [2]int64{7, 93}, ""},
		{"named twice", []stint.Option{rate(), quota()}, 3, []string{"rate", "rate"}, [2]int64{7, 99}, ""},
		{"refund", []stint.Option{rate(cost(5)), quota(cost(7))}, 0, nil, [2]int64{10, 100}, ""},
		{"into debt", []stint.Option{rate(), quota()}, 12, []string{"rate"}, [2]int64{0, 99}, ""},
		{"from nothing", []stint.Option{rate(cost(0)), quota(cost(0))}, 3, nil, [2]int64{7, 97}, ""},
		{"unknown", []stint.Option{rate(), quota()}, 4, []string{"nope"}, [2]int64{9, 99}, `no limit "nope"`},
		{"concurrency", []stint.Option{rate(), quota(), stint.Concurrency(3)}, 4, []string{"rate", "concurrency"}, [2]int64{9, 99}, `"concurrency" is a concurrency limit`},
		{"negative", []stint.Option{rate(), quota()}, -1, nil, [2]int64{9, 99}, "cost out of range: -1"},
		{"too large", []stint.Option{rate(), quota()}, store.MaxCost + 1, nil, [2]int64{9, 99}, "cost"},
		{"dry run", []stint.Option{rate(), quota(stint.WithDryRun(true))}, 4, nil, [2]int64{6, 96}, ""},
		{"dry run that was not charged", []stint.Option{rate(), quota(stint.WithDryRun(true), cost(1000))}, 4, nil, [2]int64{6, 100}, ""},
		{"limits that are not this one's", []stint.Option{rate(), quota()}, 5, []string{"rate", "daily"}, [2]int64{9, 99}, `no limit "daily"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(t, append(tt.opts, theKey)...)
			through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				err := p.Settle(r.Context(), tt.cost, tt.limits...)
				if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				d := p.Decision()
				if got := [2]int64{d.Limits[0].Remaining, d.Limits[1].Remaining}; got != tt.want {
					t.Errorf("the permit says that %d are left, want %d", got, tt.want)
				}
			})
			d, err := l.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if got := [2]int64{d.Limits[0].Remaining, d.Limits[1].Remaining}; got != tt.want {
				t.Errorf("%d left, want %d", got, tt.want)
			}
		})
	}
}

func TestSettleAgainAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, 10*time.Second))
		p := take(t, l, 4)
		for _, step := range []struct{ cost, left int64 }{{8, 2}, {1, 9}, {3, 7}, {0, 10}} {
			if err := p.Settle(t.Context(), step.cost); err != nil {
				t.Fatal(err)
			}
			if got := remaining(t, l); got != step.left {
				t.Errorf("settled to %d: %d left, want %d", step.cost, got, step.left)
			}
		}
		p = take(t, l, 4)
		p.Done()
		time.Sleep(3 * time.Second)
		take(t, l, 5) // 4 left
		if err := p.Settle(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := remaining(t, l); got != 5 { // time had given back 3 of the 4
			t.Errorf("%d left after a late refund, want 5", got)
		}
	})
}

func TestSettleFails(t *testing.T) {
	s, seen := newSpy(), &events{}
	l := limiter(t, theKey, stint.Rate(10, time.Hour, stint.WithName("rate")), stint.WithStore(s), seen.Option())
	p := take(t, l, 1)
	s.FailWith(errDown)
	err := p.Settle(t.Context(), 3)
	var se *stint.StoreError
	if !errors.As(err, &se) || !errors.Is(err, errDown) {
		t.Errorf("error %v", err)
	}
	if got := seen.Last(); got.Kind != stint.EventSettleFailed || !errors.Is(got.Err, errDown) {
		t.Errorf("event %v %v", got.Kind, got.Err)
	}
}

func TestNilPermit(t *testing.T) {
	var p *stint.Permit
	if p.Settle(t.Context(), 3) != nil || !p.Decision().Allowed || stint.FromContext(t.Context()) != nil {
		t.Error("a nil Permit is not harmless")
	}
	p.Done()
	p.Detach()()
}

// The next handler gets a request with the permit. It gets another writer only if a limit depends on the response.
func TestNext(t *testing.T) {
	refund := stint.WithSettle(stint.FailedOnly)
	for _, tt := range []struct {
		name          string
		opts          []stint.Option
		copies, wraps bool
	}{
		{"a rate", []stint.Option{ample()}, true, false},
		{"three limits", []stint.Option{ample(), stint.Quota(9, stint.Daily), stint.Concurrency(9)}, true, false},
		{"five limits", []stint.Option{ample(), stint.Quota(9, stint.Daily), stint.Quota(9, stint.Weekly), stint.Quota(9, stint.Monthly), stint.Concurrency(9)}, true, false},
		{"observed slots", []stint.Option{stint.Concurrency(2), stint.WithObserver(func(stint.Event) {})}, true, false},
		{"without a permit", []stint.Option{ample(), stint.WithoutPermit()}, false, false},
		{"slots, without a permit", []stint.Option{stint.Concurrency(2), stint.WithoutPermit()}, false, false},
		{"settled by the response", []stint.Option{ample(), refund}, true, true},
		{"settled, without a permit", []stint.Option{ample(), refund, stint.WithoutPermit()}, false, true},
		{"bandwidth", []stint.Option{stint.Bandwidth(1 << 20)}, true, true},
		{"exempt", []stint.Option{ample(), stint.WithSkip(func(*http.Request) bool { return true })}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			type key struct{}
			r, w := get("/"), httptest.NewRecorder()
			r = r.WithContext(context.WithValue(r.Context(), key{}, "its own"))
			runs := 0
			err := limiter(t, append(tt.opts, theKey)...).Admit(w, r, func(nw http.ResponseWriter, next *http.Request) {
				runs++
				if (next != r) != tt.copies || (stint.FromContext(next.Context()) != nil) != tt.copies {
					t.Errorf("another request: %v, with the permit %v", next != r, stint.FromContext(next.Context()))
				}
				if next.Context().Value(key{}) != "its own" || next.URL != r.URL {
					t.Error("the request has lost something")
				}
				if (nw != http.ResponseWriter(w)) != tt.wraps {
					t.Fatalf("a writer: %v, want %v", !tt.wraps, tt.wraps)
				}
				if tt.wraps {
					if got, ok := nw.(interface{ Unwrap() http.ResponseWriter }); !ok || got.Unwrap() != w {
						t.Error("the writer leads to another one")
					}
				}
				next.Pattern = "GET /"
			})
			if err != nil || runs != 1 || r.Pattern != "GET /" {
				t.Errorf("%v, %d runs, pattern %q", err, runs, r.Pattern)
			}
		})
	}
}

func TestSlotsComeBack(t *testing.T) {
	tests := []struct {
		name string
		next http.HandlerFunc
	}{
		{"return", func(http.ResponseWriter, *http.Request) {}},
		{"panic", func(http.ResponseWriter, *http.Request) { panic("at the disco") }},
		{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"done twice", func(_ http.ResponseWriter, r *http.Request) { stint.FromContext(r.Context()).Done() }},
		{"released twice", func(_ http.ResponseWriter, r *http.Request) {
			release := stint.FromContext(r.Context()).Detach()
			release()
			release()
		}},
		{"detached after done", func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			p.Done()
			p.Detach()()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, theKey, stint.Concurrency(2, stint.WithName("concurrency")), stint.WithStore(s))
			func() {
				defer func() { _ = recover() }()
				through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
					if got := remaining(t, l); got != 1 {
						t.Errorf("%d slots free within, want 1", got)
					}
					tt.next(w, r)
				})
			}()
			if got := remaining(t, l); got != 2 {
				t.Errorf("%d slots free, want 2", got)
			}
			if _, settles := s.Counts(); settles != 1 {
				t.Errorf("released in %d calls, want 1", settles)
			}
		})
	}
}

func TestSlotsComeBackWhenTheClientLeaves(t *testing.T) {
	s := newSpy() // its Settle fails under a context that has ended
	l := limiter(t, theKey, stint.Concurrency(1, stint.WithName("concurrency")), stint.WithStore(s))
	ctx, cancel := context.WithCancel(t.Context())
	through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) { cancel() })
	if got := remaining(t, l); got != 1 {
		t.Errorf("%d slots free, want 1", got)
	}
}

func TestDetach(t *testing.T) {
	l := limiter(t, theKey, stint.Concurrency(1))
	var release func()
	through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		release = stint.FromContext(r.Context()).Detach()
	})
	if got := codes(l, "GET", "/", 1); got != "429" {
		t.Errorf("%s while the slot is detached, want 429", got)
	}
	release()
	if got := codes(l, "GET", "/", 1); got != "200" {
		t.Errorf("%s after its release, want 200", got)
	}
}

// Done and Detach release the slots of outer limiters too. Those limiters then don't release them again.
func TestEndOfOuterPermits(t *testing.T) {
	for name, tt := range map[string]struct {
		do           func(p *stint.Permit) (release func())
		during, then string // whether others get a slot of the outer limiter
	}{
		"Done":              {func(p *stint.Permit) func() { p.Done(); p.Done(); return func() {} }, "free", "free"},
		"Detach":            {func(p *stint.Permit) func() { release := p.Detach(); p.Done(); return release }, "taken", "taken"},
		"Detach after Done": {func(p *stint.Permit) func() { p.Done(); return p.Detach() }, "free", "free"},
		"release at once":   {func(p *stint.Permit) func() { p.Detach()(); return func() {} }, "free", "free"},
		"nothing":           {func(*stint.Permit) func() { return func() {} }, "taken", "free"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inner := range []stint.Limit{ample(), stint.Concurrency(2), ample(stint.WithSettle(stint.FailedOnly))} {
				var counter inFlight
				outer := limiter(t, theKey, stint.Concurrency(2, stint.WithName("slots")), stint.WithObserver(counter.observe))
				free := func(want string) {
					t.Helper()
					if got := remaining(t, outer); got != map[string]int64{"free": 2, "taken": 1}[want] {
						t.Errorf("%d slots are free", got)
					}
				}
				release := func() {}
				mount(outer, mount(limiter(t, theKey, inner), func(_ http.ResponseWriter, r *http.Request) {
					release = tt.do(stint.FromContext(r.Context()))
					free(tt.during)
				}).ServeHTTP).ServeHTTP(httptest.NewRecorder(), get("/"))
				free(tt.then)
				release()
				release()
				free("free")
				if counter.begun != 1 || counter.now != 0 {
					t.Errorf("%d begun, %d in flight", counter.begun, counter.now)
				}
			}
		})
	}
}

// A hijacked connection of an upgrade holds its slot until it is closed, and any other until the handler has returned,
// unless the slot was released before.
func TestSlotsOfTakenConnections(t *testing.T) {
	const connect, upgrade, plain = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	nothing := func(*stint.Permit) {}
	for name, tt := range map[string]struct {
		request string
		before  func(*stint.Permit)
		held    bool
		wrapped bool // by an outer middleware
	}{
		"CONNECT":        {connect, nothing, true, false},
		"Upgrade":        {upgrade, nothing, true, false},
		"only by Unwrap": {upgrade, nothing, true, true},
		"neither":        {plain, nothing, false, false},
		"after Done":     {upgrade, (*stint.Permit).Done, false, false},
		"released":       {upgrade, func(p *stint.Permit) { p.Detach()() }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			conns := make(chan net.Conn, 1)
			ended := make(chan stint.Event, 1)
			l := limiter(t, theKey, stint.Concurrency(2, stint.WithName("slots")), stint.WithObserver(func(e stint.Event) {
				if e.Kind == stint.EventEnded {
					ended <- e
				}
			}))
			limited := mount(l, func(w http.ResponseWriter, r *http.Request) {
				tt.before(stint.FromContext(r.Context()))
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
				}
				conns <- conn
			})
			srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tt.wrapped {
					w = unwraps{w}
				}
				limited.ServeHTTP(w, r)
			}))
			client, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, _ = io.WriteString(client, tt.request)
			conn := <-conns
			if !tt.held {
				<-ended
			}
			if want := map[bool]int64{true: 1, false: 2}[tt.held]; remaining(t, l) != want || len(ended) > 0 {
				t.Errorf("%d slots free while it is open, want %d", remaining(t, l), want)
			}
			_ = conn.Close()
			_ = conn.Close()
			if tt.held {
				<-ended
			}
			if remaining(t, l) != 2 || len(ended) > 0 {
				t.Errorf("%d slots free once it is closed", remaining(t, l))
			}
		})
	}
}

// unwraps is a writer of a middleware: http.ResponseController finds the methods of the server's writer.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A deny handler that flushes first sends the status of the denial, also through a writer that has only Unwrap, and
// a limit that looks at the response sees the flush.
func TestFlushBehindUnwrap(t *testing.T) {
	var settled int
	l := limiter(t, theKey, stint.Rate(1, time.Hour, stint.WithSettle(func(_ *http.Request, status int, _ int64) int64 {
		settled = status
		return stint.AsCharged
	})), stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "later")
	})))
	h := mount(l, func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot) // too late
	})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		h.ServeHTTP(unwraps{unwraps{w}}, get("/"))
		if w.Code != want || !w.Flushed || want == http.StatusTooManyRequests && w.Body.String() != "later" {
			t.Errorf("got %d %q, want %d", w.Code, w.Body, want)
		}
	}
	if settled != http.StatusOK {
		t.Errorf("settled by %d", settled)
	}
}

// A handler may write its response after Detach, and release the slot on any goroutine. The slot is free from then on,
// and the whole response is settled.
func TestDetachedResponse(t *testing.T) {
	type handler = func(w http.ResponseWriter, release func()) (later func())
	answer := func(w http.ResponseWriter) {
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "ok")
	}
	now := func(w http.ResponseWriter, release func()) (later func()) { release(); answer(w); return nil }
	for name, tt := range map[string]struct {
		do   handler
		want string
	}{
		"released before the answer": {now, "202 2"},
		"while it is written": {func(w http.ResponseWriter, release func()) (later func()) {
			done := make(chan struct{})
			go func() { defer close(done); release() }()
			answer(w)
			return func() { <-done }
		}, "202 2"},
		"when the handler has returned": {func(w http.ResponseWriter, release func()) (later func()) { answer(w); return release }, "202 2"},
		"before a panic":                {func(w http.ResponseWriter, release func()) (later func()) { release(); panic("handler") }, "500 0"},
	} {
		t.Run(name, func(t *testing.T) {
			overStores(t, func(t *testing.T, s store.Store) {
				var outcomes []string
				var ended atomic.Int32 // on the handler's goroutine, and on its own
				l := limiter(t, theKey, stint.WithStore(s),
					stint.Concurrency(1, stint.WithName("slots")), stint.AdaptiveConcurrency(1, 1, stint.WithName("adaptive")), stint.Bandwidth(1<<20, stint.WithName("bytes")),
					stint.Rate(10, 100*time.Hour, stint.WithName("rate"), stint.WithSettle(func(_ *http.Request, status int, n int64) int64 {
						outcomes = append(outcomes, fmt.Sprint(status, n))
						return 4
					})),
					stint.WithObserver(func(e stint.Event) {
						if e.Kind == stint.EventEnded {
							ended.Add(1)
						}
					}))
				var later func()
				func() {
					defer func() { _ = recover() }()
					through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
						release := stint.FromContext(r.Context()).Detach()
						later = tt.do(w, func() {
							release()
							release()
							if p, err := l.Take(context.Background(), "k", 1); err != nil {
								t.Errorf("the slot isn't free: %v", err)
							} else {
								p.Done()
							}
						})
					})
				}()
				if later != nil {
					later()
				}
				if got := strings.Join(outcomes, ", "); got != tt.want || ended.Load() != 2 {
					t.Errorf("settled for %q, want %q; %d ended", got, tt.want, ended.Load())
				}
				if d, err := l.Peek(t.Context(), "k"); err != nil || d.Limits[1].Remaining != 5 {
					t.Errorf("%+v, %v", d, err)
				}
			})
		})
	}
}

// Event.Held is the time for which slots were held.
func TestHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		limit stint.Limit
		want  time.Duration
	}{
		"a slot":          {stint.Concurrency(1), time.Second},
		"an adaptive one": {stint.AdaptiveConcurrency(1, 1), time.Second},
		"a turn":          {stint.Rate(1, time.Minute, stint.WithMaxWait(time.Hour)), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held []time.Duration
				l := limiter(t, theKey, tt.limit, stint.WithObserver(func(e stint.Event) {
					if e.Kind == stint.EventEnded {
						held = append(held, e.Held)
					}
				}))
				for range 2 {
					p := take(t, l, 1)
					time.Sleep(time.Second)
					p.Done()
				}
				if !slices.Equal(held, []time.Duration{tt.want, tt.want}) {
					t.Errorf("held for %v, want %v", held, tt.want)
				}
			})
		})
	}
}

func TestDoneFromManyGoroutines(t *testing.T) {
	s := newSpy()
	l := limiter(t, theKey, stint.Concurrency(5, stint.WithName("concurrency")), stint.WithStore(s))
	p := take(t, l, 2)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(p.Done)
		wg.Go(func() { p.Detach()() })
		wg.Go(func() { p.Decision() })
	}
	wg.Wait()
	if _, settles := s.Counts(); settles != 1 || remaining(t, l) != 5 {
		t.Errorf("%d releases, %d free", settles, remaining(t, l))
	}
}

// Several goroutines may settle a permit while inner limiters read its charges.
func TestSettleFromManyGoroutines(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1000, time.Hour))
	inner := stint.Must(l.With(stint.Rate(1000, time.Hour, stint.WithName("inner"))))
	through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		p := stint.FromContext(r.Context())
		var wg sync.WaitGroup
		for range 4 {
			for _, names := range [][]string{nil, {"rate"}} {
				wg.Go(func() {
					if err := p.Settle(r.Context(), 3, names...); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() { through(inner, r, nil) })
		}
		wg.Wait()
	})
	if got := remaining(t, l); got != 997 {
		t.Errorf("%d left, want 997", got)
	}
}

func TestDoneWithoutSlotsAsksNobody(t *testing.T) {
	s := newSpy()
	l := limiter(t, theKey, stint.Rate(5, time.Second, stint.WithName("rate")), stint.Quota(5, stint.Daily, stint.WithName("daily")), stint.WithStore(s))
	codes(l, "GET", "/", 2)
	if takes, settles := s.Counts(); takes != 2 || settles != 0 {
		t.Errorf("%d takes and %d settles for 2 requests", takes, settles)
	}
}

func TestDenialChargesNothing(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(10, time.Hour), stint.Concurrency(1), stint.Quota(2, stint.Monthly))
	through(l, get("/"), func(http.ResponseWriter, *http.Request) {
		if got := codes(l, "GET", "/", 3); got != "429 429 429" {
			t.Error(got)
		}
	})
	d, _ := l.Peek(t.Context(), "k")
	if d.Limits[0].Remaining != 9 || d.Limits[1].Remaining != 1 || d.Limits[2].Remaining != 1 {
		t.Errorf("%+v: denials were charged", d.Limits)
	}
}

func TestNesting(t *testing.T) {
	base := limiter(t, theKey, stint.Rate(10, time.Hour))
	child, err := base.With(stint.Rate(5, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	inside := func(r *http.Request) *http.Request { return r }
	run := func(outer, inner *stint.Limiter, wrap func(*http.Request) *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mount(outer, func(w http.ResponseWriter, r *http.Request) {
			mount(inner, func(_ http.ResponseWriter, r *http.Request) {
				if p := stint.FromContext(r.Context()); p == nil || !p.Decision().Allowed {
					t.Errorf("no permit within: %v", p)
				}
			}).ServeHTTP(w, wrap(r))
		}).ServeHTTP(w, get("/"))
		return w
	}
	w := run(base, base, inside)
	if got := remaining(t, base); got != 9 || len(w.Header().Values("RateLimit")) != 1 {
		t.Errorf("mounted twice: %d left, want 9; fields %v", got, w.Header())
	}
	w = run(base, child, inside)
	if got := remaining(t, base); got != 8 {
		t.Errorf("a child within its parent: %d left, want 8", got)
	}
	if got := w.Header().Values("RateLimit"); len(got) != 2 || strip(got[1]) != `"rate-2"` {
		t.Errorf("fields %q, want a line for what is added", got)
	}
	if got := w.Header().Values("RateLimit-Policy"); len(got) != 2 || got[1] != `"rate-2";q=5;w=3600` {
		t.Errorf("policies %q", got)
	}
	run(child, base, inside)
	if got := remaining(t, base); got != 7 {
		t.Errorf("a parent within its child: %d left, want 7", got)
	}
	// Three deep, with a middleware's own context in between.
	type key struct{}
	run(base, limiter(t, theKey, stint.Concurrency(5)), func(r *http.Request) *http.Request {
		r = r.WithContext(context.WithValue(r.Context(), key{}, 1))
		run := httptest.NewRecorder()
		mount(base, nil).ServeHTTP(run, r)
		return r
	})
	if got := remaining(t, base); got != 6 {
		t.Errorf("%d left, want 6", got)
	}
}

// The permit in a handler has the limits of all limiters that the request has passed.
func TestPermitOfNestedLimiters(t *testing.T) {
	tokens := limiter(t, theKey, stint.Rate(1000, time.Hour, stint.WithName("tokens"), cost(100)), stint.Rate(50, time.Hour))
	child, err := tokens.With(stint.Rate(20, time.Hour, stint.WithName("search")))
	if err != nil {
		t.Fatal(err)
	}
	slots := limiter(t, theKey, stint.Concurrency(3))
	h := mount(tokens, mount(slots, mount(child, func(_ http.ResponseWriter, r *http.Request) {
		p := stint.FromContext(r.Context())
		left := func() (s string) {
			for _, l := range p.Decision().Limits {
				s += fmt.Sprint(l.Name, " ", l.Remaining, " ")
			}
			return s
		}
		check := func(step, want string, err error) {
			t.Helper()
			if got := left(); got != want || err != nil {
				t.Errorf("%s: %s(%v), want %s", step, got, err, want)
			}
		}
		check("admitted", "tokens 900 rate 49 concurrency 2 search 19 ", nil)
		check("those with a cost", "tokens 670 rate 49 concurrency 2 search 19 ", p.Settle(r.Context(), 330))
		check("named", "tokens 670 rate 45 concurrency 2 search 15 ", p.Settle(r.Context(), 5, "search", "rate"))
		if d := p.Decision(); d.Limit != "concurrency" || d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		if err := p.Settle(r.Context(), 5, "concurrency"); err == nil {
			t.Error("slots are settled")
		}
	}).ServeHTTP).ServeHTTP)
	h.ServeHTTP(httptest.NewRecorder(), get("/"))
}

func TestPermitContext(t *testing.T) {
	type key struct{}
	l := limiter(t, theKey, stint.Rate(10, time.Hour))
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Hour)
	through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
		in := r.Context()
		if in.Value(key{}) != "v" {
			t.Error("values of the request's context are gone")
		}
		if _, ok := in.Deadline(); !ok || in.Err() != nil {
			t.Error("its deadline is gone")
		}
		derived, stop := context.WithCancel(in)
		defer stop()
		cancel()
		<-derived.Done()
		if in.Err() == nil {
			t.Error("its cancellation is gone")
		}
	})
}

func TestWithoutPermit(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(10, time.Hour), stint.WithoutPermit())
	r := get("/")
	through(l, r, func(_ http.ResponseWriter, got *http.Request) {
		if got != r || stint.FromContext(got.Context()) != nil {
			t.Error("the request carries something")
		}
	})
	// Slots have to be given back all the same.
	l = limiter(t, theKey, stint.Concurrency(1), stint.WithoutPermit())
	if got := codes(l, "GET", "/", 3); got != "200 200 200" {
		t.Error(got)
	}
}

func TestFieldsOfRequestsDontMix(t *testing.T) {
	// Values share blocks and strings: none may show in another response.
	l := limiter(t, theKey, stint.Rate(1000, time.Hour), stint.WithoutPermit())
	var all []http.Header
	for range 200 {
		w := through(l, get("/"), nil)
		w.Header().Add("RateLimit", "x") // by a handler further in
		all = append(all, w.Header())
	}
	seen := map[string]bool{}
	for _, h := range all {
		v := h.Values("RateLimit")
		if len(v) != 2 || v[1] != "x" || seen[v[0]] || h.Get("RateLimit-Policy") != `"rate";q=1000;w=3600` {
			t.Fatalf("fields %v", h)
		}
		seen[v[0]] = true
	}
}

// A permit has room for two limits, and takes more.
func TestManyLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []stint.Option
		for range 6 {
			limits = append(limits, stint.Rate(2, time.Minute, stint.WithMaxWait(time.Minute)))
		}
		l := limiter(t, append(limits, theKey)...)
		through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
			if d := stint.FromContext(r.Context()).Decision(); len(d.Limits) != 6 || d.Limits[5].Remaining != 1 {
				t.Errorf("%+v", d)
			}
		})
		take(t, l, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		time.AfterFunc(10*time.Second, cancel)
		if _, err := l.Wait(ctx, "k", 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		d, err := l.Peek(t.Context(), "k")
		if err != nil || d.Limits[5].ResetAfter != 50*time.Second {
			t.Errorf("%+v, %v: a canceled wait left a trace", d, err)
		}
		if _, err := l.Take(t.Context(), "k", 7); len(denied(t, err).Decision.Limits) != 6 {
			t.Error(err)
		}
	})
}

func TestReleaseFails(t *testing.T) {
	s, seen := newSpy(), &events{}
	l := limiter(t, theKey, stint.Concurrency(1, stint.WithMaxWait(time.Minute), stint.WithName("concurrency")), stint.WithStore(s), seen.Option())
	p := take(t, l, 1)
	s.FailWith(errDown)
	p.Done()
	e := seen.Last()
	if e.Kind != stint.EventSettleFailed || !errors.Is(e.Err, errDown) || !strings.Contains(e.Err.Error(), errDown.Error()) {
		t.Errorf("event %v %v", e.Kind, e.Err)
	}
}

// A settlement that may have been made isn't made again by the handler or at the end. The limit is 10, and each
// request costs 5 at first.
func TestSettlementOfUnknownOutcome(t *testing.T) {
	lost := func(c *asks) error { return errors.Join(c.Pass(), errDown) }
	panics := func(c *asks) error { panic(errors.Join(c.Pass(), errDown)) }
	unmade := func(*asks) error { return store.NotMade(errDown) }
	byHand := func(ctx context.Context, p *stint.Permit) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = v.(error)
			}
		}()
		return p.Settle(ctx, 0)
	}
	for _, tt := range []struct {
		name  string
		fail  func(*asks) error
		again func(context.Context, *stint.Permit) error
		with  int64 // what WithSettle says
		want  int64 // left of 10, of which others have taken 5
		err   bool  // of again
	}{
		{"answer lost, then WithSettle", lost, nil, 0, 5, false},
		{"answer lost, then settled again", lost, byHand, stint.AsCharged, 5, true},
		{"answer lost, then settled again and WithSettle", lost, byHand, 0, 5, true},
		{"panic, then WithSettle", panics, nil, 0, 5, false},
		{"not made, then WithSettle", unmade, nil, 0, 5, false},
		{"not made, then settled again", unmade, byHand, 7, 5, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSpy()
			l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 100*time.Hour, stint.WithName("rate"), cost(5), settleTo(tt.with)))
			through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				take(t, l, 5)
				s.OnSettle = tt.fail
				if err := byHand(r.Context(), p); !errors.Is(err, errDown) {
					t.Errorf("the first settlement: %v", err)
				}
				s.OnSettle = nil
				if tt.again != nil {
					if err := tt.again(r.Context(), p); (err != nil) != tt.err {
						t.Errorf("settled again: %v", err)
					}
				}
				if got := p.Decision().Limits[0].Cost; got < 0 {
					t.Errorf("the request costs %d", got)
				}
			})
			if got := remaining(t, l); got != tt.want {
				t.Errorf("%d left, want %d", got, tt.want)
			}
		})
	}
}

// As above, if the outcome of the settlement after the handler isn't known.
func TestLateSettlementOfUnknownOutcome(t *testing.T) {
	s := newSpy()
	l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 100*time.Hour, stint.WithName("rate"), cost(5), settleTo(0)))
	var p *stint.Permit
	through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		p = stint.FromContext(r.Context())
		take(t, l, 5)
		s.OnSettle = func(c *asks) error { return errors.Join(c.Pass(), errDown) }
	})
	s.OnSettle = nil
	if err := p.Settle(t.Context(), 0); err == nil {
		t.Error("settled again")
	}
	if got := remaining(t, l); got != 5 {
		t.Errorf("%d left, want 5", got)
	}
}

// A settlement is made even if the context has ended. It has the values of the context, and a timeout of its own.
func TestSettleAfterTheContext(t *testing.T) {
	type key struct{}
	ends := []struct {
		name string
		end  func(context.Context) (context.Context, context.CancelFunc)
	}{
		{"canceled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}},
		{"deadline over", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now().Add(-time.Second))
		}},
	}
	outside := func(t *testing.T, l *stint.Limiter, ctx context.Context) {
		if err := take(t, l, 5).Settle(ctx, 2); err != nil {
			t.Error(err)
		}
	}
	inHandler := func(t *testing.T, l *stint.Limiter, ctx context.Context) {
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		through(l, get("/").WithContext(ctx), func(_ http.ResponseWriter, r *http.Request) {
			cancel(errors.New("the client has left"))
			if err := stint.FromContext(r.Context()).Settle(r.Context(), 2); err != nil {
				t.Error(err)
			}
		})
	}
	afterHandler := func(_ *testing.T, l *stint.Limiter, ctx context.Context) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) { cancel() })
	}
	hows := []struct {
		name   string
		with   stint.ChargeOption
		settle func(*testing.T, *stint.Limiter, context.Context)
	}{
		{"Take", settleTo(stint.AsCharged), outside},
		{"request", settleTo(stint.AsCharged), inHandler},
		{"WithSettle", settleTo(2), afterHandler},
	}
	for _, ended := range ends {
		for _, how := range hows {
			var seen []context.Context
			network := func() *spy {
				return &spy{Store: memstore.New(), OnSettle: func(c *asks) error {
					seen = append(seen, c.Ctx)
					return c.Pass()
				}}
			}
			for name, s := range map[string]store.Store{
				"memory":   memstore.New(),
				"network":  network(),
				"failover": failover.New(network(), nil),
			} {
				t.Run(ended.name+"/"+how.name+"/"+name, func(t *testing.T) {
					seen = nil
					l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 100*time.Hour, stint.WithName("rate"), cost(5), how.with))
					ctx, cancel := ended.end(context.WithValue(t.Context(), key{}, "v"))
					defer cancel()
					how.settle(t, l, ctx)
					if got := remaining(t, l); got != 8 {
						t.Errorf("%d left, want 8", got)
					}
					if name == "memory" {
						return
					}
					if len(seen) != 1 {
						t.Fatalf("the store was called %d times to settle", len(seen))
					}
					until, bounded := seen[0].Deadline()
					if wait := time.Until(until); seen[0].Value(key{}) != "v" || !bounded || wait > 2*time.Second {
						t.Errorf("the store got %v, to end in %v", seen[0], wait)
					}
				})
			}
		}
	}
}

// What a request allocates for its permit fits the allocator's class of 512 bytes.
func TestPermitFitsItsSizeClass(t *testing.T) {
	if stint.CarriedSize > 512 {
		t.Errorf("a permit and its request take %d bytes", stint.CarriedSize)
	}
}
