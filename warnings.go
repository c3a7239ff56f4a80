package stint

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of warning, and what is found. docs/warnings.md has a line for each, and WithoutWarnings
// lists them.
const (
	// warnForwardingHeader: the key is a forwarding header, which any client can write. New finds a
	// Header, alone or in Join, FirstOf or Hash.
	warnForwardingHeader = "forwarding-header"
	// warnPortInKey: a function has returned a key with the address and port of a RemoteAddr, for
	// one of the first 100 requests.
	warnPortInKey = "port-in-key"
	// warnUntrustedProxy: at least 90 of the first 100 requests have a forwarding header, none that
	// names their peer as a client, and the peer's address as the key, alone or in a Join or
	// FirstOf. Or the key is an IPv4 address in the middle of X-Forwarded-For: only the nearest of
	// several proxies is trusted.
	warnUntrustedProxy = "untrusted-proxy"
	// warnKeysNeverRepeat: no key came twice in the first 10,000 requests. Only the first 1,000 keys
	// are recognized. Keys with the peer's address aren't looked at: a service may see each once.
	warnKeysNeverRepeat = "keys-never-repeat"
	// warnOneKey: 99 % of the first 10,000 requests have the same key: a proxy names no clients, the
	// key is Pattern and no request has one, or a function returns the same for all. It isn't found
	// for keys such as Method and MuxPattern, which may have few values, nor together with
	// warnUntrustedProxy.
	warnOneKey = "one-key"
	// warnRebuilt: limiters are built again and again inside HTTP handlers. New built 100
	// that were garbage within 10 seconds, which is found once in a process; or With
	// derived 1,000 of one family.
	warnRebuilt = "rebuilt"
	// warnCostTooHigh: a request, or a Take, costs more than a limit ever lets pass. The
	// Text names both. It comes once for each limit. Costs of a dry run, and costs that
	// only have to wait, aren't found.
	warnCostTooHigh = "cost-too-high"
	// warnNothingWaits: WithPriority or WithShare is given, and no limit makes
	// a request wait. Limits with GivenKey, for which Limiter.Wait waits, and limiters with
	// a WithLimitFunc aren't found.
	warnNothingWaits = "nothing-waits"
	// warnStoreForgets: the server of the store evicts keys, and with them what callers have
	// used. The Text names the server and what to set. A redisstore asks each master by
	// INFO, in the background: it has a maxmemory and a policy other than noeviction and
	// volatile-ttl, or its evicted_keys grows. It asks none if INFO isn't allowed, or if it
	// doesn't know the client's type.
	warnStoreForgets = "store-forgets"
	// warnQuotaUnreachable: a rate beside a quota, with the same key, lets less through in the
	// quota's period than the quota. The Text names both. Both are enforced, and neither has a
	// WithCost or a WithSettle.
	warnQuotaUnreachable = "quota-unreachable"
	// warnUpdateDrops: an Update leaves out or renames a limit that New or With was given. The
	// Text names it. Limits that an Update has brought may go, and so may dry runs. The next Update
	// ends the warning.
	warnUpdateDrops = "update-drops"
	// warnStoreFull: the store in memory has had no room for 100 charges on new keys, which
	// share states. The Text says what to write.
	warnStoreFull = "store-full"
	// warnNameConflict: two limiters of a process that With hasn't derived from each other give a
	// limit's name different numbers on one store of WithStore. The Text has both. The limiter that
	// is made or updated later is warned, once for each name. Limits of a WithLimitFunc aren't
	// compared, nor are those of a limiter that turns the warning off, or of another process.
	warnNameConflict = "name-conflict"
)

