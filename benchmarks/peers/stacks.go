package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// What users mount who want several limits: peers' middlewares, one inside another. Each
// reads the key anew, and what the outer ones have charged stays charged when an inner one
// denies.

const (
	stintSlots = "stint, slots"
	rateAlone  = "a rate of stint's"
	valueAlone = "a value in the context, no limits"
)

// most is how many requests of one key may be in flight.
const most = 64

// quota is a day's, in UTC, that isn't used up.
const quota = 1_000_000_000

// byAddress makes the middlewares of a stack, the outermost first.
type byAddress func() (func(http.Handler) http.Handler, error)

func daily() (func(http.Handler) http.Handler, error) {
	return httprate.LimitBy(quota, 24*time.Hour, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}), nil
}

func rateOf(r rule) byAddress {
	return func() (func(http.Handler) http.Handler, error) {
		st, err := goLimiter(r)
		if err != nil {
			return nil, err
		}
		m, err := httplimit.NewMiddleware(st, httplimit.IPKeyFunc())
		if err != nil {
			return nil, err
		}
		return m.Handle, nil
	}
}

// semaphores bounds the requests of a key in flight, as people write it: a channel a key,
// forgotten with its last request.
func semaphores() (func(http.Handler) http.Handler, error) {
	type semaphore struct {
		slots chan struct{}
		users int
	}
	var mu sync.Mutex
	all := map[string]*semaphore{}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				http.Error(w, "no address", http.StatusInternalServerError)
				return
			}
			mu.Lock()
			s := all[host]
			if s == nil {
				s = &semaphore{slots: make(chan struct{}, most)}
				all[host] = s
			}
			s.users++
			mu.Unlock()
			defer func() {
				mu.Lock()
				if s.users--; s.users == 0 {
					delete(all, host)
				}
				mu.Unlock()
			}()
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
				next.ServeHTTP(w, r)
			default:
				http.Error(w, "too many requests at once", http.StatusTooManyRequests)
			}
		})
	}, nil
}

// stack puts middlewares into one another.
func stack(name string, errs *[]error, parts ...byAddress) site {
	wraps := make([]func(http.Handler) http.Handler, len(parts))
	for i, part := range parts {
		wrap, err := part()
		*errs = append(*errs, err)
		wraps[i] = wrap
	}
	return site{name, func(h http.Handler) http.Handler {
		for i := len(wraps) - 1; i >= 0; i-- {
			h = wraps[i](h)
		}
		return h
	}}
}

func mounted(name string, errs *[]error, limits ...stint.Option) site {
	lim, err := stint.New(append(limits, stint.WithKey(stint.RemoteIP()))...)
	if err != nil {
		*errs = append(*errs, err)
		return site{name, func(h http.Handler) http.Handler { return h }}
	}
	return site{name, stinthttp.Middleware(lim)}
}

// value does the least that a middleware can do whose handlers find something in the request's
// context, as they find stint's permit: net/http copies the request for that.
func value(next http.Handler) http.Handler {
	type key struct{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, r)))
	})
}

func rateAndQuota(r rule) ([]site, error) {
	var errs []error
	day := stint.Quota(quota, stint.Daily)
	return []site{
		mounted(withPermit, &errs, stintRate(r), day),
		mounted(withoutPermit, &errs, stintRate(r), day, stint.WithoutPermit()),
		stack("go-limiter in httprate", &errs, daily, rateOf(r)),
		{valueAlone, value},
	}, errors.Join(errs...)
}

func rateQuotaAndSlots(r rule) ([]site, error) {
	var errs []error
	return []site{
		mounted(withPermit, &errs, stintRate(r), stint.Quota(quota, stint.Daily), stint.Concurrency(most)),
		stack("go-limiter in httprate in a semaphore a key", &errs, semaphores, daily, rateOf(r)),
	}, errors.Join(errs...)
}

func slotsAlone(r rule) ([]site, error) {
	var errs []error
	return []site{
		mounted(stintSlots, &errs, stint.Concurrency(most)),
		mounted(rateAlone, &errs, stintRate(r)),
	}, errors.Join(errs...)
}
