package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tenants"
)

var errDown = errors.New("source is down")

// must returns a cache, or panics with err.
func must(c *tenants.Cache, err error) *tenants.Cache {
	if err != nil {
		panic(err)
	}
	return c
}

// source is a database of plans, which change: each load takes as long as slow says when it
// begins, and then returns what is sold, or err.
type source struct {
	mu      sync.Mutex
	loads   int
	slow    time.Duration
	ignores bool // its context
	sold    []stint.Limit
	err     error
	panics  bool
	broken  string // a key that can't be loaded
}

func (s *source) load(ctx context.Context, key string) ([]stint.Limit, error) {
	s.mu.Lock()
	s.loads++
	slow, ignores, sold, err, panics := s.slow, s.ignores, s.sold, s.err, s.panics
	if key == s.broken && err == nil {
		err = errDown
	}
	s.mu.Unlock()
	if ignores {
		ctx = context.Background()
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if panics {
		panic("in the database")
	}
	return sold, err
}

// set changes the source while loads may be under way.
func (s *source) set(f func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

func (s *source) sell(limits ...stint.Limit) { s.set(func(s *source) { s.sold, s.err = limits, nil }) }

func (s *source) fail(err error) { s.set(func(s *source) { s.err = err }) }

func requests(n int64, name string) stint.Limit {
	return stint.Rate(n, time.Second, stint.WithName(name))
}

// asked is what Get has returned, and how: a plan by its first limit, the error, how long it took,
// and the loads by then.
type asked struct {
	plan  stint.Limit
	err   error
	took  time.Duration
	loads int
}

// get expects what Get returns. Loads that it has begun are over then, if they take no time.
func get(t *testing.T, p *tenants.Cache, s *source, want asked) {
	t.Helper()
	began := time.Now()
	limits, err := p.Get(t.Context(), "k")
	took := time.Since(began)
	synctest.Wait()
	var plan stint.Limit
	if len(limits) > 0 {
		plan = limits[0]
	}
	if plan != want.plan || !errors.Is(err, want.err) || took != want.took || s.count() != want.loads {
		t.Errorf("got %v, %v after %v and %d loads; want %+v", limits, err, took, s.count(), want)
	}
}

// However many ask, a key is loaded once: for those who wait, and for those who come within a
// second after it has failed, or has found no plan.
func TestLoadOnce(t *testing.T) {
	for _, err := range []error{nil, errDown, fmt.Errorf("tenant k: %w", tenants.ErrNoPlan)} {
		synctest.Test(t, func(t *testing.T) {
			s := &source{slow: time.Second, sold: []stint.Limit{requests(1, "plan")}, err: err}
			p := must(tenants.New(s.load))
			for range 2 {
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() {
						if _, got := p.Get(t.Context(), fmt.Sprint("k", i%2)); !errors.Is(got, err) {
							t.Errorf("error %v, want %v", got, err)
						}
					})
				}
				wg.Wait()
				if got := s.count(); got != 2 {
					t.Errorf("%v: %d loads for 2 keys", err, got)
				}
			}
			s.fail(nil)
			time.Sleep(time.Second)
			if _, err := p.Get(t.Context(), "k0"); err != nil {
				t.Errorf("a second later: %v", err)
			}
		})
	}
}

func TestAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := requests(1, "plan"), requests(2, "plan"), requests(3, "plan")
		s := &source{slow: time.Second}
		p := must(tenants.New(s.load, tenants.WithTTL(10*time.Second)))
		s.sell(first)
		get(t, p, s, asked{first, nil, time.Second, 1})
		s.sell(second)
		time.Sleep(9 * time.Second)
		get(t, p, s, asked{first, nil, 0, 1})
		time.Sleep(2 * time.Second)
		get(t, p, s, asked{first, nil, 0, 2}) // old, and loaded behind
		get(t, p, s, asked{first, nil, 0, 2})
		time.Sleep(2 * time.Second)
		get(t, p, s, asked{second, nil, 0, 2})
		s.sell(third)
		time.Sleep(time.Hour)
		get(t, p, s, asked{third, nil, time.Second, 3}) // too old to be served before it is known
		s.fail(errDown)
		time.Sleep(time.Hour)
		get(t, p, s, asked{third, nil, time.Second, 4}) // the source is down: better old than none
		get(t, p, s, asked{third, nil, 0, 4})           // and it isn't asked by every request
		time.Sleep(2 * time.Second)
		get(t, p, s, asked{third, nil, time.Second, 5})
		s.sell(first)
		time.Sleep(2 * time.Second)
		get(t, p, s, asked{first, nil, time.Second, 6})
	})
}

