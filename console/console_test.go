package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
)

const hostile = `<script>alert("k")</script>`

func limiter(t *testing.T, opts ...stint.Option) *stint.Limiter {
	t.Helper()
	l, err := stint.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// anyone is an authorizer.
func anyone(*http.Request) (string, bool) { return "", true }

func page(t *testing.T, opts ...console.Option) http.Handler {
	t.Helper()
	h, err := console.New(append([]console.Option{console.WithAuthorizer(anyone)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, method, target string, form url.Values, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestNewSaysWhatToWrite(t *testing.T) {
	l := limiter(t, stint.Rate(1, time.Second), stint.WithKey(stint.Global()))
	for _, tc := range []struct {
		name string
		opts []console.Option
		want []string
	}{
		{"nothing", nil, []string{"use console.Limiters(lim)"}},
		{"a short token", []console.Option{console.Limiters(l), console.WithToken("fifteen bytes!!")}, []string{"the token has 15 bytes: use a random one of at least 16"}},
		{"no token", []console.Option{console.Limiters(l), console.WithToken("")}, []string{"the token has 0 bytes"}},
		{"nil", []console.Option{nil, console.Limiters(nil, l), console.WithAuthorizer(nil)},
			[]string{"an option is nil", "a limiter is nil", "use console.WithAuthorizer(func"}},
	} {
		h, err := console.New(tc.opts...)
		if err == nil || h != nil {
			t.Errorf("%s: no error", tc.name)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q doesn't say %q", tc.name, err, want)
			}
		}
	}
}

// traffic sends n requests of a key through a limiter.
func traffic(l *stint.Limiter, path, key string, n int) {
	h := stinthttp.Middleware(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range n {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Api-Key", key)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

var tags = regexp.MustCompile(`<[^>]*>|\s+`)

// text returns the visible text of a page, a space between words.
func text(page string) string {
	return html.UnescapeString(strings.Join(strings.Fields(tags.ReplaceAllString(page, " ")), " "))
}

func TestPageTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, stint.WithLimiterName("front"), stint.WithKey(stint.Header("X-Api-Key")),
			stint.Rate(3, time.Hour, stint.WithName("api")),
			stint.Concurrency(2, stint.WithName("slots"), stint.WithKey(stint.Global())),
			stint.WithRoute("GET /login", stint.Only(stint.Rate(1, time.Hour, stint.WithName("login")))))
		h, masked := page(t, console.Limiters(l), console.WithKeysInClear()), page(t, console.Limiters(l))
		traffic(l, "/", "somebody-else", 2)
		traffic(l, "/", hostile, 5)
		traffic(l, "/login", "somebody-else", 2)
		time.Sleep(2 * time.Second)

		w := ask(h, "GET", "/debug/stint/", nil)
		for target, wants := range map[string][]string{
			"/debug/stint/": {
				"Nothing is wrong front this process’s memory",
				"allowed 6 denied 3 share denied 33.3 % in flight 0 waiting 0",
				"api TokenBucket: 3 per 1h0m0s, burst 3 denied 28.6 % 2 of 7 " + hostile + " 100 % of denied 3 0 −5 min now 100 % 3 of 3 units",
				"slots Concurrency: 2 denied 0.0 % 0 of 5 Global 100 % of admitted; none denied 2 0 −5 min now 50 % 1 of 2 slots",
				"login TokenBucket: 1 per 1h0m0s, burst 1 denied 50.0 % 1 of 2 somebody-else 100 % of denied 1 0 −5 min now 100 % 1 of 1 units",
			},
			"/debug/stint/?limiter=front": {
				"front close Counts are in this process's memory",
				"requests a second", hostile + " api 2 00:00:00 — 20m0s 0 of 3 left, 1 needed: TokenBucket: 3 per 1h0m0s, burst 3",
				"somebody-else login 1 00:00:00 GET /login 1h0m0s 0 of 1 left, 1 needed",
			},
			"/debug/stint/?limiter=front&limit=api": {
				"api close TokenBucket: 3 per 1h0m0s, burst 3, counted in this process . For all requests, unless a route says otherwise. Its key is from the request: Header(\"X-Api-Key\").",
				"most denied " + hostile + " 2 most admitted " + hostile + " 3 somebody-else 2",
				"allowed 5 denied 2 share 28.6 % denied with the longest wait 2",
			},
			"/debug/stint/?limiter=front&limit=slots": {
				"For all requests, unless a route says otherwise. Its key is one for all requests.", "most denied none most admitted Global 5",
				"slots held here 0 held by the key admitted last 1 of 2",
			},
			"/debug/stint/?limiter=front&limit=gone": {"No such limit now"},
		} {
			got := text(ask(h, "GET", target, nil).Body.String())
			for _, want := range wants {
				if !strings.Contains(got, want) {
					t.Errorf("%s doesn't say %q but %s", target, want, got)
				}
			}
		}
		for _, target := range []string{"/?limiter=1", "/?limiter=-1", "/?limiter=x"} {
			if w := ask(h, "GET", target, nil); w.Code != 200 || strings.Contains(w.Body.String(), `id="open"`) {
				t.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
		}
		if in := w.Body.String(); strings.Contains(in, hostile) || strings.Contains(in, "http:") || strings.Contains(in, "https:") || strings.Contains(in, "style=") {
			t.Error("the page has a script, a style or an address that isn't its own")
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") {
			t.Errorf("the policy is %q", csp)
		}
		if got := ask(masked, "GET", "/", nil).Body.String(); strings.Contains(got, "somebody-else") || !regexp.MustCompile(`som… #[0-9a-f]{6}`).MatchString(got) {
			t.Error("keys aren't masked")
		}
	})
}

func TestWarnings(t *testing.T) {
	options := func(key stint.Key) []stint.Option {
		return []stint.Option{stint.Rate(1, time.Second, stint.WithName("api")), stint.WithKey(key), stint.WithLogger(slog.New(slog.DiscardHandler))}
	}
	l := limiter(t, options(stint.Header("X-Real-IP"))...)
	h := page(t, console.Limiters(l))
	w := ask(h, "GET", "/", nil)
	if got := text(w.Body.String()); !strings.Contains(got, "Wrong now limiter 1 : warning forwarding-header , api : the key is a forwarding header") {
		t.Errorf("the page doesn't warn: %s", got)
	}
	if !strings.Contains(w.Body.String(), `href="`+l.Describe().Warnings[0].Link+`"`) {
		t.Error("the warning has no link")
	}
	if err := l.Update(options(stint.RemoteIP())...); err != nil {
		t.Fatal(err)
	}
	h = page(t, console.Limiters(l)) // as what is shown is a second old at the most
	if got := text(ask(h, "GET", "/", nil).Body.String()); !strings.Contains(got, "Nothing is wrong") {
		t.Error("the page warns of what was put right")
	}
}

// A stream sends all parts first, and then those that have changed; it ends when
// the viewer leaves.
func TestStream(t *testing.T) {
	l := limiter(t, stint.Rate(3, time.Hour), stint.WithKey(stint.Header("X-Api-Key")))
	server := httptest.NewServer(page(t, console.Limiters(l)))
	defer server.Close()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/events?limiter=0&limit=rate", nil)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatal(got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next := func() map[string]string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var parts []struct{ ID, HTML string }
				if err := json.Unmarshal([]byte(data), &parts); err != nil {
					t.Fatal(err)
				}
				all := map[string]string{}
				for _, p := range parts {
					all[p.ID] = p.HTML
				}
				return all
			}
		}
		t.Fatal(lines.Err())
		return nil
	}
	if first := next(); len(first) != 3 {
		t.Errorf("%d parts came first", len(first))
	}
	traffic(l, "/", "k", 4)
	second := next()
	if got := text(second["board0"]); !strings.Contains(got, "allowed 3 denied 1") || second["wrong"] != "" || !strings.Contains(text(second["open"]), "allowed 3 denied 1") {
		t.Errorf("then %q came", second)
	}
}
