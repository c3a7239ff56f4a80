package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	tollbooth "github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

const (
	withPermit    = "stint"
	withoutPermit = "stint, WithoutPermit"
)

// site is a middleware around a handler, keyed by the connection's address.
type site struct {
	name string
	wrap func(http.Handler) http.Handler
}

// withFields are those that tell the client what is left.
func withFields(r rule) ([]site, error) {
	var errs []error
	mine := func(opts ...stint.Option) func(http.Handler) http.Handler {
		lim, err := stint.New(append(opts, stintRate(r), stint.WithKey(stint.RemoteIP()))...)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		return stinthttp.Middleware(lim)
	}
	st, err := goLimiter(r)
	errs = append(errs, err)
	others, err := httplimit.NewMiddleware(st, httplimit.IPKeyFunc())
	errs = append(errs, err)
	gcra, err := throttledLimiter(r)
	errs = append(errs, err)
	tb := tollboothLimiter(r)
	byAddress := throttled.HTTPRateLimiterCtx{RateLimiter: gcra, VaryBy: remoteHost{}}
	all := []site{
		{withPermit, mine()},
		{withoutPermit, mine(stint.WithoutPermit())},
		{"go-limiter", others.Handle},
		{"throttled", byAddress.RateLimit},
		{"httprate", httprate.LimitBy(int(r.burst), time.Duration(r.burst)*r.period/time.Duration(r.units), func(r *http.Request) (string, error) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			return httprate.CanonicalizeIP(host), err
		})},
		{"ulule/limiter", ululehttp.NewMiddleware(ululeLimiter(r)).Handler},
		{"tollbooth", func(h http.Handler) http.Handler { return tollbooth.LimitHandler(tb, h) }},
	}
	return all, errors.Join(errs...)
}

// remoteHost is throttled's key: its own takes the port along, so that every
// connection would be a key.
type remoteHost struct{}

func (remoteHost) Key(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// withoutFields are those that only let pass, or deny.
func withoutFields(r rule) ([]site, error) {
	lim, err := stint.New(stintRate(r), stint.WithKey(stint.RemoteIP()), stint.WithoutPermit(), stint.WithHeaders(stint.NoHeaders))
	return []site{
		{withoutPermit, stinthttp.Middleware(lim)},
		{"x/time/rate by hand", byHand(r)},
	}, err
}

// byHand is the middleware that people write themselves.
func byHand(r rule) func(http.Handler) http.Handler {
	allow := xtime(r)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil || !allow(host) {
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// echoHandler is echo with its own limiter.
func echoHandler(r rule, h http.Handler) http.Handler {
	e := echo.New()
	e.Use(middleware.RateLimiter(echoStore(r)))
	e.Any("/*", echo.WrapHandler(h))
	return e
}

// requests are the groups of middleware.
func requests() ([]*group, error) {
	add := func(g *group, sites func(rule) ([]site, error), r rule) (*group, error) {
		all, err := sites(r)
		if err != nil {
			return nil, err
		}
		g.goroutines = 1
		for _, s := range all {
			reached := false
			h := s.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
			send := sender(h)
			send()
			reached = false
			if send(); reached == (r == tight) {
				return nil, fmt.Errorf("%s: %s lets the handler run: %v", g.name, s.name, reached)
			}
			g.subjects = append(g.subjects, subject{s.name, func(int) func(int) {
				send := sender(s.wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
				return func(int) { send() }
			}})
		}
		return g, nil
	}
	allowed, err1 := add(&group{name: "a request allowed, with fields", aims: []aim{{withPermit, 0.85}, {withoutPermit, 0.35}}}, withFields, ample)
	bare, err2 := add(&group{name: "a request allowed, without fields", aims: []aim{{withoutPermit, 1.2}}}, withoutFields, ample)
	denied, err3 := add(&group{name: "a request denied", aims: []aim{{withPermit, 0.5}}}, withFields, tight)
	two, err4 := add(&group{name: "a rate and a daily quota", aims: []aim{{withPermit, 0.45}}}, rateAndQuota, ample)
	three, err5 := add(&group{name: "a rate, a daily quota and slots", aims: []aim{{withPermit, 0.5}}}, rateQuotaAndSlots, ample)
	slots, err6 := add(&group{name: "slots alone", aims: []aim{{stintSlots, 1.5}}}, slotsAlone, ample)
	return []*group{two, three, slots, allowed, bare, denied}, errors.Join(err1, err2, err3, err4, err5, err6)
}

// sender sends a request to h, without a server.
func sender(h http.Handler) (send func()) {
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/things"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Host: "example.com", RemoteAddr: "203.0.113.7:4711", RequestURI: "/things",
	}
	w := &discarding{header: http.Header{}}
	return func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

// discarding is a ResponseWriter as a server's, of which nothing is sent.
type discarding struct{ header http.Header }

func (w *discarding) Header() http.Header         { return w.header }
func (w *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (w *discarding) WriteHeader(int)             {}
