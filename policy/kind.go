package policy

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// kind is a kind of limit: the field that makes a mapping a limit of this kind, a field
// that it requires, and the fields that go with it. A new kind of stint's is one more
// line in kinds, its own fields in limitFields, and both in schema.json.
type kind struct {
	name       string
	required   string       // a required field with an example, or empty
	arguments  []string     // the fields that are arguments of the limit rather than options
	optionType reflect.Type // the options that the limit accepts
	read       func(d *decoder, n *yaml.Node, l *limit)
}

var kinds = []kind{
	{"rate", "", nil, reflect.TypeFor[stint.RateOption](), readRate},
	{"quota", "", []string{"in", "from"}, reflect.TypeFor[stint.RateOption](), readQuota},
	{"concurrency", "", nil, reflect.TypeFor[stint.SlotOption](), readConcurrency},
	{"adaptive-concurrency", "", nil, reflect.TypeFor[stint.SlotOption](), readAdaptive},
	{"ban", "for: 1h", []string{"for"}, reflect.TypeFor[stint.BanOption](), readBan},
	{"bandwidth", "", nil, reflect.TypeFor[stint.BandwidthOption](), readBandwidth},
}

// onlyKinds are the fields that go with fewer kinds than the interface of their option has: New
// rejects them on the others, and accepts rejects them in the words of a file.
var onlyKinds = map[string][]string{
	"burst":         {"rate", "quota", "bandwidth"},
	"queue":         {"rate", "concurrency", "adaptive-concurrency"},
	"fair-queue":    {"concurrency"},
	"settle":        {"rate", "quota"},
	"near-limit":    {"rate", "quota"},
	"after":         {"rate", "quota"},
	"debt":          {"rate"},
	"warm-up":       {"rate"},
	"buckets":       {"rate"},
	"adaptation":    {"adaptive-concurrency"},
	"initial-limit": {"adaptive-concurrency"},
	"sample-window": {"adaptive-concurrency"},
}

// convert converts options to the limit's own type, once its kind is known to accept each.
func convert[O any](options []any) []O {
	all := make([]O, len(options))
	for i, o := range options {
		all[i] = o.(O)
	}
	return all
}

// accepts reports whether the kind accepts a field.
func (k *kind) accepts(o placedOption) bool {
	if o.option == nil {
		return slices.Contains(k.arguments, o.field)
	}
	if kinds := onlyKinds[o.field]; kinds != nil && !slices.Contains(kinds, k.name) {
		return false
	}
	return o.as.Implements(k.optionType)
}

func readRate(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("rate")
	if units, per, ok := d.rate(n, "a rate", "100/1m or 10/s"); ok {
		l.make = func(opts []any) stint.Limit { return stint.Rate(units, per, convert[stint.RateOption](opts)...) }
	}
}

func readBan(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("ban")
	if denials, within, ok := d.rate(n, "a ban", "20/1m"); ok {
		l.make = func(opts []any) stint.Limit {
			return stint.Ban(denials, within, append(convert[stint.BanOption](opts), stint.WithBanFor(l.banFor))...)
		}
	}
}

// rate reads a number per time.
func (d *decoder) rate(n *yaml.Node, what, example string) (units int64, per time.Duration, ok bool) {
	units, rest, ok := d.per(n, what, example)
	if !ok {
		return 0, 0, false
	}
	if !strings.ContainsAny(rest, "0123456789.") { // 10/s is 10/1s
		rest = "1" + rest
	}
	per, err := parseDuration(rest)
	if err != nil {
		d.bad(n, "%v", err)
	}
	return units, per, err == nil
}

// windows are the words for windows of the calendar.
var windows = []struct {
	name   string
	window stint.Window
}{
	{"hourly", stint.Hourly}, {"daily", stint.Daily}, {"weekly", stint.Weekly}, {"monthly", stint.Monthly},
	{"yearly", stint.Yearly},
}

func readQuota(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("quota")
	units, rest, ok := d.per(n, "a quota", "10_000/daily or 500/6h")
	if !ok {
		return
	}
	var words []string
	var window stint.Window
	for _, w := range windows {
		if words = append(words, w.name); w.name == rest {
			window = w.window
			l.defaultName(rest)
		}
	}
	if window == (stint.Window{}) {
		every, err := parseDuration(rest)
		if err != nil {
			d.bad(n, "unknown window %q: %s, or a duration such as 6h", rest, suggestion(rest, words))
			return
		}
		window = stint.Every(every)
	}
	l.window, _, _ = strings.Cut(window.String(), " ")
	l.make = func(opts []any) stint.Limit {
		w := window
		if l.zone != nil {
			w = w.In(l.zone)
		}
		if l.from != nil {
			w = w.From(l.from.in(l.zone))
		}
		return stint.Quota(units, w, convert[stint.RateOption](opts)...)
	}
}

func readConcurrency(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("concurrency")
	if slots, ok := d.integer(n, "concurrency", 1); ok {
		l.make = func(opts []any) stint.Limit { return stint.Concurrency(slots, convert[stint.SlotOption](opts)...) }
	}
}

func readAdaptive(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("adaptive")
	low, high, _ := strings.Cut(n.Value, "-")
	least, err := parseInt(low)
	most, err2 := parseInt(high)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil || err2 != nil:
		d.bad(n, "adaptive-concurrency must be a range: write it like 10-200")
	case least < 1 || most < least:
		d.bad(n, "adaptive-concurrency %d-%d: write a minimum of 1 or more, and a maximum of no less", least, most)
	default:
		l.make = func(opts []any) stint.Limit {
			return stint.AdaptiveConcurrency(least, most, convert[stint.SlotOption](opts)...)
		}
	}
}

func readBandwidth(d *decoder, n *yaml.Node, l *limit) {
	l.defaultName("bandwidth")
	amount, perSecond := strings.CutSuffix(n.Value, "/s")
	bytes, err := parseSize(amount)
	if n.Kind != yaml.ScalarNode || !perSecond || err != nil {
		d.bad(n, "a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in %s",
			sizeWords)
		return
	}
	l.make = func(opts []any) stint.Limit { return stint.Bandwidth(bytes, convert[stint.BandwidthOption](opts)...) }
}
