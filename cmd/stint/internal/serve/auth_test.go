package serve

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// newAuth returns the handler of forward auth for a policy, without a server.
func newAuth(t testing.TB, proxy, text string, log io.Writer) *auth {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text), policy.WithServer())
	if err != nil {
		t.Fatal(err)
	}
	l, err := stint.New(p.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	trusts, err := newTrusted([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	a := &auth{proxy: proxies[proxy], trusted: trusts, limiter: l, log: newOccasionally(slog.New(slog.NewJSONHandler(log, nil)))}
	if proxy == "envoy" {
		a.prefix = "/auth"
	}
	return a
}

const shop = `version: 1
key: remote-ip
limits:
  - {name: client, rate: 2/1h}
block: [{cidr: [203.0.113.0/24]}]
routes:
  GET /healthz: {exempt: true}
  POST /login: {only: [{name: login, rate: 1/1h, key: {forwarded-ip: {trusted: [10.0.0.0/8]}}}]}
  GET admin.example/: {only: [{name: admin, rate: 1/1h, key: {header: X-API-Key}}]}
`

// The same requests get the same answers through each proxy.
func TestForwardAuth(t *testing.T) {
	post := func(uri string) client { c := get(uri); c.method = "POST"; return c }
	from := func(c client, address string) client { c.address = address; return c }
	at := func(c client, host string) client { c.host = host; return c }
	for _, tt := range []struct {
		name     string
		requests []client
		want     []int
	}{
		{"the limit at the top", []client{get("/a"), get("/b?c"), get("/a"), from(get("/a"), "192.0.2.8")}, []int{200, 200, 429, 200}},
		{"an exempt route", []client{get("/healthz"), get("/healthz"), get("/healthz")}, []int{200, 200, 200}},
		{"a route of a method", []client{post("/login"), post("/login"), get("/login")}, []int{200, 429, 200}},
		{"remote-ip and forwarded-ip are the client", []client{from(post("/login"), "192.0.2.8"), from(post("/login"), "192.0.2.9"), from(post("/login"), "192.0.2.9")}, []int{200, 200, 429}},
		{"a client behind another proxy", []client{from(post("/login"), "192.0.2.8, 10.0.0.9"), from(post("/login"), "198.51.100.1, 192.0.2.8, 10.0.0.9"), from(post("/login"), "192.0.2.9, 10.0.0.9")}, []int{200, 429, 200}},
		{"an IPv6 client's network", []client{from(post("/login"), "2001:db8::1"), from(post("/login"), "2001:db8::2"), from(post("/login"), "2001:db8:0:1::1")}, []int{200, 429, 200}},
		{"a made-up address", []client{post("/login").with("X-Forwarded-For", "198.51.100.1"), post("/login").with("X-Forwarded-For", "198.51.100.2")}, []int{200, 429}},
		{"a made-up Forwarded", []client{post("/login").with("Forwarded", "for=198.51.100.1"), post("/login").with("Forwarded", "for=198.51.100.2")}, []int{200, 429}},
		{"a host's route, a header field and an empty key", []client{at(get("/a"), "admin.example").with("X-Api-Key", "k"), at(get("/a"), "admin.example").with("X-Api-Key", "k"), at(get("/a"), "admin.example")}, []int{200, 429, 403}},
		{"a blocked network", []client{from(get("/a"), "203.0.113.9")}, []int{403}},
		{"a HEAD request", []client{{method: "HEAD", uri: "/a", host: "h", proto: "http", address: "192.0.2.7"}}, []int{200}},
	} {
		for _, name := range Proxies {
			a := newAuth(t, name, shop, io.Discard)
			for i, c := range tt.requests {
				w := httptest.NewRecorder()
				a.ServeHTTP(w, c.forwarded(t, name, a.prefix))
				status := w.Code
				if name == "nginx" && tt.want[i] >= 300 {
					if status != http.StatusForbidden || w.Header().Get("X-Stint-Status") == "" {
						t.Errorf("%s, %s: request %d gets %d and X-Stint-Status %q", name, tt.name, i+1, status, w.Header().Get("X-Stint-Status"))
					}
					status = map[string]int{"429": 429, "403": 403}[w.Header().Get("X-Stint-Status")]
				}
				if status != tt.want[i] {
					t.Errorf("%s, %s: request %d gets %d, want %d", name, tt.name, i+1, status, tt.want[i])
				}
				switch h := w.Header(); {
				case status == 429 && (h.Get("Retry-After") == "" || h.Get("RateLimit") == "" || !strings.Contains(w.Body.String(), "quota-exceeded")):
					t.Errorf("%s, %s: a denial with %v and %q", name, tt.name, h, w.Body)
				case status == 200 && w.Body.Len() > 0:
					t.Errorf("%s, %s: an admitted request gets %q", name, tt.name, w.Body)
				}
			}
		}
	}
}

// The fields that another proxy writes are the client's own words here.
func TestOtherFieldsAreTheClients(t *testing.T) {
	for _, name := range Proxies {
		a := newAuth(t, name, shop, io.Discard)
		var got []int
		for range 3 {
			c := get("/a")
			for _, field := range []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Rewrite-Url", "X-Envoy-Original-Path"} {
				if p := a.proxy; field != p.uri {
					c = c.with(field, "/healthz")
				}
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, c.forwarded(t, name, a.prefix))
			got = append(got, w.Code)
		}
		if slices.Equal(got, []int{200, 200, 200}) {
			t.Errorf("%s: a client has chosen an exempt route", name)
		}
	}
}

// A request that doesn't say what the client's is isn't let through, and the log says why.
func TestIncompleteRequests(t *testing.T) {
	change := func(f func(*http.Request)) func(*http.Request) { return f }
	for _, tt := range []struct {
		proxy  string
		change func(*http.Request)
		status int
		log    string
	}{
		{"nginx", change(func(r *http.Request) { r.Header.Del("X-Original-Uri") }), 500, "X-Original-Uri is missing"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Uri", "") }), 500, "X-Original-Uri is missing"},
		{"nginx", change(func(r *http.Request) { r.Header.Add("X-Original-Uri", "/healthz") }), 500, "X-Original-Uri is there 2 times"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Uri", "healthz") }), 500, "isn't a path"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Uri", "http://h/healthz") }), 500, "isn't a path"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Uri", "*") }), 500, "isn't a path"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Uri", "/%zz") }), 500, "isn't a path"},
		{"nginx", change(func(r *http.Request) { r.Header.Del("X-Original-Method") }), 500, "X-Original-Method is missing"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Original-Method", "GET /") }), 500, "isn't a method"},
		{"nginx", change(func(r *http.Request) { r.Header.Del("X-Forwarded-Host") }), 500, "X-Forwarded-Host is missing"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Forwarded-Host", "a, b") }), 500, "isn't a host"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "gopher") }), 500, "isn't http or https"},
		{"nginx", change(func(r *http.Request) { r.Header.Del("X-Forwarded-For") }), 500, "X-Forwarded-For is missing"},
		{"nginx", change(func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7, unknown") }), 500, "doesn't end in an address"},
		{"traefik", change(func(r *http.Request) { r.Header.Del("X-Forwarded-Uri") }), 500, "X-Forwarded-Uri is missing"},
		{"caddy", change(func(r *http.Request) { r.Header.Del("X-Forwarded-Method") }), 500, "X-Forwarded-Method is missing"},
		{"envoy", change(func(r *http.Request) { r.RequestURI = "/healthz" }), 500, "doesn't begin with --path-prefix /auth"},
		{"envoy", change(func(r *http.Request) { r.Header.Del("X-Forwarded-Proto") }), 500, "X-Forwarded-Proto is missing"},
		{"nginx", change(func(r *http.Request) { r.RemoteAddr = "192.0.2.1:99" }), 403, "isn't trusted"},
		{"nginx", change(func(r *http.Request) { r.RemoteAddr = "@" }), 403, "isn't trusted"},
		{"nginx", change(func(r *http.Request) { r.RemoteAddr = "[::ffff:127.0.0.1]:99" }), 200, ""},
	} {
		log := &written{}
		a := newAuth(t, tt.proxy, shop, log)
		for range 2 {
			r := get("/healthz").forwarded(t, tt.proxy, a.prefix)
			tt.change(r)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != tt.status || w.Header().Get("X-Stint-Status") != "" {
				t.Errorf("%s, %q: %d, want %d", tt.proxy, tt.log, w.Code, tt.status)
			}
		}
		if text := log.String(); !strings.Contains(text, tt.log) || strings.Count(text, "\n") > 1 {
			t.Errorf("%s: the log has %q, want one line with %q", tt.proxy, text, tt.log)
		}
	}
}

// Whatever a proxy's fields hold: a request is rebuilt as the fields say, or refused.
func FuzzForwardAuth(f *testing.F) {
	f.Add("GET", "/a?b=c", "h", "https", "192.0.2.7")
	f.Add("POST", "//a/../b%2f", "[::1]:80", "ws", "unknown, [2001:db8::1]:99")
	f.Add("OPTIONS", "*", "", "http", "::ffff:192.0.2.1")
	var all []*auth
	for _, name := range Proxies {
		all = append(all, newAuth(f, name, shop, io.Discard))
	}
	f.Fuzz(func(t *testing.T, method, uri, host, proto, address string) {
		for i, a := range all {
			r := &http.Request{Method: "GET", RequestURI: a.prefix + uri, Host: host, RemoteAddr: "127.0.0.1:1", Header: http.Header{}}
			for name, value := range map[string]string{a.proxy.method: method, a.proxy.uri: uri, a.proxy.host: host, a.proxy.proto: proto, "X-Forwarded-For": address} {
				if name != "" {
					r.Header[name] = []string{value}
				}
			}
			c, err := a.clientRequest(r)
			if err != nil {
				continue
			}
			if got := c.Method; Proxies[i] != "envoy" && got != method {
				t.Errorf("%s: the method is %q, want %q", Proxies[i], got, method)
			}
			if c.RequestURI != uri || c.Host != host || c.URL.Host != "" || c.URL.Scheme != "" {
				t.Errorf("%s: the request is for %q of %q, %v, want %q of %q", Proxies[i], c.RequestURI, c.Host, c.URL, uri, host)
			}
			if at, err := netip.ParseAddrPort(c.RemoteAddr); err != nil || !at.Addr().IsValid() {
				t.Errorf("%s: the client is at %q", Proxies[i], c.RemoteAddr)
			}
			if _, ok := c.Header["X-Forwarded-For"]; ok {
				t.Errorf("%s: the client's request has X-Forwarded-For", Proxies[i])
			}
		}
	})
}
