package stint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/redisstore"
)

// limit does what an adapter does; stinthttp.Middleware is the one for net/http.
func limit(l *stint.Limiter, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.Serve(w, r, next)
	})
}

// visit sends a request and prints the answer.
func visit(h http.Handler, method, path string, fields ...string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	h.ServeHTTP(w, r)
	fmt.Println(strings.TrimSpace(fmt.Sprint(method, " ", path, " → ", w.Code, " ", w.Body)))
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// An address that goes on when it is denied is banned for a day.
func ExampleBan() {
	limiter := stint.Must(stint.New(
		stint.Rate(1, time.Minute),
		stint.Ban(3, time.Minute, stint.WithBanFor(24*time.Hour)),
		stint.WithKey(stint.RemoteIP())))

	for range 5 {
		_, err := limiter.Take(context.Background(), "192.0.2.1", 1)
		var denied *stint.DeniedError
		if errors.As(err, &denied) {
			fmt.Println("denied by", denied.Decision.Limit)
		} else {
			fmt.Println("passes")
		}
	}
	// Output:
	// passes
	// denied by rate
	// denied by rate
	// denied by ban
	// denied by ban
}

func ExampleNew() {
	lim, err := stint.New(
		stint.Rate(100, time.Hour, stint.WithBurst(2)),
		stint.Quota(10_000, stint.Daily, stint.WithKey(stint.Header("X-API-Key"))),
		stint.Concurrency(8),
		stint.WithKey(stint.RemoteIP()),
	)
	if err != nil {
		panic(err)
	}
	h := limit(lim, hello)
	for range 3 {
		visit(h, "GET", "/", "X-API-Key", "a1")
	}
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

func ExampleNew_errors() {
	_, err := stint.New(
		stint.Rate(10, 0, stint.WithBurst(-1)),
		stint.Concurrency(3),
	)
	fmt.Println(err)
	// Output:
	// stint: limit "rate": WithBurst(-1): use 0 or more
	// stint: limit "rate": a period of 0s: use 1ms or more
	// stint: the limits "rate" and "concurrency" have no key, and no default would be safe: add stint.WithKey(stint.RemoteIP()), or another key: stint.ForwardedIP(trusted...) behind a proxy, stint.Global() for one limit on all requests, stint.GivenKey() if you call Take yourself
}

// A customer's month begins on its billing day, and its year too.
func ExampleQuota_billingDay() {
	berlin := time.FixedZone("Berlin", 3600) // or time.LoadLocation("Europe/Berlin")
	since := time.Date(2024, 2, 29, 9, 0, 0, 0, berlin)
	lim := stint.Must(stint.New(
		stint.Quota(1_000_000, stint.Monthly.In(berlin).From(since), stint.WithName("month")),
		stint.Quota(10_000_000, stint.Yearly.In(berlin).From(since), stint.WithName("year")),
		stint.WithKey(stint.Header("X-Customer"))))
	for _, rule := range lim.Describe().Rules {
		fmt.Println(rule.Text)
	}
	// Output:
	// FixedWindow: 1000000 monthly from day 29 09:00 in Berlin
	// FixedWindow: 10000000 yearly from 29 February 09:00 in Berlin
}

// Any router that knows net/http's types can mount a limiter in one line.
func ExampleLimiter_Serve() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP())))
	limited := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { lim.Serve(w, r, next) }
	}

	w := httptest.NewRecorder()
	limited(hello)(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "rate";q=1;w=3600
	// "rate";r=0;t=3600
}

// A router whose handlers return errors has an error handler, which may answer some
// denials itself and leave the others to the limiter.
func ExampleLimiter_Admit() {
	type handler func(http.ResponseWriter, *http.Request) error

	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-API-Key"))))
	limited := func(next handler) handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			var failed error
			denied := lim.Admit(w, r, func(w http.ResponseWriter, r *http.Request) { failed = next(w, r) })
			return cmp.Or(denied, failed)
		}
	}
	answered := func(h handler) http.HandlerFunc { // the router's
		return func(w http.ResponseWriter, r *http.Request) {
			switch err := h(w, r); {
			case errors.Is(err, stint.ErrEmptyKey):
				http.Error(w, "send an API key", http.StatusUnauthorized)
			case err != nil:
				lim.Deny(w, r, err)
			}
		}
	}

	h := answered(limited(func(w http.ResponseWriter, _ *http.Request) error {
		_, err := fmt.Fprintln(w, "hello")
		return err
	}))
	visit(h, "GET", "/")
	visit(h, "GET", "/", "X-API-Key", "a1")
	visit(h, "GET", "/", "X-API-Key", "a1")
	// Output:
	// GET / → 401 send an API key
	// GET / → 200 hello
	// GET / → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

