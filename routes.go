package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/compile"
)

// WithRoute adds limits for requests that match pattern: they hold beside the limiter's own, and
// beside those of every other route that matches. Patterns are those of http.ServeMux ("POST /login",
// "/files/", "api.example.com/"), and so is which of two is the more specific; hosts match in
// any case.
//
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute)), // beside the limiter's limits
//	stint.WithRoute("GET /search", stint.Only(stint.Rate(2, time.Second))), // instead of them
//	stint.WithRoute("GET /healthz", stint.Exempt()), // none
//	stint.WithRoute("POST /export", stint.WithFixedCost(10)), // the same limits, at another cost
//
// A WithCost or WithFixedCost among opts is what the requests cost all rates and quotas that
// have no cost of their own, wherever these are written; the most specific route that gives one
// decides it. Other options are defaults of the limits in opts. New rejects invalid and conflicting
// patterns, a route without options, options that no limit takes, and a Limit that holds there
// already.
//
// A request that routers can read in several ways gets the limits of every reading,
// each once, and is exempt only if every reading is. The readings are the path as sent,
// decoded, cleaned and without a trailing slash, and the host as sent, in lower case
// without trailing dots, and cut off at any colon. So no spelling slips past a route. A
// path with %2F in an id may be charged for two routes; docs/routes.md has the rules.
//
// That no request matches a pattern is no error: Limiter.Describe lists it as unmatched.
//
// What With adds, limits and routes, holds beside what the limiter that is extended has for a
// request. Only and Exempt in With drop that, too; those of the extended limiter drop nothing that
// With adds.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return option("WithRoute", func(c *config) {
		rc := compile.Route{Pattern: pattern}
		var instead *compile.Route // what Only has
		for i, o := range opts {
			if o == nil {
				rc.Errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			if _, is := o.(only); is && instead != nil {
				rc.Errs.Bad("Only", "given twice", "put the limits of both into one")
			} else if is {
				instead = new(compile.Route)
				o.applyRoute(instead)
			} else {
				o.applyRoute(&rc)
			}
		}
		if instead != nil {
			switch {
			case rc.Exempt:
				rc.Errs.Bad("Exempt()", "beside something else", "leave one out")
			case len(rc.Limits) > 0:
				rc.Errs.Bad("Only", "beside other limits", "put them into it, or leave stint.Only out")
			}
			rc.Only, rc.Limits = true, append(rc.Limits, instead.Limits...)
			rc.Errs = append(rc.Errs, instead.Errs...)
		}
		c.Routes = append(c.Routes, rc)
	})
}

// Only makes limits of a WithRoute hold instead of all that is less specific: the limits of less
// specific routes, the limiter's own, and those of its limit functions. Costs of less specific
// routes stay. New rejects it without limits, also from an empty slice; twice, or beside limits, in
// one route; and outside a route.
func Only(limits ...Limit) RouteOption { return only(limits) }

type only []Limit

func (o only) applyRoute(rc *compile.Route) {
	if len(o) == 0 {
		rc.Errs.Bad("Only", "no limits", "write some, or stint.Exempt() if requests of the route have none")
	}
	for _, l := range o {
		if l.rule == exempt {
			rc.Errs.Bad("Only(Exempt())", "", "write stint.Exempt() alone")
			continue
		}
		l.applyRoute(rc)
	}
}

func (only) sets() setting { return setting{name: "Only"} }

func (o only) applyLimiter(c *config) {
	c.Errs.Bad("Only", "it stands outside a route", "write the limits without it, or in a stint.WithRoute")
}
