package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
)

// tree is a configuration of envoyproxy/ratelimit: a domain's rules by the entries of descriptors.
type tree struct {
	file   string
	domain string
	root   node
	rules  []*rule
	// ignored are the fields that have no effect here.
	ignored []string
}

// node is a level of a tree. Its children are named by an entry's key, or by key_value.
type node struct {
	children  map[string]*node
	wildcards []string // names of children that end in *, in the order of the file
	rule      *rule    // or nil
	shared    string   // the pattern of all values that share a count; or ""
}

// rule is a rate_limit of a configuration.
type rule struct {
	limit     string // the name of the limit that counts
	of        string // the keys and values that lead to it
	id        string // the domain, and the names of the nodes that lead to it
	shared    string // the keys and values in of that share a count; or ""
	units     uint32
	unit      service.RateLimitResponse_RateLimit_Unit
	unlimited bool
	shadow    bool
	name      string
	replaces  []string
}

// path returns the path of the rule's route. It stays the same when other rules change: while a change comes into force, a
// descriptor may have the rule of one version, and the limiter of the other.
func (r *rule) path() string { return "/" + r.limit }

// denies reports whether the rule lets nothing pass.
func (r *rule) denies() bool { return !r.unlimited && !r.shadow && r.units == 0 }

// periods are the lengths of units. A month has 30 days and a year 365, as in envoyproxy/ratelimit.
var periods = map[service.RateLimitResponse_RateLimit_Unit]time.Duration{}

func init() {
	for period, unit := range units {
		periods[unit] = period
	}
}

// find returns the rule of a descriptor, and the key under which it counts. At each level a child of the key and
// the value comes before one with a wildcard, and that before one of the key alone. rule is nil if there is none.
func (t *tree) find(entries []*ratelimit.RateLimitDescriptor_Entry) (r *rule, key string) {
	at := &t.root
	var counted strings.Builder
	for _, e := range entries {
		exact, value := e.GetKey()+"_"+e.GetValue(), e.GetValue()
		next := at.children[exact]
		if next == nil {
			for _, w := range at.wildcards {
				if strings.HasPrefix(exact, strings.TrimSuffix(w, "*")) {
					if next = at.children[w]; next.shared != "" {
						value = next.shared
					}
					break
				}
			}
		}
		if next == nil {
			next = at.children[e.GetKey()]
		}
		if next == nil {
			return nil, ""
		}
		at = next
		counted.WriteString(lengthPrefixed(value))
	}
	return at.rule, counted.String()
}

// assign gives each descriptor its rule. A rule that another one of the request replaces doesn't apply.
func (t *tree) assign(all []*descriptor) {
	replaced := map[string]bool{}
	for _, d := range all {
		if d.rule, d.key = t.find(d.entries); d.rule != nil {
			for _, name := range d.rule.replaces {
				replaced[name] = true
			}
		}
	}
	for _, d := range all {
		d.left = d.rule == nil
		if d.rule != nil && d.rule.name != "" && replaced[d.rule.name] {
			d.rule = nil
		}
	}
}

// options returns the options of the limiter of a tree. Each rule is a route of its own, so that a decision takes no
// longer the more rules there are. It returns nil if no rule has a limit.
func (t *tree) options() (all []stint.Option) {
	for _, r := range t.rules {
		if r.unlimited || r.units == 0 { // which need no count
			continue
		}
		l := stint.Quota(int64(r.units), stint.Every(periods[r.unit]), stint.WithName(r.limit), stint.WithDryRun(r.shadow),
			stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) { return descriptorOf(r).key, nil })))
		all = append(all, stint.WithRoute(r.path(), stint.Only(l)))
	}
	if all == nil {
		return nil
	}
	return append(all, stint.Complete(), hitsCost)
}

// Rules returns the rules of configurations of envoyproxy/ratelimit in words, one a line.
func Rules(paths []string) (lines []string, err error) {
	trees, err := readTrees(paths)
	for _, t := range trees {
		for _, r := range t.rules {
			what := fmt.Sprintf("%d per %s", r.units, strings.ToLower(r.unit.String()))
			if r.unlimited {
				what = "unlimited"
			}
			if r.shared != "" {
				what += ", one count for all of " + r.shared
			}
			if r.shadow {
				what += ", dry run"
			}
			if r.replaces != nil {
				what += ", instead of " + strings.Join(r.replaces, ", ")
			}
			lines = append(lines, fmt.Sprintf("domain %s, %s: %s", t.domain, r.of, what))
		}
	}
	return lines, err
}

