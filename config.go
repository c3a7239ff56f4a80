package stint

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/probe"
	"github.com/stint-go/stint/internal/process"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// config is what the options of one New or With add up to.
type config struct {
	conduct
	shared settings
	limits []Limit
	routes []routeConfig

	store       store.Store
	meanings    func() meanings // with store
	memory      []memstore.Option
	memorySet   bool
	limitFuncs  []func(*http.Request) ([]Limit, error)
	skip, block []func(*http.Request) bool
	observers   []func(Event)
	logger      *slog.Logger
	logKeys     bool

	opts []Option // that it was collected from
	errs mistakes
}

// collect adds up options. The conduct is the parent's, or usual, as far as they don't
// change it.
func collect(opts []Option, inherited conduct) *config {
	c := &config{conduct: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			c.errs.bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
			continue
		}
		o.applyLimiter(c)
	}
	return c
}

// routeConfig is one WithRoute.
type routeConfig struct {
	pattern string
	shared  settings
	limits  []Limit
	errs    mistakes
}

// settings are the shared options. A nil or zero field isn't set.
type settings struct {
	key     *keyfunc.Source
	cost    func(*http.Request) int64
	settle  *settleSource
	maxWait time.Duration
	lines   func() process.Lines // with maxWait
	dryRun  bool
	policy  FailurePolicy
	errs    mistakes
}

// or fills in what s doesn't set from the defaults d.
func (s settings) or(d settings) settings {
	if s.key == nil {
		s.key = d.key
	}
	if s.cost == nil {
		s.cost = d.cost
	}
	if s.settle == nil {
		s.settle = d.settle
	}
	if s.maxWait == 0 {
		s.maxWait, s.lines = d.maxWait, d.lines
	}
	s.dryRun = s.dryRun || d.dryRun
	if s.policy == 0 {
		s.policy = d.policy
	}
	return s
}

// change is the effect of an option on a limit.
type change func(*rule)

func (f change) applyLimit(r *rule) { f(r) }

// setting is the effect of an option on a limit, or on the defaults of several.
type setting func(*settings)

