package mistakes

import (
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// TooCostly returns the finding that a charge costs more than its limit ever lets pass.
func TooCostly(c *store.Charge) Finding {
	name, cost := c.Limit.Name(), c.Cost
	text := fmt.Sprintf("a request costs %d, but limit %q never admits more than %d: lower the cost, or raise the limit",
		cost, name, inside.Terms(c.Limit).Largest)
	if inside.HasBurst(c.Limit) {
		text += fmt.Sprintf(", such as by stint.WithBurst(%d)", cost)
	}
	return Finding{Kind: CostTooHigh, Limits: []string{name}, text: text, applies: func(v *View) bool {
		return v.hasEntry(func(e *read.Entry) bool { return e.Name() == name && inside.Terms(e.StoreLimit).Largest < cost })
	}}
}

// wrongKeys has the kind of mistake of each finding about a key.
var wrongKeys = [...]struct {
	shown keysample.Findings
	kind  Kind
}{
	{keysample.Forwarding, ForwardingHeader},
	{keysample.Port, PortInKey},
	{keysample.Proxy, UntrustedProxy},
	{keysample.NeverRepeats, KeysNeverRepeat},
	{keysample.OneKey, OneKey},
	{keysample.Missing, NoKey},
}

// SamplesKeys reports whether the limiter needs samples: all but the first of wrongKeys are only found in
// requests.
func (v *View) SamplesKeys() bool {
	for _, w := range wrongKeys[1:] {
		if !v.Ignored.Has(w.kind) {
			return true
		}
	}
	return false
}

// WrongKeys finds what a sample has shown about its key. Each finding is about all of the limiters that
// have the key and don't ignore the mistake; calls of found get the index of the first.
func WrongKeys(views []*View, s *keysample.Sample, found func(first int, f Finding)) {
	shown := s.Findings()
	for _, w := range wrongKeys {
		if shown&w.shown == 0 {
			continue
		}
		first := -1
		var limits []string
		for i, v := range views {
			names, has := v.limitsOf(s)
			if !has || v.Ignored.Has(w.kind) {
				continue
			}
			if first < 0 {
				first = i
			}
			for _, name := range names {
				if !slices.Contains(limits, name) {
					limits = append(limits, name)
				}
			}
		}
		if first >= 0 {
			found(first, Finding{Kind: w.kind, Limits: limits, applies: hasKey(s, limits)})
		}
	}
}

// hasKey returns a function that reports whether a limiter has the key of a sample: for one of limits, or
// for limits of functions if there are none.
func hasKey(s *keysample.Sample, limits []string) func(*View) bool {
	return func(v *View) bool {
		names, has := v.limitsOf(s)
		return has && (len(limits) == 0 ||
			slices.ContainsFunc(limits, func(name string) bool { return slices.Contains(names, name) }))
	}
}

// limitsOf reports whether limits of the limiter have the key of a sample, and returns their
// names. The limits of functions have no names yet.
func (v *View) limitsOf(s *keysample.Sample) (names []string, has bool) {
	for e := range v.Plans.Entries {
		if e.Sample == s {
			names, has = append(names, e.Name()), true
		}
	}
	return names, has || slices.ContainsFunc(v.Plans.Base.Funcs,
		func(f *read.Func) bool { return f.Sample == s || f.SourceSample == s })
}

// FullStore returns the finding that the store of a limiter is full, with what the store says.
func FullStore(v *View, text string) Finding {
	return Finding{Kind: StoreFull, text: text, applies: func(o *View) bool { return o.SharesStore(v.Store) }}
}

// ForgetfulStore returns the finding that the store of a limiter drops what callers have used, with what the
// store says. forgets reports whether it still does.
func ForgetfulStore(v *View, text string, forgets func() bool) Finding {
	return Finding{Kind: StoreForgets, text: text,
		applies: func(o *View) bool { return forgets() && o.SharesStore(v.Store) }}
}
