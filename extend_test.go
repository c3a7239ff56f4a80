package stint_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// extend raises a permit's cost, which has to pass.
func extend(t testing.TB, p *stint.Permit, cost int64, limits ...string) {
	t.Helper()
	if err := p.Extend(context.Background(), cost, limits...); err != nil {
		t.Errorf("Extend(%d): %v", cost, err)
	}
}

// settle sets a permit's cost.
func settle(t testing.TB, p *stint.Permit, cost int64) {
	t.Helper()
	if err := p.Settle(context.Background(), cost); err != nil {
		t.Errorf("Settle(%d): %v", cost, err)
	}
}

// unitsLeft compares what the limiter's limits have left with want.
func unitsLeft(t testing.TB, l *stint.Limiter, when string, want ...int64) {
	t.Helper()
	d, err := l.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range want {
		if got := d.Limits[i].Remaining; got != n {
			t.Errorf("%s: %d left of %s, want %d", when, got, d.Limits[i].Name, n)
		}
	}
}

// slowly is a rate whose units don't come back while a test runs.
func slowly(n int64, opts ...stint.RateOption) stint.Limit {
	return stint.Rate(n, 1000*time.Hour, append([]stint.RateOption{stint.WithName("rate")}, opts...)...)
}

func quotaOf(n int64) stint.Limit {
	return stint.Quota(n, stint.Every(1000*time.Hour), stint.WithName("quota"))
}

func TestExtend(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), slowly(100), quotaOf(50), stint.Concurrency(3, stint.WithName("slots")))
		p := take(t, l, 1)
		for _, step := range []struct {
			cost int64
			want [2]int64
		}{{10, [2]int64{90, 40}}, {10, [2]int64{90, 40}}, {4, [2]int64{90, 40}}, {0, [2]int64{90, 40}}, {30, [2]int64{70, 20}}, {50, [2]int64{50, 0}}} {
			extend(t, p, step.cost)
			unitsLeft(t, l, "after a raise", step.want[0], step.want[1], 2)
		}
		de := denied(t, p.Extend(t.Context(), 51))
		if de.Decision.Limit != "quota" || de.Decision.RetryAfter <= 0 || de.StatusCode() != 429 || len(de.Decision.Limits) != 2 {
			t.Errorf("denied with %+v", de.Decision)
		}
		unitsLeft(t, l, "after a denied raise", 50, 0, 2)
		extend(t, p, 60, "rate")
		unitsLeft(t, l, "after a raise of one limit", 40, 0, 2)
		for i, want := range []int64{60, 50, 1} {
			if got := p.Decision().Limits[i].Cost; got != want {
				t.Errorf("the permit says that limit %d costs %d, want %d", i, got, want)
			}
		}
		p.Done()
		unitsLeft(t, l, "after the end", 40, 0, 3)
	})
}

