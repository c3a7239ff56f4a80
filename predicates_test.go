package stint

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestIn(t *testing.T) {
	p := RemoteIP().In(
		netip.MustParsePrefix("10.1.2.3/8"), // with host bits
		netip.MustParsePrefix("10.2.0.0/16"),
		netip.MustParsePrefix("192.0.2.7/32"),
		netip.MustParsePrefix("::ffff:198.51.100.0/120"),
		netip.MustParsePrefix("2001:db8::/32"),
	)
	for _, tc := range []struct {
		peer string
		want bool
	}{
		{"10.200.0.1:1", true},
		{"10.2.0.1:1", true},
		{"11.0.0.1:1", false},
		{"192.0.2.7:1", true},
		{"192.0.2.8:1", false},
		{"198.51.100.9:1", true},
		{"[::ffff:10.0.0.1]:1", true},
		{"[::ffff:10.0.0.1%x]:1", true},
		{"[64:ff9b::10.0.0.1]:1", true},
		{"[64:ff9b::11.0.0.1]:1", false},
		{"[2001:db8:1::1%eth0]:1", true},
		{"[2001:db9::1]:1", false},
		{"10.0.0.1", true},
		{"", false},
		{"@", false},
	} {
		r := from(tc.peer, "X-Forwarded-For: 10.0.0.1", "X-Real-IP: 10.0.0.1")
		if got := p(r); got != tc.want {
			t.Errorf("%s: %v", tc.peer, got)
		}
	}
	gateway := RemoteIP().In(netip.MustParsePrefix("64:ff9b::/96"))
	if !gateway(from("[64:ff9b::10.0.0.1]:1")) || gateway(from("10.0.0.1:1")) {
		t.Error("the NAT64 prefix is not all of IPv4")
	}
	if all := RemoteIP().In(netip.MustParsePrefix("0.0.0.0/0")); !all(from("10.0.0.1:1")) || all(from("[2001:db8::1]:1")) {
		t.Error("/0 is all of IPv4")
	}
	r := from("10.200.0.1:1")
	if n := testing.AllocsPerRun(100, func() { p(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Behind a proxy, the client is found as the key finds it, and the whole address counts.
func TestInBehindAProxy(t *testing.T) {
	proxy := netip.MustParsePrefix("192.0.2.1/32")
	office := []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	for name, p := range map[string]func(*http.Request) bool{
		"X-Forwarded-For": ForwardedIP(proxy).In(office...),
		"Forwarded":       HeaderIP("Forwarded", proxy).In(office...),
		"X-Real-Ip":       HeaderIP("X-Real-IP", proxy).In(office...),
	} {
		line := name + ": "
		if name == "Forwarded" {
			line += "for="
		}
		quoted := func(a string) string {
			if name == "Forwarded" {
				return `"[` + a + `]"`
			}
			return a
		}
		for _, tc := range []struct {
			peer, field string
			want        bool
		}{
			{"192.0.2.1:1", line + "203.0.113.7", true},
			{"192.0.2.1:1", line + "203.0.113.8", false},
			{"192.0.2.1:1", line + quoted("2001:db8::7"), true},
			{"192.0.2.1:1", line + quoted("2001:db8::8"), false}, // of the same key
			{"192.0.2.9:1", line + "203.0.113.7", false},         // not a proxy
			{"203.0.113.7:1", line + "192.0.2.9", true},
			{"192.0.2.1:1", line + "unknown", false},
		} {
			if got := p(from(tc.peer, tc.field)); got != tc.want {
				t.Errorf("%s from %s: %v", tc.field, tc.peer, got)
			}
		}
	}
}

func TestInPanics(t *testing.T) {
	ten := netip.MustParsePrefix("10.0.0.0/8")
	for _, tc := range []struct {
		name string
		in   func()
		want string // empty: no panic
	}{
		{"fine", func() { RemoteIP().In(ten) }, ""},
		{"everything", func() { RemoteIP().In(netip.MustParsePrefix("::/0")) }, ""},
		{"none", func() { RemoteIP().In() }, "In: no network"},
		{"invalid", func() { RemoteIP().In(ten, netip.Prefix{}) }, "In: prefix 2 is invalid"},
		{"wider than IPv4", func() { RemoteIP().In(netip.MustParsePrefix("::ffff:0.0.0.0/95")) }, "use IPv4 notation"},
		{"no address", func() { Header("X-API-Key").In(ten) }, `Header("X-Api-Key").In: the key isn't an address: use stint.RemoteIP().In`},
		{"of several", func() { Join(RemoteIP(), Method()).In(ten) }, "isn't an address"},
		{"a function", func() { KeyFunc(func(*http.Request) (string, error) { return "", nil }).In(ten) }, "isn't an address"},
		{"zero", func() { Key{}.In(ten) }, "Key"},
		{"wrong", func() { ForwardedIP().In(ten) }, "ForwardedIP"},
	} {
		got := ""
		func() {
			defer func() {
				if v := recover(); v != nil {
					got = fmt.Sprint(v)
				}
			}()
			tc.in()
		}()
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestPreflight(t *testing.T) {
	for _, tc := range []struct {
		method string
		lines  []string
		want   bool
	}{
		{"OPTIONS", []string{"Origin: https://a.example", "Access-Control-Request-Method: PUT"}, true},
		{"OPTIONS", []string{"Origin: https://a.example"}, false},
		{"OPTIONS", []string{"Access-Control-Request-Method: PUT"}, false},
		{"OPTIONS", []string{"Origin:", "Access-Control-Request-Method: PUT"}, false},
		{"OPTIONS", nil, false},
		{"GET", []string{"Origin: https://a.example", "Access-Control-Request-Method: PUT"}, false},
	} {
		r := asked(tc.lines...)
		r.Method = tc.method
		if got := Preflight(r); got != tc.want {
			t.Errorf("%s %q: %v", tc.method, tc.lines, got)
		}
	}
}

func BenchmarkIn(b *testing.B) {
	var many []netip.Prefix
	for i := range 10_000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 8), byte(i), 0, 0}), 24))
	}
	r := from("192.0.2.7:1234")
	for _, bench := range []struct {
		name string
		p    func(*http.Request) bool
	}{
		{"1", RemoteIP().In(many[:1]...)},
		{"10000", RemoteIP().In(many...)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.p(r)
			}
		})
	}
}
