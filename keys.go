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
// Header and other functions of this package return Keys. KeyFunc makes a Key from a function
// of the request. stintgin.Key and stintecho.Key make a Key from a function of the framework's
// context.
//
// Keys can be compared with == and used as map keys. Two keys made by the same function with
// the same arguments are equal. A key made by KeyFunc, stintgin.Key or stintecho.Key equals
// only copies of itself. Equal keys are computed once per request, even if several limits use
// them. New returns an error for the zero Key, and for a Key made with invalid arguments.
//
// A key's text is up to 4 KiB long. Stores get the text escaped, and hashed if it is long.
// WithEmptyKey sets how requests with an empty key are handled. If a key function returns an
// error, the request is denied and the error is passed to the error handler. The default
// response has the status of the error's StatusCode() int method, or 500 without one.
type Key struct{ key *keys.Key }

// KeyFunc makes a Key from f, for identities that the application defines:
//
//	stint.KeyFunc(func(r *http.Request) (string, error) { return sessionOf(r).UserID, nil })
//
// For each Key, f is called at most once per request, before the next handler. f must be safe
// for concurrent use. New doesn't call f, and returns an error if f is nil. The limiter checks
// the keys of the first requests for likely mistakes; see WithoutWarnings. It doesn't detect
// that f returns a forwarding header, which any client can write: use ForwardedIP or HeaderIP.
func KeyFunc(f func(*http.Request) (string, error)) Key {
	if f == nil {
		return invalidKey(&optionerror.Problem{Option: "KeyFunc(nil)",
			Write: "pass a function, or use another key, such as stint.RemoteIP()"})
	}
	return Key{keys.FromFunc("KeyFunc", f)}
}

// ForAdapter returns a Key that calls the function of k, a KeyFunc, for adapters to a framework
// with its own context type. The function finds the framework's context in the request's
// context; if there is none, it fails. adapter is the name of the adapter's package.
// Other adapters panic if a limiter that they mount has such a key; see [Limiter.Mount]. Any
// other key is returned as it is.
func (k Key) ForAdapter(adapter string) Key {
	if d := k.described(); d.Name == "KeyFunc" {
		return Key{keys.FromAdapterFunc(adapter, d.Read)}
	}
	return k
}

// described returns the description of the key. That of the zero Key is invalid.
func (k Key) described() *keys.Key {
	if k.key == nil {
		return keys.Invalid(optionerror.List{{Option: "Key{}", Write: "use a key, such as stint.RemoteIP()"}})
	}
	return k.key
}

// Of returns the text of the key for r. For the zero Key it returns an error.
func (k Key) Of(r *http.Request) (string, error) {
	if k == (Key{}) {
		return "", errZeroKey
	}
	return k.key.Read(r)
}

var errZeroKey = errors.New("stint: the zero Key can't identify a caller: use a key such as stint.RemoteIP()")

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
// a key, its own or a default of the limiter or route. There is no built-in default, because
// none would be safe: behind a proxy, for instance, every request has the proxy's address. New
// returns an error for the zero Key, for a limit without a key, and for two WithKey at the same
// level (New, one route, one limit).
//
// To key on an API key or, without one, on an address, use FirstOf. To key on the combination of
// two keys, use Join.
func WithKey(k Key) SharedOption {
	return settingOption{setting: setting{name: "WithKey"}, sharedSetting: func(s *compile.Settings) {
		if s.Key != nil {
			s.Errs.Add("WithKey", "given twice",
				"pass one key: stint.FirstOf(a, b) for the first key that isn't empty, or stint.Join(a, b) for both together")
		}
		s.Key = k.described()
		s.Errs = append(s.Errs, s.Key.Problems.Within("WithKey")...)
	}}
}

// EmptyKeyPolicy sets how requests with an empty key are handled.
type EmptyKeyPolicy uint8

const (
	// DenyEmptyKey answers 403.
	DenyEmptyKey EmptyKeyPolicy = iota
	// SkipEmptyKey exempts the request from the limit whose key is empty.
	SkipEmptyKey
)

// WithEmptyKey sets how a request with an empty key is handled. The default is DenyEmptyKey, so
// that callers without a key don't share units by accident. If the limits of a request have
// different policies, the request is denied if any limit has DenyEmptyKey. New returns an error
// for values other than DenyEmptyKey and SkipEmptyKey.
func WithEmptyKey(p EmptyKeyPolicy) SharedOption {
	return checkedSetting(p <= SkipEmptyKey, fmt.Sprintf("WithEmptyKey(%d)", p),
		"use stint.DenyEmptyKey or stint.SkipEmptyKey",
		func(s *compile.Settings) { s.SkipEmpty, s.EmptySet = p == SkipEmptyKey, true })
}

