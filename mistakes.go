package stint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// What likely mistakes there are, and where each is found. The book keeps what was found.

// noteBuilt returns a notice if limiters are built again and again while requests are served. v
// was built now: derived from another of the family, or as the first of it.
func (b *book) noteBuilt(v *version, derived bool) []notice {
	if v.silent.has(WarnRebuilt) || !b.builds.Add(derived) {
		return nil
	}
	return b.note(v, finding{kind: WarnRebuilt, still: func(*version) bool { return true }})
}

// idle reports whether the version orders requests that wait, although none waits. Those of a
// key that Take is given wait in Limiter.Wait, those of a constant one may, with the class of
// their context, and so may those of limits that a function returns.
func (v *version) idle() bool {
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
	return shares || !waits && (v.priority != nil || v.aging != defaultAging)
}

// noteUnreachable returns notices of the quotas of v that a rate beside them never lets through.
func (b *book) noteUnreachable(v *version) (all []notice) {
	for _, p := range v.plans.All() {
		for _, u := range compile.Unreached(p) {
			text := fmt.Sprintf("limit %q lets %d pass, and limit %q beside it at most %d in that time: lower the quota, or raise the rate",
				u.Quota, u.Units, u.Rate, u.Most)
			all = append(all, b.note(v, finding{kind: WarnQuotaUnreachable, limits: []string{u.Quota}, text: text, still: func(v *version) bool {
				return slices.ContainsFunc(v.plans.All(), func(p *read.Plan) bool {
					return slices.Contains(compile.Unreached(p), u)
				})
			}})...)
		}
	}
	return all
}

// noteConflict returns a notice of a name to which another limiter of the process gives other
// numbers.
func (b *book) noteConflict(v *version, c namesakes.Conflict) []notice {
	text := fmt.Sprintf("limit %q is %q here and %q in another limiter on its store, so what a caller gets depends on which one decides: "+
		"write another stint.WithName in one of them", c.Name, c.Says, c.Other)
	still := func(o *version) bool { return c.Lasts() && o.means(c.Name, c.Says) }
	return b.note(v, finding{kind: WarnNameConflict, limits: []string{c.Name}, text: text, still: still})
}

// means reports whether a limit of the version has that name and those numbers.
func (v *version) means(name, says string) bool {
	for e := range v.plans.Entries {
		if e.Name() == name && compile.Text(e) == says {
			return true
		}
	}
	return false
}

// noteDropped returns notices of limits that an Update has left out or renamed, and of the
// limiter's name. was and is are the limits of the family before and after it. A limit that an
// Update has brought was meant to come and go, so only those that New and With were given count.
// The warnings are about that Update: the next one ends them.
func (b *book) noteDropped(before, v *version, was, is map[string]string) (all []notice) {
	note := func(limits []string, text string) {
		all = append(all, b.note(v, finding{kind: WarnUpdateDrops, limits: limits, text: text, still: func(o *version) bool { return o == v }})...)
	}
	if b.brought == nil {
		b.brought = map[string]bool{}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		switch {
		case is[name] != "":
		case b.brought[name]:
			delete(b.brought, name)
		default:
			text := fmt.Sprintf("Update leaves out limit %q, so no request is held to it any more: its options are complete, write the limit there, too", name)
			for _, other := range slices.Sorted(maps.Keys(is)) {
				if was[other] == "" && is[other] == was[name] {
					text = fmt.Sprintf("Update renames limit %q to %q, so callers begin anew: keep its name, by stint.WithName(%[1]q)", name, other)
				}
			}
			note([]string{name}, text)
		}
	}
	for name := range is {
		if was[name] == "" {
			b.brought[name] = true
		}
	}
	if before.name != "" && v.name != before.name && !b.renamed {
		b.renamed = true
		note(nil, fmt.Sprintf("Update renames the limiter %q to %q, so its figures begin anew: keep stint.WithLimiterName(%[1]q)", before.name, v.name))
	}
	return all
}

// noteMissed warns of routes that no request has matched although some were for them.
func (v *version) noteMissed() {
	missed := v.routes.Missed()
	for _, p := range v.plans.Routes {
		meant := missed[p.Pattern]
		if meant == "" {
			continue
		}
		var limits []string
		for _, e := range p.Entries {
			limits = append(limits, e.Name())
		}
		text := fmt.Sprintf("route %q has matched none of the first 10,000 requests, and others seem to be for it: write stint.WithRoute(%q, …)", p.Pattern, meant)
		still := func(o *version) bool {
			return slices.ContainsFunc(o.plans.Routes, func(q *read.Plan) bool { return q.Pattern == p.Pattern })
		}
		v.warn(finding{kind: WarnRouteMissed, limits: limits, text: text, still: still})
	}
}

// noteExempt warns that requests are exempt for the address of their proxy.
func (v *version) noteExempt() {
	v.warn(finding{kind: WarnProxyExempt, still: func(o *version) bool { return o == v }})
}

// twiceLooks is how many charges of nested limiters are looked at.
const twiceLooks = 10_000