// A source that answers that a key has no plan isn't a source that fails: a customer who
// has left doesn't keep the old plan, and it doesn't come back when the source fails later.
func TestNoPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := requests(1, "plan")
		s := &source{sold: []stint.Limit{plan}}
		p := must(tenants.New(s.load, tenants.WithTTL(10*time.Second)))
		get(t, p, s, asked{plan, nil, 0, 1})
		s.fail(fmt.Errorf("tenant k: %w", tenants.ErrNoPlan))
		get(t, p, s, asked{plan, nil, 0, 1}) // current
		time.Sleep(11 * time.Second)
		get(t, p, s, asked{plan, nil, 0, 2}) // old, and loaded behind
		get(t, p, s, asked{err: tenants.ErrNoPlan, loads: 2})
		time.Sleep(time.Second)
		s.fail(errDown)
		for loads := range 3 { // it still has none, as long as nothing else is known
			get(t, p, s, asked{err: tenants.ErrNoPlan, loads: 3 + loads})
			time.Sleep(time.Hour)
		}
		s.set(func(s *source) { s.slow = time.Hour })
		get(t, p, s, asked{err: tenants.ErrNoPlan, took: 5 * time.Second, loads: 6})
		s.set(func(s *source) { s.slow = 0 })
		s.fail(nil)
		time.Sleep(2 * time.Second)
		get(t, p, s, asked{plan: plan, loads: 7})
		s.fail(tenants.ErrNoPlan)
		p.Forget("k")
		get(t, p, s, asked{err: tenants.ErrNoPlan, loads: 8})
		s.fail(errDown)
		p.Forget("k")
		get(t, p, s, asked{err: errDown, loads: 9})
	})
	synctest.Test(t, func(t *testing.T) { // a key that is forgotten during the load that finds no plan
		s := &source{slow: time.Second, err: tenants.ErrNoPlan}
		p := must(tenants.New(s.load, tenants.WithDefault(requests(1, "free"))))
		time.AfterFunc(time.Second/2, func() { p.Forget("k") })
		get(t, p, s, asked{err: tenants.ErrNoPlan, took: time.Second, loads: 1})
	})
	var status interface{ StatusCode() int }
	if !errors.As(fmt.Errorf("tenant k: %w", tenants.ErrNoPlan), &status) || status.StatusCode() != 403 {
		t.Error("the request isn't answered with 403")
	}
}

// A load that can't be used leaves the plan before it in force. Without one, its error wraps
// a SourceError.
func TestLoadsThatFail(t *testing.T) {
	good := requests(1, "a")
	for _, tt := range []struct {
		name string
		sold []stint.Limit
		does func(*source)
		want string
	}{
		{name: "an error", does: func(s *source) { s.err = errDown }, want: "source is down"},
		{name: "a panic", does: func(s *source) { s.panics = true }, want: "panicked: in the database"},
		{name: "too slow", does: func(s *source) { s.slow = time.Hour }, want: "longer than its timeout"},
		{name: "two limits of one name", sold: []stint.Limit{requests(2, "a"), requests(3, "a")}, want: "another limit has that name"},
		{name: "one limit twice", sold: []stint.Limit{good, good}, want: "another limit has that name"},
		{name: "wrong numbers in its last", sold: []stint.Limit{requests(2, "a"), requests(0, "b")}, want: "0 units: use 1 to"},
		{name: "one without a name", sold: []stint.Limit{requests(2, "a"), stint.Rate(3, time.Second)}, want: "give it a name with stint.WithName"},
		{name: "the zero Limit", sold: []stint.Limit{{}}, want: "Limit{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &source{sold: []stint.Limit{good}}
				p := must(tenants.New(s.load))
				get(t, p, s, asked{plan: good, loads: 1})
				s.sell(tt.sold...)
				if tt.does != nil {
					s.set(tt.does)
				}
				for range 3 {
					time.Sleep(time.Hour)
					if got, err := p.Get(t.Context(), "k"); err != nil || len(got) != 1 || got[0] != good {
						t.Errorf("got %v, %v; want the plan before", got, err)
					}
				}
				p.Forget("k")
				_, err := p.Get(t.Context(), "k")
				if wrapped := new(stint.SourceError); !errors.As(err, &wrapped) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("without a plan before: %v, want %s", err, tt.want)
				}
			})
		})
	}
}

func TestSurviveTheFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := requests(1, "plan")
		s := &source{slow: 2 * time.Second, sold: []stint.Limit{plan}}
		p := must(tenants.New(s.load))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Get(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*stint.SourceError)) {
			t.Errorf("error %v, want that of the context", err)
		}
		get(t, p, s, asked{plan, nil, time.Second, 1})
	})
}

// A load that ignores its context delays no request beyond the load timeout, and no other begins
// beside it. Its plan is kept when it comes.
func TestLateLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := requests(1, "plan"), requests(2, "plan")
		s := &source{slow: time.Minute, ignores: true, sold: []stint.Limit{first}}
		p := must(tenants.New(s.load, tenants.WithTTL(time.Hour), tenants.WithLoadTimeout(3*time.Second)))
		get(t, p, s, asked{err: context.DeadlineExceeded, took: 3 * time.Second, loads: 1})
		get(t, p, s, asked{err: context.DeadlineExceeded, loads: 1})
		time.Sleep(time.Minute)
		get(t, p, s, asked{plan: first, loads: 1})
		s.sell(second)
		time.Sleep(3 * time.Hour)
		get(t, p, s, asked{plan: first, took: 3 * time.Second, loads: 2})
		get(t, p, s, asked{plan: first, loads: 2})
		time.Sleep(time.Minute)
		get(t, p, s, asked{plan: second, loads: 2})
	})
}

