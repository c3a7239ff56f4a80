package stint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/optionerror"
)

// fixedKey is a Key with a fixed answer.
func fixedKey(key string, err error) Key {
	return KeyFunc(func(*http.Request) (string, error) { return key, err })
}

// keyCase is one request's key.
type keyCase struct {
	name string
	k    Key
	r    *http.Request
	want string
}

func runKeyCases(t *testing.T, cases []keyCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := tc.k.Of(tc.r); got != tc.want || err != nil {
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
	handler := func(_ http.ResponseWriter, r *http.Request) { got, _ = Pattern().Of(r) }
	mux.HandleFunc("GET /users/{id}", handler)
	for _, path := range []string{"/users/1", "/users/2"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		if got != "GET /users/{id}" {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{"/users/1", "/random", "/unmatched"} {
		if got, _ := Pattern().Of(httptest.NewRequest("GET", path, nil)); got != "unmatched" {
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
		if got, err := Method().Of(&http.Request{Method: method}); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", method, got, err, want)
		}
	}
}

func TestGlobal(t *testing.T) {
	raw, err := Global().Of(asked("Anything: x"))
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
		k    Key
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
			if got, err := tc.k.Of(r); got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestFirstOf(t *testing.T) {
	broken := errors.New("no session")
	panics := KeyFunc(func(*http.Request) (string, error) { panic("a key after the first that isn't empty") })
	k := FirstOf(Header("X-API-Key"), Cookie("session"), RemoteIP())
	for _, tc := range []struct {
		name string
		k    Key
		r    *http.Request
		want string
		err  error
	}{
		{"the first", k, from("192.0.2.7:1", "X-API-Key: k1", "Cookie: session=s1"), "k1", nil},
		{"the second", k, from("192.0.2.7:1", "Cookie: session=s1"), "2~s1", nil},
		{"the last", k, from("192.0.2.7:1", "X-API-Key:"), "3~192.0.2.7", nil},
		{"an address as an API key", k, from("192.0.2.9:1", "X-API-Key: 192.0.2.7"), "192.0.2.7", nil},
		{"another's key as an API key", k, from("192.0.2.9:1", "X-API-Key: 3~192.0.2.7"), "1~3~192.0.2.7", nil},
		{"none", FirstOf(Header("X-API-Key"), Cookie("session")), asked(), "", nil},
		{"the first fails", FirstOf(fixedKey("x", broken), RemoteIP()), asked(), "", broken},
		{"the second fails", FirstOf(Header("X-API-Key"), fixedKey("", broken), RemoteIP()), asked(), "", broken},
		{"one that isn't needed", FirstOf(Header("X-API-Key"), panics), asked("X-API-Key: k1"), "k1", nil},
		{"in another", FirstOf(Cookie("session"), FirstOf(Header("X-API-Key"), Method())), asked(), "2~2~GET", nil},
		{"one alone", FirstOf(Method()), asked(), "GET", nil},
	} {
		if got, err := tc.k.Of(tc.r); err == nil && got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tc.name, got, err, tc.want, tc.err)
		}
	}
}

// A client that sends another's address as its API key doesn't use up that address's limit.
func TestFirstOfKeepsPartsApart(t *testing.T) {
	l := Must(New(Rate(1, time.Hour), WithKey(FirstOf(Header("X-API-Key"), RemoteIP()))))
	for _, r := range []*http.Request{
		from("192.0.2.9:1", "X-API-Key: 192.0.2.7"), from("192.0.2.9:1", "X-API-Key: 2~192.0.2.7"), from("192.0.2.7:1"),
	} {
		if _, err := l.Open(httptest.NewRecorder(), r); err != nil {
			t.Errorf("%v from %s: %v", r.Header, r.RemoteAddr, err)
		}
	}
}

// Keys are values: programs may compare them.
func TestKeysAreComparable(t *testing.T) {
	seen := map[Key]int{RemoteIP(): 1, Header("x-api-key"): 2, FirstOf(Header("X-API-Key"), RemoteIP()): 3}
	if seen[IP{}.Key()] != 1 || seen[Header("X-API-Key")] != 2 || seen[FirstOf(Header("X-Api-Key"), RemoteIP())] != 3 || seen[Key{}] != 0 {
		t.Errorf("%v", seen)
	}
	if again := Global(); Global() != again || Global() == GivenKey() || RemoteIP() == (Key{}) {
		t.Error("keys without arguments")
	}
	if _, err := (Key{}).Of(asked()); err == nil || (Key{}).String() != "Key{}" || (Key{}).described().Constant != "" {
		t.Errorf("the zero Key: %v, %v", Key{}, err)
	}
	if Join(Global(), Global()).described().Constant == "" || FirstOf(Header("A"), Global()).described().Constant != "" || Method().described().Constant != "" {
		t.Error("Constant")
	}
}

// Join copies its list, so a caller may reuse it.
func TestJoinCopiesItsList(t *testing.T) {
	keys := []Key{fixedKey("a", nil), fixedKey("b", nil)}
	k := Join(keys...)
	keys[1] = Key{}
	if got, err := k.Of(asked()); got != "1:a1:b" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestHash(t *testing.T) {
	secret := []byte("0123456789abcdef")
	k := Hash(secret, Header("X-API-Key"))
	want, _ := keytext.NewHash(secret).Of("k1")
	clear(secret) // a caller may wipe its copy
	if got, err := k.Of(asked("X-API-Key: k1")); got != want || err != nil {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
	if got, err := k.Of(asked()); got != "" || err != nil {
		t.Errorf("empty key: %q, %v", got, err)
	}
	if got, err := k.Of(asked("X-API-Key: " + strings.Repeat("x", keytext.MaxRaw+1))); got != "" || !errors.Is(err, ErrKeyTooLong) {
		t.Errorf("long key: %q, %v", got, err)
	}
	broken := errors.New("no session")
	if got, err := Hash([]byte("0123456789abcdef"), fixedKey("x", broken)).Of(asked()); got != "" || !errors.Is(err, broken) {
		t.Errorf("failing key: %q, %v", got, err)
	}
}

// What New reports about key functions that can't work.
func TestConfigErrors(t *testing.T) {
	ten := netip.MustParsePrefix("10.0.0.0/8")
	secret := []byte("0123456789abcdef")
	for _, tc := range []struct {
		name string
		k    Key
		want []string // all are part of the text
	}{
		{"no header", Header(""), []string{`Header("")`, "X-API-Key"}},
		{"not a header", Header("X API Key"), []string{`"X API Key"`}},
		{"Host", Header("host"), []string{"r.Host, nil"}},
		{"addresses of proxies", Header("x-forwarded-for"), []string{`Header("x-forwarded-for")`, "use stint.ForwardedIP "}},
		{"addresses of proxies", Hash(secret, Header("Forwarded")), []string{`Header("Forwarded")`, "use stint.HeaderIP "}},
		{"no cookie", Cookie(""), []string{`Cookie("")`}},
		{"not a cookie", Cookie("a=b"), []string{`"a=b"`}},
		{"no mux", MuxPattern(nil), []string{"MuxPattern(nil)", "*http.ServeMux"}},
		{"nothing to join", Join(), []string{"Join()"}},
		{"nil in join", Join(Global(), Key{}), []string{"Join", "key 2 is the zero Key"}},
		{"nothing to choose from", FirstOf(), []string{"FirstOf()", "X-API-Key"}},
		{"nothing after an address", FirstOf(RemoteIP(), Header("X-API-Key")), []string{"FirstOf", "RemoteIP() is never empty", "put it last"}},
		{"nothing after all", FirstOf(Cookie("a"), Global(), Header("X-API-Key")), []string{"Global() is never empty"}},
		{"zero in a choice", FirstOf(Header(""), Key{}), []string{`Header("")`, "key 2 is the zero Key"}},
		{"given", FirstOf(Header("A"), GivenKey()), []string{"GivenKey()"}},
		{"nil function", KeyFunc(nil), []string{"KeyFunc(nil)", "RemoteIP"}},
		{"short secret", Hash([]byte("hunter2"), RemoteIP()), []string{"Hash", "7 bytes", "16 random"}},
		{"nil in hash", Hash(secret, Key{}), []string{"Hash", "zero Key"}},
		{"all of hash", Hash(nil, Key{}), []string{"0 bytes", "is the zero Key"}},
		{"inside hash", Hash(secret, Cookie("")), []string{`Cookie("")`}},
		{"inside join, after an empty part", Join(Header("X-None"), Header(""), Cookie("")), []string{`Header("")`, `Cookie("")`}},
		{"inside join, after a failure", Join(fixedKey("", errors.New("no session")), ForwardedIP()), []string{"ForwardedIP"}},

		{"no trust", ForwardedIP(), []string{"ForwardedIP", `MustParsePrefix("10.0.0.0/8")`, "RemoteIP()"}},
		{"no trust", HeaderIP("Forwarded"), []string{"HeaderIP", "Forwarded would never be read"}},
		{"no trust", HeaderIP("X-Real-IP"), []string{"HeaderIP", "X-Real-Ip would never be read"}},
		{"all of IPv4", ForwardedIP(netip.MustParsePrefix("0.0.0.0/0")), []string{"0.0.0.0/0", "proxies connect from"}},
		{"all of IPv6", ForwardedIP(ten, netip.MustParsePrefix("::/0")), []string{"::/0"}},
		{"all, with host bits", ForwardedIP(netip.MustParsePrefix("1.2.3.4/0")), []string{"0.0.0.0/0"}},
		{"all, mapped", ForwardedIP(netip.MustParsePrefix("::ffff:0.0.0.0/96")), []string{"0.0.0.0/0"}},
		{"all, in halves", ForwardedIP(netip.MustParsePrefix("128.0.0.0/1"), ten, netip.MustParsePrefix("0.0.0.0/1")), []string{"0.0.0.0/0", "proxies connect from"}},
		{"all, in parts", IP{Header: "X-Real-IP", Trusted: []netip.Prefix{netip.MustParsePrefix("64.0.0.0/2"), netip.MustParsePrefix("0.0.0.0/2"), netip.MustParsePrefix("128.0.0.0/1")}}.Key(), []string{"0.0.0.0/0"}},
		{"all IPv6 addresses there are", ForwardedIP(netip.MustParsePrefix("3000::/4"), netip.MustParsePrefix("2000::/4")), []string{"2000::/3"}},
		{"more than all, mapped", ForwardedIP(netip.MustParsePrefix("::ffff:0.0.0.0/90")), []string{"/90", "use IPv4 notation"}},
		{"invalid prefix", ForwardedIP(ten, netip.Prefix{}), []string{"prefix 2 is invalid", "ParsePrefix"}},
		{"both at once", ForwardedIP(netip.Prefix{}, netip.MustParsePrefix("0.0.0.0/0")), []string{"invalid", "0.0.0.0/0"}},
		{"no single header", HeaderIP("", ten), []string{`HeaderIP("")`, "X-Real-IP"}},
		{"a list", HeaderIP("x-forwarded-for", ten), []string{"stint.ForwardedIP"}},
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
			key, err := tc.k.Of(probe)
			var bad *optionerror.Error
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
	for name, k := range map[string]Key{
		"RemoteIP":         RemoteIP(),
		"ForwardedIP":      ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")),
		"HeaderIP, a list": HeaderIP("Forwarded", netip.MustParsePrefix("fd00::/8")),
		"HeaderIP":         HeaderIP("CF-Connecting-IP", netip.MustParsePrefix("::ffff:10.0.0.0/104")),
		"IP":               IP{Header: "X-Forwarded-For", TrustUnix: true, IPv6Bits: 48}.Key(),
		"Header":           Header("X-API-Key"),
		"Cookie":           Cookie("__Host-session"),
		"Pattern":          Pattern(),
		"MuxPattern":       MuxPattern(http.NewServeMux()),
		"Method":           Method(),
		"Global":           Global(),
		"Join":             Join(Header("X-Tenant"), Pattern()),
		"Hash":             Hash(make([]byte, 16), Cookie("session")),
	} {
		probe := httptest.NewRequest("GET", "/", nil)
		probe.RemoteAddr = "192.0.2.1:1"
		if _, err := k.Of(probe); err != nil {
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
		k    Key
		most float64
	}{
		{"Header", Header("X-API-Key"), 0},
		{"Pattern", Pattern(), 0},
		{"Method", Method(), 0},
		{"Global", Global(), 0},
		{"Join", Join(Header("X-Tenant"), Header("X-API-Key")), 1},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tc.k.Of(r) }); n > tc.most {
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
		k    Key
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
				_, _ = bench.k.Of(r)
			}
		})
	}
}

// from is asked from a peer.
func from(peer string, lines ...string) *http.Request {
	r := asked(lines...)
	r.RemoteAddr = peer
	return r
}

// Documentation's addresses are clients, private ones are proxies.
var proxies = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("fd00::/8"),
}

func TestRemoteIP(t *testing.T) {
	var cases []keyCase
	for _, tc := range []struct{ name, peer, want string }{
		{"IPv4", "192.0.2.7:1234", "192.0.2.7"},
		{"IPv4 without a port, as a middleware leaves it", "192.0.2.7", "192.0.2.7"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:1234", "2001:db8:1:2::/64"},
		{"IPv6, another address of the same client", "[2001:db8:1:2:ffff::1]:99", "2001:db8:1:2::/64"},
		{"IPv6 without a port", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"IPv6 in brackets without a port", "[2001:db8::1]", "2001:db8::/64"},
		{"loopback", "[::1]:1234", "::/64"},
		// A zone that a client chooses minted keys in tollbooth and httprate.
		{"zone", "[fe80::1%eth0]:1234", "fe80::/64"},
		{"another zone", "[fe80::1%wlan0]:1234", "fe80::/64"},
		// CVE-2026-30827: all of IPv4 in one IPv6 network.
		{"mapped", "[::ffff:192.0.2.7]:1234", "192.0.2.7"},
		{"mapped, another client", "[::ffff:198.51.100.9]:1234", "198.51.100.9"},
		{"mapped, in hexadecimal", "[::ffff:c000:207]:1234", "192.0.2.7"},
		{"mapped, with a zone", "[::ffff:192.0.2.7%a]:1234", "192.0.2.7"},
		{"NAT64", "[64:ff9b::192.0.2.7]:1234", "192.0.2.7"},
		{"NAT64, another client", "[64:ff9b::c633:6409]:1234", "198.51.100.9"},
		{"nearly NAT64", "[64:ff9b:1::c000:207]:1234", "64:ff9b:1::/64"},
		// Skipped by tollbooth, "<nil>" in ulule and gin.
		{"no address", "", "unknown"},
		{"unnamed Unix socket", "@", "unknown"},
		{"Unix socket", "/run/app.sock", "unknown"},
		{"text", "<nil>", "unknown"},
		{"leading zeros", "010.0.0.1:1234", "unknown"},
		{"too many bytes", "192.0.2.7.9:1234", "unknown"},
		{"IPv4 in brackets", "[192.0.2.7]:1234", "unknown"},
		{"IPv4 with a zone", "192.0.2.7%a:1234", "unknown"},
		{"port missing", "192.0.2.7:", "unknown"},
		{"port too large", "192.0.2.7:65536", "unknown"},
		{"port of letters", "192.0.2.7:http", "unknown"},
		{"port with a sign", "192.0.2.7:+80", "unknown"},
		{"bracket left open", "[2001:db8::1", "unknown"},
		{"text after the bracket", "[2001:db8::1]x", "unknown"},
		{"empty zone", "[fe80::1%]:1", "unknown"},
		{"huge zone", "fe80::1%" + strings.Repeat("z", 1<<20), "unknown"},
		{"space", " 192.0.2.7", "unknown"},
	} {
		cases = append(cases, keyCase{tc.name, RemoteIP(), from(tc.peer), tc.want})
	}
	cases = append(cases,
		keyCase{"no header is read", RemoteIP(), from("192.0.2.7:1",
			"X-Forwarded-For: 203.0.113.9", "X-Real-IP: 203.0.113.9", "Forwarded: for=203.0.113.9",
			"True-Client-IP: 203.0.113.9", "CF-Connecting-IP: 203.0.113.9"), "192.0.2.7"},
		keyCase{"/48", IP{IPv6Bits: 48}.Key(), from("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1::/48"},
		keyCase{"/56", IP{IPv6Bits: 56}.Key(), from("[2001:db8:1:2ff:3:4:5:6]:1"), "2001:db8:1:200::/56"},
		keyCase{"/128", IP{IPv6Bits: 128}.Key(), from("[2001:db8:1:2:3:4:5:6]:1"), "2001:db8:1:2:3:4:5:6/128"},
		keyCase{"/48 of mapped is still the address", IP{IPv6Bits: 48}.Key(), from("[::ffff:192.0.2.7]:1"), "192.0.2.7"},
		keyCase{"/48 of NAT64 is still the address", IP{IPv6Bits: 48}.Key(), from("[64:ff9b::192.0.2.7]:1"), "192.0.2.7"},
	)
	runKeyCases(t, cases)
}

// All address keys are plain, so that encoding them costs nothing.
func TestIPKeysArePlain(t *testing.T) {
	for _, peer := range []string{"192.0.2.7:1", "[2001:db8::1%a]:1", "@"} {
		raw, _ := RemoteIP().Of(from(peer))
		if key, err := keytext.Encode(raw); key != raw || err != nil {
			t.Errorf("%q became %q, %v", raw, key, err)
		}
	}
}

func TestForwardedIP(t *testing.T) {
	k := ForwardedIP(proxies...)
	hops := func(n int) string { return strings.Repeat(", 10.9.9.9", n) }
	const proxy = "10.0.0.1:1234"
	xff := func(name, want string, lines ...string) keyCase {
		for i := range lines {
			lines[i] = "X-Forwarded-For: " + lines[i]
		}
		return keyCase{name, k, from(proxy, lines...), want}
	}
	runKeyCases(t, []keyCase{
		// A header from someone who isn't a proxy: gin, chi, realclientip, echo.
		{"untrusted peer", k, from("198.51.100.9:1", "X-Forwarded-For: 203.0.113.9"), "198.51.100.9"},
		{"untrusted peer, mapped", k, from("[::ffff:198.51.100.9]:1", "X-Forwarded-For: 203.0.113.9"), "198.51.100.9"},
		{"no peer", k, from("", "X-Forwarded-For: 203.0.113.9"), "unknown"},
		{"Unix socket, not opted in", k, from("@", "X-Forwarded-For: 203.0.113.9"), "unknown"},
		{"trusted peer, mapped", k, from("[::ffff:10.0.0.1]:1", "X-Forwarded-For: 203.0.113.9"), "203.0.113.9"},
		{"trusted peer, mapped, with a zone", k, from("[::ffff:10.0.0.1%a]:1", "X-Forwarded-For: 203.0.113.9"), "203.0.113.9"},
		{"trusted peer with a zone", k, from("[fd00::1%eth0]:1", "X-Forwarded-For: 203.0.113.9"), "203.0.113.9"},
		{"NAT64 of a trusted address isn't trusted", k, from("[64:ff9b::10.0.0.1]:1", "X-Forwarded-For: 203.0.113.9"), "10.0.0.1"},
		{"other fields", k, from(proxy, "X-Real-IP: 203.0.113.9", "Forwarded: for=203.0.113.9"), "10.0.0.1"},
		// CVE-2024-45410: naming the field in Connection removes it elsewhere.
		{"Connection: X-Forwarded-For", k, from(proxy, "Connection: X-Forwarded-For", "X-Forwarded-For: 203.0.113.9"), "203.0.113.9"},

		xff("no field", "10.0.0.1"),
		xff("empty field", "10.0.0.1", ""),
		xff("one hop", "203.0.113.9", "203.0.113.9"),
		xff("forged on the left", "203.0.113.9", "1.1.1.1, 203.0.113.9"),
		xff("proxies behind the proxy", "203.0.113.9", "1.1.1.1, 203.0.113.9, 10.1.1.1, fd00::7"),
		xff("forged proxy on the left", "203.0.113.9", "10.3.3.3, 203.0.113.9, 10.1.1.1"),
		xff("all trusted", "10.3.3.3", "10.3.3.3, 10.1.1.1"),
		// Only the first line is read by Traefik's PoolStrategy and go-limiter.
		xff("several lines", "203.0.113.9", "1.1.1.1", "2.2.2.2, 203.0.113.9", "10.1.1.1"),
		xff("several lines, the last is the proxy's", "203.0.113.9", "1.1.1.1", "203.0.113.9"),
		xff("an empty line", "203.0.113.9", "203.0.113.9", "", "10.1.1.1"),

		xff("port", "203.0.113.9", "203.0.113.9:4711"),
		xff("IPv6", "2001:db8:1:2::/64", "2001:db8:1:2::9"),
		xff("IPv6 in brackets", "2001:db8:1:2::/64", "[2001:db8:1:2::9]"),
		xff("IPv6 with a port", "2001:db8:1:2::/64", "[2001:db8:1:2::9]:4711"),
		xff("IPv6 with a zone", "2001:db8:1:2::/64", "2001:db8:1:2::9%a"),
		xff("mapped", "203.0.113.9", "::ffff:203.0.113.9"),
		xff("mapped proxy", "203.0.113.9", "203.0.113.9, ::ffff:10.1.1.1"),
		xff("mapped proxy in brackets with zone and port", "203.0.113.9", "203.0.113.9, [::ffff:10.1.1.1%x]:80"),
		xff("NAT64", "203.0.113.9", "64:ff9b::203.0.113.9"),
		xff("spaces and tabs", "203.0.113.9", " \t203.0.113.9\t ,\t10.1.1.1 "),
		xff("no spaces", "203.0.113.9", "1.1.1.1,203.0.113.9,10.1.1.1"),
		xff("empty elements", "203.0.113.9", ", 1.1.1.1,, 203.0.113.9, ,\t,, 10.1.1.1,, "),
		xff("nothing but commas", "10.0.0.1", ",,, ,", ","),

		// What can't be read ends the walk at the hop before.
		xff("leading zeros", "10.1.1.1", "203.0.113.9, 010.0.0.1, 10.1.1.1"),
		xff("leading zeros, last", "10.0.0.1", "203.0.113.9, 010.0.0.1"),
		xff("unknown", "10.1.1.1", "203.0.113.9, unknown, 10.1.1.1"),
		xff("obfuscated", "10.1.1.1", "203.0.113.9, _obf, 10.1.1.1"),
		xff("0.0.0.0", "10.1.1.1", "203.0.113.9, 0.0.0.0, 10.1.1.1"),
		xff("::", "10.1.1.1", "203.0.113.9, ::, 10.1.1.1"),
		xff("mapped 0.0.0.0", "10.1.1.1", "203.0.113.9, ::ffff:0.0.0.0, 10.1.1.1"),
		xff("quotes", "10.0.0.1", `"203.0.113.9"`),
		xff("two addresses without a comma", "10.0.0.1", "203.0.113.9 10.1.1.1"),
		xff("semicolon", "10.0.0.1", "203.0.113.9;10.1.1.1"),
		xff("number", "10.0.0.1", "3405803785"),
		xff("port too large", "10.0.0.1", "203.0.113.9:99999"),
		xff("line break", "10.0.0.1", "203.0.113.9\n"+"x"),
		xff("NUL", "10.0.0.1", "203.0.113.9\x00"),
		xff("other digits", "10.0.0.1", "203.0.113.٩"),
		xff("unreadable left of the client doesn't matter", "203.0.113.9", "<script>, 203.0.113.9"),
		xff("1 MB", "10.0.0.1", strings.Repeat("9", 1<<20)),
		xff("1 MB of commas", "10.0.0.1", strings.Repeat(",", 1<<20)),

		xff("31 proxies", "203.0.113.9", "203.0.113.9"+hops(31)),
		xff("32 proxies", "10.9.9.9", "203.0.113.9"+hops(32)),
		xff("1000 proxies", "10.9.9.9", "203.0.113.9"+hops(1000)),
		xff("the cap counts over all lines", "10.8.8.8", "203.0.113.9", "10.7.7.7", "10.8.8.8"+hops(15), "10.6.6.6"+hops(15)),
		xff("empty elements aren't hops", "203.0.113.9", "203.0.113.9"+strings.Repeat(",", 100)),
	})
}

// ForwardedIP trusts prefixes in spellings that netip alone would not match.
func TestTrustIsNormalised(t *testing.T) {
	for _, tc := range []struct {
		trusted string
		peer    string
		want    bool
	}{
		{"10.1.2.3/8", "10.200.0.1", true}, // host bits
		{"::ffff:10.0.0.0/104", "10.200.0.1", true},
		{"::ffff:10.0.0.0/104", "::ffff:10.200.0.1", true},
		{"::ffff:10.0.0.0/104", "11.0.0.1", false},
		{"10.0.0.0/8", "::ffff:10.200.0.1", true},
		{"10.0.0.0/8", "::ffff:10.200.0.1%x", true},
		{"fe80::/10", "fe80::1%eth0", true},
		{"64:ff9b::10.0.0.0/104", "64:ff9b::10.200.0.1", true},
		{"64:ff9b::10.0.0.0/104", "10.200.0.1", false},
		{"192.0.2.1/32", "192.0.2.1", true},
		{"192.0.2.1/32", "192.0.2.2", false},
		{"::/3", "10.0.0.1", false},
	} {
		k := ForwardedIP(netip.MustParsePrefix(tc.trusted))
		got, err := k.Of(from(net.JoinHostPort(tc.peer, "1"), "X-Forwarded-For: 203.0.113.9"))
		if (got == "203.0.113.9") != tc.want || err != nil {
			t.Errorf("trusting %s, peer %s: %q, %v", tc.trusted, tc.peer, got, err)
		}
	}
}

// A caller may reuse its list.
func TestTrustIsCopied(t *testing.T) {
	list := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	k := ForwardedIP(list...)
	list[0] = netip.MustParsePrefix("198.51.100.0/24")
	if got, _ := k.Of(from("198.51.100.9:1", "X-Forwarded-For: 203.0.113.9")); got != "198.51.100.9" {
		t.Errorf("%q", got)
	}
}

func TestHeaderIP(t *testing.T) {
	k := HeaderIP("cf-connecting-ip", proxies...)
	const proxy = "10.0.0.1:1234"
	runKeyCases(t, []keyCase{
		{"IPv4", k, from(proxy, "CF-Connecting-IP: 203.0.113.9"), "203.0.113.9"},
		{"IPv6", k, from(proxy, "CF-Connecting-IP: 2001:db8:1:2::9"), "2001:db8:1:2::/64"},
		{"port", k, from(proxy, "CF-Connecting-IP: 203.0.113.9:99"), "203.0.113.9"},
		{"a client in the proxies' network", k, from(proxy, "CF-Connecting-IP: 10.7.7.7"), "10.7.7.7"},
		{"untrusted peer", k, from("198.51.100.9:1", "CF-Connecting-IP: 203.0.113.9"), "198.51.100.9"},
		{"no peer", k, from("@", "CF-Connecting-IP: 203.0.113.9"), "unknown"},
		{"missing", k, from(proxy, "X-Forwarded-For: 203.0.113.9"), "10.0.0.1"},
		{"empty", k, from(proxy, "CF-Connecting-IP:"), "10.0.0.1"},
		{"two lines", k, from(proxy, "CF-Connecting-IP: 203.0.113.9", "CF-Connecting-IP: 203.0.113.9"), "10.0.0.1"},
		{"two addresses", k, from(proxy, "CF-Connecting-IP: 203.0.113.9, 203.0.113.10"), "10.0.0.1"},
		// gin's TrustedPlatform keys on whatever is in the header.
		{"text", k, from(proxy, "CF-Connecting-IP: whatever"), "10.0.0.1"},
		{"unspecified", k, from(proxy, "CF-Connecting-IP: 0.0.0.0"), "10.0.0.1"},
	})
}

// stubAddr is a listener's address.
type stubAddr struct{ network string }

func (a stubAddr) Network() string { return a.network }

func (a stubAddr) String() string { return "/run/app.sock" }

func TestTrustUnix(t *testing.T) {
	on := func(network, peer string, lines ...string) *http.Request {
		r := from(peer, lines...)
		return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(stubAddr{network})))
	}
	const line = "X-Forwarded-For: 1.1.1.1, 203.0.113.9"
	k := IP{Header: "X-Forwarded-For", TrustUnix: true}.Key()
	behind := IP{Header: "X-Forwarded-For", TrustUnix: true, Trusted: proxies}.Key()
	runKeyCases(t, []keyCase{
		{"opted in", k, on("unix", "@", line), "203.0.113.9"},
		{"opted in, other systems' spelling", k, on("unix", "", line), "203.0.113.9"},
		{"not opted in", ForwardedIP(proxies...), on("unix", "@", line), "unknown"},
		{"no field", k, on("unix", "@"), "unknown"},
		{"unreadable field", k, on("unix", "@", "X-Forwarded-For: unknown"), "unknown"},
		{"proxies behind it", behind, on("unix", "@", "X-Forwarded-For: 203.0.113.9, 10.1.1.1"), "203.0.113.9"},
		{"the text alone proves nothing", k, from("@", line), "unknown"},
		{"on TCP", k, on("tcp", "@", line), "unknown"},
		{"a peer with an address is believed to have it", k, on("unix", "198.51.100.9:1", line), "198.51.100.9"},
		{"single header", IP{Header: "X-Real-IP", TrustUnix: true}.Key(), on("unix", "@", "X-Real-IP: 203.0.113.9"), "203.0.113.9"},
	})
}

// What net/http itself reports for a peer on a Unix socket.
func TestTrustUnixServed(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Skip(err)
	}
	with := IP{Header: "X-Forwarded-For", TrustUnix: true}.Key()
	without := ForwardedIP(proxies...)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, _ := with.Of(r)
		b, _ := without.Of(r)
		fmt.Fprint(w, a, " ", b)
	}))
	srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
		},
	}}
	defer client.CloseIdleConnections()
	req, _ := http.NewRequest("GET", "http://unix/", nil)
	req.Header.Set("X-Forwarded-For", "203.0.113.9")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "203.0.113.9 unknown" {
		t.Errorf("%q", body)
	}
}

