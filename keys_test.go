package stint

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistake"
)

// fixedKey is a KeyFunc with a fixed answer.
func fixedKey(key string, err error) KeyFunc {
	return func(*http.Request) (string, error) { return key, err }
}

// keyCase is one request's key.
type keyCase struct {
	name string
	k    KeyFunc
	r    *http.Request
	want string
}

func runKeyCases(t *testing.T, cases []keyCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := tc.k(tc.r); got != tc.want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

// asked is a request with header lines, given as "Name: value".
func asked(lines ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.TrimSpace(value))
	}
	return r
}

func TestHeaderAndCookie(t *testing.T) {
	runKeyCases(t, []keyCase{
		{"header", Header("x-api-key"), asked("X-API-Key: k1"), "k1"},
		{"no header", Header("X-API-Key"), asked("X-Other: k1"), ""},
		{"empty header", Header("X-API-Key"), asked("X-API-Key:"), ""},
		{"several lines: what Header.Get gives", Header("X-API-Key"), asked("X-API-Key: k1", "X-API-Key: k2"), "k1"},
		{"an empty line before", Header("X-API-Key"), asked("X-API-Key:", "X-API-Key: k2"), ""},
		{"not split at commas", Header("X-API-Key"), asked("X-API-Key: k1, k2"), "k1, k2"},
		{"cookie", Cookie("session"), asked("Cookie: a=b; session=s1"), "s1"},
		{"no cookie", Cookie("session"), asked("Cookie: a=b"), ""},
		{"case of a cookie's name counts", Cookie("session"), asked("Cookie: Session=s1"), ""},
		{"several cookies: what Request.Cookie gives", Cookie("session"), asked("Cookie: session=s1; session=s2"), "s1"},
		{"several lines of cookies", Cookie("session"), asked("Cookie: a=b", "Cookie: session=s2"), "s2"},
	})
}

func TestPattern(t *testing.T) {
	var got string
	mux := http.NewServeMux()
	handler := func(_ http.ResponseWriter, r *http.Request) { got, _ = Pattern()(r) }
	mux.HandleFunc("GET /users/{id}", handler)
	for _, path := range []string{"/users/1", "/users/2"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		if got != "GET /users/{id}" {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"/users/1", "/random", "/unmatched"} {
		if got, _ := Pattern()(httptest.NewRequest("GET", path, nil)); got != "unmatched" {
			t.Errorf("%s outside of a mux: %q", path, got)
		}
	}
}

func TestMuxPattern(t *testing.T) {
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"GET /users/{id}", "POST /login", "/tree/{id}/", "/files/", "/files/{$}", "api.example.com/",
	} {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	k := MuxPattern(mux)
	request := func(method, target string) *http.Request {
		r := httptest.NewRequest("GET", target, nil)
		r.Method = method
		return r
	}
	runKeyCases(t, []keyCase{
		{"match", k, request("GET", "/users/7"), "GET /users/{id}"},
		{"HEAD is GET's", k, request("HEAD", "/users/7"), "GET /users/{id}"},
		{"unclean path", k, request("POST", "//login"), "POST /login"},
		{"wrong method", k, request("GET", "/login"), "unmatched"},
		{"no match", k, request("GET", "/nothing/7"), "unmatched"},
		{"subtree", k, request("GET", "/files/a"), "/files/"},
		{"subtree itself", k, request("GET", "/files/"), "/files/{$}"},
		{"redirected to the subtree", k, request("GET", "/files"), "/files/{$}"},
		{"redirected, with a wildcard", k, request("GET", "/tree/7"), "/tree/{id}/"},
		{"redirected, with a wildcard, unclean", k, request("GET", "/tree//8"), "/tree/{id}/"},
		{"redirected, with a wildcard, CONNECT", k, request("CONNECT", "/tree/9"), "/tree/{id}/"},
		{"host", k, request("GET", "http://api.example.com/x"), "api.example.com/"},
		{"asterisk", k, &http.Request{Method: "OPTIONS", URL: asked().URL}, "unmatched"},
	})
}

func TestMethod(t *testing.T) {
	for method, want := range map[string]string{
		"GET": "GET", "HEAD": "HEAD", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE",
		"CONNECT": "CONNECT", "OPTIONS": "OPTIONS", "TRACE": "TRACE",
		"": "GET", "get": "other", "X1": "other", "PROPFIND": "other",
	} {
		if got, err := Method()(&http.Request{Method: method}); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", method, got, err, want)
		}
	}
}

func TestGlobal(t *testing.T) {
	raw, err := Global()(asked("Anything: x"))
	if raw != keytext.Global || err != nil {
		t.Fatalf("%q, %v", raw, err)
	}
}

