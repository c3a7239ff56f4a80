package stint

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/keyfunc"
	"github.com/stint-go/stint/internal/mistake"
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
	errs mistake.List
}

// collect adds up options. The conduct is the parent's, or usual, as far as they don't
// change it.
func collect(opts []Option, inherited conduct) *config {
	c := &config{conduct: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			c.errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
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
	errs    mistake.List
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
	errs    mistake.List
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
func (c *config) probe() (errs mistake.List) {
	for _, s := range c.keySources() {
		errs = append(errs, mistake.In("WithKey", s.Probe())...)
	}
	for _, p := range c.skip {
		errs = append(errs, predicate("WithSkip", p)...)
	}
	for _, p := range c.block {
		errs = append(errs, predicate("WithBlock", p)...)
	}
	return append(errs, mistake.Of("WithStore", c.store)...)
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

// predicate returns the mistakes in the arguments that a predicate of option was made with.
func predicate(option string, p func(*http.Request) bool) mistake.List {
	report := new(mistake.Error)
	probe.Predicate(p, probe.Request(), report)
	return report.Mistakes.Within(option)
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
	return mistake.Text(e.Route, e.Limit, e.Option, e.Problem, e.Write)
}

// optionError returns a mistake as an error.
func optionError(m *mistake.Mistake) *OptionError {
	return &OptionError{m.Limit, m.Route, m.Option, m.Problem, m.Write, m.Named}
}

// optionErrors returns mistakes as the elements of one error, each with a heading.
func optionErrors(all mistake.List, heading string) []error {
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = fmt.Errorf("%s%w", heading, optionError(m))
	}
	return errs
}

// joined returns one error for all mistakes, or nil.
func joined(all mistake.List) error { return errors.Join(optionErrors(all, "stint: ")...) }
