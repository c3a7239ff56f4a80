package stint

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/routing"
)

// KeyFunc says who a request is charged to: requests with the same key share a
// limit. It is called at most once a request, before the next handler, and has
// to be safe for concurrent use. An empty key is answered as WithEmptyKey says;
// an error goes to the error handler and never lets a request pass. It is
// answered with 500, or with the status of its StatusCode() int method.
//
// Any text of up to 4 KiB is a key: it is escaped, and hashed if it is long,
// before a store sees it. Write one inline for an identity that only the
// application knows:
//
//	func(r *http.Request) (string, error) { return sessionOf(r).UserID, nil }
//
// What gin's or echo's own context knows is for stintgin.Key and stintecho.Key.
//
// New calls every key function once with a request without header fields, to
// find out whether it was made with arguments that can't work.
type KeyFunc func(*http.Request) (string, error)

var (
	// ErrEmptyKey refuses a request whose key is empty, unless WithEmptyKey
	// says that such requests aren't limited.
	ErrEmptyKey = keytext.ErrEmpty
	// ErrKeyTooLong refuses a request whose key is longer than 4 KiB.
	ErrKeyTooLong = keytext.ErrTooLong
)

// configError is what a KeyFunc made with arguments that can't work returns,
// to New first of all, which reports it.
type configError struct{ mistakes mistakes }

func (e *configError) Error() string { return e.mistakes.joined().Error() }

// misconfigured is the KeyFunc of arguments that can't work. It never gives a
// key: a mistake that somehow gets past New limits nobody by accident.
func misconfigured(m ...*OptionError) KeyFunc {
	err := &configError{m}
	return func(*http.Request) (string, error) { return "", err }
}

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
	// server, and for the lists those behind it. Networks that add up to all
	// addresses (all of IPv4, or 2000::/3, which IPv6 clients have) are refused.
	// The NAT64 form of an address is trusted only if written so.
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

// Header keys on the value of a header field, such as an API key. It is empty
// if the request doesn't have it. X-Forwarded-For and Forwarded are refused: they are
// for ForwardedIP and ForwardedHeaderIP.
//
// Of several lines of the field the first counts, the one that
// http.Header.Get gives a handler, whatever others a client adds: whoever
// authenticates with a key is charged for that key. Nobody has checked the
// value when the limiter runs before authentication; a client that makes
// values up then gets a bucket for each, so put a limit by address beside it.
func Header(name string) KeyFunc {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !clientip.IsFieldName(name):
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%.80q)", name),
			Write: `write the name of a header field, such as "X-API-Key"`})
	case canonical == clientip.XForwardedFor:
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%q)", name), Problem: "a client can write anything into this field",
			Write: "write stint.ForwardedIP and the addresses of your proxies"})
	case canonical == clientip.Forwarded:
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%q)", name), Problem: "a client can write anything into this field",
			Write: "write stint.ForwardedHeaderIP and the addresses of your proxies"})
	case canonical == "Host":
		return misconfigured(&OptionError{Option: fmt.Sprintf("Header(%q)", name), Problem: "net/http moves this field to r.Host",
			Write: "write func(r *http.Request) (string, error) { return r.Host, nil }"})
	}
	return func(r *http.Request) (string, error) {
		if lines := r.Header[canonical]; len(lines) > 0 {
			return lines[0], nil
		}
		return "", nil
	}
}

// Cookie keys on the value of a cookie. It is empty if the request doesn't
// have it; of several cookies of that name the first counts, as in
// http.Request.Cookie. A session's cookie is as good as a password: put Hash
// around it, so that it isn't kept in a store.
func Cookie(name string) KeyFunc {
	if !clientip.IsFieldName(name) {
		return misconfigured(&OptionError{Option: fmt.Sprintf("Cookie(%.80q)", name), Write: `write the name of a cookie, such as "session"`})
	}
	return func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil {
			return "", nil
		}
		return c.Value, nil
	}
}

// unmatched is the key of all requests that no pattern matches. Every pattern
// has a slash in it, so none can equal it.
const unmatched = "unmatched"

// Pattern keys on the pattern that the http.ServeMux around the limiter has
// matched, so it gives every route a limit of its own. Requests that match
// none, or that reach the limiter before a ServeMux, share one key: the path
// itself would let a client make up as many keys as it likes. For a limiter
// around a ServeMux write MuxPattern.
func Pattern() KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return unmatched, nil
		}
		return r.Pattern, nil
	}
}

// MuxPattern keys on the pattern that mux is going to match, for a limiter
// that is wrapped around it. Requests that match none share one key.
func MuxPattern(mux *http.ServeMux) KeyFunc {
	if mux == nil {
		return misconfigured(&OptionError{Option: "MuxPattern(nil)", Write: "write the *http.ServeMux that the limiter is wrapped around"})
	}
	return func(r *http.Request) (string, error) {
		if pattern := routing.Pattern(mux, r); pattern != "" {
			return pattern, nil
		}
		return unmatched, nil
	}
}

