package stint

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/stint-go/stint/store"
)

// family is what a limiter and all derived from it share: the names of their
// limits, and who waits for a turn or a slot.
type family struct {
	mu    sync.Mutex
	names names

	turns turns
	slots slots
}

// names holds which limit has which name.
type names struct {
	rules  map[string]*rule
	limits map[*rule]*store.Limit
}

func newFamily() *family {
	return &family{names: names{rules: map[string]*rule{}, limits: map[*rule]*store.Limit{}}}
}

// compile names and compiles the limits of c that the family does not know
// yet. Nothing is registered before commit, so that a With that fails leaves
// no names behind. The caller holds f.mu throughout.
func (f *family) compile(c *config, report func(error)) names {
	n := names{rules: maps.Clone(f.names.rules), limits: maps.Clone(f.names.limits)}

	type use struct {
		rule  *rule
		where string
	}
	var fresh []use
	add := func(limits []Limit, where string) {
		for _, lim := range limits {
			known := slices.ContainsFunc(fresh, func(u use) bool { return u.rule == lim.rule })
			if _, ok := n.limits[lim.rule]; !ok && !known {
				fresh = append(fresh, use{lim.rule, where})
			}
		}
	}
	add(c.limits, "")
	for _, rc := range c.routes {
		add(rc.limits, fmt.Sprintf("WithRoute(%q): ", rc.pattern))
	}

	// Names that somebody wrote come before defaults that can give way.
	final := make([]string, len(fresh))
	for i, u := range fresh {
		if !u.rule.named {
			continue
		}
		final[i] = u.rule.spec.Name
		if n.rules[final[i]] != nil {
			report(fmt.Errorf("%stwo limits named %q: write another stint.WithName", u.where, final[i]))
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
		l, err := u.rule.compile(final[i])
		for _, e := range flatten(err) {
			report(fmt.Errorf("%slimit %.80q: %w", u.where, final[i], e))
		}
		n.limits[u.rule] = l
	}
	return n
}

func (f *family) commit(n names) { f.names = n }

// limit returns the family's limit of a rule that a WithLimitFunc gave.
func (f *family) limit(r *rule) (*store.Limit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.names.limits[r]; l != nil {
		return l, nil
	}
	if f.names.rules[r.spec.Name] != nil {
		return nil, fmt.Errorf("limit name %q is taken by another limit: write stint.WithName", r.spec.Name)
	}
	return r.compileOnce()
}

// probe calls each new KeyFunc and predicate once, for the mistakes that those
// of this package report about how they were made. Any other error, or a
// panic, is about the probe: a function may rely on what comes before it in a
// server.
func (c *config) probe() (errs []error) {
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
			for _, problem := range ce.problems {
				errs = append(errs, errors.New(option+": "+problem))
			}
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

// limitFunc is one WithLimitFunc and the settings that its limits leave open.
// Its address tells a nested limiter that its limits are charged already.
type limitFunc struct {
	fn     func(*http.Request) ([]Limit, error)
	shared settings
	family *family
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
		return nil, errors.New("zero Limit: return stint.Rate, Quota or Concurrency")
	}
	if d := l.rule.resolved.Load(); d != nil && d.from == f {
		return d.entry, nil
	}
	compiled, err := f.family.limit(l.rule)
	if err != nil {
		return nil, err
	}
	e := newEntry(compiled, l.rule.shared.or(f.shared))
	e.from = f
	l.rule.resolved.Store(&dynamicEntry{f, e})
	return e, nil
}