func TestExtendErrors(t *testing.T) {
	outer := limiter(t, theKey, slowly(100), stint.Concurrency(3, stint.WithName("slots")),
		stint.Ban(5, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
	inner := limiter(t, theKey, stint.Rate(100, 1000*time.Hour, stint.WithName("inner")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) {
		mount(inner, func(_ http.ResponseWriter, r *http.Request) {
			p := stint.FromContext(r.Context())
			for _, tt := range []struct {
				ctx    context.Context
				cost   int64
				limits []string
				is     error
				says   string
			}{
				{r.Context(), -1, nil, store.ErrCost, "0 to 2^40"},
				{r.Context(), store.MaxCost + 1, nil, store.ErrCost, "0 to 2^40"},
				{ended, 5, nil, context.Canceled, "Extend"},
				{r.Context(), 5, []string{"none"}, nil, `no limit "none"`},
				{r.Context(), 5, []string{"slots"}, nil, "concurrency"},
				{r.Context(), 5, []string{"ban"}, nil, "ban"},
				{r.Context(), 5, []string{"rate", "inner"}, nil, "several limiters"},
			} {
				err := p.Extend(tt.ctx, tt.cost, tt.limits...)
				if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "Settle") {
					t.Errorf("Extend(%d, %q): %v, want %q", tt.cost, tt.limits, err, tt.says)
				}
			}
			extend(t, p, 3, "rate")
			extend(t, p, 5, "inner")
			extend(t, p, 7)
		}).ServeHTTP(w, r)
	})
	unitsLeft(t, outer, "of the outer limiter", 97)
	unitsLeft(t, inner, "of the inner limiter", 93)
}

func TestExtendWithoutLimits(t *testing.T) {
	var none *stint.Permit
	extend(t, none, 5)
	extend(t, &stint.Permit{}, 5, "tokens")
	l := limiter(t, theKey, stint.WithStore(failing(errDown)), slowly(1))
	extend(t, take(t, l, 1), 1000)
	l = limiter(t, theKey, stint.Concurrency(1))
	extend(t, take(t, l, 1), 1000)
}

// What passes without the store is never charged later.
func TestExtendDuringAnOutage(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		for _, tt := range []struct {
			name string
			do   func(*stint.Permit)
			want int64
		}{
			{"extended", func(p *stint.Permit) { extend(t, p, 220) }, 80},
			{"extended and settled below the last raise", func(p *stint.Permit) { extend(t, p, 220); settle(t, p, 100) }, 90},
			{"extended and settled within the last raise", func(p *stint.Permit) { extend(t, p, 220); settle(t, p, 215) }, 85},
			{"settled above", func(p *stint.Permit) { settle(t, p, 215) }, 85},
			{"settled within what has passed", func(p *stint.Permit) { settle(t, p, 150) }, 90},
			{"settled below", func(p *stint.Permit) { settle(t, p, 1) }, 90},
			{"settled twice", func(p *stint.Permit) { settle(t, p, 215); settle(t, p, 212) }, 88},
			{"nothing", func(*stint.Permit) {}, 90},
		} {
			spy := &spy{Store: s}
			l := limiter(t, theKey, stint.WithStore(spy), slowly(100))
			if _, err := limiter(t, theKey, stint.WithStore(s), slowly(100)).Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			p := take(t, l, 10)
			spy.FailWith(errDown)
			extend(t, p, 110)
			extend(t, p, 210) // more than the limit has
			spy.FailWith(nil)
			tt.do(p)
			unitsLeft(t, l, tt.name, tt.want)
		}
	})
}

// WithSettle charges no unit that has passed without the store either.
func TestWithSettleAfterAnOutage(t *testing.T) {
	for used, want := range map[int64]int64{5: 90, 100: 90, 210: 90, 230: 70} {
		s := newSpy()
		l := limiter(t, theKey, stint.WithStore(s), slowly(100, stint.WithFixedCost(10)), settleTo(used))
		through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
			s.FailWith(errDown)
			extend(t, stint.FromContext(r.Context()), 210)
			s.FailWith(nil)
		})
		unitsLeft(t, l, "settled", want)
	}
}

func TestExtendFailsClosed(t *testing.T) {
	s, seen := newSpy(), &events{}
	l := limiter(t, theKey, stint.WithStore(s), slowly(100, stint.WithFailurePolicy(stint.FailClosed)), seen.Option())
	p := take(t, l, 10)
	s.FailWith(errDown)
	for range 2 {
		if err := p.Extend(t.Context(), 20); !errors.As(err, new(*stint.StoreError)) || !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
	}
	if e := seen.Last(); e.Kind != stint.EventExtended || e.Decision.Allowed || !errors.As(e.Err, new(*stint.StoreError)) {
		t.Errorf("event %v %+v", e, e.Decision)
	}
	s.FailWith(nil)
	extend(t, p, 20)
	unitsLeft(t, l, "after the outage", 80)
}