func ExampleLimiter_With() {
	lim := stint.Must(stint.New(stint.Rate(100, time.Hour), stint.WithKey(stint.RemoteIP())))
	search := stint.Must(lim.With(stint.Rate(1, time.Hour, stint.WithName("search"))))

	mux := http.NewServeMux()
	mux.HandleFunc("GET /", hello)
	mux.Handle("GET /search", limit(search, hello))
	h := limit(lim, mux.ServeHTTP) // what search has in common with lim is charged once

	visit(h, "GET", "/search")
	visit(h, "GET", "/search")
	visit(h, "GET", "/")
	// Output:
	// GET /search → 200 hello
	// GET /search → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["search"]}
	// GET / → 200 hello
}

func ExampleLimiter_Take() {
	lim := stint.Must(stint.New(stint.Rate(2, time.Hour), stint.WithKey(stint.GivenKey())))
	for range 3 {
		p, err := lim.Take(context.Background(), "tenant-7", 1)
		var denied *stint.DeniedError
		switch {
		case errors.As(err, &denied):
			after, _ := denied.Decision.Retry()
			fmt.Println("denied by", denied.Decision.Limit, "for", after.Round(time.Minute))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("taken,", p.Decision().Remaining, "left")
			p.Done()
		}
	}
	// Output:
	// taken, 1 left
	// taken, 0 left
	// denied by rate for 30m0s
}

func ExampleLimiter_Allow() {
	lim := stint.Must(stint.New(stint.Rate(2, time.Hour), stint.WithKey(stint.GivenKey())))
	for range 3 {
		if err := lim.Allow(context.Background(), "tenant-7", 1); errors.As(err, new(*stint.DeniedError)) {
			fmt.Println("denied")
			continue
		}
		fmt.Println("passes")
	}
	// Output:
	// passes
	// passes
	// denied
}

func ExampleLimiter_Wait() {
	lim := stint.Must(stint.New(
		stint.Rate(20, time.Second, stint.WithBurst(1)),
		stint.WithKey(stint.GivenKey())))
	start := time.Now()
	for range 3 {
		p, err := lim.Wait(context.Background(), "jobs", 1)
		if err != nil {
			panic(err)
		}
		p.Done()
	}
	fmt.Println("three in a tenth of a second:", time.Since(start) >= 100*time.Millisecond)

	// A turn that comes after the deadline is denied at once.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hourly := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey())))
	_, _ = hourly.Wait(ctx, "jobs", 1)
	_, err := hourly.Wait(ctx, "jobs", 1)
	fmt.Println(errors.As(err, new(*stint.DeniedError)))
	// Output:
	// three in a tenth of a second: true
	// true
}

func ExampleLimiter_Peek() {
	ctx := context.Background()
	lim := stint.Must(stint.New(stint.Quota(10, stint.Every(2*365*24*time.Hour)), stint.WithKey(stint.GivenKey())))
	_, _ = lim.Take(ctx, "tenant-7", 3)
	d, err := lim.Peek(ctx, "tenant-7")
	fmt.Println(d.Remaining, "left of", d.Limits[0].Capacity, err)
	// Output: 7 left of 10 <nil>
}

func ExampleLimiter_Reset() {
	ctx := context.Background()
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey())))
	_, _ = lim.Take(ctx, "tenant-7", 1)
	fmt.Println(lim.Reset(ctx, "tenant-7"))
	_, err := lim.Take(ctx, "tenant-7", 1)
	fmt.Println(err)
	// Output:
	// true <nil>
	// <nil>
}

func ExampleLimiter_Ban() {
	ctx := context.Background()
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Minute),
		stint.Ban(20, time.Minute, stint.WithBanFor(time.Hour)),
		stint.WithKey(stint.RemoteIP())))
	fmt.Println(lim.Ban(ctx, "192.0.2.7", 24*time.Hour))
	d, err := lim.Peek(ctx, "192.0.2.7")
	fmt.Println(d.Allowed, d.Limit, d.RetryAfter.Round(time.Second), err)
	fmt.Println(lim.Reset(ctx, "192.0.2.7", "ban"))
	fmt.Println(lim.Allow(ctx, "192.0.2.7", 1))
	// Output:
	// <nil>
	// false ban 24h0m0s <nil>
	// true <nil>
	// <nil>
}