// Method keys on the request's method. Methods that RFC 9110 and RFC 5789
// don't name share the key "other": a client may send any word as one.
func Method() KeyFunc {
	return func(r *http.Request) (string, error) {
		switch r.Method {
		case "":
			return http.MethodGet, nil
		case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
			http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
			return r.Method, nil
		}
		return "other", nil
	}
}

// Global gives every request the same key: the limit is one of the service,
// not of a client. Allow, Take, Wait and Peek charge it under that key too, whatever
// key they are given, so that requests and jobs share it.
func Global() KeyFunc { return constant(keytext.Global) }

// constant is the key function of limits that have one key. Its functions have
// one body, by which isConstant knows them; inlined, each caller's would be
// another.
//
//go:noinline
func constant(raw string) KeyFunc {
	return func(*http.Request) (string, error) { return raw, nil }
}

func isConstant(k KeyFunc) bool { return sameBody(k, constant("")) }

func sameBody(k, l KeyFunc) bool { return reflect.ValueOf(k).Pointer() == reflect.ValueOf(l).Pointer() }

// folded is k, made of parts: constant if all of them are.
func folded(k KeyFunc, parts ...KeyFunc) KeyFunc {
	for _, p := range parts {
		if !isConstant(p) {
			return k
		}
	}
	raw, err := k(nil)
	if err != nil || raw == "" {
		return k
	}
	return constant(raw)
}

// errGivenKey refuses a request where only Take has a key.
var errGivenKey = errors.New("stint: the limit's key is GivenKey, which a request doesn't have")

// GivenKey is the key that Allow, Take, Wait and Peek are given: for limiters of jobs,
// queues and outgoing calls. Requests don't have one. Adapters panic when they
// are mounted with such a limiter, and Admit refuses its requests. It can't be a
// part of Join or Hash: give Take a key that is joined or hashed already.
func GivenKey() KeyFunc { return givenKey }

func givenKey(*http.Request) (string, error) { return "", errGivenKey }

func isGiven(k KeyFunc) bool { return sameBody(k, givenKey) }

// Join keys on several things at once, such as a tenant and a route. The parts
// are joined with their lengths, so that no two lists of parts give the same
// key, whatever is in them. If one part is empty the joined key is empty: half
// an identity is none. Every part is asked, also after an empty one.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		return misconfigured(&OptionError{Option: "Join()", Write: `write the key functions to join, such as stint.Header("X-Tenant"), stint.Pattern()`})
	}
	if i := slices.IndexFunc(keys, func(k KeyFunc) bool { return k == nil }); i >= 0 {
		return misconfigured(&OptionError{Option: "Join", Problem: fmt.Sprintf("key function %d is nil", i+1), Write: "write one, or leave it out"})
	}
	if slices.ContainsFunc(keys, isGiven) {
		return misconfigured(&OptionError{Option: "Join", Problem: "GivenKey() can't be a part of a key", Write: "give Take one that is joined"})
	}
	keys = slices.Clone(keys)
	return folded(func(r *http.Request) (string, error) {
		var room [8]string
		parts := room[:0]
		var failed error
		var wrong mistakes
		for _, k := range keys {
			part, err := k(r)
			if err != nil {
				// All mistakes are to be reported at once, and before anything
				// that merely this request lacks.
				if bad := (*configError)(nil); errors.As(err, &bad) {
					wrong = append(wrong, bad.mistakes...)
				} else if failed == nil {
					failed = err
				}
			}
			parts = append(parts, part)
		}
		switch {
		case wrong != nil:
			return "", &configError{wrong}
		case failed != nil:
			return "", failed
		}
		return keytext.Join(parts)
	}, keys...)
}

// Hash keys on a keyed hash of another key, for identities that should not be
// readable in a store: addresses, cookies, API keys. It is the first 16 bytes
// of HMAC-SHA256 under secret, in base64url. Instances that share a store
// share the secret; a new secret starts all counts anew. The secret has at
// least 16 bytes, and better 32 random ones: without a secret every IPv4
// address could be hashed and compared. An empty key stays empty.
func Hash(secret []byte, k KeyFunc) KeyFunc {
	var wrong mistakes
	if len(secret) < keytext.MinSecret {
		wrong.bad("Hash", fmt.Sprintf("a secret of %d bytes can be guessed", len(secret)),
			fmt.Sprintf("write %d random ones or more, the same on every instance", keytext.MinSecret))
	}
	if k == nil {
		wrong.bad("Hash", "the key function is nil", "write the one to hash, such as stint.RemoteIP()")
	}
	if k != nil && isGiven(k) {
		wrong.bad("Hash", "GivenKey() can't be hashed", "give Take a key that is")
	}
	if wrong != nil {
		return misconfigured(wrong...)
	}
	hash := keytext.NewHash(secret)
	return folded(func(r *http.Request) (string, error) {
		raw, err := k(r)
		if err != nil {
			return "", err
		}
		return hash.Of(raw)
	}, k)
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
