package stint

import (
	"fmt"
)

// WarningKind is a kind of likely mistake that a limiter warns about. docs/warnings.md
// says for each what the mistake is, what you see and what to write instead.
type WarningKind uint8

const (
	// WarnForwardingHeader: the key is a forwarding header, which any client can
	// write. New finds a Header, alone or in Join, FirstOf or Hash. A KeyFunc is found
	// if 90 % of the requests looked at have such a field and its first value in their
	// key, unless it hashes the value; or if at least five have it as their key, or as a
	// part of a Join, although their peer has a public address, where at least five
	// others have their peer's address.
	WarnForwardingHeader WarningKind = iota + 1
	// WarnPortInKey: the keys of all requests looked at contain the address and port of
	// their RemoteAddr.
	WarnPortInKey
	// WarnUntrustedProxy: at least 90 % of the requests looked at have a forwarding
	// header, none that names their peer as a client, and the peer's address as the key,
	// alone or in a Join or FirstOf. Or the key is an IPv4 address in the middle of
	// X-Forwarded-For: only the nearest of several proxies is trusted.
	WarnUntrustedProxy
	// WarnNoPattern: the key contains Pattern, and no request looked at has a pattern. A
	// KeyFunc that reads r.Pattern isn't found.
	WarnNoPattern
	// WarnKeysNeverRepeat: no key came twice in the first 10,000 requests. Keys that a
	// request without header fields has, and those with the peer's address, aren't looked
	// at: a service may see each address once. At most 32 keys of a process are watched
	// for this at a time, the newest.
	WarnKeysNeverRepeat
	// WarnOneKey: 99 % of the first 10,000 requests have the same key. It is found for keys
	// with the peer's address and for Header, and not for requests from a loopback address
	// or those of a WarnUntrustedProxy: other keys may have few values. Or a KeyFunc returns
	// a text for a value that is missing, such as "<nil>", for 90 % of the requests looked at.
	WarnOneKey
	// WarnRebuilt: limiters are built again and again inside HTTP handlers. New built 100
	// that were garbage within 10 seconds, which is found once in a process; or With
	// derived 1,000 of one family.
	WarnRebuilt
	// WarnCostTooHigh: a request, or a Take, costs more than a limit ever lets pass. The
	// Text names both. It comes once for each limit. Costs of a dry run, and costs that
	// only have to wait, aren't found.
	WarnCostTooHigh
	// WarnNothingWaits: WithPriority or WithShare is given, and no limit makes
	// a request wait. Limits with GivenKey, for which Limiter.Wait waits, and limiters with
	// a WithLimitFunc aren't found.
	WarnNothingWaits
	// WarnStoreForgets: the server of the store evicts keys, and with them what callers have
	// used. The Text names the server and what to set. A redisstore asks each master by
	// INFO, in the background: it has a maxmemory and a policy other than noeviction and
	// volatile-ttl, or its evicted_keys grows. It asks none if INFO isn't allowed, or if it
	// doesn't know the client's type.
	WarnStoreForgets
	// WarnSilentProxy: at least half of the requests looked at have no forwarding header and
	// have their peer's address as the key, alone or in a Join or FirstOf. The peer has a
	// loopback address, or one that the key trusts, and they bring five User-Agents or more.
	WarnSilentProxy
	// WarnQuotaUnreachable: a rate beside a quota, with the same key, lets less through in the
	// quota's period than the quota. The Text names both. Both are enforced, and neither has a
	// WithCost or a WithSettle.
	WarnQuotaUnreachable
	// WarnUpdateDrops: an Update leaves out or renames a limit that New or With was given, or
	// renames the limiter. The Text names both. Limits that an Update has brought may go, and
	// so may dry runs. The next Update ends the warning.
	WarnUpdateDrops
	// WarnStoreFull: the store in memory has had no room for 100 charges on new keys, which
	// share states. The Text says what to write.
	WarnStoreFull
	// WarnChargedTwice: two limiters that With hasn't derived, one mounted inside the other,
	// charge a request twice to a limit that they share through a store of WithStore.
	WarnChargedTwice
	// WarnRouteMissed: none of the first 10,000 requests has matched a route, and about 80 that
	// match none seem to be for it: http.StripPrefix has taken the route's prefix from their
	// path, or the path has one segment in front, or a word of it one letter more, less or other.
	WarnRouteMissed
	// WarnProxyExempt: 950 of the first 1,000 requests are exempt by a FromCIDR that has their
	// peer's address, and X-Forwarded-For or X-Real-IP names a client in none of its networks.
	WarnProxyExempt
	// WarnNameConflict: two limiters of a process that With hasn't derived from each other give a
	// limit's name different numbers on one store of WithStore. The Text has both. The limiter that
	// is made or updated later is warned, once for each name. Limits of a WithLimitFunc aren't
	// compared, nor are those of a limiter that turns the warning off, or of another process.
	WarnNameConflict
	// WarnLimitTooLow: of at least 100 keys whose requests came to a limit within an hour, it
	// denied over 90 %, or would have in a dry run. The Text has its numbers, and how many keys
	// that were. After about 80 keys were denied within an hour, the keys of the next hour are
	// looked at; if they show nothing, there is another look a day later at the earliest. Jobs
	// aren't looked at (Allow, Take, Wait). Denials by a Ban, by an AdaptiveConcurrency and after
	// a wait for a slot don't count. At most 32 limits of a process look at a time, the last to begin.
	WarnLimitTooLow
	// WarnNotMounted: an hour after it was made, a limiter that still exists was given to no
	// adapter, has decided nothing, and was extended by no With. Limiters whose keys are all
	// GivenKey or Global aren't found, nor are any but the first 1,000 of a process.
	WarnNotMounted
)

