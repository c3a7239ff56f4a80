package stint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

func update(t testing.TB, l *stint.Limiter, opts ...stint.Option) {
	t.Helper()
	if err := l.Update(opts...); err != nil {
		t.Fatal(err)
	}
}

// overStores runs a test on the memory store and on a real Redis. Its numbers
// must be such that the time it takes makes no difference.
func overStores(t *testing.T, f func(*testing.T, store.Store)) {
	t.Run("memory", func(t *testing.T) { f(t, memstore.New()) })
	t.Run("redis", func(t *testing.T) {
		f(t, redisstore.New(redistest.Shared(t).Client(), patient, redisstore.WithPrefix(redistest.Prefix(t))))
	})
}

// What an Update isn't given stays, what it is given replaces all that was given of it, and nil clears.
func TestUpdateKeepsWhatIsNotGiven(t *testing.T) {
	on := func(path string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.URL.Path == path }
	}
	hourly := func(n int64, opts ...stint.RateOption) stint.Limit { return stint.Rate(n, time.Hour, opts...) }
	function := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{hourly(4, stint.WithName("func"))}, nil
	})
	another := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{hourly(5, stint.WithName("another"))}, nil
	})
	units := func(n int64) stint.Option { return stint.WithCost(func(*http.Request) int64 { return n }) }
	all := []stint.Option{
		hourly(2), stint.Quota(3, stint.Daily), everybody, function,
		stint.WithRoute("/only", stint.Only(hourly(7))),
		stint.WithSkip(on("/skip")), stint.WithSkip(on("/skip-too")), stint.WithBlock(on("/block")),
		stint.WithDenyHandler(stint.PlainText("slow down")), stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			said := "blocked"
			if errors.Is(err, stint.ErrDenied) {
				said = "denied"
			}
			_, _ = w.Write([]byte(said))
		}),
		units(1), stint.WithHeaders(stint.RateLimitHeaders),
	}
	const kept = "2 of rate=2 daily=3 func=4, then slow down"
	for _, tt := range []struct {
		name  string
		given []stint.Option
		want  map[string]string // by path
	}{
		{"nothing", nil, map[string]string{"/": kept, "/only": "7 of rate-2=7, then slow down", "/skip": "free", "/skip-too": "free", "/block": "0 of , then blocked"}},
		{"limits", []stint.Option{hourly(1)}, map[string]string{"/": "1 of rate=1 func=4, then slow down", "/skip": "free", "/block": "0 of , then blocked"}},
		{"a route", []stint.Option{stint.WithRoute("/new", stint.Exempt())}, map[string]string{"/": kept, "/new": "free", "/only": kept}},
		{"no routes", []stint.Option{stint.WithoutRoutes()}, map[string]string{"/only": kept}},
		{"no limit functions", []stint.Option{stint.WithoutLimitFuncs()}, map[string]string{"/": "2 of rate=2 daily=3, then slow down"}},
		{"a limit function", []stint.Option{another}, map[string]string{"/": "2 of rate=2 daily=3 another=5, then slow down"}},
		{"a skip", []stint.Option{stint.WithSkip(on("/new"))}, map[string]string{"/new": "free", "/skip": kept}},
		{"no skip", []stint.Option{stint.WithSkip(nil)}, map[string]string{"/skip": kept, "/block": "0 of , then blocked"}},
		{"a skip, nil and another", []stint.Option{stint.WithSkip(on("/")), stint.WithSkip(nil), stint.WithSkip(on("/new"))}, map[string]string{"/": kept, "/new": "free"}},
		{"no block", []stint.Option{stint.WithBlock(nil)}, map[string]string{"/block": kept}},
		{"no deny handler", []stint.Option{stint.WithDenyHandler(nil)}, map[string]string{"/": "2 of rate=2 daily=3 func=4, then denied"}},
		{"a cost", []stint.Option{units(2)}, map[string]string{"/": "1 of rate=2 daily=3 func=4, then slow down"}},
		{"a fixed cost", []stint.Option{stint.WithFixedCost(2)}, map[string]string{"/": "1 of rate=2 daily=3 func=4, then slow down"}},
		{"no headers", []stint.Option{stint.WithHeaders(stint.NoHeaders)}, map[string]string{"/": "2 of , then slow down"}},
		{"all anew", []stint.Option{stint.Complete(), hourly(1), everybody}, map[string]string{"/skip": "1 of rate=1, then 429", "/only": "1 of rate=1, then 429"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := &events{}
			for path, want := range tt.want {
				l := limiter(t, append(all, seen.Option())...)
				update(t, l, tt.given...)
				if got := outcome(l, path); got != want {
					t.Errorf("%s: %s, want %s", path, got, want)
				}
			}
			if !strings.Contains(seen.Kinds(), "Updated") {
				t.Errorf("the observer was told %s", seen.Kinds())
			}
		})
	}
	l := limiter(t, all...)
	for _, o := range []stint.Option{stint.WithoutRoutes(), stint.WithoutLimitFuncs(), stint.WithDenyHandler(nil)} {
		if _, err := stint.New(append(all, o)...); err == nil {
			t.Errorf("New takes %+v", o)
		}
		if _, err := l.With(o); err == nil {
			t.Errorf("With takes %+v", o)
		}
	}
}

// outcome returns how many requests of a path pass, by which limits, and how the next is answered.
func outcome(l *stint.Limiter, path string) string {
	for passed := range 10 {
		w := through(l, get(path), nil)
		if w.Code == http.StatusOK {
			continue
		}
		said := strings.NewReplacer(`"`, "", ";q", "", ";w=3600", "", ";w=86400", "", ", ", " ").Replace(w.Header().Get("RateLimit-Policy"))
		body := w.Body.String()
		if strings.HasPrefix(body, "{") {
			body = fmt.Sprint(w.Code)
		}
		return fmt.Sprintf("%d of %s, then %s", passed, said, body)
	}
	return "free"
}

