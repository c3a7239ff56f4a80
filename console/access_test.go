package console_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/console"
)

const secret = "sixteen bytes at least"

var bearer = []string{"Authorization", "Bearer " + secret}

func oneLimit(t *testing.T) console.Option {
	return console.Limiters(limiter(t, stint.Rate(1, time.Second), stint.WithKey(stint.Global())))
}

// Strangers see nothing at all, whatever they ask for.
func TestStrangers(t *testing.T) {
	nobody := console.WithAuthorizer(func(*http.Request) (string, bool) { return "mallory", false })
	for _, tc := range []struct {
		name   string
		opts   []console.Option
		code   int
		fields []string
	}{
		{"an authorizer", []console.Option{nobody}, 403, bearer},
		{"a token", []console.Option{console.WithToken(secret)}, 401, nil},
		{"a token, and another", []console.Option{console.WithToken(secret)}, 401, []string{"Authorization", "Bearer " + secret + "!"}},
		{"a token, as a password", []console.Option{console.WithToken(secret)}, 401, []string{"Authorization", "Basic " + secret}},
		{"a token, as the value of a cookie", []console.Option{console.WithToken(secret)}, 401, []string{"Cookie", cookie(t, secret).Name + "=" + secret}},
		{"both", []console.Option{nobody, console.WithToken(secret)}, 401, nil},
		{"neither", nil, 401, bearer},
	} {
		h, err := console.New(append(tc.opts, oneLimit(t), console.WithActions())...)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range []string{"/", "/events", "/style.css", "/script.js", "/key", "/other", "/?token=", "/?token=sixteen+bytes+at+last", "/key?token"} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT"} {
				w := ask(h, method, target, nil, tc.fields...)
				if w.Code != tc.code || strings.Contains(w.Body.String(), "limit") || len(w.Result().Cookies()) > 0 {
					t.Errorf("%s: %s %s: %d %q", tc.name, method, target, w.Code, w.Body)
				}
			}
		}
	}
}

// cookie is the cookie that a browser gets for a secret.
func cookie(t *testing.T, secret string) *http.Cookie {
	t.Helper()
	w := ask(page(t, oneLimit(t), console.WithToken(secret)), "GET", "/debug/stint/?token="+url.QueryEscape(secret), nil)
	all := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(all) != 1 {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	return all[0]
}

func TestToken(t *testing.T) {
	h, err := console.New(oneLimit(t), console.WithToken(secret))
	if err != nil {
		t.Fatal(err)
	}
	replica, err := console.New(oneLimit(t), console.WithToken(secret))
	if err != nil {
		t.Fatal(err)
	}
	got := cookie(t, secret)
	if !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Path != "/debug/stint/" || got.Secure || strings.Contains(got.String(), secret) {
		t.Errorf("the cookie is %v", got)
	}
	if other := cookie(t, secret+"!"); other.Name == got.Name || other.Value == got.Value {
		t.Errorf("another token has the cookie %v", other)
	}
	for _, tc := range []struct {
		name   string
		fields []string
	}{
		{"bearer", bearer},
		{"bearer in another case", []string{"Authorization", "bearer  " + secret}},
		{"a cookie", []string{"Cookie", got.Name + "=" + got.Value}},
		{"a cookie, after one that is no longer right", []string{"Cookie", got.Name + "=old; " + got.Name + "=" + got.Value}},
	} {
		for _, h := range []http.Handler{h, replica} {
			if w := ask(h, "GET", "/debug/stint/", nil, tc.fields...); w.Code != 200 || !strings.Contains(w.Body.String(), "What is limited") {
				t.Errorf("%s: %d %s", tc.name, w.Code, w.Body)
			}
		}
	}
	if w := ask(h, "POST", "/debug/stint/", url.Values{"token": {secret}}); w.Code != 303 || w.Header().Get("Location") != "./" || len(w.Result().Cookies()) != 1 {
		t.Errorf("the form: %d %v", w.Code, w.Header())
	}
	if w := ask(h, "POST", "/debug/stint/", url.Values{"token": {"guessed"}}); w.Code != 401 || !strings.Contains(w.Body.String(), `type="password"`) {
		t.Errorf("the form, with a guess: %d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/debug/stint/events?token="+url.QueryEscape(secret), nil); w.Code != 303 || w.Header().Get("Location") != "./events" {
		t.Errorf("a link to a part: %d %v", w.Code, w.Header())
	}
}

// The cookie is for the page alone, as the browser sees its address, and only for TLS if
// the page is on TLS.
func TestCookieOfThePage(t *testing.T) {
	h := page(t, oneLimit(t), console.WithToken(secret))
	mux := http.NewServeMux()
	mux.Handle("/a/b/", http.StripPrefix("/a", h))
	mux.Handle("/", h)
	for target, want := range map[string]string{"/a/b/": "/a/b/", "/a/b/key": "/a/b/", "/": "/"} {
		w := ask(mux, "GET", target+"?token="+url.QueryEscape(secret), nil)
		if all := w.Result().Cookies(); len(all) != 1 || all[0].Path != want {
			t.Errorf("%s: %v", target, all)
		}
	}
	r := httptest.NewRequest("GET", "/?token="+url.QueryEscape(secret), nil)
	r.TLS = new(tls.ConnectionState)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if all := w.Result().Cookies(); len(all) != 1 || !all[0].Secure {
		t.Errorf("over TLS: %v", all)
	}
	w = ask(h, "GET", "/?token="+url.QueryEscape(secret), nil, "X-Forwarded-Proto", "https")
	if all := w.Result().Cookies(); len(all) != 1 || !all[0].Secure {
		t.Errorf("over TLS that a proxy ends: %v", all)
	}
}

// An authorizer may say who acts; the log does then. With a token beside it, either lets
// in.
func TestAuthorizer(t *testing.T) {
	var logged strings.Builder
	l := limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.GivenKey()))
	h, err := console.New(console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))),
		console.WithToken(secret), console.WithAuthorizer(func(r *http.Request) (string, bool) {
			who := r.Header.Get("X-Auth-Request-User")
			return who, who != ""
		}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		fields []string
		logged string
	}{{[]string{"X-Auth-Request-User", "ada"}, "who=ada"}, {bearer, ""}} {
		logged.Reset()
		if w := ask(h, "POST", "/key", keyForm("bob", "reset"), tc.fields...); w.Code != 200 {
			t.Fatalf("%q: %d %s", tc.fields, w.Code, w.Body)
		}
		if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "action=reset") || !strings.Contains(got, tc.logged) || tc.logged == "" && strings.Contains(got, "who") {
			t.Errorf("%q: logged %q", tc.fields, got)
		}
	}
}