// Settle replaces the last raise, and charges nothing twice.
func TestSettleAfterExtend(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		for _, tt := range []struct {
			name    string
			costs   []int64
			settled int64
			want    int64
		}{
			{"within the last raise", []int64{20, 40}, 30, 70},
			{"below it", []int64{20, 40}, 5, 80},
			{"above it", []int64{20, 40}, 55, 45},
			{"at it", []int64{20, 40}, 40, 60},
			{"as before the raise", []int64{20}, 10, 90},
			{"below the first charge", []int64{20}, 0, 90},
		} {
			l := limiter(t, theKey, stint.WithStore(s), slowly(100, stint.WithFixedCost(10)))
			for _, by := range []string{"Settle", "WithSettle"} {
				if _, err := l.Reset(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				opts := []stint.Option{theKey, stint.WithStore(s), slowly(100, stint.WithFixedCost(10))}
				if by == "WithSettle" {
					opts = append(opts, settleTo(tt.settled))
				}
				through(limiter(t, opts...), get("/"), func(_ http.ResponseWriter, r *http.Request) {
					p := stint.FromContext(r.Context())
					for _, cost := range tt.costs {
						extend(t, p, cost)
					}
					if by == "Settle" {
						settle(t, p, tt.settled)
						settle(t, p, tt.settled)
					}
				})
				unitsLeft(t, l, tt.name+" by "+by, tt.want)
			}
		}
		l := limiter(t, theKey, stint.WithStore(s), quotaOf(100))
		p := take(t, l, 10)
		extend(t, p, 40)
		settle(t, p, 25)
		extend(t, p, 20) // below the cost that was settled
		extend(t, p, 30)
		unitsLeft(t, l, "settled, and raised again", 70)
		settle(t, p, 1)
		unitsLeft(t, l, "settled once more", 75)
	})
}

// Raises of one permit take turns, so that each charges only the difference.
func TestExtendConcurrently(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), slowly(1000))
		p := take(t, l, 10)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() { extend(t, p, 100+100*int64(i%2)) })
			if i == 7 {
				all.Go(func() { settle(t, p, 200) })
			}
		}
		all.Wait()
		extend(t, p, 200)
		unitsLeft(t, l, "after 16 raises at once", 800)
	})
}

// waiting is a permit of a quota and a rate, whose raise to 20 waits. end returns when the raise has, with its error.
func waiting(t *testing.T, s store.Store, opts ...stint.Option) (l *stint.Limiter, p *stint.Permit, leave context.CancelFunc, end func() error) {
	t.Helper()
	l = limiter(t, append(opts, theKey, stint.WithStore(s), slowly(10, stint.WithMaxWait(10_000*time.Hour)), quotaOf(100))...)
	if _, err := l.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	p = take(t, l, 10)
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	ended := make(chan error, 1)
	go func() { ended <- p.Extend(ctx, 20) }()
	eventually(t, func() bool {
		waiting, _ := l.Lines()
		return waiting == 1
	})
	return l, p, leave, func() error { return <-ended }
}

// A raise whose client leaves while it waits has charged nothing, of any limit.
func TestExtendLeft(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l, p, leave, end := waiting(t, s)
		leave()
		if err := end(); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "Extend") {
			t.Errorf("got %v", err)
		}
		unitsLeft(t, l, "when its client has left", 0, 90)
		settle(t, p, 5)
		unitsLeft(t, l, "when it is settled", 5, 95)
	})
}

// The end of a permit cancels the raise that waits, and those behind it.
func TestEndCancelsExtend(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		for name, opts := range map[string][]stint.Option{"plain": nil, "with an observer": {new(events).Option()}, "with slots": {stint.Concurrency(20, stint.WithName("slots"))}} {
			l, p, _, end := waiting(t, s, opts...)
			behind := make(chan error, 1)
			go func() { behind <- p.Extend(context.Background(), 30) }()
			p.Done()
			for _, err := range []error{end(), <-behind} {
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "ended") {
					t.Errorf("%s: got %v", name, err)
				}
			}
			waits, lines := l.Lines()
			if waits+lines > 0 {
				t.Errorf("%s: %d wait in %d lines", name, waits, lines)
			}
			d, err := l.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range d.Limits {
				if s.Name == "quota" && s.Remaining != 90 || s.Name == "rate" && s.Remaining != 0 {
					t.Errorf("%s: %d left of %s", name, s.Remaining, s.Name)
				}
			}
		}
	})
}

// Settle waits for a raise, and then counts what that has charged.
func TestSettleWaitsForExtend(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l, p, leave, end := waiting(t, s)
		settled := make(chan error, 1)
		go func() { settled <- p.Settle(context.Background(), 4) }()
		leave()
		_ = end()
		if err := <-settled; err != nil {
			t.Error(err)
		}
		unitsLeft(t, l, "settled after a raise that was canceled", 6, 96)
	})
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithMaxWait(time.Minute)), quotaOf(100))
		p := take(t, l, 10)
		go func() { extend(t, p, 20) }()
		synctest.Wait()
		start := time.Now()
		settle(t, p, 15)
		if took := time.Since(start); took != time.Second {
			t.Errorf("Settle has waited %v, want 1s, like the raise", took)
		}
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[1].Remaining != 85 {
			t.Errorf("%d left of the quota, want 85", d.Limits[1].Remaining)
		}
	})
}

