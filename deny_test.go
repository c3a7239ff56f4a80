package stint_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

func TestDenyHandlers(t *testing.T) {
	degraded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "cached, as %s is used up", stint.DeniedFromContext(r.Context()).Decision.Limit)
	})
	all := []string{"Content-Type", "RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control",
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Location"}
	tests := []struct {
		name    string
		handler http.Handler
		status  int
		body    string
		fields  []string // those of all that are set
	}{
		{"default", nil, 429, `"violated-policies":["rate"]`, all[:8]},
		{"plain text", stint.PlainText("slow down\n"), 429, "slow down\n", all[:8]},
		{"redirect", stint.Redirect("/queue"), 302, "/queue", []string{"Content-Type", "RateLimit-Policy", "Cache-Control", "Location"}},
		{"degrade", stint.Degrade(degraded), 200, "cached, as rate is used up", []string{"Content-Type", "RateLimit", "RateLimit-Policy", "Cache-Control",
			"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}},
		{"a body alone", degraded, 429, "cached, as rate is used up", all[:8]},
	}
	for _, tt := range tests {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				opts := []stint.Option{theKey, stint.Rate(1, time.Hour), stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders)}
				if tt.handler != nil {
					opts = append(opts, stint.WithDenyHandler(tt.handler))
				}
				l := limiter(t, opts...)
				srv := httptest.NewServer(mount(l, nil))
				defer srv.Close()
				client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				var resp *http.Response
				for range 2 {
					r, _ := http.NewRequest(method, srv.URL, nil)
					var err error
					if resp, err = client.Do(r); err != nil {
						t.Fatal(err)
					}
					defer func() { _ = resp.Body.Close() }()
				}
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != tt.status {
					t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
				}
				if method == "HEAD" && len(body) > 0 || method == "GET" && !strings.Contains(string(body), tt.body) {
					t.Errorf("body %q, want %q", body, tt.body)
				}
				for _, f := range all {
					want := false
					for _, g := range tt.fields {
						want = want || f == g
					}
					if got := resp.Header.Get(f); (got != "") != want && f != "Content-Type" {
						t.Errorf("%s: %q, want any: %v", f, got, want)
					}
				}
			})
		}
	}
}