// withStderr returns what f writes to standard error, and to a log.
func withStderr(t *testing.T, f func()) (said, logged string) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was, handler, writer, flags := os.Stderr, slog.Default(), log.Writer(), log.Flags()
	defer func() {
		os.Stderr = was
		slog.SetDefault(handler)
		log.SetOutput(writer)
		log.SetFlags(flags)
	}()
	var book strings.Builder
	os.Stderr = in
	slog.SetDefault(slog.New(slog.NewTextHandler(&book, nil)))
	log.SetOutput(&book)
	f()
	_ = in.Close()
	all, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(all), book.String()
}

// development is a page without an option about who may see it, and the query that its
// link ends with.
func development(t *testing.T, opts ...console.Option) (h http.Handler, query string) {
	t.Helper()
	said, logged := withStderr(t, func() {
		var err error
		if h, err = console.New(opts...); err != nil {
			t.Fatal(err)
		}
	})
	m := regexp.MustCompile(`…/(\?token=[A-Z2-7]{26}) `).FindStringSubmatch(said)
	if m == nil || strings.Count(said, "\n") != 1 || logged != "" {
		t.Fatalf("standard error has %q, the log %q", said, logged)
	}
	return h, m[1]
}

// Without an option, a token of the process opens the page, and only that.
func TestDevelopment(t *testing.T) {
	h, query := development(t, oneLimit(t))
	_, other := development(t, oneLimit(t))
	if query == other {
		t.Error("two pages have one token")
	}
	if w := ask(h, "GET", "/"+query, nil); w.Code != 303 {
		t.Errorf("its own link: %d", w.Code)
	}
	if w := ask(h, "GET", "/"+other, nil); w.Code != 401 {
		t.Errorf("another's link: %d", w.Code)
	}
	for _, opt := range []console.Option{console.WithToken(secret), console.WithAuthorizer(anyone)} {
		if said, _ := withStderr(t, func() { page(t, oneLimit(t), opt) }); said != "" {
			t.Errorf("in production it says %q", said)
		}
	}
	if said, _ := withStderr(t, func() { _, _ = console.New() }); said != "" {
		t.Errorf("what can't be made has a link: %q", said)
	}
}

// forward is a forwarded port, as ssh -L or kubectl port-forward makes one: connections
// come from this machine, to a port of its own.
func forward(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			on, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(on, from); _ = on.Close() }()
			go func() { _, _ = io.Copy(from, on); _ = from.Close() }()
		}
	}()
	return "http://" + l.Addr().String()
}

