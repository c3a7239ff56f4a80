package stint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/internal/warn"
	"github.com/stint-go/stint/store"
)

// What likely mistakes there are, and how each is found: by functions that look at a version, or at
// what it has decided. The book keeps what they find.

// rebuilt finds that limiters are built again and again while requests are served. v was built
// now: derived from another of the family, or as the first of it.
func (b *book) rebuilt(v *version, derived bool) []finding {
	if v.silent.has(warnRebuilt) || !b.builds.Add(derived) {
		return nil
	}
	return []finding{{kind: warnRebuilt, applies: func(*version) bool { return true }}}
}

// nothingWaits finds that the version orders requests that wait, although none waits.
func nothingWaits(v *version) []finding {
	if !ordersNone(v) {
		return nil
	}
	return []finding{{kind: warnNothingWaits, applies: ordersNone}}
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
		} else if e.Wait.Shares != nil && e.Wait.Shares() != nil {
			shares = true
		}
	}
	return shares || !waits && v.priority != nil
}

// onlyTurns reports whether requests wait for turns, and none takes a slot.
func onlyTurns(v *version) bool {
	turns := false
	for e := range v.plans.Entries {
		if e.Wait.For == limit.ForSlot {
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
			found = append(found, finding{kind: warnQuotaUnreachable, limits: []string{u.Quota}, text: text, applies: func(v *version) bool {
				return slices.ContainsFunc(v.plans.All(), func(p *read.Plan) bool {
					return slices.Contains(compile.Unreached(p), u)
				})
			}})
		}
	}
	return found
}

// conflicting finds that another limiter of the process gives a name other numbers than us.
func conflicting(us *namesakes.Family, c namesakes.Conflict) finding {
	text := fmt.Sprintf("limit %q is %q here and %q in another limiter on its store, so what a caller gets depends on which one decides: "+
		"write another stint.WithName in one of them", c.Name, c.Says, c.Other)
	return finding{kind: warnNameConflict, limits: []string{c.Name}, text: text, applies: func(v *version) bool {
		return us.Differs(c.Meaning) && v.hasEntry(func(e *read.Entry) bool { return e.Name() == c.Name && compile.Text(e) == c.Says })
	}}
}

// dropped finds limits that an Update has left out or renamed. was and is are the limits of the
// family before and after it; after is the version that it has made. A limit that an Update has
// brought was meant to come and go, so only those that New and With were given count. The warnings
// are about that Update: the next one ends them.
func (b *book) dropped(after *version, was, is map[string]string) (found []finding) {
	if b.brought == nil {
		b.brought = map[string]bool{}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		switch {
		case is[name] != "":
		case b.brought[name]:
			delete(b.brought, name)
		default:
			text := fmt.Sprintf("Update leaves out limit %q, so no request is held to it any more: the limits of an Update replace all before, write it beside them", name)
			for _, other := range slices.Sorted(maps.Keys(is)) {
				if was[other] == "" && is[other] == was[name] {
					text = fmt.Sprintf("Update renames limit %q to %q, so callers begin anew: keep its name, by stint.WithName(%[1]q)", name, other)
				}
			}
			found = append(found, finding{kind: warnUpdateDrops, limits: []string{name}, text: text, applies: func(v *version) bool { return v == after }})
		}
	}
	for name := range is {
		if was[name] == "" {
			b.brought[name] = true
		}
	}
	return found
}

// costTooHigh finds that a charge of a request has a cost that its limit never lets pass.
func costTooHigh(ch *store.Charge) finding {
	name, cost := ch.Limit.Name(), ch.Cost
	text := fmt.Sprintf("a request costs %d, and limit %q never lets more than %d pass: lower the cost, or raise the limit", cost, name, largest(ch.Limit))
	if isBucket(ch.Limit) {
		text += fmt.Sprintf(", such as by stint.WithBurst(%d)", cost)
	}
	return finding{kind: warnCostTooHigh, limits: []string{name}, text: text, applies: func(v *version) bool {
		return v.hasEntry(func(e *read.Entry) bool { return e.Name() == name && largest(e.StoreLimit) < cost })
	}}
}

// largest is the largest cost that a limit ever lets pass.
func largest(l *store.Limit) int64 { return inside.Terms(l).Largest }

