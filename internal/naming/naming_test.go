package naming

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

type rule struct {
	name    string
	written bool
}

func (r *rule) Wish() (string, bool) { return r.name, r.written }

func (r *rule) limit(t *testing.T) *store.Limit {
	t.Helper()
	l, err := store.NewLimit(store.Spec{Name: r.name, Units: 1, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAssign(t *testing.T) {
	n := New()
	first, second, third := &rule{"rate", false}, &rule{"rate", false}, &rule{"quota", false}
	names, taken := n.Assign([]Rule{first, second, third, &rule{"rate", true}, &rule{"rate", true}})
	if want := []string{"rate-2", "rate-3", "quota", "rate", "rate"}; !slices.Equal(names, want) {
		t.Errorf("named %q, want %q", names, want)
	}
	if !slices.Equal(taken, []int{4}) {
		t.Errorf("taken %v, want the last", taken)
	}
	if n.Rule("rate-2") != first || n.Rule("other") != nil {
		t.Error("a name is another rule's")
	}
	if got := n.Name(second) + " " + n.Name(&rule{"other", true}); got != "rate-3 other" {
		t.Errorf("found %q", got)
	}
}

// A clone may fail without consequences, and what follows remembers what was before.
func TestNext(t *testing.T) {
	n := New()
	stays, goes, wrong := &rule{"stays", true}, &rule{"goes", true}, &rule{"wrong", true}
	n.Assign([]Rule{stays, goes, wrong})
	n.SetLimit(stays, stays.limit(t))
	n.SetLimit(goes, goes.limit(t))
	n.SetLimit(wrong, nil)

	c := n.Clone()
	added := &rule{"added", true}
	c.Assign([]Rule{added})
	c.SetLimit(added, added.limit(t))
	if _, known := n.Limit(added); known || n.Rule("added") != nil {
		t.Error("a clone's names are its origin's")
	}
	if l, known := c.Limit(wrong); l != nil || !known {
		t.Errorf("a wrong rule has limit %v, known %v", l, known)
	}

	next := n.Next(func(r Rule) bool { return r == stays })
	kept, _ := n.Limit(stays)
	gone, _ := n.Limit(goes)
	if l, _ := next.Limit(stays); l != kept || next.Before("stays") != kept || next.Before("goes") != gone {
		t.Error("a limit isn't remembered")
	}
	if _, known := next.Limit(goes); known || next.Rule("goes") != nil {
		t.Error("a name that isn't used stays")
	}
	all := func(*store.Limit) bool { return true }
	if got := slices.Collect(maps.Keys(n.Gone(next, all))); !slices.Equal(got, []string{"goes"}) {
		t.Errorf("gone are %q", got)
	}
	if got := n.Gone(next, func(*store.Limit) bool { return false }); len(got) != 0 {
		t.Errorf("gone are %v", got)
	}
	if next.Settled(); next.Before("stays") != nil {
		t.Error("what was before is remembered")
	}
}

// A rule keeps the name that it has elsewhere where that is free and it has no other.
func TestAdopt(t *testing.T) {
	now, then := New(), New()
	free, taken, known := &rule{"free", false}, &rule{"taken", true}, &rule{"known", true}
	now.Assign([]Rule{&rule{"free", true}, free, taken, known})
	then.Assign([]Rule{&rule{"taken", true}, known})
	for _, r := range []*rule{free, taken, known} {
		now.SetLimit(r, r.limit(t))
	}
	own := known.limit(t)
	then.SetLimit(known, own)
	for _, r := range []*rule{free, taken, known, {"unknown", true}} {
		then.Adopt(r, now)
	}
	want, _ := now.Limit(free)
	if l, has := then.Limit(free); l != want || !has || then.Name(free) != "free-2" {
		t.Errorf("%q with limit %v, want free-2 with %v", then.Name(free), l, want)
	}
	if _, has := then.Limit(taken); has || then.Rule("taken") == taken {
		t.Error("a name that is taken is given away")
	}
	if l, _ := then.Limit(known); l != own {
		t.Error("a limit of its own is replaced")
	}
	if then.Rule("unknown") != nil {
		t.Error("a rule that has no name elsewhere has one")
	}
}
