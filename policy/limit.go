package policy

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

const limitExample = "{name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8"

// limit is a limit of the file on its way to becoming a stint.Limit.
type limit struct {
	node     *yaml.Node
	kind     *kind
	kindNode *yaml.Node
	make     func(options []any) stint.Limit // nil after an error
	name     string                          // as given, or the default of the kind
	named    bool
	zone     *time.Location // of in
	window   string         // of quota: "daily", or "every"
	from     *from          // of from
	banFor   time.Duration  // of for
	dryRun   *bool
	after    bool // after: true
	options  []placedOption
	settings settings

	built stint.Limit
	ok    bool // built
}

// placedOption is a field and its position: an option of the limit's kind, or nil if
// the field is an argument of the limit. The interface that the option's function returns
// says which kinds the option goes with.
type placedOption struct {
	field  string
	node   *yaml.Node
	option any
	as     reflect.Type
}

// settings are the fields that may appear in a limit, in its route and at the top
// level. The innermost wins.
type settings struct {
	options []setting
	keyed   bool
}

type setting struct {
	field  string
	node   *yaml.Node
	option stint.RouteOption
	as     reflect.Type
}

func addSetting[O stint.RouteOption](s *settings, field string, n *yaml.Node, o O) {
	s.options = append(s.options, setting{field, n, o, reflect.TypeFor[O]()})
}

func settingsFields[T any](settingsOf func(*T) *settings) []field[T] {
	return []field[T]{
		{"key", func(d *decoder, n *yaml.Node, to *T) {
			// A wrong key counts as a key: reporting a missing one as well would not
			// help.
			settingsOf(to).keyed = true
			if k := d.key(n); k != noKey {
				addSetting(settingsOf(to), "key", n, stint.WithKey(k))
			}
		}},
		{"cost", func(d *decoder, n *yaml.Node, to *T) {
			d.checkServed(n, "cost")
			if cost := d.cost(n); cost != nil {
				addSetting(settingsOf(to), "cost", n, cost)
			}
		}},
		{"settle", func(d *decoder, n *yaml.Node, to *T) {
			d.checkServed(n, "settle")
			if o := d.settle(n); o != nil {
				addSetting(settingsOf(to), "settle", n, o)
			}
		}},
		{"max-wait", func(d *decoder, n *yaml.Node, to *T) {
			if v, ok := d.duration(n, "max-wait"); ok {
				addSetting(settingsOf(to), "max-wait", n, stint.WithMaxWait(v))
			}
		}},
		{"near-limit", func(d *decoder, n *yaml.Node, to *T) {
			if o := d.nearLimit(n); o != nil {
				addSetting(settingsOf(to), "near-limit", n, o)
			}
		}},
		{"failure", func(d *decoder, n *yaml.Node, to *T) {
			switch word, _ := d.word(n, "failure policy", "open", "closed"); word {
			case "open":
				addSetting(settingsOf(to), "failure", n, stint.WithFailurePolicy(stint.FailOpen))
			case "closed":
				addSetting(settingsOf(to), "failure", n, stint.WithFailurePolicy(stint.FailClosed))
			}
		}},
		{"empty-key", func(d *decoder, n *yaml.Node, to *T) {
			d.checkServed(n, "empty-key")
			switch word, _ := d.word(n, "empty-key", "deny", "skip"); word {
			case "deny":
				addSetting(settingsOf(to), "empty-key", n, stint.WithEmptyKey(stint.DenyEmptyKey))
			case "skip":
				addSetting(settingsOf(to), "empty-key", n, stint.WithEmptyKey(stint.SkipEmptyKey))
			}
		}},
	}
}

// nearLimit reads the percentages of a near-limit, or returns nil.
func (d *decoder) nearLimit(n *yaml.Node) stint.ChargeOption {
	const example = "[80, 95]"
	items, ok := d.list(n, "near-limit", example)
	if ok && len(items) == 0 {
		d.bad(n, "near-limit is empty: write some percentages, such as %s", example)
	}
	var percent []int
	for _, item := range items {
		if v := d.between(item, "a percentage of near-limit", 1, 100); v != nil {
			percent = append(percent, int(*v))
		}
	}
	if len(percent) == 0 || len(percent) < len(items) {
		return nil
	}
	return stint.WithNearLimit(percent...)
}

