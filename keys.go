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
	"github.com/stint-go/stint/internal/optionerror"
)

// Key identifies the caller of a request: requests with the same key share a limit. RemoteIP,
// Header and the other functions of this package return Keys; KeyFunc makes one of a function;
// stintgin.Key and stintecho.Key make one of a function that reads the framework's context.
//
// Keys are values: == compares them, and they may be keys of a map. Two keys made by the same
// function with the same arguments are equal, with one exception: a key made by KeyFunc,
// stintgin.Key or stintecho.Key equals only its copies. Equal keys are read once per request,
// however many limits use them. New rejects the zero Key, and a Key made with arguments that can't
// work.
//
// A key's text is up to 4 KiB long. It is escaped, and hashed if it is long, before it is
// passed to a store. WithEmptyKey sets what happens to requests with an empty key. If a key
// function returns an error, the request is denied: the error is passed to the error handler,
// and by default the answer is 500, or the status of the error's StatusCode() int method.
type Key struct{ key *keys.Key }

// KeyFunc makes a Key of f, for an identity that only the application knows:
//
//	stint.KeyFunc(func(r *http.Request) (string, error) { return sessionOf(r).UserID, nil })
//
// f is called at most once per request for each Key made of it, before the next handler, and
// must be safe for concurrent use. New doesn't call it, and returns an error if f is nil. The
// limiter checks the keys of the first requests for likely mistakes; see WithoutWarnings. It
// doesn't detect an f that returns a forwarding header, which any client can write: use
// ForwardedIP or HeaderIP.
func KeyFunc(f func(*http.Request) (string, error)) Key {
	if f == nil {
		return invalidKey(&optionerror.Problem{Option: "KeyFunc(nil)", Write: "write a function, or a Key such as stint.RemoteIP()"})
	}
	return Key{keys.FromFunc("KeyFunc", f)}
}

// AdapterKey returns a Key that calls f, for adapters to a framework with its own context type.
// f finds the framework's context in the request's context, and returns an error if there is
// none. adapter is the name of the adapter's package. Other adapters reject the key when they
// mount a limiter; see Limiter.Mount. The rules of KeyFunc apply to f.
func AdapterKey(adapter string, f func(*http.Request) (string, error)) Key {
	if f == nil {
		return KeyFunc(nil)
	}
	return Key{keys.FromAdapterFunc(adapter, f)}
}

func init() { keys.Described = func(key any) *keys.Key { return key.(Key).described() } }

// described returns the description of the key. That of the zero Key is invalid.
func (k Key) described() *keys.Key {
	if k.key == nil {
		return keys.Invalid(optionerror.List{{Option: "Key{}", Write: "write a key, such as stint.RemoteIP()"}})
	}
	return k.key
}

// Of returns the key of a request. The zero Key returns an error.
func (k Key) Of(r *http.Request) (string, error) {
	if k == (Key{}) {
		return "", errZeroKey
	}
	return k.key.Read(r)
}

var errZeroKey = errors.New("stint: the zero Key has no key of a request: use one such as stint.RemoteIP()")

// String returns the call that made the key, for pages and logs: Header("X-API-Key"). It
// doesn't contain the secret of Hash.
func (k Key) String() string {
	if k == (Key{}) {
		return "Key{}"
	}
	return k.key.Name
}

// invalidKey returns a Key made with arguments that can't work. New reports the problems.
func invalidKey(all ...*optionerror.Problem) Key { return Key{keys.Invalid(all)} }

// WithKey sets the key of a limit: requests with the same key share the limit. Each limit needs
// a key, its own or a default from the limiter or route, because no built-in default would be
// safe: behind a proxy every request has the proxy's address. New returns an error for a limit
// without a key, and for the zero Key.
//
// Unlike other settings, a second WithKey at the same level (New, one route, one limit) is an
// error. For a key that is an API key or else an address, use FirstOf; for a key of both
// together, use Join.
func WithKey(k Key) SharedOption {
	return settingOption{setting: setting{name: "WithKey"}, sharedSetting: func(s *compile.Settings) {
		if s.Key != nil {
			s.Errs.Add("WithKey", "given twice", "write one: stint.FirstOf(a, b) for the first key that isn't empty, or stint.Join(a, b) for both together")
		}
		s.Key = k.described()
		s.Errs = append(s.Errs, s.Key.Problems.Within("WithKey")...)
	}}
}

