// Package stinthttp puts stint's limits in front of net/http handlers, and of
// every router that takes a func(http.Handler) http.Handler; and paces
// outgoing requests.
//
//	limit := stinthttp.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// Mount it inside http.TimeoutHandler, which lets go of a request while its
// handler still runs, and inside a CORS middleware, whose fields a browser has
// to see on a refusal too.
package stinthttp

import (
	"net/http"

	"github.com/stint-go/stint"
)

// New is Middleware of a new limiter. It panics on a bad option, as
// http.ServeMux.Handle does on a bad pattern; use stint.New and Middleware
// where the options come from a configuration.
func New(opts ...stint.Option) func(http.Handler) http.Handler {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware admits requests through l: a request goes on to the next handler
// when l has admitted it, and l.Deny answers it otherwise. The ResponseWriter
// is handed on as it is, unless a limit looks at the response (stint.WithSettle,
// stint.AdaptiveConcurrency): then it is that of stint.Permit.Next. Slots of
// concurrency limits are released when the next handler returns or panics.
//
// It panics if a limit of l has stint.GivenKey, or the Key of another adapter.
func Middleware(l *stint.Limiter) func(http.Handler) http.Handler {
	if err := l.ForRequests("stinthttp"); err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, err := l.Admit(w, r)
			if err != nil {
				l.Deny(w, r, err)
				return
			}
			defer p.Done()
			req, wrap := p.Next(r)
			if req != r {
				// What others look for in the request they handed on: loggers
				// its Pattern, the server the files it has to remove.
				defer func() { r.Pattern, r.MultipartForm = req.Pattern, req.MultipartForm }()
			}
			if wrap != nil {
				w = wrap(w)
			}
			next.ServeHTTP(w, req)
		})
	}
}