// A wrong update reports everything that is wrong and changes nothing.
func TestUpdateThatIsWrong(t *testing.T) {
	mem := memstore.New()
	base := []stint.Option{stint.Rate(5, time.Hour, stint.WithName("rate")), theKey, stint.WithStore(mem),
		stint.WithoutWarnings("name-conflict")} // with the limiters of the cases before
	tests := []struct {
		name string
		opts []stint.Option
		want []string
	}{
		{"nothing at all", []stint.Option{stint.Complete()}, []string{"no limits"}},
		{"no key", []stint.Option{stint.Complete(), stint.Rate(1, time.Second, stint.WithName("rate"))}, []string{"stint.WithKey"}},
		{"several", []stint.Option{stint.Rate(0, time.Second), nil, stint.Quota(1, stint.Daily, stint.WithName("a b")), theKey},
			[]string{"0 units", "option 2 is nil", `WithName("a b")`}},
		{"a bad route", []stint.Option{stint.WithRoute("POST", stint.Rate(1, time.Second)), theKey}, []string{`WithRoute("POST")`}},
		{"another store", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(memstore.New())}, []string{"Update can't change the store"}},
		{"a store that can't be compared", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(layers{mem})}, []string{"Update can't change the store"}},
		{"a derived limiter's name", []stint.Option{stint.Rate(1, time.Second, stint.WithName("derived")), theKey}, []string{`limit "derived": another limit has that name`}},
		{"an option that is for nobody", []stint.Option{stint.Rate(1, time.Second, stint.WithName("rate")), theKey, stint.WithStore(nil)}, []string{"WithStore(nil)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := &events{}
			l := limiter(t, append(base, seen.Option())...)
			if _, err := l.With(stint.Rate(3, time.Hour, stint.WithName("derived"))); err != nil {
				t.Fatal(err)
			}
			err := l.Update(append(tt.opts, seen.Option())...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q doesn't say %q", err, want)
				}
			}
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "stint: ") {
					t.Errorf("%q has no prefix", line)
				}
			}
			if w := through(l, get("/"), nil); w.Code != 200 || w.Header().Get("RateLimit-Policy") != `"rate";q=5;w=3600` {
				t.Errorf("after it: %d %v", w.Code, w.Header())
			}
			if got := seen.Kinds(); got != "Admitted" {
				t.Errorf("observed %s, want Admitted alone", got)
			}
			// Nor are names left behind that a later one would find taken.
			update(t, l, stint.Rate(6, time.Hour, stint.WithName("rate")), stint.Quota(9, stint.Daily, stint.WithName("daily")), theKey, stint.WithStore(mem))
			if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Name != "rate" || d.Limits[1].Name != "daily" {
				t.Errorf("a later update: %+v", d.Limits)
			}
			if _, err := mem.Reset(t.Context(), "k", limitOf(t, "rate", 5)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// layers is a store whose values can't be compared.
type layers []store.Store

func (l layers) Take(ctx context.Context, c []store.Charge, r []store.Result) error {
	return l[0].Take(ctx, c, r)
}

func (l layers) Settle(ctx context.Context, c []store.Charge, r []store.Result) error {
	return l[0].Settle(ctx, c, r)
}

func limitOf(t *testing.T, name string, n int64) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(store.Spec{Name: name, Units: n, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What has been consumed under a name and algorithm stays consumed.
func TestUpdateKeepsState(t *testing.T) {
	const year = 365 * 24 * time.Hour
	rate := func(n int64, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, year, append([]stint.RateOption{stint.WithName("rate")}, opts...)...)
	}
	quota := func(n int64) stint.Limit { return stint.Quota(n, stint.Every(2*year), stint.WithName("quota")) }
	slots := func(n int64) stint.Limit { return stint.Concurrency(n, stint.WithName("slots")) }
	window := stint.WithAlgorithm(stint.FixedWindow)
	log := stint.WithAlgorithm(stint.SlidingLog)
	interval, sliding := stint.WithAlgorithm(stint.IntervalBucket), stint.WithAlgorithm(stint.SlidingWindow)
	tests := []struct {
		name     string
		from, to stint.Limit
		use      int64 // of from
		want     int64 // left of to
	}{
		{"bucket, larger", rate(10), rate(15), 10, 5},
		{"bucket, smaller", rate(10), rate(6), 2, 4},
		{"bucket, clamped", rate(10), rate(6), 9, 0},
		{"bucket, another burst", rate(10), rate(10, stint.WithBurst(4)), 3, 1},
		{"bucket, faster", rate(10), rate(20, stint.WithBurst(10)), 10, 0},
		{"interval bucket, larger", rate(10, interval), rate(15, interval), 10, 5},
		{"sliding window, larger", rate(10, sliding), rate(15, sliding), 10, 5},
		{"bucket, unused", rate(10), rate(20), 0, 20},
		{"window, larger", rate(10, window), rate(15, window), 10, 5},
		{"window, smaller", rate(10, window), rate(6, window), 9, 0},
		{"quota, larger", quota(10), quota(12), 4, 8},
		{"log, larger", rate(10, log), rate(15, log), 10, 5},
		{"log, smaller", rate(10, log), rate(6, log), 5, 1},
		{"slots, larger", slots(4), slots(6), 4, 2},
		{"slots, smaller", slots(4), slots(2), 3, 0},
		{"another name", rate(10), rate(10, stint.WithName("new")), 10, 10},
		{"another algorithm", rate(10), rate(10, log), 10, 10},
	}
	overStores(t, func(t *testing.T, s store.Store) {
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				key := fmt.Sprint("k", i)
				l := limiter(t, tt.from, theKey, stint.WithStore(s))
				if tt.use > 0 {
					p, err := l.Take(t.Context(), key, tt.use)
					if err != nil {
						t.Fatal(err)
					}
					defer p.Done()
				}
				for _, round := range []string{"updated", "and back and forth"} {
					update(t, l, tt.to, theKey)
					d, err := l.Peek(t.Context(), key)
					if err != nil || d.Remaining != tt.want {
						t.Errorf("%s: %d left, %v; want %d", round, d.Remaining, err, tt.want)
					}
					if round == "updated" {
						update(t, l, tt.from, theKey)
						if d, _ := l.Peek(t.Context(), key); d.Remaining > d.Limits[0].Capacity-tt.use {
							t.Errorf("back: %d left of %d, %d of which were used", d.Remaining, d.Limits[0].Capacity, tt.use)
						}
					}
				}
			})
		}
	})
}

// If a limit changes or goes away while a permit is open, the permit settles and
// releases what it was charged.
func TestUpdateUnderOpenPermits(t *testing.T) {
	both := func(n int64, opts ...stint.Option) []stint.Option {
		return append(opts, theKey, stint.Rate(n, 1000*time.Hour, stint.WithName("rate")), stint.Concurrency(n, stint.WithName("concurrency")))
	}
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, both(10, stint.WithStore(s))...)
		p := take(t, l, 6)
		update(t, l, both(7)...)
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 1 || d.Limits[1].Remaining != 1 {
			t.Errorf("left %+v, want 1 and 1", d.Limits)
		}
		if got := p.Decision().Limits[0].Capacity; got != 10 {
			t.Errorf("the open permit's limit says %d, want the 10 that it was charged under", got)
		}
		if err := p.Settle(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		p.Done()
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 5 || d.Limits[1].Remaining != 7 {
			t.Errorf("settled to 2 and released, left %+v, want 5 and 7", d.Limits)
		}
		p = take(t, l, 3)
		update(t, l, stint.Quota(1, stint.Daily, stint.WithName("daily")), theKey)
		if err := p.Settle(t.Context(), 1, "rate"); err != nil {
			t.Fatal(err)
		}
		p.Done()
		update(t, l, both(7)...)
		if d, _ := l.Peek(t.Context(), "k"); d.Limits[0].Remaining != 4 || d.Limits[1].Remaining != 7 {
			t.Errorf("settled and released while there was no such limit, left %+v, want 4 and 7", d.Limits)
		}
	})
}

