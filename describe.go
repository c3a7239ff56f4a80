package stint

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Description describes a limiter, for pages and tools that show it.
type Description struct {
	// Name is the name set by WithLimiterName, or "".
	Name string
	// Store holds the counts of all rules that aren't Local. It is the store of WithStore, or
	// the limiter's own store in memory.
	Store store.Store
	// Rules are the limiter's own limits, followed by the limits of each route. They don't
	// include limits of a WithLimitFunc.
	Rules []Rule
	// Unmatched lists the patterns of WithRoute that no request has matched in this process
	// since New or Update added the pattern.
	Unmatched []string
	// Warnings lists the likely mistakes found in the limiter's current options, oldest first.
	Warnings []Warning
	// Plans are the plans by which the limiter decides requests. Only package console and command stint can
	// open them.
	Plans plans
}

// plans converts to read.SealedPlans, which has Open.
type plans read.SealedPlans

// Rule describes a limit of a limiter or of a route.
type Rule struct {
	Limit string // its name
	Route string // the pattern of the WithRoute; "" for the limiter's own
	// Text is the algorithm and the numbers, such as "TokenBucket: 10 per 1s, burst 20", with the fair queue or the
	// shares of a Concurrency.
	Text string
	// Spec has the numbers, with defaults filled in. The Spec of an AdaptiveConcurrency is a
	// Concurrency with the maximum. A Bandwidth may be counted in blocks of bytes.
	Spec store.Spec
	// Key is the limit's key, set by WithKey. Key.String returns a text for pages.
	Key Key
	// Shared reports whether all requests have the same key: Global, or a Join, FirstOf or Hash of
	// such keys.
	Shared bool
	// ByAddress reports whether the key is a client's address, or the network of an IPv6 address.
	ByAddress bool
	DryRun    bool
	// NearLimit has the percentages of WithNearLimit, ascending. It is nil if the limit has none.
	NearLimit []int
	// Since is the time at which the rule took effect in this process with its current numbers.
	// An Update that doesn't change the rule doesn't change Since.
	Since time.Time
	// Bound reports whether the rule has denied a request, or made a request wait, in this
	// process after Since. For a dry run, Bound reports whether the rule would have done so.
	// For a Bandwidth, Bound is always false.
	Bound bool
	// WouldDeny is the number of requests that the dry run would have denied after Since, in this
	// process.
	WouldDeny int64
	// Local reports whether the limit is decided in this process even if the store is shared.
	Local bool
}

// Describe returns the limiter's current limits, warnings and store, without calling the store.
func (l *Limiter) Describe() Description {
	v := l.currentVersion()
	d := Description{Name: v.name, Store: v.backend.Store, Warnings: l.family.warningsAbout(v),
		Plans: plans(read.Seal(v.plans))}
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

// DescribeKey returns the Rules of the limits that a WithLimitSource currently has for key.
// Describe leaves these limits out. The errors are those of PeekAll.
func (l *Limiter) DescribeKey(ctx context.Context, key string) (rules []Rule, err error) {
	_, sourced, _, err := l.currentVersion().entriesOf(ctx, key)
	for _, e := range sourced {
		rules = append(rules, ruleOf("", e))
	}
	return rules, err
}

func ruleOf(route string, e *read.Entry) Rule {
	return Rule{Limit: e.Name(), Route: route, Text: compile.Text(e) + compile.Order(e), Spec: e.StoreLimit.Spec(),
		Key: Key{e.Key}, Shared: e.Key.Constant != "", ByAddress: e.Key.Client != nil, DryRun: e.DryRun,
		NearLimit: slices.Clone(e.Marks), Local: e.Needs&limit.Local != 0,
		Since: e.Record.Since, Bound: e.Record.Bound(), WouldDeny: e.Record.DryRunDenials()}
}
