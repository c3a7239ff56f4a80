package stint_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echo"
	stintgin "github.com/stint-go/stint/adapters/gin"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store"
)

// behaviour is a conversation with a site, which is the same through every
// adapter. It runs in a synctest bubble, so that waits are exact.
type behaviour struct {
	name  string
	site  func(*testing.T) site
	steps []step
}

// step is a request and what has to come back.
type step struct {
	after time.Duration // the time since the last answer
	do    string        // "GET /path"
	with  []string      // the request's fields, "Name: value"; From is the peer's address
	want  int
	// fields the answer has to have, "Name: value", several lines joined by
	// ", ". An empty value: it must not have the field.
	fields []string
	// body is a text that the body has to contain, through adapters that write it
	// themselves; "-" for an empty one, through all.
	body string
	// always: the body is the same through adapters that leave it to others.
	always bool
	// never must not be anywhere in the answer.
	never string
}

func (s step) run(t *testing.T, n int, h http.Handler, problems bool) {
	t.Helper()
	time.Sleep(s.after)
	method, path, _ := strings.Cut(s.do, " ")
	r := httptest.NewRequest(method, "http://site.test"+path, nil)
	for _, line := range s.with {
		if name, value, _ := strings.Cut(line, ": "); name == "From" {
			r.RemoteAddr = value
		} else {
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	errorf := func(format string, args ...any) {
		t.Helper()
		t.Errorf("step %d, %s: %s", n+1, s.do, fmt.Sprintf(format, args...))
	}
	if w.Code != s.want {
		errorf("got status %d, want %d", w.Code, s.want)
	}
	for _, line := range s.fields {
		name, want, _ := strings.Cut(line, ":")
		want = strings.TrimSpace(want)
		if got := strings.Join(w.Header().Values(name), ", "); got != want {
			errorf("got %s %q, want %q", name, got, want)
		}
	}
	body := w.Body.String()
	switch {
	case s.body == "-":
		if body != "" {
			errorf("got a body: %q", body)
		}
	case problems || s.always || s.want < 400:
		if !strings.Contains(body, s.body) {
			errorf("got body %q, want it to have %q", body, s.body)
		}
	}
	if s.want == 429 && problems && s.body != "" && s.body[0] == '{' {
		if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
			errorf("got Content-Type %q", got)
		}
	}
	if s.want >= 400 && !problems && !s.always && s.body != "-" && !strings.HasPrefix(body, `{"message":`) && strings.HasPrefix(s.body, "{") {
		errorf("got body %q, want the error handler's", body)
	}
	if s.never != "" && strings.Contains(fmt.Sprint(w.Header(), body), s.never) {
		errorf("the answer shows %q: %v %s", s.never, w.Header(), body)
	}
}

func TestMiddleware(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := a.build(b.site(t))
						for i, s := range b.steps {
							s.run(t, i, h, a.problems)
						}
					})
				})
			}
		})
	}
}

// problem is how a problem body begins, up to the policies violated.
func problem(violated ...string) string {
	return `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"violated-policies":["` + strings.Join(violated, `","`) + `"]}`
}