func (f setting) applyLimiter(c *config)     { f(&c.shared) }
func (f setting) applyLimit(r *rule)         { f(&r.shared) }
func (f setting) applyRoute(rc *routeConfig) { f(&rc.shared) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate()        {}
func (marks) ofQuota()       {}
func (marks) ofConcurrency() {}
func (marks) ofAdaptive()    {}
func (marks) ofBandwidth()   {}
func (marks) ofBan()         {}

// The options of limits, by what they do.
type (
	changeOption struct {
		change
		marks
	}
	settingOption struct {
		setting
		marks
	}
)

// probe calls each new KeyFunc and predicate once, for the mistakes that those
// of this package report about how they were made, and asks the store for its own. Any other error, or a
// panic, is about the probe: a function may rely on what comes before it in a
// server.
func (c *config) probe() (errs mistakes) {
	for _, s := range c.keySources() {
		errs = append(errs, mistaken("WithKey", s.Probe())...)
	}
	for _, p := range c.skip {
		errs = append(errs, mistaken("WithSkip", predicateProblem(p, probe.Request()))...)
	}
	for _, p := range c.block {
		errs = append(errs, mistaken("WithBlock", predicateProblem(p, probe.Request()))...)
	}
	if s, ok := c.store.(store.Checked); ok {
		for _, e := range s.Misconfigured() {
			errs.add("WithStore", e)
		}
	}
	return errs
}

// keySources returns the uses of WithKey among the options, each once.
func (c *config) keySources() (all []*keyfunc.Source) {
	add := func(k *keyfunc.Source) {
		if k != nil && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	add(c.shared.key)
	for _, rc := range c.routes {
		add(rc.shared.key)
	}
	for _, u := range c.uses() {
		add(u.rule.shared.key)
	}
	return all
}

// mistaken returns the mistakes that err reports about the argument of an option.
func mistaken(option string, err error) mistakes {
	if ce := (*configError)(nil); errors.As(err, &ce) {
		return ce.mistakes.within(option)
	}
	return nil
}

// predicateProblem returns the mistakes in the arguments that a predicate was made with.
func predicateProblem(p func(*http.Request) bool, r *http.Request) error {
	report := new(configError)
	if probe.Predicate(p, r, report); report.mistakes == nil {
		return nil
	}
	return report
}

// OptionError is one problem with options. New, Check, With, Update and Limit.Check
// return all problems in one error (errors.Join), each element of which is, or wraps,
// an *OptionError.
type OptionError struct {
	// Limit is the name of the limit that the problem is about; empty for none.
	Limit string
	// Route is the pattern of the WithRoute that contains it; empty for none.
	Route string
	// Option is the wrong option, with its argument if that alone is wrong:
	// "WithBurst(-1)", "WithKey(Header(\"a b\"))", "WithQueue". It is empty if the
	// limit's own numbers are wrong, or if something is missing.
	Option string
	// Problem says what is wrong; it is empty if Option shows it.
	Problem string
	// Write says what to write instead: "write 0 or more", "leave it out".
	Write string

	named *store.SpecError // Problem and Write, if they contain names
}

// In returns Problem and Write for readers who don't write Go, such as those of a
// configuration file. word returns their word for a name of Go's, such as "TokenBucket"
// or "time.Second".
func (e *OptionError) In(word func(name string) string) (problem, write string) {
	if e.named == nil {
		return e.Problem, e.Write
	}
	return e.named.In(word)
}

// Error returns the route, the limit, the option, the problem and what to write
// instead, as far as they are set.
func (e *OptionError) Error() string {
	var s string
	if e.Route != "" {
		s = fmt.Sprintf("WithRoute(%q): ", e.Route)
	}
	if e.Limit != "" {
		s += fmt.Sprintf("limit %.80q: ", e.Limit)
	}
	for _, part := range []string{e.Option, e.Problem} {
		if part != "" {
			s += part + ": "
		}
	}
	return s + e.Write
}

// mistakes are the problems found, in order.
type mistakes []*OptionError

// bad adds a problem, with the arguments of store.NewSpecError.
func (m *mistakes) bad(option, problem, write string, names ...any) {
	if len(names) > 0 {
		m.add(option, store.NewSpecError("", problem, write, names...))
		return
	}
	*m = append(*m, &OptionError{Option: option, Problem: problem, Write: write})
}

func (m *mistakes) add(option string, e *store.SpecError) {
	*m = append(*m, &OptionError{Option: option, Problem: e.Problem, Write: e.Write, named: e})
}

// at returns the mistakes as those of options in a route, or of a limit, or both. They
// are copies, because an option or a limit may be used in several places.
func (m mistakes) at(route, limit string) mistakes {
	placed := make(mistakes, len(m))
	for i, e := range m {
		c := *e
		c.Route, c.Limit = route, limit
		placed[i] = &c
	}
	return placed
}

// within returns the mistakes as those of an argument of option.
func (m mistakes) within(option string) mistakes {
	outer := make(mistakes, len(m))
	for i, e := range m {
		c := *e
		c.Option = option + "(" + e.Option + ")"
		outer[i] = &c
	}
	return outer
}

// errors returns the mistakes as the elements of one error, each with a heading.
func (m mistakes) errors(heading string) []error {
	errs := make([]error, len(m))
	for i, e := range m {
		errs[i] = fmt.Errorf("%s%w", heading, e)
	}
	return errs
}

// joined returns one error for all mistakes, or nil.
func (m mistakes) joined() error { return errors.Join(m.errors("stint: ")...) }

// specOptions are the options that set numbers of a store's limit. The others are
// arguments of the limit itself.
var specOptions = map[string]string{
	"Name": "WithName", "Algorithm": "WithAlgorithm", "Burst": "WithBurst", "Queue": "WithQueue",
	"Debt": "WithDebt", "WarmUp": "WithWarmUp", "Buckets": "WithBuckets",
}

// inSpec returns the mistakes that a store has found in a limit.
func inSpec(err error) (m mistakes) {
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		wrong := e.(*store.SpecError)
		m.add(specOptions[wrong.Field], wrong)
	}
	return m
}
