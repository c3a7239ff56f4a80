package stint

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/field"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/store"
)

// config is the sum of the options of one New or With.
type config struct {
	compile.Config // of limits
	behavior

	observers []func(Event)
	logger    *slog.Logger
	logKeys   bool

	opts []Option // from which it was collected
}

// collect adds up options. inherited is the behavior as far as they don't change it.
func collect(opts []Option, inherited behavior) *config {
	c := &config{behavior: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			o = nilOption(i)
		}
		o.applyLimiter(c)
	}
	return c
}

// nilOption returns an option that reports that the option with index i is nil.
func nilOption(i int) Option {
	return option("", func(c *config) { c.Errs.Add("", fmt.Sprintf("option %d is nil", i+1), "leave it out") })
}

// behavior is a limiter's configuration apart from its limits. A limiter derived from it has
// the same, unless its options say otherwise.
type behavior struct {
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	retryJitter   time.Duration
	name          string // of WithLimiterName
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	ignored       mistakes.Kinds          // by WithoutWarnings
}

// handles reports whether a handler of the limiter answers denials.
func (c *behavior) handles() bool { return c.denyHandler != nil || c.errorHandler != nil }

// defaultBehavior is the behavior of a limiter without options.
var defaultBehavior = behavior{styles: field.RateLimit}

// setting is what an option sets. Update replaces what was given of the same setting.
type setting struct {
	name   string // of an option
	clears bool   // the option's argument is nil: in an Update, nothing is set any more
}

// sets is a method of every option.
func (s setting) sets() setting { return s }

// limiterOption is an option of the limiter as a whole.
type limiterOption struct {
	setting
	set func(*config)
}

func (o limiterOption) applyLimiter(c *config) { o.set(c) }

// option returns an option of the limiter whose arguments are always valid, or checked by set.
func option(name string, set func(*config)) Option {
	return limiterOption{setting{name: name}, set}
}

// checkedOption, checkedSetting and checkedRuleOption return an option that sets its argument if that is
// valid, and otherwise reports it. written is the option with the wrong argument, and write what to write
// instead.
func checkedOption(valid bool, written, write string, set func(*config)) Option {
	if valid {
		return limiterOption{settingOf(written, false), set}
	}
	return limiterOption{settingOf(written, true), func(c *config) { c.Errs.Add(written, "", write) }}
}

func checkedSetting(valid bool, written, write string, set sharedSetting) settingOption {
	if valid {
		return settingOption{setting: settingOf(written, false), sharedSetting: set}
	}
	return settingOption{setting: settingOf(written, true),
		sharedSetting: func(s *compile.Settings) { s.Errs.Add(written, "", write) }}
}

// settingOf returns the setting of an option, written with its argument. Of the invalid arguments, nil clears
// the setting.
func settingOf(written string, invalid bool) setting {
	name, argument, _ := strings.Cut(written, "(")
	return setting{name, invalid && argument == "nil)"}
}

// sharedSetting is the effect of an option on a limit, or on the defaults of several.
type sharedSetting func(*compile.Settings)

func (f sharedSetting) applyLimiter(c *config) { f(&c.Defaults) }

func (f sharedSetting) applyLimit(r *compile.Rule) { f(&r.Settings) }

func (f sharedSetting) applyRoute(rc *compile.Route) { f(&rc.Defaults) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate() {}

func (marks) ofSlots() {}

func (marks) ofBandwidth() {}

func (marks) ofBan() {}

// The options of limits, by what they do.
type (
	ruleOption struct {
		ruleChange
		marks
	}
	settingOption struct {
		setting
		sharedSetting
		marks
	}
	// unitsOption is a settingOption that slots don't have.
	unitsOption struct{ settingOption }
)

func (o unitsOption) applyLimit(r *compile.Rule) {
	onlyFor(o.name, o.settingOption.applyLimit, "Rate", "Quota")(r)
}

// checkedRuleOption returns an option of the limits that these constructors make, or of all that may have it
// by its type.
func checkedRuleOption(valid bool, written, write string, set ruleChange, constructors ...string) ruleOption {
	if !valid {
		set = func(r *compile.Rule) { r.Errs.Add(written, "", write) }
	}
	if constructors != nil {
		name, _, _ := strings.Cut(written, "(")
		set = onlyFor(name, set, constructors...)
	}
	return ruleOption{ruleChange: set}
}

// anyLimitOption is an option of some kind of limit.
type anyLimitOption interface{ applyLimit(*compile.Rule) }

// apply applies options to a limit.
func apply[O anyLimitOption](r *compile.Rule, opts []O) {
	for i, o := range opts {
		if any(o) == nil {
			r.Errs.Add("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
			continue
		}
		o.applyLimit(r)
	}
}

// orNone translates a number from the API to the store's, where 0 means the default.
func orNone(r *compile.Rule, n int64, option string) int64 {
	switch {
	case n == 0:
		return store.None
	case n < 0:
		r.Errs.Add(fmt.Sprintf("%s(%d)", option, n), "", "use 0 or more")
		return 0
	}
	return n
}

// ruleChange is the effect of an option on a limit.
type ruleChange func(*compile.Rule)

func (f ruleChange) applyLimit(r *compile.Rule) { f(r) }

// onlyFor returns set for limits that these constructors make. Other limits may have the option by its type:
// for them it reports a problem.
func onlyFor(option string, set ruleChange, constructors ...string) ruleChange {
	return func(r *compile.Rule) {
		made := constructorOf(r)
		if slices.Contains(constructors, made) {
			set(r)
			return
		}
		last := len(constructors) - 1
		alternatives := strings.TrimPrefix(strings.Join(constructors[:last], ", ")+" or "+constructors[last], " or ")
		r.Errs.Add(option, "this option doesn't apply to "+withArticle(made),
			"leave it out, or use it in "+withArticle(alternatives))
	}
}

// withArticle returns a noun after its indefinite article.
func withArticle(noun string) string {
	if noun[0] == 'A' {
		return "an " + noun
	}
	return "a " + noun
}

// constructorOf returns the name of the function that has made a limit.
func constructorOf(r *compile.Rule) string {
	switch r.Kind {
	case limit.Concurrent:
		return "Concurrency"
	case limit.Adaptive:
		return "AdaptiveConcurrency"
	case limit.Bandwidth:
		return "Bandwidth"
	case limit.Banning:
		return "Ban"
	}
	if r.Quota {
		return "Quota"
	}
	return "Rate"
}