// A request keeps the configuration it began with, up to its answer.
func TestUpdateDuringARequest(t *testing.T) {
	var l *stint.Limiter
	texts := func(s string) stint.Option { return stint.WithDenyHandler(stint.PlainText(s)) }
	l = limiter(t, stint.Rate(1, time.Hour), texts("old"), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) {
		if l != nil { // not when New tries it
			update(t, l, stint.Rate(5, time.Hour), texts("new"), theKey, stint.WithHeaders(stint.NoHeaders))
		}
		return "k", nil
	})))
	w := through(l, get("/"), nil)
	if got := w.Header().Get("RateLimit-Policy"); w.Code != 200 || got != `"rate";q=1;w=3600` {
		t.Errorf("updated within a request: %d %s", w.Code, got)
	}
	if w := through(l, get("/"), nil); w.Code != 200 || len(w.Header()) != 0 {
		t.Errorf("the next: %d %v", w.Code, w.Header())
	}

	l = limiter(t, stint.Rate(1, time.Hour), theKey, texts("old"))
	take(t, l, 1)
	w = httptest.NewRecorder()
	_, err := l.Open(w, get("/"))
	update(t, l, stint.Rate(5, time.Hour), theKey, texts("new"))
	if l.Deny(w, get("/"), fmt.Errorf("wrapped: %w", err)); w.Body.String() != "old" {
		t.Errorf("denied by the old, answered %q", w.Body)
	}
	w = httptest.NewRecorder()
	if l.Deny(w, get("/"), errors.Join(denied(t, err), nil)); w.Body.String() != "old" {
		t.Errorf("denied by the old, answered %q", w.Body)
	}
	w = httptest.NewRecorder()
	other := limiter(t, stint.Rate(1, time.Hour), theKey, texts("another"))
	if other.Deny(w, get("/"), err); w.Body.String() != "another" {
		t.Errorf("handed to another limiter, answered %q", w.Body)
	}
}

func derive(t testing.TB, l *stint.Limiter, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	d, err := l.With(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// limits are a limiter's limits, with their remaining units: "rate 3/5 daily 9/9".
func limits(t testing.TB, l *stint.Limiter) string {
	t.Helper()
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range d.Limits {
		all = append(all, fmt.Sprintf("%s %d/%d", s.Name, s.Remaining, s.Capacity))
	}
	return strings.Join(all, " ")
}

func check(t testing.TB, l *stint.Limiter, when, want string) {
	t.Helper()
	if got := limits(t, l); got != want {
		t.Errorf("%s: %s, want %s", when, got, want)
	}
}

// A derived limiter equals the one that With would now make of its parent, and keeps what its own
// limits have counted under their names.
func TestUpdateIsFollowed(t *testing.T) {
	own := stint.Rate(100, time.Hour) // rate-2
	parent := limiter(t, stint.Rate(10, time.Hour), theKey)
	child := derive(t, parent, own, stint.WithDenyHandler(stint.PlainText("child")))
	grandchild := derive(t, child, stint.Quota(50, stint.Monthly))
	take(t, grandchild, 4)

	update(t, parent, stint.Rate(20, time.Hour), stint.Rate(7, time.Minute), theKey, stint.WithDenyHandler(stint.PlainText("parent")))
	check(t, parent, "parent", "rate 16/20 rate-3 7/7")
	check(t, child, "child", "rate 16/20 rate-3 7/7 rate-2 96/100")
	check(t, grandchild, "grandchild", "rate 16/20 rate-3 7/7 rate-2 96/100 monthly 46/50")

	update(t, child, stint.Rate(200, time.Hour), stint.WithDenyHandler(nil))
	check(t, parent, "parent of an updated limiter", "rate 16/20 rate-3 7/7")
	check(t, child, "child", "rate 16/20 rate-3 7/7 rate-2 196/200")
	check(t, grandchild, "grandchild", "rate 16/20 rate-3 7/7 rate-2 196/200 monthly 46/50")
	if w := exhaust(t, child); w.Body.String() != "parent" {
		t.Errorf("the child's own handler was cleared, and it answers %q", w.Body)
	}

	update(t, child)
	check(t, child, "child, given nothing", "rate 9/20 rate-3 0/7 rate-2 189/200")
	update(t, child, stint.Complete())
	check(t, child, "child that adds nothing", "rate 9/20 rate-3 0/7")
	update(t, parent, stint.Rate(20, time.Hour), theKey)
	// A default name that is free again goes to who comes first, and with it
	// what was consumed under it: this is why limits have a WithName.
	check(t, derive(t, parent, stint.Rate(5, time.Minute)), "derived later", "rate 9/20 rate-2 0/5")

	// The same Limit in an update is the same limit, with the name it had.
	same := stint.Rate(3, time.Hour)
	again := limiter(t, stint.Rate(1, time.Hour), same, theKey)
	check(t, again, "before", "rate 1/1 rate-2 3/3")
	update(t, again, same, theKey)
	check(t, again, "used again", "rate-2 3/3")

	// What can't be derived any more is an error, and changes nothing.
	lone := stint.Rate(1, time.Hour, stint.WithName("lone"))
	parent = limiter(t, stint.Rate(1, time.Hour), theKey)
	child = derive(t, parent, lone)
	if err := parent.Update(lone, theKey); err == nil || !strings.Contains(err.Error(), `derived by With: limit "lone": a limiter that this one is derived from has this limit already`) {
		t.Errorf("a limit that a derived limiter adds: %v", err)
	}
	check(t, child, "after it", "rate 1/1 lone 1/1")
}

// A derived limiter with another store keeps that, and what is counted there.
func TestUpdateWithAnotherStore(t *testing.T) {
	rate := func(n int64) stint.Limit { return stint.Rate(n, time.Hour, stint.WithName("rate")) }
	weekly := func(n int64) stint.Limit { return stint.Quota(n, stint.Weekly, stint.WithName("weekly")) }
	parent := limiter(t, rate(10), theKey)
	child := derive(t, parent, weekly(9), stint.WithStore(memstore.New()))
	take(t, child, 1)
	update(t, parent, rate(20), theKey)
	check(t, parent, "parent", "rate 20/20")
	check(t, child, "child", "rate 19/20 weekly 8/9")
	update(t, child, weekly(8))
	check(t, child, "after an update without a store", "rate 19/20 weekly 7/8")
}

// exhaust uses a limiter up, and returns its first denial.
func exhaust(t testing.TB, l *stint.Limiter) *httptest.ResponseRecorder {
	t.Helper()
	for range 1000 {
		if w := through(l, get("/"), nil); w.Code != 200 {
			return w
		}
	}
	t.Fatal("nothing is denied")
	return nil
}

// A limiter inside the one it extends charges what it adds, even if an update of either
// comes between the two: it decides by the new configuration, and charges nothing twice.
func TestUpdateBetweenNestedLimiters(t *testing.T) {
	opts := func(n int64) []stint.Option {
		return []stint.Option{
			theKey, stint.Rate(n, time.Hour, stint.WithName("outer")),
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
				return []stint.Limit{stint.Rate(n, time.Hour, stint.WithName("func"))}, nil
			}),
		}
	}
	own := func(n int64) stint.Option { return stint.Rate(n, time.Hour, stint.WithName("inner")) }
	type family struct{ parent, child, grandchild *stint.Limiter }
	tests := []struct {
		name    string
		between func(*testing.T, family)
		first   string // the policies of the request that it comes in the middle of
		next    string
	}{
		{"nothing", func(*testing.T, family) {},
			`"outer";q=9 "func";q=9 "inner";q=9 "most";q=9`, `"outer";q=9 "func";q=9 "inner";q=9 "most";q=9`},
		{"of the parent", func(t *testing.T, f family) { update(t, f.parent, opts(8)...) },
			`"outer";q=9 "func";q=9 "inner";q=9 "most";q=9`, `"outer";q=8 "func";q=8 "inner";q=9 "most";q=9`},
		{"of the child", func(t *testing.T, f family) { update(t, f.child, own(8)) },
			`"outer";q=9 "func";q=9 "inner";q=8 "most";q=9`, `"outer";q=9 "func";q=9 "inner";q=8 "most";q=9`},
		{"of both, twice", func(t *testing.T, f family) {
			update(t, f.parent, opts(8)...)
			update(t, f.child, own(8))
			update(t, f.child, own(7))
			update(t, f.parent, opts(7)...)
		}, `"outer";q=9 "func";q=9 "inner";q=7 "most";q=9`, `"outer";q=7 "func";q=7 "inner";q=7 "most";q=9`},
		{"to what limits nothing by itself", func(t *testing.T, f family) {
			update(t, f.parent, stint.Complete(), theKey, stint.WithRoute("/nowhere", stint.Rate(9, time.Hour, stint.WithName("nowhere"))))
		}, `"outer";q=9 "func";q=9 "inner";q=9 "most";q=9`, `"inner";q=9 "most";q=9`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f family
			f.parent = limiter(t, opts(9)...)
			f.child = derive(t, f.parent, own(9))
			f.grandchild = derive(t, f.child, stint.Rate(9, time.Hour, stint.WithName("most")))
			var between func()
			h := mount(f.parent, func(w http.ResponseWriter, r *http.Request) {
				between()
				mount(f.grandchild, nil).ServeHTTP(w, r)
			})
			ask := func() string {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, get("/"))
				if w.Code != 200 {
					t.Errorf("got %d", w.Code)
				}
				all := strings.Join(w.Header().Values("RateLimit-Policy"), " ")
				return strings.NewReplacer(";w=3600", "", ",", "").Replace(all)
			}
			between = sync.OnceFunc(func() { tt.between(t, f) })
			if got := ask(); got != tt.first {
				t.Errorf("got %s, want %s", got, tt.first)
			}
			for _, s := range strings.Fields(limits(t, f.grandchild)) {
				if n, of, ok := strings.Cut(s, "/"); ok && fmt.Sprint(atoi(t, of)-1) != n {
					t.Errorf("one request left %s, want one less", s)
				}
			}
			if got := ask(); got != tt.next {
				t.Errorf("the next got %s, want %s", got, tt.next)
			}
		})
	}
}

