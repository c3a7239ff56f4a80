package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/storefake"
)

// behaviour is a conversation with a site, which is the same through every
// adapter. It runs in a synctest bubble, so that waits are exact.
type behaviour struct {
	name  string
	site  func(*testing.T) Site
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
	if s.want >= 400 && !problems && !s.always && s.body != "-" && !strings.HasPrefix(body, `{"message":`) &&
		strings.HasPrefix(s.body, "{") {
		errorf("got body %q, want the error handler's", body)
	}
	if s.never != "" && strings.Contains(fmt.Sprint(w.Header(), body), s.never) {
		errorf("the answer shows %q: %v %s", s.never, w.Header(), body)
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
		{do: "GET /", want: 200, body: "served",
			fields: []string{`RateLimit-Policy: "rate";q=1;w=60`, `RateLimit: "rate";r=0;t=60`}},
		{do: "GET /", want: 429, body: problem("rate"), fields: []string{"Retry-After: 60"}},
		{do: "GET /", want: 429, fields: []string{"Retry-After: 600", "Cache-Control: no-store"},
			body: `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal usage detected","status":429,"violated-policies":["rate","ban"]}`},
		{do: "GET /", after: 5 * time.Minute, want: 429, body: `"violated-policies":["ban"]}`,
			fields: []string{"Retry-After: 300"}},
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
		{do: "GET /", want: 429, body: problem("hour"),
			fields: []string{`RateLimit: "minute";r=1;t=20, "hour";r=0;t=1800`, "Retry-After: 1800"}},
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
	{"routes", front(stint.Rate(9, time.Minute),
		stint.WithRoute("POST /login", stint.Rate(1, time.Minute, stint.WithName("login"))), byAll), []step{
		{do: "POST /login", want: 200, fields: []string{`RateLimit: "rate";r=8;t=7, "login";r=0;t=60`}},
		{do: "POST //login", want: 429, body: problem("login")},
		{do: "POST /./login", want: 429, body: problem("login")},
		{do: "POST /x/../login", want: 429, body: problem("login")},
		{do: "POST /%6Cogin", want: 429, body: problem("login")},
		{do: "GET /login", want: 200, fields: []string{`RateLimit: "rate";r=7;t=7`}},
	}},
	{"a route with only its own limits", front(stint.Rate(1, time.Minute),
		stint.WithRoute("GET /login", stint.Only(stint.Rate(2, time.Minute, stint.WithName("login")))), byAll), []step{
		{do: "GET /", want: 200},
		{do: "GET /login", want: 200, fields: []string{`RateLimit: "login";r=1;t=30`}},
		{do: "GET /login", want: 200},
		{do: "GET /login", want: 429, body: problem("login")},
	}},
	{"a route that is exempt", front(stint.Rate(1, time.Minute), stint.WithRoute("GET /login", stint.Exempt()), byAll),
		[]step{
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
	{"HEAD", front(stint.Rate(9, time.Minute),
		stint.WithRoute("GET /login", stint.Rate(1, time.Minute, stint.WithName("login"))), byAll), []step{
		{do: "HEAD /login", want: 200, fields: []string{`RateLimit: "rate";r=8;t=7, "login";r=0;t=60`}},
		{do: "HEAD /login", want: 429, body: "-",
			fields: []string{`RateLimit: "rate";r=8;t=7, "login";r=0;t=60`, "Retry-After: 60"}},
		{do: "GET /login", want: 429},
	}},
	{"OPTIONS counts", front(stint.Rate(1, time.Minute), byAll), []step{
		{do: "OPTIONS /", want: 200},
		{do: "OPTIONS /", with: []string{"Origin: http://a.test", "Access-Control-Request-Method: PUT"}, want: 429},
	}},
	{"preflights don't, if asked not to", front(stint.Rate(1, time.Minute), stint.WithSkip(stint.Preflight), byAll),
		[]step{
			{do: "OPTIONS /", with: []string{"Origin: http://a.test", "Access-Control-Request-Method: PUT"}, want: 200,
				fields: []string{"RateLimit:"}},
			{do: "OPTIONS /", want: 200, fields: []string{`RateLimit: "rate";r=0;t=60`}},
			{do: "OPTIONS /", with: []string{"Origin: http://a.test"}, want: 429},
		}},
	{"no route", front(stint.Rate(1, time.Minute), byAll,
		stint.WithRoute("/login", stint.Rate(5, time.Minute, stint.WithName("login")))), []step{
		{do: "GET /login/nowhere", want: 404, fields: []string{`RateLimit: "rate";r=0;t=60`}},
		{do: "GET /login/nowhere", want: 429},
	}},
	{"an exhausted bucket of another peer", front(stint.Rate(1, time.Minute), stint.WithKey(stint.RemoteIP())), []step{
		{do: "GET /", with: []string{"From: 192.0.2.7:1000"}, want: 200},
		{do: "GET /", with: []string{"From: 192.0.2.7:1001", "X-Forwarded-For: 198.51.100.9"}, want: 429,
			never: "198.51.100.9"},
		{do: "GET /", with: []string{"From: 192.0.2.7:1002", "X-Real-IP: 198.51.100.9", "Forwarded: for=198.51.100.9"},
			want: 429, never: "192.0.2.7"},
		{do: "GET /", with: []string{"From: [::ffff:192.0.2.7]:1003"}, want: 429},
		{do: "GET /", with: []string{"From: 192.0.2.8:1000", "X-Forwarded-For: 192.0.2.7"}, want: 200},
	}},
	{"behind a proxy", front(stint.Rate(1, time.Minute),
		stint.WithKey(stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8")))), []step{
		{do: "GET /", with: []string{"From: 10.0.0.1:1000", "X-Forwarded-For: 192.0.2.7"}, want: 200},
		{do: "GET /", with: []string{"From: 10.0.0.2:1000", "X-Forwarded-For: 1.1.1.1, 192.0.2.7"}, want: 429},
		{do: "GET /", with: []string{"From: 10.0.0.1:1000", "X-Forwarded-For: 192.0.2.8"}, want: 200},
	}},
	{"skipped", front(stint.Rate(1, time.Minute), byAll,
		stint.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/login" })), []step{
		{do: "GET /login", want: 200, fields: []string{"RateLimit:", "RateLimit-Policy:"}},
		{do: "GET /login", want: 200},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429},
	}},
	{"blocked", front(stint.Rate(1, time.Minute), byAll,
		stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("192.0.2.0/24")))), []step{
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
	{"a key that can't be told",
		front(stint.Rate(1, time.Minute), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) {
			return "", errors.New("no session for mallory")
		}))), []step{
			{do: "GET /", want: 500, body: "{", never: "mallory"},
		}},
	{"redirected", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.Redirect("/queue"))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 302, fields: []string{"Location: /queue"}},
	}},
	{"degraded", front(stint.Rate(1, time.Minute), byAll,
		stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "from the cache, for "+stint.DeniedFromContext(r.Context()).Decision.Limit)
		})))), []step{
		{do: "GET /", want: 200, body: "served"},
		{do: "GET /", want: 200, body: "from the cache, for rate",
			fields: []string{`RateLimit: "rate";r=0;t=60`, "Retry-After:", "Cache-Control: no-store"}},
	}},
	{"degraded, for caches too", front(stint.Rate(1, time.Minute), byAll,
		stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "max-age=5")
		})))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 200, body: "-", fields: []string{"Retry-After:", "Cache-Control: max-age=5"}},
	}},
	{"a body of its own", front(stint.Rate(1, time.Minute), byAll,
		stint.WithDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "not now")
		}))), []step{
		{do: "GET /", want: 200, body: "served"},
		{do: "GET /", want: 429, body: "not now", always: true,
			fields: []string{`RateLimit: "rate";r=0;t=60`, "Retry-After: 60"}},
	}},
	{"plain text", front(stint.Rate(1, time.Minute), byAll, stint.WithDenyHandler(stint.PlainText("slow down\n"))), []step{
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: "slow down\n",
			fields: []string{"Content-Type: text/plain; charset=utf-8", "Retry-After: 60"}},
	}},
	{"in the router's own way", answered(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/x-own")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "own answer for "+stint.DeniedFromContext(r.Context()).Decision.Limit)
	}, nil, stint.Rate(1, time.Minute), byKey, stint.WithDenyHandler(stint.Redirect("/never"))), []step{
		{do: "GET /", with: []string{"X-Key: a"}, want: 200, body: "served"},
		{do: "GET /", with: []string{"X-Key: a"}, want: 418, body: "own answer for rate", always: true, fields: []string{
			"Content-Type: text/x-own", `RateLimit: "rate";r=0;t=60`, "Retry-After: 60", "Cache-Control: no-store",
		}},
		{do: "GET /", want: 403, body: "{", never: "own"},
		{do: "GET /", with: []string{"X-Key: a"}, after: time.Minute, want: 200, body: "served"},
	}},
	{"in the router's own way, without a status",
		answered(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "not now") }, nil,
			stint.Rate(1, time.Minute), byAll), []step{
			{do: "GET /", want: 200, body: "served"},
			{do: "GET /", want: 429, body: "not now", always: true,
				fields: []string{`RateLimit: "rate";r=0;t=60`, "Retry-After: 60"}},
		}},
	{"in the router's own way, with nothing",
		answered(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Note", "full") }, nil,
			stint.Rate(1, time.Minute), byAll), []step{
			{do: "GET /", want: 200, body: "served"},
			{do: "GET /", want: 429, body: problem("rate"), always: true, fields: []string{"X-Note: full", "Retry-After: 60"}},
		}},
	{"every denial in the router's own way", answered(nil, func(w http.ResponseWriter, r *http.Request, err error) {
		if r.URL.Path == "/login" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = fmt.Fprint(w, "sorry: ", errors.Is(err, stint.ErrDenied), errors.Is(err, stint.ErrEmptyKey),
			errors.Is(err, stint.ErrBlocked))
	}, stint.Rate(1, time.Minute), byKey, stint.WithBlock(stint.RemoteIP().In(netip.MustParsePrefix("198.51.100.0/24"))),
		stint.WithErrorHandler(func(http.ResponseWriter, *http.Request, error) {})), []step{
		{do: "GET /", want: 403, body: "sorry: false true false", always: true, fields: []string{"RateLimit:"}},
		{do: "GET /login", want: 418, body: "sorry: false true false", always: true},
		{do: "GET /", with: []string{"X-Key: a", "From: 198.51.100.7:1000"}, want: 403, body: "sorry: false false true",
			always: true},
		{do: "GET /", with: []string{"X-Key: " + strings.Repeat("x", 1<<20)}, want: 403, body: "sorry: false false false",
			always: true},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200, body: "served"},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "sorry: true false false", always: true,
			fields: []string{"Retry-After: 60"}},
	}},
	{"both handlers are the router's own", answered(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "slow down") },
		func(w http.ResponseWriter, _ *http.Request, _ error) { _, _ = io.WriteString(w, "who?") },
		stint.Rate(1, time.Minute), byKey), []step{
		{do: "GET /", want: 403, body: "who?", always: true},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "slow down", always: true},
	}},
	{"an error handler of the router's own that writes nothing",
		answered(nil, func(http.ResponseWriter, *http.Request, error) {},
			stint.Rate(1, time.Minute), byKey), []step{
			{do: "GET /", want: 403, body: `{"type":"about:blank","title":"Forbidden","status":403,"detail":"the request has no key for limit rate"}`, always: true},
			{do: "GET /", with: []string{"X-Key: a"}, want: 200},
			{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: problem("rate"), always: true},
		}},
	{"a problem, asked for", front(stint.Rate(1, time.Minute), byKey, stint.WithProblem()), []step{
		{do: "GET /", with: []string{"X-Key: a"}, want: 200, body: "served"},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: problem("rate"), always: true, fields: []string{
			"Content-Type: application/problem+json", "Retry-After: 60",
		}},
		{do: "HEAD /", with: []string{"X-Key: a"}, want: 429, body: "-",
			fields: []string{"Content-Type: application/problem+json"}},
		{do: "GET /", want: 403, body: `{"type":"about:blank","title":"Forbidden","status":403,"detail":"the request has no key for limit rate"}`, always: true, fields: []string{
			"Content-Type: application/problem+json",
		}},
	}},
	{"a problem, but for a handler", front(stint.Rate(1, time.Minute), byKey, stint.WithProblem(),
		stint.WithDenyHandler(stint.PlainText("slow down\n"))), []step{
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "slow down\n", always: true},
		{do: "GET /", want: 403, body: `{"type":"about:blank"`, always: true},
	}},
	{"one function writes every denial", front(stint.Rate(1, time.Minute), byKey,
		stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, stint.ErrEmptyKey) {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = fmt.Fprintln(w, "sorry:", errors.Is(err, stint.ErrDenied))
		})), []step{
		{do: "GET /", want: 401, body: "sorry: false", always: true},
		{do: "GET /", with: []string{"X-Key: a"}, want: 200},
		{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "sorry: true", always: true,
			fields: []string{"Retry-After: 60"}},
	}},
	{"an error handler beside a deny handler",
		front(stint.Rate(1, time.Minute), byKey, stint.WithDenyHandler(stint.PlainText("slow down")),
			stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
				_,
					_ = io.WriteString(w, "who?")
			})), []step{
			{do: "GET /", want: 403, body: "who?", always: true},
			{do: "GET /", with: []string{"X-Key: a"}, want: 200},
			{do: "GET /", with: []string{"X-Key: a"}, want: 429, body: "slow down", always: true},
		}},
	{"a dry run reports only", front(stint.Rate(1, time.Minute, stint.WithDryRun(true)),
		stint.Rate(3, time.Minute, stint.WithName("real")), byAll), []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit-Policy: "real";q=3;w=60`, `RateLimit: "real";r=2;t=20`}},
		{do: "GET /", want: 200},
		{do: "GET /", want: 200},
		{do: "GET /", want: 429, body: problem("real")},
	}},
	{"fail open", front(stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(storefake.Down())),
		[]step{
			{do: "GET /", want: 200, fields: []string{"RateLimit:", "RateLimit-Policy:", "Retry-After:"}},
			{do: "GET /", want: 200},
		}},
	{"fail closed", front(stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(storefake.Down()),
		stint.WithFailurePolicy(stint.FailClosed)), []step{
		{do: "GET /", want: 503, body: `{"type":"about:blank"`, never: "10.1.2.3",
			fields: []string{"RateLimit:", "Retry-After: 1", "Cache-Control: no-store"}},
	}},
	{"a cost that never fits",
		front(stint.Rate(5, time.Minute), stint.WithCost(func(*http.Request) int64 { return 6 }), byAll), []step{
			{do: "GET /", want: 429, body: problem("rate"), fields: []string{"Retry-After:", `RateLimit: "rate";r=5;t=12`}},
		}},
	{"X-RateLimit fields", front(stint.Rate(2, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders)), []step{
		{do: "GET /", want: 200,
			fields: []string{"X-RateLimit-Limit: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30", "RateLimit:"}},
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
	{"nested limiters", func(t *testing.T) Site {
		outer := compiled(t, stint.Rate(5, time.Minute, stint.WithName("outer")), byAll)
		inner := compiled(t, stint.Rate(1, time.Minute, stint.WithName("inner")), byAll)
		return Site{Limits: []*stint.Limiter{outer}, Routes: []Route{{Path: "/", Limits: []*stint.Limiter{inner}}}}
	}, []step{
		{do: "GET /", want: 200, fields: []string{
			`RateLimit-Policy: "outer";q=5;w=60, "inner";q=1;w=60`, `RateLimit: "outer";r=4;t=12, "inner";r=0;t=60`,
		}},
		{do: "GET /", want: 429, body: problem("inner"), fields: []string{
			`RateLimit: "outer";r=3;t=12, "inner";r=0;t=60`, "Retry-After: 60",
		}},
	}},
	{"nested limiters with X-RateLimit fields", func(t *testing.T) Site {
		outer := compiled(t, stint.Rate(2, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders))
		inner := compiled(t, stint.Rate(5, time.Minute), byAll, stint.WithHeaders(stint.XRateLimitHeaders))
		return Site{Limits: []*stint.Limiter{outer}, Routes: []Route{{Path: "/", Limits: []*stint.Limiter{inner}}}}
	}, []step{
		{do: "GET /", want: 200,
			fields: []string{"X-RateLimit-Limit: 2", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30"}},
	}},
	{"the same limiter twice", func(t *testing.T) Site {
		l := compiled(t, stint.Rate(3, time.Minute), byAll)
		return Site{Limits: []*stint.Limiter{l, l}, Routes: []Route{{Path: "/", Limits: []*stint.Limiter{l}}}}
	}, []step{
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=2;t=20`, `RateLimit-Policy: "rate";q=3;w=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=1;t=20`}},
	}},
	{"one derived from another, inside it", func(t *testing.T) Site {
		l := compiled(t, stint.Rate(9, time.Minute), byAll)
		search, err := l.With(stint.Rate(1, time.Minute, stint.WithName("search")))
		if err != nil {
			t.Fatal(err)
		}
		return Site{Limits: []*stint.Limiter{l},
			Routes: []Route{{Path: "/"}, {Path: "/search", Limits: []*stint.Limiter{search}}}}
	}, []step{
		{do: "GET /search", want: 200, fields: []string{`RateLimit: "rate";r=8;t=7, "search";r=0;t=60`}},
		{do: "GET /search", want: 429, body: problem("search"),
			fields: []string{`RateLimit: "rate";r=7;t=7, "search";r=0;t=60`}},
		{do: "GET /", want: 200, fields: []string{`RateLimit: "rate";r=6;t=7`}},
	}},
	{"one derived from another, beside it", func(t *testing.T) Site {
		l := compiled(t, stint.Rate(2, time.Minute), byAll)
		search, err := l.With(stint.Rate(1, time.Minute, stint.WithName("search")))
		if err != nil {
			t.Fatal(err)
		}
		return Site{Routes: []Route{{Path: "/", Limits: []*stint.Limiter{l}},
			{Path: "/search", Limits: []*stint.Limiter{search}}}}
	}, []step{
		{do: "GET /search", want: 200, fields: []string{`RateLimit: "rate";r=1;t=30, "search";r=0;t=60`}},
		{do: "GET /search", want: 429, body: problem("search"),
			fields: []string{`RateLimit: "rate";r=1;t=30, "search";r=0;t=60`}},
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
	{"the permit in the handler", func(t *testing.T) Site {
		return Site{
			Limits: []*stint.Limiter{compiled(t, stint.Rate(10, time.Minute, stint.WithBurst(20), stint.WithDebt()), byAll)},
			Routes: []Route{{Path: "/", Do: func(w http.ResponseWriter, r *http.Request) {
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
	{"no permit where nothing is limited", func(t *testing.T) Site {
		return Site{
			Limits: []*stint.Limiter{compiled(t, stint.Rate(1, time.Minute), byAll, stint.WithRoute("/", stint.Exempt()))},
			Routes: []Route{{Path: "/", Do: func(w http.ResponseWriter, r *http.Request) {
				p := stint.FromContext(r.Context())
				fmt.Fprintln(w, p == nil, p.Settle(r.Context(), 5), p.Decision().Allowed)
			}}},
		}
	}, []step{{do: "GET /", want: 200, body: "true <nil> true"}}},
	{"by the pattern", func(t *testing.T) Site {
		l := compiled(t, stint.Rate(1, time.Minute), stint.WithKey(stint.Pattern()))
		ls := []*stint.Limiter{l}
		return Site{Routes: []Route{{Path: "/users/{id}", Limits: ls}, {Path: "/orders/{id}", Limits: ls}}}
	}, []step{
		{do: "GET /users/1", want: 200},
		{do: "GET /users/2", want: 429},
		{do: "GET /orders/1", want: 200},
		{do: "GET /orders/2", want: 429},
	}},
	{"by whom the router has authenticated", forUsers(func(user stint.Key) []stint.Option {
		return []stint.Option{stint.Rate(2, time.Minute), stint.WithKey(user)}
	}), []step{
		{do: "GET /", with: []string{"X-User: ada"}, want: 200, body: "left 1",
			fields: []string{`RateLimit: "rate";r=1;t=30`}},
		{do: "GET /", with: []string{"X-User: bob"}, want: 200, body: "left 1"},
		{do: "GET /", with: []string{"X-User: ada"}, want: 200, body: "left 0"},
		{do: "GET /", with: []string{"X-User: ada"}, want: 429, body: problem("rate"), never: "ada"},
		{do: "GET /", want: 403, body: "{"},
	}},
	{"by whom it has authenticated, among other keys", forUsers(func(user stint.Key) []stint.Option {
		return []stint.Option{
			stint.Rate(9, time.Minute), stint.WithKey(stint.RemoteIP()),
			stint.Rate(1, time.Minute, stint.WithName("user"),
				stint.WithKey(stint.Hash(secret, stint.Join(stint.Method(), user)))),
			stint.WithRoute("/login", stint.Only(stint.Rate(2, time.Minute, stint.WithName("login"))), stint.WithKey(user)),
			stint.WithEmptyKey(stint.SkipEmptyKey),
		}
	}), []step{
		{do: "GET /", with: []string{"X-User: ada"}, want: 200,
			fields: []string{`RateLimit: "rate";r=8;t=7, "user";r=0;t=60`}},
		{do: "GET /", with: []string{"X-User: ada"}, want: 429, body: problem("user")},
		{do: "PUT /", with: []string{"X-User: ada"}, want: 200,
			fields: []string{`RateLimit: "rate";r=7;t=7, "user";r=0;t=60`}},
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
			`RateLimit-Policy: "rate";q=1;w=60, "adaptive";q=3;qu="concurrent-requests"`,
			`RateLimit: "rate";r=0;t=60, "adaptive";r=2`,
		}},
		{do: "GET /", want: 429, body: problem("rate"),
			fields: []string{`RateLimit: "rate";r=0;t=60, "adaptive";r=3`, "Retry-After: 60"}},
		{do: "GET /", after: time.Minute, want: 200},
	}},
	{"an adaptive limit goes on without the store", front(
		stint.AdaptiveConcurrency(1, 50, stint.WithInitialLimit(3), stint.WithName("adaptive")),
		stint.Rate(1, time.Minute, stint.WithName("rate")), byAll, stint.WithStore(storefake.Down()),
	), []step{
		{do: "GET /", want: 200,
			fields: []string{`RateLimit: "adaptive";r=2`, `RateLimit-Policy: "adaptive";q=3;qu="concurrent-requests"`}},
		{do: "GET /", want: 200},
	}},
	{"a cost above an adaptive limit's most", front(
		stint.AdaptiveConcurrency(1, 50, stint.WithCost(func(*http.Request) int64 { return 51 })),
		stint.Rate(100, time.Minute), byAll,
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
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: free"}, want: 200,
			fields: []string{`RateLimit: "free";r=0;t=60`, `RateLimit-Policy: "free";q=1;w=60`}},
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: free"}, want: 429, body: problem("free")},
		{do: "GET /", with: []string{"X-Key: a", "X-Plan: paid"}, want: 200, fields: []string{`RateLimit: "paid";r=99;t=1`}},
		{do: "GET /", with: []string{"X-Key: a"}, want: 500, never: "mallory"},
	}},
}

// waitedFor is a site whose only slot is taken for seven seconds. A request
// with X-Behind finds another of class 2 in line, which will hold the slot for
// that long.
func waitedFor(opts ...stint.SlotOption) func(*testing.T) Site {
	return func(t *testing.T) Site {
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
		l = compiled(t, stint.Concurrency(1, opts...), byK, stint.WithSkip(ahead),
			stint.WithPriority(func(r *http.Request) int {
				n, _ := strconv.Atoi(r.Header.Get("X-Class"))
				return n
			}))
		p, err := l.Take(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(7*time.Second, p.Done)
		return Site{
			Limits: []*stint.Limiter{l},
			Routes: []Route{{Path: "/", Do: func(w http.ResponseWriter, r *http.Request) {
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

// front is a site with limits in front of everything.
func front(opts ...stint.Option) func(*testing.T) Site {
	return func(t *testing.T) Site {
		return Site{Limits: []*stint.Limiter{compiled(t, opts...)},
			Routes: []Route{{Path: "/"}, {Path: "/login"}, {Path: "/users/{id}"}}}
	}
}

// answered is front, with handlers of the router's own kind.
func answered(deny http.HandlerFunc, fail func(http.ResponseWriter, *http.Request, error),
	opts ...stint.Option) func(*testing.T) Site {
	return func(t *testing.T) Site {
		s := front(opts...)(t)
		s.Deny, s.Fail = deny, fail
		return s
	}
}

// forUsers is a site with limits by the key of the router's own authentication.
func forUsers(opts func(stint.Key) []stint.Option) func(*testing.T) Site {
	return func(t *testing.T) Site {
		return Site{
			ByUser: func(k stint.Key) []*stint.Limiter { return []*stint.Limiter{compiled(t, opts(k)...)} },
			Routes: []Route{{Path: "/", Do: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "left "+strconv.FormatInt(stint.FromContext(r.Context()).Decision().Remaining, 10))
			}}, {Path: "/login"}},
		}
	}
}
