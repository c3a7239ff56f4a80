package stint

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Description describes a limiter, for pages and tools that show it.
type Description struct {
	// Name is that of WithLimiterName, or "".
	Name string
	// Store holds the counts of all rules that aren't Local: the store of WithStore, or
	// the limiter's own memory.
	Store store.Store
	// Rules are the limiter's own limits, then the limits written in each route. Limits of a
	// WithLimitFunc are missing.
	Rules []Rule
	// Unmatched are the patterns of WithRoute that no request has matched in this process since
	// New or Update added them.
	Unmatched []string
	// Warnings are the likely mistakes found in the limiter's current options, oldest
	// first.
	Warnings []Warning
}

func init() {
	read.PlansOf = func(limiter any) *read.Plans { return limiter.(*Limiter).currentVersion().plans }
}

// Rule is a limit in the place where it is used.
type Rule struct {
	Limit string // its name
	Route string // the pattern of the WithRoute; "" for the limiter's own
	Text  string // algorithm and numbers, such as "TokenBucket: 10 per 1s, burst 20"
	// Spec has the numbers, with their defaults. An AdaptiveConcurrency is a
	// Concurrency of its max, and a Bandwidth may count in blocks of bytes.
	Spec store.Spec
	// Key is the limit's key, of WithKey. Its String is for pages.
	Key    Key
	DryRun bool
	// Since is the time since when the rule has been in force in this process with its current
	// numbers. An Update that doesn't change the rule doesn't change Since.
	Since time.Time
	// Bound reports whether the rule, in this process and after Since, has denied a request or
	// made one wait. For a dry run it reports whether the rule would have. It isn't set for a
	// Bandwidth, which denies no request.
	Bound bool
	// WouldDeny is the number of requests that the dry run would have denied after Since, in this
	// process.
	WouldDeny int64
	// Local says that the limit is decided in this process, whatever the store.
	Local bool
}

// Describe returns the limiter's current limits, warnings and store. It calls no store.
func (l *Limiter) Describe() Description {
	v := l.currentVersion()
	d := Description{Name: v.name, Store: v.backend.Store, Warnings: l.family.warningsAbout(v)}
	for _, p := range v.plans.All() {
		for _, e := range p.Declared {
			d.Rules = append(d.Rules, ruleOf(p.Pattern, e))
		}
		if p.Pattern != "" && !p.Matched() {
			d.Unmatched = append(d.Unmatched, p.Pattern)
		}
	}
	return d
}

// DescribeKey returns the Rules of the limits that a WithLimitSource currently has for key,
// which Describe leaves out. Its errors are those of PeekAll.
func (l *Limiter) DescribeKey(ctx context.Context, key string) (rules []Rule, err error) {
	_, sourced, _, err := l.currentVersion().entriesOf(ctx, key)
	for _, e := range sourced {
		rules = append(rules, ruleOf("", e))
	}
	return rules, err
}

func ruleOf(route string, e *read.Entry) Rule {
	return Rule{Limit: e.Name(), Route: route, Text: compile.Text(e), Spec: e.StoreLimit.Spec(),
		Key: Key{e.Key}, DryRun: e.DryRun, Local: e.Needs&limit.Local != 0,
		Since: e.Record.Since, Bound: e.Record.Bound(), WouldDeny: e.Record.DryRunDenials()}
}
