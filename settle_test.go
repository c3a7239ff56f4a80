package stint_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
)

func settleTo(n int64) stint.ChargeOption {
	return stint.WithSettle(func(*http.Request, int, int64) int64 { return n })
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func panicking(v any, first http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if first != nil {
			first(w, r)
		}
		panic(v)
	}
}

// The rate has 10; a request costs 3 at first.
func TestWithSettle(t *testing.T) {
	byBytes := stint.WithSettle(func(_ *http.Request, _ int, written int64) int64 { return written })
	byStatus := stint.WithSettle(func(_ *http.Request, status int, _ int64) int64 {
		return map[int]int64{101: 1, 200: 2, 204: 4, 500: 5, 503: 6}[status]
	})
	served := answering(200, "served")
	tests := []struct {
		name string
		with stint.ChargeOption
		do   http.HandlerFunc
		want int64 // left
	}{
		{"below", settleTo(1), served, 9},
		{"to nothing", settleTo(0), served, 10},
		{"the same", settleTo(3), served, 7},
		{"above", settleTo(8), served, 2},
		{"far above", settleTo(1000), served, 0},
		{"as charged", settleTo(stint.AsCharged), served, 7},
		{"negative", settleTo(-2), served, 7},
		{"too much", settleTo(store.MaxCost + 1), served, 7},
		{"failed only, and it succeeds", stint.WithSettle(stint.FailedOnly), served, 10},
		{"failed only, and it redirects", stint.WithSettle(stint.FailedOnly), answering(303, ""), 10},
		{"failed only, and it fails", stint.WithSettle(stint.FailedOnly), answering(401, "no"), 7},
		{"refund on", stint.WithSettle(stint.RefundOn(304, 503)), answering(503, ""), 10},
		{"refund on another", stint.WithSettle(stint.RefundOn(304, 503)), served, 7},
		{"not modified", stint.WithSettle(stint.RefundOn(304, 503)), answering(304, ""), 10},
		{"bytes", byBytes, served, 4},
		{"bytes in pieces", byBytes, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			_, _ = io.WriteString(w, "b")
			_, _ = io.Copy(w, strings.NewReader("cde"))
		}, 5},
		{"nothing written", byStatus, func(http.ResponseWriter, *http.Request) {}, 8},
		{"early hints", byStatus, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNoContent)
		}, 6},
		{"the first status", byStatus, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 8},
		{"panic", byStatus, panicking("boom", nil), 5},
		{"panic after an answer", byStatus, panicking("boom", answering(200, "")), 5},
		{"abort", byStatus, panicking(http.ErrAbortHandler, nil), 5},
		{"abort of an answer", byStatus, panicking(http.ErrAbortHandler, answering(200, "part")), 8},
		{"the handler settles", settleTo(0), func(w http.ResponseWriter, r *http.Request) {
			if err := stint.FromContext(r.Context()).Settle(r.Context(), 6); err != nil {
				t.Error(err)
			}
		}, 4},
		{"the handler settles to the same", settleTo(0), func(w http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), 3)
		}, 7},
		{"the handler fails to settle", settleTo(0), func(w http.ResponseWriter, r *http.Request) {
			_ = stint.FromContext(r.Context()).Settle(r.Context(), -3)
		}, 10},
		{"done twice", settleTo(1), func(_ http.ResponseWriter, r *http.Request) {
			stint.FromContext(r.Context()).Done()
			stint.FromContext(r.Context()).Done()
		}, 9},
		{"detached, and released twice", settleTo(1), func(_ http.ResponseWriter, r *http.Request) {
			release := stint.FromContext(r.Context()).Detach()
			release()
			release()
		}, 9},
		{"detached, and not released", settleTo(1), func(_ http.ResponseWriter, r *http.Request) {
			stint.FromContext(r.Context()).Detach()
		}, 9},
		{"settled again afterwards", settleTo(1), func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			p.Done()
			_ = p.Settle(r.Context(), 4)
		}, 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			overStores(t, func(t *testing.T, s store.Store) {
				l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 100*time.Hour, cost(3), tt.with, stint.WithName("rate")))
				func() {
					defer func() { _ = recover() }()
					through(l, get("/"), tt.do)
				}()
				if got := remaining(t, l); got != tt.want {
					t.Errorf("%d left, want %d", got, tt.want)
				}
			})
		})
	}
}

