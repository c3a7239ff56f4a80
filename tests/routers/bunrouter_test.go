package routers

import (
	"net/http"

	"github.com/uptrace/bunrouter"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/sitetest"
)

// limitBun is an adapter of bunrouter.
func limitBun(lim *stint.Limiter) bunrouter.MiddlewareFunc {
	if err := lim.Mount("bunrouter"); err != nil {
		panic(err)
	}
	return func(next bunrouter.HandlerFunc) bunrouter.HandlerFunc {
		return func(w http.ResponseWriter, req bunrouter.Request) (err error) {
			req.Pattern = req.Route() // for stint.Pattern
			lim.Serve(w, req.Request, func(w http.ResponseWriter, r *http.Request) {
				req.Request = r
				err = next(w, req)
			})
			return err
		}
	}
}

// bunSites are the site as bunrouter routes it. It has no CONNECT, panics on a path with a NUL byte, and
// takes what follows an empty segment for the value of a parameter: /users/:id is /users//7/posts, too.
func bunSites() map[string]http.Handler {
	lim := stint.Must(stint.New(sitetest.LimitsOf("GET /users/{id...}")...))
	m := bunrouter.New(bunrouter.Use(limitBun(lim)))
	m.GET("/users", func(http.ResponseWriter, bunrouter.Request) error { return nil }) // what the three dots match, too
	for _, r := range sitetest.Routes {
		if r.Method == "CONNECT" {
			continue
		}
		m.Handle(r.Method, r.Syntax(":%s", "*%s"), func(w http.ResponseWriter, req bunrouter.Request) error {
			r.Handler()(w, req.Request)
			return nil
		})
	}
	return map[string]http.Handler{"bunrouter": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		m.ServeHTTP(w, r)
	})}
}
