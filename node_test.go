package stint

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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

// The model reads lists from the left, with the standard library's parsers for
// everything: slow, and written without a look at what it is compared with.

func modelNode(s string) net.IP {
	if len(s) > maxNode {
		return nil
	}
	if a := modelAddr(s); a != nil {
		return a
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok && strings.Contains(inner, ":") && !strings.ContainsAny(inner, "[]") {
			return modelAddr(inner)
		}
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || !regexp.MustCompile(`^[0-9]{1,5}$`).MatchString(port) {
		return nil
	}
	if n, err := strconv.Atoi(port); err != nil || n > 65535 {
		return nil
	}
	if strings.Contains(host, ":") != strings.HasPrefix(s, "[") {
		return nil
	}
	return modelAddr(host)
}

func modelAddr(s string) net.IP {
	address, zone, zoned := strings.Cut(s, "%")
	if zoned && (zone == "" || !strings.Contains(address, ":")) {
		return nil
	}
	return net.ParseIP(address)
}

// modelWalk is the key of a request from the peer 10.0.0.1.
func modelWalk(elements []string, read func(string) net.IP) string {
	_, ten, _ := net.ParseCIDR("10.0.0.0/8")
	_, fd, _ := net.ParseCIDR("fd00::/8")
	elements = slices.DeleteFunc(elements, func(s string) bool { return strings.Trim(s, " \t") == "" })
	slices.Reverse(elements)
	client := net.IPv4(10, 0, 0, 1)
	for i, element := range elements {
		hop := read(strings.Trim(element, " \t"))
		if hop == nil || hop.IsUnspecified() {
			break
		}
		client = hop
		if !ten.Contains(hop) && !fd.Contains(hop) || i == 31 {
			break
		}
	}
	if v4 := client.To4(); v4 != nil {
		return v4.String()
	}
	if _, gateway, _ := net.ParseCIDR("64:ff9b::/96"); gateway.Contains(client) {
		return net.IP(client[12:]).String()
	}
	network := netip.PrefixFrom(netip.AddrFrom16([16]byte(client.Mask(net.CIDRMask(64, 128)))), 64)
	return network.String()
}

func FuzzForwardedIP(f *testing.F) {
	for _, seed := range []string{
		"203.0.113.9", "1.1.1.1, 203.0.113.9, 10.1.1.1", "203.0.113.9:80,[fd00::1]:80", "[::ffff:10.0.0.1%x]:80,",
		"64:ff9b::1.2.3.4", "010.0.0.1, 10.1.1.1", "unknown, _obf, 10.2.2.2", ", ,\t,", "0.0.0.0, ::", "[1.2.3.4]:80",
		"8.8.8.8" + strings.Repeat(",10.1.1.1", 31), "8.8.8.8" + strings.Repeat(",10.1.1.1", 33),
		"[fe80::1%a]b:80", "[fe80::1%]]", "[fe80::1%[]:80", "fe80::1%a:80", "::1%", "[]:80", "1.2.3.4:00080", "[::1]:_x",
	} {
		f.Add(seed, "10.3.3.3")
		f.Add("8.8.4.4", seed)
	}
	k := ForwardedIP(proxies...)
	f.Fuzz(func(t *testing.T, first, second string) {
		r := from("10.0.0.1:1")
		r.Header["X-Forwarded-For"] = []string{first, second}
		got, err := k(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := modelWalk(strings.Split(first+","+second, ","), modelNode); got != want {
			t.Fatalf("%q, %q: %q, want %q", first, second, got, want)
		}
		// And whatever the header: from others than proxies it isn't read.
		r.RemoteAddr = "198.51.100.9:1"
		if got, err := k(r); got != "198.51.100.9" || err != nil {
			t.Fatalf("%q, %q, not from a proxy: %q, %v", first, second, got, err)
		}
	})
}

// modelSplit cuts a list at the commas outside of quotes, reading from the
// left. It is false if a quote is left open.
func modelSplit(list string) (elements []string, paired bool) {
	start, quoted := 0, false
	for i := 0; i < len(list); i++ {
		switch {
		case quoted && list[i] == '\\':
			i++
		case list[i] == '"':
			quoted = !quoted
		case list[i] == ',' && !quoted:
			elements = append(elements, list[start:i])
			start = i + 1
		}
	}
	return append(elements, list[start:]), !quoted
}

// wellFormed is RFC 7239's forwarded-element, without bare spaces.
var wellFormed = regexp.MustCompile(`^(` + pair + `(;` + pair + `)*)?$`)

const pair = `([-!#$%&'*+.^_|~0-9A-Za-z` + "`" + `]+=([-!#$%&'*+.^_|~0-9A-Za-z` + "`" + `]+|"([^"\\]|\\.)*"))`

func modelForwarded(element string) net.IP {
	var found []string
	for rest := element; rest != ""; {
		m := regexp.MustCompile(`^;?` + pair).FindString(rest)
		rest = rest[len(m):]
		name, value, _ := strings.Cut(strings.TrimPrefix(m, ";"), "=")
		if strings.HasPrefix(value, `"`) {
			value = regexp.MustCompile(`(?s)\\(.)`).ReplaceAllString(value[1:len(value)-1], "$1")
		}
		if strings.EqualFold(name, "for") {
			found = append(found, value)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return modelNode(regexp.MustCompile(`:_[-._0-9A-Za-z]+$`).ReplaceAllString(found[0], ""))
}

func FuzzForwardedHeaderIP(f *testing.F) {
	for _, seed := range []string{
		`for=203.0.113.9`, `for=1.1.1.1,for="[fd00::1]:80";proto=https`, `for=203.0.113.9;x="a, for=8.8.8.8"`,
		`for="\`, `for="x, for="[2001:db8::1]"`, `x="\\",for=10.1.1.1;y="\\\", for=8.8.8.8"`, `;;,"`, `for=1.1.1.1;for=2.2.2.2`,
		`for="\1.2.3.4:_x"`, `FOR=unknown,proto=http`,
	} {
		f.Add(seed, byte(9))
	}
	k := ForwardedHeaderIP(proxies...)
	f.Fuzz(func(t *testing.T, sent string, last byte) {
		r := from("10.0.0.1:1")
		key := func(line string) string {
			r.Header["Forwarded"] = []string{line}
			got, err := k(r)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}

		// Whatever a client sends, the address that the proxy appends is its
		// key, quoted or not.
		want := fmt.Sprintf("203.0.113.%d", last)
		for _, appended := range []string{
			fmt.Sprintf(`for=203.0.113.%d;proto=https`, last),
			fmt.Sprintf(`for="203.0.113.%d:80"`, last),
			fmt.Sprintf(`proto=http;for="[::ffff:203.0.113.%d]";host="a\", b, \\"`, last),
			fmt.Sprintf(`for=203.0.113.%d, for="10.1.1.1"`, last),
		} {
			if got := key(sent + ", " + appended); got != want {
				t.Fatalf("%q, %s: %q", sent, appended, got)
			}
		}

		// And on what is well formed, the model agrees.
		got := key(sent)
		elements, paired := modelSplit(sent)
		for _, e := range elements {
			paired = paired && wellFormed.MatchString(strings.Trim(e, " \t"))
		}
		if paired {
			if want := modelWalk(elements, modelForwarded); got != want {
				t.Fatalf("%q: %q, want %q", sent, got, want)
			}
		}
	})
}