// EmptyKeyPolicy is the treatment of requests with an empty key.
type EmptyKeyPolicy uint8

const (
	// DenyEmptyKey answers 403.
	DenyEmptyKey EmptyKeyPolicy = iota
	// SkipEmptyKey leaves out the limit whose key is empty.
	SkipEmptyKey
)

// WithEmptyKey sets what happens to a request whose key is empty. The default is DenyEmptyKey,
// so that callers without a key don't share a bucket by accident. If limits of a request
// differ, the request is denied if any of them denies it. New returns an error for values other
// than DenyEmptyKey and SkipEmptyKey.
func WithEmptyKey(p EmptyKeyPolicy) SharedOption {
	return checkedSetting(p <= SkipEmptyKey, fmt.Sprintf("WithEmptyKey(%d)", p), "write stint.DenyEmptyKey or stint.SkipEmptyKey",
		func(s *compile.Settings) { s.SkipEmpty, s.EmptySet = p == SkipEmptyKey, true })
}

// IP identifies a client by its address. RemoteIP, ForwardedIP, and HeaderIP are shorthands for
// the usual settings; the zero value keys like RemoteIP.
//
// The key is an IPv4 address ("192.0.2.7"), or the IPv6 network from which a client may pick
// its addresses ("2001:db8:1:2::/64"). ::ffff:192.0.2.7, and 64:ff9b::192.0.2.7 as NAT64
// gateways write it (RFC 6052), have the key "192.0.2.7". IPv6 zones are dropped. So no client
// has two keys. Peers without an address, such as peers of a Unix socket, share the key
// "unknown".
//
// A header is read only if the peer is a trusted proxy, because any client can send any header.
// If an address can't be parsed, the nearest address that can is used, if need be the peer's
// own. A malformed header is never an error and never exempts from a limit.
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

// RemoteIP keys on the address that the request was sent from. Behind a proxy, that is the
// proxy's address for all clients: use ForwardedIP there.
func RemoteIP() Key { return Key{keys.RemoteIP} }

// ForwardedIP keys on the client's address in X-Forwarded-For, as far as it was written by
// proxies with trusted addresses; see IP. Requests that don't come from such a proxy are keyed
// like RemoteIP. New returns an error if there are no trusted addresses.
func ForwardedIP(trusted ...netip.Prefix) Key {
	return IP{Header: "X-Forwarded-For", Trusted: trusted}.keyBy("ForwardedIP")
}

// HeaderIP keys on the client's address in another header field that a proxy writes; see IP.
// The field is Forwarded (RFC 7239), a list that is read as ForwardedIP reads X-Forwarded-For,
// or a field that the proxy replaces and that holds one address, such as CF-Connecting-IP or
// X-Real-IP. If a field of the second kind isn't exactly one line with one address, the request
// is keyed like RemoteIP. New returns an error if name isn't a valid field name or is
// X-Forwarded-For, or if there are no trusted addresses.
func HeaderIP(name string, trusted ...netip.Prefix) Key {
	switch {
	case !clientip.IsFieldName(name):
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("HeaderIP(%.80q)", name),
			Write: `write the name of a header field, such as "X-Real-IP"`})
	case http.CanonicalHeaderKey(name) == clientip.XForwardedFor:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("HeaderIP(%q)", name),
			What: "this field is a list", Write: "write stint.ForwardedIP"})
	}
	return IP{Header: name, Trusted: trusted}.keyBy("HeaderIP")
}

// Key returns the Key. New reports what is wrong with the fields.
func (ip IP) Key() Key { return ip.keyBy("IP") }

