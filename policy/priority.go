package policy

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// share is the part of a concurrency that is promised to a class.
type share struct{ class, percent *int64 }

var shareFields = []field[share]{
	{"class", func(d *decoder, n *yaml.Node, s *share) { s.class = d.between(n, "class", 0, 9) }},
	{"percent", func(d *decoder, n *yaml.Node, s *share) { s.percent = d.between(n, "percent", 1, 100) }},
}

const sharesExample = "[{class: 9, percent: 30}]"

// shares reads the shares of a concurrency. It is a list because the names in a mapping
// are text, and classes are numbers.
func (d *decoder) shares(n *yaml.Node, l *limit) {
	items, ok := d.list(n, "shares", sharesExample)
	if ok && len(items) == 0 {
		d.bad(n, "shares is empty: write some, such as %s", sharesExample)
	}
	for _, item := range items {
		before := len(d.errs)
		var s share
		if !object(d, item, "a share", "{class: 9, percent: 30}", shareFields, &s) || len(d.errs) > before {
			continue
		}
		if s.class == nil || s.percent == nil {
			d.bad(item, "a share must have a class and a percentage: write both, such as {class: 9, percent: 30}")
			continue
		}
		addOption(l, "shares", item, stint.WithShare(int(*s.class), int(*s.percent)))
	}
}

// between reads a whole number from least to most, or nil.
func (d *decoder) between(n *yaml.Node, what string, least, most int64) *int64 {
	if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!str") {
		if v, err := parseInt(n.Value); err == nil && v >= least && v <= most {
			return &v
		}
	}
	d.bad(n, "%s must be a whole number from %d to %d: write one", what, least, most)
	return nil
}

// priorityFields say who goes first among waiting requests, for the whole limiter.
var priorityFields = []field[document]{
	{"priority", func(d *decoder, n *yaml.Node, doc *document) {
		name, ok := d.text(n, "priority", "the name of a function given to policy.WithPriorityFunc")
		if !ok {
			return
		}
		f := d.config.priorities[name]
		if f == nil {
			d.unknown(n, "unknown priority %q: %s; functions are registered with policy.WithPriorityFunc",
				name, suggestion(name, slices.Sorted(maps.Keys(d.config.priorities))))
			return
		}
		doc.options = append(doc.options, stint.WithPriority(f))
	}},
}