func TestProblemBody(t *testing.T) {
	const types = "https://iana.org/assignments/http-problem-types#"
	fails := errors.New("secret")
	one := func(opts ...stint.RateOption) stint.Limit {
		return stint.Rate(1, time.Hour, append([]stint.RateOption{stint.WithName("rate")}, opts...)...)
	}
	tests := []struct {
		name     string
		opts     []stint.Option
		status   int
		kind     string
		violated string
		retry    string
	}{
		{"rate", []stint.Option{theKey, one()}, 429, types + "quota-exceeded", "rate", "3600"},
		{"two of three", []stint.Option{theKey, one(), stint.Rate(9, time.Hour), stint.Quota(1, stint.Every(1000*time.Hour)), one(stint.WithName("report"), stint.WithDryRun(true))},
			429, types + "quota-exceeded", "rate quota", ""},
		{"concurrency of a key", []stint.Option{theKey, stint.Concurrency(1)}, 429, types + "quota-exceeded", "concurrency", "1"},
		{"concurrency of all", []stint.Option{everybody, stint.Concurrency(1)}, 503, types + "temporary-reduced-capacity", "concurrency", "1"},
		{"blocked", []stint.Option{theKey, one(), stint.WithBlock(func(*http.Request) bool { return true })}, 403, "about:blank", "", ""},
		{"empty key", []stint.Option{one(), stint.WithKey(stint.Header("X-None"))}, 403, "about:blank", "", ""},
		{"key too long", []stint.Option{one(), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return strings.Repeat("k", 1<<20), nil }))},
			403, "about:blank", "", ""},
		{"key fails", []stint.Option{one(), stint.WithKey(stint.KeyFunc(func(*http.Request) (string, error) { return "", fails }))}, 500, "about:blank", "", ""},
		{"limits fail", []stint.Option{theKey, stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) { return nil, fails })},
			500, "about:blank", "", ""},
		{"negative cost", []stint.Option{theKey, one(stint.WithCost(func(*http.Request) int64 { return -1 }))}, 500, "about:blank", "", ""},
		{"store down", []stint.Option{theKey, one(), stint.WithFailurePolicy(stint.FailClosed), stint.WithStore(failing(fails))},
			503, "about:blank", "", "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := limiter(t, tt.opts...)
			var w *httptest.ResponseRecorder
			through(l, get("/"), func(http.ResponseWriter, *http.Request) { w = through(l, get("/"), nil) })
			if w == nil {
				w = through(l, get("/"), nil)
			}
			if w.Code != tt.status {
				t.Errorf("status %d, want %d", w.Code, tt.status)
			}
			if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
				t.Errorf("Content-Type %q", ct)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control %q", got)
			}
			if got := w.Header().Get("Retry-After"); tt.retry != "" && got != tt.retry || tt.retry == "" && tt.status == 403 && got != "" {
				t.Errorf("Retry-After %q, want %q", got, tt.retry)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the error's text leaks: %s", w.Body)
			}
			var body struct {
				Type, Title, Detail string
				Status              int
				Violated            []string `json:"violated-policies"`
			}
			d := json.NewDecoder(w.Body)
			d.DisallowUnknownFields()
			if err := d.Decode(&body); err != nil {
				t.Fatal(err)
			}
			if body.Type != tt.kind || body.Title == "" || body.Status != tt.status || strings.Join(body.Violated, " ") != tt.violated {
				t.Errorf("body %+v, want %s, violated %q", body, tt.kind, tt.violated)
			}
			if want := map[bool]string{true: "the request has no key for limit rate"}[tt.name == "empty key"]; body.Detail != want {
				t.Errorf("detail %q, want %q", body.Detail, want)
			}
		})
	}
}

// A denial isn't the resource: fields that describe the resource must not remain.
func TestDenialDropsFields(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(1, time.Hour))
	codes(l, "GET", "/", 1)
	w := httptest.NewRecorder()
	for _, f := range []string{
		"Content-Encoding", "Content-Length", "ETag", "Last-Modified", "Expires", "Cache-Control", "CDN-Cache-Control", "Surrogate-Control", "X-Kept",
	} {
		w.Header().Set(f, "7")
	}
	mount(l, nil).ServeHTTP(w, get("/"))
	for f, values := range w.Header() {
		if values[0] == "7" && f != "X-Kept" {
			t.Errorf("%s is still there", f)
		}
	}
	if w.Header().Get("X-Kept") == "" {
		t.Error("a field of somebody else is gone")
	}
}

// A handler may send a denied request through the limiter again. The limiter lets it
// pass instead of calling the handler for ever, and tells its observers once.
func TestHandlersSendElsewhere(t *testing.T) {
	var site http.Handler
	calls := 0
	again := func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls > 10 {
			panic("the handler is called for ever")
		}
		r.URL.Path = "/busy"
		site.ServeHTTP(w, r)
	}
	blocks := stint.WithBlock(func(r *http.Request) bool { return true })
	for name, opts := range map[string][]stint.Option{
		"denied": {stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(again)))},
		"blocked": {blocks, stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, _ error) {
			stint.Degrade(http.HandlerFunc(again)).ServeHTTP(w, r)
		})},
	} {
		denials := &events{}
		l := limiter(t, append(opts, stint.Rate(1, time.Hour), theKey, denials.Option())...)
		site = mount(l, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
		calls = 0
		if name == "denied" {
			site.ServeHTTP(httptest.NewRecorder(), get("/"))
		}
		before := len(denials.All())
		w := httptest.NewRecorder()
		site.ServeHTTP(w, get("/"))
		if w.Code != 200 || w.Body.String() != "/busy" || calls != 1 || len(denials.All()) != before+1 {
			t.Errorf("%s: got %d %q after %d calls, with %d events", name, w.Code, w.Body, calls, len(denials.All())-before)
		}
	}
}

