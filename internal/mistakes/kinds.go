package mistakes

import (
	"slices"
	"strings"
)

// Kind is a kind of mistake. docs/warnings.md has a line for each, and stint.WithoutWarnings lists them.
type Kind uint8

const (
	// ForwardingHeader: the key is a forwarding header, which any client can write. New finds a
	// Header, alone or in Join, FirstOf or Hash.
	ForwardingHeader Kind = iota
	// PortInKey: a function has returned a key with the address and port of a RemoteAddr, for
	// one of the first 100 requests.
	PortInKey
	// UntrustedProxy: at least 90 of the first 100 requests have a forwarding header, none that
	// names their peer as a client, and the peer's address as the key, alone or in a Join or
	// FirstOf. Or the key is an IPv4 address in the middle of X-Forwarded-For: only the nearest of
	// several proxies is trusted.
	UntrustedProxy
	// KeysNeverRepeat: no key came twice in the first 10,000 requests. Only the first 1,000 keys
	// are recognized. Keys with the peer's address are left out: a service may see each once.
	KeysNeverRepeat
	// OneKey: 99 % of the first 10,000 requests have the same key: a proxy names no clients, the
	// key is Pattern and no request has one, or a function returns the same for all. It isn't found
	// for keys such as Method and MuxPattern, which may have few values, nor together with
	// UntrustedProxy.
	OneKey
	// Rebuilt: New was called 1,000 times in the process, which is found once, or With was called 1,000
	// times for one family.
	Rebuilt
	// CostTooHigh: a request, or a Take, costs more than a limit ever lets pass. The
	// text names both. It comes once for each limit. Costs of a dry run, and costs that
	// only have to wait, aren't found.
	CostTooHigh
	// NothingWaits: WithPriority or WithShare is given, and no limit makes
	// a request wait. Limits with GivenKey, for which Limiter.Wait waits, and limiters with
	// a WithLimitFunc aren't found.
	NothingWaits
	// StoreForgets: the server of the store evicts keys, and with them what callers have
	// used. The text names the server and what to set. A redisstore asks each master by
	// INFO, in the background: it has a maxmemory and a policy other than noeviction and
	// volatile-ttl, or its evicted_keys grows. It asks none if INFO isn't allowed, or if it
	// doesn't know the client's type.
	StoreForgets
	// QuotaUnreachable: a rate beside a quota, with the same key, lets less through in the
	// quota's period than the quota. The text names both. Both are enforced, and neither has a
	// WithCost or a WithSettle.
	QuotaUnreachable
	// UpdateDrops: an Update leaves out or renames a limit that New or With was given. The
	// text names it. Limits that an Update has added may go, and so may dry runs. The next Update
	// ends the warning.
	UpdateDrops
	// StoreFull: the store in memory has had no room for 100 charges on new keys, which
	// share states. The text says what to write.
	StoreFull
	// NameConflict: two limiters of a process that With hasn't derived from each other give a
	// limit's name different numbers on one store of WithStore. The text has both. The limiter that
	// is made or updated later is warned, once for each name. Limits of a WithLimitFunc aren't
	// compared, nor are those of a limiter that turns the warning off, or of another process.
	NameConflict
	// NoKey: at least 90 of the first 100 requests have no key, alone or in a Join or FirstOf.
	NoKey
)

// kinds has the name of each kind, and the text of a finding that has none of its own.
var kinds = [...]struct{ name, text string }{
	ForwardingHeader: {"forwarding-header", "the key is a forwarding header, which any client can write: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	PortInKey: {"port-in-key",
		"the key contains the caller's port, so each connection has limits of its own: use stint.RemoteIP"},
	UntrustedProxy:  {"untrusted-proxy", "requests come through a proxy that the key doesn't trust, so its clients share limits: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	KeysNeverRepeat: {"keys-never-repeat", "no key came twice in the first 10,000 requests, so nobody is limited: use a key that stays the same for a caller"},
	OneKey:          {"one-key", "almost all of the first 10,000 requests have the same key, and share its limits: use a key that distinguishes callers, or stint.Global()"},
	Rebuilt: {"rebuilt", "1,000 limiters were made, probably one for each request, and a new limiter has no counts of earlier requests: " +
		"make limiters once, at start-up"},
	CostTooHigh:      {"cost-too-high", ""},
	NothingWaits:     {"nothing-waits", "WithPriority and WithShare order waiting requests, but no limit lets requests wait: use stint.WithMaxWait or stint.WithQueue, or leave them out"},
	StoreForgets:     {"store-forgets", ""},
	QuotaUnreachable: {"quota-unreachable", ""},
	UpdateDrops:      {"update-drops", ""},
	StoreFull:        {"store-full", ""},
	NameConflict:     {"name-conflict", ""},
	NoKey:            {"no-key", "at least 90 of the first 100 requests have no key, so they are denied, or pass without limits with SkipEmptyKey: mount the limiter behind what sets the key, such as authentication, or use stint.FirstOf(key, stint.RemoteIP())"},
}

// String returns the kind's name, as WithoutWarnings takes it.
func (k Kind) String() string { return kinds[k].name }

// KindOf returns the kind of a name, if there is one.
func KindOf(name string) (k Kind, ok bool) {
	for i := range kinds {
		if kinds[i].name == name {
			return Kind(i), true
		}
	}
	return 0, false
}

// KindNames returns the names of all kinds in a sentence's list.
func KindNames() string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	slices.Sort(all)
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// Kinds is a set of kinds: a bit for each.
type Kinds uint32

// AllKinds is the set of all kinds.
const AllKinds = ^Kinds(0)

// Has reports whether the set has a kind.
func (s Kinds) Has(k Kind) bool { return s>>k&1 != 0 }

// Add adds a kind to the set.
func (s *Kinds) Add(k Kind) { *s |= 1 << k }