// skipField is the field skip of a limit and of a route. That of the file exempts requests from all.
func skipField[T any](settingsOf func(*T) *settings) field[T] {
	return field[T]{"skip", func(d *decoder, n *yaml.Node, to *T) {
		for _, p := range d.predicates(n, "skip") {
			addSetting(settingsOf(to), "skip", n, p.skip)
		}
	}}
}

// limitFields is a function because keys hold keys.
func limitFields() []field[limit] {
	fields := []field[limit]{
		{"name", func(d *decoder, n *yaml.Node, l *limit) {
			if name, ok := d.text(n, "name", "a letter, then up to 63 of A-Z a-z 0-9 _ . -"); ok {
				l.name, l.named = name, true
				addOption(l, "name", n, stint.WithName(name))
			}
		}},
	}
	for i := range kinds {
		k := &kinds[i]
		fields = append(fields, field[limit]{k.name, func(d *decoder, n *yaml.Node, l *limit) {
			if l.kind != nil {
				d.bad(n, "%s beside %s: make it a limit of its own", k.name, l.kind.name)
				return
			}
			l.kind, l.kindNode = k, n
			d.checkServed(n, k.name)
			k.read(d, n, l)
		}})
	}
	settingsOf := func(l *limit) *settings { return &l.settings }
	fields = append(append(fields, settingsFields(settingsOf)...), skipField(settingsOf))
	return append(fields, []field[limit]{
		{"dry-run", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.boolean(n, "dry-run"); ok {
				l.dryRun = &v
			}
		}},
		{"after", func(d *decoder, n *yaml.Node, l *limit) { d.afterField(n, l) }},
		{"hidden", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.boolean(n, "hidden"); ok && v {
				addOption(l, "hidden", n, stint.WithHidden())
			}
		}},
		{"algorithm", func(d *decoder, n *yaml.Node, l *limit) {
			var words []string
			for _, a := range algorithms {
				words = append(words, a.name)
			}
			if word, ok := d.word(n, "algorithm", words...); ok {
				addOption(l, "algorithm", n, stint.WithAlgorithm(algorithms[slices.Index(words, word)].alg))
			}
		}},
		{"burst", func(d *decoder, n *yaml.Node, l *limit) {
			read := number("burst", 0, stint.WithBurst)
			if l.kind != nil && l.kind.name == "bandwidth" { // its units are bytes
				read = size("burst", stint.WithBurst)
			}
			read(d, n, l)
		}},
		{"direction", func(d *decoder, n *yaml.Node, l *limit) {
			words := []string{"responses", "requests", "both"} // in the order of stint.Direction
			if word, ok := d.word(n, "direction", words...); ok {
				addOption(l, "direction", n, stint.WithDirection(stint.Direction(slices.Index(words, word))))
			}
		}},
		{"queue", number("queue", 0, stint.WithQueue)},
		{"shares", func(d *decoder, n *yaml.Node, l *limit) { d.shares(n, l) }},
		{"fair-queue", func(d *decoder, n *yaml.Node, l *limit) {
			if k := d.key(n); k != noKey {
				addOption(l, "fair-queue", n, stint.WithFairQueue(k))
			}
		}},
		{"buckets", number("buckets", 1, stint.WithBuckets)},
		{"warm-up", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.duration(n, "warm-up"); ok {
				addOption(l, "warm-up", n, stint.WithWarmUp(v))
			}
		}},
		{"debt", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.boolean(n, "debt"); ok && v {
				addOption(l, "debt", n, stint.WithDebt())
			}
		}},
		{"adaptation", func(d *decoder, n *yaml.Node, l *limit) {
			if a, ok := d.adaptation(n); ok {
				addOption(l, "adaptation", n, stint.WithAdaptation(a))
			}
		}},
		{"initial-limit", number("initial-limit", 1, stint.WithInitialLimit)},
		{"sample-window", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.duration(n, "sample-window"); ok {
				addOption(l, "sample-window", n, stint.WithSampleWindow(v))
			}
		}},
		{"in", func(d *decoder, n *yaml.Node, l *limit) {
			name, ok := d.text(n, "in", "a time zone, such as Europe/Berlin")
			if !ok {
				return
			}
			loc, err := time.LoadLocation(name)
			if err != nil || name == "Local" {
				d.bad(n, "unknown time zone %q: write UTC or a name such as Europe/Berlin; a program without a zone database imports time/tzdata", name)
				return
			}
			l.zone = loc
			addOption[any](l, "in", n, nil)
		}},
		{"from", func(d *decoder, n *yaml.Node, l *limit) {
			if l.from = parseFrom(n.Value); n.Kind != yaml.ScalarNode || l.from == nil {
				d.bad(n, "from must be the time at which a window begins: write %s", fromExample)
				return
			}
			l.from.node = n
			addOption[any](l, "from", n, nil)
		}},
		{"for", func(d *decoder, n *yaml.Node, l *limit) {
			if v, ok := d.duration(n, "for"); ok {
				l.banFor = v
			}
			addOption[any](l, "for", n, nil) // even if its value is wrong
		}},
	}...)
}