func TestJoin(t *testing.T) {
	r := asked()
	broken := errors.New("no session")
	half := strings.Repeat("x", keytext.MaxRaw/2+1)
	for _, tc := range []struct {
		name string
		k    KeyFunc
		want string
		err  error
	}{
		{"as it is written", Join(fixedKey("t1", nil), fixedKey("GET /", nil)), "2:t15:GET /", nil},
		{"one part empty", Join(fixedKey("t1", nil), fixedKey("", nil)), "", nil},
		{"all parts empty", Join(fixedKey("", nil), fixedKey("", nil)), "", nil},
		{"a part fails", Join(fixedKey("t1", nil), fixedKey("", broken)), "", broken},
		{"a part fails after an empty one", Join(fixedKey("", nil), fixedKey("x", broken)), "", broken},
		{"too long together", Join(fixedKey(half, nil), fixedKey(half, nil)), "", ErrKeyTooLong},
		{"ten parts", Join(fixedKey("0", nil), fixedKey("1", nil), fixedKey("2", nil), fixedKey("3", nil), fixedKey("4", nil),
			fixedKey("5", nil), fixedKey("6", nil), fixedKey("7", nil), fixedKey("8", nil), fixedKey("9", nil)),
			"1:01:11:21:31:41:51:61:71:81:9", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := tc.k(r); got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

// Join copies its list, so a caller may reuse it.
func TestJoinCopiesItsList(t *testing.T) {
	keys := []KeyFunc{fixedKey("a", nil), fixedKey("b", nil)}
	k := Join(keys...)
	keys[1] = nil
	if got, err := k(asked()); got != "1:a1:b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestHash(t *testing.T) {
	secret := []byte("0123456789abcdef")
	k := Hash(secret, Header("X-API-Key"))
	want, _ := keytext.NewHash(secret).Of("k1")
	clear(secret) // a caller may wipe its copy
	if got, err := k(asked("X-API-Key: k1")); got != want || err != nil {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
	if got, err := k(asked()); got != "" || err != nil {
		t.Errorf("empty key: %q, %v", got, err)
	}
	if got, err := k(asked("X-API-Key: " + strings.Repeat("x", keytext.MaxRaw+1))); got != "" || !errors.Is(err, ErrKeyTooLong) {
		t.Errorf("long key: %q, %v", got, err)
	}
	broken := errors.New("no session")
	if got, err := Hash([]byte("0123456789abcdef"), fixedKey("x", broken))(asked()); got != "" || !errors.Is(err, broken) {
		t.Errorf("failing key: %q, %v", got, err)
	}
}

// What New reports about key functions that can't work.
func TestConfigErrors(t *testing.T) {
	ten := netip.MustParsePrefix("10.0.0.0/8")
	secret := []byte("0123456789abcdef")
	for _, tc := range []struct {
		name string
		k    KeyFunc
		want []string // all are part of the text
	}{
		{"no header", Header(""), []string{`Header("")`, "X-API-Key"}},
		{"not a header", Header("X API Key"), []string{`"X API Key"`}},
		{"Host", Header("host"), []string{"r.Host, nil"}},
		{"addresses of proxies", Header("x-forwarded-for"), []string{`Header("x-forwarded-for")`, "write stint.ForwardedIP "}},
		{"addresses of proxies", Hash(secret, Header("Forwarded")), []string{`Header("Forwarded")`, "write stint.ForwardedHeaderIP "}},
		{"no cookie", Cookie(""), []string{`Cookie("")`}},
		{"not a cookie", Cookie("a=b"), []string{`"a=b"`}},
		{"no mux", MuxPattern(nil), []string{"MuxPattern(nil)", "*http.ServeMux"}},
		{"nothing to join", Join(), []string{"Join()"}},
		{"nil in join", Join(Global(), nil), []string{"Join", "2 is nil"}},
		{"short secret", Hash([]byte("hunter2"), RemoteIP()), []string{"Hash", "7 bytes", "16 random"}},
		{"nil in hash", Hash(secret, nil), []string{"Hash", "nil"}},
		{"all of hash", Hash(nil, nil), []string{"0 bytes", "is nil"}},
		{"inside hash", Hash(secret, Cookie("")), []string{`Cookie("")`}},
		{"inside join, after an empty part", Join(Header("X-None"), Header(""), Cookie("")), []string{`Header("")`, `Cookie("")`}},
		{"inside join, after a failure", Join(fixedKey("", errors.New("no session")), ForwardedIP()), []string{"ForwardedIP"}},

		{"no trust", ForwardedIP(), []string{"ForwardedIP", `MustParsePrefix("10.0.0.0/8")`, "RemoteIP()"}},
		{"no trust", ForwardedHeaderIP(), []string{"ForwardedHeaderIP", "Forwarded would never be read"}},
		{"no trust", SingleIPHeader("X-Real-IP"), []string{"SingleIPHeader", "X-Real-Ip would never be read"}},
		{"all of IPv4", ForwardedIP(netip.MustParsePrefix("0.0.0.0/0")), []string{"0.0.0.0/0", "proxies connect from"}},
		{"all of IPv6", ForwardedIP(ten, netip.MustParsePrefix("::/0")), []string{"::/0"}},
		{"all, with host bits", ForwardedIP(netip.MustParsePrefix("1.2.3.4/0")), []string{"0.0.0.0/0"}},
		{"all, mapped", ForwardedIP(netip.MustParsePrefix("::ffff:0.0.0.0/96")), []string{"0.0.0.0/0"}},
		{"all, in halves", ForwardedIP(netip.MustParsePrefix("128.0.0.0/1"), ten, netip.MustParsePrefix("0.0.0.0/1")), []string{"0.0.0.0/0", "proxies connect from"}},
		{"all, in parts", IP{Header: "X-Real-IP", Trusted: []netip.Prefix{netip.MustParsePrefix("64.0.0.0/2"), netip.MustParsePrefix("0.0.0.0/2"), netip.MustParsePrefix("128.0.0.0/1")}}.Key(), []string{"0.0.0.0/0"}},
		{"all IPv6 addresses there are", ForwardedIP(netip.MustParsePrefix("3000::/4"), netip.MustParsePrefix("2000::/4")), []string{"2000::/3"}},
		{"more than all, mapped", ForwardedIP(netip.MustParsePrefix("::ffff:0.0.0.0/90")), []string{"/90", "IPv4 prefix"}},
		{"invalid prefix", ForwardedIP(ten, netip.Prefix{}), []string{"prefix 2 is invalid", "ParsePrefix"}},
		{"both at once", ForwardedIP(netip.Prefix{}, netip.MustParsePrefix("0.0.0.0/0")), []string{"invalid", "0.0.0.0/0"}},
		{"no single header", SingleIPHeader("", ten), []string{`SingleIPHeader("")`, "X-Real-IP"}},
		{"a list", SingleIPHeader("x-forwarded-for", ten), []string{"stint.ForwardedIP"}},
		{"a list", SingleIPHeader("forwarded", ten), []string{"stint.ForwardedHeaderIP"}},
		{"bits", IP{IPv6Bits: 47}.Key(), []string{"IP: 47 bits", "48 to 128"}},
		{"bits", IP{IPv6Bits: 129}.Key(), []string{"IP: 129 bits"}},
		{"bits", IP{IPv6Bits: -1}.Key(), []string{"IP: -1 bits"}},
		{"trust without a header", IP{Trusted: []netip.Prefix{ten}}.Key(), []string{"IP: ", "X-Forwarded-For"}},
		{"trust without a header", IP{TrustUnix: true}.Key(), []string{"IP: ", "X-Forwarded-For"}},
		{"not a header", IP{Header: "a b", TrustUnix: true}.Key(), []string{`"a b"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			probe := httptest.NewRequest("GET", "/", nil)
			probe.RemoteAddr = "192.0.2.1:1"
			key, err := tc.k(probe)
			var bad *mistake.Error
			if key != "" || !errors.As(err, &bad) {
				t.Fatalf("%q, %v; want a configuration error", key, err)
			}
			for _, text := range tc.want {
				if !strings.Contains(bad.Error(), text) {
					t.Errorf("%q isn't in %q", text, bad)
				}
			}
		})
	}
}

// What New must not report as a mistake.
func TestNoConfigErrors(t *testing.T) {
	for name, k := range map[string]KeyFunc{
		"RemoteIP":          RemoteIP(),
		"ForwardedIP":       ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")),
		"ForwardedHeaderIP": ForwardedHeaderIP(netip.MustParsePrefix("fd00::/8")),
		"SingleIPHeader":    SingleIPHeader("CF-Connecting-IP", netip.MustParsePrefix("::ffff:10.0.0.0/104")),
		"IP":                IP{Header: "X-Forwarded-For", TrustUnix: true, IPv6Bits: 48}.Key(),
		"Header":            Header("X-API-Key"),
		"Cookie":            Cookie("__Host-session"),
		"Pattern":           Pattern(),
		"MuxPattern":        MuxPattern(http.NewServeMux()),
		"Method":            Method(),
		"Global":            Global(),
		"Join":              Join(Header("X-Tenant"), Pattern()),
		"Hash":              Hash(make([]byte, 16), Cookie("session")),
	} {
		probe := httptest.NewRequest("GET", "/", nil)
		probe.RemoteAddr = "192.0.2.1:1"
		if _, err := k(probe); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyAllocs(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	r := asked("X-API-Key: k1", "X-Tenant: t1")
	r.Pattern = "/"
	for _, tc := range []struct {
		name string
		k    KeyFunc
		most float64
	}{
		{"Header", Header("X-API-Key"), 0},
		{"Pattern", Pattern(), 0},
		{"Method", Method(), 0},
		{"Global", Global(), 0},
		{"Join", Join(Header("X-Tenant"), Header("X-API-Key")), 1},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tc.k(r) }); n > tc.most {
			t.Errorf("%s: %v allocations, want %v", tc.name, n, tc.most)
		}
	}
}

func BenchmarkKey(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	r := httptest.NewRequest("GET", "/users/7", nil)
	r.Header.Set("X-API-Key", "k1")
	r.Header.Set("Cookie", "session=s1")
	for _, bench := range []struct {
		name string
		k    KeyFunc
	}{
		{"Header", Header("X-API-Key")},
		{"Cookie", Cookie("session")},
		{"Method", Method()},
		{"MuxPattern", MuxPattern(mux)},
		{"Join", Join(Header("X-API-Key"), Method())},
		{"Hash", Hash(make([]byte, 32), Header("X-API-Key"))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bench.k(r)
			}
		})
	}
}