func TestErrorHandler(t *testing.T) {
	var got error
	l := limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-None")),
		stint.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) { got = err; w.WriteHeader(418) }))
	if w := through(l, get("/"), nil); w.Code != 418 || !errors.Is(got, stint.ErrEmptyKey) {
		t.Errorf("%d, %v", w.Code, got)
	}
	var status interface{ StatusCode() int }
	if !errors.As(got, &status) || status.StatusCode() != 403 {
		t.Errorf("%v has no status 403", got)
	}
	// It writes the denials of limits too, wrapped or not.
	w := httptest.NewRecorder()
	l.Deny(w, get("/"), fmt.Errorf("wrapped: %w", &stint.DeniedError{}))
	if w.Code != 418 || !errors.Is(got, stint.ErrDenied) || errors.As(got, &status) && status.StatusCode() != 429 {
		t.Errorf("a wrapped denial is answered %d, as %v", w.Code, got)
	}
}

// errorWriter is the writer of a router with an error handler.
type errorWriter struct {
	*httptest.ResponseRecorder
	err error
}

func (w *errorWriter) WriteError(err error) { w.err = err }

// A router with its own error handler answers what the limiter hasn't been configured
// to answer, and gets the error that Deny was given.
func TestErrorWriter(t *testing.T) {
	type answers struct{ denials, others bool }
	for _, tt := range []struct {
		name  string
		opt   stint.Option
		wants answers // of the limiter
	}{
		{"nothing", stint.WithHeaders(stint.NoHeaders), answers{false, false}},
		{"a deny handler", stint.WithDenyHandler(stint.PlainText("no")), answers{true, false}},
		{"a silent deny handler", stint.WithDenyHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), answers{true, false}},
		{"an error handler", stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(418) }), answers{true, true}},
		{"a silent error handler", stint.WithErrorHandler(func(http.ResponseWriter, *http.Request, error) {}), answers{true, true}},
		{"problems", stint.WithProblem(), answers{true, true}},
	} {
		l := limiter(t, theKey, stint.Rate(1, time.Hour), tt.opt)
		take(t, l, 1)
		_, err := l.Take(t.Context(), "k", 1)
		for err, answers := range map[error]bool{
			err: tt.wants.denials, fmt.Errorf("wrapped: %w", err): tt.wants.denials,
			stint.ErrEmptyKey: tt.wants.others, &stint.StoreError{Err: errDown}: tt.wants.others,
		} {
			w := &errorWriter{httptest.NewRecorder(), nil}
			l.Deny(w, get("/"), err)
			if passed := w.err == err; passed == answers || (w.Body.Len() > 0 || w.Code != 200) != answers {
				t.Errorf("%s: %v is passed on: %v, and answered with %d %s", tt.name, err, passed, w.Code, w.Body)
			}
		}
		w := &errorWriter{httptest.NewRecorder(), nil}
		l.Serve(w, get("/"), nil)
		if passed := errors.Is(w.err, stint.ErrDenied); passed == tt.wants.denials || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: Serve passes the denial on: %v, with %v", tt.name, passed, w.Header())
		}
	}
	// The denial is answered by the configuration that denied, whatever came since.
	l := limiter(t, theKey, stint.Rate(1, time.Hour), stint.WithProblem())
	take(t, l, 1)
	_, err := l.Take(t.Context(), "k", 1)
	if err := l.Update(stint.Complete(), theKey, stint.Rate(1, time.Hour)); err != nil {
		t.Fatal(err)
	}
	for err, passes := range map[error]bool{err: false, &stint.DeniedError{}: true} {
		w := &errorWriter{httptest.NewRecorder(), nil}
		if l.Deny(w, get("/"), err); (w.err != nil) != passes {
			t.Errorf("%v is answered by another configuration than the one that denied it", err)
		}
	}
}