// readTrees reads configurations from files and folders. The error is policy.Errors if they have mistakes.
func readTrees(paths []string) (trees []*tree, err error) {
	files, err := filesIn(paths)
	if err != nil {
		return nil, err
	}
	var errs policy.Errors
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		t, found := parseTree(file, data)
		errs = append(errs, found...)
		if t == nil {
			continue
		}
		if i := slices.IndexFunc(trees, func(o *tree) bool { return o.domain == t.domain }); i >= 0 {
			errs = append(errs, &policy.Error{File: file, Line: 1, Column: 1,
				Text: fmt.Sprintf("%s has the domain %q too: write all descriptors of a domain into one file",
					trees[i].file, t.domain)})
		}
		trees = append(trees, t)
	}
	if errs != nil {
		return nil, errs
	}
	nameLimits(trees...)
	return trees, nil
}

// nameLimits sets the name of each rule's limit. The names are readable and unique.
func nameLimits(trees ...*tree) {
	having := map[string]int{} // rules
	for _, t := range trees {
		for _, r := range t.rules {
			r.limit = limitName(t.domain+"."+dotted.Replace(r.of), r.id)
			having[r.limit]++
		}
	}
	for _, t := range trees {
		for _, r := range t.rules {
			if having[r.limit] > 1 {
				r.limit = hashedName(r.limit, r.id)
			}
		}
	}
}

var dotted = strings.NewReplacer(", ", ".", "=", "_")

// maxConfig bounds a configuration, in bytes.
const maxConfig = 4 << 20

// treeReader reads a configuration, and goes on after a mistake.
type treeReader struct {
	file  string
	tree  *tree
	nodes int
	errs  policy.Errors
}

func (p *treeReader) bad(n *yaml.Node, format string, args ...any) {
	p.errs = append(p.errs, &policy.Error{File: p.file, Line: max(n.Line, 1), Column: max(n.Column, 1),
		Text: fmt.Sprintf(format, args...)})
}

// parseTree reads a configuration. The tree is nil if it has mistakes.
func parseTree(file string, data []byte) (*tree, policy.Errors) {
	p := &treeReader{file: file, tree: &tree{file: file}}
	var doc yaml.Node
	if len(data) > maxConfig {
		p.bad(&doc, "the file has %d bytes: write at most %d", len(data), maxConfig)
		return nil, p.errs
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		p.bad(&doc, "%v", err)
		return nil, p.errs
	}
	if len(doc.Content) != 1 {
		p.bad(&doc, "the file is empty: write domain and descriptors")
		return nil, p.errs
	}
	root := doc.Content[0]
	fields := p.mapping(root, "the configuration", "domain", "descriptors")
	if n := fields["domain"]; n == nil || n.Kind != yaml.ScalarNode || n.Value == "" {
		p.bad(cmp.Or(n, root), "no domain: write the domain of Envoy's rate limit filter")
	} else {
		p.tree.domain = n.Value
	}
	if len(p.errs) == 0 {
		p.descriptors(fields["descriptors"], &p.tree.root, place{id: lengthPrefixed(p.tree.domain)})
	}
	if len(p.errs) > 0 {
		return nil, p.errs
	}
	nameLimits(p.tree)
	return p.tree, nil
}

// mapping returns the fields of a mapping, and reports those that it can't have.
func (p *treeReader) mapping(n *yaml.Node, what string, known ...string) map[string]*yaml.Node {
	fields := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		p.bad(n, "%s must be a mapping: write %s", what, strings.Join(known, ", "))
		return fields
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		switch {
		case !slices.Contains(known, name.Value):
			p.bad(name, "unknown field %q of %s: write %s", name.Value, what, strings.Join(known, ", "))
		case fields[name.Value] != nil:
			p.bad(name, "%q is set twice: leave one out", name.Value)
		case value.ShortTag() != "!!null":
			fields[name.Value] = value
		}
	}
	return fields
}

// What a configuration may have, since aliases can make it far larger than its file.
const (
	maxDepth = 20      // levels
	maxNodes = 100_000 // descriptors
)

// lengthPrefixed returns a text that stays the same in a concatenation with others.
func lengthPrefixed(text string) string { return strconv.Itoa(len(text)) + ":" + text }

// place is a node of a tree, as its rule has it.
type place struct {
	of, id, shared string
	depth          int
}

// below returns the place of a child.
func (at place) below(key, value string, shared bool) place {
	name, text := nodeName(key, value), key
	if value != "" {
		text += "=" + value
	}
	if shared {
		at.shared = list(at.shared, text)
	}
	at.of, at.id, at.depth = list(at.of, text), at.id+lengthPrefixed(name), at.depth+1
	return at
}

