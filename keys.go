package stint

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/stint-go/stint/internal/compile"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/mistake"
)

// Key identifies the caller of a request: requests with the same key share a limit. RemoteIP,
// Header and the other functions of this package return Keys; KeyFunc makes one of a function, and
// stintgin.Key and stintecho.Key of what their framework's own context holds.
//
// Keys are values: == compares them, and they may be keys of a map. Two keys made by the same
// function with the same arguments are equal, with one exception: a key made by KeyFunc,
// stintgin.Key or stintecho.Key equals only its copies. Equal keys are read once per request,
// however many limits use them. New rejects the zero Key, and a Key made with arguments that can't
// work.
//
// A key's text is up to 4 KiB long. It is escaped, and hashed if it is long, before a
// store sees it. An empty one is handled by WithEmptyKey. An error never lets a request
// pass: it goes to the error handler, and by default the answer is 500, or the status of
// the error's StatusCode() int method.
type Key struct{ is *keys.Key }

// KeyFunc makes a Key of f, for an identity that only the application knows:
//
//	stint.KeyFunc(func(r *http.Request) (string, error) { return sessionOf(r).UserID, nil })
//
// f is called at most once per request for each Key made of it, before the next handler,
// and must be safe for concurrent use. New doesn't call it, and rejects a nil f. The
// limiter looks at what f returns for the first requests, for likely mistakes; see
// WithoutWarnings. It doesn't detect that f returns a forwarding header, which any client can
// write: use ForwardedIP or HeaderIP.
func KeyFunc(f func(*http.Request) (string, error)) Key {
	if f == nil {
		return misconfigured(&mistake.Mistake{Option: "KeyFunc(nil)", Write: "write a function, or a Key such as stint.RemoteIP()"})
	}
	return Key{keys.Made("KeyFunc", f)}
}

// AdapterKey makes a Key of f for requests through one adapter, which has a framework with a
// context of its own: f finds that through the request's context, and returns an error if
// the request doesn't lead there. adapter is the name of the adapter's package. Others
// reject the key when they mount a limiter; see Limiter.Mount. The rules of
// KeyFunc apply to f.
func AdapterKey(adapter string, f func(*http.Request) (string, error)) Key {
	if f == nil {
		return KeyFunc(nil)
	}
	return Key{keys.In(adapter, f)}
}

func init() { keys.Described = func(key any) *keys.Key { return key.(Key).described() } }

// described returns what the key is, or for the zero Key that it is none.
func (k Key) described() *keys.Key {
	if k.is == nil {
		return keys.Wrong(mistake.List{{Option: "Key{}", Write: "write a key, such as stint.RemoteIP()"}})
	}
	return k.is
}

// Of returns the key of a request. The zero Key returns an error.
func (k Key) Of(r *http.Request) (string, error) {
	if k == (Key{}) {
		return "", errZeroKey
	}
	return k.is.Of(r)
}

var errZeroKey = errors.New("stint: the zero Key has no key of a request: use one such as stint.RemoteIP()")

// String returns the function that made the key, with its arguments, for pages and logs:
// Header("X-API-Key"). It doesn't contain the secret of Hash.
func (k Key) String() string {
	if k == (Key{}) {
		return "Key{}"
	}
	return k.is.Name
}

// misconfigured returns a Key made with arguments that can't work, which New reports.
func misconfigured(all ...*mistake.Mistake) Key { return Key{keys.Wrong(all)} }

// WithKey sets who is limited: requests with the same key share a limit. It is required, on
// each limit or as a default, because no default would be safe: behind a proxy every
// request has the proxy's address. New rejects a limit without a key, and the zero Key.
//
// Unlike other settings, a second WithKey at the same level (New, one route, one limit)
// doesn't replace the first: New rejects it. FirstOf makes one key of an API key or else an
// address; Join makes one of both together.
func WithKey(k Key) SharedOption {
	return settingOption{setting: setting{name: "WithKey"}, sharedSetting: func(s *compile.Settings) {
		if s.Key != nil {
			s.Errs.Bad("WithKey", "given twice", "write one: stint.FirstOf(a, b) for the first key that isn't empty, or stint.Join(a, b) for both together")
		}
		s.Key = k.described()
		s.Errs = append(s.Errs, s.Key.Wrong.Within("WithKey")...)
	}}
}

