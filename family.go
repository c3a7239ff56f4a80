package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/adaptive"
	"github.com/stint-go/stint/internal/namesakes"
	"github.com/stint-go/stint/store"
)

// names holds which limit has which name among a limiter and all derived from
// it.
type names struct {
	rules  map[string]*rule
	limits map[*rule]*store.Limit
	// adaptive decides the limits of this process among them. Each is made once, so
	// that the newest is known however many routes and calls use it.
	adaptive *process
	// before are the limits of the generation before, by name. One that still
	// says the same stays the same one, for whatever a store remembers of it.
	before map[string]*store.Limit
}

func newNames(a *process) *names {
	return &names{rules: map[string]*rule{}, limits: map[*rule]*store.Limit{}, adaptive: a}
}

// clone is a copy to work on: a New, With or Update that fails leaves no names
// behind.
func (n *names) clone() *names {
	return &names{rules: maps.Clone(n.rules), limits: maps.Clone(n.limits), adaptive: n.adaptive}
}

// of returns the name of a rule, also of one that doesn't compile.
func (n *names) of(r *rule) string {
	for name, other := range n.rules {
		if other == r {
			return name
		}
	}
	return r.spec.Name
}

// without is a copy that keeps only the rules that are still used.
func (n *names) without(used func(*rule) bool) *names {
	next := newNames(n.adaptive)
	next.before = make(map[string]*store.Limit, len(n.rules))
	for name, r := range n.rules {
		l := n.limits[r]
		next.before[name] = l
		if used(r) {
			next.rules[name], next.limits[r] = r, l
		}
	}
	return next
}

// gone are the names of limits of this process that next doesn't have.
func (n *names) gone(next *names) map[string]bool {
	gone := map[string]bool{}
	for name, r := range n.rules {
		if n.adapts(r) && !next.adapts(next.rules[name]) {
			gone[name] = true
		}
	}
	return gone
}

// adapts reports whether r is an AdaptiveConcurrency.
func (n *names) adapts(r *rule) bool {
	l := n.limits[r]
	return l != nil && adaptive.Of(l) != nil
}

// use is a limit and the route in whose options it first stands, if in any.
type use struct {
	rule  *rule
	route string
}

// uses returns the limits that the options hold, each once.
func (c *config) uses() (all []use) {
	seen := map[*rule]bool{}
	add := func(limits []Limit, route string) {
		for _, l := range limits {
			if !seen[l.rule] {
				seen[l.rule] = true
				all = append(all, use{l.rule, route})
			}
		}
	}
	add(c.limits, "")
	for _, rc := range c.routes {
		add(rc.limits, rc.pattern)
	}
	return all
}

// errUnnamed refuses a limit without a WithName where others may use its store.
func errUnnamed(route string, r *rule) *OptionError {
	return &OptionError{Route: route, Limit: r.spec.Name,
		Problem: "a default name, which other limits in the store may have too", Write: "write stint.WithName"}
}

// unnamed reports the limits of a version that need a name: its own, and those
// it inherits from a version whose store was nobody else's.
func (v *version) unnamed(c *config, parent *version, names *names) (errs mistakes) {
	if !v.lent {
		return nil
	}
	for _, u := range c.uses() {
		if !u.rule.named {
			errs = append(errs, errUnnamed(u.route, u.rule))
		}
	}
	if parent == nil || parent.lent {
		return errs
	}
	seen := map[*rule]bool{}
	for e := range parent.entries() {
		if r := names.rules[e.limit.Name()]; !r.named && !seen[r] {
			seen[r] = true
			e := errUnnamed("", r)
			e.Problem = "inherited with " + e.Problem
			errs = append(errs, e)
		}
	}
	return errs
}

// compile names and compiles the limits of c that n does not know yet.
func (n *names) compile(c *config) (errs mistakes) {
	fresh := slices.DeleteFunc(c.uses(), func(u use) bool {
		_, known := n.limits[u.rule]
		return known
	})

	// Names that somebody wrote come before defaults that can give way.
	final := make([]string, len(fresh))
	for i, u := range fresh {
		if !u.rule.named {
			continue
		}
		final[i] = u.rule.spec.Name
		if n.rules[final[i]] != nil {
			errs = append(errs, errNamesake(u.route, final[i]))
		}
		n.rules[final[i]] = u.rule
	}
	for i, u := range fresh {
		if u.rule.named {
			continue
		}
		base := u.rule.spec.Name
		final[i] = base
		for k := 2; n.rules[final[i]] != nil; k++ {
			final[i] = base + "-" + strconv.Itoa(k)
		}
		n.rules[final[i]] = u.rule
	}
	for i, u := range fresh {
		l, wrong := u.rule.compile(final[i])
		errs = append(errs, wrong.at(u.route, final[i])...)
		if l != nil {
			if b := n.before[final[i]]; b != nil && u.rule.kind.same(b) && b.Spec() == l.Spec() {
				l = b
			}
			l = u.rule.kind.decided(l, n.adaptive)
		}
		n.limits[u.rule] = l
	}
	return errs
}

// errNamesake refuses the name of another limit.
func errNamesake(route, name string) *OptionError {
	return &OptionError{Route: route, Limit: name, Problem: "another limit has that name", Write: "write another stint.WithName"}
}