// Nothing listens at this address.
func ExampleLimiter_CheckStore() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	lim := stint.Must(stint.New(
		stint.Rate(100, time.Minute, stint.WithName("calls")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(redisstore.New(rdb))))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := lim.CheckStore(ctx); err != nil { // a program would log it and exit
		fmt.Println("can't be reached:", errors.Is(err, redisstore.ErrUnavailable))
		fmt.Println("the rights or the password are wrong:", errors.Is(err, redisstore.ErrConfiguration))
	}
	// Output:
	// can't be reached: true
	// the rights or the password are wrong: false
}

func ExamplePermit_Settle() {
	lim := stint.Must(stint.New(
		stint.Rate(5, time.Second, stint.WithName("requests")),
		stint.Rate(1000, time.Hour, stint.WithName("tokens"),
			stint.WithCost(func(r *http.Request) int64 { return 200 })), // an estimate
		stint.WithKey(stint.Header("X-API-Key"))))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) {
		used := int64(350) // what it really was
		p := stint.FromContext(r.Context())
		if err := p.Settle(r.Context(), used); err != nil {
			fmt.Println(err)
		}
		fmt.Fprintln(w, p.Decision().Limits[1].Remaining, "tokens left")
	})
	visit(h, "POST", "/complete", "X-API-Key", "a1")
	// Output: POST /complete → 200 650 tokens left
}

// A stream is charged while it runs, and ends when its budget is used up.
func ExamplePermit_Extend() {
	lim := stint.Must(stint.New(
		stint.Quota(100, stint.Monthly, stint.WithName("tokens")),
		stint.WithKey(stint.GivenKey())))
	p, err := lim.Take(context.Background(), "a1", 40) // what a request usually costs
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Done()
	for used := int64(30); ; used += 30 {
		if err := p.Extend(context.Background(), used); errors.Is(err, stint.ErrDenied) {
			fmt.Println("the budget ends before", used)
			return
		}
		fmt.Println(used, "tokens sent")
	}
	// Output:
	// 30 tokens sent
	// 60 tokens sent
	// 90 tokens sent
	// the budget ends before 120
}

// Only failed logins count: here the one with the wrong password.
func ExampleWithSettle() {
	lim := stint.Must(stint.New(
		stint.Rate(1, time.Hour, stint.WithSettle(stint.FailedOnly)),
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Password") != "opensesame" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	visit(h, "POST", "/login", "X-Password", "opensesame")
	visit(h, "POST", "/login", "X-Password", "opensesame")
	visit(h, "POST", "/login", "X-Password", "guess")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
	fmt.Println(w.Code)
	// Output:
	// POST /login → 200
	// POST /login → 200
	// POST /login → 401
	// 429
}

// What a request has cost is known by its answer: the service's own failures
// cost nothing, others what they have sent.
func ExampleWithSettle_bytes() {
	lim := stint.Must(stint.New(
		stint.Quota(1000, stint.Daily, stint.WithName("bytes"),
			stint.WithCost(func(*http.Request) int64 { return 100 }), // an estimate
			stint.WithSettle(func(r *http.Request, status int, written int64) int64 {
				if status == http.StatusNotModified || status >= 500 {
					return 0
				}
				return written
			})),
		stint.WithKey(stint.Global())))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "twelve bytes") })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	d, err := lim.Peek(context.Background(), "anybody")
	fmt.Println(d.Remaining, err)
	// Output: 988 <nil>
}

// Answers from the client's own cache cost nothing.
func ExampleRefundOn() {
	lim := stint.Must(stint.New(
		stint.Rate(1, time.Hour, stint.WithSettle(stint.RefundOn(http.StatusNotModified))),
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) })
	visit(h, "GET", "/a.css")
	visit(h, "GET", "/a.css")
	// Output:
	// GET /a.css → 304
	// GET /a.css → 304
}

