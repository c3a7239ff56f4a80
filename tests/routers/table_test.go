package routers

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
	"github.com/uptrace/bunrouter"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/internal/test/adaptertest"
)

// The table of all adapters, on routers that have none, mounted routers and sub-routers among them:
// each is limited as docs/routers.md says.
func TestTable(t *testing.T) {
	for _, a := range []adaptertest.Adapter{
		{Name: "chi", Build: onChi},
		{Name: "gorilla/mux", Build: onGorilla, Mounting: 2}, // its routes make the chain of middleware anew
		{Name: "httprouter", Build: onHTTPRouter, Pattern: "POST /users/:id"},
		{Name: "bunrouter", Build: onBun, Pattern: "/users/:id"},
	} {
		a.Problems = true
		t.Run(a.Name, func(t *testing.T) { adaptertest.Test(t, a) })
	}
}

type wrapper = func(http.Handler) http.Handler

// chain returns h behind middleware, the first outermost.
func chain(h http.Handler, all ...wrapper) http.Handler {
	for _, m := range slices.Backward(all) {
		h = m(h)
	}
	return h
}

// middlewares returns those of limiters.
func middlewares(limiters []*stint.Limiter) (all []wrapper) {
	for _, l := range limiters {
		all = append(all, stinthttp.Middleware(l))
	}
	return all
}

// fronts are the limiters in front of a site, and those behind its authentication.
func fronts(s adaptertest.Site) (front, keyed []*stint.Limiter) {
	for _, l := range s.Limits {
		if s.Deny != nil {
			l = stint.Must(l.With(stint.WithDenyHandler(s.Deny)))
		}
		if s.Fail != nil {
			l = stint.Must(l.With(stint.WithErrorHandler(s.Fail)))
		}
		front = append(front, l)
	}
	return front, s.Keyed(stint.KeyFunc(func(r *http.Request) (string, error) { return r.Context().Value(user{}).(string), nil }))
}

type user struct{}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, authenticated(r)) })
}

func authenticated(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("X-User")))
}

// inFront returns the middleware in front of all routes.
func inFront(front, keyed []*stint.Limiter) []wrapper {
	all := middlewares(front)
	if keyed != nil {
		all = append(append(all, authenticate), middlewares(keyed)...)
	}
	return all
}

func onChi(s adaptertest.Site) http.Handler {
	m := chi.NewRouter()
	m.Use(inFront(fronts(s))...)
	for _, r := range s.Routes {
		m.With(middlewares(r.Limits)...).Handle(r.Path, r.Handler())
	}
	outer := chi.NewRouter()
	outer.Mount("/", m)
	return outer
}

// Middleware of gorilla/mux's Use sees no request that it redirects or has no route for.
func onGorilla(s adaptertest.Site) http.Handler {
	m := mux.NewRouter()
	routes := m.PathPrefix("/").Subrouter()
	routes.Use(withTemplate)
	for _, r := range s.Routes {
		routes.Handle(r.Path, chain(r.Handler(), middlewares(r.Limits)...))
	}
	return chain(m, inFront(fronts(s))...)
}

// methods are those of the table.
var methods = []string{"GET", "HEAD", "POST", "PUT", "OPTIONS"}

// httprouter has no two routes for one path: each has a router of its own here, and what that doesn't
// find is the next one's. The limits of all routes are also those of what no route matches.
func onHTTPRouter(s adaptertest.Site) http.Handler {
	front, keyed := fronts(s)
	next := chain(http.NotFoundHandler(), inFront(front, keyed)...)
	for _, r := range slices.Backward(s.Routes) {
		m := httprouter.New()
		m.RedirectFixedPath = false
		for _, method := range methods {
			pattern := method + " " + r.Colons()
			h := func(w http.ResponseWriter, req *http.Request, _ httprouter.Params) { r.Handler()(w, req) }
			for _, l := range slices.Backward(append(keyed[:len(keyed):len(keyed)], r.Limits...)) {
				h = limited(l, pattern, h)
			}
			if inner := h; keyed != nil {
				h = func(w http.ResponseWriter, req *http.Request, params httprouter.Params) {
					inner(w, authenticated(req), params)
				}
			}
			for _, l := range slices.Backward(front) {
				h = limited(l, pattern, h)
			}
			m.Handle(method, r.Colons(), h)
		}
		m.NotFound = next
		next = m
	}
	return next
}

// bunrouter redirects to a clean path before any middleware.
func onBun(s adaptertest.Site) http.Handler {
	limits := func(limiters []*stint.Limiter) (all []bunrouter.MiddlewareFunc) {
		for _, l := range limiters {
			all = append(all, limitBun(l))
		}
		return all
	}
	front, keyed := fronts(s)
	all := limits(front)
	if keyed != nil {
		all = append(append(all, func(next bunrouter.HandlerFunc) bunrouter.HandlerFunc {
			return func(w http.ResponseWriter, r bunrouter.Request) error {
				r.Request = authenticated(r.Request)
				return next(w, r)
			}
		}), limits(keyed)...)
	}
	m := bunrouter.New(bunrouter.Use(all...))
	for _, r := range s.Routes {
		for _, method := range methods {
			m.NewGroup("", bunrouter.Use(limits(r.Limits)...)).Handle(method, r.Colons(), func(w http.ResponseWriter, req bunrouter.Request) error {
				r.Handler()(w, req.Request)
				return nil
			})
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = bunrouter.CleanPath(r.URL.Path)
		m.ServeHTTP(w, r)
	})
}