// EmptyKeyPolicy says what happens to a request with an empty key.
type EmptyKeyPolicy uint8

const (
	// DenyEmptyKey answers 403.
	DenyEmptyKey EmptyKeyPolicy = iota
	// SkipEmptyKey leaves out the limit whose key is empty.
	SkipEmptyKey
)

// WithEmptyKey sets what happens to a request whose key is empty. The default is
// DenyEmptyKey: an empty key never becomes a bucket that strangers share. If limits of a
// request differ, it is denied if one of them denies it. New rejects values other than
// DenyEmptyKey and SkipEmptyKey.
func WithEmptyKey(p EmptyKeyPolicy) SharedOption {
	return checkedSetting(p <= SkipEmptyKey, fmt.Sprintf("WithEmptyKey(%d)", p), "write stint.DenyEmptyKey or stint.SkipEmptyKey",
		func(s *compile.Settings) { s.SkipEmpty, s.EmptySet = p == SkipEmptyKey, true })
}

// IP says how a client is identified by its address. RemoteIP, ForwardedIP,
// and HeaderIP are short for the usual settings; the zero value
// keys like RemoteIP.
//
// The key is an IPv4 address ("192.0.2.7"), or the IPv6 network from which a client may
// pick its addresses ("2001:db8:1:2::/64"). ::ffff:192.0.2.7, and
// 64:ff9b::192.0.2.7 as NAT64 gateways write it (RFC 6052), have the key "192.0.2.7". Zones are
// dropped. So no client has two keys. Peers without an address, such as those of a Unix socket,
// share the key "unknown".
//
// A header is read only if the peer is a trusted proxy, because any client can send any
// header. If something can't be parsed, the nearest known address is used, in the end
// the peer's own. It is never an error and never exempts from a limit.
type IP struct {
	// Header is the one header field that the proxies write. X-Forwarded-For and
	// Forwarded (RFC 7239) are lists to which each proxy appends the address it was
	// connected from. They are read from the right, over all lines, up to the first
	// address that isn't a trusted proxy's; what is left of that may be forged by the
	// client. At most 32 hops are followed. Any other field must hold one address on
	// one line. By default no header is read.
	Header string
	// Trusted are the addresses that proxies connect from: the proxy next to the server
	// and, for the lists, those behind it. New rejects networks that add up to all
	// addresses (all of IPv4, or 2000::/3, where IPv6 clients are). The NAT64 form of
	// an address is trusted only if written so.
	Trusted []netip.Prefix
	// TrustUnix makes the peer of a Unix socket that the server listens on a trusted
	// proxy. The default is false.
	TrustUnix bool
	// IPv6Bits is how many bits of an IPv6 address identify a client, from 48 to 128.
	// The default is 64, the network that a host or a home is given. Providers that
	// give out /56 or /48 let a client have 256 or 65,536 of those.
	IPv6Bits int
}

// RemoteIP keys on the address that the request was sent from. Behind a proxy that is
// the proxy's address for everybody: use ForwardedIP there.
func RemoteIP() Key { return Key{keys.RemoteIP} }

// ForwardedIP keys on the client's address in X-Forwarded-For, as far as proxies with
// trusted addresses wrote it; see IP. Requests that don't come from such a proxy are
// keyed like RemoteIP. New rejects it without trusted addresses.
func ForwardedIP(trusted ...netip.Prefix) Key {
	return IP{Header: "X-Forwarded-For", Trusted: trusted}.key("ForwardedIP")
}

// HeaderIP keys on the client's address in another header field that a proxy writes; see IP. The
// field is Forwarded (RFC 7239), a list that is read as ForwardedIP reads X-Forwarded-For, or a
// field that the proxy replaces and that holds one address, such as CF-Connecting-IP or X-Real-IP.
// If a field of the second kind isn't exactly one line with one address, the request is keyed like
// RemoteIP. New rejects a name that isn't a header field's, the name X-Forwarded-For, and a call
// without trusted addresses.
func HeaderIP(name string, trusted ...netip.Prefix) Key {
	switch {
	case !clientip.IsFieldName(name):
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("HeaderIP(%.80q)", name),
			Write: `write the name of a header field, such as "X-Real-IP"`})
	case http.CanonicalHeaderKey(name) == clientip.XForwardedFor:
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("HeaderIP(%q)", name),
			Problem: "this field is a list", Write: "write stint.ForwardedIP"})
	}
	return IP{Header: name, Trusted: trusted}.key("HeaderIP")
}

