package stint

import (
	"github.com/stint-go/stint/store"
)

// Description describes a limiter, for pages and tools that show it.
type Description struct {
	// Name is that of WithLimiterName, or "".
	Name string
	// Store holds the counts of all rules that aren't Local: the store of WithStore, or
	// the limiter's own memory.
	Store store.Store
	// Rules are the limiter's own limits, in the order in which they are decided,
	// followed by those of each route. Limits of a WithLimitFunc are missing.
	Rules []Rule
	// Warnings are the likely mistakes found in the limiter's current options, oldest
	// first.
	Warnings []Warning
}

// Rule is a limit in the place where it is used.
type Rule struct {
	Limit string // its name
	Route string // the pattern of the WithRoute; "" for the limiter's own
	Text  string // what it counts by, such as "TokenBucket: 10 per 1s, burst 20"
	// Spec has the numbers, with their defaults. An AdaptiveConcurrency is a
	// Concurrency of its max, and a Bandwidth may count in blocks of bytes.
	Spec store.Spec
	// Key is the limit's key, of WithKey. Its String is for pages.
	Key    Key
	DryRun bool
	// Local says that the limit is decided in this process, whatever the store.
	Local bool
}

// Describe returns what the limiter has now. It calls no store.
func (l *Limiter) Describe() Description {
	v := l.now.Load()
	d := Description{Name: v.name, Store: v.store}
	for _, w := range v.family.warnings.About(v) {
		d.Warnings = append(d.Warnings, warningOf(w))
	}
	add := func(pattern string, p *plan) {
		for _, e := range p.entries {
			r := Rule{Limit: e.limit.Name(), Route: pattern, Text: e.kind.says(e.limit.Spec()), Spec: e.limit.Spec(),
				Key: key(e.key), DryRun: e.dryRun, Local: e.needs&local != 0}
			d.Rules = append(d.Rules, r)
		}
	}
	add("", v.base)
	for _, r := range v.routes {
		add(r.pattern, r.plan)
	}
	return d
}