var behaviours = []behaviour{
	{"granted, then denied, then granted", front(stint.Rate(2, time.Minute), byAll), []step{
		{do: "GET /", want: 200, body: "served", fields: []string{
			`RateLimit-Policy: "rate";q=2;w=60`, `RateLimit: "rate";r=1;t=30`, "Retry-After:", "Cache-Control:",
		}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=0;t=30`}},
		{do: "GET /", want: 429, body: problem("rate"), fields: []string{
			`RateLimit-Policy: "rate";q=2;w=60`, `RateLimit: "rate";r=0;t=30`, "Retry-After: 30", "Cache-Control: no-store",
		}},
		{do: "GET /", after: 30*time.Second - time.Microsecond, want: 429, fields: []string{"Retry-After: 1"}},
		{do: "GET /", after: time.Microsecond, want: 200},
	}},
	{"a key denied too often is banned", front(
		stint.Rate(1, time.Minute), stint.Ban(2, time.Hour, stint.WithBanFor(10*time.Minute)), byAll,
	), []step{
		{do: "GET /", want: 200, body: "served", fields: []string{`RateLimit-Policy: "rate";q=1;w=60`, `RateLimit: "rate";r=0;t=60`}},
		{do: "GET /", want: 429, body: problem("rate"), fields: []string{"Retry-After: 60"}},
		{do: "GET /", want: 429, fields: []string{"Retry-After: 600", "Cache-Control: no-store"},
			body: `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected","status":429,"violated-policies":["rate","ban"]}`},
		{do: "GET /", after: 5 * time.Minute, want: 429, body: `"violated-policies":["ban"]}`, fields: []string{"Retry-After: 300"}},
		{do: "GET /", after: 5*time.Minute - time.Microsecond, want: 429, fields: []string{"Retry-After: 1"}},
		{do: "GET /", after: time.Microsecond, want: 200},
	}},
	{"the limit that denies is named, and none is charged", front(
		stint.Rate(3, time.Minute, stint.WithName("minute")), stint.Rate(2, time.Hour, stint.WithName("hour")), byAll,
	), []step{
		{do: "GET /", want: 200, fields: []string{
			`RateLimit-Policy: "minute";q=3;w=60, "hour";q=2;w=3600`, `RateLimit: "minute";r=2;t=20, "hour";r=1;t=1800`,
		}},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: problem("hour"), fields: []string{`RateLimit: "minute";r=1;t=20, "hour";r=0;t=1800`, "Retry-After: 1800"}},
		{do: "GET /", want: 429, body: problem("hour"), fields: []string{`RateLimit: "minute";r=1;t=20, "hour";r=0;t=1800`}},
	}},
	{"both deny", front(
		stint.Rate(1, time.Minute, stint.WithName("minute")), stint.Rate(1, time.Hour, stint.WithName("hour")), byAll,
	), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: problem("minute", "hour"), fields: []string{"Retry-After: 3600"}},
	}},
	{"keys are apart, and never shown", front(stint.Rate(1, time.Minute), byKey), []step{
		{do: "GET /", with: []string{"X-Key: hidden-1"}, want: 200, never: "hidden-1"},
		{do: "GET /", with: []string{"X-Key: hidden-2"}, want: 200},
		{do: "GET /", with: []string{"X-Key: hidden-1"}, want: 429, body: problem("rate"), never: "hidden-1"},
	}},
	{"routes", front(stint.Rate(9, time.Minute), stint.WithRoute("POST /login", stint.Rate(1, time.Minute, stint.WithName("login"))), byAll), []step{
		{do: "POST /login", want: 200, fields: []string{`RateLimit: "login";r=0;t=60`}},
		{do: "POST //login", want: 429, body: problem("login")},
		{do: "POST /./login", want: 429, body: problem("login")},
		{do: "POST /x/../login", want: 429, body: problem("login")},
		{do: "POST /%6Cogin", want: 429, body: problem("login")},
		{do: "GET /login", want: 200, fields: []string{`RateLimit: "rate";r=8;t=7`}},
	}},
	{"a route that is exempt", front(stint.Rate(1, time.Minute), stint.WithRoute("GET /login"), byAll), []step{
		{do: "GET /login", want: 200, fields: []string{"RateLimit:", "RateLimit-Policy:"}},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429},
		{do: "GET /login", want: 200},
	}},
	{"a default cost, of the rate alone", front(
		stint.Rate(20, time.Minute), stint.Concurrency(2), byAll, stint.WithCost(func(*http.Request) int64 { return 10 }),
	), []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=10;t=3, "concurrency";r=1`}},
	}},
	{"HEAD", front(stint.Rate(9, time.Minute), stint.WithRoute("GET /login", stint.Rate(1, time.Minute, stint.WithName("login"))), byAll), []step{
		{do: "HEAD /login", want: 200, fields: []string{`RateLimit: "login";r=0;t=60`}},
		{do: "HEAD /login", want: 429, body: "-", fields: []string{`RateLimit: "login";r=0;t=60`, "Retry-After: 60"}},
		{do: "GET /login", want: 429},
	}},
	{"OPTIONS counts", front(stint.Rate(1, time.Minute), byAll), []step{
		{do: "OPTIONS /", want: 200},
		{do: "OPTIONS /", with: []string{"Origin: http://a.test", "Access-Control-Request-Method: PUT"}, want: 429},
	}},
	{"preflights don't, if asked not to", front(stint.Rate(1, time.Minute), stint.WithSkip(stint.Preflight), byAll), []step{
		{do: "OPTIONS /", with: []string{"Origin: http://a.test", "Access-Control-Request-Method: PUT"}, want: 200, fields: []string{"RateLimit:"}},
		{do: "OPTIONS /", want: 200, fields: []string{`RateLimit: "rate";r=0;t=60`}},
		{do: "OPTIONS /", with: []string{"Origin: http://a.test"}, want: 429},
	}},
	{"no route", front(stint.Rate(1, time.Minute), byAll, stint.WithRoute("/login", stint.Rate(5, time.Minute, stint.WithName("login")))), []step{
		{do: "GET /login/nowhere", want: 404, fields: []string{`RateLimit: "rate";r=0;t=60`}},
		{do: "GET /login/nowhere", want: 429},
	}},
	{"an exhausted bucket of another peer", front(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())), []step{
		{do: "GET /", with: []string{"From: 192.0.2.7:1000"}, want: 200},
		{do: "GET /", with: []string{"From: 192.0.2.7:1001", "X-Forwarded-For: 198.51.100.9"}, want: 429, never: "198.51.100.9"},
		{do: "GET /", with: []string{"From: 192.0.2.7:1002", "X-Real-IP: 198.51.100.9", "Forwarded: for=198.51.100.9"}, want: 429, never: "192.0.2.7"},
		{do: "GET /", with: []string{"From: [::ffff:192.0.2.7]:1003"}, want: 429},
		{do: "GET /", with: []string{"From: 192.0.2.8:1000", "X-Forwarded-For: 192.0.2.7"}, want: 200},
	}},
	{"behind a proxy", front(stint.Rate(1, time.Minute), stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8")))), []step{
		{do: "GET /", with: []string{"From: 10.0.0.1:1000", "X-Forwarded-For: 192.0.2.7"}, want: 200},
		{do: "GET /", with: []string{"From: 10.0.0.2:1000", "X-Forwarded-For: 1.1.1.1, 192.0.2.7"}, want: 429},
		{do: "GET /", with: []string{"From: 10.0.0.1:1000", "X-Forwarded-For: 192.0.2.8"}, want: 200},
	}},
	{"skipped", front(stint.Rate(1, time.Minute), byAll, stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/login" })), []step{
		{do: "GET /login", want: 200, fields: []string{"RateLimit:", "RateLimit-Policy:"}},
		{do: "GET /login", want: 200},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429},
	}},
	{"blocked", front(stint.Rate(1, time.Minute), byAll, stint.WithBlock(stint.FromCIDR(netip.MustParsePrefix("192.0.2.0/24")))), []step{
		{do: "GET /", with: []string{"From: 192.0.2.7:1000"}, want: 403, body: "{", never: "192.0.2"},
		{do: "GET /", with: []string{"From: 198.51.100.7:1000"}, want: 200},
	}},
	{"an empty key", front(stint.Rate(1, time.Minute), byKey), []step{
		{do: "GET /", want: 403, body: "{", fields: []string{"RateLimit:"}},
		{do: "GET /", want: 403},
	}},
	{"an empty key, skipped", front(stint.Rate(1, time.Minute), byKey, stint.WithEmptyKey(stint.SkipEmptyKey)), []step{
		{do: "GET /", want: 200, fields: []string{"RateLimit:"}},
		{do: "GET /", want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429},
	}},
	{"a key too long", front(stint.Rate(1, time.Minute), byKey), []step{
		{do: "GET /", with: []string{"X-Key: " + strings.Repeat("x", 1<<20)}, want: 403, never: "xxxx"},
	}},
	{"a key that can't be told", front(stint.Rate(1, time.Minute), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) {
		return "", errors.New("no session for mallory")
	}))), []step{
		{do: "GET /", want: 500, body: "{", never: "mallory"},
	}},
	{"redirected", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.Redirect("/queue"))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 302, fields: []string{"Location: /queue"}},
	}},
	{"degraded", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "from the cache, for "+stint.DeniedFromContext(r.Context()).Decision.Limit)
	})))), []step{
		{do: "GET /", want: 200, body: "served"},
		{do: "GET /", want: 200, body: "from the cache, for rate", fields: []string{`RateLimit: "rate";r=0;t=60`, "Retry-After:", "Cache-Control: no-store"}},
	}},
	{"degraded, for caches too", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=5")
	})))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 200, body: "-", fields: []string{"Retry-After:", "Cache-Control: max-age=5"}},
	}},
	{"a body of its own", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "not now")
	}))), []step{
		{do: "GET /", want: 200, body: "served"},
		{do: "GET /", want: 429, body: "not now", always: true, fields: []string{`RateLimit: "rate";r=0;t=60`, "Retry-After: 60"}},
	}},
	{"plain text", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.PlainText("slow down\n"))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: "slow down\n", fields: []string{"Content-Type: text/plain; charset=utf-8", "Retry-After: 60"}},
	}},
	{"in the router's own way", func(t *testing.T) site {
		s := front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.Redirect("/never")))(t)
		if strings.Contains(t.Name(), "echo") { // whose own way is for limiters without a handler
			s = front(stint.Rate(1, time.Minute), byAll)(t)
		}
		s.deny = func(w http.ResponseWriter, limit string) {
			w.Header().Set("Content-Type", "text/x-own")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "own answer for "+limit)
		}
		return s
	}, []step{
		{do: "GET /", want: 200, body: "served"},
		{do: "GET /", want: 418, body: "own answer for rate", fields: []string{
			"Content-Type: text/x-own", `RateLimit: "rate";r=0;t=60`, "Retry-After: 60", "Cache-Control: no-store",
		}},
		{do: "GET /", after: time.Minute, want: 200, body: "served"},
	}},
	{"a problem, asked for", front(stint.Rate(1, time.Minute), byKey, stint.WithProblem()), []step{
		{do: "GET /", with: []string{"X-Key: a"}, want: 200, body: "served"},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: problem("rate"), always: true, fields: []string{
			"Content-Type: application/problem+json", "Retry-After: 60",
		}},
		{do: "HEAD /", with: []string{"X-Key: a"}, want: 429, body: "-", fields: []string{"Content-Type: application/problem+json"}},
		{do: "GET /", want: 403, body: `{"type":"about:blank","title":"Forbidden","status":403}`, always: true, fields: []string{
			"Content-Type: application/problem+json",
		}},
	}},
	{"a problem, but for a handler", front(stint.Rate(1, time.Minute), byKey, stint.WithProblem(), stint.WithDenyHandler(stint.PlainText("slow down\n"))), []step{
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "slow down\n", always: true},
		{do: "GET /", want: 403, body: `{"type":"about:blank"`, always: true},
	}},
	{"one function writes every denial", front(stint.Rate(1, time.Minute), byKey, stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		if errors.Is(err, stint.ErrEmptyKey) {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = fmt.Fprintln(w, "sorry:", errors.Is(err, stint.ErrDenied))
	})), []step{
		{do: "GET /", want: 401, body: "sorry: false", always: true},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "sorry: true", always: true, fields: []string{"Retry-After: 60"}},
	}},
	{"an error handler beside a deny handler", front(stint.Rate(1, time.Minute), byKey, stint.WithDenyHandler(stint.PlainText("slow down")),
		stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) { _, _ = io.WriteString(w, "who?") })), []step{
		{do: "GET /", want: 403, body: "who?", always: true},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "slow down", always: true},
	}},
	{"a dry run reports only", front(stint.Rate(1, time.Minute, stint.WithDryRun()), stint.Rate(3, time.Minute, stint.WithName("real")), byAll), []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit-Policy: "real";q=3;w=60`, `RateLimit: "real";r=2;t=20`}},
		{do: "GET /", want: 200},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: problem("real")},
	}},
	{"fail open", front(stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(down{})), []step{
		{do: "GET /", want: 200, fields: []string{"RateLimit:", "RateLimit-Policy:", "Retry-After:"}},
		{do: "GET /", want: 200},
	}},
	{"fail closed", front(stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(down{}), stint.WithFailurePolicy(stint.FailClosed)), []step{
		{do: "GET /", want: 503, body: `{"type":"about:blank"`, never: "10.1.2.3", fields: []string{"RateLimit:", "Retry-After: 1", "Cache-Control: no-store"}},
	}},
	{"a cost that never fits", front(stint.Rate(5, time.Minute), stint.WithCost(func(*http.Request) int64 { return 6 }), byAll), []step{
		{do: "GET /", want: 429, body: problem("rate"), fields: []string{"Retry-After:", `RateLimit: "rate";r=5;t=12`}},
	}},
	{"X-RateLimit fields", front(stint.Rate(2, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders)), []step{
		{do: "GET /", want: 200, fields: []string{"X-RateLimit-Limit: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30", "RateLimit:"}},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, fields: []string{"X-RateLimit-Remaining: 0", "Retry-After: 30"}},
	}},
	{"no fields", front(stint.Rate(1, time.Minute), byAll, stint.WithHeaders(stint.NoHeaders)), []step{
		{do: "GET /", want: 200, fields: []string{"RateLimit:", "X-RateLimit-Limit:"}},
		{do: "GET /", want: 429, fields: []string{"RateLimit:", "Retry-After: 60"}},
	}},
	{"without permits", front(stint.Rate(1, time.Minute), byAll, stint.WithoutPermit()), []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=0;t=60`}},
		{do: "GET /", want: 429},
	}},
	{"nested limiters", func(t *testing.T) site {
		outer := compiled(t, stint.Rate(5, time.Minute, stint.WithName("outer")), byAll)
		inner := compiled(t, stint.Rate(1, time.Minute, stint.WithName("inner")), byAll)
		return site{limits: []*stint.Limiter{outer}, routes: []siteRoute{{path: "/", limits: []*stint.Limiter{inner}}}}
	}, []step{
		{do: "GET /", want: 200, fields: []string{
			`RateLimit-Policy: "outer";q=5;w=60, "inner";q=1;w=60`, `RateLimit: "outer";r=4;t=12, "inner";r=0;t=60`,
		}},
		{do: "GET /", want: 429, body: problem("inner"), fields: []string{
			`RateLimit: "outer";r=3;t=12, "inner";r=0;t=60`, "Retry-After: 60",
		}},
	}},
	{"nested limiters with X-RateLimit fields", func(t *testing.T) site {
		outer := compiled(t, stint.Rate(2, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders))
		inner := compiled(t, stint.Rate(5, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders))
		return site{limits: []*stint.Limiter{outer}, routes: []siteRoute{{path: "/", limits: []*stint.Limiter{inner}}}}
	}, []step{
		{do: "GET /", want: 200, fields: []string{"X-RateLimit-Limit: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30"}},
	}},
	{"the same limiter twice", func(t *testing.T) site {
		l := compiled(t, stint.Rate(3, time.Minute), byAll)
		return site{limits: []*stint.Limiter{l, l}, routes: []siteRoute{{path: "/", limits: []*stint.Limiter{l}}}}
	}, []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=2;t=20`, `RateLimit-Policy: "rate";q=3;w=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=1;t=20`}},
	}},
	{"one derived from another, inside it", func(t *testing.T) site {
		l := compiled(t, stint.Rate(9, time.Minute), byAll)
		search, err := l.With(stint.Rate(1, time.Minute, stint.WithName("search")))
		if err != nil {
			t.Fatal(err)
		}
		return site{limits: []*stint.Limiter{l}, routes: []siteRoute{{path: "/"}, {path: "/search", limits: []*stint.Limiter{search}}}}
	}, []step{
		{do: "GET /search", want: 200, fields: []string{`RateLimit: "rate";r=8;t=7, "search";r=0;t=60`}},
		{do: "GET /search", want: 429, body: problem("search"), fields: []string{`RateLimit: "rate";r=7;t=7, "search";r=0;t=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=6;t=7`}},
	}},
	{"one derived from another, beside it", func(t *testing.T) site {
		l := compiled(t, stint.Rate(2, time.Minute), byAll)
		search, err := l.With(stint.Rate(1, time.Minute, stint.WithName("search")))
		if err != nil {
			t.Fatal(err)
		}
		return site{routes: []siteRoute{{path: "/", limits: []*stint.Limiter{l}}, {path: "/search", limits: []*stint.Limiter{search}}}}
	}, []step{
		{do: "GET /search", want: 200, fields: []string{`RateLimit: "rate";r=1;t=30, "search";r=0;t=60`}},
		{do: "GET /search", want: 429, body: problem("search"), fields: []string{`RateLimit: "rate";r=1;t=30, "search";r=0;t=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=0;t=30`}},
		{do: "GET /", want: 429},
	}},
	{"a slot is waited for", waitedFor(stint.WithQueue(1)), []step{
		{do: "GET /", with: []string{"X-Class: 0"}, want: 429, body: problem("concurrency"), fields: []string{
			`RateLimit-Policy: "concurrency";q=1;qu="concurrent-requests"`, `RateLimit: "concurrency";r=0`, "Retry-After: 1",
		}}, // after five seconds
		{do: "GET /", with: []string{"X-Class: 0"}, want: 200, body: "waited 2s, queued 1"},
		{do: "GET /", with: []string{"X-Class: 0"}, want: 200, body: "waited 0s, queued 0"},
	}},
	{"a queue that is full", waitedFor(stint.WithQueue(0)), []step{
		{do: "GET /", with: []string{"X-Class: 0"}, want: 429, body: problem("concurrency")},
		{do: "GET /", after: 8 * time.Second, with: []string{"X-Class: 0"}, want: 200, body: "waited 0s, queued 0"},
	}},
	{"who ranks higher goes first", waitedFor(stint.WithQueue(2), stint.WithMaxWait(time.Minute)), []step{
		{do: "GET /", with: []string{"X-Class: 5", "X-Behind: 3s"}, want: 200, body: "waited 7s, queued 2"},
		{do: "GET /", after: time.Second, with: []string{"X-Class: 0"}, want: 200, body: "waited 2s, queued 1"},
	}},
	{"a share comes first", waitedFor(stint.WithQueue(2), stint.WithMaxWait(time.Minute), stint.WithShare(1, 50)), []step{
		{do: "GET /", with: []string{"X-Class: 1", "X-Behind: 3s"}, want: 200, body: "waited 7s, queued 2"},
		{do: "GET /", after: 4 * time.Second, with: []string{"X-Class: 1"}, want: 200, body: "waited 0s, queued 0"},
	}},
	{"the permit in the handler", func(t *testing.T) site {
		return site{
			limits: []*stint.Limiter{compiled(t, stint.Rate(10, time.Minute, stint.WithBurst(20), stint.WithDebt()), byAll)},
			routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				before := p.Decision()
				err := p.Settle(r.Context(), 5)
				fmt.Fprintln(w, before.Allowed, before.Limit, before.Remaining, err, p.Decision().Remaining)
			}}},
		}
	}, []step{
		{do: "GET /", want: 200, body: "true rate 19 <nil> 15"},
		{do: "GET /", want: 200, body: "true rate 14 <nil> 10"},
	}},
	{"no permit where nothing is limited", func(t *testing.T) site {
		return site{
			limits: []*stint.Limiter{compiled(t, stint.Rate(1, time.Minute), byAll, stint.WithRoute("/"))},
			routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				fmt.Fprintln(w, p == nil, p.Settle(r.Context(), 5), p.Decision().Allowed)
			}}},
		}
	}, []step{{do: "GET /", want: 200, body: "true <nil> true"}}},
	{"by the pattern", func(t *testing.T) site {
		l := compiled(t, stint.Rate(1, time.Minute), stint.WithKey(stint.Pattern()))
		ls := []*stint.Limiter{l}
		return site{routes: []siteRoute{{path: "/users/{id}", limits: ls}, {path: "/orders/{id}", limits: ls}}}
	}, []step{
		{do: "GET /users/1", want: 200},
		{do: "GET /users/2", want: 429},
		{do: "GET /orders/1", want: 200},
		{do: "GET /orders/2", want: 429},
	}},
	{"by whom the router has authenticated", forUsers(func(user stint.Key) []stint.Option {
		return []stint.Option{stint.Rate(2, time.Minute), stint.WithKey(user)}
	}), []step{
		{do: "GET /", with: []string{"X-User: ada"}, want: 200, body: "left 1", fields: []string{`RateLimit: "rate";r=1;t=30`}},
		{do: "GET /", with: []string{"X-User: bob"}, want: 200, body: "left 1"},
		{do: "GET /", with: []string{"X-User: ada"}, want: 200, body: "left 0"},
		{do: "GET /", with: []string{"X-User: ada"}, want: 429, body: problem("rate"), never: "ada"},
		{do: "GET /", want: 403, body: "{"},
	}},
	{"by whom it has authenticated, among other keys", forUsers(func(user stint.Key) []stint.Option {
		return []stint.Option{
			stint.Rate(9, time.Minute), stint.WithKey(stint.RemoteIP()),
			stint.Rate(1, time.Minute, stint.WithName("user"), stint.WithKey(stint.Hash(secret, stint.Join(stint.Method(), user)))),
			stint.WithRoute("/login", stint.Rate(2, time.Minute, stint.WithName("login")), stint.WithKey(user)),
			stint.WithEmptyKey(stint.SkipEmptyKey),
		}
	}), []step{
		{do: "GET /", with: []string{"X-User: ada"}, want: 200, fields: []string{`RateLimit: "rate";r=8;t=7, "user";r=0;t=60`}},
		{do: "GET /", with: []string{"X-User: ada"}, want: 429, body: problem("user")},
		{do: "PUT /", with: []string{"X-User: ada"}, want: 200, fields: []string{`RateLimit: "rate";r=7;t=7, "user";r=0;t=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=6;t=7`}},
		{do: "GET /login", with: []string{"X-User: ada"}, want: 200, fields: []string{`RateLimit: "login";r=1;t=30`}},
		{do: "GET /login", want: 200, fields: []string{"RateLimit:"}},
	}},
	{"limits by request, for whom it has authenticated", forUsers(func(user stint.Key) []stint.Option {
		own := stint.Rate(1, time.Minute, stint.WithName("own"), stint.WithKey(user))
		return []stint.Option{stint.WithKey(user), stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			if r.Header.Get("X-Plan") == "paid" {
				return []stint.Limit{paidPlan}, nil
			}
			return []stint.Limit{own}, nil
		})}
	}), []step{
		{do: "GET /", with: []string{"X-User: ada", "X-Plan: paid"}, want: 200, body: "left 99"},
		{do: "GET /", with: []string{"X-User: bob"}, want: 200, body: "left 0"},
		{do: "GET /", with: []string{"X-User: bob"}, want: 429, body: problem("own")},
	}},
	{"whom it has authenticated can't be told", forUsers(func(user stint.Key) []stint.Option {
		return []stint.Option{stint.Rate(1, time.Minute), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			name, _ := user.Of(r)
			return "", errors.New("no account of " + name)
		}))}
	}), []step{
		{do: "GET /", with: []string{"X-User: mallory"}, want: 500, body: "{", never: "mallory"},
	}},
	{"an adaptive limit beside a rate", front(
		stint.AdaptiveConcurrency(1, 50, stint.WithInitialLimit(3)), stint.Rate(1, time.Minute), byAll,
	), []step{
		{do: "GET /", want: 200, body: "served", fields: []string{
			`RateLimit-Policy: "rate";q=1;w=60, "adaptive";q=3;qu="concurrent-requests"`, `RateLimit: "rate";r=0;t=60, "adaptive";r=2`,
		}},
		{do: "GET /", want: 429, body: problem("rate"), fields: []string{`RateLimit: "rate";r=0;t=60, "adaptive";r=3`, "Retry-After: 60"}},
		{do: "GET /", after: time.Minute, want: 200},
	}},
	{"an adaptive limit goes on without the store", front(
		stint.AdaptiveConcurrency(1, 50, stint.WithInitialLimit(3), stint.WithName("adaptive")), stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(down{}),
	), []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit: "adaptive";r=2`, `RateLimit-Policy: "adaptive";q=3;qu="concurrent-requests"`}},
		{do: "GET /", want: 200},
	}},
	{"a cost above an adaptive limit's most", front(
		stint.AdaptiveConcurrency(1, 50, stint.WithCost(func(*http.Request) int64 { return 51 })), stint.Rate(100, time.Minute), byAll,
	), []step{
		{do: "GET /", want: 503, fields: []string{"Retry-After:", `RateLimit: "rate";r=100;t=1, "adaptive";r=20`}},
	}},
	{"limits by request", front(stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
		switch r.Header.Get("X-Plan") {
		case "paid":
			return []stint.Limit{paidPlan}, nil
		case "":
			return nil, errors.New("no plan for mallory")
		}
		return []stint.Limit{freePlan}, nil
	}), byKey), []step{
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: free"}, want: 200, fields: []string{`RateLimit: "free";r=0;t=60`, `RateLimit-Policy: "free";q=1;w=60`}},
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: free"}, want: 429, body: problem("free")},
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: paid"}, want: 200, fields: []string{`RateLimit: "paid";r=99;t=1`}},
		{do: "GET /", with: []string{"X-Key: a"}, want: 500, never: "mallory"},
	}},
}

// waitedFor is a site whose only slot is taken for seven seconds. A request
// with X-Behind finds another of class 2 in line, which will hold the slot for
// that long.
func waitedFor(opts ...stint.ConcurrencyOption) func(*testing.T) site {
	return func(t *testing.T) site {
		var l *stint.Limiter
		ahead := func(r *http.Request) bool {
			if hold, err := time.ParseDuration(r.Header.Get("X-Behind")); err == nil {
				go func() {
					if p, err := l.Take(stint.ContextWithPriority(context.Background(), 2), "k", 1); err == nil {
						time.Sleep(hold)
						p.Done()
					}
				}()
				synctest.Wait()
			}
			return false
		}
		l = compiled(t, stint.Concurrency(1, opts...), theKey, stint.WithSkip(ahead), stint.WithPriority(func(r *http.Request) int {
			n, _ := strconv.Atoi(r.Header.Get("X-Class"))
			return n
		}))
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(7*time.Second, p.Done)
		return site{
			limits: []*stint.Limiter{l},
			routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				d := stint.FromContext(r.Context()).Decision()
				fmt.Fprintf(w, "waited %v, queued %d", d.Delay, d.Queued)
			}}},
		}
	}
}

var (
	freePlan = stint.Rate(1, time.Minute, stint.WithName("free"))
	paidPlan = stint.Rate(100, time.Minute, stint.WithName("paid"))
)

// flows are the behaviours that are more than a request and its answer. They
// too are the same through every adapter.
var flows = []struct {
	name string
	run  func(*testing.T, routing)
}{
	{"panics let go of the slot", flowPanics},
	{"slots are held while a handler runs", flowSlots},
	{"adaptive slots", flowAdaptive},
	{"what an adaptive limit makes of responses", flowAdaptiveStatus},
	{"the pattern and the form come back", flowComesBack},
	{"the ResponseWriter is not wrapped", flowNotWrapped},
	{"hijacking", flowHijack},
	{"server-sent events", flowEvents},
	{"early hints", flowEarlyHints},
	{"leaving the queue", flowLeavesQueue},
	{"hanging up in the queue", flowHangsUp},
	{"waiting for the turn", flowWaits},
	{"settling by the response", flowSettles},
	{"settling a stream", flowSettlesStream},
	{"settling after a hijack", flowSettlesHijack},
	{"looking at the response hides nothing", flowHidesNothing},
	{"bandwidth", flowBandwidth},
	{"bandwidth of an upload", flowUpload},
	{"bandwidth, hung up on", flowBandwidthLeft},
	{"bandwidth, cut off", flowBandwidthCut},
	{"bandwidth of a hijacked connection", flowBandwidthHijack},
}

func TestMiddlewareFlows(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			for _, f := range flows {
				t.Run(f.name, func(t *testing.T) { f.run(t, a) })
			}
		})
	}
}

// one is a site of one route behind a limiter.
func one(l *stint.Limiter, do http.HandlerFunc) site {
	return site{limits: []*stint.Limiter{l}, routes: []siteRoute{{path: "/", do: do}}}
}

// free is the least number of units left of any limit of the limiter.
func free(t *testing.T, l *stint.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), globalKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func flowPanics(t *testing.T, a routing) {
	values := []any{"boom", http.ErrAbortHandler, "boom", http.ErrAbortHandler}
	for i, value := range values {
		synctest.Test(t, func(t *testing.T) {
			l := compiled(t, stint.Concurrency(1), byAll)
			if i > 1 {
				l = compiled(t, stint.AdaptiveConcurrency(1, 1), byAll)
			}
			h := a.build(one(l, func(http.ResponseWriter, *http.Request) {
				if free(t, l) != 0 {
					t.Error("the handler runs without a slot")
				}
				panic(value)
			}))
			for range 3 {
				func() {
					defer func() {
						if got := recover(); got != value {
							t.Errorf("recovered %v, want %v", got, value)
						}
					}()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
			}
			if n := free(t, l); n != 1 {
				t.Errorf("%d slots free, want 1", n)
			}
		})
	}
}

func flowSlots(t *testing.T, a routing) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Concurrency(2), stint.WithKey(stint.Header("X-Key")))
		h := a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "served")
		}))
		var mu sync.Mutex
		codes := map[int]int{}
		ask := func() {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Key", "a")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
			if got, want := w.Header().Get("RateLimit-Policy"), `"concurrency";q=2;qu="concurrent-requests"`; got != want {
				t.Errorf("got RateLimit-Policy %s, want %s", got, want)
			}
			if w.Code == 429 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("got Retry-After %q, want 1", w.Header().Get("Retry-After"))
			}
		}
		for range 2 {
			var all sync.WaitGroup
			for range 5 {
				all.Go(ask)
			}
			all.Wait()
		}
		if codes[200] != 4 || codes[429] != 6 {
			t.Errorf("got %v, want twice 2 of 5 served", codes)
		}
	})
	// No client is to blame for the slots of the whole service.
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Concurrency(1), byAll)
		var h http.Handler
		h = a.build(one(l, func(w http.ResponseWriter, r *http.Request) {
			inner := httptest.NewRecorder()
			h.ServeHTTP(inner, httptest.NewRequest("GET", "/", nil))
			_, _ = fmt.Fprintln(w, inner.Code, inner.Header().Get("Retry-After"))
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Body.String(); got != "503 1\n" {
			t.Errorf("a request inside the only slot got %q, want 503 and Retry-After 1", got)
		}
	})
}

// An adaptive limit is full like any other, learns from the handlers, and from
// their panics.
func flowAdaptive(t *testing.T, a routing) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var changes []stint.LimitChange
		l := compiled(t, stint.AdaptiveConcurrency(1, 50), byAll, stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventLimitChanged {
				mu.Lock()
				defer mu.Unlock()
				changes = append(changes, *e.Change)
			}
		}))
		h := a.build(one(l, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			if r.Header.Get("X-Panic") != "" {
				panic("boom")
			}
		}))
		codes := map[int]int{}
		ask := func(panics string) {
			defer func() { _ = recover() }()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-Panic", panics)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
			if w.Code == 503 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("got Retry-After %q, want 1", w.Header().Get("Retry-After"))
			}
		}
		burst := func(panics string) {
			var all sync.WaitGroup
			for range 30 {
				all.Go(func() { ask(panics) })
			}
			all.Wait()
			time.Sleep(time.Second)
		}
		burst("")
		burst("")
		burst("")
		if codes[200] != 60 || codes[503] != 30 {
			t.Errorf("got %v, want thrice 20 served of 30", codes)
		}
		burst("yes")
		burst("yes")
		if n := free(t, l); n >= 20 {
			t.Errorf("%d slots free after handlers have panicked", n)
		}
		want := stint.LimitChange{Limit: "adaptive", From: 20, To: 21, Reason: stint.AdaptiveGrowing, InFlight: 19,
			Latency: 100 * time.Millisecond, Baseline: 100 * time.Millisecond}
		if len(changes) < 2 || changes[0] != want && changes[1] != want || changes[len(changes)-1].Reason != stint.AdaptiveDrops {
			t.Errorf("told of %+v", changes)
		}
	})
}

// What the response says, the adaptive limit learns, unless the handler says
// otherwise.
func flowAdaptiveStatus(t *testing.T, a routing) {
	for _, tt := range []struct {
		name string
		do   http.HandlerFunc
		want int64
	}{
		{"503", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 10},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }, 10},
		{"404", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 20},
		{"429", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, 20},
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, 20},
		{"503, ignored", func(w http.ResponseWriter, r *http.Request) {
			stint.FromContext(r.Context()).Ignore()
			w.WriteHeader(503)
		}, 20},
		{"200, dropped", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "from the cache, as the backend is full")
			stint.FromContext(r.Context()).Drop()
		}, 10},
		{"200, then a panic", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic("boom")
		}, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := compiled(t, stint.AdaptiveConcurrency(1, 20), byAll)
			h := a.build(one(l, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Millisecond)
				tt.do(w, r)
			}))
			for range 20 {
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				}()
				time.Sleep(100 * time.Millisecond)
			}
			if n := free(t, l); n != tt.want {
				t.Errorf("%s: the limit is %d, want %d", tt.name, n, tt.want)
			}
		})
	}
	// A denial further in is not the service's failure.
	synctest.Test(t, func(t *testing.T) {
		outer := compiled(t, stint.AdaptiveConcurrency(1, 20), byAll)
		inner := compiled(t, stint.Concurrency(5, stint.WithCost(func(*http.Request) int64 { return 6 })), byAll)
		h := a.build(site{limits: []*stint.Limiter{outer}, routes: []siteRoute{{path: "/", limits: []*stint.Limiter{inner}}}})
		for range 20 {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 503 {
				t.Fatalf("got %d, want 503", w.Code)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := free(t, outer); n != 20 {
			t.Errorf("the limit further out is %d, want 20", n)
		}
	})
}

// A logger further out sees the route, and the server the form whose files it
// has to remove, though the handler ran with another *http.Request.
func flowComesBack(t *testing.T, a routing) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, _ := form.CreateFormFile("file", "big")
	_, _ = part.Write(bytes.Repeat([]byte("x"), 1<<16))
	_ = form.Close()

	var name, seen string
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	h := a.build(site{limits: []*stint.Limiter{l}, routes: []siteRoute{{path: "/users/{id}", do: func(w http.ResponseWriter, r *http.Request) {
		if stint.FromContext(r.Context()) == nil {
			t.Error("no permit")
		}
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
			return
		}
		f, err := r.MultipartForm.File["file"][0].Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if f, ok := f.(*os.File); ok {
			name = f.Name()
		}
	}}}})
	logged := make(chan struct{})
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(logged)
		h.ServeHTTP(w, r)
		seen = r.Pattern
		if r.MultipartForm == nil {
			t.Error("the server does not see the form")
		}
	}))
	resp, err := srv.Client().Post(srv.URL+"/users/7", form.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	<-logged
	route := map[string]string{"std": "/users/{id}"}[a.name]
	if route == "" {
		route = "POST /users/:id"
	}
	if seen != route {
		t.Errorf("the logger sees the pattern %q, want %q", seen, route)
	}
	srv.Close() // waits for the server's own end of the request
	if _, err := os.Stat(name); name == "" || !os.IsNotExist(err) {
		t.Errorf("the uploaded file %q was left behind: %v", name, err)
	}
}

// A client that leaves while its request waits gives its turn to the next.
func flowLeavesQueue(t *testing.T, a routing) {
	synctest.Test(t, func(t *testing.T) {
		const s = time.Second
		start := time.Now()
		l := compiled(t, stint.Rate(1, s, stint.WithBurst(1)), stint.WithMaxWait(time.Minute), byAll)
		var mu sync.Mutex
		served := map[string]time.Duration{}
		h := a.build(one(l, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served[r.Header.Get("X-Name")] = time.Since(start)
		}))
		ask := func(ctx context.Context, name string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
			r.Header.Set("X-Name", name)
			h.ServeHTTP(w, r)
			return w
		}
		var all sync.WaitGroup
		ask(context.Background(), "a")
		ctx, cancel := context.WithCancel(context.Background())
		all.Go(func() {
			if w := ask(ctx, "b"); w.Code != 503 {
				t.Errorf("got %d %q, want 503", w.Code, w.Body)
			}
		})
		time.Sleep(s / 4)
		all.Go(func() { ask(context.Background(), "c") })
		time.Sleep(s / 4)
		cancel()
		time.Sleep(s / 4)
		all.Go(func() { ask(context.Background(), "d") })
		all.Wait()
		if _, ok := served["b"]; ok {
			t.Error("who had left was served")
		}
		if served["c"] != s || served["d"] != 2*s {
			t.Errorf("served %v, want c after 1s, in b's place, and d after 2s", served)
		}
	})
}

// The same with a real connection that is closed.
func flowHangsUp(t *testing.T, a routing) {
	decided := make(chan string, 3)
	canceled := make(chan struct{}, 1)
	l := compiled(t, stint.Concurrency(1), stint.WithMaxWait(time.Minute),
		stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			if r.URL.RawQuery != "" { // New calls it too
				decided <- r.URL.RawQuery
			}
			return "everybody", nil
		})),
		stint.WithObserver(func(e stint.Event) {
			if e.Kind == stint.EventCanceled {
				canceled <- struct{}{}
			}
		}))
	inside, leave := make(chan struct{}), make(chan struct{})
	var served sync.Map
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, r *http.Request) {
		served.Store(r.URL.RawQuery, true)
		if r.URL.RawQuery == "first" {
			close(inside)
			<-leave
		}
	})))
	ask := func(ctx context.Context, name string) error {
		r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL+"/?"+name, nil)
		resp, err := srv.Client().Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	var all sync.WaitGroup
	all.Go(func() { _ = ask(context.Background(), "first") })
	<-decided
	<-inside
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		if ask(ctx, "second") == nil {
			t.Error("who had hung up got an answer")
		}
	})
	<-decided
	cancel()
	<-canceled
	close(leave)
	if err := ask(context.Background(), "third"); err != nil {
		t.Error(err)
	}
	all.Wait()
	if _, ok := served.Load("second"); ok {
		t.Error("who had hung up was served")
	}
}

func flowWaits(t *testing.T, a routing) {
	synctest.Test(t, func(t *testing.T) {
		l := compiled(t, stint.Rate(1, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(2)), byAll)
		start := time.Now()
		var mu sync.Mutex
		var served []time.Duration
		h := a.build(one(l, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Since(start))
			if got := stint.FromContext(r.Context()).Decision().Delay; got != time.Since(start) {
				t.Errorf("Delay %v after %v", got, time.Since(start))
			}
		}))
		codes := make(chan int, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				codes <- w.Code
			}()
		}
		denials := 0
		for range 5 {
			if <-codes == 429 {
				denials++
				if time.Since(start) != 0 {
					t.Error("a denial has waited")
				}
			}
		}
		if denials != 2 || fmt.Sprint(served) != "[0s 1s 2s]" {
			t.Errorf("%d denied, served at %v", denials, served)
		}
	})
}

// What limits that look at the response see, and what their handlers notice of
// it, through every adapter.

// seen is what a WithSettle has been asked with.
type seenEnd struct {
	status  int
	written int64
	path    string
}

func watched(t *testing.T) (*stint.Limiter, chan seenEnd) {
	ends := make(chan seenEnd, 10)
	return compiled(t, stint.Rate(100, time.Hour), byAll, stint.WithSettle(func(r *http.Request, status int, written int64) int64 {
		ends <- seenEnd{status, written, r.URL.Path}
		return 0
	})), ends
}

// leaves is the key of the function by which the client of a request leaves.
type leaves struct{}

// leaving is a handler whose client leaves before it answers, if it does.
func leaving(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(leaves{}).(context.CancelFunc)()
		if then != nil {
			then(w, r)
		}
	}
}

func flowSettles(t *testing.T, a routing) {
	tests := []struct {
		name    string
		method  string
		do      http.HandlerFunc
		status  int
		written int64
	}{
		{"bytes", "GET", answering(200, "served"), 200, 6},
		{"text", "GET", func(w http.ResponseWriter, _ *http.Request) {
			if s, ok := w.(io.StringWriter); ok {
				_, _ = s.WriteString("served")
			} else {
				_, _ = io.WriteString(w, "served")
			}
		}, 200, 6},
		{"a failure", "GET", answering(503, "later"), 503, 5},
		{"not modified", "GET", answering(304, ""), 304, 0},
		{"nothing", "GET", func(http.ResponseWriter, *http.Request) {}, 200, 0},
		{"nothing, for a client that has left", "GET", leaving(nil), 499, 0},
		{"an answer for a client that has left", "GET", leaving(answering(204, "")), 204, 0},
		{"no body", "HEAD", answering(200, "served"), 200, 0},
		{"a panic", "GET", panicking(http.ErrAbortHandler, nil), 500, 0},
		{"a panic in the middle", "GET", panicking(http.ErrAbortHandler, answering(200, "part")), 200, 4},
		{"another panic in the middle", "GET", panicking("boom", answering(200, "part")), 500, 4},
	}
	for _, tt := range tests {
		l, ends := watched(t)
		h := a.build(one(l, tt.do))
		func() {
			defer func() { _ = recover() }()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ctx = context.WithValue(ctx, leaves{}, leave)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tt.method, "/", nil).WithContext(ctx))
		}()
		select {
		case got := <-ends:
			if want := (seenEnd{tt.status, tt.written, "/"}); got != want {
				t.Errorf("%s: settled by %+v, want %+v", tt.name, got, want)
			}
		default:
			t.Errorf("%s: not settled", tt.name)
		}
		if got := free(t, l); got != 100 {
			t.Errorf("%s: %d left, want 100", tt.name, got)
		}
	}
}

func flowSettlesStream(t *testing.T, a routing) {
	l, ends := watched(t)
	next := make(chan bool)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		for range 2 {
			_, _ = io.WriteString(w, "data: 1\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-next
		}
	})))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for range 2 {
		if !lines.Scan() || lines.Text() != "data: 1" {
			t.Fatalf("got %q", lines.Text())
		}
		lines.Scan()
		next <- true
	}
	if got := <-ends; got != (seenEnd{200, 18, "/"}) {
		t.Errorf("settled by %+v", got)
	}
}

func flowSettlesHijack(t *testing.T, a routing) {
	l, ends := watched(t)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nraw")
		_ = conn.Close()
	})))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, _ := io.ReadAll(conn); !strings.HasSuffix(string(text), "raw") {
		t.Errorf("got %q", text)
	}
	if got := <-ends; got != (seenEnd{101, 0, "/"}) {
		t.Errorf("settled by %+v", got)
	}
}

// able says what a ResponseWriter can do.
func able(w http.ResponseWriter) string {
	_, flusher := w.(http.Flusher)
	_, hijacker := w.(http.Hijacker)
	_, readerFrom := w.(io.ReaderFrom)
	_, stringWriter := w.(io.StringWriter)
	rc := http.NewResponseController(w)
	return fmt.Sprintf("flusher=%v hijacker=%v readerFrom=%v stringWriter=%v deadlines=%v,%v duplex=%v",
		flusher, hijacker, readerFrom, stringWriter,
		rc.SetReadDeadline(time.Time{}) == nil, rc.SetWriteDeadline(time.Time{}) == nil, rc.EnableFullDuplex() == nil)
}

// flowHidesNothing: handlers can do over HTTP/1.1 and HTTP/2 what they could
// without a limit.
func flowHidesNothing(t *testing.T, a routing) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("0123456789", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		var got [3]string
		l, ends := watched(t)
		paced := compiled(t, stint.Bandwidth(2_000_000, stint.WithBurst(10_000), stint.WithRequestBytes()), byAll)
		for i := range got {
			s := site{routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				got[i] = able(w)
				http.ServeFile(w, r, file)
			}}}}
			switch i {
			case 1:
				s.limits = []*stint.Limiter{l}
			case 2:
				s.limits = []*stint.Limiter{paced}
			}
			srv := httptest.NewUnstartedServer(a.build(s))
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			t.Cleanup(srv.Close)
			r, _ := http.NewRequestWithContext(t.Context(), "GET", srv.URL, nil)
			r.Header.Set("Range", "bytes=5-50004")
			resp, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode != 206 || len(body) != 50_000 || !strings.HasPrefix(string(body), "56789") || resp.ProtoMajor == 2 != http2 {
				t.Errorf("got %s %d, %d bytes, %v", resp.Proto, resp.StatusCode, len(body), err)
			}
		}
		if got[0] != got[1] || got[0] != got[2] {
			t.Errorf("without a limit %s\nthat settles    %s\nthat paces      %s", got[0], got[1], got[2])
		}
		if end := <-ends; end != (seenEnd{206, 50_000, "/"}) {
			t.Errorf("settled by %+v", end)
		}
	}
}

// site is an application with limits, to be built on each of the routers.
type site struct {
	limits []*stint.Limiter // in front of all routes, outermost first
	// byUser are more of them, inside, by the key that the router's own
	// authentication has: X-User, which it leaves where its handlers look for it.
	byUser func(stint.Key) []*stint.Limiter
	routes []siteRoute
	// deny answers what the outermost limits deny in the router's own way,
	// where that isn't nil: by a handler of its own kind.
	deny func(w http.ResponseWriter, limit string)
}

// keyed are the site's limits by the router's own key.
func (s site) keyed(k stint.Key) []*stint.Limiter {
	if s.byUser == nil {
		return nil
	}
	return s.byUser(k)
}

// siteRoute answers every method on a path. Parameters are written {name}.
type siteRoute struct {
	path   string
	limits []*stint.Limiter // in front of this route alone
	do     http.HandlerFunc // nil: 200 and "served"
}

func (r siteRoute) handler() http.HandlerFunc {
	if r.do != nil {
		return r.do
	}
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }
}

// colons writes {name} as :name.
func (r siteRoute) colons() string {
	return strings.NewReplacer("{", ":", "}", "").Replace(r.path)
}

// A routing is a router, through its adapter.
type routing struct {
	name  string
	build func(site) http.Handler
	// problems: denials are application/problem+json; else they are what the
	// router's own error handler writes.
	problems bool
}

func init() { gin.SetMode(gin.ReleaseMode) }

var routings = []routing{
	{"std", func(s site) http.Handler {
		mux := http.NewServeMux()
		for _, r := range s.routes {
			h := http.Handler(r.handler())
			for _, l := range slices.Backward(r.limits) {
				h = stinthttp.Middleware(l)(h)
			}
			if r.path == "/" {
				r.path = "/{$}" // the others have no catch-all
			}
			mux.Handle(r.path, h)
		}
		h := http.Handler(mux)
		type user struct{}
		for _, l := range slices.Backward(s.keyed(stint.KeyFunc(func(r *http.Request) (string, error) {
			return r.Context().Value(user{}).(string), nil
		}))) {
			h = stinthttp.Middleware(l)(h)
		}
		if next := h; s.byUser != nil {
			h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), user{}, r.Header.Get("X-User"))))
			})
		}
		for _, l := range slices.Backward(s.limits) {
			if s.deny != nil {
				l = stint.Must(l.With(stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s.deny(w, stint.DeniedFromContext(r.Context()).Decision.Limit)
				}))))
			}
			h = stinthttp.Middleware(l)(h)
		}
		return h
	}, true},
	{"gin", func(s site) http.Handler {
		e := gin.New()
		for _, l := range s.limits {
			var opts []stint.Option
			if s.deny != nil {
				opts = append(opts, stintgin.WithDeny(func(c *gin.Context) {
					s.deny(c.Writer, stint.DeniedFromContext(c.Request.Context()).Decision.Limit)
				}))
			}
			e.Use(stintgin.Middleware(l, opts...))
		}
		for _, l := range s.keyed(stintgin.Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })) {
			e.Use(func(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }, stintgin.Middleware(l))
		}
		for _, r := range s.routes {
			var chain []gin.HandlerFunc
			for _, l := range r.limits {
				chain = append(chain, stintgin.Middleware(l))
			}
			e.Any(r.colons(), append(chain, func(c *gin.Context) { r.handler()(c.Writer, c.Request) })...)
		}
		return e
	}, true},
	{"echo", func(s site) http.Handler { return onEcho(s) }, false},
	{"echo that writes problems", func(s site) http.Handler { return onEcho(s, stint.WithProblem()) }, true},
}

func onEcho(s site, opts ...stint.Option) http.Handler {
	e := echo.New()
	if s.deny != nil {
		opts = nil // or there is nothing left to deny
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
				s.deny(c.Response(), denied.Decision.Limit)
				return
			}
			e.DefaultHTTPErrorHandler(err, c)
		}
	}
	for _, l := range s.limits {
		e.Use(stintecho.Middleware(l, opts...))
	}
	for _, l := range s.keyed(stintecho.Key(func(c echo.Context) (string, error) { return c.Get("user").(string), nil })) {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { c.Set("user", c.Request().Header.Get("X-User")); return next(c) }
		}, stintecho.Middleware(l, opts...))
	}
	for _, r := range s.routes {
		var chain []echo.MiddlewareFunc
		for _, l := range r.limits {
			chain = append(chain, stintecho.Middleware(l, opts...))
		}
		e.Any(r.colons(), func(c echo.Context) error {
			r.handler()(c.Response(), c.Request())
			return nil
		}, chain...)
	}
	return e
}

// compiled is stint.New for limits that are known to be right.
func compiled(t testing.TB, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// front is a site with limits in front of everything.
func front(opts ...stint.Option) func(*testing.T) site {
	return func(t *testing.T) site {
		return site{limits: []*stint.Limiter{compiled(t, opts...)}, routes: []siteRoute{{path: "/"}, {path: "/login"}, {path: "/users/{id}"}}}
	}
}

// forUsers is a site with limits by the key of the router's own authentication.
func forUsers(opts func(stint.Key) []stint.Option) func(*testing.T) site {
	return func(t *testing.T) site {
		return site{
			byUser: func(k stint.Key) []*stint.Limiter { return []*stint.Limiter{compiled(t, opts(k)...)} },
			routes: []siteRoute{{path: "/", do: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "left "+strconv.FormatInt(stint.FromContext(r.Context()).Decision().Remaining, 10))
			}}, {path: "/login"}},
		}
	}
}

// down is a store that answers nothing.
type down struct{}

var errDialing = errors.New("dial tcp 10.1.2.3: denied")

func (down) Take(context.Context, []store.Charge, []store.Result) error { return errDialing }

func (down) Settle(context.Context, []store.Charge, []store.Result) error { return errDialing }

var (
	byAll = stint.WithKey(stint.Global())
	byKey = stint.WithKey(stint.Header("X-Key"))
)

// The flows that are about the connection, on real servers.

// serve runs a site on a real server.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func flowNotWrapped(t *testing.T, a routing) {
	var with, without string
	tell := func(s *string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, flusher := w.(http.Flusher)
			_, hijacker := w.(http.Hijacker)
			_, readerFrom := w.(io.ReaderFrom)
			*s = fmt.Sprintf("%T flusher=%v hijacker=%v readerFrom=%v", w, flusher, hijacker, readerFrom)
		}
	}
	l := compiled(t, stint.Rate(100, time.Minute), stint.Concurrency(5), byAll)
	for _, s := range []site{one(l, tell(&with)), {routes: []siteRoute{{path: "/", do: tell(&without)}}}} {
		srv := serve(t, a.build(s))
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if with != without {
		t.Errorf("behind a limiter handlers get a %s, else a %s", with, without)
	}
}

func flowHijack(t *testing.T, a routing) {
	for _, limit := range []stint.Limit{stint.Concurrency(1), stint.AdaptiveConcurrency(1, 1)} {
		hijack(t, a, limit)
	}
}

func hijack(t *testing.T, a routing, limit stint.Limit) {
	l := compiled(t, limit, byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\nraw")
	})))
	for range 3 { // the slot comes back each time
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: test\r\nConnection: Upgrade\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(answer), "HTTP/1.1 101 ") || !strings.HasSuffix(string(answer), "raw") {
			t.Fatalf("got %q", answer)
		}
		eventually(t, func() bool { return free(t, l) == 1 })
	}
}

// eventually waits for what a server does after its client has its answer.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}

func flowEvents(t *testing.T, a routing) {
	seen := make(chan bool)
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-seen // the client has the first event before the second is written
		_, _ = io.WriteString(w, "data: 2\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-seen
	})))
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("RateLimit") == "" {
		t.Error("no RateLimit field")
	}
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"data: 1", "data: 2"} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
		lines.Scan()
		seen <- true
	}
}

func flowEarlyHints(t *testing.T, a routing) {
	l := compiled(t, stint.Rate(100, time.Minute), byAll)
	srv := serve(t, a.build(one(l, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "served")
	})))
	hints := 0
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error { hints++; return nil },
	})
	r, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if hints != 1 || resp.StatusCode != 200 || string(text) != "served" || len(resp.Header.Values("RateLimit")) != 1 {
		t.Errorf("%d hints, then %d %q with RateLimit %q", hints, resp.StatusCode, text, resp.Header.Values("RateLimit"))
	}
}

// 64 connections ask for as much as they can get. Whatever the machine does
// meanwhile, a bucket that never fills up again has let exactly
// burst + floor(rate × elapsed) through: no more in the time of the whole run,
// and no less in that from the answer of the first denial to the start of the
// last, between which it was empty, used and empty again.
//
// It runs for a second, and for five with STINT_SOAK set; on a slow machine until the
// bucket is empty.
func TestMiddlewareLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a second of full load for each adapter")
	}
	const (
		connections = 64
		rate        = 50  // a second
		burst       = 250 // what a machine that stands still for five seconds gathers
	)
	length := time.Second
	if os.Getenv("STINT_SOAK") != "" {
		length = 5 * time.Second
	}
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			var admitted atomic.Int64
			l := compiled(t, stint.Rate(rate, time.Second, stint.WithBurst(burst)), stint.WithKey(stint.RemoteIP()))
			srv := httptest.NewServer(a.build(one(l, func(http.ResponseWriter, *http.Request) { admitted.Add(1) })))
			defer srv.Close()
			client := srv.Client()
			client.Transport.(*http.Transport).MaxIdleConnsPerHost = connections

			start := time.Now()
			var firstDenial, lastDenial, granted, denials atomic.Int64
			var all sync.WaitGroup
			for range connections {
				all.Go(func() {
					for {
						began := time.Since(start)
						if began > length && denials.Load() > connections {
							return
						}
						resp, err := client.Get(srv.URL)
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						switch resp.StatusCode {
						case 200:
							granted.Add(1)
						case 429:
							denials.Add(1)
							firstDenial.CompareAndSwap(0, int64(time.Since(start)))
							for {
								last := lastDenial.Load()
								if int64(began) <= last || lastDenial.CompareAndSwap(last, int64(began)) {
									break
								}
							}
						default:
							t.Errorf("got status %d", resp.StatusCode)
						}
					}
				})
			}
			all.Wait()
			whole := time.Since(start)
			inner := time.Duration(lastDenial.Load() - firstDenial.Load())

			due := func(d time.Duration) int64 { return burst + int64(d)*rate/int64(time.Second) }
			got := admitted.Load()
			t.Logf("%d of %d requests admitted in %v", got, granted.Load()+denials.Load(), whole)
			if got != granted.Load() {
				t.Errorf("the handler ran %d times, %d answers were 200", got, granted.Load())
			}
			if most := due(whole); got > most {
				t.Errorf("%d admitted in %v, want at most %d", got, whole, most)
			}
			if least := due(inner); got < least {
				t.Errorf("%d admitted in %v, want at least %d", got, inner, least)
			}
		})
	}
}

// ending is a way for a server to end the context of a request that waits. It
// serves h, and end does it.
type ending struct {
	name  string
	serve func(t *testing.T, h http.Handler) (srv *httptest.Server, end func())
	own   bool // the ending answers itself
}

var endings = []ending{
	{"shutdown", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		base, shutdown := context.WithCancel(context.Background())
		srv := httptest.NewUnstartedServer(h)
		srv.Config.BaseContext = func(net.Listener) context.Context { return base }
		srv.Start()
		t.Cleanup(srv.Close)
		return srv, shutdown
	}, false},
	{"watchdog", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		bites := make(chan struct{})
		srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				select {
				case <-bites:
				case <-ctx.Done():
				}
				cancel()
			}()
			h.ServeHTTP(w, r.WithContext(ctx))
		}))
		return srv, func() { close(bites) }
	}, false},
	{"http.TimeoutHandler", func(t *testing.T, h http.Handler) (*httptest.Server, func()) {
		return serve(t, http.TimeoutHandler(h, 50*time.Millisecond, "timed out")), func() {}
	}, true},
}

// A request whose wait the server ends learns so, whatever it waited for: only admitted
// requests are answered 200.
func TestServerEndsAWait(t *testing.T) {
	teapot := func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, context.Canceled) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	}
	queues := []struct {
		name   string
		opts   []stint.Option
		status int
	}{
		{"slot", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute)}, 503},
		{"turn", []stint.Option{stint.Rate(1, time.Hour), stint.WithMaxWait(2 * time.Hour)}, 503},
		{"limits deny otherwise", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute),
			stint.WithDenyHandler(stint.PlainText("denied"))}, 503},
		{"errors answered otherwise", []stint.Option{stint.Concurrency(1), stint.WithMaxWait(time.Minute),
			stint.WithErrorHandler(teapot)}, 418},
	}
	for _, a := range routings {
		for _, e := range endings {
			for _, q := range queues {
				if e.own && q.name != "slot" {
					continue // a deadline denies a turn that is further away at once
				}
				t.Run(a.name+"/"+e.name+"/"+q.name, func(t *testing.T) {
					endAWait(t, a, e, q.opts, q.status)
				})
			}
		}
	}
}

func endAWait(t *testing.T, a routing, e ending, opts []stint.Option, status int) {
	waits, ended := make(chan struct{}), make(chan stint.EventKind, 1)
	l := compiled(t, append(opts, byAll, stint.WithObserver(func(ev stint.Event) {
		switch {
		case ev.Kind == stint.EventWaiting:
			close(waits)
		case ev.EndsWait:
			ended <- ev.Kind
		}
	}))...)
	// What waits finds everything taken.
	p, err := l.Take(t.Context(), globalKey(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	srv, end := e.serve(t, a.build(one(l, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })))
	go func() {
		<-waits
		end()
	}()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("got %d %q, want %d", resp.StatusCode, body, status)
	}
	if e.own {
		return
	}
	if kind := <-ended; kind != stint.EventCanceled {
		t.Errorf("the wait ended with %v, want Canceled", kind)
	}
	if status != 503 {
		return
	}
	if retry, cache := resp.Header.Get("Retry-After"), resp.Header.Get("Cache-Control"); retry != "1" || cache != "no-store" {
		t.Errorf("Retry-After %q, Cache-Control %q, want 1 and no-store", retry, cache)
	}
	kind, want := "application/json", `{"message":"Service Unavailable"}`
	if a.problems {
		kind, want = "application/problem+json", `{"type":"about:blank","title":"Service Unavailable","status":503}`
	}
	if got := resp.Header.Get("Content-Type"); got != kind || strings.TrimSpace(string(body)) != want || !json.Valid(body) {
		t.Errorf("got %s %q, want %s %s", got, body, kind, want)
	}
}

// gone is the ResponseWriter of a client that has left.
type gone struct {
	http.ResponseWriter
	status int
}

func (g *gone) WriteHeader(status int) { g.status = status }

func (g *gone) Write([]byte) (int, error) { return 0, net.ErrClosed }

// The answer to a client that has left goes nowhere and does no harm.
func TestAnswerToAClientThatHasLeft(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			l := compiled(t, stint.Rate(1, time.Hour), stint.WithMaxWait(2*time.Hour), byAll)
			if _, err := l.Take(t.Context(), globalKey(t), 1); err != nil {
				t.Fatal(err)
			}
			h := a.build(one(l, func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
			ctx, leave := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, leave)
			w := &gone{ResponseWriter: httptest.NewRecorder()}
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			if w.status != 503 {
				t.Errorf("got %d, want 503", w.status)
			}
		})
	}
}

func globalKey(t *testing.T) string {
	t.Helper()
	key, err := stint.Global().Of(httptest.NewRequest("GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// If a wait in an inner limiter ends, an outer AdaptiveConcurrency learns nothing from
// it, whatever the status of the answer.
func TestAWaitThatEndsIsNoDrop(t *testing.T) {
	for name, opts := range map[string][]stint.Option{
		"queue": {stint.Rate(1, time.Hour), stint.WithMaxWait(2 * time.Hour)},
		"store": {stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithStore(down{}), stint.WithFailurePolicy(stint.FailClosed)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outer := compiled(t, stint.AdaptiveConcurrency(1, 20), byAll)
				inner := compiled(t, append(opts, byAll)...)
				_, _ = inner.Take(t.Context(), globalKey(t), 1)
				for range 20 {
					w := through(outer, get("/"), func(w http.ResponseWriter, r *http.Request) {
						ctx, cancel := context.WithCancel(r.Context())
						time.AfterFunc(100*time.Millisecond, cancel)
						mount(inner, nil).ServeHTTP(w, r.WithContext(ctx))
					})
					if w.Code != 503 {
						t.Fatalf("got %d, want 503", w.Code)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n := free(t, outer); n != 20 {
					t.Errorf("the limit further out is %d, want 20", n)
				}
			})
		})
	}
}

// answers are the ways in which a handler may answer a denial. They mean the same through
// every adapter, and to WithErrorHandler.
var answers = []struct {
	name   string
	do     http.HandlerFunc
	status int // the denial's, byLimiter, or the handler's own
	body   string
}{
	{"a body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("own")) }, denials, "own"},
	{"a string", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") }, denials, "own"},
	{"a copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("own")) }, denials, "own"},
	{"a copy of what can't be written at once", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("own too much"), 3))
	}, denials, "own"},
	{"an empty body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, denials, ""},
	{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, denials, ""},
	{"a flush by the controller", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }, denials, ""},
	{"a hint before a body", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "own")
	}, denials, "own"},
	{"a status and a body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); _, _ = io.WriteString(w, "tea") }, 418, "tea"},
	{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, ""},
	{"200", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }, 200, ""},
	{"nothing", func(http.ResponseWriter, *http.Request) {}, byLimiter, ""},
	{"an empty copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("")) }, byLimiter, ""},
	{"fields", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("X-Note", "kept")
		h.Set("Content-Type", "text/html")
		h.Set("Content-Length", "7")
		h.Set("Content-Encoding", "gzip")
		h.Set("Cache-Control", "public")
	}, byLimiter, ""},

	{"http.Error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "own", 420) }, 420, "own"},
	{"http.NotFound", http.NotFound, 404, "404 page not found"},
	{"http.Redirect", func(w http.ResponseWriter, _ *http.Request) {
		http.Redirect(w, httptest.NewRequest("POST", "/", nil), "/queue", http.StatusSeeOther)
	}, 303, ""},
	{"http.ServeContent", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "own.txt", time.Time{}, strings.NewReader("own"))
	}, 200, "own"},
	{"http.ServeFileFS", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, pages, "own.txt") }, 200, "own"},
	{"http.FileServer", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/own.txt"
		http.FileServerFS(pages).ServeHTTP(w, r)
	}, 200, "own"},
	{"http.FileServer without the file", func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/none"
		http.FileServerFS(pages).ServeHTTP(w, r)
	}, 404, "404 page not found"},
	{"http.TimeoutHandler", func(w http.ResponseWriter, r *http.Request) { // writes 200 itself
		http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") }), time.Minute, "").ServeHTTP(w, r)
	}, 200, "own"},
	{"http.StripPrefix and a mux", func(w http.ResponseWriter, r *http.Request) {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "own") })
		http.StripPrefix("", mux).ServeHTTP(w, r)
	}, denials, "own"},
	{"httputil.ReverseProxy", func(w http.ResponseWriter, r *http.Request) {
		proxy := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: upstream{}, FlushInterval: -1}
		proxy.ServeHTTP(w, r)
	}, 203, "own"},

	{"Degrade, a body", degrade(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("own")) }), 200, "own"},
	{"Degrade, a copy", degrade(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, io.LimitReader(strings.NewReader("own"), 3))
	}), 200, "own"},
	{"Degrade, a flush", degrade(func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }), 200, ""},
	{"Degrade, nothing", degrade(func(http.ResponseWriter, *http.Request) {}), 200, ""},
	{"Degrade, a status", degrade(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }), 418, ""},
	{"Degrade, http.NotFound", degrade(http.NotFound), 404, "404 page not found"},
}

const (
	denials   = -1 // the status of the denial
	byLimiter = 0  // the handler has left the request to the limiter
)

func degrade(h http.HandlerFunc) http.HandlerFunc { return stint.Degrade(h).ServeHTTP }

var pages = fstest.MapFS{"own.txt": {Data: []byte("own")}}

// final records the status of the response; httptest's would that of a hint before it.
type final struct{ *httptest.ResponseRecorder }

func (w *final) WriteHeader(status int) {
	if status >= 200 {
		w.ResponseRecorder.WriteHeader(status)
	}
}

// upstream is a server that a proxy asks.
type upstream struct{}

func (upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if got := httptrace.ContextClientTrace(r.Context()); got != nil && got.Got1xxResponse != nil {
		if err := got.Got1xxResponse(http.StatusEarlyHints, nil); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: 203, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("own")), Request: r}, nil
}

func TestDenyHandlersAnswer(t *testing.T) {
	errorHandler := func(h http.HandlerFunc) stint.Option {
		return stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, _ error) { h(w, r) })
	}
	costly := stint.WithCost(func(*http.Request) int64 { return 2 })
	const temporary = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Capacity temporarily reduced","status":503,"violated-policies":["concurrency"]}`
	kinds := []struct {
		name    string
		opts    func(http.HandlerFunc) []stint.Option
		path    string
		status  int
		problem string
	}{
		{"rate", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), costly, stint.WithDenyHandler(h)}
		}, "/", 429, problem("rate")},
		{"no such route", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), costly, stint.WithDenyHandler(h)}
		}, "/nowhere", 429, problem("rate")},
		{"slots of the service", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Concurrency(1, costly), stint.WithDenyHandler(h)}
		}, "/", 503, temporary},
		{"blocked", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute), errorHandler(h),
				stint.WithBlock(func(*http.Request) bool { return true })}
		}, "/", 403, `{"type":"about:blank","title":"Forbidden","status":403}`},
		{"store down", func(h http.HandlerFunc) []stint.Option {
			return []stint.Option{stint.Rate(1, time.Minute, stint.WithName("rate")), errorHandler(h),
				stint.WithStore(down{}), stint.WithFailurePolicy(stint.FailClosed)}
		}, "/", 503, `{"type":"about:blank","title":"Service Unavailable","status":503}`},
	}
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			for _, r := range kinds {
				for _, as := range answers {
					for _, method := range []string{"GET", "HEAD"} {
						h := a.build(one(compiled(t, append(r.opts(as.do), byAll)...), func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
						w := &final{httptest.NewRecorder()}
						h.ServeHTTP(w, httptest.NewRequest(method, r.path, nil))
						status, body := as.status, as.body
						switch status {
						case denials:
							status = r.status
						case byLimiter:
							status, body = r.status, r.problem
						}
						if w.Code != status || method == "GET" && strings.TrimSpace(w.Body.String()) != body {
							t.Errorf("%s, %s %s: got %d %q, want %d %q", r.name, method, as.name, w.Code, w.Body, status, body)
						}
						f := w.Header()
						if degraded := strings.HasPrefix(as.name, "Degrade"); degraded && (f.Get("Retry-After") != "" || f.Get("Cache-Control") != "no-store") {
							t.Errorf("%s, %s %s: got fields %v", r.name, method, as.name, f)
						}
						if as.status != byLimiter {
							continue
						}
						if f.Get("Content-Type") != "application/problem+json" || f.Get("Cache-Control") != "no-store" ||
							f.Get("Content-Length") != "" || f.Get("Content-Encoding") != "" || (f.Get("X-Note") != "") != (as.name == "fields") {
							t.Errorf("%s, %s %s: got fields %v", r.name, method, as.name, f)
						}
					}
				}
			}
		})
	}
}