// After Forget, Get returns a plan that was loaded after it, whatever was under way.
func TestForget(t *testing.T) {
	for _, tt := range []struct {
		name    string
		old     bool          // a plan is kept
		slow    time.Duration // how long a load takes that is under way when the key is forgotten
		another bool          // the cache has no room for it when that load ends
	}{
		{name: "nothing known"},
		{name: "a plan is kept", old: true},
		{name: "a load is under way", slow: time.Second},
		{name: "a load is under way beside an old plan", slow: time.Second, old: true},
		{name: "a load hangs", slow: time.Hour},
		{name: "without room", slow: time.Second, another: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := requests(1, "plan"), requests(2, "plan")
				s := &source{sold: []stint.Limit{before}, ignores: true}
				p := must(tenants.New(s.load, tenants.WithSize(1)))
				if tt.old {
					get(t, p, s, asked{plan: before, loads: 1})
					time.Sleep(time.Minute) // to be loaded again
				}
				if s.set(func(s *source) { s.slow = tt.slow }); tt.slow > 0 {
					go p.Get(t.Context(), "k")
					synctest.Wait()
				}
				s.set(func(s *source) { s.slow = 0 })
				s.sell(after)
				p.Forget("k")
				want := asked{plan: after, loads: s.count() + 1}
				get(t, p, s, want)
				if tt.another {
					if _, err := p.Get(t.Context(), "another"); err != nil {
						t.Fatal(err)
					}
					want.loads += 2
				}
				time.Sleep(min(tt.slow, 2*time.Second)) // one under way has ended
				get(t, p, s, want)
				time.Sleep(tt.slow)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		plan := requests(1, "plan")
		s := &source{sold: []stint.Limit{plan}}
		p := must(tenants.New(s.load))
		get(t, p, s, asked{plan: plan, loads: 1})
		p.Forget("k")
		s.fail(errDown)
		get(t, p, s, asked{err: errDown, loads: 2}) // the plan doesn't come back
		s.fail(nil)
		p.Forget("k")
		get(t, p, s, asked{plan: plan, loads: 3}) // nor does the failure
	})
}

func TestAreBounded(t *testing.T) {
	s := &source{sold: []stint.Limit{requests(1, "plan")}}
	p := must(tenants.New(s.load, tenants.WithSize(3)))
	for _, step := range []struct {
		key   string
		loads int
	}{{"a", 1}, {"b", 2}, {"c", 3}, {"a", 3}, {"d", 4}, {"a", 4}, {"c", 4}, {"b", 5}, {"d", 6}} {
		if _, err := p.Get(t.Context(), step.key); err != nil {
			t.Fatal(err)
		}
		if got := s.count(); got != step.loads {
			t.Errorf("%s: %d loads, want %d", step.key, got, step.loads)
		}
	}
	s.fail(tenants.ErrNoPlan)
	for i := range 100 {
		_, _ = p.Get(t.Context(), fmt.Sprint("made up ", i))
	}
	for _, key := range []string{"b", "c", "d"} {
		if _, err := p.Get(t.Context(), key); err != nil {
			t.Errorf("made-up keys have dropped the plan of %s: %v", key, err)
		}
	}
	// Keys without a plan are bounded in the same way.
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: tenants.ErrNoPlan}
		p := must(tenants.New(s.load, tenants.WithSize(3)))
		for _, key := range []string{"a", "b", "c", "a", "d"} {
			_, _ = p.Get(t.Context(), key)
		}
		s.fail(errDown)
		time.Sleep(2 * time.Second)
		for key, want := range map[string]error{"a": tenants.ErrNoPlan, "c": tenants.ErrNoPlan, "d": tenants.ErrNoPlan} {
			if _, err := p.Get(t.Context(), key); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", key, err, want)
			}
		}
		if _, err := p.Get(t.Context(), "b"); !errors.Is(err, errDown) {
			t.Errorf("the least recently used: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	load := (&source{}).load
	for _, tc := range []struct {
		load func(context.Context, string) ([]stint.Limit, error)
		opt  tenants.Option
		want string
	}{
		{nil, tenants.WithTTL(time.Minute), "New(nil): pass a function"},
		{load, tenants.WithTTL(0), "WithTTL(0s): use 1ms or more"},
		{load, tenants.WithSize(0), "WithSize(0): use 1 or more"},
		{load, tenants.WithLoadTimeout(-1), "WithLoadTimeout(-1ns): use 1ms or more"},
		{load, tenants.WithDefault(), "WithDefault(): add limits, or stint.Exempt()"},
		{load, tenants.WithDefault(requests(0, "free")), "tenants: WithDefault: limit \"free\": 0 units"},
		{load, nil, "option 1 is nil"},
	} {
		if c, err := tenants.New(tc.load, tc.opt); c != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, %v, want an error with %q", c, err, tc.want)
		}
	}
}
