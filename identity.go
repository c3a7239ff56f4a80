package stint

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// IP says how a client is told by its address. RemoteIP, ForwardedIP,
// ForwardedHeaderIP and SingleIPHeader are short for the usual ones; the zero
// value keys like RemoteIP.
//
// The key is an IPv4 address ("192.0.2.7"), or the IPv6 network a client may
// pick its addresses from ("2001:db8:1:2::/64"). Other spellings of an IPv4
// address (::ffff:192.0.2.7, and 64:ff9b::192.0.2.7 as NAT64 gateways write it,
// RFC 6052) have the IPv4 address's key, and zones are dropped, so no client
// has two keys. If the peer has no address (a Unix socket's hasn't) all share
// the key "unknown".
//
// A header is read only if the peer is a trusted proxy, and never guessed: any
// client can send any header. Whatever can't be read falls back to the nearest
// address that is known, in the end the peer's own. It is never an error and
// never exempts from a limit.
type IP struct {
	// Header is the one header field that the proxies write. X-Forwarded-For
	// and Forwarded (RFC 7239) are lists to which each proxy appends the
	// address it was connected from. They are read from the right, over all
	// lines, up to the first address that isn't a trusted proxy's; everything
	// left of that was sent by the client. More than 32 hops aren't followed.
	// Any other field holds one address on one line. By default none is read.
	Header string
	// Trusted are the addresses that proxies connect from: the one next to the
	// server, and for the lists those behind it. All addresses (/0) are
	// refused. The NAT64 form of an address is trusted only if written so.
	Trusted []netip.Prefix
	// TrustUnix makes the peer of a Unix socket that the server listens on a
	// trusted proxy. By default it isn't.
	TrustUnix bool
	// IPv6Bits is how much of an IPv6 address tells a client, from 48 to 128.
	// The default is 64, the network that a host or a home is given; providers
	// that give out /56 or /48 let a client have 256 or 65,536 of those.
	IPv6Bits int
}

// RemoteIP keys on the address that the request was sent from. Behind a proxy
// it is the proxy's for everybody: there write ForwardedIP.
func RemoteIP() KeyFunc { return IP{}.key("RemoteIP") }

// ForwardedIP keys on the client's address in X-Forwarded-For, as far as
// proxies with trusted addresses wrote it; see IP. Requests that don't come
// from such a proxy are keyed like RemoteIP.
func ForwardedIP(trusted ...netip.Prefix) KeyFunc {
	return IP{Header: "X-Forwarded-For", Trusted: trusted}.key("ForwardedIP")
}

// ForwardedHeaderIP is ForwardedIP for proxies that write the standard field,
// Forwarded (RFC 7239).
func ForwardedHeaderIP(trusted ...netip.Prefix) KeyFunc {
	return IP{Header: "Forwarded", Trusted: trusted}.key("ForwardedHeaderIP")
}

// SingleIPHeader keys on the client's address in a field that the proxy
// replaces and that holds nothing else, such as CF-Connecting-IP or X-Real-IP;
// see IP. A request in which it isn't exactly one line with one address is
// keyed like RemoteIP.
func SingleIPHeader(name string, trusted ...netip.Prefix) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !isToken(name):
		return misconfigured(fmt.Sprintf("SingleIPHeader(%.80q): write the name of a header field, such as %q", name, "X-Real-IP"))
	case canonical == xForwardedFor:
		return misconfigured(fmt.Sprintf("SingleIPHeader(%q): this field is a list: write stint.ForwardedIP", name))
	case canonical == forwarded:
		return misconfigured(fmt.Sprintf("SingleIPHeader(%q): this field is a list: write stint.ForwardedHeaderIP", name))
	}
	return IP{Header: name, Trusted: trusted}.key("SingleIPHeader")
}

// Key makes the KeyFunc. What is wrong with the fields is reported by the New
// that it is given to.
func (ip IP) Key() KeyFunc { return ip.key("IP") }

const (
	xForwardedFor = "X-Forwarded-For"
	forwarded     = "Forwarded"
)

// key is Key under the name of the function that the caller wrote.
func (ip IP) key(name string) KeyFunc {
	id := identifier{
		header: http.CanonicalHeaderKey(ip.Header),
		unix:   ip.TrustUnix,
		bits:   ip.IPv6Bits,
	}
	if id.bits == 0 {
		id.bits = 64
	}
	var problems []string
	bad := func(format string, args ...any) {
		problems = append(problems, name+": "+fmt.Sprintf(format, args...))
	}
	var invalid []string
	id.trusted, invalid = newPrefixSet(ip.Trusted)
	for _, text := range invalid {
		bad("%s", text)
	}
	for _, p := range id.trusted {
		if p.Bits() == 0 {
			bad("trusting %v lets every client name the address it is limited by: "+
				"write the addresses that your proxies connect from", p)
		}
	}
	trusts := len(ip.Trusted) > 0 || ip.TrustUnix
	switch {
	case ip.Header != "" && !isToken(ip.Header):
		bad("%.80q is not a header field: write its name, such as %q", ip.Header, xForwardedFor)
	case ip.Header != "" && !trusts:
		bad("no proxy is trusted, so %s would never be read: write the addresses that your proxies connect from, "+
			"such as netip.MustParsePrefix(%q), or stint.RemoteIP() if there are none", id.header, "10.0.0.0/8")
	case ip.Header == "" && trusts:
		bad("proxies are trusted, but no header field is to be read: write the Header that they set, such as %q", xForwardedFor)
	}
	if id.bits < 48 || id.bits > 128 {
		bad("%d bits of an IPv6 address: write 48 to 128, or 0 for 64", ip.IPv6Bits)
	}
	if problems != nil {
		return misconfigured(problems...)
	}
	return func(r *http.Request) (string, error) { return id.key(r), nil }
}