// isBucket reports whether WithBurst raises what a limit lets pass.
func isBucket(l *store.Limit) bool {
	a := l.Algorithm()
	return a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket
}

// wrongKey finds what a look has shown about a key, for the first of all versions that has the key
// and warns of the kind, or for none.
func wrongKey(all []*version, l *warn.Look, kind string) (to *version, f finding) {
	var limits []string
	for _, v := range all {
		names, uses := v.uses(l)
		if !uses || v.silent.has(kind) {
			continue
		}
		to = cmp.Or(to, v)
		for _, name := range names {
			if !slices.Contains(limits, name) {
				limits = append(limits, name)
			}
		}
	}
	return to, finding{kind: kind, limits: limits, applies: usesFor(l, limits)}
}

// usesFor returns whether versions have the key of a look, for one of limits if these are known.
func usesFor(l *warn.Look, limits []string) func(*version) bool {
	return func(v *version) bool {
		names, uses := v.uses(l)
		has := func(limit string) bool { return slices.Contains(names, limit) }
		return uses && (len(limits) == 0 || slices.ContainsFunc(limits, has))
	}
}

// keyWarnings are the warnings that signs of a wrong key come to.
var keyWarnings = [...]struct {
	found warn.Found
	kind  string
}{
	{warn.Forwarding, warnForwardingHeader},
	{warn.Port, warnPortInKey},
	{warn.Proxy, warnUntrustedProxy},
	{warn.NeverRepeats, warnKeysNeverRepeat},
	{warn.OneKey, warnOneKey},
}

// warnsOfKeys reports whether the version gives a warning for which requests are looked at.
func warnsOfKeys(v *version) bool {
	for _, w := range keyWarnings[1:] {
		if !v.silent.has(w.kind) {
			return true
		}
	}
	return false
}

// book holds the warnings about limiters that belong together, each once. It is safe for
// concurrent use. The zero book is empty.
type book struct {
	mu  sync.Mutex
	all []*finding

	builds  warn.Builds     // of the limiters
	brought map[string]bool // the limits that an Update has brought; guarded by family.mu
}

// finding is a likely mistake that was found.
type finding struct {
	kind   string
	limits []string // whose key it is about, or that it is about
	text   string   // instead of the kind's
	// applies reports whether it is about something that a version has.
	applies func(*version) bool
}

func (f *finding) warning() Warning {
	return Warning{f.kind, f.limits, cmp.Or(f.text, warningKinds[warningOf(f.kind)].text), warningLink(f.kind)}
}

// notice is a warning that is new, and not given yet.
type notice struct {
	finding
	to *sender
}

// give gives warnings: it logs them, and notifies the observers. The caller holds no lock, since
// loggers and observers are the application's code.
func give(all []notice) {
	for i := range all {
		w := all[i].warning()
		all[i].to.sendSafely(Event{Kind: EventWarning, Warning: &w})
	}
}

// warn adds what was found about a version, and gives the warnings that are new.
func (b *book) warn(v *version, found ...finding) {
	give(b.add(v, found...))
}

// add adds what was found about a version, and returns notices of the warnings that are new. Those
// that the version doesn't give are left out.
func (b *book) add(v *version, found ...finding) (news []notice) {
	for _, f := range found {
		if !v.silent.has(f.kind) && b.enter([]*version{v}, f) {
			news = append(news, notice{f, &v.events})
		}
	}
	return news
}

// mostWarnings bounds the memory for warnings if limits get other names at each Update.
const mostWarnings = 100

// enter adds a warning, or replaces the one of the same kind about the same limits. It reports
// whether the warning is new. A full book drops a warning that
// applies to none of the versions, or the oldest.
func (b *book) enter(all []*version, f finding) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.find(f); old != nil {
		*old = f // an Update may have made another key that it is about
		return false
	}
	if len(b.all) == mostWarnings {
		i := slices.IndexFunc(b.all, func(o *finding) bool { return !slices.ContainsFunc(all, o.applies) })
		b.all = slices.Delete(b.all, max(i, 0), max(i, 0)+1)
	}
	b.all = append(b.all, &f)
	return true
}

// find returns the warning of the same kind about the same limits, or nil. The caller holds b.mu.
func (b *book) find(f finding) *finding {
	for _, o := range b.all {
		if o.kind == f.kind && slices.Equal(o.limits, f.limits) {
			return o
		}
	}
	return nil
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