// A limiter that is derived only after an update, inside of a request from before it,
// charges what it adds as well, and not the limits of the request again.
func TestDeriveAfterUpdateInsideARequest(t *testing.T) {
	opts := func(n int64) []stint.Option {
		return []stint.Option{
			theKey, stint.Rate(n, time.Hour, stint.WithName("outer")),
			stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
				return []stint.Limit{stint.Rate(n, time.Hour, stint.WithName("func"))}, nil
			}),
		}
	}
	parent := limiter(t, opts(9)...)
	var inner *stint.Limiter
	h := mount(parent, func(w http.ResponseWriter, r *http.Request) {
		if inner == nil {
			update(t, parent, append(opts(8), stint.Rate(5, time.Hour))...)
			child := derive(t, parent, stint.Rate(9, time.Hour, stint.WithName("inner")), stint.Rate(4, time.Hour))
			inner = derive(t, child, stint.Rate(9, time.Hour, stint.WithName("most")))
		}
		mount(inner, nil).ServeHTTP(w, r)
	})
	for i, want := range []string{
		"outer 7/8 rate 4/5 inner 8/9 rate-2 3/4 most 8/9",
		"outer 6/8 rate 3/5 inner 7/9 rate-2 2/4 most 7/9",
	} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, get("/")); w.Code != 200 {
			t.Errorf("request %d: got %d", i, w.Code)
		}
		check(t, inner, fmt.Sprint("after request ", i), want)
	}
}

// A limit of another algorithm is a different limit, whatever its name.
func TestDeriveAnotherLimitOfTheName(t *testing.T) {
	parent := limiter(t, theKey, stint.Rate(9, time.Hour, stint.WithName("calls")))
	var inner *stint.Limiter
	h := mount(parent, func(w http.ResponseWriter, r *http.Request) {
		update(t, parent, theKey, stint.Rate(8, time.Hour, stint.WithName("outer")))
		inner = derive(t, parent, stint.Quota(9, stint.Daily, stint.WithName("calls")))
		mount(inner, nil).ServeHTTP(w, r)
	})
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, get("/")); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
	check(t, inner, "after the request", "outer 7/8 calls 8/9")
}

// A predicate that comes with an Update is asked from then on, inside of requests that
// are under way too.
func TestUpdateWithPredicatesBetweenNestedLimiters(t *testing.T) {
	parent := limiter(t, theKey, stint.Rate(9, time.Hour))
	child := derive(t, parent, stint.Rate(9, time.Hour))
	h := mount(parent, func(w http.ResponseWriter, r *http.Request) {
		update(t, parent, theKey, stint.Rate(9, time.Hour), stint.WithBlock(func(*http.Request) bool { return true }))
		mount(child, nil).ServeHTTP(w, r)
	})
	for range 2 {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, get("/")); w.Code != 403 {
			t.Errorf("got %d, want 403", w.Code)
		}
	}
}

func atoi(t testing.TB, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A WithLimitFunc of an older configuration keeps to that configuration's names: what
// was valid when its request began stays valid for that request.
func TestUpdateAndLimitFunc(t *testing.T) {
	dynamic := stint.Rate(5, time.Hour, stint.WithName("tenant"))
	var l *stint.Limiter
	var once sync.Once
	fn := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		once.Do(func() {
			update(t, l, stint.Rate(9, time.Hour, stint.WithName("tenant")), theKey)
		})
		return []stint.Limit{dynamic}, nil
	})
	l = limiter(t, fn, theKey)
	if w := through(l, get("/"), nil); w.Code != 200 || w.Header().Get("RateLimit") != `"tenant";r=4;t=720` {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	check(t, l, "of the same name and kind", "tenant 8/9")
	update(t, l, stint.Rate(9, time.Hour, stint.WithName("tenant")), fn, theKey)
	if w := through(l, get("/"), nil); w.Code != 500 {
		t.Errorf("a name that is taken: %d", w.Code)
	}
	update(t, l, stint.Rate(9, time.Hour), fn, theKey)
	if w := through(l, get("/"), nil); w.Code != 200 {
		t.Errorf("a name that is free again: %d %s", w.Code, w.Body)
	}
}