// A request whose client leaves before the answer keeps its cost.
func TestFailedOnlyCountsTheUnanswered(t *testing.T) {
	checks := 0
	leave := context.CancelFunc(func() {})
	h := mount(limiter(t, stint.Rate(1, time.Hour), theKey, stint.WithSettle(stint.FailedOnly)), func(http.ResponseWriter, *http.Request) {
		checks++
		leave()
	})
	for range 30 {
		ctx, left := context.WithCancel(t.Context())
		leave = left
		h.ServeHTTP(httptest.NewRecorder(), get("/").WithContext(ctx))
		left()
	}
	if checks != 1 {
		t.Errorf("%d checks by clients that left, want 1 an hour", checks)
	}
}

func TestSettleWithoutAPermitInTheContext(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(10, time.Hour), settleTo(4), stint.WithoutPermit())
	through(l, get("/"), answering(200, ""))
	if got := remaining(t, l); got != 6 {
		t.Errorf("%d left, want 6", got)
	}
}

func TestSettleOutsideHTTP(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(10, time.Hour), settleTo(4))
	take(t, l, 2).Done()
	if got := remaining(t, l); got != 8 {
		t.Errorf("%d left, want 8: there is no response to settle by", got)
	}
}

// The response to HEAD has no body, whatever the handler writes.
func TestSettleHEAD(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(10, time.Hour), stint.WithSettle(func(_ *http.Request, status int, written int64) int64 {
		return int64(status)/100 + written
	}))
	through(l, httptest.NewRequest("HEAD", "/", nil), answering(200, "served"))
	if got := remaining(t, l); got != 8 {
		t.Errorf("%d left, want 8", got)
	}
}

// A debt delays the next request until it is paid.
func TestDebtDelaysTheNext(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 10*time.Hour, stint.WithName("rate")), settleTo(14))
		start := time.Now()
		through(l, get("/"), answering(200, ""))
		w := through(l, get("/"), answering(200, ""))
		gone := int(time.Since(start)/time.Second) + 1
		if got, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || w.Code != 429 || got > 18000 || got < 18000-gone {
			t.Errorf("got %d, Retry-After %d, %v, want 429 and 5 hours: 4 owed and 1 asked for", w.Code, got, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, 10*time.Second), stint.WithMaxWait(time.Minute), settleTo(14))
		through(l, get("/"), answering(200, ""))
		start := time.Now()
		through(l, get("/"), answering(200, ""))
		if got := time.Since(start); got != 5*time.Second {
			t.Errorf("the next waited %v, want 5s", got)
		}
	})
}

// A refund goes to the window of the charge, not to a later one. The test repeats with longer windows until one is
// longer than the reads of this machine take.
func TestRefundStaysInItsWindow(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		for span := 50 * time.Millisecond; ; span *= 2 {
			l := limiter(t, theKey, stint.WithStore(s), stint.Quota(10, stint.Every(span), stint.WithName("quota-"+span.String())))
			old := take(t, l, 6)
			eventually(t, func() bool { return remaining(t, l) == 10 }) // the next window
			start := time.Now()
			now := take(t, l, 5)
			for range 2 { // twice does nothing either
				if err := old.Settle(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			left := remaining(t, l)
			if time.Since(start) >= now.Decision().ResetAfter {
				continue // that may have been another window
			}
			if left != 5 {
				t.Errorf("%d left, want 5: the refund belongs to the window before", left)
			}
			return
		}
	})
}

// Settling a charge whose state has expired refunds nothing and returns no error.
func TestSettleAfterExpiry(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 10*time.Millisecond, stint.WithName("rate")))
		p := take(t, l, 10)
		eventually(t, func() bool { return remaining(t, l) == 10 })
		for _, cost := range []int64{0, 4, 0} {
			if err := p.Settle(t.Context(), cost); err != nil {
				t.Error(err)
			}
			if got := remaining(t, l); got > 10 {
				t.Errorf("%d left of 10", got)
			}
		}
	})
}

