// Package clientip identifies a client by its address: that of the connection, or the
// one that trusted proxies report. Whatever a client writes into a header, it can't
// choose the address it is identified by.
package clientip

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	// XForwardedFor and Forwarded are the fields whose values are lists.
	XForwardedFor = "X-Forwarded-For"
	Forwarded     = "Forwarded"
)

// Source says where the address is read from; see stint.IP for its fields.
type Source struct {
	Header    string
	Trusted   []netip.Prefix
	TrustUnix bool
	IPv6Bits  int
}

// clientNetworks is where clients are: all of IPv4, and the assigned part of IPv6.
var clientNetworks = [...]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2000::/3")}

// Resolver is a Source that has been checked. It is immutable and safe for concurrent
// use.
type Resolver struct {
	header  string // canonical, or empty
	trusted Prefixes
	unix    bool
	bits    int
	// readClient is nil without a header. Only New refers to the code that parses headers: the linker
	// leaves it out of a program that reads none.
	readClient func(c *Resolver, proxy node, lines []string) node
}

const defaultBits = 64

// Remote returns the Resolver of the zero Source: clients are the peers of connections.
func Remote() *Resolver { return &Resolver{bits: defaultBits} }

// New checks a source. If there are problems, the Resolver can't be used.
func New(s Source) (*Resolver, []Problem) {
	c := &Resolver{
		header: http.CanonicalHeaderKey(s.Header),
		unix:   s.TrustUnix,
		bits:   s.IPv6Bits,
	}
	if c.header != "" {
		c.readClient = (*Resolver).clientBehind
	}
	if c.bits == 0 {
		c.bits = defaultBits
	}
	var problems []Problem
	c.trusted, problems = NewPrefixes(s.Trusted)
	bad := func(what, write string, names ...any) { problems = append(problems, Problem{what, write, names}) }
	for _, p := range c.trusted {
		if slices.ContainsFunc(clientNetworks[:],
			func(all netip.Prefix) bool { return p.Overlaps(all) && p.Bits() <= all.Bits() }) {
			bad(fmt.Sprintf("trusting %v lets every client forge its address", p),
				"pass the addresses that your proxies connect from")
		}
	}
	trusts := len(s.Trusted) > 0 || s.TrustUnix
	switch {
	case s.Header != "" && !IsFieldName(s.Header):
		bad(fmt.Sprintf("%.80q isn't a valid name of a header field", s.Header),
			fmt.Sprintf("use letters, digits and hyphens, such as %q", XForwardedFor))
	case s.Header != "" && !trusts:
		bad(fmt.Sprintf("no proxy is trusted, so %s would never be read", strings.ReplaceAll(c.header, "%", "%%")),
			"pass the addresses that your proxies connect from, such as %v, or use %v if there is no proxy",
			`netip.MustParsePrefix("10.0.0.0/8")`, "stint.RemoteIP()")
	case s.Header == "" && trusts:
		bad("proxies are trusted, but Header is empty",
			fmt.Sprintf("set Header to the field that the proxies set, such as %q", XForwardedFor))
	}
	if c.bits < 48 || c.bits > 128 {
		bad(fmt.Sprintf("%d bits of an IPv6 address", s.IPv6Bits), "use 48 to 128, or 0 for 64")
	}
	return c, problems
}

// String returns the function of package stint that makes a key of the Resolver, with its
// arguments. Resolvers with the same text return the same keys.
func (c *Resolver) String() string {
	var trusted []string
	for _, p := range c.trusted {
		trusted = append(trusted, p.String())
	}
	networks := strings.Join(trusted, ", ")
	switch {
	case c.unix || c.bits != defaultBits:
		var fields []string
		set := func(present bool, format string, value any) {
			if present {
				fields = append(fields, fmt.Sprintf(format, value))
			}
		}
		set(c.header != "", "Header: %q", c.header)
		set(networks != "", "Trusted: [%s]", networks)
		set(c.unix, "TrustUnix: %t", true)
		set(c.bits != defaultBits, "IPv6Bits: %d", c.bits)
		return "IP{" + strings.Join(fields, ", ") + "}"
	case c.header == "":
		return "RemoteIP()"
	case c.header == XForwardedFor:
		return "ForwardedIP(" + networks + ")"
	case c.header == Forwarded:
		return "HeaderIP(\"Forwarded\", " + networks + ")"
	}
	return fmt.Sprintf("HeaderIP(%q, %s)", c.header, networks)
}

// Header returns the header field that the client's address is read from, in canonical form,
// or "".
func (c *Resolver) Header() string { return c.header }

// unknownPeer is the key of all peers without an address. It is a key rather than an
// error or an empty key, so that a client is limited whatever it does to its address.
const unknownPeer = "unknown"

// Key returns the key of the client that sent r; see stint.IP for its form.
func (c *Resolver) Key(r *http.Request) string {
	if c.header == "" {
		if host, _, ok := cutIPv4(r.RemoteAddr); ok {
			return host
		}
	}
	n := c.node(r)
	if n.text != "" {
		return n.text
	}
	return c.keyOf(n.addr)
}

// node returns the client that sent r.
func (c *Resolver) node(r *http.Request) node {
	n := parseNode(r.RemoteAddr)
	if c.header != "" && c.trusts(r, n) {
		n = c.readClient(c, n, r.Header[c.header])
	}
	return n
}

// In reports whether the address of the client that sent r is in one of the networks, by itself or,
// behind NAT64, by the IPv4 address embedded in it. It is the whole address, whatever the key is.
func (c *Resolver) In(r *http.Request, s Prefixes) bool {
	a := c.node(r).addr
	return a.IsValid() && (s.contains(a) || nat64.Contains(a) && s.contains(embedded(a)))
}