// Waiting requests ask the limit of that name as it now is, and are admitted when a
// newcomer would be. If it has become another kind of limit, the one that they wait for
// decides, and newcomers don't wait behind them.
func TestUpdateChangesWhatTheLineWaitsFor(t *testing.T) {
	name, second := stint.WithName("x"), time.Second
	wait, crowd := stint.WithMaxWait(2*time.Minute), stint.WithQueue(100)
	slots := func(n int64) stint.Limit { return stint.Concurrency(n, name, wait, crowd) }
	adaptive := func(min, max, start int64) stint.Limit {
		return stint.AdaptiveConcurrency(min, max, stint.WithInitialLimit(start), name, wait, crowd)
	}
	other := stint.Rate(1000, 1000*time.Hour, stint.WithName("other"))
	all := func(limits ...stint.Option) []stint.Option { return append(limits, theKey) }
	tests := []struct {
		name     string
		from, to []stint.Option
		want     string // how many go in when: eight come, one more with the update after 1 s; each works for 10 s
		charged  int64  // of the other limit
	}{
		{"a larger adaptive limit", all(adaptive(1, 1, 1)), all(adaptive(10, 10, 10)), "1 at 0s, 8 at 1s", 0},
		{"a smaller one", all(adaptive(3, 3, 3)), all(adaptive(1, 1, 1)), "3 at 0s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s", 0},
		{"slots that become adaptive", all(slots(1)), all(adaptive(1, 50, 2)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"adaptive ones that become slots", all(adaptive(1, 1, 1)), all(slots(4)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"before another limit", all(slots(1), other), all(slots(3), other), "1 at 0s, 2 at 1s, 1 at 10s, 2 at 11s, 1 at 20s, 2 at 21s", 9},
		{"behind another limit", all(other, adaptive(1, 1, 1)), all(other, adaptive(4, 4, 4)), "1 at 0s, 3 at 1s, 1 at 10s, 3 at 11s, 1 at 20s", 9},
		{"a rate that denies", all(slots(1), other), all(stint.Rate(3, time.Hour, name), other), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 9},
		{"a rate that makes them wait", all(slots(1)), all(stint.Rate(1, second, name, wait)), "1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"a queue", all(adaptive(1, 1, 1)), all(stint.Rate(2, second, name, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(20))),
			"1 at 0s, 1 at 1s, 1 at 10s, 1 at 20s, 1 at 30s, 1 at 40s, 1 at 50s, 1 at 1m0s, 1 at 1m10s", 0},
		{"what denies nobody by itself", all(slots(2)), all(stint.Bandwidth(1<<20, name)), "2 at 0s, 1 at 1s, 2 at 10s, 2 at 20s, 2 at 30s", 0},
		{"nothing", all(slots(2)), all(other), "2 at 0s, 1 at 1s, 2 at 10s, 2 at 20s, 2 at 30s", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.from...)
				start := time.Now()
				var mu sync.Mutex
				in := map[time.Duration]int{}
				var wg sync.WaitGroup
				enter := func() {
					wg.Go(func() {
						through(l, get("/"), func(_ http.ResponseWriter, r *http.Request) {
							mu.Lock()
							in[time.Since(start)]++
							mu.Unlock()
							time.Sleep(10 * time.Second)
						})
					})
					synctest.Wait()
				}
				for range 8 {
					enter()
				}
				time.Sleep(time.Second)
				update(t, l, tt.to...)
				synctest.Wait()
				enter()
				wg.Wait()
				var at []time.Duration
				for d := range in {
					at = append(at, d)
				}
				slices.Sort(at)
				var got []string
				for _, d := range at {
					got = append(got, fmt.Sprintf("%d at %v", in[d], d))
				}
				if s := strings.Join(got, ", "); s != tt.want {
					t.Errorf("got %s\nwant %s", s, tt.want)
				}
				noLines(t, l)
				update(t, l, all(slots(50), other)...)
				d, err := l.Peek(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if s := d.Limits[0]; s.InFlight != 0 {
					t.Errorf("%d slots are still held", s.InFlight)
				}
				if s := d.Limits[1]; s.Capacity-s.Remaining != tt.charged {
					t.Errorf("the other limit was charged %d, want %d", s.Capacity-s.Remaining, tt.charged)
				}
			})
		})
	}
}

// The same when a plan is loaded again: a request with the new limit stands behind
// those that came before, and those follow the new limit too.
func TestPlanChangesWhatTheLineWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := int64(1)
		l := limiter(t, theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
			return []stint.Limit{stint.AdaptiveConcurrency(most, most, stint.WithName("x"), stint.WithQueue(9), stint.WithMaxWait(time.Minute))}, nil
		}))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			if i == 9 {
				time.Sleep(time.Second)
				most = 20
			}
			wg.Go(func() {
				through(l, get("/"), func(http.ResponseWriter, *http.Request) {
					if after := time.Since(start); i > 0 && after != time.Second {
						t.Errorf("%d went in after %v, want 1s", i, after)
					}
					time.Sleep(10 * time.Second)
				})
			})
			synctest.Wait()
		}
		wg.Wait()
		noLines(t, l)
	})
}

// A request may be charged for a limit twice, for two keys.
func TestUpdateOfALineOfTwoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, wait := stint.WithName("x"), stint.WithMaxWait(time.Minute)
		key := func(k string) stint.SharedOption {
			return stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return k, nil }))
		}
		both := func(x stint.Limit) []stint.Option {
			return []stint.Option{x, key("base"), stint.WithRoute("/a", stint.Only(x), key("a"))}
		}
		l := limiter(t, both(stint.Concurrency(1, name, wait))...)
		for _, held := range []string{"base", "a"} {
			p, err := l.Take(t.Context(), held, 1)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				through(l, requested(t, "GET //a x"), func(_ http.ResponseWriter, r *http.Request) {
					for i, s := range stint.FromContext(r.Context()).Decision().Limits {
						waited := []string{"base", "a"}[i] == held
						if s.Name != "x" || s.InFlight != map[bool]int64{true: 2, false: 1}[waited] || (s.Delay == time.Second) != waited {
							t.Errorf("%s was held: %+v of %d", held, s, i)
						}
					}
				})
			})
			synctest.Wait()
			time.Sleep(time.Second)
			update(t, l, both(stint.Concurrency(2, name, wait))...)
			wg.Wait()
			p.Done()
			update(t, l, both(stint.Concurrency(1, name, wait))...)
		}
		noLines(t, l)
	})
}

// An inner limiter knows what was charged outside, even if the limit was replaced while
// the request waited for it.
func TestUpdateOfALineOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, wait := stint.WithName("x"), stint.WithMaxWait(time.Minute)
		l := limiter(t, theKey, stint.Concurrency(1, name, wait))
		inner, err := l.With(stint.Rate(9, time.Hour, stint.WithName("in")))
		if err != nil {
			t.Fatal(err)
		}
		first := take(t, l, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			w := through(l, get("/"), mount(inner, func(_ http.ResponseWriter, r *http.Request) {
				d := stint.FromContext(r.Context()).Decision()
				if len(d.Limits) != 2 || d.Limits[0].Name != "x" || d.Limits[0].InFlight != 2 || d.Limits[1].Name != "in" {
					t.Errorf("charged %+v, want each limit once", d.Limits)
				}
			}).ServeHTTP)
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
		synctest.Wait()
		update(t, l, theKey, stint.Concurrency(2, name, wait))
		wg.Wait()
		first.Done()
		noLines(t, l)
	})
}