// lookTwice warns if a limiter of another family, further out, has charged the same limit in the
// same store for the request.
func (b *book) lookTwice(v *version, outer *Permit, e *read.Entry, key string) {
	if b.twice.Load() >= twiceLooks || !v.compiled.Lent || e.Needs&limit.Local != 0 {
		return
	}
	b.twice.Add(1)
	hash := e.Limit.Limit.Engine(engine.Access{}).Hash()
	for p := outer; p != nil; p = p.outer {
		if p.version == nil || !p.version.compiled.Lent || !same(p.version.backend.Store, v.backend.Store) || !p.grants.Charged(hash, key) {
			continue
		}
		b.twice.Store(twiceLooks)
		limits := []string{e.Name()}
		text := fmt.Sprintf("a request is charged twice to limit %q, by two limiters on one store of which one is mounted inside the other: "+
			"derive the inner one by Limiter.With, or write another stint.WithName in it", e.Name())
		v.warn(finding{kind: WarnChargedTwice, limits: limits, text: text, still: func(v *version) bool { return v.has(limits) }})
	}
}

// noteCost warns of a denied charge whose cost the limit never lets pass, if that is why.
func (v *version) noteCost(ch *store.Charge) {
	name, cost, most := ch.Limit.Name(), ch.Cost, largest(ch.Limit)
	if cost <= most || !v.warnings.first(name) {
		return
	}
	text := fmt.Sprintf("a request costs %d, and limit %q never lets more than %d pass: lower the cost, or raise the limit", cost, name, most)
	if isBucket(ch.Limit) {
		text += fmt.Sprintf(", such as by stint.WithBurst(%d)", cost)
	}
	still := func(v *version) bool { return v.denies(name, cost) }
	v.warn(finding{kind: WarnCostTooHigh, limits: []string{name}, text: text, still: still})
}

// lookAtKey looks at the key of a request that a limit has let pass or denied, and warns if the
// limit has denied nearly all keys. The denials are those that count for a Ban, which say what the
// caller asks for; not those of a cost that never passes. Jobs aren't looked at: a program may
// ask Allow again and again, to do something once an hour.
func (v *version) lookAtKey(l *limit.Limit, ch *store.Charge, r *store.Result) {
	denied := !r.OK && r.RetryAfter != store.Never && l.Counted()
	if !denied || v.silent.has(WarnLimitTooLow) {
		l.Record.Denials.See(ch.Key, denied) // a limiter of the family may look
	} else if s := l.Record.Denials.Deny(ch.Key); s != nil {
		v.noteTooLow(l, ch, s)
	}
}

// noteTooLow warns of a limit that has denied a share of its keys.
func (v *version) noteTooLow(l *limit.Limit, ch *store.Charge, s *limit.Share) {
	name, denied, write := ch.Limit.Name(), "denied", "raise it"
	if ch.DryRun {
		denied = "would have denied"
	}
	if isBucket(ch.Limit) {
		write = "raise its rate, or its burst by stint.WithBurst"
	}
	text := fmt.Sprintf("limit %q (%s) %s about %d of %d keys within an hour: %s",
		name, inWords.Replace(namesakes.Says(ch.Limit.Spec())), denied, s.Denied, s.Keys, write)
	still := func(o *version) bool {
		for e := range o.plans.Entries {
			if e.Record == l.Record {
				return true
			}
		}
		return false
	}
	v.warn(finding{kind: WarnLimitTooLow, limits: []string{name}, text: text, still: still})
}

// isBucket reports whether WithBurst raises what a limit lets pass.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket
}

// denies reports whether a limit of the version never lets a request of that cost pass.
func (v *version) denies(limit string, cost int64) bool {
	for e := range v.plans.Entries {
		if e.Name() == limit {
			return largest(e.Limit.Limit) < cost
		}
	}
	return false
}

// find adds what was found about a key's source, and returns a notice for each warning that
// is new. It goes to the first of all that has the key and warns of the kind.
func (b *book) find(all []*version, of *warn.Source, found warn.Found) (news []notice) {
	for _, w := range keyWarnings {
		if !w.found(found) {
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
		if to != nil {
			f := finding{kind: w.kind, limits: limits, of: of}
			switch {
			case w.kind == WarnUntrustedProxy && found.Field != "":
				f.text = fmt.Sprintf("requests come through a proxy that the key doesn't trust, so its clients share limits: "+
					"it names them in %s: use stint.SingleIPHeader(%[1]q, …), with the proxy's address", found.Field)
			case w.kind == WarnForwardingHeader && found.Claimed:
				f.text = "the key takes an address from a forwarding header that clients without a proxy have written, " +
					"as gin's c.ClientIP and echo's c.RealIP do by default: use stint.ForwardedIP or stint.SingleIPHeader, with the addresses of your proxies"
			case w.kind == WarnOneKey && found.Missing != "":
				f.text = fmt.Sprintf("a function returns the key %q for almost all requests, which share its limits: return \"\" if there is no value, for stint.WithEmptyKey to decide", found.Missing)
			}
			news = append(news, b.add(all, to, f)...)
		}
	}
	return news
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
func (v *version) warnsOfKeys() bool {
	for _, w := range keyWarnings {
		if !v.silent.has(w.kind) {
			return true
		}
	}
	return false
}

// has reports whether the version has all of these limits.
func (v *version) has(limits []string) bool {
	n := 0
	for e := range v.plans.Entries {
		if slices.Contains(limits, e.Name()) {
			n++
		}
	}
	return n >= len(limits)
}