// Key returns the Key. New reports what is wrong with the fields.
func (ip IP) Key() Key { return ip.key("IP") }

// key is Key under the name of the function that the caller used.
func (ip IP) key(name string) Key {
	k, wrong := keys.Address(clientip.Source(ip))
	if wrong != nil {
		return misconfigured(addressed(name, wrong)...)
	}
	return Key{k}
}

// addressed returns problems with addresses as mistakes in the arguments of option.
func addressed(option string, problems []clientip.Problem) (m mistake.List) {
	for _, p := range problems {
		m.Bad(option, p.What, p.Write, p.Names...)
	}
	return m
}

// Header keys on the value of a header field, such as an API key. The key is empty if
// the request doesn't have the field. New rejects names that aren't a header field's,
// X-Forwarded-For and Forwarded (use ForwardedIP and HeaderIP), and Host,
// which net/http keeps in Request.Host.
//
// If a request has several lines of the field, the first is the key; http.Header.Get returns the
// same one to a handler. So a client that authenticates with an API key is charged for that API
// key, even if it adds more lines. If the limiter runs before authentication, the value is
// unchecked: a client that makes up values gets a bucket for each, so put a limit by address beside
// it.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !clientip.IsFieldName(name):
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("Header(%.80q)", name),
			Write: `write the name of a header field, such as "X-API-Key"`})
	case canonical == clientip.XForwardedFor:
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("Header(%q)", name), Problem: "a client can write anything into this field",
			Write: "write stint.ForwardedIP and the addresses of your proxies"})
	case canonical == clientip.Forwarded:
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("Header(%q)", name), Problem: "a client can write anything into this field",
			Write: "write stint.HeaderIP and the addresses of your proxies"})
	case canonical == "Host":
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("Header(%q)", name), Problem: "net/http moves this field to r.Host",
			Write: "write stint.KeyFunc(func(r *http.Request) (string, error) { return r.Host, nil })"})
	}
	return Key{keys.Header(canonical)}
}

// Cookie keys on the value of a cookie. The key is empty if the request doesn't have
// the cookie. If there are several of that name, the first counts, as in
// http.Request.Cookie. New rejects names that aren't a cookie's. A session cookie is as
// secret as a password: wrap the key in Hash so that a store never holds it.
func Cookie(name string) Key {
	if !clientip.IsFieldName(name) {
		return misconfigured(&mistake.Mistake{Option: fmt.Sprintf("Cookie(%.80q)", name), Write: `write the name of a cookie, such as "session"`})
	}
	return Key{keys.Cookie(name)}
}

// Pattern keys on http.Request.Pattern, the pattern that the router around the limiter has
// matched, so every route gets its own count. http.ServeMux and chi set it, as stintgin and stintecho
// do; docs/routers.md has more routers. Requests that match none, or that reach the limiter before
// the router, share one key: with the path itself a client could make up as many keys as it likes.
// For a limiter around a ServeMux, use MuxPattern; the warning one-key finds the mistake if the key
// is Pattern alone.
func Pattern() Key { return Key{keys.Pattern} }

// MuxPattern keys on the pattern that mux will match, for a limiter that is wrapped
// around it. Requests that match none share one key. New rejects a nil mux.
func MuxPattern(mux *http.ServeMux) Key {
	if mux == nil {
		return misconfigured(&mistake.Mistake{Option: "MuxPattern(nil)", Write: "write the *http.ServeMux that the limiter is wrapped around"})
	}
	return Key{keys.MuxPattern(mux)}
}

// Method keys on the request's method. Methods that RFC 9110 and RFC 5789 don't define
// share the key "other": a client may send any word as a method.
func Method() Key { return Key{keys.Method} }

// Global gives every request the same key: the limit applies to the service as a whole,
// not to a client. Allow, Take, Wait and Peek charge it under that key too, whatever
// key they are given, so requests and jobs share it.
func Global() Key { return Key{keys.Global} }

