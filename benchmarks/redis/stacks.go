package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/benchmarks/internal/figures"
	"github.com/stint-go/stint/store/redisstore"
)

// Several limits on a request, and what users write instead: middlewares, one inside another,
// each of which calls the server by itself. What the outer ones have charged stays charged
// when an inner one denies.

// Requests through stint.
const (
	rateAndQuota      = "stint: a rate and a daily quota"
	rateAndSlots      = "stint: a rate and slots of the fleet"
	rateQuotaAndSlots = "stint: a rate, a daily quota and slots of the fleet"
	slotsAlone        = "stint: slots of the fleet"
)

// Stacks.
const (
	twice      = "redis_rate twice"
	twiceLocal = "redis_rate twice, local slots"
	onceLocal  = "redis_rate, local slots"
	twiceSet   = "redis_rate twice, a sorted set"
	onceSet    = "redis_rate, a sorted set"
	setAlone   = "a sorted set"
)

// most is how many requests of one key may be in flight.
const most = 64

// pair is stint beside a stack that does the same job, and the part of the stack's time
// that a request of stint's may take.
type pair struct {
	callers  int
	mine     string
	instead  string
	mostTime float64
}

var pairs = []pair{
	{64, rateAndQuota, twiceLocal, 0.2},
	{64, rateAndSlots, twiceLocal, 0.4},
	{64, rateAndSlots, onceLocal, 0},
	{64, rateAndSlots, onceSet, 0.6},
	{64, rateQuotaAndSlots, twiceLocal, 0.4},
	{64, rateQuotaAndSlots, twiceSet, 0.6},
	{64, slotsAlone, setAlone, 0.6},
	{1, rateAndQuota, twice, 0.8},
	{1, rateAndSlots, onceSet, 0},
	{1, rateQuotaAndSlots, twiceLocal, 1.1},
	{1, rateQuotaAndSlots, twiceSet, 0},
	{1, slotsAlone, setAlone, 0},
}

type middleware = func(http.Handler) http.Handler

// newStacks are requests by one address, through net/http's interfaces but without a
// server and its connection.
func newStacks(s *server) (subjects []subject, end func(), err error) {
	client := s.client()
	// Longer than a busy machine takes, and shorter than a request's release may take, with
	// which a caller would have another goroutine call the server.
	mine := redisstore.New(client, redisstore.WithTimeout(time.Second))
	theirs := redis_rate.NewLimiter(client)
	rate := stint.Rate(perSecond, time.Second, stint.WithBurst(10_000_000), stint.WithName("rate"))
	quota := stint.Quota(burst, stint.Daily, stint.WithName("daily"))
	slots := stint.Concurrency(most, stint.WithName("slots"))
	var errs []error
	through := func(name string, wraps ...middleware) {
		subjects = append(subjects, subject{name: name, call: requests(wraps)})
	}
	mounted := func(name string, limits ...stint.Option) {
		lim, err := stint.New(append(limits, stint.WithKey(stint.RemoteIP()), stint.WithStore(mine), stint.WithFailurePolicy(stint.FailClosed))...)
		if err != nil {
			errs = append(errs, err)
			return
		}
		through(name, stinthttp.Middleware(lim))
	}
	mounted(rateAndQuota, rate, quota)
	mounted(rateAndSlots, rate, slots)
	mounted(rateQuotaAndSlots, rate, quota, slots)
	mounted(slotsAlone, slots)

	fast := redisRate(theirs, "rate:", redis_rate.Limit{Rate: perSecond, Period: time.Second, Burst: burst})
	daily := redisRate(theirs, "daily:", redis_rate.Limit{Rate: burst, Period: 24 * time.Hour, Burst: burst})
	through(twice, daily, fast)
	through(twiceLocal, localSlots(), daily, fast)
	through(onceLocal, localSlots(), fast)
	through(twiceSet, sortedSet(client), daily, fast)
	through(onceSet, sortedSet(client), fast)
	through(setAlone, sortedSet(client))
	return subjects, func() {
		mine.Close()
		client.Close()
	}, errors.Join(errs...)
}

// requests returns what sends a request through middlewares, the outermost first.
func requests(wraps []middleware) func(context.Context, string) error {
	h := http.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := len(wraps) - 1; i >= 0; i-- {
		h = wraps[i](h)
	}
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/things"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Host: "example.com", RemoteAddr: "203.0.113.7:4711", RequestURI: "/things",
	}
	writers := sync.Pool{New: func() any { return &discarding{header: http.Header{}} }}
	return func(context.Context, string) error {
		w := writers.Get().(*discarding)
		defer writers.Put(w)
		clear(w.header)
		w.status = 0
		h.ServeHTTP(w, r)
		if w.status >= 400 {
			return fmt.Errorf("a request is answered %d: %w", w.status, errDenied)
		}
		return nil
	}
}