func TestIPAllocs(t *testing.T) {
	forwardedIP, standard := ForwardedIP(proxies...), HeaderIP("Forwarded", proxies...)
	for _, tc := range []struct {
		name string
		k    Key
		r    *http.Request
		most float64
	}{
		{"RemoteIP, IPv4", RemoteIP(), from("192.0.2.7:1234"), 0},
		{"RemoteIP, IPv6", RemoteIP(), from("[2001:db8::1]:1234"), 1},
		{"RemoteIP, mapped", RemoteIP(), from("[::ffff:192.0.2.7]:1234"), 1},
		{"RemoteIP, unknown", RemoteIP(), from("@"), 1},
		{"ForwardedIP, not a proxy", forwardedIP, from("192.0.2.7:1234", "X-Forwarded-For: 203.0.113.9"), 0},
		{"ForwardedIP, IPv4", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: 1.1.1.1, 203.0.113.9, 10.1.1.1:80"), 0},
		{"ForwardedIP, IPv6", forwardedIP, from("[fd00::1]:1", "X-Forwarded-For: 2001:db8::9"), 1},
		{"HeaderIP, IPv4", standard, from("10.0.0.1:1", "Forwarded: for=203.0.113.9;proto=https, for=10.1.1.1"), 0},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tc.k.Of(tc.r) }); n > tc.most {
			t.Errorf("%s: %v allocations, want %v", tc.name, n, tc.most)
		}
	}
}

