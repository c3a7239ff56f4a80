package stint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

func derive(t testing.TB, l *stint.Limiter, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	d, err := l.With(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// limits is what a limiter has, with what is left: "rate 3/5 daily 9/9".
func limits(t testing.TB, l *stint.Limiter) string {
	t.Helper()
	d, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range d.Limits {
		all = append(all, fmt.Sprintf("%s %d/%d", s.Name, s.Remaining, s.Quota))
	}
	return strings.Join(all, " ")
}

func check(t testing.TB, l *stint.Limiter, when, want string) {
	t.Helper()
	if got := limits(t, l); got != want {
		t.Errorf("%s: %s, want %s", when, got, want)
	}
}

// A derived limiter is what With would now make of its parent, and keeps what its own
// limits have counted under their names.
func TestUpdateIsFollowed(t *testing.T) {
	own := stint.Rate(100, time.Hour) // rate-2
	parent := limiter(t, stint.Rate(10, time.Hour), theKey)
	child := derive(t, parent, own, stint.WithDenyHandler(stint.PlainText("child")))
	grandchild := derive(t, child, stint.Quota(50, stint.Monthly))
	sibling := derive(t, parent, stint.Quota(9, stint.Weekly), stint.WithMemory())
	take(t, grandchild, 4)
	take(t, sibling, 1)

	update(t, parent, stint.Rate(20, time.Hour), stint.Rate(7, time.Minute), theKey, stint.WithDenyHandler(stint.PlainText("parent")))
	check(t, parent, "parent", "rate 16/20 rate-3 7/7")
	check(t, child, "child", "rate 16/20 rate-3 7/7 rate-2 96/100")
	check(t, grandchild, "grandchild", "rate 16/20 rate-3 7/7 rate-2 96/100 monthly 46/50")
	check(t, sibling, "sibling, which has another store", "rate 19/20 rate-3 7/7 weekly 8/9")

	update(t, child, stint.Rate(200, time.Hour))
	check(t, parent, "parent of an updated limiter", "rate 16/20 rate-3 7/7")
	check(t, child, "child", "rate 16/20 rate-3 7/7 rate-2 196/200")
	check(t, grandchild, "grandchild", "rate 16/20 rate-3 7/7 rate-2 196/200 monthly 46/50")
	if w := refused(t, child); w.Body.String() != "parent" {
		t.Errorf("the child's own handler was replaced by none, and it answers %q", w.Body)
	}

	update(t, child)
	check(t, child, "child that adds nothing", "rate 9/20 rate-3 0/7")
	update(t, sibling, stint.Quota(8, stint.Weekly))
	check(t, sibling, "its store after an update without one", "rate 19/20 rate-3 7/7 weekly 7/8")
	update(t, parent, stint.Rate(20, time.Hour), theKey)
	check(t, sibling, "its store after its parent's", "rate 19/20 weekly 7/8")
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
	if err := parent.Update(lone, theKey); err == nil || !strings.Contains(err.Error(), `derived by With: limit "lone": inherited already`) {
		t.Errorf("a limit that a derived limiter adds: %v", err)
	}
	check(t, child, "after it", "rate 1/1 lone 1/1")
}

// refused uses a limiter up, and returns how it refuses.
func refused(t testing.TB, l *stint.Limiter) *httptest.ResponseRecorder {
	t.Helper()
	for range 1000 {
		if w := through(l, get("/"), nil); w.Code != 200 {
			return w
		}
	}
	t.Fatal("nothing is refused")
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
			update(t, f.parent, theKey, stint.WithRoute("/nowhere"))
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