// GivenKey is the key that Allow, Take, Wait and Peek are given. Use it for limiters of
// jobs, queues and outgoing calls. Requests don't have such a key: adapters panic when
// they mount such a limiter, and Admit denies its requests. It can't be part of Join,
// FirstOf or Hash, which New reports: give Take a key that is already joined or hashed.
func GivenKey() Key { return Key{keys.Given} }

// Join keys on several things at once, such as a tenant and a route. Each part is
// joined with its length, so two different lists of parts never give the same key. If a
// part is empty, the joined key is empty: half an identity is none. Every part is
// computed, even after an empty one. New rejects it without parts, and the zero Key and
// GivenKey as a part.
func Join(parts ...Key) Key {
	all, wrong := partsOf("Join", parts)
	if len(parts) == 0 {
		wrong.Bad("Join()", "", `write the keys to join, such as stint.Header("X-Tenant"), stint.Pattern()`)
	}
	if wrong != nil {
		return misconfigured(wrong...)
	}
	return Key{keys.Join(all)}
}

// FirstOf keys on the first key that isn't empty, such as an API key or else an address;
// put it behind authentication, or put a limit by address beside it, because a client that
// makes up API keys has a bucket for each.
//
// The parts never share a bucket: a client that sends another client's address as its API key
// isn't charged as that address. Parts after the first that isn't empty aren't computed. If
// a part fails, so does the key: a request whose session can't be read isn't limited as
// an anonymous one. If all parts are empty, so is the key.
//
// The text of a key of the first part is that of the part, and those of the others begin
// with their number and "~". New rejects a FirstOf without parts, the zero Key and GivenKey
// as a part, and a part that is never empty before others, such as RemoteIP.
func FirstOf(parts ...Key) Key {
	all, wrong := partsOf("FirstOf", parts)
	if len(parts) == 0 {
		wrong.Bad("FirstOf()", "", `write the keys to choose from, such as stint.Header("X-API-Key"), stint.RemoteIP()`)
	}
	for i, k := range all {
		if k != nil && k.Never && i < len(all)-1 {
			wrong.Bad("FirstOf", "%v is never empty, so no key after it counts", "write it last", k.Name)
		}
	}
	if wrong != nil {
		return misconfigured(wrong...)
	}
	return Key{keys.FirstOf(all)}
}

// partsOf returns the parts of a key, and what is wrong with them together.
func partsOf(maker string, parts []Key) (all []*keys.Key, wrong mistake.List) {
	for i, part := range parts {
		k := part.is
		switch {
		case k == nil:
			wrong.Bad(maker, fmt.Sprintf("key %d is the zero Key", i+1), "write one, or leave it out")
		case k.Given:
			wrong.Bad(maker, "%v can't be a part of a key", "give Take a key that is already made of its parts", "GivenKey()")
		default:
			wrong = append(wrong, k.Wrong...)
		}
		all = append(all, k)
	}
	return all, wrong
}

// Hash keys on a keyed hash of another key, for identities that should not be readable
// in a store: addresses, cookies, API keys. The hash is the first 16 bytes of
// HMAC-SHA256 (RFC 2104) under secret, in base64url. An empty key stays empty.
//
// Instances that share a store must share the secret; a new secret starts all counts
// anew. The secret needs at least 16 bytes, better 32 random ones: otherwise every IPv4
// address could be hashed and compared. New rejects a shorter secret, the zero Key and
// GivenKey.
func Hash(secret []byte, k Key) Key {
	var wrong mistake.List
	if len(secret) < keytext.MinSecret {
		wrong.Bad("Hash", fmt.Sprintf("a secret of %d bytes can be guessed", len(secret)),
			fmt.Sprintf("write %d random ones or more, the same on every instance", keytext.MinSecret))
	}
	switch hashed := k.is; {
	case hashed == nil:
		wrong.Bad("Hash", "the key is the zero Key", "write the one to hash, such as stint.RemoteIP()")
	case hashed.Given:
		wrong.Bad("Hash", "%v can't be hashed", "give Take a key that is already hashed", "GivenKey()")
	default:
		wrong = append(wrong, hashed.Wrong...)
	}
	if wrong != nil {
		return misconfigured(wrong...)
	}
	return Key{keys.Hash(secret, k.is)}
}
