package mistakes

import (
	"fmt"
	"maps"
	"slices"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
)

// InPlans finds the mistakes that a limiter's plans show by themselves.
func InPlans(v *View) (found []Finding) {
	if nothingWaits(v) {
		found = append(found, Finding{Kind: NothingWaits, applies: nothingWaits})
	}
	for _, p := range v.Plans.All() {
		for _, q := range unreachableQuotas(p) {
			text := fmt.Sprintf("limit %q admits %d in its period, but limit %q admits at most %d in the same time: lower the quota, or raise the rate",
				q.quota, q.units, q.rate, q.most)
			found = append(found,
				Finding{Kind: QuotaUnreachable, Limits: []string{q.quota}, text: text, applies: func(v *View) bool {
					return slices.ContainsFunc(v.Plans.All(),
						func(p *read.Plan) bool { return slices.Contains(unreachableQuotas(p), q) })
				}})
		}
	}
	return found
}

// nothingWaits reports whether a limiter orders requests that wait, although none waits. Callers of
// Limiter.Wait may wait at a limit with a given key. They may also wait at one with a constant key,
// unless requests have a class of their own. The limits of functions aren't known.
func nothingWaits(v *View) bool {
	if len(v.Plans.Base.Funcs) > 0 {
		return false
	}
	waits, shares := false, false
	for e := range v.Plans.Entries {
		if e.Needs&limit.Waits != 0 || e.Key.Given || e.Key.Constant != "" && v.Plans.Priority == nil {
			waits = true
		} else if e.Wait.Shares != nil && e.Wait.Shares() != nil {
			shares = true
		}
	}
	return shares || !waits && v.Plans.Priority != nil
}

// NameConflicts makes the limits of some limiters the definitions of a family's names. It finds the names
// that other families define differently in the same store. Limiters that ignore the mistake aren't
// compared, because the other limiter would get the warning.
func NameConflicts(family *Names, views []*View) (found []Finding) {
	var all []definition
	for _, v := range views {
		if !v.StoreShared || v.Ignored.Has(NameConflict) {
			continue
		}
		for e := range v.Plans.Entries {
			if e.Needs&limit.Local == 0 { // a local limit is in no store
				all = append(all, definition{v.Store, e.Name(), compile.Text(e)})
			}
		}
	}
	for _, c := range family.define(all) {
		text := fmt.Sprintf("limit %q is %q here, but %q in another limiter on the same store, so a caller's limit depends on the limiter that decides: "+
			"give it another name in one of them, with stint.WithName", c.name, c.text, c.otherText)
		found = append(found, Finding{Kind: NameConflict, Limits: []string{c.name}, text: text, applies: func(v *View) bool {
			return family.differs(c.definition) &&
				v.hasEntry(func(e *read.Entry) bool { return e.Name() == c.name && compile.Text(e) == c.text })
		}})
	}
	return found
}

// Limits returns the text of each limit of some limiters, by name, to compare them before and after an
// Update. A dry run has none: it protects nothing.
func Limits(views []*View) map[string]string {
	all := map[string]string{}
	for _, v := range views {
		for e := range v.Plans.Entries {
			if !e.DryRun {
				all[e.Name()] = compile.Text(e)
			} else if all[e.Name()] == "" {
				all[e.Name()] = ""
			}
		}
	}
	return all
}

// Updates finds limits that an Update leaves out or renames. It isn't safe for concurrent use. The zero
// Updates has seen no Update.
type Updates struct {
	// added are the limits that an Update has added. They were meant to come and go, so they aren't
	// missed.
	added map[string]bool
}

// Compare compares the Limits of a family before and after an Update. The findings are about v, which the
// Update has made: the next Update ends them.
func (u *Updates) Compare(v *View, before, after map[string]string) (found []Finding) {
	if u.added == nil {
		u.added = map[string]bool{}
	}
	applies := func(o *View) bool { return o == v }
	added := map[string]string{} // names by their limits' texts; of several, the last
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == "" && after[name] != "" {
			added[after[name]] = name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		switch _, given := after[name]; {
		case given, before[name] == "": // a dry run was asked for, or protected nothing
		case u.added[name]:
			delete(u.added, name)
		default:
			text := fmt.Sprintf("Update leaves out limit %q, so it no longer limits any request: the limits of an Update replace all earlier ones, so pass it with the others", name)
			if renamed := added[before[name]]; renamed != "" {
				text = fmt.Sprintf("Update renames limit %q to %q, so its counts are lost: keep its name with stint.WithName(%[1]q)",
					name, renamed)
			}
			found = append(found, Finding{Kind: UpdateDrops, Limits: []string{name}, text: text, applies: applies})
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			u.added[name] = true
		}
	}
	return found
}