func list(all, item string) string {
	if all == "" {
		return item
	}
	return all + ", " + item
}

// nodeName returns the name of the node of a key, or of a key and a value.
func nodeName(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// descriptors reads a list of descriptors into a node.
func (p *treeReader) descriptors(n *yaml.Node, to *node, at place) {
	switch {
	case n == nil:
		return
	case n.Kind != yaml.SequenceNode:
		p.bad(n, "descriptors must be a list: write - key: and the key of an entry")
		return
	case at.depth > maxDepth:
		p.bad(n, "more than %d levels of descriptors: leave some out", maxDepth)
		return
	}
	for _, item := range n.Content {
		if p.nodes++; p.nodes > maxNodes {
			if p.nodes == maxNodes+1 {
				p.bad(item, "more than %d descriptors: leave some out", maxNodes)
			}
			return
		}
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		fields := p.mapping(item, "a descriptor", "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
			"detailed_metric", "value_to_metric", "share_threshold")
		key, value := p.text(fields["key"], "key"), p.text(fields["value"], "value")
		if key == "" {
			p.bad(item, "a descriptor without a key: write the key of an entry")
			continue
		}
		name := nodeName(key, value)
		if to.children[name] != nil {
			p.bad(item, "%s is described twice: leave one out", at.below(key, value, false).of)
			continue
		}
		child := &node{}
		if to.children == nil {
			to.children = map[string]*node{}
		}
		to.children[name] = child
		wildcard := strings.HasSuffix(name, "*")
		if wildcard {
			to.wildcards = append(to.wildcards, name)
		}
		for _, field := range []string{"detailed_metric", "value_to_metric"} {
			if p.flag(fields[field], field) && !slices.Contains(p.tree.ignored, field) {
				p.tree.ignored = append(p.tree.ignored, field)
			}
		}
		if p.flag(fields["share_threshold"], "share_threshold") {
			if child.shared = value; !wildcard || value == "" {
				p.bad(fields["share_threshold"], "share_threshold is for values that end in *: leave it out")
			}
		}
		if p.flag(fields["quota_mode"], "quota_mode") {
			p.bad(fields["quota_mode"], "quota_mode isn't supported: leave it out, or write shadow_mode to only count")
		}
		shadow, here := p.flag(fields["shadow_mode"], "shadow_mode"), at.below(key, value, child.shared != "")
		if limit := fields["rate_limit"]; limit != nil {
			child.rule = p.rateLimit(limit, here, shadow)
		}
		p.descriptors(fields["descriptors"], child, here)
	}
}

// rateLimit reads a rate_limit.
func (p *treeReader) rateLimit(n *yaml.Node, at place, shadow bool) *rule {
	r := &rule{of: at.of, id: at.id, shared: at.shared, shadow: shadow}
	fields := p.mapping(n, "a rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces")
	r.name, r.unlimited = p.text(fields["name"], "name"), p.flag(fields["unlimited"], "unlimited")
	unit := p.text(fields["unit"], "unit")
	r.unit = service.RateLimitResponse_RateLimit_Unit(service.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(unit)])
	switch {
	case r.unlimited && periods[r.unit] != 0:
		p.bad(fields["unit"], "a unit beside unlimited: leave one out")
	case !r.unlimited && periods[r.unit] == 0:
		p.bad(cmp.Or(fields["unit"], n), "unknown unit %q: write second, minute, hour, day, week, month or year", unit)
	}
	if c := fields["requests_per_unit"]; c != nil {
		units, err := strconv.ParseInt(c.Value, 10, 64)
		if err != nil || units < 0 || units > math.MaxUint32 || c.Kind != yaml.ScalarNode {
			p.bad(c, "requests_per_unit %q: write a number from 0 to %d", c.Value, uint32(math.MaxUint32))
		}
		r.units = uint32(units)
	}
	if c := fields["replaces"]; c != nil {
		if c.Kind != yaml.SequenceNode {
			p.bad(c, "replaces must be a list: write - name: and the name of a rate_limit")
		}
		for _, item := range c.Content {
			switch name := p.text(p.mapping(item, "an item of replaces", "name")["name"], "name"); name {
			case "":
				p.bad(item, "replaces without a name: write the name of a rate_limit")
			case r.name:
				p.bad(item, "replaces names its own rate_limit: leave it out")
			default:
				r.replaces = append(r.replaces, name)
			}
		}
	}
	p.tree.rules = append(p.tree.rules, r)
	return r
}