// Releasing the slot and settling the cost take one call of the store, even if the client has left.
func TestSettleIsOneCall(t *testing.T) {
	s, seen := newSpy(), &events{} // its Settle fails under a context that has ended
	asked := 0
	l := limiter(t, theKey, stint.Concurrency(1, stint.WithName("concurrency")), stint.Rate(10, time.Hour, stint.WithName("rate")), stint.Quota(100, stint.Monthly, stint.WithName("monthly")), stint.WithStore(s), seen.Option(),
		stint.WithSettle(func(r *http.Request, status int, written int64) int64 {
			if asked++; r.Context().Err() == nil || stint.FromContext(r.Context()) == nil || status != 202 || written != 4 {
				t.Errorf("asked of %v: %d, %d bytes", r.Context().Err(), status, written)
			}
			return 4
		}))
	ctx, cancel := context.WithCancel(t.Context())
	through(l, get("/").WithContext(ctx), func(w http.ResponseWriter, r *http.Request) {
		cancel()
		answering(202, "part")(w, r)
	})
	if _, settles := s.Counts(); settles != 1 || asked != 1 {
		t.Errorf("%d calls to settle, asked %d times, want one of each", settles, asked)
	}
	e := seen.Last()
	if e.Kind != stint.EventSettled || e.Request == nil || len(e.Decision.Limits) != 3 ||
		e.Decision.Limits[1].Remaining != 6 || e.Decision.Limits[2].Remaining != 96 {
		t.Errorf("got event %v with %+v", e.Kind, e.Decision)
	}
	if got := remaining(t, l); got != 1 {
		t.Errorf("%d slots free, want 1", got)
	}
}

func TestSettleFailsAtTheEnd(t *testing.T) {
	tests := []struct {
		name string
		cost int64
		fail error
		want error
	}{
		{"the store", 4, errDown, errDown},
		{"the cost", -2, nil, store.ErrCost},
	}
	for _, tt := range tests {
		s, seen := newSpy(), &events{}
		l := limiter(t, theKey, stint.Rate(10, time.Hour, stint.WithName("rate")), stint.WithStore(s), seen.Option(), settleTo(tt.cost))
		w := through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
			s.FailWith(tt.fail)
			answering(200, "served")(w, r)
		})
		s.FailWith(nil)
		if e := seen.Last(); e.Kind != stint.EventSettleFailed || !errors.Is(e.Err, tt.want) || w.Body.String() != "served" || remaining(t, l) != 9 {
			t.Errorf("%s: event %v %v, %d left", tt.name, e.Kind, e.Err, remaining(t, l))
		}
	}
}

// A panic in a function of the application loses no slot.
func TestSettlePanics(t *testing.T) {
	l := limiter(t, theKey, stint.Concurrency(1), stint.Rate(10, time.Hour),
		stint.WithSettle(func(*http.Request, int, int64) int64 { panic("at the end") }))
	defer func() {
		if v := recover(); v != "at the end" {
			t.Errorf("recovered %v", v)
		}
		if got := remaining(t, l); got != 1 {
			t.Errorf("%d slots free, want 1", got)
		}
	}()
	through(l, get("/"), answering(200, ""))
}

// A complete response with a Content-Length is sent before the store is called.
func TestSettleComesBehindTheResponse(t *testing.T) {
	until := make(chan struct{})
	s := newSpy()
	s.OnSettle = func(c *asks) error {
		<-until
		return c.Pass()
	}
	l := limiter(t, theKey, stint.Rate(10, time.Hour, stint.WithName("rate")), settleTo(4), stint.WithStore(s))
	srv := serve(t, mount(l, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "6")
		_, _ = io.WriteString(w, "served")
	}))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	close(until)
	if err != nil || string(body) != "served" {
		t.Errorf("got %q, %v", body, err)
	}
	eventually(t, func() bool { return remaining(t, l) == 6 })
}