// A debt is counted in tokens: it is paid at the rate of the last charge, and the next charge that
// is granted converts it. A caller that was told to wait waits that long. The next free instant of a
// warm-up stays.
func TestUpdateOfRatesThatOwe(t *testing.T) {
	type do struct {
		after time.Duration
		rate  stint.Limit // the new one, or none
		cost  int64
		wait  time.Duration
	}
	const ms, us = time.Millisecond, time.Microsecond
	bursty := func(n int64, per time.Duration, burst int64) stint.Limit {
		return stint.Rate(n, per, stint.WithDebt(), stint.WithBurst(burst))
	}
	warm := func(n int64, d time.Duration) stint.Limit { return stint.Rate(n, time.Second, stint.WithWarmUp(d)) }
	none := stint.Limit{}
	tests := []struct {
		name  string
		first stint.Limit
		steps []do
	}{
		{"a debt is paid at the rate of the last charge", bursty(1, time.Second, 0), []do{
			{cost: 1}, {cost: 1, wait: time.Second},
			{rate: bursty(2, time.Second, 0), cost: 1, wait: 500 * ms}, // one token is owed
			{cost: 2, wait: 500 * ms}, {cost: 4, wait: time.Second}, {cost: 1, wait: 2 * time.Second},
		}},
		{"slower", bursty(10, time.Second, 0), []do{
			{cost: 5}, {rate: bursty(1, time.Second, 0), cost: 3, wait: 5 * time.Second}, // five tokens are owed
			{cost: 1, wait: 3 * time.Second}, {cost: 1, wait: time.Second},
		}},
		{"a debt half paid", bursty(1, time.Second, 0), []do{
			{cost: 4}, {after: time.Second, rate: bursty(100, time.Second, 0), cost: 100, wait: 30 * ms},
			{cost: 1, wait: time.Second},
		}},
		{"updated twice in between", bursty(1, time.Second, 0), []do{
			{cost: 4}, {rate: bursty(100, time.Second, 0)}, {rate: bursty(2, time.Second, 0), cost: 1, wait: 2 * time.Second},
			{cost: 1, wait: 500 * ms},
		}},
		{"back to the rate before", bursty(1, time.Second, 0), []do{
			{cost: 2}, {rate: bursty(2, time.Second, 0), cost: 2, wait: time.Second},
			{rate: bursty(1, time.Second, 0), cost: 1, wait: 2 * time.Second}, {cost: 1, wait: time.Second},
		}},
		{"what has been saved up counts as consumed or not, not as a share", bursty(1, time.Second, 10), []do{
			{cost: 4}, {rate: bursty(1, time.Second, 20), cost: 17}, // 16 saved, and one on credit
			{cost: 1, wait: time.Second},
		}},
		{"what has been saved up is cut to what can be", bursty(1, time.Second, 10), []do{
			{cost: 2}, {rate: bursty(2, time.Second, 3), cost: 2}, // 1 saved, and one on credit
			{cost: 1, wait: 500 * ms},
		}},
		{"all saved up", bursty(1, time.Second, 10), []do{
			{rate: bursty(1, time.Second, 3), cost: 4}, {cost: 1, wait: time.Second},
		}},
		{"warm up, twice the rate while it warms", warm(2, 4*time.Second), []do{
			{cost: 1}, {cost: 1, wait: 1375 * ms}, {cost: 1, wait: 1125 * ms}, {cost: 1, wait: 875 * ms},
			{cost: 1, wait: 625 * ms}, {cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms},
			{after: 4500 * ms, cost: 1}, {cost: 1, wait: 1375 * ms}, {cost: 1, wait: 1125 * ms},
			{rate: warm(4, 4*time.Second), cost: 1, wait: 875 * ms}, // owed at the old rate
			{cost: 1, wait: 343750 * us}, {cost: 1, wait: 281250 * us}, {cost: 1, wait: 250 * ms}, {cost: 1, wait: 250 * ms},
			{after: 4250 * ms, cost: 1}, {cost: 1, wait: 718750 * us}, {cost: 1, wait: 656250 * us},
		}},
		{"warm up, slower while it is warm", warm(4, 4*time.Second), []do{
			{cost: 16}, {rate: warm(2, 4*time.Second), cost: 1, wait: 6 * time.Second},
			{cost: 1, wait: 500 * ms}, {cost: 1, wait: 500 * ms},
		}},
		{"warm up, still cold", warm(2, 4*time.Second), []do{
			{rate: warm(4, 4*time.Second), cost: 1}, {cost: 1, wait: 718750 * us},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, tt.first, theKey)
				for i, s := range tt.steps {
					time.Sleep(s.after)
					if s.rate != none {
						update(t, l, s.rate, theKey)
					}
					if s.cost == 0 {
						continue
					}
					start := time.Now()
					ctx, cancel := contextFor(t, time.Hour) // without a deadline it would ask again, and reserve nothing
					if _, err := l.Wait(ctx, "k", s.cost); err != nil {
						t.Fatalf("step %d: %v", i+1, err)
					}
					cancel()
					if got := time.Since(start); got != s.wait {
						t.Errorf("step %d: waited %v, want %v", i+1, got, s.wait)
					}
				}
			})
		})
	}
}