// The handler's return is the end, unless the permit is detached.
func TestHandlersReturnCancelsExtend(t *testing.T) {
	for _, detached := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithMaxWait(time.Minute)), stint.WithFixedCost(10))
			ended := make(chan error, 1)
			release := func() {}
			through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				if detached {
					release = p.Detach()
				}
				go func() { ended <- p.Extend(context.Background(), 20) }()
				synctest.Wait()
			})
			start := time.Now()
			err := <-ended
			if took := time.Since(start); detached && (err != nil || took != time.Second) || !detached && (!errors.Is(err, context.Canceled) || took != 0) {
				t.Errorf("detached %v: %v after %v", detached, err, took)
			}
			release()
		})
	}
}

// A step above the burst is denied, however long ago the last one was.
func TestStepAboveTheBurst(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), slowly(1000, stint.WithBurst(100)))
		p := take(t, l, 1)
		if de := denied(t, p.Extend(t.Context(), 102)); de.Decision.RetryAfter != stint.Never {
			t.Errorf("denied with %+v", de.Decision)
		}
		extend(t, p, 60)
		unitsLeft(t, l, "after a smaller step", 40)
	})
}

// A ban of the permit denies its raises, and doesn't count them.
func TestExtendAndBans(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		seen := &events{}
		l := limiter(t, theKey, stint.WithStore(s), slowly(100), stint.WithFixedCost(10), seen.Option(),
			stint.Ban(2, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
		p := take(t, l, 10)
		for range 5 {
			if de := denied(t, p.Extend(t.Context(), 105)); de.Decision.Limit != "rate" {
				t.Errorf("denied by %s", de.Decision.Limit)
			}
		}
		unitsLeft(t, l, "after denied raises", 90, 2)
		for range 2 {
			_, err := l.Take(t.Context(), "k", 95)
			denied(t, err)
		}
		if de := denied(t, p.Extend(t.Context(), 20)); de.Decision.Limit != "ban" || de.Decision.RetryAfter > time.Hour {
			t.Errorf("denied with %+v", de.Decision)
		}
		unitsLeft(t, l, "after a raise that a ban denied", 90, 0)
		if kinds := seen.Kinds(); kinds != "Admitted"+strings.Repeat(" Extended", 5)+" Denied Denied Banned Extended" {
			t.Errorf("events %s", kinds)
		}
	})
}

// A waiting raise whose denial is final isn't counted by a ban either.
func TestBanCountsNoWaitingRaise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Minute, stint.WithMaxWait(5*time.Second), stint.WithName("rate")),
			stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithName("ban")))
		p := take(t, l, 10)
		denied(t, p.Extend(t.Context(), 20))
		if d, _ := l.Peek(t.Context(), "k"); !d.Limits[1].Allowed || d.Limits[1].Remaining != 1 {
			t.Errorf("the ban says %+v", d.Limits[1])
		}
	})
}

// Each raise that asks the store is one event, and no event of a request.
func TestExtendEvents(t *testing.T) {
	s, seen := newSpy(), &events{}
	l := limiter(t, theKey, stint.WithStore(s), slowly(100), quotaOf(1000), stint.WithFixedCost(10), seen.Option())
	through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		p := stint.FromContext(r.Context())
		seen.Clear()
		extend(t, p, 40)
		e := seen.Last()
		if e.Kind != stint.EventExtended || !e.Decision.Allowed || e.Err != nil || len(e.Decision.Limits) != 2 ||
			e.Decision.Limits[0].Cost != 30 || e.Decision.Limits[0].Remaining != 60 || e.Key(0) == "" || e.EndsWait {
			t.Errorf("granted: %v, %+v", e, e.Decision)
		}
		extend(t, p, 40)
		denied(t, p.Extend(r.Context(), 135))
		e = seen.Last()
		if e.Kind != stint.EventExtended || e.Decision.Allowed || e.Err != nil || e.Decision.Limit != "rate" {
			t.Errorf("denied: %v, %+v", e, e.Decision)
		}
		s.FailWith(errDown)
		extend(t, p, 50)
		e = seen.Last()
		if e.Kind != stint.EventExtended || !e.Decision.Allowed || !errors.Is(e.Err, errDown) || e.Decision.Limits[0].Cost != 10 {
			t.Errorf("passed without the store: %v, %+v", e, e.Decision)
		}
		s.FailWith(nil)
		if kinds := seen.Kinds(); kinds != "Extended Extended Extended" {
			t.Errorf("events %s", kinds)
		}
	})
}

