package stint

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestFromCIDR(t *testing.T) {
	p := FromCIDR(
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
		if got := p.Match(r); got != tc.want {
			t.Errorf("%s: %v", tc.peer, got)
		}
	}
	gateway := FromCIDR(netip.MustParsePrefix("64:ff9b::/96"))
	if !gateway.Match(from("[64:ff9b::10.0.0.1]:1")) || gateway.Match(from("10.0.0.1:1")) {
		t.Error("the NAT64 prefix is not all of IPv4")
	}
	if all := FromCIDR(netip.MustParsePrefix("0.0.0.0/0")); !all.Match(from("10.0.0.1:1")) || all.Match(from("[2001:db8::1]:1")) {
		t.Error("/0 is all of IPv4")
	}
	r := from("10.200.0.1:1")
	if n := testing.AllocsPerRun(100, func() { p.Match(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestPredicateProblem(t *testing.T) {
	ten := netip.MustParsePrefix("10.0.0.0/8")
	for _, tc := range []struct {
		name string
		p    Predicate
		want string // empty: no problem
	}{
		{"fine", FromCIDR(ten), ""},
		{"everything", FromCIDR(netip.MustParsePrefix("::/0")), ""},
		{"none", FromCIDR(), "WithSkip(FromCIDR): no network"},
		{"invalid", FromCIDR(ten, netip.Prefix{}), "WithSkip(FromCIDR): prefix 2 is invalid"},
		{"wider than IPv4", FromCIDR(netip.MustParsePrefix("::ffff:0.0.0.0/95")), "IPv4 prefix"},
		{"zero", Predicate{}, "WithSkip(nil): write a predicate"},
	} {
		err := Check(Rate(1, time.Second), WithKey(Global()), WithSkip(tc.p))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	if FromCIDR(netip.Prefix{}).Match(from("10.0.0.1:1")) {
		t.Error("an invalid prefix holds an address")
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

func BenchmarkFromCIDR(b *testing.B) {
	var many []netip.Prefix
	for i := range 10_000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 8), byte(i), 0, 0}), 24))
	}
	r := from("192.0.2.7:1234")
	for _, bench := range []struct {
		name string
		p    Predicate
	}{
		{"1", FromCIDR(many[:1]...)},
		{"10000", FromCIDR(many...)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.p.Match(r)
			}
		})
	}
}