// identifier is an IP that has been checked. It is never changed.
type identifier struct {
	header  string // canonical, or empty
	trusted prefixSet
	unix    bool
	bits    int
}

// unknownPeer is the key of all peers without an address. It is a key and not
// an error or an empty one: whatever a client does to its address, it is
// limited.
const unknownPeer = "unknown"

func (id *identifier) key(r *http.Request) string {
	peer := parseNode(r.RemoteAddr)
	if id.header == "" || !id.trusts(r, peer) {
		return id.name(peer)
	}
	lines := r.Header[id.header]
	switch id.header {
	case xForwardedFor:
		return id.name(id.walk(lines, peer, cutLast, parseNode))
	case forwarded:
		return id.name(id.walk(lines, peer, cutLastQuoted, parseForwarded))
	}
	if len(lines) == 1 {
		if n := parseNode(trim(lines[0])); n.isHost() {
			return id.name(n)
		}
	}
	return id.name(peer)
}

// trusts reports whether the peer may say for whom it asks. That it is a Unix
// socket's is taken from the listener: RemoteAddr is text that a middleware may
// have overwritten.
func (id *identifier) trusts(r *http.Request, peer node) bool {
	if peer.addr.IsValid() {
		return id.trusted.contains(peer.addr)
	}
	if !id.unix {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && strings.HasPrefix(local.Network(), "unix")
}

// maxHops bounds the work a header can cause. Nobody runs 32 proxies in a row.
const maxHops = 32

// walk reads a list that proxies append to from its end: as long as the last
// node is a trusted proxy, the one before it is what that proxy was connected
// from. It returns the first that isn't trusted, or else the last that could
// be read.
func (id *identifier) walk(lines []string, last node, cut func(string) (rest, element string), parse func(string) node) node {
	hops := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest := trimEmpty(lines[i]); rest != ""; rest = trimEmpty(rest) {
			var element string
			rest, element = cut(rest)
			n := parse(trim(element))
			if !n.isHost() {
				return last
			}
			last = n
			hops++
			if hops == maxHops || !id.trusted.contains(n.addr) {
				return last
			}
		}
	}
	return last
}

// name is the key of a node.
func (id *identifier) name(n node) string {
	a := n.addr
	switch {
	case !a.IsValid():
		return unknownPeer
	case n.text != "":
		return n.text
	}
	a = embedded(a)
	var room [64]byte
	if a.Is4() {
		return string(a.AppendTo(room[:0]))
	}
	p, _ := a.Prefix(id.bits) // an error is of bits that New refuses
	return string(p.AppendTo(room[:0]))
}

// nat64 is where gateways put the IPv4 addresses of their clients (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded is the IPv4 address in a NAT64 one; other addresses are returned as
// they are. Without it all IPv4 clients of a gateway would share one /64.
func embedded(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// prefixSet is a set of networks, in ascending order and none within another,
// so that the only one that can hold an address is the last at or below it.
type prefixSet []netip.Prefix

// newPrefixSet normalises prefixes: netip takes 10.1.2.3/8 and ::ffff:10.0.0.0/104
// as they are, and then Contains is not what one would think. It returns what
// has to be written instead of those that can't be.
func newPrefixSet(prefixes []netip.Prefix) (s prefixSet, problems []string) {
	for i, p := range prefixes {
		switch {
		case !p.IsValid():
			problems = append(problems, fmt.Sprintf("prefix %d is invalid: write one such as netip.MustParsePrefix(%q), "+
				"and check the error of netip.ParsePrefix", i+1, "10.0.0.0/8"))
			continue
		case p.Addr().Is4In6() && p.Bits() < 96:
			problems = append(problems, fmt.Sprintf("%v is wider than all of IPv4: write an IPv4 prefix, such as 10.0.0.0/8", p))
			continue
		case p.Addr().Is4In6():
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		s = append(s, p.Masked())
	}
	slices.SortFunc(s, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	n := 0
	for _, p := range s {
		if n == 0 || !s[n-1].Overlaps(p) {
			s[n] = p
			n++
		}
	}
	return s[:n], problems
}

// contains takes addresses as parseNode gives them: unmapped, without a zone.
func (s prefixSet) contains(a netip.Addr) bool {
	low, high := 0, len(s)
	for low < high {
		if mid := int(uint(low+high) >> 1); s[mid].Addr().Compare(a) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && s[low-1].Contains(a)
}