// adaptationForms are the adaptations that take a number.
var adaptationForms = []field[stint.Adaptation]{
	{"gradient2", func(d *decoder, n *yaml.Node, to *stint.Adaptation) {
		factor, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || strings.Trim(n.Value, "0123456789.") != "" || err != nil {
			d.bad(n, "the tolerance of gradient2 must be a factor of 1 or more: write one such as 1.5")
			return
		}
		d.setAdaptation(n, "gradient2", stint.Gradient2(factor), to)
	}},
	{"aimd", func(d *decoder, n *yaml.Node, to *stint.Adaptation) {
		if v, ok := d.duration(n, "aimd"); ok {
			d.setAdaptation(n, "aimd", stint.AIMD(v), to)
		}
	}},
}

const adaptationExample = "vegas, {gradient2: 1.5} or {aimd: 150ms}"

// adaptation reads how a limit follows the latency: a word, or a mapping with a single form.
func (d *decoder) adaptation(n *yaml.Node) (a stint.Adaptation, ok bool) {
	before := len(d.errs)
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "vegas":
		return stint.Vegas(), true
	case n.Kind == yaml.ScalarNode:
		d.bad(n, "unknown adaptation %q: write %s", n.Value, adaptationExample)
	case n.Kind == yaml.MappingNode && len(n.Content) != 2:
		d.bad(n, "an adaptation must have one form: write %s", adaptationExample)
	default:
		object(d, n, "an adaptation", adaptationExample, adaptationForms, &a)
	}
	return a, len(d.errs) == before
}

// setAdaptation sets an adaptation, unless its number is wrong.
func (d *decoder) setAdaptation(n *yaml.Node, field string, a stint.Adaptation, to *stint.Adaptation) {
	if !d.rejects(n, field, stint.AdaptiveConcurrency(1, 1, stint.WithAdaptation(a)), stint.WithKey(stint.Global())) {
		*to = a
	}
}

func number[O any](name string, least int64, option func(int64) O) func(*decoder, *yaml.Node, *limit) {
	return func(d *decoder, n *yaml.Node, l *limit) {
		if v, ok := d.integer(n, name, least); ok {
			addOption(l, name, n, option(v))
		}
	}
}

func size[O any](name string, option func(int64) O) func(*decoder, *yaml.Node, *limit) {
	return func(d *decoder, n *yaml.Node, l *limit) {
		if v, ok := d.size(n, name); ok {
			addOption(l, name, n, option(v))
		}
	}
}

func addOption[O any](l *limit, field string, n *yaml.Node, o O) {
	l.options = append(l.options, placedOption{field, n, o, reflect.TypeFor[O]()})
}

func (l *limit) defaultName(name string) {
	if !l.named {
		l.name = name
	}
}