// The turn that a line holds stays as it was granted; all other callers follow the Update.
func TestUpdateWhileTheyWait(t *testing.T) {
	rate := func(n int64) []stint.Option {
		return []stint.Option{theKey, stint.Rate(n, time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Minute))}
	}
	tests := []struct {
		name  string
		to    []stint.Option
		leave int // who leaves after 500 ms; 0 for none
		want  string
	}{
		// The first has its turn; all others follow at the new rate.
		{"faster", rate(2), 0, "0:0s 1:1s 2:1.5s 3:2s 4:2.5s 5:3s"},
		{"the same", rate(1), 0, "0:0s 1:1s 2:2s 3:3s 4:4s 5:5s"},
		{"slower", []stint.Option{theKey, stint.Rate(1, 2*time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Minute))}, 0,
			"0:0s 1:1s 2:3s 3:5s 4:7s 5:9s"},
		{"the same, and one leaves", rate(1), 2, "0:0s 1:1s 3:2s 4:3s 5:4s"},
		{"gone", []stint.Option{theKey, stint.Quota(100, stint.Daily)}, 0, "0:0s 1:1s 2:2s 3:3s 4:0s 5:0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, rate(1)...)
				start := time.Now()
				var mu sync.Mutex
				var log []string
				var wg sync.WaitGroup
				enter := func(i int) {
					ctx, cancel := context.WithCancel(t.Context())
					if i > 0 && i == tt.leave {
						time.AfterFunc(500*time.Millisecond, cancel)
					}
					wg.Go(func() {
						defer cancel()
						through(l, get("/").WithContext(ctx), func(http.ResponseWriter, *http.Request) {
							mu.Lock()
							defer mu.Unlock()
							log = append(log, fmt.Sprintf("%d:%v", i, time.Since(start)))
						})
					})
					synctest.Wait()
				}
				for i := range 4 {
					enter(i)
				}
				update(t, l, tt.to...)
				enter(4)
				enter(5)
				wg.Wait()
				slices.Sort(log)
				if got := strings.Join(log, " "); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// More slots admit the line at once and in order; fewer admit no one until enough are
// free, whoever came before the update.
func TestUpdateOfSlots(t *testing.T) {
	slots := func(n int64, more ...stint.Option) []stint.Option {
		return append(more, theKey, stint.Concurrency(n, stint.WithQueue(10), stint.WithMaxWait(time.Minute)), stint.Rate(1000, time.Second))
	}
	tests := []struct {
		name     string
		from     int64
		to       []stint.Option
		want     string // who goes in when; each takes 10 s, six come, the update is after 1 s
		policy   string // of who waited
		straight bool   // one more comes with the update and needn't wait
	}{
		{"larger by two", 2, slots(4), "0:0s 1:0s 2:1s 3:1s 4:10s 5:10s 6:11s", `"concurrency";q=4`, false},
		{"larger than the line", 2, slots(9), "0:0s 1:0s 2:1s 3:1s 4:1s 5:1s 6:1s", `"concurrency";q=9`, true},
		{"smaller", 3, slots(1), "0:0s 1:0s 2:0s 3:10s 4:20s 5:30s 6:40s", `"concurrency";q=1`, false},
		{"the same", 2, slots(2), "0:0s 1:0s 2:10s 3:10s 4:20s 5:20s 6:30s", `"concurrency";q=2`, false},
		{"gone", 2, []stint.Option{theKey, stint.Rate(1000, time.Second)}, "0:0s 1:0s 6:1s 2:10s 3:10s 4:20s 5:20s", `"concurrency";q=2`, true},
		{"with less of the other", 2, []stint.Option{theKey, stint.Concurrency(4, stint.WithQueue(10), stint.WithMaxWait(time.Minute)), stint.Rate(7, 1000*time.Hour)},
			"0:0s 1:0s 2:1s 3:1s 4:10s 5:10s 6:11s", `"concurrency";q=4`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := limiter(t, slots(tt.from)...)
				start := time.Now()
				var mu sync.Mutex
				var log []string
				var wg sync.WaitGroup
				enter := func(i int) {
					wg.Go(func() {
						w := through(l, get("/"), func(http.ResponseWriter, *http.Request) {
							mu.Lock()
							log = append(log, fmt.Sprintf("%d:%v", i, time.Since(start)))
							mu.Unlock()
							time.Sleep(10 * time.Second)
						})
						if got := w.Header().Get("RateLimit-Policy"); i == 5 && !strings.HasPrefix(got, tt.policy) {
							t.Errorf("who waited is told %s, want %s", got, tt.policy)
						}
					})
					synctest.Wait()
				}
				for i := range 6 {
					enter(i)
				}
				time.Sleep(time.Second)
				update(t, l, tt.to...)
				if tt.straight {
					synctest.Wait()
				}
				enter(6)
				wg.Wait()
				// Of those who go in at one instant, any handler may be first
				// to say so.
				slices.SortStableFunc(log, func(a, b string) int {
					i, at, _ := strings.Cut(a, ":")
					j, bt, _ := strings.Cut(b, ":")
					ad, _ := time.ParseDuration(at)
					bd, _ := time.ParseDuration(bt)
					return cmp.Or(cmp.Compare(ad, bd), cmp.Compare(i, j))
				})
				if got := strings.Join(log, " "); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if d, _ := l.Peek(t.Context(), "k"); len(d.Limits) == 2 && d.Limits[0].Remaining != d.Limits[0].Capacity {
					t.Errorf("%d of %d slots free at the end", d.Limits[0].Remaining, d.Limits[0].Capacity)
				}
			})
		})
	}
}

// The same on real stores: slots that are held count against the new number.
func TestUpdateOfSlotsInStores(t *testing.T) {
	slots := func(n int64, wait ...stint.SlotOption) stint.Option {
		return stint.Concurrency(n, append(wait, stint.WithName("concurrency"))...)
	}
	overStores(t, func(t *testing.T, s store.Store) {
		l := limiter(t, slots(2), theKey, stint.WithStore(s))
		held := []*stint.Permit{take(t, l, 1), take(t, l, 1)}
		full := func(when string) {
			t.Helper()
			if p, err := l.Take(t.Context(), "k", 1); err == nil {
				p.Done()
				t.Errorf("%s: admitted", when)
			}
		}
		full("2 of 2")
		update(t, l, slots(1), theKey)
		full("2 of 1")
		held[0].Done()
		full("1 of 1")
		held[1].Done()
		held = []*stint.Permit{take(t, l, 1)}

		// Three wait for the one slot; with four, all get in while it is held.
		update(t, l, slots(1, stint.WithQueue(3), stint.WithMaxWait(time.Minute)), theKey)
		in := make(chan *stint.Permit, 3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := l.Take(t.Context(), "k", 1)
				if err != nil {
					t.Error(err)
				}
				in <- p
			})
		}
		update(t, l, slots(4, stint.WithMaxWait(time.Minute)), theKey)
		wg.Wait()
		for range 3 {
			held = append(held, <-in)
		}
		update(t, l, slots(4), theKey)
		full("4 of 4")
		for _, p := range held {
			p.Done()
		}
		check(t, l, "all released", "concurrency 4/4")
	})
}

// Equivalent updates under load: never more passes than allowed, and no waiter is lost.
func TestUpdateUnderLoad(t *testing.T) {
	const burst, slots = 50, 4
	rate := stint.WithBurst(burst)
	ways := [][]stint.Option{ // one in ten hours, and 4 at a time, in three spellings
		{theKey, stint.Rate(1, 10*time.Hour, rate), stint.Concurrency(slots)},
		{theKey, stint.Concurrency(slots), stint.Rate(2, 20*time.Hour, rate)},
		{theKey, stint.Rate(3, 30*time.Hour, rate), stint.Concurrency(slots, stint.WithMaxWait(time.Millisecond)), stint.WithHeaders(stint.XRateLimitHeaders)},
	}
	l := limiter(t, ways[0]...)
	inner := derive(t, l, stint.Rate(1<<20, time.Hour, stint.WithName("inner")))
	var admitted, denials, inside atomic.Int64
	stop := make(chan struct{})
	var updates sync.WaitGroup
	updates.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				update(t, l, ways[i%len(ways)]...)
			}
		}
	})
	updates.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				update(t, inner, stint.Rate(1<<20+int64(i%2), time.Hour, stint.WithName("inner")))
			}
		}
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				switch (g + i) % 4 {
				case 0:
					p, err := l.Take(t.Context(), "k", 1)
					if err == nil {
						if n := inside.Add(1); n > slots {
							t.Errorf("%d inside, want %d at the most", n, slots)
						}
						admitted.Add(1)
						inside.Add(-1)
						p.Done()
					} else if !errors.As(err, new(*stint.DeniedError)) {
						t.Error(err)
					}
				default:
					w := through(l, get("/"), func(w http.ResponseWriter, r *http.Request) {
						if n := inside.Add(1); n > slots {
							t.Errorf("%d inside, want %d at the most", n, slots)
						}
						admitted.Add(1)
						mount(inner, nil).ServeHTTP(w, r) // charges nothing twice
						inside.Add(-1)
					})
					draft, legacy := w.Header().Get("RateLimit-Policy"), w.Header().Get("X-RateLimit-Limit")
					// An inner limiter that an Update comes before has the new one's fields.
					if both := draft != "" && legacy != ""; draft == "" && legacy == "" || both && w.Code == 429 {
						t.Errorf("%d with the fields of no or of two configurations: %v", w.Code, w.Header())
					}
					if w.Code == 429 {
						denials.Add(1)
					} else if w.Code != 200 {
						t.Errorf("got %d", w.Code)
					}
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	updates.Wait()
	if got := admitted.Load(); got != burst {
		t.Errorf("%d admitted, want %d", got, burst)
	}
	if denials.Load() == 0 {
		t.Error("nothing was denied: no load")
	}
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Limits {
		if s.Name == "rate" && s.Remaining != 0 || s.Name == "concurrency" && s.Remaining != slots {
			t.Errorf("at the end: %+v", s)
		}
	}
}