// If a request's context has ended, the answer is 503, whoever ended it and whoever
// notices.
func TestDenyWhenTheContextHasEnded(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	session := stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
		return "k", r.Context().Err() // as a lookup does
	}))
	for name, opts := range map[string][]stint.Option{
		"wait": {theKey, stint.Rate(1, time.Hour, stint.WithMaxWait(time.Second), stint.WithName("rate")), stint.WithStore(failing(errDown))},
		"key":  {session, stint.Rate(1, time.Hour)},
		"limits": {theKey, stint.WithLimitFunc(func(r *http.Request) ([]stint.Limit, error) {
			return nil, r.Context().Err()
		})},
	} {
		for _, ctx := range []context.Context{cancelled, late} {
			w := through(limiter(t, opts...), get("/").WithContext(ctx), nil)
			if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %v: %d %v", name, ctx.Err(), w.Code, w.Header())
			}
		}
	}
	// The context's own error, from an application that has met it first.
	w := httptest.NewRecorder()
	limiter(t, theKey, stint.Rate(1, time.Hour)).Deny(w, get("/").WithContext(cancelled), cancelled.Err())
	if w.Code != 503 {
		t.Errorf("got %d", w.Code)
	}
}

func TestDeniedError(t *testing.T) {
	l := limiter(t, theKey, stint.Rate(2, time.Hour), stint.Quota(10, stint.Daily))
	take(t, l, 2)
	_, err := l.Take(t.Context(), "k", 1)
	de := denied(t, err)
	if got := de.Error(); !strings.HasPrefix(got, "stint: denied by limit rate, retry after ") || strings.Contains(got, `"k"`) {
		t.Error(got)
	}
	slots := limiter(t, theKey, stint.Concurrency(1))
	if p, err := slots.Take(t.Context(), "k", 1); err == nil {
		defer p.Done()
	}
	_, err = slots.Take(t.Context(), "k", 1)
	if after, ok := denied(t, err).Decision.Retry(); after != time.Second || !ok {
		t.Errorf("slots: retry after %v, %v, want what the Retry-After field says", after, ok)
	}
	if got := denied(t, err).Error(); got != "stint: denied by limit concurrency: its slots are taken" {
		t.Error(got)
	}
	d := de.Decision
	if after, ok := d.Retry(); after != d.RetryAfter || !ok || !errors.Is(err, stint.ErrDenied) || !errors.Is(fmt.Errorf("x: %w", de), stint.ErrDenied) {
		t.Errorf("retry after %v, %v", after, ok)
	}
	if d.Allowed || d.Limit != "rate" || d.Remaining != 0 || d.RetryAfter <= 0 || len(d.Limits) != 2 {
		t.Errorf("%+v", d)
	}
	if q := d.Limits[1]; q.Name != "daily" || !q.Allowed || q.Capacity != 10 || q.Remaining != 8 {
		t.Errorf("the limit with room: %+v, want 8 of 10 left", q)
	}
	_, err = l.Take(t.Context(), "k", 11)
	if de := denied(t, err); de.Decision.RetryAfter != stint.Never || !strings.Contains(de.Error(), "more than it can ever hold") {
		t.Errorf("%v: %+v", de, de.Decision)
	}
	if after, ok := denied(t, err).Decision.Retry(); after != 0 || ok {
		t.Errorf("what can never pass: retry after %v, %v", after, ok)
	}
	if p := take(t, limiter(t, theKey, stint.Rate(1, time.Hour)), 1); !p.Decision().Allowed {
		t.Error("denied")
	} else if d := p.Decision(); d.RetryAfter != 0 {
		t.Errorf("allowed: %+v", d)
	} else if after, ok := d.Retry(); after != 0 || ok {
		t.Errorf("allowed: retry after %v, %v", after, ok)
	}
	if stint.DeniedFromContext(t.Context()) != nil {
		t.Error("DeniedFromContext out of nowhere")
	}
}