// limit reads a limit, and asks stint.Check about it alone, so that New's problems are
// reported where they belong.
func (d *decoder) limit(n *yaml.Node, dryRun bool) *limit {
	l := &limit{node: n}
	before := len(d.errs)
	if !object(d, n, "a limit", limitExample, limitFields(), l) {
		return l
	}
	if l.kind == nil {
		if len(d.errs) == before { // otherwise the kind may be what is misspelt
			d.bad(n, "a limit without a kind: write one, such as %s", limitExample)
		}
		return l
	}
	if l.dryRun != nil && *l.dryRun || l.dryRun == nil && dryRun {
		addSetting(&l.settings, "dry-run", n, stint.WithDryRun(true))
	}
	all := l.allOptions()
	for _, o := range all {
		if !l.kind.accepts(o) {
			d.bad(o.node, "%s doesn't go with %s: leave it out%s", o.field, l.kind.name, kindsText(o))
		}
	}
	if l.from != nil && l.window != "" && !slices.Contains(fromForms[l.from.form], l.window) {
		d.bad(l.from.node, "from %s doesn't say when a window of the quota begins: write %s", l.from.node.Value, fromExample)
	}
	if k := l.kind; k.required != "" {
		needed, _, _ := strings.Cut(k.required, ":")
		if !slices.ContainsFunc(l.options, func(o placedOption) bool { return o.field == needed }) {
			d.bad(l.kindNode, "a %s without %s: write it beside it, such as %s", k.name, needed, k.required)
		}
	}
	if len(d.errs) > before || l.make == nil {
		return l
	}
	l.built = l.build(all)
	mistakes := l.problemsAlone(l.built)
	for _, e := range mistakes {
		o := l.causeOf(all, e)
		d.bad(o.node, "%s", inFileWords(o.field+" "+o.node.Value, e))
	}
	l.ok = len(mistakes) == 0
	return l
}

// allOptions returns the options of all fields of the limit.
func (l *limit) allOptions() []placedOption {
	all := slices.Clone(l.options)
	for _, s := range l.settings.options {
		all = append(all, placedOption{s.field, s.node, s.option, s.as})
	}
	return all
}

// kindsText names the kinds that a field goes with.
func kindsText(o placedOption) string {
	var accepting []string
	for _, k := range kinds {
		if k.accepts(o) {
			accepting = append(accepting, k.name)
		}
	}
	if accepting == nil {
		return ""
	}
	return ", or make it a limit with " + joinOr(accepting)
}

// problemsAlone returns the problems stint.Check finds with a limit by itself: what it needs
// beside it is checked with the whole policy, and so is whether its requests wait. The limit beside it here has no
// name, so that the names can't clash.
func (l *limit) problemsAlone(built stint.Limit) []stint.OptionError {
	opts := []stint.Option{built, stint.Rate(1, time.Second), stint.WithKey(stint.Global())}
	if l.kind.name == "concurrency" {
		opts = append(opts, stint.WithMaxWait(time.Second)) // which may be that of the route or of the file
	}
	return problemsOf(opts...)
}

// build makes the limit with the given options.
func (l *limit) build(options []placedOption) stint.Limit {
	opts := make([]any, 0, len(options))
	zone, from, banFor := l.zone, l.from, l.banFor
	l.zone, l.from, l.banFor = nil, nil, 0
	for _, o := range options {
		switch o.field {
		case "in":
			l.zone = zone
		case "from":
			l.from = from
		case "for":
			l.banFor = banFor
		default:
			opts = append(opts, o.option)
		}
	}
	defer func() { l.zone, l.from, l.banFor = zone, from, banFor }()
	return l.make(opts)
}

// causeOf returns the field that causes a problem: the last one without which stint.Check
// would not report it, since an earlier one was there first. If there is none, it
// returns the kind.
func (l *limit) causeOf(options []placedOption, e stint.OptionError) placedOption {
	for i, o := range slices.Backward(options) {
		without := slices.Delete(slices.Clone(options), i, i+1)
		same := func(o stint.OptionError) bool { return o.Error() == e.Error() }
		if !slices.ContainsFunc(l.problemsAlone(l.build(without)), same) {
			return o
		}
	}
	return placedOption{field: l.kind.name, node: l.kindNode}
}