// proxied is a reverse proxy on this machine; make test-console has a real one.
func proxied(t *testing.T, to string) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// Behind whatever makes every request come from this machine, no request gets in without the
// secret, and whoever has it sees the page live and acts.
func TestBehind(t *testing.T) {
	for _, front := range []struct {
		name  string
		start func(t *testing.T, to string) string
	}{
		{"nothing", func(_ *testing.T, to string) string { return to }},
		{"a proxy", proxied},
		{"a forwarded port", forward},
		{"a forwarded port of a proxy", func(t *testing.T, to string) string { return forward(t, proxied(t, to)) }},
	} {
		t.Run(front.name, func(t *testing.T) {
			l := limiter(t, stint.Rate(1, time.Hour), stint.WithKey(stint.Header("X-Api-Key")))
			opts := []console.Option{console.Limiters(l), console.WithActions(), console.WithLogger(slog.New(slog.DiscardHandler))}
			given, err := console.New(append(opts, console.WithToken(secret))...)
			if err != nil {
				t.Fatal(err)
			}
			own, query := development(t, opts...)
			who, err := console.New(append(opts, console.WithAuthorizer(func(r *http.Request) (string, bool) {
				_, password, _ := r.BasicAuth()
				return "ada", password == secret
			}))...)
			if err != nil {
				t.Fatal(err)
			}
			mux := http.NewServeMux()
			mux.Handle("/given/", given)
			mux.Handle("/own/", own)
			mux.Handle("/who/", who)
			server := httptest.NewServer(mux)
			defer server.Close()
			at := front.start(t, server.URL)

			send := func(c *http.Client, method, path string, form url.Values, set func(*http.Request)) (int, string) {
				t.Helper()
				r, err := http.NewRequest(method, at+path, strings.NewReader(form.Encode()))
				if err != nil {
					t.Fatal(err)
				}
				if form != nil {
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				if set != nil {
					set(r)
				}
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.Header.Get("Content-Type") == "text/event-stream" {
					line, _ := bufio.NewReader(resp.Body).ReadString('\n')
					return resp.StatusCode, line
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, string(body)
			}
			asBearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }
			asUser := func(r *http.Request) { r.SetBasicAuth("ada", secret) }

			for _, p := range []string{"/given/", "/own/", "/who/"} {
				want := map[bool]int{true: 403, false: 401}[p == "/who/"]
				for _, path := range []string{"", "events", "key", "script.js"} {
					if code, body := send(http.DefaultClient, "GET", p+path, nil, nil); code != want || strings.Contains(body, "limit") {
						t.Errorf("a stranger gets %s%s: %d %q", p, path, code, body)
					}
				}
				if code, body := send(http.DefaultClient, "POST", p+"key", keyForm("k", "reset"), nil); code != want {
					t.Errorf("a stranger resets a key by %s: %d %s", p, code, body)
				}
			}
			browser := func() *http.Client {
				jar, _ := cookiejar.New(nil)
				return &http.Client{Jar: jar}
			}
			signedIn := browser() // two pages on one host: neither's cookie is in the other's way
			for _, c := range []struct {
				name, page, link string
				client           *http.Client
				set              func(*http.Request)
			}{
				{"bearer", "/given/", "", http.DefaultClient, asBearer},
				{"single sign-on", "/who/", "", http.DefaultClient, asUser},
				{"a link", "/own/", "/own/" + query, signedIn, nil},
				{"a link with one's own token", "/given/", "/given/?token=" + url.QueryEscape(secret), signedIn, nil},
				{"both links before", "/own/", "", signedIn, nil},
			} {
				if c.link != "" {
					if code, body := send(c.client, "GET", c.link, nil, nil); code != 200 || !strings.Contains(body, "What is limited") {
						t.Fatalf("%s: %d %s", c.name, code, body)
					}
				}
				if code, body := send(c.client, "GET", c.page+"events", nil, c.set); code != 200 || !strings.HasPrefix(body, "retry:") {
					t.Errorf("%s: the stream: %d %q", c.name, code, body)
				}
				traffic(l, "/", "bob", 2)
				if code, body := send(c.client, "POST", c.page+"key", keyForm("bob", "reset"), c.set); code != 200 || !strings.Contains(text(body), "This key was reset") {
					t.Errorf("%s: a reset: %d %s", c.name, code, body)
				}
			}
			form := browser()
			if code, body := send(form, "POST", "/given/", url.Values{"token": {secret}}, nil); code != 200 || !strings.Contains(body, "What is limited") {
				t.Errorf("the form: %d %s", code, body)
			}
		})
	}
}