// text reads a text, or "" if there is none.
func (p *treeReader) text(n *yaml.Node, what string) string {
	switch {
	case n == nil:
		return ""
	case n.Kind != yaml.ScalarNode:
		p.bad(n, "%s must be text", what)
		return ""
	}
	return n.Value
}

// flag reads a field that is true or false.
func (p *treeReader) flag(n *yaml.Node, what string) bool {
	if n == nil {
		return false
	}
	var on bool
	if err := n.Decode(&on); err != nil {
		p.bad(n, "%s must be true or false", what)
	}
	return on
}

// limitName returns a text if it can be the name of a limit, and otherwise a name that is like the text.
func limitName(text, id string) string {
	if algorithm.ValidName(text) {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-' {
			b.WriteByte(c)
		} else {
			b.WriteByte('-')
		}
	}
	return hashedName("r"+strings.TrimLeft(b.String(), "0123456789_.-"), id)
}

// hashedName returns the name of the rule with an id.
func hashedName(readable, id string) string {
	hash := sha256.Sum256([]byte(id))
	return readable[:min(len(readable), 41)] + "-" + hex.EncodeToString(hash[:])[:20]
}

// configured are the domains of configurations of envoyproxy/ratelimit.
type configured struct {
	paths  []string
	counts store.Store
	logger *slog.Logger
	log    *occasionally

	last    [][]byte // the files' contents when they were loaded
	seen    [][]byte // and at the last look; nil if they couldn't be read
	lastErr string   // of reading them; or ""
	domains map[string]*domain
	current atomic.Pointer[map[string]*domain]
}

// load reads the files and puts them in force, if they have no mistake.
func (c *configured) load() error {
	trees, err := readTrees(c.paths)
	if err != nil {
		return err
	}
	domains := map[string]*domain{}
	for _, t := range trees {
		d := c.domains[t.domain]
		if d == nil {
			d = &domain{name: t.domain, log: c.log}
		}
		r := &rules{tree: t, shown: map[string]*service.RateLimitResponse_RateLimit{}}
		for _, rule := range t.rules {
			r.shown[rule.limit] = &service.RateLimitResponse_RateLimit{Name: rule.name, RequestsPerUnit: rule.units,
				Unit: rule.unit}
		}
		if options := t.options(); options != nil {
			options = append(options, stint.WithStore(c.counts), stint.WithLogger(c.logger), stint.WithoutWarnings())
			if algorithm.ValidName(t.domain) {
				options = append(options, stint.WithLimiterName(t.domain))
			}
			if old := d.rules.Load(); old != nil && old.routed != nil {
				r.routed, err = old.routed, old.routed.Update(options...)
			} else {
				r.routed, err = stint.New(options...)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.file, err)
			}
		}
		if t.ignored != nil {
			c.logger.Warn("metrics of envoyproxy/ratelimit are left out", "file", t.file, "fields", t.ignored)
		}
		d.rules.Store(r)
		domains[t.domain] = d
	}
	c.domains = domains
	c.current.Store(&domains)
	return nil
}

// limiters returns the limiters of the domains.
func (c *configured) limiters() (all []*stint.Limiter) {
	for _, name := range slices.Sorted(maps.Keys(c.domains)) {
		if l := c.domains[name].rules.Load().routed; l != nil {
			all = append(all, l)
		}
	}
	return all
}

// read returns the files' names and contents. If they can't be read, it logs that, and returns nil.
func (c *configured) read() (now [][]byte) {
	files, err := filesIn(c.paths)
	for _, file := range files {
		data, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		now = append(now, []byte(file), data)
	}
	if err == nil {
		c.lastErr = ""
		return now
	}
	if c.lastErr != err.Error() {
		c.logger.Error("a configuration can't be read, so the last one stays in force", "error", err)
	}
	c.lastErr = err.Error()
	return nil
}

// changed reports whether the files have other contents than those in force, and the same as at the last call: a file may
// have been half written then.
func (c *configured) changed() bool {
	now := c.read()
	same := slices.EqualFunc(now, c.seen, bytes.Equal)
	c.seen = now
	if now == nil || !same || slices.EqualFunc(now, c.last, bytes.Equal) {
		return false
	}
	c.last = now
	return true
}

// follow puts changes of the files in force until ctx ends. done is closed then.
func (c *configured) follow(ctx context.Context) (done <-chan struct{}) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ticker := time.NewTicker(time.Second); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
			}
			if !c.changed() {
				continue
			}
			if err := c.load(); err != nil {
				c.logger.Error("a configuration has a mistake, so the last one stays in force", "error", err)
			} else {
				c.logger.Info("a configuration has changed")
			}
		}
	}()
	return ended
}