// keyBy returns the Key. maker is the function that the caller has called, for problems.
func (ip IP) keyBy(maker string) Key {
	k, problems := keys.Address(clientip.Source(ip))
	if problems != nil {
		return invalidKey(addressProblems(maker, problems)...)
	}
	return Key{k}
}

// addressProblems returns problems with addresses as those of the arguments of option.
func addressProblems(option string, problems []clientip.Problem) (list optionerror.List) {
	for _, p := range problems {
		list.Add(option, p.What, p.Write, p.Names...)
	}
	return list
}

// Header keys on the value of a header field, such as an API key. The key is empty if the
// request doesn't have the field. New returns an error if name isn't a valid field name, if it
// is X-Forwarded-For or Forwarded (use ForwardedIP or HeaderIP), or if it is Host, which
// net/http keeps in Request.Host.
//
// If a request sends the field several times, the first value is the key, which is the one that
// http.Header.Get returns to a handler. So a client that authenticates with an API key is
// charged under that API key, even if it sends the field more than once. If the limiter runs
// before authentication, the value is unchecked: a client that makes up values gets a bucket
// for each. Add a limit by address in that case.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !clientip.IsFieldName(name):
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%.80q)", name),
			Write: `write the name of a header field, such as "X-API-Key"`})
	case canonical == clientip.XForwardedFor:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name), What: "a client can write anything into this field",
			Write: "write stint.ForwardedIP and the addresses of your proxies"})
	case canonical == clientip.Forwarded:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name), What: "a client can write anything into this field",
			Write: "write stint.HeaderIP and the addresses of your proxies"})
	case canonical == "Host":
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name), What: "net/http moves this field to r.Host",
			Write: "write stint.KeyFunc(func(r *http.Request) (string, error) { return r.Host, nil })"})
	}
	return Key{keys.Header(canonical)}
}

// Cookie keys on the value of a cookie. The key is empty if the request doesn't have the
// cookie. If there are several of that name, the first counts, as in http.Request.Cookie. New
// returns an error if name isn't a valid cookie name. A session cookie is as secret as a
// password: wrap the key in Hash so that a store never holds it.
func Cookie(name string) Key {
	if !clientip.IsFieldName(name) {
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Cookie(%.80q)", name), Write: `write the name of a cookie, such as "session"`})
	}
	return Key{keys.Cookie(name)}
}

// Pattern keys on http.Request.Pattern, the pattern that the router around the limiter has
// matched, so every route gets its own count. http.ServeMux and chi set it, as stintgin and
// stintecho do; docs/routers.md has more routers. Requests that match no pattern, or that reach
// the limiter before the router, share one key; if they were keyed by path, a client could make
// up any number of keys. For a limiter around a ServeMux, use MuxPattern; the warning one-key
// detects the mistake if the key is Pattern alone.
func Pattern() Key { return Key{keys.Pattern} }

// MuxPattern keys on the pattern that mux will match, for a limiter that is wrapped around mux.
// Requests that match no pattern share one key. New returns an error if mux is nil.
func MuxPattern(mux *http.ServeMux) Key {
	if mux == nil {
		return invalidKey(&optionerror.Problem{Option: "MuxPattern(nil)", Write: "write the *http.ServeMux that the limiter is wrapped around"})
	}
	return Key{keys.MuxPattern(mux)}
}

// Method keys on the request's method. Methods that RFC 9110 and RFC 5789 don't define share
// the key "other", since a client may send any word as a method.
func Method() Key { return Key{keys.Method} }

// Global gives every request the same key: the limit applies to the service as a whole,
// not to a client. Allow, Take, Wait and Peek charge it under that key too, whatever
// key they are given, so requests and jobs share it.
func Global() Key { return Key{keys.Global} }

// GivenKey is the key that is passed to Allow, Take, Wait and Peek. Use it for limiters of
// jobs, queues and outgoing calls. Requests don't have such a key: adapters panic when they
// mount such a limiter, and Admit denies its requests. New returns an error if it is part of
// Join, FirstOf or Hash: join or hash the key before you pass it to Take.
func GivenKey() Key { return Key{keys.Given} }