// IP identifies a client by its address. RemoteIP, ForwardedIP, and HeaderIP are shorthands for
// the usual settings. The zero IP has the same key as RemoteIP.
//
// The key is an IPv4 address ("192.0.2.7"), or the IPv6 network from which a client may pick
// its addresses ("2001:db8:1:2::/64"). So that no client has two keys, the key of the
// IPv4-mapped address ::ffff:192.0.2.7 and of the NAT64 address 64:ff9b::192.0.2.7 (RFC 6052)
// is "192.0.2.7", and IPv6 zones are dropped. Peers without an address, such as peers of a Unix
// socket, share the key "unknown".
//
// A header is read only if the peer is a trusted proxy, because any client can send any header.
// If an address in a list can't be parsed, the key is the address to the right of it, or the
// peer's address if there is none. A malformed header is never an error, and never exempts a
// request from a limit.
type IP struct {
	// Header is the header field that the proxies write. X-Forwarded-For and Forwarded (RFC
	// 7239) are lists: each proxy appends the address of its peer. A list is read from its
	// right end, at most 32 addresses, up to the first address that isn't a trusted proxy's.
	// Addresses further left are ignored, since the client may have forged them. Any other
	// field must be sent once and have one address. By default no header is read.
	Header string
	// Trusted are the addresses that proxies connect from: the proxy next to the server and,
	// for the lists, those behind it. New returns an error for networks that together contain
	// all IPv4 addresses, or all of 2000::/3, from which IPv6 clients get their addresses. The
	// NAT64 form of an address is trusted only if a network in Trusted contains that form.
	Trusted []netip.Prefix
	// TrustUnix makes peers that connect through a Unix socket trusted proxies. The default is
	// false.
	TrustUnix bool
	// IPv6Bits is the number of bits of an IPv6 address that identify a client, from 48 to 128.
	// The default is 64, the prefix usually assigned to one host or household. A client whose
	// provider assigns a /56 or a /48 has 256 or 65,536 such networks.
	IPv6Bits int
}

// RemoteIP keys on the address of the connection's peer. Behind a proxy, all clients have the
// proxy's address: use ForwardedIP there.
func RemoteIP() Key { return Key{keys.RemoteIP} }

// ForwardedIP keys on the client's address in X-Forwarded-For. Only entries written by proxies
// with trusted addresses are read; see [IP]. A request that doesn't come from a trusted proxy
// has the key of RemoteIP. New returns an error if there are no trusted addresses.
func ForwardedIP(trusted ...netip.Prefix) Key {
	return IP{Header: "X-Forwarded-For", Trusted: trusted}.keyBy("ForwardedIP")
}

// HeaderIP keys on the client's address in a header field that a proxy writes, other than
// X-Forwarded-For; see IP. Forwarded (RFC 7239) is a list, which is read like X-Forwarded-For
// in ForwardedIP. Any other field, such as CF-Connecting-IP or X-Real-IP, must be set by the
// proxy to one address. If such a field is sent several times or isn't one address, the request
// has the key of RemoteIP. New returns an error if name isn't a valid field name or is
// X-Forwarded-For, or if there are no trusted addresses.
func HeaderIP(name string, trusted ...netip.Prefix) Key {
	switch {
	case !clientip.IsFieldName(name):
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("HeaderIP(%.80q)", name),
			What: notFieldName, Write: `use letters, digits and hyphens, such as "X-Real-IP"`})
	case http.CanonicalHeaderKey(name) == clientip.XForwardedFor:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("HeaderIP(%q)", name),
			What: "this field is a list", Write: "use stint.ForwardedIP"})
	}
	return IP{Header: name, Trusted: trusted}.keyBy("HeaderIP")
}

// Key returns the key that ip describes. If the fields are invalid, New returns an error for
// the key.
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
// before authentication, add a limit by address. Otherwise a client that sends made-up values
// gets new units for each.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !clientip.IsFieldName(name):
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%.80q)", name),
			What: notFieldName, Write: `use letters, digits and hyphens, such as "X-API-Key"`})
	case canonical == clientip.XForwardedFor:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name),
			What:  "a client can write anything into this field",
			Write: "use stint.ForwardedIP and the addresses of your proxies"})
	case canonical == clientip.Forwarded:
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name),
			What:  "a client can write anything into this field",
			Write: "use stint.HeaderIP and the addresses of your proxies"})
	case canonical == "Host":
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Header(%q)", name),
			What:  "net/http moves this field to r.Host",
			Write: "use stint.KeyFunc(func(r *http.Request) (string, error) { return r.Host, nil })"})
	}
	return Key{keys.Header(canonical)}
}

const notFieldName = "this isn't a valid name of a header field"

// Cookie keys on the value of a cookie. The key is empty if the request doesn't have the
// cookie. If the request has several cookies of that name, the first is the key, as in
// http.Request.Cookie. New returns an error if name isn't a valid cookie name. A session cookie
// is as secret as a password: wrap the key in Hash so that no store holds the cookie. gin's
// c.Cookie unescapes the value: with gin, use stintgin.Cookie.
func Cookie(name string) Key {
	if !clientip.IsFieldName(name) {
		return invalidKey(&optionerror.Problem{Option: fmt.Sprintf("Cookie(%.80q)", name),
			What: "this isn't a valid name of a cookie", Write: `use letters, digits, - and _, such as "session"`})
	}
	return Key{keys.Cookie(name)}
}