// A deny handler that hijacks the connection has answered.
func TestDenyHandlerHijacks(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			l := compiled(t, stint.Rate(1, time.Minute), byAll, stint.WithCost(func(*http.Request) int64 { return 2 }),
				stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					_, _ = io.WriteString(conn, "HTTP/1.0 420 Raw\r\n\r\nraw")
				})))
			srv := serve(t, a.build(one(l, nil)))
			resp, err := srv.Client().Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 420 || string(body) != "raw" {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
		})
	}
}

// The writer of a deny handler can do what the server's can.
func TestDenyHandlerWriter(t *testing.T) {
	for _, a := range routings {
		t.Run(a.name, func(t *testing.T) {
			seen := ""
			can := func(w http.ResponseWriter) {
				_, flusher := w.(http.Flusher)
				_, hijacker := w.(http.Hijacker)
				_, readerFrom := w.(io.ReaderFrom)
				for name, ok := range map[string]bool{"flush": flusher, "hijack": hijacker, "read from": readerFrom || a.name != "std"} {
					if !ok {
						t.Errorf("can't %s", name)
					}
				}
				if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
					t.Error(err)
				}
				seen += "."
			}
			l := compiled(t, stint.Rate(1, time.Minute), byKey, stint.WithCost(func(*http.Request) int64 { return 2 }),
				stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { can(w) })),
				stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
					if !errors.Is(err, stint.ErrEmptyKey) {
						t.Error(err)
					}
					can(w)
				}))
			srv := serve(t, a.build(one(l, nil)))
			for _, key := range []string{"", "a"} {
				r, _ := http.NewRequest("GET", srv.URL, nil)
				r.Header.Set("X-Key", key)
				resp, err := srv.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			if seen != ".." {
				t.Errorf("the handlers ran %d times, want 2", len(seen))
			}
		})
	}
}
