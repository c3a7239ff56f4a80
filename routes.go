package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/compile"
)

// WithRoute gives requests that match pattern their own limits, instead of the
// limiter's. Inherit stands for the limiter's own, under the route's settings. Without any
// option, the route is exempt. Patterns are those of http.ServeMux ("POST /login",
// "/files/", "api.example.com/"). The most specific pattern wins; hosts match in any case.
// New rejects invalid and conflicting patterns, and a route with settings but no limit.
//
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute)), // instead of the limiter's limits
//	stint.WithRoute("POST /export", stint.Inherit(), stint.WithCost(ten)), // the same limits, at another cost
//	stint.WithRoute("/healthz"), // none
//
// A request that routers can read in several ways gets the limits of every reading,
// each once, and is exempt only if every reading is. The readings are the path as sent,
// decoded, cleaned and without a trailing slash, and the host as sent, in lower case
// without trailing dots, and cut off at any colon. So no spelling slips past a route. A
// path with %2F in an id may be charged for two routes; docs/routes.md has the rules.
//
// That no request matches a pattern is no error: Limiter.Describe lists it as unmatched.
//
// In With, a route also replaces the limits of the limiter that is extended. That
// limiter's routes are inherited, with the new limits added.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return option("WithRoute", func(c *config) {
		rc := compile.Route{Pattern: pattern}
		for i, o := range opts {
			if o == nil {
				rc.Errs.Bad("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			o.applyRoute(&rc)
		}
		if len(opts) > 0 && len(rc.Limits) == 0 && !rc.Inherit && rc.Errs == nil {
			rc.Errs.Bad("", "options, but no limit",
				"write limits, stint.Inherit() for the limiter's own under these options, or no option at all to exempt the route")
		}
		c.Routes = append(c.Routes, rc)
	})
}

// Inherit stands in a WithRoute for the limiter's own limits: the same limits, with the same
// counts, under the route's key, cost and other settings, as far as a limit has none of its
// own. Further limits may stand beside it. Limits of a WithLimitFunc apply too, under the
// limiter's settings, as on every route. New rejects Inherit elsewhere, and if the limiter
// has no limits.
func Inherit() RouteOption { return inherit{} }

type inherit struct{}

func (inherit) applyRoute(rc *compile.Route) { rc.Inherit = true }

func (inherit) sets() setting { return setting{name: "Inherit"} }

func (inherit) applyLimiter(c *config) {
	c.Errs.Bad("Inherit()", "only a WithRoute has limits to inherit", "leave it out, or write it in a stint.WithRoute")
}
