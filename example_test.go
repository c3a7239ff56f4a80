package stint_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// limit is what the adapters do; stinthttp.Middleware is the one for net/http.
func limit(l *stint.Limiter, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := l.Admit(w, r)
		if err != nil {
			l.Deny(w, r, err)
			return
		}
		defer p.Done()
		req, wrap := p.Next(r)
		if wrap != nil {
			w = wrap(w)
		}
		next.ServeHTTP(w, req)
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

// An address that goes on when it is refused is banned for a day.
func ExampleBan() {
	limiter := stint.Must(stint.New(
		stint.Rate(1, time.Minute),
		stint.Ban(3, time.Minute, 24*time.Hour),
		stint.WithKey(stint.RemoteIP())))

	for range 5 {
		_, err := limiter.Take(context.Background(), "192.0.2.1", 1)
		var denied *stint.DeniedError
		if errors.As(err, &denied) {
			fmt.Println("refused by", denied.Decision.Limit)
		} else {
			fmt.Println("passes")
		}
	}
	// Output:
	// passes
	// refused by rate
	// refused by rate
	// refused by ban
	// refused by ban
}

func ExampleNew() {
	lim, err := stint.New(
		stint.Rate(100, time.Minute, stint.WithBurst(2)),
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
	// stint: limit "rate": period 0s: write a positive duration, such as time.Second
	// stint: limit "rate": WithBurst(-1): write 0 or more
	// stint: limit "rate": no key, and no default is safe: write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), stint.Global() for all requests together, or stint.GivenKey() for keys that Take is given
	// stint: limit "concurrency": no key, and no default is safe: write stint.WithKey(stint.RemoteIP()), behind a proxy stint.ForwardedIP(trusted...), stint.Global() for all requests together, or stint.GivenKey() for keys that Take is given
}

func ExampleLimiter_AdmitOrDeny() {
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP())))

	// An adapter for a router is these lines.
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, admitted := lim.AdmitOrDeny(w, r)
		if !admitted {
			return
		}
		defer p.Done()
		next, wrap := p.Next(r)
		if wrap != nil { // a limit looks at the response
			w = wrap(w)
		}
		hello(w, next)
	})

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// "rate";q=1;w=3600
	// "rate";r=0;t=3600
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
			fmt.Println("denied by", denied.Decision.Limit, "for", denied.Decision.RetryAfter.Round(time.Minute))
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
			fmt.Println("refused")
			continue
		}
		fmt.Println("passes")
	}
	// Output:
	// passes
	// passes
	// refused
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

	// A turn that comes after the deadline is refused at once.
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
	fmt.Println(d.Remaining, "left of", d.Limits[0].Quota, err)
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
	// <nil>
	// <nil>
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
		stint.Bandwidth(100_000, stint.WithBurst(20_000)), // 20 kB at once, then 100 kB a second
		stint.WithKey(stint.RemoteIP()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventPaced {
				fmt.Println(e.Pacing.Bytes, "bytes, held up:", e.Pacing.Waited > 0) // by 50 ms
			}
		})))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(make([]byte, 25_000)) })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: 25000 bytes, held up: true
}

func ExampleWithRequestBytes() {
	lim := stint.Must(stint.New(
		stint.Bandwidth(1_000_000, stint.WithRequestBytes()),
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
		stint.WithRoute("GET /health"), // exempt
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

func ExampleWithLimitFunc() {
	plans := map[string][]stint.Limit{
		"free": {stint.Rate(1, time.Hour, stint.WithName("plan"))},
		"pro":  {stint.Rate(100, time.Hour, stint.WithName("plan"))},
	}
	lim := stint.Must(stint.New(
		stint.WithKey(stint.Header("X-API-Key")),
		stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			return plans[r.Header.Get("X-Plan")], nil // from the session, in earnest
		})))
	h := limit(lim, hello)
	for range 2 {
		visit(h, "GET", "/", "X-API-Key", "a", "X-Plan", "pro")
	}
	for range 2 {
		visit(h, "GET", "/", "X-API-Key", "b", "X-Plan", "free")
	}
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"violated-policies":["plan"]}
}

func ExampleWithKey() {
	session := func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", nil // refused with 403: an empty key is nobody's bucket
		}
		return user, nil
	}
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(session)))
	h := limit(lim, hello)
	visit(h, "GET", "/", "Authorization", "Basic YW5uOng=")
	visit(h, "GET", "/", "Authorization", "Basic Ym9iOng=")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 200 hello
	// GET / → 403 {"type":"about:blank","title":"Forbidden","status":403}
}

func ExampleWithMaxWait() {
	// A request waits up to a second for its turn before it is refused.
	lim := stint.Must(stint.New(
		stint.Rate(4, time.Second, stint.WithBurst(1), stint.WithMaxWait(time.Second)),
		stint.WithKey(stint.RemoteIP())))
	h := limit(lim, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "waited:", stint.FromContext(r.Context()).Decision().Delay > 0)
	})
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 waited: false
	// GET / → 200 waited: true
}

func ExampleWithDryRun() {
	lim := stint.Must(stint.New(
		stint.Rate(1, time.Hour, stint.WithName("planned"), stint.WithDryRun()),
		stint.WithKey(stint.RemoteIP()),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventDryRunDenied {
				fmt.Println("would have been refused:", e.Request.URL)
			}
		})))
	h := limit(lim, hello)
	visit(h, "GET", "/a")
	visit(h, "GET", "/b")
	// Output:
	// GET /a → 200 hello
	// would have been refused: /b
	// GET /b → 200 hello
}

func ExampleWithBlock() {
	lim := stint.Must(stint.New(
		stint.Rate(10, time.Second),
		stint.WithBlock(stint.FromCIDR(netip.MustParsePrefix("192.0.2.0/24"))),
		stint.WithSkip(stint.Preflight),
		stint.WithKey(stint.RemoteIP())))
	visit(limit(lim, hello), "GET", "/") // httptest's requests come from 192.0.2.1
	// Output: GET / → 403 {"type":"about:blank","title":"Forbidden","status":403}
}

func ExampleWithDenyHandler() {
	cached := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "an answer from the cache; fresh ones after", stint.DeniedFromContext(r.Context()).Decision.Limit)
	})
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithDenyHandler(cached)))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// GET / → 200 an answer from the cache; fresh ones after rate
}

// A handler that writes nothing leaves the answer as it is.
func ExampleWithDenyHandler_note() {
	note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("refused by", stint.DeniedFromContext(r.Context()).Decision.Limit)
		w.Header().Set("Link", `</docs/limits>; rel="help"`)
	})
	lim := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(stint.RemoteIP()), stint.WithDenyHandler(note)))
	h := limit(lim, hello)
	visit(h, "GET", "/")
	visit(h, "GET", "/")
	// Output:
	// GET / → 200 hello
	// refused by rate
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
	// stint: limit "hourly-calls": 0 units: write a number from 1 to 1099511627776
}
