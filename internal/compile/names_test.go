package compile

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/store"
)

// ruleNamed returns a rule with a name, which a WithName has given it or is a default.
func ruleNamed(name string, named bool) *Rule {
	return &Rule{Spec: store.Spec{Name: name, Units: 1, Period: time.Second}, Named: named, Kind: limit.Charged}
}

func (r *Rule) limit(t *testing.T) *store.Limit {
	t.Helper()
	l, wrong := r.newLimit(r.Spec.Name)
	if wrong != nil {
		t.Fatal(wrong)
	}
	return l
}

func TestAssignNames(t *testing.T) {
	n := newNames()
	first, second, third := ruleNamed("rate", false), ruleNamed("rate", false), ruleNamed("quota", false)
	names, taken := n.assign([]*Rule{first, second, third, ruleNamed("rate", true), ruleNamed("rate", true)})
	if want := []string{"rate-2", "rate-3", "quota", "rate", "rate"}; !slices.Equal(names, want) {
		t.Errorf("named %q, want %q", names, want)
	}
	if !slices.Equal(taken, []int{4}) {
		t.Errorf("taken %v, want the last", taken)
	}
	if n.rules["rate-2"] != first || n.rules["other"] != nil {
		t.Error("a name is another rule's")
	}
	if got := n.name(second) + " " + n.name(ruleNamed("other", true)); got != "rate-3 other" {
		t.Errorf("found %q", got)
	}
}

// A clone may fail without consequences, and what follows remembers what was before.
func TestNextNames(t *testing.T) {
	n := newNames()
	stays, goes, wrong, here := ruleNamed("stays", true), ruleNamed("goes", true), ruleNamed("wrong", true), ruleNamed("here", true)
	n.assign([]*Rule{stays, goes, wrong, here})
	n.limits[stays], n.limits[goes], n.limits[wrong] = stays.limit(t), goes.limit(t), nil
	n.limits[here] = inside.DecidedBy(here.limit(t), "this process")

	c := n.Clone()
	added := ruleNamed("added", true)
	c.assign([]*Rule{added})
	c.limits[added] = added.limit(t)
	if n.limits[added] != nil || n.rules["added"] != nil {
		t.Error("a clone's names are its origin's")
	}
	if l, known := c.limits[wrong]; l != nil || !known {
		t.Errorf("a wrong rule has limit %v, known %v", l, known)
	}

	next := n.Next([]*Config{{Limits: []*Rule{stays}}})
	if kept := n.limits[stays]; next.limits[stays] != kept || next.before["stays"] != kept || next.before["goes"] != n.limits[goes] {
		t.Error("a limit isn't remembered")
	}
	if next.limits[goes] != nil || next.rules["goes"] != nil {
		t.Error("a name that isn't used stays")
	}
	if got := slices.Collect(maps.Keys(n.Gone(next))); !slices.Equal(got, []string{"here"}) {
		t.Errorf("gone from this process are %q", got)
	}
	if got := n.Gone(n); len(got) != 0 {
		t.Errorf("gone are %v", got)
	}
}
