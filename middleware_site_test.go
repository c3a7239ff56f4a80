package stint_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// site is an application with limits, to be built on each of the routers.
type site struct {
	limits []*stint.Limiter // in front of all routes, outermost first
	// byUser are more of them, inside, by the key that the router's own
	// authentication has: X-User, which it leaves where its handlers look for it.
	byUser func(stint.KeyFunc) []*stint.Limiter
	routes []siteRoute
	// refuse answers what the outermost limits refuse in the router's own way,
	// where that isn't nil: by a handler of its own kind.
	refuse func(w http.ResponseWriter, limit string)
}

// keyed are the site's limits by the router's own key.
func (s site) keyed(k stint.KeyFunc) []*stint.Limiter {
	if s.byUser == nil {
		return nil
	}
	return s.byUser(k)
}

// siteRoute answers every method on a path. Parameters are written {name}.
type siteRoute struct {
	path   string
	limits []*stint.Limiter // in front of this route alone
	do     http.HandlerFunc // nil: 200 and "served"
}

func (r siteRoute) handler() http.HandlerFunc {
	if r.do != nil {
		return r.do
	}
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }
}

// colons writes {name} as :name.
func (r siteRoute) colons() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.path)
}

// A routing is a router, through its adapter.
type routing struct {
	name  string
	build func(site) http.Handler
	// problems: refusals are application/problem+json; else they are what the
	// router's own error handler writes.
	problems bool
}

func init() { gin.SetMode(gin.ReleaseMode) }

var routings = []routing{
	{"std", func(s site) http.Handler {
		mux := http.NewServeMux()
		for _, r := range s.routes {
			h := http.Handler(r.handler())
			for _, l := range slices.Backward(r.limits) {
				h = stinthttp.Middleware(l)(h)
			}
			if r.path == "/" {
				r.path = "/{$}" // the others have no catch-all
			}
			mux.Handle(r.path, h)
		}
		h := http.Handler(mux)
		type user struct{}
		for _, l := range slices.Backward(s.keyed(func(r *http.Request) (string, error) {
			return r.Context().Value(user{}).(string), nil
		})) {
			h = stinthttp.Middleware(l)(h)
		}
		if next := h; s.byUser != nil {
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("X-User"))))
			})
		}
		for _, l := range slices.Backward(s.limits) {
			if s.refuse != nil {
				l = stint.Must(l.With(stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s.refuse(w, stint.DeniedFromContext(r.Context()).Decision.Limit)
				}))))
			}
			h = stinthttp.Middleware(l)(h)
		}
		return h
	}, true},
	{"gin", func(s site) http.Handler {
		e := gin.New()
		for _, l := range s.limits {
			var opts []stint.Option
			if s.refuse != nil {
				opts = append(opts, stintgin.WithDeny(func(c *gin.Context) {
					s.refuse(c.Writer, stint.DeniedFromContext(c.Request.Context()).Decision.Limit)
				}))
			}
			e.Use(stintgin.Middleware(l, opts...))
		}
		for _, l := range s.keyed(stintgin.Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })) {
			e.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }, stintgin.Middleware(l))
		}
		for _, r := range s.routes {
			var chain []gin.HandlerFunc
			for _, l := range r.limits {
				chain = append(chain, stintgin.Middleware(l))
			}
			e.Any(r.colons(), append(chain, func(c *gin.Context) { r.handler()(c.Writer, c.Request) })...)
		}
		return e
	}, true},
	{"echo", func(s site) http.Handler { return onEcho(s) }, false},
	{"echo that writes problems", func(s site) http.Handler { return onEcho(s, stint.WithProblem()) }, true},
}

func onEcho(s site, opts ...stint.Option) http.Handler {
	e := echo.New()
	if s.refuse != nil {
		opts = nil // or there is nothing left to refuse
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
				s.refuse(c.Response(), denied.Decision.Limit)
				return
			}
			e.DefaultHTTPErrorHandler(err, c)
		}
	}
	for _, l := range s.limits {
		e.Use(stintecho.Middleware(l, opts...))
	}
	for _, l := range s.keyed(stintecho.Key(func(c echo.Context) (string, error) { return c.Get("user").(string), nil })) {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { c.Set("user", c.Request().Header.Get("X-User")); return next(c) }
		}, stintecho.Middleware(l, opts...))
	}
	for _, r := range s.routes {
		var chain []echo.MiddlewareFunc
		for _, l := range r.limits {
			chain = append(chain, stintecho.Middleware(l, opts...))
		}
		e.Any(r.colons(), func(c echo.Context) error {
			r.handler()(c.Response(), c.Request())
			return nil
		}, chain...)
	}
	return e
}

// compiled is stint.New for limits that are known to be right.
func compiled(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// front is a site with limits in front of everything.
func front(opts ...stint.Option) func(*testing.T) site {
	return func(t *testing.T) site {
		return site{limits: []*stint.Limiter{compiled(t, opts...)}, routes: []siteRoute{{path: "/"}, {path: "/login"}, {path: "/users/{id}"}}}
	}
}

// forUsers is a site with limits by the key of the router's own authentication.
func forUsers(opts func(stint.KeyFunc) []stint.Option) func(*testing.T) site {
	return func(t *testing.T) site {
		return site{
			byUser: func(k stint.KeyFunc) []*stint.Limiter { return []*stint.Limiter{compiled(t, opts(k)...)} },
			routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "left "+strconv.FormatInt(stint.FromContext(r.Context()).Decision().Remaining, 10))
			}}, {path: "/login"}},
		}
	}
}

// down is a store that answers nothing.
type down struct{}

var errDialing = errors.New("dial tcp 10.1.2.3: refused")

func (down) Take(context.Context, []store.Charge, []store.Result) error   { return errDialing }
func (down) Settle(context.Context, []store.Charge, []store.Result) error { return errDialing }

var (
	byAll = stint.WithKey(stint.Global())
	byKey = stint.WithKey(stint.Header("X-Key"))
)
