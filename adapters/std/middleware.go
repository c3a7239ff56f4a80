// Package stinthttp applies stint's limits to net/http handlers, and to every router
// that takes a func(http.Handler) http.Handler. Its Transport paces outgoing requests.
//
//	limit := stinthttp.New(stint.Rate(10, time.Second), stint.WithKey(stint.RemoteIP()))
//	http.ListenAndServe(addr, limit(mux))
//
// Mount the limiter inside http.TimeoutHandler, which abandons a request while its handler
// still runs, and inside a CORS middleware, because browsers need CORS fields on denials too.
// Mount it inside golang.org/x/net's h2c.NewHandler, as in h2c.NewHandler(limit(mux), server):
// outside, it would see one request per connection. http.Server's own HTTP/2 without TLS
// (Protocols.SetUnencryptedHTTP2) has no such restriction.
//
// Addresses come from stint's own key functions. Don't put chi's middleware.RealIP in front of
// them: it replaces a request's address with a header field that any client can write.
package stinthttp

import (
	"net/http"

	"github.com/stint-go/stint"
)

// New makes a limiter and returns its Middleware. It panics on an invalid option, as
// http.ServeMux.Handle does on an invalid pattern. If options come from a
// configuration, use stint.New, which returns an error, and Middleware.
func New(opts ...stint.Option) func(http.Handler) http.Handler {
	return Middleware(stint.Must(stint.New(opts...)))
}

// Middleware returns a middleware that decides requests by l. If l admits a request, the next
// handler runs; otherwise l writes the response, as in stint.Limiter.Deny. Slots of concurrency
// limits are released when the next handler returns or panics. The middleware is safe for
// concurrent use.
//
// The next handler gets the ResponseWriter unchanged, unless a limit depends on the response or
// paces it (stint.WithSettle, stint.AdaptiveConcurrency, stint.Bandwidth): then it gets the
// writer that stint.Limiter.Admit describes.
//
// Middleware panics if a limit of l uses stint.GivenKey or the Key of another adapter.
func Middleware(l *stint.Limiter) func(http.Handler) http.Handler {
	if err := l.Mount("stinthttp"); err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		serve := next.ServeHTTP
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.Serve(w, r, serve) })
	}
}
