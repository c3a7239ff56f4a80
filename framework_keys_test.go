package stint_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// What requests get by such keys is in the table of middleware_test.go; what becomes
// of a framework's context, in the tests of the adapters.

var (
	ginUser  = stintgin.Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })
	echoUser = stintecho.Key(func(c echo.Context) (string, error) { return c.Get("user").(string), nil })
)

// mounts puts a limiter in front of a handler that answers 204, by each adapter and
// after an authentication of the framework's own.
var mounts = map[string]func(*stint.Limiter) http.Handler{
	"stinthttp": func(l *stint.Limiter) http.Handler {
		return stinthttp.Middleware(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	},
	"stintgin": func(l *stint.Limiter) http.Handler {
		e := gin.New()
		e.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }, stintgin.Middleware(l))
		e.GET("/", func(c *gin.Context) { c.Status(204) })
		return e
	},
	"stintecho": func(l *stint.Limiter) http.Handler {
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { c.Set("user", c.Request().Header.Get("X-User")); return next(c) }
		}, stintecho.Middleware(l))
		e.GET("/", func(c echo.Context) error { return c.NoContent(204) })
		return e
	},
}

// userOf is the user that the framework's authentication has set, in the functions of a
// limiter.
var userOf = map[string]func(*http.Request) (user string, ok bool){
	"stintgin": func(r *http.Request) (string, bool) {
		c, ok := stintgin.Context(r)
		if !ok {
			return "", false
		}
		return c.GetString("user"), true
	},
	"stintecho": func(r *http.Request) (string, bool) {
		c, ok := stintecho.Context(r)
		if !ok {
			return "", false
		}
		user, _ := c.Get("user").(string)
		return user, true
	},
}

// Every function of a limiter sees the framework's context, with each request, until the
// request ends.
func TestFrameworkContext(t *testing.T) {
	for adapter, of := range userOf {
		var asked []string
		var kept []*http.Request
		served := false
		is := func(what string, r *http.Request) bool {
			user, ok := of(r)
			if served && (!ok || user != "ada") {
				t.Errorf("%s, %s: got %q, %v", adapter, what, user, ok)
			}
			asked, kept = append(asked, what), append(kept, r)
			return user == "ada"
		}
		number := func(what string, of int64) func(*http.Request) int64 {
			return func(r *http.Request) int64 { is(what, r); return of }
		}
		plan := stint.Rate(2, time.Hour, stint.WithName("plan"), stint.WithCost(number("cost", 1)),
			stint.WithSettle(func(r *http.Request, _ int, _ int64) int64 { return number("settle", 1)(r) }))
		h := mounts[adapter](limiter(t,
			stint.Concurrency(9),
			stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { user, _ := of(r); is("key", r); return user, nil })),
			stint.WithSkip(func(r *http.Request) bool { return !is("skip", r) }),
			stint.WithBlock(func(r *http.Request) bool { return !is("block", r) }),
			stint.WithPriority(func(r *http.Request) int { is("priority", r); return 1 }),
			stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) { is("limits", r); return []stint.Limit{plan}, nil }),
			stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { is("deny", r); w.WriteHeader(420) }))))
		kept, served = nil, true // New has called some of them
		for _, want := range []int{204, 204, 420} {
			asked = nil
			if got := asUser(h, "ada"); got != want {
				t.Errorf("%s: %d, want %d", adapter, got, want)
			}
			sequence := "skip block priority key limits cost settle"
			if want == 420 {
				sequence = "skip block priority key limits cost deny"
			}
			slices.Sort(asked)
			all := strings.Fields(sequence)
			if slices.Sort(all); !slices.Equal(asked, all) {
				t.Errorf("%s: asked %q, want %q", adapter, asked, all)
			}
		}
		for _, r := range kept {
			if user, ok := of(r); ok {
				t.Errorf("%s: a request that has ended leads to %q", adapter, user)
			}
		}
		if _, ok := of(get("/")); ok {
			t.Errorf("%s: a request from elsewhere leads to a context", adapter)
		}
	}
}

func asUser(h http.Handler, user string) int {
	w, r := httptest.NewRecorder(), get("/")
	r.Header.Set("X-User", user)
	h.ServeHTTP(w, r)
	return w.Code
}