// Pattern keys on http.Request.Pattern, the pattern that the router around the limiter has
// matched, so every route gets its own count. http.ServeMux, chi, stintgin and stintecho set
// the pattern. docs/routers.md lists more routers. Requests that match no pattern, or that
// reach the limiter before the router, share one key. They aren't keyed by path, because a
// client could then make up any number of keys. For a limiter around a ServeMux, use
// MuxPattern. If Pattern is used there by mistake, the limiter logs the warning one-key.
func Pattern() Key { return Key{keys.Pattern} }

// MuxPattern keys on the pattern that mux will match, for a limiter that is wrapped around mux.
// Requests that match no pattern share one key. New returns an error if mux is nil.
func MuxPattern(mux *http.ServeMux) Key {
	if mux == nil {
		return invalidKey(&optionerror.Problem{Option: "MuxPattern(nil)",
			Write: "pass the *http.ServeMux that the limiter is wrapped around"})
	}
	return Key{keys.MuxPattern(mux)}
}

// Method keys on the request's method. Methods that aren't defined in RFC 9110 or RFC 5789
// share the key "other", because a client may send any word as a method.
func Method() Key { return Key{keys.Method} }

// Global gives every request the same key: the limit applies to the service as a whole, not to
// a client. Allow, Take, Wait and Peek ignore the key that they are given and use this one, so
// requests and jobs share the limit.
func Global() Key { return Key{keys.Global} }

// GivenKey is the key that is passed to Allow, Take, Wait and Peek. Use it for limiters of
// jobs, queues and outgoing calls. HTTP requests don't have such a key: adapters panic when
// they mount such a limiter, and Admit denies requests. New returns an error if GivenKey is a
// part of Join, FirstOf or Hash: join or hash the key before you pass it to Take.
func GivenKey() Key { return Key{keys.Given} }

// Join keys on several things at once, such as a tenant and a route. Each part is joined with
// its length, so two different lists of parts never give the same key. If a part is empty, the
// joined key is empty. Every part is computed, even after an empty part. New returns an error
// if there are no parts, or if a part is the zero Key or GivenKey.
func Join(parts ...Key) Key {
	all, problems := joinable("Join", parts)
	if len(parts) == 0 {
		problems.Add("Join()", "", `pass the keys to join, such as stint.Header("X-Tenant"), stint.Pattern()`)
	}
	if problems != nil {
		return invalidKey(problems...)
	}
	return Key{keys.Join(all)}
}

// FirstOf keys on the first of several keys that isn't empty, such as an API key or, without
// one, an address. Mount the limiter behind authentication, or add a limit by address.
// Otherwise a client that sends made-up API keys gets new units for each.
//
// Different parts never share a count: a client can't use up another client's limit by sending
// that client's address as its API key. Parts after the first that isn't empty aren't computed.
// If a part returns an error, the request is denied: a request whose session can't be read
// isn't treated as anonymous. If all parts are empty, the key is empty.
//
// If the first part isn't empty, the key's text is the text of that part. The text of a later
// part is preceded by the part's number and "~". New returns an error if there are no parts, if
// a part is the zero Key or GivenKey, or if a part that is never empty, such as RemoteIP, isn't
// the last.
func FirstOf(parts ...Key) Key {
	all, problems := joinable("FirstOf", parts)
	if len(parts) == 0 {
		problems.Add("FirstOf()", "", `pass the keys to choose from, such as stint.Header("X-API-Key"), stint.RemoteIP()`)
	}
	for i, k := range all {
		if k != nil && k.NeverEmpty && i < len(all)-1 {
			problems.Add("FirstOf", "%v is never empty, so the keys after it are never used",
				"put it last, or leave out the keys after it", k.Name)
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
			problems.Add(maker, fmt.Sprintf("key %d is the zero Key", i+1),
				"pass a key such as stint.RemoteIP(), or leave it out")
		case k.Given:
			problems.Add(maker, "%v can't be a part of a key", "use it alone, and pass the whole key to Take",
				"GivenKey()")
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
// Processes that share a store must have the same secret. A new secret resets all counts. Use
// 32 random bytes: with a secret that can be guessed, an attacker could hash all IPv4 addresses
// and compare the hashes. New returns an error if the secret is shorter than 16 bytes, or if k
// is the zero Key or GivenKey.
func Hash(secret []byte, k Key) Key {
	var problems optionerror.List
	if len(secret) < keytext.MinSecret {
		problems.Add("Hash", fmt.Sprintf("a secret of %d bytes can be guessed", len(secret)),
			fmt.Sprintf("use at least %d random bytes, the same on every instance", keytext.MinSecret))
	}
	switch hashed := k.key; {
	case hashed == nil:
		problems.Add("Hash", "the key is the zero Key", "pass the key to hash, such as stint.RemoteIP()")
	case hashed.Given:
		problems.Add("Hash", "%v can't be hashed", "hash the key yourself, and pass the hash to Take", "GivenKey()")
	default:
		problems = append(problems, hashed.Problems...)
	}
	if problems != nil {
		return invalidKey(problems...)
	}
	return Key{keys.Hash(secret, k.key)}
}