// clientBehind returns the client of a trusted proxy according to the values of the header, as
// far as they can be parsed.
func (c *Resolver) clientBehind(proxy node, values []string) node {
	switch c.header {
	case XForwardedFor:
		return c.walk(values, proxy, cutLast, parseNode)
	case Forwarded:
		return c.walk(values, proxy, cutLastQuoted, parseForwarded)
	}
	if len(values) == 1 {
		if n := parseNode(trim(values[0])); n.isHost() {
			return n
		}
	}
	return proxy
}

// NamePeer reports whether values of a header field contain the address of the peer.
func NamePeer(header string, values []string, remoteAddr string) bool {
	peer := parseNode(remoteAddr).addr
	if !peer.IsValid() {
		return false
	}
	cut, parse := cutLast, parseNode
	if header == Forwarded {
		cut, parse = cutLastQuoted, parseForwarded
	}
	for _, value := range values {
		for value != "" {
			var element string
			value, element = cut(value)
			if parse(trim(element)).addr == peer {
				return true
			}
		}
	}
	return false
}

// node is one end of a connection, as RemoteAddr or a header names it. The zero node is
// one that couldn't be parsed.
type node struct {
	addr netip.Addr // unmapped, without a zone
	// text is the address as it was written, if that is its canonical form, as it is
	// for IPv4. It saves formatting the address again.
	text string
}

// isHost reports whether n names a host: 0.0.0.0 and :: don't.
func (n node) isHost() bool { return n.addr.IsValid() && !n.addr.IsUnspecified() }

// maxNodeLength is longer than any address with zone and port. It keeps zones of a megabyte
// out of netip, which remembers zones.
const maxNodeLength = 128

// parseNode parses ip, ip:port, [ip6] and [ip6]:port, and nothing else.
func parseNode(s string) node {
	if s == "" || len(s) > maxNodeLength {
		return node{}
	}
	if host, bytes, ok := cutIPv4(s); ok {
		return node{addr: netip.AddrFrom4(bytes), text: host}
	}
	host, port, bracketed := s, "", s[0] == '['
	if bracketed {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return node{}
		}
		host, port = s[1:end], s[end+1:]
	} else if i := strings.IndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i+1:], ':') < 0 {
		host, port = s[:i], s[i:]
	}
	if port != "" {
		_, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || port[0] != ':' || len(port) > len(":65535") {
			return node{}
		}
	}
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil, bracketed && (a.Is4() || strings.IndexByte(host, '[') >= 0):
		return node{} // brackets are for IPv6 only, and there is none inside
	case a.Is4():
		return node{addr: a, text: host}
	}
	return node{addr: a.WithZone("").Unmap()}
}

// cutIPv4 parses the most frequent form: an IPv4 address and a port. A text that it rejects
// may still be an address.
func cutIPv4(s string) (host string, bytes [4]byte, ok bool) {
	i := 0
	for n := range bytes {
		if i == len(s) {
			return "", bytes, false
		}
		// Up to three digits, without a leading zero. They are looked at one by one: this
		// takes two thirds of the time of a loop over all bytes.
		octet := uint(s[i] - '0')
		if octet > 9 {
			return "", bytes, false
		}
		if i++; octet > 0 && i < len(s) && s[i]-'0' <= 9 {
			octet = 10*octet + uint(s[i]-'0')
			if i++; i < len(s) && s[i]-'0' <= 9 {
				octet = 10*octet + uint(s[i]-'0')
				i++
			}
		}
		end := byte('.')
		if n == len(bytes)-1 {
			end = ':'
		}
		if octet > 255 || i == len(s) || s[i] != end {
			return "", bytes, false
		}
		bytes[n] = byte(octet)
		i++
	}
	port := 0
	for _, c := range []byte(s[i:]) {
		if c -= '0'; c > 9 {
			return "", bytes, false
		}
		port = 10*port + int(c)
	}
	digits := len(s) - i
	return s[:i-1], bytes, 1 <= digits && digits <= 5 && port <= 65535
}

// keyOf returns the key for an address.
func (c *Resolver) keyOf(a netip.Addr) string {
	if !a.IsValid() {
		return unknownPeer
	}
	a = embedded(a)
	var room [64]byte
	if a.Is4() {
		return string(a.AppendTo(room[:0]))
	}
	p, _ := a.Prefix(c.bits) // it fails only for bits that New rejects
	return string(p.AppendTo(room[:0]))
}

// trusts reports whether the peer is a trusted proxy. Whether the peer is
// on a Unix socket is read from the listener: RemoteAddr is text that a middleware may
// have overwritten.
func (c *Resolver) trusts(r *http.Request, peer node) bool {
	if peer.addr.IsValid() {
		return c.trusted.contains(peer.addr)
	}
	if !c.unix {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && strings.HasPrefix(local.Network(), "unix")
}

// maxHops bounds the work that a header can cause. No service runs 32 proxies in a row.
const maxHops = 32

// walk reads a list that proxies append to, from its end. While the last node is a
// trusted proxy, the one before it is that proxy's peer. walk returns
// the first node that isn't trusted, or else the last one that could be parsed.
func (c *Resolver) walk(values []string, last node, cut func(string) (rest, element string),
	parse func(string) node) node {
	hops := 0
	for i := len(values) - 1; i >= 0; i-- {
		for rest := trimEmpty(values[i]); rest != ""; rest = trimEmpty(rest) {
			var element string
			rest, element = cut(rest)
			n := parse(trim(element))
			if !n.isHost() {
				return last
			}
			last = n
			hops++
			if hops == maxHops || !c.trusted.contains(n.addr) {
				return last
			}
		}
	}
	return last
}
