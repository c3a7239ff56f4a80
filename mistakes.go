package stint

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// What likely mistakes there are, and how each is found: by functions that look at a version, or at
// what it has decided. The book keeps what they find.

// clues are what some mistakes are found from: what has happened to the limiters of a family. They
// are safe for concurrent use, except the fields that family.mu guards.
type clues struct {
	builds warn.Builds
	nested atomic.Int64 // charges inside limiters of other families that were looked at

	tooCostly sync.Map // the limits that a request cost too much for
	costly    atomic.Int64

	// Guarded by family.mu.
	brought map[string]bool // the limits that an Update has brought
	renamed bool            // an Update has renamed the limiter
}

// rebuilt finds that limiters are built again and again while requests are served. v was built
// now: derived from another of the family, or as the first of it.
func (c *clues) rebuilt(v *version, derived bool) []finding {
	if v.silent.has(WarnRebuilt) || !c.builds.Add(derived) {
		return nil
	}
	return []finding{{kind: WarnRebuilt, applies: func(*version) bool { return true }}}
}

// nothingWaits finds that the version orders requests that wait, although none waits.
func nothingWaits(v *version) []finding {
	if !ordersNone(v) {
		return nil
	}
	return []finding{{kind: WarnNothingWaits, applies: ordersNone}}
}

// ordersNone reports whether the version orders requests that wait, although none waits. Those of
// a key that Take is given wait in Limiter.Wait, those of a constant one may, with the class of
// their context, and so may those of limits that a function returns.
func ordersNone(v *version) bool {
	if len(v.compiled.Funcs) > 0 {
		return false
	}
	waits, shares := false, false
	for e := range v.plans.Entries {
		if e.Needs&limit.Waits != 0 || e.Key.Given || e.Key.Constant != "" && v.priority == nil {
			waits = true
		} else if e.Terms.Shares != nil && e.Terms.Shares() != nil {
			shares = true
		}
	}
	return shares || !waits && v.priority != nil
}

// onlyTurns reports whether requests wait for turns, and none takes a slot.
func onlyTurns(v *version) bool {
	turns := false
	for e := range v.plans.Entries {
		if e.Terms.Way == waiting.ForSlot {
			return false
		}
		turns = turns || e.Needs&limit.Waits != 0
	}
	return turns && len(v.compiled.Funcs) == 0
}

// unreachable finds the quotas of v that a rate beside them never lets through.
func unreachable(v *version) (found []finding) {
	for _, p := range v.plans.All() {
		for _, u := range compile.Unreached(p) {
			text := fmt.Sprintf("limit %q lets %d pass, and limit %q beside it at most %d in that time: lower the quota, or raise the rate",
				u.Quota, u.Units, u.Rate, u.Most)
			found = append(found, finding{kind: WarnQuotaUnreachable, limits: []string{u.Quota}, text: text, applies: func(v *version) bool {
				return slices.ContainsFunc(v.plans.All(), func(p *read.Plan) bool {
					return slices.Contains(compile.Unreached(p), u)
				})
			}})
		}
	}
	return found
}

// conflicting finds that another limiter of the process gives a name other numbers.
func conflicting(c namesakes.Conflict) finding {
	text := fmt.Sprintf("limit %q is %q here and %q in another limiter on its store, so what a caller gets depends on which one decides: "+
		"write another stint.WithName in one of them", c.Name, c.Says, c.Other)
	return finding{kind: WarnNameConflict, limits: []string{c.Name}, text: text, applies: func(v *version) bool {
		return c.Lasts() && v.hasEntry(func(e *read.Entry) bool { return e.Name() == c.Name && compile.Text(e) == c.Says })
	}}
}

// dropped finds limits that an Update has left out or renamed, and the limiter's name. was and is
// are the limits of the family before and after it. A limit that an Update has brought was meant
// to come and go, so only those that New and With were given count. The warnings are about that
// Update: the next one ends them.
func (c *clues) dropped(before, after *version, was, is map[string]string) (found []finding) {
	drops := func(limits []string, text string) {
		found = append(found, finding{kind: WarnUpdateDrops, limits: limits, text: text, applies: func(v *version) bool { return v == after }})
	}
	if c.brought == nil {
		c.brought = map[string]bool{}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		switch {
		case is[name] != "":
		case c.brought[name]:
			delete(c.brought, name)
		default:
			text := fmt.Sprintf("Update leaves out limit %q, so no request is held to it any more: its options are complete, write the limit there, too", name)
			for _, other := range slices.Sorted(maps.Keys(is)) {
				if was[other] == "" && is[other] == was[name] {
					text = fmt.Sprintf("Update renames limit %q to %q, so callers begin anew: keep its name, by stint.WithName(%[1]q)", name, other)
				}
			}
			drops([]string{name}, text)
		}
	}
	for name := range is {
		if was[name] == "" {
			c.brought[name] = true
		}
	}
	if before.name != "" && after.name != before.name && !c.renamed {
		c.renamed = true
		drops(nil, fmt.Sprintf("Update renames the limiter %q to %q, so its figures begin anew: keep stint.WithLimiterName(%[1]q)", before.name, after.name))
	}
	return found
}

