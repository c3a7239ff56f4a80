package stint

import (
	"fmt"
)

// WarningKind is a kind of likely mistake that a limiter warns about. docs/warnings.md
// says for each what the mistake is, what you see and what to write instead.
type WarningKind uint8

const (
	// WarnForwardingHeader: the key is a forwarding header, which any client can write. New finds a
	// Header, alone or in Join, FirstOf or Hash.
	WarnForwardingHeader WarningKind = iota + 1
	// WarnPortInKey: a function has returned a key with the address and port of a RemoteAddr, for
	// one of the first 100 requests.
	WarnPortInKey
	// WarnUntrustedProxy: at least 90 of the first 100 requests have a forwarding header, none that
	// names their peer as a client, and the peer's address as the key, alone or in a Join or
	// FirstOf. Or the key is an IPv4 address in the middle of X-Forwarded-For: only the nearest of
	// several proxies is trusted.
	WarnUntrustedProxy
	// WarnKeysNeverRepeat: no key came twice in the first 10,000 requests. Only the first 1,000 keys
	// are recognized. Keys with the peer's address aren't looked at: a service may see each once.
	WarnKeysNeverRepeat
	// WarnOneKey: 99 % of the first 10,000 requests have the same key: a proxy names no clients, the
	// key is Pattern and no request has one, or a function returns the same for all. It isn't found
	// for keys such as Method and MuxPattern, which may have few values, nor together with
	// WarnUntrustedProxy.
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
	// WarnQuotaUnreachable: a rate beside a quota, with the same key, lets less through in the
	// quota's period than the quota. The Text names both. Both are enforced, and neither has a
	// WithCost or a WithSettle.
	WarnQuotaUnreachable
	// WarnUpdateDrops: an Update leaves out or renames a limit that New or With was given. The
	// Text names it. Limits that an Update has brought may go, and so may dry runs. The next Update
	// ends the warning.
	WarnUpdateDrops
	// WarnStoreFull: the store in memory has had no room for 100 charges on new keys, which
	// share states. The Text says what to write.
	WarnStoreFull
	// WarnNameConflict: two limiters of a process that With hasn't derived from each other give a
	// limit's name different numbers on one store of WithStore. The Text has both. The limiter that
	// is made or updated later is warned, once for each name. Limits of a WithLimitFunc aren't
	// compared, nor are those of a limiter that turns the warning off, or of another process.
	WarnNameConflict
)

var warningKinds = [...]struct{ name, text string }{
	WarnForwardingHeader: {"forwarding-header", "the key is a forwarding header, which any client can write: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	WarnPortInKey:        {"port-in-key", "the key contains the caller's port, so each connection has limits of its own: use stint.RemoteIP"},
	WarnUntrustedProxy:   {"untrusted-proxy", "requests come through a proxy that the key doesn't trust, so its clients share limits: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	WarnKeysNeverRepeat:  {"keys-never-repeat", "no key came twice in the first 10,000 requests, so nobody is limited: use a key that stays the same for a caller"},
	WarnOneKey:           {"one-key", "almost all of the first 10,000 requests have the same key, and share its limits: use a key that distinguishes callers, or stint.Global()"},
	WarnRebuilt:          {"rebuilt", "limiters are built again and again while requests are served: build them once, at start-up"},
	WarnCostTooHigh:      {"cost-too-high", "requests cost more than a limit ever lets pass: lower their cost, or raise the limit"},
	WarnNothingWaits:     {"nothing-waits", "WithPriority and WithShare order requests that wait, and none waits: write stint.WithMaxWait or stint.WithQueue, or leave them out"},
	WarnStoreForgets:     {"store-forgets", "the store's server evicts keys, so callers get limits anew that they have used up: write maxmemory-policy volatile-ttl in its configuration"},
	WarnQuotaUnreachable: {"quota-unreachable", "a rate beside a quota lets less through in the quota's period than the quota: lower the quota, or raise the rate"},
	WarnUpdateDrops:      {"update-drops", "an Update leaves out or renames limits, so callers begin anew: the limits of an Update replace all before, write those that stay beside them"},
	WarnStoreFull:        {"store-full", "the store in memory is full, so new keys share states: write memstore.WithMaxKeys, or use keys that clients can't make up"},
	WarnNameConflict:     {"name-conflict", "two limiters on one store give a limit's name different numbers: write another stint.WithName in one of them"},
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
