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
	"github.com/stint-go/stint/store"
)

// config is the sum of the options of one New or With.
type config struct {
	compile.Config // what they say about limits
	conduct

	observers []func(Event)
	logger    *slog.Logger
	logKeys   bool

	opts []Option // that it was collected from
}

// collect adds up options. The conduct is the parent's, or usual, as far as they don't
// change it.
func collect(opts []Option, inherited conduct) *config {
	c := &config{conduct: inherited, opts: slices.Clone(opts)} // an Update applies them again
	for i, o := range opts {
		if o == nil {
			o = nilOption(i)
		}
		o.applyLimiter(c)
	}
	return c
}

// nilOption is the mistake that an option is nil.
func nilOption(i int) Option {
	return option("", func(c *config) { c.Errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out") })
}

// optionOf is an option of some kind of limit.
type optionOf interface{ applyLimit(*compile.Rule) }

func apply[O optionOf](r *compile.Rule, opts []O) {
	for i, o := range opts {
		if any(o) == nil {
			r.Errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
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
		r.Errs.Bad(fmt.Sprintf("%s(%d)", option, n), "", "write 0 or more")
		return 0
	}
	return n
}

// change is the effect of an option on a limit.
type change func(*compile.Rule)

func (f change) applyLimit(r *compile.Rule) { f(r) }

// on returns a change of the kinds of limit with these constructors. Their interface of options
// has other kinds, for which it is a mistake.
func on(option string, set change, constructors ...string) change {
	return func(r *compile.Rule) {
		if made := constructorOf(r); !slices.Contains(constructors, made) {
			last := len(constructors) - 1
			with := strings.TrimPrefix(strings.Join(constructors[:last], ", ")+" or "+constructors[last], " or ")
			r.Errs.Bad(option, article(made)+" doesn't take it", "leave it out, or write it in "+article(with))
			return
		}
		set(r)
	}
}

func article(noun string) string {
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

// sharedSetting is the effect of an option on a limit, or on the defaults of several.
type sharedSetting func(*compile.Settings)

func (f sharedSetting) applyLimiter(c *config) { f(&c.Shared) }

func (f sharedSetting) applyLimit(r *compile.Rule) { f(&r.Shared) }

func (f sharedSetting) applyRoute(rc *compile.Route) { f(&rc.Shared) }

// marks has the marks of all kinds of limit. An option has all of them: the interface
// that its function returns says which kinds it goes with.
type marks struct{}

func (marks) ofRate() {}

func (marks) ofSlots() {}

func (marks) ofBandwidth() {}

func (marks) ofBan() {}

// The options of limits, by what they do.
type (
	changeOption struct {
		change
		marks
	}
	settingOption struct {
		setting
		sharedSetting
		marks
	}
	// settleOption is a settingOption that slots don't have.
	settleOption struct{ settingOption }
)

func (o settleOption) applyLimit(r *compile.Rule) {
	on("WithSettle", o.settingOption.applyLimit, "Rate", "Quota")(r)
}

// conduct is a limiter's configuration beside its limits. A limiter derived from it has
// the same, unless its options say otherwise.
type conduct struct {
	denyHandler   http.Handler
	errorHandler  func(http.ResponseWriter, *http.Request, error)
	problem       bool
	styles        field.Styles
	retryJitter   time.Duration
	name          string // of WithLimiterName
	withoutPermit bool
	priority      func(*http.Request) int // or nil
	silent        silence                 // by WithoutWarnings
}

// handles reports whether a handler of the limiter answers denials.
func (c *conduct) handles() bool { return c.denyHandler != nil || c.errorHandler != nil }

// usual is the conduct of a limiter without options.
var usual = conduct{styles: field.RateLimit}