// missed finds routes that no request has matched although some were for them.
func missed(v *version) (found []finding) {
	meant := v.routes.Missed()
	for _, p := range v.plans.Routes {
		if meant[p.Pattern] == "" {
			continue
		}
		var limits []string
		for _, e := range p.Entries {
			limits = append(limits, e.Name())
		}
		text := fmt.Sprintf("route %q has matched none of the first 10,000 requests, and others seem to be for it: write stint.WithRoute(%q, …)", p.Pattern, meant[p.Pattern])
		found = append(found, finding{kind: WarnRouteMissed, limits: limits, text: text, applies: func(v *version) bool {
			return slices.ContainsFunc(v.plans.Routes, func(q *read.Plan) bool { return q.Pattern == p.Pattern })
		}})
	}
	return found
}

// proxyExempt finds that requests are exempt by a version for the address of their proxy.
func proxyExempt(by *version) finding {
	return finding{kind: WarnProxyExempt, applies: func(v *version) bool { return v == by }}
}

// nestedLooks is how many charges of nested limiters are looked at.
const nestedLooks = 10_000

// looksAtNested reports whether a charge inside a limiter of another family is to be looked at: it
// may be made twice.
func (c *clues) looksAtNested() bool {
	return c.nested.Load() < nestedLooks && c.nested.Add(1) <= nestedLooks
}

// chargedTwice finds that a limiter of another family, further out, has charged the same limit in
// the same store for a request. No other charge is looked at then.
func (c *clues) chargedTwice(e *read.Entry) finding {
	c.nested.Store(nestedLooks)
	limits := []string{e.Name()}
	text := fmt.Sprintf("a request is charged twice to limit %q, by two limiters on one store of which one is mounted inside the other: "+
		"derive the inner one by Limiter.With, or write another stint.WithName in it", e.Name())
	return finding{kind: WarnChargedTwice, limits: limits, text: text, applies: func(v *version) bool { return v.has(limits) }}
}

// costTooHigh finds that a denied charge has a cost that its limit never lets pass, if that is why.
func (c *clues) costTooHigh(ch *store.Charge) []finding {
	name, cost, most := ch.Limit.Name(), ch.Cost, largest(ch.Limit)
	if cost <= most || !c.first(name) {
		return nil
	}
	text := fmt.Sprintf("a request costs %d, and limit %q never lets more than %d pass: lower the cost, or raise the limit", cost, name, most)
	if isBucket(ch.Limit) {
		text += fmt.Sprintf(", such as by stint.WithBurst(%d)", cost)
	}
	return []finding{{kind: WarnCostTooHigh, limits: []string{name}, text: text, applies: func(v *version) bool {
		for e := range v.plans.Entries {
			if e.Name() == name {
				return largest(e.Limit.Limit) < cost
			}
		}
		return false
	}}}
}

// first reports whether a request costs too much for a limit for the first time, and not for many
// limits before. Requests call it, so it mostly takes no lock.
func (c *clues) first(limit string) bool {
	if _, seen := c.tooCostly.Load(limit); seen || c.costly.Load() >= mostWarnings {
		return false
	}
	_, seen := c.tooCostly.LoadOrStore(limit, nil)
	return !seen && c.costly.Add(1) <= mostWarnings
}

// largest is the largest cost that a limit ever lets pass.
func largest(l *store.Limit) int64 { return l.Engine(engine.Access{}).Terms().Largest }

