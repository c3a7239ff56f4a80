// Package warn finds likely mistakes in how a limiter is set up that can't be errors:
// by what its keys consist of, by its first requests, and by where limiters are built.
package warn

// Kind is a kind of likely mistake.
type Kind uint8

// The zero Kind is none.
const (
	ForwardingHeader Kind = iota + 1
	PortInKey
	UntrustedProxy
	NoPattern
	KeysNeverRepeat
	OneKey
	Rebuilt
	CostTooHigh
	NothingWaits
	// Kinds are below this one.
	Kinds
)

var said = [Kinds]struct{ name, text string }{
	ForwardingHeader: {"forwarding-header", "the key is a forwarding header, which any client can write: use stint.ForwardedIP or stint.SingleIPHeader, with the addresses of your proxies"},
	PortInKey:        {"port-in-key", "the key contains the caller's port, so each connection has limits of its own: use stint.RemoteIP"},
	UntrustedProxy:   {"untrusted-proxy", "requests come through a proxy that the key doesn't trust, so its clients share limits: use stint.ForwardedIP, with the proxy's address"},
	NoPattern:        {"no-pattern", "the key contains the request's pattern, and no request has one, so all routes share limits: mount the limiter inside the mux, or use stint.MuxPattern"},
	KeysNeverRepeat:  {"keys-never-repeat", "no key came twice in the first 10,000 requests, so nobody is limited: use a key that stays the same for a caller"},
	OneKey:           {"one-key", "almost all of the first 10,000 requests have the same key, and share its limits: check what the key is made of"},
	Rebuilt:          {"rebuilt", "limiters are built again and again while requests are served: build them once, at start-up"},
	CostTooHigh:      {"cost-too-high", "requests cost more than a limit ever lets pass: lower their cost, or raise the limit"},
	NothingWaits:     {"nothing-waits", "WithPriority, WithAging and WithShare order requests that wait, and none waits: write stint.WithMaxWait or stint.WithQueue, or leave them out"},
}

// Known reports whether the kind exists.
func (k Kind) Known() bool { return k > 0 && k < Kinds }

// Name returns the name of the kind, which is also that of its section in
// docs/warnings.md.
func (k Kind) Name() string { return said[k].name }

// Text returns what was found and what to write instead.
func (k Kind) Text() string { return said[k].text }

// Link returns a link to the documentation of the kind.
func (k Kind) Link() string {
	return "https://github.com/stint-go/stint/blob/main/docs/warnings.md#" + said[k].name
}

// Set is a set of kinds.
type Set uint16

// All is every kind; Traffic is the kinds that requests show.
const (
	All     Set = 1<<Kinds - 1
	Traffic Set = 1<<ForwardingHeader | 1<<PortInKey | 1<<UntrustedProxy | 1<<NoPattern | 1<<KeysNeverRepeat | 1<<OneKey
)

// Has reports whether k is in the set.
func (s Set) Has(k Kind) bool { return s>>k&1 != 0 }

// add adds k if so is true.
func (s *Set) add(k Kind, so bool) {
	if so {
		*s |= 1 << k
	}
}