var warningKinds = [...]struct{ name, text string }{
	WarnForwardingHeader: {"forwarding-header", "the key is a forwarding header, which any client can write: use stint.ForwardedIP or stint.SingleIPHeader, with the addresses of your proxies"},
	WarnPortInKey:        {"port-in-key", "the key contains the caller's port, so each connection has limits of its own: use stint.RemoteIP"},
	WarnUntrustedProxy:   {"untrusted-proxy", "requests come through a proxy that the key doesn't trust, so its clients share limits: use stint.ForwardedIP, with the proxy's address"},
	WarnNoPattern:        {"no-pattern", "the key contains the request's pattern, and no request has one, so all routes share limits: mount the limiter inside the mux, or use stint.MuxPattern"},
	WarnKeysNeverRepeat:  {"keys-never-repeat", "no key came twice in the first 10,000 requests, so nobody is limited: use a key that stays the same for a caller"},
	WarnOneKey:           {"one-key", "almost all of the first 10,000 requests have the same key, and share its limits: check what the key is made of"},
	WarnRebuilt:          {"rebuilt", "limiters are built again and again while requests are served: build them once, at start-up"},
	WarnCostTooHigh:      {"cost-too-high", "requests cost more than a limit ever lets pass: lower their cost, or raise the limit"},
	WarnNothingWaits:     {"nothing-waits", "WithPriority and WithShare order requests that wait, and none waits: write stint.WithMaxWait or stint.WithQueue, or leave them out"},
	WarnSilentProxy:      {"silent-proxy", "requests of many clients come through a proxy that names none of them, so they share limits: have the proxy write X-Forwarded-For, and use stint.ForwardedIP with its address"},
	WarnQuotaUnreachable: {"quota-unreachable", "a rate beside a quota lets less through in the quota's period than the quota: lower the quota, or raise the rate"},
	WarnProxyExempt:      {"proxy-exempt", "WithSkip(FromCIDR) exempts a proxy, and with it clients elsewhere, which nothing limits: leave the proxy's address out of stint.FromCIDR"},
	WarnLimitTooLow:      {"limit-too-low", "a limit denied over 90 % of its keys within an hour: raise it"},
	WarnRouteMissed:      {"route-missed", "a route has matched none of the first 10,000 requests, and others seem to be for it: write the pattern that they have"},
	WarnChargedTwice:     {"charged-twice", "a request is charged twice to a limit, by two limiters on one store of which one is mounted inside the other: derive the inner one by Limiter.With, or write another stint.WithName in it"},
	WarnStoreFull:        {"store-full", "the store in memory is full, so new keys share states: write memstore.WithMaxKeys, or use keys that clients can't make up"},
	WarnUpdateDrops:      {"update-drops", "an Update leaves out or renames limits, so callers begin anew: its options are complete, write the limits there, too"},
	WarnNotMounted:       {"not-mounted", "a limiter was given to no adapter and has decided nothing within an hour, so it limits nothing: mount it, such as by stinthttp.Middleware"},
	WarnNameConflict:     {"name-conflict", "two limiters on one store give a limit's name different numbers: write another stint.WithName in one of them"},
	WarnStoreForgets:     {"store-forgets", "the store's server evicts keys, so callers get limits anew that they have used up: write maxmemory-policy volatile-ttl in its configuration"},
}

func (k WarningKind) known() bool { return k > 0 && int(k) < len(warningKinds) }

// String returns the kind as logs and links have it: "one-key".
func (k WarningKind) String() string {
	if !k.known() {
		return fmt.Sprintf("WarningKind(%d)", k)
	}
	return warningKinds[k].name
}

// link returns a link to the kind's line in docs/warnings.md.
func (k WarningKind) link() string {
	return "https://github.com/stint-go/stint/blob/main/docs/warnings.md#" + warningKinds[k].name
}

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	Kind WarningKind
	// Limits are the names of the limits that the warning, or the key it is about,
	// belongs to. It is empty for warnings about the limiter, and about the key of a
	// WithLimitFunc.
	Limits []string
	// Text says what was found and what to write instead. Link leads to its line
	// in docs/warnings.md.
	Text, Link string
}

// silence is a set of kinds of warning that a limiter doesn't give.
type silence uint32

func (s silence) has(k WarningKind) bool { return s>>k&1 != 0 }