// A raise uses the numbers that an Update has given the limits since.
func TestExtendAfterAnUpdate(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), slowly(10))
		p := take(t, l, 10)
		denied(t, p.Extend(t.Context(), 20))
		update(t, l, slowly(100))
		extend(t, p, 20)
		if c := p.Decision().Limits[0].Capacity; c != 100 {
			t.Errorf("a capacity of %d, want the new limit's 100", c)
		}
		update(t, l, slowly(20))
		denied(t, p.Extend(t.Context(), 40))
		update(t, l, slowly(100))
		extend(t, p, 21)
		settle(t, p, 20)
	})
}

// A dry run denies no raise, and isn't charged what it would have denied.
func TestExtendDryRun(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, theKey, stint.WithStore(s), quotaOf(100), slowly(20, stint.WithDryRun(true)))
		p := take(t, l, 10)
		extend(t, p, 20)
		extend(t, p, 50)
		unitsLeft(t, l, "beyond the dry run", 50, 0)
		extend(t, p, 60)
		settle(t, p, 55)
		unitsLeft(t, l, "settled", 45, 0)
	})
	s := newSpy()
	l := limiter(t, theKey, stint.WithStore(s), slowly(20, stint.WithDryRun(true)))
	p := take(t, l, 10)
	s.FailWith(errDown)
	extend(t, p, 15)
	s.FailWith(nil)
	extend(t, p, 18)
	unitsLeft(t, l, "without the store", 7)
}

// A raise waits in its limit's line, before requests that haven't begun, whatever their class.
func TestExtendGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second, stint.WithMaxWait(time.Minute)))
		p, q, start := take(t, l, 5), take(t, l, 5), time.Now()
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		note := func(who string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who+" "+time.Since(start).String())
		}
		for _, who := range []string{"a", "b"} {
			all.Go(func() {
				if err := l.Allow(stint.ContextWithPriority(t.Context(), 9), "k", 1); err != nil {
					t.Error(err)
				}
				note(who)
			})
			synctest.Wait()
		}
		all.Go(func() { extend(t, p, 6); note("raise") })
		synctest.Wait()
		all.Go(func() { extend(t, q, 8); note("raise") })
		all.Wait()
		if got := strings.Join(order, ", "); got != "raise 100ms, raise 400ms, a 500ms, b 600ms" {
			t.Errorf("passed: %s", got)
		}
	})
}

// A raise that may not wait isn't denied because requests wait, and the permit of Limiter.Wait makes it no more patient.
func TestExtendOfImpatientLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, theKey, stint.Rate(10, time.Second))
		p, err := l.Wait(t.Context(), "k", 5)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			q, err := l.Wait(t.Context(), "k", 8)
			if err != nil {
				t.Error(err)
			}
			q.Done()
		}()
		synctest.Wait()
		start := time.Now()
		denied(t, p.Extend(t.Context(), 20))
		if took := time.Since(start); took != 0 {
			t.Errorf("the raise has waited %v", took)
		}
		time.Sleep(time.Minute)
	})
}

// A denied raise whose response has begun writes nothing where the limiter sees the response.
func TestDenyAfterTheBeginning(t *testing.T) {
	for _, begun := range []bool{false, true} {
		l := limiter(t, theKey, slowly(10), settleTo(stint.AsCharged))
		w := through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
			if begun {
				answering(200, "part")(w, r)
			}
			err := denied(t, stint.FromContext(r.Context()).Extend(r.Context(), 11))
			l.Deny(around{w}, r, err)
			l.Deny(w, r, err)
		})
		if begun && (w.Code != 200 || w.Body.String() != "part" || w.Header().Get("Retry-After") != "") {
			t.Errorf("begun: %d %q %v", w.Code, w.Body, w.Header())
		}
		if !begun && (w.Code != 429 || w.Header().Get("Retry-After") == "" || strings.Count(w.Body.String(), "violated") != 1) {
			t.Errorf("not begun: %d %q %v", w.Code, w.Body, w.Header())
		}
	}
}