// attributes returns one attribute of each line with a message.
func attributes(lines []map[string]any, message, name string) (all []string) {
	for _, line := range lines {
		if line["msg"] == "stint: "+message {
			all = append(all, fmt.Sprint(line[name]))
		}
	}
	return all
}

// A limiter that is made says at debug level what it has, and where that is counted.
func TestNewLimitersAreLogged(t *testing.T) {
	h := newLogged(slog.LevelDebug)
	l := limiter(t, stint.Rate(100, time.Minute, stint.WithName("api"), stint.WithBurst(20)), stint.WithKey(stint.RemoteIP()),
		stint.Quota(1000, stint.Daily, stint.WithName("daily"), stint.WithDryRun(true)),
		stint.WithRoute("POST /login", stint.Rate(5, time.Hour, stint.WithName("login"), stint.WithMaxWait(2*time.Second))),
		stint.WithLimiterName("front"), h.with(), stint.WithStore(newSpy()))
	derive(t, l, stint.Concurrency(3, stint.WithName("slots"), stint.WithKey(stint.Global()), stint.WithFailurePolicy(stint.FailClosed)), stint.WithStore(memstore.New()))
	lines := h.lines(t)
	want := []string{`limit api: TokenBucket: 100 per minute, burst 20, by RemoteIP(); limit daily: FixedWindow: 1000 daily, by RemoteIP(), in a dry run; ` +
		`limit login of POST /login: TokenBucket: 5 per hour, burst 5, by RemoteIP(), waits up to 2s`}
	want = append(want, want[0]+"; limit slots: Concurrency: 3, by Global(), closed if the store fails")
	got := attributes(lines, "a limiter is made", "limits")
	if len(got) != 2 || got[0] != want[0] || !strings.Contains(got[1], "slots") {
		t.Fatalf("logged\n%q\nwant\n%q", got, want)
	}
	if lines[0]["level"] != "DEBUG" || lines[0]["store"] != "storefake.Store" || lines[1]["store"] != "memory of this process" || lines[0]["limiter"] != "front" {
		t.Errorf("%v", lines)
	}
	h = newLogged(slog.LevelInfo)
	through(limiter(t, stint.Rate(1, time.Hour), theKey, h.with()), get("/"), nil)
	if lines := h.lines(t); len(lines) > 0 {
		t.Errorf("without debug: %v", lines)
	}
}

// An Update says what it has changed of the limits, and one that has changed none says nothing.
func TestUpdatesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLogged(slog.LevelInfo)
		key := stint.WithKey(stint.RemoteIP())
		api := func(n int64, opts ...stint.RateOption) stint.Limit {
			return stint.Rate(n, time.Minute, append(opts, stint.WithName("api"))...)
		}
		other := func(n int64) stint.Limit { return stint.Rate(n, time.Minute, stint.WithName("other")) }
		login := func(opts ...stint.RouteOption) stint.Option { return stint.WithRoute("POST /login", opts...) }
		l := limiter(t, api(60), key, h.with(), login(other(5)))
		daily := stint.Quota(1000, stint.Daily, stint.WithName("daily"))
		for _, step := range []struct {
			opts []stint.Option
			want []string
		}{
			{[]stint.Option{api(60), key, login(other(5))}, nil},
			{[]stint.Option{api(100), key, login(other(5), stint.WithFixedCost(2)), daily}, []string{
				"limit api: TokenBucket: 100 per minute, burst 100, was 60 per minute, burst 60; limit daily added: FixedWindow: 1000 daily, by RemoteIP()"}},
			{[]stint.Option{api(100, stint.WithKey(stint.Global()), stint.WithDryRun(true)), stint.WithoutRoutes()}, []string{
				"limit api: by Global(), was by RemoteIP(); limit api: in a dry run, was enforced; limit daily removed; limit other of POST /login removed"}},
			{[]stint.Option{stint.Quota(7, stint.Hourly, stint.WithName("api")), key}, []string{
				"limit api: FixedWindow: 7 hourly, was TokenBucket: 100 per minute, burst 100; limit api: by RemoteIP(), was by Global(); limit api: enforced, was in a dry run"}},
		} {
			update(t, l, step.opts...)
			synctest.Wait()
			if got := attributes(h.lines(t), "the limits have changed", "changes"); fmt.Sprint(got) != fmt.Sprint(step.want) {
				t.Errorf("logged\n%q\nwant\n%q", got, step.want)
			}
			if step.want != nil {
				time.Sleep(61 * time.Second)
			}
		}
		update(t, l, stint.Quota(8, stint.Hourly, stint.WithName("api")), key)
		h.lines(t)
		// What comes within a minute waits for its end, and the line says what all have changed.
		for n := range int64(4) {
			update(t, l, api(100+n), key)
		}
		if lines := h.lines(t); len(lines) > 0 {
			t.Errorf("a second line in the minute: %v", lines)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "limit api: TokenBucket: 103 per minute, burst 103, was FixedWindow: 8 hourly"
		if got := attributes(h.lines(t), "the limits have changed", "changes"); len(got) != 1 || got[0] != want {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}

// What dry runs would have denied is logged at debug level, with or without observers.
func TestDryRunsAreLogged(t *testing.T) {
	h := newLogged(slog.LevelDebug)
	l := limiter(t, theKey, h.with(), stint.Rate(10, 24*time.Hour, stint.WithName("small"), stint.WithDryRun(true)),
		stint.Rate(30, 24*time.Hour, stint.WithName("large"), stint.WithDryRun(true)), stint.Rate(1000, time.Second, stint.WithName("enforced")))
	for range 40 {
		through(l, get("/"), nil)
	}
	got := strings.Join(attributes(h.lines(t), "a limit in a dry run would have denied a request", "limit"), " ")
	if small, large := strings.Count(got, "small"), strings.Count(got, "large"); small != 30 || large != 10 {
		t.Errorf("logged %d of small and %d of large: %s", small, large, got)
	}
}