// probe calls each new KeyFunc and predicate once, for the mistakes that those
// of this package report about how they were made. Any other error, or a
// panic, is about the probe: a function may rely on what comes before it in a
// server.
func (c *config) probe() (errs mistakes) {
	var sources []*keySource
	add := func(s settings) {
		if s.key != nil && !slices.Contains(sources, s.key) {
			sources = append(sources, s.key)
		}
	}
	add(c.shared)
	for _, l := range c.limits {
		add(l.rule.shared)
	}
	for _, rc := range c.routes {
		add(rc.shared)
		for _, l := range rc.limits {
			add(l.rule.shared)
		}
	}
	report := func(option string, err error) {
		if ce := (*configError)(nil); errors.As(err, &ce) {
			errs = append(errs, ce.mistakes.within(option)...)
		}
	}
	for _, s := range sources {
		report("WithKey", s.probe())
	}
	for _, p := range c.skip {
		report("WithSkip", predicateProblem(p, probeRequest()))
	}
	for _, p := range c.block {
		report("WithBlock", predicateProblem(p, probeRequest()))
	}
	return errs
}

func (s *keySource) probe() (err error) {
	defer func() { _ = recover() }()
	_, err = s.fn(probeRequest())
	return err
}

// probeRequest is a request like one that a server gets.
func probeRequest() *http.Request {
	return &http.Request{
		Method: "GET", URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Host: "192.0.2.2", RemoteAddr: "192.0.2.1:1", RequestURI: "/",
	}
}

// predicateProbe is the context key under which a probe carries the
// *configError that predicates write their mistakes to. A predicate has only a
// bool to answer with.
type predicateProbe struct{}

// predicateProblem asks a predicate whether it was made with arguments that
// can't work, by calling it with a copy of probe. What a user's own predicate
// makes of a request that never happened, a panic included, doesn't matter.
func predicateProblem(p func(*http.Request) bool, probe *http.Request) (err error) {
	report := new(configError)
	defer func() {
		_ = recover()
		if report.mistakes != nil {
			err = report
		}
	}()
	p(probe.WithContext(context.WithValue(probe.Context(), predicateProbe{}, report)))
	return nil
}

// limitFunc is one WithLimitFunc and the settings that its limits leave open.
// Its address tells a nested limiter that its limits are charged already.
type limitFunc struct {
	fn         func(*http.Request) ([]Limit, error)
	shared     settings
	generation *generation
}

// reports reports whether a limit that the function returned is a dry run.
func (f *limitFunc) reports(l Limit) bool {
	return f.shared.dryRun || l.rule != nil && l.rule.shared.dryRun
}

// dynamicEntry is an entry made for a limit that came from a limitFunc.
type dynamicEntry struct {
	from  *limitFunc
	entry *entry
}

// entry compiles a limit that the function returned, or finds what has been
// compiled before.
func (f *limitFunc) entry(l Limit) (*entry, error) {
	if l.rule == nil {
		return nil, errZeroLimit
	}
	if d := l.rule.resolved.Load(); d != nil && d.from == f {
		return d.entry, nil
	}
	compiled, names, err := f.generation.limit(l.rule)
	if err != nil {
		return nil, err
	}
	e := names.newEntry(l.rule, compiled, l.rule.shared.or(f.shared))
	e.from = f
	l.rule.resolved.Store(&dynamicEntry{f, e})
	return e, nil
}

// announce makes the family's limits known in the stores that others may use,
// those of before no more, and returns what others understand otherwise. The
// caller holds f.mu, and warns of the conflicts without it: a logger may be
// anybody's. A request knows nothing of all this.
func (f *family) announce() []namesakes.Conflict {
	var all []namesakes.Meaning
	for _, m := range f.members {
		v := m.now.Load()
		if !v.lent {
			continue
		}
		for e := range v.entries() {
			if e.needs&local == 0 { // which is in no store
				all = append(all, namesakes.Meaning{Store: v.store, Name: e.limit.Name(), Says: e.says()})
			}
		}
	}
	return f.namesakes.Mean(all)
}

func warn(conflicts []namesakes.Conflict) {
	for _, c := range conflicts {
		slog.Warn("stint: limiters on one store give a limit's name different numbers: write another stint.WithName in one of them",
			"limit", c.Name, "rule", c.Says, "other", c.Other)
	}
}

// says is all that an entry's limit counts by, in words.
func (e *entry) says() string {
	s := e.limit.Spec()
	block, units := e.kind.unit()
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d%s", s.Algorithm, s.Units*block, units)
	if s.Window != (Window{}) {
		fmt.Fprintf(&b, " %v", s.Window)
	}
	for _, d := range []struct {
		word string
		d    time.Duration
	}{{"per", s.Period}, {"for", s.Ban}, {"warm-up", s.WarmUp}} {
		if d.d != 0 {
			fmt.Fprintf(&b, " %s %v", d.word, d.d)
		}
	}
	for _, n := range []struct {
		word string
		n    int64
	}{{"burst", s.Burst * block}, {"queue", s.Queue}, {"buckets", s.Buckets}} {
		if n.n != 0 {
			fmt.Fprintf(&b, ", %s %d", n.word, max(n.n, 0))
		}
	}
	if s.Debt {
		b.WriteString(", debt")
	}
	return b.String()
}