func ExampleBandwidth() {
	lim := stint.Must(stint.New(
		stint.Bandwidth(100_000, stint.WithBurst(10_000)), // 10 kB at once, then 100 kB a second
		stint.WithKey(stint.RemoteIP()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventPaced {
				fmt.Println(e.Pacing.Bytes, "bytes, held up:", e.Pacing.Waited > 0) // by 300 ms
			}
		})))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 40_000)) })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: 40000 bytes, held up: true
}

func ExampleWithDirection() {
	lim := stint.Must(stint.New(
		stint.Bandwidth(1_000_000, stint.WithDirection(stint.Requests)),
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body) // as fast as its client's bandwidth lets it
		fmt.Fprintln(w, n, err)
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/upload", strings.NewReader("picture")))
	fmt.Print(w.Body)
	// Output: 7 <nil>
}

func ExamplePermit_Detach() {
	lim := stint.Must(stint.New(stint.Concurrency(1), stint.WithKey(stint.Global())))
	var hangUp func()
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) {
		// The connection outlives the handler, and so does its slot.
		hangUp = stint.FromContext(r.Context()).Detach()
	})
	visit(h, "GET", "/ws")
	visit(h, "GET", "/ws")
	hangUp()
	visit(h, "GET", "/ws")
	// Output:
	// GET /ws → 200
	// GET /ws → 503 {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Capacity temporarily reduced","status":503,"violated-policies":["concurrency"]}
	// GET /ws → 200
}

func ExampleFromContext() {
	lim := stint.Must(stint.New(stint.Rate(10, time.Hour), stint.WithKey(stint.RemoteIP())))
	visit(limit(lim, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, stint.FromContext(r.Context()).Decision().Remaining, "left")
	}), "GET", "/")
	// Output: GET / → 200 9 left
}

func ExampleWithRoute() {
	lim := stint.Must(stint.New(
		stint.Rate(1000, time.Hour),
		stint.WithRoute("POST /login", stint.Rate(1, time.Hour, stint.WithName("login"))),
		stint.WithRoute("GET /health", stint.Exempt()), // exempt
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, hello)
	visit(h, "POST", "/login")
	visit(h, "POST", "//login")
	visit(h, "GET", "/login")
	// Output:
	// POST /login → 200 hello
	// POST //login → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["login"]}
	// GET /login → 200 hello
}

// A tenant whose plan isn't known gets an error, not a free pass.
func ExampleWithLimitFunc() {
	plans := map[string][]stint.Limit{
		"free":     {stint.Rate(1, time.Hour, stint.WithName("plan"))},
		"pro":      {stint.Rate(100, time.Hour, stint.WithName("plan"))},
		"internal": {stint.Exempt()},
	}
	planOf := map[string]string{"a": "pro", "b": "free"} // in your database, by whom you have authenticated
	lim := stint.Must(stint.New(
		stint.WithKey(stint.Header("X-API-Key")),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			limits, ok := plans[planOf[r.Header.Get("X-API-Key")]]
			if !ok {
				return nil, errors.New("no plan")
			}
			return limits, nil
		})))
	h := limit(lim, hello)
	for range 2 {
		visit(h, "GET", "/", "X-API-Key", "a")
	}
	for range 2 {
		visit(h, "GET", "/", "X-API-Key", "b")
	}
	visit(h, "GET", "/", "X-API-Key", "c")
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["plan"]}
	// GET / → 500 {"type":"about:blank","title":"Internal Server Error","status":500}
}

func ExampleWithKey() {
	session := func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", nil // denied with 403: an empty key has no bucket
		}
		return user, nil
	}
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.KeyFunc(session))))
	h := limit(lim, hello)
	visit(h, "GET", "/", "Authorization", "Basic YW5uOng=")
	visit(h, "GET", "/", "Authorization", "Basic Ym9iOng=")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 403 {"type":"about:blank","title":"Forbidden","status":403,"detail":"the request has no key for limit rate"}
}

func ExampleWithMaxWait() {
	// A request waits up to a second for its turn before it is denied.
	lim := stint.Must(stint.New(
		stint.Rate(4, time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Second)),
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, hello)
	start := time.Now()
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	fmt.Println("a quarter of a second apart:", time.Since(start) >= 250*time.Millisecond)
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// a quarter of a second apart: true
}

func ExampleWithDryRun() {
	lim := stint.Must(stint.New(
		stint.Rate(1, time.Hour, stint.WithName("planned"), stint.WithDryRun(true)),
		stint.WithKey(stint.RemoteIP()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventDryRunDenied {
				fmt.Println("would have been denied:", e.Request.URL)
			}
		})))
	h := limit(lim, hello)
	visit(h, "GET", "/a")
	visit(h, "GET", "/b")
	// Output:
	// GET /a → 200 hello
	// would have been denied: /b
	// GET /b → 200 hello
}