// Two nested limiters, each with a WithSettle of its own.
func TestSettleNested(t *testing.T) {
	outer := limiter(t, theKey, stint.Rate(100, time.Hour), settleTo(7))
	inner, err := outer.With(stint.Rate(10, time.Hour, stint.WithName("inner"), settleTo(4)))
	if err != nil {
		t.Fatal(err)
	}
	mount(outer, mount(inner, answering(200, "x")).ServeHTTP).ServeHTTP(httptest.NewRecorder(), get("/"))
	d, err := inner.Peek(t.Context(), "k")
	if err != nil || d.Limits[0].Remaining != 93 || d.Limits[1].Remaining != 6 {
		t.Errorf("%+v, %v, want 93 and 6 left", d.Limits, err)
	}
}

// Slots may be released on another goroutine while the handler runs. The response is settled when the handler returns,
// on its goroutine.
func TestSettleAfterAnEarlyEnd(t *testing.T) {
	for name, early := range map[string]func(p *stint.Permit){
		"Done":            (*stint.Permit).Done,
		"Done and Detach": func(p *stint.Permit) { p.Done(); p.Detach()() },
		"release":         func(p *stint.Permit) { p.Detach()() },
		"never released":  func(p *stint.Permit) { p.Detach() },
		"Done while it is written": func(p *stint.Permit) {
			go p.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := limiter(t, theKey, stint.Rate(2, time.Hour, stint.WithName("login"), stint.WithSettle(stint.FailedOnly)),
				stint.AdaptiveConcurrency(9, 9, stint.WithName("adaptive")), stint.Bandwidth(1<<20, stint.WithName("bytes")),
				stint.Concurrency(9, stint.WithName("slots")))
			login := func(status int) int {
				return through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
					early(stint.FromContext(r.Context()))
					w.WriteHeader(status)
					for range 100 {
						_, _ = w.Write([]byte("body"))
					}
				}).Code
			}
			for i, want := range []int{200, 200, 200, 401, 200, 401, 429} {
				if got := login(min(want, 401)); got != want {
					t.Errorf("request %d: %d, want %d", i, got, want)
				}
			}
		})
	}
}

func TestSettleAfterHijack(t *testing.T) {
	type end struct {
		status  int
		written int64
	}
	ends := make(chan end, 1)
	l := limiter(t, theKey, stint.Rate(10, time.Hour), stint.WithSettle(func(_ *http.Request, status int, written int64) int64 {
		ends <- end{status, written}
		return 0
	}))
	srv := serve(t, mount(l, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_ = conn.Close()
	}))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := <-ends; got != (end{101, 0}) {
		t.Errorf("settled by %+v, want 101 and nothing", got)
	}
}

// Remaining of a decision is that of the limit with the least left; Status is that of the limit named.
func TestDecisionStatus(t *testing.T) {
	l := limiter(t, stint.Rate(100, time.Minute, stint.WithName("tokens")), stint.Concurrency(4, stint.WithName("slots")),
		stint.WithKey(stint.GivenKey()))
	p, err := l.Take(context.Background(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	tokens, ok := p.Decision().Status("tokens")
	if !ok || tokens.Name != "tokens" || tokens.Remaining != 99 {
		t.Errorf("tokens: %+v, %v", tokens, ok)
	}
	if other, ok := p.Decision().Status("token"); ok || other != (stint.LimitStatus{}) {
		t.Errorf("a limit that isn't there: %+v, %v", other, ok)
	}
	if _, ok := (stint.Decision{}).Status("tokens"); ok {
		t.Error("a decision without limits has one")
	}
}

// The decision of a permit has the settled costs.
func TestDecisionAfterSettle(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), stint.Rate(10, 100*time.Hour, stint.WithName("rate")), stint.Concurrency(3, stint.WithName("slots")))
		p := take(t, l, 2)
		defer p.Done()
		for _, cost := range []int64{2, 5, 0} {
			if err := p.Settle(t.Context(), cost); err != nil {
				t.Fatal(err)
			}
			if all := p.Decision().Limits; all[0].Cost != cost || all[1].Cost != 2 {
				t.Errorf("settled to %d, but the decision says %d, and %d slots", cost, all[0].Cost, all[1].Cost)
			}
		}
	})
}

