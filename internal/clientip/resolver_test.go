package clientip

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func from(peer string) *http.Request {
	return &http.Request{RemoteAddr: peer, Header: http.Header{}}
}

func resolver(t testing.TB, header string) *Resolver {
	t.Helper()
	r, problems := New(Source{Header: header, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}})
	if problems != nil {
		t.Fatal(problems)
	}
	return r
}

// The model reads lists from the left, with the standard library's parsers for
// everything: slow, and written without a look at what it is compared with.

func modelNode(s string) net.IP {
	if len(s) > maxNodeLength {
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
	k := resolver(f, XForwardedFor)
	f.Fuzz(func(t *testing.T, first, second string) {
		r := from("10.0.0.1:1")
		r.Header["X-Forwarded-For"] = []string{first, second}
		got := k.Key(r)
		if want := modelWalk(strings.Split(first+","+second, ","), modelNode); got != want {
			t.Fatalf("%q, %q: %q, want %q", first, second, got, want)
		}
		// And whatever the header: from others than proxies it isn't read.
		r.RemoteAddr = "198.51.100.9:1"
		if got := k.Key(r); got != "198.51.100.9" {
			t.Fatalf("%q, %q, not from a proxy: %q", first, second, got)
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

// FuzzIPv4 holds the short way of an address and a port to netip's reading.
func FuzzIPv4(f *testing.F) {
	for _, s := range []string{
		"203.0.113.7:4711", "0.0.0.0:0", "255.255.255.255:65535", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:000080", "1.2.3.4:+80",
		"01.2.3.4:80", "1.2.3.00:80", "256.2.3.4:80", "1.2.3:80", "1.2.3.4.5:80", "1..3.4:80", ".1.2.3:80", "1.2.3.4.:80", "[::1]:80", "1.2.3.4:8:0", ":80",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, bytes, ok := cutIPv4(s)
		want, err := netip.ParseAddrPort(s)
		if ok && (err != nil || netip.AddrFrom4(bytes) != want.Addr() || host != want.Addr().String()) {
			t.Errorf("%q is %v (%q), want %v (%v)", s, bytes, host, want, err)
		}
		if !ok && err == nil && want.Addr().Is4() && want.String() == s {
			t.Errorf("%q is not read", s)
		}
	})
}

func FuzzForwardedHeaderIP(f *testing.F) {
	for _, seed := range []string{
		`for=203.0.113.9`, `for=1.1.1.1,for="[fd00::1]:80";proto=https`, `for=203.0.113.9;x="a, for=8.8.8.8"`,
		`for="\`, `for="x, for="[2001:db8::1]"`, `x="\\",for=10.1.1.1;y="\\\", for=8.8.8.8"`, `;;,"`, `for=1.1.1.1;for=2.2.2.2`,
		`for="\1.2.3.4:_x"`, `FOR=unknown,proto=http`,
	} {
		f.Add(seed, byte(9))
	}
	k := resolver(f, Forwarded)
	f.Fuzz(func(t *testing.T, sent string, last byte) {
		r := from("10.0.0.1:1")
		key := func(line string) string {
			r.Header["Forwarded"] = []string{line}
			return k.Key(r)
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