// Deny answers what Allow, Take and Wait deny as Serve answers a request, with the same fields.
func TestDenyOutside(t *testing.T) {
	rate := func(n int64, opts ...stint.RateOption) stint.Limit {
		return stint.Rate(n, time.Hour, append(opts, stint.WithName("rate"))...)
	}
	all := stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders)
	for name, tt := range map[string]struct {
		cost int64
		opts []stint.Option
	}{
		"a rate":         {1, []stint.Option{rate(1)}},
		"all fields":     {1, []stint.Option{rate(1), all}},
		"no fields":      {1, []stint.Option{rate(1), stint.WithHeaders(stint.NoHeaders)}},
		"one of several": {1, []stint.Option{rate(1, stint.WithDryRun(true)), stint.Quota(1, stint.Daily), stint.Rate(9, time.Minute), all}},
		"a higher cost":  {3, []stint.Option{rate(5)}},
		"slots":          {1, []stint.Option{stint.Concurrency(1), stint.WithRoute("/elsewhere", rate(9))}},
		"adaptive slots": {1, []stint.Option{stint.AdaptiveConcurrency(1, 1), rate(9), all}},
		"a ban":          {1, []stint.Option{rate(1), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour))}},
		"a tenant's": {1, []stint.Option{rate(1), stint.Quota(9, stint.Daily), all, stint.WithLimitSource(stint.Global(), func(context.Context, string, stint.LimitUser) ([]stint.Limit, error) {
			return []stint.Limit{stint.Rate(1, 2*time.Hour, stint.WithName("plan"))}, nil
		})}},
		"a window":       {1, []stint.Option{rate(1, stint.WithAlgorithm(stint.SlidingCounter)), all}},
		"a closed store": {1, []stint.Option{rate(1), stint.WithFailurePolicy(stint.FailClosed), stint.WithStore(failing(errDown))}},
		"an error answered": {1, []stint.Option{rate(1), stint.WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			_, _ = io.WriteString(w, err.Error())
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := func(deny func(l *stint.Limiter, w http.ResponseWriter, r *http.Request)) string {
					l := limiter(t, append(tt.opts, theKey, stint.WithFixedCost(tt.cost))...)
					if p, err := l.Take(t.Context(), "k", tt.cost); err == nil {
						defer p.Done()
					}
					w := httptest.NewRecorder()
					w.Header().Set("Etag", "x")
					deny(l, w, get("/"))
					return fmt.Sprintln(w.Code, w.Header(), w.Body)
				}
				want := answer(func(l *stint.Limiter, w http.ResponseWriter, r *http.Request) { l.Serve(w, r, nil) })
				ways := map[string]func(l *stint.Limiter) error{
					"Allow": func(l *stint.Limiter) error { return l.Allow(t.Context(), "k", tt.cost) },
					"Take":  func(l *stint.Limiter) error { _, err := l.Take(t.Context(), "k", tt.cost); return err },
					"Wait": func(l *stint.Limiter) error {
						ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
						defer cancel()
						_, err := l.Wait(ctx, "k", tt.cost)
						return err
					},
				}
				switch {
				case strings.Contains(name, "slots"):
					delete(ways, "Allow")
					delete(ways, "Wait") // it would wait for a slot
				case name == "a ban":
					delete(ways, "Wait") // a denial by its own deadline isn't counted
				case name == "an error answered", name == "a window":
					delete(ways, "Wait") // it would pass a millisecond earlier, as the text says, or the rounded seconds
				}
				for way, ask := range ways {
					got := answer(func(l *stint.Limiter, w http.ResponseWriter, r *http.Request) {
						l.Deny(w, r, fmt.Errorf("wrapped: %w", ask(l)))
					})
					if name == "an error answered" {
						got = strings.ReplaceAll(got, "wrapped: ", "")
					}
					if got != want {
						t.Errorf("after %s:\n%s\nby Serve:\n%s", way, got, want)
					}
				}
			})
		})
	}
}