// around is a middleware's writer.
type around struct{ http.ResponseWriter }

func (w around) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A raise waits for a limit with a queue, too, and like a call of several limits it gets the whole rate: its units come
// one after the other, and it reserves them as soon as the first may come.
func TestExtendOfAQueue(t *testing.T) {
	for _, raises := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, theKey, quotaOf(1000),
				stint.Rate(10, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20)))
			p, start := take(t, l, 1), time.Now()
			defer p.Done()
			for n := range int64(5) {
				if raises {
					extend(t, p, 1+4*(n+1))
				} else if err := l.Allow(t.Context(), "k", 4); err != nil {
					t.Error(err)
				}
				if at, want := time.Since(start), time.Duration(n+1)*400*time.Millisecond; at != want {
					t.Errorf("raises %v: %d units after %v, want %v", raises, 4*(n+1), at, want)
				}
			}
			if raises {
				if de := denied(t, p.Extend(t.Context(), 21+22)); de.Decision.Limit != "rate" {
					t.Errorf("a step above the queue is denied by %s", de.Decision.Limit)
				}
			}
		})
	}
}

// A cost above the burst waits until its units have come, whatever fraction of a microsecond a unit takes.
func TestCostAboveTheBurst(t *testing.T) {
	const cost, per = 5, 7 * time.Second
	for _, units := range []int64{6, 14, 34, 600} {
		for name, ask := range map[string]func(*testing.T, *stint.Limiter) error{
			"Allow":  func(t *testing.T, l *stint.Limiter) error { return l.Allow(t.Context(), "k", cost) },
			"Extend": func(t *testing.T, l *stint.Limiter) error { return take(t, l, 1).Extend(t.Context(), cost) },
		} {
			synctest.Test(t, func(t *testing.T) {
				s, asked := newSpy(), 0
				s.AtOnce = true
				s.OnTake = func(c *asks) error {
					if asked++; asked > 100 {
						return errDown
					}
					return c.Pass()
				}
				l := limiter(t, theKey, quotaOf(1000), stint.WithStore(s), stint.WithFailurePolicy(stint.FailClosed),
					stint.Rate(units, per, stint.WithName("rate"), stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20)))
				start := time.Now()
				err := ask(t, l)
				took, want := time.Since(start), (cost-1)*per/time.Duration(units)
				if err != nil || took < want || took > want+10*time.Millisecond {
					t.Errorf("%s of %d at %d per %v: %v after %v, want %v", name, cost, units, per, err, took, want)
				}
			})
		}
	}
}

// Without names, Extend raises what Settle would settle: the limits with a WithCost, of the innermost limiter with one.
func TestExtendWithoutNames(t *testing.T) {
	requests := stint.Rate(50, 1000*time.Hour, stint.WithName("requests"))
	outer := limiter(t, theKey, requests, slowly(100, stint.WithFixedCost(10)))
	inner := limiter(t, theKey, quotaOf(1000))
	source := func(*http.Request) ([]stint.Limit, error) { return []stint.Limit{quotaOf(1000)}, nil }
	tenants := limiter(t, theKey, stint.WithLimitFunc(source))
	through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) {
		mount(inner, func(_ http.ResponseWriter, r *http.Request) {
			extend(t, stint.FromContext(r.Context()), 30)
		}).ServeHTTP(w, r)
	})
	unitsLeft(t, outer, "requests, and the limit with a cost", 49, 70)
	unitsLeft(t, inner, "of the inner limiter, without a cost", 999)
	through(tenants, get("/"), func(_ http.ResponseWriter, r *http.Request) {
		p := stint.FromContext(r.Context())
		extend(t, p, 30)
		if left := p.Decision().Limits[0].Remaining; left != 970 {
			t.Errorf("%d left of a limit function's quota, want 970", left)
		}
	})
}