// If a function of WithSettle returns a cost out of range, that is reported, and other limits are settled.
func TestSettleBadlyBesideSettle(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1000, time.Hour, settleTo(-5)))
	var settled sync.WaitGroup
	through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		p, begun := stint.FromContext(r.Context()), make(chan struct{})
		settled.Go(func() {
			close(begun)
			for cost := range int64(100) {
				if err := p.Settle(context.Background(), cost); err != nil {
					t.Error(err)
				}
			}
		})
		<-begun
	})
	settled.Wait()
	if left := remaining(t, l); left != 901 {
		t.Errorf("%d left, want 901", left)
	}
}

// deadlines returns a store that records whether its Settle had a deadline.
func deadlines(atOnce bool, ends time.Duration) (s *spy, bounded *bool) {
	bounded = new(bool)
	return &spy{Store: memstore.New(), AtOnce: atOnce, Ends: ends, OnSettle: func(c *asks) error {
		_, *bounded = c.Ctx.Deadline()
		return c.Pass()
	}}, bounded
}

// If a store bounds the time of its calls, a permit's end sets no deadline, whatever wraps the store.
func TestSettleWithAStoreThatIsBounded(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		wrap    func(e *spy) store.Store
		want    bool // a deadline
	}{
		{"soon", time.Second, func(e *spy) store.Store { return e }, false},
		{"late", time.Minute, func(e *spy) store.Store { return e }, true},
		{"never", 0, func(e *spy) store.Store { return e }, true},
		{"failover to memory", time.Second, func(e *spy) store.Store { return failover.New(e, memstore.New()) }, false},
		{"failover of one", time.Second, func(e *spy) store.Store { return failover.New(e, nil) }, false},
		{"failover of two that are late together", 1500 * time.Millisecond,
			func(e *spy) store.Store { return failover.New(e, &spy{Store: memstore.New(), Ends: e.Ends}) }, true},
		{"failover to one that isn't", time.Second, func(e *spy) store.Store { return failover.New(e, newSpy()) }, true},
	}
	for _, tt := range tests {
		e, bounded := deadlines(false, tt.timeout)
		l := limiter(t, theKey, stint.Concurrency(10, stint.WithName("slots")), stint.WithStore(tt.wrap(e)))
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		if *bounded != tt.want {
			t.Errorf("%s: with a deadline: %t, want %t", tt.name, *bounded, tt.want)
		}
	}
}

// If a store answers at once, a permit's end sets no deadline and doesn't flush the response, whatever wraps the store.
func TestSettleWithAStoreThatAnswersAtOnce(t *testing.T) {
	tests := []struct {
		name   string
		atOnce bool
		wrap   func(q *spy) store.Store
		want   bool
	}{
		{"memory, wrapped", true, func(q *spy) store.Store { return q }, true},
		{"another", false, func(q *spy) store.Store { return q }, false},
		{"failover of two", true, func(q *spy) store.Store { return failover.New(q, memstore.New()) }, true},
		{"failover of one", true, func(q *spy) store.Store { return failover.New(q, nil) }, true},
		{"failover to another", true, func(q *spy) store.Store { return failover.New(q, newSpy()) }, false},
		{"failover from another", false, func(q *spy) store.Store { return failover.New(q, memstore.New()) }, false},
	}
	for _, tt := range tests {
		q, bounded := deadlines(tt.atOnce, 0)
		l := limiter(t, theKey, stint.Rate(10, time.Hour, stint.WithName("rate")), settleTo(4), stint.WithStore(tt.wrap(q)))
		w := httptest.NewRecorder()
		mount(l, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "6")
			_, _ = io.WriteString(w, "served")
		}).ServeHTTP(w, get("/"))
		if w.Flushed == tt.want || *bounded == tt.want {
			t.Errorf("%s: flushed %v, with a deadline %v", tt.name, w.Flushed, *bounded)
		}
	}
}