// discarding is a ResponseWriter that keeps only the status.
type discarding struct {
	header http.Header
	status int
}

func (w *discarding) Header() http.Header         { return w.header }
func (w *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (w *discarding) WriteHeader(status int)      { w.status = status }

// by has a middleware decide by the connection's address.
func by(decide func(w http.ResponseWriter, r *http.Request, host string, next http.Handler)) middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				http.Error(w, "no address", http.StatusInternalServerError)
				return
			}
			decide(w, r, host, next)
		})
	}
}

// redisRate is the middleware in the documentation of redis_rate.
func redisRate(l *redis_rate.Limiter, prefix string, limit redis_rate.Limit) middleware {
	return by(func(w http.ResponseWriter, r *http.Request, host string, next http.Handler) {
		result, err := l.Allow(r.Context(), prefix+host, limit)
		if err != nil {
			http.Error(w, "no limits", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("RateLimit-Remaining", strconv.Itoa(result.Remaining))
		if result.Allowed == 0 {
			w.Header().Set("RateLimit-RetryAfter", strconv.Itoa(int(result.RetryAfter/time.Second)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localSlots bounds the requests of a key in flight in this process, as people write it: a
// channel for each key.
func localSlots() middleware {
	var all sync.Map // of the address, to chan struct{}
	return by(func(w http.ResponseWriter, r *http.Request, host string, next http.Handler) {
		slots, ok := all.Load(host)
		if !ok {
			slots, _ = all.LoadOrStore(host, make(chan struct{}, most))
		}
		select {
		case slots.(chan struct{}) <- struct{}{}:
			defer func() { <-slots.(chan struct{}) }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "too many requests at once", http.StatusTooManyRequests)
		}
	})
}

// sortedSet bounds the requests of a key in flight in all processes, as people write it: a
// sorted set of ids by the instant at which they run out.
func sortedSet(client *redis.Client) middleware {
	const lasts = 15 * time.Second
	acquire := redis.NewScript(`
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1`)
	release := redis.NewScript(`return redis.call('ZREM', KEYS[1], ARGV[1])`)
	return by(func(w http.ResponseWriter, r *http.Request, host string, next http.Handler) {
		keys, id, now := []string{"slots:" + host}, uuid.NewString(), time.Now()
		got, err := acquire.Run(r.Context(), client, keys, now.UnixMilli(), most, now.Add(lasts).UnixMilli(), id, lasts.Milliseconds()).Int()
		switch {
		case err != nil:
			http.Error(w, "no slots", http.StatusServiceUnavailable)
			return
		case got == 0:
			http.Error(w, "too many requests at once", http.StatusTooManyRequests)
			return
		}
		defer release.Run(context.WithoutCancel(r.Context()), client, keys, id)
		next.ServeHTTP(w, r)
	})
}

// writeStacks writes the tables of requests with several limits.
func (gs groups) writeStacks(w io.Writer) {
	fmt.Fprint(w, `Several limits on a request. stint decides them in one call, and releases slots in another.
A stack is middlewares, one inside another, which call redis_rate, and a sorted set in the
server by two scripts. Local slots are a channel in the process. All requests are of one
address and go through net/http's interfaces, without a connection. A caller sends the next
request when the last one has ended.

| stint ÷ stack | time per request | aim | server CPU |
| --- | --- | --- | --- |
`)
	for _, p := range pairs {
		for _, g := range gs {
			if g.callers != p.callers {
				continue
			}
			aim := ""
			if t := g.ratio(p.mine, p.instead, timeOf); p.mostTime > 0 {
				verdict := "missed"
				if t.Median <= p.mostTime {
					verdict = "holds"
				}
				aim = fmt.Sprintf("≤ %g: %s", p.mostTime, verdict)
			}
			fmt.Fprintf(w, "| %s: %s ÷ %s | %s | %s | %s |\n", figures.Many(p.callers, "caller"), p.mine[len("stint: "):], p.instead,
				g.ratio(p.mine, p.instead, timeOf).Times(), aim, g.ratio(p.mine, p.instead, cpuOf).Times())
		}
	}
	fmt.Fprintln(w)
	for _, g := range gs {
		fmt.Fprintf(w, "| %s, one address | time per request | p50 | p99 | server CPU | in scripts | allocations |\n| --- | --- | --- | --- | --- | --- | --- |\n", figures.Many(g.callers, "caller"))
		for _, s := range g.subjects {
			m := middle(g.samples[s.name])
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.0f |\n", s.name, figures.Micros(time.Duration(1e9/m.perSecond)),
				figures.Micros(m.p50), figures.Micros(m.p99), figures.Micros(m.cpu), figures.Micros(m.script), m.allocs)
		}
		fmt.Fprintln(w)
	}
}