// tooLow looks at the key of a request that a limit has let pass or denied, and finds that the
// limit has denied nearly all keys. The denials are those that count for a Ban, which say what the
// caller asks for; not those of a cost that never passes. Jobs aren't looked at: a program may
// ask Allow again and again, to do something once an hour.
func tooLow(v *version, l *limit.Limit, ch *store.Charge, r *store.Result) []finding {
	denied := !r.OK && r.RetryAfter != store.Never && l.Counted()
	if !denied || v.silent.has(WarnLimitTooLow) {
		l.Record.Denials.See(ch.Key, denied) // a limiter of the family may look
		return nil
	}
	s := l.Record.Denials.Deny(ch.Key)
	if s == nil {
		return nil
	}
	name, denies, write := ch.Limit.Name(), "denied", "raise it"
	if ch.DryRun {
		denies = "would have denied"
	}
	if isBucket(ch.Limit) {
		write = "raise its rate, or its burst by stint.WithBurst"
	}
	text := fmt.Sprintf("limit %q (%s) %s about %d of %d keys within an hour: %s",
		name, inWords.Replace(namesakes.Says(ch.Limit.Spec())), denies, s.Denied, s.Keys, write)
	return []finding{{kind: WarnLimitTooLow, limits: []string{name}, text: text, applies: func(v *version) bool {
		return v.hasEntry(func(e *read.Entry) bool { return e.Record == l.Record })
	}}}
}

// isBucket reports whether WithBurst raises what a limit lets pass.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket
}

// wrongKeys finds what requests have shown about a key's source. Each finding goes to the first of
// all versions that has the key and warns of the kind.
func wrongKeys(all []*version, of *warn.Source, shown warn.Found) iter.Seq2[*version, finding] {
	return func(yield func(*version, finding) bool) {
		for _, w := range keyWarnings {
			if !w.found(shown) {
				continue
			}
			var to *version
			var limits []string
			for _, v := range all {
				names, uses := v.uses(of)
				if !uses || v.silent.has(w.kind) {
					continue
				}
				to = cmp.Or(to, v)
				for _, name := range names {
					if !slices.Contains(limits, name) {
						limits = append(limits, name)
					}
				}
			}
			if to != nil && !yield(to, finding{kind: w.kind, limits: limits, text: keyText(w.kind, shown), applies: usesFor(of, limits)}) {
				return
			}
		}
	}
}

// usesFor returns whether versions have a key's source, for one of limits if these are known.
func usesFor(of *warn.Source, limits []string) func(*version) bool {
	return func(v *version) bool {
		names, uses := v.uses(of)
		has := func(limit string) bool { return slices.Contains(names, limit) }
		return uses && (len(limits) == 0 || slices.ContainsFunc(limits, has))
	}
}

// keyText returns the text of a warning about a key if it is more precise than the kind's, or "".
func keyText(k WarningKind, shown warn.Found) string {
	switch {
	case k == WarnUntrustedProxy && shown.Field != "":
		return fmt.Sprintf("requests come through a proxy that the key doesn't trust, so its clients share limits: "+
			"it names them in %s: use stint.SingleIPHeader(%[1]q, …), with the proxy's address", shown.Field)
	case k == WarnForwardingHeader && shown.Claimed:
		return "the key takes an address from a forwarding header that clients without a proxy have written, " +
			"as gin's c.ClientIP and echo's c.RealIP do by default: use stint.ForwardedIP or stint.SingleIPHeader, with the addresses of your proxies"
	case k == WarnOneKey && shown.Missing != "":
		return fmt.Sprintf("a function returns the key %q for almost all requests, which share its limits: return \"\" if there is no value, for stint.WithEmptyKey to decide", shown.Missing)
	}
	return ""
}

// keyWarnings are the warnings that signs of a wrong key come to.
var keyWarnings = [...]struct {
	kind  WarningKind
	found func(warn.Found) bool
}{
	{WarnForwardingHeader, func(f warn.Found) bool { return f.Forwarding }},
	{WarnPortInKey, func(f warn.Found) bool { return f.Port }},
	{WarnUntrustedProxy, func(f warn.Found) bool { return f.Proxy }},
	{WarnSilentProxy, func(f warn.Found) bool { return f.Silent }},
	{WarnNoPattern, func(f warn.Found) bool { return f.Bare }},
	{WarnKeysNeverRepeat, func(f warn.Found) bool { return f.Unique }},
	{WarnOneKey, func(f warn.Found) bool { return f.Single || f.Missing != "" }},
}

// warnsOfKeys reports whether the version gives a warning for which requests are looked at.
func warnsOfKeys(v *version) bool {
	for _, w := range keyWarnings {
		if !v.silent.has(w.kind) {
			return true
		}
	}
	return false
}
