package stint

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/stint-go/stint/internal/clientip"
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
	case !clientip.IsFieldName(name):
		return misconfigured(&OptionError{Option: fmt.Sprintf("SingleIPHeader(%.80q)", name),
			Write: `write the name of a header field, such as "X-Real-IP"`})
	case canonical == clientip.XForwardedFor:
		return misconfigured(&OptionError{Option: fmt.Sprintf("SingleIPHeader(%q)", name),
			Problem: "this field is a list", Write: "write stint.ForwardedIP"})
	case canonical == clientip.Forwarded:
		return misconfigured(&OptionError{Option: fmt.Sprintf("SingleIPHeader(%q)", name),
			Problem: "this field is a list", Write: "write stint.ForwardedHeaderIP"})
	}
	return IP{Header: name, Trusted: trusted}.key("SingleIPHeader")
}

// Key makes the KeyFunc. What is wrong with the fields is reported by the New
// that it is given to.
func (ip IP) Key() KeyFunc { return ip.key("IP") }

// key is Key under the name of the function that the caller wrote.
func (ip IP) key(name string) KeyFunc {
	client, wrong := clientip.New(clientip.Source(ip))
	if wrong != nil {
		return misconfigured(addressed(name, wrong)...)
	}
	return func(r *http.Request) (string, error) { return client.Key(r), nil }
}

// addressed are mistakes in addresses given to a function.
func addressed(option string, problems []clientip.Problem) (m mistakes) {
	for _, p := range problems {
		m.bad(option, p.What, p.Write)
	}
	return m
}

// FromCIDR is true for requests whose peer has an address in one of the
// networks: for WithSkip and internal callers, or WithBlock. It looks at the
// connection only and never at a header, so behind a proxy it sees the proxy.
//
// An IPv4 network also holds its addresses in their IPv6 spellings, mapped
// (::ffff:0:0/96) and NAT64 (64:ff9b::/96). A peer without an address is in no
// network. The time a call takes hardly grows with the number of networks. A
// prefix that is invalid is reported by New.
func FromCIDR(prefixes ...netip.Prefix) func(*http.Request) bool {
	set, problems := clientip.NewPrefixes(prefixes)
	wrong := addressed("FromCIDR", problems)
	if len(prefixes) == 0 {
		wrong.bad("FromCIDR", "no network", `write some, such as netip.MustParsePrefix("10.0.0.0/8"), or leave the predicate out`)
	}
	if wrong != nil {
		return func(r *http.Request) bool {
			if report, ok := r.Context().Value(predicateProbe{}).(*configError); ok {
				report.mistakes = append(report.mistakes, wrong...)
			}
			return false
		}
	}
	return func(r *http.Request) bool { return set.HasPeer(r.RemoteAddr) }
}

// Preflight is true for the request that a browser sends by itself before a
// cross-origin one: OPTIONS with Origin and Access-Control-Request-Method. With
// WithSkip these aren't limited; by default they are, as any client can send
// them.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
