package mistakes

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// shop is a store; others of its size are others.
type shop struct{ _ int }

func (f *Names) defineTexts(store any, all ...string) string {
	var definitions []definition
	for _, m := range all {
		name, text, _ := strings.Cut(m, ":")
		definitions = append(definitions, definition{store: store, name: name, text: text})
	}
	var found []string
	for _, c := range f.define(definitions) {
		found = append(found, fmt.Sprintf("%s: %s, not %s", c.name, c.text, c.otherText))
	}
	slices.Sort(found)
	return strings.Join(found, "; ")
}

func TestDefine(t *testing.T) {
	a, b := new(shop), new(shop)
	var first, second, third, fourth Names
	for i, step := range []struct {
		family *Names
		store  any
		means  []string
		want   string
	}{
		{&first, a, []string{"x:5", "y:1"}, ""},
		{&second, a, []string{"x:5", "z:1"}, ""},
		{&second, b, []string{"x:6"}, ""},                                       // another store
		{&second, a, []string{"x:6", "x:6", "y:2"}, "x: 6, not 5; y: 2, not 1"}, // it has changed its mind
		{&third, a, []string{"x:7"}, ""},                                        // the name has been reported
		{&first, a, nil, ""},
		{&second, a, nil, ""},
		{&fourth, a, []string{"x:5"}, "x: 5, not 7"},
		{&second, []int{}, []string{"x:7"}, ""}, // that can't be told from others
	} {
		if got := step.family.defineTexts(step.store, step.means...); got != step.want {
			t.Errorf("step %d: %q, want %q", i+1, got, step.want)
		}
	}
	if m := (definition{a, "x", "5"}); !fourth.differs(m) || third.differs(definition{a, "x", "5"}) {
		t.Error("who differs isn't known")
	}
}

// Families that are no longer used mean nothing.
func TestForgotten(t *testing.T) {
	store := new(shop)
	stays := new(Names)
	stays.defineTexts(store, "stays:5")
	for range 200 {
		new(Names).defineTexts(store, "a:5")
	}
	left := func() (n int) {
		stays.defineTexts(store, "stays:5")
		return len(families.all)
	}
	for range 100 {
		if left() == 1 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	if n := left(); n != 1 {
		t.Errorf("%d families, of which one is used", n)
	}
	runtime.KeepAlive(stays)
}