func BenchmarkIP(b *testing.B) {
	forwardedIP, standard := ForwardedIP(proxies...), HeaderIP("Forwarded", proxies...)
	for _, bench := range []struct {
		name string
		k    Key
		r    *http.Request
	}{
		{"remote IPv4", RemoteIP(), from("192.0.2.7:1234")},
		{"remote IPv6", RemoteIP(), from("[2001:db8:1:2:3:4:5:6]:1234")},
		{"forwarded IPv4", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: 203.0.113.9")},
		{"forwarded IPv4 over 3", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: 203.0.113.9, 10.1.1.1, 10.1.1.2")},
		{"forwarded IPv6", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: 2001:db8:1:2:3:4:5:6")},
		{"forwarded 1000 proxies", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: "+strings.Repeat("10.1.1.1,", 1000))},
		{"forwarded 1 MB", forwardedIP, from("10.0.0.1:1", "X-Forwarded-For: "+strings.Repeat(",", 1<<20))},
		{"standard IPv4", standard, from("10.0.0.1:1", "Forwarded: for=203.0.113.9;proto=https")},
		{"standard quoted IPv6", standard, from("10.0.0.1:1", `Forwarded: for="[2001:db8:1:2:3:4:5:6]:80";proto=https`)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bench.k.Of(bench.r)
			}
		})
	}
}

func TestForwardedHeaderIP(t *testing.T) {
	k := HeaderIP("Forwarded", proxies...)
	const proxy = "10.0.0.1:1234"
	fwd := func(name, want string, lines ...string) keyCase {
		for i := range lines {
			lines[i] = "Forwarded: " + lines[i]
		}
		return keyCase{name, k, from(proxy, lines...), want}
	}
	runKeyCases(t, []keyCase{
		{"untrusted peer", k, from("198.51.100.9:1", "Forwarded: for=203.0.113.9"), "198.51.100.9"},
		{"X-Forwarded-For", k, from(proxy, "X-Forwarded-For: 203.0.113.9"), "10.0.0.1"},

		fwd("no field", "10.0.0.1"),
		fwd("IPv4", "203.0.113.9", "for=203.0.113.9"),
		fwd("IPv4 quoted", "203.0.113.9", `for="203.0.113.9"`),
		fwd("port", "203.0.113.9", `for="203.0.113.9:4711"`),
		fwd("port without quotes", "203.0.113.9", `for=203.0.113.9:4711`),
		fwd("hidden port", "203.0.113.9", `for="203.0.113.9:_gazonk"`),
		fwd("IPv6", "2001:db8:cafe::/64", `for="[2001:db8:cafe::17]"`),
		fwd("IPv6 with a port", "2001:db8:cafe::/64", `for="[2001:db8:cafe::17]:4711"`),
		fwd("IPv6 with a hidden port", "2001:db8:cafe::/64", `for="[2001:db8:cafe::17]:_x"`),
		fwd("IPv6 without quotes", "2001:db8:cafe::/64", `for=[2001:db8:cafe::17]:4711`),
		fwd("mapped", "203.0.113.9", `for="[::ffff:203.0.113.9]"`),
		fwd("case of the name", "203.0.113.9", `FOR=203.0.113.9`, `For=10.1.1.1`),
		fwd("other parameters", "203.0.113.9", `by=203.0.113.43;proto=http;for=203.0.113.9;host="example.com"`),
		fwd("spaces around semicolons", "203.0.113.9", `proto=http ; for=203.0.113.9 ; by="_x" `),
		fwd("empty parameters", "203.0.113.9", `;for=203.0.113.9;;proto=http;`),
		fwd("escapes", "2001:db8::/64", `for="\[2001:db8\:\:1\]"`),
		fwd("forged on the left", "203.0.113.9", "for=1.1.1.1, for=203.0.113.9"),
		fwd("proxies behind the proxy", "203.0.113.9", `for=1.1.1.1, for=203.0.113.9, for="[fd00::1]", for=10.1.1.1`),
		fwd("several lines", "203.0.113.9", "for=1.1.1.1", "for=2.2.2.2, for=203.0.113.9", "for=10.1.1.1"),
		fwd("empty elements", "203.0.113.9", ", for=203.0.113.9,, for=10.1.1.1, ,"),
		fwd("all trusted", "10.2.2.2", "for=10.2.2.2, for=10.1.1.1"),
		fwd("32 proxies", "10.9.9.9", "for=203.0.113.9"+strings.Repeat(", for=10.9.9.9", 32)),

		// realclientip finds 8.8.8.8 inside the quotes.
		fwd("a comma in quotes", "203.0.113.9", `for=203.0.113.9;x="a, for=8.8.8.8"`),
		fwd("a comma in quotes, on the left", "203.0.113.9", `x="a, for=8.8.8.8";for=203.0.113.9`),
		fwd("quotes in quotes", "203.0.113.9", `for=203.0.113.9;x="\", for=8.8.8.8, \""`),
		fwd("backslashes in quotes", "203.0.113.9", `for=203.0.113.9;x="\\", for=10.1.1.1;y="\\\", for=8.8.8.8"`),
		fwd("a semicolon in quotes", "203.0.113.9", `x="a;for=8.8.8.8";for=203.0.113.9`),

		// What a client sends before the proxy's element can't swallow it.
		fwd("a lone quote on the left", "203.0.113.9", `for="1.1.1.1, for=203.0.113.9`),
		fwd("a lone quote on the left of quotes", "2001:db8::/64", `for=1.1.1.1;x=", for="[2001:db8::9]:80"`),
		fwd("a backslash on the left", "2001:db8::/64", `for="\, for="[2001:db8::9]"`),
		fwd("junk on the left", "203.0.113.9", `;;==,",\", for=203.0.113.9`),
		fwd("a lone quote on another line", "203.0.113.9", `for="`, `for=203.0.113.9`),

		fwd("unknown", "10.1.1.1", "for=203.0.113.9, for=unknown, for=10.1.1.1"),
		fwd("obfuscated", "10.1.1.1", "for=203.0.113.9, for=_obf, for=10.1.1.1"),
		fwd("obfuscated with a port", "10.1.1.1", `for=203.0.113.9, for="_obf:80", for=10.1.1.1`),
		fwd("0.0.0.0", "10.1.1.1", `for=203.0.113.9, for=0.0.0.0, for=10.1.1.1`),
		// Skipping these would believe the element before them.
		fwd("no for", "10.1.1.1", "for=203.0.113.9, proto=https, for=10.1.1.1"),
		fwd("only a semicolon", "10.1.1.1", "for=203.0.113.9, ;, for=10.1.1.1"),
		fwd("two fors", "10.1.1.1", "for=203.0.113.9, for=8.8.8.8;for=9.9.9.9, for=10.1.1.1"),
		fwd("no equals sign", "10.0.0.1", "203.0.113.9"),
		fwd("spaces around the equals sign", "10.0.0.1", "for = 203.0.113.9"),
		fwd("empty for", "10.0.0.1", "for="),
		fwd("empty quotes", "10.0.0.1", `for=""`),
		fwd("quote left open", "10.0.0.1", `for="203.0.113.9`),
		fwd("quote left open by a backslash", "10.0.0.1", `for="203.0.113.9\"`),
		fwd("quote not opened", "10.0.0.1", `for=203.0.113.9"`),
		fwd("text after the quotes", "10.0.0.1", `for="203.0.113.9"x`),
		fwd("another name that ends in for", "10.0.0.1", `xfor=203.0.113.9`),
		fwd("port too large", "10.0.0.1", `for="203.0.113.9:99999"`),
		fwd("hidden port without a name", "10.0.0.1", `for="203.0.113.9:_"`),
		fwd("hidden port with other bytes", "10.0.0.1", `for="203.0.113.9:_a b"`),
	})
}

// Behind nginx behind Cloudflare, the key that docs/proxies.md gives is the client's address. A client can't
// choose it, by whichever fields it sends and whether it goes through Cloudflare or straight to nginx.
func TestBehindCloudflareAndNginx(t *testing.T) {
	cloudflare, nginx := netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.5/32")
	key := ForwardedIP(cloudflare, nginx)
	for _, tt := range []struct{ forwarded, want string }{
		{"192.0.2.7, 203.0.113.9", "192.0.2.7"},
		{"198.51.100.1, 192.0.2.7, 203.0.113.9", "192.0.2.7"},
		{"192.0.2.7", "192.0.2.7"},
		{"198.51.100.1, 192.0.2.7", "192.0.2.7"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.5:1234"
		r.Header.Set("X-Forwarded-For", tt.forwarded)
		r.Header.Set("CF-Connecting-IP", "198.51.100.1")
		if got, err := key.Of(r); got != tt.want || err != nil {
			t.Errorf("X-Forwarded-For: %s: %q, %v, want %q", tt.forwarded, got, err, tt.want)
		}
	}
}