// A denial is the same whether or not a handler sees its error.
func TestServe(t *testing.T) {
	two := []stint.Option{theKey, stint.Rate(1, time.Hour), stint.Quota(1, stint.Every(1000*time.Hour), stint.WithDryRun(true)), stint.Rate(1, time.Minute, stint.WithName("short"))}
	fails := errors.New("down")
	tests := []struct {
		name string
		opts []stint.Option
	}{
		{"rate", []stint.Option{theKey, stint.Rate(1, time.Hour)}},
		{"two of three", two},
		{"without permit", append(two, stint.WithoutPermit())},
		{"all fields", append(two, stint.WithHeaders(stint.RateLimitHeaders, stint.XRateLimitHeaders))},
		{"no fields", append(two, stint.WithHeaders(stint.NoHeaders))},
		{"ban", []stint.Option{theKey, stint.Rate(1, time.Hour), stint.Ban(2, time.Minute, stint.WithBanFor(time.Hour))}},
		{"slots of all", []stint.Option{everybody, stint.Concurrency(1)}},
		{"adaptive", []stint.Option{theKey, stint.AdaptiveConcurrency(1, 1)}},
		{"costs too much", []stint.Option{theKey, stint.Rate(1, time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 }))}},
		{"deny handler", append(two, stint.WithDenyHandler(stint.PlainText("no\n")))},
		{"silent deny handler", append(two, stint.WithDenyHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))},
		{"blocked", append(two, stint.WithBlock(func(*http.Request) bool { return true }))},
		{"empty key", []stint.Option{stint.WithKey(stint.Header("X-None")), stint.Rate(1, time.Hour)}},
		{"store down", []stint.Option{theKey, stint.Rate(1, time.Hour, stint.WithName("rate")), stint.WithFailurePolicy(stint.FailClosed), stint.WithStore(failing(fails))}},
	}
	type serve func(*stint.Limiter, http.ResponseWriter, *http.Request, func(http.ResponseWriter, *http.Request))
	inTwo := func(l *stint.Limiter, w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request)) {
		if err := l.Admit(w, r, next); err != nil {
			l.Deny(w, r, err)
		}
	}
	// Each request that is admitted stays open for those that follow, so that slots are held.
	answers := func(t *testing.T, opts []stint.Option, method string, serve serve) (all string) {
		l := limiter(t, opts...)
		var from func(i int)
		from = func(i int) {
			if i == 4 {
				return
			}
			w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/", nil)
			w.Header().Set("Etag", "x")
			admitted := false
			serve(l, w, r, func(http.ResponseWriter, *http.Request) {
				admitted = true
				w.WriteHeader(http.StatusNoContent)
				all += fmt.Sprintln(w.Code, w.Header(), w.Body)
				from(i + 1)
			})
			if !admitted {
				all += fmt.Sprintln(w.Code, w.Header(), w.Body)
				from(i + 1)
			}
		}
		from(0)
		return all
	}
	for _, tt := range tests {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want := answers(t, tt.opts, method, inTwo)
					if got := answers(t, tt.opts, method, (*stint.Limiter).Serve); got != want {
						t.Errorf("at once:\n%s\nin two calls:\n%s", got, want)
					}
					var seen []string
					observed := append(tt.opts, stint.WithObserver(func(e stint.Event) {
						if e.Kind == stint.EventDenied {
							seen = append(seen, e.Decision.Limit)
						}
					}))
					if got := answers(t, observed, method, (*stint.Limiter).Serve); got != want {
						t.Errorf("observed:\n%s\nin two calls:\n%s", got, want)
					}
					var log strings.Builder
					logged := append(tt.opts, stint.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
					if got := answers(t, logged, method, (*stint.Limiter).Serve); got != want {
						t.Errorf("logged:\n%s\nin two calls:\n%s", got, want)
					}
					if (len(seen) > 0) != strings.Contains(log.String(), "event=Denied") {
						t.Errorf("observers saw %q, the log has\n%s", seen, &log)
					}
				})
			})
		}
	}
}