func ExampleWithBlock() {
	lim := stint.Must(stint.New(
		stint.Rate(10, time.Second),
		stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("192.0.2.0/24"))),
		stint.WithSkip(stint.Preflight),
		stint.WithKey(stint.RemoteIP())))
	visit(limit(lim, hello), "GET", "/") // httptest's requests come from 192.0.2.1
	// Output: GET / → 403 {"type":"about:blank","title":"Forbidden","status":403}
}

// A body of its own, with the status of the denial.
func ExampleWithDenyHandler() {
	slowDown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"error":"slow down","limit":%q}`, stint.DeniedFromContext(r.Context()).Decision.Limit)
	})
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithDenyHandler(slowDown)))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 429 {"error":"slow down","limit":"rate"}
}

// Instead of being denied, requests get a page from a cache.
func ExampleDegrade() {
	cached := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello, some time ago") })
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithDenyHandler(stint.Degrade(cached))))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello, some time ago
}

// One function writes every denial.
func ExampleWithErrorHandler() {
	lim := stint.Must(stint.New(
		stint.Rate(1, time.Hour),
		stint.WithKey(stint.Header("X-API-Key")),
		stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
			switch {
			case errors.Is(err, stint.ErrEmptyKey):
				http.Error(w, "send an API key", http.StatusUnauthorized)
			case errors.Is(err, stint.ErrDenied):
				fmt.Fprintln(w, "slow down") // with 429
			default:
				fmt.Fprintln(w, "sorry") // with 503 if the store is down under FailClosed
			}
		})))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/", "X-API-Key", "a1")
	visit(h, "GET", "/", "X-API-Key", "a1")
	// Output:
	// GET / → 401 send an API key
	// GET / → 200 hello
	// GET / → 429 slow down
}

// A handler that writes nothing leaves the answer as it is.
func ExampleWithDenyHandler_note() {
	note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("denied by", stint.DeniedFromContext(r.Context()).Decision.Limit)
		w.Header().Set("Link", `</docs/limits>; rel="help"`)
	})
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithDenyHandler(note)))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// denied by rate
	// GET / → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["rate"]}
}

func ExampleRedirect() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()),
		stint.WithDenyHandler(stint.Redirect("/waiting-room"))))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 302 <a href="/waiting-room">Found</a>.
}

func ExamplePlainText() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()),
		stint.WithDenyHandler(stint.PlainText("slow down"))))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 429 slow down
}

// A limit that is changed while the program runs keeps what has been consumed.
func ExampleLimiter_Update() {
	options := func(n int64) []stint.Option {
		return []stint.Option{
			stint.Rate(n, time.Hour, stint.WithName("hourly-calls")),
			stint.WithKey(stint.Header("X-API-Key")),
		}
	}
	lim := stint.Must(stint.New(options(10)...))
	ctx := context.Background()
	if _, err := lim.Take(ctx, "tenant-7", 4); err != nil {
		fmt.Println(err)
	}
	if err := lim.Update(options(15)...); err != nil {
		fmt.Println(err)
	}
	d, _ := lim.Peek(ctx, "tenant-7")
	fmt.Println("left of 15:", d.Remaining)

	err := lim.Update(options(0)...) // wrong: what was there stays
	fmt.Println(err)
	// Output:
	// left of 15: 11
	// stint: limit "hourly-calls": 0 units: use 1 to 1099511627776
}

// A service finds out by itself how many requests it can work on at a time,
// and each caller has a rate beside that. Who finds it full gets 503.
func ExampleAdaptiveConcurrency() {
	lim := stint.Must(stint.New(
		stint.AdaptiveConcurrency(8, 400, stint.WithKey(stint.Global())),
		stint.Rate(100, time.Minute, stint.WithKey(stint.RemoteIP())),
		stint.WithObserver(func(e stint.Event) {
			if c := e.Change; c != nil {
				fmt.Printf("%s: from %d to %d, %v\n", c.Limit, c.From, c.To, c.Reason)
			}
		}),
	))
	w := httptest.NewRecorder()
	lim.Serve(w, httptest.NewRequest("GET", "/", nil), func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(w.Header().Get("RateLimit-Policy"))
		status := stint.FromContext(r.Context()).Decision().Limits[1]
		fmt.Println(status.InFlight, "of", status.Capacity, "in flight:", status.Reason)
	})
	// Output:
	// "rate";q=100;w=60, "adaptive";q=20;qu="concurrent-requests"
	// 1 of 20 in flight: start
}

// Requests of one kind, whose latency tells little by chance: follow it
// closely, and quickly.
func ExampleWithAdaptation() {
	lim, err := stint.New(
		stint.AdaptiveConcurrency(4, 64,
			stint.WithAdaptation(stint.Vegas()),
			stint.WithInitialLimit(16),
			stint.WithSampleWindow(200*time.Millisecond)),
		stint.WithKey(stint.Global()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Peek(context.Background(), "everybody")
	fmt.Println(d.Remaining, err)
	// Output: 16 <nil>
}

// Latency may be no more than a tenth above the usual.
func ExampleGradient2() {
	_, err := stint.New(
		stint.AdaptiveConcurrency(20, 200, stint.WithAdaptation(stint.Gradient2(1.1))),
		stint.WithKey(stint.Global()),
	)
	fmt.Println(err)
	// Output: <nil>
}

// Requests should take no longer than 300 ms. The limit starts where
// the service is known to be fine, as it climbs by one a second.
func ExampleAIMD() {
	lim, err := stint.New(
		stint.AdaptiveConcurrency(20, 200,
			stint.WithAdaptation(stint.AIMD(300*time.Millisecond)),
			stint.WithInitialLimit(60)),
		stint.WithKey(stint.Global()),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Peek(context.Background(), "everybody")
	fmt.Println(d.Remaining, err)
	// Output: 60 <nil>
}

// A handler that knows better what its duration says.
func ExamplePermit_Drop() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Get("http://backend.internal" + r.URL.Path)
		if err != nil {
			stint.FromContext(r.Context()).Drop() // the backend is overloaded
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = resp.Body.Close()
	}
	_ = handler
	// Output:
}

// Long polls take as long as there is no news.
func ExamplePermit_Ignore() {
	news := make(chan string)
	handler := func(w http.ResponseWriter, r *http.Request) {
		stint.FromContext(r.Context()).Ignore()
		select {
		case text := <-news:
			_, _ = fmt.Fprintln(w, text)
		case <-r.Context().Done():
		}
	}
	_ = handler
	// Output:
}

func ExampleKeyFunc() {
	type session struct{ User string }
	sessions := map[string]session{"s1": {User: "ada"}}

	key := stint.KeyFunc(func(r *http.Request) (string, error) {
		c, err := r.Cookie("session")
		if err != nil {
			return "", nil // no key: answered as WithEmptyKey says
		}
		return sessions[c.Value].User, nil
	})

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "session=s1")
	fmt.Println(key.Of(r))
	// Output: ada <nil>
}

func ExampleRemoteIP() {
	key := stint.RemoteIP()
	for _, peer := range []string{
		"192.0.2.7:49152",
		"[::ffff:192.0.2.7]:49152",
		"[2001:db8:1:2:aaaa::1]:49152",
		"[2001:db8:1:2:bbbb::9]:49152",
		"@", // a Unix socket
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		fmt.Println(key.Of(r))
	}
	// Output:
	// 192.0.2.7 <nil>
	// 192.0.2.7 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 2001:db8:1:2::/64 <nil>
	// unknown <nil>
}

func ExampleForwardedIP() {
	key := stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))

	// The client claims to be 8.8.8.8. The outer proxy appends where the
	// request came from, and the inner one where the outer one is.
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("X-Forwarded-For", "8.8.8.8, 203.0.113.9, 10.0.0.1")
	fmt.Println(key.Of(r))

	// Not from a proxy: what the header says doesn't matter.
	r.RemoteAddr = "198.51.100.20:49152"
	fmt.Println(key.Of(r))
	// Output:
	// 203.0.113.9 <nil>
	// 198.51.100.20 <nil>
}

func ExampleHeaderIP_forwarded() {
	key := stint.HeaderIP("Forwarded", netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("Forwarded", `for=8.8.8.8, for="[2001:db8:1:2::9]:4711";proto=https`)
	fmt.Println(key.Of(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleHeaderIP() {
	key := stint.HeaderIP("X-Real-IP", netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("X-Real-IP", "203.0.113.9")
	fmt.Println(key.Of(r))

	// Two lines: another middleware has written one of them.
	r.Header.Add("X-Real-IP", "8.8.8.8")
	fmt.Println(key.Of(r))
	// Output:
	// 203.0.113.9 <nil>
	// 10.0.0.2 <nil>
}

// A provider that gives each customer a /56, with a local proxy on a Unix
// socket in front.
func ExampleIP() {
	key := stint.IP{
		Header:    "X-Forwarded-For",
		TrustUnix: true,
		IPv6Bits:  56,
	}.Key()

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:2ff::9]:49152"
	fmt.Println(key.Of(r))
	// Output: 2001:db8:1:200::/56 <nil>
}

func ExampleIP_Key() {
	key := stint.IP{IPv6Bits: 128}.Key()

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8::9]:49152"
	fmt.Println(key.Of(r))
	// Output: 2001:db8::9/128 <nil>
}

func ExampleHeader() {
	key := stint.Header("X-API-Key")

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-API-Key", "k-42")
	fmt.Println(key.Of(r))
	// Output: k-42 <nil>
}

func ExampleCookie() {
	key := stint.Cookie("session")

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "theme=dark; session=s1")
	fmt.Println(key.Of(r))
	// Output: s1 <nil>
}

func ExamplePattern() {
	key := stint.Pattern()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(key.Of(r))
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/7", nil))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/8", nil))
	// Output:
	// GET /users/{id} <nil>
	// GET /users/{id} <nil>
}

func ExampleMuxPattern() {
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", http.NotFoundHandler())
	key := stint.MuxPattern(mux)

	fmt.Println(key.Of(httptest.NewRequest("GET", "/users/7", nil)))
	fmt.Println(key.Of(httptest.NewRequest("GET", "/guess/1", nil)))
	fmt.Println(key.Of(httptest.NewRequest("GET", "/guess/2", nil)))
	// Output:
	// GET /users/{id} <nil>
	// unmatched <nil>
	// unmatched <nil>
}

func ExampleMethod() {
	key := stint.Method()
	fmt.Println(key.Of(httptest.NewRequest("POST", "/", nil)))
	fmt.Println(key.Of(httptest.NewRequest("MADEUP", "/", nil)))
	// Output:
	// POST <nil>
	// other <nil>
}

func ExampleGlobal() {
	key := stint.Global()
	a, _ := key.Of(httptest.NewRequest("GET", "/a", nil))
	b, _ := key.Of(httptest.NewRequest("POST", "/b", nil))
	fmt.Println(a == b)
	// Output: true
}

func ExampleJoin() {
	key := stint.Join(stint.Header("X-Tenant"), stint.Method())

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Tenant", "acme")
	fmt.Println(key.Of(r))

	// Half a key is none.
	r.Header.Del("X-Tenant")
	k, err := key.Of(r)
	fmt.Printf("%q %v\n", k, err)
	// Output:
	// 4:acme3:GET <nil>
	// "" <nil>
}

func ExampleHash() {
	secret := []byte("32 random bytes from your config") // never in the source
	key := stint.Hash(secret, stint.RemoteIP())

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:49152"
	k, err := key.Of(r)
	fmt.Println(len(k), err)
	// Output: 22 <nil>
}

func ExampleKey_In() {
	proxies := netip.MustParsePrefix("192.0.2.0/24")
	office := stint.ForwardedIP(proxies).In(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:49152"
	r.Header.Set("X-Forwarded-For", "10.1.2.3")
	fmt.Println(office(r))

	r.RemoteAddr = "198.51.100.7:49152" // not a proxy
	fmt.Println(office(r))
	// Output:
	// true
	// false
}

func ExamplePreflight() {
	r := httptest.NewRequest("OPTIONS", "/", nil)
	fmt.Println(stint.Preflight(r))

	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", "PUT")
	fmt.Println(stint.Preflight(r))
	// Output:
	// false
	// true
}

// Observers are notified before a customer's month is used up.
func ExampleWithNearLimit() {
	limits := stint.Must(stint.New(
		stint.Quota(100, stint.Monthly, stint.WithNearLimit(80, 95)),
		stint.WithKey(stint.GivenKey()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventNearLimit {
				s := e.Decision.Limits[0]
				fmt.Printf("%s has used %d %% of %s: %d left\n", e.Key(0), e.Percent, s.Name, s.Remaining)
			}
		})))

	for range 12 {
		_ = limits.Allow(context.Background(), "customer-7", 10)
	}
	// Output:
	// customer-7 has used 80 % of monthly: 20 left
	// customer-7 has used 95 % of monthly: 0 left
}

func ExampleWithQueue() {
	// One at a time; another may wait for it, for up to 20 ms.
	printer := stint.Must(stint.New(
		stint.Concurrency(1, stint.WithQueue(1), stint.WithMaxWait(20*time.Millisecond)),
		stint.WithKey(stint.GivenKey())))
	ctx := context.Background()
	p, _ := printer.Take(ctx, "first floor", 1)
	_, err := printer.Take(ctx, "first floor", 1)

	var denied *stint.DeniedError
	if errors.As(err, &denied) {
		d := denied.Decision
		fmt.Println("waited in place", d.Queued, d.Delay >= 20*time.Millisecond)
	}
	p.Done()
	// Output: waited in place 1 true
}

func ExampleWithPriority() {
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(1, stint.WithQueue(10)),
		stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "shop", nil })),
		stint.WithPriority(func(r *http.Request) int {
			if r.URL.Path == "/checkout" {
				return 5
			}
			return 0
		}),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	h := limit(lim, func(_ http.ResponseWriter, r *http.Request) { fmt.Println(r.URL.Path) })

	busy, _ := lim.Take(context.Background(), "shop", 1)
	var clients sync.WaitGroup
	for _, path := range []string{"/report", "/checkout", "/search"} {
		clients.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)) })
		<-waiting
	}
	busy.Done()
	clients.Wait()
	// Output:
	// /checkout
	// /report
	// /search
}

func ExampleWithShare() {
	// Half of four workers are interactive's if it needs them; batch may use
	// them while it doesn't.
	const batch, interactive = 0, 1
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(4, stint.WithQueue(10), stint.WithShare(interactive, 50)),
		stint.WithKey(stint.Global()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	batches := stint.ContextWithPriority(context.Background(), batch)
	clicks := stint.ContextWithPriority(context.Background(), interactive)

	var running *stint.Permit
	for range 4 { // borrows what is idle
		running, _ = lim.Take(batches, "workers", 1)
	}
	var more sync.WaitGroup
	more.Go(func() {
		p, _ := lim.Take(batches, "workers", 1)
		fmt.Println("batch")
		p.Done()
	})
	<-waiting
	more.Go(func() {
		p, _ := lim.Take(clicks, "workers", 1)
		fmt.Println("interactive")
		p.Done()
	})
	<-waiting
	running.Done()
	more.Wait()
	// Output:
	// interactive
	// batch
}

func ExampleWithFairQueue() {
	// Two workers run jobs of all tenants. Tenant a has sent three jobs before b sends its first.
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(2, stint.WithQueue(10), stint.WithFairQueue(stint.GivenKey())),
		stint.WithKey(stint.Global()), // all tenants share the workers
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	ctx := context.Background()
	running, _ := lim.Take(ctx, "a", 1)
	second, _ := lim.Take(ctx, "a", 1)
	var more sync.WaitGroup
	for _, tenant := range []string{"a", "b"} {
		more.Go(func() {
			p, _ := lim.Take(ctx, tenant, 1)
			fmt.Println("a job of", tenant)
			p.Done()
		})
		<-waiting
	}
	running.Done() // a still holds a slot, and b holds none
	more.Wait()
	second.Done()
	// Output:
	// a job of b
	// a job of a
}

func ExampleContextWithPriority() {
	waiting := make(chan struct{}, 1)
	lim := stint.Must(stint.New(
		stint.Concurrency(1),
		stint.WithKey(stint.Global()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventWaiting {
				waiting <- struct{}{}
			}
		})))
	ctx := context.Background()
	busy, _ := lim.Take(ctx, "mailer", 1)
	var jobs sync.WaitGroup
	for class, name := range []string{"newsletter", "receipt", "password reset"} {
		jobs.Go(func() {
			p, _ := lim.Wait(stint.ContextWithPriority(ctx, class), "mailer", 1)
			fmt.Println(name)
			p.Done()
		})
		<-waiting
	}
	busy.Done()
	jobs.Wait()
	// Output:
	// password reset
	// receipt
	// newsletter
}