// A limiter with another framework's key is denied when it is mounted, wherever the
// key is, and the error says what to write.
func TestFrameworkKeyIsDeniedElsewhere(t *testing.T) {
	byAddress, user := stint.WithKey(stint.RemoteIP()), stint.WithKey(ginUser)
	rate := stint.Rate(1, time.Hour)
	func1 := stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, nil })
	for name, l := range map[string]*stint.Limiter{
		"by default":      limiter(t, user, rate),
		"of one":          limiter(t, byAddress, rate, stint.Quota(1, stint.Daily, user)),
		"on a route":      limiter(t, byAddress, rate, stint.WithRoute("/a", user, stint.Quota(1, stint.Daily))),
		"inherited":       derive(t, limiter(t, user, rate), stint.Quota(1, stint.Daily, byAddress)),
		"of a limit func": limiter(t, user, stint.Rate(1, time.Hour, byAddress), func1),
		"joined":          limiter(t, stint.WithKey(stint.Join(stint.Header("X-Tenant"), ginUser)), rate),
		"after a failure": limiter(t, stint.WithKey(stint.Join(stint.KeyFunc(failing), ginUser)), rate),
		"hashed":          limiter(t, stint.WithKey(stint.Hash(secret, ginUser)), rate),
		"first of":        limiter(t, stint.WithKey(stint.FirstOf(ginUser, stint.RemoteIP())), rate),
	} {
		for adapter, mount := range mounts {
			err := panicOf(func() { mount(l) })
			if adapter == "stintgin" {
				if err.Error() != "no panic with an error" {
					t.Errorf("%s, mounted by %s: %v", name, adapter, err)
				}
				continue
			}
			want := "stintgin.Key, which requests through " + adapter + " don't have: mount the limiter with stintgin, or write a stint.KeyFunc of the request"
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s, mounted by %s: %v", name, adapter, err)
			}
		}
	}
	// Of two frameworks, one is always another.
	both := limiter(t, rate, stint.WithKey(stint.Join(ginUser, echoUser)))
	for adapter, mount := range mounts {
		if err := panicOf(func() { mount(both) }); !strings.Contains(err.Error(), ".Key, which requests through "+adapter) {
			t.Errorf("of two frameworks, mounted by %s: %v", adapter, err)
		}
	}
	for _, k := range []stint.Key{stintgin.Key(nil), stintecho.Key(nil)} {
		if _, err := stint.New(rate, stint.WithKey(k)); err == nil || !strings.Contains(err.Error(), "WithKey(KeyFunc(nil)): write a function") {
			t.Errorf("Key(nil): %v", err)
		}
	}
}

func failing(*http.Request) (string, error) { return "", errors.New("no session") }

// An Update may bring a key that the adapter doesn't have: no request passes because of
// it, and the error says what to write. A key that it has takes effect at once.
func TestFrameworkKeyByUpdate(t *testing.T) {
	for adapter, mount := range mounts {
		for key, k := range map[string]stint.Key{"stintgin": ginUser, "stintecho": echoUser} {
			seen := &events{}
			l := limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()))
			h := mount(l)
			update(t, l, stint.Rate(1, time.Hour), stint.WithKey(k), seen.option())
			first, second := asUser(h, "ada"), asUser(h, "ada")
			if adapter == key {
				if first != 204 || second != 429 {
					t.Errorf("%s with a key of its own: %d, %d", adapter, first, second)
				}
				continue
			}
			err := seen.last().Err
			want := "stint: limit rate: " + key + ".Key: the request has not come through " + key + ": mount the limiter with " + key
			if first != 500 || second != 500 || seen.kinds() != "Updated KeyFailed KeyFailed" || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s with a key of %s: %d, %d, %s: %v", adapter, key, first, second, seen.kinds(), err)
			}
		}
	}
}

// Limits that a limiter doesn't know beforehand have such keys too, and so have functions of
// the framework's context that read other keys.
func TestFrameworkKeyOfALimitFunc(t *testing.T) {
	calls := 0
	or := stintgin.Key(func(c *gin.Context) (string, error) {
		calls++
		if user, err := ginUser.Of(c.Request); err != nil || user != "" {
			return user, err
		}
		return stint.RemoteIP().Of(c.Request)
	})
	unseen := stint.Rate(2, time.Hour, stint.WithName("unseen"), stint.WithKey(or))
	h := mounts["stintgin"](limiter(t, stint.WithKey(stint.Global()), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{unseen}, nil
	})))
	for _, user := range []string{"ada", ""} {
		for i, want := range []int{204, 204, 429} {
			calls = 0
			if got := asUser(h, user); got != want || calls != 1 {
				t.Errorf("%q, request %d: %d after %d calls, want %d", user, i+1, got, calls, want)
			}
		}
	}
}

// Outside HTTP the given key is used, as for every key that isn't constant.
func TestFrameworkKeyOutsideHTTP(t *testing.T) {
	l := limiter(t, stint.Rate(2, time.Hour), stint.WithKey(ginUser))
	h := mounts["stintgin"](l)
	if got := asUser(h, "ada"); got != 204 {
		t.Fatal(got)
	}
	ctx := context.Background()
	if d, err := l.Peek(ctx, "ada"); err != nil || d.Remaining != 1 {
		t.Errorf("Peek: %+v, %v", d, err)
	}
	if err := l.Allow(ctx, "ada", 1); err != nil {
		t.Error(err)
	}
	if _, err := l.Take(ctx, "ada", 1); denied(t, err).Decision.Limit != "rate" {
		t.Error(err)
	}
	if err := l.Reset(ctx, "ada"); err != nil || asUser(h, "ada") != 204 {
		t.Errorf("Reset: %v", err)
	}
}

// A limiter with such a key pays no more than others.
func TestFrameworkKeyAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for adapter, own := range map[string]stint.Key{"stintgin": ginUser, "stintecho": echoUser} {
		allocs := func(k stint.Key, opts ...stint.Option) float64 {
			h := mounts[adapter](limiter(t, append(opts, ample(), stint.WithKey(k))...))
			r, w := get("/"), &discard{h: http.Header{}}
			r.Header.Set("X-User", "ada")
			return testing.AllocsPerRun(100, func() {
				w.reset()
				r.Pattern = ""
				h.ServeHTTP(w, r)
			})
		}
		plain, copied := allocs(stint.Header("X-User")), allocs(stint.Header("X-User"), stint.WithoutPermit())
		if got := allocs(own); got != plain {
			t.Errorf("%s: %v allocations, %v with a key of the request", adapter, got, plain)
		}
		if got := allocs(own, stint.WithoutPermit()); got != copied {
			t.Errorf("%s, without a permit: %v allocations, %v with a key of the request", adapter, got, copied)
		}
	}
}
