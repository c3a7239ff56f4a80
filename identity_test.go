package stint

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/keytext"
)

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
		raw, _ := RemoteIP()(from(peer))
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
		got, err := k(from(net.JoinHostPort(tc.peer, "1"), "X-Forwarded-For: 203.0.113.9"))
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
	if got, _ := k(from("198.51.100.9:1", "X-Forwarded-For: 203.0.113.9")); got != "198.51.100.9" {
		t.Errorf("%q", got)
	}
}

func TestSingleIPHeader(t *testing.T) {
	k := SingleIPHeader("cf-connecting-ip", proxies...)
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
func (a stubAddr) String() string  { return "/run/app.sock" }

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
		a, _ := with(r)
		b, _ := without(r)
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
	forwardedIP, standard := ForwardedIP(proxies...), ForwardedHeaderIP(proxies...)
	for _, tc := range []struct {
		name string
		k    KeyFunc
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
		{"ForwardedHeaderIP, IPv4", standard, from("10.0.0.1:1", "Forwarded: for=203.0.113.9;proto=https, for=10.1.1.1"), 0},
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tc.k(tc.r) }); n > tc.most {
			t.Errorf("%s: %v allocations, want %v", tc.name, n, tc.most)
		}
	}
}

func BenchmarkIP(b *testing.B) {
	forwardedIP, standard := ForwardedIP(proxies...), ForwardedHeaderIP(proxies...)
	for _, bench := range []struct {
		name string
		k    KeyFunc
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
				_, _ = bench.k(bench.r)
			}
		})
	}
}

func TestForwardedHeaderIP(t *testing.T) {
	k := ForwardedHeaderIP(proxies...)
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
