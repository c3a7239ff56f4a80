package routers

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimw "github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	"github.com/rs/cors"
	"github.com/uptrace/bunrouter"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/adaptertest"
)

// The table of docs/routers.md is true.
func TestMountings(t *testing.T) {
	for _, m := range []adaptertest.Mounting{
		{Router: "net/http", Site: mountedOnMux, Stripped: true, Timeout: outer(timeout), CORS: outer(cors.Default().Handler)},
		{Router: "chi", Site: mountedOnChi, Recovery: outer(chimw.Recoverer), Timeout: outer(chimw.Timeout(time.Second)), CORS: outer(cors.Default().Handler)},
		{Router: "gorilla/mux", Site: mountedOnGorilla, Recovery: outer(handlers.RecoveryHandler()), CORS: outer(handlers.CORS())},
		{Router: "httprouter", Site: mountedOnHTTPRouter, Stripped: true, CORS: outer(cors.Default().Handler)},
		{Router: "bunrouter", Site: mountedOnBun, CORS: outer(cors.Default().Handler)},
		{Router: "gin", Site: mountedOnGin, Redirects: true, Recovery: ginOuter(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(500) })), CORS: ginOuter(ginCORS)},
		{Router: "echo v4", Site: mountedOnEcho, Recovery: echoOuter(echomw.Recover()), CORS: echoOuter(echomw.CORS()), Timeout: echoOuter(echomw.ContextTimeout(time.Second))},
	} {
		t.Run(m.Router, func(t *testing.T) { adaptertest.TestMounting(t, m) })
	}
}

func timeout(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Second, "") }

// outer mounts middleware of net/http and a limiter, one around the other.
func outer(m wrapper) adaptertest.Around {
	return func(l *stint.Limiter, outside bool, do http.HandlerFunc) http.Handler {
		if outside {
			return chain(do, m, stinthttp.Middleware(l))
		}
		return chain(do, stinthttp.Middleware(l), m)
	}
}

func ginOuter(m gin.HandlerFunc) adaptertest.Around {
	return func(l *stint.Limiter, outside bool, do http.HandlerFunc) http.Handler {
		e := gin.New()
		if outside {
			e.Use(m, stintgin.Middleware(l))
		} else {
			e.Use(stintgin.Middleware(l), m)
		}
		e.GET("/", func(c *gin.Context) { do(c.Writer, c.Request) })
		return e
	}
}

// ginCORS does what gin-contrib/cors does.
func ginCORS(c *gin.Context) {
	cors.Default().HandlerFunc(c.Writer, c.Request)
	if c.Request.Method == http.MethodOptions {
		c.AbortWithStatus(http.StatusNoContent)
	}
}

func echoOuter(m echo.MiddlewareFunc) adaptertest.Around {
	return func(l *stint.Limiter, outside bool, do http.HandlerFunc) http.Handler {
		e := echo.New()
		e.Logger.SetOutput(nowhere{})
		if outside {
			e.Use(m, stintecho.Middleware(l))
		} else {
			e.Use(stintecho.Middleware(l), m)
		}
		e.GET("/", func(c echo.Context) error { do(c.Response(), c.Request()); return nil })
		return e
	}
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

var served = adaptertest.Route{}.Handler()

func mountedOnMux(front, group, route *stint.Limiter) http.Handler {
	m, api := http.NewServeMux(), http.NewServeMux()
	m.Handle("/api/", http.StripPrefix("/api", stinthttp.Middleware(group)(api)))
	api.Handle("GET /users/{id}", stinthttp.Middleware(route)(served))
	return stinthttp.Middleware(front)(m)
}

func mountedOnChi(front, group, route *stint.Limiter) http.Handler {
	m := chi.NewRouter()
	m.Use(stinthttp.Middleware(front))
	m.Route("/api", func(api chi.Router) {
		api.Use(stinthttp.Middleware(group))
		api.With(stinthttp.Middleware(route)).Get("/users/{id}", served)
	})
	return m
}

func mountedOnGorilla(front, group, route *stint.Limiter) http.Handler {
	m := mux.NewRouter()
	api := m.PathPrefix("/api").Subrouter()
	api.Use(withTemplate, stinthttp.Middleware(group))
	api.Handle("/users/{id}", stinthttp.Middleware(route)(served)).Methods("GET")
	return stinthttp.Middleware(front)(m)
}

func mountedOnHTTPRouter(front, group, route *stint.Limiter) http.Handler {
	m, api := httprouter.New(), httprouter.New()
	m.Handler("GET", "/api/*rest", http.StripPrefix("/api", stinthttp.Middleware(group)(api)))
	api.GET("/users/:id", limited(route, "GET /users/:id", func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) { served(w, r) }))
	return stinthttp.Middleware(front)(m)
}

func mountedOnBun(front, group, route *stint.Limiter) http.Handler {
	m := bunrouter.New()
	m.NewGroup("/api", bunrouter.Use(limitBun(group))).NewGroup("", bunrouter.Use(limitBun(route))).
		GET("/users/:id", func(w http.ResponseWriter, req bunrouter.Request) error { served(w, req.Request); return nil })
	return stinthttp.Middleware(front)(m)
}

func mountedOnGin(front, group, route *stint.Limiter) http.Handler {
	e := gin.New()
	e.Use(stintgin.Middleware(front))
	e.Group("/api", stintgin.Middleware(group)).GET("/users/:id", stintgin.Middleware(route), gin.WrapF(served))
	return e
}

func mountedOnEcho(front, group, route *stint.Limiter) http.Handler {
	e := echo.New()
	e.Use(stintecho.Middleware(front))
	e.Group("/api", stintecho.Middleware(group)).GET("/users/:id", echo.WrapHandler(served), stintecho.Middleware(route))
	return e
}

// Why the table has limiters around gorilla/mux and bunrouter: which requests their Use sees.
func TestUseSeesNotAll(t *testing.T) {
	one := func() *stint.Limiter {
		return stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.Global())))
	}
	gorilla := func() http.Handler {
		m := mux.NewRouter()
		m.Use(stinthttp.Middleware(one()))
		m.Handle("/users/{id}", served)
		return m
	}
	bun := func() http.Handler {
		m := bunrouter.New(bunrouter.Use(limitBun(one())))
		m.GET("/users/:id", func(w http.ResponseWriter, req bunrouter.Request) error { served(w, req.Request); return nil })
		return m
	}
	for _, test := range []struct {
		router string
		site   func() http.Handler
		path   string
		want   int // of 9
	}{
		{"gorilla/mux", gorilla, "/users/7", 1},
		{"gorilla/mux", gorilla, "//users/7", 9},
		{"gorilla/mux", gorilla, "/nowhere", 9},
		{"bunrouter", bun, "/users/7", 1},
		{"bunrouter", bun, "/users/7/", 9},
		{"bunrouter", bun, "/nowhere", 1},
	} {
		r := "http://example.com" + test.path
		if got := passing(test.site(), 9, "GET", r); got != test.want {
			t.Errorf("%s, %s: %d of 9 pass, want %d", test.router, test.path, got, test.want)
		}
	}
}
