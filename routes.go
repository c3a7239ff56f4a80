package stint

import (
	"fmt"

	"github.com/stint-go/stint/internal/compile"
)

// WithRoute adds limits for requests that match pattern. By default, all requests have the
// limits of the limiter. A route's limits apply in addition to the limiter's own limits and
// those of every other route that matches. Patterns, and their order from specific to general,
// are those of http.ServeMux ("POST /login", "/files/", "api.example.com/"). Hosts are compared
// without regard to case.
//
//	stint.WithRoute("POST /login", stint.Rate(5, time.Minute)), // beside the limiter's limits
//	stint.WithRoute("GET /search", stint.Only(stint.Rate(2, time.Second))), // instead of them
//	stint.WithRoute("GET /healthz", stint.Exempt()), // none
//	stint.WithRoute("POST /export", stint.WithFixedCost(10)), // the same limits, at another cost
//
// A WithCost or WithFixedCost in opts sets the cost of the route's requests for all rates and
// quotas without a cost of their own, including those outside of the route. If several matching
// routes set a cost, the cost of the most specific route applies. A WithDenyHandler in opts
// answers requests of the route that a limit denies. Other options are defaults of the limits in
// opts. New returns an error for invalid and conflicting patterns, a route without options,
// options that no limit takes, and a Limit that already applies to the route's requests.
//
// Routers interpret some requests differently. The limits of every interpretation apply to such
// a request, each limit once. The request is exempt only if it is exempt in all
// interpretations. So clients can't evade a route by another spelling of the path or host. The
// path is interpreted in five forms: as sent, decoded, cleaned, without a trailing slash, and
// without the suffix of its last segment, such as .json, unless a pattern names the segment.
// The host is interpreted as sent, in lower case without trailing dots, and without a port. A
// path with %2F in an id may be charged for two routes; see docs/routes.md.
//
// New returns an error for a pattern that no request can match, such as "POST/login" or
// "^/api/.*", and says what to write instead. A pattern that no request of the application has
// isn't an error: Limiter.Describe lists it as unmatched.
//
// Limits and routes that With adds apply in addition to those of the extended limiter. Only and
// Exempt in With also remove limits of the extended limiter. Only and Exempt of the extended
// limiter don't remove limits that With adds.
func WithRoute(pattern string, opts ...RouteOption) Option {
	return option("WithRoute", func(c *config) {
		rc := compile.Route{Pattern: pattern}
		var replacing *compile.Route // with the limits of Only
		for i, o := range opts {
			if o == nil {
				rc.Errs.Add("", fmt.Sprintf("option %d is nil", i+1), "leave it out")
				continue
			}
			if _, isOnly := o.(only); isOnly && replacing != nil {
				rc.Errs.Add("Only", "given twice", "put the limits of both into one")
			} else if isOnly {
				replacing = new(compile.Route)
				o.applyRoute(replacing)
			} else {
				o.applyRoute(&rc)
			}
		}
		if replacing != nil {
			switch {
			case rc.Exempt:
				rc.Errs.Add("Exempt()", "combined with stint.Only", "leave Exempt out, or stint.Only")
			case len(rc.Limits) > 0:
				rc.Errs.Add("Only", "combined with other limits", "put them into stint.Only, or leave stint.Only out")
			}
			rc.Only, rc.Limits = true, append(rc.Limits, replacing.Limits...)
			rc.Errs = append(rc.Errs, replacing.Errs...)
		}
		c.Routes = append(c.Routes, rc)
	})
}

// Only makes the limits of a WithRoute replace all less specific limits: the limits of less
// specific routes, of the limiter, and of the limiter's limit functions. Costs of less specific
// routes still apply. New returns an error if Only has no limits, if a route has two Only or an
// Only and other limits, and if Only is used outside a route.
func Only(limits ...Limit) RouteOption { return only(limits) }

type only []Limit

func (o only) applyRoute(rc *compile.Route) {
	if len(o) == 0 {
		rc.Errs.Add("Only", "no limits", "add limits, or use stint.Exempt() in place of stint.Only if the route has none")
	}
	for _, l := range o {
		if l.rule == exempt {
			rc.Errs.Add("Only(Exempt())", "", "use stint.Exempt() alone")
			continue
		}
		l.applyRoute(rc)
	}
}

func (only) sets() setting { return setting{name: "Only"} }

func (o only) applyLimiter(c *config) {
	c.Errs.Add("Only", "it has no effect outside a route", "pass the limits without it, or put it in a stint.WithRoute")
}

// Exempt is a Limit that limits nothing. As the only option of a WithRoute, it exempts the
// requests of the route from all limits and limit functions that are less specific. A
// WithLimitFunc returns only Exempt() for a request to which it adds no limit; other limits
// still apply. New returns an error if Exempt is used elsewhere, or together with other limits.
func Exempt() Limit { return Limit{exempt} }
