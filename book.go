package stint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero book is empty.
type book struct {
	mu  sync.Mutex
	all []*finding

	seen   sync.Map // the limits of first
	limits atomic.Int64

	builds warn.Builds
	leaks  atomic.Bool  // a permit was dropped without Done
	twice  atomic.Int64 // charges inside limiters of other families that were looked at

	// Guarded by family.mu.
	brought map[string]bool // the limits that an Update has brought
	renamed bool            // an Update has renamed the limiter
}

// finding is a likely mistake that was found.
type finding struct {
	kind   WarningKind
	limits []string     // whose key it is about, or that it is about
	of     *warn.Source // of the key it is about, or nil
	text   string       // instead of the kind's
	place  string       // in the program, where the mistake is; or ""
	// still reports whether it is about something that a version has; nil: if that has of.
	still func(*version) bool
}

func (f *finding) warning() Warning {
	return Warning{f.kind, f.limits, cmp.Or(f.text, warningKinds[f.kind].text), f.kind.link()}
}

// notice is a warning that a limiter hasn't given yet.
type notice struct {
	*finding
	to *version
}

// give logs the warning, and notifies the observers.
func (n notice) give() {
	w := n.warning()
	n.to.observeSafely(Event{Kind: EventWarning, Warning: &w})
}

// note adds a warning about v that isn't about a key, and returns a notice if it is new.
func (b *book) note(v *version, f finding) []notice {
	if v.silent.has(f.kind) {
		return nil
	}
	return b.add([]*version{v}, v, f)
}

// noteBuilt returns a notice if limiters are built again and again while requests are served. v
// was built now: derived from another of the family, or as the first of it.
func (b *book) noteBuilt(v *version, derived bool) []notice {
	if v.silent.has(WarnRebuilt) || !b.builds.Add(derived) {
		return nil
	}
	return b.note(v, finding{kind: WarnRebuilt, still: func(*version) bool { return true }})
}

// noteUnreachable returns notices of the quotas of v that a rate beside them never lets through.
func (b *book) noteUnreachable(v *version) (all []notice) {
	for _, p := range append([]*read.Plan{v.plans.Base}, v.plans.Routes...) {
		for _, u := range compile.Unreached(p) {
			text := fmt.Sprintf("limit %q lets %d pass, and limit %q beside it at most %d in that time: lower the quota, or raise the rate",
				u.Quota, u.Units, u.Rate, u.Most)
			all = append(all, b.note(v, finding{kind: WarnQuotaUnreachable, limits: []string{u.Quota}, text: text, still: func(v *version) bool {
				return slices.ContainsFunc(append([]*read.Plan{v.plans.Base}, v.plans.Routes...), func(p *read.Plan) bool {
					return slices.Contains(compile.Unreached(p), u)
				})
			}})...)
		}
	}
	return all
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
		for _, n := range v.warnings.note(v, finding{kind: WarnRouteMissed, limits: limits, text: text, still: still}) {
			n.give()
		}
	}
}

// noteExempt warns that requests are exempt for the address of their proxy.
func (v *version) noteExempt() {
	for _, n := range v.warnings.note(v, finding{kind: WarnProxyExempt, still: func(o *version) bool { return o == v }}) {
		n.give()
	}
}

// first reports whether a limit is seen for the first time, and not many were before: the
// caller that finds something about it notes it then. Requests call it, so it mostly takes no
// lock.
func (b *book) first(limit string) bool {
	if _, seen := b.seen.Load(limit); seen || b.limits.Load() >= mostWarnings {
		return false
	}
	_, seen := b.seen.LoadOrStore(limit, nil)
	return !seen && b.limits.Add(1) <= mostWarnings
}

// mostWarnings bounds the memory for warnings if limits get other names at each Update.
const mostWarnings = 100

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

// add returns a notice for one of all versions, unless there already is a warning of that kind
// for the same limits.
func (b *book) add(all []*version, to *version, f finding) []notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.all {
		if o.kind == f.kind && slices.Equal(o.limits, f.limits) {
			if o.place != "" && f.place == "" {
				return nil
			}
			found := o.place == "" && f.place != ""
			o.of, o.text, o.place, o.still = f.of, f.text, f.place, f.still // an Update may have made another source
			if !found {
				return nil
			}
			return []notice{{o.copied(), to}}
		}
	}
	if len(b.all) == mostWarnings {
		i := slices.IndexFunc(b.all, func(o *finding) bool { return !slices.ContainsFunc(all, o.applies) })
		b.all = slices.Delete(b.all, max(i, 0), max(i, 0)+1)
	}
	b.all = append(b.all, &f)
	return []notice{{f.copied(), to}}
}

// copied returns a copy, which is read without the book's lock.
func (f finding) copied() *finding { return &f }

// applies reports whether the finding is about something that a version has.
func (f *finding) applies(v *version) bool {
	if f.still != nil {
		return f.still(v)
	}
	limits, uses := v.uses(f.of)
	has := func(limit string) bool { return slices.Contains(limits, limit) }
	return uses && (len(f.limits) == 0 || slices.ContainsFunc(f.limits, has))
}

// about returns the warnings that apply to v.
func (b *book) about(v *version) (all []Warning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.all {
		if !v.silent.has(f.kind) && f.applies(v) {
			all = append(all, f.warning())
		}
	}
	return all
}

// uses reports whether limits of the version have their key from a source, and returns their
// names: those that a function makes have none yet.
func (v *version) uses(s *warn.Source) (limits []string, uses bool) {
	for e := range v.plans.Entries {
		if e.Source == s {
			limits, uses = append(limits, e.Name()), true
		}
	}
	return limits, uses || slices.ContainsFunc(v.compiled.Funcs, func(f *compile.Func) bool { return f.Has(s) })
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

// denies reports whether a limit of the version never lets a request of that cost pass.
func (v *version) denies(limit string, cost int64) bool {
	for e := range v.plans.Entries {
		if e.Name() == limit {
			return largest(e.Limit.Limit) < cost
		}
	}
	return false
}

// largest is the largest cost that a limit ever lets pass.
func largest(l *store.Limit) int64 { return l.Engine(engine.Access{}).Terms().Largest }
