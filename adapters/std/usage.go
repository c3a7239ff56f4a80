package stinthttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint"
)

// Usage returns a handler whose response is the caller's usage of every limit of l, as JSON,
// for an account page. It charges nothing. It includes the same limits as stint.Limiter.Usage.
//
//	{"limits": [
//	  {"limit": "calls", "capacity": 100, "used": 7, "remaining": 93, "reset_after": 5},
//	  {"limit": "search", "route": "GET /search", "capacity": 10, "used": 10, "remaining": 0, "reset_after": 60}
//	]}
//
// reset_after is the number of seconds, rounded up, until the limit is full again. The response
// must not be cached. If the store or a source of limits fails, the status is 503, and the body has
// no details.
//
// Mount the handler behind the authentication that the keys rely on. Keys of stintgin and
// stintecho need a request that the middleware of l has passed on: mount the handler by
// gin.WrapH or echo.WrapHandler behind this middleware. Otherwise, the status is 500, and the
// log says why. To keep the middleware from charging the page, exempt it by stint.WithRoute and
// stint.Exempt. The handler is safe for concurrent use.
func Usage(l *stint.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := l.Usage(r)
		w.Header().Set("Cache-Control", "no-store")
		if err != nil {
			status := http.StatusInternalServerError
			var s interface{ StatusCode() int }
			if errors.As(err, &s) {
				status = s.StatusCode()
			}
			http.Error(w, http.StatusText(status), status)
			return
		}
		page := usagePage{Limits: make([]usageLine, len(all))} // [] rather than null
		for i, u := range all {
			page.Limits[i] = usageLine{u.Limit, u.Route, u.Capacity, u.Used, u.Remaining,
				int64((u.ResetAfter + time.Second - 1) / time.Second)}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page) // the client may have left
	})
}

type usagePage struct {
	Limits []usageLine `json:"limits"`
}

type usageLine struct {
	Limit      string `json:"limit"`
	Route      string `json:"route,omitempty"`
	Capacity   int64  `json:"capacity"`
	Used       int64  `json:"used"`
	Remaining  int64  `json:"remaining"`
	ResetAfter int64  `json:"reset_after"`
}