// warningKinds has each kind of warning and its text, unless a finding has its own.
var warningKinds = [...]struct{ kind, text string }{
	{warnForwardingHeader, "the key is a forwarding header, which any client can write: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	{warnPortInKey, "the key contains the caller's port, so each connection has limits of its own: use stint.RemoteIP"},
	{warnUntrustedProxy, "requests come through a proxy that the key doesn't trust, so its clients share limits: use stint.ForwardedIP or stint.HeaderIP, with the addresses of your proxies"},
	{warnKeysNeverRepeat, "no key came twice in the first 10,000 requests, so nobody is limited: use a key that stays the same for a caller"},
	{warnOneKey, "almost all of the first 10,000 requests have the same key, and share its limits: use a key that distinguishes callers, or stint.Global()"},
	{warnRebuilt, "limiters are built again and again while requests are served: build them once, at start-up"},
	{warnCostTooHigh, "requests cost more than a limit ever lets pass: lower their cost, or raise the limit"},
	{warnNothingWaits, "WithPriority and WithShare order requests that wait, and none waits: write stint.WithMaxWait or stint.WithQueue, or leave them out"},
	{warnStoreForgets, "the store's server evicts keys, so callers get limits anew that they have used up: write maxmemory-policy volatile-ttl in its configuration"},
	{warnQuotaUnreachable, "a rate beside a quota lets less through in the quota's period than the quota: lower the quota, or raise the rate"},
	{warnUpdateDrops, "an Update leaves out or renames limits, so callers begin anew: the limits of an Update replace all before, write those that stay beside them"},
	{warnStoreFull, "the store in memory is full, so new keys share states: write memstore.WithMaxKeys, or use keys that clients can't make up"},
	{warnNameConflict, "two limiters on one store give a limit's name different numbers: write another stint.WithName in one of them"},
}

// warningOf returns the place of a kind in warningKinds, or -1.
func warningOf(kind string) int {
	for i := range warningKinds {
		if warningKinds[i].kind == kind {
			return i
		}
	}
	return -1
}

// warningLink returns a link to a kind's line in docs/warnings.md.
func warningLink(kind string) string {
	return "https://github.com/stint-go/stint/blob/main/docs/warnings.md#" + kind
}

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	// Kind is one of the kinds that WithoutWarnings lists, such as "one-key". docs/warnings.md
	// explains each mistake and what to write instead.
	Kind string
	// Limits are the names of the limits that the warning is about, or whose key it is about.
	// It is empty for warnings about the limiter, and about the key of a WithLimitFunc.
	Limits []string
	// Text describes the mistake and what to write instead. Link is the address of its line in
	// docs/warnings.md.
	Text, Link string
}

// WithoutWarnings turns off warnings of these kinds, for the limiter and limiters derived from
// it. Without arguments it turns off all. docs/warnings.md explains the kinds; New returns an
// error for any other:
//
//	forwarding-header  port-in-key  untrusted-proxy  keys-never-repeat  one-key
//	rebuilt  cost-too-high  nothing-waits  store-forgets  quota-unreachable
//	update-drops  store-full  name-conflict
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists it. To find mistakes, the limiter inspects the first 10,000 requests
// of each WithKey, without keeping a key. It inspects none if port-in-key, untrusted-proxy,
// keys-never-repeat and one-key are all turned off.
func WithoutWarnings(kinds ...string) Option {
	return option("WithoutWarnings", func(c *config) {
		if len(kinds) == 0 {
			c.silent = ^silence(0)
		}
		for _, k := range kinds {
			i := warningOf(k)
			if i < 0 {
				c.Errs.Add(fmt.Sprintf("WithoutWarnings(%.80q)", k), "", "write "+knownWarnings())
				continue
			}
			c.silent |= 1 << i
		}
	})
}

// knownWarnings lists the kinds in words.
func knownWarnings() string {
	var all []string
	for _, k := range warningKinds {
		all = append(all, k.kind)
	}
	slices.Sort(all)
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// silence is a set of kinds of warning that a limiter doesn't give: bits by their places in
// warningKinds.
type silence uint32

func (s silence) has(kind string) bool { return s>>warningOf(kind)&1 != 0 }