// The most specific route that matches and has a WithDenyHandler answers, whichever limit denies.
func TestDenyHandlerOfRoute(t *testing.T) {
	text := func(s string) stint.RouteOption { return stint.WithDenyHandler(stint.PlainText(s)) }
	opts := []stint.Option{
		theKey, stint.Rate(1, 1000*time.Hour, stint.WithName("calls"), stint.WithCost(func(*http.Request) int64 { return 2 })), text("all"),
		stint.WithRoute("/api/", text("api")),
		stint.WithRoute("/api/stock/{id}", stint.Rate(5, time.Minute, stint.WithName("stock")), stint.WithDenyHandler(stint.Degrade(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "stock")
		})))),
		stint.WithRoute("/api/more", stint.Rate(5, time.Minute, stint.WithName("more"))),
		stint.WithRoute("/api/only", stint.Only(stint.Rate(1, 1000*time.Hour, stint.WithName("only"), stint.WithCost(func(*http.Request) int64 { return 3 })))),
		stint.WithRoute("a.test/api/more", text("host")),
	}
	l := limiter(t, opts...)
	derived, err := l.With(stint.WithRoute("/api/stock/{id}", text("derived")), text("derived's own"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		l      *stint.Limiter
		target string
		status int
		body   string
	}{
		{l, "/", 429, "all"}, {l, "/other", 429, "all"},
		{l, "/api/x", 429, "api"}, {l, "/api/more", 429, "api"}, {l, "/api/stock/7", 200, "stock"},
		{l, "/api/only", 429, "api"}, // Only is about limits
		{l, "http://a.test/api/more", 429, "host"}, {l, "http://a.test/api/x", 429, "api"},
		{l, "//api/x", 429, "api"}, // as the cleaned path
		{derived, "/", 429, "derived's own"}, {derived, "/api/x", 429, "api"}, {derived, "/api/stock/7", 429, "derived"},
	} {
		if w := through(tt.l, get(tt.target), nil); w.Code != tt.status || w.Body.String() != tt.body {
			t.Errorf("%s: %d %q, want %d %q", tt.target, w.Code, w.Body, tt.status, tt.body)
		}
	}
	if err := l.Update(stint.WithoutRoutes(), stint.WithDenyHandler(nil)); err != nil {
		t.Fatal(err)
	}
	if w := through(l, get("/api/x"), nil); w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("after an Update without handlers: %d %q", w.Code, w.Body)
	}
	// Without a handler of the limiter, other routes get a problem body.
	l = limiter(t, theKey, stint.Rate(1, 1000*time.Hour, stint.WithCost(func(*http.Request) int64 { return 2 })), stint.WithRoute("/a", text("a")))
	if w := through(l, get("/a"), nil); w.Body.String() != "a" {
		t.Errorf("/a: %d %q", w.Code, w.Body)
	}
	if w := through(l, get("/b"), nil); w.Code != 429 || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("/b: %d %q", w.Code, w.Body)
	}
	for want, opts := range map[string][]stint.RouteOption{
		`WithRoute("/a"): WithDenyHandler(nil): pass a handler`:  {stint.Rate(1, time.Hour, stint.WithName("a")), stint.WithDenyHandler(nil)},
		`WithRoute("/a"): Exempt(): combined with other options`: {stint.Exempt(), text("a")},
	} {
		if _, err := stint.New(theKey, stint.Rate(1, time.Hour), stint.WithRoute("/a", opts...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