// Join keys on several things at once, such as a tenant and a route. Each part is joined with
// its length, so two different lists of parts never give the same key. If a part is empty, so
// is the joined key. Every part is computed, even after an empty one. New returns an error if
// there are no parts, or if a part is the zero Key or GivenKey.
func Join(parts ...Key) Key {
	all, problems := joinable("Join", parts)
	if len(parts) == 0 {
		problems.Add("Join()", "", `write the keys to join, such as stint.Header("X-Tenant"), stint.Pattern()`)
	}
	if problems != nil {
		return invalidKey(problems...)
	}
	return Key{keys.Join(all)}
}

// FirstOf keys on the first of several keys that isn't empty, such as an API key or, without
// one, an address. Mount the limiter behind authentication, or add a limit by address, because
// a client that makes up API keys gets a bucket for each.
//
// The parts never share a bucket: a client that sends another client's address as its API key
// isn't charged as that address. Parts after the first that isn't empty aren't computed. If
// a part fails, so does the key: a request whose session can't be read isn't limited as
// an anonymous one. If all parts are empty, so is the key.
//
// If the first part isn't empty, the key's text is the part's text; that of a later part begins
// with the part's number and "~". New returns an error if there are no parts, if a part is the
// zero Key or GivenKey, or if a part that is never empty, such as RemoteIP, isn't the last.
func FirstOf(parts ...Key) Key {
	all, problems := joinable("FirstOf", parts)
	if len(parts) == 0 {
		problems.Add("FirstOf()", "", `write the keys to choose from, such as stint.Header("X-API-Key"), stint.RemoteIP()`)
	}
	for i, k := range all {
		if k != nil && k.NeverEmpty && i < len(all)-1 {
			problems.Add("FirstOf", "%v is never empty, so no key after it counts", "write it last", k.Name)
		}
	}
	if problems != nil {
		return invalidKey(problems...)
	}
	return Key{keys.FirstOf(all)}
}

// joinable returns the parts of a key that maker makes, and their problems.
func joinable(maker string, parts []Key) (all []*keys.Key, problems optionerror.List) {
	for i, part := range parts {
		k := part.key
		switch {
		case k == nil:
			problems.Add(maker, fmt.Sprintf("key %d is the zero Key", i+1), "write one, or leave it out")
		case k.Given:
			problems.Add(maker, "%v can't be a part of a key", "give Take a key that is already made of its parts", "GivenKey()")
		default:
			problems = append(problems, k.Problems...)
		}
		all = append(all, k)
	}
	return all, problems
}

// Hash keys on a keyed hash of another key, for identities that should not be readable in a
// store: addresses, cookies, API keys. The hash is the first 16 bytes of HMAC-SHA256 (RFC 2104)
// with the secret, in base64url. An empty key stays empty.
//
// Instances that share a store must share the secret; a new secret starts all counts anew. Use
// 32 random bytes; with a secret that can be guessed, an attacker could hash all IPv4 addresses
// and compare. New returns an error if the secret is shorter than 16 bytes, and for the zero
// Key and GivenKey.
func Hash(secret []byte, k Key) Key {
	var problems optionerror.List
	if len(secret) < keytext.MinSecret {
		problems.Add("Hash", fmt.Sprintf("a secret of %d bytes can be guessed", len(secret)),
			fmt.Sprintf("write %d random ones or more, the same on every instance", keytext.MinSecret))
	}
	switch hashed := k.key; {
	case hashed == nil:
		problems.Add("Hash", "the key is the zero Key", "write the one to hash, such as stint.RemoteIP()")
	case hashed.Given:
		problems.Add("Hash", "%v can't be hashed", "give Take a key that is already hashed", "GivenKey()")
	default:
		problems = append(problems, hashed.Problems...)
	}
	if problems != nil {
		return invalidKey(problems...)
	}
	return Key{keys.Hash(secret, k.key)}
}
